//! Tables, metadata alone, YAML, indentation.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, golden, of_kind};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn api() -> Api {
    let api = Api::new().await;
    api.cluster("orders").await;
    let status = json!({"status": {"phase": "Ready", "replicas": 3, "keys": 10, "usedMemory": 2048, "endpoints": ["orders.shop:6379"],
        "lastBackup": {"name": "b", "completionTime": "2026-01-02T02:04:05Z"}}});
    api.merge(&format!("{CLUSTERS}/orders/status"), &status).await.ok();
    api.world.seconds.store(125, std::sync::atomic::Ordering::SeqCst);
    api
}

#[tokio::test]
async fn a_table_of_every_kind_has_its_columns() {
    let api = api().await;
    for (uri, body) in [
        (
            "/apis/redis.kun.io/v1/namespaces/shop/redisbackups",
            of_kind("RedisBackup", json!({"metadata": {"name": "b"}, "spec": {"clusterName": "orders"}})),
        ),
        (
            "/apis/redis.kun.io/v1/namespaces/shop/redisoperations",
            of_kind(
                "RedisOperation",
                json!({"metadata": {"name": "o"}, "spec": {"clusterName": "orders", "restart": {}}}),
            ),
        ),
        ("/apis/redis.kun.io/v1/redispolicies", of_kind("RedisPolicy", json!({"metadata": {"name": "p"}, "spec": {}}))),
        ("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})),
        ("/api/v1/namespaces/shop/secrets", json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})),
        (
            "/api/v1/namespaces/shop/events",
            json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Started",
                "type": "Normal", "message": "m", "lastTimestamp": "2026-01-02T03:04:00Z"}),
        ),
        ("/api/v1/namespaces/shop/pods", json!({"metadata": {"name": "p"}, "spec": {"containers": []}})),
        ("/apis/apps/v1/namespaces/shop/statefulsets", json!({"metadata": {"name": "s"}, "spec": {"replicas": 2}})),
    ] {
        api.post(uri, &body).await.ok();
    }
    let mut tables = serde_json::Map::new();
    for kind in api.app.registry().kinds().filter(|kind| kind.review.is_none()) {
        let base =
            if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", kind.group, kind.version) };
        let table =
            api.call("GET", &format!("{base}/{}?includeObject=None", kind.plural)).accept(TABLE).send().await.ok();
        tables.insert(kind.plural.to_owned(), table);
    }
    golden("tables.json", &Value::Object(tables));
}

#[tokio::test]
async fn a_row_carries_what_was_asked_for() {
    let api = api().await;
    let get = |query: &str| {
        let uri = format!("{CLUSTERS}/orders{query}");
        let api = &api;
        async move { api.call("GET", &uri).accept(TABLE).send().await }
    };
    let table = get("").await.ok();
    assert_eq!(table["metadata"], json!({"resourceVersion": "3"}));
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["orders", "Cluster", "7.0", "3/3", 1, "Ready", "2m5s", 2048, 10, "orders.shop:6379", "62m"])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(get("?includeObject=Object").await.ok()["rows"][0]["object"]["kind"], "RedisCluster");
    assert_eq!(get("?includeObject=None").await.ok()["rows"][0]["object"], json!(null));
    assert!(get("?includeObject=None").await.ok()["rows"][0].get("object").is_some());
    assert_eq!(get("?includeObject=All").await.fault().0, 400);
    let fault = api.call("GET", &format!("{CLUSTERS}/none")).accept(TABLE).send().await;
    assert_eq!(fault.fault().0, 404);
}

#[tokio::test]
async fn pages_of_a_table_keep_the_metadata_of_the_list() {
    let api = api().await;
    api.cluster("users").await;
    let table = api.call("GET", &format!("{CLUSTERS}?limit=1")).accept(TABLE).send().await.ok();
    assert!(table["metadata"]["continue"].is_string());
    assert_eq!(
        (table["metadata"]["remainingItemCount"].as_i64(), table["rows"].as_array().unwrap().len()),
        (Some(1), 1)
    );
}

#[tokio::test]
async fn metadata_alone_is_that_of_the_object() {
    let api = api().await;
    let full = api.get(&format!("{CLUSTERS}/orders")).await.ok();
    let expected =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": full["metadata"]});
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(api.call("GET", &format!("{CLUSTERS}/orders")).accept(one).send().await.ok(), expected);
    let many = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let list = api.call("GET", CLUSTERS).accept(many).send().await.ok();
    assert_eq!(
        list,
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "3"}, "items": [expected]})
    );
    let wrong = api.call("GET", CLUSTERS).accept(one).send().await;
    let message = "only the following media types are accepted: application/json, application/yaml";
    assert_eq!(wrong.fault(), (406, "NotAcceptable".into(), message.into()));
    let patched = api
        .call("PATCH", &format!("{CLUSTERS}/orders"))
        .accept(one)
        .header("content-type", "application/merge-patch+json");
    assert_eq!(patched.json(&json!({})).send().await.ok(), expected);
}

#[tokio::test]
async fn yaml_and_indented_json_say_the_same() {
    let api = api().await;
    let object = api.get(&format!("{CLUSTERS}/orders")).await.ok();
    let yaml = api.call("GET", &format!("{CLUSTERS}/orders")).accept("application/yaml").send().await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    let read: Value = serde_saphyr::from_str(std::str::from_utf8(&yaml.bytes).unwrap()).unwrap();
    assert_eq!(read, object);
    let pretty = api.call("GET", &format!("{CLUSTERS}/orders?pretty=true")).send().await;
    assert!(pretty.bytes.starts_with(b"{\n  \"apiVersion\""));
    assert_eq!(pretty.json(), object);
    let curl = api.call("GET", CLUSTERS).header("user-agent", "curl/8.5").send().await;
    assert!(curl.bytes.starts_with(b"{\n"));
    let list = api.call("GET", CLUSTERS).accept("application/yaml").send().await;
    let read: Value = serde_saphyr::from_str(std::str::from_utf8(&list.bytes).unwrap()).unwrap();
    assert_eq!(read["items"], json!([object]));
}
