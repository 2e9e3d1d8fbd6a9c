//! What a whole reconcile does where our store was lost or went back, against an API server in memory: nothing, and it
//! says so; and that a cluster that was brought back finds everything as it was.

#[allow(dead_code, reason = "shared with other tests, which use other parts of it")]
use std::sync::Arc;

use crate::memory::{Memory, Refusal};
use controller::api::Kubernetes;
use controller::backup::Refusals;
use controller::cache::Caches;
use controller::credentials::SystemIssuer;
use controller::events::Events;
use controller::gather::gather;
use controller::lease::Guard;
use controller::metrics::Metrics;
use controller::probe::agent::Agents;
use controller::queue::Key;
use controller::reconcile::{Context, Held, Locals, reconcile};
use controller::report::Reach;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

const CHILDREN: [&str; 7] = [
    "statefulsets",
    "services",
    "networkpolicies",
    "configmaps",
    "secrets",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
];

fn key() -> Key {
    Key { namespace: "shop".to_owned(), name: "orders".to_owned() }
}

fn cluster(uid: &str, generation: i64, spec: &Value) -> Value {
    json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "spec": spec,
        "metadata": {"name": "orders", "namespace": "shop", "uid": uid, "generation": generation,
            "labels": {"team": "a"}, "finalizers": ["redis.kun.io/teardown"]},
    })
}

fn going(mut cluster: Value) -> Value {
    cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    cluster
}

fn without_finalizer(mut cluster: Value) -> Value {
    cluster["metadata"].as_object_mut().unwrap().remove("finalizers");
    cluster
}

/// What claims are deleted with their cluster, so that a wrong deletion would show.
fn spec() -> Value {
    json!({"shards": 2, "storage": {"size": "1Gi", "retain": "Delete"}})
}

struct Scene {
    memory: Memory,
    agents: tokio::sync::watch::Receiver<Arc<certs::Ring>>,
}

impl Scene {
    /// A cluster of the uid u1, applied at generation 5, with a claim.
    async fn new() -> Self {
        let ring = certs::Ring::of(certs::Authority::create("agents").unwrap());
        let agents = tokio::sync::watch::channel(Arc::new(ring)).1;
        let scene = Self { memory: Memory::default(), agents };
        scene.memory.put("redisclusters", cluster("u1", 5, &spec()));
        let labels = json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders",
            "redis.kun.io/shard": "0"});
        let claim = json!({"metadata": {"name": "data-orders-0-0", "namespace": "shop", "labels": labels},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}}});
        scene.memory.put("persistentvolumeclaims", claim);
        scene.round().await;
        assert_eq!(scene.memory.names("statefulsets"), ["orders-0", "orders-1"]);
        scene.memory.take_writes();
        scene
    }

    /// A controller that has just started.
    fn context(&self) -> Context {
        Context {
            kubernetes: self.memory.kubernetes(),
            issuer: Arc::new(SystemIssuer::new(self.agents.clone())),
            agents: Agents::new(self.agents.clone()),
            events: Events::new(self.memory.client(), "test".to_owned()).0,
            metrics: Metrics::default(),
            kun_image: "kun:1".to_owned(),
            namespace: "kun-system".to_owned(),
            reach: Reach::default(),
            limits: plan::Limits::default(),
            locals: Locals::default(),
            held: Held::default(),
            refusals: Refusals::default(),
        }
    }

    /// One round of a controller that has just started; what it says about itself.
    async fn round(&self) -> String {
        let context = self.context();
        reconcile(&context, &key()).await.unwrap();
        context.metrics.encode()
    }

    /// Every child as it is.
    fn children(&self) -> Vec<Value> {
        let of = |kind: &&str| {
            let names = self.memory.names(kind);
            names.into_iter().map(|name| self.memory.get(kind, &name).unwrap()).collect::<Vec<_>>()
        };
        CHILDREN.iter().flat_map(of).collect()
    }

    fn ready(&self) -> (Value, Value) {
        let status = self.memory.get("redisclusters", "orders").unwrap()["status"].clone();
        let ready = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap().clone();
        (ready["status"].clone(), ready["reason"].clone())
    }
}

#[tokio::test]
async fn children_whose_owner_was_lost_are_left_as_they_are_and_counted() {
    let scene = Scene::new().await;
    let before = scene.children();
    scene.memory.clear("redisclusters");
    let metrics = scene.round().await;
    assert!(metrics.contains("kun_controller_held{reason=\"OwnerAbsent\"} 1"), "{metrics}");
    assert_eq!((scene.memory.take_writes(), scene.children() == before), (vec![], true));
}

#[tokio::test]
async fn an_object_made_anew_with_the_same_name_takes_nothing_over_and_says_why() {
    let scene = Scene::new().await;
    let before = scene.children();
    scene.memory.put("redisclusters", without_finalizer(cluster("u2", 1, &spec())));
    let metrics = scene.round().await;
    assert!(metrics.contains("kun_controller_held{reason=\"OwnedByAnother\"} 1"), "{metrics}");
    // Its status; no finalizer, so that who made it can take it away again.
    assert_eq!(scene.memory.take_writes(), ["PUT redisclusters/orders"]);
    assert_eq!(scene.memory.get("redisclusters", "orders").unwrap()["metadata"].get("finalizers"), None);
    assert_eq!(scene.ready(), (json!("False"), json!("OwnedByAnother")));
    scene.round().await;
    assert_eq!((scene.memory.take_writes(), scene.children() == before), (vec![], true), "said once");
}

#[tokio::test]
async fn an_object_that_went_back_is_not_applied_and_says_why() {
    let scene = Scene::new().await;
    let before = scene.children();
    scene.memory.put("redisclusters", cluster("u1", 4, &json!({"shards": 1})));
    let metrics = scene.round().await;
    assert!(metrics.contains("kun_controller_held{reason=\"OwnerBehind\"} 1"), "{metrics}");
    assert_eq!(scene.memory.take_writes(), ["PUT redisclusters/orders"]);
    assert_eq!(scene.ready(), (json!("False"), json!("OwnerBehind")));
    assert!(scene.children() == before);
}

#[tokio::test]
async fn a_deletion_in_an_older_copy_or_of_another_object_deletes_no_child() {
    let scene = Scene::new().await;
    let before = scene.children();
    scene.memory.put("redisclusters", going(cluster("u1", 4, &spec())));
    scene.round().await;
    assert_eq!(scene.memory.take_writes(), ["PUT redisclusters/orders"]);
    assert_eq!(
        (scene.ready(), scene.children() == before),
        ((json!("False"), json!("OwnerBehind")), true),
        "it waits for a person"
    );
    scene.memory.put("redisclusters", going(cluster("u2", 9, &spec())));
    scene.round().await;
    assert_eq!(scene.memory.take_writes(), ["PATCH redisclusters/orders"]);
    let left = scene.memory.get("redisclusters", "orders").unwrap();
    assert_eq!((&left["metadata"]["finalizers"], scene.children() == before), (&json!([]), true), "it may go");
}

#[tokio::test]
async fn a_cluster_that_was_brought_back_finds_everything_as_it_was() {
    let scene = Scene::new().await;
    let record = scene.memory.get("statefulsets", "orders-0").unwrap();
    let record = record["metadata"]["annotations"]["redis.kun.io/owner"].as_str().unwrap().to_owned();
    assert_eq!(
        scene.memory.get("statefulsets", "orders-1").unwrap()["metadata"]["annotations"].get("redis.kun.io/owner"),
        None
    );
    let before = scene.children();
    scene.memory.clear("redisclusters");
    scene.memory.put("redisclusters", serde_json::from_str(&record).unwrap());
    scene.round().await;
    scene.round().await;
    let writes = scene.memory.take_writes();
    assert!(
        writes.iter().all(|write| write.ends_with(" redisclusters/orders")),
        "finalizer and status only: {writes:?}"
    );
    assert!(scene.children() == before);
    let owner = scene.memory.get("redisclusters", "orders").unwrap();
    assert_eq!(
        (&owner["metadata"]["uid"], &owner["metadata"]["generation"], &owner["metadata"]["labels"]),
        (&json!("u1"), &json!(5), &json!({"team": "a"}))
    );
}

#[tokio::test]
async fn what_a_cache_has_not_heard_of_yet_is_looked_up_before_anybody_is_alarmed() {
    let scene = Scene::new().await;
    scene.memory.put("redisclusters", cluster("u1", 4, &spec()));
    let context = scene.context();
    // The write that this controller has not seen: generation 5 is there.
    scene.memory.put("redisclusters", cluster("u1", 5, &spec()));
    reconcile(&context, &key()).await.unwrap();
    assert!(!context.metrics.encode().contains("kun_controller_held{"), "{}", context.metrics.encode());
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_paused_cluster_is_on_record_as_it_is_now_and_nothing_else_changes() {
    let scene = Scene::new().await;
    let mut paused = spec();
    (paused["paused"], paused["shards"]) = (json!(true), json!(3));
    scene.memory.put("redisclusters", cluster("u1", 6, &paused));
    let before = scene.memory.get("statefulsets", "orders-0").unwrap();
    scene.round().await;
    scene.round().await;
    let writes = scene.memory.take_writes();
    let of_sets: Vec<_> = writes.iter().filter(|write| write.contains("statefulsets")).collect();
    assert_eq!(of_sets, ["PATCH statefulsets/orders-0"], "once");
    let after = scene.memory.get("statefulsets", "orders-0").unwrap();
    assert_eq!(after["spec"], before["spec"]);
    let record: Value =
        serde_json::from_str(after["metadata"]["annotations"]["redis.kun.io/owner"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&record["metadata"]["generation"], &record["spec"]["shards"], &record["spec"]["paused"]),
        (&json!(6), &json!(3), &json!(true))
    );
    assert_eq!(scene.memory.names("statefulsets"), ["orders-0", "orders-1"]);
}

/// Before, a cluster that was deleted while it was ready said Ready=True until it was gone.
#[tokio::test]
async fn a_cluster_that_is_deleted_is_not_ready_and_names_what_is_left() {
    let scene = Scene::new().await;
    let labels =
        json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders", "redis.kun.io/shard": "0"});
    scene.memory.put("pods", json!({"metadata": {"name": "orders-0-0", "namespace": "shop", "labels": labels}}));
    let kept = json!({"shards": 2, "storage": {"size": "1Gi"}});
    let mut leaving = going(cluster("u1", 6, &kept));
    let ready = json!({"type": "Ready", "status": "True", "reason": "AllAgree", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    leaving["status"] = json!({"phase": "Ready", "observedGeneration": 5, "conditions": [ready]});
    scene.memory.put("redisclusters", leaving);
    scene.round().await;
    assert_eq!(scene.ready(), (json!("False"), json!("Deleting")));
    let told = |scene: &Scene| {
        let status = scene.memory.get("redisclusters", "orders").unwrap()["status"].clone();
        (status["observedGeneration"].clone(), status["plan"]["waiting"].as_str().unwrap().to_owned())
    };
    let kept = "kept: PersistentVolumeClaim data-orders-0-0, Secret orders-auth, Secret orders-internal";
    let sets = format!("still stopping: StatefulSet orders-0, StatefulSet orders-1, Pod orders-0-0; {kept}");
    assert_eq!(told(&scene), (json!(6), sets));
    scene.round().await;
    assert_eq!(told(&scene), (json!(6), format!("still stopping: Pod orders-0-0; {kept}")));
    scene.memory.take_writes();
    scene.round().await;
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new(), "the same is not told twice");
}

/// Before, nothing was planned while one object could not be written: no role moved, and nothing was healed.
#[tokio::test]
async fn what_cannot_be_written_keeps_nothing_from_being_planned() {
    let scene = Scene::new().await;
    let mut larger = spec();
    larger["config"] = json!({"slowlog-max-len": "1"});
    scene.memory.put("redisclusters", cluster("u1", 6, &larger));
    scene.memory.refuse(Some(("configmaps", Refusal::Broken)));
    scene.round().await;
    let status = scene.memory.get("redisclusters", "orders").unwrap()["status"].clone();
    let of = |kind: &str| {
        let found = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind);
        found.unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(of("Degraded").contains("ConfigMap orders-config cannot be written"), "{}", of("Degraded"));
    assert!(status["plan"]["waiting"].is_string(), "{status}");
}

/// Of a ConfigMap or a Secret of no cluster no more is kept than that it is there.
#[tokio::test]
async fn what_was_there_before_its_cluster_is_read_when_that_comes() {
    let scene = Scene::new().await;
    let caches = Arc::new(Caches::default());
    let held: Vec<Secret> = ["orders-auth", "orders-internal"]
        .map(|name| serde_json::from_value(scene.memory.get("secrets", name).unwrap()).unwrap())
        .into();
    for secret in &held {
        caches.take_in(Event::Apply(secret.clone()));
    }
    let kubernetes = Kubernetes::new(scene.memory.client(), Arc::clone(&caches), Guard::always(), None);
    let data = || caches.secrets.of(&key()).values().map(|secret| secret.data.clone()).collect::<Vec<_>>();
    kubernetes.read_stripped(&key()).await.unwrap();
    assert_eq!(data(), [None, None]);
    let owner = scene.memory.get("redisclusters", "orders").unwrap();
    caches.clusters.put(serde_json::from_value(owner).unwrap());
    caches.assume_complete();
    // New passwords would be written over those in use.
    let unread = gather(&caches, &key()).unwrap_err();
    assert_eq!(unread.to_string(), "what is in the Secrets of this cluster is not known yet");
    kubernetes.read_stripped(&key()).await.unwrap();
    let held: Vec<_> = held.into_iter().map(|secret| secret.data).collect();
    assert_eq!(data(), held);
    let gathered = gather(&caches, &key()).unwrap().unwrap();
    assert_eq!(gathered.secrets.values().map(|secret| secret.data.clone()).collect::<Vec<_>>(), held);
}
