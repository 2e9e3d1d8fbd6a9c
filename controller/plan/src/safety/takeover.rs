//! May a replica be promoted without votes? Where most primaries are gone nobody can be elected.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{home_of, is_held_dead, may_be, may_be_alive, may_bring_data};
use crate::observed::{Health, Member, NodeId, PeerRole, Pod, Role, Seen};
use crate::plan::{Refused, Waiting, count};
use crate::scene::{Live, Lost, Scene};

/// For how long who does not answer is expected to: a controller that is cut off for a while gives nobody up.
const UNSEEN_MILLIS: u64 = 20_000;

/// Whether another one can be elected in the place of a lost primary.
pub(crate) enum Votes {
    /// Most primaries are there to vote.
    Enough,
    /// They are once this one answers again, which it did a moment ago.
    Soon(Waiting),
    /// Too few are left.
    TooFew,
}

pub(crate) fn votes(scene: &Scene<'_>, lost: &Lost) -> Votes {
    let others = scene.lost.iter().filter(|other| other.id != lost.id);
    let unseen =
        others.filter_map(|other| may_be_alive(scene, other.id)).filter_map(|pod| Some((pod, unseen(scene, pod)?)));
    // What somebody says is set aside: it answers, and votes.
    let (aside, unseen): (Vec<_>, Vec<_>) = unseen.partition(|(_, since)| *since == u64::MAX);
    let brief: Vec<_> = unseen.into_iter().filter(|(_, since)| *since < scene.limits.unseen_millis).collect();
    let (there, most) = (scene.owned.len().saturating_add(aside.len()), scene.owners() / 2);
    match brief.first() {
        _ if there > most => Votes::Enough,
        Some((pod, since_millis)) if there.saturating_add(brief.len()) > most => {
            Votes::Soon(Waiting::Unknown { pod: *pod, since_millis: *since_millis })
        }
        Some(_) | None => Votes::TooFew,
    }
}

/// Where most primaries are there to vote: whether they would vote for this copy. None does whose line of the lost primary has a later epoch than the
/// copy's own (`clusterSendFailoverAuthIfNeeded`): it may be that of another node at its address (`getNodeFromLinkAndMsg`), and gossip never mends that.
pub(crate) fn is_electable_by_most(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> bool {
    let votes = votes_for(scene, lost, copy);
    has_heard_of_slots(copy, lost) && (votes == scene.owned.len() || votes > scene.owners() / 2)
}

/// A replica asks for no votes where its own table gives its primary no slot (`clusterHandleSlaveFailover`), be it told to or not. It has not heard of
/// them where that one ended a moment after the two had met, and nobody else tells it: gossip sections name no slots, and UPDATE messages go to who
/// claims some.
fn has_heard_of_slots(copy: &Live<'_>, lost: &Lost) -> bool {
    copy.node.peers.get(&lost.id).is_some_and(|line| !line.slots().is_empty())
}

/// Those who are known to refuse are too many: whoever votes besides, seen or not, it is not elected. Nor is who never asks.
pub(crate) fn is_refused_whoever_votes(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> bool {
    let refuse = scene.voters().count().saturating_sub(votes_for(scene, lost, copy));
    // The lost one is among the owners, and does not vote.
    !has_heard_of_slots(copy, lost) || scene.owners().saturating_sub(refuse.saturating_add(1)) <= scene.owners() / 2
}

fn votes_for(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> usize {
    let own = copy.node.peers.get(&lost.id);
    let refuses = |voter: &Live<'_>| {
        voter
            .node
            .peers
            .get(&lost.id)
            .zip(own)
            .is_some_and(|(line, own)| line.epoch > own.epoch && !line.slots().intersection(own.slots()).is_empty())
    };
    scene.voters().filter(|voter| !refuses(voter)).count()
}

fn unseen(scene: &Scene<'_>, pod: Pod) -> Option<u64> {
    match scene.observed.members.get(&pod)?.seen {
        Seen::Unknown { since_millis } => Some(since_millis),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Node(_) => None,
    }
}

/// What is missing for a promotion without votes.
pub(crate) enum Missing {
    /// Another look, which an order waits for as well.
    Look(Waiting),
    /// What comes by itself.
    Wait(Waiting),
    /// What nobody but a person can say.
    Proof(Refused),
}

/// Votes make sure that nobody else leads, or comes to lead, the shard, and that the copy has what clients were told. Where too few are left to
/// vote that has to be known otherwise:
/// - the primary's process has ended, as the agent of its pod says; or it is given up by most, which a copy has to be that cannot ask for their votes;
/// - the copy had everything until then, or the primary cannot bring back what it had. For how long nobody heard of it tells nothing: those who
///   hear nothing may be the few on one side of a network that was cut, while the primary served most others on the other side;
/// - each of its other replicas answers, and says that it is one, or has ended with all it had: nobody else can have been elected, here or where
///   nobody looks, who has something still.
pub(crate) fn needs_no_votes(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>) -> Result<(), Missing> {
    let mut unproven: Vec<(NodeId, Option<Pod>)> = Vec::new();
    let ended = ended_since(scene, lost.id);
    if ended.is_none() {
        comes_back(scene, lost.id, |pod| Waiting::Start { pod })?;
    }
    let is_given_up = ended.is_none() && is_given_up_by_most(scene, lost, best);
    if ended.is_none() && !is_given_up {
        unproven.push((lost.id, home_of(scene, lost.id)));
    }
    if scene.live.iter().any(|live| meets(live, lost.id)) {
        return Err(Missing::Look(Waiting::Primary { shard: best.pod.shard, slots: lost.slots.len() }));
    }
    for id in silent_replicas(scene, lost.id).into_iter().filter(|id| !is_gone(scene, *id)) {
        comes_back(scene, id, |pod| Waiting::Copy { pod, instead_of: best.pod })?;
        unproven.push((id, home_of(scene, id)));
    }
    if unproven.is_empty() {
        let is_enough = is_enough(scene, lost, best) || is_given_up && super::is_whole(scene, best);
        return if is_enough { Ok(()) } else { Err(stale(lost, best, ended)) };
    }
    voters_come_back(scene)?;
    let alive = scene.voters().count();
    let refuse = count(alive.saturating_sub(votes_for(scene, lost, best)));
    let (alive, of, shard) = (count(alive), count(scene.owners()), best.pod.shard);
    let (primary, replica) = (lost.id, best.pod);
    Err(Missing::Proof(Refused::NoQuorum { alive, refuse, of, shard, primary, replica, unproven }))
}

/// Most primaries would vote for this copy, and it cannot ask them: they hold its primary dead, so that it takes no writes where it runs on, cut off from
/// them (`clusterUpdateState`), and they take the copy's claim for the later one. That is what an election would come to.
fn is_given_up_by_most(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> bool {
    let is_dead =
        may_be_alive(scene, lost.id).is_none() && (is_held_dead(scene, lost.id) || is_nowhere(scene, lost, copy));
    !has_heard_of_slots(copy, lost) && is_dead && votes_for(scene, lost, copy) > scene.owners() / 2
}

/// Somebody else answers at its address: who has no address of a node does not hold it dead (`clusterCron`), and would have it again with that one's next
/// ping. Nobody has heard of it for longer than it takes writes without the others.
fn is_nowhere(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> bool {
    let Role::Replica { gap, .. } = &copy.node.role else { return false };
    let lines = scene.voters().filter(|voter| voter.node.peers.get(&lost.id).is_some_and(|line| line.noaddr));
    gap.silent_millis >= super::votes_count_millis(scene) && lines.count() > scene.owners() / 2
}

/// For how long a process is known to have ended, at least. One that is about to be started on its files has not; one before whose start its agent
/// waits for what does not come by itself has.
fn ended_since(scene: &Scene<'_>, id: NodeId) -> Option<u64> {
    let home = home_of(scene, id);
    let may_run = |(pod, member): (&Pod, &Member)| match &member.seen {
        Seen::Node(node) => node.id == id,
        Seen::Starting => !member.waits && may_be(*pod, member, id, home),
        Seen::Unknown { .. } => may_be(*pod, member, id, home),
        Seen::Absent | Seen::Stopped | Seen::Held { .. } => false,
    };
    scene.observed.ended.get(&id).copied().filter(|_| !scene.observed.members.iter().any(may_run))
}

/// Whatever this one was elected for, and written since, is gone with it: it has ended, brings nothing back, and nobody has a copy, seen or not.
fn is_gone(scene: &Scene<'_>, id: NodeId) -> bool {
    let follows = |live: &Live<'_>| matches!(live.node.role, Role::Replica { of, .. } if of == id);
    let is_followed = scene.live.iter().any(follows) || !silent_replicas(scene, id).is_empty();
    ended_since(scene, id).is_some() && may_bring_data(scene, id).is_none() && !is_followed
}

/// It has a connection to that node, of which it hears.
pub(crate) fn meets(live: &Live<'_>, id: NodeId) -> bool {
    live.node.peers.get(&id).is_some_and(|peer| peer.connected && peer.health == Health::Ok && !peer.noaddr)
}

/// Whether a node that does not answer is expected, by itself and soon.
fn comes_back(scene: &Scene<'_>, id: NodeId, wait: impl Fn(Pod) -> Waiting) -> Result<(), Missing> {
    let home = home_of(scene, id);
    let members = scene.observed.members.iter().filter(|(pod, member)| may_be(**pod, member, id, home));
    for (pod, member) in members.filter(|(_, member)| !member.stuck) {
        match member.seen {
            Seen::Starting if !member.waits => return Err(Missing::Wait(wait(*pod))),
            Seen::Stopped => return Err(Missing::Wait(wait(*pod))),
            Seen::Unknown { since_millis } if since_millis < UNSEEN_MILLIS => {
                return Err(Missing::Look(Waiting::Unknown { pod: *pod, since_millis }));
            }
            Seen::Starting | Seen::Unknown { .. } | Seen::Absent | Seen::Held { .. } | Seen::Node(_) => {}
        }
    }
    Ok(())
}

/// Nodes that somebody knows as replicas of this one, and that do not answer.
pub(super) fn silent_replicas(scene: &Scene<'_>, primary: NodeId) -> BTreeSet<NodeId> {
    let lines = scene.live.iter().flat_map(|live| &live.node.peers);
    let replicas = lines.filter(|(_, peer)| matches!(peer.role, PeerRole::Replica { of } if of == primary));
    replicas.filter(|(id, peer)| !peer.handshake && scene.by_id(**id).is_none()).map(|(id, _)| *id).collect()
}

/// The copy had everything until the end of the primary, as far as its own agent knows; or that one cannot bring back what it had.
pub(crate) fn is_enough(scene: &Scene<'_>, lost: &Lost, copy: &Live<'_>) -> bool {
    may_bring_data(scene, lost.id).is_none()
        || ended_since(scene, lost.id).is_some_and(|since| missed(copy, since) <= scene.limits.missed_millis)
}

fn missed(copy: &Live<'_>, ended_since: u64) -> u64 {
    match &copy.node.role {
        Role::Replica { gap, .. } => gap.behind_millis.saturating_sub(ended_since),
        Role::Primary { .. } => u64::MAX,
    }
}

fn stale(lost: &Lost, best: &Live<'_>, ended_since: Option<u64>) -> Missing {
    let silent_millis = ended_since.unwrap_or(0);
    let lag_bytes = match &best.node.role {
        Role::Replica { lag_bytes, .. } => *lag_bytes,
        Role::Primary { .. } => 0,
    };
    let (shard, primary, replica) = (best.pod.shard, lost.id, best.pod);
    let missed_millis = missed(best, silent_millis);
    Missing::Proof(Refused::StaleCopy {
        shard,
        primary,
        replica,
        missed_millis,
        lag_bytes,
        silent_millis,
        others: Vec::new(),
    })
}

/// With those primaries that are about to start there will be votes. One whose pod is being deleted hands its role over at once, or goes.
fn voters_come_back(scene: &Scene<'_>) -> Result<(), Missing> {
    let goes = |other: &&Lost| home_of(scene, other.id).is_some_and(|home| scene.is_terminating(home));
    let coming = scene
        .lost
        .iter()
        .filter(|other| !goes(other))
        .filter_map(|other| comes_back(scene, other.id, |pod| Waiting::Start { pod }).err());
    let coming: Vec<Missing> = coming.collect();
    let is_enough = scene.owned.len().saturating_add(coming.len()) > scene.owners() / 2;
    coming.into_iter().next().filter(|_| is_enough).map_or(Ok(()), Err)
}
