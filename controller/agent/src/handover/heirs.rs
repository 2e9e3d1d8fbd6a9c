//! Who may take over from a primary that stops, and who may be able to in a moment. Pure.

use std::{net::SocketAddr, time::Duration};

use resp::{Node, NodeId, info::ReplicaLine};
use tokio::time::Instant;

use super::{PATIENCE_LOOK, attempt::Tried};

/// A replica that has not acknowledged for longer is not in sync.
const LAG_SECONDS: i64 = 2;

/// Redis lets an election count for so long at least.
const ELECTION_LEAST: Duration = Duration::from_secs(2);

/// A replica that may take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heir {
    pub id: NodeId,
    pub address: SocketAddr,
}

/// The replicas of a primary at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heirs {
    /// Known members whose stream is up to date, furthest first.
    pub ready: Vec<Heir>,
    /// What the others are up to.
    pub others: Others,
}

/// The most that can be hoped for from replicas that are not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Others {
    /// Nobody is there.
    Gone,
    /// One has a link to this member on the cluster bus alone: whoever lost the stream asks for it again every second.
    Linked,
    /// One is attached: it gets its copy, or acknowledges late.
    Attached,
}

/// Reads one look.
pub(super) fn heirs(table: &[Node], attached: &[ReplicaLine]) -> Heirs {
    let mine = table.iter().find(|node| node.flags.myself).map(|node| &node.id);
    let is_alive = |node: &&Node| node.flags.replica && !node.flags.failed && node.primary.as_ref() == mine;
    // A backup's reader also shows up as a replica; it has no port and is in no table.
    let known = |line: &ReplicaLine| {
        let address = SocketAddr::new(line.host.parse().ok()?, line.port);
        let node = table.iter().filter(is_alive).find(|node| node.address == Some(address))?;
        Some(Heir { id: node.id.clone(), address })
    };
    let is_ready = |line: &&ReplicaLine| line.state == "online" && (0..=LAG_SECONDS).contains(&line.lag);
    let mut fit: Vec<&ReplicaLine> = attached.iter().filter(is_ready).collect();
    fit.sort_by_key(|line| std::cmp::Reverse(line.offset));
    let ready: Vec<Heir> = fit.into_iter().filter_map(known).collect();
    let is_other = |id: &NodeId| ready.iter().all(|heir| heir.id != *id);
    let others = if attached.iter().filter_map(known).any(|heir| is_other(&heir.id)) {
        Others::Attached
    } else if table.iter().filter(is_alive).any(|node| node.connected && !node.flags.suspected && is_other(&node.id)) {
        Others::Linked
    } else {
        Others::Gone
    };
    Heirs { ready, others }
}

/// Those first of whom more is to be expected than of those who were tried.
pub(super) fn ranked(mut ready: Vec<Heir>, tried: &[Tried]) -> Vec<Heir> {
    let is_last = |heir: &Heir| tried.iter().any(|tried| tried.id == heir.id && tried.end.is_likely_to_repeat());
    ready.sort_by_key(is_last);
    ready
}

/// Whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    /// Those who may be asked now, the best first.
    pub now: Vec<Heir>,
    /// Somebody's turn comes later.
    pub later: bool,
}

/// Orders those who are ready, and leaves out whose turn has not come. `others` are worth waiting for until `until`, a turn until `limit`.
pub(super) fn turns(
    ready: Vec<Heir>,
    tried: &[Tried],
    (now, until, limit): (Instant, Instant, Instant),
    node_timeout: Duration,
) -> Turns {
    let turn = |heir: &Heir| {
        let last = tried.iter().rfind(|tried| tried.id == heir.id);
        last.map_or(Some(now), |last| again(last, (now, until, limit), node_timeout))
    };
    let (mut due, mut later) = (Vec::new(), false);
    for heir in ranked(ready, tried) {
        match turn(&heir) {
            Some(at) if at <= now => due.push(heir),
            Some(_) => later = true,
            None => {}
        }
    }
    Turns { now: due, later }
}

/// From when on one that was tried may be tried again, `now` at the earliest; `None`: not any more.
///
/// Up to Redis 7 and Valkey 8.0 a replica begins its next election four node timeouts after its last (`auth_retry_time`), and until two are over
/// the last one counts, if its votes come. In between an order would pause the writes for nothing.
fn again(last: &Tried, (now, until, limit): (Instant, Instant, Instant), node_timeout: Duration) -> Option<Instant> {
    let rested = if last.end.is_likely_to_repeat() { until.max(last.over + PATIENCE_LOOK) } else { last.over };
    let rested = rested.max(now);
    let Some(ordered) = last.ordered else { return Some(rested) };
    let counts = (node_timeout * 2).max(ELECTION_LEAST);
    if ordered + counts * 2 <= limit {
        Some(rested.max(ordered + counts * 2))
    } else {
        (rested <= ordered + counts).then_some(rested)
    }
}

/// The primary that this member follows.
pub(super) fn primary(table: &[Node]) -> Option<Heir> {
    let id = table.iter().find(|node| node.flags.myself)?.primary.as_ref()?;
    let node = table.iter().find(|node| node.id == *id)?;
    Some(Heir { id: id.clone(), address: node.address? })
}
