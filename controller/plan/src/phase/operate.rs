//! The failover somebody asked for, and handing the primary role over in general.

use alloc::vec::Vec;

use crate::desired::{Desired, FailoverHow, FailoverRequest, Mode};
use crate::observed::{Pod, Role};
use crate::phase::{Flow, agree};
use crate::plan::{Operation, Plan, Refused, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::slots::SlotSet;
use crate::step::Step;

/// What is known of the request before anything is looked at.
pub(crate) fn before(desired: &Desired) -> Option<Operation> {
    desired.failover.as_ref().map(|_| match desired.mode {
        Mode::Cluster => Operation::Running,
        Mode::Standalone => Operation::Refused,
    })
}

pub(crate) fn operate(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let Some(ask) = &scene.desired.failover else { return Flow::On };
    let refusal = refusal(scene.desired, ask);
    if let Some(refusal) = refusal {
        plan.operation = Some(Operation::Refused);
        plan.refused.push(refusal);
        return Flow::On;
    }
    let Some(lead) = scene.owner(ask.shard) else { return Flow::On };
    let candidate = ask.candidate.map(|ordinal| Pod::new(ask.shard, ordinal));
    if candidate.map_or(lead.node.id != ask.from, |pod| pod == lead.pod) {
        return observe(scene, plan, &lead);
    }
    let among: Vec<Live<'_>> =
        scene.live_of(ask.shard).filter(|live| candidate.is_none_or(|pod| pod == live.pod)).collect();
    hand_over(scene, plan, &lead, &among)
}

/// While a primary is lost: the failover is carried out in a shard that has its owner, nothing of which is lost or half moved, and while no replica
/// of the lost one is about to ask for the same votes.
pub(crate) fn among_the_living(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let is_election = |reason: &Waiting| matches!(reason, Waiting::Election { .. } | Waiting::Failover { .. });
    let shard = scene.desired.failover.as_ref().map(|ask| ask.shard);
    let Some(owner) = shard.and_then(|shard| scene.owner(shard)) else { return Flow::On };
    let is_calm = owner.node.open.is_empty() && safety::slots_with_keys(&owner).is_empty();
    let is_whole = safety::has_lost_nothing(scene, owner.pod.shard);
    if is_calm && is_whole && !plan.waiting.iter().any(is_election) { operate(scene, plan) } else { Flow::On }
}

fn refusal(desired: &Desired, ask: &FailoverRequest) -> Option<Refused> {
    let FailoverRequest { shard, from: _, candidate, how: _, accept_data_loss: _ } = ask;
    let candidate = candidate.map(|ordinal| Pod::new(*shard, ordinal));
    if *shard >= desired.shards {
        return Some(Refused::NoSuchShard { shard: *shard, shards: desired.shards });
    }
    let impossible = candidate.map_or(desired.replicas == 0, |pod| pod.ordinal >= desired.members_per_shard());
    impossible.then_some(Refused::NoCandidate { shard: *shard, candidate })
}

/// Done is what everyone sees.
fn observe(scene: &Scene<'_>, plan: &mut Plan, lead: &Live<'_>) -> Flow {
    let owned = scene.owned_by(lead.pod);
    let agrees = |live: &&Live<'_>| {
        live.pod == lead.pod || live.node.peers.get(&lead.node.id).is_some_and(|peer| peer.slots() == owned)
    };
    let right = scene.live.iter().filter(agrees).count();
    if right == scene.live.len() {
        plan.operation = Some(Operation::Done);
    } else {
        plan.waiting.push(agree::awaited(scene, right));
    }
    Flow::On
}

/// Moves the primary role from a living lead to the best of these members, or says what it waits for. Ends the round either way.
pub(crate) fn hand_over(scene: &Scene<'_>, plan: &mut Plan, lead: &Live<'_>, among: &[Live<'_>]) -> Flow {
    let shard = lead.pod.shard;
    if let Err(wait) = safety::may_elect(scene, shard) {
        plan.waiting.push(wait);
        return Flow::Stop;
    }
    let ready = among.iter().filter(|live| safety::may_take_over(scene, live, lead));
    match ready.min_by_key(|live| (company(scene, live), lag(live), live.pod)) {
        Some(best) => plan.steps.push(Step::Failover {
            replica: best.who(),
            primary: lead.node.id,
            how: FailoverHow::Coordinated,
            over: None,
            unheard: SlotSet::EMPTY,
        }),
        None => await_candidate(scene, plan, lead, among),
    }
    Flow::Stop
}

/// Primaries of other shards at the member's site, if they are to be spread: all who may take over are near enough.
fn company(scene: &Scene<'_>, live: &Live<'_>) -> usize {
    let site = scene.site(live.pod).filter(|_| scene.desired.spread);
    let others = scene.leads().into_iter().filter(|lead| lead.pod.shard != live.pod.shard);
    others.filter(|lead| site.is_some() && scene.site(lead.pod) == site).count()
}

fn lag(live: &Live<'_>) -> u64 {
    match &live.node.role {
        Role::Replica { lag_bytes, .. } => *lag_bytes,
        Role::Primary { .. } => u64::MAX,
    }
}

/// Members that are not alive, or will not be for long, have been reported already.
fn await_candidate(scene: &Scene<'_>, plan: &mut Plan, lead: &Live<'_>, among: &[Live<'_>]) {
    for live in among.iter().filter(|live| live.pod != lead.pod && !scene.is_terminating(live.pod)) {
        let (link_up, lag_bytes) = match &live.node.role {
            Role::Replica { of, link_up, lag_bytes, .. } => (*link_up && *of == lead.node.id, *lag_bytes),
            Role::Primary { .. } => (false, 0),
        };
        plan.waiting.push(if link_up && !safety::keeps(scene, live) {
            safety::disk(live)
        } else {
            Waiting::Sync { pod: live.pod, link_up, lag_bytes }
        });
    }
}
