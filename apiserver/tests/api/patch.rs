//! PATCH on an object and on its status.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

async fn json_patch(api: &Api, uri: &str, patch: &Value) -> crate::support::Reply {
    api.call("PATCH", uri).header("content-type", "application/json-patch+json").json(patch).send().await
}

#[tokio::test]
async fn a_merge_patch_changes_what_it_names_and_null_takes_away() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let patch = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"shards": 5}});
    let patched = api.merge(ORDERS, &patch).await.ok();
    assert_eq!((patched["spec"]["shards"].as_i64(), patched["metadata"]["generation"].as_i64()), (Some(5), Some(2)));
    let patched = api.merge(ORDERS, &json!({"metadata": {"labels": {"a": null}}})).await.ok();
    assert_eq!(patched["metadata"]["labels"], json!({"b": "2"}));
}

#[tokio::test]
async fn a_patch_that_changes_nothing_keeps_the_version() {
    let api = Api::new().await;
    let object = api.cluster("orders").await;
    assert_eq!(api.merge(ORDERS, &json!({"spec": {"shards": 3}})).await.ok(), object);
    assert_eq!(api.merge(ORDERS, &json!({})).await.ok(), object);
}

#[tokio::test]
async fn a_json_patch_sees_the_version_and_may_test_it() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let right = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "2"},
        {"op": "replace", "path": "/spec/shards", "value": 4}]);
    assert_eq!(json_patch(&api, ORDERS, &right).await.ok()["spec"]["shards"], 4);
    let reply = json_patch(&api, ORDERS, &right).await;
    assert_eq!((reply.code, reply.fault().1.as_str()), (422, "Invalid"));
    let locked = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "2"},
        {"op": "replace", "path": "/spec/shards", "value": 6}]);
    assert_eq!(json_patch(&api, ORDERS, &locked).await.fault().0, 409);
    assert_eq!(json_patch(&api, ORDERS, &json!([{"op": "fly"}])).await.fault().0, 422);
    assert_eq!(json_patch(&api, ORDERS, &json!({"op": "fly"})).await.fault().0, 400);
}

#[tokio::test]
async fn a_version_in_a_merge_patch_is_a_lock() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let patch = |version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"shards": 4}});
    assert_eq!(api.merge(ORDERS, &patch("1")).await.fault().0, 409);
    assert_eq!(api.merge(ORDERS, &patch("2")).await.code, 200);
}

#[tokio::test]
async fn identity_cannot_be_patched() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let (code, _, message) = api.merge(ORDERS, &json!({"metadata": {"name": "users"}})).await.fault();
    assert_eq!(
        (code, message.as_str()),
        (400, "the name of the object (users) does not match the name on the URL (orders)")
    );
    let (code, _, message) = api.merge(ORDERS, &json!({"metadata": {"uid": "x"}})).await.fault();
    assert_eq!(code, 422);
    assert!(message.contains("metadata.uid: Invalid value: \"x\": field is immutable"), "{message}");
    assert_eq!(api.merge(ORDERS, &json!({"metadata": {"namespace": "other"}})).await.code, 400);
    let (code, _, message) = api.merge(ORDERS, &json!({"kind": "Pod"})).await.fault();
    let told = "Pod.redis.kun.io \"orders\" is invalid: kind: Invalid value: \"Pod\": must be RedisCluster";
    assert_eq!((code, message.as_str()), (422, told));
    for nameless in [json!({"metadata": null}), json!({"metadata": {"name": null}})] {
        let (code, _, message) = api.merge(ORDERS, &nameless).await.fault();
        assert!(code == 400 && message.contains("was undeterminable: name must be provided"), "{message}");
    }
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let (code, _, message) = api.merge(ORDERS, &going).await.fault();
    assert!(code == 422 && message.contains("metadata.deletionTimestamp"), "{message}");
}

#[tokio::test]
async fn patch_types_that_are_not_served_are_415_with_the_list() {
    let api = Api::new().await;
    api.cluster("orders").await;
    let list = "the body of the request was in an unknown format - accepted media types include: \
                application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    for content_type in ["application/apply-patch+cbor", "application/strategic-merge-patch+json; charset=utf-8"] {
        let reply = api.call("PATCH", ORDERS).header("content-type", content_type).body("{}").send().await;
        assert_eq!(reply.fault(), (415, "UnsupportedMediaType".into(), list.into()));
    }
    let forced = api.merge(&format!("{ORDERS}?force=true"), &json!({})).await;
    assert_eq!(
        forced.fault().2,
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test]
async fn unknown_fields_of_a_patch_are_pruned_and_reported() {
    let api = Api::new().await;
    let before = api.cluster("orders").await;
    let reply = api.merge(ORDERS, &json!({"spec": {"colour": "red"}})).await;
    assert_eq!(reply.warnings, ["unknown field \"spec.colour\""]);
    assert_eq!(reply.ok(), before);
    let strict = api.merge(&format!("{ORDERS}?fieldValidation=Strict"), &json!({"spec": {"colour": "red"}})).await;
    let (code, reason, message) = strict.fault();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\":"), "{message}");
    assert!(message.ends_with("strict decoding error: unknown field \"spec.colour\""), "{message}");
}

#[tokio::test]
async fn the_status_is_patched_only_through_its_own_path() {
    let api = Api::new().await;
    let before = api.cluster("orders").await;
    assert_eq!(api.merge(ORDERS, &json!({"status": {"replicas": 2}})).await.ok(), before);
    let patch = json!({"status": {"phase": "Scaling", "replicas": 2}, "spec": {"shards": 9}});
    let patched = api.merge(&format!("{ORDERS}/status"), &patch).await.ok();
    assert_eq!((patched["status"]["replicas"].as_i64(), patched["spec"]["shards"].as_i64()), (Some(2), Some(3)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let later = api.merge(ORDERS, &json!({"spec": {"shards": 4}})).await.ok();
    assert_eq!(later["status"], patched["status"]);
}

#[tokio::test]
async fn a_patch_of_nothing_is_not_found() {
    let api = Api::new().await;
    assert_eq!(api.merge(ORDERS, &json!({})).await.fault().1, "NotFound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_patches_never_conflict() {
    let api = Arc::new(Api::new().await);
    api.cluster("orders").await;
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let api = Arc::clone(&api);
            tokio::spawn(async move {
                let patch = json!({"metadata": {"labels": {format!("l{index}"): "x"}}});
                api.merge(ORDERS, &patch).await.code
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let labels = api.get(ORDERS).await.ok()["metadata"]["labels"].as_object().unwrap().len();
    assert_eq!(labels, 40);
    assert_eq!(api.get(CLUSTERS).await.ok()["items"].as_array().unwrap().len(), 1);
}

/// Who owns what, without the times.
fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone())).collect()
}

/// What `kubectl apply --server-side` sends about an object that it applied on the client's side before.
#[tokio::test]
async fn kubectl_takes_what_it_applied_over_to_the_servers_side_and_a_stale_version_is_a_conflict() {
    let api = Api::new().await;
    let mut body = crate::support::cluster("orders");
    body["spec"] = json!({"shards": 5});
    let made = api.post(&format!("{CLUSTERS}?fieldManager=kubectl-client-side-apply"), &body).await.ok();
    let (_, operation, fields) = owners(&made).remove(0);
    assert_eq!(operation, "Update");
    let entry = json!({"manager": "kubectl", "operation": "Apply", "apiVersion": "redis.kun.io/v1",
        "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let migrate = |version: &Value| {
        json!([{"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version}])
    };
    let migrate_to = format!("{ORDERS}?fieldManager=kubectl");
    let stale = json_patch(&api, &migrate_to, &migrate(&json!("1"))).await.fault();
    assert_eq!((stale.0, stale.1.as_str()), (409, "Conflict"));
    assert_eq!(api.get(ORDERS).await.ok(), made, "what was refused changed something");
    let migrated = json_patch(&api, &migrate_to, &migrate(&made["metadata"]["resourceVersion"])).await.ok();
    assert_eq!(owners(&migrated), [("kubectl".to_owned(), "Apply".to_owned(), fields)]);
    assert_eq!(migrated["spec"], made["spec"]);
    // From now on a field that is applied no more goes: it is kubectl's and nobody else's.
    let applied = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders"}, "spec": {"replicasPerShard": 1}});
    let apply = api.call("PATCH", &migrate_to).header("content-type", "application/apply-patch+yaml").json(&applied);
    assert_eq!(apply.send().await.ok()["spec"]["shards"], 3, "the default");
}

#[tokio::test]
async fn another_spelling_of_an_amount_is_stored_and_is_no_new_generation() {
    let api = Api::new().await;
    let spec = json!({"shards": 3, "storage": {"size": "1Gi"}});
    let object =
        json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "a"}, "spec": spec});
    api.call("POST", CLUSTERS).json(&object).send().await.ok();
    let uri = format!("{CLUSTERS}/a");
    let amounts = |memory: Value, size: &str| json!({"spec": {"resources": {"limits": {"cpu": "1", "memory": memory}}, "storage": {"size": size}}});
    let first = api.merge(&uri, &amounts(json!("1Gi"), "2Gi")).await.ok();
    for (memory, size) in [(json!("1024Mi"), "2048Mi"), (json!(1_073_741_824), "2097152Ki")] {
        let other = api.merge(&uri, &amounts(memory, size)).await.ok();
        assert_eq!(other["spec"]["storage"]["size"], size);
        assert_eq!(other["metadata"]["generation"], first["metadata"]["generation"]);
        assert_ne!(other["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    }
    let more = api.merge(&uri, &amounts(json!("1025Mi"), "2Gi")).await.ok();
    assert_ne!(more["metadata"]["generation"], first["metadata"]["generation"]);
}

#[tokio::test]
async fn another_spelling_of_a_duration_is_stored_and_is_no_new_generation() {
    let api = Api::new().await;
    api.cluster("a").await;
    let clusters = format!("{CLUSTERS}/a");
    let [operations, backups] =
        ["redisoperations", "redisbackups"].map(|plural| CLUSTERS.replace("redisclusters", plural));
    let record = |kind: &str, what: Value| {
        let mut spec = json!({"clusterName": "a", "ttlAfterFinished": "2m"});
        spec.as_object_mut().unwrap().extend(what.as_object().cloned().unwrap());
        json!({"apiVersion": "redis.kun.io/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec})
    };
    api.post(&operations, &record("RedisOperation", json!({"restart": {}}))).await.ok();
    api.post(&backups, &record("RedisBackup", json!({"target": {"directory": {"path": "/b"}}}))).await.ok();
    for (uri, field) in [
        (clusters, "/spec/failover/nodeTimeout"),
        (format!("{operations}/a"), "/spec/ttlAfterFinished"),
        (format!("{backups}/a"), "/spec/ttlAfterFinished"),
    ] {
        let names = field.trim_start_matches('/').split('/');
        let patch = |text: &str| names.clone().rev().fold(json!(text), |inner, name| json!({name: inner}));
        let first = api.merge(&uri, &patch("2s")).await.ok();
        for text in ["2000ms", "2.0s", "0h0m2s"] {
            let other = api.merge(&uri, &patch(text)).await.ok();
            assert_eq!(other.pointer(field), Some(&json!(text)));
            assert_eq!(other["metadata"]["generation"], first["metadata"]["generation"], "{uri} {text}");
        }
        let more = api.merge(&uri, &patch("2001ms")).await.ok();
        assert_ne!(more["metadata"]["generation"], first["metadata"]["generation"], "{uri}");
    }
}
