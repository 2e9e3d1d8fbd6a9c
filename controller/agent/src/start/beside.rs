//! A snapshot lies here, and a replica may have what was written since. Pure.
//!
//! Started over replicas that are ahead, the member would have them copy the snapshot. So who was seen to be ahead is waited for, also through
//! looks in which it, or who votes for it, is silent: until it is elected, or until no election is likely any more. An append-only file needs no
//! such wait: it has what was acknowledged. Who is ahead the replication offsets say, in the head of the snapshot and there, where both are of one
//! history ([`crate::origin`]), or that the replica is of the one under which the member served last ([`crate::alive`]); else the age of the snapshot
//! and of the link. Of a replica that has neither nobody knows.

use std::{cmp::Ordering, collections::BTreeSet, time::Duration};

use resp::NodeId;

use super::{
    Facts, PEERS_LIMIT, Peer, RESTART, SLACK, Start, TAKEOVER_LIMIT, Votes, ask, former, is_current, is_held_back,
    may_take_over, older, successor, unknown_replica, without_heir,
};
use crate::identity::{Identity, Verdict};

/// How long an election is waited for, at least and at most.
const LIMITS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];
/// Between them: a replica stands again four node timeouts after an election that it has lost, so these are three elections.
const TIMEOUTS: u32 = 12;
/// Of a replica whose data is of a history that nothing here names.
const STRANGE: &str = "cannot be compared with it";

/// How long an election is waited for.
pub(super) fn limit(facts: &Facts) -> Duration {
    let [least, most] = LIMITS;
    facts.node_timeout.saturating_mul(TIMEOUTS).clamp(least, most)
}

/// The replicas that are ahead of a snapshot here, by this look or an earlier one and not disproved since. `facts.ahead` is what was before it.
#[must_use]
pub fn ahead(facts: &Facts) -> BTreeSet<NodeId> {
    let Verdict::Intact(me) = &facts.verdict else { return BTreeSet::new() };
    // Of a node that runs, others have ever more than was read of its volume a moment ago.
    if facts.has_log || !facts.holds_data || !me.led() || facts.double.is_some() {
        return BTreeSet::new();
    }
    let found = facts.peers.iter().filter(|(_, peer)| is_ahead(me, facts, peer)).map(|(id, _)| id);
    // One that is silent or not ready may have everything still.
    let is_open = |id: &&NodeId| facts.peers.get(*id).is_none_or(|peer| peer.syncing || peer.loading);
    found.chain(facts.ahead.iter().filter(is_open)).cloned().collect()
}

fn is_ahead(me: &Identity, facts: &Facts, peer: &Peer) -> bool {
    peer.replicates(&me.id) && peer.has_whole_copy() && is_current(facts, peer)
}

/// What becomes of the member.
pub(super) fn decide(me: &Identity, facts: &Facts) -> Start {
    let found = candidate(me, facts);
    let silent = || facts.ahead.iter().find(|id| found.is_none_or(|(replica, _)| replica != *id));
    if (found.is_some() || silent().is_some()) && facts.waited >= limit(facts) {
        return last_resort(me, facts, found);
    }
    let Some((replica, peer)) = found else {
        return match silent() {
            Some(replica) => {
                let who = format!("replica {replica}, which is ahead of it, does not answer or is not ready");
                waits(facts, &who, limit(facts))
            }
            None => alone(me, facts),
        };
    };
    // One that was seen to be ahead has its time; of one that was never heard nobody knows.
    let seen = silent().filter(|id| !facts.peers.contains_key(*id));
    let seen = seen.map(|id| (format!("replica {id}, which does not answer,"), limit(facts)));
    let better = seen.or_else(|| unknown(me, facts).map(|who| (who, silence(facts))));
    if let Some((better, given)) = better.filter(|(_, given)| !is_in_time(facts, peer) && facts.waited < *given) {
        let given = given.as_secs();
        let had = match peer.behind_for() {
            // It was started since.
            Duration::MAX => format!("has {} bytes of the stream of writes", peer.offset),
            behind => format!("has had everything for the last time {} s ago", behind.as_secs()),
        };
        let who = format!(
            "replica {replica} {had} and is asked to take over after {given} s of waiting, as {better} may have more"
        );
        return waits(facts, &who, limit(facts));
    }
    match may_take_over(me, facts, replica) {
        Ok(how) => ask(replica, peer, how),
        Err(Votes { known, quorum }) => {
            let who = format!(
                "replica {replica} is ahead of it; {known} primaries that know it answer where {quorum} are needed to elect it"
            );
            waits(facts, &who, limit(facts))
        }
    }
}

/// How long a replica is waited for of which nobody knows: others need a node timeout to notice that this member has died, and one that is started as
/// well waits itself for those who vote.
fn silence(facts: &Facts) -> Duration {
    TAKEOVER_LIMIT.max(facts.node_timeout * 2 + RESTART) + PEERS_LIMIT
}

/// Who was waited for did not come. One that is ahead of the snapshot all the same, and was not the last to be asked, is asked now.
fn last_resort(me: &Identity, facts: &Facts, found: Option<(&NodeId, &Peer)>) -> Start {
    let is_new = |replica: &NodeId| facts.asked.as_ref().is_none_or(|asked| asked.replica != *replica);
    let asked = found.filter(|(replica, _)| is_new(replica)).and_then(|(replica, peer)| {
        let how = may_take_over(me, facts, replica).ok()?;
        Some(ask(replica, peer, how))
    });
    let silent = || facts.ahead.iter().next().map(|id| format!("replica {id}, which was ahead of it, did not answer"));
    let found = found.map(|(id, _)| format!("replica {id}, which was ahead of it, was not elected"));
    asked.unwrap_or_else(|| over(facts, &found.or_else(silent).unwrap_or_default()))
}

/// Who may be ahead for all that is known, and why nobody knows, as the subject of a clause.
fn unknown(me: &Identity, facts: &Facts) -> Option<String> {
    let replica = |id: &NodeId, why: &str| format!("replica {id}, which {why},");
    let open = unknown_replica(me, facts).map(|(id, why)| replica(id, why.now()));
    let former = || former::unknown(me, facts).map(|former| former.told());
    open.or_else(former).or_else(|| strange(me, facts).map(|id| replica(id, STRANGE)))
}

/// A replica that was started anew with data of a history that nothing here names, or whose copy of such a one nobody has seen to be whole, where the member
/// served after its snapshot.
fn strange<'a>(me: &Identity, facts: &'a Facts) -> Option<&'a NodeId> {
    let is_strange = |peer: &Peer| {
        let is_copy = peer.replicates(&me.id) && peer.has_whole_copy();
        is_copy && peer.is_of_unknown_age() && order(facts, peer).is_none()
    };
    facts.peers.iter().find(|(_, peer)| facts.served_since && is_strange(peer)).map(|(id, _)| id)
}

/// Nobody is known to be ahead. One of which nobody knows may be, unless what lies here was written at the member's very end.
fn alone(me: &Identity, facts: &Facts) -> Start {
    let start = without_heir(me, facts, silence(facts));
    if !matches!(start, Start::AsIs { .. }) {
        return start;
    }
    // Who was elected since has served, also where that was not noted.
    let noted = || former::unknown(me, facts).filter(|_| facts.served_since);
    if let Some(former) = noted().or_else(|| former::recorded_unknown(me, facts)) {
        let who = format!("{} may be ahead of it", former.told());
        return if facts.waited < silence(facts) { waits(facts, &who, silence(facts)) } else { over(facts, &who) };
    }
    if !facts.served_since {
        return start;
    }
    if let Some((replica, why)) = unknown_replica(me, facts) {
        return over(facts, &format!("replica {replica}, which may have been ahead of it, {}", why.before()));
    }
    match strange(me, facts) {
        Some(replica) if facts.waited < silence(facts) => {
            waits(facts, &format!("replica {replica}, which may be ahead of it, {STRANGE}"), silence(facts))
        }
        Some(replica) => over(facts, &format!("replica {replica}, which may have been ahead of it, {STRANGE}")),
        None => start,
    }
}

fn over(facts: &Facts, who: &str) -> Start {
    let age = facts.written.map_or("an unknown age".to_owned(), |age| format!("{} s ago", age.as_secs()));
    let waited = facts.waited.as_secs();
    Start::Over {
        lost: format!(
            "started with a snapshot of {age} after it had waited for {waited} s: {who}. What was written after that snapshot is lost"
        ),
    }
}

/// Who is to be asked. Where the histories of all are known, the one with most: of the member's last life, if there is one, since that goes on where
/// others ended. Else the one with most of the stream among those that were fed until the end, else among those that were fed last: of a copy that
/// was left behind the numbers may be of another history.
fn candidate<'a>(me: &Identity, facts: &'a Facts) -> Option<(&'a NodeId, &'a Peer)> {
    let copies = || facts.peers.values().filter(|peer| is_ahead(me, facts, peer));
    if copies().all(|peer| order(facts, peer).is_some()) {
        let is_latest = |peer: &Peer| facts.stream.is_some() && peer.stream == facts.stream;
        let latest = successor(me, facts, |peer| is_current(facts, peer) && is_latest(peer));
        return latest.or_else(|| successor(me, facts, |peer| is_current(facts, peer)));
    }
    let in_time = successor(me, facts, |peer| is_current(facts, peer) && is_in_time(facts, peer));
    in_time.or_else(|| {
        let freshest = copies().map(Peer::behind_for).min().unwrap_or_default();
        let is_fresh = |peer: &Peer| peer.behind_for() <= freshest.saturating_add(SLACK);
        successor(me, facts, |peer| is_current(facts, peer) && is_fresh(peer))
    })
}

/// Whether a peer has more than the snapshot here, as much, or less, where both are of one history. One of the history under which
/// the member served after a snapshot of another was written has more: that history began with all that the snapshot has.
pub(super) fn order(facts: &Facts, peer: &Peer) -> Option<Ordering> {
    let here = facts.snapshot.as_ref().filter(|_| !facts.has_log && peer.offset > 0)?;
    let stream = peer.stream.as_ref()?;
    // Who is elected goes on under another ID with the numbers of before.
    let is_of_before = |(before, end): &(String, i64)| *before == here.stream && here.offset < *end;
    if *stream == here.stream || peer.went_on_from.as_ref().is_some_and(is_of_before) {
        return Some(peer.offset.cmp(&here.offset));
    }
    // What was noted before the snapshot was written may be of a life before its own.
    (facts.served_since && facts.stream.as_ref() == Some(stream)).then_some(Ordering::Greater)
}

/// It had everything until this member died, as far as is known, and no other copy has more.
fn is_in_time(facts: &Facts, peer: &Peer) -> bool {
    older::was_fed_last(facts, peer) && !is_held_back(peer)
}

fn waits(facts: &Facts, who: &str, limit: Duration) -> Start {
    let [age, waited, limit] = [facts.written.unwrap_or_default(), facts.waited, limit].map(|time| time.as_secs());
    Start::Wait {
        reason: format!(
            "a snapshot of {age} s ago lies here, and {who}. {waited} s of {limit} s are over: then this member starts with that snapshot, and \
             what was written since is lost"
        ),
    }
}
