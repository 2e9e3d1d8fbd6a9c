//! RedisPolicy: what the platform team allows, by namespace selector.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// What the platform team allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisPolicy {
    /// Always `redis.kun.io/v1`.
    #[serde(default = "crate::api_version")]
    pub api_version: String,
    /// Always `RedisPolicy`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Standard object metadata.
    #[schemars(schema_with = "crate::metadata_schema")]
    pub metadata: ObjectMeta,
    /// The rules.
    pub spec: RedisPolicySpec,
}

crate::kind!(RedisPolicy, "RedisPolicy", "redispolicies", k8s_openapi::ClusterResourceScope);

/// The rules. An absent rule allows everything. It binds what is created or made worse after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisPolicySpec {
    /// Which namespaces; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Allowed engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<Engine>,
    /// Allowed versions as ranges, such as ">=7.0, <9"; any of them suffices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// Allowed image prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Bounds of `spec.shards`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<IntRange>,
    /// Bounds of `spec.replicasPerShard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_per_shard: Option<IntRange>,
    /// Bounds of `spec.resources.limits.memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_pod: Option<QuantityRange>,
    /// Bounds of `spec.storage.size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_per_pod: Option<QuantityRange>,
    /// Most memory (limits × pods) of all RedisClusters of one namespace together, as far as they are known when one is judged: several that are made at the same moment can pass together; a ResourceQuota is exact.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::int_or_string::option")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub namespace_memory: Option<String>,
    /// Obligations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<Requirement>,
    /// redis.conf parameters that may not be set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden_config: Vec<String>,
    /// What happens when a rule is broken.
    #[serde(default)]
    pub action: PolicyAction,
    /// Shown to the user after the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// metav1.LabelSelector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// All must be equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// All must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

impl LabelSelector {
    /// Whether the labels satisfy every requirement; an empty selector matches everything.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = labels.get(&self.key);
        match self.operator {
            LabelOperator::In => found.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => found.is_none_or(|value| !self.values.contains(value)),
            LabelOperator::Exists => found.is_some(),
            LabelOperator::DoesNotExist => found.is_none(),
        }
    }
}

/// metav1.LabelSelectorRequirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelRequirement {
    /// Label key.
    pub key: String,
    /// How `values` are compared.
    pub operator: LabelOperator,
    /// Values; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Operators of a label requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// One of the values.
    In,
    /// None of the values, or absent.
    NotIn,
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
}

/// Bounds of a number, both inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntRange {
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
}

/// Bounds of a quantity, both inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuantityRange {
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::int_or_string::option")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub min: Option<String>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::int_or_string::option")]
    #[schemars(schema_with = "crate::int_or_string::schema")]
    pub max: Option<String>,
}

/// What a cluster must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Requirement {
    /// A volume, and an append-only file or snapshots.
    Persistence,
    /// A backup target.
    Backup,
    /// At least one replica per shard.
    Replicas,
    /// `deletion.protected`.
    DeletionProtection,
}

/// What happens when a rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyAction {
    /// The request is refused.
    #[default]
    Deny,
    /// The request is accepted with a warning.
    Warn,
    /// The request is accepted with an audit annotation.
    Audit,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_matches_when_every_requirement_does() {
        let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        let table = [
            (json!({}), true),
            (json!({"matchLabels": {"env": "prod"}}), true),
            (json!({"matchLabels": {"env": "test"}}), false),
            (json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "x"]}]}), true),
            (json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}), false),
            (json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]}), true),
            (
                json!({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}),
                false,
            ),
        ];
        for (selector, expected) in table {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
    }
}
