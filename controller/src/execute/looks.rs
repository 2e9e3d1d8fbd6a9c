//! How old a look may be for a step that cannot be undone. Pure.
//!
//! A plan is true of the moment at which the members were asked. What stops a pod, moves a role or throws a copy away on the strength of an
//! older moment may hit the member that holds the data by now. So such a step is refused once its look is too old, and asks the members that
//! it concerns again right before it acts.

use std::time::{Duration, Instant};

use plan::Step;

/// From the beginning of a look to the last step that is taken on it and cannot be undone. A look takes up to seven seconds by itself, where
/// one member is silent and another one's keys are counted; planning, and the questions that a step asks, take tens of milliseconds. What is
/// older was held up: by a move before it, by the API server, or because this process stood still.
pub(super) const MOST: Duration = Duration::from_secs(10);

/// Whether what the step does can be taken back by a later one, whoever holds which data by then.
pub(super) fn is_final(step: &Step) -> bool {
    match step {
        // A role that moves, slots that are claimed, a copy that is thrown away, an identity that is forgotten, a pod that ends or begins.
        Step::Failover { .. }
        | Step::Adopt { .. }
        | Step::Replicate { .. }
        | Step::Forget { .. }
        | Step::Release { .. }
        | Step::Restart { .. }
        | Step::RaiseEpoch { .. }
        | Step::RetireMembers { .. }
        | Step::RetireShard { .. } => true,
        // A move ends after a slice and checks its ends on the connections that carry it.
        Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::AddSlots { .. }
        | Step::Meet { .. }
        | Step::Move { .. }
        | Step::Mark { .. }
        | Step::MarkOwner { .. }
        | Step::Stabilise { .. } => false,
    }
}

/// Why nothing final may be done any more on a look that began then.
pub(super) fn too_old(begun: Option<Instant>, now: Instant) -> Option<String> {
    let Some(begun) = begun else { return Some("nobody has been looked at".to_owned()) };
    let age = now.saturating_duration_since(begun);
    (age > MOST).then(|| {
        let (age, most) = (age.as_millis(), MOST.as_millis());
        format!("it was planned on a look that began {age} ms ago, more than {most} ms: the members are looked at anew first")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plan::{FailoverHow, NodeId, Pod, ReleaseHow, RestartAs, SlotSet, Who};

    use super::*;

    fn who() -> Who {
        Who { pod: Pod::new(0, 0), id: NodeId::from_bytes([1; 20]) }
    }

    #[test]
    fn what_cannot_be_undone_may_be_done_on_a_young_look_only() {
        let now = Instant::now();
        let old = |age| too_old(now.checked_sub(age), now);
        assert_eq!((old(Duration::ZERO), old(MOST)), (None, None));
        let told = "it was planned on a look that began 10001 ms ago, more than 10000 ms: the members are looked at anew first";
        assert_eq!(old(MOST + Duration::from_millis(1)).as_deref(), Some(told));
        assert_eq!(too_old(None, now).as_deref(), Some("nobody has been looked at"));
        assert_eq!(too_old(Some(now + MOST), now), None, "a clock that is compared with a later one says nothing");
    }

    #[test]
    fn steps_that_end_pods_or_move_roles_are_final_and_settings_are_not() {
        let (node, pod, slots) = (who(), Pod::new(0, 0), SlotSet::range(0, 1));
        let final_ones = [
            Step::Failover {
                replica: node,
                primary: node.id,
                how: FailoverHow::Coordinated,
                over: None,
                unheard: SlotSet::EMPTY,
            },
            Step::Failover {
                replica: node,
                primary: node.id,
                how: FailoverHow::Force,
                over: None,
                unheard: SlotSet::EMPTY,
            },
            Step::Adopt { node, owner: None, slots: slots.clone() },
            Step::Replicate { node, primary: node },
            Step::Forget { id: node.id, by: vec![] },
            Step::Release { pod, how: ReleaseHow::Blank },
            Step::Restart { pod, expect: RestartAs::NotRunning },
            Step::RetireMembers { shard: 0, keep: 1, leaving: vec![] },
            Step::RetireShard { shard: 0, leaving: vec![] },
            Step::RaiseEpoch { node, above: 1, through: None },
        ];
        for step in final_ones {
            assert!(is_final(&step), "{step}");
        }
        let others = [
            Step::NodeTimeout { node, millis: 1 },
            Step::Epoch { node, epoch: 1 },
            Step::AddSlots { node, slots: slots.clone() },
            Step::Meet { node, peer: node, address: String::new() },
            Step::Move { from: node, to: node, slots: slots.clone() },
            Step::Mark { from: node, to: node, slots: slots.clone() },
            Step::Stabilise { node, slots },
        ];
        for step in others {
            assert!(!is_final(&step), "{step}");
        }
    }
}
