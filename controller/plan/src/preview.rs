//! What is to come, as far as nothing goes wrong: the fold of the planner over the model. There is no second way to compute it.

use crate::desired::{Desired, Limits};
use crate::model::{Luck, Outcome, World};
use crate::observed::Observed;
use crate::phase::plan;
use crate::plan::Plan;
use crate::step::Step;

/// Ticks the model is given after each batch: words travel, replicas catch up.
const TICKS_BETWEEN_ROUNDS: u32 = 3;
/// Rounds without any step after which nothing more is expected.
const STILL: u32 = 3;

/// What is to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// Batches.
    pub rounds: u32,
    /// Steps.
    pub steps: u32,
    /// Slots that move, counted once for each move.
    pub slots: u32,
    /// Pods that are restarted.
    pub restarts: u32,
    /// Primaries that hand over.
    pub hand_overs: u32,
    /// The plan at the end: satisfied, or what stands in the way. If it still has steps, the fold was cut off.
    pub last: Plan,
}

/// Plays the plan to its end, or for at most so many rounds. Costs about what the same number of plans cost, and more for large clusters:
/// for a person who asks, not for every reconcile.
#[must_use]
pub fn preview(desired: &Desired, observed: &Observed, limits: &Limits, most_rounds: u32) -> Preview {
    let mut world = World::of(observed, desired.has_volumes, desired.restart_keeps_data);
    let mut luck = Luck::good();
    let mut preview = Preview::default();
    let mut still = 0;
    while still < STILL && preview.rounds < most_rounds {
        world.provide(desired);
        let next = plan(desired, &world.observe(), limits);
        still = if next.steps.is_empty() { still + 1 } else { 0 };
        preview.rounds += u32::from(!next.steps.is_empty());
        for step in &next.steps {
            if world.obey(step, &mut luck) != Outcome::Done {
                break;
            }
            preview.count(step);
        }
        preview.last = next;
        (0..TICKS_BETWEEN_ROUNDS).for_each(|_| world.tick(&mut luck));
    }
    preview
}

impl Preview {
    fn count(&mut self, step: &Step) {
        self.steps += 1;
        match step {
            Step::Move { slots, .. } => self.slots += u32::from(slots.len()),
            Step::Restart { .. } => self.restarts += 1,
            Step::Failover { .. } => self.hand_overs += 1,
            Step::NodeTimeout { .. }
            | Step::Epoch { .. }
            | Step::RaiseEpoch { .. }
            | Step::AddSlots { .. }
            | Step::Meet { .. }
            | Step::Replicate { .. }
            | Step::Adopt { .. }
            | Step::Mark { .. }
            | Step::MarkOwner { .. }
            | Step::Stabilise { .. }
            | Step::Forget { .. }
            | Step::Release { .. }
            | Step::RetireMembers { .. }
            | Step::RetireShard { .. } => {}
        }
    }
}
