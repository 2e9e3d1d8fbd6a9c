//! Objects read for a decision: only the fields a decision looks at are built, everything else is skipped over.
//!
//! An object of 6 KB is mostly managedFields and the members of its status; skipping them is what makes a review cheap.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::value::RawValue;
use types::{
    Condition, RedisBackup, RedisCluster, RedisOperation, RedisPolicy,
    backup::RedisBackupSpec,
    cluster::{Phase, PlanStatus, RedisClusterSpec, RedisClusterStatus, ShardStatus},
    operation::RedisOperationSpec,
    policy::RedisPolicySpec,
};

#[derive(Deserialize)]
struct Lean<Spec, Status> {
    #[serde(default)]
    metadata: Meta,
    spec: Spec,
    #[serde(default = "none")]
    status: Option<Status>,
}

fn none<T>() -> Option<T> {
    None
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    deletion_timestamp: Option<Time>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        let Meta { name, namespace, deletion_timestamp, labels } = meta;
        Self { name, namespace, deletion_timestamp, labels, ..Self::default() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ClusterStatus {
    phase: Option<Phase>,
    conditions: Vec<Condition>,
    shards: Vec<Shard>,
    plan: Option<PlanStatus>,
    operation: Option<String>,
    version: Option<String>,
    keys: Option<i64>,
    used_memory: Option<i64>,
    max_memory: Option<i64>,
}

#[derive(Deserialize)]
struct Shard {
    index: i32,
}

/// The status of other kinds is not looked at.
#[derive(Deserialize)]
struct Nothing {}

/// A RedisCluster whose status has no members, endpoints and slots.
pub(crate) fn cluster(raw: &RawValue) -> Result<RedisCluster, serde_json::Error> {
    let lean: Lean<RedisClusterSpec, ClusterStatus> = serde_json::from_str(raw.get())?;
    let status = lean.status.map(|status| {
        let ClusterStatus { phase, conditions, shards, plan, operation, version, keys, used_memory, max_memory } =
            status;
        let shards = shards.into_iter().map(|shard| ShardStatus { index: shard.index, ..Default::default() }).collect();
        RedisClusterStatus {
            phase,
            conditions,
            shards,
            plan,
            operation,
            version,
            keys,
            used_memory,
            max_memory,
            ..Default::default()
        }
    });
    Ok(RedisCluster { metadata: lean.metadata.into(), spec: lean.spec, status, ..Default::default() })
}

/// A RedisBackup without status.
pub(crate) fn backup(raw: &RawValue) -> Result<RedisBackup, serde_json::Error> {
    let lean: Lean<RedisBackupSpec, Nothing> = serde_json::from_str(raw.get())?;
    Ok(RedisBackup { metadata: lean.metadata.into(), spec: lean.spec, ..Default::default() })
}

/// A RedisOperation without status.
pub(crate) fn operation(raw: &RawValue) -> Result<RedisOperation, serde_json::Error> {
    let lean: Lean<RedisOperationSpec, Nothing> = serde_json::from_str(raw.get())?;
    Ok(RedisOperation { metadata: lean.metadata.into(), spec: lean.spec, ..Default::default() })
}

/// A RedisPolicy.
pub(crate) fn policy(raw: &RawValue) -> Result<RedisPolicy, serde_json::Error> {
    let lean: Lean<RedisPolicySpec, Nothing> = serde_json::from_str(raw.get())?;
    Ok(RedisPolicy { metadata: lean.metadata.into(), spec: lean.spec, ..Default::default() })
}

/// The number an autoscaling/v1 Scale asks for; 0 where it says nothing, as Kubernetes reads it.
pub(crate) fn scale(raw: &RawValue) -> Result<i32, serde_json::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Scale {
        spec: ScaleSpec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ScaleSpec {
        replicas: i32,
    }
    serde_json::from_str::<Scale>(raw.get()).map(|scale| scale.spec.replicas)
}

/// What is kept of a watched cluster: as [`cluster`] reads one.
pub(crate) fn trim(cluster: &mut RedisCluster) {
    cluster.metadata.managed_fields = None;
    cluster.metadata.annotations = None;
    if let Some(status) = &mut cluster.status {
        status.endpoints = Vec::new();
        for shard in &mut status.shards {
            *shard = ShardStatus { index: shard.index, ..Default::default() };
        }
    }
}
