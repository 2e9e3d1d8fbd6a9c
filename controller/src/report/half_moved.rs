//! Which slots are half moved, and between whom: from the marks of all nodes, as a sentence.

use std::collections::{BTreeMap, BTreeSet};

use plan::{NodeId, Observed, Open, Plan, Pod, Seen, Step};

/// Pairs of members that are told; the rest are a number.
const TOLD: usize = 3;

/// Half-moved slots by where they come from and where they go; `None` if there are none. A slot counts once, whoever marks it.
pub(super) fn half_moved(observed: &Observed) -> Option<String> {
    by_marks_of(observed, |_| true)
}

/// What a backup waits for: half-moved slots, or those that move next. Marks that a replaced primary has kept say nothing of what moves, and stay
/// until a person gives it up.
pub(crate) fn on_the_way(observed: &Observed, plan: &Plan) -> Option<String> {
    by_marks_of(observed, |pod| !observed.is_replaced(pod)).or_else(|| plan.steps.iter().find_map(next))
}

fn next(step: &Step) -> Option<String> {
    let Step::Move { from, to, slots } = step else { return None };
    Some(format!("{} slots move from {} to {}", slots.len(), from.pod, to.pod))
}

fn by_marks_of(observed: &Observed, counts: impl Fn(Pod) -> bool) -> Option<String> {
    let mut ends: BTreeMap<u16, (String, String)> = BTreeMap::new();
    for (pod, member) in observed.members.iter().filter(|(pod, _)| counts(**pod)) {
        let Seen::Node(node) = &member.seen else { continue };
        for (slot, mark) in &node.open {
            let (from, to) = match mark {
                Open::Migrating(to) => (pod.to_string(), name(observed, *to)),
                Open::Importing(from) => (name(observed, *from), pod.to_string()),
            };
            // Its owner knows best where it goes.
            if node.slots().contains(*slot) || !ends.contains_key(slot) {
                ends.insert(*slot, (from, to));
            }
        }
    }
    let mut pairs: BTreeMap<(String, String), BTreeSet<u16>> = BTreeMap::new();
    for (slot, pair) in ends {
        pairs.entry(pair).or_default().insert(slot);
    }
    let told = pairs.iter().take(TOLD).map(|((from, to), slots)| {
        let first = slots.first().copied().unwrap_or_default();
        match slots.len() {
            1 => format!("slot {first} is half moved from {from} to {to}"),
            count => format!("{count} slots, the first of them {first}, are half moved from {from} to {to}"),
        }
    });
    let mut parts: Vec<String> = told.collect();
    let rest: usize = pairs.values().skip(TOLD).map(BTreeSet::len).sum();
    if rest > 0 {
        parts.push(format!("{rest} more between others"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The place of a node, or its name where it has none.
fn name(observed: &Observed, id: NodeId) -> String {
    let is_there = |(_, member): &(&Pod, &plan::Member)| match &member.seen {
        Seen::Node(node) => node.id == id,
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => {
            member.last_id == Some(id)
        }
    };
    let place = observed.members.iter().find(is_there).map(|(pod, _)| pod.to_string());
    place.unwrap_or_else(|| format!("node {}", id.short()))
}
