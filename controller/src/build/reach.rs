//! What NetworkPolicies mean: who reaches which port of whom, as a network plugin that knows them decides it. Only ingress, no ranges of
//! ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A pod, or whoever else has an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) address: Option<IpAddr>,
    /// Its ports that have names.
    pub(crate) ports: BTreeMap<String, i32>,
}

impl Place {
    pub(crate) fn pod(namespace: &str, labels: BTreeMap<String, String>) -> Self {
        Self { namespace: Some(namespace.to_owned()), labels, ..Self::default() }
    }

    pub(crate) fn named_ports(mut self, spec: &PodSpec) -> Self {
        let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
        self.ports = ports.filter_map(|port| Some((port.name.clone()?, port.container_port))).collect();
        self
    }
}

/// Whether `from` reaches a TCP port of `to`, with these policies and no others.
pub(crate) fn reaches(policies: &[NetworkPolicy], from: &Place, to: &Place, port: u16) -> bool {
    let of_target = |policy: &&NetworkPolicy| {
        let spec = policy.spec.as_ref().unwrap();
        policy.metadata.namespace == to.namespace
            && spec.policy_types.iter().flatten().any(|one| one == "Ingress")
            && selects(spec.pod_selector.as_ref().unwrap(), &to.labels)
    };
    let about: Vec<_> = policies.iter().filter(of_target).collect();
    let mut rules = about.iter().flat_map(|policy| policy.spec.as_ref().unwrap().ingress.iter().flatten());
    about.is_empty()
        || rules.any(|rule| {
            let (ports, peers) = (rule.ports.as_deref().unwrap_or_default(), rule.from.as_deref().unwrap_or_default());
            (ports.is_empty() || ports.iter().any(|one| is_port(one, to, port)))
                && (peers.is_empty() || peers.iter().any(|peer| is_peer(peer, from, to)))
        })
}

fn is_port(one: &NetworkPolicyPort, to: &Place, port: u16) -> bool {
    let number = match one.port.as_ref() {
        None => Some(i32::from(port)),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => to.ports.get(name).copied(),
    };
    assert_eq!(one.end_port, None, "ranges are not known here");
    number == Some(i32::from(port)) && one.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}

fn is_peer(peer: &NetworkPolicyPeer, from: &Place, to: &Place) -> bool {
    let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer;
    if let Some(block) = ip_block {
        assert_eq!(block.except, None, "exceptions are not known here");
        return from.address.is_some_and(|address| is_within(&block.cidr, address));
    }
    let Some(namespace) = &from.namespace else { return false };
    let is_there = namespace_selector.as_ref().map_or(Some(namespace) == to.namespace.as_ref(), |selector| {
        let name = ("kubernetes.io/metadata.name".to_owned(), namespace.clone());
        selects(selector, &BTreeMap::from([name]))
    });
    is_there && pod_selector.as_ref().is_none_or(|selector| selects(selector, &from.labels))
}

fn is_within(cidr: &str, address: IpAddr) -> bool {
    let (network, prefix) = cidr.split_once('/').unwrap();
    let (IpAddr::V4(network), IpAddr::V4(address)) = (network.parse().unwrap(), address) else { return false };
    let rest = 32 - prefix.parse::<u32>().unwrap();
    (u64::from(network.to_bits()) >> rest) == (u64::from(address.to_bits()) >> rest)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let LabelSelector { match_labels, match_expressions } = selector;
    match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && match_expressions.iter().flatten().all(|one| {
            let value = labels.get(&one.key);
            let named = value.is_some_and(|value| one.values.iter().flatten().any(|known| known == value));
            match one.operator.as_str() {
                "In" => named,
                "NotIn" => !named,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                other => panic!("{other} is no operator"),
            }
        })
}
