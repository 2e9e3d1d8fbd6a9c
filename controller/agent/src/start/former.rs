//! In whose place this member was elected. Pure.
//!
//! A primary that stands still has all that it had when it wakes up, and becomes a replica of whoever was elected in its place. Where that one has ended
//! meanwhile and has less, it would be the end of what the former primary has. So that one may have a copy, and is none of those who replicate this
//! member: it neither was elected in its place nor is its heir.

use std::{cmp::Reverse, time::Duration};

use resp::{Node, NodeId};
use types::agent::Beat;

use super::{Facts, Peer, RESTART, answered_voters, voters};
use crate::{
    alive::Alive,
    identity::{Identity, Verdict},
};

/// One that may have more than lies here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former<'a> {
    pub(super) id: &'a NodeId,
    /// Why nobody knows what it has, as the end of a clause.
    why: &'static str,
}

impl Former<'_> {
    /// As the subject of a clause.
    pub(super) fn told(self) -> String {
        format!("node {}, in whose place it was elected and which {},", self.id, self.why)
    }
}

/// In whose place it was elected by its record, where it was killed before its agent could note that: who owned its slots before owns none by it, and
/// has not followed it yet. Of several one that counts as failed, and then the latest owner. What was noted since it was elected (`beat`) counts more.
#[must_use]
pub fn recorded(me: &Identity, beat: Option<Beat>) -> Option<NodeId> {
    let was_noted = beat.is_some_and(|beat| beat.epoch >= me.config_epoch);
    if was_noted || !me.owned_slots() {
        return None;
    }
    let former = me.peers.iter().filter(|peer| peer.flags.primary && peer.slots.is_empty());
    let latest = former.max_by_key(|peer| (peer.flags.failed, peer.config_epoch, Reverse(&peer.id)));
    latest.map(|peer| peer.id.clone())
}

/// Whether it has led since its agent noted anything for the last time, which is once a second: then what was noted is of before.
#[must_use]
pub fn has_led_unnoted(me: &Identity, noted: Option<&Alive>) -> bool {
    me.owned_slots() && noted.is_none_or(|noted| noted.copy_of.is_some() || noted.beat.epoch < me.config_epoch)
}

/// What it means for a snapshot that such a member has: it served since. And of the replicas nobody's agent can have seen a copy to be whole yet, under a
/// replication ID that was not noted; a link that lasted until the member's end has brought what the replica lacked, or was bringing it.
pub fn count_unnoted_lead(facts: &mut Facts) {
    let Facts { verdict: Verdict::Intact(me), peers, stream, began, .. } = facts else { return };
    if !facts.has_led_unnoted || !facts.holds_data || facts.has_log {
        return;
    }
    facts.served_since = true;
    let until = began.saturating_add(RESTART);
    let had_a_link = |peer: &Peer| peer.link_down_for.is_none_or(|down| down <= until);
    for peer in peers.values_mut().filter(|peer| peer.replicates(&me.id) && had_a_link(peer)) {
        if peer.stream != *stream {
            peer.current_ago = peer.current_ago.filter(|ago| *ago < Duration::MAX);
        }
    }
}

/// Whether there is one.
pub(super) fn unknown<'a>(me: &Identity, facts: &'a Facts) -> Option<Former<'a>> {
    let noted = facts.former.as_ref().and_then(|former| open(me, facts, former));
    noted.or_else(|| recorded_unknown(me, facts))
}

/// Whether there is one by the record alone, which may be another shard's primary: of its first slots, or given some since.
pub(super) fn recorded_unknown<'a>(me: &Identity, facts: &'a Facts) -> Option<Former<'a>> {
    let former = facts.recorded_former.as_ref()?;
    let line = facts.peers.get(former).and_then(Peer::myself);
    // One that wakes up claims what it had, and more where a move to it was under way.
    let serves_others = line.is_some_and(|line| {
        let mut mine = me.slots.iter().flat_map(|range| range.first..=range.last);
        if line.slots.is_empty() { !line.importing.is_empty() } else { !mine.any(|slot| line.owns(slot)) }
    });
    open(me, facts, former).filter(|_| !serves_others)
}

fn open<'a>(me: &Identity, facts: &'a Facts, id: &'a NodeId) -> Option<Former<'a>> {
    if is_forgotten(me, facts, id) {
        return None;
    }
    let why = match facts.peers.get(id) {
        None => "does not answer",
        Some(peer) if peer.loading => "is loading what it has",
        // Whoever follows counts by what it has as a replica.
        Some(peer) => (peer.keys > 0 && peer.follows_nobody()).then_some("takes itself for a primary")?,
    };
    Some(Former { id, why })
}

/// It has heard of the election, and Redis has left it a primary without any of these slots: it will not follow by itself, however long it is waited for.
pub(super) fn has_given_up(me: &Identity, former: &Peer) -> bool {
    let mine = || me.slots.iter().flat_map(|range| range.first..=range.last);
    let gives = |line: &Node| line.config_epoch >= me.config_epoch && mine().all(|slot| line.owns(slot));
    let keeps = |line: &Node| mine().any(|slot| line.owns(slot));
    me.owned_slots()
        && former.table.iter().any(|line| line.id == me.id && gives(line))
        && !former.myself().is_some_and(keeps)
}

/// Most of those who vote answer, and none knows it any more.
fn is_forgotten(me: &Identity, facts: &Facts, former: &NodeId) -> bool {
    let is_known = facts.peers.values().flat_map(|peer| &peer.table).any(|node| node.id == *former);
    !is_known && !facts.peers.contains_key(former) && answered_voters(me, facts) > voters(me).count() / 2
}
