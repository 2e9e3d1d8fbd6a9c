//! `/openapi`.

use serde_json::{Value, json};

use crate::support::{Api, golden};

/// Every object within a document, with its path.
fn walk(value: &Value, path: &str, visit: &mut dyn FnMut(&serde_json::Map<String, Value>, &str)) {
    match value {
        Value::Object(map) => {
            visit(map, path);
            map.iter().for_each(|(key, inner)| walk(inner, &format!("{path}/{key}"), visit));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| walk(item, &format!("{path}/{at}"), visit))
        }
        _ => {}
    }
}

#[tokio::test]
async fn the_documents_are_what_they_were() {
    let api = Api::new().await;
    // One kind whole, of the others the names: fields of a kind are the business of its own tests.
    let v3 = api.get("/openapi/v3/apis/redis.kun.io/v1").await.ok();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let policy = &v3["components"]["schemas"]["io.kun.redis.v1.RedisPolicy"];
    let path = &v3["paths"]["/apis/redis.kun.io/v1/redispolicies/{name}"];
    golden(
        "openapi-v3.json",
        &json!({"paths": names(&v3["paths"]), "schemas": names(&v3["components"]["schemas"]), "policy": policy, "path": path}),
    );
    let v2 = api.get("/openapi/v2").await.ok();
    let policy = &v2["definitions"]["io.kun.redis.v1.RedisPolicy"];
    let path = &v2["paths"]["/apis/redis.kun.io/v1/redispolicies/{name}"];
    golden(
        "openapi-v2.json",
        &json!({"paths": names(&v2["paths"]), "definitions": names(&v2["definitions"]), "policy": policy, "path": path}),
    );
}

#[tokio::test]
async fn no_document_holds_a_form_that_parsers_of_kubernetes_refuse() {
    let api = Api::new().await;
    let mut documents = vec![api.get("/openapi/v2").await.ok()];
    let index = api.get("/openapi/v3").await.ok();
    for entry in index["paths"].as_object().unwrap().values() {
        documents.push(api.get(entry["serverRelativeURL"].as_str().unwrap()).await.ok());
    }
    for document in &documents {
        let text = document.to_string();
        walk(document, "", &mut |map, path| {
            assert!(!map.get("additionalProperties").is_some_and(Value::is_boolean), "{path}");
            for refused in ["oneOf", "anyOf", "nullable", "not"] {
                assert!(!map.contains_key(refused), "{path} has {refused}");
            }
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{path}: {reference}"));
                assert!(document.pointer(pointer).is_some(), "{path}: {reference} leads nowhere");
            }
        });
        assert!(!text.contains("strategic-merge-patch"));
    }
}

#[tokio::test]
async fn every_operation_says_what_it_does_and_to_what() {
    let api = Api::new().await;
    let v2 = api.get("/openapi/v2").await.ok();
    assert_eq!(v2["swagger"], "2.0");
    assert!(v2["info"]["title"].is_string() && v2["info"]["version"].is_string());
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in v2["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            assert!(operation["x-kubernetes-action"].is_string(), "{method} {path}");
            assert!(operation["x-kubernetes-group-version-kind"]["kind"].is_string(), "{method} {path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_patch_lists_its_types_and_parameters() {
    let api = Api::new().await;
    let v3 = api.get("/openapi/v3/apis/redis.kun.io/v1").await.ok();
    let patch = &v3["paths"]["/apis/redis.kun.io/v1/namespaces/{namespace}/redisclusters/{name}"]["patch"];
    let types: Vec<&String> = patch["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(types, ["application/json-patch+json", "application/merge-patch+json"]);
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pretty", "dryRun", "fieldManager", "fieldValidation", "force"]);
}

#[tokio::test]
async fn a_version_document_has_a_name_under_which_it_never_changes() {
    let api = Api::new().await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/redis.kun.io/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = api.get(&url).await;
    assert_eq!(document.code, 200);
    assert_eq!(document.headers["cache-control"], "public, immutable");
    assert!(document.headers["expires"].to_str().unwrap().ends_with("GMT"));
    let wrong = api.get("/openapi/v3/apis/redis.kun.io/v1?hash=ABC").await;
    assert_eq!(wrong.code, 301);
    assert_eq!(wrong.headers["location"], url.as_str());
    let etag = document.headers["etag"].to_str().unwrap();
    let again = api.call("GET", "/openapi/v3/apis/redis.kun.io/v1").header("if-none-match", etag).send().await;
    assert_eq!(again.code, 304);
    assert_eq!(api.get("/openapi/v3/apis/nothing/v1").await.code, 404);
}

#[tokio::test]
async fn whoever_has_v2_already_is_told_so_in_either_form() {
    let api = Api::new().await;
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for accept in ["application/json", protobuf] {
        let ask = |etag: &str| api.call("GET", "/openapi/v2").accept(accept).header("if-none-match", etag).send();
        let first = api.call("GET", "/openapi/v2").accept(accept).send().await;
        let etag = first.headers["etag"].to_str().unwrap().to_owned();
        let again = ask(&etag).await;
        assert_eq!(
            (again.code, again.bytes.len(), again.headers["etag"].to_str().unwrap()),
            (304, 0, etag.as_str()),
            "{accept}"
        );
        let other = ask("\"0000\"").await;
        assert_eq!((other.code, other.bytes), (200, first.bytes), "{accept}");
    }
}

#[tokio::test]
async fn v2_is_served_as_protobuf_to_those_who_ask_for_it() {
    let api = Api::new().await;
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let reply = api.call("GET", "/openapi/v2").accept(accept).send().await;
    assert_eq!(reply.code, 200);
    assert_eq!(reply.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert!(reply.bytes.starts_with(b"\x0a\x032.0\x12"));
    let json = api.call("GET", "/openapi/v2").accept("application/json").send().await;
    assert_ne!(json.headers["etag"], reply.headers["etag"]);
    assert_eq!(api.call("GET", "/openapi/v2").accept("text/html").send().await.fault().0, 406);
    let v3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    assert_eq!(api.call("GET", "/openapi/v3/api/v1").accept(v3).send().await.fault().0, 406);
}
