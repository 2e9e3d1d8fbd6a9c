//! PUT on an object and on its status.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster, of_kind};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

#[tokio::test]
async fn an_update_changes_the_spec_and_counts_the_generation() {
    let api = Api::new().await;
    let mut object = api.cluster("orders").await;
    object["spec"]["shards"] = json!(5);
    object["metadata"]["labels"] = json!({"tier": "gold"});
    object["metadata"]["generation"] = json!(77);
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let updated = api.put(ORDERS, &object).await;
    assert_eq!((updated.code, updated.version()), (200, 3));
    let updated = updated.json();
    assert_eq!(updated["spec"]["shards"], 5);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(updated["metadata"]["labels"], json!({"tier": "gold"}));
    assert_eq!(api.get(ORDERS).await.ok(), updated);
}

#[tokio::test]
async fn metadata_alone_does_not_count_the_generation() {
    let api = Api::new().await;
    let mut object = api.cluster("orders").await;
    object["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(api.put(ORDERS, &object).await.ok()["metadata"]["generation"], 1);
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_not_written() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    assert_eq!(api.put(ORDERS, &object).await.ok(), object);
    assert_eq!(api.storage.cache().revision().0, 2);
}

#[tokio::test]
async fn an_update_needs_the_version_it_is_based_on() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    let mut stale = object.clone();
    stale["metadata"]["resourceVersion"] = json!("1");
    stale["spec"]["shards"] = json!(7);
    let message = "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": the object has been modified; \
                   please apply your changes to the latest version and try again";
    assert_eq!(api.put(ORDERS, &stale).await.fault(), (409, "Conflict".into(), message.into()));
    let mut none = object.clone();
    none["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let message = "redisclusters.redis.kun.io \"orders\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                   specified for an update";
    assert_eq!(api.put(ORDERS, &none).await.fault(), (422, "Invalid".into(), message.into()));
    assert_eq!(api.get(ORDERS).await.ok(), object);
}

#[tokio::test]
async fn another_uid_is_another_object() {
    let api = Api::new().await;
    let mut object = api.cluster("orders").await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    object["metadata"]["uid"] = json!("old");
    let message = format!(
        "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": Precondition failed: UID in precondition: \
         old, UID in object meta: {uid}"
    );
    assert_eq!(api.put(ORDERS, &object).await.fault(), (409, "Conflict".into(), message));
}

#[tokio::test]
async fn a_put_makes_nothing_and_its_name_must_be_that_of_the_path() {
    let api = Api::new().await;
    let mut absent = cluster("orders");
    absent["metadata"]["resourceVersion"] = json!("1");
    let message = "redisclusters.redis.kun.io \"orders\" not found";
    assert_eq!(api.put(ORDERS, &absent).await.fault(), (404, "NotFound".into(), message.into()));
    let message = "the name of the object (users) does not match the name on the URL (orders)";
    assert_eq!(api.put(ORDERS, &cluster("users")).await.fault(), (400, "BadRequest".into(), message.into()));
}

#[tokio::test]
async fn status_and_spec_are_written_only_where_they_belong() {
    let api = Api::new().await;
    let mut object = api.cluster("orders").await;
    object["status"] = json!({"phase": "Ready", "replicas": 3});
    object["spec"]["shards"] = json!(5);
    let by_main = api.put(ORDERS, &object).await.ok();
    assert_eq!((by_main.get("status"), by_main["spec"]["shards"].as_i64()), (None, Some(5)));

    object["metadata"]["resourceVersion"] = by_main["metadata"]["resourceVersion"].clone();
    object["spec"]["shards"] = json!(9);
    object["metadata"]["labels"] = json!({"x": "y"});
    let by_status = api.put(&format!("{ORDERS}/status"), &object).await.ok();
    assert_eq!(by_status["status"], json!({"phase": "Ready", "replicas": 3}));
    assert_eq!(by_status["spec"]["shards"], 5);
    assert_eq!((by_status["metadata"]["generation"].as_i64(), by_status["metadata"].get("labels")), (Some(2), None));
    assert_eq!(api.get(&format!("{ORDERS}/status")).await.ok(), by_status);

    let stale = api.put(&format!("{ORDERS}/status"), &object).await;
    assert_eq!(stale.code, 409);
    let mut wrong = by_status;
    wrong["status"]["phase"] = json!("Splendid");
    assert_eq!(api.put(&format!("{ORDERS}/status"), &wrong).await.code, 422);
}

#[tokio::test]
async fn an_engine_stays_what_it_is() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let (code, reason, message) =
        api.merge(ORDERS, &json!({"spec": {"engine": "Valkey", "version": "8.1"}})).await.fault();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    let why =
        "spec.engine: Invalid value: \"Valkey\": is immutable: it is Redis, and its files are not for another engine";
    assert!(message.ends_with(why), "{message}");
}

#[tokio::test]
async fn immutable_fields_and_shrinking_are_refused_with_the_reason() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["spec"] = json!({"storage": {"size": "2Gi"}});
    let mut object = api.post(CLUSTERS, &body).await.ok();
    object["spec"]["storage"]["size"] = json!("1Gi");
    object["spec"]["mode"] = json!("Standalone");
    object["spec"]["shards"] = json!(1);
    object["spec"]["replicasPerShard"] = json!(0);
    let (code, _, message) = api.put(ORDERS, &object).await.fault();
    assert_eq!(code, 422);
    for part in [
        "spec.mode: Invalid value: \"Standalone\": is immutable",
        "spec.storage.size: Invalid value: \"1Gi\": must be at least 2Gi",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn the_last_finalizer_taken_away_lets_the_object_go() {
    let api = Api::new().await;
    let mut body = cluster("orders");
    body["metadata"]["finalizers"] = json!(["a.io/b"]);
    api.post(CLUSTERS, &body).await.ok();
    let mut dying = api.delete(ORDERS).await.ok();
    let mut more = dying.clone();
    more["metadata"]["finalizers"] = json!(["a.io/b", "c.io/d"]);
    let (code, _, message) = api.put(ORDERS, &more).await.fault();
    assert_eq!(code, 422);
    assert!(message.contains("no new finalizers can be added if the object is being deleted"), "{message}");
    dying["metadata"]["finalizers"] = json!([]);
    let last = api.put(ORDERS, &dying).await;
    assert_eq!(last.code, 200);
    assert_eq!(api.get(ORDERS).await.code, 404);
}

#[tokio::test]
async fn a_dry_run_of_an_update_stores_nothing() {
    let api = Api::new().await;
    let mut object = api.cluster("orders").await;
    let before = object.clone();
    object["spec"]["shards"] = json!(5);
    let answered: Value = api.put(&format!("{ORDERS}?dryRun=All"), &object).await.ok();
    assert_eq!((answered["spec"]["shards"].as_i64(), answered["metadata"]["generation"].as_i64()), (Some(5), Some(2)));
    assert_eq!(answered["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(api.get(ORDERS).await.ok(), before);
}

#[tokio::test]
async fn an_object_that_laxer_rules_accepted_can_still_be_repaired_and_let_go() {
    let api = Api::new().await;
    let kind = api.app.registry().resource("redis.kun.io", "redisclusters").unwrap();
    let key = apiserver::storage::Storage::key(kind, Some("shop"), "orders").unwrap();
    let mut old = cluster("orders");
    old["metadata"] = json!({"name": "orders", "namespace": "shop", "uid": "u", "finalizers": ["a.io/b"], "generation": 1,
        "creationTimestamp": "2020-01-01T00:00:00Z"});
    old["spec"] = json!({"mode": "Cluster", "shards": 2, "version": "1.0", "storage": {"size": "x"}});
    api.storage.write(store::Write::create(key, old.to_string().into())).await.unwrap();
    let worse = api.merge(ORDERS, &json!({"spec": {"shards": 1}})).await.fault();
    assert!(
        worse.0 == 422 && worse.2.contains("spec.shards: Invalid value: 1") && !worse.2.contains("spec.version"),
        "{worse:?}"
    );
    assert_eq!(api.merge(ORDERS, &json!({"spec": {"shards": 3}})).await.ok()["spec"]["shards"], 3);
    api.delete(ORDERS).await.ok();
    assert_eq!(api.merge(ORDERS, &json!({"metadata": {"finalizers": null}})).await.code, 200);
    assert_eq!(api.get(ORDERS).await.code, 404);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_whatever_version_the_body_has_or_lacks() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let body = of_kind("RedisCluster", json!({"metadata": {"name": "nope"}, "spec": {"shards": 3}}));
    assert_eq!(api.put(&format!("{CLUSTERS}/nope"), &body).await.fault().0, 404);
    let body = of_kind("RedisCluster", json!({"metadata": {"name": "orders"}, "spec": {"shards": 3}}));
    let (code, _, message) = api.put(&format!("{CLUSTERS}/orders"), &body).await.fault();
    assert_eq!(code, 422);
    assert!(
        message.contains("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{message}"
    );
}
