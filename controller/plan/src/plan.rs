//! The planner's answer. What it returns is what the user reads: each part prints as a sentence with its numbers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::observed::{Address, NodeId, Pod};
use crate::step::Step;

/// The next batch, what is waited for, and what cannot be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The next batch. See [`crate::step`] for how it is carried out.
    pub steps: Vec<Step>,
    /// What must happen by itself, or elsewhere, first.
    pub waiting: Vec<Waiting>,
    /// What is wanted and cannot be done without a person.
    pub refused: Vec<Refused>,
    /// How the failover that was asked for stands; `None` if none was asked for.
    pub operation: Option<Operation>,
    /// Slots that still have to move to another shard.
    pub slots_left: u16,
}

impl Plan {
    /// Nothing to do, nothing to wait for, nothing refused: what was seen is what is wanted.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        self.steps.is_empty() && self.waiting.is_empty() && self.refused.is_empty()
    }
}

/// How a failover that was asked for stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is not done yet; steps or waiting say why.
    Running,
    /// Another member owns the shard's slots, and everyone alive says so.
    Done,
    /// It cannot be done; `refused` says why.
    Refused,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// Members that are needed have not started.
    Members {
        /// Members that answer.
        have: u16,
        /// Members that are needed.
        want: u16,
        /// The first of those that do not answer.
        first: Pod,
    },
    /// A member is not there, or is about to start.
    Start {
        /// The member.
        pod: Pod,
    },
    /// A member's state is not known.
    Unknown {
        /// The member.
        pod: Pod,
        /// For how long.
        since_millis: u64,
    },
    /// A member reads its data set.
    Loading {
        /// The member.
        pod: Pod,
    },
    /// A held member may not be released yet, because somebody else may hold the shard's data.
    Held {
        /// The member.
        pod: Pod,
        /// The member that has to be seen first.
        until_seen: Pod,
    },
    /// Members do not all know each other at the right address yet.
    Introductions {
        /// Entries that are right.
        right: u32,
        /// Entries there should be.
        of: u32,
    },
    /// Nodes do not all say the same about who owns which slot, or not all of them report the cluster as ok.
    Agreement {
        /// Nodes whose table is right.
        right: u16,
        /// Nodes.
        of: u16,
    },
    /// Two nodes claim the same slots; the higher epoch wins by itself.
    Conflict {
        /// One.
        one: Pod,
        /// The other.
        other: Pod,
        /// Slots both claim.
        slots: u16,
    },
    /// A replica has not caught up.
    Sync {
        /// The replica.
        pod: Pod,
        /// The link to its primary is up.
        link_up: bool,
        /// Bytes it is behind.
        lag_bytes: u64,
    },
    /// The shard's primary does not answer and is not proven dead; Redis' own election has to decide.
    Election {
        /// The shard.
        shard: u16,
        /// Its primary.
        primary: NodeId,
    },
    /// A failover was asked for and its effect has not been seen.
    Failover {
        /// The shard.
        shard: u16,
        /// For how long.
        since_millis: u64,
    },
    /// The shard's primary role moved so lately that Redis would count the votes of that election again.
    Rest {
        /// The shard.
        shard: u16,
        /// When it moved.
        since_millis: u64,
        /// How long that counts.
        of_millis: u64,
    },
    /// No primary of the shard answers and no replica can take over: its member has to come back.
    Primary {
        /// The shard.
        shard: u16,
        /// Slots that are not served.
        slots: u16,
    },
    /// A primary owns no slot but holds keys, so that Redis does not let it become a replica yet.
    Leftover {
        /// The member.
        pod: Pod,
        /// Its keys.
        keys: u64,
    },
    /// A person approves the hand-over of the shard's primary.
    Approval {
        /// The shard.
        shard: u16,
        /// Its primary.
        pod: Pod,
    },
    /// Migration is paused.
    MigrationPaused {
        /// Slots that still have to move.
        slots: u16,
    },
    /// The pod of a wanted member is being deleted; another will take its place.
    Terminating {
        /// The member.
        pod: Pod,
    },
    /// Members that are to leave are still there.
    Leaving {
        /// The first of them.
        pod: Pod,
    },
    /// A dead node cannot be forgotten yet.
    Ghost {
        /// The node.
        id: NodeId,
        /// A node that still has a link to it, or a member whose identity must be known first.
        because_of: Pod,
    },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members { have, want, first } => {
                write!(f, "{have} of {want} members answer; the next one awaited is {first}")
            }
            Self::Start { pod } => write!(f, "member {pod} has not started yet"),
            Self::Unknown { pod, since_millis } => {
                write!(f, "member {pod} has not answered for {} s; its state is not known", since_millis / 1_000)
            }
            Self::Loading { pod } => write!(f, "member {pod} is loading its data set"),
            Self::Held { pod, until_seen } => {
                write!(f, "member {pod} may not start before it is known what member {until_seen} holds")
            }
            Self::Introductions { right, of } => {
                write!(f, "members are getting to know each other: {right} of {of} entries are right")
            }
            Self::Agreement { right, of } => {
                write!(f, "{right} of {of} nodes agree on who owns which slot and report the cluster as ok")
            }
            Self::Conflict { one, other, slots } => {
                write!(f, "members {one} and {other} both claim {slots} slots; the newer claim wins")
            }
            Self::Sync { pod, link_up: true, lag_bytes } => {
                write!(f, "replica {pod} is catching up with its primary, {lag_bytes} bytes to go")
            }
            Self::Sync { pod, link_up: false, lag_bytes: _ } => {
                write!(f, "replica {pod} is not in sync: its link to the primary is down")
            }
            Self::Election { shard, primary } => write!(
                f,
                "the primary {} of shard {shard} does not answer and is not proven dead; its replicas will elect one of them",
                primary.short()
            ),
            Self::Failover { shard, since_millis } => {
                write!(f, "the failover of shard {shard} was asked for {} ms ago and is not seen yet", since_millis)
            }
            Self::Rest { shard, since_millis, of_millis } => write!(
                f,
                "the primary role of shard {shard} moved, or may have moved, {}.{} s ago; it may move again {} s after that, when Redis \
                 counts votes anew",
                since_millis / 1_000,
                since_millis % 1_000 / 100,
                of_millis.div_ceil(1_000)
            ),
            Self::Primary { shard, slots } => {
                write!(f, "{slots} slots of shard {shard} are not served: no member that holds them answers")
            }
            Self::Leftover { pod, keys } => {
                write!(
                    f,
                    "member {pod} owns no slot but still holds {keys} keys; it becomes a replica once Redis has dropped them"
                )
            }
            Self::Approval { shard, pod } => {
                write!(f, "the hand-over of primary {pod} of shard {shard} waits for approval (redis.kun.io/approve)")
            }
            Self::MigrationPaused { slots } => write!(f, "{slots} slots still have to move; migration is paused"),
            Self::Terminating { pod } => {
                write!(
                    f,
                    "member {pod} is being stopped because its pod is being deleted; a new pod will take its place"
                )
            }
            Self::Leaving { pod } => write!(f, "member {pod} is leaving and its pod is still there"),
            Self::Ghost { id, because_of } => {
                write!(f, "the dead node {} is forgotten once member {because_of} has seen it gone", id.short())
            }
        }
    }
}

/// What is wanted and cannot be done without a person.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// A node that is alive, or owns slots, belongs to no pod of this cluster.
    Stranger {
        /// The member whose table lists it.
        seen_by: Pod,
        /// The stranger.
        id: NodeId,
        /// Where it is said to be.
        address: Address,
        /// Slots it owns there.
        slots: u16,
    },
    /// Too few primaries answer to elect another.
    NoQuorum {
        /// Primaries with slots that answer.
        alive: u16,
        /// Primaries with slots.
        of: u16,
        /// A shard that has lost its primary.
        shard: u16,
    },
    /// No complete copy of these slots is left: each place that could hold them holds another identity.
    LostSlots {
        /// The node that owned them.
        id: NodeId,
        /// The slots.
        slots: u16,
    },
    /// A restart would lose the shard's only copy.
    OnlyCopy {
        /// The member.
        pod: Pod,
        /// Its keys.
        keys: u64,
    },
    /// A held member is not released.
    Held {
        /// The member.
        pod: Pod,
        /// Why the agent holds it.
        reason: String,
    },
    /// The failover that was asked for names a shard that does not exist.
    NoSuchShard {
        /// What was named.
        shard: u16,
        /// Shards there are.
        shards: u16,
    },
    /// The failover that was asked for has no member that could be promoted.
    NoCandidate {
        /// The shard.
        shard: u16,
        /// The member that was named, if one was.
        candidate: Option<Pod>,
    },
    /// Standalone was asked for with something only a Redis Cluster has.
    NotInStandalone,
    /// Zero shards.
    NoShards,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger { seen_by, id, address, slots } => write!(
                f,
                "member {seen_by} knows node {} at {address} with {slots} slots, which is no pod of this cluster; it is neither joined nor forgotten",
                id.short()
            ),
            Self::NoQuorum { alive, of, shard } => write!(
                f,
                "quorum lost: {alive} of {of} primaries answer, a majority is needed to promote a replica of shard {shard}"
            ),
            Self::LostSlots { id, slots } => {
                write!(
                    f,
                    "no complete copy of {slots} slots is left, node {} is gone for good; restore them, or allow them to start empty",
                    id.short()
                )
            }
            Self::OnlyCopy { pod, keys } => {
                write!(
                    f,
                    "restarting member {pod} would lose {keys} keys: it is its shard's only copy and nothing is kept on disk"
                )
            }
            Self::Held { pod, reason } => write!(f, "member {pod} refuses to start: {reason}"),
            Self::NoSuchShard { shard, shards } => {
                write!(f, "there is no shard {shard}: the cluster has {shards}, counted from 0")
            }
            Self::NoCandidate { shard, candidate: Some(pod) } => {
                write!(f, "member {pod} cannot become the primary of shard {shard}: it is no replica of it")
            }
            Self::NoCandidate { shard, candidate: None } => {
                write!(f, "shard {shard} has no replica that could become its primary")
            }
            Self::NotInStandalone => write!(f, "a standalone server has no shards, replicas or failover"),
            Self::NoShards => write!(f, "a cluster needs at least one shard"),
        }
    }
}
