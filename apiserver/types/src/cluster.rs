//! RedisCluster: one Redis deployment, its desired topology and its observed state (api.md, "RedisCluster.spec").

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

mod network;
mod placement;
mod status;

pub use network::NetworkPolicy;
pub use placement::{NODE_DOMAIN, Placement, Spread};
pub use status::{LastBackup, MemberState, MemberStatus, Phase, PlanStatus, RedisClusterStatus, Role, ShardStatus};

/// One Redis deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisCluster {
    /// Always `redis.kun.io/v1`.
    #[serde(default = "crate::api_version")]
    pub api_version: String,
    /// Always `RedisCluster`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Standard object metadata.
    #[schemars(schema_with = "crate::metadata_schema")]
    pub metadata: ObjectMeta,
    /// What the user wants.
    pub spec: RedisClusterSpec,
    /// What the controller last saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RedisClusterStatus>,
}

crate::kind!(RedisCluster, "RedisCluster", "redisclusters", k8s_openapi::NamespaceResourceScope);

/// The desired state. Change classes (live, rolling, moves data, grows volumes, immutable) are those of api.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisClusterSpec {
    /// Redis Cluster with hash slots, or one single server. Immutable.
    #[serde(default)]
    pub mode: Mode,
    /// Redis or Valkey. Immutable.
    #[serde(default)]
    pub engine: Engine,
    /// Version of the engine, such as "7.0". Defaults to 7.0 of Redis, 8.1 of Valkey. A downgrade of a minor or major
    /// version is refused.
    #[serde(default = "default_version")]
    pub version: String,
    /// Overrides the image of the catalogue; `version` must still tell what it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Number of shards, each with one primary. Defaults to 3 in mode Cluster, 1 in mode Standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<i32>,
    /// Replicas of each primary. Defaults to 1 in mode Cluster, 0 in mode Standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_per_shard: Option<i32>,
    /// Compute resources of each Redis container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// How much of the container's memory the data set may take.
    #[serde(default)]
    pub memory: Memory,
    /// What is written to disk.
    #[serde(default)]
    pub persistence: Persistence,
    /// A volume for each pod. Absent: an emptyDir, which lives as long as its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Further redis.conf parameters. Those KUN owns are refused by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::int_or_string::map")]
    #[schemars(schema_with = "crate::int_or_string::map_schema")]
    pub config: BTreeMap<String, String>,
    /// Where the application's password comes from. Absent: one is generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// How failures are noticed and answered.
    #[serde(default)]
    pub failover: Failover,
    /// How fast slots move.
    #[serde(default)]
    pub migration: Migration,
    /// Where backups go when a RedisBackup names no target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// What deletion does with the data.
    #[serde(default)]
    pub deletion: Deletion,
    /// Stops every change by the controller; Redis goes on serving.
    #[serde(default)]
    pub paused: bool,
    /// How rolling changes proceed.
    #[serde(default)]
    pub update: Update,
    /// On which nodes members run. A change of its `spread` restarts only members that share a node and no longer may; a change
    /// of anything else restarts every member, replicas first.
    #[serde(default)]
    pub placement: Placement,
    /// Who may reach the members over the network. A change of it restarts nobody.
    #[serde(default)]
    pub network_policy: NetworkPolicy,
}

impl Default for RedisClusterSpec {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            engine: Engine::default(),
            version: default_version(),
            image: None,
            shards: None,
            replicas_per_shard: None,
            resources: None,
            memory: Memory::default(),
            persistence: Persistence::default(),
            storage: None,
            config: BTreeMap::new(),
            auth: None,
            failover: Failover::default(),
            migration: Migration::default(),
            backup: None,
            deletion: Deletion::default(),
            paused: false,
            update: Update::default(),
            placement: Placement::default(),
            network_policy: NetworkPolicy::default(),
        }
    }
}

/// As the schema says it, which cannot depend on the engine; [`crate::defaults::before_schema`] comes before it.
fn default_version() -> String {
    Engine::default().default_version().to_owned()
}

/// The kinds of deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Redis Cluster: 16384 hash slots over the shards.
    #[default]
    Cluster,
    /// One server, no hash slots, no replica.
    Standalone,
}

/// Requests and limits, as in core/v1 ResourceRequirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// The least the container gets: `cpu`, `memory` → quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::int_or_string::map")]
    #[schemars(schema_with = "crate::int_or_string::map_schema")]
    pub requests: BTreeMap<String, String>,
    /// The most the container gets: `cpu`, `memory` → quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::int_or_string::map")]
    #[schemars(schema_with = "crate::int_or_string::map_schema")]
    pub limits: BTreeMap<String, String>,
}

/// The data set's share of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// maxmemory in percent of the container's memory limit.
    #[serde(default = "default_max_percent")]
    pub max_percent: i32,
    /// maxmemory as a quantity; wins over `maxPercent`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::int_or_string::option")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub max_bytes: Option<String>,
    /// What Redis does when maxmemory is reached.
    #[serde(default)]
    pub policy: EvictionPolicy,
}

impl Default for Memory {
    fn default() -> Self {
        Self { max_percent: default_max_percent(), max_bytes: None, policy: EvictionPolicy::default() }
    }
}

/// Redis' maxmemory policies, by their own names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// Writes fail.
    #[default]
    #[serde(rename = "noeviction")]
    NoEviction,
    /// Least recently used of all keys.
    AllkeysLru,
    /// Least frequently used of all keys.
    AllkeysLfu,
    /// Any key.
    AllkeysRandom,
    /// Least recently used of keys with a TTL.
    VolatileLru,
    /// Least frequently used of keys with a TTL.
    VolatileLfu,
    /// Any key with a TTL.
    VolatileRandom,
    /// Shortest TTL first.
    VolatileTtl,
}

fn default_max_percent() -> i32 {
    75
}

/// What is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// The append-only file.
    #[serde(default)]
    pub append_only: AppendOnly,
    /// Points at which a snapshot is saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SavePoint>,
}

/// How often the append-only file reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AppendOnly {
    /// Once a second.
    #[default]
    EverySec,
    /// Before each reply.
    Always,
    /// No append-only file.
    Off,
}

impl AppendOnly {
    /// Every write goes to an append-only file.
    #[must_use]
    pub const fn keeps_every_write(self) -> bool {
        match self {
            Self::EverySec | Self::Always => true,
            Self::Off => false,
        }
    }
}

/// One `save` line: at least `changes` writes within `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SavePoint {
    /// Seconds.
    pub seconds: i32,
    /// Writes.
    pub changes: i32,
}

/// A volume for each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size as a quantity. May grow, never shrink.
    #[serde(deserialize_with = "crate::int_or_string::one")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub size: String,
    /// StorageClass; absent: the cluster's default. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
    /// What happens to the volume of a pod that is scaled away or deleted with the cluster.
    #[serde(default)]
    pub retain: Retain,
}

/// What happens to volumes that are no longer used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retain {
    /// They stay until a person deletes them.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

/// Where the application's password comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// A Secret of the same namespace with the key `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
}

impl RedisCluster {
    /// The Secret from which its pods have the application's password.
    #[must_use]
    pub fn auth_secret(&self) -> String {
        let named = self.spec.auth.as_ref().and_then(|auth| auth.secret_name.clone());
        named.unwrap_or_else(|| crate::names::auth_secret(self.metadata.name.as_deref().unwrap_or_default()))
    }
}

/// How failures are noticed and answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// cluster-node-timeout as a Go duration, such as "5s" or "1500ms".
    #[serde(default = "default_node_timeout")]
    pub node_timeout: String,
    /// min-replicas-to-write.
    #[serde(default)]
    pub min_replicas_to_write: i32,
}

impl Default for Failover {
    fn default() -> Self {
        Self { node_timeout: default_node_timeout(), min_replicas_to_write: 0 }
    }
}

fn default_node_timeout() -> String {
    "5s".to_owned()
}

/// How fast slots move. May change while a migration runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// Upper bound of moved bytes per second, as a quantity. Absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::int_or_string::option")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub max_bytes_per_second: Option<String>,
    /// Most keys of one MIGRATE command. Fewer are sent when so many would take longer than a few milliseconds.
    #[serde(default = "default_batch_keys")]
    pub batch_keys: i32,
    /// A slot that holds a larger key is not moved (MIGRATE blocks both ends while it copies).
    #[serde(default = "default_max_key_bytes", deserialize_with = "crate::int_or_string::one")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub max_key_bytes: String,
    /// Stops before the next batch; what is half moved is finished first.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Migration {
    fn default() -> Self {
        Self {
            max_bytes_per_second: None,
            batch_keys: default_batch_keys(),
            max_key_bytes: default_max_key_bytes(),
            paused: false,
        }
    }
}

fn default_batch_keys() -> i32 {
    1000
}
fn default_max_key_bytes() -> String {
    "512Mi".to_owned()
}

/// Defaults for backups of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Backup {
    /// Where artifacts go.
    pub target: BackupTarget,
}

/// Where artifacts go: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupTarget {
    /// A directory of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryTarget>,
    /// A claim of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimTarget>,
}

/// A directory of the node (hostPath).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryTarget {
    /// Absolute path without `..`.
    pub path: String,
}

/// A claim of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTarget {
    /// Name of the PersistentVolumeClaim.
    pub claim_name: String,
}

/// What deletion does with the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deletion {
    /// Delete or keep the volumes.
    #[serde(default)]
    pub policy: DeletionPolicy,
    /// A protected object cannot be deleted at all.
    #[serde(default)]
    pub protected: bool,
}

/// What deletion of the object does with the volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// As `storage.retain` says.
    #[default]
    Delete,
    /// Volumes and Secrets stay, whatever `storage.retain` says.
    Retain,
}

/// How rolling changes proceed: replicas first, planned hand-over, then the old primary, one shard at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Update {
    /// Whether a person approves each hand-over.
    #[serde(default)]
    pub strategy: UpdateStrategy,
}

/// Whether a person approves each hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// Proceeds by itself.
    #[default]
    Automatic,
    /// Waits before each primary for the annotation `redis.kun.io/approve: "<generation>:<shard>,…"` (or `:*`).
    Supervised,
}
