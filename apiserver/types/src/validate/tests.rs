#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{RedisBackup, RedisCluster, RedisOperation, RedisPolicy};

fn of_spec<T: serde::de::DeserializeOwned>(kind: &str, spec: &Value) -> T {
    let object = json!({"apiVersion": "redis.kun.io/v1", "kind": kind, "metadata": {"name": "orders"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn a_cluster(spec: &Value) -> RedisCluster {
    of_spec("RedisCluster", spec)
}

fn texts(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// Path and category of each fault.
fn places(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(|fault| format!("{} {:?}", fault.path, fault.kind)).collect()
}

#[test]
fn a_cluster_that_says_nothing_and_one_that_says_all_are_fine() {
    let all = json!({
        "mode": "Cluster", "version": "7.0.15", "image": "registry.example.com:5000/redis:7.0", "shards": 5, "replicasPerShard": 2,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "1Gi"}},
        "memory": {"maxPercent": 60, "maxBytes": "512Mi", "policy": "allkeys-lru"},
        "persistence": {"appendOnly": "Always", "snapshots": [{"seconds": 900, "changes": 1}, {"seconds": 60, "changes": 10000}]},
        "storage": {"size": "10Gi", "className": "fast.ssd", "retain": "Delete"},
        "config": {"maxclients": 5000, "notify-keyspace-events": "KEA"}, "auth": {"secretName": "my-secret"},
        "failover": {"nodeTimeout": "1500ms", "minReplicasToWrite": 1},
        "migration": {"maxBytesPerSecond": "50Mi", "batchKeys": 10, "maxKeyBytes": "64Mi", "paused": true},
        "backup": {"target": {"directory": {"path": "/srv/backups"}}},
        "deletion": {"policy": "Retain", "protected": true}, "paused": true, "update": {"strategy": "Supervised"},
        "placement": {"spread": "Required", "topologyKeys": ["topology.kubernetes.io/zone"], "nodeSelector": {"disk": "fast"},
            "affinity": {}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "databases"}
    });
    let valkey = json!({"engine": "Valkey", "version": "9", "image": "kun.test/valkey:9"});
    for spec in [json!({}), json!({"mode": "Standalone"}), valkey, all] {
        assert_eq!(texts(&cluster(&a_cluster(&spec))), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn every_fault_of_a_cluster_is_told_at_once() {
    let faults = cluster(&a_cluster(&json!({
        "version": "6.2", "image": "redis", "shards": 2, "replicasPerShard": -1,
        "resources": {"requests": {"memory": "2Gi", "gpu": 1}, "limits": {"memory": "1Gi", "cpu": "x"}},
        "memory": {"maxPercent": 0, "maxBytes": "2Gi"},
        "persistence": {"snapshots": [{"seconds": 0, "changes": 1}, {"seconds": 60, "changes": 1}, {"seconds": 60, "changes": 1}]},
        "storage": {"size": "-1Gi", "className": "A B"},
        "config": {"dir": "/etc", "maxclients": "many", "maxclient": "1"}, "auth": {"secretName": "../x"},
        "failover": {"nodeTimeout": "100ms", "minReplicasToWrite": 3},
        "migration": {"maxBytesPerSecond": "1", "batchKeys": 0, "maxKeyBytes": "1"},
        "backup": {"target": {"directory": {"path": "/a/../b"}, "persistentVolumeClaim": {"claimName": ""}}},
        "placement": {"priorityClassName": "A B"}
    })));
    let expected = [
        "spec.shards Invalid",
        "spec.replicasPerShard Invalid",
        "spec.version Invalid",
        "spec.image Invalid",
        "spec.resources.requests[gpu] NotSupported",
        "spec.resources.limits[cpu] Invalid",
        "spec.resources.requests[memory] Invalid",
        "spec.memory.maxPercent Invalid",
        "spec.memory.maxBytes Invalid",
        "spec.persistence.snapshots[0].seconds Invalid",
        "spec.persistence.snapshots[2] Duplicate",
        "spec.storage.size Invalid",
        "spec.storage.className Invalid",
        "spec.config[dir] Forbidden",
        "spec.config[maxclient] NotSupported",
        "spec.config[maxclients] Invalid",
        "spec.auth.secretName Invalid",
        "spec.failover.nodeTimeout Invalid",
        "spec.failover.minReplicasToWrite Invalid",
        "spec.migration.maxBytesPerSecond Invalid",
        "spec.migration.batchKeys Invalid",
        "spec.migration.maxKeyBytes Invalid",
        "spec.backup.target Forbidden",
        "spec.backup.target.directory.path Invalid",
        "spec.backup.target.persistentVolumeClaim.claimName Required",
        "spec.placement.priorityClassName Invalid",
    ];
    assert_eq!(places(&faults), expected);
}

#[test]
fn a_fault_carries_the_numbers_and_the_reason() {
    let table = [
        (
            json!({"shards": 2}),
            "spec.shards: Invalid value: 2: must be from 3 to 1000: a majority of primaries must survive the loss of one, and gossip is made for at most 1000 nodes",
        ),
        (json!({"mode": "Standalone", "shards": 3}), "spec.shards: Invalid value: 3: must be 1 in mode Standalone"),
        (
            json!({"shards": 500, "replicasPerShard": 2}),
            "spec.shards: Invalid value: 500: shards × (1 + replicasPerShard) is 1500, must be at most 1000 members",
        ),
        (
            json!({"image": "redis:7.2.4-alpine"}),
            "spec.image: Invalid value: \"redis:7.2.4-alpine\": its tag tells version 7.2.4, but spec.version is 7.0",
        ),
        (
            json!({"version": "9"}),
            "spec.version: Invalid value: \"9\": must be in the range >=7.0, <9 with engine Redis",
        ),
        (
            json!({"engine": "Valkey", "version": "7.2"}),
            "spec.version: Invalid value: \"7.2\": must be in the range >=8.0, <9.2 with engine Valkey",
        ),
        (
            json!({"config": {"dir": "/etc"}}),
            "spec.config[dir]: Forbidden: is set by KUN: files lie on the pod's volume under names the agent knows",
        ),
        (json!({"config": {"hz": "0"}}), "spec.config[hz]: Invalid value: \"0\": must be a whole number from 1 to 500"),
        (
            json!({"memory": {"maxBytes": "1Gi"}, "resources": {"limits": {"memory": "1Gi"}}}),
            "spec.memory.maxBytes: Invalid value: \"1Gi\": must be less than the memory limit of 1Gi (spec.resources.limits.memory)",
        ),
    ];
    for (spec, text) in table {
        assert_eq!(texts(&cluster(&a_cluster(&spec))), [text]);
    }
}

#[test]
fn a_name_must_fit_into_those_of_its_children() {
    for (name, fine) in
        [("a", true), ("orders-2", true), ("2orders", false), ("Orders", false), ("a.b", false), ("a-", false)]
    {
        let mut object = a_cluster(&json!({}));
        object.metadata.name = Some(name.to_owned());
        assert_eq!(cluster(&object).is_empty(), fine, "{name}");
    }
    let mut long = a_cluster(&json!({}));
    long.metadata.name = Some("a".repeat(41));
    assert_eq!(places(&cluster(&long)), ["metadata.name Invalid"]);
}

#[test]
fn injections_are_refused_in_every_string_that_reaches_a_file_or_a_command() {
    let tails =
        ["\n", "\r\n", "\0", "\"", "'", "\\", "\u{7f}", "`x`", "$(x)", ";x", " x", "\u{2028}", "{}", "|x", "\t"];
    let mut refused = 0;
    for tail in tails {
        let specs = [
            json!({"version": format!("7.0{tail}")}),
            json!({"image": format!("redis:7.0{tail}")}),
            json!({"storage": {"size": format!("1Gi{tail}")}}),
            json!({"storage": {"size": "1Gi", "className": format!("a{tail}")}}),
            json!({"config": {format!("hz{tail}"): "10"}}),
            json!({"config": {"hz": format!("10{tail}")}}),
            json!({"auth": {"secretName": format!("a{tail}")}}),
            json!({"failover": {"nodeTimeout": format!("5s{tail}")}}),
            json!({"memory": {"maxBytes": format!("64Mi{tail}")}}),
            json!({"migration": {"maxKeyBytes": format!("1Mi{tail}")}}),
            json!({"resources": {"limits": {"memory": format!("1Gi{tail}")}}}),
            json!({"backup": {"target": {"directory": {"path": format!("/srv/a{tail}")}}}}),
            json!({"backup": {"target": {"persistentVolumeClaim": {"claimName": format!("a{tail}")}}}}),
            json!({"placement": {"topologyKeys": [format!("a{tail}")]}}),
            json!({"placement": {"nodeSelector": {format!("a{tail}"): "b"}}}),
            json!({"placement": {"nodeSelector": {"a": format!("b{tail}")}}}),
            json!({"placement": {"priorityClassName": format!("a{tail}")}}),
        ];
        for spec in specs {
            assert_eq!(cluster(&a_cluster(&spec)).len(), 1, "{spec}");
            refused += 1;
        }
        let named = json!({"clusterName": format!("orders{tail}")});
        assert!(!backup(&of_spec("RedisBackup", &named)).is_empty());
        let candidate =
            json!({"clusterName": "orders", "failover": {"shard": 0, "candidate": format!("orders-0-1{tail}")}});
        assert!(!operation(&of_spec("RedisOperation", &candidate)).is_empty());
        refused += 2;
    }
    assert!(refused >= 200, "{refused}");
}

#[test]
fn a_directory_for_backups_is_absolute_plain_and_not_the_systems() {
    let table = [
        ("/srv/backups", true),
        ("/var/lib/kun-backups/a_b", true),
        ("/etcetera", true),
        ("srv", false),
        ("/", false),
        ("/a/", false),
        ("//a", false),
        ("/a/./b", false),
        ("/a/..", false),
        ("/etc", false),
        ("/etc/redis", false),
        ("/proc/self", false),
        ("", false),
        ("/ü", false),
    ];
    for (path, fine) in table {
        let spec = json!({"backup": {"target": {"directory": {"path": path}}}});
        assert_eq!(cluster(&a_cluster(&spec)).is_empty(), fine, "{path}");
    }
}

#[test]
fn what_is_immutable_stays_and_volumes_and_versions_only_grow() {
    let table = [
        (json!({}), json!({}), vec![]),
        (
            json!({}),
            json!({"mode": "Standalone"}),
            vec!["spec.mode: Invalid value: \"Standalone\": is immutable: it is Cluster, and data does not carry over"],
        ),
        (json!({"version": "7.0"}), json!({"version": "7.2"}), vec![]),
        (json!({"version": "7.0.15"}), json!({"version": "7.0"}), vec![]),
        (
            json!({"version": "7.2"}),
            json!({"version": "7.0"}),
            vec![
                "spec.version: Invalid value: \"7.0\": must not go below 7.2, the version of the present spec: Redis does not read files of a later minor version",
            ],
        ),
        (
            json!({}),
            json!({"engine": "Valkey", "version": "8.1"}),
            vec![
                "spec.engine: Invalid value: \"Valkey\": is immutable: it is Redis, and its files are not for another engine",
            ],
        ),
        (
            json!({"engine": "Valkey", "version": "9"}),
            json!({"version": "7.0", "mode": "Standalone"}),
            vec![
                "spec.mode: Invalid value: \"Standalone\": is immutable: it is Cluster, and data does not carry over",
                "spec.engine: Invalid value: \"Redis\": is immutable: it is Valkey, and its files are not for another engine",
            ],
        ),
        (json!({"engine": "Valkey", "version": "8.1"}), json!({"engine": "Valkey", "version": "9"}), vec![]),
        (
            json!({"engine": "Valkey", "version": "9"}),
            json!({"engine": "Valkey", "version": "8.1"}),
            vec![
                "spec.version: Invalid value: \"8.1\": must not go below 9, the version of the present spec: Valkey does not read files of a later minor version",
            ],
        ),
        (json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "2Gi"}}), vec![]),
        (json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "1024Mi"}}), vec![]),
        (
            json!({"storage": {"size": "2Gi"}}),
            json!({"storage": {"size": "1Gi", "className": "x"}}),
            vec![
                "spec.storage.className: Invalid value: \"x\": is immutable: it is the cluster's default",
                "spec.storage.size: Invalid value: \"1Gi\": must be at least 2Gi: a volume cannot shrink",
            ],
        ),
        (
            json!({"storage": {"size": "2Gi"}}),
            json!({}),
            vec!["spec.storage: Forbidden: may not be removed: the data lies on its volumes; make a new cluster"],
        ),
        (
            json!({}),
            json!({"storage": {"size": "2Gi"}}),
            vec!["spec.storage: Forbidden: may not be added: the pods' data lies elsewhere; make a new cluster"],
        ),
    ];
    for (old, new, expected) in table {
        assert_eq!(texts(&cluster_update(&a_cluster(&new), &a_cluster(&old))), expected, "{old} -> {new}");
    }
}

#[test]
fn what_members_run_bounds_a_downgrade_and_a_rollout_that_got_nowhere_may_go_back() {
    let update = |from: &str, running: &str, to: &str| {
        let mut old = a_cluster(&json!({"version": from}));
        old.status = Some(serde_json::from_value(json!({"version": "7.0.15", "highestVersion": running})).unwrap());
        cluster_update(&a_cluster(&json!({"version": to})), &old).is_empty()
    };
    let table = [
        ("7", "7.4.1", "7.0", false),
        ("7", "7.4.1", "7.4", true),
        ("7", "7.4.1", "8", true),
        ("8", "7.4.1", "7", true),
        ("8.0", "7.0.15", "7.0", true),
        ("8.0", "8.0.1", "7.0", false),
        ("8.0", "8.0.1", "7", false),
    ];
    for (from, running, to, fine) in table {
        assert_eq!(update(from, running, to), fine, "{from}, running {running}, to {to}");
    }
}

#[test]
fn a_size_that_no_volume_was_given_may_be_taken_back_and_no_further() {
    let update = |from: &str, volumes: &str, to: &str| {
        let mut old = a_cluster(&json!({"storage": {"size": from}}));
        old.status = Some(serde_json::from_value(json!({"volumeSize": volumes})).unwrap());
        texts(&cluster_update(&a_cluster(&json!({"storage": {"size": to}})), &old))
    };
    let no = |to: &str, least: &str| {
        vec![format!("spec.storage.size: Invalid value: \"{to}\": must be at least {least}: a volume cannot shrink")]
    };
    assert_eq!(update("2Gi", "1Gi", "1Gi"), Vec::<String>::new());
    assert_eq!(update("2Gi", "1Gi", "1023Mi"), no("1023Mi", "1Gi"));
    assert_eq!(update("2Gi", "2Gi", "1Gi"), no("1Gi", "2Gi"));
    // Volumes that came from elsewhere are larger than was asked for.
    assert_eq!(update("2Gi", "5Gi", "2Gi"), Vec::<String>::new());
    assert_eq!(update("2Gi", "5Gi", "3Gi"), Vec::<String>::new());
    assert_eq!(update("2Gi", "5Gi", "1Gi"), no("1Gi", "2Gi"));
    assert_eq!(update("2Gi", "x", "1Gi"), no("1Gi", "2Gi"));
}

#[test]
fn backups_and_operations_are_records_and_do_not_change() {
    let rbk = |spec: &Value| of_spec::<RedisBackup>("RedisBackup", spec);
    let old = rbk(&json!({"clusterName": "orders"}));
    let new = rbk(
        &json!({"clusterName": "other", "deletionPolicy": "Delete", "ttlAfterFinished": "1h", "target": {"directory": {"path": "/a"}}}),
    );
    assert_eq!(places(&backup_update(&new, &old)), ["spec.clusterName Invalid", "spec.target Forbidden"]);
    let rop = |spec: &Value| of_spec::<RedisOperation>("RedisOperation", spec);
    let old = rop(&json!({"clusterName": "orders", "failover": {"shard": 1}, "cancel": true}));
    let new = rop(&json!({"clusterName": "orders", "restart": {}, "ttlAfterFinished": "1m"}));
    let expected = ["spec.failover Forbidden", "spec.restart Forbidden", "spec.cancel Forbidden"];
    assert_eq!(places(&operation_update(&new, &old)), expected);
    assert_eq!(operation_update(&old, &old), []);
}

#[test]
fn a_cancellation_that_had_no_effect_may_be_taken_back() {
    for (phase, may) in
        [("Pending", false), ("Running", false), ("Cancelled", false), ("Succeeded", true), ("Failed", true)]
    {
        let of = |cancel: bool| -> RedisOperation {
            let spec = json!({"clusterName": "orders", "restart": {}, "cancel": cancel});
            serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec, "status": {"phase": phase}}))
                .unwrap()
        };
        assert_eq!(operation_update(&of(false), &of(true)).is_empty(), may, "{phase}");
        assert_eq!(operation_update(&of(true), &of(false)), [], "{phase}");
    }
}

#[test]
fn an_operation_is_exactly_one_action() {
    let faults = |spec: Value| places(&operation(&of_spec("RedisOperation", &spec)));
    assert_eq!(faults(json!({"clusterName": "orders", "restart": {"shards": [0, 2]}})), Vec::<String>::new());
    assert_eq!(faults(json!({})), ["spec.clusterName Required", "spec Required"]);
    let both = json!({"clusterName": "orders", "restart": {"shards": [1, 1, -1]}, "failover": {"shard": 1000, "reason": "a\u{7}"}, "ttlAfterFinished": "soon"});
    assert_eq!(
        faults(both),
        [
            "spec Forbidden",
            "spec.failover.shard Invalid",
            "spec.failover.reason Invalid",
            "spec.restart.shards[1] Duplicate",
            "spec.restart.shards[2] Invalid",
            "spec.ttlAfterFinished Invalid",
        ]
    );
}

#[test]
fn a_policy_is_checked_in_every_rule() {
    let fine = json!({
        "namespaceSelector": {"matchLabels": {"kun.io/team": "a"}, "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]},
        "versions": [">=7.0, <9"], "images": ["docker.io/library/redis:"], "shards": {"min": 3, "max": 9}, "memoryPerPod": {"max": "4Gi"},
        "namespaceMemory": "64Gi", "require": ["Backup", "Persistence"], "forbiddenConfig": ["maxclients"], "message": "ask platform@example.com"
    });
    assert_eq!(policy(&of_spec::<RedisPolicy>("RedisPolicy", &fine)), []);
    let wrong = json!({
        "namespaceSelector": {"matchLabels": {"a b": "c d"}, "matchExpressions": [{"key": "e", "operator": "In"}, {"key": "e", "operator": "Exists", "values": ["x"]}]},
        "versions": ["new"], "images": [""], "shards": {"min": 5, "max": 3}, "replicasPerShard": {"min": -1}, "memoryPerPod": {"min": "2Gi", "max": "1Gi"},
        "storagePerPod": {"min": "x"}, "namespaceMemory": "-1", "require": ["Backup", "Backup"], "forbiddenConfig": ["dir"], "message": "a\nb"
    });
    assert_eq!(
        places(&policy(&of_spec::<RedisPolicy>("RedisPolicy", &wrong))),
        [
            "spec.namespaceSelector.matchLabels[a b] Invalid",
            "spec.namespaceSelector.matchLabels[a b] Invalid",
            "spec.namespaceSelector.matchExpressions[0].values Required",
            "spec.namespaceSelector.matchExpressions[1].values Forbidden",
            "spec.versions[0] Invalid",
            "spec.images[0] Invalid",
            "spec.shards.max Invalid",
            "spec.replicasPerShard.min Invalid",
            "spec.memoryPerPod.max Invalid",
            "spec.storagePerPod.min Invalid",
            "spec.namespaceMemory Invalid",
            "spec.require[1] Duplicate",
            "spec.forbiddenConfig[0] Invalid",
            "spec.message Invalid",
        ]
    );
}

#[test]
fn a_protected_cluster_is_not_deletable() {
    assert_eq!(deletable(&a_cluster(&json!({}))), Ok(()));
    let fault = deletable(&a_cluster(&json!({"deletion": {"protected": true}}))).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "spec.deletion.protected: Forbidden: the RedisCluster is protected from deletion; set spec.deletion.protected to false first"
    );
}

proptest! {
    #[test]
    fn validation_is_total_on_absurd_numbers(shards: i32, replicas: i32, percent: i32, seconds: i32, batch: i32, least: i32) {
        let spec = json!({
            "shards": shards, "replicasPerShard": replicas, "memory": {"maxPercent": percent}, "migration": {"batchKeys": batch},
            "persistence": {"snapshots": [{"seconds": seconds, "changes": seconds}]}, "failover": {"minReplicasToWrite": least}
        });
        let faults = cluster(&a_cluster(&spec));
        let shape = (3..=1000).contains(&shards) && (0..=5).contains(&replicas);
        prop_assert!(shape || !faults.is_empty());
    }

    #[test]
    fn an_object_replaced_by_itself_has_no_fault_of_transition(version in "[0-9]\\.[0-9]", size in "[0-9]{1,3}(Gi|Mi)?") {
        let object = a_cluster(&json!({"version": version, "storage": {"size": size}}));
        prop_assert_eq!(cluster_update(&object, &object), vec![]);
    }
}
