//! Where the pods of a cluster run (api.md, `spec.placement`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// On which nodes members run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// How strictly the members of a shard are kept on different nodes, and whether the primaries are spread over nodes.
    #[serde(default)]
    pub spread: Spread,
    /// Labels of nodes that tell domains apart, such as `topology.kubernetes.io/zone`: the members of a shard avoid each
    /// other's domain as strictly as `spread` says. Nodes (`kubernetes.io/hostname`) are always one of them, named or not.
    /// Primaries are spread over nodes, not over other domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_keys: Vec<String>,
    /// Labels that a node must have for pods of this cluster to run there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,
    /// Further scheduling constraints of members, beside those that `spread` and `topologyKeys` make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that pods of this cluster tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// PriorityClass of the pods; absent: the default one. Kubernetes' own, whose names begin with `system-`, are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// The label that tells nodes apart.
pub const NODE_DOMAIN: &str = "kubernetes.io/hostname";

impl Placement {
    /// Labels that tell the domains apart in which members of a shard avoid each other. Two copies on one node are never
    /// what somebody wants who wants them in two zones, and a node without a label of its zone is in none.
    #[must_use]
    pub fn domains(&self) -> BTreeSet<&str> {
        self.topology_keys.iter().map(String::as_str).chain([NODE_DOMAIN]).collect()
    }

    /// What a running pod does not take on, in one form for all that mean the same; the default one if that is nothing.
    #[must_use]
    pub fn of_pods(&self) -> Self {
        let Self { spread: _, topology_keys: _, node_selector, affinity, tolerations, priority_class_name } = self;
        let further = self.domains().into_iter().filter(|domain| *domain != NODE_DOMAIN);
        Self {
            spread: Spread::default(),
            topology_keys: further.map(str::to_owned).collect(),
            node_selector: node_selector.clone(),
            affinity: affinity.clone().filter(|affinity| *affinity != Affinity::default()),
            tolerations: tolerations.clone(),
            priority_class_name: priority_class_name.clone(),
        }
    }
}

/// How strictly members are kept on different nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    /// As Preferred where that is possible, and a pod that finds no node without another member of its shard waits for one.
    /// Members that share a node when this is asked for are restarted, one at a time.
    Required,
    /// Members of a shard avoid each other's node. Where half of the primaries or more are on one node, roles are handed over
    /// to replicas on others.
    #[default]
    Preferred,
    /// Pods are made wherever there is room, and no role moves because of the node it is on.
    Off,
}
