//! A volume that went back to a time when its member owned nothing. Pure.
//!
//! Was it a replica then, it would follow one that follows it: the shard would have no primary, and no order could make one, since none of them has lost
//! its primary. Was it a primary, its replicas would copy what lies here. So it counts as what others know it for, a primary whose volume is an older copy ([`older`]): the replica that has more takes over,
//! and then it follows that one.
//!
//! Replicas are restarted every day, and none of them may be held for a table that is late. The record of one has the configuration epoch of its
//! primary, and Redis syncs it before it tells anybody of its role. Whoever took its slots over did so under a later epoch than those who
//! have not heard of that know. So only a later epoch than the record's counts, of a line that owns slots still, by every table, and that has its address (else
//! the epoch may be another's). And somebody has to be there who may have more: where nobody is, nothing is better than what lies here. So those who vote
//! are heard first, for as long as they may still answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use resp::{Node, NodeId, SlotRange};

use super::{Facts, Owed, PEERS_LIMIT, Peer, Start, TAKEOVER_LIMIT, being_asked, have_gone, older, unheard, voters};
use crate::identity::{Identity, Role};

/// What becomes of a member that owns nothing by its record.
pub(super) fn decide(me: &Identity, facts: &Facts) -> Start {
    let owes = || being_asked(facts).or_else(|| older::decide(&as_primary(me), facts));
    let start = (!facts.owed.is_empty()).then(owes).flatten();
    start.or_else(|| listen(me, facts)).unwrap_or(Start::AsIs { why: "it owned no slot" })
}

/// Those who vote know whether it has owned slots since. One that is there and is late, as on a machine that stands still, is given longer than who is
/// not there. Who holds nothing can only copy.
fn listen(me: &Identity, facts: &Facts) -> Option<Start> {
    let limit = if facts.is_voter_late { TAKEOVER_LIMIT } else { PEERS_LIMIT };
    let (answered, known) = unheard(me, facts).filter(|_| facts.holds_data && facts.waited < limit)?;
    let limit = limit.as_secs();
    Some(Start::Listen {
        reason: format!(
            "{answered} of {known} primaries answer; they know whether it has owned slots since, and are waited for, but for {limit} s at most"
        ),
    })
}

/// Where those who vote may be that have said nothing (`unsaid`).
#[must_use]
pub fn late_voters(
    me: &Identity,
    peers: &BTreeMap<NodeId, Peer>,
    unsaid: &BTreeMap<NodeId, SocketAddr>,
) -> BTreeSet<SocketAddr> {
    let silent = voters(me).filter(|voter| !peers.contains_key(&voter.id));
    silent.filter_map(|voter| unsaid.get(&voter.id)).copied().collect()
}

/// The latest that others know of it as a primary, by this look or an earlier one, and what it owned then. `None`: nothing that its record does not
/// know, or others have all of that since.
pub(super) fn latest(me: &Identity, facts: &Facts) -> Option<(u64, Vec<SlotRange>)> {
    let is_led = |line: &&Node| line.id == me.id && line.flags.primary && !line.slots.is_empty();
    let is_later = |line: &&Node| line.config_epoch > me.config_epoch && !line.flags.no_address;
    let told = facts.peers.values().flat_map(|peer| &peer.table).filter(|line| is_led(line) && is_later(line));
    let told = told.map(|line| (line.config_epoch, line.slots.clone()));
    let before = facts.owed.epoch.map(|epoch| (epoch, facts.owed.slots.clone()));
    let (epoch, slots) = before.into_iter().chain(told).max_by_key(|(epoch, _)| *epoch)?;
    let has_gone = facts.peers.values().any(|peer| have_gone(&me.id, epoch, &slots, &peer.table));
    (!has_gone).then_some((epoch, slots))
}

/// Its record as it would be of that time: whom it followed owns nothing any more, and does not elect.
pub(super) fn as_primary(me: &Identity) -> Identity {
    let mut led = me.clone();
    if let Role::Replica(of) = &me.role {
        led.peers.iter_mut().filter(|peer| peer.id == *of).for_each(|peer| peer.slots.clear());
    }
    led
}

/// What is said of a former replica; `None`: it was none.
pub(super) fn because(me: &Identity, owed: &Owed) -> Option<String> {
    let Role::Replica(of) = &me.role else { return None };
    let slots: usize = owed.slots.iter().map(SlotRange::len).sum();
    Some(format!(
        "its volume is an older copy: it says that this member is a replica of {of}, at configuration epoch {}, and others know it at {} as the \
         primary of {slots} slots. Started so, it and its replica would follow each other",
        me.config_epoch,
        owed.epoch.unwrap_or_default()
    ))
}
