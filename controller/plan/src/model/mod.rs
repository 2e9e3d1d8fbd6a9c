//! What Redis, its agents and the pods would do: a small world on which plans are tried, for tests and for previews.
//!
//! It models what the planner relies on and what hurts: gossip takes time, replication is asynchronous, commands answer OK and do
//! nothing, moves stop half way, processes die, tables are stale. It must not know how plans are made.

mod gossip;
mod look;
mod obey;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::desired::Desired;
use crate::observed::{Address, Gap, NodeId, Observed, Open, Peer, PeerRole, Pod, Role, Seen, Stands, Unused};
use crate::sites::Site;
use crate::slots::SlotSet;

pub use look::Truth;
pub use obey::Outcome;

/// Keys by slot. A key is a number that is never used twice.
pub type Data = BTreeMap<u16, BTreeSet<u64>>;

/// A seeded source of chance, or none: then everything succeeds at the first try.
#[derive(Clone, Debug)]
pub struct Luck(Option<u64>);

impl Luck {
    /// Nothing ever goes wrong.
    #[must_use]
    pub const fn good() -> Self {
        Self(None)
    }

    /// Things go wrong, the same way for the same seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(Some(seed))
    }

    /// A number below `limit`; 0 without chance.
    pub fn below(&mut self, limit: u64) -> u64 {
        let Some(state) = &mut self.0 else { return 0 };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit.max(1)
    }

    /// True once in so many times; never without chance.
    pub fn fails(&mut self, once_in: u64) -> bool {
        self.0.is_some() && self.below(once_in) == 0
    }
}

/// What a primary writes to its replicas: whose it is, and the tick in which that one began it (`master_replid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The primary.
    pub by: NodeId,
    /// Since when.
    pub since: u64,
}

/// A Redis server, running or as its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Identity.
    pub id: NodeId,
    /// Role with slots or primary.
    pub role: Role,
    /// Marks of half-moved slots.
    pub open: BTreeMap<u16, Open>,
    /// Its own epoch.
    pub epoch: u64,
    /// The highest epoch it has heard of.
    pub current_epoch: u64,
    /// The other nodes of its table.
    pub table: BTreeMap<NodeId, Peer>,
    /// Slots that its table gives to somebody who does not claim them any more (`owner_not_claiming_slot`, Redis 7.0.13): it tells nobody.
    pub unclaimed: SlotSet,
    /// Its data set.
    pub data: Data,
    /// What its disk holds instead, until it has been written anew after a full synchronisation.
    pub stored: Option<Data>,
    /// Writes it has seen.
    pub offset: u64,
    /// Whose writes these are.
    pub stream: Stream,
    /// As a primary: the stream that it took part in before it took over (`master_replid2`).
    pub went_on_with: Option<Stream>,
    /// `cluster-node-timeout`.
    pub node_timeout_millis: u64,
    /// Forgotten nodes gossip may not bring back, with the time the ban ends.
    pub banned: BTreeMap<NodeId, u64>,
    /// It holds writes back for a manual failover.
    pub holds_writes: bool,
    /// As a replica: the tick since which it may lack something.
    pub behind: Option<u64>,
}

impl Server {
    /// A blank server.
    #[must_use]
    pub fn blank(id: NodeId) -> Self {
        Self {
            id,
            role: Role::Primary { slots: SlotSet::EMPTY },
            open: BTreeMap::new(),
            epoch: 0,
            current_epoch: 0,
            table: BTreeMap::new(),
            unclaimed: SlotSet::EMPTY,
            data: Data::new(),
            stored: None,
            offset: 0,
            stream: Stream { by: id, since: 0 },
            went_on_with: None,
            node_timeout_millis: 5_000,
            banned: BTreeMap::new(),
            holds_writes: false,
            behind: None,
        }
    }

    /// The slots it claims.
    #[must_use]
    pub fn slots(&self) -> SlotSet {
        match &self.role {
            Role::Primary { slots } => slots.clone(),
            Role::Replica { .. } => SlotSet::EMPTY,
        }
    }

    /// Whom it follows.
    #[must_use]
    pub fn follows(&self) -> Option<NodeId> {
        match &self.role {
            Role::Primary { .. } => None,
            Role::Replica { of, .. } => Some(*of),
        }
    }

    /// It follows somebody and has all of its data.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        matches!(self.role, Role::Replica { synced: true, .. })
    }

    /// Whether it stands for election: its agent forbids it where the epoch under which it would ask may be another node's.
    #[must_use]
    pub fn stands(&self) -> Option<Stands> {
        let Role::Replica { of, stands, .. } = &self.role else { return None };
        let is_taken = self.table.get(of).is_some_and(|peer| peer.noaddr);
        Some(if *stands == Stands::ByItself && is_taken { Stands::OnOrder } else { *stands })
    }

    /// Keys of all slots.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.data.values().map(|keys| keys.len() as u64).sum()
    }

    /// Keys of this slot.
    #[must_use]
    pub fn keys_in(&self, slot: u16) -> usize {
        self.data.get(&slot).map_or(0, BTreeSet::len)
    }

    pub(crate) fn claim(&mut self, gained: &SlotSet) {
        if let Role::Primary { slots } = &mut self.role {
            *slots = slots.union(gained);
        }
        self.unclaimed = self.unclaimed.difference(gained);
        for peer in self.table.values_mut() {
            disown(peer, gained);
        }
    }

    pub(crate) fn drop_claim(&mut self, lost: &SlotSet) {
        if let Role::Primary { slots } = &mut self.role {
            *slots = slots.difference(lost);
        }
    }

    /// Then `CLUSTER BUMPEPOCH` changes nothing.
    pub(crate) fn has_a_newer_epoch_than_all(&self) -> bool {
        self.table.values().map(|peer| peer.epoch).fold(self.current_epoch, u64::max) <= self.epoch
    }

    /// Raises its epoch above all it has heard of, without asking.
    pub(crate) fn bump(&mut self) {
        self.current_epoch = self.current_epoch.max(self.epoch).saturating_add(1);
        self.epoch = self.current_epoch;
    }

    pub(crate) fn follow(&mut self, primary: NodeId) {
        self.role = Role::Replica {
            of: primary,
            synced: false,
            link_up: false,
            misled: false,
            offset: 0,
            lag_bytes: 0,
            gap: Gap::default(),
            stands: Stands::default(),
        };
        self.open.clear();
        self.behind = None;
    }
}

pub(crate) fn disown(peer: &mut Peer, lost: &SlotSet) {
    if let PeerRole::Primary { slots } = &mut peer.role {
        *slots = slots.difference(lost);
    }
}

/// What runs at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// There is no pod.
    NoPod,
    /// The container is down.
    Down,
    /// About to start.
    Starting,
    /// The agent holds it.
    Held,
    /// Redis runs.
    Up,
}

/// A place: its pod, its process, its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// What runs.
    pub process: Process,
    /// The controller cannot see it.
    pub hidden: bool,
    /// The other members cannot reach it, nor it them.
    pub cut_off: bool,
    /// It cannot replicate from anybody, although everybody talks to it.
    pub unlinked: bool,
    /// Made from an old template.
    pub outdated: bool,
    /// What its server runs: a newer one can load what an older one sends, and not the other way round.
    pub version: u64,
    /// Its pod is being deleted.
    pub terminating: bool,
    /// The running server, or what its files hold.
    pub server: Option<Server>,
    /// Where it is.
    pub address: Address,
    /// The identity status remembers.
    pub last_id: Option<NodeId>,
    /// Where its pod runs.
    pub site: Site,
    /// No place at all: a process that runs on although its pod has been replaced. Nobody but its agent tells of it.
    pub outside: bool,
    /// Keys that its server takes before it refuses more; `None`: any number.
    pub limit: Option<u64>,
    /// Its server does not use the user's parameters, as far as it shows.
    pub unused: Option<Unused>,
    /// … because it was started without them.
    pub bare: bool,
    /// Nodes that ran in this pod and have ended, as its agent knows, and in which tick.
    pub ended: BTreeMap<NodeId, u64>,
    /// Its agent waits before it starts what lies here: for votes, or for a better copy.
    pub waits: bool,
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Places.
    pub homes: BTreeMap<Pod, Home>,
    /// Files of places that are gone; they come back with them.
    pub attic: BTreeMap<Pod, Server>,
    /// Pods have volumes; without, files go with the pod.
    pub volumes: bool,
    /// Data is written to disk.
    pub persistent: bool,
    /// The word of a slot's new owner may get lost, and arrives later.
    pub lossy: bool,
    /// Those who are cut off reach each other.
    pub in_two: bool,
    /// The servers are of Valkey 8 or newer: who imports a slot hears whose it becomes, and claims it once its giver does not any more
    /// (`clusterUpdateSlotsConfigWith`).
    pub valkey: bool,
    /// Sites on which pods are made, by chance; 0: it is not known on which.
    pub sites: u64,
    /// Ticks so far.
    pub now: u64,
    /// Introductions under way: who was told of whom.
    pub meets: Vec<(Pod, Pod)>,
    /// Introductions that were made: where the two were, when, and how many times.
    pub met: BTreeMap<(Pod, Pod), ([Address; 2], u64, u32)>,
    /// Acknowledged writes that must be found in the end.
    pub acked: BTreeSet<(u16, u64)>,
    /// Acknowledged writes that asynchronous replication allows to be lost.
    pub excused: BTreeSet<(u16, u64)>,
    /// Who was seen at a place, and when last.
    pub seen: BTreeMap<NodeId, u64>,
    /// When somebody was heard at a place last; at first, when it was first looked at.
    pub heard: BTreeMap<Pod, u64>,
    /// No engine starts with the parameters that the user wants.
    pub refuses: bool,
    /// What the servers of new pods run.
    pub version: u64,
    /// Addresses that the next pods of these places get.
    pub reserved: BTreeMap<Pod, Address>,
    /// Failovers asked for: shard → tick.
    pub asked: BTreeMap<u16, u64>,
    /// Failovers that were refused before anybody was asked, and when.
    pub refused: BTreeMap<u16, u64>,
    /// Elections won or asked for: shard → tick.
    pub won: BTreeMap<u16, u64>,
    /// The epochs of primaries when they were first seen as such.
    pub first_epochs: BTreeMap<NodeId, u64>,
    /// Marks of half-moved slots that primaries showed last.
    pub marks: BTreeMap<NodeId, BTreeMap<u16, Open>>,
    counter: u64,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(volumes: bool, persistent: bool) -> Self {
        Self {
            homes: BTreeMap::new(),
            attic: BTreeMap::new(),
            volumes,
            persistent,
            lossy: true,
            in_two: false,
            valkey: false,
            sites: 1,
            now: 0,
            meets: Vec::new(),
            met: BTreeMap::new(),
            acked: BTreeSet::new(),
            excused: BTreeSet::new(),
            seen: BTreeMap::new(),
            heard: BTreeMap::new(),
            refuses: false,
            version: 0,
            reserved: BTreeMap::new(),
            asked: BTreeMap::new(),
            refused: BTreeMap::new(),
            won: BTreeMap::new(),
            first_epochs: BTreeMap::new(),
            marks: BTreeMap::new(),
            counter: 0,
        }
    }

    /// A world that looks like what was seen.
    #[must_use]
    pub fn of(observed: &Observed, volumes: bool, persistent: bool) -> Self {
        let mut world = Self::new(volumes, persistent);
        // Names of its own, unlike any that was seen.
        world.counter = 0x80_0000;
        // Nobody knows where pods will be made.
        world.sites = 0;
        world.first_epochs.clone_from(&observed.first_epochs);
        world.marks.clone_from(&observed.silent_marks);
        world.refuses = observed.unused.values().any(|why| *why == Unused::Refused);
        for (pod, member) in &observed.members {
            let files = || look::remembered(observed, member);
            let (process, server, address) = match &member.seen {
                Seen::Absent => (Process::NoPod, files(), None),
                Seen::Stopped => (Process::Down, files(), None),
                Seen::Starting => (Process::Starting, files(), None),
                Seen::Held { .. } => (Process::Held, files(), None),
                Seen::Unknown { .. } => (Process::Up, None, None),
                Seen::Node(node) => (Process::Up, Some(look::server(node)), Some(node.address.clone())),
            };
            let hidden = matches!(member.seen, Seen::Unknown { .. });
            let address = address.unwrap_or_else(|| world.fresh_address());
            let (outdated, last_id) = (member.outdated, member.last_id);
            // A pod that is being deleted comes back, so it is taken for what it will be.
            let terminating = false;
            let (cut_off, unlinked, outside, site) = (hidden, false, false, member.site.clone());
            let home = Home {
                process,
                hidden,
                cut_off,
                unlinked,
                outdated,
                version: 0,
                terminating,
                server,
                address,
                last_id,
                site,
                outside,
                limit: None,
                unused: observed.unused.get(pod).copied(),
                bare: false,
                ended: member
                    .last_id
                    .filter(|id| observed.ended.contains_key(id))
                    .map(|id| (id, 0))
                    .into_iter()
                    .collect(),
                waits: member.waits,
            };
            world.homes.insert(*pod, home);
        }
        for (replica, leader) in &observed.left_behind {
            let stream = world.up(*replica).map(|server| server.stream);
            world.up_mut(*leader).into_iter().for_each(|server| server.went_on_with = stream);
        }
        world
    }

    fn fresh(&mut self) -> u64 {
        self.counter = self.counter.saturating_add(1);
        self.counter
    }

    fn fresh_address(&mut self) -> Address {
        let number = self.fresh();
        alloc::format!("10.{}.{}.{}:6379", number >> 16 & 255, number >> 8 & 255, number & 255)
    }

    /// Wherever there is room, whoever else of the shard is there.
    fn some_site(&self) -> Site {
        match self.sites {
            0 => Site::Unknown,
            sites => Site::At(alloc::format!("site-{}", Luck::seeded(!self.counter).below(sites))),
        }
    }

    fn fresh_id(&mut self) -> NodeId {
        let number = self.fresh();
        // Mixed, so that the order of IDs says nothing about age.
        let mixed = Luck::seeded(number).below(u64::MAX);
        let mut bytes = [0; 20];
        for (byte, from) in bytes.iter_mut().zip(mixed.to_be_bytes().into_iter().chain(number.to_be_bytes())) {
            *byte = from;
        }
        NodeId::from_bytes(bytes)
    }

    /// The controller makes pods for every wanted place; those that came down with a node are made anew.
    pub fn provide(&mut self, desired: &Desired) {
        for shard in 0..desired.shards {
            for ordinal in 0..desired.members_per_shard() {
                let pod = Pod::new(shard, ordinal);
                if self.homes.get(&pod).is_none_or(|home| home.process == Process::NoPod) {
                    self.make_pod(pod);
                }
            }
        }
    }

    fn make_pod(&mut self, pod: Pod) {
        let fresh = self.fresh_address();
        let address = self.reserved.remove(&pod).unwrap_or(fresh);
        let site = self.some_site();
        let kept = self.homes.remove(&pod);
        let last_id = kept.as_ref().and_then(|home| home.last_id);
        let limit = kept.as_ref().and_then(|home| home.limit);
        let files = kept.and_then(|home| home.server).or_else(|| self.attic.remove(&pod));
        let server = files.filter(|_| self.volumes);
        let process = Process::Starting;
        let (hidden, cut_off, unlinked, outdated, terminating, outside) = (false, false, false, false, false, false);
        let home = Home {
            process,
            hidden,
            cut_off,
            unlinked,
            outdated,
            version: self.version,
            terminating,
            server,
            address,
            last_id,
            site,
            outside,
            limit,
            unused: None,
            bare: false,
            ended: BTreeMap::new(),
            waits: false,
        };
        self.homes.insert(pod, home);
    }

    /// Keys that the server at a place takes before it refuses more.
    pub(crate) fn room(&self, pod: Pod) -> Option<u64> {
        let home = self.homes.get(&pod)?;
        home.limit.map(|most| most.saturating_sub(home.server.as_ref().map_or(0, Server::keys)))
    }

    /// Agents start Redis, or hold it: one whose node runs already waits, a member that has been replaced follows its heir, one that would come
    /// back as an empty primary is held.
    pub(crate) fn start(&mut self, pod: Pod, luck: &mut Luck) {
        if self.homes.get(&pod).is_some_and(|home| self.double(home).is_some()) {
            return;
        }
        let id = self.fresh_id();
        if self.homes.get(&pod).is_some_and(|home| home.waits) && self.heir(pod).is_none() {
            return;
        }
        let heir = self.heir(pod);
        if let Some((server, heir)) = self.homes.get_mut(&pod).and_then(|home| home.server.as_mut()).zip(heir) {
            server.follow(heir);
        }
        let neighbours = self.homes.iter().any(|(other, home)| {
            other.shard == pod.shard
                && *other != pod
                && home.server.as_ref().is_some_and(|server| !server.data.is_empty())
        });
        let Some(home) = self.homes.get_mut(&pod) else { return };
        let blank = home.server.is_none();
        let server = home.server.get_or_insert_with(|| Server::blank(id));
        let empty_owner = server.data.is_empty() && !server.slots().is_empty();
        if empty_owner || blank && neighbours && luck.fails(2) {
            home.process = Process::Held;
            if blank {
                home.server = None;
            }
            return;
        }
        self.come_up(pod);
    }

    /// The replica that has taken over from a primary that is about to start, by its own word (`start::heir` of the agent).
    fn heir(&self, pod: Pod) -> Option<NodeId> {
        let files = self.homes.get(&pod)?.server.as_ref()?;
        let mine = files.slots();
        let was_replica = |id: NodeId| {
            files.table.get(&id).is_some_and(|peer| matches!(peer.role, PeerRole::Replica { of } if of == files.id))
        };
        let answering = self.running().into_iter().filter(|other| self.linked(pod, *other));
        let mut heirs = answering.filter_map(|other| self.up(other)).filter(|other| {
            was_replica(other.id) && other.epoch > files.epoch && mine.difference(&other.slots()).is_empty()
        });
        heirs.next().filter(|_| !mine.is_empty()).map(|heir| heir.id)
    }

    fn come_up(&mut self, pod: Pod) {
        let id = self.fresh_id();
        let (refuses, now) = (self.refuses, self.now);
        let Some(home) = self.homes.get_mut(&pod) else { return };
        home.process = Process::Up;
        (home.bare, home.unused) = (refuses, refuses.then_some(Unused::Pending));
        let server = home.server.get_or_insert_with(|| Server::blank(id));
        server.holds_writes = false;
        server.banned.clear();
        // Not in the file that keeps its table, nor, of its stream, in its append-only file.
        server.unclaimed = SlotSet::EMPTY;
        (server.stream, server.went_on_with) = (Stream { by: server.id, since: now }, None);
        if let Role::Replica { link_up, synced, misled, .. } = &mut server.role {
            *link_up = false;
            *misled = false;
            // What was missed while it was down is not known until it has talked to its primary again.
            *synced = false;
        }
    }

    /// The process ends; what its files keep stays.
    pub fn crash(&mut self, pod: Pod, with_pod: bool) {
        let (persistent, volumes, now) = (self.persistent, self.volumes, self.now);
        let Some(home) = self.homes.get_mut(&pod) else { return };
        let ran = home.server.as_ref().filter(|_| home.process == Process::Up).map(|server| server.id);
        home.ended.extend(ran.filter(|_| !with_pod).map(|id| (id, now)));
        home.process = if with_pod { Process::NoPod } else { Process::Down };
        home.hidden = false;
        home.cut_off = false;
        home.terminating &= !with_pod;
        if with_pod && !volumes {
            home.server = None;
        }
        if let Some(server) = &mut home.server
            && let Some(stored) = server.stored.take()
        {
            server.data = stored;
        }
        // What lies there and has not been loaded stays.
        if let Some(server) = home.server.as_mut().filter(|_| !persistent && ran.is_some()) {
            server.data.clear();
            server.offset = 0;
            if let Role::Replica { synced, .. } = &mut server.role {
                *synced = false;
            }
        }
    }

    /// A person changes the parameters; engines take them, or refuse them. What was said of the last ones counts until these are tried.
    pub fn configure(&mut self, refuses: bool) {
        self.refuses = refuses;
        for home in self.homes.values_mut().filter(|home| home.process == Process::Up) {
            home.unused.get_or_insert(Unused::Pending);
        }
    }

    /// A person asks for the next version.
    pub fn upgrade(&mut self) {
        self.version += 1;
        self.homes.values_mut().for_each(|home| home.outdated = true);
    }

    /// Agents try the parameters that are not in use beside their servers, and use them or tell what came of it.
    pub(crate) fn try_parameters(&mut self, luck: &mut Luck) {
        let refuses = self.refuses;
        for home in self.homes.values_mut().filter(|home| home.process == Process::Up && home.unused.is_some()) {
            if luck.fails(4) {
                continue;
            }
            home.unused = refuses.then_some(Unused::Refused);
            home.bare &= refuses;
        }
    }

    /// The machine of two pods is started anew: their successors get each other's addresses.
    pub fn trade_addresses(&mut self, one: Pod, other: Pod) {
        for (from, to) in [(one, other), (other, one)] {
            if let Some(home) = self.homes.get(&from) {
                self.reserved.insert(to, home.address.clone());
            }
        }
    }

    /// Somebody deletes the pod at a place; what runs there goes on until [`World::end_grace`].
    pub fn terminate(&mut self, pod: Pod) {
        if let Some(home) = self.homes.get_mut(&pod) {
            home.terminating = home.process != Process::NoPod;
        }
    }

    /// The pods that are being deleted are gone. Where nothing is kept on disk, whoever goes as the last one that has what it has saves it.
    pub fn end_grace(&mut self) {
        let pods: Vec<Pod> = self.homes.iter().filter(|(_, home)| home.terminating).map(|(pod, _)| *pod).collect();
        for pod in pods {
            let saved = self.up(pod).filter(|server| !self.persistent && self.is_last(pod, server));
            let saved = saved.map(|server| (server.data.clone(), server.offset));
            self.crash(pod, true);
            let files = self.homes.get_mut(&pod).and_then(|home| home.server.as_mut());
            if let Some((server, saved)) = files.zip(saved) {
                (server.data, server.offset) = saved;
            }
        }
    }

    /// No replica of this primary that stays is in sync, to which it would hand its role over.
    fn is_last(&self, pod: Pod, server: &Server) -> bool {
        let stays = |other: &Pod| self.homes.get(other).is_some_and(|home| !home.terminating);
        let in_sync = |other: &Server| {
            other.follows() == Some(server.id)
                && matches!(other.role, Role::Replica { synced: true, link_up: true, .. })
        };
        let mut others = self.running().into_iter().filter(|other| stays(other) && self.linked(pod, *other));
        !server.slots().is_empty() && !others.any(|other| self.up(other).is_some_and(in_sync))
    }

    /// The files at a place are lost, and so is its process.
    pub fn wipe(&mut self, pod: Pod) {
        self.crash(pod, true);
        if let Some(home) = self.homes.get_mut(&pod) {
            home.server = None;
        }
    }

    /// A snapshot of one place's volume is restored to the claim of another, whose pod is made anew on it.
    pub fn copy_volume(&mut self, from: Pod, to: Pod) {
        let files = self.homes.get(&from).and_then(|home| home.server.clone());
        self.crash(to, true);
        if let Some(home) = self.homes.get_mut(&to) {
            home.server = files;
        }
    }

    /// A pod is deleted by force on a machine that has lost Kubernetes: its process runs on, and the next pod of its name starts on a copy of
    /// its volume, unless its agent hears of it. Gives the name of the process.
    pub fn run_on(&mut self, pod: Pod) -> Pod {
        let outside = Pod::new(u16::MAX - pod.shard, pod.ordinal);
        if let Some(home) = self.homes.get_mut(&pod) {
            let former = Home { outside: true, ..home.clone() };
            home.process = Process::NoPod;
            home.ended.clear();
            self.homes.insert(outside, former);
        }
        outside
    }

    /// Every server, running or as its files.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.homes.values().filter_map(|home| home.server.as_ref())
    }

    /// The server that runs at a place.
    #[must_use]
    pub fn up(&self, pod: Pod) -> Option<&Server> {
        self.homes.get(&pod).filter(|home| home.process == Process::Up)?.server.as_ref()
    }

    pub(crate) fn up_mut(&mut self, pod: Pod) -> Option<&mut Server> {
        self.homes.get_mut(&pod).filter(|home| home.process == Process::Up)?.server.as_mut()
    }

    /// The places where a server runs.
    #[must_use]
    pub fn running(&self) -> Vec<Pod> {
        self.homes
            .iter()
            .filter(|(_, home)| home.process == Process::Up && home.server.is_some())
            .map(|(pod, _)| *pod)
            .collect()
    }

    /// Where somebody with this identity runs at this address.
    pub(crate) fn place_at(&self, id: NodeId, address: &Address) -> Option<Pod> {
        let at = |pod: &Pod| self.homes.get(pod).is_some_and(|home| home.address == *address);
        self.running().into_iter().find(|pod| at(pod) && self.up(*pod).is_some_and(|server| server.id == id))
    }

    pub(crate) fn place_of(&self, id: NodeId) -> Option<Pod> {
        self.running().into_iter().find(|pod| self.up(*pod).is_some_and(|server| server.id == id))
    }

    /// Two members reach each other: who is cut off reaches nobody, or, where the network is cut in two, all who are.
    pub(crate) fn linked(&self, one: Pod, other: Pod) -> bool {
        let cut = |pod: Pod| self.homes.get(&pod).is_none_or(|home| home.cut_off);
        cut(one) == cut(other) && (self.in_two || !cut(one))
    }

    /// A client writes one key. True if it was acknowledged.
    pub fn write(&mut self, slot: u16) -> bool {
        let Some(owner) = self.authority(slot) else { return false };
        let Some(server) = self.up(owner) else { return false };
        // Redis answers CLUSTERDOWN where a node does not see most primaries, and for a while after it sees them again.
        let is_alone = self.homes.get(&owner).is_none_or(|home| home.cut_off && !self.in_two);
        if is_alone || server.holds_writes || !look::is_ok(server) {
            return false;
        }
        let place = match server.open.get(&slot) {
            Some(Open::Migrating(to)) => {
                let target = self.place_of(*to);
                let importing = target.and_then(|pod| self.up(pod)).and_then(|target| target.open.get(&slot));
                match (target, importing) {
                    (Some(pod), Some(Open::Importing(_))) => pod,
                    (Some(_), Some(Open::Migrating(_)) | None) | (None, _) => return false,
                }
            }
            Some(Open::Importing(_)) | None => owner,
        };
        if self.room(place) == Some(0) {
            return false;
        }
        let key = self.fresh();
        let Some(server) = self.up_mut(place) else { return false };
        server.data.entry(slot).or_default().insert(key);
        server.offset += 1;
        self.acked.insert((slot, key));
        if self.is_overruled(owner, slot) {
            self.excused.insert((slot, key));
        }
        true
    }

    /// The running primary with the newest claim to a slot.
    #[must_use]
    pub fn authority(&self, slot: u16) -> Option<Pod> {
        let claimers =
            self.running().into_iter().filter(|pod| self.up(*pod).is_some_and(|server| server.slots().contains(slot)));
        claimers.max_by_key(|pod| self.up(*pod).map(|server| (server.epoch, core::cmp::Reverse(server.id))))
    }

    /// A server that does not run has a newer claim to the slot, of which its last moments told nobody. When it is back, it wins.
    fn is_overruled(&self, owner: Pod, slot: u16) -> bool {
        let epoch = self.up(owner).map_or(0, |server| server.epoch);
        let silent =
            self.homes.values().filter(|home| home.process != Process::Up).filter_map(|home| home.server.as_ref());
        silent.into_iter().any(|server| server.epoch > epoch && server.slots().contains(slot))
    }

    /// A sentence for a failed check.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (pod, home) in &self.homes {
            let line = match &home.server {
                None => String::from("no files"),
                Some(server) => alloc::format!(
                    "{} epoch {} {:?} open {:?} keys {} peers {:?}",
                    server.id.short(),
                    server.epoch,
                    server.role,
                    server.open,
                    server.data.values().map(BTreeSet::len).sum::<usize>(),
                    server
                        .table
                        .iter()
                        .map(|(id, peer)| (id.short(), &peer.role, peer.health, peer.connected))
                        .collect::<Vec<_>>()
                ),
            };
            let flags = (home.hidden, home.cut_off, home.outdated, home.terminating);
            text.push_str(&alloc::format!(
                "{pod} {:?} at {:?} (hidden, cut off, outdated, terminating) {flags:?} {line}\n",
                home.process,
                home.site
            ));
        }
        text
    }
}
