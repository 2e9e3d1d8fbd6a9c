//! The first topology: epochs, slots, introductions, replicas.

use alloc::vec::Vec;

use crate::observed::{Pod, Role};
use crate::plan::{Plan, Waiting};
use crate::scene::{Live, Scene};
use crate::slots::{SLOTS, SlotSet};
use crate::step::Step;

pub(crate) fn create(scene: &Scene<'_>, plan: &mut Plan) {
    if await_members(scene, plan) {
        return;
    }
    let leads: Vec<Live<'_>> = (0..scene.desired.shards).filter_map(|shard| scene.lead(shard)).collect();
    if scene.is_blank() {
        let bootstrap = scene.limits.bootstrap_node_timeout_millis;
        plan.steps.extend(timeouts(scene, bootstrap));
        plan.steps.extend(
            leads
                .iter()
                .zip(1..)
                .filter(|(lead, _)| lead.node.epoch == 0 && lead.node.peers.is_empty())
                .map(|(lead, epoch)| Step::Epoch { node: lead.who(), epoch }),
        );
    }
    plan.steps.extend(leads.iter().filter_map(|lead| assign(scene, lead)));
    plan.steps.extend(introductions(scene));
    if !plan.steps.is_empty() {
        return;
    }
    plan.steps = replicas(scene, &mut plan.waiting);
    if plan.steps.is_empty() && plan.waiting.is_empty() {
        let of = u16::try_from(scene.live.len()).unwrap_or(u16::MAX);
        let right = u16::try_from(scene.live.iter().filter(|live| live.node.state_ok).count()).unwrap_or(u16::MAX);
        if right < of {
            plan.waiting.push(Waiting::Agreement { right, of });
        } else {
            plan.steps.extend(timeouts(scene, scene.desired.node_timeout_millis));
        }
    }
}

fn await_members(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    let wanted: Vec<Pod> = scene.wanted().collect();
    let mut missing = wanted.iter().filter(|pod| !scene.live.iter().any(|live| live.pod == **pod));
    let Some(first) = missing.next() else { return false };
    let want = u16::try_from(wanted.len()).unwrap_or(u16::MAX);
    let have = want.saturating_sub(1).saturating_sub(u16::try_from(missing.count()).unwrap_or(u16::MAX));
    plan.waiting.push(Waiting::Members { have, want, first: *first });
    true
}

fn timeouts<'a>(scene: &'a Scene<'_>, millis: u64) -> impl Iterator<Item = Step> + 'a {
    let other = scene.live.iter().filter(move |live| live.node.node_timeout_millis != millis);
    other.map(move |live| Step::NodeTimeout { node: live.who(), millis })
}

/// The contiguous range a shard has when nothing else speaks.
pub(crate) fn ideal(shard: u16, shards: u16) -> SlotSet {
    let bound = |index: u16| u32::from(index) * u32::from(SLOTS) / u32::from(shards.max(1));
    let (first, end) = (bound(shard), bound(shard + 1));
    match (u16::try_from(first), u16::try_from(end.saturating_sub(1))) {
        (Ok(first), Ok(last)) if end > first.into() => SlotSet::range(first, last),
        _ => SlotSet::EMPTY,
    }
}

fn assign(scene: &Scene<'_>, lead: &Live<'_>) -> Option<Step> {
    let slots = ideal(lead.pod.shard, scene.desired.shards).intersection(&scene.unserved);
    (!slots.is_empty()).then(|| Step::AddSlots { node: lead.who(), slots })
}

fn introductions(scene: &Scene<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (index, one) in scene.live.iter().enumerate() {
        for other in scene.live.iter().skip(index + 1) {
            let knows = |a: &Live<'_>, b: &Live<'_>| {
                a.node
                    .peers
                    .get(&b.node.id)
                    .is_some_and(|peer| peer.address == b.node.address && !peer.handshake && !peer.noaddr)
            };
            if !(knows(one, other) && knows(other, one)) {
                steps.push(Step::Meet { node: one.who(), peer: other.who(), address: other.node.address.clone() });
            }
        }
    }
    steps.truncate(usize::from(scene.limits.meets));
    steps
}

fn replicas(scene: &Scene<'_>, waiting: &mut Vec<Waiting>) -> Vec<Step> {
    let mut steps = Vec::new();
    for live in &scene.live {
        let Some(lead) = scene.lead(live.pod.shard).filter(|lead| lead.pod != live.pod) else { continue };
        match &live.node.role {
            Role::Replica { of, synced, link_up, lag_bytes, .. } if *of == lead.node.id => {
                if !synced || !link_up {
                    waiting.push(Waiting::Sync { pod: live.pod, link_up: *link_up, lag_bytes: *lag_bytes });
                }
            }
            Role::Replica { .. } => steps.push(Step::Replicate { node: live.who(), primary: lead.who() }),
            Role::Primary { slots } if slots.is_empty() && live.node.keys == 0 => {
                steps.push(Step::Replicate { node: live.who(), primary: lead.who() });
            }
            Role::Primary { .. } => waiting.push(Waiting::Leftover { pod: live.pod, keys: live.node.keys }),
        }
    }
    steps
}
