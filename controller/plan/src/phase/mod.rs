//! The phases, in order of danger. The first that has work, or must wait, ends the round.

mod create;

use crate::desired::{Desired, Limits};
use crate::observed::Observed;
use crate::plan::Plan;
use crate::scene::Scene;

/// The next safe batch, what is waited for, and what cannot be done.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
    let scene = Scene::of(desired, observed, limits);
    let mut plan = Plan::default();
    create::create(&scene, &mut plan);
    plan
}
