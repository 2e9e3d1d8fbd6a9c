//! Workers that are to delete the artifacts of deleted backups, and that Kubernetes does not take.

use std::time::Duration;

use controller::backup::{Means, Refusals, retire};
use controller::events::Events;
use controller::queue::Key;
use serde_json::{Value, json};

use crate::memory::{Memory, Refusal};

/// A completed backup that is being deleted for so many seconds.
fn backup(name: &str, seconds: i64) -> Value {
    let since = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - seconds).unwrap();
    json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisBackup",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "deletionTimestamp": since,
            "finalizers": ["redis.kun.io/artifacts"]},
        "spec": {"clusterName": "orders", "deletionPolicy": "Delete"},
        "status": {"phase": "Completed", "location": folder(name), "target": {"directory": {"path": "/mnt"}}},
    })
}

fn folder(name: &str) -> String {
    types::names::backup_folder("shop", "orders", name, &format!("uid-of-{name}"))
}

struct Scene {
    memory: Memory,
    events: Events,
    refusals: Refusals,
}

impl Scene {
    fn new(names: &[&str], seconds: i64) -> Self {
        let memory = Memory::default();
        names.iter().for_each(|name| memory.put("redisbackups", backup(name, seconds)));
        let events = Events::new(memory.client(), "test".to_owned()).0;
        Self { memory, events, refusals: Refusals::default() }
    }

    /// One look; says when the next one is due, and what was asked of pods.
    async fn look(&self) -> (Option<Duration>, Vec<String>) {
        let key = Key { namespace: "shop".to_owned(), name: "orders".to_owned() };
        let means = Means { kun_image: "kun:1", events: &self.events, refusals: &self.refusals };
        let next = retire(&self.memory.kubernetes(), means, &key).await.unwrap();
        let writes = self.memory.take_writes();
        (next, writes.into_iter().filter(|write| write.contains(" pods/")).collect())
    }

    fn finalizers(&self, name: &str) -> Value {
        self.memory.get("redisbackups", name).unwrap()["metadata"]["finalizers"].clone()
    }

    fn told(&self, name: &str) -> Option<String> {
        let status = self.memory.get("redisbackups", name).unwrap()["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.into_iter().find(|condition| condition["type"] == "ArtifactsDeleted")?;
        Some(format!("{}: {}", told["reason"].as_str().unwrap(), told["message"].as_str().unwrap()))
    }
}

/// Before, one refusal gave the files up for good.
#[tokio::test]
async fn a_worker_that_is_refused_is_told_of_and_asked_for_again() {
    for (refusal, words) in [(Refusal::Forbidden, "Forbidden (403)"), (Refusal::Broken, "InternalError (500)")] {
        let scene = Scene::new(&["b1"], 0);
        scene.memory.refuse(Some(("pods", refusal)));
        let asked = vec!["POST pods/b1-erase-0".to_owned()];
        assert_eq!(scene.look().await, (Some(Duration::from_secs(10)), asked.clone()));
        let told = scene.told("b1").unwrap();
        let begin = format!(
            "WorkerRefused: no worker deletes the artifacts in directory /mnt, folder {} yet: creating Pod b1-erase-0: {words}. One is \
             waited for until ",
            folder("b1")
        );
        assert!(told.starts_with(&begin), "{told}");
        let (pause, again) = scene.look().await;
        assert!(pause.is_some_and(|pause| pause <= Duration::from_secs(10)) && again.is_empty(), "{pause:?} {again:?}");
        assert_eq!(scene.finalizers("b1"), json!(["redis.kun.io/artifacts"]));
        // Another controller knows of no pause.
        scene.memory.refuse(None);
        let scene = Scene { refusals: Refusals::default(), ..scene };
        assert_eq!(scene.look().await, (Some(Duration::from_secs(1)), asked));
        assert_eq!(scene.told("b1"), None);
    }
}

#[tokio::test]
async fn sixteen_workers_that_are_refused_hold_back_no_other() {
    let refused: Vec<String> = (0..16).map(|number| format!("a{number:02}")).collect();
    let all: Vec<&str> = refused.iter().map(String::as_str).chain(["b1", "b2"]).collect();
    let scene = Scene::new(&all, 0);
    scene.memory.refuse(Some(("pods/a", Refusal::Forbidden)));
    assert_eq!(scene.look().await.1.len(), 16);
    assert_eq!(scene.look().await.1, ["POST pods/b1-erase-0", "POST pods/b2-erase-0"]);
    assert_eq!(scene.look().await.1, Vec::<String>::new());
    // Who was never refused comes first.
    let scene = Scene::new(&all, 0);
    scene.memory.refuse(Some(("pods/a", Refusal::Forbidden)));
    scene.look().await;
    scene.memory.put("redisbackups", backup("a99", 0));
    assert_eq!(scene.look().await.1, ["POST pods/a99-erase-0", "POST pods/b1-erase-0", "POST pods/b2-erase-0"]);
}

/// A webhook of others that stands still.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_answered_about_is_given_up_for_a_while() {
    let scene = Scene::new(&["a1", "b1"], 0);
    scene.memory.refuse(Some(("pods/a", Refusal::Silent)));
    assert_eq!(scene.look().await.1[0], "POST pods/a1-erase-0");
    assert!(scene.told("a1").unwrap().contains("no answer within 15 s"), "{:?}", scene.told("a1"));
    scene.look().await;
    assert_eq!(scene.memory.names("pods"), ["b1-erase-0"]);
}

/// Before, five of them took all the time that a reconcile has, and nobody looked after the members of the cluster.
#[tokio::test(start_paused = true)]
async fn backups_that_are_not_answered_about_are_asked_about_one_in_a_look() {
    let scene = Scene::new(&["b1", "b2", "b3"], 24 * 3600 + 10);
    scene.memory.refuse(Some(("redisbackups", Refusal::Silent)));
    let key = Key { namespace: "shop".to_owned(), name: "orders".to_owned() };
    let means = Means { kun_image: "kun:1", events: &scene.events, refusals: &scene.refusals };
    for asked in ["b1", "b2", "b3", "b1"] {
        retire(&scene.memory.kubernetes(), means, &key).await.unwrap_err();
        assert_eq!(scene.memory.take_writes(), [format!("PATCH redisbackups/{asked}")]);
    }
}

#[tokio::test]
async fn after_a_day_or_in_a_namespace_that_goes_the_object_is_let_go() {
    let scene = Scene::new(&["b1"], 24 * 3600 + 10);
    assert_eq!(scene.look().await, (None, vec![]));
    assert_eq!(scene.finalizers("b1"), json!([]));
    let scene = Scene::new(&["b1"], 0);
    scene.memory.refuse(Some(("pods", Refusal::Leaving)));
    assert_eq!(scene.look().await, (None, vec!["POST pods/b1-erase-0".to_owned()]));
    assert_eq!(scene.finalizers("b1"), json!([]));
}
