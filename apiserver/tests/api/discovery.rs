//! Discovery in both forms, and `/version`.

use serde_json::{Value, json};

use crate::support::{Api, golden};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn discovery_documents_are_what_they_were() {
    let api = Api::new().await;
    let mut documents = serde_json::Map::new();
    for uri in [
        "/",
        "/api",
        "/apis",
        "/apis/redis.kun.io",
        "/apis/redis.kun.io/v1",
        "/api/v1",
        "/apis/apps/v1",
        "/apis/policy/v1",
        "/apis/coordination.k8s.io/v1",
        "/apis/admissionregistration.k8s.io/v1",
    ] {
        documents.insert(uri.to_owned(), api.get(uri).await.ok());
    }
    for uri in ["/api", "/apis"] {
        let reply = api.call("GET", uri).accept(AGGREGATED).send().await;
        assert_eq!(reply.headers["content-type"], AGGREGATED);
        documents.insert(format!("{uri} aggregated"), reply.ok());
    }
    golden("discovery.json", &Value::Object(documents));
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again() {
    let api = Api::new().await;
    let first = api.call("GET", "/apis").accept(AGGREGATED).send().await;
    assert_eq!(first.headers["vary"], "Accept");
    assert_eq!(first.headers["cache-control"], "public");
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    assert!(etag.starts_with('"') && etag.len() == 130, "{etag}");
    let again = api.call("GET", "/apis").accept(AGGREGATED).header("if-none-match", &etag).send().await;
    assert_eq!((again.code, again.bytes.len()), (304, 0));
    let changed = api.call("GET", "/apis").accept(AGGREGATED).header("if-none-match", "\"x\"").send().await;
    assert_eq!(changed.code, 200);
}

#[tokio::test]
async fn whoever_cannot_read_the_aggregated_form_gets_the_legacy_one() {
    let api = Api::new().await;
    for accept in [
        "application/json",
        "*/*",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
        "application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/vnd.kubernetes.protobuf",
    ] {
        let reply = api.call("GET", "/apis").accept(accept).send().await;
        assert_eq!(reply.ok()["kind"], "APIGroupList", "{accept}");
    }
    let both = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.9";
    assert_eq!(api.call("GET", "/apis").accept(both).send().await.ok()["kind"], "APIGroupDiscoveryList");
}

#[tokio::test]
async fn the_version_is_one_kubectl_understands() {
    let api = Api::new().await;
    let version = api.get("/version").await.ok();
    assert_eq!((version["major"].as_str(), version["minor"].as_str()), (Some("1"), Some("33")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.33.0+kun"));
}

#[tokio::test]
async fn every_entry_of_the_registry_is_discovered_with_verbs_that_work() {
    let api = Api::new().await;
    for kind in api.app.registry().kinds() {
        let base =
            if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", kind.group, kind.version) };
        let list = api.get(&base).await.ok();
        assert_eq!(list["apiVersion"], "v1");
        if kind.review.is_some() {
            let entry =
                list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == kind.plural).unwrap();
            assert_eq!(
                (&entry["verbs"], api.get(&format!("{base}/{}", kind.plural)).await.code),
                (&json!(["create"]), 405)
            );
            continue;
        }
        let entry = list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == kind.plural).unwrap();
        assert_eq!(
            entry["verbs"],
            json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
        );
        assert_eq!(api.get(&format!("{base}/{}", kind.plural)).await.code, 200);
    }
}
