#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use plan::{Role, Seen};
use serde_json::{Value, json};

use super::*;
use crate::testing::{healthy, node, resolved};

#[path = "backup_tests/former.rs"]
mod former;
#[path = "backup_tests/lost.rs"]
mod lost;
#[path = "backup_tests/shards.rs"]
mod shards;
#[path = "backup_tests/sources.rs"]
mod sources;
#[path = "backup_tests/unclear.rs"]
mod unclear;

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

struct Scene {
    resolved: Resolved,
    probed: Probed,
    moving: Option<&'static str>,
    workers: BTreeMap<String, Arc<Pod>>,
    backup: RedisBackup,
    now: Timestamp,
}

/// What moves, as records tell it.
const MOVING: &str = "slot 9 is half moved from 0-0 to 1-0";

impl Scene {
    fn new() -> Self {
        let backup = json!({
            "metadata": {"name": "b1", "namespace": "shop", "uid": "0123456789"},
            "spec": {"clusterName": "orders"},
        });
        let target = json!({"target": {"directory": {"path": "/mnt/backups"}}});
        Self {
            resolved: resolved(&json!({"shards": 2, "replicasPerShard": 1, "backup": target})),
            probed: healthy(2, 2),
            moving: None,
            workers: BTreeMap::new(),
            backup: serde_json::from_value(backup).unwrap(),
            now: now(),
        }
    }

    /// One round; what it creates exists afterwards.
    fn round(&mut self) -> RedisBackupStatus {
        let round = Round {
            resolved: &self.resolved,
            probed: &self.probed,
            slots_moving: self.moving,
            workers: &self.workers,
            now: self.now,
        };
        let Decision { status, create } = decide(&self.backup, round);
        self.backup.status = Some(status.clone());
        for pod in create {
            self.workers.insert(pod.metadata.name.clone().unwrap(), Arc::new(pod));
        }
        status
    }

    fn end(&mut self, name: &str, exit: i32, message: &Value) {
        let mut pod = (*self.workers[name]).clone();
        pod.status = serde_json::from_value(json!({"phase": "Succeeded", "containerStatuses": [{
            "name": "backup", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": exit, "message": message.to_string()}},
        }]}))
        .unwrap();
        self.workers.insert(name.to_owned(), Arc::new(pod));
    }

    fn store(&mut self, name: &str, shard: u16, slots: &str, second: i64) {
        self.store_as(name, (shard, slots), second, true);
    }

    fn store_as(&mut self, name: &str, (shard, slots): (u16, &str), second: i64, walked: bool) {
        let artifact = json!({
            "index": shard, "slots": slots, "pod": "p", "nodeId": "n", "replicationId": "r", "offset": 7, "keys": 3,
            "walked": walked, "bytes": 100, "sha256": "00", "file": "f", "cutTime": Timestamp::from_second(second).unwrap(),
        });
        self.end(name, 0, &json!({"stored": {"artifact": artifact, "engineVersion": "7.0.15"}}));
    }

    fn names(&self) -> Vec<&str> {
        self.workers.keys().map(String::as_str).collect()
    }
}

#[test]
fn a_backup_is_completed_when_every_artifact_was_read_back_and_all_slots_are_there_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.round().phase, BackupPhase::Running);
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-1-0-backup"]);
    scene.store("b1-0-0-backup", 0, "0-8191", 10);
    assert_eq!(scene.round().phase, BackupPhase::Running);
    scene.store("b1-1-0-backup", 1, "8192-16383", 12);
    let status = scene.round();
    assert_eq!((status.phase, status.verified), (BackupPhase::Completed, true));
    assert_eq!((status.cut_spread_millis, status.shards.len()), (Some(2000), 2));
    assert_eq!(status.conditions[0].message, "2 artifacts with 6 keys (200 bytes) were read back");
    assert_eq!(status.location.as_deref(), Some("shop_orders_b1_01234567"));
    assert_eq!((status.engine, status.engine_version.as_deref()), (Some(types::engine::Engine::Redis), Some("7.0.15")));
}

#[test]
fn a_backup_whose_files_were_not_read_key_by_key_is_not_called_verified() {
    let mut scene = Scene::new();
    scene.round();
    scene.store("b1-0-0-backup", 0, "0-8191", 10);
    scene.store_as("b1-1-0-backup", (1, "8192-16383"), 12, false);
    let status = scene.round();
    assert_eq!((status.phase, status.verified), (BackupPhase::Completed, false));
    assert_eq!(
        (status.conditions[0].reason.as_str(), status.conditions[0].message.as_str()),
        (
            "StoredOnly",
            "2 artifacts with 6 keys (200 bytes) were read back; 1 of them, f the first, hold something that could not be read key \
             by key"
        )
    );
}

#[test]
fn artifacts_that_do_not_hold_every_slot_exactly_once_are_no_backup() {
    let mut scene = Scene::new();
    scene.round();
    scene.store("b1-0-0-backup", 0, "0-8191", 10);
    scene.store("b1-1-0-backup", 1, "8000-16383", 12);
    let status = scene.round();
    assert_eq!((status.phase, status.verified), (BackupPhase::Failed, false));
    let text = "the artifacts hold 16384 of 16384 slots, 16576 with repetitions";
    assert_eq!(status.conditions[1].message, text);
}

#[test]
fn a_worker_that_cannot_start_is_told_of_and_given_up_after_a_while() {
    let mut scene = Scene::new();
    scene.round();
    let words = "0/3 nodes are available: persistentvolumeclaim \"backups\" not found.";
    let pending = |made: i64| {
        json!({"metadata": {"name": "b1-0-0-backup", "creationTimestamp": Timestamp::from_second(made).unwrap()},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}]}})
    };
    let mut waits = |made: i64| {
        let pod: Pod = serde_json::from_value(pending(made)).unwrap();
        scene.workers.insert("b1-0-0-backup".to_owned(), Arc::new(pod));
        let status = scene.round();
        (status.phase, status.conditions.last().unwrap().message.clone())
    };
    let why = format!("the scheduler has no node for its pod: {words}");
    assert_eq!(waits(900), (BackupPhase::Running, format!("the worker of shard 0 does not start: {why}")));
    let mut silent = Scene::new();
    silent.round();
    let made = Timestamp::from_second(399).unwrap();
    let creating =
        json!({"metadata": {"name": "b1-0-0-backup", "creationTimestamp": made}, "status": {"phase": "Pending"}});
    silent.workers.insert("b1-0-0-backup".to_owned(), Arc::new(serde_json::from_value(creating).unwrap()));
    let status = silent.round();
    let text = "shard 0 could not be stored: its worker did not start within 10 min; is its volume there?";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (BackupPhase::Failed, text));
    let given_up = format!("shard 0 could not be stored: its worker did not start within 10 min: {why}");
    assert_eq!(waits(399), (BackupPhase::Failed, given_up));
}

#[test]
fn a_worker_that_fails_is_tried_again_and_then_the_backup_fails_with_its_words() {
    let mut scene = Scene::new();
    scene.round();
    for attempt in 0..3 {
        scene.end(&format!("b1-0-{attempt}-backup"), 1, &json!({"failed": {"message": "disk full"}}));
        scene.round();
    }
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-0-1-backup", "b1-0-2-backup", "b1-1-0-backup"]);
    let status = scene.backup.status.unwrap();
    assert_eq!(status.phase, BackupPhase::Failed);
    let why = "shard 0 could not be stored: 3 attempts failed, the last one: disk full";
    assert_eq!(status.conditions[1].message, why);
}

/// A worker of that name that was made then and failed, and ended then, if its kubelet has said so.
fn failed(name: &str, made: i64, ended: Option<i64>) -> Arc<Pod> {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let told = ended.map(|ended| {
        json!([{"name": "backup", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "finishedAt": second(ended),
                "message": json!({"failed": {"message": "the node restarts"}}).to_string()}}}])
    });
    let pod = json!({"metadata": {"name": name, "creationTimestamp": second(made)},
        "status": {"phase": "Failed", "message": "the node restarts", "containerStatuses": told}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Before, all attempts could fail within the seconds in which a node restarts.
#[test]
fn attempts_of_a_worker_are_spread_over_time() {
    let mut scene = Scene::new();
    scene.round();
    let mut ends = |attempt: u16, made: i64, ended: Option<i64>| {
        let name = format!("b1-0-{attempt}-backup");
        scene.workers.insert(name.clone(), failed(&name, made, ended));
        let status = scene.round();
        let next = scene.workers.contains_key(&format!("b1-0-{}-backup", attempt + 1));
        (next, status.conditions.first().map(|told| (told.reason.clone(), told.message.clone())))
    };
    let text = "the worker of shard 0 failed and is tried again in some seconds: the node restarts";
    let rests = (false, Some(("Retrying".to_owned(), text.to_owned())));
    // It counts from the end of the one before, and where nobody says when that was, from when it was made.
    assert_eq!(ends(0, 900, Some(990)), rests);
    assert_eq!(ends(0, 990, None), rests);
    assert_eq!(ends(0, 900, Some(989)), (true, None));
    // The third one comes twice as long after the second.
    assert_eq!(ends(1, 900, Some(980)), rests);
    assert_eq!(ends(1, 900, Some(979)), (true, None));
}

/// Before, it would have rested until the clocks were the same, be it for hours.
#[test]
fn an_attempt_that_ended_in_the_future_is_not_waited_for() {
    let mut scene = Scene::new();
    scene.round();
    scene.workers.insert("b1-0-0-backup".to_owned(), failed("b1-0-0-backup", 5_000, Some(5_001)));
    scene.round();
    assert_eq!(scene.names(), ["b1-0-0-backup", "b1-0-1-backup", "b1-1-0-backup"]);
}

/// Before, the first of both was told, whichever it was.
#[test]
fn a_worker_that_does_not_start_is_told_before_one_that_is_tried_again() {
    let mut scene = Scene::new();
    scene.round();
    scene.workers.insert("b1-0-0-backup".to_owned(), failed("b1-0-0-backup", 900, Some(995)));
    let pending = json!({"metadata": {"name": "b1-1-0-backup", "creationTimestamp": now()}, "status": {"phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]}});
    scene.workers.insert("b1-1-0-backup".to_owned(), Arc::new(serde_json::from_value(pending).unwrap()));
    let told = scene.round().conditions[0].clone();
    let text = "the worker of shard 1 does not start: the scheduler has no node for its pod: no room";
    assert_eq!((told.reason.as_str(), told.message.as_str()), ("Stalled", text));
}

#[test]
fn a_worker_that_reports_another_shard_has_stored_nothing() {
    let mut scene = Scene::new();
    scene.round();
    scene.store("b1-0-0-backup", 1, "0-8191", 10);
    scene.round();
    assert!(scene.workers.contains_key("b1-0-1-backup"));
    assert!(scene.backup.status.unwrap().shards.is_empty());
}

/// Whoever may name an image of Redis must not run it beside a claim that is not theirs.
#[test]
fn a_worker_runs_our_image_whatever_image_the_cluster_names() {
    let mut scene = Scene::new();
    let backup = json!({"target": {"directory": {"path": "/mnt/backups"}}});
    scene.resolved = resolved(&json!({"shards": 2, "replicasPerShard": 1, "backup": backup, "image": "anybody:1"}));
    assert_eq!(scene.resolved.image, "anybody:1");
    scene.round();
    let spec = scene.workers["b1-0-0-backup"].spec.clone().unwrap();
    let images: Vec<_> =
        spec.init_containers.unwrap().into_iter().chain(spec.containers).map(|one| one.image).collect();
    assert_eq!(images, [Some("kun:1".to_owned()), Some("kun:1".to_owned())]);
}

#[test]
fn a_pod_that_happens_to_have_a_workers_name_ends_the_backup_with_a_word() {
    let mut scene = Scene::new();
    scene.round();
    let worker = (*scene.workers["b1-0-0-backup"]).clone();
    assert!(is_worker_of(&worker, &scene.backup));
    let mut other = worker.clone();
    other.metadata.labels = None;
    assert!(!is_worker_of(&other, &scene.backup));
    let status = name_taken(&scene.backup, &worker, now());
    let why = "there is a pod b1-0-0-backup already that is no worker of this backup";
    assert_eq!((status.phase, status.completion_time), (BackupPhase::Failed, Some(now())));
    assert_eq!(status.conditions[1].message, why);
}

#[test]
fn nothing_begins_while_slots_are_half_moved_or_a_shard_has_nobody_to_ask() {
    let mut scene = Scene::new();
    scene.moving = Some(MOVING);
    assert_eq!(scene.round().phase, BackupPhase::Pending);
    scene.moving = None;
    let (a, b) = (plan::Pod::new(1, 0), plan::Pod::new(1, 1));
    for pod in [a, b] {
        scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Absent;
    }
    assert_eq!(scene.round().phase, BackupPhase::Pending);
    assert!(scene.workers.is_empty());
}

#[test]
fn without_a_target_it_fails_at_once() {
    let mut scene = Scene::new();
    scene.resolved.backup_target = None;
    let status = scene.round();
    assert_eq!(status.phase, BackupPhase::Failed);
    assert_eq!(status.conditions[1].message, "neither the backup nor the cluster names a target");
}

#[test]
fn who_hears_a_member_sees_the_folder_of_the_backup_and_nothing_else_of_the_target() {
    let mut scene = Scene::new();
    scene.round();
    let spec = scene.workers["b1-0-0-backup"].spec.clone().unwrap();
    let folder = "shop_orders_b1_01234567";
    let seen = json!([
        {"name": "internal", "mountPath": "/etc/kun/internal", "readOnly": true},
        {"name": "target", "mountPath": format!("/backup/{folder}"), "subPath": folder},
    ]);
    assert_eq!(json!(spec.containers[0].volume_mounts), seen);
    let first = &spec.init_containers.unwrap()[0];
    assert_eq!(json!(first.volume_mounts), json!([{"name": "target", "mountPath": "/backup"}]));
    let words = ["/usr/local/bin/kun", "agent", "folder", "--target", "/backup", "--folder", folder];
    assert_eq!(json!(first.command), json!(words));
    assert_eq!(first.image, spec.containers[0].image);
}

#[test]
fn a_folder_that_cannot_be_made_is_why_the_worker_failed() {
    let mut scene = Scene::new();
    scene.round();
    let why = "make /backup/shop_orders_b1_01234567: Permission denied (os error 13)";
    let message = json!({"failed": {"message": why}}).to_string();
    let pod = std::sync::Arc::make_mut(scene.workers.get_mut("b1-0-0-backup").unwrap());
    pod.status = serde_json::from_value(json!({"phase": "Failed", "initContainerStatuses": [{
        "name": "folder", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "message": message}},
    }]}))
    .unwrap();
    assert!(matches!(worker::outcome(pod, 0, now()), worker::Outcome::Failed(told) if told == why));
}

#[test]
fn a_worker_is_no_endpoint_of_the_service() {
    let mut scene = Scene::new();
    scene.round();
    let labels = scene.workers["b1-0-0-backup"].metadata.labels.clone().unwrap();
    let selector = crate::build::labels("orders", None);
    assert!(!selector.iter().all(|(name, value)| labels.get(name) == Some(value)));
}

#[test]
fn a_backup_stays_with_the_target_it_was_begun_with() {
    let mut scene = Scene::new();
    let status = scene.round();
    let begun = status.target.clone().unwrap();
    assert_eq!(begun.directory.as_ref().unwrap().path, "/mnt/backups");
    scene.resolved.backup_target = None;
    scene.end("b1-0-0-backup", 1, &json!({"failed": {"message": "the member went away"}}));
    assert_eq!(scene.round().target, Some(begun));
    let pod = serde_json::to_value(&*scene.workers["b1-0-1-backup"]).unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let target = volumes.iter().find(|volume| volume["name"] == "target").unwrap();
    assert_eq!(target["hostPath"]["path"], "/mnt/backups");
}

#[test]
fn a_backup_that_is_being_deleted_stores_nothing_more_and_holds_no_slots() {
    let mut scene = Scene::new();
    scene.round();
    assert_eq!(holds_slots(&[Arc::new(scene.backup.clone())]).as_deref(), Some("b1"));
    scene.backup.metadata.deletion_timestamp = serde_json::from_value(json!(now())).unwrap();
    let backups = [Arc::new(scene.backup)];
    assert!(current(&backups).is_none());
    assert_eq!(holds_slots(&backups), None);
}

#[test]
fn a_worker_may_run_where_the_members_may_and_keeps_away_from_nobody() {
    let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}],
    }});
    let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]});
    let placement = json!({
        "spread": "Required", "topologyKeys": ["topology.kubernetes.io/zone"], "nodeSelector": {"disk": "fast"},
        "tolerations": [{"operator": "Exists"}], "priorityClassName": "databases",
        "affinity": {"nodeAffinity": nodes, "podAntiAffinity": apart},
    });
    let mut scene = Scene::new();
    scene.resolved.placement = serde_json::from_value(placement).unwrap();
    scene.round();
    let spec = serde_json::to_value(scene.workers["b1-0-0-backup"].spec.clone().unwrap()).unwrap();
    assert_eq!(spec["affinity"], json!({"nodeAffinity": nodes}));
    assert_eq!(spec["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(spec["priorityClassName"], json!("databases"));
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_second(1000 + seconds).unwrap()
}

/// Before, it waited without a word, for ever, and no slot could begin to move meanwhile.
#[test]
fn a_backup_that_cannot_begin_says_why_and_ends_each_reason_having_its_own_time() {
    let mut scene = Scene::new();
    scene.moving = Some(MOVING);
    let said = |status: &RedisBackupStatus| {
        let told = status.conditions.last().unwrap();
        (status.phase, told.reason.clone(), told.message.clone())
    };
    let slots = "slot 9 is half moved from 0-0 to 1-0; that is finished first";
    assert_eq!(said(&scene.round()), (BackupPhase::Pending, "SlotsMoving".to_owned(), slots.to_owned()));
    scene.now = after(600);
    assert_eq!(scene.round().phase, BackupPhase::Pending);
    // Another reason: it begins now.
    scene.moving = None;
    for ordinal in 0..2 {
        let pod = plan::Pod::new(1, ordinal);
        scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Stopped;
        scene.probed.stuck.insert(pod, "the scheduler has no node for its pod: 0/3 nodes are available".to_owned());
    }
    let members = "no member of shard 1 answers with its slots; member 1-0: the scheduler has no node for its pod: 0/3 nodes are available";
    assert_eq!(said(&scene.round()), (BackupPhase::Pending, "MemberMissing".to_owned(), members.to_owned()));
    scene.now = after(1_200);
    assert_eq!(scene.round().phase, BackupPhase::Pending);
    scene.now = after(1_201);
    let given_up = format!("given up after 10 min: {members}");
    assert_eq!(said(&scene.round()), (BackupPhase::Failed, "MemberMissing".to_owned(), given_up));
}

/// Before, it was Running for ever: nobody could be asked, so no worker was made.
#[test]
fn a_backup_that_loses_a_shard_before_its_worker_is_made_ends() {
    let mut scene = Scene::new();
    scene.round();
    scene.end("b1-1-0-backup", 1, &json!({"failed": {"message": "the member went away"}}));
    for ordinal in 0..2 {
        scene.probed.observed.members.get_mut(&plan::Pod::new(1, ordinal)).unwrap().seen = Seen::Stopped;
    }
    let status = scene.round();
    assert_eq!((status.phase, status.conditions[0].reason.as_str()), (BackupPhase::Running, "MemberMissing"));
    scene.now = after(601);
    assert_eq!(scene.round().phase, BackupPhase::Failed);
}

#[test]
fn a_backup_behind_another_names_it_and_does_not_stand_there_for_ever() {
    let before = Scene::new().backup;
    let mut behind = before.clone();
    behind.metadata.name = Some("b2".to_owned());
    behind.metadata.uid = Some("u2".to_owned());
    behind.metadata.creation_timestamp = serde_json::from_value(json!(now())).unwrap();
    let all = [Arc::new(before.clone()), Arc::new(behind.clone())];
    assert_eq!(queue(&all, &before).map(|one| one.metadata.name.as_deref()).collect::<Vec<_>>(), [Some("b2")]);
    let status = queued(&behind, &before, after(10));
    let text = "the backup b1 has not ended; one of a cluster runs at a time";
    assert_eq!((status.phase, status.conditions[0].message.as_str()), (BackupPhase::Pending, text));
    behind.status = Some(status);
    assert_eq!(queued(&behind, &before, after(24 * 3600 + 10)).phase, BackupPhase::Pending);
    let status = queued(&behind, &before, after(24 * 3600 + 11));
    let text = "it stood behind others for 24 h, the last of them the backup b1";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (BackupPhase::Failed, text));
}

#[test]
fn records_of_a_paused_cluster_say_so() {
    let told: Vec<_> = paused(&[Arc::new(Scene::new().backup)], now())
        .map(|(_, status)| status.conditions[0].reason.clone())
        .collect();
    assert_eq!(told, ["Paused"]);
}

/// On a busy node what asks for no processor time gets next to none, and a namespace with a quota of requests or limits takes no pod without.
#[test]
fn every_container_of_a_worker_says_what_it_needs() {
    let mut scene = Scene::new();
    scene.round();
    let spec = scene.workers["b1-0-0-backup"].spec.as_ref().unwrap();
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let needs = json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}});
    let told: Vec<_> = containers.map(|one| (one.name.as_str(), json!(one.resources))).collect();
    assert_eq!(told, [("folder", needs.clone()), ("backup", needs)]);
}
