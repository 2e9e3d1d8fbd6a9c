//! Pods of an earlier backup of the same name.

use super::*;

/// A backup that has begun, and its name's former owner, whose worker of shard 0 is there still and has stored it.
fn scene() -> Scene {
    let mut former = Scene::new();
    former.round();
    former.store("b1-0-0-backup", 0, "0-8191", 10);
    let mut scene = Scene::new();
    scene.backup.metadata.uid = Some("another".to_owned());
    scene.workers.insert("b1-0-0-backup".to_owned(), Arc::clone(&former.workers["b1-0-0-backup"]));
    scene
}

/// Before, it was completed with files that are in the folder of the earlier one.
#[test]
fn a_backup_is_not_completed_with_the_files_of_an_earlier_one() {
    let mut scene = scene();
    let said = |status: &RedisBackupStatus| {
        let told = status.conditions.last().unwrap();
        (status.phase, status.shards.len(), told.reason.clone(), told.message.clone())
    };
    let text = "the pod b1-0-0-backup of an earlier backup of this name is still there";
    let waits = (BackupPhase::Running, 0, "NameTaken".to_owned(), text.to_owned());
    assert_eq!(said(&scene.round()), waits);
    let former: Vec<_> = former_of(&scene.backup, &scene.workers).filter_map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(former, ["b1-0-0-backup"]);
    let own: Vec<_> = workers_of(&scene.backup, &scene.workers).filter_map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(own, ["b1-1-0-backup"]);
    scene.now = after(601);
    let given_up = format!("given up after 10 min: {text}");
    assert_eq!(said(&scene.round()), (BackupPhase::Failed, 0, "NameTaken".to_owned(), given_up));
}

#[test]
fn once_an_earlier_backups_pod_has_gone_the_worker_is_made() {
    let mut scene = scene();
    scene.round();
    scene.workers.remove("b1-0-0-backup");
    assert_eq!((scene.round().phase, scene.backup.status.clone().unwrap().conditions), (BackupPhase::Running, vec![]));
    let labels = scene.workers["b1-0-0-backup"].metadata.labels.clone().unwrap();
    assert_eq!(labels[names::LABEL_BACKUP_UID], "another");
}

#[test]
fn a_worker_of_an_earlier_release_that_says_no_uid_goes_on() {
    let mut scene = Scene::new();
    scene.round();
    scene.store("b1-0-0-backup", 0, "0-8191", 10);
    let pod = Arc::make_mut(scene.workers.get_mut("b1-0-0-backup").unwrap());
    pod.metadata.labels.as_mut().unwrap().remove(names::LABEL_BACKUP_UID);
    assert_eq!(scene.round().shards.len(), 1);
}

/// That of another cluster is not among the workers of this one, so its end is not seen.
#[test]
fn an_earlier_backups_pod_is_waited_for_where_it_is_of_this_cluster() {
    let scene = scene();
    let pod = (*scene.workers["b1-0-0-backup"]).clone();
    assert!(!is_worker_of(&pod, &scene.backup) && is_former_here(&pod, &scene.backup));
    let mut elsewhere = pod;
    elsewhere.metadata.labels.as_mut().unwrap().insert(names::LABEL_CLUSTER.to_owned(), "carts".to_owned());
    assert!(!is_former_here(&elsewhere, &scene.backup));
}
