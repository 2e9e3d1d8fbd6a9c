//! Changes that come before what was known has caught up with the change before.

use crate::asking::{a_careful_spec, a_cluster, ask, denial, with_cluster};
use serde_json::{Value, json};
use webhook::{
    Facts,
    decide::{Denial, Objection, Verdict},
};

fn with(changes: &Value) -> Value {
    let mut spec = a_careful_spec();
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// Of generation 5, looked at up to this one.
fn looked_at(spec: &Value, observed: i64, conditions: &Value) -> Value {
    let status =
        json!({"phase": "Ready", "observedGeneration": observed, "usedMemory": 1000, "conditions": conditions});
    let mut object = a_cluster(spec, &status);
    object["metadata"]["generation"] = json!(5);
    object
}

fn told(verdict: &Verdict) -> (String, Option<Objection>) {
    (denial(verdict), verdict.denial.as_ref().map(Denial::objection))
}

/// Before, the second of two changes within a second passed that in one request are refused.
#[test]
fn no_disruptive_change_passes_before_the_last_was_looked_at() {
    let allowed = (String::new(), None);
    let waits = |path: &str| {
        let why = "the change before this one has not been looked at yet; try again in a second; where that does not help, see that the controller runs";
        (format!("{path}: Forbidden: {why}"), Some(Objection::Unknown))
    };
    let (five, live) = (with(&json!({"shards": 5})), with(&json!({"config": {"hz": "20"}})));
    let next = with(&json!({"version": "7.2"}));
    let asked = |to: &Value, observed: i64, facts: &Facts| {
        let object = |spec: &Value| looked_at(spec, observed, &json!([]));
        told(&ask("UPDATE", "redisclusters", &object(to), &object(&a_careful_spec()), facts))
    };
    let nothing = Facts::default();
    assert_eq!([asked(&five, 4, &nothing), asked(&next, 4, &nothing)], [waits("spec.shards"), waits("spec.version")]);
    assert_eq!([asked(&live, 4, &nothing), asked(&five, 5, &nothing)], [allowed.clone(), allowed.clone()]);
    // The status that is watched is later; one of a former cluster of the name says nothing of this one.
    let mut watched = looked_at(&a_careful_spec(), 5, &json!([]));
    assert_eq!(asked(&five, 4, &with_cluster(Facts::default(), "orders", &watched)), allowed);
    watched["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(asked(&five, 4, &with_cluster(Facts::default(), "orders", &watched)), waits("spec.shards"));
    // What a sick cluster is given may be its repair.
    let sick = json!([{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "X", "message": "m"}]);
    let object = |spec: &Value| looked_at(spec, 4, &sick);
    let repair = ask("UPDATE", "redisclusters", &object(&five), &object(&a_careful_spec()), &nothing);
    assert_eq!(told(&repair), allowed);
}

/// Before, memory was lowered to what six shards need, and three of them were taken away by what was known of before.
#[test]
fn a_scale_in_is_judged_by_the_very_cluster_that_is_scaled() {
    let watched = |version: &str| {
        let mut object = looked_at(&with(&json!({"shards": 6})), 5, &json!([]));
        object["metadata"]["resourceVersion"] = json!(version);
        with_cluster(Facts::default(), "orders", &object)
    };
    let scale = |replicas: i32| {
        let metadata = json!({"name": "orders", "namespace": "shop", "resourceVersion": "107"});
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}})
    };
    let asked = |to: i32, version: &str| {
        let verdict = ask("UPDATE", "redisclusters/scale", &scale(to), &scale(6), &watched(version));
        (told(&verdict), verdict.hangs_on_unknown())
    };
    let allowed = (String::new(), None);
    let why = "spec.replicas: Forbidden: RedisCluster \"orders\" has been observed only as it was before it was changed last; try again in a second";
    assert_eq!(asked(3, "99"), ((why.to_owned(), Some(Objection::Unknown)), true));
    assert_eq!([asked(3, "107"), asked(3, "108")], [(allowed.clone(), false), (allowed.clone(), false)]);
    // More are waited for, too, and then judged by what is known.
    assert_eq!(asked(7, "99"), (allowed, true));
}
