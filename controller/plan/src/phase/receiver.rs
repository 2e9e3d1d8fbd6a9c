//! What a primary was sent of its first slots lies with it and its replicas alone: at the giver it is deleted. Where it is gone for good, Redis elects
//! none of these, as it owned no slot (`clusterHandleSlaveFailover`), and disputes none either: a whole copy takes over without votes, and what is
//! half moved goes on to that one. Of one that may lack something a person decides. Until then the giver's marks stay, and nobody copies anybody. Where
//! the giver was replaced as well there are no marks any more: then the shard gets no slot before that, as its copies would copy whoever has one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::desired::FailoverHow;
use crate::observed::{NodeId, Open, Peer, Pod, Role};
use crate::phase::{agree, cover};
use crate::plan::{Operation, Plan, Refused, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::slots::SlotSet;
use crate::step::Step;

/// Sees to the copies of such primaries; gives those whose marks stay for them.
pub(super) fn replace(scene: &Scene<'_>, plan: &mut Plan) -> BTreeSet<NodeId> {
    let mut copies: BTreeMap<NodeId, Vec<Live<'_>>> = BTreeMap::new();
    for live in &scene.live {
        if let Role::Replica { of, .. } = &live.node.role
            && is_left_of(scene, live, *of)
        {
            copies.entry(*of).or_default().push(*live);
        }
    }
    let mut kept = BTreeSet::new();
    for (gone, copies) in copies {
        let is_marked = scene.live.iter().any(|giver| !given_by(scene, giver, gone).is_empty());
        let is_whole = copies.iter().any(|copy| is_whole(scene, copy, gone));
        let outcome = decide(scene, plan, gone, &copies);
        if is_marked || is_whole || outcome == Outcome::GoesOn {
            kept.insert(gone);
        }
    }
    kept
}

/// What becomes of such copies now.
#[derive(PartialEq, Eq)]
enum Outcome {
    /// One takes over, or will.
    GoesOn,
    /// A person decides; or nothing is known to be there, and nothing was ever to be kept.
    Rests,
}

/// A member of the shard has such a copy, of which a person decides. Were its blank lead given the shard's first slot, the copy would take that one for an
/// heir, and copy that it holds nothing; and with the shard it would go.
pub(super) fn has_a_copy(scene: &Scene<'_>, shard: u16) -> bool {
    let is_copy = |live: Live<'_>| match &live.node.role {
        Role::Replica { of, .. } => is_left_of(scene, &live, *of),
        Role::Primary { .. } => false,
    };
    !scene.desired.adopt_lost_slots && scene.live_of(shard).any(is_copy)
}

/// Where a member of the shard is expected back that may alone have what it was sent of a first slot: a replica of it holds something, or its ends have
/// shown the move, and nobody shows it now, as the giver was replaced.
pub(super) fn awaited(scene: &Scene<'_>, shard: u16) -> Option<Pod> {
    if scene.desired.adopt_lost_slots {
        return None;
    }
    let copied = scene.live_of(shard).filter_map(|live| match live.node.role {
        Role::Replica { of, .. } => (live.node.keys > 0 || live.node.loading).then_some(of),
        Role::Primary { .. } => None,
    });
    let sent = scene.silent_moves().map(|moved| moved.to).filter(|to| scene.is_of_shard(*to, shard));
    let mut silent = copied.chain(sent).filter(|id| scene.by_id(*id).is_none());
    silent.find_map(|id| safety::may_bring_data(scene, id))
}

/// It holds something of a primary that owned nothing and does not bring that back, and nobody has taken that one's place.
fn is_left_of(scene: &Scene<'_>, live: &Live<'_>, gone: NodeId) -> bool {
    let owned_nothing = live.node.peers.get(&gone).map(Peer::slots).is_some_and(SlotSet::is_empty);
    // Also one that may come back, where a person means this copy all the same: it becomes a replica of that then.
    let is_given_up = || safety::may_bring_data(scene, gone).is_none() || is_ordered(scene, gone, live);
    let is_gone = scene.by_id(gone).is_none() && is_given_up();
    let is_free = scene.lead(live.pod.shard).is_none_or(|lead| is_blank(scene, &lead));
    (live.node.keys > 0 || live.node.loading) && owned_nothing && is_gone && is_free
}

/// It owns nothing, holds nothing and is sent nothing: it is nobody's heir.
pub(super) fn is_blank(scene: &Scene<'_>, lead: &Live<'_>) -> bool {
    scene.owned_by(lead.pod).is_empty() && lead.node.keys == 0 && lead.node.open.is_empty()
}

fn is_whole(scene: &Scene<'_>, copy: &Live<'_>, gone: NodeId) -> bool {
    scene.is_copy(copy, gone) && safety::is_whole(scene, copy)
}

/// Who gives it slots, or has taken the place of one who did, and which.
fn given_to<'a>(scene: &Scene<'a>, gone: NodeId) -> Vec<(Live<'a>, SlotSet)> {
    let given = |giver: &Live<'_>| given_by(scene, giver, gone).union(&remembered(scene, giver, gone));
    let givers = scene.live.iter().map(|live| (*live, given(live))).filter(|(_, slots)| !slots.is_empty());
    givers.collect()
}

/// Slots that an owner has marked as on their way to it.
fn given_by(scene: &Scene<'_>, giver: &Live<'_>, gone: NodeId) -> SlotSet {
    let marks = giver.node.open.iter().filter(|(_, mark)| **mark == Open::Migrating(gone));
    marks.map(|(slot, _)| *slot).collect::<SlotSet>().intersection(scene.owned_by(giver.pod))
}

/// Slots that were on their way to it from the shard of this owner, who has no marks of them.
fn remembered(scene: &Scene<'_>, owner: &Live<'_>, gone: NodeId) -> SlotSet {
    let moves = scene.silent_moves().filter(|moved| moved.to == gone && scene.is_of_shard(moved.from, owner.pod.shard));
    let slots: SlotSet = moves.map(|moved| moved.slot).filter(|slot| !owner.node.open.contains_key(slot)).collect();
    slots.intersection(scene.owned_by(owner.pod))
}

/// Promotes the best of these copies, if it has everything, if a person means it, or if nobody was ever to be asked.
fn decide(scene: &Scene<'_>, plan: &mut Plan, gone: NodeId, copies: &[Live<'_>]) -> Outcome {
    let given = given_to(scene, gone);
    let slots = given.iter().map(|(_, slots)| slots.len()).sum();
    let adopts = scene.desired.adopt_lost_slots;
    if let Some(best) = best(scene, gone, copies, adopts && slots > 0) {
        match may_take_over(scene, gone, &best, slots) {
            Err(wait) => plan.waiting.push(wait),
            Ok(how) => plan.steps.push(Step::Failover {
                replica: best.who(),
                primary: gone,
                how,
                over: None,
                unheard: SlotSet::EMPTY,
            }),
        }
        return Outcome::GoesOn;
    }
    if adopts && slots == 0 {
        return Outcome::Rests;
    }
    if let Some(live) = copies.iter().find(|live| live.node.loading) {
        plan.waiting.push(Waiting::Loading { pod: live.pod });
        return Outcome::GoesOn;
    }
    let shards: BTreeSet<u16> = copies.iter().map(|live| live.pod.shard).collect();
    if scene.desired.failover.as_ref().is_some_and(|ask| ask.from == gone && shards.contains(&ask.shard)) {
        plan.operation = Some(Operation::Refused);
    }
    let giver =
        given.iter().map(|(giver, slots)| (giver.pod, slots.len())).max_by_key(|(pod, some)| (*some, Reverse(*pod)));
    let copies = copies.iter().map(|live| live.pod).collect();
    plan.refused.push(Refused::LeftCopies { id: gone, slots, copies, giver: giver.map(|(pod, _)| pod) });
    Outcome::Rests
}

/// Whom a person names, or who has everything, or, if nothing was ever to be kept, who has most.
fn best<'a>(scene: &Scene<'a>, gone: NodeId, copies: &[Live<'a>], adopts: bool) -> Option<Live<'a>> {
    let stays = |live: &Live<'_>| !scene.is_terminating(live.pod);
    let rank = |live: &Live<'_>| {
        let whole = is_whole(scene, live, gone);
        (whole, if whole { cover::offset(live) } else { live.node.keys }, stays(live), Reverse(live.pod))
    };
    let settled = || copies.iter().copied().filter(|live| !live.node.loading);
    let ordered = settled().find(|live| is_ordered(scene, gone, live));
    let best = settled().max_by_key(rank);
    ordered.or(best.filter(|best| adopts || is_whole(scene, best, gone)))
}

/// A person names it, and accepts what it may lack.
fn is_ordered(scene: &Scene<'_>, gone: NodeId, copy: &Live<'_>) -> bool {
    let asked = scene.desired.failover.as_ref().filter(|ask| ask.how == FailoverHow::Force && ask.accept_data_loss);
    asked.is_some_and(|ask| (ask.shard, ask.from, ask.candidate) == (copy.pod.shard, gone, Some(copy.pod.ordinal)))
}

/// Nobody hears of that primary any more, and nobody who is not seen may have more. With a later epoch than all others it is the one that stands for
/// its shard.
fn may_take_over(scene: &Scene<'_>, gone: NodeId, best: &Live<'_>, slots: u16) -> Result<FailoverHow, Waiting> {
    let shard = best.pod.shard;
    if scene.live.iter().any(|live| safety::meets(live, gone)) {
        return Err(Waiting::Primary { shard, slots });
    }
    if let Some((pod, since_millis)) = safety::may_have_more(scene, shard, gone) {
        return Err(Waiting::Unknown { pod, since_millis });
    }
    let is_sure = is_whole(scene, best, gone) || is_ordered(scene, gone, best);
    if let Some(pod) = safety::may_have_another_copy(scene, shard, gone).filter(|_| !is_sure) {
        return Err(Waiting::Copy { pod, instead_of: best.pod });
    }
    safety::may_ask(scene, shard)?;
    let ready = safety::ready_for_claim(scene, best, &SlotSet::EMPTY, scene.highest_epoch());
    ready.map_err(|right| agree::awaited(scene, right))?;
    Ok(FailoverHow::Takeover)
}
