//! Members of whom nothing is heard, on which nodes, since when: whoever mends a machine looks for its name. And members that wait for others' ends.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use plan::{NodeId, PeerRole, Pod, Seen};
use types::names;

use super::{Seeing, members};
use crate::probe::nodes;
use crate::resolve::Resolved;

/// A pod that is restarted is not heard of for some seconds, and a replica takes over in as many.
const LEAST: SignedDuration = SignedDuration::from_secs(20);
/// By then a server that was just started listens.
const STARTED: SignedDuration = SignedDuration::from_secs(3);
/// Members named in one sentence.
const NAMED_MOST: usize = 10;

/// Those whose slots nobody serves: primaries by what the others say, or, where nobody knows, all of their shard.
pub(super) fn primaries(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let lost = lost(seeing, resolved);
    let pods: Vec<_> = unseen(seeing).into_iter().filter(|(pod, _)| lost.contains(pod)).collect();
    told(seeing, resolved, &pods).map(|told| format!("{} primaries do not answer: {told}", pods.len()))
}

/// The others.
pub(super) fn replicas(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let lost = lost(seeing, resolved);
    let pods: Vec<_> = unseen(seeing).into_iter().filter(|(pod, _)| !lost.contains(pod)).collect();
    told(seeing, resolved, &pods).map(|told| format!("{} members do not answer: {told}", pods.len()))
}

/// What is waited for, where a server runs already. Whoever refuses has words of its own, which the caller tells.
pub(super) fn silent(seeing: Seeing<'_>, reason: &plan::Waiting) -> Option<String> {
    let plan::Waiting::Start { pod } = reason else { return None };
    let since = seeing.probed.silent.get(pod).filter(|_| is_silent(seeing, *pod))?;
    let cluster = seeing.cluster.metadata.name.as_deref().unwrap_or_default();
    let name = names::pod(cluster, pod.shard, pod.ordinal);
    Some(if refusal(seeing, *pod).is_some() {
        format!("redis-server of pod {name} runs and has refused what KUN asks since {since}")
    } else {
        format!(
            "redis-server of pod {name} runs and has not answered since {since}; its liveness probe restarts it within minutes if its agent hears nothing either"
        )
    })
}

/// What a server says that runs and refuses. Another one's answer that could not be read is no refusal.
fn refusal(seeing: Seeing<'_>, pod: Pod) -> Option<&str> {
    let words = seeing.probed.unread.get(&pod).filter(|_| seeing.probed.silent.contains_key(&pod));
    words.map(String::as_str)
}

/// Its server runs for longer than one takes to listen, and does not answer.
pub(super) fn is_silent(seeing: Seeing<'_>, pod: Pod) -> bool {
    seeing.probed.silent.get(&pod).is_some_and(|since| seeing.now.duration_since(*since) >= STARTED)
}

fn unseen(seeing: Seeing<'_>) -> Vec<(Pod, Timestamp)> {
    let unseen = seeing.probed.unseen.iter().chain(&seeing.probed.silent).map(|(pod, since)| (*pod, *since));
    unseen.filter(|(_, since)| seeing.now.duration_since(*since) >= LEAST).collect()
}

fn told(seeing: Seeing<'_>, resolved: &Resolved, pods: &[(Pod, Timestamp)]) -> Option<String> {
    let one = |(pod, since): &(Pod, Timestamp)| {
        let site = seeing.probed.observed.members.get(pod).and_then(|member| member.site.name());
        let site = site.map(|node| format!(" on node {node}")).unwrap_or_default();
        let refuses = refusal(seeing, *pod).map(|words| format!(" (it refuses what KUN asks: {words})"));
        let refuses = refuses.unwrap_or_default();
        format!("{}{site} since {since}{refuses}", names::pod(&resolved.key.name, pod.shard, pod.ordinal))
    };
    let named: Vec<String> = pods.iter().take(NAMED_MOST).map(one).collect();
    let more = pods.len().saturating_sub(NAMED_MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
}

/// Members that do not answer and may be the primaries of shards which have none that does.
fn lost(seeing: Seeing<'_>, resolved: &Resolved) -> BTreeSet<Pod> {
    let serving = members::primaries(resolved, seeing.probed);
    let peers = || nodes(&seeing.probed.observed).flat_map(|node| &node.peers);
    let owners: BTreeSet<NodeId> = peers()
        .filter_map(|(id, peer)| match &peer.role {
            PeerRole::Primary { slots } => (!slots.is_empty()).then_some(*id),
            PeerRole::Replica { .. } => None,
        })
        .collect();
    let replicas: BTreeSet<NodeId> =
        peers().filter_map(|(id, peer)| matches!(peer.role, PeerRole::Replica { .. }).then_some(*id)).collect();
    let unknown: Vec<_> = seeing
        .probed
        .observed
        .members
        .iter()
        .filter(|(pod, member)| {
            let may_run = matches!(member.seen, Seen::Unknown { .. }) || seeing.probed.silent.contains_key(pod);
            may_run && !serving.contains_key(&pod.shard)
        })
        .collect();
    let is_owner = |id: Option<NodeId>| id.is_some_and(|id| owners.contains(&id));
    let is_replica = |id: Option<NodeId>| id.is_some_and(|id| replicas.contains(&id));
    let known: BTreeSet<u16> =
        unknown.iter().filter(|(_, member)| is_owner(member.last_id)).map(|(pod, _)| pod.shard).collect();
    unknown
        .into_iter()
        .filter(|(pod, member)| is_owner(member.last_id) || !known.contains(&pod.shard) && !is_replica(member.last_id))
        .map(|(pod, _)| *pod)
        .collect()
}

/// Members that have waited for a minute or more for volumes that other pods use.
pub(super) fn volumes_in_use(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let long: Vec<_> = seeing.probed.volume_in_use.iter().filter(|(_, minutes)| **minutes > 0).collect();
    let (pod, minutes) = long.first()?;
    let name = names::pod(&resolved.key.name, pod.shard, pod.ordinal);
    Some(format!(
        "{} members wait for their volumes, which other pods still use; the first is {name}, for {minutes} min. It starts once the container of its \
         former pod has ended on its node; a file system of several nodes may keep the lock of a machine that died for some minutes",
        long.len()
    ))
}
