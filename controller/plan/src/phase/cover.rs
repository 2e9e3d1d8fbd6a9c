//! Every slot is to have one living owner: dead primaries are replaced by their synced replicas, slots without an owner get one. Where that
//! has to wait, and nobody knows for how long, the other shards go on with what is in danger there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::desired::{FailoverHow, FailoverRequest};
use crate::observed::{Gap, Member, NodeId, Open, Pod, Role, Seen, Stands};
use crate::phase::{Flow, agree, create, finish, operate, receiver, replicate};
use crate::plan::{Operation, Plan, Refused, Waiting};
use crate::safety::{self, Missing, Votes};
use crate::scene::{Live, Lost, Scene, follows};
use crate::slots::SlotSet;
use crate::step::{ReleaseHow, Step};

pub(crate) fn cover(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let steps = plan.steps.len();
    let mut flow = settle_conflicts(scene, plan);
    let is_disputed = flow == Flow::Stop;
    for lost in in_turn(scene) {
        flow = Flow::Stop;
        replace(scene, plan, lost);
    }
    if let Some(refused) = mistaken(scene, plan) {
        plan.operation = Some(Operation::Refused);
        plan.refused.push(refused);
    }
    if flow == Flow::On && !scene.unowned.is_empty() {
        flow = Flow::Stop;
        if !has_left_copies(scene, plan) {
            assign(scene, plan);
        }
    }
    // Who is replaced now changes what the next look shows, and that comes at once. What was refused may be so again.
    let refused = &scene.observed.failovers_refused;
    let is_news =
        |step: &Step| !matches!(step, Step::Failover { replica, .. } if refused.contains_key(&replica.pod.shard));
    if !is_disputed && !scene.lost.is_empty() && !plan.steps.iter().skip(steps).any(is_news) {
        meanwhile(scene, plan);
    }
    flow
}

/// Those who are to be replaced. A promotion that was refused a moment ago keeps none of the others waiting.
fn in_turn<'s>(scene: &'s Scene<'_>) -> Vec<&'s Lost> {
    let mut all: Vec<&Lost> = scene.lost.iter().filter(|lost| !scene.strangers.contains_key(&lost.id)).collect();
    let refused = |lost: &&Lost| {
        let copy = scene.live.iter().find(|live| follows(live, lost.id))?;
        scene.observed.failovers_refused.get(&copy.pod.shard).copied()
    };
    // The one of the longest time ago comes first among them.
    all.sort_by_key(|lost| refused(lost).map(Reverse));
    all
}

/// What others must not wait for until a lost primary is back, or a person has decided what becomes of its slots: the phases that come next, as
/// far as they touch nothing of it. What moves slots that are whole, restarts or takes away has to wait.
fn meanwhile(scene: &Scene<'_>, plan: &mut Plan) {
    let moves = finish::among_the_living(scene, plan);
    // Two elections at a time take each other's votes.
    if moves == Flow::Stop || is_electing(plan) || operate::among_the_living(scene, plan) == Flow::On {
        // Copies disturb no slot.
        replicate::among_the_living(scene, plan);
    }
}

/// Two live nodes that claim the same slots sort it out by epoch within a few messages.
fn settle_conflicts(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let mut flow = Flow::On;
    for one in &scene.live {
        let overruled = one.node.slots().difference(scene.owned_by(one.pod));
        let winner = scene.live.iter().find(|other| !scene.owned_by(other.pod).intersection(&overruled).is_empty());
        if let Some(other) = winner {
            let slots = scene.owned_by(other.pod).intersection(&overruled).len();
            plan.waiting.push(Waiting::Conflict { one: one.pod, other: other.pod, slots });
            flow = Flow::Stop;
        }
    }
    flow
}

fn replace(scene: &Scene<'_>, plan: &mut Plan, lost: &Lost) {
    let copies: Vec<&Live<'_>> = scene.copies_of(lost.id).collect();
    let ready = copies.iter().copied().filter(|live| safety::may_replace(live, lost));
    // What is not whole may be of an older history: its offset cannot be compared with that of others.
    // Times tell copies apart by seconds only; nearer than that the offset does.
    let age = |live: &Live<'_>| missed(live) / safety::TOLD_APART_MILLIS;
    let freshest = |live: &Live<'_>| if safety::is_whole(scene, live) { None } else { Some(Reverse(age(live))) };
    // Where nobody can be elected, one of which it is known otherwise that it has everything.
    let is_alone = matches!(safety::votes(scene, lost), Votes::TooFew);
    let is_enough = |live: &Live<'_>| is_alone && safety::is_enough(scene, lost, live);
    let is_whole = |live: &Live<'_>| safety::is_whole(scene, live);
    let best = ready.clone().max_by_key(|live| (is_enough(live), is_whole(live), freshest(live), rank(scene, live)));
    match (best.map(|best| preferred(scene, lost, best, ready)), copies.first()) {
        (Some(best), _) if is_whole(best) => match safety::may_have_more(scene, best.pod.shard, lost.id) {
            Some((pod, since_millis)) => plan.waiting.push(Waiting::Unknown { pod, since_millis }),
            None => promote(scene, plan, lost, best),
        },
        (Some(best), _) => promote_stale(scene, plan, lost, best),
        (None, Some(behind)) => plan.waiting.push(overclaims(scene, lost, behind)),
        (None, None) => match (ordered(scene, lost), safety::may_return(scene, lost.id)) {
            (Some(copy), _) => promote(scene, plan, lost, copy),
            (None, place) => match place.or_else(|| safety::may_bring_back(scene)) {
                Some(pod) => {
                    // What is held is not back by itself, and keeps the order waiting that says more.
                    if safety::is_held(scene, pod) && is_ordered_with_less(scene, lost) {
                        plan.operation = Some(Operation::Refused);
                    }
                    let unserved = Waiting::Primary { shard: pod.shard, slots: lost.slots.len() };
                    plan.waiting.push(runs_a_script(scene, lost).unwrap_or(unserved));
                }
                None => give_up(scene, plan, lost),
            },
        },
    }
}

/// This copy would claim more than its primary has by now, and whoever votes refuses it until it has heard whose the rest is.
fn overclaims(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> Waiting {
    let claims = copy.node.peers.get(&lost.id).map(|line| line.slots().difference(&lost.slots)).unwrap_or_default();
    let others = scene.live.iter().map(|live| (live.pod, scene.owned_by(live.pod).intersection(&claims).len()));
    match others.max_by_key(|(pod, slots)| (*slots, Reverse(*pod))).filter(|(_, slots)| *slots > 0) {
        Some((other, slots)) => Waiting::Conflict { one: copy.pod, other, slots },
        None => Waiting::Election { shard: copy.pod.shard, held_back: None, primary: lost.id },
    }
}

/// Of those who have everything the one that a person names, or else one that most would vote for, unless it is known to have less than this one.
fn preferred<'s, 'a>(
    scene: &Scene<'a>,
    lost: &Lost,
    best: &'s Live<'a>,
    ready: impl Iterator<Item = &'s Live<'a>> + Clone,
) -> &'s Live<'a> {
    if !safety::is_whole(scene, best) {
        return best;
    }
    let others = ready.filter(|live| safety::is_whole(scene, live) && !is_behind(scene, live, best));
    let is_named = |live: &&Live<'_>| order_for(scene, lost, live).is_some_and(|ask| names(ask, live));
    let is_electable = |live: &&Live<'_>| safety::is_electable_by_most(scene, lost, live);
    match others.clone().find(is_named) {
        Some(named) => named,
        None if is_electable(&best) => best,
        None => others.filter(is_electable).max_by_key(|live| rank(scene, live)).unwrap_or(best),
    }
}

/// The most complete copy comes first, even one whose pod is being deleted: its agent hands over to the next, which loses nothing, while a copy that is
/// behind would lose acknowledged writes for good.
fn rank(scene: &Scene<'_>, live: &Live<'_>) -> (u64, bool, bool, Reverse<Pod>) {
    (offset(live), !scene.is_terminating(live.pod), scene.is_wanted(live.pod), Reverse(live.pod))
}

/// What a person has chosen to go on with although nobody knows whether it had everything: of the copies that are not known to be complete, as they were
/// started without their primary, the one that he names. Who names none means the only one.
fn ordered<'s, 'a>(scene: &'s Scene<'a>, lost: &Lost) -> Option<&'s Live<'a>> {
    let copies = older_copies(scene, lost);
    let is_only =
        |live: &Live<'_>| copies.len() == 1 && safety::may_have_another_copy(scene, live.pod.shard, lost.id).is_none();
    let is_ordered = |live: &&Live<'_>| {
        accepted(scene, lost, live).is_some_and(|ask| names(ask, live) || ask.candidate.is_none() && is_only(live))
    };
    copies.iter().copied().find(is_ordered)
}

/// Somebody asks for a copy that is not known to be complete, and names none, or does not accept what that may cost: he gets the answer.
fn is_ordered_with_less(scene: &Scene<'_>, lost: &Lost) -> bool {
    older_copies(scene, lost).into_iter().any(|live| is_ordered(scene, lost, live.pod.shard))
}

fn older_copies<'s, 'a>(scene: &'s Scene<'a>, lost: &Lost) -> Vec<&'s Live<'a>> {
    scene.live.iter().filter(|live| safety::holds_older_copy(live, lost)).collect()
}

/// Nobody who has heard the last of it has an address of it any more: the epoch that is told of it may be another node's (`getNodeFromLinkAndMsg`).
fn is_nowhere(scene: &Scene<'_>, lost: &Lost) -> bool {
    let mut lines = scene.live.iter().filter_map(|live| live.node.peers.get(&lost.id));
    lines.all(|line| line.noaddr || line.epoch < lost.epoch)
}

/// Who serves slots of a primary that is nowhere. Whose claim is the newer one, its copy's or that one's, cannot be told: the copy is not promoted over
/// it without a person's word.
fn rival<'a>(scene: &Scene<'a>, lost: &Lost) -> Option<Live<'a>> {
    claimant(scene, lost).filter(|_| is_nowhere(scene, lost))
}

/// Who serves most of its slots, and does not give them to it.
fn claimant<'a>(scene: &Scene<'a>, lost: &Lost) -> Option<Live<'a>> {
    let gives = |live: &Live<'_>| live.node.open.values().any(|mark| *mark == Open::Migrating(lost.id));
    let claims = scene.live.iter().filter(|live| !gives(live) && !claimed(live, lost).is_empty());
    claims.max_by_key(|live| (claimed(live, lost).len(), Reverse(live.pod))).copied()
}

fn claimed(live: &Live<'_>, lost: &Lost) -> SlotSet {
    live.node.slots().intersection(&lost.slots)
}

/// What this copy lacks, the lost primary may still bring back. Without it the copy is the best there is, unless there may be another one.
fn promote_stale(scene: &Scene<'_>, plan: &mut Plan, lost: &Lost, best: &Live<'_>) {
    let best = &further(scene, lost, best);
    let (shard, unclear) = (best.pod.shard, unclear(scene, lost, best));
    let is_named = |copy: &Live<'_>| accepted(scene, lost, copy).is_some_and(|ask| names(ask, copy));
    if let Some(copy) = copies(scene, lost).find(is_named) {
        return promote(scene, plan, lost, &copy);
    }
    let is_gone = safety::may_bring_data(scene, lost.id).is_none();
    let accepted = accepted(scene, lost, best);
    if is_gone || accepted.is_some() {
        if let Some(pod) = safety::may_have_another_copy(scene, shard, lost.id) {
            return plan.waiting.push(Waiting::Copy { pod, instead_of: best.pod });
        }
        let is_unnamed = accepted.is_none_or(|ask| ask.candidate.is_none());
        if is_unnamed && (unclear.is_empty() || is_gone && scene.desired.adopt_lost_slots) {
            return promote(scene, plan, lost, best);
        }
        if is_ordered(scene, lost, shard) {
            plan.operation = Some(Operation::Refused);
        }
    }
    if let Some(wait) = comes_back(scene, lost, shard).filter(|_| !is_gone) {
        plan.waiting.push(wait);
        if accepted.is_none() {
            return;
        }
        // Who accepts the loss has to be told what the order lacks.
    }
    plan.refused.push(if is_gone {
        let copies = [best.pod].into_iter().chain(unclear).collect();
        Refused::LostSlots { id: lost.id, slots: lost.slots.len(), copies, former: None }
    } else {
        stale_copy(lost, best, unclear)
    });
}

/// Nobody has to decide anything yet: it lives, or it answered a moment ago.
fn comes_back(scene: &Scene<'_>, lost: &Lost, shard: u16) -> Option<Waiting> {
    let slots = lost.slots.len();
    let home = safety::home_of(scene, lost.id).filter(|home| scene.observed.answered_lately.contains(home));
    let lately = home.filter(|_| !is_ordered(scene, lost, shard)).map(|_| Waiting::Primary { shard, slots });
    runs_a_script(scene, lost).or(lately)
}

/// Its server answers that it runs one.
fn runs_a_script(scene: &Scene<'_>, lost: &Lost) -> Option<Waiting> {
    let home = safety::home_of(scene, lost.id).filter(|home| scene.observed.busy.contains(home));
    home.map(|pod| Waiting::Script { pod, slots: lost.slots.len() })
}

fn stale_copy(lost: &Lost, best: &Live<'_>, others: Vec<Pod>) -> Refused {
    let (gap, lag_bytes) = match &best.node.role {
        Role::Replica { gap, lag_bytes, .. } => (*gap, *lag_bytes),
        Role::Primary { .. } => (Gap::default(), 0),
    };
    Refused::StaleCopy {
        shard: best.pod.shard,
        primary: lost.id,
        replica: best.pod,
        missed_millis: gap.missed_millis,
        lag_bytes,
        silent_millis: gap.silent_millis,
        others,
    }
}

/// Whoever holds something of what the lost primary had, and would claim no more than that.
fn copies<'s, 'a>(scene: &'s Scene<'a>, lost: &'s Lost) -> impl Iterator<Item = Live<'a>> + use<'s, 'a> {
    let is_complete = |live: &Live<'_>| safety::may_replace(live, lost) && scene.is_copy(live, lost.id);
    scene.live.iter().copied().filter(move |live| is_complete(live) || safety::holds_older_copy(live, lost))
}

/// The copy that has all that this one has, and more.
fn further<'a>(scene: &Scene<'a>, lost: &Lost, best: &Live<'a>) -> Live<'a> {
    let further = scene.observed.further.get(&best.pod);
    further.and_then(|pod| copies(scene, lost).find(|live| live.pod == *pod)).unwrap_or(*best)
}

/// What this copy has is no more than the beginning of what the other has.
fn is_behind(scene: &Scene<'_>, copy: &Live<'_>, other: &Live<'_>) -> bool {
    scene.observed.further.get(&copy.pod) == Some(&other.pod)
}

/// Copies of which nobody knows how much they lack, which may be less than the best of the others: they were started, or begun, without having been
/// seen to have everything, and are of no stream that tells it.
fn unclear(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>) -> Vec<Pod> {
    let is_unknown = |live: &Live<'_>| !scene.is_copy(live, lost.id) || missed(live) == u64::MAX;
    let others =
        copies(scene, lost).filter(|live| live.pod != best.pod && is_unknown(live) && !is_behind(scene, live, best));
    others.map(|live| live.pod).collect()
}

/// The failover without this primary that a person asked for.
fn order<'a>(scene: &Scene<'a>, from: NodeId, shard: u16) -> Option<&'a FailoverRequest> {
    let asked = scene.desired.failover.as_ref();
    asked.filter(|ask| ask.how == FailoverHow::Force && ask.shard == shard && ask.from == from)
}

/// Who asked for a failover without the primary was told of another one than those that are lost, or serve. Where somebody is promoted all the same,
/// he gets what he wants.
fn mistaken(scene: &Scene<'_>, plan: &Plan) -> Option<Refused> {
    let FailoverRequest { shard, from, how, .. } = *scene.desired.failover.as_ref()?;
    let of_shard = scene.lost.iter().filter(|lost| safety::is_of(scene, lost, shard));
    let lost = of_shard.max_by_key(|lost| lost.slots.len())?;
    let serves = scene.by_id(from).is_some_and(|live| !live.node.slots().is_empty());
    let is_promoted = |step: &Step| matches!(step, Step::Failover { replica, .. } if replica.pod.shard == shard);
    let is_meant = scene.is_lost(from) || serves || plan.steps.iter().any(is_promoted);
    if how != FailoverHow::Force || is_meant {
        return None;
    }
    let primary = scene.owner(shard).map_or(lost.id, |owner| owner.node.id);
    Some(Refused::OtherPrimary { shard, from, primary, place: safety::home_of(scene, primary) })
}

/// The order that means this copy of a lost primary. Where somebody of its shard serves the slots, who for whoever asks is the primary, he has to have
/// asked when that was so, and to name the copy.
fn order_for<'a>(scene: &Scene<'a>, lost: &Lost, copy: &Live<'_>) -> Option<&'a FailoverRequest> {
    match claimant(scene, lost).filter(|claimant| claimant.pod.shard == copy.pod.shard) {
        Some(claimant) => order(scene, claimant.node.id, copy.pod.shard).filter(|ask| names(ask, copy)),
        None => order(scene, lost.id, copy.pod.shard),
    }
}

/// That order, if it accepts what the copy may lack.
fn accepted<'a>(scene: &Scene<'a>, lost: &Lost, copy: &Live<'_>) -> Option<&'a FailoverRequest> {
    order_for(scene, lost, copy).filter(|ask| ask.accept_data_loss)
}

fn names(ask: &FailoverRequest, copy: &Live<'_>) -> bool {
    ask.candidate == Some(copy.pod.ordinal)
}

/// Somebody asks for a copy of it, but not so that it could be carried out.
fn is_ordered(scene: &Scene<'_>, lost: &Lost, shard: u16) -> bool {
    let claimant = claimant(scene, lost).map(|claimant| claimant.node.id);
    [lost.id].into_iter().chain(claimant).any(|from| order(scene, from, shard).is_some())
}

/// A member that is held with its data, or about to start, may come back by itself; a person's explicit order does not wait for that. Where
/// nobody proves the primary dead, Redis' own election decides, or, for a replica that does not stand by itself, our order on the same terms:
/// most primaries hold it to be dead, the copy is whole, and they vote. Where too few are left to vote, or most refuse, the rest has to be known
/// otherwise, or a person accepts what it may cost.
fn promote(scene: &Scene<'_>, plan: &mut Plan, lost: &Lost, best: &Live<'_>) {
    let rival = rival(scene, lost);
    let order = order_for(scene, lost, best);
    // Who names another one has accepted nothing of this one.
    let accepted = accepted(scene, lost, best).filter(|ask| ask.candidate.is_none() || names(ask, best));
    let is_accepted = accepted.is_some();
    let over = accepted.map(|ask| ask.from).filter(|from| *from != lost.id);
    if let Some(rival) = rival.filter(|_| !is_accepted) {
        if is_ordered(scene, lost, best.pod.shard) {
            plan.operation = Some(Operation::Refused);
        }
        let all: Vec<Pod> = safety::may_return_to(scene, lost.id).collect();
        let (places, unknown) = all.into_iter().partition(|pod| scene.is_home(*pod, lost.id));
        let (primary, replica, by) = (lost.id, best.pod, rival.pod);
        return plan.refused.push(Refused::Claimed { primary, replica, by, places, unknown });
    }
    let how = match safety::votes(scene, lost) {
        Votes::Soon(wait) => return plan.waiting.push(wait),
        // Without a person's word also where the votes go to another copy: it may be elected meanwhile.
        Votes::Enough
            if safety::is_electable_by_most(scene, lost, best)
                || !is_accepted && may_yet_be_elected(scene, lost, best) =>
        {
            let is_proven = order.is_some() || safety::may_be_alive(scene, lost.id).is_none();
            if let Some(wait) = held_back(scene, lost, best).filter(|_| !is_proven) {
                return plan.waiting.push(wait);
            }
            FailoverHow::Force
        }
        Votes::Enough | Votes::TooFew => match safety::needs_no_votes(scene, lost, best) {
            Err(Missing::Look(wait)) => return plan.waiting.push(wait),
            Err(Missing::Wait(_) | Missing::Proof(_)) if is_accepted => FailoverHow::Takeover,
            Ok(()) => FailoverHow::Takeover,
            Err(Missing::Wait(wait)) => return plan.waiting.push(wait),
            Err(Missing::Proof(refused)) => {
                if is_ordered(scene, lost, best.pod.shard) {
                    plan.operation = Some(Operation::Refused);
                }
                return plan.refused.push(refused);
            }
        },
    };
    match may_begin(scene, plan, lost, (how, over), best) {
        Err(wait) => plan.waiting.push(wait),
        // The next look is a moment away.
        Ok(_) if is_electing(plan) || scene.kept_out.contains(&best.pod.shard) => {}
        Ok(unheard) => plan.steps.push(Step::Failover { replica: best.who(), primary: lost.id, how, over, unheard }),
    }
}

/// It, or another replica that stands by itself, may be elected, be it by those who do not answer us (replicas that do not are asked for by
/// `needs_no_votes`); or it has to hear first of the last slots that its primary was given.
fn may_yet_be_elected(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>) -> bool {
    let mut others = scene.live.iter().filter(|live| follows(live, lost.id) && stands(live) == Stands::ByItself);
    let line = best.node.peers.get(&lost.id);
    let hears_more = line.is_some_and(|line| !line.slots().is_empty() && *line.slots() != lost.slots);
    let is_refused = |live: &Live<'_>| safety::is_refused_whoever_votes(scene, lost, live);
    hears_more || !is_refused(best) || others.any(|live| !is_refused(live))
}

/// Somebody is asked for votes by this plan. Each voter gives one in an epoch: of two who ask at the same time one gets too few, or both do.
fn is_electing(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Failover { .. }))
}

/// Votes of the last election must not count in another one. A claim without votes is made above all epochs that are known, and once those are that come
/// with who is about to start; and not beside somebody of the shard who still claims the same, which ends as soon as that one hears of a later owner.
/// Gives the slots that the copy claims without having heard of them.
fn may_begin(
    scene: &Scene<'_>,
    plan: &Plan,
    lost: &Lost,
    (how, over): (FailoverHow, Option<NodeId>),
    best: &Live<'_>,
) -> Result<SlotSet, Waiting> {
    match how {
        FailoverHow::Coordinated | FailoverHow::Force => {
            safety::may_elect(scene, best.pod.shard).map(|()| SlotSet::EMPTY)
        }
        FailoverHow::Takeover => {
            safety::may_ask(scene, best.pod.shard)?;
            comes_with_a_claim(scene, plan, lost).map_or(Ok(()), |pod| Err(Waiting::Start { pod }))?;
            let others = scene.live_of(best.pod.shard).filter(|live| Some(live.node.id) != over);
            let both = others.map(|live| (live.pod, claimed(&live, lost).len())).find(|(_, slots)| *slots > 0);
            both.map_or(Ok(()), |(other, slots)| Err(Waiting::Conflict { one: best.pod, other, slots }))?;
            let agreed = safety::ready_for_claim(scene, best, &lost.slots, scene.highest_epoch());
            agreed.map_err(|right| agree::awaited(scene, right))?;
            unheard(best, lost).ok_or_else(|| agree::awaited(scene, scene.live.len().saturating_sub(1)))
        }
    }
}

/// Slots of the lost primary that this copy's table gives to nobody; `None`: it gives all of them to others, of whom it has to hear first.
fn unheard(copy: &Live<'_>, lost: &Lost) -> Option<SlotSet> {
    let unheard = copy.node.peers.values().fold(lost.slots.clone(), |left, line| left.difference(line.slots()));
    let claims_some = copy.node.peers.get(&lost.id).is_some_and(|line| !line.slots().is_empty());
    (claims_some || !unheard.is_empty()).then_some(unheard)
}

/// Another owner that is about to start without its keys, where nothing is kept. Its table may claim slots that it was given of this lost one just before
/// both ended, under an epoch above all that was known then, of which nobody has heard who answers: what a copy takes over with is no later one
/// (`clusterBumpConfigEpochWithoutConsensus`), and of two equals the lower ID keeps the slots, whatever it holds (`clusterHandleConfigEpochCollision`).
/// Heard before, its claim counts before the copy's is made. Where it has keys to load, that may take long, and nobody waits for it.
fn comes_with_a_claim(scene: &Scene<'_>, plan: &Plan, lost: &Lost) -> Option<Pod> {
    let released =
        |step: &Step| if let Step::Release { pod, how: ReleaseHow::AsIs } = step { Some(*pod) } else { None };
    let is_released = |pod: Pod| plan.steps.iter().filter_map(released).any(|other| other == pod);
    let is_other = |pod: Pod| scene.lost.iter().any(|other| other.id != lost.id && scene.is_home(pod, other.id));
    let starts = |pod: Pod, member: &Member| match member.seen {
        Seen::Stopped => true,
        Seen::Starting => !member.waits,
        Seen::Held { .. } => is_released(pod),
        Seen::Absent | Seen::Unknown { .. } | Seen::Node(_) => false,
    };
    let mut others = scene.observed.members.iter().filter(|(pod, member)| {
        let is_coming = !member.stuck && !member.terminating && starts(**pod, member);
        is_coming && is_other(**pod)
    });
    others.next().map(|(pod, _)| *pod).filter(|_| !scene.desired.restart_keeps_data)
}

/// What keeps this replica from being promoted on order in place of a primary that nobody proves dead.
fn held_back(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>) -> Option<Waiting> {
    let shard = best.pod.shard;
    let election = |held_back| Some(Waiting::Election { shard, held_back, primary: lost.id });
    let copies = || scene.copies_of(lost.id).filter(|live| safety::may_replace(live, lost));
    if copies().any(|live| safety::is_whole(scene, live) && stands(live) == Stands::ByItself) {
        return election(None);
    }
    let is_called = stands(best) == Stands::OnOrder && safety::is_whole(scene, best);
    if !is_called || !safety::is_held_dead(scene, lost.id) {
        return election(Some((best.pod, is_called)));
    }
    let other = safety::may_have_another_copy(scene, shard, lost.id);
    other.map(|pod| Waiting::Copy { pod, instead_of: best.pod })
}

fn stands(live: &Live<'_>) -> Stands {
    match &live.node.role {
        Role::Replica { stands, .. } => *stands,
        Role::Primary { .. } => Stands::Never,
    }
}

/// For how long its primary lived without it.
fn missed(live: &Live<'_>) -> u64 {
    match &live.node.role {
        Role::Replica { gap, .. } => gap.missed_millis,
        Role::Primary { .. } => 0,
    }
}

pub(super) fn offset(live: &Live<'_>) -> u64 {
    match &live.node.role {
        Role::Replica { offset, .. } => *offset,
        Role::Primary { .. } => 0,
    }
}

/// No place can bring the owner back, and every member is seen. What a replica holds that is not known to be in sync with the lost node may be all that
/// it had, or less than what a living primary has whose older claim the lost node had overruled: with both a person decides. Without such a replica that
/// primary holds the best that is left. Without either, and if starting empty was accepted, the slots go to a lead that owns none (the shard's new
/// member). Otherwise a person decides: the volume may be found, and nobody can tell how much such a replica lacks.
fn give_up(scene: &Scene<'_>, plan: &mut Plan, lost: &Lost) {
    let loads = scene.live.iter().find(|live| follows(live, lost.id) && live.node.loading);
    if let Some(live) = loads {
        return plan.waiting.push(Waiting::Loading { pod: live.pod });
    }
    let former = claimant(scene, lost);
    let has_all_of = |copy: &&Live<'_>| former.is_some_and(|former| scene.has_left_behind(&former, copy));
    let mut copies = older_copies(scene, lost);
    copies.retain(|copy| !has_all_of(copy));
    let most = copies.iter().copied().max_by_key(|live| (live.node.keys, Reverse(live.pod)));
    match (former, most) {
        (Some(former), None) => return adopt(scene, plan, &former, lost, claimed(&former, lost)),
        (_, Some(copy)) if scene.desired.adopt_lost_slots => return promote(scene, plan, lost, copy),
        (None, None) if scene.desired.adopt_lost_slots => {
            if let Some(heir) = heir(scene, plan) {
                return adopt(scene, plan, &heir, lost, lost.slots.clone());
            }
        }
        (Some(_) | None, Some(_)) | (None, None) => {}
    }
    if is_ordered_with_less(scene, lost) {
        plan.operation = Some(Operation::Refused);
    }
    let copies = copies.iter().map(|live| live.pod).collect();
    let former = former.map(|live| (live.pod, claimed(&live, lost).len()));
    plan.refused.push(Refused::LostSlots { id: lost.id, slots: lost.slots.len(), copies, former });
}

/// The lead with fewest slots.
fn heir<'a>(scene: &Scene<'a>, plan: &Plan) -> Option<Live<'a>> {
    let taken: Vec<Pod> = plan.steps.iter().filter_map(adopter).collect();
    let leads = scene.leads().into_iter().filter(|lead| !lead.node.loading);
    leads.min_by_key(|lead| (taken.contains(&lead.pod), scene.owned_by(lead.pod).len(), lead.pod))
}

/// A claim that does not overrule the lost node's would be taken back by gossip. Where the heir claims all of it already, its epoch is all
/// that is missing.
fn adopt(scene: &Scene<'_>, plan: &mut Plan, heir: &Live<'_>, lost: &Lost, slots: SlotSet) {
    // With its new epoch it claims again what it still claims of others as well that are given up.
    let is_seen = safety::may_bring_back(scene).is_none();
    let has_copies = |other: &Lost| scene.copies_of(other.id).next().is_some();
    let is_given_up = |other: &&Lost| is_seen && !has_copies(other) && safety::may_return(scene, other.id).is_none();
    let given_up: Vec<&Lost> = scene.lost.iter().filter(is_given_up).collect();
    let own = |other: &Lost| other.slots.intersection(heir.node.slots());
    let claims = given_up.iter().fold(slots.clone(), |all, other| all.union(&own(other)));
    let above = given_up.iter().map(|other| other.epoch).fold(lost.epoch, u64::max);
    if let Err(right) = safety::ready_for_claim(scene, heir, &claims, above) {
        return plan.waiting.push(agree::awaited(scene, right));
    }
    let is_claimed = slots.difference(heir.node.slots()).is_empty();
    let is_raise = |step: &Step| matches!(step, Step::RaiseEpoch { .. });
    // Whoever owns slots before it knows the others looks like one of another cluster (`apart`).
    let is_known = |live: &&Live<'_>| live.pod == heir.pod || live.knows(heir) && heir.knows(live);
    let known = scene.live.iter().filter(is_known).count();
    if !is_claimed && known < scene.live.len() {
        plan.waiting.push(agree::awaited(scene, known));
    } else if !is_claimed {
        plan.steps.extend(adoptions(scene, heir, lost, slots));
    } else if !plan.steps.iter().any(is_raise) {
        // Two side by side would take one epoch.
        plan.steps.push(Step::RaiseEpoch { node: heir.who(), above, through: None });
    }
}

/// The heir's own table may still give some of these slots to others who are gone for good, or who say themselves that they have none of them: whoever
/// handed them over to the lost one is their owner for all who had not heard of that when it died.
fn adoptions(scene: &Scene<'_>, heir: &Live<'_>, lost: &Lost, slots: SlotSet) -> Vec<Step> {
    let is_former = |id: NodeId| match scene.by_id(id) {
        Some(live) => live.node.slots().intersection(&slots).is_empty(),
        None => safety::may_return(scene, id).is_none(),
    };
    let (mut steps, rest) = overrule(heir, slots.clone(), |id| id != lost.id && is_former(id));
    if !rest.is_empty() {
        steps.push(Step::Adopt { node: heir.who(), owner: Some(lost.id), slots: rest });
    }
    steps
}

fn adopter(step: &Step) -> Option<Pod> {
    if let Step::Adopt { node, .. } = step { Some(node.pod) } else { None }
}

/// A replica that never heard of a slot of its primary, and nobody else either who answers, has what these slots hold, and would copy whoever gets them:
/// it leads its shard first, or a person decides.
fn has_left_copies(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    let told = |plan: &Plan| (plan.steps.len(), plan.waiting.len(), plan.refused.len());
    let before = told(plan);
    receiver::replace(scene, plan);
    told(plan) != before
}

/// Nobody claims these slots. Whoever is named by others or holds keys of them comes first; the rest goes where a new cluster has it.
fn assign(scene: &Scene<'_>, plan: &mut Plan) {
    let hidden = scene.places().into_iter().find(|(pod, member)| {
        member.is_none_or(|member| !matches!(member.seen, crate::observed::Seen::Node(_))) && scene.is_wanted(*pod)
    });
    if let Some((pod, _)) = hidden {
        return plan.waiting.push(Waiting::Primary { shard: pod.shard, slots: scene.unowned.len() });
    }
    if let Some(wait) = safety::may_hold_keys(scene, None, &scene.unowned) {
        return plan.waiting.push(wait);
    }
    let leads = scene.leads();
    let mut gifts: BTreeMap<Pod, SlotSet> = BTreeMap::new();
    let mut left = scene.unowned.clone();
    let mut give = |lead: &Live<'_>, slots: SlotSet, left: &mut SlotSet| {
        *left = left.difference(&slots);
        let sum = gifts.get(&lead.pod).map_or_else(|| slots.clone(), |have| have.union(&slots));
        if !sum.is_empty() {
            gifts.insert(lead.pod, sum);
        }
    };
    for lead in &leads {
        let entries = scene.live.iter().filter_map(|live| live.node.peers.get(&lead.node.id));
        let named = entries.fold(SlotSet::EMPTY, |named, peer| named.union(peer.slots()));
        give(lead, named.intersection(&left), &mut left);
    }
    for (slot, lead) in holders(&leads, &left) {
        give(&lead, SlotSet::range(slot, slot), &mut left);
    }
    for lead in &leads {
        give(lead, create::ideal(lead.pod.shard, scene.desired.shards).intersection(&left), &mut left);
    }
    for lead in leads {
        let slots = gifts.remove(&lead.pod);
        plan.steps.extend(slots.into_iter().flat_map(|slots| take(&lead, slots)));
    }
    if plan.steps.is_empty() {
        let shard = (0..scene.desired.shards).find(|shard| scene.lead(*shard).is_none()).unwrap_or_default();
        plan.waiting.push(Waiting::Primary { shard, slots: scene.unowned.len() });
    }
}

fn take(lead: &Live<'_>, slots: SlotSet) -> Vec<Step> {
    let (mut steps, rest) = overrule(lead, slots, |_| true);
    if !rest.is_empty() {
        steps.push(Step::AddSlots { node: lead.who(), slots: rest });
    }
    steps
}

/// Its own table may still name former owners, who are to be overruled: for these of them, and the slots that are left.
fn overrule(lead: &Live<'_>, mut slots: SlotSet, is_former: impl Fn(NodeId) -> bool) -> (Vec<Step>, SlotSet) {
    let mut steps = Vec::new();
    for (id, peer) in &lead.node.peers {
        let named = peer.slots().intersection(&slots);
        // Most of them are named for nothing of it, which is the cheaper question.
        if !named.is_empty() && is_former(*id) {
            slots = slots.difference(&named);
            steps.push(Step::Adopt { node: lead.who(), owner: Some(*id), slots: named });
        }
    }
    (steps, slots)
}

/// For each of these slots that somebody holds keys of: the lead with the most.
fn holders<'a>(leads: &[Live<'a>], slots: &SlotSet) -> BTreeMap<u16, Live<'a>> {
    let mut best: BTreeMap<u16, (u64, Live<'a>)> = BTreeMap::new();
    for lead in leads {
        for (slot, keys) in lead.node.foreign_keys.iter().filter(|(slot, keys)| **keys > 0 && slots.contains(**slot)) {
            if best.get(slot).is_none_or(|(most, _)| keys > most) {
                best.insert(*slot, (*keys, *lead));
            }
        }
    }
    best.into_iter().map(|(slot, (_, lead))| (slot, lead)).collect()
}
