//! One server without slots: it is started, and restarted where that loses nothing. Nobody else has what it holds.

use crate::observed::Pod;
use crate::phase::{admit, roll};
use crate::plan::{Plan, Refused};
use crate::scene::Scene;

pub(crate) fn standalone(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.desired.shards != 1 || scene.desired.replicas != 0 || scene.desired.failover.is_some() {
        plan.refused.push(Refused::NotInStandalone);
    }
    let _ = admit::admit(scene, plan);
    let server = scene.live.iter().find(|live| live.pod == Pod::new(0, 0));
    let Some(server) = server else { return };
    let outdated = scene.observed.members.get(&server.pod).is_some_and(|member| member.outdated);
    if !outdated || !plan.waiting.is_empty() {
        return;
    }
    match roll::unproven(scene) {
        Some(wait) => plan.waiting.push(wait),
        None => roll::restart_alone(scene, plan, server),
    }
}
