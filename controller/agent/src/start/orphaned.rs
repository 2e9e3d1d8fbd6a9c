//! A primary that was given up for good and comes back with its volume: its slots were given to somebody who began without its data. Pure.
//!
//! Redis would make it a replica of that one, or have it give up its slots, and what lies here would be thrown away. Nobody can tell by the
//! present owner who began with what: it may have been in service for long. What tells is that there was no heir. Slots go from a dead primary
//! to a replica of it, which the others still know, or to somebody who has nothing of it.

use resp::{Node, NodeId};

use super::older::may_be_borrowed;
use super::{Facts, heir, known_replicas, moved, told_replicas};
use crate::identity::{Identity, Verdict};

/// Whether all its slots have other owners, and nobody knows of a replica that could have taken them over with what lies here: seen in this
/// look, or in an earlier one and not disproved since. Where a replica is gone for good, too, it counts as given up as well: what lies here is
/// then set aside for nothing, and nothing is lost.
#[must_use]
pub fn is_given_up(facts: &Facts) -> bool {
    let Verdict::Intact(me) = &facts.verdict else { return false };
    let shows = || facts.peers.values().any(|peer| moved(me, &peer.table));
    let is_superseded = || has_heir(me, facts) || has_gone_on(me, facts);
    let is_dead = facts.double.is_none();
    is_dead && me.owned_slots() && (facts.holds_data || facts.lags) && !is_superseded() && (facts.given_up || shows())
}

/// What is said of it.
pub(super) const WHY: &str = "all its slots have other owners, and nobody knows of a replica that took over from it: what lies here may be nowhere \
    else. It is set aside and kept when this member is released to start blank";

/// Whether a replica of this member took over, or one that could have is there: what became of its slots after that is no matter of its own.
/// Others may name one for long that is gone for good.
fn has_heir(me: &Identity, facts: &Facts) -> bool {
    let lines = || facts.peers.values().flat_map(|peer| peer.table.iter());
    let is_gone = |node: &Node| (node.flags.failed || node.flags.no_address) && node.slots.is_empty();
    let is_there = |id: &NodeId| facts.peers.contains_key(id) || lines().any(|node| node.id == *id && !is_gone(node));
    let mut told = told_replicas(me, &facts.peers).map(|replica| &replica.id);
    heir(me, facts).is_some() || told.any(is_there) || known_replicas(me, &facts.followers).into_iter().any(is_there)
}

/// Whether others know this member as an owner of other slots, by a later decision: its volume is an older copy, and what it had then went on.
fn has_gone_on(me: &Identity, facts: &Facts) -> bool {
    let mut lines = facts.peers.values().flat_map(|peer| peer.table.iter());
    let is_later = |node: &Node| node.config_epoch > me.current_epoch && !may_be_borrowed(node, facts);
    lines.any(|node| node.id == me.id && !node.slots.is_empty() && is_later(node))
}
