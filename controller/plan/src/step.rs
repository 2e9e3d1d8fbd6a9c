//! One thing to do, naming nodes by identity, with its own preconditions. The executor decides nothing.
//!
//! Rules for the executor:
//! - check the node ID on the connection that carries the command, then the precondition written at the variant; if either does not
//!   hold, send nothing and report the step as refused: the next look plans anew;
//! - steps of a batch run in their order; neighbours of the same kind may run at the same time. A step that was not done ends what
//!   depends on it ([`Step::depends_on`]), and nothing else: one member must not keep all others from what they need. Every step is safe
//!   to repeat, and a batch may end anywhere.

use alloc::vec::Vec;
use core::fmt;

use crate::desired::FailoverHow;
use crate::observed::{Address, NodeId, Pod};
use crate::slots::SlotSet;

/// A member by place and identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Its place.
    pub pod: Pod,
    /// The identity expected there.
    pub id: NodeId,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pod)
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `CONFIG SET cluster-node-timeout`. No precondition.
    NodeTimeout {
        /// On this node.
        node: Who,
        /// The new value.
        millis: u64,
    },
    /// `CLUSTER SET-CONFIG-EPOCH`. Precondition: the node's epoch is 0 and it knows no other node.
    Epoch {
        /// On this node.
        node: Who,
        /// The new epoch, above every epoch of the cluster.
        epoch: u64,
    },
    /// `CLUSTER BUMPEPOCH`. Precondition: the node is a primary that owns slots, and its epoch is not above `above`. Where it has heard of no
    /// newer one than its own, Redis changes nothing (`STILL`).
    RaiseEpoch {
        /// On this node.
        node: Who,
        /// The epoch under which a table still names somebody else as the owner of its slots.
        above: u64,
        /// Who takes a new epoch first, of which the node then hears: a replica, or a primary whose claim everybody believes.
        through: Option<Who>,
    },
    /// `CLUSTER ADDSLOTSRANGE`. Precondition: the node is a primary and none of the slots has an owner in its table.
    AddSlots {
        /// On this node.
        node: Who,
        /// Contiguous where possible.
        slots: SlotSet,
    },
    /// `CLUSTER MEET`. Precondition: `CLUSTER MYID` at `address` is the peer's identity.
    Meet {
        /// On this node.
        node: Who,
        /// The member to be met.
        peer: Who,
        /// Where the peer is now.
        address: Address,
    },
    /// `CLUSTER REPLICATE`. Precondition: the node owns no slot, and is a replica or holds no key; the primary is in its table as a
    /// primary. A replica that follows it already is told again only if it connects to where the primary was.
    Replicate {
        /// On this node.
        node: Who,
        /// Its new primary.
        primary: Who,
    },
    /// `CLUSTER FAILOVER [FORCE|TAKEOVER]`. Precondition: the replica follows `primary`, has finished its first synchronisation and runs none.
    /// Coordinated: its link is up, and no slot of the primary is half moved, of which the replica would know nothing. FORCE: its link is
    /// down, and nobody answers with the primary's identity at the shard's other places, or without its name where it may have started since;
    /// what others are receiving from it is marked at the replica as soon as that is the primary. TAKEOVER: the same, and no other member of
    /// the shard owns a slot, but for `over`.
    /// An OK means "scheduled": the effect is what the next look shows.
    Failover {
        /// The member to promote.
        replica: Who,
        /// Whom it follows now.
        primary: NodeId,
        /// With or without the old primary.
        how: FailoverHow,
        /// Who serves its slots by its own word, and is passed over all the same: a person has ordered it.
        over: Option<NodeId>,
        /// Slots of the primary of which the replica has not heard: its table gives them to nobody, and nobody is going to tell it (gossip sections
        /// name no slots). TAKEOVER is sent together with `ADDSLOTSRANGE` of them.
        unheard: SlotSet,
    },
    /// Takes slots nobody alive claims: `SETSLOT IMPORTING <owner>` if an owner is known, then `SETSLOT NODE <self>`, which raises the
    /// node's epoch; `ADDSLOTS` where its table knows no owner. Precondition: the node is a primary; in its table each slot is owned by
    /// itself, by nobody, or by `owner`.
    Adopt {
        /// On this node.
        node: Who,
        /// The node its table still names as the owner: it is gone for good, or does not claim the slots.
        owner: Option<NodeId>,
        /// The slots.
        slots: SlotSet,
    },
    /// Moves slots with their keys: `IMPORTING` on the target, `MIGRATING` on the source, the keys with MIGRATE … REPLACE, then
    /// `SETSLOT NODE` on the target, on the source and on the other primaries. Also resumes a half-moved slot. Precondition: both are
    /// primaries that report the cluster as ok and have a link to each other (one that is cut off may have been replaced); in the source's table each slot is owned by the source, or already by the target; and the target's current epoch is not
    /// below the source's own epoch: the target's new epoch would be the lower one, and gossip would take the slots away again, with
    /// their keys.
    Move {
        /// The owner.
        from: Who,
        /// The new owner.
        to: Who,
        /// The slots.
        slots: SlotSet,
    },
    /// Marks half-moved slots at both ends: `MIGRATING` on the source and `IMPORTING` on the target, which is told whose they are where it does
    /// not know. No key moves, and nobody gets a new epoch. Precondition: both are primaries, and each takes what the other one claims for its
    /// own; each slot is owned by the source in its own table, or already by the target.
    Mark {
        /// The owner.
        from: Who,
        /// The new owner.
        to: Who,
        /// The slots.
        slots: SlotSet,
    },
    /// Marks half-moved slots at their owner alone, as the member that receives them does not answer: clients are sent there rather than told that what has
    /// moved does not exist. Precondition: the owner is a primary that knows that node as one, and each slot is its own in its own table.
    MarkOwner {
        /// The owner.
        owner: Who,
        /// The new owner.
        to: NodeId,
        /// The slots.
        slots: SlotSet,
    },
    /// `SETSLOT STABLE`. Precondition per slot: the node owns it and no primary of another shard holds keys of it, or it does not own it
    /// and holds no key of it.
    Stabilise {
        /// On this node.
        node: Who,
        /// The slots.
        slots: SlotSet,
    },
    /// `CLUSTER FORGET` on all these nodes, at the same time (a node that is not told brings the entry back after 60 s). Precondition, on
    /// each node that still lists it: the entry owns no slot, is gone (`Peer::is_gone`), and nobody replicates it; and no pod answers with
    /// that ID.
    Forget {
        /// The dead node.
        id: NodeId,
        /// Everyone who is to forget it.
        by: Vec<Who>,
    },
    /// Tells a held agent to start Redis. Precondition: the agent is still held.
    Release {
        /// At this place.
        pod: Pod,
        /// How.
        how: ReleaseHow,
    },
    /// Deletes the pod; its StatefulSet makes it anew. Precondition: what `expect` says is still so.
    Restart {
        /// This pod.
        pod: Pod,
        /// What it must still be.
        expect: RestartAs,
    },
    /// Lowers the StatefulSet of the shard. Precondition: a member that stays answers as the primary of the shard's slots, and none of
    /// those who leave owns a slot.
    RetireMembers {
        /// The shard.
        shard: u16,
        /// Members that stay: the new size of the StatefulSet.
        keep: u16,
        /// Those who leave.
        leaving: Vec<Leaver>,
    },
    /// Deletes the StatefulSet of the shard. Precondition: none of its members owns a slot or holds keys outside its slots.
    RetireShard {
        /// The shard.
        shard: u16,
        /// Those who leave.
        leaving: Vec<Leaver>,
    },
}

/// Somebody who leaves for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaver {
    /// Its place.
    pub pod: Pod,
    /// Its identity, if a node answered there.
    pub id: Option<NodeId>,
}

/// How a held member starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseHow {
    /// With the files as they are.
    AsIs,
    /// As a blank node with a new identity; its files are set aside, not deleted.
    Blank,
}

/// What a pod must still be when it is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestartAs {
    /// A node with this identity that owns no slot.
    Replica(NodeId),
    /// A node with this identity that owns no slot and holds no key, whatever it follows.
    Empty(NodeId),
    /// A node with this identity that is its shard's only copy, and whose data survives a restart.
    OnlyCopy(NodeId),
    /// A pod whose Redis does not run.
    NotRunning,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeTimeout { node, millis } => write!(f, "set the node timeout of {node} to {millis} ms"),
            Self::Epoch { node, epoch } => write!(f, "give {node} the epoch {epoch}"),
            Self::RaiseEpoch { node, above, through } => {
                write!(f, "raise the epoch of {node} above {above}, so that its claim counts")?;
                through.map_or(Ok(()), |through| write!(f, "; {through} takes a new one first"))
            }
            Self::AddSlots { node, slots } => write!(f, "assign {} slots to {node}: {slots}", slots.len()),
            Self::Meet { node, peer, address } => write!(f, "introduce {peer} at {address} to {node}"),
            Self::Replicate { node, primary } => write!(f, "make {node} a replica of {primary}"),
            Self::Failover { replica, primary, how: FailoverHow::Coordinated, over: _, unheard: _ } => {
                write!(f, "hand the primary role over from {} to {replica}", primary.short())
            }
            Self::Failover { replica, primary, how: FailoverHow::Force, over: _, unheard: _ } => {
                write!(f, "promote {replica} in place of the dead primary {}", primary.short())
            }
            Self::Failover { replica, primary, how: FailoverHow::Takeover, over: _, unheard: _ } => write!(
                f,
                "promote {replica} in place of the dead primary {} without votes, as nobody could be elected there",
                primary.short()
            ),
            Self::Adopt { node, owner: Some(owner), slots } => {
                write!(f, "give {} slots to {node} that node {} had: {slots}", slots.len(), owner.short())
            }
            Self::Adopt { node, owner: None, slots } => {
                write!(f, "let {node} own {} slots it holds keys of: {slots}", slots.len())
            }
            Self::Move { from, to, slots } => write!(f, "move {} slots from {from} to {to}: {slots}", slots.len()),
            Self::Mark { from, to, slots } => {
                write!(f, "mark {} slots that are half moved from {from} to {to}: {slots}", slots.len())
            }
            Self::MarkOwner { owner, to, slots } => {
                write!(f, "mark {} slots on {owner} that are half moved to node {}: {slots}", slots.len(), to.short())
            }
            Self::Stabilise { node, slots } => write!(f, "clear the marks of {} slots on {node}: {slots}", slots.len()),
            Self::Forget { id, by } => write!(f, "forget the dead node {} on {} nodes", id.short(), by.len()),
            Self::Release { pod, how: ReleaseHow::AsIs } => write!(f, "let {pod} start with its files as they are"),
            Self::Release { pod, how: ReleaseHow::Blank } => write!(f, "let {pod} start blank, its files set aside"),
            Self::Restart { pod, expect: _ } => write!(f, "restart {pod}"),
            Self::RetireMembers { shard, keep, leaving } => {
                write!(f, "remove {} members of shard {shard}, {keep} stay", leaving.len())
            }
            Self::RetireShard { shard, leaving } => {
                write!(f, "remove shard {shard} with its {} members", leaving.len())
            }
        }
    }
}

impl Step {
    /// Whether it is not begun where this one before it in the batch was not done: both concern one member, which is not what it was taken
    /// for, or they are of one kind, whose order counts (claims, say, are made one after the other).
    #[must_use]
    pub fn depends_on(&self, before: &Self) -> bool {
        let members = before.members();
        self.kind() == before.kind() || self.members().iter().any(|pod| members.contains(pod))
    }

    /// The members it concerns, whose places are known.
    fn members(&self) -> Vec<Pod> {
        match self {
            Self::NodeTimeout { node, millis: _ }
            | Self::Epoch { node, epoch: _ }
            | Self::AddSlots { node, slots: _ }
            | Self::Adopt { node, owner: _, slots: _ }
            | Self::MarkOwner { owner: node, to: _, slots: _ }
            | Self::Stabilise { node, slots: _ } => Vec::from([node.pod]),
            Self::RaiseEpoch { node, above: _, through } => {
                [*node].into_iter().chain(*through).map(|who| who.pod).collect()
            }
            Self::Meet { node, peer, address: _ } => Vec::from([node.pod, peer.pod]),
            Self::Replicate { node, primary } => Vec::from([node.pod, primary.pod]),
            Self::Failover { replica, primary: _, how: _, over: _, unheard: _ } => Vec::from([replica.pod]),
            Self::Move { from, to, slots: _ } | Self::Mark { from, to, slots: _ } => Vec::from([from.pod, to.pod]),
            Self::Forget { id: _, by } => by.iter().map(|who| who.pod).collect(),
            Self::Release { pod, how: _ } | Self::Restart { pod, expect: _ } => Vec::from([*pod]),
            // Those who leave are no loss because those who stay are there.
            Self::RetireMembers { shard, keep, leaving } => {
                let stay = (0..*keep).map(|ordinal| Pod::new(*shard, ordinal));
                stay.chain(leaving.iter().map(|leaver| leaver.pod)).collect()
            }
            Self::RetireShard { shard: _, leaving } => leaving.iter().map(|leaver| leaver.pod).collect(),
        }
    }

    /// The kind of the step, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NodeTimeout { .. } => "NodeTimeout",
            Self::Epoch { .. } => "Epoch",
            Self::RaiseEpoch { .. } => "RaiseEpoch",
            Self::AddSlots { .. } => "AddSlots",
            Self::Meet { .. } => "Meet",
            Self::Replicate { .. } => "Replicate",
            Self::Failover { .. } => "Failover",
            Self::Adopt { .. } => "Adopt",
            Self::Move { .. } => "Move",
            Self::Mark { .. } => "Mark",
            Self::MarkOwner { .. } => "MarkOwner",
            Self::Stabilise { .. } => "Stabilise",
            Self::Forget { .. } => "Forget",
            Self::Release { .. } => "Release",
            Self::Restart { .. } => "Restart",
            Self::RetireMembers { .. } => "RetireMembers",
            Self::RetireShard { .. } => "RetireShard",
        }
    }
}
