//! Where pods may run: what Kubernetes itself would find in a pod template, in its words (core/v1 validation of 1.34), so that
//! no template is asked for that it refuses; and what a RedisCluster may not ask for although a pod may.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity, PodAffinityTerm, PodAntiAffinity,
    Toleration, WeightedPodAffinityTerm,
};

use super::{
    Faults,
    selector::{keys, labels, operator, requirement_values, selector},
};
use crate::{
    cluster::Placement,
    field::{Fault, Path},
    label,
};

/// Most topology keys: each is one more term that the scheduler holds against every node for every pod.
const DOMAINS_MAX: usize = 8;
/// Most entries of any other list or map: as above, and several times what pods have anywhere.
pub(super) const ENTRIES_MAX: usize = 64;
/// Most bytes of it all: each StatefulSet carries it twice, in its template and in the record of its owner, which shares
/// 256 KiB with all other annotations.
const BYTES_MAX: usize = 32 << 10;
/// What the names of Kubernetes' own PriorityClasses begin with.
const SYSTEM: &str = "system-";

pub(super) fn placement(faults: &mut Faults, path: &Path, given: &Placement) {
    let Placement { spread: _, topology_keys, node_selector, affinity, tolerations, priority_class_name } = given;
    // Nothing of ours fails to serialize; what did would not fit either.
    if serde_json::to_vec(given).map_or(usize::MAX, |text| text.len()) > BYTES_MAX {
        faults.push(Fault::too_long(path.clone(), BYTES_MAX));
        return;
    }
    domains(faults, &path.child("topologyKeys"), topology_keys);
    labels(faults, &path.child("nodeSelector"), node_selector);
    if let Some(given) = affinity {
        self::affinity(faults, &path.child("affinity"), given);
    }
    faults.each(&path.child("tolerations"), tolerations, toleration);
    if let Some(name) = priority_class_name {
        priority_class(faults, path.child("priorityClassName"), name);
    }
}

fn domains(faults: &mut Faults, path: &Path, given: &[String]) {
    if given.len() > DOMAINS_MAX {
        faults.push(Fault::too_many(path.clone(), given.len(), DOMAINS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, domain) in given.iter().enumerate() {
        if domain.is_empty() {
            faults.push(Fault::required(path.index(at), "can not be empty"));
        } else {
            faults.words(&path.index(at), domain, label::key(domain));
        }
        if !seen.insert(domain) {
            faults.push(Fault::duplicate(path.index(at), domain.as_str()));
        }
    }
}

/// Who may edit RedisClusters and nothing else must not be able to push others' pods off their nodes.
fn priority_class(faults: &mut Faults, path: Path, name: &str) {
    if name.starts_with(SYSTEM) {
        let why = "priority class names with 'system-' prefix are reserved for system use only: the pods of a RedisCluster must not push those of the system off their nodes";
        faults.push(Fault::forbidden(path, why));
    } else {
        faults.words(&path, name, label::subdomain(name));
    }
}

fn toleration(faults: &mut Faults, path: &Path, given: &Toleration) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, value) = (text(&given.key), text(&given.value));
    let (operator, effect) = (text(&given.operator), text(&given.effect));
    if !key.is_empty() {
        faults.words(&path.child("key"), &key, label::key(&key));
    }
    if key.is_empty() && operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.push(Fault::invalid(path.child("operator"), operator.as_str(), why));
    }
    if given.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.push(Fault::invalid(path.child("effect"), effect.as_str(), why));
    }
    match operator.as_str() {
        "Equal" | "" => {
            let found = label::value(&value);
            if !found.is_empty() {
                faults.push(Fault::invalid(path.child("operator"), value, found.join(";")));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let why = "value must be empty when `operator` is 'Exists'";
            faults.push(Fault::invalid(path.child("operator"), value, why));
        }
        _ => faults.push(Fault::not_supported(path.child("operator"), operator, &["Equal", "Exists"])),
    }
    if !matches!(effect.as_str(), "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        faults.push(Fault::not_supported(path.child("effect"), effect, &known));
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinity(faults: &mut Faults, path: &Path, given: &Affinity) {
    let Affinity { node_affinity, pod_affinity, pod_anti_affinity } = given;
    if let Some(nodes) = node_affinity {
        self::node_affinity(faults, &path.child("nodeAffinity"), nodes);
    }
    if let Some(PodAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    }) = pod_affinity
    {
        pods(faults, &path.child("podAffinity"), required.as_deref(), preferred.as_deref());
    }
    if let Some(PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    }) = pod_anti_affinity
    {
        pods(faults, &path.child("podAntiAffinity"), required.as_deref(), preferred.as_deref());
    }
}

fn node_affinity(faults: &mut Faults, path: &Path, given: &NodeAffinity) {
    let NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    } = given;
    if let Some(required) = required {
        let path = path.child(REQUIRED).child("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            faults.push(Fault::required(path.clone(), "must have at least one node selector term"));
        }
        faults.each(&path, &required.node_selector_terms, |faults, path, term| node_term(faults, path, term, true));
    }
    faults.each(&path.child(PREFERRED), preferred.as_deref().unwrap_or_default(), |faults, path, term| {
        weight(faults, path, term.weight);
        // Kubernetes takes any value here: what never matches only weighs nothing.
        node_term(faults, &path.child("preference"), &term.preference, false);
    });
}

fn node_term(faults: &mut Faults, path: &Path, term: &NodeSelectorTerm, values_are_labels: bool) {
    let NodeSelectorTerm { match_expressions, match_fields } = term;
    let expressions = match_expressions.as_deref().unwrap_or_default();
    faults.each(&path.child("matchExpressions"), expressions, |faults, path, given| {
        node_requirement(faults, path, given, values_are_labels);
    });
    faults.each(&path.child("matchFields"), match_fields.as_deref().unwrap_or_default(), node_field);
}

fn node_requirement(faults: &mut Faults, path: &Path, given: &NodeSelectorRequirement, values_are_labels: bool) {
    let NodeSelectorRequirement { key, operator: said, values } = given;
    let values = values.as_deref().unwrap_or_default();
    match said.as_str() {
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            faults.push(Fault::required(path.child("values"), why));
        }
        "Gt" | "Lt" => {}
        other => operator(faults, path, other, values),
    }
    faults.words(&path.child("key"), key, label::key(key));
    requirement_values(faults, path, values, values_are_labels);
}

/// The one field of a node that a pod may choose by is its name.
fn node_field(faults: &mut Faults, path: &Path, given: &NodeSelectorRequirement) {
    let NodeSelectorRequirement { key, operator, values } = given;
    let values = values.as_deref().unwrap_or_default();
    match operator.as_str() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            faults.push(Fault::required(path.child("values"), why));
        }
        other => faults.push(Fault::invalid(path.child("operator"), other, "not a valid selector operator")),
    }
    if key != "metadata.name" {
        faults.push(Fault::invalid(path.child("key"), key.as_str(), "not a valid field selector key"));
        return;
    }
    faults.each(&path.child("values"), values, |faults, path, name| faults.words(path, name, label::subdomain(name)));
}

fn pods(
    faults: &mut Faults,
    path: &Path,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
) {
    faults.each(&path.child(REQUIRED), required.unwrap_or_default(), pod_term);
    faults.each(&path.child(PREFERRED), preferred.unwrap_or_default(), |faults, path, term| {
        weight(faults, path, term.weight);
        pod_term(faults, &path.child("podAffinityTerm"), &term.pod_affinity_term);
    });
}

fn pod_term(faults: &mut Faults, path: &Path, term: &PodAffinityTerm) {
    let PodAffinityTerm {
        label_selector,
        match_label_keys,
        mismatch_label_keys,
        namespace_selector,
        namespaces,
        topology_key,
    } = term;
    selector(faults, &path.child("labelSelector"), label_selector.as_ref());
    selector(faults, &path.child("namespaceSelector"), namespace_selector.as_ref());
    faults.each(&path.child("namespaces"), namespaces.as_deref().unwrap_or_default(), |faults, path, name| {
        faults.words(path, name, label::label(name));
    });
    let matched = match_label_keys.as_deref().unwrap_or_default();
    let mismatched = mismatch_label_keys.as_deref().unwrap_or_default();
    keys(faults, path, (matched, mismatched), label_selector.as_ref());
    let path = path.child("topologyKey");
    if topology_key.is_empty() {
        faults.push(Fault::required(path.clone(), "can not be empty"));
    }
    faults.words(&path, topology_key, label::key(topology_key));
}

fn weight(faults: &mut Faults, path: &Path, weight: i32) {
    if !(1..=100).contains(&weight) {
        faults.push(Fault::invalid(path.child("weight"), weight, "must be in the range 1-100"));
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
