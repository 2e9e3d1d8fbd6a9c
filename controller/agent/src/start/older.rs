//! A volume that went back: a snapshot was restored to its claim, a storage system lost its last hours. Pure.
//!
//! Everything on it agrees with itself; others know later things of this member. Two show it: a configuration epoch that they know and its
//! record does not (Redis syncs its record before it tells anybody of a new one), and a replica that was fed later than the volume was in
//! service. Redis would let its replicas copy the older data. That is never right while they have more, so what is not known is waited
//! for, without a limit.

use std::time::Duration;

use resp::NodeId;

use super::{Facts, Peer, Start, is_current, quorum, successor, told_replicas, votes, wait_or_hold};
use crate::identity::{Identity, Verdict};

/// A replica that was fed this much later than the volume says it was in service was fed from another one. A member says so every
/// 10 s while its Redis answers, and one that does not answer is ended after 60 s.
const OUTLIVED: Duration = Duration::from_secs(120);

/// Whether it was a primary, and others know later things of it than its volume does: only they may say what its shard holds.
#[must_use]
pub fn shows_older_copy(facts: &Facts) -> bool {
    let Verdict::Intact(me) = &facts.verdict else { return false };
    let outlived = |peer: &Peer| peer.replicates(&me.id) && peer.has_whole_copy() && has_outlived(facts, peer);
    facts.holds_data && me.owned_slots() && (later_epoch(me, facts).is_some() || facts.peers.values().any(outlived))
}

/// What becomes of it. `None`: nothing shows that it went back, or that anybody has more than it.
pub(super) fn decide(me: &Identity, facts: &Facts) -> Option<Start> {
    let epoch = later_epoch(me, facts);
    let has_more = |peer: &Peer| has_outlived(facts, peer) || epoch.is_some() && is_current(facts, peer);
    if let Some((replica, peer)) = successor(me, facts, has_more) {
        let (votes, quorum) = (votes(me, facts, replica), quorum(me));
        if votes >= quorum {
            return Some(Start::AskFailover { replica: replica.clone(), address: peer.address });
        }
        let why = epoch.map_or_else(|| outlived_because(facts, replica, peer), |epoch| epoch_because(me, epoch));
        return Some(wait_or_hold(
            facts,
            format!(
                "{why}. Replica {replica} is to take over; {votes} primaries that know it answer where {quorum} are needed"
            ),
        ));
    }
    let why = epoch_because(me, epoch?);
    let untold = |peer: &Peer| peer.whole_ago().is_none();
    if let Some((replica, peer)) = successor(me, facts, untold) {
        let keys = peer.keys;
        let reason = format!("{why}. Replica {replica} holds {keys} keys, and nobody can tell how old its copy is");
        return Some(wait_or_hold(facts, reason));
    }
    let silent = told_replicas(me, facts).find(|replica| !facts.peers.contains_key(&replica.id))?;
    Some(wait_or_hold(facts, format!("{why}. Replica {}, which does not answer, may have more", silent.id)))
}

/// The configuration epoch at which others know this member as a primary, if it is later than what its own record says.
fn later_epoch(me: &Identity, facts: &Facts) -> Option<u64> {
    let told = facts.peers.values().flat_map(|peer| peer.table.iter());
    let mine = told.filter(|node| node.id == me.id && node.flags.primary).map(|node| node.config_epoch);
    mine.max().filter(|epoch| *epoch > me.config_epoch)
}

/// Whether it was fed by this member when, as the volume says, that was not in service any more.
fn has_outlived(facts: &Facts, peer: &Peer) -> bool {
    let [alive, whole] = [facts.alive, peer.whole_ago()];
    alive.zip(whole).is_some_and(|(alive, whole)| whole.saturating_add(OUTLIVED) < alive)
}

fn outlived_because(facts: &Facts, replica: &NodeId, peer: &Peer) -> String {
    let seconds = |ago: Option<Duration>| ago.unwrap_or_default().as_secs();
    let (alive, whole) = (seconds(facts.alive), seconds(peer.whole_ago()));
    format!(
        "its volume is an older copy: it was last in service {alive} s ago, and replica {replica} had a whole copy {whole} s ago"
    )
}

fn epoch_because(me: &Identity, epoch: u64) -> String {
    let own = me.config_epoch;
    format!("its volume is an older copy: it says configuration epoch {own}, and others know this member at {epoch}")
}
