//! A primary that was given up for good and comes back with its volume: its slots were given to somebody who began without its data. Pure.
//!
//! Redis would make it a replica of that one, or have it give up its slots, and what lies here would be thrown away. What shows it is the
//! count of beats, which goes on from a primary to each replica that takes over: an owner whose count is lower than the volume's began anew.

use resp::NodeId;
use types::agent::Beat;

use super::{Facts, Peer, told_replicas};
use crate::identity::Identity;

/// How many beats a whole copy may not have noted yet: it asks for them as often as they are counted, and an answer may be lost.
const NOTED_LATE: u64 = 6;

/// Why what lies here may be nowhere else; `None`: nothing shows that.
pub(super) fn why(me: &Identity, facts: &Facts) -> Option<String> {
    let own = heirless(me, facts)?;
    let began_anew = |serves: &Beat| serves.count.saturating_add(NOTED_LATE) < own.count;
    let (owner, serves) = owners(me, facts).find(|(_, serves)| began_anew(serves))?;
    Some(format!(
        "it was given up, and its slots went to {owner}, which began without its data: that one says beat {} where this volume has \
         come to {}. What lies here may be nowhere else; it is set aside and kept when this member is released to start blank",
        serves.count, own.count
    ))
}

/// Whether that cannot be told before its slots' owners say how far they have come.
pub(super) fn is_unclear(me: &Identity, facts: &Facts) -> bool {
    heirless(me, facts).is_some() && owners(me, facts).next().is_none()
}

/// How far the volume has come, if nobody knows of a replica of this member. Where there is one there was an heir: what became of its slots
/// after that is no matter of its own.
fn heirless(me: &Identity, facts: &Facts) -> Option<Beat> {
    // Only where every write is kept replicas note how far their primary had come.
    let own = facts.beat.filter(|_| facts.append_only && facts.holds_data)?;
    let is_known = |id: &NodeId| facts.peers.values().any(|peer| peer.table.iter().any(|node| node.id == *id));
    let is_left = told_replicas(me, facts).next().is_some() || me.replicas().any(|replica| is_known(&replica.id));
    (!is_left).then_some(own)
}

/// Who owns slots of mine, and how far they have come.
fn owners<'a>(me: &Identity, facts: &'a Facts) -> impl Iterator<Item = (&'a NodeId, Beat)> {
    facts.peers.iter().filter(|(_, peer)| owns_some(me, peer)).filter_map(|(id, peer)| Some((id, peer.serves?)))
}

/// It owns slots of mine, by its own word and a later decision.
fn owns_some(me: &Identity, peer: &Peer) -> bool {
    let line = peer.myself().filter(|line| line.config_epoch > me.config_epoch);
    line.is_some_and(|line| me.slots.iter().any(|range| (range.first..=range.last).any(|slot| line.owns(slot))))
}
