//! The NetworkPolicy of all members. The cluster bus asks nobody who he is: one MEET from outside makes one cluster of two, and a forged
//! claim takes slots. So it is for the members alone, and their agents are for those who have business with them. Kubelets ask the agents
//! how their pods are, and are let in by every network plugin, because they are on the node itself.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use types::names;

use super::{Error, labels, meta, sealed, worker_labels};
use crate::resolve::Resolved;

/// Label with its name that Kubernetes puts on each namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Who reaches what; `None`: nothing is asked for, and everybody reaches everything.
pub(super) fn network_policy(resolved: &Resolved) -> Result<Option<NetworkPolicy>, Error> {
    let types::cluster::NetworkPolicy { enabled, clients } = &resolved.network_policy;
    if !enabled {
        return Ok(None);
    }
    let cluster = &resolved.key.name;
    let members = selects(labels(cluster, None));
    let workers = pods(selects(worker_labels(cluster)));
    let policy = NetworkPolicy {
        metadata: meta(resolved, names::network_policy(cluster), None),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(members.clone()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![
                rule(&[names::PORT_REDIS], clients.iter().flatten().map(spelled_alike).collect()),
                rule(&[names::PORT_REDIS, names::PORT_BUS, names::PORT_AGENT], vec![pods(members)]),
                rule(&[names::PORT_REDIS, names::PORT_AGENT], vec![controller(&resolved.controller_namespace)]),
                rule(&[names::PORT_AGENT], vec![workers]),
            ]),
            ..NetworkPolicySpec::default()
        }),
    };
    sealed(policy, "a NetworkPolicy").map(Some)
}

/// An empty `from` is everybody.
fn rule(ports: &[u16], from: Vec<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    let port = |port: &u16| NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(*port))),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    };
    NetworkPolicyIngressRule { from: (!from.is_empty()).then_some(from), ports: Some(ports.iter().map(port).collect()) }
}

/// Pods of the cluster's own namespace.
fn pods(selector: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selector), ..NetworkPolicyPeer::default() }
}

fn controller(namespace: &str) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(selects([(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into())),
        ..pods(selects([("app.kubernetes.io/name".to_owned(), names::CONTROLLER_NAME.to_owned())].into()))
    }
}

fn selects(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}

/// The same peer in the words in which an API server keeps it: it leaves empty lists and maps out, and what it has left out would be put
/// right for ever.
fn spelled_alike(peer: &NetworkPolicyPeer) -> NetworkPolicyPeer {
    let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = peer.clone();
    let selector = |LabelSelector { match_labels, match_expressions }| LabelSelector {
        match_labels: match_labels.filter(|labels: &BTreeMap<String, String>| !labels.is_empty()),
        match_expressions: match_expressions.filter(|list| !list.is_empty()).map(|mut list| {
            for expression in &mut list {
                expression.values = expression.values.take().filter(|values| !values.is_empty());
            }
            list
        }),
    };
    NetworkPolicyPeer {
        ip_block: ip_block
            .map(|IPBlock { cidr, except }| IPBlock { cidr, except: except.filter(|list| !list.is_empty()) }),
        namespace_selector: namespace_selector.map(selector),
        pod_selector: pod_selector.map(selector),
    }
}

#[cfg(test)]
#[path = "network_policy_tests.rs"]
mod tests;
