//! The shards and members in the status.

use std::collections::BTreeMap;

use plan::{Member, Pod, Role as PlanRole, Seen};
use types::cluster::{MemberState, MemberStatus, Mode, Role, ShardStatus};
use types::names;

use super::{Seeing, unseen};
use crate::probe::Probed;
use crate::resolve::Resolved;

/// Every shard that is wanted or has members, by index.
pub(super) fn shards(seeing: Seeing<'_>, resolved: &Resolved) -> Vec<ShardStatus> {
    let members = &seeing.probed.observed.members;
    let beyond = members.keys().map(|pod| pod.shard.saturating_add(1)).max().unwrap_or(0);
    (0..resolved.shards.max(beyond))
        .filter(|shard| *shard < resolved.shards || members.keys().any(|pod| pod.shard == *shard))
        .map(|shard| one(seeing, resolved, shard))
        .collect()
}

/// The serving primary of each shard that has one: it owns slots, or it is the one server.
#[must_use]
pub fn primaries(resolved: &Resolved, probed: &Probed) -> BTreeMap<u16, Pod> {
    let members = probed.observed.members.iter();
    let serving = members.filter(|(_, member)| match &member.seen {
        Seen::Node(node) => node.is_primary() && (resolved.mode == Mode::Standalone || !node.slots().is_empty()),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => false,
    });
    serving.map(|(pod, _)| (pod.shard, *pod)).collect()
}

fn one(seeing: Seeing<'_>, resolved: &Resolved, shard: u16) -> ShardStatus {
    let (cluster, probed) = (&resolved.key.name, seeing.probed);
    let primaries = primaries(resolved, probed);
    let primary = primaries.get(&shard);
    let mut status = ShardStatus { index: i32::from(shard), ..ShardStatus::default() };
    let places = (0..resolved.members).map(|ordinal| Pod::new(shard, ordinal)).filter(|_| shard < resolved.shards);
    let mut pods: Vec<Pod> =
        places.chain(probed.observed.members.keys().copied().filter(|pod| pod.shard == shard)).collect();
    pods.sort_unstable();
    pods.dedup();
    for pod in pods {
        let name = names::pod(cluster, shard, pod.ordinal);
        let member = probed.observed.members.get(&pod);
        if let Some(Seen::Node(node)) = member.map(|member| &member.seen)
            && primary == Some(&pod)
        {
            status.slots = node.slots().to_string();
            status.keys = signed(node.keys);
            status.used_memory = probed.facts.get(&pod).map_or(0, |facts| signed(facts.used_memory));
            status.primary = Some(name.clone());
        }
        let mut member = of_member(name, member, probed.facts.get(&pod).is_some_and(|facts| facts.syncing));
        if probed.unusable.contains_key(&pod) {
            member.state = MemberState::Held;
        } else if unseen::is_silent(seeing, pod) {
            member.state = MemberState::Unknown;
        }
        // Which of two was another node before tells who has the copy; it is remembered until one of them is gone.
        if runs_twice(probed, pod) {
            let before = probed.observed.members.get(&pod).and_then(|member| member.last_id);
            member.node_id = before.map(|id| id.to_string()).or(member.node_id);
        }
        status.members.push(member);
    }
    status
}

/// Another member has its identity, too.
fn runs_twice(probed: &Probed, pod: Pod) -> bool {
    let members = &probed.observed.members;
    let id = |member: &Member| member.node().map(|node| node.id);
    let Some(mine) = members.get(&pod).and_then(id) else { return false };
    members.iter().any(|(other, member)| *other != pod && id(member) == Some(mine))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn of_member(pod: String, member: Option<&Member>, syncing: bool) -> MemberStatus {
    let mut status = MemberStatus {
        pod,
        node_id: member.and_then(|member| member.last_id).map(|id| id.to_string()),
        address: None,
        role: None,
        lag_bytes: None,
        state: MemberState::Absent,
    };
    status.state = match member.map(|member| &member.seen) {
        None | Some(Seen::Absent | Seen::Stopped) => MemberState::Absent,
        Some(Seen::Starting) => MemberState::Joining,
        Some(Seen::Held { id, .. }) => {
            status.node_id = id.map(|id| id.to_string()).or(status.node_id);
            MemberState::Held
        }
        Some(Seen::Unknown { .. }) => MemberState::Unknown,
        Some(Seen::Node(node)) => {
            status.node_id = Some(node.id.to_string());
            status.address = Some(node.address.clone());
            let (role, lag, state) = match &node.role {
                PlanRole::Primary { .. } => (Role::Primary, None, MemberState::Online),
                PlanRole::Replica { link_up, lag_bytes, .. } => {
                    let state = if *link_up && !syncing { MemberState::Online } else { MemberState::Syncing };
                    (Role::Replica, Some(signed(*lag_bytes)), state)
                }
            };
            (status.role, status.lag_bytes) = (Some(role), lag);
            if node.loading { MemberState::Syncing } else { state }
        }
    };
    status
}
