//! The first slot of a shard that keeps not every write on disk waits for its replicas. What moves had been replicated for long, and would be
//! in one memory only: its end would be the end of all that has arrived. From the second slot on the planner waits for them (`safety::first_copy`).
//! As there, replicas that are not there are not waited for: what brings them may be what comes after the move.
//!
//! Members let replicas in once they own or import a slot (the agent's `admission`), so one slot is marked at the target for as long as they are
//! waited for. At the source nothing is marked: no client is sent to the target, which has nothing yet. And no mark stays: what is half moved keeps
//! everything else from being done.

use std::time::{Duration, Instant};

use plan::NodeId;
use resp::{Command, Connection};

use super::keys::Ends;
use super::replicas::{LOOK, has_replica};
use super::{Alone, Error, Joining, Move, Sorted, leading, set_slot};
use crate::lease::Guard;
use crate::redis::{self, Error as RedisError};

/// So long a move waits before it is tried again: replicas try to connect once a second, and get the copy of an empty primary in less.
const JOIN: Duration = Duration::from_secs(4);

/// Whether what moves would be in the memory of the target alone, or was so until a moment ago, since which nobody has looked at the rest.
pub(super) async fn alone(
    ends: &mut Ends,
    order: Move<'_>,
    guard: &Guard,
    sorted: &Sorted,
) -> Result<Option<Alone>, Error> {
    let Some(joining) = order.joining.filter(|_| sorted.is_first && !sorted.is_sent) else { return Ok(None) };
    if !is_coming(&mut ends.target, order, joining).await? {
        return Ok(None);
    }
    // Whose a slot is that it imports, a node does not hear.
    let Some(slot) = sorted.to_move.iter().copied().find(|slot| !sorted.is_misplaced(*slot)) else { return Ok(None) };
    leading(guard)?;
    let mark = set_slot(&[slot], "IMPORTING", order.from.id);
    redis::set_slots(&mut ends.target, &mut ends.more_target, &mark).await?;
    let (begun, mut found) = (Instant::now(), Alone::Still);
    while begun.elapsed() < JOIN && found == Alone::Still {
        tokio::time::sleep(LOOK.1).await;
        if !is_coming(&mut ends.target, order, joining).await? {
            found = Alone::NoMore;
        }
    }
    leading(guard)?;
    let stable = Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), "STABLE"]);
    redis::set_slots(&mut ends.target, &mut ends.more_target, &[stable]).await?;
    Ok(Some(found))
}

/// Whether it has nothing yet, and of its replicas, which are there, none has its copy.
async fn is_coming(target: &mut Connection, order: Move<'_>, joining: Joining<'_>) -> Result<bool, Error> {
    if has_replica(target).await? || target.info(&["keyspace"]).await.map_err(RedisError::from)?.keys() > 0 {
        return Ok(false);
    }
    if joining.is_seen {
        return Ok(true);
    }
    let table = target.cluster_nodes().await.map_err(RedisError::from)?;
    let is = |id: &resp::NodeId, other: NodeId| NodeId::parse(id.as_str()) == Some(other);
    let follows = |node: &resp::Node| node.primary.as_ref().is_some_and(|of| is(of, order.to.id));
    let stays = |node: &resp::Node| !joining.leaving.iter().any(|other| is(&node.id, *other));
    Ok(table.iter().any(|node| follows(node) && stays(node) && node.connected && !node.flags.failed))
}
