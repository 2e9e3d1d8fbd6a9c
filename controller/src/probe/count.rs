//! Keys that primaries hold of slots they do not own, or are sending away, counted a part at a time: what has been counted is remembered for each node until
//! it claims something else. A member whose keys are not all counted is known all the same; which slots are still to be counted is a fact
//! of its own, for those steps that need it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plan::{Node, NodeId, Open, SlotSet};
use resp::{Command, Connection};

use crate::redis::{self, Access, Error};

/// How long one look counts; a machine that is busy needs several. The others of the look wait for it.
const SLICE: Duration = Duration::from_secs(1);
/// Slots of one pipeline, fewest and most: it has a deadline of its own, and who does not keep it is asked for less the next time.
const TURN: (usize, usize) = (8, redis::PIPELINE);
/// A pipeline that took no longer than this may be twice as long the next time.
const QUICK: Duration = Duration::from_millis(100);
/// How often slots are searched for keys of other owners without any sign of them.
const ANEW_EVERY: Duration = Duration::from_secs(300);

/// What has been counted, by node.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<NodeId, Count>);

/// What has been counted of one node.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// Its epoch when counting began: with another one it may have lost slots and won them back.
    epoch: u64,
    begun: Instant,
    /// Slots that have been counted.
    done: SlotSet,
    /// Those of them with keys, and how many.
    held: BTreeMap<u16, u64>,
    /// Slots of the next pipeline.
    turn: usize,
}

impl Counts {
    /// All slots are counted anew.
    pub(super) fn anew(&mut self) {
        self.0.values_mut().for_each(|count| count.done = SlotSet::EMPTY);
    }

    /// What is known of a primary now, and what is to be counted of it, most urgent first: slots with a mark anywhere and those in which
    /// keys were found change while clients work.
    pub(super) fn begin(&mut self, node: &Node, marked: &SlotSet, now: Instant) -> (Count, Vec<u16>) {
        let foreign = node.slots().complement();
        let before = self.0.remove(&node.id);
        let turn = before.as_ref().map_or(TURN.1, |count| count.turn);
        let is_of_now =
            |count: &Count| count.epoch == node.epoch && now.saturating_duration_since(count.begun) < ANEW_EVERY;
        let fresh = || Count { epoch: node.epoch, begun: now, done: SlotSet::EMPTY, held: BTreeMap::new(), turn };
        let mut count = before.filter(is_of_now).unwrap_or_else(fresh);
        let held: SlotSet = count.held.keys().copied().collect();
        let leaving = leaving(node);
        let urgent = marked.union(&held).intersection(&foreign).union(&leaving);
        count.done = count.done.intersection(&foreign).difference(&urgent);
        count.held.retain(|slot, _| count.done.contains(*slot));
        let rest = foreign.difference(&count.done).difference(&urgent);
        let asked = urgent.iter().chain(rest.iter()).collect();
        (count, asked)
    }

    /// Writes what is known of a primary where the planner reads it, and remembers it.
    pub(super) fn end(&mut self, node: &mut Node, count: Count) {
        node.uncounted = node.slots().complement().difference(&count.done);
        let leaving = leaving(node);
        let keys = |slot: u16| (slot, count.held.get(&slot).copied().unwrap_or(0));
        node.leaving = leaving.intersection(&count.done).iter().map(keys).collect();
        node.foreign_keys = count
            .held
            .iter()
            .filter(|(slot, _)| !leaving.contains(**slot))
            .map(|(slot, keys)| (*slot, *keys))
            .collect();
        self.0.insert(node.id, count);
    }

    /// What is true of a primary before anything of it is counted: one without any key has none anywhere.
    pub(super) fn presume(node: &mut Node) {
        if node.keys > 0 {
            node.uncounted = node.slots().complement();
        } else {
            node.leaving = leaving(node).iter().map(|slot| (slot, 0)).collect();
        }
    }

    /// Nodes that are not seen as primaries any more are forgotten: when they are back they are counted anew.
    pub(super) fn keep(&mut self, seen: impl Fn(NodeId) -> bool) {
        self.0.retain(|id, _| seen(*id));
    }
}

/// Slots of its own that a node is sending away.
fn leaving(node: &Node) -> SlotSet {
    let marks =
        node.open.iter().filter(|(slot, mark)| matches!(mark, Open::Migrating(_)) && node.slots().contains(**slot));
    marks.map(|(slot, _)| *slot).collect()
}

impl Count {
    /// A pipeline was answered.
    fn note(&mut self, slots: &[u16], keys: &[u64], took: Duration) {
        for (slot, keys) in slots.iter().zip(keys) {
            self.done.insert(*slot);
            if *keys > 0 {
                self.held.insert(*slot, *keys);
            }
        }
        if took < QUICK {
            self.turn = self.turn.saturating_mul(2).min(TURN.1);
        }
    }

    /// A pipeline was not.
    fn slow_down(&mut self) {
        self.turn = (self.turn / 2).max(TURN.0);
    }

    /// Counts at exactly this node until the time is used up.
    pub(super) async fn go_on(mut self, access: &Access, address: SocketAddr, id: NodeId, asked: Vec<u16>) -> Self {
        if asked.is_empty() {
            return self;
        }
        let until = Instant::now() + SLICE;
        match access.open_node(address, id).await {
            Ok(mut connection) => self.count(&mut connection, &asked, until).await,
            Err(error) => tracing::debug!(%address, error = %crate::chain(&error), "keys are not counted this time"),
        }
        self
    }

    async fn count(&mut self, connection: &mut Connection, asked: &[u16], until: Instant) {
        let mut left = asked;
        while !left.is_empty() && Instant::now() < until {
            let (slots, after) = left.split_at(self.turn.min(left.len()));
            let begun = Instant::now();
            match keys_in(connection, slots).await {
                Ok(keys) => self.note(slots, &keys, begun.elapsed()),
                Err(error) => {
                    self.slow_down();
                    let address = connection.address();
                    tracing::debug!(%address, error = %crate::chain(&error), "keys are counted more slowly");
                    return;
                }
            }
            left = after;
        }
    }
}

async fn keys_in(connection: &mut Connection, slots: &[u16]) -> Result<Vec<u64>, Error> {
    let command = |slot: &u16| Command::new("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot.to_string());
    let commands: Vec<Command> = slots.iter().map(command).collect();
    let address = connection.address();
    let replies = redis::all(connection, &commands).await?;
    let number = |reply: &resp::Reply| reply.integer().and_then(|keys| u64::try_from(keys).ok());
    let keys: Option<Vec<u64>> = replies.iter().map(number).collect();
    let why = || Error::Answer { what: "CLUSTER COUNTKEYSINSLOT", address, why: "it is no number".to_owned() };
    keys.ok_or_else(why)
}

#[cfg(test)]
#[path = "count_tests.rs"]
mod tests;
