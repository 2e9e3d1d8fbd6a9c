//! The planner's answer. What it returns is what the user reads: each part prints as a sentence with its numbers.

use alloc::string::String;
use alloc::vec::Vec;

use crate::desired::Hold;
use crate::observed::{Address, NodeId, Pod, Unwritten};
use crate::slots::SlotSet;
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
        /// Nodes that answer.
        of: u16,
        /// A member that their tables list and that does not answer.
        away: Option<Pod>,
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
    /// A member that does not answer may come back with a claim to slots that are served: most who answer may not have heard of it.
    Claimant {
        /// Where it may come back.
        pod: Pod,
        /// How many slots.
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
    /// A member that is not seen now may hold a better copy of a lost primary's data than those that are.
    Copy {
        /// The member.
        pod: Pod,
        /// The best of those that are seen; it is not whole.
        instead_of: Pod,
    },
    /// Slots do not leave a shard while a former owner of them may still do what it was told when it stood still: its process is not known to
    /// have ended, and it does not answer.
    Former {
        /// The member.
        pod: Pod,
        /// The present owner.
        from: Pod,
        /// The receiver.
        to: Pod,
    },
    /// A member's disk does not hold what it has in memory, or may not once it is stopped.
    Disk {
        /// The member.
        pod: Pod,
        /// What it could not write; `None`: it is being written.
        fails: Option<Unwritten>,
    },
    /// The shard's primary does not answer and is not proven dead; Redis' own election has to decide.
    Election {
        /// The shard.
        shard: u16,
        /// Its replica that would take over and does not stand by itself, if that is so; whether it is promoted on order.
        held_back: Option<(Pod, bool)>,
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
    /// A member that owned nothing yet and is half way through its first slots is awaited with them.
    Receiver {
        /// Where it may come back.
        pod: Pod,
        /// A replica of it that holds something.
        copy: Pod,
    },
    /// A primary whose server answers that a script runs, and nothing else: it lives, and its replicas lack what it has.
    Script {
        /// The member.
        pod: Pod,
        /// Slots that it does not serve meanwhile.
        slots: u16,
    },
    /// A person approves the hand-over of the shard's primary.
    Approval {
        /// The shard.
        shard: u16,
        /// Its primary.
        pod: Pod,
    },
    /// A member runs with other parameters than the user's: whoever is restarted next might, too.
    Parameters {
        /// The member.
        pod: Pod,
        /// Its engine refuses them: a person has to correct them.
        refused: bool,
    },
    /// Nobody is restarted: a person has to mend the Secret that each new pod needs.
    Secret,
    /// Moves are held.
    Hold {
        /// Why.
        hold: Hold,
        /// Slots that still have to move.
        slots: u16,
    },
    /// A target of a move refuses more keys, or would before a whole slot has arrived.
    Room {
        /// The target.
        pod: Pod,
        /// The owner of the slots.
        from: Pod,
        /// Slots that wait for it.
        slots: u16,
        /// A part of their keys is at the target.
        half_moved: bool,
        /// The target owns slots that it can give back first, which makes room.
        gives: bool,
        /// Bytes until the target's maxmemory.
        room: u64,
        /// Bytes it must have to be sent anything.
        needs: u64,
    },
    /// A primary may hold keys of slots it does not own, and they are not counted yet.
    Counting {
        /// The primary.
        pod: Pod,
        /// Slots that are not counted.
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
        /// A member that stands in the way.
        because_of: Pod,
        /// That one answers, and has not seen it gone. Else nobody knows who it is, or will be: it may be that node itself.
        answers: bool,
    },
}

impl Waiting {
    /// The shard it is about; `None`: the whole cluster.
    pub(crate) fn shard(&self) -> Option<u16> {
        match self {
            Self::Start { pod }
            | Self::Unknown { pod, .. }
            | Self::Loading { pod }
            | Self::Held { pod, .. }
            | Self::Conflict { one: pod, .. }
            | Self::Claimant { pod, .. }
            | Self::Sync { pod, .. }
            | Self::Copy { pod, .. }
            | Self::Former { pod, .. }
            | Self::Disk { pod, .. }
            | Self::Leftover { pod, .. }
            | Self::Script { pod, .. }
            | Self::Receiver { pod, .. }
            | Self::Room { pod, .. }
            | Self::Counting { pod, .. }
            | Self::Parameters { pod, .. }
            | Self::Terminating { pod }
            | Self::Leaving { pod } => Some(pod.shard),
            Self::Election { shard, .. }
            | Self::Failover { shard, .. }
            | Self::Rest { shard, .. }
            | Self::Primary { shard, .. }
            | Self::Approval { shard, .. } => Some(*shard),
            Self::Members { .. }
            | Self::Introductions { .. }
            | Self::Agreement { .. }
            | Self::Secret
            | Self::Hold { .. }
            | Self::Ghost { .. } => None,
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
    /// Two processes have one identity: both take writes for the same slots, and what is said of that node is true of one of them.
    Twins {
        /// The identity.
        id: NodeId,
        /// A member that has it.
        pod: Pod,
        /// Where that member is.
        address: Address,
        /// The other process, if it is a member.
        other: Option<Pod>,
        /// Where the other process is.
        other_address: Address,
        /// The member that was another node before: the volume it has now is a copy of the other's.
        copied: Option<Pod>,
    },
    /// A member is not started, because its node runs already, where no pod of it is.
    RunsAlready {
        /// The member.
        pod: Pod,
        /// The identity.
        id: NodeId,
        /// Where both are, and what to do, as its agent says.
        reason: String,
    },
    /// A member is not started, because its volume is a copy of another one's, which runs in its own pod.
    Copied {
        /// The member that has the copy.
        pod: Pod,
        /// The identity.
        id: NodeId,
        /// The original, and where it is.
        of: (Pod, Address),
    },
    /// A member is of another cluster than others, and both claim the same slots: its volume, or theirs, is of a cluster of before.
    Apart {
        /// The member.
        pod: Pod,
        /// Its node.
        id: NodeId,
        /// Slots that both claim.
        slots: u16,
        /// Neither cluster has more members.
        is_unsure: bool,
    },
    /// A primary that has been replaced in its shard holds keys, so that Redis does not let it become a replica.
    Former {
        /// The member.
        pod: Pod,
        /// Its keys.
        keys: u64,
        /// Their slots.
        slots: SlotSet,
        /// Those of them whose owner lacks at least one of its keys.
        lacking: SlotSet,
        /// Those of which that is not known.
        unknown: SlotSet,
    },
    /// Too few primaries answer to elect another, or would, and those that do not answer may run on somewhere: promoted without votes, a replica could
    /// take writes beside its primary.
    NoQuorum {
        /// Primaries with slots that answer.
        alive: u16,
        /// Those of them that would refuse the replica their votes.
        refuse: u16,
        /// Primaries with slots.
        of: u16,
        /// A shard that has lost its primary.
        shard: u16,
        /// That primary.
        primary: NodeId,
        /// The replica that would take its place.
        replica: Pod,
        /// That primary, or replicas of it, that do not answer: their processes are not known to have ended, or may lead the shard. Each with
        /// its place, where that is known.
        unproven: Vec<(NodeId, Option<Pod>)>,
    },
    /// No complete copy of these slots is left: each place that could hold them holds another identity.
    LostSlots {
        /// The node that owned them.
        id: NodeId,
        /// The slots.
        slots: u16,
        /// Its replicas that hold something, and have not been in sync with it since they were started: nobody can tell how much they lack.
        copies: Vec<Pod>,
        /// A living primary that claimed some of these slots before that node did, and how many.
        former: Option<(Pod, u16)>,
    },
    /// A primary that owned no slot is gone for good, and what it was sent of its first ones is with its replicas alone, none of which is known to have
    /// all of it.
    LeftCopies {
        /// That primary.
        id: NodeId,
        /// Slots that are known to have been on their way to it.
        slots: u16,
        /// Its replicas that hold something.
        copies: Vec<Pod>,
        /// Who owns those slots, or most of them.
        giver: Option<Pod>,
    },
    /// No whole copy of a lost primary's data answers, and the primary may come back with all of it.
    StaleCopy {
        /// The shard.
        shard: u16,
        /// Its primary.
        primary: NodeId,
        /// The replica with most of the data.
        replica: Pod,
        /// For how long the primary lived without it.
        missed_millis: u64,
        /// Bytes it is behind, as far as both were seen.
        lag_bytes: u64,
        /// For how long nobody has heard of the primary.
        silent_millis: u64,
        /// Other replicas that hold something, of which nobody knows how much they lack: it may be less.
        others: Vec<Pod>,
    },
    /// The address of a lost primary is another node's by now, and with it the epoch that is told of it: whether its copy or a fellow that serves its slots
    /// is the later one cannot be told.
    Claimed {
        /// The primary.
        primary: NodeId,
        /// The copy.
        replica: Pod,
        /// Who serves the slots.
        by: Pod,
        /// Where that primary was last.
        places: Vec<Pod>,
        /// Places that may be its own: nobody knows who was there.
        unknown: Vec<Pod>,
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
    /// The failover that was asked for was to replace another primary than the one that does not answer.
    OtherPrimary {
        /// The shard.
        shard: u16,
        /// The primary when it was asked for.
        from: NodeId,
        /// The primary now.
        primary: NodeId,
        /// Where that one is, or was last, if that is known.
        place: Option<Pod>,
    },
    /// Standalone was asked for with something only a Redis Cluster has.
    NotInStandalone,
    /// Zero shards.
    NoShards,
}

/// A count for a sentence; cut off where it no longer fits.
pub(crate) fn count(items: usize) -> u16 {
    u16::try_from(items).unwrap_or(u16::MAX)
}
