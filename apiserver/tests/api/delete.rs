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
