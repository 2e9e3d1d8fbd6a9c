//! One identity in two processes: a volume that was copied to another claim, or a pod that runs on after Kubernetes has replaced it.
//!
//! Redis does not notice. Both serve the same slots, everybody's table has the address of the one that spoke last, and an introduction of
//! the two to each other comes to nothing, for ever. What is said of such a node is true of one of them, so its members count as not known;
//! nothing is planned that concerns their shards or the slots that they claim, and nobody is introduced to anybody: each word would spread
//! one of two addresses. An agent that hears of it in time does not start the second process: the first one is left as it is, too.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::desired::Mode;
use crate::observed::{Address, Member, Node, NodeId, Observed, Pod, Seen};
use crate::plan::{Plan, Refused, Waiting};
use crate::slots::SlotSet;
use crate::step::Step;

/// What is known of identities that run twice.
#[derive(Default)]
pub(crate) struct Twins {
    told: Vec<Refused>,
    /// Members that seem to be where another one is.
    confused: BTreeSet<Pod>,
    members: BTreeMap<Pod, NodeId>,
    slots: SlotSet,
}

impl Twins {
    pub(crate) fn of(mode: Mode, observed: &Observed) -> Self {
        let mut twins = Self::default();
        if mode == Mode::Standalone {
            return twins;
        }
        let mut by_id: BTreeMap<NodeId, Vec<(Pod, &Node, &Member)>> = BTreeMap::new();
        for (pod, member) in &observed.members {
            if let Seen::Node(node) = &member.seen {
                by_id.entry(node.id).or_default().push((*pod, node, member));
            }
        }
        for (id, found) in by_id {
            if let Some(one) = found.first() {
                twins.note_unseen(observed, id, one);
            }
            for pair in found.windows(2) {
                if let [one, other] = pair {
                    // Two places with one address are one process: an address was given to another pod, and not everything is known of that.
                    if one.1.address == other.1.address {
                        twins.confused.extend([one.0, other.0]);
                    } else {
                        twins.told.push(two_members(id, *one, *other));
                    }
                    twins.note(id, one);
                    twins.note(id, other);
                }
            }
            for one in &found {
                let Some(other_address) = observed.elsewhere.get(&one.0).cloned() else { continue };
                let (pod, address) = (one.0, one.1.address.clone());
                twins.told.push(Refused::Twins { id, pod, address, other: None, other_address, copied: None });
                twins.note(id, one);
            }
        }
        twins.note_held(observed);
        twins
    }

    /// Members whose agents do not start a second process. The first one serves, and what others say of the node is true of that one.
    fn note_held(&mut self, observed: &Observed) {
        for (pod, member) in &observed.members {
            let Seen::Held { id: Some(id), reason, .. } = &member.seen else { continue };
            if observed.elsewhere.contains_key(pod) {
                self.told.push(match original(observed, member, id) {
                    Some(of) => Refused::Copied { pod: *pod, id: *id, of },
                    None => Refused::RunsAlready { pod: *pod, id: *id, reason: reason.clone() },
                });
                self.members.insert(*pod, *id);
                self.note_told(observed, id);
            }
        }
    }

    /// What others say that it owns.
    fn note_told(&mut self, observed: &Observed, id: &NodeId) {
        for member in observed.members.values() {
            if let Seen::Node(node) = &member.seen
                && let Some(peer) = node.peers.get(id)
            {
                self.slots = self.slots.union(peer.slots());
            }
        }
    }

    /// Members that had this identity when they were last seen, and may still run: a twin does not end by not answering for a moment.
    fn note_unseen(&mut self, observed: &Observed, id: NodeId, one: &(Pod, &Node, &Member)) {
        let unseen = observed
            .members
            .iter()
            .filter(|(_, member)| matches!(member.seen, Seen::Unknown { .. }) && member.last_id == Some(id));
        for (pod, _) in unseen {
            let (other, other_address) = (Some(*pod), Address::from("an address that is not known now"));
            let address = one.1.address.clone();
            self.told.push(Refused::Twins { id, pod: one.0, address, other, other_address, copied: None });
            self.note(id, one);
            self.members.insert(*pod, id);
        }
    }

    fn note(&mut self, id: NodeId, (pod, node, _): &(Pod, &Node, &Member)) {
        self.members.insert(*pod, id);
        self.slots = self.slots.union(node.slots());
    }

    /// What was seen, with these members as not known. They may be alive, and hold what they held.
    pub(crate) fn set_aside<'a>(&self, observed: &'a Observed) -> Cow<'a, Observed> {
        if self.members.is_empty() {
            return Cow::Borrowed(observed);
        }
        let mut observed = observed.clone();
        for (pod, id) in &self.members {
            observed.set_aside(*pod, *id);
            // One of its processes has; another runs.
            observed.ended.remove(id);
        }
        Cow::Owned(observed)
    }

    /// What is said of them.
    pub(crate) fn told(&self) -> &[Refused] {
        &self.told
    }

    /// Where they are.
    pub(crate) fn shards(&self) -> BTreeSet<u16> {
        self.members.keys().map(|pod| pod.shard).collect()
    }

    /// Tells of them, and takes out whatever concerns them.
    pub(crate) fn keep_out(&self, plan: &mut Plan) {
        if self.members.is_empty() {
            return;
        }
        let shards = self.shards();
        plan.steps.retain(|step| !self.is_touched(&shards, step));
        // What else is said of these shards was said as if nobody were there.
        plan.waiting.retain(|reason| reason.shard().is_none_or(|shard| !shards.contains(&shard)));
        plan.refused.retain(|reason| match reason {
            Refused::Claimed { replica: Pod { shard, .. }, .. }
            | Refused::StaleCopy { shard, .. }
            | Refused::OtherPrimary { shard, .. }
            | Refused::NoQuorum { shard, .. } => !shards.contains(shard),
            Refused::Stranger { .. }
            | Refused::Twins { .. }
            | Refused::RunsAlready { .. }
            | Refused::Copied { .. }
            | Refused::Apart { .. }
            | Refused::Former { .. }
            | Refused::LostSlots { .. }
            | Refused::LeftCopies { .. }
            | Refused::OnlyCopy { .. }
            | Refused::Held { .. }
            | Refused::NoSuchShard { .. }
            | Refused::NoCandidate { .. }
            | Refused::NotInStandalone
            | Refused::NoShards => true,
        });
        plan.waiting.extend(self.confused.iter().map(|pod| Waiting::Unknown { pod: *pod, since_millis: 0 }));
        plan.refused.splice(0..0, self.told.iter().cloned());
    }

    fn is_touched(&self, shards: &BTreeSet<u16>, step: &Step) -> bool {
        let at = |pod: &Pod| shards.contains(&pod.shard);
        let is_twin = |id: &NodeId| self.members.values().any(|twin| twin == id);
        let claimed = |slots: &SlotSet| !slots.intersection(&self.slots).is_empty();
        match step {
            Step::Meet { .. } => true,
            Step::NodeTimeout { node, .. }
            | Step::Epoch { node, .. }
            | Step::RaiseEpoch { node, .. }
            | Step::Stabilise { node, .. } => at(&node.pod),
            Step::AddSlots { node, slots } => at(&node.pod) || claimed(slots),
            Step::Adopt { node, owner, slots } => {
                at(&node.pod) || claimed(slots) || owner.as_ref().is_some_and(is_twin)
            }
            Step::Replicate { node, primary } => at(&node.pod) || at(&primary.pod),
            Step::Failover { replica, primary, how: _, over: _, unheard: _ } => at(&replica.pod) || is_twin(primary),
            Step::Move { from, to, slots } | Step::Mark { from, to, slots } => {
                at(&from.pod) || at(&to.pod) || claimed(slots)
            }
            Step::MarkOwner { owner, to, slots } => at(&owner.pod) || is_twin(to) || claimed(slots),
            Step::Forget { id, by } => is_twin(id) || by.iter().any(|who| at(&who.pod)),
            Step::Release { pod, .. } | Step::Restart { pod, .. } => at(pod),
            Step::RetireMembers { shard, .. } | Step::RetireShard { shard, .. } => shards.contains(shard),
        }
    }
}

/// The member whose node it is, in its own pod: to end that process would be to end the original. One that was another node before, while the one
/// that is not started was this one, has the copy itself.
fn original(observed: &Observed, held: &Member, id: &NodeId) -> Option<(Pod, Address)> {
    let (of, member, node) = observed.members.iter().find_map(|(of, member)| match &member.seen {
        Seen::Node(node) if node.id == *id => Some((*of, member, node)),
        Seen::Node(_) | Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => {
            None
        }
    })?;
    let has_the_copy = held.last_id == Some(*id) && member.last_id.is_some_and(|last| last != *id);
    (!has_the_copy).then(|| (of, node.address.clone()))
}

/// Who was another node before has the copy; if neither was, or both, nobody can tell from here.
fn two_members(id: NodeId, one: (Pod, &Node, &Member), other: (Pod, &Node, &Member)) -> Refused {
    let was_other = |member: &Member| member.last_id.is_some_and(|last| last != id);
    let copied = match (was_other(one.2), was_other(other.2)) {
        (true, false) => Some(one.0),
        (false, true) => Some(other.0),
        (true, true) | (false, false) => None,
    };
    let (pod, address) = (one.0, one.1.address.clone());
    Refused::Twins { id, pod, address, other: Some(other.0), other_address: other.1.address.clone(), copied }
}
