//! Members that do not know each other, or know each other at an old address, are introduced. Two clusters are never joined.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::NodeId;
use crate::phase::{Flow, agree};
use crate::plan::{Plan, Refused, Waiting};
use crate::safety;
use crate::scene::{Live, Scene, follows, is_of_use};
use crate::slots::SlotSet;
use crate::step::Step;

pub(crate) fn heal(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let foreign_owner = report_strangers(scene, plan);
    let right: usize = scene.live.iter().map(|one| scene.live.iter().filter(|other| one.knows(other)).count()).sum();
    let of = scene.live.len() * scene.live.len().saturating_sub(1);
    if right < of {
        let right = u32::try_from(right).unwrap_or(u32::MAX);
        plan.waiting.push(Waiting::Introductions { right, of: u32::try_from(of).unwrap_or(u32::MAX) });
        plan.steps.extend(epochs(scene));
        plan.steps.extend(introductions(scene));
    }
    let outdone = if foreign_owner { Vec::new() } else { outdone(scene) };
    let raises: Vec<_> = outdone.iter().map(|(owner, above)| raise(scene, owner, *above)).collect();
    if let Some(right) = raises.iter().find_map(|raise| raise.as_ref().err()) {
        plan.waiting.push(agree::awaited(scene, *right));
    }
    // Two side by side would take one epoch.
    if let Some(raise) = raises.into_iter().find_map(|raise| raise.ok().flatten()) {
        plan.steps.push(raise);
        // A shard that nobody serves does not wait for that.
        if scene.lost.is_empty() {
            return Flow::Stop;
        }
    } else if !foreign_owner {
        // Nothing waits for this one, which holds up no claim.
        let mut raises =
            exposed(scene).into_iter().filter_map(|(heir, above)| raise(scene, &heir, above).ok().flatten());
        plan.steps.extend(raises.next());
    }
    if foreign_owner || !leads_know_each_other(scene) { Flow::Stop } else { Flow::On }
}

/// Owners whose claims somebody has heard and does not believe, because its table names a former owner that has a newer epoch by now: it was away while
/// the slots moved. Gossip never mends that. The owner with the lowest epoch comes first: nobody is wrong in its favour.
///
/// An owner whose epoch others list as a later one than it has (another node answered at its address) is left with it: cut off a moment later, with an
/// epoch that nobody has heard of, it would come back above its heir.
fn outdone<'a>(scene: &Scene<'a>) -> Vec<(Live<'a>, u64)> {
    let mut owners: Vec<Live<'a>> = scene.voters().copied().collect();
    owners.sort_by_key(|live| (live.node.epoch, live.pod));
    let above = |owner: &Live<'a>| scene.live.iter().filter_map(|other| disbelieves(scene, other, owner)).max();
    owners.into_iter().filter_map(|owner| Some((owner, above(&owner)?))).collect()
}

/// Heirs whose predecessor is silent, with the epoch that they had at first. It may stand still with a command unread by which it takes a new epoch,
/// without votes, as it wakes up: as new a one as its heir was elected with. Of two equals Redis raises the one with the lower ID
/// (`clusterHandleConfigEpochCollision`), and if that is the predecessor, it has all slots of the shard again, with the data of before.
fn exposed<'a>(scene: &Scene<'a>) -> Vec<(Live<'a>, u64)> {
    let is_exposed =
        |heir: &Live<'_>, above: u64| heir.node.epoch <= above && safety::former_owner(scene, heir.pod).is_some();
    let first = |heir: &Live<'_>| scene.observed.first_epochs.get(&heir.node.id).copied();
    let heirs = scene.voters().filter_map(|heir| Some((*heir, first(heir)?)));
    heirs.filter(|(heir, above)| is_exposed(heir, *above)).collect()
}

/// Redis raises no epoch that is the newest of which its node has heard (`clusterBumpConfigEpochWithoutConsensus`). Then another one takes a new
/// epoch first: a replica, as nobody's claim depends on its epoch, or an owner whose claim is what everybody believes.
///
/// What it claims besides what it owns, or others still believe, it would take with it: then the number of members that are ready for it.
fn raise(scene: &Scene<'_>, owner: &Live<'_>, above: u64) -> Result<Option<Step>, usize> {
    safety::ready_for_claim(scene, owner, &SlotSet::EMPTY, 0)?;
    let meets = |other: &&Live<'_>| {
        other.hears(owner) && owner.hears(other) && !other.node.loading && !scene.is_terminating(other.pod)
    };
    let is_believed = |other: &Live<'_>| {
        !scene.owned_by(other.pod).is_empty() && safety::ready_for_claim(scene, other, &SlotSet::EMPTY, 0).is_ok()
    };
    let through = if owner.heard() > owner.node.epoch {
        None
    } else {
        let others = || scene.live.iter().filter(|other| other.pod != owner.pod).filter(meets);
        let other =
            others().find(|other| !other.node.is_primary()).or_else(|| others().find(|other| is_believed(other)));
        let Some(other) = other else { return Ok(None) };
        Some(other.who())
    };
    Ok(Some(Step::RaiseEpoch { node: owner.who(), above, through }))
}

/// The epoch under which this node names somebody else, although it has heard the owner's present claim.
fn disbelieves(scene: &Scene<'_>, other: &Live<'_>, owner: &Live<'_>) -> Option<u64> {
    let entry = other.node.peers.get(&owner.node.id)?;
    // More than its own is another node's, which answered at its address.
    let heard = entry.connected && entry.epoch >= owner.node.epoch;
    let denied = scene.owned_by(owner.pod).difference(entry.slots());
    if !heard || denied.is_empty() {
        return None;
    }
    let rivals = other.node.peers.iter().filter(|(id, peer)| **id != owner.node.id && peer.epoch >= owner.node.epoch);
    let named = rivals.filter(|(_, peer)| !peer.slots().intersection(&denied).is_empty());
    // Who is silent, and may come back, may hold what was moved to it last; but not where the owner has gone on from what this copy of it holds.
    let has_led_on = |id: NodeId| follows(other, id) && scene.has_left_behind(owner, other);
    let stays = |id: NodeId| scene.by_id(id).is_some() || has_led_on(id) || !may_return(scene, id, owner);
    let named = named.filter(|(id, _)| stays(**id));
    named.map(|(_, peer)| peer.epoch).max()
}

/// There is a place for it, and it is of use, or such a place is of the owner's shard.
fn may_return(scene: &Scene<'_>, id: NodeId, owner: &Live<'_>) -> bool {
    let is_of_use = || is_of_use(scene.observed, &scene.live, id);
    safety::may_return_to(scene, id).any(|pod| pod.shard == owner.pod.shard || is_of_use())
}

/// Everything that moves slots needs the leads to know each other; a replica that is cut off must not stop the rest.
fn leads_know_each_other(scene: &Scene<'_>) -> bool {
    let leading: Vec<&Live<'_>> = scene.live.iter().filter(|live| scene.is_lead(live.pod)).collect();
    leading.iter().all(|one| leading.iter().all(|other| one.pod == other.pod || one.knows(other)))
}

/// True if a stranger owns slots: then nothing about slots may be decided here.
fn report_strangers(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    let mut owns = false;
    for (id, seen_by) in &scene.strangers {
        let listed = scene.live.iter().find(|live| live.pod == *seen_by).and_then(|live| live.node.peers.get(id));
        let slots = scene.lost.iter().find(|lost| lost.id == *id).map_or(0, |lost| lost.slots.len());
        let address = listed.map(|peer| peer.address.clone()).unwrap_or_default();
        plan.refused.push(Refused::Stranger { seen_by: *seen_by, id: *id, address, slots });
        owns |= slots > 0;
    }
    owns
}

/// New primaries get an epoch above all others before they meet anybody: at epoch 0 they would lose their slots to gossip about dead
/// nodes, and equal epochs would have to be sorted out by the nodes.
pub(crate) fn epochs(scene: &Scene<'_>) -> Vec<Step> {
    let is_new = |live: &&Live<'_>| live.node.epoch == 0 && live.node.peers.is_empty() && live.node.is_primary();
    let new = scene.live.iter().filter(is_new).filter(|live| scene.is_lead(live.pod));
    let next = scene.highest_epoch().saturating_add(1);
    new.zip(next..).map(|(lead, epoch)| Step::Epoch { node: lead.who(), epoch }).collect()
}

/// One MEET for each pair that is not right both ways. Pairs with the hub come first, so that a large cluster hears the rest by gossip.
pub(crate) fn introductions(scene: &Scene<'_>) -> Vec<Step> {
    let strange: Vec<bool> = scene.live.iter().map(|live| lists_strangers(scene, live)).collect();
    let named: Vec<(&Live<'_>, bool)> = scene.live.iter().zip(strange).collect();
    let (mut pairs, mut known) = (Vec::new(), vec![0_u32; named.len()]);
    for (index, (one, one_is_strange)) in named.iter().enumerate() {
        for (place, (other, other_is_strange)) in named.iter().enumerate().skip(index + 1) {
            if one.knows(other) && other.knows(one) {
                for at in [index, place] {
                    known.get_mut(at).into_iter().for_each(|count| *count += 1);
                }
            } else if one_is_strange == other_is_strange && !is_under_way(scene, one, other) {
                pairs.push(((index, one), (place, other)));
            }
        }
    }
    // The hub is who knows most of the others: one round with it joins whoever is outside of its group, as many as fit into a round.
    let ends = pairs.iter().flat_map(|((one, _), (other, _))| [*one, *other]);
    let hub = ends.max_by_key(|at| (known.get(*at).copied(), Reverse(*at)));
    let (first, rest): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|((one, _), (other, _))| [Some(*one), Some(*other)].contains(&hub));
    let kept = first.into_iter().chain(rest).take(usize::from(scene.limits.meets));
    kept.map(|((_, one), (_, other))| Step::Meet {
        node: one.who(),
        peer: other.who(),
        address: other.node.address.clone(),
    })
    .collect()
}

/// They were introduced where they are, and not long ago: Redis is still at it. What does not help is done ever more seldom.
fn is_under_way(scene: &Scene<'_>, one: &Live<'_>, other: &Live<'_>) -> bool {
    let Some(told) = scene.observed.introduced.get(&(one.pod, other.pod)) else { return false };
    let (first, most) = (scene.limits.meet_again_millis, scene.limits.meet_again_most_millis);
    let patience = first.checked_shl(told.times.saturating_sub(1)).map_or(most, |patience| patience.min(most));
    let [one_was, other_was] = &told.at;
    *one_was == one.node.address && *other_was == other.node.address && told.since_millis < patience
}

/// Whether its table holds nodes of another cluster. Introducing such a member to one that does not would join the two clusters.
fn lists_strangers(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    scene.strangers.keys().any(|id| live.node.peers.contains_key(id))
}
