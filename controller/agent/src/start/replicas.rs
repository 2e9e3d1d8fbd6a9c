//! Who replicates this member, or did when it died. Pure.
//!
//! Its own record may be of before: a node tells by and by, with one of its pings, that it has become a replica, and copies at once. And others'
//! tables are as late. So whoever says himself that he follows counts for as long as he does not say that he follows another one: also when he is silent,
//! and when he leads.

use std::collections::{BTreeMap, BTreeSet};

use resp::{Node, NodeId};

use super::{Facts, Peer};
use crate::identity::{Identity, Verdict};

/// Who has shown to replicate this member, by this look or an earlier one and not disproved since. `facts.followers` is what was before it.
#[must_use]
pub fn followers(facts: &Facts) -> BTreeSet<NodeId> {
    let Verdict::Intact(me) = &facts.verdict else { return BTreeSet::new() };
    let found = facts.peers.iter().filter(|(_, peer)| peer.replicates(&me.id)).map(|(id, _)| id);
    let follows_another =
        |peer: &Peer| peer.myself().and_then(|line| line.primary.as_ref()).is_some_and(|of| *of != me.id);
    let is_open = |id: &&NodeId| !facts.peers.get(*id).is_some_and(follows_another);
    found.chain(facts.followers.iter().filter(is_open)).cloned().collect()
}

/// Its replicas by its record and by their own words.
pub(super) fn known_replicas<'a>(me: &'a Identity, followers: &'a BTreeSet<NodeId>) -> BTreeSet<&'a NodeId> {
    me.replicas().map(|replica| &replica.id).chain(followers).collect()
}

/// Its replicas by the tables of others: an older record may name such as are gone for good.
pub(super) fn told_replicas<'a>(me: &'a Identity, peers: &'a BTreeMap<NodeId, Peer>) -> impl Iterator<Item = &'a Node> {
    let told = peers.values().flat_map(|peer| peer.table.iter());
    told.filter(|node| node.primary.as_ref() == Some(&me.id))
}
