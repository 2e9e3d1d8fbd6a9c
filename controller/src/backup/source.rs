//! Whom the copy of a shard comes from. Pure.
//!
//! It has to hold what was acknowledged before the backup was asked for. So the owner of the shard's slots counts, by the newest of all claims: who was
//! replaced may not know it. Members that the planner sets aside have no claim, and while it cannot tell whose word counts nobody is copied. A replica
//! spares the owner the fork, and is asked for a copy that is as far as its owner was at this look.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use plan::{Limits, Node, NodeId, Observed, Pod, Refused, Role, Serving, SlotSet, Stands};
use types::cluster::Mode;
use types::names;

use super::{MEMBER_MISSING, Round, UNCLEAR};
use crate::probe::Probed;

/// Whom a worker asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source<'a> {
    /// Where its agent is.
    pub(super) agent: SocketAddr,
    /// Who it must be.
    pub(super) id: NodeId,
    /// The stream of the shard's owner, and how far it was: a replica's copy may not be older. The owner's own cannot be, and it may begin another
    /// stream as it is asked.
    pub(super) not_before: Option<(&'a str, u64)>,
}

/// Who can be asked, of every shard.
pub(super) struct Sources<'a> {
    probed: &'a Probed,
    /// Of whom something is known.
    seen: &'a Observed,
    /// Why nobody can tell who is in service.
    unclear: Option<Refused>,
    /// Who owns slots, by shard: two are none.
    owners: BTreeMap<u16, Vec<(Pod, &'a Node)>>,
    /// The slots that all of them own together.
    pub(super) owned: SlotSet,
}

impl<'a> Sources<'a> {
    pub(super) fn of(round: Round<'a>, serving: &'a Serving<'_>) -> Self {
        let (probed, seen) = (round.probed, &*serving.seen);
        let (places, owned): (BTreeSet<Pod>, SlotSet) = match round.resolved.mode {
            Mode::Cluster => {
                let owned = serving.owned();
                let all = owned.values().fold(SlotSet::EMPTY, |all, slots| all.union(slots));
                (owned.into_keys().collect(), all)
            }
            Mode::Standalone => (seen.members.keys().copied().collect(), SlotSet::all()),
        };
        let mut owners: BTreeMap<u16, Vec<(Pod, &Node)>> = BTreeMap::new();
        for (pod, member) in seen.members.iter().filter(|(pod, _)| places.contains(*pod)) {
            if let Some(node) = member.node().filter(|node| node.is_primary()) {
                owners.entry(pod.shard).or_default().push((*pod, node));
            }
        }
        Self { probed, seen, unclear: serving.unclear(), owners, owned }
    }

    /// The shards that own slots.
    pub(super) fn shards(&self) -> BTreeSet<u16> {
        self.owners.keys().copied().collect()
    }

    /// The member of a shard to copy from: a replica that follows the owner closely; else the owner.
    pub(super) fn source(&self, shard: u16) -> Option<Source<'a>> {
        let (pod, owner) = self.owner(shard)?;
        let facts = self.probed.facts.get(&pod)?;
        let members = self.seen.members.iter().filter(|(pod, _)| pod.shard == shard);
        let copies = members.filter_map(|(pod, member)| {
            let (node, told) = (member.node()?, self.probed.facts.get(pod)?);
            let lag = lag(node, owner.id).filter(|_| told.replication_id == facts.replication_id)?;
            Some(((lag, *pod), told.address, node.id))
        });
        let at = |address: SocketAddr| SocketAddr::new(address.ip(), names::PORT_AGENT);
        let best = copies.min_by_key(|(rank, ..)| *rank).map(|(_, address, id)| {
            let not_before = Some((facts.replication_id.as_str(), facts.offset));
            Source { agent: at(address), id, not_before }
        });
        Some(best.unwrap_or(Source { agent: at(facts.address), id: owner.id, not_before: None }))
    }

    /// Who owns the slots of a shard, and serves.
    fn owner(&self, shard: u16) -> Option<(Pod, &'a Node)> {
        match self.owners.get(&shard)?.as_slice() {
            _ if self.unclear.is_some() => None,
            [(pod, node)] if node.state_ok && !node.loading => Some((*pod, *node)),
            _ => None,
        }
    }

    /// Whom a shard's copy could come from, and why it does not: reason and sentence.
    pub(super) fn nobody(&self, shard: u16) -> (&'static str, String) {
        if let Some(refused) = &self.unclear {
            return (UNCLEAR, format!("it is not certain who serves: {refused}"));
        }
        if let Some([(one, _), (other, _), ..]) = self.owners.get(&shard).map(Vec::as_slice) {
            return (UNCLEAR, format!("members {one} and {other} of shard {shard} both own slots"));
        }
        let stuck = self.probed.stuck.iter().find(|(pod, _)| pod.shard == shard);
        let stuck = stuck.map(|(pod, why)| format!("; member {pod}: {why}"));
        let fails = self.owners.get(&shard).into_iter().flatten().find(|(_, node)| !node.state_ok);
        let fails = || fails.map(|(pod, _)| format!("; member {pod} does not serve (cluster_state:fail)"));
        let why = stuck.or_else(fails).unwrap_or_default();
        (MEMBER_MISSING, format!("no member of shard {shard} answers with its slots{why}"))
    }
}

/// How many bytes a replica is behind the owner, if it is known to follow it: its agent lets it stand, so something comes over its link.
fn lag(node: &Node, owner: NodeId) -> Option<u64> {
    let Role::Replica { of, synced, link_up, misled, offset: _, lag_bytes, gap, stands } = &node.role else {
        return None;
    };
    let limits = Limits::default();
    let follows = *of == owner && *synced && *link_up && !*misled && !node.loading;
    let is_near = *lag_bytes <= limits.lag_bytes && gap.missed_millis <= limits.missed_millis;
    (follows && is_near && node.state_ok && *stands == Stands::ByItself).then_some(*lag_bytes)
}
