//! Disks that take no writes.

use super::*;
use crate::probe::Unkept;

fn fails(scene: &mut Scene, pod: Pod, what: Unkept) {
    scene.probed.facts.get_mut(&pod).unwrap().persistence_failed = Some(what);
}

const REFUSES: &str = "1 primaries refuse writes (MISCONF); the first is 0-0, which cannot write its append-only file. Its log says why; where \
                       the volume is full, make spec.storage.size larger";

/// Before, it was said last of all, and Ready said nothing of it.
#[test]
fn a_disk_that_takes_no_writes_is_said_before_what_follows_from_it() {
    let mut scene = Scene::healthy();
    scene.troubles.push("restart 0-1: not in sync".to_owned());
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    assert_eq!(scene.says("Ready"), said(Status::False, "DiskFailing", REFUSES));
    assert_eq!(scene.says("Degraded"), said(Status::True, "DiskFailing", REFUSES));
}

/// Before, a replica was said to refuse writes, and a fork without memory to be a full disk.
#[test]
fn what_a_failing_disk_means_is_said_of_primaries_and_replicas() {
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(1, 1), Unkept::Log);
    let replica = "1 replicas cannot keep what they are sent and, from version 7.0 on, end at the next write; the first is 1-1, which cannot \
                   write its append-only file. Its log says why; where the volume is full, make spec.storage.size larger";
    assert_eq!(scene.says("Degraded"), said(Status::True, "DiskFailing", replica));
    fails(&mut scene, Pod::new(2, 0), Unkept::Snapshot);
    let primary = "1 primaries refuse writes (MISCONF); the first is 2-0, whose last snapshot failed. Its log says why: where the volume is \
                   full, make spec.storage.size larger; where a fork found no memory, resources.limits.memory";
    assert_eq!(scene.says("Ready"), said(Status::False, "DiskFailing", &format!("{primary}; {replica}")));
}

#[test]
fn the_disk_of_a_member_that_is_to_leave_is_no_trouble() {
    let mut scene = Scene::healthy();
    scene.cluster.spec.replicas_per_shard = Some(0);
    fails(&mut scene, Pod::new(1, 1), Unkept::Log);
    assert_eq!(scene.says("Degraded").1, "NothingWrong");
    assert_eq!(scene.says("Ready").1, "MembersLeaving");
}

/// Before, either hid the other.
#[test]
fn a_failing_disk_is_said_beside_members_that_are_missing() {
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    scene.probed.observed.members.get_mut(&Pod::new(1, 1)).unwrap().seen = Seen::Stopped;
    let text = format!("5 of 6 members answer; {REFUSES}");
    assert_eq!(scene.says("Ready"), said(Status::False, "MembersMissing", &text));
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    node(&mut scene.probed, 1, 0).state_ok = false;
    let text = format!("10923 of 16384 slots are served; {REFUSES}");
    assert_eq!(scene.says("Ready"), said(Status::False, "NotServing", &text));
}

#[test]
fn refused_writes_come_before_what_still_serves_a_replicas_disk_after() {
    let mut scene = Scene::healthy();
    scene.secret_lack = Some(("SecretMissing", "there is no Secret mine".to_owned()));
    fails(&mut scene, Pod::new(0, 1), Unkept::Log);
    assert_eq!(scene.says("Degraded").1, "SecretMissing");
    assert_eq!(scene.says("Progressing").1, "SecretMissing");
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    let lack = scene.secret_lack.take();
    let both = format!("{}; there is no Secret mine", scene.says("Degraded").2);
    scene.secret_lack = lack;
    assert_eq!(scene.says("Degraded"), said(Status::True, "DiskFailing", &both));
    assert_eq!(scene.says("Progressing"), said(Status::False, "DiskFailing", &both));
}

/// Before, it was Healing, or Updating, for as long as the disk was full.
#[test]
fn the_phase_is_degraded_while_a_disk_takes_no_writes() {
    let with = |phase| Some(RedisClusterStatus { phase: Some(phase), ..RedisClusterStatus::default() });
    for before in [Phase::Ready, Phase::Healing, Phase::Degraded] {
        let mut scene = Scene::healthy();
        scene.cluster.status = with(before);
        fails(&mut scene, Pod::new(0, 0), Unkept::Log);
        assert_eq!(scene.report().phase, Some(Phase::Degraded), "{before:?}");
        // An update that is under way is one all the same: the webhook goes by it.
        scene.probed.observed.members.get_mut(&Pod::new(2, 1)).unwrap().outdated = true;
        assert_eq!(scene.report().phase, Some(Phase::Updating), "{before:?}");
    }
    let mut scene = Scene::healthy();
    scene.cluster.status = with(Phase::Updating);
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    assert_eq!(scene.report().phase, Some(Phase::Updating));
}
