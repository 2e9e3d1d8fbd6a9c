//! What a specification means for its data, told once in one sentence.

use crate::asking::{a_careful_spec, a_cluster, ask, created, denial, updated, with_cluster};
use serde_json::{Value, json};
use webhook::Facts;

const NO_REPLICA: &str = "spec.replicasPerShard: with 0 the slots of a shard are away while its member restarts or its node is down, and what \
                          is not on disk is lost with it";
const NO_VOLUME: &str = "spec.storage: without it what persistence writes lies in the pod and goes with it: a shard whose pods are all deleted \
                         comes back empty";
const NOTHING_WRITTEN: &str = "spec.persistence: nothing is written to the volumes of spec.storage: a shard whose members all stop \
                               unexpectedly comes back empty";
const NO_LIMIT: &str = "spec.resources.limits.memory: without it Redis has no maxmemory and grows until its node has no memory left, where the \
                        kernel ends whom it chooses";
const NO_SNAPSHOT: &str = "spec.persistence.snapshots: none is due within 86400 seconds and 1000000 writes: a crash of a whole shard loses \
                           everything written since the last one";
const EVERYBODY: &str = "spec.networkPolicy.clients: an empty list lets everybody in who reaches the pods, as an empty from of a NetworkPolicy \
                         does; name those who may reach Redis";

const UNSYNCED: &str = "spec.config: with no-appendfsync-on-rewrite the append-only file is not synced while it is written anew, a snapshot is \
                        saved or a replica is sent everything: a loss of power costs all writes since then";

/// A careful specification but for this.
fn but(changes: &Value) -> Value {
    let mut spec = a_careful_spec();
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

fn snapshots(points: &Value) -> Value {
    json!({"persistence": {"appendOnly": "Off", "snapshots": points}})
}

/// What is changed about a careful specification, and what is said of it.
fn table() -> Vec<(Value, Vec<&'static str>)> {
    let point = |seconds: i32, changes: i32| json!({"seconds": seconds, "changes": changes});
    vec![
        (json!({}), vec![]),
        (json!({"replicasPerShard": 0}), vec![NO_REPLICA]),
        // Who asks for one server knows that it is one.
        (json!({"mode": "Standalone"}), vec![]),
        (json!({"storage": null}), vec![NO_VOLUME]),
        // A cache on purpose.
        (json!({"storage": null, "persistence": {"appendOnly": "Off"}}), vec![]),
        (json!({"persistence": {"appendOnly": "Off"}}), vec![NOTHING_WRITTEN]),
        (json!({"resources": null}), vec![NO_LIMIT]),
        (json!({"resources": {"requests": {"memory": "1Gi"}}}), vec![NO_LIMIT]),
        (json!({"resources": null, "memory": {"maxBytes": "1Gi"}}), vec![]),
        (snapshots(&json!([point(3600, 1)])), vec![]),
        (snapshots(&json!([point(86_400, 1_000_000)])), vec![]),
        (snapshots(&json!([point(86_401, 1), point(60, 1_000_001)])), vec![NO_SNAPSHOT]),
        (json!({"persistence": {"snapshots": [point(86_401, 1)]}}), vec![]),
        (json!({"config": {"no-appendfsync-on-rewrite": "yes"}}), vec![UNSYNCED]),
        (json!({"config": {"no-appendfsync-on-rewrite": "no"}}), vec![]),
        (
            json!({"config": {"no-appendfsync-on-rewrite": "yes"}, "persistence": {"appendOnly": "Off", "snapshots": [point(60, 1)]}}),
            vec![],
        ),
        (json!({"networkPolicy": {"clients": []}}), vec![EVERYBODY]),
        (json!({"networkPolicy": {"clients": [{"podSelector": {}}]}}), vec![]),
        (json!({"networkPolicy": {"enabled": false, "clients": []}}), vec![]),
        (json!({"replicasPerShard": 0, "storage": null, "resources": null}), vec![NO_REPLICA, NO_VOLUME, NO_LIMIT]),
    ]
}

#[test]
fn a_new_cluster_is_told_what_its_specification_means() {
    for (changes, told) in table() {
        let verdict = created(&but(&changes), &Facts::default());
        assert!(verdict.is_allowed(), "{changes}: {}", denial(&verdict));
        assert_eq!(verdict.warnings, told, "{changes}");
        assert!(told.iter().all(|text| text.len() <= 255), "the API server cuts what is longer");
    }
}

#[test]
fn the_change_that_causes_it_is_told_and_no_later_one() {
    for (changes, told) in table() {
        let mode = changes.get("mode").map_or_else(|| json!({}), |mode| json!({"mode": mode}));
        let careful = but(&mode);
        let empty = json!({"phase": "Ready", "keys": 0, "usedMemory": 0, "maxMemory": 805_306_368});
        let caused = updated(&careful, &but(&changes), &empty, &Facts::default());
        // What volumes a cluster has does not change.
        if changes.get("storage").is_none() {
            assert_eq!(caused.warnings, told, "{changes}: {}", denial(&caused));
        }
        let mut later = but(&changes);
        later["config"] = json!({"hz": "20"});
        assert_eq!(
            updated(&but(&changes), &later, &empty, &Facts::default()).warnings,
            Vec::<String>::new(),
            "{changes}"
        );
        let better = updated(&but(&changes), &careful, &empty, &Facts::default());
        assert_eq!(better.warnings, Vec::<String>::new(), "{changes}");
    }
}

#[test]
fn another_secret_says_that_members_have_two_passwords_on_the_way() {
    let holding = json!({"phase": "Ready", "keys": 1000, "usedMemory": 1000, "maxMemory": 805_306_368});
    let of = |secret: Value| but(&json!({"auth": {"secretName": secret}}));
    let text = "spec.auth.secretName: members restart one by one and take the new Secret's password then, the others the former one. If both \
                Secrets hold the same, no client notices: then change it in the new one once UpToDate is True";
    assert!(text.len() <= 255, "the API server cuts what is longer");
    let warned = |old: &Value, new: &Value| updated(old, new, &holding, &Facts::default()).warnings;
    let (none, named) = (a_careful_spec(), of(json!("orders-auth")));
    for (old, new) in [(&none, of(json!("mine"))), (&of(json!("mine")), none.clone())] {
        assert_eq!(warned(old, &new), [text], "{new}");
    }
    assert_eq!([warned(&none, &named), warned(&named, &of(Value::Null))], [const { Vec::<String>::new() }; 2]);
}

#[test]
fn data_is_not_left_to_a_snapshot_that_never_comes() {
    let holding = json!({"phase": "Ready", "keys": 1000, "usedMemory": 1000, "maxMemory": 805_306_368});
    let rare = but(&snapshots(&json!([{"seconds": 86_401, "changes": 1}])));
    let verdict = updated(&a_careful_spec(), &rare, &holding, &Facts::default());
    assert_eq!(
        denial(&verdict),
        "spec.persistence: Forbidden: the cluster holds 1000 keys that would no longer be written to disk; keep an append-only file or a \
         snapshot that is due within 86400 seconds and 1000000 writes"
    );
    let often = but(&snapshots(&json!([{"seconds": 3600, "changes": 1}])));
    assert!(updated(&a_careful_spec(), &often, &holding, &Facts::default()).is_allowed());
}

#[test]
fn scaling_in_with_a_policy_that_evicts_says_that_keys_may_go() {
    let status = json!({"phase": "Ready", "keys": 1000, "usedMemory": 1000, "maxMemory": 805_306_368});
    let of = |policy: &str, shards: i32| but(&json!({"shards": shards, "memory": {"policy": policy}}));
    let text = |path: &str, policy: &str| {
        vec![format!(
            "{path}: the shards that stay fill up while slots move; with spec.memory.policy {policy} a full one drops keys instead of refusing \
             writes"
        )]
    };
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let verdict = updated(&of(policy, 5), &of(policy, 4), &status, &Facts::default());
        assert!(verdict.is_allowed(), "{}", denial(&verdict));
        assert_eq!(verdict.warnings, text("spec.shards", policy));
        assert_eq!(updated(&of(policy, 4), &of(policy, 5), &status, &Facts::default()).warnings, Vec::<String>::new());
    }
    let kept = updated(&of("noeviction", 5), &of("noeviction", 4), &status, &Facts::default());
    assert_eq!(kept, webhook::decide::Verdict::default());
    // The same in the words of a Scale, which is what an autoscaler changes.
    let facts = with_cluster(Facts::default(), "orders", &a_cluster(&of("allkeys-lru", 5), &status));
    let scale = |replicas: i32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "orders", "namespace": "shop"}, "spec": {"replicas": replicas}});
    let verdict = ask("UPDATE", "redisclusters/scale", &scale(4), &scale(5), &facts);
    assert_eq!(verdict.warnings, text("spec.shards", "allkeys-lru"));
}
