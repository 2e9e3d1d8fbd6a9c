//! What RedisPolicies refuse, warn of and let through.

use crate::asking::{a_cluster, ask, created, denial, updated, with_cluster, with_namespace, with_policy};
use serde_json::{Value, json};
use webhook::{Facts, decide::Objection};

fn under(policy: &Value) -> Facts {
    with_policy(Facts::default(), "platform", policy)
}

#[test]
#[allow(clippy::too_many_lines, reason = "one row per rule of a policy")]
fn each_rule_refuses_what_breaks_it_and_says_so() {
    let limits = |memory: &str| json!({"resources": {"limits": {"memory": memory}}});
    let table = [
        (
            json!({"engines": ["Valkey"]}),
            json!({}),
            "spec.engine: Forbidden: RedisPolicy \"platform\" allows engines Valkey, not Redis",
        ),
        (
            json!({"engines": ["Redis"]}),
            json!({"engine": "Valkey", "version": "8.1"}),
            "spec.engine: Forbidden: RedisPolicy \"platform\" allows engines Redis, not Valkey",
        ),
        (
            json!({"versions": [">=7.2", "8"]}),
            json!({}),
            "spec.version: Forbidden: RedisPolicy \"platform\" allows versions >=7.2 or 8, not 7.0",
        ),
        (
            json!({"images": ["registry.example.com/"]}),
            json!({}),
            "spec.image: Forbidden: RedisPolicy \"platform\" allows images that begin with registry.example.com/, not docker.io/library/redis:7.0",
        ),
        (
            json!({"images": ["docker.io/library/"]}),
            json!({"engine": "Valkey", "version": "9"}),
            "spec.image: Forbidden: RedisPolicy \"platform\" allows images that begin with docker.io/library/, not docker.io/valkey/valkey:9",
        ),
        (
            json!({"shards": {"max": 9}}),
            json!({"shards": 12}),
            "spec.shards: Forbidden: RedisPolicy \"platform\" allows at most 9 shards, this would have 12",
        ),
        (
            json!({"replicasPerShard": {"min": 2}}),
            json!({}),
            "spec.replicasPerShard: Forbidden: RedisPolicy \"platform\" wants at least 2 replicas per shard, this would have 1",
        ),
        (
            json!({"memoryPerPod": {"max": "4Gi"}}),
            limits("8Gi"),
            "spec.resources.limits.memory: Forbidden: RedisPolicy \"platform\" allows at most 4Gi memory per pod, this would have 8Gi",
        ),
        (
            json!({"memoryPerPod": {"max": "4Gi"}}),
            json!({}),
            "spec.resources.limits.memory: Forbidden: RedisPolicy \"platform\" bounds memory per pod (such as 4Gi), this has none",
        ),
        (
            json!({"storagePerPod": {"min": "8Gi"}}),
            json!({"storage": {"size": "1Gi"}}),
            "spec.storage.size: Forbidden: RedisPolicy \"platform\" wants at least 8Gi storage per pod, this would have 1Gi",
        ),
        (
            json!({"namespaceMemory": "10Gi"}),
            limits("2Gi"),
            "spec.resources.limits.memory: Forbidden: RedisPolicy \"platform\" allows 10Gi of memory in the namespace; this cluster would take 12Gi and the others take 0, 2Gi too much",
        ),
        (
            json!({"require": ["Persistence"]}),
            json!({}),
            "spec.storage: Forbidden: RedisPolicy \"platform\" requires persistence: spec.storage, and an append-only file or snapshots",
        ),
        (
            json!({"require": ["Backup"]}),
            json!({}),
            "spec.backup: Forbidden: RedisPolicy \"platform\" requires a backup target",
        ),
        (
            json!({"require": ["Replicas"]}),
            json!({"replicasPerShard": 0}),
            "spec.replicasPerShard: Forbidden: RedisPolicy \"platform\" requires at least one replica per shard",
        ),
        (
            json!({"require": ["DeletionProtection"]}),
            json!({}),
            "spec.deletion.protected: Forbidden: RedisPolicy \"platform\" requires protection from deletion",
        ),
        (
            json!({"forbiddenConfig": ["maxclients"]}),
            json!({"config": {"maxclients": "100"}}),
            "spec.config[maxclients]: Forbidden: RedisPolicy \"platform\" does not allow the parameter maxclients",
        ),
    ];
    for (policy, spec, text) in table {
        let verdict = created(&spec, &under(&policy));
        assert_eq!(denial(&verdict), text);
        assert_eq!(verdict.denial.unwrap().objection(), Objection::Forbidden);
    }
}

#[test]
fn what_keeps_every_rule_is_allowed() {
    let policy = json!({
        "engines": ["Redis", "Valkey"], "versions": [">=7.0, <9"], "images": ["docker.io/library/redis:"], "shards": {"min": 3, "max": 3}, "replicasPerShard": {"min": 1},
        "memoryPerPod": {"min": "1Gi", "max": "1Gi"}, "storagePerPod": {"max": "10Gi"}, "namespaceMemory": "6Gi",
        "require": ["Persistence", "Backup", "Replicas", "DeletionProtection"], "forbiddenConfig": ["hz"]
    });
    let spec = json!({
        "resources": {"limits": {"memory": "1Gi"}}, "storage": {"size": "10Gi"}, "deletion": {"protected": true},
        "backup": {"target": {"directory": {"path": "/srv/backups"}}}, "config": {"timeout": "60"}
    });
    assert_eq!(created(&spec, &under(&policy)), webhook::decide::Verdict::default());
}

#[test]
fn the_message_of_the_platform_team_follows_the_reason() {
    let policy = json!({"shards": {"max": 3}, "message": "ask platform@example.com"});
    assert!(
        denial(&created(&json!({"shards": 5}), &under(&policy)))
            .ends_with("this would have 5: ask platform@example.com")
    );
}

#[test]
fn a_policy_that_warns_or_audits_lets_through() {
    let five = json!({"shards": 5, "resources": {"limits": {"memory": "1Gi"}}, "storage": {"size": "1Gi"}});
    let warned = created(&five, &under(&json!({"shards": {"max": 3}, "action": "Warn"})));
    assert!(warned.is_allowed());
    assert_eq!(warned.warnings, ["spec.shards: RedisPolicy \"platform\" allows at most 3 shards, this would have 5"]);
    let audited = created(&five, &under(&json!({"shards": {"max": 3}, "action": "Audit"})));
    assert!(audited.is_allowed() && audited.warnings.is_empty());
    assert_eq!(
        audited.audit["policy-platform"],
        "spec.shards: RedisPolicy \"platform\" allows at most 3 shards, this would have 5"
    );
}

#[test]
fn a_policy_binds_only_what_is_made_worse() {
    let facts = under(&json!({"shards": {"max": 9}, "versions": [">=7.4"], "require": ["Backup"]}));
    let shards = |from: i32, to: i32| {
        updated(
            &json!({"shards": from, "config": {"hz": "10"}}),
            &json!({"shards": to, "config": {"hz": "20"}}),
            &Value::Null,
            &facts,
        )
    };
    assert_eq!(shards(12, 12).warnings.len(), 3);
    assert!(shards(12, 12).is_allowed() && shards(12, 10).is_allowed());
    let worse = denial(&shards(12, 13));
    assert_eq!(worse, "spec.shards: Forbidden: RedisPolicy \"platform\" allows at most 9 shards, this would have 13");
    let version = updated(&json!({"version": "7.0"}), &json!({"version": "7.2"}), &Value::Null, &facts);
    assert!(denial(&version).contains("allows versions >=7.4, not 7.2"));
    let backup = json!({"backup": {"target": {"directory": {"path": "/srv/backups"}}}});
    assert!(!updated(&backup, &json!({}), &Value::Null, &facts).is_allowed());
}

/// Before, from 7Gi below the least to 7Gi above the most was as good as no change.
#[test]
fn a_change_that_leaves_bounds_on_the_other_side_is_worse() {
    let policy = json!({"shards": {"min": 5, "max": 7}, "memoryPerPod": {"min": "8Gi", "max": "16Gi"}, "storagePerPod": {"min": "8Gi", "max": "16Gi"}});
    let facts = under(&policy);
    let spec = |(shards, memory, storage): (i32, &str, &str)| json!({"shards": shards, "resources": {"limits": {"memory": memory}}, "storage": {"size": storage}});
    let changed =
        |from: (i32, &str, &str), to: (i32, &str, &str)| denial(&updated(&spec(from), &spec(to), &Value::Null, &facts));
    assert_eq!(changed((3, "1Gi", "1Gi"), (4, "2Gi", "2Gi")), "", "nearer on the same side");
    let other = [
        (
            (3, "8Gi", "8Gi"),
            (9, "8Gi", "8Gi"),
            "spec.shards: Forbidden: RedisPolicy \"platform\" allows at most 7 shards, this would have 9",
        ),
        ((5, "1Gi", "8Gi"), (5, "23Gi", "8Gi"), "allows at most 16Gi memory per pod, this would have 23Gi"),
        ((5, "23Gi", "8Gi"), (5, "7Gi", "8Gi"), "wants at least 8Gi memory per pod, this would have 7Gi"),
        ((5, "8Gi", "1Gi"), (5, "8Gi", "23Gi"), "allows at most 16Gi storage per pod, this would have 23Gi"),
    ];
    for (from, to, why) in other {
        let told = changed(from, to);
        assert!(told.ends_with(why), "{from:?} to {to:?}: {told}");
    }
}

/// Before, nothing told one cluster without a limit from another, so that 3 shards of it could become 300.
#[test]
fn a_cluster_of_unknown_memory_does_not_grow_where_memory_counts() {
    let spec = |shards: i32, replicas: i32, most: Option<&str>| {
        let memory = most.map_or_else(|| json!({}), |most| json!({"maxBytes": most}));
        json!({"shards": shards, "replicasPerShard": replicas, "memory": memory})
    };
    let facts = |action: &str| under(&json!({"namespaceMemory": "64Gi", "action": action}));
    let deny = facts("Deny");
    let changed = |from: &Value, to: &Value, facts: &Facts| updated(from, to, &Value::Null, facts);
    let why = "allows 64Gi of memory in the namespace, so every pod needs a limit; this has none";
    let bounded = spec(3, 1, Some("1Gi"));
    let larger = [
        (spec(3, 1, None), spec(300, 1, None)),
        (spec(3, 1, None), spec(3, 2, None)),
        (bounded.clone(), spec(3, 1, Some("2Gi"))),
        (bounded.clone(), spec(3, 1, None)),
        (spec(3, 1, None), spec(300, 1, Some("1Gi"))),
        (spec(3, 1, Some("100Gi")), spec(300, 1, Some("1Gi"))),
    ];
    for (from, to) in larger {
        let told = denial(&changed(&from, &to, &deny));
        assert!(told.ends_with(why), "{from} to {to}: {told}");
    }
    for to in [spec(3, 0, None), bounded] {
        let verdict = changed(&spec(3, 1, None), &to, &deny);
        assert_eq!(denial(&verdict), "", "{to}");
        assert!(verdict.warnings.iter().any(|text| text.ends_with(&format!("{why} (not made worse)"))), "{to}");
    }
    let warned = changed(&spec(3, 1, None), &spec(300, 1, None), &facts("Warn"));
    assert!(warned.is_allowed() && warned.warnings.iter().any(|text| text.ends_with(why)));
}

#[test]
fn a_policy_does_not_hold_up_a_deletion_or_a_change_that_leaves_the_spec() {
    let facts = under(&json!({"shards": {"max": 3}}));
    let cluster = a_cluster(&json!({"shards": 5}), &Value::Null);
    assert!(ask("DELETE", "redisclusters", &Value::Null, &cluster, &facts).is_allowed());
    let mut labelled = cluster.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(ask("UPDATE", "redisclusters", &labelled, &cluster, &facts), webhook::decide::Verdict::default());
}

#[test]
fn the_memory_of_a_namespace_counts_every_cluster_in_it_but_the_one_that_changes_only_once() {
    let spec = |shards: i32| json!({"shards": shards, "resources": {"limits": {"memory": "1Gi"}}});
    let facts = with_policy(Facts::default(), "quota", &json!({"namespaceMemory": "14Gi"}));
    let facts = with_cluster(facts, "orders", &a_cluster(&spec(3), &Value::Null));
    let facts = with_cluster(facts, "carts", &a_cluster(&spec(3), &Value::Null));
    assert!(updated(&spec(3), &spec(4), &Value::Null, &facts).is_allowed());
    let text = denial(&updated(&spec(3), &spec(5), &Value::Null, &facts));
    assert!(
        text.ends_with(
            "allows 14Gi of memory in the namespace; this cluster would take 10Gi and the others take 6Gi, 2Gi too much"
        ),
        "{text}"
    );
}

#[test]
fn a_policy_binds_the_namespaces_it_selects() {
    let policy = json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}, "shards": {"max": 3}});
    let facts = |labels: Value| with_namespace(under(&policy), &labels);
    assert!(!created(&json!({"shards": 5}), &facts(json!({"env": "prod"}))).is_allowed());
    assert!(created(&json!({"shards": 5}), &facts(json!({"env": "test"}))).is_allowed());
    let unknown = created(&json!({}), &under(&policy));
    assert_eq!(unknown.denial.unwrap().objection(), Objection::Unknown);
}

#[test]
fn scaling_is_held_against_policies_too() {
    let scale =
        |replicas: i32| json!({"kind": "Scale", "metadata": {"name": "orders"}, "spec": {"replicas": replicas}});
    let facts = with_cluster(under(&json!({"shards": {"max": 4}})), "orders", &a_cluster(&json!({}), &Value::Null));
    let verdict = ask("UPDATE", "redisclusters/scale", &scale(5), &scale(3), &facts);
    assert_eq!(
        denial(&verdict),
        "spec.replicas: Forbidden: RedisPolicy \"platform\" allows at most 4 shards, this would have 5"
    );
}
