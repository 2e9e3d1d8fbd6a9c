//! ResourceQuota for counts of objects.

use std::sync::Arc;

use apiserver::admit::{Chain, call::Caller};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster, registry};

const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const ENTRY: &str = "count/redisclusters.redis.kun.io";

fn quota(name: &str, hard: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}})
}

async fn used(api: &Api, name: &str) -> Value {
    api.get(&format!("{QUOTAS}/{name}")).await.ok()["status"]["used"].clone()
}

#[tokio::test]
async fn creates_are_charged_until_the_quota_is_used_up() {
    let api = Api::guarded().await;
    api.post(CLUSTERS, &cluster("before")).await.ok();
    api.post(QUOTAS, &quota("q", &json!({ENTRY: "3"}))).await.ok();
    api.post(CLUSTERS, &cluster("a")).await.ok();
    assert_eq!(used(&api, "q").await, json!({ENTRY: "2"}), "what was there before counts");
    api.post(CLUSTERS, &cluster("b")).await.ok();
    let refused = api.post(CLUSTERS, &cluster("c")).await;
    assert_eq!(
        refused.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": format!("redisclusters.redis.kun.io \"c\" is forbidden: exceeded quota: q, requested: {ENTRY}=1, used: {ENTRY}=3, limited: {ENTRY}=3"),
            "details": {"name": "c", "group": "redis.kun.io", "kind": "redisclusters"},
        })
    );
    assert_eq!(api.get(&format!("{CLUSTERS}/c")).await.code, 404);
    // Changes are free, and so is what the quota does not name.
    api.merge(&format!("{CLUSTERS}/a"), &json!({"spec": {"shards": 5}})).await.ok();
    api.post(MAPS, &json!({"metadata": {"name": "m"}})).await.ok();
    // What goes makes room.
    api.delete(&format!("{CLUSTERS}/before")).await.ok();
    api.post(CLUSTERS, &cluster("c")).await.ok();
    assert_eq!(used(&api, "q").await, json!({ENTRY: "3"}));
    // A larger one counts at once.
    api.merge(&format!("{QUOTAS}/q"), &json!({"spec": {"hard": {ENTRY: "4"}}})).await.ok();
    api.post(CLUSTERS, &cluster("d")).await.ok();
    assert_eq!(api.post(CLUSTERS, &cluster("e")).await.code, 403);
}

#[tokio::test]
async fn of_many_creates_at_the_limit_exactly_as_many_pass_as_there_is_room() {
    let api = Api::guarded().await;
    api.post(QUOTAS, &quota("q", &json!({ENTRY: 5}))).await.ok();
    let creates = (0..20).map(|number| {
        let api = &api;
        async move { api.post(CLUSTERS, &cluster(&format!("c{number}"))).await.code }
    });
    let codes = join_all(creates).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 15, "{codes:?}");
    let list = api.get(CLUSTERS).await.ok();
    assert_eq!((list["items"].as_array().unwrap().len(), used(&api, "q").await), (5, json!({ENTRY: "5"})));
}

#[tokio::test]
async fn a_dry_run_and_what_is_refused_elsewhere_are_not_charged() {
    let api = Api::guarded().await;
    api.post(QUOTAS, &quota("q", &json!({ENTRY: "1"}))).await.ok();
    api.post(&format!("{CLUSTERS}?dryRun=All"), &cluster("a")).await.ok();
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["redisclusters"]}]},
        "validations": [{"expression": "object.metadata.name != 'bad'"}]}});
    api.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", &policy).await.ok();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    api.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", &binding).await.ok();
    assert_eq!(api.post(CLUSTERS, &cluster("bad")).await.code, 422, "policies are asked before quotas");
    assert_eq!(used(&api, "q").await, Value::Null, "nothing was charged");
    api.post(CLUSTERS, &cluster("a")).await.ok();
    let dry = api.post(&format!("{CLUSTERS}?dryRun=All"), &cluster("b")).await;
    assert_eq!(dry.code, 403, "a dry run is told that there is no room");
    // A create that fails after it was charged takes no room for good.
    api.merge(&format!("{QUOTAS}/q"), &json!({"spec": {"hard": {ENTRY: "2"}}})).await.ok();
    assert_eq!(api.post(CLUSTERS, &cluster("a")).await.code, 409);
    api.post(CLUSTERS, &cluster("b")).await.ok();
}

#[tokio::test]
async fn every_quota_of_the_namespace_counts_and_no_other() {
    let api = Api::guarded().await;
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.ok();
    api.post("/api/v1/namespaces/other/resourcequotas", &quota("none", &json!({"count/configmaps": "0"}))).await.ok();
    api.post(QUOTAS, &quota("wide", &json!({"configmaps": "5"}))).await.ok();
    api.post(QUOTAS, &quota("narrow", &json!({"configmaps": "1", "count/configmaps": "1"}))).await.ok();
    api.post(MAPS, &json!({"metadata": {"name": "a"}})).await.ok();
    let fault = api.post(MAPS, &json!({"metadata": {"generateName": "b-"}})).await.fault();
    assert_eq!((fault.0, fault.1.as_str()), (403, "Forbidden"));
    let why = "exceeded quota: narrow, requested: configmaps=1,count/configmaps=1, used: configmaps=1,count/configmaps=1, limited: configmaps=1,count/configmaps=1";
    assert!(fault.2.ends_with(why), "{}", fault.2);
    let refused = api.post("/api/v1/namespaces/other/configmaps", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.code, 403);
    let text = api.metrics.text().unwrap();
    assert!(text.contains("apiserver_admission_quota_refusals_total{namespace=\"shop\",quota=\"narrow\"} 1"), "{text}");
}

#[tokio::test]
async fn what_this_server_cannot_count_is_refused_and_not_believed_to_be_limited() {
    let api = Api::guarded().await;
    let refused = api.post(QUOTAS, &quota("q", &json!({"requests.cpu": "1"}))).await.fault();
    let why = "ResourceQuota \"q\" is invalid: spec.hard[requests.cpu]: Forbidden: this server limits counts of objects only, as count/<resource>.<group>";
    assert_eq!(refused, (422, "Invalid".to_owned(), why.to_owned()));
    for (hard, scopes) in [
        (json!({"pods": "-1"}), Value::Null),
        (json!({"pods": "many"}), Value::Null),
        (json!({"pods": "1"}), json!(["BestEffort"])),
    ] {
        let mut object = quota("q", &hard);
        object["spec"]["scopes"] = scopes;
        assert_eq!(api.post(QUOTAS, &object).await.code, 422, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_follows_what_goes_without_being_asked() {
    let api = Api::guarded().await;
    let caller = Arc::new(Caller::new(None, Arc::default()));
    let chain = Chain::over(Arc::clone(&api.storage), registry(), caller);
    tokio::spawn(async move { chain.keep_quotas().await });
    api.post(QUOTAS, &quota("q", &json!({ENTRY: "3"}))).await.ok();
    api.post(CLUSTERS, &cluster("a")).await.ok();
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    assert_eq!(used(&api, "q").await, json!({ENTRY: "1"}));
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(used(&api, "q").await, json!({ENTRY: "0"}));
}
