//! Volumes of a cluster of before that had the same name: an old claim is bound again, or was left when the others were deleted.
//!
//! Introduced to the members in service, whoever has the lower configuration epoch would lose its slots, become a replica of the other and be
//! emptied (`clusterUpdateSlotsConfigWith`). Members are of one cluster if a table of theirs has a node of the other's. Of two clusters that
//! claim a common slot the one with fewer members is set aside; where neither is larger, nobody can tell from here, and nothing is done.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::desired::{Desired, Mode};
use crate::observed::{Node, NodeId, Observed, Pod, Seen};
use crate::plan::{Plan, Refused, Waiting};
use crate::scene;
use crate::slots::SlotSet;

/// Members of another cluster than the one that is built on.
#[derive(Default)]
pub(crate) struct Apart {
    members: BTreeMap<Pod, (NodeId, SlotSet)>,
    /// It is not known which of them is in service.
    is_unsure: bool,
}

/// Members of one cluster, and the slots they claim: by their own word, and by their tables' word for members that do not answer.
struct Group<'a> {
    members: Vec<(Pod, &'a Node)>,
    slots: SlotSet,
}

impl Apart {
    pub(crate) fn of(desired: &Desired, observed: &Observed) -> Self {
        let mut groups = if desired.mode == Mode::Standalone { Vec::new() } else { groups(observed) };
        groups.retain(|group| !group.slots.is_empty());
        let disputed = |one: &Group<'_>| {
            let others = groups.iter().filter(|other| !core::ptr::eq(*other, one));
            others.fold(SlotSet::EMPTY, |all, other| all.union(&one.slots.intersection(&other.slots)))
        };
        let mut rivals: Vec<(&Group<'_>, SlotSet)> = groups.iter().map(|group| (group, disputed(group))).collect();
        rivals.retain(|(_, slots)| !slots.is_empty());
        let most = rivals.iter().map(|(group, _)| group.members.len()).max().unwrap_or_default();
        let is_unsure = rivals.iter().filter(|(group, _)| group.members.len() == most).count() > 1;
        rivals.retain(|(group, _)| is_unsure || group.members.len() < most);
        let named = |(group, slots): (&Group<'_>, SlotSet)| {
            group.members.iter().map(|(pod, node)| (*pod, (node.id, slots.clone()))).collect::<Vec<_>>()
        };
        Self { members: rivals.into_iter().flat_map(named).collect(), is_unsure }
    }

    /// What was seen, with these members as not known. They are alive, and hold what they hold.
    pub(crate) fn set_aside<'a>(&self, observed: Cow<'a, Observed>) -> Cow<'a, Observed> {
        if self.members.is_empty() {
            return observed;
        }
        let mut observed = observed.into_owned();
        for (pod, (id, _)) in &self.members {
            if let Some(member) = observed.members.get_mut(pod) {
                member.last_id = Some(*id);
                member.seen = Seen::Unknown { since_millis: u64::MAX };
            }
        }
        Cow::Owned(observed)
    }

    /// Tells of them. Where it is not known who is in service, nothing is built on anybody.
    pub(crate) fn keep_out(self, plan: &mut Plan) {
        if self.is_unsure {
            plan.steps.clear();
        }
        let is_of_them =
            |reason: &Waiting| matches!(reason, Waiting::Unknown { pod, .. } if self.members.contains_key(pod));
        plan.waiting.retain(|reason| !is_of_them(reason));
        let is_unsure = self.is_unsure;
        let told = self.members.into_iter().map(|(pod, (id, slots))| Refused::Apart {
            pod,
            id,
            slots: slots.len(),
            is_unsure,
        });
        plan.refused.splice(0..0, told);
    }
}

/// The clusters that the members who answer are of; none if it is one, as nearly always.
fn groups(observed: &Observed) -> Vec<Group<'_>> {
    let mut rest: Vec<(Pod, &Node)> = Vec::new();
    for (pod, member) in &observed.members {
        if let Seen::Node(node) = &member.seen {
            rest.push((*pod, node));
        }
    }
    let answer: BTreeSet<NodeId> = rest.iter().map(|(_, node)| node.id).collect();
    let silent = observed.members.values().filter_map(scene::identity).filter(|id| !answer.contains(id)).collect();
    let mut clusters = Vec::new();
    while !rest.is_empty() {
        clusters.push(take_cluster(&mut rest));
    }
    if clusters.len() < 2 {
        return Vec::new();
    }
    clusters.into_iter().map(|members| Group { slots: claimed(&members, &silent), members }).collect()
}

/// Takes out the first one and whoever it is connected with by tables. Of a cluster that is whole it knows all: the rest is looked at once.
fn take_cluster<'a>(rest: &mut Vec<(Pod, &'a Node)>) -> Vec<(Pod, &'a Node)> {
    let mut members = Vec::from([rest.remove(0)]);
    let (mut known, mut heard) = (BTreeSet::new(), 0);
    while heard < members.len() && !rest.is_empty() {
        for (_, node) in members.iter().skip(heard) {
            known.insert(node.id);
            known.extend(listed(node));
        }
        heard = members.len();
        let is_connected =
            |(_, node): &(Pod, &Node)| known.contains(&node.id) || listed(node).any(|id| known.contains(&id));
        members.extend(rest.extract_if(.., |one| is_connected(one)));
    }
    members
}

/// Who is in its table as a full member.
fn listed(node: &Node) -> impl Iterator<Item = NodeId> {
    node.peers.iter().filter(|(_, peer)| !peer.handshake).map(|(id, _)| *id)
}

fn claimed(members: &[(Pod, &Node)], silent: &BTreeSet<NodeId>) -> SlotSet {
    let own = members.iter().map(|(_, node)| node.slots());
    let told = members.iter().flat_map(|(_, node)| node.peers.iter());
    let told = told.filter(|(id, _)| silent.contains(id)).map(|(_, peer)| peer.slots());
    own.chain(told).fold(SlotSet::EMPTY, |all, slots| all.union(slots))
}
