//! What the controller last saw of a cluster (api.md, "RedisCluster.status").

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Condition;

/// What the controller last saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisClusterStatus {
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the spec this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Available, Progressing, Degraded, DataAtRisk, BackupHealthy, UpToDate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Available was True at least once: all that its volumes hold has been seen. Absent: not yet, or not since an earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_served: bool,
    /// Serving primaries: what scale counts.
    #[serde(default)]
    pub replicas: i32,
    /// Label selector of one serving primary per shard, in string form, for scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The shards, by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["index"]))]
    pub shards: Vec<ShardStatus>,
    /// What remains to be done, and what is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Name of the RedisOperation that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Where clients connect: `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The lowest version that a member reports of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The highest version that a member reports: a rollout that never got anywhere may go back below the spec's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_version: Option<String>,
    /// What the largest volume was asked to hold: a size that Kubernetes refused may be taken back, down to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// Keys of all primaries together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// Memory of all primaries together that counts towards maxmemory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_memory: Option<i64>,
    /// maxmemory of one primary, in bytes; absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<i64>,
    /// The last completed backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<LastBackup>,
    /// Settings changed for the time of a step, to be put back after a crash: `parameter` → intended value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub temporary_config: BTreeMap<String, String>,
}

/// One word for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Accepted, nothing made yet.
    Pending,
    /// The first topology is being made.
    Creating,
    /// Everything agrees with the spec.
    Ready,
    /// Slots or replicas are being added or taken away.
    Scaling,
    /// Pods are being restarted on a new template.
    Updating,
    /// A failure is being mended.
    Healing,
    /// Serving, but something needs a person or time.
    Degraded,
    /// `spec.paused`.
    Paused,
    /// Being deleted.
    Deleting,
}

/// One shard as last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardStatus {
    /// Index, from 0.
    pub index: i32,
    /// Hash slots as ranges, such as "0-5460".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub slots: String,
    /// Keys of the primary.
    #[serde(default)]
    pub keys: i64,
    /// Bytes that the primary uses of its maxmemory.
    #[serde(default)]
    pub used_memory: i64,
    /// Pod that is primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// All members, by pod name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub members: Vec<MemberStatus>,
}

/// One member of a shard as last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Pod name.
    pub pod: String,
    /// Redis node ID (40 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// `ip:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Primary or Replica; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Bytes of the replication stream this replica is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<i64>,
    /// What it is doing.
    pub state: MemberState,
}

/// Role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows a primary.
    Replica,
}

/// What a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberState {
    /// Serving, and in sync.
    Online,
    /// Loading or synchronising.
    Syncing,
    /// Started, not part of the topology yet.
    Joining,
    /// The agent refuses to start Redis; the condition says why.
    Held,
    /// Asked and not answering: its state is not known.
    Unknown,
    /// There is no such pod.
    Absent,
}

/// What remains to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// Steps of the current batch.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Slots still to move.
    #[serde(default)]
    pub slots_left: i32,
    /// What is waited for, with numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}

/// The last completed backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastBackup {
    /// Name of the RedisBackup.
    pub name: String,
    /// When it completed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub completion_time: Timestamp,
}
