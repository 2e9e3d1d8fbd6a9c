//! RedisBackup: one backup, a manifest of per-shard snapshots, where they lie and what they hold.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, cluster::BackupTarget, engine::Engine};

/// One backup. It outlives the cluster it came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisBackup {
    /// Always `redis.kun.io/v1`.
    #[serde(default = "crate::api_version")]
    pub api_version: String,
    /// Always `RedisBackup`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Standard object metadata.
    #[schemars(schema_with = "crate::metadata_schema")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: RedisBackupSpec,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RedisBackupStatus>,
}

crate::kind!(RedisBackup, "RedisBackup", "redisbackups", k8s_openapi::NamespaceResourceScope);

/// What is asked for. Immutable but for `deletionPolicy` and `ttlAfterFinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisBackupSpec {
    /// The RedisCluster of the same namespace; filled in by the subresource `backup`.
    #[serde(default)]
    pub cluster_name: String,
    /// Where artifacts go; absent: the cluster's `spec.backup.target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<BackupTarget>,
    /// What happens to the artifacts when this object is deleted. `Delete`: a worker pod removes them from the target
    /// before the object goes; a target that cannot be reached is given up after ten minutes, with an event.
    #[serde(default)]
    pub deletion_policy: ArtifactPolicy,
    /// Go duration after completion at which this object deletes itself; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<String>,
}

/// What happens to the artifacts when the RedisBackup is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ArtifactPolicy {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

/// How far a backup is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisBackupStatus {
    /// Pending, Running, Completed or Failed.
    #[serde(default)]
    pub phase: BackupPhase,
    /// When the controller began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Timestamp>,
    /// When the last artifact was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub completion_time: Option<Timestamp>,
    /// Where the artifacts went: `spec.target`, or the cluster's target at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<BackupTarget>,
    /// Folder of the artifacts within the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Redis or Valkey: what the snapshots came from. Neither reads every file of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Version of the engine that the members ran the snapshots came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// uid of the RedisCluster when it began. Absent: it began under an earlier release, or has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Indices of the shards that are stored: those that owned slots when it began. What becomes of `spec.shards` meanwhile changes nothing in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted_shards: Vec<i32>,
    /// One artifact per shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["index"]))]
    pub shards: Vec<ArtifactStatus>,
    /// Milliseconds between the first and the last shard's cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_spread_millis: Option<i64>,
    /// Every artifact was read through key by key, read back from the target, and its checksum agreed.
    #[serde(default)]
    pub verified: bool,
    /// Who asked, as authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Complete, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Pending, Running, Completed or Failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// Accepted.
    #[default]
    Pending,
    /// Snapshots are being streamed.
    Running,
    /// Every artifact was read back and checked.
    Completed,
    /// Given up; the condition says why.
    Failed,
}

/// The artifact of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStatus {
    /// Shard index.
    pub index: i32,
    /// Hash slots of the shard at the cut.
    pub slots: String,
    /// Pod the snapshot came from.
    pub pod: String,
    /// Redis node ID of that pod.
    pub node_id: String,
    /// Replication ID at the cut.
    pub replication_id: String,
    /// Replication offset at the cut.
    pub offset: i64,
    /// Keys in the artifact: counted if `walked`, else as the file states them.
    pub keys: i64,
    /// The file was read through key by key, up to its own checksum. Not so where it holds something that only newer engines write.
    #[serde(default)]
    pub walked: bool,
    /// Size of the artifact in bytes.
    pub bytes: i64,
    /// SHA-256 of the artifact, in hex.
    pub sha256: String,
    /// File name within `location`: `shard-N.rdb`, or `shard-N.M.rdb` where another worker of the shard had taken that name.
    pub file: String,
    /// When the snapshot began.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub cut_time: Timestamp,
}
