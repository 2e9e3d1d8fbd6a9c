//! Whether every node's own table says the same, and the same as what was found at the places.

use crate::observed::{Health, PeerRole, Pod, Role};
use crate::phase::Flow;
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};

pub(crate) fn agree(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    if right(scene) < scene.live.len() {
        plan.waiting.push(told(scene, agreeing(scene), away(scene)));
    }
    Flow::On
}

/// Only so many of those who answer are ready for what is to be done.
pub(crate) fn awaited(scene: &Scene<'_>, right: usize) -> Waiting {
    told(scene, right, None)
}

fn told(scene: &Scene<'_>, right: usize, away: Option<Pod>) -> Waiting {
    Waiting::Agreement { right: super::count(right), of: super::count(scene.live.len()), away }
}

/// Nodes whose table is right about everybody who answers: a line of somebody who is away is no other opinion of those who are there.
pub(crate) fn agreeing(scene: &Scene<'_>) -> usize {
    let others_may_be_listed = away(scene).is_some();
    scene.live.iter().filter(|live| is_right(scene, live, others_may_be_listed)).count()
}

fn away(scene: &Scene<'_>) -> Option<Pod> {
    scene.wanted().find(|pod| scene.live.iter().all(|live| live.pod != *pod))
}

/// Nodes whose table is right in every line.
pub(crate) fn right(scene: &Scene<'_>) -> usize {
    scene.live.iter().filter(|live| is_right(scene, live, false)).count()
}

/// Whether somebody takes a node for dead that answers us.
pub(crate) fn doubts_the_living(scene: &Scene<'_>) -> bool {
    let doubts = |live: &Live<'_>, other: &Live<'_>| {
        live.node.peers.get(&other.node.id).is_some_and(|entry| entry.health != Health::Ok)
    };
    scene.live.iter().any(|live| scene.live.iter().any(|other| doubts(live, other)))
}

/// `others_may_be_listed`: besides those who answer. A former primary that keeps keys keeps its marks as well, and of slots that it was being sent
/// it believes for ever what it believed then (`clusterUpdateSlotsConfigWith`): it is told of, and its table is no reason to wait.
fn is_right(scene: &Scene<'_>, live: &Live<'_>, others_may_be_listed: bool) -> bool {
    if safety::is_former(scene, live) {
        return true;
    }
    let lines = scene.live.iter().filter(|other| other.pod != live.pod).all(|other| is_right_about(live, other));
    let is_whole = others_may_be_listed || live.node.peers.len() + 1 == scene.live.len();
    live.node.state_ok && live.node.open.is_empty() && is_whole && lines
}

fn is_right_about(live: &Live<'_>, other: &Live<'_>) -> bool {
    let Some(entry) = live.node.peers.get(&other.node.id) else { return false };
    let role = match (&entry.role, &other.node.role) {
        (PeerRole::Primary { slots: believed }, Role::Primary { slots }) => believed == slots,
        (PeerRole::Replica { of: believed }, Role::Replica { of, .. }) => believed == of,
        (PeerRole::Primary { .. }, Role::Replica { .. }) | (PeerRole::Replica { .. }, Role::Primary { .. }) => false,
    };
    role && live.hears(other)
}
