//! Who may reach the members of a cluster over the network (`spec.networkPolicy`).

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may reach the members. It is enforced by the network plugin of Kubernetes, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkPolicy {
    /// Makes a NetworkPolicy: the cluster bus is for the members alone, their agents are for members, workers of backups, kubelets and
    /// KUN. Without it, or with a network plugin that knows no policies, whoever reaches the bus can join the cluster to another one.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Who may reach the port of Redis, besides the members and KUN; as `from` of a NetworkPolicy. Absent or empty: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<NetworkPolicyPeer>")]
    pub clients: Option<Vec<NetworkPolicyPeer>>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self { enabled: enabled(), clients: None }
    }
}

const fn enabled() -> bool {
    true
}
