//! Where pods may run: what the specification says of placement, in the words of a pod. Pure.
//!
//! Members of a shard stay apart by terms of ours; what the user asks for stands beside them and never in their place.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodAntiAffinity, PodSpec, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use types::cluster::{NODE_DOMAIN, Placement, Spread};
use types::names;

use super::labels;

/// How much a scheduler prefers to keep members of a shard apart: as much as it can.
const WEIGHT: i32 = 100;
/// How much it prefers, beside that, nodes with few members of the same cluster: it counts for each of them, and so little that a node
/// with a member of the shard is the better one only beside a hundred others.
const WEIGHT_OF_CLUSTER: i32 = 1;

/// A pod without containers: where a member of this shard may run.
pub(super) fn of_member(placement: &Placement, cluster: &str, shard: u16) -> PodSpec {
    let mut affinity = placement.affinity.clone();
    let of_this_shard = labels(cluster, Some(shard));
    let terms: Vec<PodAffinityTerm> =
        placement.domains().into_iter().map(|domain| term(&of_this_shard, domain)).collect();
    match placement.spread {
        Spread::Required => {
            let list = &mut anti(&mut affinity).required_during_scheduling_ignored_during_execution;
            *list = Some(terms.into_iter().chain(list.take().unwrap_or_default()).collect());
            prefer(&mut affinity, vec![of_cluster(cluster)]);
        }
        Spread::Preferred => {
            let weighted = |pod_affinity_term| WeightedPodAffinityTerm { weight: WEIGHT, pod_affinity_term };
            prefer(&mut affinity, terms.into_iter().map(weighted).chain([of_cluster(cluster)]).collect());
        }
        Spread::Off => {}
    }
    PodSpec { affinity, ..on_nodes(placement) }
}

/// Puts terms of ours before those of the user.
fn prefer(affinity: &mut Option<Affinity>, mut ours: Vec<WeightedPodAffinityTerm>) {
    let list = &mut anti(affinity).preferred_during_scheduling_ignored_during_execution;
    ours.append(list.get_or_insert_default());
    *list = Some(ours);
}

/// Without it the pods of all shards may fill one node while others are empty, as far as no two of a shard meet.
fn of_cluster(cluster: &str) -> WeightedPodAffinityTerm {
    WeightedPodAffinityTerm { weight: WEIGHT_OF_CLUSTER, pod_affinity_term: term(&labels(cluster, None), NODE_DOMAIN) }
}

/// A pod without containers: where one may run that works for the members and is none, on the nodes that they may run on. What
/// says beside which other pods members run says nothing about it.
pub(crate) fn of_worker(placement: &Placement) -> PodSpec {
    let nodes = placement.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    let affinity = nodes.map(|nodes| Affinity { node_affinity: Some(nodes), ..Affinity::default() });
    PodSpec { affinity, ..on_nodes(placement) }
}

fn on_nodes(placement: &Placement) -> PodSpec {
    let Placement { spread: _, topology_keys: _, node_selector, affinity: _, tolerations, priority_class_name } =
        placement;
    PodSpec {
        node_selector: (!node_selector.is_empty()).then(|| node_selector.clone()),
        tolerations: (!tolerations.is_empty()).then(|| tolerations.clone()),
        priority_class_name: priority_class_name.clone(),
        ..PodSpec::default()
    }
}

fn anti(affinity: &mut Option<Affinity>) -> &mut PodAntiAffinity {
    affinity.get_or_insert_default().pod_anti_affinity.get_or_insert_default()
}

fn term(pods: &BTreeMap<String, String>, domain: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(pods.clone()), ..LabelSelector::default() }),
        topology_key: domain.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// Whether a pod, or those of a template, was made to stay away from the nodes of its shard's other members, whatever that
/// costs. A user's own term says nothing about that, unless it is the same as ours.
#[must_use]
pub fn is_kept_apart(metadata: &ObjectMeta, spec: &PodSpec) -> bool {
    let label = |name| metadata.labels.as_ref()?.get(name).cloned();
    let Some(shard) = label(names::LABEL_SHARD).and_then(|shard| shard.parse().ok()) else { return false };
    let ours = term(&labels(&label(names::LABEL_CLUSTER).unwrap_or_default(), Some(shard)), NODE_DOMAIN);
    let anti = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
    terms.is_some_and(|terms| terms.contains(&ours))
}
