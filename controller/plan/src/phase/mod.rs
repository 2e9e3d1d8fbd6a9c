//! The phases, in order of danger. A phase that has work, or must wait before anything more dangerous may be done, ends the round. What they
//! have planned is carried out in order of urgency ([`turn`]). Where slots are lost, `cover` calls those after it that touch nothing of what
//! is lost.

mod admit;
mod agree;
mod balance;
mod cover;
mod create;
mod finish;
mod heal;
mod operate;
mod receiver;
mod replicate;
mod roll;
mod spread;
mod standalone;
mod tidy;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::desired::{Desired, FailoverHow, Limits, Mode};
use crate::observed::{NodeId, Observed};
use crate::plan::{Plan, Refused, count};
use crate::scene::{Scene, identity};
use crate::serving::serving;
use crate::step::{ReleaseHow, Step, Who};

/// Whether the round goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next phase may look.
    On,
    /// What was found must be dealt with first.
    Stop,
}

type Phase = fn(&Scene<'_>, &mut Plan) -> Flow;

/// Most urgent first. `agree` looks at what all before it have left, `roll` disturbs only what is calm, and `spread` moves the roles that all before it
/// have left where they are.
const CLUSTER: [Phase; 12] = [
    admit::admit,
    create::create,
    heal::heal,
    cover::cover,
    finish::finish,
    operate::operate,
    replicate::replicate,
    balance::balance,
    tidy::tidy,
    agree::agree,
    roll::roll,
    spread::spread,
];

/// The next safe batch, what is waited for, and what cannot be done.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
    let serving = serving(desired.mode, observed);
    let mut scene = Scene::of(desired, &serving.seen, limits);
    scene.kept_out = serving.kept_out();
    let mut plan = Plan { operation: operate::before(desired), ..Plan::default() };
    match desired.mode {
        _ if desired.shards == 0 => plan.refused.push(Refused::NoShards),
        Mode::Standalone => standalone::standalone(&scene, &mut plan),
        Mode::Cluster => {
            let _ = CLUSTER.iter().try_for_each(|phase| match phase(&scene, &mut plan) {
                Flow::On => Ok(()),
                Flow::Stop => Err(()),
            });
        }
    }
    serving.keep_out(&mut plan);
    keep_replaced_down(&serving.seen, &mut plan);
    // What the phases have said is true of one moment, so none of it comes before the other; in its turn each keeps their order.
    plan.steps.sort_by_key(turn);
    tell_once(&mut plan.waiting);
    tell_once(&mut plan.refused);
    plan
}

/// Whoever is replaced now is not started beside that: it has more than its replica, or as much, and would serve while the votes come in. Where that was
/// refused a moment ago, it is started instead.
fn keep_replaced_down(observed: &Observed, plan: &mut Plan) {
    let starting: BTreeSet<NodeId> = plan.steps.iter().filter_map(|step| released(observed, step)).collect();
    let is_refused = |step: &Step| {
        let refused = |replica: &Who| observed.failovers_refused.contains_key(&replica.pod.shard);
        matches!(step, Step::Failover { replica, primary, .. } if refused(replica) && starting.contains(primary))
    };
    plan.steps.retain(|step| !is_refused(step));
    let replaced: BTreeSet<NodeId> = plan.steps.iter().filter_map(replaced).collect();
    plan.steps.retain(|step| released(observed, step).is_none_or(|id| !replaced.contains(&id)));
}

/// The identity that a held member starts with.
fn released(observed: &Observed, step: &Step) -> Option<NodeId> {
    if let Step::Release { pod, how: ReleaseHow::AsIs } = step { identity(observed.members.get(pod)?) } else { None }
}

/// The dead primary in whose place somebody is promoted.
fn replaced(step: &Step) -> Option<NodeId> {
    if let Step::Failover { how: FailoverHow::Force | FailoverHow::Takeover, primary, .. } = step {
        Some(*primary)
    } else {
        None
    }
}

/// When a step has its turn in a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// A shard that nobody serves waits for it.
    Promotion,
    /// Clients do not find what has moved, and make it anew. What is asked of the same members for another reason may fail without that.
    Mark,
    /// It asks nodes and their agents.
    Member,
    /// It changes something at the API server, which may be slow, or unwilling (a webhook of others): what came after that would be planned
    /// on a look that is too old by then.
    Kubernetes,
}

fn turn(step: &Step) -> Turn {
    match step {
        Step::Failover { how: FailoverHow::Force | FailoverHow::Takeover, .. } => Turn::Promotion,
        Step::Mark { .. } | Step::MarkOwner { .. } => Turn::Mark,
        Step::Failover { how: FailoverHow::Coordinated, .. }
        | Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::RaiseEpoch { .. }
        | Step::AddSlots { .. }
        | Step::Meet { .. }
        | Step::Replicate { .. }
        | Step::Adopt { .. }
        | Step::Move { .. }
        | Step::Stabilise { .. }
        | Step::Forget { .. }
        | Step::Release { .. } => Turn::Member,
        Step::Restart { .. } | Step::RetireMembers { .. } | Step::RetireShard { .. } => Turn::Kubernetes,
    }
}

/// Several phases may have the same reason; it is told once, where it was told first.
fn tell_once<T: PartialEq>(reasons: &mut Vec<T>) {
    let mut kept: Vec<T> = Vec::with_capacity(reasons.len());
    for reason in reasons.drain(..) {
        if !kept.contains(&reason) {
            kept.push(reason);
        }
    }
    *reasons = kept;
}
