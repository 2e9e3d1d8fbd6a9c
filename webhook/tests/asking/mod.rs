//! Asking for a verdict in the words of an AdmissionReview.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, dead_code)]

use serde_json::{Value, json};
use types::{RedisCluster, RedisOperation, RedisPolicy};
use webhook::{
    Facts, Stage,
    decide::{Verdict, decide, policy::Policy},
    facts::{Claim, Unfinished},
    review,
};

/// A review of one operation; null objects are absent.
pub(crate) fn a_review(operation: &str, resource: &str, object: &Value, old: &Value) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let named = if object.is_null() { old } else { object };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": operation, "subResource": subresource, "dryRun": false,
            "kind": {"group": "redis.kun.io", "version": "v1", "kind": named["kind"].as_str().unwrap_or("")},
            "resource": {"group": "redis.kun.io", "version": "v1", "resource": resource},
            "requestKind": {"group": "redis.kun.io", "version": "v1", "kind": ""},
            "name": named.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(""), "namespace": "shop",
            "userInfo": {"username": "anna", "groups": ["system:authenticated"]},
            "object": object, "oldObject": old, "options": {"kind": "CreateOptions"}
        }
    })
}

pub(crate) fn ask_at(stage: Stage, review: &Value, facts: &Facts) -> Verdict {
    let body = serde_json::to_vec(review).unwrap();
    decide(&review::read(&body, stage).unwrap(), facts)
}

pub(crate) fn ask(operation: &str, resource: &str, object: &Value, old: &Value, facts: &Facts) -> Verdict {
    ask_at(Stage::Validate, &a_review(operation, resource, object, old), facts)
}

/// A RedisCluster `orders` as the API server sends it, defaults applied.
pub(crate) fn a_cluster(spec: &Value, status: &Value) -> Value {
    let mut object = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders", "namespace": "shop"}, "spec": spec});
    types::defaults::cluster_value(&mut object);
    if !status.is_null() {
        object["status"] = status.clone();
    }
    object
}

pub(crate) fn created(spec: &Value, facts: &Facts) -> Verdict {
    ask("CREATE", "redisclusters", &a_cluster(spec, &Value::Null), &Value::Null, facts)
}

pub(crate) fn updated(old: &Value, new: &Value, status: &Value, facts: &Facts) -> Verdict {
    ask("UPDATE", "redisclusters", &a_cluster(new, status), &a_cluster(old, status), facts)
}

pub(crate) fn denial(verdict: &Verdict) -> String {
    verdict.denial.as_ref().map(webhook::decide::Denial::message).unwrap_or_default()
}

pub(crate) fn with_cluster(mut facts: Facts, name: &str, object: &Value) -> Facts {
    let mut cluster: RedisCluster = serde_json::from_value(object.clone()).unwrap();
    cluster.metadata.name = Some(name.to_owned());
    facts.clusters.put("shop", name, cluster);
    facts
}

pub(crate) fn with_policy(mut facts: Facts, name: &str, spec: &Value) -> Facts {
    let policy: RedisPolicy = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    facts.policies.put("", name, Policy::from(&policy));
    facts
}

pub(crate) fn with_operation(mut facts: Facts, name: &str, spec: &Value, phase: &str) -> Facts {
    let object = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": {"phase": phase}});
    let operation: RedisOperation = serde_json::from_value(object).unwrap();
    facts.operations.put("shop", name, Unfinished::of(&operation));
    facts
}

/// A claim as the StatefulSet controller makes it for a member.
pub(crate) fn with_claim(facts: Facts, cluster: &str, shard: u16, ordinal: u16) -> Facts {
    a_claim(facts, cluster, (shard, ordinal), &Value::Null)
}

pub(crate) fn with_claim_made(facts: Facts, cluster: &str, shard: u16, ordinal: u16, at: &str) -> Facts {
    a_claim(facts, cluster, (shard, ordinal), &json!(at))
}

fn a_claim(mut facts: Facts, cluster: &str, (shard, ordinal): (u16, u16), made: &Value) -> Facts {
    let name = format!("data-{cluster}-{shard}-{ordinal}");
    let labels = json!({"redis.kun.io/cluster": cluster, "redis.kun.io/shard": shard.to_string()});
    let metadata = json!({"name": name, "labels": labels, "creationTimestamp": made});
    let metadata = serde_json::from_value(metadata).unwrap();
    facts.claims.put("shop", &name, Claim::of(&metadata));
    facts
}

/// What nothing is to be said about: nothing more is to be known of its data.
pub(crate) fn a_careful_spec() -> Value {
    json!({"resources": {"limits": {"memory": "1Gi"}}, "storage": {"size": "10Gi"}})
}

pub(crate) fn with_namespace(mut facts: Facts, labels: &Value) -> Facts {
    facts.namespaces.put("", "shop", serde_json::from_value(labels.clone()).unwrap());
    facts
}
