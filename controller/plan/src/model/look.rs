//! What can be seen of the world, and what is true of it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::{Data, Home, Process, Server, World};
use crate::observed::{
    Address, Disk, Health, Introduced, Member, Node, NodeId, Observed, Open, PeerRole, Pod, Role, Seen, has_arrived,
};
use crate::sites::Site;
use crate::slots::SlotSet;

/// What a key takes: large, so that one of them is more than the planner's smallest room.
const KEY_BYTES: u64 = 1 << 20;

/// For how many ticks a node that was a member counts as a former one, and one that is not heard as one that comes back.
const LATELY: u64 = 60;
/// For how long a promotion that was refused lets others go first.
const REFUSED_LATELY: u64 = 30;

/// What clients would find, for comparing before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Keys a client can read: at the owner of the slot, or where an open slot sends it.
    pub readable: BTreeSet<(u16, u64)>,
    /// Slots with a running owner.
    pub covered: SlotSet,
    /// Slots whose newest claim is made by two running servers with the same epoch.
    pub disputed: SlotSet,
}

impl World {
    /// What the controller sees now. It remembers identities.
    pub fn observe(&mut self) -> Observed {
        let mut members = BTreeMap::new();
        let placed = self.homes.iter().filter(|(_, home)| !home.outside);
        let servers: BTreeMap<Pod, Seen> = placed.map(|(pod, home)| (*pod, self.seen(home))).collect();
        for (pod, seen) in servers {
            let Some(home) = self.homes.get_mut(&pod) else { continue };
            if let Seen::Node(node) = &seen {
                home.last_id = Some(node.id);
            }
            let Home { outdated, terminating, last_id, waits, .. } = *home;
            let waits = waits && seen == Seen::Starting;
            let site = if home.process == Process::NoPod { Site::Nowhere } else { home.site.clone() };
            members.insert(pod, Member { outdated, terminating, last_id, site, seen, waits, stuck: false });
        }
        let failovers_asked = self.asked.iter().map(|(shard, at)| (*shard, (self.now - at) * 1_000)).collect();
        let refused = self.refused.iter().filter(|(_, at)| self.now - **at < REFUSED_LATELY);
        let failovers_refused = refused.map(|(shard, at)| (*shard, (self.now - at) * 1_000)).collect();
        let elections = self.won.iter().map(|(shard, at)| (*shard, (self.now - at) * 1_000)).collect();
        let first_epochs = self.first_epochs(&members);
        let silent_marks = self.silent_marks(&members);
        let introduced = self.met.iter().map(|(pair, (at, when, times))| {
            (*pair, Introduced { at: at.clone(), since_millis: (self.now - when) * 1_000, times: *times })
        });
        let introduced = introduced.collect();
        let elsewhere = self.elsewhere(&members);
        let present: BTreeSet<NodeId> = members.values().filter_map(|member| member.last_id).collect();
        self.seen.extend(present.iter().map(|id| (*id, self.now)));
        let lately = |at: u64| self.now - at < LATELY;
        let former = self.seen.iter().filter(|(id, at)| lately(**at) && !present.contains(*id)).map(|(id, _)| *id);
        let former = former.collect();
        let hopeful = self.hopeful(&members);
        let seen_of = |pod: &Pod| members.get(pod).map(|member: &Member| &member.seen);
        let shows = |pod: &Pod| matches!(seen_of(pod), Some(Seen::Node(_)));
        let unused = self.homes.iter().filter(|(pod, _)| shows(pod));
        let unused = unused.filter_map(|(pod, home)| Some((*pod, home.unused?))).collect();
        let ended = self.ended();
        // Its disks are never full.
        let unsettled = BTreeSet::new();
        let left_behind = self.left_behind();
        let blank = self.blank();
        Observed {
            members,
            failovers_asked,
            failovers_refused,
            elections,
            first_epochs,
            silent_marks,
            elsewhere,
            unsettled,
            introduced,
            former,
            ended,
            unused,
            older_volumes: BTreeSet::new(),
            blank,
            left_behind,
            // Its streams have no offsets.
            further: BTreeMap::new(),
            hopeful,
            busy: BTreeSet::new(),
            answered_lately: BTreeSet::new(),
            // Its replicas are in sync as soon as they follow.
            first_slot_held: BTreeSet::new(),
        }
    }

    /// Who does not answer as a node, and did lately, or its agent, which waited for nobody.
    fn hopeful(&mut self, members: &BTreeMap<Pod, Member>) -> BTreeSet<Pod> {
        let now = self.now;
        let mut hopeful = BTreeSet::new();
        for (pod, member) in members {
            let heard = self.heard.entry(*pod).or_insert(now);
            match member.seen {
                Seen::Node(_) => *heard = now,
                Seen::Starting if !member.waits => *heard = now,
                Seen::Starting | Seen::Held { .. } | Seen::Absent | Seen::Stopped | Seen::Unknown { .. } => {}
            }
            let is_lately = now - *heard < LATELY && member.node().is_none();
            hopeful.extend(is_lately.then_some(*pod));
        }
        hopeful
    }

    /// Whoever is seen as a primary with slots, and was not before.
    fn first_epochs(&mut self, members: &BTreeMap<Pod, Member>) -> BTreeMap<NodeId, u64> {
        for node in members.values().filter_map(Member::node) {
            if node.slots().is_empty() {
                self.first_epochs.remove(&node.id);
            } else {
                self.first_epochs.entry(node.id).or_insert(node.epoch);
            }
        }
        self.first_epochs.clone()
    }

    /// What those showed last who are not seen. Who is seen is believed, whatever was there before.
    fn silent_marks(&mut self, members: &BTreeMap<Pod, Member>) -> BTreeMap<NodeId, BTreeMap<u16, Open>> {
        let nodes = || members.values().filter_map(Member::node);
        self.marks.retain(|id, _| nodes().all(|node| node.id != *id));
        for (id, open) in &mut self.marks {
            open.retain(|slot, mark| !has_arrived(members, *slot, mark.receiver(*id)));
        }
        let silent = self.marks.clone();
        let open = nodes().filter(|node| node.is_primary() && !node.open.is_empty());
        self.marks.extend(open.map(|node| (node.id, node.open.clone())));
        silent
    }

    /// Servers that answer whoever asks them.
    pub(super) fn answering(&self) -> impl Iterator<Item = (Pod, &Server)> {
        let seen = self.running().into_iter().filter(|pod| self.homes.get(pod).is_some_and(|home| !home.hidden));
        seen.filter_map(|pod| Some((pod, self.up(pod)?)))
    }

    /// Replicas that somebody who answers has left behind.
    pub(super) fn left_behind(&self) -> BTreeMap<Pod, Pod> {
        let seen: Vec<(Pod, &Server)> = self.answering().collect();
        let leaders = || seen.iter().filter(|(_, server)| !server.slots().is_empty());
        let replicas = seen.iter().filter(|(_, server)| server.follows().is_some());
        let left = replicas.filter_map(|(pod, replica)| {
            let mut beside = leaders().filter(|(other, _)| other.shard == pod.shard);
            let leader = beside.find(|(_, leader)| leader.went_on_with == Some(replica.stream))?;
            Some((*pod, leader.0))
        });
        left.collect()
    }

    /// Places of which there are no files, and never was a pod: also in shards that may be wanted next.
    fn blank(&self) -> BTreeSet<Pod> {
        let last = self.homes.keys().map(|pod| pod.shard).max().unwrap_or_default();
        let all = (0..=last.saturating_add(4)).flat_map(|shard| (0..8).map(move |ordinal| Pod::new(shard, ordinal)));
        all.filter(|pod| !self.homes.contains_key(pod) && !self.attic.contains_key(pod)).collect()
    }

    /// What the agents that answer say of the processes that they ran: what runs again has not ended.
    fn ended(&self) -> BTreeMap<NodeId, u64> {
        let answers = |home: &&Home| {
            let runs = matches!(home.process, Process::Starting | Process::Held | Process::Up);
            !home.outside && !home.hidden && runs
        };
        let told = self.homes.values().filter(answers).flat_map(|home| {
            let now = home.server.as_ref().filter(|_| home.process == Process::Up).map(|server| server.id);
            let ended = home.ended.iter().filter(move |(id, _)| Some(**id) != now);
            ended.map(|(id, at)| (*id, (self.now - at) * 1_000))
        });
        told.collect()
    }

    /// Processes outside of every place whose agents answer.
    fn outside(&self) -> impl Iterator<Item = &Home> {
        self.homes.values().filter(|home| home.outside && home.process == Process::Up && !home.hidden)
    }

    /// What the agents of processes outside of every place tell.
    fn elsewhere(&self, members: &BTreeMap<Pod, Member>) -> BTreeMap<Pod, Address> {
        let named = self.outside().filter_map(|home| Some((home.server.as_ref()?.id, home.address.clone())));
        let twins = named.filter_map(|(id, address)| {
            let is = |member: &Member| match &member.seen {
                Seen::Node(node) => node.id == id,
                Seen::Held { id: held, .. } => *held == Some(id),
                Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } => false,
            };
            members.iter().find(|(_, member)| is(member)).map(|(pod, _)| (*pod, address))
        });
        twins.collect()
    }

    /// Where the node runs that is about to be started at a place, as far as its agent hears.
    pub(super) fn double(&self, home: &Home) -> Option<&Address> {
        let id = home.server.as_ref().filter(|_| home.process == Process::Starting)?.id;
        let found = self.outside().find(|other| other.server.as_ref().is_some_and(|server| server.id == id));
        found.map(|other| &other.address)
    }

    fn seen(&self, home: &Home) -> Seen {
        if home.hidden && home.process != Process::NoPod {
            return Seen::Unknown { since_millis: 1_000 };
        }
        if let Some(there) = self.double(home) {
            return Seen::Held {
                holds_data: true,
                id: home.server.as_ref().map(|files| files.id),
                reason: alloc::format!("its node runs already at {there}"),
            };
        }
        match (home.process, &home.server) {
            (Process::NoPod, _) => Seen::Absent,
            (Process::Down, _) => Seen::Stopped,
            (Process::Starting, _) | (Process::Up, None) => Seen::Starting,
            (Process::Held, files) => Seen::Held {
                holds_data: files.as_ref().is_some_and(|server| !server.data.is_empty()),
                id: files.as_ref().map(|server| server.id),
                reason: String::from("it would come back as an empty primary"),
            },
            (Process::Up, Some(server)) => Seen::Node(Box::new(self.node(home, server))),
        }
    }

    fn node(&self, home: &Home, server: &Server) -> Node {
        let claims = server.slots();
        let primary = matches!(server.role, Role::Primary { .. });
        let foreign = server.data.iter().filter(|(slot, keys)| primary && !claims.contains(**slot) && !keys.is_empty());
        let leaves = |slot: &u16, mark: &Open| matches!(mark, Open::Migrating(_)) && claims.contains(*slot);
        let leaving = server.open.iter().filter(|(slot, mark)| leaves(slot, mark)).map(|(slot, _)| *slot);
        let leaving = leaving.map(|slot| (slot, server.keys_in(slot) as u64)).collect();
        let mut role = server.role.clone();
        if let Role::Replica { of, offset, lag_bytes, gap, stands, .. } = &mut role {
            *stands = server.stands().unwrap_or_default();
            gap.behind_millis = server.behind.map_or(0, |since| (self.now - since + 1) * 1_000);
            let newest = self.servers().find(|other| other.id == *of).map_or(*offset, |primary| primary.offset);
            *lag_bytes = newest.saturating_sub(*offset);
        }
        Node {
            id: server.id,
            address: home.address.clone(),
            role,
            open: server.open.clone(),
            foreign_keys: foreign.map(|(slot, keys)| (*slot, keys.len() as u64)).collect(),
            uncounted: SlotSet::EMPTY,
            compared: if primary && claims.is_empty() { self.compared(server) } else { BTreeMap::new() },
            leaving,
            keys: server.keys(),
            bytes: 0,
            room: home.limit.map(|most| most.saturating_sub(server.keys()) * KEY_BYTES),
            epoch: server.epoch,
            current_epoch: server.current_epoch.max(server.epoch),
            state_ok: is_ok(server),
            loading: false,
            disk: if server.stored.is_none() { Disk::Current } else { Disk::Rewriting },
            node_timeout_millis: server.node_timeout_millis,
            peers: server.table.clone(),
        }
    }

    /// Slots of which a server holds keys and somebody running owns, and whether that one holds all of these keys.
    pub(super) fn compared(&self, server: &Server) -> BTreeMap<u16, bool> {
        let held = server.data.iter().filter(|(_, keys)| !keys.is_empty());
        let compared = held.filter_map(|(slot, keys)| {
            let owner = self.authority(*slot).and_then(|pod| self.up(pod))?;
            Some((*slot, keys.iter().all(|key| owner.data.get(slot).is_some_and(|there| there.contains(key)))))
        });
        compared.collect()
    }

    /// What is true now.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let mut claims: alloc::vec::Vec<(u64, Pod, SlotSet)> = self
            .running()
            .into_iter()
            .filter_map(|pod| self.up(pod).map(|server| (server.epoch, pod, server.slots())))
            .filter(|(_, _, slots)| !slots.is_empty())
            .collect();
        claims.sort_by_key(|(epoch, pod, _)| (core::cmp::Reverse(*epoch), *pod));
        let mut truth = Truth { readable: BTreeSet::new(), covered: SlotSet::EMPTY, disputed: SlotSet::EMPTY };
        let mut by_epoch: BTreeMap<u64, SlotSet> = BTreeMap::new();
        for (epoch, pod, slots) in claims {
            let equals = by_epoch.entry(epoch).or_default();
            truth.disputed = truth.disputed.union(&equals.intersection(&slots));
            *equals = equals.union(&slots.difference(&truth.covered));
            let owned = slots.difference(&truth.covered);
            truth.covered = truth.covered.union(&owned);
            if let Some(server) = self.up(pod) {
                self.read(server, &owned, &mut truth.readable);
            }
        }
        truth
    }

    /// Keys a client finds that asks this owner and goes where it is sent.
    fn read(&self, owner: &Server, owned: &SlotSet, readable: &mut BTreeSet<(u16, u64)>) {
        collect(&owner.data, owned, readable);
        for (slot, mark) in owner.open.iter().filter(|(slot, _)| owned.contains(**slot)) {
            let target = match mark {
                Open::Migrating(to) => self.place_of(*to).and_then(|pod| self.up(pod)),
                Open::Importing(_) => None,
            };
            if let Some(target) = target {
                collect(&target.data, &SlotSet::range(*slot, *slot), readable);
            }
        }
    }

    /// Keys that exist at a place that can still bring them back: a primary, a complete replica, or the files of a place that stays.
    #[must_use]
    pub fn existing(&self, except: Option<Pod>) -> BTreeSet<(u16, u64)> {
        let mut keys = BTreeSet::new();
        for (_, home) in self.homes.iter().filter(|(pod, _)| Some(**pod) != except) {
            let Some(server) = &home.server else { continue };
            if matches!(server.role, Role::Primary { .. }) || server.is_synced() {
                collect(&server.data, &SlotSet::all(), &mut keys);
            }
        }
        keys
    }
}

fn collect(data: &Data, slots: &SlotSet, into: &mut BTreeSet<(u16, u64)>) {
    for (slot, keys) in data.iter().filter(|(slot, _)| slots.contains(**slot)) {
        into.extend(keys.iter().map(|key| (*slot, *key)));
    }
}

/// `cluster_state:ok` without full coverage: most primaries that own slots answer.
pub(super) fn is_ok(server: &Server) -> bool {
    let owners = server.table.values().filter(|peer| !peer.slots().is_empty());
    let reachable =
        owners.clone().filter(|peer| peer.health == Health::Ok).count() + usize::from(!server.slots().is_empty());
    let all = owners.count() + usize::from(!server.slots().is_empty());
    all > 0 && reachable > all / 2
}

/// A server as a node was seen. Of its keys only those are known that stand where they do not belong; one more stands for the rest.
pub(super) fn server(node: &Node) -> Server {
    let mut server = Server::blank(node.id);
    server.role = node.role.clone();
    server.open = node.open.clone();
    server.epoch = node.epoch;
    server.current_epoch = node.peers.values().map(|peer| peer.epoch).fold(node.current_epoch, u64::max);
    server.table = node.peers.clone();
    server.node_timeout_millis = node.node_timeout_millis;
    for slot in node.foreign_keys.iter().filter(|(_, keys)| **keys > 0).map(|(slot, _)| *slot) {
        server.data.entry(slot).or_default().insert(u64::from(slot));
    }
    if let Some((first, _)) = node.slots().ranges().next().filter(|_| node.keys > 0) {
        server.data.entry(first).or_default().insert(u64::from(first));
    }
    server
}

/// What the files of a member that does not answer hold, as far as its last identity and what others say of it tell.
pub(super) fn remembered(observed: &Observed, member: &Member) -> Option<Server> {
    let (id, holds_data) = match &member.seen {
        Seen::Held { holds_data, id, .. } => (id.or(member.last_id)?, *holds_data),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } => (member.last_id?, true),
        Seen::Node(node) => return Some(server(node)),
    };
    let nodes = observed.members.values().filter_map(Member::node);
    let line = nodes.filter_map(|node| node.peers.get(&id)).max_by_key(|peer| peer.epoch);
    let mut server = Server::blank(id);
    match line.map(|peer| &peer.role) {
        Some(PeerRole::Replica { of }) => server.follow(*of),
        Some(PeerRole::Primary { slots }) => server.role = Role::Primary { slots: slots.clone() },
        None => {}
    }
    server.epoch = line.map_or(0, |peer| peer.epoch);
    server.current_epoch = server.epoch;
    let first = server.slots().ranges().next().map_or(0, |(first, _)| first);
    if holds_data {
        server.data.entry(first).or_default().insert(u64::from(first));
    }
    Some(server)
}

impl core::fmt::Display for Truth {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (readable, covered) = (self.readable.len(), self.covered.len());
        write!(f, "{readable} keys readable, {covered} slots covered, disputed [{}]", self.disputed)
    }
}
