//! The whole order of admission, with real webhooks and everything else in a store.

use std::sync::Arc;

use apiserver::admission::{Admission, Operation};
use apiserver::admit::Chain;
use apiserver::registry::{Registry, host, redis};
use apiserver::storage::Storage;
use certs::ALPN_H2;
use serde_json::{Value, json};
use store::{Key, Write};

use crate::hooks::{Hooks, attributes, object};

fn registry() -> Registry {
    redis::registry().unwrap().and(host::registry().unwrap())
}

const REGISTRATION: &str = "admissionregistration.k8s.io";
const ENTRY: &str = "count/redisclusters.redis.kun.io";

async fn put(storage: &Storage, resource: &str, namespace: Option<&str>, name: &str, mut object: Value) {
    object["metadata"] = json!({"name": name});
    let key = Key::new(resource, namespace, name).unwrap();
    storage.write(Write::create(key, object.to_string().into_bytes().into())).await.unwrap();
}

/// A chain over a store with a mutating policy that adds the label `p`, a validating one that denies without the label
/// `wanted`, a quota of `quota` objects, and these webhooks.
async fn chain(
    hooks: &Hooks,
    wanted: &str,
    quota: u64,
    mutating: &[Value],
    validating: &[Value],
) -> (Chain, Arc<Storage>) {
    let store = Arc::new(store::Memory::new(store::Clock::system()));
    let storage = Arc::new(Storage::open(store, &registry()).await.unwrap());
    let rules = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["redis.kun.io"], "apiVersions": ["*"], "resources": ["*"]}]});
    let registered = |plural: &str| format!("{REGISTRATION}/{plural}");
    put(&storage, "namespaces", None, "n", json!({"status": {"phase": "Active"}})).await;
    let label = "Object{metadata: Object.metadata{labels: {'p': string(size(object.metadata.labels))}}}";
    let change = json!({"spec": {"matchConstraints": rules, "reinvocationPolicy": "IfNeeded", "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}]}});
    put(&storage, &registered("mutatingadmissionpolicies"), None, "m", change).await;
    put(&storage, &registered("mutatingadmissionpolicybindings"), None, "m", json!({"spec": {"policyName": "m"}}))
        .await;
    let judge = json!({"spec": {"matchConstraints": rules, "validations": [
        {"expression": format!("'{wanted}' in object.metadata.labels"), "message": "not labelled"}]}});
    put(&storage, &registered("validatingadmissionpolicies"), None, "v", judge).await;
    let binding = json!({"spec": {"policyName": "v", "validationActions": ["Deny"]}});
    put(&storage, &registered("validatingadmissionpolicybindings"), None, "v", binding).await;
    put(&storage, "resourcequotas", Some("n"), "q", json!({"spec": {"hard": {ENTRY: quota}}})).await;
    put(&storage, &registered("mutatingwebhookconfigurations"), None, "m", json!({"webhooks": mutating})).await;
    put(&storage, &registered("validatingwebhookconfigurations"), None, "v", json!({"webhooks": validating})).await;
    (Chain::over(storage.clone(), registry(), hooks.caller()), storage)
}

async fn quota_status(storage: &Storage) -> Value {
    storage.fresh().await.unwrap();
    let key = Key::new("resourcequotas", Some("n"), "q").unwrap();
    let found = storage.cache().resource("resourcequotas").unwrap().get(&key).unwrap().unwrap();
    serde_json::from_slice::<Value>(found.as_bytes()).unwrap()["status"].clone()
}

#[tokio::test]
async fn policies_change_before_webhooks_and_again_after_them_if_they_ask_for_it() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, _) = chain(&hooks, "p", 9, &[hooks.hook("a.test.io", "/label/a", |_| {})], &[]).await;
    let mutated = chain.mutate(&attributes(Operation::Create, Some("n")), object()).await.unwrap();
    // The policy first saw no label, the webhook what the policy made, and then the policy both labels.
    assert_eq!(hooks.seen.reviews.lock().unwrap()[0].1["object"]["metadata"]["labels"], json!({"p": "0"}));
    assert_eq!(mutated["metadata"]["labels"], json!({"a": "set", "p": "2"}));
    assert_eq!(hooks.seen.paths().len(), 1);
}

#[tokio::test]
async fn a_validating_policy_answers_before_any_webhook_is_asked_and_nothing_is_charged() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let deny = hooks.hook("a.test.io", "/deny", |_| {});
    let (chain, storage) = chain(&hooks, "absent", 9, &[], &[deny]).await;
    let refused = chain.validate(&attributes(Operation::Create, Some("n"))).await.unwrap_err();
    assert!(refused.to_string().ends_with("denied request: not labelled"), "{refused}");
    assert_eq!((hooks.seen.paths().len(), quota_status(&storage).await), (0, Value::Null));
}

#[tokio::test]
async fn quotas_come_last_so_that_what_a_webhook_refuses_is_not_charged() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let mut asked = attributes(Operation::Create, Some("n"));
    let mut labelled = object();
    labelled["metadata"]["labels"] = json!({"x": ""});
    asked.object = Some(Arc::new(labelled));
    let (denying, storage) = chain(&hooks, "x", 0, &[], &[hooks.hook("a.test.io", "/deny", |_| {})]).await;
    let refused = denying.validate(&asked).await.unwrap_err();
    assert_eq!(refused.to_string(), "admission webhook \"a.test.io\" denied the request: no");
    assert_eq!(quota_status(&storage).await, Value::Null);
    let allow = hooks.hook("a.test.io", "/allow", |_| {});
    let (full, _) = chain(&hooks, "x", 0, &[], std::slice::from_ref(&allow)).await;
    let refused = full.validate(&asked).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "redisclusters.redis.kun.io \"orders\" is forbidden: exceeded quota: q, requested: {ENTRY}=1, used: {ENTRY}=0, limited: {ENTRY}=0"
        )
    );
    let (roomy, storage) = chain(&hooks, "x", 1, &[], &[allow]).await;
    roomy.validate(&asked).await.unwrap();
    assert_eq!(quota_status(&storage).await["used"], json!({ENTRY: "1"}));
}
