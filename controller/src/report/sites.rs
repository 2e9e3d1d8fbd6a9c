//! What the loss of one node would take along, judged from where members are and without the planner.
//!
//! A cluster that is seen on one node only is taken for one on a machine of its own, where it cannot be otherwise: that is no news, and
//! a warning that never ends warns of nothing. Who means it says `Required`, and then it is told.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Pod, Seen};
use types::cluster::{Mode, Spread};

use super::members::primaries;
use crate::probe::Probed;
use crate::resolve::Resolved;

/// What the loss of one node would take along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Members of one shard on the same node, where that is worth telling.
    pub shared: Vec<Shared>,
    /// The node with half of the primaries or more.
    pub crowded: Option<Crowded>,
}

/// Members of one shard on the same node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The shard.
    pub shard: u16,
    /// The node.
    pub node: String,
    /// Members there.
    pub here: usize,
}

/// The node with half of the primaries or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowded {
    /// The node.
    pub node: String,
    /// Primaries there.
    pub here: usize,
    /// Primaries.
    pub of: usize,
}

/// Judges. Members whose node is not known are on none.
pub(super) fn sites(resolved: &Resolved, probed: &Probed) -> Sites {
    let homes: BTreeMap<Pod, &str> = probed.observed.members.iter().filter_map(home).collect();
    let nodes: BTreeSet<&str> = homes.values().copied().collect();
    let several = nodes.len() > 1;
    let told = match resolved.placement.spread {
        Spread::Required => true,
        Spread::Preferred => several,
        Spread::Off => false,
    };
    if !told || resolved.mode == Mode::Standalone {
        return Sites::default();
    }
    Sites { shared: shared(resolved, &homes), crowded: crowded(resolved, probed, &homes) }
}

fn home<'a>((pod, member): (&'a Pod, &'a plan::Member)) -> Option<(Pod, &'a str)> {
    match &member.seen {
        Seen::Node(_) => Some((*pod, member.site.name()?)),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
    }
}

/// Two members on one node break what was required; all of them there are lost together, which nobody prefers.
fn shared(resolved: &Resolved, homes: &BTreeMap<Pod, &str>) -> Vec<Shared> {
    let too_many = match resolved.placement.spread {
        Spread::Required => 2,
        Spread::Preferred | Spread::Off => usize::from(resolved.members).max(2),
    };
    let mut held: BTreeMap<(u16, &str), usize> = BTreeMap::new();
    for (pod, node) in homes.iter().filter(|(pod, _)| resolved.wants(**pod)) {
        let here = held.entry((pod.shard, node)).or_default();
        *here = here.saturating_add(1);
    }
    let held = held.into_iter().filter(|(_, here)| *here >= too_many);
    held.map(|((shard, node), here)| Shared { shard, node: node.to_owned(), here }).collect()
}

/// Without half of the primaries there is no majority that could elect others. One primary is no crowd: it could be nowhere better.
fn crowded(resolved: &Resolved, probed: &Probed, homes: &BTreeMap<Pod, &str>) -> Option<Crowded> {
    let primaries = primaries(resolved, probed);
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    for node in primaries.values().filter_map(|pod| homes.get(pod)) {
        let here = held.entry(node).or_default();
        *here = here.saturating_add(1);
    }
    let (of, most) = (primaries.len(), held.iter().max_by_key(|(node, here)| (**here, std::cmp::Reverse(**node)))?);
    let (node, here) = (String::from(*most.0), *most.1);
    (here > 1 && here.saturating_mul(2) >= of).then_some(Crowded { node, here, of })
}
