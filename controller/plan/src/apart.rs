//! Volumes of a cluster of before that had the same name: an old claim is bound again, or was left when the others were deleted.
//!
//! Introduced to the members in service, whoever has the lower configuration epoch would lose its slots, become a replica of the other and be
//! emptied (`clusterUpdateSlotsConfigWith`). Members are of one cluster if a table of theirs has a node of the other's. Of two clusters that
//! claim a common slot the one with fewer members is set aside, where it stays the smaller one whatever those are who do not answer, and does not
//! have the only volumes that were made for this cluster; else nobody can tell from here, and nothing is done.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::desired::Mode;
use crate::observed::{Member, Node, NodeId, Observed, Pod, Role, Seen};
use crate::plan::{Plan, Refused, Waiting};
use crate::scene;
use crate::slots::SlotSet;
use crate::step::{ReleaseHow, Step};

/// Members of another cluster than the one that is built on.
#[derive(Default)]
pub(crate) struct Apart {
    members: BTreeMap<Pod, (NodeId, SlotSet)>,
    /// It is not known which of them is in service.
    is_unsure: bool,
}

/// Members of one cluster that answer.
struct Group<'a> {
    members: Vec<(Pod, &'a Node)>,
    /// Their nodes, and whom their tables list.
    known: BTreeSet<NodeId>,
}

/// A group that claims slots of another one.
struct Rival<'a> {
    members: Vec<(Pod, &'a Node)>,
    disputed: SlotSet,
    /// With the members that do not answer and that it knows.
    size: usize,
}

impl Apart {
    pub(crate) fn of(mode: Mode, observed: &Observed) -> Self {
        let groups = if mode == Mode::Standalone { Vec::new() } else { groups(observed) };
        if groups.len() < 2 {
            return Self::default();
        }
        let silent = silent(observed);
        let is_known = |id: &Option<NodeId>| id.is_some_and(|id| groups.iter().any(|group| group.known.contains(&id)));
        let unknown = silent.iter().filter(|id| !is_known(id)).count();
        let rivals = rivals(groups, observed, &silent);
        let is_largest = |one: &Rival<'_>| {
            rivals.iter().all(|other| core::ptr::eq(one, other) || one.size > other.size.saturating_add(unknown))
        };
        // More members that came with volumes of before prove nothing against one that began here.
        let is_older = |one: &Rival<'_>| one.members.iter().all(|(pod, _)| observed.older_volumes.contains(pod));
        let is_contested = |one: &Rival<'_>| is_older(one) && !rivals.iter().all(is_older);
        let largest = rivals.iter().position(|one| is_largest(one) && !is_contested(one));
        let aside = rivals.iter().enumerate().filter(|(place, _)| Some(*place) != largest);
        let named = aside
            .flat_map(|(_, rival)| rival.members.iter().map(|(pod, node)| (*pod, (node.id, rival.disputed.clone()))));
        let members: BTreeMap<_, _> = named.collect();
        Self { is_unsure: !members.is_empty() && largest.is_none(), members }
    }

    /// What was seen, with these members as not known. They are alive, and hold what they hold.
    pub(crate) fn set_aside<'a>(&self, observed: Cow<'a, Observed>) -> Cow<'a, Observed> {
        if self.members.is_empty() {
            return observed;
        }
        let mut observed = observed.into_owned();
        for (pod, (id, _)) in &self.members {
            observed.set_aside(*pod, *id);
        }
        Cow::Owned(observed)
    }

    /// Tells of them. Where it is not known who is in service, nothing is built on anybody.
    pub(crate) fn keep_out(&self, plan: &mut Plan) {
        if self.is_unsure {
            // Who starts as it is shows whose it is, and nothing is lost by it.
            plan.steps.retain(|step| matches!(step, Step::Release { how: ReleaseHow::AsIs, .. }));
        }
        let is_of_them =
            |reason: &Waiting| matches!(reason, Waiting::Unknown { pod, .. } if self.members.contains_key(pod));
        plan.waiting.retain(|reason| !is_of_them(reason));
        plan.refused.splice(0..0, self.told());
    }

    fn told(&self) -> impl Iterator<Item = Refused> {
        let is_unsure = self.is_unsure;
        let told = move |(pod, (id, slots)): (&Pod, &(NodeId, SlotSet))| Refused::Apart {
            pod: *pod,
            id: *id,
            slots: slots.len(),
            is_unsure,
        };
        self.members.iter().map(told)
    }

    /// What is said of them where it is not known who is in service.
    pub(crate) fn unsure(&self) -> impl Iterator<Item = Refused> {
        self.told().filter(move |_| self.is_unsure)
    }
}

/// The clusters that the members who answer are of.
fn groups(observed: &Observed) -> Vec<Group<'_>> {
    let mut rest: Vec<(Pod, &Node)> = Vec::new();
    for (pod, member) in &observed.members {
        if let Seen::Node(node) = &member.seen {
            rest.push((*pod, node));
        }
    }
    let mut groups = Vec::new();
    while !rest.is_empty() {
        groups.push(take_group(&mut rest));
    }
    groups
}

/// Takes out the first one and whoever it is connected with by tables. Of a cluster that is whole it knows all: the rest is looked at once.
fn take_group<'a>(rest: &mut Vec<(Pod, &'a Node)>) -> Group<'a> {
    let mut members = Vec::from([rest.remove(0)]);
    let (mut known, mut heard) = (BTreeSet::new(), 0);
    while heard < members.len() {
        for (_, node) in members.iter().skip(heard) {
            known.insert(node.id);
            // Of one that is whole nobody is left who could be found by a further table.
            known.extend(listed(node).filter(|_| heard == 0 || !rest.is_empty()));
        }
        heard = members.len();
        let is_connected =
            |(_, node): &(Pod, &Node)| known.contains(&node.id) || listed(node).any(|id| known.contains(&id));
        members.extend(rest.extract_if(.., |one| is_connected(one)));
    }
    Group { members, known }
}

/// Who is in its table as a full member.
fn listed(node: &Node) -> impl Iterator<Item = NodeId> {
    node.peers.iter().filter(|(_, peer)| !peer.handshake).map(|(id, _)| *id)
}

/// Members that do not answer and may hold something, by their identity as far as that is known.
fn silent(observed: &Observed) -> Vec<Option<NodeId>> {
    let is_silent = |member: &&Member| !matches!(member.seen, Seen::Node(_));
    let may_hold = |member: &Member| scene::may_run(member) || matches!(member.seen, Seen::Held { .. });
    let silent = observed.members.values().filter(is_silent).map(|member| (scene::identity(member), may_hold(member)));
    silent.filter(|(id, may_hold)| id.is_some() || *may_hold).map(|(id, _)| id).collect()
}

/// Groups of which another one claims a slot as well.
fn rivals<'a>(groups: Vec<Group<'a>>, observed: &Observed, silent: &[Option<NodeId>]) -> Vec<Rival<'a>> {
    let answer: BTreeSet<NodeId> = observed.members.values().filter_map(Member::node).map(|node| node.id).collect();
    let claims: Vec<SlotSet> = groups.iter().map(|group| claimed(&group.members, &answer)).collect();
    let disputed = |place: usize| {
        let others = claims.iter().enumerate().filter(|(other, _)| *other != place);
        let all = others.fold(SlotSet::EMPTY, |all, (_, slots)| if slots.is_empty() { all } else { all.union(slots) });
        claims
            .get(place)
            .map_or(SlotSet::EMPTY, |own| if own.is_empty() { SlotSet::EMPTY } else { own.intersection(&all) })
    };
    let disputed: Vec<SlotSet> = (0..claims.len()).map(disputed).collect();
    let rival = |(Group { members, known }, disputed): (Group<'a>, SlotSet)| {
        let fellows = silent.iter().flatten().filter(|id| known.contains(id)).count();
        Rival { size: members.len().saturating_add(fellows), members, disputed }
    };
    groups.into_iter().zip(disputed).filter(|(_, disputed)| !disputed.is_empty()).map(rival).collect()
}

/// By their own word, and by that of their tables for others that do not answer, if one of them follows such a node or owns slots: else they
/// are what is left of a cluster, and nobody's slots are theirs.
fn claimed(members: &[(Pod, &Node)], answer: &BTreeSet<NodeId>) -> SlotSet {
    let owns = members.iter().any(|(_, node)| !node.slots().is_empty());
    let follows = |node: &Node| match &node.role {
        Role::Replica { of, .. } => Some(*of),
        Role::Primary { .. } => None,
    };
    let followed: BTreeSet<NodeId> = members.iter().filter_map(|(_, node)| follows(node)).collect();
    let own = members.iter().map(|(_, node)| node.slots());
    let told = members.iter().flat_map(|(_, node)| node.peers.iter());
    let told =
        told.filter(|(id, _)| !answer.contains(id) && (owns || followed.contains(id))).map(|(_, peer)| peer.slots());
    own.chain(told).filter(|slots| !slots.is_empty()).fold(SlotSet::EMPTY, |all, slots| all.union(slots))
}
