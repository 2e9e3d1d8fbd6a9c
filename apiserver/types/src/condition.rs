//! Conditions in the shape of `metav1.Condition`, and the words KUN uses in them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One condition of an object's status; field for field `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition speaks about, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: Status,
    /// The generation of the object this was computed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed (RFC 3339, seconds).
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Timestamp,
    /// A CamelCase word for programs.
    pub reason: String,
    /// A sentence for people, with the numbers.
    pub message: String,
}

/// The three values a condition may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It could not be observed.
    Unknown,
}

/// Condition types of a RedisCluster.
pub mod cluster {
    /// Slots covered and agreed by every node, replicas in sync, identities checked.
    pub const READY: &str = "Ready";
    /// Every slot is served by a primary (writes are possible everywhere).
    pub const AVAILABLE: &str = "Available";
    /// Steps remain or something is waited for.
    pub const PROGRESSING: &str = "Progressing";
    /// Something is wrong that KUN cannot mend alone or has not mended yet.
    pub const DEGRADED: &str = "Degraded";
    /// A shard has fewer safe copies than asked for.
    pub const DATA_AT_RISK: &str = "DataAtRisk";
    /// The last backup succeeded.
    pub const BACKUP_HEALTHY: &str = "BackupHealthy";
    /// Every pod runs the spec's version and configuration.
    pub const UP_TO_DATE: &str = "UpToDate";
}
