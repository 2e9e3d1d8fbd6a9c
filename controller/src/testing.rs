//! What several tests of this crate need: a resolved cluster, and what was seen of it, in compact notation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use plan::{Health, Member, Node, NodeId, Peer, PeerRole, Pod, Role, Seen, SlotSet};
use serde_json::{Value, json};
use types::RedisCluster;
use types::engine::Engine;

use crate::credentials::fixed::Fixed;
use crate::gather::Gathered;
use crate::probe::{Facts, Probed};
use crate::resolve::{Context, Error, Resolved, resolve};

pub(crate) fn cluster(spec: &Value) -> RedisCluster {
    serde_json::from_value(json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "11111111-2222", "generation": 3},
        "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn gathered(cluster: RedisCluster) -> Gathered {
    Gathered::alone(Arc::new(cluster))
}

pub(crate) fn try_resolve(gathered: &Gathered) -> Result<Resolved, Error> {
    resolve(
        gathered,
        Context { kun_image: "kun:1", namespace: "kun-system", issuer: &Fixed, now: Timestamp::UNIX_EPOCH },
    )
}

pub(crate) fn resolved(spec: &Value) -> Resolved {
    try_resolve(&gathered(cluster(spec))).unwrap()
}

pub(crate) fn id(shard: u16, ordinal: u16) -> NodeId {
    NodeId::from_bytes([u8::try_from(shard * 16 + ordinal + 1).unwrap(); 20])
}

fn address(pod: Pod) -> String {
    format!("10.0.{}.{}:6379", pod.shard, pod.ordinal)
}

fn share(shard: u16, shards: u16) -> SlotSet {
    let bound = |n: u16| u16::try_from(u32::from(n) * 16384 / u32::from(shards)).unwrap();
    SlotSet::range(bound(shard), bound(shard + 1) - 1)
}

/// A replica that has all that its primary has.
pub(crate) fn in_sync(of: NodeId) -> Role {
    Role::Replica {
        of,
        synced: true,
        link_up: true,
        misled: false,
        offset: 100,
        lag_bytes: 0,
        gap: plan::Gap::default(),
        stands: plan::Stands::ByItself,
    }
}

/// A replica that was never in sync, and has no link.
pub(crate) fn out_of_sync(of: NodeId) -> Role {
    let gap = plan::Gap::default();
    Role::Replica {
        of,
        synced: false,
        link_up: false,
        misled: false,
        offset: 0,
        lag_bytes: 100,
        gap,
        stands: plan::Stands::ByItself,
    }
}

/// A healthy cluster: ordinal 0 of each shard is its primary, everybody knows everybody.
pub(crate) fn healthy(shards: u16, members: u16) -> Probed {
    let pods: Vec<Pod> = (0..shards).flat_map(|s| (0..members).map(move |o| Pod::new(s, o))).collect();
    let mut probed = Probed::default();
    for pod in &pods {
        let peers = pods.iter().filter(|other| *other != pod).map(|other| {
            let role = if other.ordinal == 0 {
                PeerRole::Primary { slots: share(other.shard, shards) }
            } else {
                PeerRole::Replica { of: id(other.shard, 0) }
            };
            let peer = Peer {
                address: address(*other),
                role,
                health: Health::Ok,
                connected: true,
                handshake: false,
                noaddr: false,
                epoch: u64::from(other.shard) + 1,
            };
            (id(other.shard, other.ordinal), peer)
        });
        let role = if pod.ordinal == 0 {
            Role::Primary { slots: share(pod.shard, shards) }
        } else {
            in_sync(id(pod.shard, 0))
        };
        let node = Node {
            address: address(*pod),
            keys: 10,
            bytes: 1000,
            current_epoch: u64::from(shards),
            peers: peers.collect(),
            ..a_node(id(pod.shard, pod.ordinal), role, u64::from(pod.shard) + 1)
        };
        let seen = Seen::Node(Box::new(node));
        let site = plan::Site::Unknown;
        probed.observed.members.insert(
            *pod,
            Member { outdated: false, terminating: false, last_id: None, site, seen, waits: false, stuck: false },
        );
        let facts = Facts {
            address: address(*pod).parse().unwrap(),
            run_id: format!("process of {pod}"),
            engine: Engine::Redis,
            version: "7.0.15".to_owned(),
            replication_id: format!("stream of shard {}", pod.shard),
            former: None,
            offset: 100,
            is_slave: pod.ordinal != 0,
            syncing: false,
            max_memory: 0,
            used_memory: 1500,
            compresses: true,
            persistence_failed: None,
            own_line: Some(address(*pod).parse().unwrap()),
            at_odds: false,
            unlike: BTreeMap::new(),
        };
        probed.facts.insert(*pod, facts);
    }
    probed
}

/// A node that is well, holds nothing and knows nobody.
pub(crate) fn a_node(id: NodeId, role: Role, epoch: u64) -> Node {
    Node {
        id,
        address: "10.0.0.1:6379".to_owned(),
        role,
        open: BTreeMap::new(),
        foreign_keys: BTreeMap::new(),
        uncounted: plan::SlotSet::EMPTY,
        compared: BTreeMap::new(),
        leaving: BTreeMap::new(),
        keys: 0,
        bytes: 0,
        room: None,
        epoch,
        current_epoch: epoch,
        state_ok: true,
        loading: false,
        disk: plan::Disk::Current,
        node_timeout_millis: 5000,
        peers: BTreeMap::new(),
    }
}

/// The node at a place, to be changed by a test.
pub(crate) fn node(probed: &mut Probed, shard: u16, ordinal: u16) -> &mut Node {
    match &mut probed.observed.members.get_mut(&Pod::new(shard, ordinal)).unwrap().seen {
        Seen::Node(node) => node,
        other => panic!("{other:?} is no node"),
    }
}
