//! Server-side apply as requests: what is made, merged, taken and refused.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, Reply};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

fn config(spec: &Value) -> Value {
    json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders"}, "spec": spec})
}

async fn send(api: &Api, uri: &str, body: &Value) -> Reply {
    api.call("PATCH", uri).header("content-type", "application/apply-patch+yaml").body(body.to_string()).send().await
}

async fn apply(api: &Api, manager: &str, spec: &Value) -> Reply {
    send(api, &format!("{ORDERS}?fieldManager={manager}"), &config(spec)).await
}

async fn force(api: &Api, manager: &str, spec: &Value) -> Value {
    let reply = send(api, &format!("{ORDERS}?fieldManager={manager}&force=true"), &config(spec)).await;
    reply.ok()
}

/// manager operation subresource → what it owns of the spec.
fn owners(object: &Value) -> Vec<(String, Value)> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entry = |entry: &Value| {
        let who = format!("{} {} {}", text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"));
        (who.trim().to_owned(), entry["fieldsV1"]["f:spec"].clone())
    };
    object["metadata"]["managedFields"].as_array().unwrap().iter().map(entry).collect()
}

#[tokio::test]
async fn an_apply_makes_what_is_not_there_and_the_same_again_changes_nothing() {
    let api = Api::new().await;
    let made = apply(&api, "a", &json!({"shards": 3})).await;
    assert_eq!(made.code, 201);
    let made = made.json();
    assert_eq!(owners(&made), [("a Apply".to_owned(), json!({"f:shards": {}}))]);
    assert_eq!(made["spec"]["memory"]["maxPercent"], 75, "defaults are there, and nobody's");
    api.world.seconds.store(60, Ordering::SeqCst);
    let again = apply(&api, "a", &json!({"shards": 3})).await;
    assert_eq!(again.code, 200);
    assert_eq!(again.json(), made);
    assert_eq!(api.get(ORDERS).await.ok(), made);
}

#[tokio::test]
async fn a_field_of_another_manager_is_a_conflict_until_it_is_forced() {
    let api = Api::new().await;
    apply(&api, "a", &json!({"shards": 3, "replicasPerShard": 1})).await;
    let conflict = apply(&api, "b", &json!({"shards": 5})).await;
    let message = "Apply failed with 1 conflict: conflict with \"a\": .spec.shards".to_owned();
    assert_eq!(conflict.fault(), (409, "Conflict".into(), message));
    let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".spec.shards"});
    assert_eq!(conflict.json()["details"], json!({"causes": [cause]}));
    let taken = force(&api, "b", &json!({"shards": 5})).await;
    let expected =
        [("a Apply".to_owned(), json!({"f:replicasPerShard": {}})), ("b Apply".to_owned(), json!({"f:shards": {}}))];
    assert_eq!((owners(&taken).as_slice(), &taken["spec"]["shards"]), (expected.as_slice(), &json!(5)));
    assert_eq!(taken["metadata"]["generation"], 2);
}

#[tokio::test]
async fn what_is_no_longer_applied_goes_back_to_its_default() {
    let api = Api::new().await;
    apply(&api, "a", &json!({"shards": 3, "memory": {"maxPercent": 50}, "config": {"maxclients": "100"}})).await;
    let left = apply(&api, "a", &json!({"shards": 3})).await.ok();
    assert_eq!(left["spec"]["memory"]["maxPercent"], 75);
    assert_eq!(left["spec"].get("config").filter(|config| !config.is_null()), None);
}

#[tokio::test]
async fn other_writes_own_what_they_change() {
    let api = Api::new().await;
    apply(&api, "a", &json!({"shards": 3, "replicasPerShard": 1})).await;
    let patched = api.merge(&format!("{ORDERS}?fieldManager=m"), &json!({"spec": {"shards": 5}})).await.ok();
    let expected =
        [("a Apply".to_owned(), json!({"f:replicasPerShard": {}})), ("m Update".to_owned(), json!({"f:shards": {}}))];
    assert_eq!(owners(&patched), expected);
    let scale = json!({"spec": {"replicas": 7}});
    api.merge(&format!("{ORDERS}/scale?fieldManager=s"), &scale).await.ok();
    let expected = [
        ("a Apply".to_owned(), json!({"f:replicasPerShard": {}})),
        ("s Update scale".to_owned(), json!({"f:shards": {}})),
    ];
    assert_eq!(owners(&api.get(ORDERS).await.ok()), expected);
    let conflict = apply(&api, "a", &json!({"shards": 3, "replicasPerShard": 1})).await.fault().2;
    let message = "Apply failed with 1 conflict: conflict with \"s\" with subresource \"scale\" using redis.kun.io/v1: .spec.shards";
    assert_eq!(conflict, message);
}

#[tokio::test]
async fn status_and_scale_are_applied_for_themselves() {
    let api = Api::new().await;
    apply(&api, "a", &json!({"shards": 3})).await;
    let mut status = config(&json!({"shards": 9}));
    status["status"] = json!({"phase": "Ready"});
    let applied = send(&api, &format!("{ORDERS}/status?fieldManager=c"), &status).await.ok();
    assert_eq!((&applied["spec"]["shards"], &applied["status"]["phase"]), (&json!(3), &json!("Ready")));
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "orders"}, "spec": {"replicas": 5}});
    let conflict = send(&api, &format!("{ORDERS}/scale?fieldManager=h"), &scale).await.fault();
    assert_eq!(conflict.2, "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas");
    let scaled = send(&api, &format!("{ORDERS}/scale?fieldManager=h&force=true"), &scale).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
    let object = api.get(ORDERS).await.ok();
    assert!(owners(&object).contains(&("h Apply scale".to_owned(), json!({"f:shards": {}}))), "{object}");
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused_and_nothing_is_stored() {
    let api = Api::new().await;
    let required =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(send(&api, ORDERS, &config(&json!({}))).await.fault(), (422, "Invalid".into(), required.into()));
    let refused = |body: Value| {
        let api = &api;
        async move { send(api, &format!("{ORDERS}?fieldManager=a"), &body).await.fault() }
    };
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orders"}});
    assert_eq!(refused(other).await, (400, "BadRequest".into(), "invalid object type: /v1, Kind=Secret".into()));
    let mut owned = config(&json!({}));
    owned["metadata"]["managedFields"] = json!([]);
    assert_eq!(refused(owned).await.2, "metadata.managedFields must be nil");
    let mut ghost = config(&json!({"shards": 3}));
    ghost["metadata"]["uid"] = json!("u-1");
    let mismatch = "Operation cannot be fulfilled on redisclusters.redis.kun.io \"orders\": uid mismatch: the provided object \
                    specified uid u-1, and no existing object was found";
    assert_eq!(refused(ghost).await, (409, "Conflict".into(), mismatch.into()));
    let unknown = refused(config(&json!({"colour": "red"}))).await;
    assert_eq!((unknown.0, unknown.1.as_str()), (500, ""));
    assert!(unknown.2.ends_with(".spec.colour: field not declared in schema"), "{}", unknown.2);
    let named = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "other"}});
    assert_eq!(refused(named).await.0, 400);
    assert_eq!(api.get(CLUSTERS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_dry_run_of_an_apply_stores_nothing() {
    let api = Api::new().await;
    let uri = format!("{ORDERS}?fieldManager=a&dryRun=All");
    assert_eq!(send(&api, &uri, &config(&json!({"shards": 3}))).await.code, 201);
    assert_eq!(api.get(ORDERS).await.code, 404);
}
