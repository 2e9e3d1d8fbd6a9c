//! Whom the copy of a shard comes from.

use plan::{PeerRole, Stands};

use super::*;

/// What the worker of a shard is told of whom it asks.
fn asked(scene: &Scene, shard: u16) -> String {
    let spec = scene.workers[&format!("b1-{shard}-0-backup")].spec.as_ref().unwrap();
    let words = spec.containers[0].command.as_ref().unwrap();
    let told = words.windows(2).filter(|pair| ["--source", "--not-before"].contains(&pair[0].as_str()));
    told.map(|pair| pair[1].as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_source_is_a_replica_in_sync_and_the_primary_only_if_there_is_none() {
    let mut scene = Scene::new();
    let command = |scene: &Scene, name: &str| {
        scene.workers[name].spec.as_ref().unwrap().containers[0].command.clone().unwrap().join(" ")
    };
    if let Role::Replica { link_up, .. } = &mut node(&mut scene.probed, 1, 1).role {
        *link_up = false;
    }
    scene.round();
    let replica = crate::testing::id(0, 1);
    let expected = format!(
        "/usr/local/bin/kun agent backup --source 10.0.0.1:16443 --expect-cn kun:agent:shop:orders \
         --out /backup/shop_orders_b1_01234567 --file shard-0.rdb --expect-node {replica} --not-before stream of shard 0:100"
    );
    assert_eq!(command(&scene, "b1-0-0-backup"), expected);
    assert!(command(&scene, "b1-1-0-backup").contains("--source 10.0.1.0:16443"));
}

/// The replica of shard 0 has been elected in its primary's place, who does not know it.
fn replaced() -> Scene {
    let mut scene = Scene::new();
    let slots = node(&mut scene.probed, 0, 0).slots().clone();
    let heir = node(&mut scene.probed, 0, 1);
    (heir.role, heir.epoch) = (Role::Primary { slots }, 9);
    scene
}

/// Before, of two primaries the one with the lower number was copied, and all that was written since its heir was elected was in no file.
#[test]
fn a_primary_that_was_replaced_is_not_copied() {
    let mut scene = replaced();
    scene.round();
    assert_eq!(asked(&scene, 0), "10.0.0.1:16443");
    // It has given its slots up since, and keeps keys.
    let mut scene = replaced();
    node(&mut scene.probed, 0, 0).role = Role::Primary { slots: plan::SlotSet::EMPTY };
    scene.round();
    assert_eq!(asked(&scene, 0), "10.0.0.1:16443");
}

/// Before, a former primary was copied whose heir did not answer the controller at that moment.
#[test]
fn nobody_is_copied_in_place_of_an_owner_that_does_not_answer() {
    let mut scene = replaced();
    let heir = crate::testing::id(0, 1);
    let slots = node(&mut scene.probed, 0, 0).slots().clone();
    let line = node(&mut scene.probed, 1, 0).peers.get_mut(&heir).unwrap();
    (line.role, line.epoch) = (PeerRole::Primary { slots }, 9);
    scene.probed.observed.members.get_mut(&plan::Pod::new(0, 1)).unwrap().seen = Seen::Unknown { since_millis: 9 };
    let status = scene.round();
    let text = "no member of shard 0 answers with its slots";
    assert_eq!((status.phase, status.conditions[0].message.as_str()), (BackupPhase::Pending, text));
}

/// Before, every replica came before its primary that was in sync by its own word, however far behind it was.
#[test]
fn a_replica_that_is_not_known_to_be_near_is_not_copied() {
    let mut far = crate::testing::in_sync(crate::testing::id(0, 0));
    let mut forbidden = far.clone();
    let mut misled = far.clone();
    let mut missed = far.clone();
    let elsewhere = crate::testing::in_sync(crate::testing::id(1, 0));
    if let Role::Replica { lag_bytes, .. } = &mut far {
        *lag_bytes = (1 << 20) + 1;
    }
    if let Role::Replica { stands, .. } = &mut forbidden {
        *stands = Stands::OnOrder;
    }
    if let Role::Replica { misled, .. } = &mut misled {
        *misled = true;
    }
    if let Role::Replica { gap, .. } = &mut missed {
        gap.missed_millis = 3_001;
    }
    for role in [far, forbidden, misled, missed, elsewhere] {
        let mut scene = Scene::new();
        node(&mut scene.probed, 0, 1).role = role.clone();
        scene.round();
        assert_eq!(asked(&scene, 0), "10.0.0.0:16443", "{role:?}");
    }
    let mut scene = Scene::new();
    scene.probed.facts.get_mut(&plan::Pod::new(0, 1)).unwrap().replication_id = "another stream".to_owned();
    scene.round();
    assert_eq!(asked(&scene, 0), "10.0.0.0:16443");
    let mut scene = Scene::new();
    scene.round();
    assert_eq!(asked(&scene, 0), "10.0.0.1:16443 stream of shard 0:100");
}

#[test]
fn an_owner_that_does_not_serve_is_waited_for() {
    let mut scene = Scene::new();
    node(&mut scene.probed, 1, 0).state_ok = false;
    let status = scene.round();
    let text = "no member of shard 1 answers with its slots; member 1-0 does not serve (cluster_state:fail)";
    assert_eq!((status.phase, status.conditions[0].message.as_str()), (BackupPhase::Pending, text));
}
