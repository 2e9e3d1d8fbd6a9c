//! Objects read for a decision: only the fields a decision looks at are built, everything else is skipped over.
//!
//! An object of 6 KB is mostly managedFields and the members of its status; skipping them, and reading each object once
//! and in place, is what makes a review cheap. Objects that are watched are read in the same way: managedFields of a mebibyte are ten times as
//! large when they are built.

use std::{borrow::Cow, collections::BTreeMap, marker::PhantomData};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, core::PartialObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny},
};
use types::{
    Condition, RedisBackup, RedisCluster, RedisOperation, RedisPolicy,
    backup::{RedisBackupSpec, RedisBackupStatus},
    cluster::{BackupTarget, Phase, PlanStatus, RedisClusterSpec, RedisClusterStatus, ShardStatus},
    condition::{Status, cluster as condition},
    operation::{OperationPhase, RedisOperationSpec, RedisOperationStatus},
    policy::RedisPolicySpec,
};

/// An object as far as a decision looks at it.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A RedisCluster whose metadata and status hold only what is decided by.
    Cluster(Box<RedisCluster>),
    /// What an autoscaling/v1 Scale says.
    Scale(Scaled),
    /// A RedisBackup whose status holds only where its files lie.
    Backup(Box<RedisBackup>),
    /// A RedisOperation whose status holds only its phase.
    Operation(Box<RedisOperation>),
    /// A RedisPolicy.
    Policy(Box<RedisPolicy>),
    /// An object of another kind.
    Foreign,
    /// An object that could not be read, and why.
    Malformed(String),
}

/// What is read of an autoscaling/v1 Scale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scaled {
    /// The number that is asked for; 0 where it says nothing, as Kubernetes reads it.
    pub replicas: i32,
    /// The resourceVersion of the cluster that it is a view of.
    pub version: Option<String>,
}

/// Reads the object of a review, whose kind the review told before.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'k> {
    pub(crate) kind: &'k str,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Subject;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Subject, D::Error> {
        Ok(match self.kind {
            "RedisCluster" => Subject::Cluster(Box::new(Lean::deserialize(from)?.into())),
            "Scale" => Subject::Scale(Scale::deserialize(from)?.into()),
            "RedisBackup" => Subject::Backup(Box::new(Lean::deserialize(from)?.into())),
            "RedisOperation" => Subject::Operation(Box::new(Lean::deserialize(from)?.into())),
            "RedisPolicy" => Subject::Policy(Box::new(Lean::deserialize(from)?.into())),
            _ => {
                IgnoredAny::deserialize(from)?;
                Subject::Foreign
            }
        })
    }
}

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
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        let Meta { name, namespace, resource_version, generation, creation_timestamp, deletion_timestamp, labels } =
            meta;
        Self {
            name,
            namespace,
            resource_version,
            generation,
            creation_timestamp,
            deletion_timestamp,
            labels,
            ..Self::default()
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterStatus<'a> {
    phase: Option<Phase>,
    observed_generation: Option<i64>,
    #[serde(borrow)]
    conditions: Vec<LeanCondition<'a>>,
    has_served: bool,
    shards: Vec<Shard>,
    plan: Option<Plan>,
    version: Option<String>,
    highest_version: Option<String>,
    volume_size: Option<String>,
    keys: Option<i64>,
    used_memory: Option<i64>,
    max_memory: Option<i64>,
}

#[derive(Deserialize)]
struct LeanCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    status: Status,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

/// Its members are most of a status, and are skipped over.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shard {
    index: i32,
    used_memory: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Plan {
    steps: Vec<IgnoredAny>,
    slots_left: i32,
    waiting: Option<String>,
}

/// Only an operation that has not ended is held to its cancel.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationStatus {
    phase: OperationPhase,
}

/// Whoever has the files erased must have a right to where they lie.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BackupStatus {
    target: Option<BackupTarget>,
}

/// The status of other kinds is not looked at.
type Nothing = IgnoredAny;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Scale {
    metadata: ScaleMeta,
    spec: ScaleSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScaleMeta {
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleSpec {
    replicas: i32,
}

impl From<Scale> for Scaled {
    fn from(lean: Scale) -> Self {
        let Scale { metadata, spec } = lean;
        Self { replicas: spec.replicas, version: metadata.resource_version }
    }
}

impl From<Lean<RedisClusterSpec, ClusterStatus<'_>>> for RedisCluster {
    fn from(lean: Lean<RedisClusterSpec, ClusterStatus<'_>>) -> Self {
        let Lean { metadata, spec, status } = lean;
        Self {
            api_version: String::new(),
            kind: String::new(),
            metadata: metadata.into(),
            spec,
            status: status.map(Into::into),
        }
    }
}

impl From<ClusterStatus<'_>> for RedisClusterStatus {
    fn from(lean: ClusterStatus<'_>) -> Self {
        Self {
            phase: lean.phase,
            observed_generation: lean.observed_generation,
            conditions: lean.conditions.into_iter().filter(is_decided_by).map(Into::into).collect(),
            has_served: lean.has_served,
            shards: lean.shards.into_iter().map(Into::into).collect(),
            plan: lean.plan.map(Into::into),
            version: lean.version,
            highest_version: lean.highest_version,
            volume_size: lean.volume_size,
            keys: lean.keys,
            used_memory: lean.used_memory,
            max_memory: lean.max_memory,
            ..Self::default()
        }
    }
}

impl From<Shard> for ShardStatus {
    fn from(lean: Shard) -> Self {
        let Shard { index, used_memory } = lean;
        Self { index, used_memory, ..Self::default() }
    }
}

impl From<Plan> for PlanStatus {
    fn from(lean: Plan) -> Self {
        let Plan { steps, slots_left, waiting } = lean;
        // Only whether there are steps is asked; their texts are not kept.
        Self { steps: vec![String::new(); steps.len()], slots_left, waiting }
    }
}

/// Only whether the cluster is sick is asked of conditions.
fn is_decided_by(condition: &LeanCondition<'_>) -> bool {
    [condition::AVAILABLE, condition::DEGRADED].contains(&condition.kind.as_ref())
}

impl From<LeanCondition<'_>> for Condition {
    fn from(lean: LeanCondition<'_>) -> Self {
        let LeanCondition { kind, status, message } = lean;
        Self {
            kind: kind.into_owned(),
            status,
            observed_generation: None,
            // Not read: a decision knows no time.
            last_transition_time: Timestamp::UNIX_EPOCH,
            reason: String::new(),
            message: message.into_owned(),
        }
    }
}

impl From<Lean<RedisBackupSpec, BackupStatus>> for RedisBackup {
    fn from(lean: Lean<RedisBackupSpec, BackupStatus>) -> Self {
        let Lean { metadata, spec, status } = lean;
        let status = status.map(|BackupStatus { target }| RedisBackupStatus { target, ..Default::default() });
        Self { metadata: metadata.into(), spec, status, ..Self::default() }
    }
}

impl From<Lean<RedisOperationSpec, OperationStatus>> for RedisOperation {
    fn from(lean: Lean<RedisOperationSpec, OperationStatus>) -> Self {
        let Lean { metadata, spec, status } = lean;
        let status = status.map(|OperationStatus { phase }| RedisOperationStatus { phase, ..Default::default() });
        Self { metadata: metadata.into(), spec, status, ..Self::default() }
    }
}

impl From<Lean<RedisPolicySpec, Nothing>> for RedisPolicy {
    fn from(lean: Lean<RedisPolicySpec, Nothing>) -> Self {
        Self { metadata: lean.metadata.into(), spec: lean.spec, ..Self::default() }
    }
}

/// An object of a list or of a watch, read as far as that of a review is.
#[derive(Clone, Debug)]
pub(crate) struct Watched<K>(pub(crate) K);

impl<K: Resource> Resource for Watched<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// An object of which nothing but metadata is looked at.
#[derive(Deserialize)]
struct Bare {
    #[serde(default)]
    metadata: Meta,
}

impl From<Bare> for Namespace {
    fn from(bare: Bare) -> Self {
        Self { metadata: bare.metadata.into(), ..Self::default() }
    }
}

impl From<Bare> for PartialObjectMeta<PersistentVolumeClaim> {
    fn from(bare: Bare) -> Self {
        Self { types: None, metadata: bare.metadata.into(), _phantom: PhantomData }
    }
}

/// Reads a watched kind as a form that leaves out what is not looked at.
macro_rules! watched {
    ($($kind:ty: $form:ty),* $(,)?) => {$(
        impl<'de> Deserialize<'de> for Watched<$kind> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <$form>::deserialize(from).map(|lean| Self(lean.into()))
            }
        }
    )*};
}

watched! {
    RedisCluster: Lean<RedisClusterSpec, ClusterStatus<'de>>,
    RedisOperation: Lean<RedisOperationSpec, OperationStatus>,
    RedisPolicy: Lean<RedisPolicySpec, Nothing>,
    Namespace: Bare,
    PartialObjectMeta<PersistentVolumeClaim>: Bare,
}

/// What is kept of a watched cluster. No rule reads its labels, and its namespace is where it is kept.
pub(crate) fn kept(Watched(mut cluster): Watched<RedisCluster>) -> RedisCluster {
    cluster.metadata.labels = None;
    cluster.metadata.namespace = None;
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Metadata as a person may fill it.
    fn filled() -> Value {
        json!({
            "name": "orders", "namespace": "shop", "resourceVersion": "12", "uid": "u", "generation": 3, "labels": {"a": "b"},
            "annotations": {"c": "d"}, "finalizers": ["e/f"], "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "n", "uid": "1"}],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]
        })
    }

    fn read<K>(object: &Value) -> K
    where
        Watched<K>: serde::de::DeserializeOwned,
    {
        // As a list holds it: what is borrowed from the text must not be asked for.
        serde_json::from_str::<Watched<K>>(&object.to_string()).map(|watched| watched.0).expect("it is legible")
    }

    fn shown(metadata: &ObjectMeta) -> Value {
        serde_json::to_value(metadata).expect("it is JSON")
    }

    #[test]
    fn of_a_watched_cluster_nothing_is_kept_that_no_rule_reads() {
        let object = json!({
            "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": filled(), "spec": {"version": "7.2", "shards": 5},
            "status": {
                "observedGeneration": 2, "endpoints": ["a:1"], "usedMemory": 7,
                "conditions": [
                    {"type": "Available", "status": "False", "reason": "R", "message": "a shard \"0\" is away", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "UpToDate", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                ]
            }
        });
        let kept = kept(Watched(read::<RedisCluster>(&object)));
        assert_eq!(
            shown(&kept.metadata),
            json!({"name": "orders", "resourceVersion": "12", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z"})
        );
        let status = kept.status.expect("it has one");
        let messages: Vec<&str> = status.conditions.iter().map(|one| one.message.as_str()).collect();
        assert_eq!((kept.spec.shards, status.observed_generation, status.used_memory), (Some(5), Some(2), Some(7)));
        assert_eq!((status.endpoints.len(), messages), (0, vec!["a shard \"0\" is away"]));
    }

    #[test]
    fn of_any_watched_object_only_metadata_that_is_read_is_built() {
        let object = json!({"metadata": filled(), "spec": {"clusterName": "orders"}});
        let looked_at = json!({
            "name": "orders", "namespace": "shop", "resourceVersion": "12", "generation": 3, "labels": {"a": "b"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z"
        });
        assert_eq!(shown(&read::<RedisOperation>(&object).metadata), looked_at);
        assert_eq!(shown(&read::<Namespace>(&object).metadata), looked_at);
        assert_eq!(shown(&read::<PartialObjectMeta<PersistentVolumeClaim>>(&object).metadata), looked_at);
        let policy = json!({"metadata": filled(), "spec": {"images": ["a/"]}});
        assert_eq!(shown(&read::<RedisPolicy>(&policy).metadata), looked_at);
    }

    #[test]
    fn a_watched_kind_is_asked_for_as_the_kind_that_it_is() {
        let path = Watched::<RedisCluster>::url_path(&(), None);
        assert_eq!(path, "/apis/redis.kun.io/v1/redisclusters");
        assert!(Watched::<PartialObjectMeta<PersistentVolumeClaim>>::metadata_api(), "of claims the metadata alone");
    }
}
