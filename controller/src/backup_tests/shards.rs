//! Which shards a backup stores, and when it ends.

use super::*;

/// A cluster of so many shards that is about to be backed up.
fn scene(shards: u16) -> Scene {
    let mut scene = Scene { probed: healthy(shards, 2), ..Scene::new() };
    want(&mut scene, shards);
    scene
}

/// So many are wanted from now on.
fn want(scene: &mut Scene, shards: u16) {
    let target = json!({"target": {"directory": {"path": "/mnt/backups"}}});
    scene.resolved = resolved(&json!({"shards": shards, "replicasPerShard": 1, "backup": target}));
}

/// The workers of these shards have stored all slots of theirs.
fn store(scene: &mut Scene, shards: std::ops::Range<u16>) {
    for shard in shards {
        let slots = node(&mut scene.probed, shard, 0).slots().clone();
        let ranges: Vec<String> = slots.ranges().map(|(first, last)| format!("{first}-{last}")).collect();
        scene.store(&format!("b1-{shard}-0-backup"), shard, &ranges.join(" "), 10);
    }
}

/// How far it is, which shards are stored, and what it says.
fn told(status: &RedisBackupStatus) -> (BackupPhase, Vec<i32>, Option<&str>) {
    let stored = status.shards.iter().map(|artifact| artifact.index).collect();
    (status.phase, stored, status.conditions.first().map(|condition| condition.reason.as_str()))
}

/// Before, more artifacts than shards were there, so it never ended, and the scale-in that it held never began.
#[test]
fn a_backup_during_which_shards_are_taken_away_stores_all_of_them() {
    let mut scene = scene(5);
    assert_eq!(scene.round().wanted_shards, [0, 1, 2, 3, 4]);
    store(&mut scene, 4..5);
    assert_eq!(told(&scene.round()), (BackupPhase::Running, vec![4], None));
    want(&mut scene, 3);
    store(&mut scene, 0..3);
    assert_eq!(told(&scene.round()), (BackupPhase::Running, vec![0, 1, 2, 4], None));
    store(&mut scene, 3..4);
    assert_eq!(told(&scene.round()), (BackupPhase::Completed, vec![0, 1, 2, 3, 4], Some("Verified")));
}

/// Before, it waited for members of shards without a slot, and failed.
#[test]
fn a_backup_during_which_shards_are_added_asks_nothing_of_them() {
    let mut scene = scene(3);
    scene.round();
    want(&mut scene, 5);
    store(&mut scene, 0..2);
    assert_eq!(told(&scene.round()), (BackupPhase::Running, vec![0, 1], None));
    store(&mut scene, 2..3);
    assert_eq!(told(&scene.round()), (BackupPhase::Completed, vec![0, 1, 2], Some("Verified")));
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-1-0-backup", "b1-2-0-backup"]);
}

/// Before, a backup that was begun while a scale-in waited for it stored what is to stay, and was inconsistent.
#[test]
fn who_owns_slots_is_stored_and_who_owns_none_is_not() {
    let mut scene = scene(3);
    let given = node(&mut scene.probed, 1, 0).slots().clone();
    let all = node(&mut scene.probed, 2, 0).slots().union(&given);
    node(&mut scene.probed, 1, 0).role = Role::Primary { slots: plan::SlotSet::EMPTY };
    node(&mut scene.probed, 2, 0).role = Role::Primary { slots: all };
    want(&mut scene, 2);
    assert_eq!(scene.round().wanted_shards, [0, 2]);
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-2-0-backup"]);
}

#[test]
fn a_backup_that_does_not_get_on_ends_after_three_days() {
    let mut scene = scene(2);
    scene.round();
    scene.now = after(73 * 3600 - 1);
    assert_eq!(told(&scene.round()), (BackupPhase::Running, vec![], None));
    scene.now = after(73 * 3600);
    let status = scene.round();
    assert_eq!(
        (status.phase, status.conditions[1].message.as_str()),
        (BackupPhase::Failed, "it has not ended within 73 h")
    );
}

/// Before, shards of two clusters made one backup, which was verified.
#[test]
fn a_backup_ends_where_another_cluster_has_taken_the_name() {
    let mut scene = scene(2);
    assert_eq!(scene.round().cluster_uid, Some(scene.resolved.uid.clone()));
    store(&mut scene, 0..2);
    scene.resolved.uid = "another".to_owned();
    let begun = scene.backup.clone();
    let status = scene.round();
    let text = "the cluster with which it began has gone, and another one has its name";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (BackupPhase::Failed, text));
    // One that began under an earlier release does not say with which.
    scene.backup = begun;
    scene.backup.status.as_mut().unwrap().cluster_uid = None;
    assert_eq!(scene.round().phase, BackupPhase::Completed);
}
