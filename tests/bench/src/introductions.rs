//! A cluster of the most members there may be forms, as far as planning goes: how long the planner takes for a round of introductions,
//! and how much it asks for in one. Nobody runs Redis for it: members learn in each round whom those know whom they know, as gossip tells
//! them. The reference is a plain walk over the same tables right before, which looks every member up in every table: a machine that is
//! busy slows both down, and a planner that does more than some look-ups for each two members is told from one that does not.

use std::{hint::black_box, time::Instant};

use anyhow::{Result, ensure};
use plan::{
    Desired, Health, Limits, Member, Node, NodeId, Observed, Peer, PeerRole, Pod, Role, Seen, Site, SlotSet, Step,
    Waiting,
};

use crate::report::{Better, Pairs, Report, median};

/// Shards of one primary and one replica: 1,000 members, as many as a RedisCluster may have.
const SHARDS: u16 = 500;
/// How often they are formed.
const RUNS: usize = 5;
/// A cluster that needs as many rounds as this is not waited for, and the bar is missed.
const ROUNDS_MOST: usize = 20;
/// So many walks the round may take that takes the planner longest.
const WALKS_MOST: f64 = 10.0;

/// Makes the measurement.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runs = (0..RUNS).map(|_| form(SHARDS)).collect::<Result<Vec<_>>>()?;
    let rounds = runs.iter().map(Vec::len).max().unwrap_or(0);
    let (ours, reference) = longest(&runs, rounds);
    let pairs = Pairs {
        name: format!("introductions of 1,000 members, the longest of {rounds} rounds"),
        ours,
        reference,
        against: "a walk over the same tables".to_owned(),
        unit: "ms".to_owned(),
        better: Better::Less,
        bar: format!("at most {WALKS_MOST} walks, < {ROUNDS_MOST} rounds"),
    };
    report.compare(pairs, |_, ratio| ratio * WALKS_MOST >= 1.0 && rounds < ROUNDS_MOST)
}

/// What the planner and the walk took in the round that is the planner's longest by the median of all runs: a single run's longest round
/// may be one in which the machine stood still.
fn longest(runs: &[Vec<Round>], rounds: usize) -> (Vec<f64>, Vec<f64>) {
    let of = |round: usize, side: fn(&Round) -> f64| -> Vec<f64> {
        runs.iter().filter_map(|run| run.get(round)).map(side).collect()
    };
    let sides = |round| (of(round, |round| round.plan), of(round, |round| round.walk));
    let all = (0..rounds).map(sides);
    all.max_by(|(one, _), (other, _)| median(&mut one.clone()).total_cmp(&median(&mut other.clone())))
        .unwrap_or_default()
}

/// What a round of introductions took, in milliseconds.
struct Round {
    plan: f64,
    walk: f64,
}

/// A member: what it is, and whom it knows.
#[derive(Clone)]
struct Server {
    pod: Pod,
    id: NodeId,
    slots: SlotSet,
    epoch: u64,
    node_timeout_millis: u64,
    knows: Vec<bool>,
}

/// The rounds until everybody knows everybody.
fn form(shards: u16) -> Result<Vec<Round>> {
    let (desired, limits) = (Desired::cluster(shards, 1), Limits::default());
    let mut servers = blank(shards);
    let mut rounds = Vec::new();
    loop {
        let observed = observed(&servers);
        let (_, walk) = timed(|| black_box(walk(&servers, &observed)));
        let (plan, took) = timed(|| plan::plan(&desired, &observed, &limits));
        let meets = plan.steps.iter().filter(|step| matches!(step, Step::Meet { .. })).count();
        ensure!(meets <= usize::from(limits.meets), "{meets} introductions in one round");
        let is_formed = !plan.waiting.iter().any(|waiting| matches!(waiting, Waiting::Introductions { .. }));
        if is_formed && meets == 0 {
            return Ok(rounds);
        }
        rounds.push(Round { plan: took, walk });
        if rounds.len() == ROUNDS_MOST {
            return Ok(rounds);
        }
        plan.steps.iter().for_each(|step| obey(&mut servers, step));
        gossip(&mut servers);
    }
}

/// What it gives, and the milliseconds that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed().as_secs_f64() * 1e3)
}

/// Looks every member up in every member's table, and counts those who are known.
fn walk(servers: &[Server], observed: &Observed) -> usize {
    let mut known = 0;
    for member in observed.members.values() {
        if let Seen::Node(node) = &member.seen {
            known += servers.iter().filter(|server| node.peers.contains_key(&server.id)).count();
        }
    }
    known
}

fn blank(shards: u16) -> Vec<Server> {
    let pods = (0..shards).flat_map(|shard| [0, 1].map(|ordinal| Pod::new(shard, ordinal)));
    let server = |pod: Pod| {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&(2 * pod.shard + pod.ordinal + 1_u16).to_be_bytes());
        Server {
            pod,
            id: NodeId::from_bytes(bytes),
            slots: SlotSet::EMPTY,
            epoch: 0,
            node_timeout_millis: 5_000,
            knows: vec![false; 2 * usize::from(shards)],
        }
    };
    pods.map(server).collect()
}

/// Place of a member among all.
fn at(pod: Pod) -> usize {
    2 * usize::from(pod.shard) + usize::from(pod.ordinal)
}

fn address(pod: Pod) -> String {
    format!("10.{}.{}.{}:6379", pod.shard / 250, pod.shard % 250, pod.ordinal)
}

/// What Redis does about a step of the beginning; others come later.
fn obey(servers: &mut [Server], step: &Step) {
    if let Step::NodeTimeout { node, millis } = step {
        servers[at(node.pod)].node_timeout_millis = *millis;
    } else if let Step::Epoch { node, epoch } = step {
        servers[at(node.pod)].epoch = *epoch;
    } else if let Step::AddSlots { node, slots } = step {
        servers[at(node.pod)].slots = slots.clone();
    } else if let Step::Meet { node, peer, .. } = step {
        let (one, other) = (at(node.pod), at(peer.pod));
        servers[one].knows[other] = true;
        servers[other].knows[one] = true;
    }
}

/// Everybody hears whom those know whom he knows.
fn gossip(servers: &mut [Server]) {
    let before: Vec<Vec<bool>> = servers.iter().map(|server| server.knows.clone()).collect();
    for (index, server) in servers.iter_mut().enumerate() {
        for (_, told) in before.iter().enumerate().filter(|(other, _)| before[index][*other]) {
            server.knows.iter_mut().zip(told).for_each(|(known, heard)| *known |= heard);
        }
        server.knows[index] = false;
    }
}

fn observed(servers: &[Server]) -> Observed {
    let peer = |server: &Server| Peer {
        address: address(server.pod),
        role: PeerRole::Primary { slots: server.slots.clone() },
        health: Health::Ok,
        connected: true,
        handshake: false,
        noaddr: false,
        epoch: server.epoch,
    };
    let highest = servers.iter().map(|server| server.epoch).max().unwrap_or_default();
    let member = |server: &Server| {
        let known = servers.iter().zip(&server.knows).filter(|(_, known)| **known);
        let node = Node {
            id: server.id,
            address: address(server.pod),
            role: Role::Primary { slots: server.slots.clone() },
            open: [].into(),
            leaving: [].into(),
            foreign_keys: [].into(),
            uncounted: SlotSet::EMPTY,
            compared: [].into(),
            keys: 0,
            bytes: 0,
            room: None,
            epoch: server.epoch,
            current_epoch: highest,
            state_ok: true,
            loading: false,
            disk: plan::Disk::Current,
            node_timeout_millis: server.node_timeout_millis,
            peers: known.map(|(other, _)| (other.id, peer(other))).collect(),
        };
        let seen = Seen::Node(Box::new(node));
        Member {
            outdated: false,
            terminating: false,
            last_id: Some(server.id),
            site: Site::Unknown,
            seen,
            waits: false,
            stuck: false,
        }
    };
    Observed { members: servers.iter().map(|server| (server.pod, member(server))).collect(), ..Observed::default() }
}
