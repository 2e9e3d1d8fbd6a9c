//! One identity in two processes: a volume that was copied to another claim, or a pod that runs on after Kubernetes has replaced it.
//!
//! Redis does not notice. Both serve the same slots, everybody's table has the address of the one that spoke last, and an introduction of
//! the two to each other comes to nothing, for ever. What is said of such a node is true of one of them, so its members count as not known;
//! nothing is planned that concerns their shards or the slots that they claim, and nobody is introduced to anybody: each word would spread
//! one of two addresses.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::desired::{Desired, Mode};
use crate::observed::{Address, Member, Node, NodeId, Observed, Pod, Seen};
use crate::plan::{Plan, Refused, Waiting};
use crate::slots::SlotSet;
use crate::step::{Step, Who};

/// What is known of identities that run twice.
#[derive(Default)]
pub(crate) struct Twins {
    told: Vec<Refused>,
    /// Members that seem to be where another one is.
    confused: BTreeSet<Pod>,
    members: BTreeMap<Pod, NodeId>,
    slots: SlotSet,
    /// What is done about it.
    holds: Vec<Step>,
}

impl Twins {
    pub(crate) fn of(desired: &Desired, observed: &Observed) -> Self {
        let mut twins = Self::default();
        if desired.mode == Mode::Standalone {
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
            if let [one, other] = found.as_slice()
                && let Some(step) = hold(observed, *one, *other).or_else(|| hold(observed, *other, *one))
            {
                twins.holds.push(step);
            }
            for one in &found {
                let Some(other_address) = observed.elsewhere.get(&one.0).cloned() else { continue };
                let (pod, address) = (one.0, one.1.address.clone());
                twins.told.push(Refused::Twins { id, pod, address, other: None, other_address, copied: None });
                twins.note(id, one);
            }
        }
        twins
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
            if let Some(member) = observed.members.get_mut(pod) {
                member.last_id = Some(*id);
                member.seen = Seen::Unknown { since_millis: u64::MAX };
            }
        }
        Cow::Owned(observed)
    }

    /// Tells of them, and takes out whatever concerns them.
    pub(crate) fn keep_out(self, plan: &mut Plan) {
        if self.members.is_empty() {
            return;
        }
        let shards: BTreeSet<u16> = self.members.keys().map(|pod| pod.shard).collect();
        plan.steps.retain(|step| !self.is_touched(&shards, step));
        // What else is said of these shards was said as if nobody were there.
        plan.waiting.retain(|reason| reason.shard().is_none_or(|shard| !shards.contains(&shard)));
        plan.refused.retain(|reason| match reason {
            Refused::StaleCopy { shard, .. } | Refused::NoQuorum { shard, .. } => !shards.contains(shard),
            Refused::Stranger { .. }
            | Refused::Twins { .. }
            | Refused::Former { .. }
            | Refused::LostSlots { .. }
            | Refused::OnlyCopy { .. }
            | Refused::Held { .. }
            | Refused::NoSuchShard { .. }
            | Refused::NoCandidate { .. }
            | Refused::NotInStandalone
            | Refused::NoShards => true,
        });
        plan.waiting.extend(self.confused.into_iter().map(|pod| Waiting::Unknown { pod, since_millis: 0 }));
        plan.refused.splice(0..0, self.told);
        plan.steps.splice(0..0, self.holds);
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
            Step::Failover { replica, primary, how: _ } => at(&replica.pod) || is_twin(primary),
            Step::Move { from, to, slots } => at(&from.pod) || at(&to.pod) || claimed(slots),
            Step::Forget { id, by } => is_twin(id) || by.iter().any(|who| at(&who.pod)),
            Step::Hold { double, home, .. } => at(&double.pod) || at(&home.pod),
            Step::Release { pod, .. } | Step::Restart { pod, .. } => at(pod),
            Step::RetireMembers { shard, .. } | Step::RetireShard { shard, .. } => shards.contains(shard),
        }
    }
}

/// Has the double held, if it is proven to be one; otherwise both go on, and a person decides.
///
/// The status knew another node where the double runs, and this one where it is at home, and no volume says otherwise: the double's files are
/// a copy. The process at home has run for as long as the double's, so it has whatever was acknowledged before that one began, and all its
/// slots, under a claim that is not older. What the double has and the other has not is what clients wrote to it since, and that stays on its
/// disk. A process that is no member's is no double by this: it has run on, and the member that took its place may have the older copy.
fn hold(observed: &Observed, double: (Pod, &Node, &Member), home: (Pod, &Node, &Member)) -> Option<Step> {
    let id = home.1.id;
    let [claim, rightful] = [double.0, home.0].map(|pod| observed.claims.get(&pod));
    let (claim, rightful) = (claim?, rightful?);
    let is_elsewhere = claim.home != Some(id) && double.2.last_id.is_some_and(|last| last != id);
    let is_at_home = rightful.home.is_none_or(|own| own == id) && home.2.last_id == Some(id);
    let is_alone = [double.0, home.0].iter().all(|pod| !observed.elsewhere.contains_key(pod))
        && !observed
            .members
            .values()
            .any(|member| matches!(member.seen, Seen::Unknown { .. }) && member.last_id == Some(id));
    let has_run = rightful.up_seconds >= claim.up_seconds && !home.1.loading && !home.2.terminating && home.1.state_ok;
    let covers = double.1.slots().difference(home.1.slots()).is_empty() && home.1.epoch >= double.1.epoch;
    let is_proven = is_elsewhere && is_at_home && is_alone && has_run && covers && double.1.address != home.1.address;
    is_proven.then(|| Step::Hold {
        double: Who { pod: double.0, id },
        home: Who { pod: home.0, id },
        address: double.1.address.clone(),
        epoch: double.1.epoch,
        process: claim.process.clone(),
    })
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
