//! DELETE on an object and on a collection.

use serde_json::json;

use crate::support::{Api, CLUSTERS, cluster};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

#[tokio::test]
async fn an_object_nobody_holds_goes_at_once() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    let details =
        json!({"name": "orders", "group": "redis.kun.io", "kind": "redisclusters", "uid": object["metadata"]["uid"]});
    let expected =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    assert_eq!(api.delete(ORDERS).await.ok(), expected);
    assert_eq!(api.get(ORDERS).await.code, 404);
    assert_eq!(api.delete(ORDERS).await.fault().1, "NotFound");
}

#[tokio::test]
async fn finalizers_keep_the_object_marked_and_a_second_delete_changes_nothing() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["metadata"]["finalizers"] = json!(["a.io/b"]);
    api.post(CLUSTERS, &body).await.ok();
    let marked = api.delete(ORDERS).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    api.world.seconds.store(100, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(api.delete(ORDERS).await.ok(), marked);
    assert_eq!(api.get(ORDERS).await.ok(), marked);
}

#[tokio::test]
async fn preconditions_of_a_delete_are_checked() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let with = |preconditions: serde_json::Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
    let fault = api.call("DELETE", ORDERS).json(&with(json!({"uid": "x"}))).send().await.fault();
    let message = format!(
        "Operation cannot be fulfilled on RedisCluster.redis.kun.io \"orders\": the UID in the precondition (x) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(fault, (409, "Conflict".into(), message));
    let fault = api.call("DELETE", ORDERS).json(&with(json!({"resourceVersion": "1"}))).send().await.fault();
    let end = "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). The object might have been \
               modified";
    assert!(fault.2.ends_with(end), "{}", fault.2);
    // In the query they count where there is no body.
    for query in ["uid=x", "resourceVersion=1"] {
        assert_eq!(api.delete(&format!("{ORDERS}?{query}")).await.fault().0, 409, "{query}");
    }
    assert_eq!(api.get(ORDERS).await.ok(), object);
    let right = format!("{ORDERS}?uid={uid}&resourceVersion=2&dryRun=All");
    assert_eq!(api.delete(&right).await.code, 200);
    let done = api.call("DELETE", ORDERS).json(&with(json!({"uid": uid, "resourceVersion": "2"}))).send().await;
    assert_eq!(done.code, 200);
}

#[tokio::test]
async fn propagation_policies_are_finalizers_of_the_garbage_collector() {
    let api = Api::new().await;
    for (name, options, expected) in [
        ("a", json!({"propagationPolicy": "Orphan"}), json!(["orphan"])),
        ("b", json!({"propagationPolicy": "Foreground"}), json!(["foregroundDeletion"])),
        ("c", json!({"orphanDependents": true}), json!(["orphan"])),
    ] {
        api.cluster(name).await;
        let marked = api.call("DELETE", &format!("{CLUSTERS}/{name}")).json(&options).send().await.ok();
        assert_eq!(marked["metadata"]["finalizers"], expected, "{options}");
    }
    let gone = api.call("DELETE", &format!("{CLUSTERS}/a?propagationPolicy=Background")).send().await.ok();
    assert_eq!(gone["status"], "Success");
    let bad =
        api.call("DELETE", &format!("{CLUSTERS}/b")).json(&json!({"propagationPolicy": "X"})).send().await.fault();
    assert!(bad.0 == 422 && bad.2.contains("propagationPolicy: Unsupported value: \"X\""), "{bad:?}");
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": false});
    assert_eq!(api.call("DELETE", &format!("{CLUSTERS}/b")).json(&both).send().await.code, 422);
}

#[tokio::test]
async fn a_dry_run_of_a_delete_leaves_everything() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    assert_eq!(api.delete(&format!("{ORDERS}?dryRun=All")).await.ok()["status"], "Success");
    let body = json!({"dryRun": ["All"], "propagationPolicy": "Foreground"});
    let shown = api.call("DELETE", ORDERS).json(&body).send().await.ok();
    assert_eq!(shown["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(api.get(ORDERS).await.ok(), object);
}

#[tokio::test]
async fn a_protected_cluster_is_not_deleted() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["spec"]["deletion"] = json!({"protected": true});
    api.post(CLUSTERS, &body).await.ok();
    let (code, _, message) = api.delete(ORDERS).await.fault();
    assert_eq!(code, 422);
    assert!(message.contains("spec.deletion.protected: Forbidden"), "{message}");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_within_its_namespace() {
    let api = Api::new().await;
    for (name, tier) in [("a", "gold"), ("b", "gold"), ("c", "tin")] {
        let mut body = cluster(name);
        body["metadata"]["labels"] = json!({"tier": tier});
        if name == "b" {
            body["metadata"]["finalizers"] = json!(["x.io/y"]);
        }
        api.post(CLUSTERS, &body).await.ok();
    }
    api.post("/apis/redis.kun.io/v1/namespaces/other/redisclusters", &cluster("a")).await.ok();
    let dry = api.delete(&format!("{CLUSTERS}?dryRun=All")).await.ok();
    assert_eq!(dry["items"].as_array().unwrap().len(), 3);
    let deleted = api.delete(&format!("{CLUSTERS}?labelSelector=tier%3Dgold")).await.ok();
    assert_eq!(deleted["kind"], "RedisClusterList");
    let names: Vec<&str> =
        deleted["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let left = api.get("/apis/redis.kun.io/v1/redisclusters").await.ok();
    let left: Vec<String> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            format!(
                "{}/{}",
                item["metadata"]["namespace"].as_str().unwrap(),
                item["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(left, ["other/a", "shop/b", "shop/c"]);
    assert_eq!(api.delete("/apis/redis.kun.io/v1/redisclusters").await.code, 404);
    assert_eq!(api.delete("/api/v1/pods").await.fault().0, 405);
}

/// Names of the objects in a list.
fn names(list: &serde_json::Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_collection_is_what_it_was_at_the_version_that_is_asked_for() {
    let api = Api::new().await;
    for name in ["a", "b", "c"] {
        api.cluster(name).await;
    }
    // Versions 2, 3 and 4. Of the three that were there at 4, `a` goes on its own and `d` comes later.
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    api.cluster("d").await;
    let refused = api.delete(&format!("{CLUSTERS}?resourceVersionMatch=Exact")).await.fault();
    assert!(refused.0 == 422 && refused.2.contains("resourceVersionMatch: Forbidden"), "{refused:?}");
    let refused = api.delete(&format!("{CLUSTERS}?resourceVersion=4&resourceVersionMatch=Nearly")).await.fault();
    assert!(
        refused.0 == 422 && refused.2.contains("resourceVersionMatch: Unsupported value: \"Nearly\""),
        "{refused:?}"
    );
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), ["b", "c", "d"], "what was refused deleted something");
    // Without a body the version is a precondition of each deletion, too, as in Kubernetes.
    let at = |how: &str| format!("{CLUSTERS}?resourceVersion=4&resourceVersionMatch={how}");
    let refused = api.delete(&format!("{}&fieldSelector=metadata.name%3Db", at("Exact"))).await.fault();
    assert!(refused.0 == 409 && refused.2.contains("the ResourceVersion in the precondition (4)"), "{refused:?}");
    let deleted = api.call("DELETE", &at("Exact")).body("{}").send().await.ok();
    assert_eq!(names(&deleted), ["a", "b", "c"], "the answer is the list of then, with what had gone meanwhile");
    assert_eq!(deleted["metadata"]["resourceVersion"], "4");
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), ["d"], "what came later was not meant");
    let deleted = api.call("DELETE", &at("NotOlderThan")).body("{}").send().await.ok();
    assert_eq!(names(&deleted), ["d"]);
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), Vec::<String>::new());
}

/// Deletes `a` while admission is asked about its deletion, as somebody else would at that moment.
struct Faster(std::sync::OnceLock<std::sync::Arc<apiserver::storage::Storage>>);

impl apiserver::admission::Admission for Faster {
    fn mutate<'a>(
        &'a self,
        attributes: &'a apiserver::admission::Attributes,
        object: serde_json::Value,
    ) -> futures::future::BoxFuture<'a, apiserver::error::Result<serde_json::Value>> {
        Box::pin(async move {
            if attributes.operation == apiserver::admission::Operation::Delete && attributes.name == "a" {
                let key = store::Key::new("redis.kun.io/redisclusters", Some("shop"), "a").unwrap();
                let found = self.0.get().unwrap().cache().resource(key.resource()).unwrap().get(&key).unwrap();
                if let Some(found) = found {
                    let write = store::Write::delete(key, found.revision());
                    assert!(self.0.get().unwrap().write(write).await.is_ok(), "nobody else deletes it");
                }
            }
            Ok(object)
        })
    }

    fn validate<'a>(
        &'a self,
        _: &'a apiserver::admission::Attributes,
    ) -> futures::future::BoxFuture<'a, apiserver::error::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn what_somebody_else_deletes_meanwhile_is_no_failure_of_a_collections_deletion() {
    let faster = std::sync::Arc::new(Faster(std::sync::OnceLock::new()));
    let api = Api::with(faster.clone()).await;
    assert!(faster.0.set(api.storage.clone()).is_ok());
    for name in ["a", "b"] {
        api.cluster(name).await;
    }
    let deleted = api.delete(CLUSTERS).await.ok();
    assert_eq!(names(&deleted), ["a", "b"]);
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), Vec::<String>::new());
    // Alone, the same is a 404.
    api.cluster("a").await;
    assert_eq!(api.delete(&format!("{CLUSTERS}/a")).await.fault().1, "NotFound");
}

#[tokio::test]
async fn the_options_of_a_delete_must_be_options() {
    let api = Api::new().await;
    api.cluster("orders").await;
    for body in ["{", "[]", r#"{"kind":"Pod"}"#, r#"{"apiVersion":"v7"}"#, r#"{"gracePeriodSeconds":"x"}"#] {
        assert_eq!(api.call("DELETE", ORDERS).body(body).send().await.fault().0, 400, "{body}");
    }
    let protobuf = api
        .call("DELETE", ORDERS)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .body("k8s")
        .send()
        .await;
    assert_eq!(protobuf.code, 415);
    let yaml = api
        .call("DELETE", ORDERS)
        .header("content-type", "application/yaml")
        .body("propagationPolicy: Foreground")
        .send()
        .await;
    assert_eq!(yaml.ok()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}
