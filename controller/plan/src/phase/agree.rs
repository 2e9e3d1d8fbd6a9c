//! Whether every node's own table says the same, and the same as what was found at the places.

use crate::observed::{Health, PeerRole, Role};
use crate::phase::Flow;
use crate::plan::{Plan, Waiting};
use crate::scene::{Live, Scene};

pub(crate) fn agree(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let (right, of) = (right(scene), scene.live.len());
    if right < of {
        plan.waiting.push(Waiting::Agreement { right: super::count(right), of: super::count(of) });
    }
    Flow::On
}

/// Nodes whose table is right in every line.
pub(crate) fn right(scene: &Scene<'_>) -> usize {
    scene.live.iter().filter(|live| is_right(scene, live)).count()
}

fn is_right(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    let lines = scene.live.iter().filter(|other| other.pod != live.pod).all(|other| is_right_about(live, other));
    live.node.state_ok && live.node.open.is_empty() && live.node.peers.len() + 1 == scene.live.len() && lines
}

fn is_right_about(live: &Live<'_>, other: &Live<'_>) -> bool {
    let Some(entry) = live.node.peers.get(&other.node.id) else { return false };
    let role = match (&entry.role, &other.node.role) {
        (PeerRole::Primary { slots: believed }, Role::Primary { slots }) => believed == slots,
        (PeerRole::Replica { of: believed }, Role::Replica { of, .. }) => believed == of,
        (PeerRole::Primary { .. }, Role::Replica { .. }) | (PeerRole::Replica { .. }, Role::Primary { .. }) => false,
    };
    role && live.knows(other) && entry.connected && entry.health == Health::Ok
}
