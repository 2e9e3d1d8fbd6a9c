//! The phases, in order of danger. A phase that has work, or must wait before anything more dangerous may be done, ends the round.

mod admit;
mod agree;
mod balance;
mod cover;
mod create;
mod finish;
mod heal;
mod operate;
mod replicate;
mod roll;
mod spread;
mod standalone;
mod tidy;

use alloc::vec::Vec;

use crate::apart::Apart;
use crate::desired::{Desired, Limits, Mode};
use crate::observed::Observed;
use crate::plan::{Plan, Refused, count};
use crate::scene::Scene;
use crate::twins::Twins;

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
    let twins = Twins::of(desired, observed);
    let known = twins.set_aside(observed);
    let apart = Apart::of(desired, &known);
    let known = apart.set_aside(known);
    let scene = Scene::of(desired, &known, limits);
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
    apart.keep_out(&mut plan);
    twins.keep_out(&mut plan);
    tell_once(&mut plan.waiting);
    tell_once(&mut plan.refused);
    plan
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
