#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

use super::super::reach::{Place, reaches};
use super::*;
use crate::testing::resolved;

fn policies(spec: &Value) -> Vec<NetworkPolicy> {
    network_policy(&resolved(spec)).unwrap().into_iter().collect()
}

/// A pod that has nothing to do with any cluster.
fn stranger(namespace: &str) -> Place {
    Place::pod(namespace, BTreeMap::from([("app".to_owned(), "shop".to_owned())]))
}

/// Everybody there is, and what they may reach of a member: the port of Redis, the bus, the agent.
fn reached(policies: &[NetworkPolicy]) -> Vec<(&'static str, [bool; 3])> {
    let member = Place::pod("shop", labels("orders", Some(0)));
    let kun = |name: &str| BTreeMap::from([("app.kubernetes.io/name".to_owned(), name.to_owned())]);
    [
        ("a member of another shard", Place::pod("shop", labels("orders", Some(1)))),
        ("a member of another cluster", Place::pod("shop", labels("carts", Some(0)))),
        ("a member of a cluster of this name elsewhere", Place::pod("bank", labels("orders", Some(0)))),
        ("a worker of a backup", Place::pod("shop", worker_labels("orders"))),
        ("a worker of another cluster", Place::pod("shop", worker_labels("carts"))),
        ("the controller", Place::pod("kun-system", kun("kun-controller"))),
        ("who calls himself the controller", Place::pod("shop", kun("kun-controller"))),
        ("the webhook", Place::pod("kun-system", kun("kun-webhook"))),
        ("a stranger", stranger("shop")),
        ("a stranger elsewhere", stranger("bank")),
        ("an address", Place { address: Some([192, 0, 2, 7].into()), ..Place::default() }),
    ]
    .map(|(who, from)| {
        let ports = [names::PORT_REDIS, names::PORT_BUS, names::PORT_AGENT];
        (who, ports.map(|port| reaches(policies, &from, &member, port)))
    })
    .into()
}

#[test]
fn the_bus_is_for_members_the_agents_for_kun_too_and_redis_for_everybody() {
    let expected = [
        ("a member of another shard", [true, true, true]),
        ("a member of another cluster", [true, false, false]),
        ("a member of a cluster of this name elsewhere", [true, false, false]),
        ("a worker of a backup", [true, false, true]),
        ("a worker of another cluster", [true, false, false]),
        ("the controller", [true, false, true]),
        ("who calls himself the controller", [true, false, false]),
        ("the webhook", [true, false, false]),
        ("a stranger", [true, false, false]),
        ("a stranger elsewhere", [true, false, false]),
        ("an address", [true, false, false]),
    ];
    assert_eq!(reached(&policies(&json!({}))), expected);
}

#[test]
fn clients_that_are_named_reach_redis_and_nobody_else_but_members_and_kun() {
    let clients = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "bank"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24"}}]);
    let expected = [
        ("a member of another shard", [true, true, true]),
        ("a member of another cluster", [false, false, false]),
        ("a member of a cluster of this name elsewhere", [true, false, false]),
        ("a worker of a backup", [false, false, true]),
        ("a worker of another cluster", [false, false, false]),
        ("the controller", [true, false, true]),
        ("who calls himself the controller", [false, false, false]),
        ("the webhook", [false, false, false]),
        ("a stranger", [false, false, false]),
        ("a stranger elsewhere", [true, false, false]),
        ("an address", [true, false, false]),
    ];
    assert_eq!(reached(&policies(&json!({"networkPolicy": {"clients": clients}}))), expected);
}

#[test]
fn a_cluster_without_a_policy_is_open_to_everybody() {
    let open = policies(&json!({"networkPolicy": {"enabled": false}}));
    assert_eq!(open, []);
    assert!(reached(&open).iter().all(|(_, ports)| *ports == [true; 3]));
}

#[test]
fn every_pod_of_a_cluster_is_behind_its_policy_and_no_other_pod() {
    let whole = crate::build::build(&resolved(&json!({"shards": 2}))).unwrap();
    let policy: Vec<_> = whole.network_policy.into_iter().collect();
    let bus = |to: &Place| reaches(&policy, &stranger("shop"), to, names::PORT_BUS);
    for set in whole.stateful_sets {
        let labels = set.spec.unwrap().template.metadata.unwrap().labels.unwrap();
        assert!(!bus(&Place::pod("shop", labels)));
    }
    for other in [labels("carts", Some(0)), worker_labels("orders"), BTreeMap::new()] {
        assert!(bus(&Place::pod("shop", other)));
    }
}

/// Clients as somebody writes them, and as an API server shows them afterwards.
#[test]
fn what_means_nothing_is_left_out_of_a_client() {
    let empty = json!({"matchLabels": {}, "matchExpressions": []});
    let values = json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]});
    let clients =
        json!([{"namespaceSelector": empty, "podSelector": values}, {"ipBlock": {"cidr": "::/0", "except": []}}]);
    let policy = policies(&json!({"networkPolicy": {"clients": clients}})).remove(0);
    let expected = json!([
        {"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"ipBlock": {"cidr": "::/0"}},
    ]);
    assert_eq!(json!(policy.spec.unwrap().ingress.unwrap()[0].from), expected);
}

/// What the chart installs, by kind.
fn installed(kind: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/install.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    documents.filter(|document| document["kind"] == kind).collect()
}

/// The pods of our own that the chart makes, by their name.
fn parts() -> BTreeMap<String, Place> {
    let read = |object: &Value| serde_json::from_value::<Deployment>(object.clone()).unwrap().spec.unwrap().template;
    let single = |object: &Value| serde_json::from_value::<StatefulSet>(object.clone()).unwrap().spec.unwrap().template;
    let templates =
        installed("Deployment").iter().map(read).chain(installed("StatefulSet").iter().map(single)).collect();
    let place = |PodTemplateSpec { metadata, spec }: PodTemplateSpec| {
        let labels = metadata.unwrap().labels.unwrap();
        (labels["app.kubernetes.io/name"].clone(), Place::pod("kun-system", labels).named_ports(&spec.unwrap()))
    };
    Vec::into_iter(templates).map(place).collect()
}

#[test]
fn the_controller_that_the_chart_installs_is_let_in() {
    let member = Place::pod("shop", labels("orders", Some(0)));
    let policy = policies(&json!({"networkPolicy": {"clients": [{"podSelector": {}}]}}));
    let reached: Vec<_> = parts()
        .into_iter()
        .map(|(name, from)| {
            let ports = [names::PORT_REDIS, names::PORT_BUS, names::PORT_AGENT];
            (name, ports.map(|port| reaches(&policy, &from, &member, port)))
        })
        .collect();
    let expected = [
        ("kun-apiserver", [false, false, false]),
        ("kun-controller", [true, false, true]),
        ("kun-webhook", [false, false, false]),
    ];
    assert_eq!(reached, expected.map(|(name, ports)| (name.to_owned(), ports)));
}

#[test]
fn our_own_pods_are_reached_where_they_listen_and_nowhere_else() {
    let read = |policy: &Value| serde_json::from_value::<NetworkPolicy>(policy.clone()).unwrap();
    let policies: Vec<NetworkPolicy> = installed("NetworkPolicy").iter().map(read).collect();
    let from = Place { address: Some([192, 0, 2, 7].into()), ..Place::default() };
    for (name, part) in parts() {
        let all: Vec<u16> = (1..=u16::MAX).filter(|port| reaches(&policies, &from, &part, *port)).collect();
        let mut listens: Vec<u16> = part.ports.values().map(|port| u16::try_from(*port).unwrap()).collect();
        listens.sort_unstable();
        assert_eq!(all, listens, "{name}");
        assert!(!listens.is_empty(), "{name}");
    }
}
