//! The built-in kinds of standalone.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_namespace_goes_when_it_was_emptied_and_finalized() {
    let api = Api::new().await;
    let uri = "/api/v1/namespaces/shop";
    let made = api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
    assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(made["status"], json!({"phase": "Active"}));
    assert_eq!(made["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "shop"}));
    let mut dying = api.delete(uri).await.ok();
    assert_eq!(dying["status"]["phase"], "Terminating");
    assert_eq!(api.delete(uri).await.ok(), dying);
    dying["spec"]["finalizers"] = json!([]);
    let kept = api.put(uri, &dying).await.ok();
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    dying["metadata"] = kept["metadata"].clone();
    assert_eq!(api.put(&format!("{uri}/finalize"), &dying).await.code, 200);
    assert_eq!(api.get(uri).await.fault().2, "namespaces \"shop\" not found");
}

#[tokio::test]
async fn a_running_pod_is_given_its_time_and_then_goes() {
    let api = Api::new().await;
    let uri = "/api/v1/namespaces/shop/pods/a";
    let spec = json!({"nodeName": "here", "terminationGracePeriodSeconds": 20, "containers": []});
    let pod = api.post("/api/v1/namespaces/shop/pods", &json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!(pod["status"], json!({"phase": "Pending"}));
    api.merge(&format!("{uri}/status"), &json!({"status": {"phase": "Running", "podIP": "127.0.0.9"}})).await.ok();
    let dying = api.delete(uri).await.ok();
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 20);
    assert_eq!(dying["metadata"]["deletionTimestamp"], "2026-01-02T03:04:25Z");
    api.world.seconds.store(3, Ordering::SeqCst);
    let longer = api.call("DELETE", uri).json(&json!({"gracePeriodSeconds": 60})).send().await.ok();
    assert_eq!(longer, dying);
    let sooner = api.call("DELETE", uri).json(&json!({"gracePeriodSeconds": 5})).send().await.ok();
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-02T03:04:10Z");
    let status = json!({"status": {"phase": "Running", "reason": "Stopping"}});
    assert_eq!(api.merge(&format!("{uri}/status"), &status).await.code, 200);
    assert_eq!(api.call("DELETE", uri).json(&json!({"gracePeriodSeconds": 0})).send().await.ok()["status"], "Success");
    assert_eq!(api.get(uri).await.code, 404);
}

#[tokio::test]
async fn a_pod_that_runs_nowhere_goes_at_once() {
    let api = Api::new().await;
    api.post("/api/v1/namespaces/shop/pods", &json!({"metadata": {"name": "a"}, "spec": {"containers": []}}))
        .await
        .ok();
    assert_eq!(api.delete("/api/v1/namespaces/shop/pods/a").await.ok()["status"], "Success");
}

#[tokio::test]
async fn a_secret_keeps_its_texts_encoded_and_may_be_overwritten_without_a_version() {
    let api = Api::new().await;
    let uri = "/api/v1/namespaces/shop/secrets";
    let made = api.post(uri, &json!({"metadata": {"name": "s"}, "stringData": {"password": "hi"}})).await.ok();
    assert_eq!(
        (made["data"].clone(), made.get("stringData"), made["type"].as_str()),
        (json!({"password": "aGk="}), None, Some("Opaque"))
    );
    let changed = api.put(&format!("{uri}/s"), &json!({"metadata": {"name": "s"}, "data": {"a": "eA=="}})).await.ok();
    assert_eq!(changed["data"], json!({"a": "eA=="}));
    let bad = api.put(&format!("{uri}/s"), &json!({"metadata": {"name": "s"}, "data": {"a": "?"}})).await.fault();
    assert_eq!(bad.2, "Secret \"s\" is invalid: data[a]: Invalid value: <hidden>: must be base64");
    assert_eq!(api.get(&format!("{uri}?fieldSelector=type%3DOpaque")).await.ok()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_stateful_set_is_scaled_but_not_rebuilt() {
    let api = Api::new().await;
    let uri = "/apis/apps/v1/namespaces/shop/statefulsets";
    let spec =
        json!({"serviceName": "a", "selector": {"matchLabels": {"x": "y"}}, "template": {"spec": {"containers": []}}});
    let made = api.post(uri, &json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!((made["spec"]["replicas"].as_i64(), made["metadata"]["generation"].as_i64()), (Some(1), Some(1)));
    let scaled = api.merge(&format!("{uri}/a/scale"), &json!({"spec": {"replicas": 3}})).await.ok();
    assert_eq!((scaled["spec"]["replicas"].as_i64(), scaled["status"]["selector"].as_str()), (Some(3), Some("x=y")));
    let (code, _, message) = api.merge(&format!("{uri}/a"), &json!({"spec": {"serviceName": "b"}})).await.fault();
    assert_eq!(code, 422);
    assert!(message.contains("updates to statefulset spec for fields other than 'replicas'"), "{message}");
    let status = json!({"status": {"readyReplicas": 3, "anything": {"else": [1]}}});
    assert_eq!(api.merge(&format!("{uri}/a/status"), &status).await.ok()["status"]["anything"], json!({"else": [1]}));
}

#[tokio::test]
async fn events_are_found_by_what_they_are_about() {
    let api = Api::new().await;
    let uri = "/api/v1/namespaces/shop/events";
    let event = json!({"metadata": {"generateName": "a-"}, "involvedObject": {"kind": "RedisCluster", "name": "orders"}, "reason": "X", "message": "m", "type": "Normal"});
    let made = api.post(uri, &event).await.ok();
    assert_eq!((made["message"].as_str(), made["metadata"].get("generation")), (Some("m"), None));
    let found = api.get(&format!("{uri}?fieldSelector=involvedObject.name%3Dorders,type%3DNormal")).await.ok();
    assert_eq!(found["items"], json!([made]));
    assert_eq!(api.get(&format!("{uri}?fieldSelector=involvedObject.name%3Dusers")).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn webhook_configurations_get_the_defaults_of_kubernetes() {
    let api = Api::new().await;
    let uri = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let made = api.post(uri, &json!({"metadata": {"name": "w"}, "webhooks": [hook]})).await.ok();
    let made = &made["webhooks"][0];
    assert_eq!(
        (
            made["failurePolicy"].as_str(),
            made["timeoutSeconds"].as_i64(),
            made["rules"][0]["scope"].as_str(),
            made["reinvocationPolicy"].as_str()
        ),
        (Some("Fail"), Some(10), Some("*"), Some("Never"))
    );
    let bad = api.post(uri, &json!({"metadata": {"name": "v"}, "webhooks": [{"name": "x"}]})).await.fault();
    assert!(bad.0 == 422 && bad.2.contains("webhooks[0].clientConfig: Required value"), "{bad:?}");
}

#[tokio::test]
async fn every_built_in_kind_is_made_read_changed_and_deleted() {
    let api = Api::new().await;
    for kind in apiserver::registry::host::registry().unwrap().kinds().filter(|kind| kind.review.is_none()) {
        let base =
            if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", kind.group, kind.version) };
        let namespace = if kind.scope == apiserver::registry::Scope::Namespaced { "/namespaces/shop" } else { "" };
        let uri = format!("{base}{namespace}/{}", kind.plural);
        let mut body =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "a"}, "spec": {"x": 1}});
        if kind.kind.ends_with("RoleBinding") {
            body["roleRef"] = json!({"kind": "ClusterRole", "name": "view"});
        }
        let made = api.post(&uri, &body).await.ok();
        assert_eq!(
            (made["kind"].as_str(), made["apiVersion"].as_str()),
            (Some(kind.kind), Some(kind.api_version().as_str()))
        );
        let patch = json!({"metadata": {"annotations": {"a": "b"}}});
        let changed = api.merge(&format!("{uri}/a"), &patch).await.ok();
        assert_eq!(api.get(&format!("{uri}/a")).await.ok(), changed);
        assert_eq!(api.delete(&format!("{uri}/a")).await.code, 200, "{}", kind.kind);
    }
}
