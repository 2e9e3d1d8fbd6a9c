//! What admission is asked, in which order, and what its answers do.

use std::sync::{Arc, Mutex};

use apiserver::{
    admission::{Admission, Attributes},
    error::{Error, Result},
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster, of_kind};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

/// Writes down what it is asked, adds a label, refuses names that begin with `bad`.
#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<String>>,
    shown: Mutex<Vec<Value>>,
}

impl Recorder {
    fn note(&self, step: &str, attributes: &Attributes, object: Option<&Value>) {
        let Attributes { operation, kind, resource, subresource, name, namespace, dry_run, old_object, .. } =
            attributes;
        let sub = subresource.as_deref().map(|sub| format!("/{sub}")).unwrap_or_default();
        let old = if old_object.is_some() { " old" } else { "" };
        let new = if object.is_some() { " new" } else { "" };
        let dry = if *dry_run { " dry" } else { "" };
        let place = namespace.as_deref().unwrap_or("-");
        let line =
            format!("{step} {} {} {}{sub} {place}/{name}{old}{new}{dry}", operation.as_str(), kind.name, resource.name);
        self.asked.lock().unwrap().push(line);
        self.shown.lock().unwrap().extend(object.cloned());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Admission for Recorder {
    fn mutate<'a>(&'a self, attributes: &'a Attributes, mut object: Value) -> BoxFuture<'a, Result<Value>> {
        self.note("mutate", attributes, Some(&object).filter(|object| !object.is_null()));
        if object.is_object() && attributes.kind.name == "RedisCluster" {
            object["metadata"]["labels"]["seen"] = json!("yes");
            object["spec"]["unknown"] = json!(1);
            object["status"] = json!({"phase": "Ready"});
        }
        Box::pin(async move { Ok(object) })
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<()>> {
        self.note("validate", attributes, attributes.object.as_deref());
        let refused = attributes.name.starts_with("bad");
        Box::pin(async move {
            if refused {
                let message = "admission webhook \"w\" denied the request: no".to_owned();
                return Err(Error::Denied { message, reason: "Forbidden".into(), code: Some(403), details: None });
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_create_is_mutated_then_prepared_then_judged() {
    let recorder = Arc::new(Recorder::default());
    let api = Api::with(Arc::clone(&recorder) as Arc<dyn Admission>).await;
    let object = api
        .post(CLUSTERS, &of_kind("RedisCluster", json!({"metadata": {"generateName": "a-"}, "spec": {}})))
        .await
        .ok();
    let name = object["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        recorder.take(),
        [
            "mutate CREATE RedisCluster redisclusters shop/ new".to_owned(),
            format!("validate CREATE RedisCluster redisclusters shop/{name} new")
        ]
    );
    let shown = recorder.shown.lock().unwrap().clone();
    assert_eq!((shown[0]["spec"]["shards"].as_i64(), shown[0]["metadata"].get("uid")), (Some(3), None));
    assert!(shown[1]["metadata"]["uid"].is_string());
    assert_eq!((shown[1].get("status"), shown[1]["spec"].get("unknown")), (None, None));
    assert_eq!(object["metadata"]["labels"], json!({"seen": "yes"}));
}

#[tokio::test]
async fn an_update_shows_old_and_new_and_its_subresource() {
    let recorder = Arc::new(Recorder::default());
    let api = Api::with(Arc::clone(&recorder) as Arc<dyn Admission>).await;
    api.cluster("orders").await;
    recorder.take();
    api.merge(ORDERS, &json!({"spec": {"shards": 4}})).await.ok();
    api.merge(&format!("{ORDERS}/status"), &json!({"status": {"replicas": 1}})).await.ok();
    api.merge(&format!("{ORDERS}/scale?dryRun=All"), &json!({"spec": {"replicas": 5}})).await.ok();
    api.delete(ORDERS).await.ok();
    assert_eq!(
        recorder.take(),
        [
            "mutate UPDATE RedisCluster redisclusters shop/orders old new",
            "validate UPDATE RedisCluster redisclusters shop/orders old new",
            "mutate UPDATE RedisCluster redisclusters/status shop/orders old new",
            "validate UPDATE RedisCluster redisclusters/status shop/orders old new",
            "mutate UPDATE Scale redisclusters/scale shop/orders old new dry",
            "validate UPDATE Scale redisclusters/scale shop/orders old new dry",
            "mutate DELETE RedisCluster redisclusters shop/orders old",
            "validate DELETE RedisCluster redisclusters shop/orders old",
        ]
    );
}

#[tokio::test]
async fn an_action_is_asked_about_as_a_call_and_as_a_record() {
    let recorder = Arc::new(Recorder::default());
    let api = Api::with(Arc::clone(&recorder) as Arc<dyn Admission>).await;
    api.cluster("orders").await;
    recorder.take();
    let body = json!({"metadata": {"name": "b"}, "spec": {"target": {"directory": {"path": "/b"}}}});
    api.post(&format!("{ORDERS}/backup"), &body).await.ok();
    assert_eq!(
        recorder.take(),
        [
            "mutate CREATE RedisBackup redisclusters/backup shop/orders new",
            "validate CREATE RedisBackup redisclusters/backup shop/orders new",
            "mutate CREATE RedisBackup redisbackups shop/b new",
            "validate CREATE RedisBackup redisbackups shop/b new",
        ]
    );
}

#[tokio::test]
async fn a_refusal_of_a_webhook_is_passed_on_and_nothing_is_stored() {
    let api = Api::with(Arc::new(Recorder::default())).await;
    let fault = api.post(CLUSTERS, &cluster("bad")).await.fault();
    assert_eq!(fault, (403, "Forbidden".into(), "admission webhook \"w\" denied the request: no".into()));
    assert_eq!(api.get(&format!("{CLUSTERS}/bad")).await.code, 404);
}

#[tokio::test]
async fn a_broken_object_is_refused_before_validating_admission_sees_it() {
    let recorder = Arc::new(Recorder::default());
    let api = Api::with(Arc::clone(&recorder) as Arc<dyn Admission>).await;
    let body = of_kind("RedisCluster", json!({"metadata": {"name": "a"}, "spec": {"shards": 1}}));
    assert_eq!(api.post(CLUSTERS, &body).await.fault().0, 422);
    assert_eq!(recorder.take(), ["mutate CREATE RedisCluster redisclusters shop/a new"]);
}

/// Adds a label and breaks the list of owners.
struct Spoiler;

impl Admission for Spoiler {
    fn mutate<'a>(&'a self, _: &'a Attributes, mut object: Value) -> BoxFuture<'a, Result<Value>> {
        object["metadata"]["labels"]["seen"] = json!("yes");
        object["metadata"]["managedFields"][0]["operation"] = json!("Sideways");
        Box::pin(async move { Ok(object) })
    }

    fn validate<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// As in Kubernetes, owners are counted of what was sent, before admission changes it.
#[tokio::test]
async fn what_admission_changes_gets_no_owner_and_owners_that_it_breaks_are_put_back_with_a_warning() {
    let api = Api::with(Arc::new(Spoiler)).await;
    let mut body = cluster("orders");
    body["metadata"]["labels"] = json!({"mine": "yes"});
    let made = api.post(&format!("{CLUSTERS}?fieldManager=me"), &body).await;
    let applied = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders"}, "spec": {"shards": 3}});
    let apply = format!("{ORDERS}?fieldManager=he");
    let apply = api.call("PATCH", &apply).header("content-type", "application/apply-patch+yaml").json(&applied);
    let (patched, applied) =
        (api.merge(&format!("{ORDERS}?fieldManager=she"), &json!({"spec": {"replicasPerShard": 2}})).await, apply);
    for (reply, manager, operation) in
        [(made, "me", "Update"), (patched, "she", "Update"), (applied.send().await, "he", "Apply")]
    {
        let told = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
                    admission controller; please fix your requests: ";
        // A warning is cut after 256 characters.
        assert!(reply.warnings.iter().any(|warning| warning.starts_with(told)), "{manager}: {:?}", reply.warnings);
        let object = reply.ok();
        assert_eq!(object["metadata"]["labels"]["seen"], "yes", "{manager}");
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["manager"] == manager).unwrap();
        assert_eq!(entry["operation"], operation);
        let owns_it = |entry: &Value| entry["fieldsV1"].pointer("/f:metadata/f:labels/f:seen").is_some();
        assert!(!entries.iter().any(owns_it), "{manager}: {entries:?}");
    }
}
