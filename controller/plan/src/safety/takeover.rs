//! May a replica be promoted without votes? Where most primaries are gone nobody can be elected.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{home_of, may_be, may_be_alive};
use crate::observed::{Health, Member, NodeId, PeerRole, Pod, Role, Seen};
use crate::plan::{Refused, Waiting};
use crate::scene::{Live, Lost, Scene};

/// Enough primaries are there to elect another one in this one's place. One that has not answered for a moment may still vote.
pub(crate) fn may_be_elected(scene: &Scene<'_>, lost: &Lost) -> bool {
    let others = scene.lost.iter().filter(|other| other.id != lost.id);
    let unseen = others.filter(|other| may_be_alive(scene, other.id).is_some_and(|pod| is_momentary(scene, pod)));
    scene.owned.len().saturating_add(unseen.count()) > owners(scene) / 2
}

fn owners(scene: &Scene<'_>) -> usize {
    scene.owned.len().saturating_add(scene.lost.len())
}

/// It has only just stopped answering; or it answers, and what it says is set aside.
fn is_momentary(scene: &Scene<'_>, pod: Pod) -> bool {
    let is_short = |since: u64| since < scene.limits.unseen_millis || since == u64::MAX;
    let seen = scene.observed.members.get(&pod).map(|member| &member.seen);
    matches!(seen, Some(Seen::Unknown { since_millis }) if is_short(*since_millis))
}

/// What is missing for a promotion without votes.
pub(crate) enum Missing {
    /// What comes, or is seen, by itself.
    Wait(Waiting),
    /// What nobody but a person can say.
    Proof(Refused),
}

/// Votes make sure that nobody else leads, or comes to lead, the shard, and that the copy has what clients were told. Where too few are left to
/// vote that has to be known otherwise:
/// - the primary's process has ended, as the agent of its pod says;
/// - the copy had everything until then. For how long nobody heard of the primary does not tell that: those who hear nothing may be the few on
///   one side of a network that was cut, while the primary served most others on the other side;
/// - each of its other replicas answers, and says that it is one: nobody else can have been elected, here or where nobody looks.
pub(crate) fn needs_no_votes(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>) -> Result<(), Missing> {
    let mut unproven: Vec<(NodeId, Option<Pod>)> = Vec::new();
    let ended_since = ended_since(scene, lost.id);
    if ended_since.is_none() {
        if let Some(wait) = comes_back(scene, lost.id, |pod| Waiting::Start { pod }) {
            return Err(Missing::Wait(wait));
        }
        unproven.push((lost.id, home_of(scene, lost.id)));
    }
    for id in silent_replicas(scene, lost.id) {
        if let Some(wait) = comes_back(scene, id, |pod| Waiting::Copy { pod, instead_of: best.pod }) {
            return Err(Missing::Wait(wait));
        }
        unproven.push((id, home_of(scene, id)));
    }
    if unproven.is_empty() {
        return had_everything(scene, lost, best, ended_since.unwrap_or(0));
    }
    if let Some(wait) = voters_come_back(scene) {
        return Err(Missing::Wait(wait));
    }
    let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    let (alive, of) = (count(scene.owned.len()), count(owners(scene)));
    let (shard, primary, replica) = (best.pod.shard, lost.id, best.pod);
    Err(Missing::Proof(Refused::NoQuorum { alive, of, shard, primary, replica, unproven }))
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
    let is_met = |live: &Live<'_>| {
        live.node.peers.get(&id).is_some_and(|peer| peer.connected && peer.health == Health::Ok && !peer.noaddr)
    };
    let runs = scene.observed.members.iter().any(may_run) || scene.live.iter().any(is_met);
    scene.observed.ended.get(&id).copied().filter(|_| !runs)
}

/// The place from which a node that does not answer is expected, by itself and soon.
fn comes_back(scene: &Scene<'_>, id: NodeId, wait: impl Fn(Pod) -> Waiting) -> Option<Waiting> {
    let home = home_of(scene, id);
    let mut members = scene.observed.members.iter().filter(|(pod, member)| may_be(**pod, member, id, home));
    members.find_map(|(pod, member)| match member.seen {
        Seen::Starting if !member.waits => Some(wait(*pod)),
        Seen::Stopped => Some(wait(*pod)),
        Seen::Unknown { since_millis } if is_momentary(scene, *pod) => {
            Some(Waiting::Unknown { pod: *pod, since_millis })
        }
        Seen::Starting | Seen::Unknown { .. } | Seen::Absent | Seen::Held { .. } | Seen::Node(_) => None,
    })
}

/// Nodes that somebody knows as replicas of this one, and that do not answer.
fn silent_replicas(scene: &Scene<'_>, primary: NodeId) -> BTreeSet<NodeId> {
    let lines = scene.live.iter().flat_map(|live| &live.node.peers);
    let replicas = lines.filter(|(_, peer)| matches!(peer.role, PeerRole::Replica { of } if of == primary));
    replicas.filter(|(id, peer)| !peer.handshake && scene.by_id(**id).is_none()).map(|(id, _)| *id).collect()
}

fn had_everything(scene: &Scene<'_>, lost: &Lost, best: &Live<'_>, ended_since: u64) -> Result<(), Missing> {
    let Role::Replica { gap, lag_bytes, .. } = &best.node.role else { return Ok(()) };
    let missed_millis = gap.behind_millis.saturating_sub(ended_since);
    if missed_millis <= scene.limits.missed_millis {
        return Ok(());
    }
    Err(Missing::Proof(Refused::StaleCopy {
        shard: best.pod.shard,
        primary: lost.id,
        replica: best.pod,
        missed_millis,
        lag_bytes: *lag_bytes,
        silent_millis: ended_since,
    }))
}

/// With those primaries that are about to start there will be votes.
fn voters_come_back(scene: &Scene<'_>) -> Option<Waiting> {
    let coming = scene.lost.iter().filter_map(|other| comes_back(scene, other.id, |pod| Waiting::Start { pod }));
    let coming: Vec<Waiting> = coming.collect();
    let is_enough = scene.owned.len().saturating_add(coming.len()) > owners(scene) / 2;
    coming.into_iter().next().filter(|_| is_enough)
}
