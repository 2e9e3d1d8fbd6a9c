//! Every member that does not lead follows its shard's lead.

use crate::desired::FailoverHow;
use crate::observed::{PeerRole, Role};
use crate::phase::{Flow, receiver};
use crate::plan::{Plan, Refused, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::slots::SlotSet;
use crate::step::Step;

pub(crate) fn replicate(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let before = plan.steps.len();
    for live in scene.live.iter().filter(|live| scene.is_wanted(live.pod) && !live.node.loading) {
        match scene.lead(live.pod.shard) {
            Some(lead) if lead.pod != live.pod => follow(scene, plan, live, &lead),
            Some(_) => {}
            // Nobody in the shard is a primary: its replicas follow somebody of another shard, and the shard's own lead has to come.
            None => match first_lead(scene, live.pod.shard) {
                Some(step) if !plan.steps.contains(&step) => plan.steps.push(step),
                Some(_) => {}
                None => plan.waiting.push(Waiting::Primary { shard: live.pod.shard, slots: 0 }),
            },
        }
    }
    if plan.steps.len() > before { Flow::Stop } else { Flow::On }
}

/// All members of the shard follow a node that is gone for good, never owned a slot that anybody knows of, and left them without a key: the first of them
/// becomes a primary by itself, as nobody votes for the replica of a primary without slots.
fn first_lead(scene: &Scene<'_>, shard: u16) -> Option<Step> {
    let is_bare = |live: &Live<'_>| match &live.node.role {
        Role::Replica { of, .. } => {
            let line = live.node.peers.get(of);
            let owned_nothing = line.is_some_and(|line| line.slots().is_empty()) && !scene.is_lost(*of);
            let is_gone = scene.by_id(*of).is_none() && safety::may_return(scene, *of).is_none();
            (is_gone && owned_nothing && live.node.keys == 0 && !live.node.loading).then_some(*of)
        }
        Role::Primary { .. } => None,
    };
    let first = scene.live_of(shard).find(|live| !scene.is_terminating(live.pod))?;
    let primary = is_bare(&first)?;
    let is_free = scene.live_of(shard).all(|live| is_bare(&live).is_some()) && safety::may_ask(scene, shard).is_ok();
    is_free.then_some(Step::Failover {
        replica: first.who(),
        primary,
        how: FailoverHow::Takeover,
        over: None,
        unheard: SlotSet::EMPTY,
    })
}

/// While a primary is lost: members of shards that have their owner follow it, unless what they hold may be somebody's who does not answer. A
/// shard that has just lost its primary must not stay with one copy for as long as another shard is lost.
pub(crate) fn among_the_living(scene: &Scene<'_>, plan: &mut Plan) {
    for live in scene.live.iter().filter(|live| scene.is_wanted(live.pod) && !live.node.loading) {
        let owner = scene.owner(live.pod.shard).filter(|owner| owner.pod != live.pod);
        if let Some(owner) = owner.filter(|_| holds_nothing_of_the_silent(scene, live)) {
            follow(scene, plan, live, &owner);
        }
    }
}

/// It is blank, or follows somebody who is there. A replica of a lost primary is left as it is, whatever it holds.
fn holds_nothing_of_the_silent(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    match &live.node.role {
        Role::Primary { slots } => slots.is_empty() && live.node.keys == 0,
        Role::Replica { of, .. } => scene.by_id(*of).is_some_and(|primary| primary.node.is_primary()),
    }
}

fn follow(scene: &Scene<'_>, plan: &mut Plan, live: &Live<'_>, lead: &Live<'_>) {
    let join = Step::Replicate { node: live.who(), primary: lead.who() };
    match &live.node.role {
        Role::Replica { of, synced, link_up, misled, lag_bytes, offset: _, gap: _, stands: _ }
            if *of == lead.node.id =>
        {
            let found = live.knows(lead) && !scene.is_terminating(live.pod);
            if *misled && !link_up && found {
                plan.steps.push(join);
            } else if !synced || !link_up {
                plan.waiting.push(Waiting::Sync { pod: live.pod, link_up: *link_up, lag_bytes: *lag_bytes });
            }
        }
        // Gossip that is under way has been reported, or will be: Redis refuses to follow whom it does not know as a primary.
        Role::Replica { .. } | Role::Primary { .. } if !sees_primary(live, lead) => {}
        // A copy that is about to go is not worth making.
        Role::Replica { .. } | Role::Primary { .. } if scene.is_terminating(live.pod) => {}
        // Whom it has followed is silent, and it has not heard that somebody else owns the slots: what it holds may be the newest there is, unless the
        // lead has gone on from it.
        Role::Replica { of, link_up, lag_bytes, .. }
            if scene.by_id(*of).is_none() && !believes(scene, live, lead) && !scene.has_left_behind(lead, live) =>
        {
            plan.waiting.push(Waiting::Sync { pod: live.pod, link_up: *link_up, lag_bytes: *lag_bytes });
        }
        Role::Replica { .. } => plan.steps.push(join),
        // Slots it still owns are drained first.
        Role::Primary { .. } if !scene.owned_by(live.pod).is_empty() => {}
        Role::Primary { slots } if slots.is_empty() && live.node.keys == 0 => plan.steps.push(join),
        Role::Primary { .. } => tell_of_keys(scene, plan, live),
    }
}

/// Of a primary without slots that holds keys, which leads nothing.
pub(super) fn tell_of_keys(scene: &Scene<'_>, plan: &mut Plan, live: &Live<'_>) {
    if safety::is_former(scene, live) {
        tell_of_former(plan, live);
    } else {
        plan.waiting.push(Waiting::Leftover { pod: live.pod, keys: live.node.keys });
    }
}

/// Redis makes no replica of a former primary while it holds keys. What it was told alone nobody else has, so a person decides.
pub(super) fn tell_of_former(plan: &mut Plan, live: &Live<'_>) {
    let slots = safety::slots_with_keys(live);
    let compared = |slot: u16| live.node.compared.get(&slot).copied();
    let lacking = slots.iter().filter(|slot| compared(*slot) == Some(false)).collect();
    let unknown = slots.iter().filter(|slot| compared(*slot).is_none()).collect();
    plan.refused.push(Refused::Former { pod: live.pod, keys: live.node.keys, slots, lacking, unknown });
}

/// Of who owns nothing there is nothing to be believed, but that it is there. Where it holds nothing either, whoever holds keys may be the only one.
fn believes(scene: &Scene<'_>, live: &Live<'_>, lead: &Live<'_>) -> bool {
    let is_moot = live.node.keys > 0 && receiver::is_blank(scene, lead);
    let entry = live.node.peers.get(&lead.node.id);
    !is_moot && entry.is_some_and(|peer| scene.owned_by(lead.pod).difference(peer.slots()).is_empty())
}

fn sees_primary(live: &Live<'_>, lead: &Live<'_>) -> bool {
    let entry = live.node.peers.get(&lead.node.id);
    live.knows(lead) && entry.is_some_and(|peer| matches!(peer.role, PeerRole::Primary { .. }))
}
