//! Backups, operations and policies as objects; defaults; answers on the wire; and that every request is answered.

use crate::asking::{
    a_cluster, a_review, ask, ask_at, created, denial, updated, with_cluster, with_operation, with_policy,
};
use base64::Engine as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use webhook::{Facts, Stage, decide::Objection, review};

fn an_object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "redis.kun.io/v1", "kind": kind, "metadata": {"name": "one", "namespace": "shop"}, "spec": spec})
}

fn operate(spec: &Value, facts: &Facts) -> webhook::decide::Verdict {
    ask("CREATE", "redisoperations", &an_object("RedisOperation", spec), &Value::Null, facts)
}

fn serving(spec: &Value) -> Facts {
    with_cluster(Facts::default(), "orders", &a_cluster(spec, &json!({"phase": "Ready"})))
}

#[test]
fn an_operation_is_checked_against_the_cluster_it_speaks_about() {
    let facts = serving(&json!({}));
    let table = [
        (json!({"clusterName": "orders", "failover": {"shard": 2, "candidate": "orders-2-1"}}), ""),
        (json!({"clusterName": "orders", "restart": {}}), ""),
        (
            json!({"clusterName": "carts", "restart": {}}),
            "spec.clusterName: Not found: \"carts\": there is no RedisCluster of this name in namespace \"shop\"",
        ),
        (
            json!({"clusterName": "orders", "failover": {"shard": 3}}),
            "spec.failover.shard: Invalid value: 3: the cluster has 3 shards, counted from 0 to 2",
        ),
        (
            json!({"clusterName": "orders", "failover": {"shard": 1, "candidate": "orders-0-1"}}),
            "spec.failover.candidate: Unsupported value: \"orders-0-1\": supported values: \"orders-1-0\", \"orders-1-1\"",
        ),
        (
            json!({"clusterName": "orders", "restart": {"shards": [0, 9]}}),
            "spec.restart.shards[1]: Invalid value: 9: the cluster has 3 shards, counted from 0 to 2",
        ),
    ];
    for (spec, text) in table {
        assert_eq!(denial(&operate(&spec, &facts)), text, "{spec}");
    }
}

#[test]
fn a_failover_needs_a_replica() {
    let failover = json!({"clusterName": "orders", "failover": {"shard": 0}});
    assert!(denial(&operate(&failover, &serving(&json!({"replicasPerShard": 0})))).contains("has no replica"));
    assert!(denial(&operate(&failover, &serving(&json!({"mode": "Standalone"})))).contains("Standalone"));
}

#[test]
fn whether_another_operation_has_ended_the_api_server_decides() {
    let restart = json!({"clusterName": "orders", "restart": {}});
    for name in ["one", "first"] {
        let facts = with_operation(serving(&json!({})), name, &restart, "Running");
        assert_eq!(operate(&restart, &facts), webhook::decide::Verdict::default(), "{name}");
    }
}

#[test]
fn a_backup_needs_a_cluster_a_target_and_members_that_are_not_being_restarted() {
    let backup = |spec: &Value, facts: &Facts| {
        ask("CREATE", "redisbackups", &an_object("RedisBackup", spec), &Value::Null, facts)
    };
    let plain = json!({"clusterName": "orders"});
    let target = json!({"clusterName": "orders", "target": {"directory": {"path": "/srv/b"}}});
    assert!(
        denial(&backup(&plain, &serving(&json!({}))))
            .starts_with("spec.target: Required value: must be given, because")
    );
    assert!(backup(&target, &serving(&json!({}))).is_allowed());
    let with_default = serving(&json!({"backup": {"target": {"directory": {"path": "/srv/b"}}}}));
    assert!(backup(&plain, &with_default).is_allowed());
    let restarting = with_operation(with_default, "r", &json!({"clusterName": "orders", "restart": {}}), "Running");
    assert_eq!(backup(&plain, &restarting).denial.unwrap().objection(), Objection::Conflict);
}

#[test]
fn a_cancel_may_be_taken_back_where_it_had_no_effect() {
    let plain = an_object("RedisOperation", &json!({"clusterName": "orders", "restart": {}}));
    let mut cancelled = an_object("RedisOperation", &json!({"clusterName": "orders", "restart": {}, "cancel": true}));
    let mut may = |status: Value| {
        cancelled["status"] = status;
        ask("UPDATE", "redisoperations", &plain, &cancelled, &Facts::default()).is_allowed()
    };
    for (phase, is) in
        [("Pending", false), ("Running", false), ("Cancelled", false), ("Succeeded", true), ("Failed", true)]
    {
        assert_eq!(may(json!({"phase": phase, "steps": ["a"]})), is, "{phase}");
    }
    assert_eq!([may(json!({})), may(Value::Null)], [false, false]);
}

#[test]
fn records_do_not_change_and_policies_are_checked() {
    let old = an_object("RedisOperation", &json!({"clusterName": "orders", "restart": {}}));
    let cancelled = an_object("RedisOperation", &json!({"clusterName": "orders", "restart": {}, "cancel": true}));
    let other = an_object("RedisOperation", &json!({"clusterName": "orders", "failover": {"shard": 0}}));
    assert!(ask("UPDATE", "redisoperations", &cancelled, &old, &Facts::default()).is_allowed());
    assert!(!ask("UPDATE", "redisoperations", &other, &old, &Facts::default()).is_allowed());
    let policy = an_object("RedisPolicy", &json!({"versions": ["new"]}));
    assert!(
        denial(&ask("CREATE", "redispolicies", &policy, &Value::Null, &Facts::default()))
            .starts_with("spec.versions[0]: Invalid value")
    );
}

#[test]
fn mutation_adds_what_is_absent_and_nothing_the_second_time() {
    let table = [
        (
            "redisclusters",
            json!({"kind": "RedisCluster", "metadata": {"name": "a"}, "spec": {"mode": "Standalone"}}),
            json!({"kind": "RedisCluster", "metadata": {"name": "a"}, "spec": {"mode": "Standalone", "shards": 1, "replicasPerShard": 0}}),
        ),
        (
            "redisbackups",
            json!({"kind": "RedisBackup", "metadata": {"labels": {"a": "b"}}, "spec": {"clusterName": "orders"}}),
            json!({"kind": "RedisBackup", "metadata": {"labels": {"a": "b", "redis.kun.io/cluster": "orders"}}, "spec": {"clusterName": "orders"}}),
        ),
        (
            "redisoperations",
            json!({"kind": "RedisOperation", "metadata": {}, "spec": {"clusterName": "orders"}}),
            json!({"kind": "RedisOperation", "metadata": {"labels": {"redis.kun.io/cluster": "orders"}}, "spec": {"clusterName": "orders"}}),
        ),
    ];
    for (resource, mut object, expected) in table {
        let verdict = ask_at(Stage::Mutate, &a_review("CREATE", resource, &object, &Value::Null), &Facts::default());
        let patch: json_patch::Patch = serde_json::from_value(Value::Array(verdict.patch)).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(object, expected);
        let again = ask_at(Stage::Mutate, &a_review("CREATE", resource, &object, &Value::Null), &Facts::default());
        assert_eq!(again, webhook::decide::Verdict::default());
    }
}

#[test]
fn a_denial_on_the_wire_has_code_reason_message_and_causes() {
    let object = a_cluster(&json!({"shards": 12, "version": "6.0"}), &Value::Null);
    let facts = with_policy(Facts::default(), "platform", &json!({"shards": {"max": 9}}));
    let body = serde_json::to_vec(&a_review("CREATE", "redisclusters", &object, &Value::Null)).unwrap();
    let request = review::read(&body, Stage::Validate).unwrap();
    let verdict = webhook::decide(&request, &facts);
    let answer: Value = serde_json::from_slice(&review::write(&request, &verdict).unwrap()).unwrap();
    let version = "Invalid value: \"6.0\": must be in the range >=7.0, <9 with engine Redis";
    let policy = "Forbidden: RedisPolicy \"platform\" allows at most 9 shards, this would have 12";
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "705ab4f5", "allowed": false, "status": {
            "status": "Failure", "code": 422, "reason": "Invalid",
            "message": format!("[spec.version: {version}, spec.shards: {policy}]"),
            "details": {"name": "orders", "group": "redis.kun.io", "kind": "RedisCluster", "causes": [
                {"reason": "FieldValueInvalid", "message": version, "field": "spec.version"},
                {"reason": "FieldValueForbidden", "message": policy, "field": "spec.shards"}
            ]}
        }}
    });
    assert_eq!(answer, expected);
}

#[test]
fn a_patch_on_the_wire_is_base64() {
    let object = json!({"kind": "RedisCluster", "metadata": {"name": "a"}, "spec": {"shards": 3}});
    let body = serde_json::to_vec(&a_review("CREATE", "redisclusters", &object, &Value::Null)).unwrap();
    let request = review::read(&body, Stage::Mutate).unwrap();
    let answer: Value =
        serde_json::from_slice(&review::write(&request, &webhook::decide(&request, &Facts::default())).unwrap())
            .unwrap();
    assert_eq!((&answer["response"]["allowed"], &answer["response"]["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch =
        base64::engine::general_purpose::STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([{"op": "add", "path": "/spec/replicasPerShard", "value": 1}])
    );
}

#[test]
fn what_is_not_a_review_is_not_answered_as_one() {
    let other = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": a_review("CREATE", "x", &json!({}), &Value::Null)["request"]});
    for body in [json!({}), json!([]), json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), other] {
        assert!(review::read(body.to_string().as_bytes(), Stage::Validate).is_err(), "{body}");
    }
    assert!(review::read(b"\xff{", Stage::Validate).is_err());
}

#[test]
fn a_review_is_read_in_any_order_of_its_fields() {
    let object = a_cluster(&json!({"shards": 2}), &Value::Null);
    let review = a_review("CREATE", "redisclusters", &object, &Value::Null);
    let request = review["request"].as_object().unwrap();
    let written = |names: &[&str]| {
        let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\": {}", request[*name])).collect();
        format!(
            "{{\"request\": {{{}}}, \"kind\": \"AdmissionReview\", \"apiVersion\": \"admission.k8s.io/v1\"}}",
            fields.join(",")
        )
    };
    let as_go_writes =
        written(&["uid", "kind", "resource", "name", "namespace", "operation", "userInfo", "object", "oldObject"]);
    let objects_first = written(&["oldObject", "object", "operation", "namespace", "name", "resource", "kind", "uid"]);
    for body in [as_go_writes, objects_first] {
        let request = review::read(body.as_bytes(), Stage::Validate).unwrap();
        let text = denial(&webhook::decide(&request, &Facts::default()));
        assert!(text.starts_with("spec.shards: Invalid value: 2"), "{text}");
    }
}

#[test]
fn an_object_that_cannot_be_read_is_refused_as_a_bad_request_and_not_as_a_bad_review() {
    let bad = json!({"kind": "RedisCluster", "metadata": {"name": "a"}, "spec": {"shards": "three"}});
    let other = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
    for (object, why) in [(bad, "expected i32"), (other, "not of the kind that its resource and operation call for")] {
        let verdict = ask("CREATE", "redisclusters", &object, &Value::Null, &Facts::default());
        assert!(denial(&verdict).contains(why), "{}", denial(&verdict));
        assert_eq!(verdict.denial.unwrap().objection(), Objection::Malformed);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "spec",
        "status",
        "metadata",
        "name",
        "shards",
        "version",
        "mode",
        "config",
        "storage",
        "size",
        "clusterName",
        "failover",
        "shard",
        "replicas",
        "resources",
        "limits",
        "memory",
        "conditions",
        "plan",
        "slotsLeft",
        "image",
        "restart",
        "labels",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["Cluster", "7.0", "1Gi", "-1", "9e99", "orders", "\u{0}"]).prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

fn any_spec() -> impl Strategy<Value = Value> {
    (any::<i32>(), any::<i32>(), 0..200_i32, "[0-9]\\.[0-9]", any::<bool>(), any::<i64>(), "[0-9]{1,3}(Mi|Gi|x)")
        .prop_map(|(shards, replicas, percent, version, off, _, size)| {
            json!({
                "shards": shards, "replicasPerShard": replicas, "memory": {"maxPercent": percent}, "version": version,
                "persistence": {"appendOnly": if off { "Off" } else { "Always" }}, "storage": {"size": size},
                "resources": {"limits": {"memory": size}}, "config": {"hz": size, "dir": version}
            })
        })
}

fn world() -> Facts {
    let facts = with_cluster(Facts::default(), "orders", &a_cluster(&json!({}), &json!({"phase": "Ready"})));
    let facts = with_operation(facts, "r", &json!({"clusterName": "orders", "restart": {}}), "Running");
    with_policy(
        facts,
        "platform",
        &json!({"shards": {"max": 9}, "namespaceMemory": "1Gi", "require": ["Backup"], "versions": ["8"]}),
    )
}

proptest! {
    #[test]
    fn every_request_is_answered(object in any_json(), old in any_json(), operation in 0..4_usize, resource in 0..8_usize, kind in 0..6_usize) {
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"][operation];
        let resource = ["redisclusters", "redisclusters/scale", "redisclusters/status", "redisclusters/failover", "redisbackups", "redisoperations", "redispolicies", "pods"][resource];
        let mut review = a_review(operation, resource, &object, &old);
        review["request"]["kind"]["kind"] = json!(["RedisCluster", "Scale", "RedisBackup", "RedisOperation", "RedisPolicy", "Pod"][kind]);
        for stage in [Stage::Mutate, Stage::Validate] {
            let body = serde_json::to_vec(&review).unwrap();
            let request = review::read(&body, stage).unwrap();
            let verdict = webhook::decide(&request, &world());
            let answer: Value = serde_json::from_slice(&review::write(&request, &verdict).unwrap()).unwrap();
            prop_assert_eq!(&answer["response"]["allowed"], &json!(verdict.is_allowed()));
        }
    }

    #[test]
    fn an_update_that_is_identical_to_the_old_object_is_never_refused(spec in any_spec(), used in any::<i64>()) {
        let status = json!({"phase": "Updating", "usedMemory": used, "maxMemory": 1, "keys": 5, "plan": {"slotsLeft": 3}});
        prop_assert_eq!(updated(&spec, &spec, &status, &world()), webhook::decide::Verdict::default());
    }

    #[test]
    fn a_change_that_leaves_every_fault_as_it_was_is_never_refused_for_its_shape(spec in any_spec(), paused: bool) {
        let mut changed = spec.clone();
        changed["paused"] = json!(paused);
        changed["migration"] = json!({"paused": true});
        let verdict = updated(&spec, &changed, &Value::Null, &world());
        prop_assert!(verdict.is_allowed(), "{}", denial(&verdict));
    }

    #[test]
    fn what_was_just_created_can_be_changed_back_and_forth_in_live_fields(first in 1..500_i32, second in 1..500_i32) {
        let hz = |hz: i32| json!({"config": {"hz": hz}});
        prop_assert!(created(&hz(first), &Facts::default()).is_allowed());
        let ready = json!({"phase": "Ready"});
        prop_assert!(updated(&hz(first), &hz(second), &ready, &Facts::default()).is_allowed());
    }
}
