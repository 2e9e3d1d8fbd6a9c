//! `/scale`.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS};

const SCALE: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/scale";

async fn api() -> (Api, Value) {
    let api = Api::new().await;
    api.cluster("orders").await;
    let status =
        json!({"status": {"replicas": 3, "selector": "redis.kun.io/cluster=orders,redis.kun.io/role=primary"}});
    let parent = api.merge(&format!("{CLUSTERS}/orders/status"), &status).await.ok();
    (api, parent)
}

#[tokio::test]
async fn a_scale_shows_shards_as_replicas_and_the_selector() {
    let (api, parent) = api().await;
    let expected = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "orders", "namespace": "shop", "uid": parent["metadata"]["uid"],
            "resourceVersion": parent["metadata"]["resourceVersion"], "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"replicas": 3},
        "status": {"replicas": 3, "selector": "redis.kun.io/cluster=orders,redis.kun.io/role=primary"},
    });
    let reply = api.call("GET", SCALE).accept("application/vnd.kubernetes.protobuf, */*").send().await;
    assert_eq!(reply.ok(), expected);
}

#[tokio::test]
async fn a_merge_patch_scales_as_kubectl_does() {
    let (api, _) = api().await;
    let scaled = api.merge(SCALE, &json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!((scaled["kind"].as_str(), scaled["spec"]["replicas"].as_i64()), (Some("Scale"), Some(5)));
    let parent = api.get(&format!("{CLUSTERS}/orders")).await.ok();
    assert_eq!((parent["spec"]["shards"].as_i64(), parent["metadata"]["generation"].as_i64()), (Some(5), Some(2)));
    assert_eq!(parent["status"]["replicas"], 3);
    let dry = api.merge(&format!("{SCALE}?dryRun=All"), &json!({"spec": {"replicas": 7}})).await.ok();
    assert_eq!(dry["spec"]["replicas"], 7);
    assert_eq!(api.get(SCALE).await.ok()["spec"]["replicas"], 5);
}

#[tokio::test]
async fn a_put_without_a_content_type_scales_as_the_autoscaler_does() {
    let (api, parent) = api().await;
    let mut scale = api.get(SCALE).await.ok();
    scale["spec"]["replicas"] = json!(4);
    assert_eq!(api.put(SCALE, &scale).await.ok()["spec"]["replicas"], 4);
    let stale = api.put(SCALE, &scale).await.fault();
    assert_eq!((stale.0, stale.1.as_str()), (409, "Conflict"));
    scale["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    scale["spec"]["replicas"] = json!(6);
    assert_eq!(api.put(SCALE, &scale).await.ok()["spec"]["replicas"], 6);
    scale["metadata"]["uid"] = json!("other");
    let wrong = api.put(SCALE, &scale).await.fault();
    assert!(
        wrong.2.contains(&format!("UID in object meta: {}", parent["metadata"]["uid"].as_str().unwrap())),
        "{}",
        wrong.2
    );
    scale["metadata"]["name"] = json!("users");
    assert_eq!(api.put(SCALE, &scale).await.fault().0, 400);
}

#[tokio::test]
async fn bad_numbers_are_refused_by_the_scale_or_by_the_rules_of_the_parent() {
    let (api, _) = api().await;
    let (code, _, message) = api.merge(SCALE, &json!({"spec": {"replicas": -1}})).await.fault();
    assert_eq!(code, 422);
    let expected = "RedisCluster.redis.kun.io \"orders\" is invalid: .spec.shards: Invalid value: -1: should be a non-negative integer";
    assert_eq!(message, expected);
    let (code, _, message) = api.merge(SCALE, &json!({"spec": {"replicas": 2}})).await.fault();
    assert_eq!(code, 422);
    assert!(
        message.starts_with("RedisCluster.redis.kun.io \"orders\" is invalid: spec.shards: Invalid value: 2"),
        "{message}"
    );
    assert_eq!(api.merge(SCALE, &json!({"spec": {"replicas": 1_000_000}})).await.fault().0, 422);
    assert_eq!(api.get(SCALE).await.ok()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn a_json_patch_scales_and_other_things_are_not_scales() {
    let (api, _) = api().await;
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]);
    let reply =
        api.call("PATCH", SCALE).header("content-type", "application/json-patch+json").json(&patch).send().await;
    assert_eq!(reply.ok()["spec"]["replicas"], 5);
    let other = json!({"kind": "RedisCluster", "apiVersion": "redis.kun.io/v1", "spec": {"replicas": 3}});
    assert_eq!(api.put(SCALE, &other).await.fault().0, 400);
    assert_eq!(api.get(&SCALE.replace("orders", "none")).await.fault().1, "NotFound");
    assert_eq!(api.delete(SCALE).await.fault().0, 405);
    assert_eq!(api.post(SCALE, &json!({})).await.fault().0, 405);
}
