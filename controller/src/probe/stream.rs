//! Replication as several looks show it: how far each primary was when it was last seen, and how long it lived without a replica.
//!
//! A replica whose link is down still calls itself in sync. What it lacks is what its primary acknowledged between the end of the link
//! and the primary's own end, and only others know when that was: they tell when the primary's last answer on the cluster bus was.
//! Each age is measured by the clock of who tells it.

use std::collections::BTreeMap;
use std::time::Instant;

use plan::{Gap, NodeId};

use super::millis;
use super::node::{Raw, Vouched};

/// Nodes that are remembered beyond those that answer; more than a cluster loses at once.
const SPARE: usize = 64;

/// A node's replication as it was when it last answered.
#[derive(Clone, Debug)]
struct Stream {
    /// Its replication ID.
    id: String,
    /// Its replication offset.
    offset: u64,
    /// When it answered.
    seen: Instant,
    /// A primary to which no replica has come yet: with the first one it takes another replication ID (`syncCommand`).
    begins: bool,
    /// When it was last seen with another replication ID.
    other: Option<Instant>,
    /// As a replica without a link: when its offset was last that of its primary.
    level: Option<Instant>,
}

/// What is remembered between looks. Losing it costs only precision: what the nodes themselves tell remains.
#[derive(Debug, Default)]
pub(super) struct Streams {
    nodes: BTreeMap<NodeId, Stream>,
    /// For how long nobody has heard of a node, as far as those who answered in this look know.
    silent: BTreeMap<NodeId, u64>,
}

impl Streams {
    /// Takes in one look at everybody who answered.
    pub(super) fn note<'a>(&mut self, answers: impl Iterator<Item = &'a Raw> + Clone, now: Instant) {
        self.silent.clear();
        for raw in answers.clone() {
            let before = self.nodes.get(&raw.id);
            let (id, offset) = (raw.facts.replication_id.clone(), raw.facts.offset);
            let level = before.and_then(|stream| stream.level);
            let other = before.and_then(|stream| if stream.id == id { stream.other } else { Some(stream.seen) });
            let stream = Stream { id, offset, seen: now, begins: raw.begins_a_stream(), other, level };
            self.nodes.insert(raw.id, stream);
            for (other, age) in raw.pong_ages() {
                let least = self.silent.entry(other).or_insert(age);
                *least = age.min(*least);
            }
        }
        for raw in answers.clone() {
            let level = raw.follows().is_some_and(|of| self.is_level(raw, of, now));
            if let Some(stream) = self.nodes.get_mut(&raw.id).filter(|_| level) {
                stream.level = Some(now);
            }
        }
        self.forget(answers.map(|raw| raw.id).collect());
    }

    /// Both answered in this look, and the replica has all that its primary had.
    fn is_level(&self, raw: &Raw, of: NodeId, now: Instant) -> bool {
        let primary = self.nodes.get(&of).filter(|stream| stream.seen == now);
        primary.is_some_and(|stream| stream.id == raw.facts.replication_id && stream.offset <= raw.facts.offset)
    }

    fn forget(&mut self, seen: Vec<NodeId>) {
        if self.nodes.len() > seen.len().saturating_add(SPARE) {
            self.nodes.retain(|id, _| seen.contains(id));
        }
    }

    /// Whether it has been seen how far this node was.
    pub(super) fn has_seen(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether this replica's stream may be the one that its primary had last: nobody has seen that one, or it had the same replication ID, or it had no
    /// replica then, and this one has got another stream since.
    pub(super) fn is_of_stream(&self, raw: &Raw, of: NodeId) -> bool {
        let Some(primary) = self.nodes.get(&of) else { return true };
        let since = self.nodes.get(&raw.id).and_then(|stream| stream.other);
        let is_first = primary.begins && since.is_some_and(|since| since >= primary.seen);
        primary.id == raw.facts.replication_id || is_first
    }

    /// Bytes by which a primary is ahead of this replica, or was when it last answered.
    pub(super) fn lag(&self, raw: &Raw, of: NodeId) -> u64 {
        let same = self.nodes.get(&of).filter(|stream| stream.id == raw.facts.replication_id);
        same.map_or(0, |stream| stream.offset.saturating_sub(raw.facts.offset))
    }

    /// What the primary may have done since its link to this replica was lost.
    pub(super) fn gap(&self, raw: &Raw, of: NodeId, now: Instant) -> Gap {
        // A link that only looks up is one over which the agent sees nothing come.
        let is_forbidden = raw.is_forbidden();
        let Some(lost) = raw.link_lost_millis().or(is_forbidden.then_some(0)) else { return Gap::default() };
        let age = |at: Instant| millis(now.saturating_duration_since(at));
        let seen = self.nodes.get(&of).map(|stream| age(stream.seen));
        let told = self.silent.get(&of).copied();
        // Of whom nobody has ever heard, nobody knows that it is gone.
        let silent_millis = seen.into_iter().chain(told).min().unwrap_or(0);
        let level = self.nodes.get(&raw.id).and_then(|stream| stream.level).map(age);
        // Its agent knows better than Redis, which stood still, or waited for a connection that nobody closed, or has just got it back.
        let behind_since = match raw.vouched {
            Vouched::Millis(current) => current.max(lost),
            Vouched::Never => u64::MAX,
            // Why it forbids that, it would have to say.
            Vouched::Not if is_forbidden => u64::MAX,
            Vouched::Not => level.map_or(lost, |level| level.min(lost)),
        };
        // A link that a network swallows looks up for long after it brought the last byte.
        let behind_millis = if raw.vouched == Vouched::Not { u64::MAX } else { behind_since };
        Gap { missed_millis: behind_since.saturating_sub(silent_millis), silent_millis, behind_millis }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
