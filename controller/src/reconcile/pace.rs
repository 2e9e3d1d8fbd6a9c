//! When to look again. Kubernetes wakes us by events; Redis does not, so while something is under way it is looked at
//! often, less often the longer nothing moves, and at rest every few seconds, so that the status tells the truth.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plan::{NodeId, SlotSet};

use super::{Local, Round};
use crate::queue::Next;

/// At rest: a violation shows within ten seconds. Costs Redis one pipeline per node and the API server nothing.
pub(super) const AT_REST: Duration = Duration::from_secs(5);
/// Right after a step.
const AFTER_STEP: Duration = Duration::from_millis(5);
/// While waiting: a twentieth of the time nothing has moved, within these bounds.
const WAITING: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// After failed steps: a fifth of that time, within these bounds.
const FAILING: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(15));
/// The same while slots have nobody who answers: what fails elsewhere must not keep their next owner waiting, and what decides about that one is
/// counted in seconds.
const FAILING_UNSERVED: Duration = Duration::from_secs(2);
/// Deletion is woken by events; this is for those that got lost.
pub(super) const WHILE_LEAVING: Duration = Duration::from_secs(1);
/// Finished records of clusters that do not exist are looked at for their time to live.
pub(super) const RECORDS: Duration = Duration::from_secs(60);

/// What waits for a person who brings an object back; the watch tells of it. This is for a word that got lost.
pub(super) const HELD: Duration = Duration::from_secs(30);
/// One cache is ahead of another: what it lacks is on its way.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// When to look again; `rewrite`: the status is worth a write after that time.
pub(super) fn next(local: &mut Local, round: &Round, rewrite: Option<Duration>) -> Next {
    let now = Instant::now();
    let repeated = local.steps == round.plan.steps;
    let moved = !round.executed.done.is_empty() && round.executed.failed.is_empty() && !repeated;
    let is_well = round.plan.is_satisfied() && round.troubles.is_empty();
    let slots = slots(&round.probed.observed);
    let longest = longest(&slots, is_formed(&round.probed.observed));
    if moved || !round.applied.created.is_empty() || is_well || has_gained(&local.slots, &slots) {
        local.progress_at = now;
    }
    local.slots = slots;
    local.steps.clone_from(&round.plan.steps);
    let still = now.saturating_duration_since(local.progress_at);
    // An object that Kubernetes refuses is asked for after pauses of its own, and the members are looked after meanwhile.
    let fails = round.troubles.len() > round.applied.refused.len();
    let pause = if fails {
        (still / 5).clamp(FAILING.0, longest)
    } else if moved {
        AFTER_STEP
    } else if round.plan.steps.is_empty() && round.plan.waiting.is_empty() {
        // A setting that was put back must be seen before the status may say so.
        if round.temporary.is_empty() { AT_REST } else { WAITING.0 }
    } else {
        (still / 20).clamp(WAITING.0, WAITING.1)
    };
    Next::After(rewrite.map_or(pause, |rewrite| rewrite.min(pause)))
}

/// Whose the slots are, of those who answer.
fn slots(observed: &plan::Observed) -> BTreeMap<NodeId, SlotSet> {
    crate::probe::nodes(observed).map(|node| (node.id, node.slots().clone())).collect()
}

/// Somebody knows of an owner of slots: where nobody does there is no cluster yet, or one server without slots.
fn is_formed(observed: &plan::Observed) -> bool {
    let owns = |node: &plan::Node| !node.slots().is_empty() || node.peers.values().any(|peer| !peer.slots().is_empty());
    crate::probe::nodes(observed).any(owns)
}

/// The longest pause after failed steps.
fn longest(slots: &BTreeMap<NodeId, SlotSet>, is_formed: bool) -> Duration {
    let served = slots.values().fold(SlotSet::EMPTY, |all, slots| all.union(slots));
    if !is_formed || served == SlotSet::all() { FAILING.1 } else { FAILING_UNSERVED }
}

/// Somebody who answered at both looks has got slots: a move that fails in the end has come that far, and need not rest long before it goes on.
fn has_gained(before: &BTreeMap<NodeId, SlotSet>, now: &BTreeMap<NodeId, SlotSet>) -> bool {
    before.iter().any(|(id, had)| now.get(id).is_some_and(|has| !has.difference(had).is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{healthy, id, node};

    #[test]
    fn what_fails_is_tried_again_sooner_while_slots_are_not_served() {
        let longest_with =
            |first: SlotSet, second: SlotSet| longest(&[(id(0, 0), first), (id(1, 0), second)].into(), true);
        let [low, high] = [SlotSet::range(0, 9), SlotSet::range(10, 16_383)];
        assert_eq!(longest_with(low.clone(), high), FAILING.1);
        assert_eq!(longest_with(low, SlotSet::EMPTY), FAILING_UNSERVED);
        // Replicas are left, who own nothing.
        assert_eq!(longest_with(SlotSet::EMPTY, SlotSet::EMPTY), FAILING_UNSERVED);
        assert_eq!(longest(&BTreeMap::new(), false), FAILING.1);
        let mut probed = healthy(1, 2);
        assert!(is_formed(&probed.observed));
        probed.observed.members.remove(&plan::Pod::new(0, 0));
        assert!(is_formed(&probed.observed), "its replica lists it with its slots");
        assert!(!is_formed(&plan::Observed::default()));
    }

    #[test]
    fn a_move_that_failed_halfway_is_progress_and_an_answer_is_none() {
        let mut probed = healthy(3, 2);
        let before = slots(&probed.observed);
        assert!(!has_gained(&before, &before));
        // Who did not answer before has gained nothing by answering.
        let without = before.iter().filter(|(known, _)| **known != id(1, 0)).map(|(id, slots)| (*id, slots.clone()));
        assert!(!has_gained(&without.collect(), &before) && !has_gained(&before, &BTreeMap::new()));
        let giver = before[&id(0, 0)].clone();
        let given = giver.lowest(3);
        node(&mut probed, 0, 0).role = plan::Role::Primary { slots: giver.difference(&given) };
        assert!(!has_gained(&before, &slots(&probed.observed)), "slots that nobody has");
        node(&mut probed, 1, 0).role = plan::Role::Primary { slots: before[&id(1, 0)].union(&given) };
        assert!(has_gained(&before, &slots(&probed.observed)));
    }
}
