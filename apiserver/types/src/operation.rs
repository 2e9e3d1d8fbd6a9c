//! RedisOperation: the durable record of one action: progress, result, who asked.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Condition;

/// The durable record of one action on a RedisCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisOperation {
    /// Always `redis.kun.io/v1`.
    #[serde(default = "crate::api_version")]
    pub api_version: String,
    /// Always `RedisOperation`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Standard object metadata.
    #[schemars(schema_with = "crate::metadata_schema")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: RedisOperationSpec,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RedisOperationStatus>,
}

crate::kind!(RedisOperation, "RedisOperation", "redisoperations", k8s_openapi::NamespaceResourceScope);

impl RedisOperation {
    /// How far it is; one without a status is pending.
    #[must_use]
    pub fn phase(&self) -> OperationPhase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }
}

/// Exactly one action. Everything but `cancel` and `ttlAfterFinished` is immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisOperationSpec {
    /// The RedisCluster of the same namespace; filled in by the subresource.
    #[serde(default)]
    pub cluster_name: String,
    /// Moves the primary role of one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverAction>,
    /// Restarts pods, replicas first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartAction>,
    /// Asks the controller to stop before the next step.
    #[serde(default)]
    pub cancel: bool,
    /// Go duration after the end at which this object deletes itself; absent: "1h" is kept by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<String>,
}

/// Moves the primary role of one shard to a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverAction {
    /// Shard index, from 0. It must be named.
    // The schema requires it, and has no default. What lies in the store without it, however it came there, must not keep those who read from
    // all the others.
    #[serde(default = "no_shard")]
    #[schemars(!default)]
    pub shard: i32,
    /// Pod to promote; absent: of the replicas in sync where the fewest primaries run, the one with the least lag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// How.
    #[serde(default)]
    pub mode: FailoverMode,
    /// With mode Force: promote the best replica that answers although it lacks writes that the primary acknowledged and may still bring
    /// back; and without votes, where too few primaries answer to give theirs. Those writes are lost, and so is what a primary acknowledges
    /// meanwhile that is not seen and still runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_loss: bool,
    /// For the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Of a failover that names no shard: one that no cluster has, so that it moves nothing.
const fn no_shard() -> i32 {
    -1
}

/// How the primary role moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailoverMode {
    /// The old primary holds writes until the replica has caught up. Loses nothing.
    #[default]
    Coordinated,
    /// For a primary that does not answer: needs the votes of a majority, loses what had not been replicated.
    Force,
}

/// Restarts pods in the safe order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestartAction {
    /// Shard indexes; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<i32>,
    /// For the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far an operation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisOperationStatus {
    /// Pending, Running, Succeeded, Failed or Cancelled.
    #[serde(default)]
    pub phase: OperationPhase,
    /// How much is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What was done, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Who asked, as authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When the controller began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub completion_time: Option<Timestamp>,
    /// Complete, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Pending, Running, Succeeded, Failed or Cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationPhase {
    /// Accepted.
    #[default]
    Pending,
    /// The controller works on it.
    Running,
    /// Done, and the effect was observed.
    Succeeded,
    /// Given up; the condition says why.
    Failed,
    /// Stopped because `spec.cancel` was set.
    Cancelled,
}

impl OperationPhase {
    /// Whether nothing is done for it any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running => false,
        }
    }
}

/// How much is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Done so far.
    pub done: i64,
    /// All of it.
    pub total: i64,
    /// What is counted: `pods`, `slots`.
    pub unit: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;
    use crate::{schema, validate};

    /// Before, readers of all operations stopped at it, and nothing was reconciled any more.
    #[test]
    fn a_stored_failover_without_a_shard_is_read_and_names_none() {
        let spec = json!({"clusterName": "orders", "failover": {"mode": "Force"}});
        let read: RedisOperation = serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": spec})).unwrap();
        let action = FailoverAction { shard: -1, mode: FailoverMode::Force, ..FailoverAction::default() };
        assert_eq!(read.spec.failover, Some(action));
        let faults: Vec<String> = validate::operation(&read).iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            ["spec.failover.shard: Invalid value: -1: must be from 0 to 999: shards are counted from 0"]
        );
    }

    #[test]
    fn the_schema_of_a_failover_requires_its_shard_and_has_no_default() {
        let schema = schema::operation();
        let failover = schema.pointer("/properties/spec/properties/failover").unwrap();
        assert_eq!(failover["required"], json!(["shard"]));
        let shard =
            json!({"type": "integer", "format": "int32", "description": "Shard index, from 0. It must be named."});
        assert_eq!(failover["properties"]["shard"], shard);
    }
}
