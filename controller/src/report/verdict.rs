//! Whether the cluster is as it should be, judged from what every node says itself. Written without the planner, so
//! that a fault in one of the two shows as a disagreement and not as a false "Ready".

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use plan::{Node, NodeId, PeerRole, Pod, Role, SLOTS, SlotSet};
use types::cluster::Mode;

use super::sites::{Sites, sites};
use crate::probe::{Probed, Unkept};
use crate::resolve::Resolved;

/// What the nodes' words amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Members that answered with a checked identity.
    pub answering: usize,
    /// Members wanted.
    pub wanted: usize,
    /// Slots with a primary that answers and serves them.
    pub covered: u16,
    /// Nodes whose own table agrees with what every owner says of itself, with every member in it, and nobody else.
    pub agreeing: usize,
    /// Nodes with a half-moved slot.
    pub open: usize,
    /// Replicas that are in sync with their primary.
    pub in_sync: usize,
    /// Replicas wanted.
    pub replicas_wanted: usize,
    /// Shards with fewer copies in sync than wanted.
    pub thin: Vec<Thin>,
    /// Members made from an older template.
    pub outdated: usize,
    /// Members that answer although nobody wants them any more, or pods on their way out.
    pub surplus: usize,
    /// Wanted members whose last write to disk failed.
    pub failing_disks: Vec<Failing>,
    /// Members that run another engine than the one asked for, with what they run.
    pub strangers: Vec<(Pod, String)>,
    /// Identities that run twice, each with the members that have it.
    pub twins: Vec<(NodeId, Vec<Pod>)>,
    /// Members whose own table has them at another address than their pods', and where.
    pub misplaced: Vec<(Pod, SocketAddr)>,
    /// Members whose table and replication disagree whether they are replicas.
    pub at_odds: Vec<Pod>,
    /// What the loss of one node would take along.
    pub sites: Sites,
    /// Every slot is served (in Standalone: the server answers).
    pub serving: bool,
    /// Everything is as it should be.
    pub healthy: bool,
}

/// A shard with too few copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thin {
    /// Which.
    pub shard: u16,
    /// Complete copies.
    pub copies: u16,
    /// Copies asked for.
    pub wanted: u16,
    /// A primary of it answers, with slots or without; else these are what its replicas had last.
    pub has_primary: bool,
}

/// A member whose last write to disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Which.
    pub pod: Pod,
    /// Clients write to it.
    pub is_primary: bool,
    /// What was not written.
    pub what: Unkept,
}

/// Judges.
#[must_use]
pub fn verdict(resolved: &Resolved, probed: &Probed) -> Verdict {
    let members = &probed.observed.members;
    let is_wanted = |pod: &Pod| resolved.wants(*pod);
    let nodes: BTreeMap<Pod, &Node> = members.iter().filter_map(|(pod, member)| Some((*pod, member.node()?))).collect();
    let shards = usize::from(resolved.shards);
    let mut verdict = Verdict {
        answering: nodes.keys().filter(|pod| is_wanted(pod)).count(),
        wanted: shards.saturating_mul(usize::from(resolved.members)),
        replicas_wanted: shards.saturating_mul(usize::from(resolved.members.saturating_sub(1))),
        outdated: members.values().filter(|member| member.outdated).count(),
        surplus: members.keys().filter(|pod| !is_wanted(pod)).count(),
        sites: sites(resolved, probed),
        failing_disks: failing_disks(resolved, probed, &nodes),
        strangers: strangers(resolved, probed),
        ..Verdict::default()
    };
    match resolved.mode {
        Mode::Standalone => {
            verdict.serving = verdict.answering == 1 && nodes.values().all(|node| !node.loading);
            verdict.agreeing = verdict.answering;
            verdict.healthy = verdict.serving && verdict.surplus == 0;
        }
        Mode::Cluster => {
            verdict.twins = twins(probed, &nodes);
            verdict.misplaced = misplaced(probed);
            verdict.at_odds = probed.facts.iter().filter(|(_, facts)| facts.at_odds).map(|(pod, _)| *pod).collect();
            judge_cluster(resolved, &nodes, &mut verdict);
        }
    }
    verdict
}

/// Who is not wanted any more has nothing to keep.
fn failing_disks(resolved: &Resolved, probed: &Probed, nodes: &BTreeMap<Pod, &Node>) -> Vec<Failing> {
    let wanted = probed.facts.iter().filter(|(pod, _)| resolved.wants(**pod));
    let failing = wanted.filter_map(|(pod, facts)| {
        let is_primary = nodes.get(pod)?.is_primary();
        Some(Failing { pod: *pod, is_primary, what: facts.persistence_failed? })
    });
    failing.collect()
}

/// Identities of several members, or of one and of a process outside.
fn twins(probed: &Probed, nodes: &BTreeMap<Pod, &Node>) -> Vec<(NodeId, Vec<Pod>)> {
    let mut members: BTreeMap<NodeId, Vec<Pod>> = BTreeMap::new();
    for (pod, node) in nodes {
        members.entry(node.id).or_default().push(*pod);
    }
    let is_outside = |pods: &[Pod]| pods.iter().any(|pod| probed.observed.elsewhere.contains_key(pod));
    // Two places with one address are one process, of which it is not known yet whose it is.
    let address = |pod: &Pod| nodes.get(pod).map(|node| node.address.as_str());
    let is_apart = |pods: &[Pod]| pods.iter().map(address).collect::<BTreeSet<_>>().len() > 1;
    members.into_iter().filter(|(_, pods)| is_apart(pods) || is_outside(pods)).collect()
}

/// Redis tells its clients the address of its own line, which is another's once that one has answered it with its identity.
fn misplaced(probed: &Probed) -> Vec<(Pod, SocketAddr)> {
    let own = probed.facts.iter().filter_map(|(pod, facts)| Some((*pod, facts.own_line?, facts.address)));
    own.filter(|(_, says, is)| says != is).map(|(pod, says, _)| (pod, says)).collect()
}

fn strangers(resolved: &Resolved, probed: &Probed) -> Vec<(Pod, String)> {
    let others = probed.facts.iter().filter(|(_, facts)| facts.engine != resolved.engine);
    others.map(|(pod, facts)| (*pod, format!("{:?} {}", facts.engine, facts.version))).collect()
}

fn judge_cluster(resolved: &Resolved, nodes: &BTreeMap<Pod, &Node>, verdict: &mut Verdict) {
    let owners: BTreeMap<NodeId, &SlotSet> =
        nodes.values().filter(|node| !node.slots().is_empty()).map(|node| (node.id, node.slots())).collect();
    let claimed: u32 = owners.values().map(|slots| u32::from(slots.len())).sum();
    let serving = nodes.values().filter(|node| node.is_primary() && node.state_ok && !node.loading);
    verdict.covered = serving.fold(SlotSet::EMPTY, |all, node| all.union(node.slots())).len();
    // Twice claimed slots have no agreed owner.
    verdict.serving = verdict.covered == SLOTS && claimed == u32::from(SLOTS);
    verdict.agreeing = nodes.values().filter(|node| agrees(node, nodes, &owners)).count();
    verdict.open = nodes.values().filter(|node| !node.open.is_empty()).count();
    for shard in 0..resolved.shards {
        let copies = copies(shard, nodes);
        let wanted = resolved.members;
        verdict.in_sync = verdict.in_sync.saturating_add(usize::from(copies.saturating_sub(1)));
        if copies < wanted {
            let has_primary = nodes.iter().any(|(pod, node)| pod.shard == shard && node.is_primary());
            let copies = if has_primary { copies } else { left(shard, nodes) };
            verdict.thin.push(Thin { shard, copies, wanted, has_primary });
        }
    }
    verdict.healthy = verdict.serving
        && verdict.answering == verdict.wanted
        && verdict.agreeing == nodes.len()
        && verdict.surplus == 0
        && verdict.open == 0
        && verdict.thin.is_empty()
        && verdict.twins.is_empty()
        && verdict.misplaced.is_empty()
        && verdict.at_odds.is_empty();
}

/// Whether this node's own table says of everybody what they say of themselves, lists every member where it is, and
/// nobody else.
fn agrees(node: &Node, nodes: &BTreeMap<Pod, &Node>, owners: &BTreeMap<NodeId, &SlotSet>) -> bool {
    let nothing = SlotSet::EMPTY;
    let others = || nodes.values().filter(|other| other.id != node.id);
    node.state_ok
        && node.peers.len() == others().count()
        && others().all(|other| {
            node.peers.get(&other.id).is_some_and(|peer| {
                let same_role = match (&peer.role, &other.role) {
                    (PeerRole::Primary { slots }, Role::Primary { .. }) => {
                        slots == *owners.get(&other.id).unwrap_or(&&nothing)
                    }
                    (PeerRole::Replica { of }, Role::Replica { of: really, .. }) => of == really,
                    (PeerRole::Primary { .. }, Role::Replica { .. })
                    | (PeerRole::Replica { .. }, Role::Primary { .. }) => false,
                };
                same_role
                    && peer.health == plan::Health::Ok
                    && peer.address == other.address
                    && !peer.handshake
                    && !peer.noaddr
            })
        })
}

/// Complete copies of a shard's data: its owning primary, and the replicas of that primary that are in sync.
fn copies(shard: u16, nodes: &BTreeMap<Pod, &Node>) -> u16 {
    let of_shard = || nodes.iter().filter(move |(pod, _)| pod.shard == shard).map(|(_, node)| *node);
    let Some(primary) = of_shard().find(|node| node.is_primary() && !node.slots().is_empty()) else { return 0 };
    let synced = of_shard().filter(|node| match &node.role {
        Role::Replica { of, synced, link_up, .. } => *of == primary.id && *synced && *link_up && !node.loading,
        Role::Primary { .. } => false,
    });
    u16::try_from(synced.count().saturating_add(1)).unwrap_or(u16::MAX)
}

/// Replicas of a shard without a primary that hold all that its primary had sent them. One that follows a primary that answers has the data of
/// another shard.
fn left(shard: u16, nodes: &BTreeMap<Pod, &Node>) -> u16 {
    let of_shard = nodes.iter().filter(|(pod, _)| pod.shard == shard).map(|(_, node)| *node);
    let answers = |id: &NodeId| nodes.values().any(|node| node.is_primary() && node.id == *id);
    let whole = of_shard.filter(|node| match &node.role {
        Role::Replica { of, synced, .. } => *synced && !node.loading && !answers(of),
        Role::Primary { .. } => false,
    });
    u16::try_from(whole.count()).unwrap_or(u16::MAX)
}
