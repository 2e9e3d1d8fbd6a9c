//! A primary that was given up for good and comes back with its volume: its slots were given to somebody who began without its data. Pure.
//!
//! Redis would make it a replica of that one, or have it give up its slots, and what lies here would be thrown away. Nobody can tell by the
//! present owner who began with what: it may have been in service for long. What tells is that there was no heir. Slots go from a dead primary
//! to a replica of it, which the others still know, or to somebody who has nothing of it.

use super::{Facts, heir, moved, told_replicas};
use crate::identity::{Identity, Verdict};

/// Whether all its slots have other owners, and nobody knows of a replica that could have taken them over with what lies here: seen in this
/// look, or in an earlier one and not disproved since. Where a replica is gone for good, too, it counts as given up as well: what lies here is
/// then set aside for nothing, and nothing is lost.
pub(super) fn is_given_up(facts: &Facts) -> bool {
    let Verdict::Intact(me) = &facts.verdict else { return false };
    let shows = || facts.peers.values().any(|peer| moved(me, &peer.table));
    me.owned_slots() && facts.holds_data && !has_heir(me, facts) && (facts.given_up || shows())
}

/// What is said of it.
pub(super) const WHY: &str = "all its slots have other owners, and nobody knows of a replica that took over from it: what lies here may be nowhere \
    else. It is set aside and kept when this member is released to start blank";

/// Whether a replica of this member is known to the others: what became of its slots after that is no matter of its own.
fn has_heir(me: &Identity, facts: &Facts) -> bool {
    let is_known = |id: &resp::NodeId| facts.peers.values().any(|peer| peer.table.iter().any(|node| node.id == *id));
    heir(me, facts).is_some()
        || told_replicas(me, facts).next().is_some()
        || me.replicas().any(|replica| is_known(&replica.id))
}
