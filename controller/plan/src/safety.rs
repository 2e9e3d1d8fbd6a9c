//! May this node be touched? The phases ask; none decides for itself. Every "no" names the member that stands in the way.

mod takeover;

use core::cmp::Reverse;

use crate::observed::{Disk, Health, Member, NodeId, Observed, Open, Peer, PeerRole, Pod, Role, Seen};
use crate::plan::Waiting;
use crate::scene::{Live, Lost, Scene, follows, identity, may_run};
use crate::slots::SlotSet;

pub(crate) use takeover::{
    Missing, Votes, is_electable_by_most, is_enough, is_refused_whoever_votes, meets, needs_no_votes, votes,
};

/// Redis tells the age of a lost link in whole seconds, and looks are a second apart.
pub(crate) const TOLD_APART_MILLIS: u64 = 2_000;

/// A member, other than a live one, where this node's process may still run. `None` is proof of death.
pub(crate) fn may_be_alive(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    let home = home_of(scene, id);
    let mut members = scene.observed.members.iter();
    let found = members.find(|(pod, member)| !is_live(member) && may_run(member) && may_be(**pod, member, id, home));
    found.map(|(pod, _)| *pod)
}

/// A place from which this node may come back with what it holds.
pub(crate) fn may_return(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    may_return_to(scene, id).next()
}

/// All of them.
pub(crate) fn may_return_to<'a>(scene: &Scene<'a>, id: NodeId) -> impl Iterator<Item = Pod> + use<'a> {
    homes_of(scene, id).map(|(pod, _)| pod)
}

/// As [`may_return`], with the data that it had: what is gone with its pod, or has been found missing, does not come back.
pub(crate) fn may_bring_data(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    let mut homes = homes_of(scene, id);
    homes.find(|(_, member)| brings_data(scene, member.map(|member| &member.seen))).map(|(pod, _)| pod)
}

/// A place from which a replica of this node may come back with what that was sent: where that one is gone nobody else may have it.
pub(crate) fn may_bring_a_copy(scene: &Scene<'_>, of: NodeId) -> Option<Pod> {
    takeover::silent_replicas(scene, of).into_iter().find_map(|id| may_bring_data(scene, id))
}

/// A place from which a node may come back with what it holds of slots that more tables give to somebody else, and how many: most of those who
/// answer may not have heard of it.
pub(crate) fn may_bring_back_a_claim(scene: &Scene<'_>) -> Option<(Pod, u16)> {
    let mut outvoted = scene.outvoted.iter();
    outvoted.find_map(|(id, slots)| Some((may_bring_data(scene, *id)?, slots.len())))
}

/// What is not here now would come with the data that it had. What lies on a volume is known once its agent has said so.
fn brings_data(scene: &Scene<'_>, seen: Option<&Seen>) -> bool {
    match seen {
        None | Some(Seen::Absent) => scene.desired.has_volumes,
        Some(Seen::Held { holds_data, .. }) => *holds_data,
        Some(Seen::Stopped | Seen::Starting | Seen::Unknown { .. }) => true,
        // Valkey answers while it loads: what it comes to have is on its disk.
        Some(Seen::Node(node)) => node.loading,
    }
}

/// Every place from which this node may come back.
fn homes_of<'a>(scene: &Scene<'a>, id: NodeId) -> impl Iterator<Item = (Pod, Option<&'a Member>)> + use<'a> {
    let (home, observed) = (home_of(scene, id), scene.observed);
    let places = scene.places().into_iter().filter(move |(pod, member)| !is_blank(observed, *pod, *member));
    places.filter(move |(pod, member)| match member {
        None => home.is_none_or(|home| home == *pod),
        Some(member) => match &member.seen {
            Seen::Node(_) => false,
            Seen::Held { id: Some(held), .. } => *held == id,
            Seen::Held { id: None, holds_data, .. } => *holds_data && may_be(*pod, member, id, home),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } => may_be(*pod, member, id, home),
        },
    })
}

/// Its agent starts nothing there until a person has decided.
pub(crate) fn is_held(scene: &Scene<'_>, pod: Pod) -> bool {
    scene.observed.members.get(&pod).is_some_and(|member| matches!(member.seen, Seen::Held { .. }))
}

/// Another member of the shard that is not seen now, or loads, and may hold the shard's data.
pub(crate) fn may_hold_data(scene: &Scene<'_>, except: Pod) -> Option<Pod> {
    let loads = scene.live_of(except.shard).find(|live| live.node.loading && live.pod != except);
    let mut unseen = unseen(scene).filter(|(pod, _)| pod.shard == except.shard && *pod != except);
    let found = unseen.find(|(_, seen)| match seen {
        Some(Seen::Held { holds_data, .. }) => *holds_data,
        None | Some(Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } | Seen::Node(_)) => true,
    });
    found.map(|(pod, _)| pod).or(loads.map(|live| live.pod))
}

/// A place anywhere from which a copy of a lost node's slots, or a newer claim to them, may still come.
pub(crate) fn may_bring_back(scene: &Scene<'_>) -> Option<Pod> {
    unseen(scene).next().map(|(pod, _)| pod)
}

fn unseen<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (Pod, Option<&'a Seen>)> + use<'a> {
    let observed = scene.observed;
    let places = scene.places().into_iter().filter(move |(pod, member)| !is_blank(observed, *pod, *member));
    let places = places.map(|(pod, member)| (pod, member.map(|member| &member.seen)));
    places.filter(|(_, seen)| !matches!(seen, Some(Seen::Node(_))))
}

/// A dead node may be forgotten only when no place can be its home, it is gone for everybody, nobody follows it, and everybody who could
/// bring it back can be told. Gives the member that stands in the way.
pub(crate) fn keeps_from_forgetting(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    let linked = scene.live.iter().find(|live| {
        let entry = live.node.peers.get(&id);
        follows(live, id) || entry.is_some_and(|peer| !peer.is_gone())
    });
    let unseen =
        || scene.observed.members.iter().find(|(_, member)| !is_live(member) && may_run(member)).map(|(pod, _)| *pod);
    linked.map(|live| live.pod).or_else(unseen).or_else(|| may_return_to_stay(scene, id))
}

/// As [`may_return`], but a place that is no longer wanted and has no pod does not count: it will not come back.
fn may_return_to_stay(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    may_return(scene, id).filter(|pod| {
        let gone = scene.observed.members.get(pod).is_none_or(|member| matches!(member.seen, Seen::Absent));
        scene.is_wanted(*pod) || !gone
    })
}

/// A member that can take over the primary role without loss, and will stay to play it: complete copy, link up, close enough, and both say the same about which
/// slots that is. A replica whose table is behind would claim slots that have just been moved away.
pub(crate) fn may_take_over(scene: &Scene<'_>, replica: &Live<'_>, lead: &Live<'_>) -> bool {
    let near = matches!(&replica.node.role, Role::Replica { link_up: true, lag_bytes, .. } if *lag_bytes <= scene.limits.lag_bytes);
    let known = replica.node.peers.get(&lead.node.id).is_some_and(|peer| peer.slots() == lead.node.slots());
    let stays = !scene.is_terminating(replica.pod) && keeps(scene, replica);
    let links = replica.knows(lead) && lead.knows(replica);
    stays && near && known && replica.is_copy_of(lead.node.id) && links && is_electable(scene, replica, lead)
}

/// Enough primaries to elect it know it for a replica of this one. Others refuse it their votes, as in a cluster that is being formed
/// (`clusterSendFailoverAuthIfNeeded`: a primary, or a node whose primary is not known, gets none), and it asks only once.
fn is_electable(scene: &Scene<'_>, replica: &Live<'_>, lead: &Live<'_>) -> bool {
    let votes = scene.voters().filter(|voter| {
        let entry = voter.node.peers.get(&replica.node.id);
        entry.is_some_and(|peer| matches!(peer.role, PeerRole::Replica { of } if of == lead.node.id))
    });
    votes.count() > scene.owners() / 2
}

/// How long after an election no other may be called in the same shard, in milliseconds.
///
/// A replica that stands again while its last election is not yet over (twice `max(2 × node timeout, 2 s)`) is counted the votes of that
/// one: it calls itself the primary without a new epoch, takes writes, and loses them when the true primary's epoch reaches it
/// (`clusterHandleSlaveFailover` leaves `failover_auth_sent` and `failover_auth_count` as they were). And for half that time the other
/// primaries refuse to vote for a replica of the same primary, while that one holds its clients' writes. The slack covers the time
/// between an election and our seeing it.
fn rest_millis(scene: &Scene<'_>) -> u64 {
    const SLACK: u64 = 500;
    votes_count_millis(scene).saturating_mul(2).saturating_add(SLACK)
}

/// For how long the votes of an election count (`auth_timeout` in `clusterHandleSlaveFailover`).
pub(crate) fn votes_count_millis(scene: &Scene<'_>) -> u64 {
    let timeouts = scene.live.iter().map(|live| live.node.node_timeout_millis);
    let longest = timeouts.fold(scene.desired.node_timeout_millis, u64::max);
    longest.saturating_mul(2).max(2_000)
}

/// Nobody has just been asked to become the shard's primary.
pub(crate) fn may_ask(scene: &Scene<'_>, shard: u16) -> Result<(), Waiting> {
    let asked = scene.observed.failovers_asked.get(&shard).copied();
    let recent = asked.filter(|since| *since < scene.limits.failover_patience_millis);
    recent.map_or(Ok(()), |since_millis| Err(Waiting::Failover { shard, since_millis }))
}

/// The shard's primary role may move on purpose, by an election; if not, what has to be waited for.
pub(crate) fn may_elect(scene: &Scene<'_>, shard: u16) -> Result<(), Waiting> {
    may_ask(scene, shard)?;
    let (moved, of_millis) = (scene.observed.elections.get(&shard).copied(), rest_millis(scene));
    match moved {
        Some(since_millis) if since_millis < of_millis => Err(Waiting::Rest { shard, since_millis, of_millis }),
        Some(_) | None => Ok(()),
    }
}

/// If it were restarted now, it would come back with what it holds; or nothing of this cluster would. Whether a snapshot can be saved matters only
/// where nobody else has that ([`keeps_alone`]).
pub(crate) fn keeps(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    live.node.disk.is_logged() || !scene.desired.restart_keeps_data
}

/// As [`keeps`], of the only one who has what it holds: where snapshots are all that is kept its stop has to save one.
pub(crate) fn keeps_alone(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    live.node.disk == Disk::Current || !scene.desired.restart_keeps_data
}

/// What is waited for at a member that does not [keep](keeps), or not [alone](keeps_alone), what it holds.
pub(crate) fn disk(live: &Live<'_>) -> Waiting {
    let fails = match live.node.disk {
        Disk::Current | Disk::Rewriting => None,
        Disk::Fails(what) => Some(what),
    };
    Waiting::Disk { pod: live.pod, fails }
}

/// A replica that waits for its own restart, holds no key, and is not in sync although its primary serves. Where that one is newer it gets
/// a copy only once it is restarted: an older server throws away what it holds, and then cannot load what a newer one sends. Whatever the
/// reason is, it has nothing that a restart could take away; who holds a key is never meant.
pub(crate) fn is_left_behind(scene: &Scene<'_>, pod: Pod) -> bool {
    let Some(member) = scene.observed.members.get(&pod).filter(|_| scene.is_wanted(pod)) else { return false };
    let Seen::Node(node) = &member.seen else { return false };
    let Some(lead) = scene.lead(pod.shard) else { return false };
    let serves = lead.node.state_ok && !lead.node.loading && !scene.is_terminating(lead.pod);
    let is_empty = node.keys == 0 && !node.loading;
    let lacks_a_copy =
        matches!(&node.role, Role::Replica { of, link_up: false, misled: false, .. } if *of == lead.node.id);
    member.outdated && !member.terminating && is_empty && lacks_a_copy && serves
}

/// The copy lacks no more than the last moments of its primary: by the time the primary lived without it, and by the bytes that are
/// known to be missing.
pub(crate) fn is_whole(scene: &Scene<'_>, replica: &Live<'_>) -> bool {
    match &replica.node.role {
        Role::Replica { gap, lag_bytes, .. } => {
            gap.missed_millis <= scene.limits.missed_millis && *lag_bytes <= scene.limits.missed_bytes
        }
        Role::Primary { .. } => false,
    }
}

/// Most primaries hold this node to be dead, as they have to before Redis lets a replica stand.
pub(crate) fn is_held_dead(scene: &Scene<'_>, id: NodeId) -> bool {
    let agree =
        scene.voters().filter(|voter| voter.node.peers.get(&id).is_some_and(|peer| peer.health == Health::Failed));
    agree.count() > scene.owners() / 2
}

/// The other members of a lost primary's shard.
fn fellows<'a>(scene: &Scene<'a>, shard: u16, lost: NodeId) -> impl Iterator<Item = (Pod, &'a Member)> + use<'a> {
    let observed = scene.observed;
    let members = observed.members.iter().filter(move |(pod, member)| {
        let is_other = !is_blank(observed, **pod, Some(member)) && identity(member).is_none_or(|id| id != lost);
        pod.shard == shard && is_other
    });
    members.map(|(pod, member)| (*pod, member))
}

/// Another member of the shard that has only just stopped answering, and may have more than those that do. One that is about to go is nothing to build on.
pub(crate) fn may_have_more(scene: &Scene<'_>, shard: u16, lost: NodeId) -> Option<(Pod, u64)> {
    let mut stay = fellows(scene, shard, lost).filter(|(_, member)| !member.terminating);
    stay.find_map(|(pod, member)| match member.seen {
        Seen::Unknown { since_millis } if since_millis < scene.limits.unseen_millis => Some((pod, since_millis)),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } | Seen::Node(_) => {
            None
        }
    })
}

/// Another member of the shard, not the lost one's place, that is not seen now and may hold a better copy. With a pod that is being deleted goes
/// what it holds, unless that lies on a volume; until its process ends it may hand it on.
pub(crate) fn may_have_another_copy(scene: &Scene<'_>, shard: u16, lost: NodeId) -> Option<Pod> {
    let stays = |member: &Member| !member.terminating || scene.desired.has_volumes || may_run(member);
    let brings = |member: &Member| stays(member) && brings_data(scene, Some(&member.seen));
    fellows(scene, shard, lost).find(|(_, member)| brings(member)).map(|(pod, _)| pod)
}

/// No lost owner is of this shard.
pub(crate) fn has_lost_nothing(scene: &Scene<'_>, shard: u16) -> bool {
    !scene.lost.iter().any(|lost| is_of(scene, lost, shard))
}

/// By its place or by who follows it.
pub(crate) fn is_of(scene: &Scene<'_>, lost: &Lost, shard: u16) -> bool {
    let is_here = home_of(scene, lost.id).is_some_and(|home| home.shard == shard);
    is_here || scene.live_of(shard).any(|live| follows(&live, lost.id))
}

/// A member that may be promoted in place of a lost primary: complete copy, and it claims nothing somebody newer owns.
pub(crate) fn may_replace(replica: &Live<'_>, lost: &Lost) -> bool {
    replica.is_copy_of(lost.id) && claims_no_more(replica, lost)
}

/// A replica that never got the lost node's data, but still has what it had before: it was the primary, was cut off, and has been demoted
/// since. Older than what is lost, and better than nothing.
pub(crate) fn holds_older_copy(replica: &Live<'_>, lost: &Lost) -> bool {
    follows(replica, lost.id) && claims_no_more(replica, lost) && replica.node.keys > 0 && !replica.node.loading
}

/// A promoted replica claims what its own table says of its primary: nothing of that may have gone to somebody newer.
fn claims_no_more(replica: &Live<'_>, lost: &Lost) -> bool {
    replica.node.peers.get(&lost.id).is_some_and(|peer| peer.slots().difference(&lost.slots).is_empty())
}

/// Two primaries that may move these slots from one to the other: each has a link to the other and to a majority, and takes the other's
/// claims for its own (one that was cut off may have been replaced without knowing it); nobody who could say so has the epoch of the
/// source (Redis gives one of two equals a new one as soon as they talk, which may be above the target's claim); and the target has heard
/// of that epoch.
pub(crate) fn may_move(scene: &Scene<'_>, from: &Live<'_>, to: &Live<'_>, slots: &SlotSet) -> bool {
    let linked = |one: &Live<'_>, other: &Live<'_>| {
        one.node.peers.get(&other.node.id).is_some_and(|peer| {
            // Whose a slot is that it imports, a node does not hear (`clusterUpdateSlotsConfigWith`).
            let imports = one.node.open.iter().filter(|(_, open)| matches!(open, Open::Importing(_)));
            let unheard: SlotSet = imports.map(|(slot, _)| *slot).collect();
            let claims = other.node.slots().difference(slots).difference(peer.slots()).difference(&unheard);
            peer.connected && peer.health == Health::Ok && claims.is_empty()
        })
    };
    let epoch = from.node.epoch;
    // Of who answers its own word counts: a line of it may have another node's epoch, which answered at its address.
    let of = |id: &NodeId| scene.by_id(*id).map(|live| live.node.epoch);
    let is_rival = |(id, peer): (&NodeId, &Peer)| {
        let speaks = peer.connected && peer.health == Health::Ok && matches!(peer.role, PeerRole::Primary { .. });
        *id != from.node.id && speaks && of(id).unwrap_or(peer.epoch) == epoch
    };
    let is_alone = !from.node.peers.iter().chain(&to.node.peers).any(is_rival) && to.node.epoch != epoch;
    let is_known = is_alone && to.heard() >= epoch;
    from.node.state_ok && to.node.state_ok && linked(from, to) && linked(to, from) && is_known
}

/// Who else of the giver's shard may have owned slots before, and may still send older copies of their keys when it wakes up: it is not known to have
/// ended, and does not answer as anybody. (The executor asks both ends again, and heeds one that answers with the slots, too.)
pub(crate) fn former_owner(scene: &Scene<'_>, giver: Pod) -> Option<Pod> {
    let others = scene.observed.members.iter().filter(|(pod, _)| pod.shard == giver.shard && **pod != giver);
    let silent = others.filter_map(|(pod, member)| match &member.seen {
        Seen::Absent | Seen::Stopped | Seen::Held { .. } | Seen::Node(_) => None,
        // Its agent answers, and its server may stand still.
        Seen::Starting | Seen::Unknown { .. } => Some((*pod, member.last_id?)),
    });
    let leads = |id: &NodeId| {
        let is_primary =
            |live: &Live<'_>| live.node.peers.get(id).is_some_and(|peer| matches!(peer.role, PeerRole::Primary { .. }));
        let gives = |live: &Live<'_>| live.node.open.values().any(|mark| *mark == Open::Importing(*id));
        scene.live.iter().any(|live| is_primary(live) || gives(live)) && !scene.observed.has_owned_nothing(*id)
    };
    silent.into_iter().find(|(_, id)| leads(id)).map(|(pod, _)| pod)
}

/// What moves would lie in one place: nobody has a copy of the target yet, and somebody is making one. A shard whose replicas are not there is not
/// waited for, and neither is one that gives what no other member has.
pub(crate) fn first_copy(scene: &Scene<'_>, source: &Live<'_>, target: &Live<'_>) -> Option<Waiting> {
    if scene.owned_by(target.pod).is_empty() {
        return first_replica(scene, target);
    }
    if !would_lie_alone(scene, source, target) {
        return None;
    }
    copy_in_making(scene, target).or_else(|| joining(scene, target, |_| true))
}

/// As [`first_copy`], of what is half moved. A disk that has each write is enough for that: nothing else is done meanwhile. Without one the rest of a
/// move went into one memory, where the replica had stood still until its link was cut.
pub(crate) fn copy_of_half_moved(scene: &Scene<'_>, source: &Live<'_>, target: &Live<'_>) -> Option<Waiting> {
    // One that gets its copy only once it is restarted would wait for this, and this for it.
    let may_wait = scene.is_lead(target.pod) && would_lie_alone(scene, source, target);
    if may_wait { joining(scene, target, |pod| !is_left_behind(scene, pod)) } else { None }
}

/// Another one has a copy of the source, and nobody of the target, but for such as are about to end.
fn would_lie_alone(scene: &Scene<'_>, source: &Live<'_>, target: &Live<'_>) -> bool {
    let is_copy = |live: &Live<'_>, of: &Live<'_>| live.is_copy_of(of.node.id) && is_linked(live);
    // Where a disk has it, the last copy but one may end.
    let stays = |live: &Live<'_>| scene.desired.keeps_each_write || !scene.is_terminating(live.pod);
    let is_safe = scene.live.iter().any(|live| is_copy(live, target) && stays(live));
    !is_safe && scene.live.iter().any(|live| is_copy(live, source))
}

/// Before its first slot a primary has no replica in sync: replicas are let in once a slot is marked there, which is the executor's to do and to wait for
/// (`joined.rs`). Where that was in vain a moment ago, or nobody is there who could be let in, other phases go on: what they do may help.
fn first_replica(scene: &Scene<'_>, target: &Live<'_>) -> Option<Waiting> {
    let wait = joining(scene, target, |_| true)?;
    let is_tried = scene.observed.first_slot_held.contains(&target.pod.shard);
    let may_be_let_in = |pod: Pod| !is_tried && !scene.is_terminating(pod);
    match wait {
        Waiting::Sync { pod, .. } if may_be_let_in(pod) => None,
        wait => Some(wait),
    }
}

/// A replica of the target that is to stay.
fn copy_in_making(scene: &Scene<'_>, target: &Live<'_>) -> Option<Waiting> {
    let stays = |live: &Live<'_>| scene.is_wanted(live.pod) && !scene.is_terminating(live.pod);
    let follows = |live: &Live<'_>| matches!(live.node.role, Role::Replica { of, .. } if of == target.node.id);
    scene.live_of(target.pod.shard).find(|live| stays(live) && follows(live)).map(|live| syncs(&live))
}

/// Where no disk keeps what moves: a member beside the target that will have a copy. Those that answer come first, and of these those that stay.
fn joining(scene: &Scene<'_>, target: &Live<'_>, counts: impl Fn(Pod) -> bool) -> Option<Waiting> {
    if scene.desired.keeps_each_write {
        return None;
    }
    let joins = |pod: Pod| pod != target.pod && scene.is_wanted(pod) && scene.observed.may_join(pod) && counts(pod);
    let live = scene.live_of(target.pod.shard).filter(|live| joins(live.pod));
    let live = live.min_by_key(|live| scene.is_terminating(live.pod)).map(|live| syncs(&live));
    live.or_else(|| {
        let mut members = scene.observed.members.keys().filter(|pod| pod.shard == target.pod.shard);
        members.find(|pod| joins(**pod)).map(|pod| Waiting::Start { pod: *pod })
    })
}

/// How far it is. One that is blank has no link yet.
fn syncs(live: &Live<'_>) -> Waiting {
    let (link_up, lag_bytes) = match live.node.role {
        Role::Replica { link_up, lag_bytes, .. } => (link_up, lag_bytes),
        Role::Primary { .. } => (false, 0),
    };
    Waiting::Sync { pod: live.pod, link_up, lag_bytes }
}

fn is_linked(live: &Live<'_>) -> bool {
    matches!(&live.node.role, Role::Replica { link_up: true, .. })
}

/// Whether a node may make a claim to these slots, besides what it owns, with a new epoch over what a node of this epoch had. Gives the number
/// of live nodes that are ready.
///
/// It must have heard of that epoch: its own would be the lower one, and gossip would take the slots away again, with their keys. And
/// nobody, itself included, may still believe it to own slots it has given away: under its new epoch they would tell the new owner to drop
/// them.
pub(crate) fn ready_for_claim(
    scene: &Scene<'_>,
    claimant: &Live<'_>,
    slots: &SlotSet,
    above: u64,
) -> Result<(), usize> {
    let owns = scene.owned_by(claimant.pod).union(slots);
    let ready = |live: &&Live<'_>| {
        let is_itself = live.pod == claimant.pod;
        let believed = if is_itself {
            Some(claimant.node.slots())
        } else {
            live.node.peers.get(&claimant.node.id).map(Peer::slots)
        };
        believed.is_none_or(|believed| believed.difference(&owns).is_empty()) && (!is_itself || live.heard() >= above)
    };
    let ready = scene.live.iter().filter(ready).count();
    if ready == scene.live.len() { Ok(()) } else { Err(ready) }
}

/// The member has been replaced, and each of its keys has been counted by its slot: they may be anybody's otherwise.
pub(crate) fn is_former(scene: &Scene<'_>, live: &Live<'_>) -> bool {
    let counted = live.node.foreign_keys.values().fold(0_u64, |sum, keys| sum.saturating_add(*keys));
    scene.observed.is_replaced(live.pod) && live.node.keys > 0 && counted >= live.node.keys
}

/// Slots it does not own and holds keys of.
pub(crate) fn slots_with_keys(live: &Live<'_>) -> SlotSet {
    live.node.foreign_keys.iter().filter(|(_, keys)| **keys > 0).map(|(slot, _)| *slot).collect()
}

/// A primary of another shard that may hold keys of these slots, none of which it owns: they are not counted.
pub(crate) fn may_hold_keys(scene: &Scene<'_>, except: Option<u16>, slots: &SlotSet) -> Option<Waiting> {
    let others = scene.live.iter().filter(|live| Some(live.pod.shard) != except);
    let open = others.map(|live| (live.pod, live.node.uncounted.intersection(slots)));
    let found = open.filter(|(_, open)| !open.is_empty()).max_by_key(|(pod, open)| (open.len(), Reverse(*pod)));
    found.map(|(pod, open)| Waiting::Counting { pod, slots: open.len() })
}

/// The place known to be this node's.
pub(crate) fn home_of(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    scene.observed.members.iter().find(|(_, member)| identity(member) == Some(id)).map(|(pod, _)| *pod)
}

fn may_be(pod: Pod, member: &Member, id: NodeId, home: Option<Pod>) -> bool {
    match home {
        Some(home) => home == pod,
        None => identity(member).is_none_or(|known| known == id),
    }
}

/// Nothing can come back from there, and nobody is known to have been there.
fn is_blank(observed: &Observed, pod: Pod, member: Option<&Member>) -> bool {
    observed.blank.contains(&pod) && member.and_then(identity).is_none()
}

fn is_live(member: &Member) -> bool {
    matches!(member.seen, Seen::Node(_))
}
