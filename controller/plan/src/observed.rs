//! What was seen, member by member. Plain data: no handles, no clock. *Unknown* is a state of its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use core::fmt;

use crate::scene::identity;
use crate::sites::Site;
use crate::slots::SlotSet;

/// A place: pod `<cluster>-<shard>-<ordinal>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Index of the shard.
    pub shard: u16,
    /// Ordinal inside the shard's StatefulSet.
    pub ordinal: u16,
}

impl Pod {
    /// The place with this shard and ordinal.
    #[must_use]
    pub const fn new(shard: u16, ordinal: u16) -> Self {
        Self { shard, ordinal }
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.shard, self.ordinal)
    }
}

/// Redis' own name of a node: 40 hex digits. It is the identity; addresses are hints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 20]);

impl NodeId {
    /// From its 20 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// From 40 hex digits; `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return None;
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16)?;
                *byte = *byte << 4 | u8::try_from(value).ok()?;
            }
        }
        Some(Self(bytes))
    }

    /// The first eight digits, for sentences.
    #[must_use]
    pub fn short(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        alloc::format!("{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `ip:port` of a Redis server.
pub type Address = String;

/// Everything seen in one look at the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// Every place of every StatefulSet that exists, also those whose pod does not, and also those that are no longer wanted.
    /// A wanted place that is not listed counts as absent.
    pub members: BTreeMap<Pod, Member>,
    /// Failovers this controller asked for and has not seen the effect of yet: shard → milliseconds since.
    pub failovers_asked: BTreeMap<u16, u64>,
    /// Failovers that were refused before anybody was asked to take over: shard → milliseconds since. Of the last half minute.
    pub failovers_refused: BTreeMap<u16, u64>,
    /// Shards whose primary role moved or was asked to move: shard → milliseconds since. Where the past is not known, it moved when the
    /// shard was first looked at. Absent: not in living memory.
    pub elections: BTreeMap<u16, u64>,
    /// The configuration epoch of each primary when it was first seen in that role. What its predecessor was told before it stood still, and does when
    /// it wakes up (`SETSLOT NODE`, `BUMPEPOCH`), gives that one no higher epoch than this: nobody had heard of a higher one then.
    pub first_epochs: BTreeMap<NodeId, u64>,
    /// Members whose identity a second process has that is none of these members: where its agent answers, by a certificate of this very
    /// cluster. Of a member that is held its own agent has found that out.
    pub elsewhere: BTreeMap<Pod, Address>,
    /// Held members whose agents take no release now: their reasons say why, and what helps.
    pub unsettled: BTreeSet<Pod>,
    /// Introductions that were made lately, by the two members, the lower place first.
    pub introduced: BTreeMap<(Pod, Pod), Introduced>,
    /// Nodes that were members until a short while ago, and are none any more. Others take them for alive for a moment, and then forget them
    /// on our word.
    pub former: BTreeSet<NodeId>,
    /// Nodes whose processes are known to have ended where they ran, and for how many milliseconds at least: the agent of the pod in which such a
    /// process ran says so. That a node does not show, or that somebody else is at its place, is less: its pod may have been replaced while the
    /// process runs on elsewhere.
    pub ended: BTreeMap<NodeId, u64>,
    /// Places whose volume was there before this cluster was: it may be of a former one of its name.
    pub older_volumes: BTreeSet<Pod>,
    /// Places from which nothing can come back: the volume for it is unbound, or there is to be none, and no container of its pod has ever been
    /// started. Of a place that somebody is known to have been at that says nothing.
    pub blank: BTreeSet<Pod>,
    /// Replicas that another member of their shard has left behind, and which: it went on, as a primary, from the stream that they
    /// still follow (its `master_replid2` is their replication ID), owns slots by its own table, and has all that they have.
    pub left_behind: BTreeMap<Pod, Pod>,
    /// Replicas whose copy is no more than the beginning of what another replica of the same primary holds, and which: both are of one replication
    /// ID, and that one has the later offset. Of all such the one with the latest.
    pub further: BTreeMap<Pod, Pod>,
    /// Marks of half-moved slots that primaries showed last which do not answer now, by slot. Nobody else has them (a replica of Redis 7 or 8 knows
    /// nothing of its primary's).
    pub silent_marks: BTreeMap<NodeId, BTreeMap<u16, Open>>,
    /// Members that run with other parameters than the user's. Who may take these with its next start, and cannot know it before, is not
    /// listed.
    pub unused: BTreeMap<Pod, Unused>,
    /// Members that do not answer as nodes, and of which there was hope a short while ago: one answered, or its agent did, which waited for nobody. They are
    /// being restarted or replaced.
    pub hopeful: BTreeSet<Pod>,
    /// Members that do not answer as nodes, and whose servers say that a script or function runs (BUSY): they live, and go on once it has ended.
    pub busy: BTreeSet<Pod>,
    /// Members that do not answer as nodes, and did a moment ago: most of them are back, or replaced, before anybody could do anything.
    pub answered_lately: BTreeSet<Pod>,
    /// Shards whose first slot was held a moment ago, as none of its replicas came into sync.
    pub first_slot_held: BTreeSet<u16>,
}

impl Observed {
    /// It will have a copy of its shard's primary, as far as can be known: it follows somebody, or is blank, and will be told whom to follow; or nobody
    /// answers there, and will.
    #[must_use]
    pub fn may_join(&self, pod: Pod) -> bool {
        let Some(member) = self.members.get(&pod) else { return false };
        match &member.seen {
            Seen::Node(node) => match &node.role {
                Role::Replica { .. } => true,
                Role::Primary { slots } => slots.is_empty() && node.keys == 0,
            },
            Seen::Starting if !member.waits && !member.stuck => true,
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => {
                self.hopeful.contains(&pod)
            }
        }
    }

    /// The member calls itself a primary, owns no slot, and has been replaced: another member of its shard owns slots, or is a primary with a
    /// newer configuration epoch, by what others say where it does not answer. It is a replica to be, and is sent nothing. Its own marks have no
    /// say: of whom it imports a slot it may have long been wrong. And who has just got its shard's first keys is no such member, whoever its
    /// giver is by now.
    #[must_use]
    pub fn is_replaced(&self, pod: Pod) -> bool {
        let me =
            self.members.get(&pod).and_then(Member::node).filter(|node| node.is_primary() && node.slots().is_empty());
        let Some(me) = me else { return false };
        let others = self.members.iter().filter(|(other, _)| other.shard == pod.shard && **other != pod);
        let mut others = others.map(|(_, other)| other);
        others.any(|other| match other.node() {
            Some(other) => !other.slots().is_empty() || other.is_primary() && other.epoch > me.epoch,
            None => identity(other).is_some_and(|id| self.is_told_newer(id, me.epoch)),
        })
    }

    /// Somebody knows this node as a primary with a newer configuration epoch. (Which slots it owns the claims of all decide.)
    fn is_told_newer(&self, id: NodeId, epoch: u64) -> bool {
        let mut lines = self.members.values().filter_map(Member::node).filter_map(|node| node.peers.get(&id));
        lines.any(|line| matches!(line.role, PeerRole::Primary { .. }) && line.epoch > epoch)
    }

    /// A node that never had a slot to send keys of: everybody who knows it knows no configuration epoch of it, and nobody imports from it.
    /// Whoever is elected, or is given slots, gets an epoch with them, if not before; the others heard of it from the node itself.
    #[must_use]
    pub fn has_owned_nothing(&self, id: NodeId) -> bool {
        let nodes = || self.members.values().filter_map(Member::node);
        let gives = nodes().any(|node| node.open.values().any(|mark| *mark == Open::Importing(id)));
        let epochs = nodes().filter_map(|node| node.peers.get(&id)).map(|peer| peer.epoch);
        !gives && epochs.max() == Some(0)
    }

    /// What was seen of this node counts as not known. Its member may be alive, and holds what it holds.
    pub(crate) fn set_aside(&mut self, pod: Pod, id: NodeId) {
        if let Some(member) = self.members.get_mut(&pod) {
            member.last_id = Some(id);
            member.seen = Seen::Unknown { since_millis: u64::MAX };
        }
    }
}

/// Why the user's parameters are not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unused {
    /// They are on their way, or nobody has said yet why they are not in use.
    Pending,
    /// The engine that is wanted refuses them, or makes something else of them, and will at its next start.
    Refused,
}

/// An introduction that was made, and may still have an effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Introduced {
    /// Where the two were; elsewhere they are introduced anew.
    pub at: [Address; 2],
    /// How long ago the last time was.
    pub since_millis: u64,
    /// How many times it was done with both of them there.
    pub times: u32,
}

/// One place and what was found there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The pod was made from an older template than the wanted one, or a restart was asked for since it started.
    pub outdated: bool,
    /// The pod is being deleted: what runs there goes within its grace period, whatever it holds.
    pub terminating: bool,
    /// The node ID last seen at this place (from status), if any. What is unknown now may still be this node.
    pub last_id: Option<NodeId>,
    /// Where it runs.
    pub site: Site,
    /// What was found.
    pub seen: Seen,
    /// Seen as [`Seen::Starting`], and nothing runs: its node ran in this very pod and has ended, and before the agent starts it again it waits
    /// for votes, or for a better copy.
    pub waits: bool,
    /// It will not start by itself: Kubernetes cannot start its pod, or its container ends again and again.
    pub stuck: bool,
}

impl Member {
    /// The server that answered there.
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        match &self.seen {
            Seen::Node(node) => Some(node),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
        }
    }
}

/// What was found at a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// There is no such pod: its Redis process is dead.
    Absent,
    /// The pod exists, its container is proven not to run (terminated, or never started): its Redis process is dead.
    Stopped,
    /// The agent runs and is about to start Redis, or Redis has started and does not answer queries yet.
    Starting,
    /// The agent refuses to start Redis until it is told how; no Redis process runs.
    Held {
        /// The data directory holds a data set.
        holds_data: bool,
        /// Identity found on disk, if legible.
        id: Option<NodeId>,
        /// The agent's reason, as a sentence.
        reason: String,
    },
    /// It could not be seen. It may be alive and serving.
    Unknown {
        /// For how long.
        since_millis: u64,
    },
    /// A Redis server that answered, with its identity checked on the same connection.
    Node(Box<Node>),
}

/// A Redis server that answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its identity.
    pub id: NodeId,
    /// Where its pod is now.
    pub address: Address,
    /// Its role as it says itself.
    pub role: Role,
    /// Marks of half-moved slots in its own table.
    pub open: BTreeMap<u16, Open>,
    /// Keys it holds in slots it does not own: slot → count, as far as they are counted. Always empty for a replica.
    pub foreign_keys: BTreeMap<u16, u64>,
    /// Slots it does not own, of which it is not known yet whether it holds keys. Always empty for a replica.
    pub uncounted: SlotSet,
    /// Slots with such keys, of a primary that owns no slot, whose owner was asked for each of the keys by name, and whether it has them all.
    pub compared: BTreeMap<u16, bool>,
    /// Keys it still holds in slots of its own that it is sending away, as far as they are counted: without any, such a slot takes no room
    /// where it goes. While the mark stands they only become fewer.
    pub leaving: BTreeMap<u16, u64>,
    /// Keys in database 0.
    pub keys: u64,
    /// Bytes of its data set.
    pub bytes: u64,
    /// Bytes until it refuses whatever makes its data set larger: `maxmemory` where nothing is evicted. `None`: there is no such limit.
    pub room: Option<u64>,
    /// Its configuration epoch.
    pub epoch: u64,
    /// The highest epoch it has heard of (`cluster_current_epoch`): what it claims next has a higher one.
    pub current_epoch: u64,
    /// `cluster_state:ok`.
    pub state_ok: bool,
    /// Reading its data set from disk; not serving.
    pub loading: bool,
    /// What its disk has of what it holds.
    pub disk: Disk,
    /// Its current `cluster-node-timeout`.
    pub node_timeout_millis: u64,
    /// The other nodes of its own table (`CLUSTER NODES` without `myself`).
    pub peers: BTreeMap<NodeId, Peer>,
}

impl Node {
    /// The slots it owns by its own table; none for a replica.
    #[must_use]
    pub fn slots(&self) -> &SlotSet {
        const NONE: &SlotSet = &SlotSet::EMPTY;
        match &self.role {
            Role::Primary { slots } => slots,
            Role::Replica { .. } => NONE,
        }
    }

    /// Whether it calls itself a primary.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary { .. })
    }
}

/// What a restart would find of what a member has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Disk {
    /// All of it.
    #[default]
    Current,
    /// What was there before. After a full synchronisation, and after it was switched on, the file counts only once Redis has rewritten it.
    Rewriting,
    /// What was written before it failed.
    Fails(Unwritten),
}

impl Disk {
    /// The append-only file, if it has to keep one, holds all of it. Of a snapshot it says nothing: that is behind at any moment, and a stop saves
    /// another.
    #[must_use]
    pub const fn is_logged(self) -> bool {
        match self {
            Self::Current | Self::Fails(Unwritten::Snapshot) => true,
            Self::Rewriting | Self::Fails(Unwritten::Write | Unwritten::Rewrite) => false,
        }
    }
}

/// What Redis could not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unwritten {
    /// The last write to its append-only file.
    Write,
    /// The file anew, which it tries again: it may be the first that counts.
    Rewrite,
    /// The last snapshot, where these are all that is kept: the one that its stop has to save may fail as well.
    Snapshot,
}

impl Unwritten {
    /// As Redis says it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Write => "aof_last_write_status:err",
            Self::Rewrite => "aof_last_bgrewrite_status:err",
            Self::Snapshot => "rdb_last_bgsave_status:err",
        }
    }
}

/// A node's role as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes writes for its slots.
    Primary {
        /// The slots it owns.
        slots: SlotSet,
    },
    /// Follows a primary.
    Replica {
        /// Whom it follows.
        of: NodeId,
        /// It holds a complete copy: since its process started its link was up once (`master_link_down_since_seconds` is not -1 while
        /// the link is down), and no synchronisation is running.
        synced: bool,
        /// The link to its primary is up.
        link_up: bool,
        /// It connects to another address than the one its own table has for its primary, and will for ever: Redis moves the connection
        /// when the primary itself calls from a new address, but not when the address comes by gossip (until Valkey 8.1,
        /// valkey-io/valkey#965).
        misled: bool,
        /// Its replication offset.
        offset: u64,
        /// Bytes it is behind its primary, as far as both were seen; a primary that does not answer counts with what it said last.
        lag_bytes: u64,
        /// What its primary may have done without it.
        gap: Gap,
        /// Whether it stands for election by itself.
        stands: Stands,
    },
}

/// Whether a replica stands for election once most primaries hold its own to be dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stands {
    /// As Redis does.
    #[default]
    ByItself,
    /// Its agent forbids it (`cluster-replica-no-failover`): by itself it cannot tell how long its primary lived without it. When it last
    /// had everything it knows, and `gap` counts from then.
    OnOrder,
    /// The same, and its agent does not tell that either, or how far its primary was is not known.
    Never,
}

/// What a primary did beyond the copy that its replica has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gap {
    /// For how long the primary is known to have lived beyond the replica's copy, in milliseconds: what it acknowledged in that time is not
    /// in the copy. The greatest number: nobody has seen the copy to be whole.
    pub missed_millis: u64,
    /// For how long nobody has heard of the primary, in milliseconds.
    pub silent_millis: u64,
    /// How long ago the copy is known to have had everything for the last time, in milliseconds; 0 while it has. Where most primaries are gone
    /// those who heard of this one may have been the few: then this counts against its own end.
    pub behind_millis: u64,
}

/// A mark of a half-moved slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Open {
    /// Keys go to this node.
    Migrating(NodeId),
    /// Keys come from this node.
    Importing(NodeId),
}

/// One line of a node's table about another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Where it believes the peer to be.
    pub address: Address,
    /// What it believes the peer to be.
    pub role: PeerRole,
    /// What it thinks of the peer's health.
    pub health: Health,
    /// Its link to the peer is up.
    pub connected: bool,
    /// The entry is not a member yet (`handshake`): its ID is made up.
    pub handshake: bool,
    /// The entry has no usable address (`noaddr`).
    pub noaddr: bool,
    /// The peer's configuration epoch as it knows it.
    pub epoch: u64,
}

/// Whether a slot has come to the shard of the node that it was on its way to: somebody there owns it.
#[must_use]
pub fn has_arrived(members: &BTreeMap<Pod, Member>, slot: u16, to: NodeId) -> bool {
    let is_it = |member: &Member| member.node().map(|node| node.id).or(member.last_id) == Some(to);
    let shards: BTreeSet<u16> = members.iter().filter(|(_, member)| is_it(member)).map(|(pod, _)| pod.shard).collect();
    let nodes = members.iter().filter_map(|(pod, member)| Some((pod, member.node()?)));
    // Who has been replaced may claim it still.
    let owner = nodes.filter(|(_, node)| node.slots().contains(slot)).max_by_key(|(_, node)| node.epoch);
    owner.is_some_and(|(pod, _)| shards.contains(&pod.shard))
}

impl Open {
    /// Whom a slot with this mark of a node goes to.
    #[must_use]
    pub const fn receiver(self, marked: NodeId) -> NodeId {
        match self {
            Self::Importing(_) => marked,
            Self::Migrating(to) => to,
        }
    }
}

impl Peer {
    /// It is told of as a primary that owns nothing.
    #[must_use]
    pub fn is_primary_without_slots(&self) -> bool {
        matches!(&self.role, PeerRole::Primary { slots } if slots.is_empty())
    }

    /// Nobody is behind the entry: it has no address, no link, or most primaries hold it to be gone. The latter counts for itself:
    /// where an address swallows what is sent to it, a link that is being tried anew looks like one that is up.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.noaddr || !self.connected || self.health == Health::Failed
    }

    /// The slots it is believed to own; none for a replica.
    #[must_use]
    pub fn slots(&self) -> &SlotSet {
        const NONE: &SlotSet = &SlotSet::EMPTY;
        match &self.role {
            PeerRole::Primary { slots } => slots,
            PeerRole::Replica { .. } => NONE,
        }
    }
}

/// What one node believes another to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerRole {
    /// A primary with these slots.
    Primary {
        /// Its slots.
        slots: SlotSet,
    },
    /// A replica of this node.
    Replica {
        /// Whom it follows.
        of: NodeId,
    },
}

/// What one node thinks of another's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Answers.
    Ok,
    /// Does not answer this node (`fail?`).
    Suspect,
    /// A majority agrees that it is gone (`fail`).
    Failed,
}
