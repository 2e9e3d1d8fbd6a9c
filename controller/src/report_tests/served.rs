//! Whether a cluster has served before.

use super::*;

/// Before, the webhook went by the phase, which a pause or a first look that failed led past Creating before anybody had answered.
#[test]
fn that_a_cluster_has_served_is_known_once_it_has_and_stays_known() {
    let mut scene = Scene::healthy();
    scene.probed.observed.members.get_mut(&Pod::new(2, 0)).unwrap().seen = plan::Seen::Starting;
    scene.cluster.spec.paused = true;
    assert_eq!((scene.report().phase, scene.report().has_served), (Some(Phase::Paused), false));
    scene.cluster.status = Some(set_aside(&scene.cluster, "SpecNotUsable", "no words", now()));
    scene.cluster.spec.paused = false;
    assert_eq!((scene.report().phase, scene.report().has_served), (Some(Phase::Scaling), false));
    let served = Scene::healthy().report();
    assert!(served.has_served);
    scene.cluster.status = Some(served);
    scene.cluster.status = Some(scene.report());
    let status = set_aside(&scene.cluster, "SpecNotUsable", "no words", now());
    assert_eq!((status.phase, status.has_served), (Some(Phase::Degraded), true));
}
