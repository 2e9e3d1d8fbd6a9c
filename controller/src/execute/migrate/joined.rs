//! The first slot of a shard that keeps nothing on disk waits for a replica. What moves had been replicated for long, and would be in one
//! memory only: its end would be the end of all that has arrived.
//!
//! Members let replicas in once they own or import a slot (the agent's `admission`), so one slot is marked at the target for as long as a replica is
//! waited for. At the source nothing is marked: no client is sent to the target, which has nothing yet. And no mark stays where nobody comes: what
//! is half moved keeps everything else from being done, and it may be just that what the replica needs.

use std::time::Instant;

use resp::{Command, Connection};

use super::keys::Ends;
use super::replicas::{LOOK, has_replica};
use super::{Error, Move, Sorted, leading, set_slot};
use crate::lease::Guard;
use crate::redis::{self, Error as RedisError};

/// So long a move waits for a replica before it is tried again: replicas try to connect once a second, and get the copy of an empty primary in less.
const JOIN: std::time::Duration = std::time::Duration::from_secs(4);

/// Whether what moves would be in the memory of the target alone.
pub(super) async fn is_alone(ends: &mut Ends, order: Move<'_>, guard: &Guard, sorted: &Sorted) -> Result<bool, Error> {
    if !order.needs_replica || !sorted.is_first || sorted.is_sent || !is_empty(&mut ends.target).await? {
        return Ok(false);
    }
    // Whose a slot is that it imports, a node does not hear.
    let Some(slot) = sorted.to_move.iter().copied().find(|slot| !sorted.is_misplaced(*slot)) else { return Ok(false) };
    leading(guard)?;
    let mark = set_slot(&[slot], "IMPORTING", order.from.id);
    redis::set_slots(&mut ends.target, &mut ends.more_target, &mark).await?;
    let begun = Instant::now();
    while !has_replica(&mut ends.target).await? {
        if begun.elapsed() > JOIN {
            leading(guard)?;
            let stable = Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), "STABLE"]);
            redis::set_slots(&mut ends.target, &mut ends.more_target, &[stable]).await?;
            return Ok(true);
        }
        tokio::time::sleep(LOOK.1).await;
    }
    Ok(false)
}

async fn is_empty(target: &mut Connection) -> Result<bool, Error> {
    Ok(target.info(&["keyspace"]).await.map_err(RedisError::from)?.keys() == 0)
}
