//! When is a cluster as it should be? Written without the planner and without what it shares among its phases, so that each can be held
//! against the other: the planner is quiet if and only if nothing is unmet here.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::desired::{Desired, Mode};
use crate::observed::{Health, Member, Node, NodeId, Observed, PeerRole, Pod, Role, Seen};
use crate::slots::SlotSet;

/// Everything that is not as it should be, as sentences. Empty: the cluster is what was asked for, and every node says so.
#[must_use]
pub fn unmet(desired: &Desired, observed: &Observed) -> Vec<String> {
    let mut faults = Vec::new();
    let nodes = places(desired, observed, &mut faults);
    match desired.mode {
        Mode::Standalone => {
            let extra = desired.shards != 1 || desired.replicas != 0 || desired.failover.is_some();
            say(&mut faults, extra, || String::from("a standalone server is one server"));
        }
        Mode::Cluster => {
            say(&mut faults, desired.shards == 0, || String::from("no shards are wanted"));
            for (pod, node) in &nodes {
                member(desired, *pod, node, &nodes, &mut faults);
            }
            slots(desired, &nodes, &mut faults);
            request(desired, &nodes, &mut faults);
            sites(desired, observed, &nodes, &mut faults);
        }
    }
    faults
}

fn say(faults: &mut Vec<String>, when: bool, what: impl FnOnce() -> String) {
    if when {
        faults.push(what());
    }
}

/// Exactly the wanted places exist, each with a running server of the newest template.
fn places<'a>(desired: &Desired, observed: &'a Observed, faults: &mut Vec<String>) -> BTreeMap<Pod, &'a Node> {
    let mut nodes = BTreeMap::new();
    for (pod, Member { outdated, terminating, last_id: _, site: _, seen, waits: _, stuck: _ }) in &observed.members {
        let wanted = pod.shard < desired.shards && pod.ordinal <= desired.replicas;
        say(faults, !wanted, || alloc::format!("{pod} is not wanted"));
        say(faults, wanted && *outdated, || alloc::format!("{pod} is outdated"));
        say(faults, wanted && *terminating, || alloc::format!("{pod} is being stopped"));
        match seen {
            Seen::Node(node) => drop(nodes.insert(*pod, &**node)),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => {
                faults.push(alloc::format!("{pod} does not answer"));
            }
        }
    }
    for pod in observed.elsewhere.keys().filter(|_| desired.mode == Mode::Cluster) {
        say(faults, nodes.contains_key(pod), || alloc::format!("{pod} runs a second time"));
    }
    for (pod, node) in nodes.iter().filter(|_| desired.mode == Mode::Cluster) {
        let twin = nodes.iter().any(|(other, found)| other != pod && found.id == node.id);
        say(faults, twin, || alloc::format!("{pod} is not the only one with its identity"));
    }
    let want = usize::from(desired.shards) * (usize::from(desired.replicas) + 1);
    say(faults, nodes.len() != want, || alloc::format!("{} of {want} members answer", nodes.len()));
    nodes
}

/// One member: role in its shard, settings, and every line of its table.
fn member(desired: &Desired, pod: Pod, node: &Node, nodes: &BTreeMap<Pod, &Node>, faults: &mut Vec<String>) {
    let by_id: BTreeMap<NodeId, &Node> = nodes.values().map(|node| (node.id, *node)).collect();
    let timeout = node.node_timeout_millis != desired.node_timeout_millis;
    say(faults, timeout, || alloc::format!("{pod} has another node timeout"));
    say(faults, node.loading || !node.state_ok, || alloc::format!("{pod} does not serve"));
    say(faults, !node.open.is_empty(), || alloc::format!("{pod} has open slots"));
    say(faults, node.foreign_keys.values().any(|keys| *keys > 0), || alloc::format!("{pod} holds keys of others"));
    if let Role::Replica { of, synced, link_up, .. } = &node.role {
        let home = nodes.iter().find(|(_, other)| other.id == *of);
        let right = home.is_some_and(|(place, primary)| place.shard == pod.shard && primary.is_primary());
        say(faults, !right, || alloc::format!("{pod} follows somebody else"));
        say(faults, !synced || !link_up, || alloc::format!("{pod} is not in sync"));
    }
    say(faults, node.peers.keys().any(|id| !by_id.contains_key(id)), || {
        alloc::format!("{pod} knows somebody who is gone")
    });
    for (id, other) in by_id.iter().filter(|(id, _)| **id != node.id) {
        let right = node.peers.get(id).is_some_and(|line| {
            let role = match &line.role {
                PeerRole::Primary { slots } => other.is_primary() && slots == other.slots(),
                PeerRole::Replica { of } => matches!(&other.role, Role::Replica { of: truly, .. } if truly == of),
            };
            let healthy = line.health == Health::Ok && line.connected && !line.handshake && !line.noaddr;
            role && healthy && line.address == other.address
        });
        say(faults, !right, || alloc::format!("{pod} is wrong about {}", id.short()));
    }
}

/// Each slot has one owner, each shard one primary, and the shares are even within one slot.
fn slots(desired: &Desired, nodes: &BTreeMap<Pod, &Node>, faults: &mut Vec<String>) {
    let (mut all, mut sum) = (SlotSet::EMPTY, 0_u32);
    let mut shares = Vec::new();
    for shard in 0..desired.shards {
        let primaries: Vec<&&Node> =
            nodes.iter().filter(|(pod, node)| pod.shard == shard && node.is_primary()).map(|(_, node)| node).collect();
        say(faults, primaries.len() != 1, || alloc::format!("shard {shard} has {} primaries", primaries.len()));
        let share = primaries.iter().map(|node| node.slots().len()).sum::<u16>();
        shares.push(share);
        for node in primaries {
            all = all.union(node.slots());
            sum += u32::from(node.slots().len());
        }
    }
    say(faults, all != SlotSet::all(), || alloc::format!("{} slots have an owner", all.len()));
    say(faults, sum != u32::from(all.len()), || String::from("a slot has two owners"));
    let spread = shares.iter().max().copied().unwrap_or(0) - shares.iter().min().copied().unwrap_or(0);
    say(faults, spread > 1, || alloc::format!("shares differ by {spread} slots"));
}

/// The failover that was asked for shows.
fn request(desired: &Desired, nodes: &BTreeMap<Pod, &Node>, faults: &mut Vec<String>) {
    let Some(ask) = &desired.failover else { return };
    let done = nodes.iter().any(|(pod, node)| {
        let named = ask.candidate.map_or(node.id != ask.from, |ordinal| pod.ordinal == ordinal);
        pod.shard == ask.shard && node.is_primary() && named
    });
    say(faults, !done, || alloc::format!("the failover of shard {} is not done", ask.shard));
}

/// No role could be handed over to another site such that the sites that hold half of the primaries or more become fewer or hold less.
fn sites(desired: &Desired, observed: &Observed, nodes: &BTreeMap<Pod, &Node>, faults: &mut Vec<String>) {
    let primaries: Vec<Pod> = nodes.iter().filter(|(_, node)| node.is_primary()).map(|(pod, _)| *pod).collect();
    let at = |pod: &Pod| observed.members.get(pod).and_then(|member| member.site.name());
    let known = primaries.iter().all(|pod| at(pod).is_some());
    if !desired.spread || desired.failover.is_some() || !known {
        return;
    }
    let now = too_full(primaries.iter().filter_map(at));
    for replica in nodes.iter().filter(|(_, node)| !node.is_primary()).map(|(pod, _)| pod) {
        let moved = primaries.iter().map(|pod| if pod.shard == replica.shard { replica } else { pod });
        let placed = desired.placed_by_hand.contains(&replica.shard) || at(replica).is_none();
        say(faults, !placed && too_full(moved.filter_map(at)) < now, || {
            alloc::format!("too many primaries are on one site, {replica} could take over one of them")
        });
    }
}

/// The numbers of primaries on those sites that hold half of them or more, most first.
fn too_full<'a>(primaries: impl Iterator<Item = &'a str>) -> Vec<u16> {
    let (mut held, mut all) = (BTreeMap::new(), 0_u16);
    for site in primaries {
        *held.entry(site).or_insert(0_u16) += 1;
        all += 1;
    }
    let mut full: Vec<u16> = held.into_values().filter(|here| here * 2 >= all).collect();
    full.sort_unstable_by(|one, other| other.cmp(one));
    full
}
