//! Workers whose nodes are lost.

use super::*;

/// A worker of shard 0 that runs by the last word of its node: whether it was ready then and since which second, and when it is to have gone.
fn running(ready: (&str, i64), gone: Option<i64>) -> Arc<Pod> {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let pod = json!({
        "metadata": {"name": "b1-0-0-backup", "creationTimestamp": second(100), "deletionTimestamp": gone.map(second)},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready.0, "lastTransitionTime": second(ready.1)}],
            "containerStatuses": [{
                "name": "backup", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}},
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A backup with such a worker.
fn round(ready: (&str, i64), gone: Option<i64>) -> (Scene, Option<(String, String)>) {
    let mut scene = Scene::new();
    scene.round();
    scene.workers.insert("b1-0-0-backup".to_owned(), running(ready, gone));
    let told = scene.round().conditions.first().map(|told| (told.reason.clone(), told.message.clone()));
    (scene, told)
}

const ONE: [&str; 2] = ["b1-0-0-backup", "b1-1-0-backup"];
const NEXT: [&str; 3] = ["b1-0-0-backup", "b1-0-1-backup", "b1-1-0-backup"];

fn stalled(why: &str) -> Option<(String, String)> {
    Some(("Stalled".to_owned(), format!("nobody hears of the worker of shard 0: {why}")))
}

/// Before, it was Running for a day without a word, and held all moves.
#[test]
fn a_worker_whose_node_is_lost_is_told_of_and_made_again() {
    let why = "its container runs by the last word of its node, and is not ready";
    let (scene, told) = round(("True", 100), None);
    assert_eq!((scene.names(), told), (ONE.to_vec(), None));
    let (scene, told) = round(("False", 700), None);
    assert_eq!((scene.names(), told), (ONE.to_vec(), stalled(why)));
    let (scene, told) = round(("False", 699), None);
    assert_eq!((scene.names(), told), (NEXT.to_vec(), None));
}

#[test]
fn a_worker_that_is_deleted_and_does_not_go_is_made_again_elsewhere() {
    let why = "its pod is being deleted, and its node does not say that it has ended";
    let (scene, told) = round(("True", 100), Some(1_000));
    assert_eq!((scene.names(), told), (ONE.to_vec(), None));
    let (scene, told) = round(("True", 100), Some(940));
    assert_eq!((scene.names(), told), (ONE.to_vec(), stalled(why)));
    let (scene, told) = round(("True", 100), Some(939));
    assert_eq!((scene.names(), told), (NEXT.to_vec(), None));
}

/// Before, the first attempt began anew beside the second, of which nothing was heard until that one had ended, and three were never counted.
#[test]
fn attempts_go_on_from_the_last_where_the_object_of_a_lost_one_goes() {
    let failed = json!({"failed": {"message": "the member went away"}});
    let (mut scene, _) = round(("False", 699), None);
    scene.workers.remove("b1-0-0-backup");
    scene.round();
    assert_eq!(scene.names(), ["b1-0-1-backup", "b1-1-0-backup"]);
    scene.end("b1-0-1-backup", 1, &failed);
    scene.round();
    assert_eq!(scene.names(), ["b1-0-1-backup", "b1-0-2-backup", "b1-1-0-backup"]);
    scene.workers.remove("b1-0-1-backup");
    scene.end("b1-0-2-backup", 1, &failed);
    let status = scene.round();
    let text = "shard 0 could not be stored: 3 attempts failed, the last one: the member went away";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (BackupPhase::Failed, text));
}

#[test]
fn what_any_attempt_has_stored_counts_whatever_became_of_the_others() {
    for first in [None, Some(running(("True", 999), None))] {
        let (mut scene, _) = round(("False", 699), None);
        scene.store("b1-0-1-backup", 0, "0-8191", 10);
        scene.workers.remove("b1-0-0-backup");
        scene.workers.extend(first.map(|pod| ("b1-0-0-backup".to_owned(), pod)));
        let names: Vec<String> = scene.workers.keys().cloned().collect();
        assert_eq!(scene.round().shards.len(), 1);
        assert_eq!(scene.names(), names);
    }
}
