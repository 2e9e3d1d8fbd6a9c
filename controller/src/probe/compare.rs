//! Whether the owners of slots have the keys that a former primary still holds of them, by their names: for the person who decides what
//! becomes of these. Values are not compared.

use std::collections::{BTreeMap, btree_map::Entry};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plan::{Node, NodeId, Observed, Seen, SlotSet};
use resp::{Command, Connection, Reply};

use crate::redis::{self, Access, Error};

/// How long one look compares; the rest waits for the next one.
const SLICE: Duration = Duration::from_secs(1);
/// Keys of one slot that are compared at most: CLUSTER GETKEYSINSLOT gives all names in one answer, and they are compared within one look.
const MOST: u64 = 20_000;
/// For how long an answer counts while the number of keys stays the same.
const KNOWN_FOR: Duration = Duration::from_secs(30);

/// What has been compared, by former primary and slot.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<(NodeId, u16), Answer>);

#[derive(Clone, Copy, Debug)]
struct Answer {
    keys: u64,
    holds_all: bool,
    at: Instant,
}

/// Compares what there is to compare, and writes what is known where the planner reads it.
pub(super) async fn look(access: &Access, observed: &mut Observed, known: &mut Known) {
    let now = Instant::now();
    known.0.retain(|_, answer| now.saturating_duration_since(answer.at) < KNOWN_FOR);
    for (former, asked) in known.asked(observed) {
        let compared = tokio::time::timeout(SLICE, go_on(access, former, &asked, known)).await;
        if let Ok(Err(error)) = compared {
            tracing::debug!(error = %crate::chain(&error), "the keys of a former primary are not compared this time");
        }
    }
    for member in observed.members.values_mut() {
        if let Seen::Node(node) = &mut member.seen
            && is_former(node)
        {
            node.compared = known.of(node);
        }
    }
}

/// A server, as it was seen.
type Place = (NodeId, SocketAddr);

/// A slot, its owner, and how many keys of it the former primary holds.
type Question = (u16, Place, u64);

impl Known {
    /// What is to be compared, by former primary. Of a slot that nobody or several claim nothing can be said.
    fn asked(&self, observed: &Observed) -> Vec<(Place, Vec<Question>)> {
        let formers = super::nodes(observed).filter(|node| is_former(node));
        let asked = formers.filter_map(|node| {
            let known = self.of(node);
            let held =
                node.foreign_keys.iter().filter(|(slot, keys)| (1..=MOST).contains(*keys) && !known.contains_key(slot));
            let questions = held.filter_map(|(slot, keys)| Some((*slot, owner(observed, *slot)?, *keys)));
            Some((place(node)?, questions.collect()))
        });
        asked.filter(|(_, questions): &(Place, Vec<Question>)| !questions.is_empty()).collect()
    }

    fn of(&self, node: &Node) -> BTreeMap<u16, bool> {
        let answer = |(slot, keys): (&u16, &u64)| {
            let answer = self.0.get(&(node.id, *slot)).filter(|answer| answer.keys == *keys)?;
            Some((*slot, answer.holds_all))
        };
        node.foreign_keys.iter().filter_map(answer).collect()
    }

    fn note(&mut self, former: NodeId, slot: u16, keys: u64, holds_all: bool) {
        self.0.insert((former, slot), Answer { keys, holds_all, at: Instant::now() });
    }
}

/// A primary that owns no slot, and whose keys are all counted.
fn is_former(node: &Node) -> bool {
    node.is_primary() && node.slots().is_empty() && node.keys > 0 && node.uncounted == SlotSet::EMPTY && !node.loading
}

fn owner(observed: &Observed, slot: u16) -> Option<Place> {
    let mut owners = super::nodes(observed).filter(|node| node.slots().contains(slot));
    let owner = owners.next().filter(|_| owners.next().is_none())?;
    place(owner)
}

fn place(node: &Node) -> Option<Place> {
    Some((node.id, node.address.parse().ok()?))
}

async fn go_on(access: &Access, former: Place, asked: &[Question], known: &mut Known) -> Result<(), Error> {
    let mut held = access.open_node(former.1, former.0).await?;
    let mut owners: BTreeMap<NodeId, Connection> = BTreeMap::new();
    for (slot, owner, keys) in asked {
        let there = match owners.entry(owner.0) {
            Entry::Vacant(entry) => entry.insert(access.open_node(owner.1, owner.0).await?),
            Entry::Occupied(entry) => entry.into_mut(),
        };
        match holds_all(&mut held, there, *slot, *keys).await {
            Ok(holds_all) => known.note(former.0, *slot, *keys, holds_all),
            // It has another owner by now, or is on its way to one.
            Err(Error::Refused { .. } | Error::Answer { .. }) => {}
            Err(error @ (Error::Redis(_) | Error::Identity { .. })) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the owner of a slot holds each of the keys that another node holds of it.
///
/// # Errors
/// When one of them does not answer, the slot has another owner or is half moved, or there are more keys than were counted.
async fn holds_all(held: &mut Connection, owner: &mut Connection, slot: u16, keys: u64) -> Result<bool, Error> {
    let most = keys.saturating_add(1);
    let named = held.call(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most.to_string()]).await?;
    let names = named.items().filter(|names| names.len() as u64 <= keys);
    let names = names.ok_or_else(|| Error::Answer {
        what: "CLUSTER GETKEYSINSLOT",
        address: held.address(),
        why: format!("these are not the {keys} keys of slot {slot} that were counted"),
    })?;
    // Of all commands that the controller may send, the one that tells whether a key is there.
    let usage = |name: &Reply| match name {
        Reply::Bulk(name) => Some(Command::new("MEMORY").arg("USAGE").arg(name).args(["SAMPLES", "1"])),
        Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Nil | Reply::Array(_) => None,
    };
    let commands: Option<Vec<Command>> = names.iter().map(usage).collect();
    let why =
        || Error::Answer { what: "CLUSTER GETKEYSINSLOT", address: held.address(), why: "it names no keys".to_owned() };
    let replies = redis::all_in_turns(owner, &commands.ok_or_else(why)?).await?;
    Ok(replies.iter().all(|reply| matches!(reply, Reply::Integer(_))))
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
