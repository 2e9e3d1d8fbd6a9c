#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use serde_json::{Value, json};

use super::*;

const MADE: Made<'static> = Made { kun_image: "kun:1", placement: None };
const FOLDER: &str = "shop_orders_b1_01234567";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1000 + second).unwrap()
}

/// A completed backup that is being deleted since second 0.
fn backup(policy: &str, status: &Value) -> RedisBackup {
    serde_json::from_value(json!({
        "metadata": {"name": "b1", "namespace": "shop", "uid": "0123456789", "finalizers": [names::FINALIZER_ARTIFACTS],
            "deletionTimestamp": at(0)},
        "spec": {"clusterName": "orders", "deletionPolicy": policy},
        "status": status,
    }))
    .unwrap()
}

fn stored() -> Value {
    json!({"phase": "Completed", "location": FOLDER, "target": {"directory": {"path": "/mnt/backups"}}})
}

/// A worker that a node took in second 0; one with a report ended in the same.
fn pod(name: &str, report: Option<&Value>) -> (String, Arc<Pod>) {
    let state = report.map_or(
        json!({"running": {}}),
        |report| json!({"terminated": {"exitCode": 0, "message": report.to_string(), "finishedAt": at(0)}}),
    );
    let pod = json!({
        "metadata": {"name": name, "labels": {"redis.kun.io/backup": "b1"}},
        "status": {"startTime": at(0), "containerStatuses": [{
            "name": "backup", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }]},
    });
    (name.to_owned(), Arc::new(serde_json::from_value(pod).unwrap()))
}

fn pods<const N: usize>(pods: [(&str, Option<Value>); N]) -> BTreeMap<String, Arc<Pod>> {
    pods.iter().map(|(name, report)| pod(name, report.as_ref())).collect()
}

fn names_of(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
}

fn failed(why: &str) -> Option<Value> {
    Some(json!({"failed": {"message": why}}))
}

#[test]
fn retained_artifacts_stay_and_the_object_goes_at_once() {
    let decision = decide(&backup("Retain", &stored()), &BTreeMap::new(), MADE, at(0));
    assert_eq!(decision, Decision { end: Some(Ending::Quiet), ..Decision::default() });
}

#[test]
fn a_backup_that_never_began_leaves_nothing_to_delete() {
    let decision = decide(&backup("Delete", &json!({"phase": "Pending"})), &BTreeMap::new(), MADE, at(0));
    assert_eq!(decision.end, Some(Ending::Quiet));
}

#[test]
fn workers_that_may_still_write_end_before_anything_is_deleted() {
    let pods = pods([("b1-0-0", None), ("b1-1-0", None)]);
    for policy in ["Delete", "Retain"] {
        let decision = decide(&backup(policy, &stored()), &pods, MADE, at(1));
        assert_eq!(names_of(&decision.delete), ["b1-0-0", "b1-1-0"]);
        assert_eq!((decision.create, decision.end), (None, None));
    }
}

#[test]
fn a_worker_deletes_exactly_the_folder_of_this_backup_in_the_target_it_was_stored_in() {
    let decision = decide(&backup("Delete", &stored()), &BTreeMap::new(), MADE, at(0));
    let pod = serde_json::to_value(decision.create.unwrap()).unwrap();
    assert_eq!(pod["metadata"]["name"], "b1-erase-0");
    assert_eq!(pod["metadata"]["labels"]["redis.kun.io/cluster"], "orders");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["image"], "kun:1");
    assert_eq!(
        container["command"],
        json!(["/usr/local/bin/kun", "agent", "erase", "--target", "/backup", "--folder", FOLDER])
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "target", "hostPath": {"path": "/mnt/backups", "type": "DirectoryOrCreate"}}])
    );
    assert_eq!((decision.delete, decision.end), (vec![], None));
}

#[test]
fn a_status_that_points_elsewhere_deletes_nothing() {
    for location in ["..", "/", "shop_orders_b2_01234567", "../shop_orders_b1_01234567", ""] {
        let mut status = stored();
        status["location"] = json!(location);
        let decision = decide(&backup("Delete", &status), &BTreeMap::new(), MADE, at(0));
        assert_eq!(decision.create, None, "{location}");
        assert!(matches!(decision.end, Some(Ending::Left(_))), "{location}");
    }
    let decision = decide(&backup("Delete", &json!({"location": FOLDER})), &BTreeMap::new(), MADE, at(0));
    assert!(matches!(decision.end, Some(Ending::Left(text)) if text.contains("not known any more")));
}

#[test]
fn a_worker_that_is_done_lets_the_object_go_and_says_what_was_deleted() {
    for (report, ending) in [
        (json!({"erased": {"files": 3, "left": 0}}), "Erased(\"3 files were deleted in directory /mnt/backups"),
        (json!({"erased": {"files": 0, "left": 0}}), "Missing(\"there was nothing to delete in directory /mnt"),
        (json!({"erased": {"files": 3, "left": 1}}), "Left(\"3 files were deleted in directory /mnt/backups"),
    ] {
        let decision = decide(&backup("Delete", &stored()), &pods([("b1-erase-0", Some(report))]), MADE, at(2));
        assert_eq!(names_of(&decision.delete), ["b1-erase-0"]);
        let end = format!("{:?}", decision.end.unwrap());
        assert!(end.starts_with(ending) && end.contains(FOLDER), "{end}");
    }
}

#[test]
fn three_attempts_are_spread_over_time_and_then_it_lets_go() {
    let object = backup("Delete", &stored());
    let mut all = pods([("b1-erase-0", failed("read-only file system"))]);
    assert_eq!(decide(&object, &all, MADE, at(29)), Decision::default());
    let second = decide(&object, &all, MADE, at(30)).create.unwrap();
    assert_eq!(second.metadata.name.as_deref(), Some("b1-erase-1"));
    all.extend(pods([("b1-erase-1", failed("read-only file system")), ("b1-erase-2", None)]));
    assert_eq!(decide(&object, &all, MADE, at(61)), Decision::default());
    all.extend(pods([("b1-erase-2", failed("read-only file system"))]));
    let decision = decide(&object, &all, MADE, at(62));
    assert_eq!(names_of(&decision.delete), ["b1-erase-0", "b1-erase-1", "b1-erase-2"]);
    let text = "the artifacts may be left in directory /mnt/backups, folder shop_orders_b1_01234567: 3 attempts \
                failed, the last with: read-only file system";
    assert_eq!(decision.end, Some(Ending::Left(text.to_owned())));
}

#[test]
fn a_target_that_is_gone_does_not_keep_the_object_for_ever() {
    let object = backup("Delete", &stored());
    let waits = pods([("b1-erase-0", None)]);
    assert_eq!(decide(&object, &waits, MADE, at(600)), Decision::default());
    let decision = decide(&object, &waits, MADE, at(601));
    assert_eq!(names_of(&decision.delete), ["b1-erase-0"]);
    assert!(matches!(decision.end, Some(Ending::Left(text)) if text.contains("did not end in time")));
    // Nor does a worker of the backup itself that cannot be stopped.
    let stuck = pods([("b1-0-0", None)]);
    assert!(matches!(decide(&object, &stuck, MADE, at(601)).end, Some(Ending::Left(_))));
}

/// Before, everything that took longer than ten minutes after the deletion left its files, and said so once.
#[test]
fn a_worker_without_a_node_is_waited_for_a_day_then_has_its_own_time() {
    let object = backup("Delete", &stored());
    let words = "0/3 nodes are available: 3 Insufficient memory.";
    let pending = json!({
        "metadata": {"name": "b1-erase-0", "labels": {"redis.kun.io/backup": "b1"}, "creationTimestamp": at(5)},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": words}]},
    });
    let all = |pod: &Value| {
        BTreeMap::from([("b1-erase-0".to_owned(), Arc::new(serde_json::from_value(pod.clone()).unwrap()))])
    };
    let day = 24 * 3600;
    let waits = Some(format!("the scheduler has no node for its pod: {words}"));
    assert_eq!(decide(&object, &all(&pending), MADE, at(day)), Decision { waits, ..Decision::default() });
    let text = format!(
        "the artifacts may be left in directory /mnt/backups, folder {FOLDER}: the worker did not start in a day: the scheduler has no \
         node for its pod: {words}"
    );
    assert_eq!(decide(&object, &all(&pending), MADE, at(day + 1)).end, Some(Ending::Left(text)));
    let (_, taken) = pod("b1-erase-0", None);
    let mut taken = json!(*taken);
    taken["status"]["startTime"] = json!(at(day));
    assert_eq!(decide(&object, &all(&taken), MADE, at(day + 600)), Decision::default());
    let end = decide(&object, &all(&taken), MADE, at(day + 601)).end;
    assert!(matches!(end, Some(Ending::Left(text)) if text.contains("did not end in time")));
    // Nothing was ever taken: nobody waits for longer than a day.
    assert!(decide(&object, &BTreeMap::new(), MADE, at(day)).create.is_some());
    let end = decide(&object, &BTreeMap::new(), MADE, at(day + 1)).end;
    assert!(matches!(end, Some(Ending::Left(text)) if text.contains("within a day")));
}

#[test]
fn artifacts_are_deleted_where_the_cluster_may_run_as_long_as_there_is_one() {
    let placement: Placement =
        serde_json::from_value(json!({"nodeSelector": {"disk": "fast"}, "priorityClassName": "databases"})).unwrap();
    let eraser = |placement| {
        let made = Made { placement, ..MADE };
        decide(&backup("Delete", &stored()), &BTreeMap::new(), made, at(0)).create.unwrap().spec.unwrap()
    };
    let spec = eraser(Some(&placement));
    assert_eq!(json!(spec.node_selector), json!({"disk": "fast"}));
    assert_eq!(spec.priority_class_name.as_deref(), Some("databases"));
    assert!(
        spec.containers.iter().all(|container| container.resources.is_some()),
        "a quota takes no pod that says nothing"
    );
    let spec = eraser(None);
    assert_eq!((spec.node_selector, spec.priority_class_name), (None, None));
}

/// Before, what the worker of another backup had deleted counted, and the files of this one stayed.
#[test]
fn the_word_of_an_earlier_backups_worker_does_not_count() {
    let (name, ended) = pod("b1-erase-0", Some(&json!({"erased": {"files": 3, "left": 0}})));
    let of = |uid: &str| {
        let mut pod = (*ended).clone();
        pod.metadata.labels.as_mut().unwrap().insert(names::LABEL_BACKUP_UID.to_owned(), uid.to_owned());
        Arc::new(pod)
    };
    let (object, former) = (backup("Delete", &stored()), of("another"));
    let waits = Some("the worker of an earlier backup of this name is still there".to_owned());
    let decision = decide(&object, &BTreeMap::from([(name.clone(), Arc::clone(&former))]), MADE, at(2));
    assert_eq!(decision, Decision { delete: vec![former], waits, ..Decision::default() });
    let own = decide(&object, &BTreeMap::from([(name, of("0123456789"))]), MADE, at(2));
    assert!(matches!(own.end, Some(Ending::Erased(_))), "{:?}", own.end);
    // One that is made now says whose it is.
    let made = decide(&object, &BTreeMap::new(), MADE, at(2)).create.unwrap();
    assert_eq!(made.metadata.labels.unwrap()[names::LABEL_BACKUP_UID], "0123456789");
}
