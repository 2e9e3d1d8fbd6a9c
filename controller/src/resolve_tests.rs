#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use serde_json::{Value, json};
use types::operation::{OperationPhase, RedisOperationStatus, RestartAction};

use super::*;
use crate::testing::{cluster, gathered, resolved, try_resolve};

#[test]
fn every_default_is_filled() {
    let resolved = resolved(&json!({}));
    assert_eq!((resolved.shards, resolved.members), (3, 2));
    assert_eq!(resolved.image, "docker.io/library/redis:7.0");
    assert_eq!(resolved.node_timeout, Duration::from_secs(5));
    assert_eq!(resolved.agent.node_timeout_millis, 5000);
    assert_eq!(resolved.auth_secret, "orders-auth");
    assert_eq!(resolved.credentials.application.as_deref(), Some("s3cret"));
    let moving = Moving { max_bytes_per_second: None, batch_keys: 1000, max_key_bytes: 512 << 20, paused: false };
    assert_eq!((resolved.migration, resolved.max_memory, resolved.storage), (moving, None, None));
    let alone = crate::testing::resolved(&json!({"mode": "Standalone"}));
    assert_eq!((alone.shards, alone.members), (1, 1));
}

#[test]
fn maxmemory_is_the_users_figure_or_a_share_of_the_limit() {
    let spec = |memory: Value| json!({"resources": {"limits": {"memory": "1000"}}, "memory": memory});
    assert_eq!(resolved(&spec(json!({}))).max_memory, Some(750));
    assert_eq!(resolved(&spec(json!({"maxPercent": 50}))).max_memory, Some(500));
    assert_eq!(resolved(&spec(json!({"maxBytes": "400"}))).max_memory, Some(400));
}

#[test]
fn what_cannot_be_worked_with_names_its_field() {
    let table = [
        (json!({"shards": 0}), "spec.shards: 0 is not between 1 and 16384"),
        (json!({"replicasPerShard": -1}), "spec.replicasPerShard: -1 is not between 0 and 1000"),
        (json!({"memory": {"maxPercent": 101}}), "spec.memory.maxPercent: 101 is not between 1 and 100"),
        (json!({"storage": {"size": "lots"}}), "spec.storage.size: \"lots\" is not a quantity"),
        (json!({"failover": {"nodeTimeout": "soon"}}), "spec.failover.nodeTimeout: \"soon\" is not a duration"),
        (json!({"migration": {"batchKeys": 0}}), "spec.migration.batchKeys: 0 is not between 1 and 65535"),
    ];
    for (spec, expected) in table {
        let error = try_resolve(&gathered(cluster(&spec))).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn volumes_outlive_the_cluster_unless_both_say_delete() {
    let table = [
        (json!({"storage": {"size": "1Gi"}}), Retain::Retain),
        (json!({"storage": {"size": "1Gi", "retain": "Delete"}}), Retain::Delete),
        (json!({"storage": {"size": "1Gi", "retain": "Delete"}, "deletion": {"policy": "Retain"}}), Retain::Retain),
        (json!({}), Retain::Delete),
    ];
    for (spec, expected) in table {
        assert_eq!(resolved(&spec).retain_on_delete, expected, "{spec}");
    }
}

fn approved(annotation: Option<&str>) -> Approval {
    let mut cluster = cluster(&json!({"update": {"strategy": "Supervised"}}));
    let value = annotation.map(str::to_owned);
    cluster.metadata.annotations = value.map(|v| [(names::ANNOTATION_APPROVE.to_owned(), v)].into());
    try_resolve(&gathered(cluster)).unwrap().approval
}

#[test]
fn a_supervised_update_proceeds_only_as_far_as_this_generation_is_approved() {
    assert_eq!(resolved(&json!({})).approval, Approval::All);
    assert_eq!(approved(None), Approval::Shards([].into()));
    assert_eq!(approved(Some("3:0, 2")), Approval::Shards([0, 2].into()));
    assert_eq!(approved(Some("3:*")), Approval::All);
    assert_eq!(approved(Some("2:*")), Approval::Shards([].into()));
    assert_eq!(approved(Some("nonsense")), Approval::Shards([].into()));
}

#[test]
fn a_restart_that_runs_marks_the_shards_it_names_and_a_cancelled_one_none() {
    let mut operation = RedisOperation::default();
    operation.metadata.uid = Some("op-1".to_owned());
    operation.spec.cluster_name = "orders".to_owned();
    operation.spec.restart = Some(RestartAction { shards: vec![1], reason: None });
    operation.status = Some(RedisOperationStatus { phase: OperationPhase::Running, ..RedisOperationStatus::default() });
    let mut gathered = gathered(cluster(&json!({})));
    gathered.operations = vec![std::sync::Arc::new(operation.clone())];
    assert_eq!(try_resolve(&gathered).unwrap().restarted_by, [(1, "op-1".to_owned())].into());
    operation.spec.cancel = true;
    gathered.operations = vec![std::sync::Arc::new(operation)];
    assert_eq!(try_resolve(&gathered).unwrap().restarted_by, [].into());
}

#[test]
fn another_spelling_of_an_amount_makes_no_other_objects() {
    let objects = |size: &str, cpu: &str, memory: &str| {
        let spec = json!({"shards": 1, "storage": {"size": size},
            "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}});
        crate::build::build(&try_resolve(&gathered(cluster(&spec))).unwrap())
            .unwrap()
            .stateful_sets
            .into_iter()
            .map(|set| set.spec)
            .collect::<Vec<_>>()
    };
    let plain = objects("1Gi", "1", "512Mi");
    for (size, cpu, memory) in [
        ("1024Mi", "1000m", "524288Ki"),
        ("1048576Ki", "1.0", "536870912"),
        ("1073741824", "1e0", "0.5Gi"),
        ("+1Gi", "1000000u", "536870912000m"),
    ] {
        assert_eq!(objects(size, cpu, memory), plain, "{size} {cpu} {memory}");
    }
    assert_ne!(objects("1G", "1", "512Mi"), plain);
}
