//! What was seen, put in order once for all phases: who is alive, who owns what, who leads which shard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::desired::{Desired, Limits};
use crate::observed::{Member, Node, NodeId, Observed, Pod, Seen};
use crate::slots::SlotSet;
use crate::step::Who;

/// A live node with its place.
#[derive(Clone, Copy)]
pub(crate) struct Live<'a> {
    pub(crate) pod: Pod,
    pub(crate) node: &'a Node,
}

impl Live<'_> {
    pub(crate) fn who(&self) -> Who {
        Who { pod: self.pod, id: self.node.id }
    }
}

/// The question and everything the phases need to answer it.
pub(crate) struct Scene<'a> {
    pub(crate) desired: &'a Desired,
    pub(crate) observed: &'a Observed,
    pub(crate) limits: &'a Limits,
    /// Live nodes by place.
    pub(crate) live: Vec<Live<'a>>,
    /// Slots without a live owner.
    pub(crate) unserved: SlotSet,
}

impl<'a> Scene<'a> {
    pub(crate) fn of(desired: &'a Desired, observed: &'a Observed, limits: &'a Limits) -> Self {
        let live: Vec<Live<'a>> = observed
            .members
            .iter()
            .filter_map(|(pod, member)| match &member.seen {
                Seen::Node(node) => Some(Live { pod: *pod, node }),
                Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
            })
            .collect();
        let unserved = live.iter().fold(SlotSet::EMPTY, |owned, live| owned.union(live.node.slots())).complement();
        Self { desired, observed, limits, live, unserved }
    }

    /// The places that are wanted.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Pod> + use<> {
        let members = self.desired.members_per_shard();
        (0..self.desired.shards).flat_map(move |shard| (0..members).map(move |ordinal| Pod::new(shard, ordinal)))
    }

    pub(crate) fn member(&self, pod: Pod) -> Option<&'a Member> {
        self.observed.members.get(&pod)
    }

    pub(crate) fn live_of(&self, shard: u16) -> impl Iterator<Item = Live<'a>> + '_ {
        self.live.iter().copied().filter(move |live| live.pod.shard == shard)
    }

    /// The member that owns, or shall own, the shard's slots: the primary with most slots, else the first primary.
    pub(crate) fn lead(&self, shard: u16) -> Option<Live<'a>> {
        self.live_of(shard)
            .filter(|live| live.node.is_primary())
            .max_by_key(|live| (live.node.slots().len(), core::cmp::Reverse(live.pod.ordinal)))
    }

    /// No node owns a slot, holds a key or has heard of an owner: there is nothing yet.
    pub(crate) fn is_blank(&self) -> bool {
        self.live.iter().all(|live| {
            live.node.slots().is_empty()
                && live.node.keys == 0
                && live.node.peers.values().all(|peer| peer.slots().is_empty())
        })
    }

    pub(crate) fn ids(&self) -> BTreeMap<NodeId, Live<'a>> {
        self.live.iter().map(|live| (live.node.id, *live)).collect()
    }

    /// Every slot some live node believes to be owned by somebody.
    pub(crate) fn believed(&self) -> BTreeSet<NodeId> {
        self.live
            .iter()
            .flat_map(|live| live.node.peers.iter())
            .filter(|(_, peer)| !peer.slots().is_empty())
            .map(|(id, _)| *id)
            .collect()
    }
}
