#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use k8s_openapi::api::core::v1::Pod as KubePod;
use serde_json::{Value, json};

use super::*;
use crate::build::build;
use crate::testing::{cluster, gathered, try_resolve};

fn pod(status: &Value) -> KubePod {
    serde_json::from_value(json!({"metadata": {"name": "orders-0-0"}, "status": status})).unwrap()
}

fn redis(state: &Value) -> Value {
    json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
        {"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state},
    ]})
}

#[test]
fn a_container_is_dead_only_where_kubernetes_proves_it() {
    let running = Container::Running { address: "10.0.0.1:6379".parse().unwrap() };
    let ended = json!({"terminated": {"exitCode": 1}});
    let table = [
        (redis(&json!({"running": {}})), running),
        (redis(&ended), Container::Stopped),
        (redis(&json!({"waiting": {"reason": "CrashLoopBackOff"}})), Container::Stopped),
        (json!({"phase": "Failed"}), Container::Stopped),
        (json!({"phase": "Pending"}), Container::Unreported),
        (redis(&json!({})), Container::Unreported),
    ];
    for (status, expected) in table {
        assert_eq!(container_of(&pod(&status)), expected, "{status}");
    }
}

#[test]
fn every_place_of_every_set_is_listed_and_only_a_running_restart_makes_pods_outdated() {
    let mut gathered = gathered(cluster(&json!({"shards": 1, "replicasPerShard": 1})));
    let objects = build(&try_resolve(&gathered).unwrap()).unwrap();
    let mut set = objects.stateful_sets[0].clone();
    let template = set.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    template.annotations.as_mut().unwrap().insert("redis.kun.io/restarted-by".to_owned(), "op-1".to_owned());
    let annotations = objects.stateful_sets[0].spec.clone().unwrap().template.metadata.unwrap().annotations;
    let mut old = pod(&json!({}));
    old.metadata.annotations = annotations;
    old.metadata.labels = set.metadata.labels.clone();
    gathered.pods.insert("orders-0-0".to_owned(), std::sync::Arc::new(old));
    gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set.clone()));

    let idle = places(&gathered, &marks(std::slice::from_ref(&set), None));
    let outdated = |places: &BTreeMap<Pod, Place>| places.values().map(|p| p.outdated).collect::<Vec<_>>();
    assert_eq!(idle.keys().copied().collect::<Vec<_>>(), [Pod::new(0, 0), Pod::new(0, 1)]);
    assert_eq!(idle[&Pod::new(0, 1)].container, Container::None);
    assert_eq!(outdated(&idle), [false, false]);
    let running = places(&gathered, &marks(std::slice::from_ref(&set), Some("op-1")));
    assert_eq!(outdated(&running), [true, false]);
}

#[test]
fn what_an_agent_says_becomes_what_the_planner_reads() {
    let report = |phase, because: Option<&str>| types::agent::AgentReport {
        pod: "orders-0-0".to_owned(),
        phase,
        held_because: because.map(str::to_owned),
        node_id: Some("ab".repeat(20)),
        holds_data: true,
        starts: 1,
    };
    let held = Seen::Held {
        holds_data: true,
        id: NodeId::parse(&"ab".repeat(20)),
        reason: "another member may hold newer data".to_owned(),
    };
    assert_eq!(of_agent(&report(AgentPhase::Held, Some("another member may hold newer data"))), held);
    assert_eq!(of_agent(&report(AgentPhase::Starting, None)), Seen::Starting);
    assert_eq!(of_agent(&report(AgentPhase::Running, None)), Seen::Starting);
    assert_eq!(of_agent(&report(AgentPhase::Stopping, None)), Seen::Unknown { since_millis: 0 });
}

fn node(id: u8, role: plan::Role, epoch: u64) -> plan::Node {
    plan::Node {
        id: NodeId::from_bytes([id; 20]),
        address: "10.0.0.1:6379".to_owned(),
        role,
        open: BTreeMap::new(),
        foreign_keys: BTreeMap::new(),
        keys: 0,
        bytes: 0,
        epoch,
        current_epoch: epoch,
        state_ok: true,
        loading: false,
        node_timeout_millis: 5000,
        peers: BTreeMap::new(),
    }
}

#[test]
fn an_election_is_a_role_won_or_a_new_epoch_or_a_past_that_is_not_known() {
    let owner = || plan::Role::Primary { slots: plan::SlotSet::all() };
    let empty = || plan::Role::Primary { slots: plan::SlotSet::EMPTY };
    let of = NodeId::from_bytes([9; 20]);
    let replica = || plan::Role::Replica { of, synced: true, link_up: true, misled: false, offset: 0, lag_bytes: 0 };
    let elected = |looks: Vec<(plan::Role, u64, bool)>| {
        let mut memory = Memory::default();
        for (role, epoch, raised) in looks {
            memory.elections.clear();
            memory.raised = raised;
            memory.note_claim(Pod::new(0, 0), &node(1, role, epoch), Instant::now());
        }
        !memory.elections.is_empty()
    };
    let table = [
        ("first seen, fresh", vec![(empty(), 0, false)], false),
        ("first seen, owns slots", vec![(owner(), 1, false)], true),
        ("first seen, follows", vec![(replica(), 1, false)], true),
        ("stays", vec![(owner(), 1, false), (owner(), 1, false)], false),
        ("is given slots", vec![(empty(), 1, false), (owner(), 1, false)], false),
        ("is promoted", vec![(replica(), 1, false), (owner(), 2, false)], true),
        ("steps down", vec![(owner(), 1, false), (replica(), 2, false)], false),
        ("lost the role and won it back unseen", vec![(owner(), 1, false), (owner(), 3, false)], true),
        ("a step of ours raised its epoch", vec![(owner(), 1, false), (owner(), 3, true)], false),
    ];
    for (name, looks, expected) in table {
        assert_eq!(elected(looks), expected, "{name}");
    }
}
