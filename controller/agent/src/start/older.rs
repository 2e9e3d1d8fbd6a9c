//! A volume that went back: a snapshot was restored to its claim, a storage system lost its last hours. Pure.
//!
//! Everything on it agrees with itself; others know later things of this member. Two show it: a configuration epoch that they know and its
//! record has not heard of (Redis syncs its record before it tells anybody of a new one), and a beat that a replica has noted and the volume has
//! not come to (the agent syncs it before it tells anybody). Redis would let its replicas copy the older data. That is never right while
//! they have more, so what is not known is waited for, without a limit, and what was seen once counts until it is disproved.

use std::{cmp::Reverse, collections::BTreeMap};

use resp::{Node, NodeId, SlotRange};
use types::agent::Beat;

use super::{Facts, Peer, RESTART, Start, Votes, ask, led, may_take_over, quorum, told_replicas, voters, wait_or_hold};
use crate::identity::{Identity, Verdict};

/// What this process has seen of others having more than the volume: it outlasts the looks in which the witness is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// The latest configuration epoch at which others knew this member as a primary, if its own record has not come to it.
    pub epoch: Option<u64>,
    /// What it owned then, where its own record says that it owned nothing.
    pub slots: Vec<SlotRange>,
    /// Replicas that have more or may have, and the beat that they have noted.
    pub replicas: BTreeMap<NodeId, Option<Beat>>,
}

impl Owed {
    /// Whether nobody may have more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }
}

/// What is owed after one more look. `facts.owed` is what was before it.
#[must_use]
pub fn remember(facts: &Facts) -> Owed {
    let Verdict::Intact(me) = &facts.verdict else { return Owed::default() };
    // Of a node that runs, others have ever more than was read of its volume a moment ago.
    if !facts.holds_data || facts.double.is_some() {
        return Owed::default();
    }
    let before = facts.owed.clone();
    if me.owned_slots() {
        return owing(me, facts, Owed { epoch: before.epoch.max(later_epoch(me, facts)), ..before });
    }
    let Some((epoch, slots)) = led::latest(me, facts) else { return Owed::default() };
    owing(&led::as_primary(me), facts, Owed { epoch: Some(epoch), slots, ..before })
}

fn owing(me: &Identity, facts: &Facts, mut owed: Owed) -> Owed {
    for (replica, beat) in &facts.copies {
        if facts.beat.is_some_and(|own| own < *beat) {
            let noted = owed.replicas.entry(replica.clone()).or_default();
            *noted = (*noted).max(Some(*beat));
        }
    }
    if owed.epoch.is_some() {
        for replica in told_replicas(me, &facts.peers) {
            owed.replicas.entry(replica.id.clone()).or_insert_with(|| facts.copies.get(&replica.id).copied());
        }
    }
    owed.replicas.retain(|replica, _| !is_settled(me, facts, replica));
    owed
}

/// Whether a replica is known to have no more than the volume, or to be gone for good.
fn is_settled(me: &Identity, facts: &Facts, replica: &NodeId) -> bool {
    let noted = facts.copies.get(replica);
    let Some(peer) = facts.peers.get(replica) else {
        let answered = voters(me).filter(|voter| facts.peers.contains_key(&voter.id)).count();
        let is_told = facts.peers.values().any(|peer| peer.table.iter().any(|node| node.id == *replica));
        return noted.is_none() && !is_told && answered >= quorum(me);
    };
    let is_ready = !peer.syncing && !peer.loading;
    let has_less = facts.beat.zip(noted).is_some_and(|(own, noted)| *noted <= own) && !was_fed_last(facts, peer);
    is_ready && (!peer.replicates(&me.id) || !peer.has_whole_copy() || has_less)
}

/// What becomes of it. `None`: nothing shows that it went back, or that anybody has more than it.
pub(super) fn decide(me: &Identity, facts: &Facts) -> Option<Start> {
    if facts.owed.is_empty() {
        return None;
    }
    let why = because(me, facts);
    let mut all = told_replicas(me, &facts.peers).map(|replica| &replica.id).chain(facts.owed.replicas.keys());
    if let Some(replica) = all.find(|replica| !facts.peers.contains_key(replica)) {
        let what = if facts.copies.contains_key(replica) {
            "whose Redis is not ready, has more"
        } else {
            "which does not answer, may have more"
        };
        return Some(wait_or_hold(facts, format!("{why}. Replica {replica}, {what}{}", way_out(me, facts, replica))));
    }
    let owed = facts.owed.replicas.iter().filter_map(|(id, beat)| Some((id, beat, facts.peers.get(id)?)));
    let (replica, _, peer) = owed.max_by_key(|(id, beat, peer)| (*beat, peer.offset, Reverse(*id)))?;
    if !peer.has_whole_copy() {
        return Some(wait_or_hold(facts, format!("{why}. Replica {replica}, whose Redis is not ready, has more")));
    }
    if !was_fed_last(facts, peer) {
        let reason = format!(
            "{why}. Replica {replica} holds {} keys, and nobody can tell whether it had everything when this member died. To go on \
             with what it has: `failover` with mode Force and acceptDataLoss",
            peer.keys
        );
        return Some(wait_or_hold(facts, reason));
    }
    let Votes { known, quorum } = match may_take_over(me, facts, replica) {
        Ok(how) => return Some(ask(replica, peer, how)),
        Err(votes) => votes,
    };
    let whom =
        format!("Replica {replica} is to take over; {known} primaries that know it answer where {quorum} are needed");
    Some(wait_or_hold(facts, format!("{why}. {whom}")))
}

/// What a person does where nobody is left who could say that the replica is gone for good: other primaries, who would forget it.
fn way_out(me: &Identity, facts: &Facts, replica: &NodeId) -> &'static str {
    let is_silent = !facts.copies.contains_key(replica);
    if is_silent && voters(me).next().is_none() {
        ". Bring it back. If it is gone for good, with its volume, delete the pod of this member: the next one asks those who answer then, \
         and if nobody has more it goes on with what lies here"
    } else {
        ""
    }
}

/// The configuration epoch at which others know this member as a primary, if it is later than any that its own record has heard of. Its own epoch may be
/// lower by right: Redis 7.2 lowers it where its former primary becomes its replica before it has heard of the election (`clusterProcessPacket`, "role
/// switch"). But whoever takes an epoch has heard of it, and both are written together.
fn later_epoch(me: &Identity, facts: &Facts) -> Option<u64> {
    let told = facts.peers.values().flat_map(|peer| peer.table.iter());
    // Where every replica has told how far its copy had come, their beats tell whether the volume went back, and no epoch is needed that may be another's.
    let is_told =
        facts.beat.is_some() && told_replicas(me, &facts.peers).all(|replica| facts.copies.contains_key(&replica.id));
    let mine = told.filter(|node| node.id == me.id && node.flags.primary && !(is_told && node.flags.no_address));
    mine.map(|node| node.config_epoch).max().filter(|epoch| *epoch > me.current_epoch)
}

/// The line of a node at whose address another one answers by now takes the epoch of that one, and loses its address (`getNodeFromLinkAndMsg`, Redis 7.0
/// and later). A primary's own epoch is no other primary's (a replica is listed under that of its primary). Who has no address itself may be
/// the one that has taken it.
pub(super) fn may_be_borrowed(line: &Node, facts: &Facts) -> bool {
    let mut others = facts.peers.values().flat_map(|peer| peer.table.iter()).filter(|other| other.id != line.id);
    let is_lender =
        |other: &Node| other.flags.primary && !other.flags.no_address && other.config_epoch == line.config_epoch;
    line.flags.no_address && others.any(is_lender)
}

/// Its link was there until this process died. Only then it has what was acknowledged last, and may be asked without a person's word.
pub(super) fn was_fed_last(facts: &Facts, peer: &Peer) -> bool {
    peer.was_in_sync() && peer.behind_for() <= facts.began.saturating_add(RESTART)
}

fn because(me: &Identity, facts: &Facts) -> String {
    if let Some(why) = led::because(me, &facts.owed) {
        return why;
    }
    let further = facts.owed.replicas.iter().filter_map(|(id, beat)| Some((beat.as_ref()?, id)));
    let further = further.max().filter(|(beat, _)| facts.beat.is_some_and(|own| own < **beat));
    match (further, facts.owed.epoch) {
        (Some((beat, replica)), _) => {
            let own = facts.beat.unwrap_or_default();
            format!(
                "its volume is an older copy: it says beat {} of configuration epoch {}, and replica {replica} had a whole copy at beat \
                 {} of epoch {}",
                own.count, own.epoch, beat.count, beat.epoch
            )
        }
        (None, epoch) => format!(
            "its volume is an older copy: it says configuration epoch {}, and others know this member at {}",
            me.current_epoch,
            epoch.unwrap_or_default()
        ),
    }
}
