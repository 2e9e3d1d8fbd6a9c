//! How redis-server may be started. Pure: what lies on disk and what peers say → one decision.
//!
//! These hazards are decided here (reliability.md A3, A4). A primary that lost its data set must not come back as a primary:
//! its replicas would copy the emptiness. A primary that crashed and has a replica in sync comes back faster and safer as a
//! replica: its agent is the only witness that the process is dead, so it asks that replica to take over. A member whose
//! nodes.conf is damaged must not come back as a stranger that claims slots. A primary whose volume went back to an older state must
//! not come back over replicas that have what it had since. A node that runs already is not started again. Nothing destructive follows from "unknown": a
//! peer that does not answer is neither dead nor empty.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use resp::{Node, NodeId, SlotRange};
use types::{
    agent::{Beat, ReleaseHow},
    cluster::Mode,
};

use crate::{
    identity::{Identity, Verdict},
    origin::Origin,
};

mod beside;
pub mod double;
mod first;
mod former;
mod led;
mod older;
mod orphaned;
mod replicas;
mod unknown;

pub use beside::ahead;
pub use double::Double;
pub use former::{count_unnoted_lead, has_led_unnoted, recorded as recorded_former};
pub use led::late_voters;
pub use older::{Owed, remember};
pub use orphaned::is_given_up;
pub use replicas::followers;
use replicas::{known_replicas, told_replicas};
use unknown::{Unknown, unknown_replica};

/// How long a member with data waits for peers before it starts as it is.
pub const PEERS_LIMIT: Duration = Duration::from_secs(3);
/// After this long `CLUSTER FAILOVER FORCE` has either worked or silently expired (performance.md T2).
pub const ASK_AGAIN: Duration = Duration::from_secs(6);
/// How long a member with data waits altogether: for the primaries to learn of the replica, and for it to take over. Beside a snapshot so long
/// for replicas that are silent, and longer for an election (`start::beside`).
pub const TAKEOVER_LIMIT: Duration = Duration::from_secs(12);
/// How long a container is usually down before its agent asks; after a longer time nobody can tell a fresh copy by its link alone.
const RESTART: Duration = Duration::from_secs(5);
/// Inaccuracy allowed between file times and Redis' seconds of a lost link.
const SLACK: Duration = Duration::from_secs(2);

/// A copy that has everything is known to have had it so long ago: its agent asks and looks once a second each, and a machine may be slow.
const LOOKS: Duration = Duration::from_secs(3);

/// Everything the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Cluster or Standalone.
    pub mode: Mode,
    /// Judgement of nodes.conf.
    pub verdict: Verdict,
    /// Whether a data set lies on disk that is what the member had.
    pub holds_data: bool,
    /// One lies there that lags behind that ([`crate::lag`]).
    pub lags: bool,
    /// Whose the volume is, as a clause, if it is another member's.
    pub foreign: Option<String>,
    /// Where this node runs already, if it does.
    pub double: Option<Double>,
    /// Where it may run for all that is known yet.
    pub unheard: Option<SocketAddr>,
    /// How long ago the data set was last written; `None`: there is none, or nobody knows.
    pub written: Option<Duration>,
    /// How far it had come, by what lies beside it; `None`: it does not say.
    pub beat: Option<Beat>,
    /// How far the copies of this member's data had come that lie on others' volumes, by their agents' words: also of those whose Redis
    /// does not answer, who are no peers.
    pub copies: BTreeMap<NodeId, Beat>,
    /// Who has shown, in this look or an earlier one, to have more.
    pub owed: Owed,
    /// Replicas that have shown, in this look or an earlier one, to be ahead of a snapshot that lies here ([`ahead`]).
    pub ahead: BTreeSet<NodeId>,
    /// An earlier look has shown that it was given up ([`is_given_up`]).
    pub given_up: bool,
    /// What lies here is an append-only file that has every write. Until the first one is written a snapshot is all that lies here, whatever
    /// the configuration says.
    pub has_log: bool,
    /// Of which history a snapshot is that a start would load, and how far it goes; `None`: it does not say.
    pub snapshot: Option<Origin>,
    /// The replication ID under which it served last as a primary, by what lies beside it; `None`: it does not say.
    pub stream: Option<String>,
    /// It was in service as a primary after that was written, as far as what lies beside it says.
    pub served_since: bool,
    /// The configuration keeps every write (append-only file): something must lie here once the member owned slots.
    pub keeps_each_write: bool,
    /// Peers that answered and proved to be who they are. Who is absent is unknown.
    pub peers: BTreeMap<NodeId, Peer>,
    /// One of those who vote is there and has said nothing in this look: its port is open, and it was too late, or its Redis loads or runs a script.
    /// Asked for a member that owned nothing alone.
    pub is_voter_late: bool,
    /// After how long a node that does not answer is given up.
    pub node_timeout: Duration,
    /// For how long others were waited for: what the machine stood still does not count.
    pub waited: Duration,
    /// How long ago the agent began to decide.
    pub began: Duration,
    /// The last request to take over.
    pub asked: Option<Asked>,
    /// Who was asked to take over without being elected.
    pub took_over: BTreeSet<NodeId>,
    /// Who has shown, in this look or an earlier one, to replicate this member ([`followers`]).
    pub followers: BTreeSet<NodeId>,
    /// In whose place it was elected, where that one had not followed it yet when it ended, nor anything been saved since: it may have more than lies here. Not
    /// one of those who replicate it, before it says so.
    pub former: Option<NodeId>,
    /// The same by its record, where nothing was noted ([`recorded_former`]).
    pub recorded_former: Option<NodeId>,
    /// It has led since its agent noted anything ([`has_led_unnoted`]).
    pub has_led_unnoted: bool,
    /// The controller's word, if it gave one.
    pub released: Option<ReleaseHow>,
}

/// A request to take over that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whom.
    pub replica: NodeId,
    /// How long ago.
    pub ago: Duration,
}

/// A peer that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it answered.
    pub address: SocketAddr,
    /// Its own table.
    pub table: Vec<Node>,
    /// Its replication offset as a replica; 0 if it says none that can be compared, or is a primary.
    pub offset: i64,
    /// The replication ID of that history.
    pub stream: Option<String>,
    /// That of the history which this one goes on, and the first byte that is not of it any more (`master_replid2`, `second_repl_offset`).
    pub went_on_from: Option<(String, i64)>,
    /// It receives a full copy just now.
    pub syncing: bool,
    /// It loads its data set.
    pub loading: bool,
    /// What lies on its volume lags behind its memory ([`crate::lag`]), by its agent's word.
    pub lags: bool,
    /// Its append-only file could not be written: as a primary it would take no writes.
    pub fails: bool,
    /// How long its link to its primary has been down, for ever if it never was up since the process started, or is not looked for; `None`: it is up,
    /// or it is no replica.
    pub link_down_for: Option<Duration>,
    /// From which address its primary has sent it something last, and how long ago at most; `None`: its link is down, or it is no replica.
    pub fed: Option<(SocketAddr, Duration)>,
    /// How long ago it was last known to have everything that its primary had, by its agent's word; for ever if it never was. `None`: its
    /// agent is of an earlier release and does not tell.
    pub current_ago: Option<Duration>,
    /// Keys it holds.
    pub keys: i64,
}

impl Peer {
    /// Its own line.
    #[must_use]
    pub fn myself(&self) -> Option<&Node> {
        self.table.iter().find(|node| node.flags.myself)
    }

    fn follows_nobody(&self) -> bool {
        self.myself().is_some_and(|node| node.primary.is_none())
    }

    fn replicates(&self, id: &NodeId) -> bool {
        self.myself().is_some_and(|node| node.primary.as_ref() == Some(id))
    }

    /// How old its copy is at least: Redis may show a link as lost only now that has brought nothing for a minute, or has not brought yet what
    /// was missed before.
    fn behind_for(&self) -> Duration {
        let told = self.current_ago.map(|ago| ago.saturating_sub(LOOKS)).unwrap_or_default();
        told.max(self.link_down_for.unwrap_or_default())
    }

    /// Nobody has seen its copy to be whole since it was started, or begun: how much it lacks is not known, and may be nothing.
    fn is_of_unknown_age(&self) -> bool {
        self.behind_for() >= Duration::MAX.saturating_sub(LOOKS)
    }

    /// Whether it has been in sync since it was started. Redis does not tell where the history began with its copy and nothing has been written since:
    /// such a replica says 0, as one does that was made a replica a moment ago. Its agent has compared it with its primary.
    fn was_in_sync(&self) -> bool {
        self.offset > 0 || self.current_ago.is_some_and(|ago| ago < Duration::MAX)
    }

    /// It has all that the other one has, as both are of one history, and more.
    fn is_further_than(&self, other: &Self) -> bool {
        self.is_of_its_history(other) && self.offset > other.offset
    }

    fn is_of_its_history(&self, other: &Self) -> bool {
        self.offset > 0 && other.offset > 0 && self.stream.is_some() && self.stream == other.stream
    }

    fn has_whole_copy(&self) -> bool {
        !self.syncing && !self.loading && (self.offset > 0 || self.keys > 0)
    }
}

/// By whose decision a replica of a dead primary takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// A majority of the primaries elects it (`CLUSTER FAILOVER FORCE`).
    Elected,
    /// Its own (`TAKEOVER`): of a cluster of one or two primaries a dead one leaves no majority, so nobody can elect another in its place; and Redis
    /// elects nobody in place of a primary without slots.
    ByItself,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the files as they are.
    AsIs {
        /// Why that is safe.
        why: &'static str,
    },
    /// With the files as they are, although others are ahead of them, or may be: they were waited for as long as is allowed. Or with nothing, where
    /// nobody has what is gone.
    Over {
        /// What that costs, as sentences of which the member is the subject.
        lost: String,
    },
    /// As a replica of the member that has taken over.
    Follow {
        /// Who that is.
        heir: NodeId,
    },
    /// As a blank node with a new identity.
    Blank {
        /// Files that are there are moved away first.
        quarantine: bool,
    },
    /// Send `CLUSTER FAILOVER` to this replica, then decide again.
    AskFailover {
        /// The replica.
        replica: NodeId,
        /// Where it answers.
        address: SocketAddr,
        /// By whose decision it takes over.
        how: Takeover,
    },
    /// Look again shortly; the wait is bounded.
    Wait {
        /// For what, as a sentence.
        reason: String,
    },
    /// The same, of a wait that ends soon, and after which it starts whoever answers: nobody else acts upon it, so nobody is told.
    Listen {
        /// For what, as a sentence.
        reason: String,
    },
    /// Not before the controller or a change among the peers says how.
    Hold {
        /// Why, as a sentence.
        reason: String,
    },
}

/// Decides how redis-server may be started now.
#[must_use]
pub fn decide_start(facts: &Facts) -> Start {
    if let Some(whose) = &facts.foreign {
        return match facts.released {
            // What lies there is moved away and kept.
            Some(ReleaseHow::Blank) => Start::Blank { quarantine: true },
            Some(ReleaseHow::AsIs) | None => Start::Hold { reason: whose.clone() },
        };
    }
    if facts.mode == Mode::Standalone {
        return Start::AsIs { why: "a single server has no identity to lose" };
    }
    // Whoever released it did not know that: its files may be the very ones that the other process writes.
    if let (Verdict::Intact(me), Some(double)) = (&facts.verdict, facts.double) {
        return Start::Hold { reason: double::because(me, double) };
    }
    if let (Verdict::Intact(_), Some(there)) = (&facts.verdict, facts.unheard) {
        return Start::Wait { reason: double::unheard(there) };
    }
    match (facts.released, &facts.verdict) {
        // Who spoke did not see it, and with another identity nobody could be elected in its place.
        (Some(ReleaseHow::Blank), Verdict::Intact(me)) if comes_back_empty(me, facts) && has_a_copy(me, facts) => {}
        (Some(ReleaseHow::Blank), _) => return Start::Blank { quarantine: true },
        // Who spoke knew less than this: replicas that have more would copy what lies here.
        (Some(ReleaseHow::AsIs), Verdict::Intact(_)) if !facts.owed.is_empty() => {}
        // And here: Redis would throw away what lies here.
        (Some(ReleaseHow::AsIs), Verdict::Intact(_)) if is_given_up(facts) => {}
        // And here: a primary without slots would stay one beside its heir.
        (Some(ReleaseHow::AsIs), Verdict::Intact(_)) if has_an_heir_it_never_hears_of(facts) => {}
        (Some(ReleaseHow::AsIs), Verdict::Intact(me)) if comes_back_empty(me, facts) => {
            // And else, since then: somebody answers who has a copy, or may.
            if !has_a_copy(me, facts) {
                return empty(me, facts, "the controller said so");
            }
        }
        (Some(ReleaseHow::AsIs), Verdict::Blank | Verdict::Intact(_)) => {
            return Start::AsIs { why: "the controller said so" };
        }
        // Redis would exit, or start as a stranger: the word cannot be followed, the reason below says why.
        (Some(ReleaseHow::AsIs), Verdict::Damaged { .. }) | (None, _) => {}
    }
    match &facts.verdict {
        Verdict::Blank if !facts.holds_data => Start::Blank { quarantine: false },
        Verdict::Blank => Start::Hold {
            reason: "the data directory holds a data set but no nodes.conf: Redis would take a new identity and every \
                     slot it finds keys for"
                .to_owned(),
        },
        // Nothing but a broken identity is lost; the shard's other members decide what becomes of its slots.
        Verdict::Damaged { .. } if !facts.holds_data => Start::Blank { quarantine: true },
        Verdict::Damaged { why } => Start::Hold { reason: format!("{why}, and a data set lies beside it") },
        Verdict::Intact(identity) if identity.led() => decide_leader(identity, facts),
        Verdict::Intact(identity) => led::decide(identity, facts),
    }
}

/// It led, nobody else has its slots by now, and nothing of what they held lies here.
fn comes_back_empty(me: &Identity, facts: &Facts) -> bool {
    me.led() && !facts.holds_data && !facts.peers.values().any(|peer| moved(me, &peer.table))
}

/// Somebody who answers has what it had, or is being asked.
fn has_a_copy(me: &Identity, facts: &Facts) -> bool {
    let may_follow =
        |former: former::Former<'_>| facts.peers.get(former.id).is_some_and(|peer| !former::has_given_up(me, peer));
    let former = || former::unknown(me, facts).is_some_and(may_follow);
    copies(me, facts).next().is_some() || copy_under_way(me, facts) || former()
}

/// Redis makes no replica of a primary without slots by itself.
#[must_use]
pub fn has_an_heir_it_never_hears_of(facts: &Facts) -> bool {
    matches!(&facts.verdict, Verdict::Intact(me) if me.led() && !me.owned_slots() && heir(me, facts).is_some())
}

/// The member was a primary with slots, or its first were on their way to it, and its process is dead.
fn decide_leader(me: &Identity, facts: &Facts) -> Start {
    if let Some(heir) = heir(me, facts) {
        return Start::Follow { heir: heir.clone() };
    }
    if is_given_up(facts) {
        return Start::Hold { reason: orphaned::WHY.to_owned() };
    }
    if let Some(heir) = silent_heir(me, facts).filter(|_| facts.waited < TAKEOVER_LIMIT) {
        return Start::Wait { reason: format!("its replica {heir} has taken over and is asked for its own word") };
    }
    if facts.peers.values().any(|peer| moved(me, &peer.table)) {
        return Start::AsIs { why: "its slots have other owners, Redis will give them up" };
    }
    if let Some(start) = being_asked(facts) {
        return start;
    }
    if !facts.holds_data {
        return without_data(me, facts);
    }
    let decide = if facts.has_log { with_log } else { beside::decide };
    older::decide(me, facts).unwrap_or_else(|| decide(me, facts))
}

/// Somebody was asked to take over a moment ago.
fn being_asked(facts: &Facts) -> Option<Start> {
    let asked = facts.asked.as_ref().filter(|asked| asked.ago < ASK_AGAIN)?;
    Some(Start::Wait {
        reason: format!(
            "replica {} was asked {} ms ago to take over; waiting until a peer shows that it has",
            asked.replica,
            asked.ago.as_millis()
        ),
    })
}

fn wait_or_hold(facts: &Facts, reason: String) -> Start {
    if facts.waited < PEERS_LIMIT { Start::Wait { reason } } else { Start::Hold { reason } }
}

/// Whether one peer's table gives every slot of mine to others, by a later decision than the one that gave them to me.
fn moved(me: &Identity, table: &[Node]) -> bool {
    me.owned_slots() && have_gone(&me.id, me.config_epoch, &me.slots, table)
}

/// Whether this replica of mine has taken over, by a line of it: it owns every slot of mine by a later decision, or leads where I owned none. What it
/// owns says nothing then: my first slot, and others after it, may have come to it since. Nor does a replica become a primary in another way with what
/// it has: it would have to be reset, or to copy another one first, and nobody has it do that who may be the only one that has something.
fn has_taken_over(me: &Identity, line: &Node) -> bool {
    if me.owned_slots() { moved(me, std::slice::from_ref(line)) } else { line.flags.primary }
}

/// As [`moved`], of slots that a node had at this epoch.
fn have_gone(id: &NodeId, epoch: u64, slots: &[SlotRange], table: &[Node]) -> bool {
    let later = |slot: u16| table.iter().any(|node| node.id != *id && node.owns(slot) && node.config_epoch > epoch);
    slots.iter().flat_map(|range| range.first..=range.last).all(later)
}

/// The replica that has taken over, by its own word.
///
/// Redis would make a replica of this member by itself only if its heir owned just those slots (`clusterUpdateSlotsConfigWith` compares
/// the numbers): one that has got more since, perhaps those that were on their way here, leaves it a primary without slots, and with the
/// keys that had arrived for ever.
fn heir<'a>(me: &'a Identity, facts: &'a Facts) -> Option<&'a NodeId> {
    let own_words = |id: &NodeId| {
        let peer = facts.peers.get(id);
        let line = peer.and_then(|peer| peer.myself().filter(|_| !peer.loading && !peer.syncing));
        line.is_some_and(|line| has_taken_over(me, line))
    };
    known_replicas(me, &facts.followers).into_iter().find(|id| own_words(id))
}

/// The replica that has taken over by another's word, and has not said so itself: it did not answer this look, or before it took over, or
/// is loading. Nothing waits for this member meanwhile.
fn silent_heir<'a>(me: &'a Identity, facts: &'a Facts) -> Option<&'a NodeId> {
    let of = |id: &NodeId, table: &[Node]| {
        let line = table.iter().find(|node| node.id == *id);
        line.is_some_and(|line| has_taken_over(me, line))
    };
    // Where nothing but the role says it, another's table may be of before it became a replica.
    let denies = |id: &NodeId| !me.owned_slots() && facts.peers.get(id).is_some_and(|peer| peer.replicates(&me.id));
    let told = |id: &NodeId| facts.peers.values().any(|peer| of(id, &peer.table));
    known_replicas(me, &facts.followers).into_iter().find(|id| !denies(id) && told(id))
}

/// Its replicas that hold a whole copy.
fn copies<'a>(me: &Identity, facts: &'a Facts) -> impl Iterator<Item = (&'a NodeId, &'a Peer)> {
    facts.peers.iter().filter(|(_, peer)| peer.replicates(&me.id) && peer.has_whole_copy())
}

/// The replica to ask: the one with most of the stream; of those with as much, one whose disk takes writes; ties go to the smaller ID.
fn successor<'a>(me: &Identity, facts: &'a Facts, fit: impl Fn(&Peer) -> bool) -> Option<(&'a NodeId, &'a Peer)> {
    copies(me, facts)
        .filter(|(_, peer)| fit(peer))
        .max_by(|(a_id, a), (b_id, b)| (a.offset, !a.fails, a.keys, b_id).cmp(&(b.offset, !b.fails, b.keys, a_id)))
}

fn with_log(me: &Identity, facts: &Facts) -> Start {
    if !me.owned_slots() {
        return Start::AsIs { why: "it owned no slot, and its append-only file has what it had" };
    }
    // A lost election is not repeated before four node timeouts have passed: waiting for the next would cost more.
    if facts.asked.is_some() || facts.waited >= TAKEOVER_LIMIT {
        return Start::AsIs { why: "no replica took over in time, and the data set is on disk" };
    }
    let found = successor(me, facts, |peer| is_current(facts, peer));
    match found {
        Some((replica, peer)) if votes(me, facts, replica) >= quorum(me) => ask(replica, peer, Takeover::Elected),
        // The primaries are there and will hear of the replica by gossip, within a ping or two.
        Some((replica, _)) if answered_voters(me, facts) >= quorum(me) => wait_for_votes(me, facts, replica),
        Some((replica, _)) if facts.waited < PEERS_LIMIT => wait_for_votes(me, facts, replica),
        Some(_) => Start::AsIs { why: "too few primaries answer to elect a replica, and the data set is on disk" },
        None => without_heir(me, facts, PEERS_LIMIT),
    }
}

/// Nobody who has everything answers. Replicas that are silent are waited for until `silent`.
fn without_heir(me: &Identity, facts: &Facts, silent: Duration) -> Start {
    let limit = silent.as_secs();
    let reason = if let Some((replica, why)) = unknown_replica(me, facts).filter(|_| facts.waited < silent) {
        match why {
            Unknown::Silent => {
                let (known, answered) = (known_replicas(me, &facts.followers).len(), answered_replicas(me, facts));
                format!(
                    "{answered} of {known} replicas answer; one in sync would be asked to take over, but for {limit} s at most"
                )
            }
            Unknown::Loads | Unknown::Receives => {
                format!("replica {replica} {}; it is waited for, but for {limit} s at most", why.now())
            }
        }
    } else if let Some((answered, known)) = unheard(me, facts).filter(|_| facts.waited < PEERS_LIMIT) {
        // Its slots may have other owners by now, and a replica that its record does not name may have more.
        return Start::Listen {
            reason: format!("{answered} of {known} primaries answer; they know what has become of its slots"),
        };
    } else {
        return Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    };
    Start::Wait { reason }
}

/// A replica that lost its link before the last write to disk lacks writes that the disk has. Where every write is on disk, one that its own
/// agent does not let be elected lacks some of them or may do so, be it the last second's; and what one has in memory alone a crash of it would
/// lose, and what lies here by then is a copy of that. A snapshot is compared by what it has of their common history, else by its age.
fn is_current(facts: &Facts, peer: &Peer) -> bool {
    // Of a snapshot of nobody knows when, only one that was fed until the end has more for certain.
    let has_more = beside::order(facts, peer).map(Ordering::is_gt);
    let is_fresh = has_more.unwrap_or_else(|| match facts.written {
        Some(written) => peer.behind_for() <= written.saturating_add(SLACK),
        None => !facts.holds_data || older::was_fed_last(facts, peer),
    });
    // Its link was back, and ended before all had come that it had missed.
    let lacks = |here: &Origin| {
        let goes_on = peer.went_on_from.as_ref().is_some_and(|(before, _)| *before == here.stream);
        goes_on && peer.offset <= here.offset
    };
    let has_all = !facts.snapshot.as_ref().is_some_and(lacks);
    peer.was_in_sync() && is_fresh && has_all && !(facts.has_log && (is_held_back(peer) || peer.lags))
}

/// Its own agent does not let it be elected.
fn is_held_back(peer: &Peer) -> bool {
    peer.myself().is_some_and(|node| node.flags.no_failover)
}

fn wait_for_votes(me: &Identity, facts: &Facts, replica: &NodeId) -> Start {
    let (votes, quorum) = (votes(me, facts, replica), quorum(me));
    let limit = TAKEOVER_LIMIT.as_secs();
    let reason = format!(
        "{votes} primaries know replica {replica} and could elect it, {quorum} are needed; after {limit} s it starts with its own data set"
    );
    Start::Wait { reason }
}

/// Of copies without the primary's own, the freshest are those whose link was lost last, as far as seconds tell.
fn freshest(me: &Identity, facts: &Facts) -> Duration {
    copies(me, facts).map(|(_, peer)| peer.behind_for()).min().unwrap_or_default()
}

fn without_data(me: &Identity, facts: &Facts) -> Start {
    let gone = if facts.lags { "what lies here lags behind what it had" } else { "its data set is gone" };
    let freshest = freshest(me, facts);
    let fresh = |peer: &Peer| peer.behind_for() <= freshest.saturating_add(SLACK);
    if let Some((replica, peer)) = successor(me, facts, fresh) {
        let (replica, peer) = successor(me, facts, |other| other.is_further_than(peer)).unwrap_or((replica, peer));
        // One that was in sync when this member died lost its link then, and the agent was back soon after.
        let is_stale = freshest > facts.began.saturating_add(RESTART);
        let unknown = unknown_replica(me, facts).map(|(other, why)| format!("replica {other}, which {},", why.now()));
        let former = || former::unknown(me, facts).map(|former| former.told());
        if let Some(other) = unknown.or_else(former).filter(|_| is_stale) {
            let age = freshest.as_secs();
            let reason = format!("{gone}, replica {replica} has had no link for {age} s, and {other} may have more");
            return wait_or_hold(facts, reason);
        }
        if let Some(other) = unclear(me, facts, peer).filter(|_| is_stale) {
            let reason = format!(
                "{gone}, and nobody can tell which of its replicas {replica} and {other} lacks less. To go on with what one of them has: \
                 `failover` that names it as candidate, with mode Force and acceptDataLoss"
            );
            return wait_or_hold(facts, reason);
        }
        return match may_take_over(me, facts, replica) {
            Ok(how) => ask(replica, peer, how),
            Err(Votes { known, quorum }) => Start::Hold {
                reason: format!(
                    "{gone}, replica {replica} holds a copy, and {known} primaries that know it answer where \
                     {quorum} are needed to elect it"
                ),
            },
        };
    }
    let had = match owned(me) {
        0 => "its first slots were on their way to it".to_owned(),
        slots => format!("it owned {slots} slots"),
    };
    if let Some(former) = former::unknown(me, facts) {
        let who = former.told();
        let reason = format!(
            "{had} and {gone}; {who} may have everything until then. It will not come back as an empty primary"
        );
        return wait_or_hold(facts, reason);
    }
    let known = known_replicas(me, &facts.followers).len();
    // Saved nothing by configuration, and no replica has a copy either: nothing is left that an empty primary could wipe.
    if !facts.keeps_each_write && unknown_replica(me, facts).is_none() && !copy_under_way(me, facts) {
        if let Some((answered, known)) = unheard(me, facts).filter(|_| facts.waited < PEERS_LIMIT) {
            // Who joined a moment before its end may not be in its record, and is in theirs.
            let reason = format!("{gone}; {answered} of {known} primaries answer, and they know who has a copy");
            return Start::Listen { reason };
        }
        return empty(me, facts, "no replica that is known of has a copy");
    }
    let reason = format!(
        "{had} and {gone}; {} of its {known} replicas answer and none holds a whole copy. \
         It will not come back as an empty primary",
        answered_replicas(me, facts),
    );
    // One that is started as well answers in a moment. Held, this member would be given another identity meanwhile, and nobody could be elected in its place.
    // It waits itself for those who vote, and loads.
    let is_open = unknown_replica(me, facts).is_some() || copy_under_way(me, facts);
    if is_open && facts.waited < PEERS_LIMIT * 2 { Start::Wait { reason } } else { Start::Hold { reason } }
}

/// So many slots it owned, by its record.
fn owned(me: &Identity) -> usize {
    me.slots.iter().map(SlotRange::len).sum()
}

/// Without what it had. How many keys that were nobody knows any more.
fn empty(me: &Identity, facts: &Facts, why: &str) -> Start {
    let what = match owned(me) {
        0 => "what had arrived of its first slots".to_owned(),
        slots => format!("what its {slots} slots held"),
    };
    let lost = if facts.lags {
        format!("started with files that lag behind what it had, as {why}; {what} since then is lost")
    } else {
        format!("started empty, as its data set is gone and {why}; {what}, if anything, is lost")
    };
    Start::Over { lost }
}

/// Another copy, of which nobody knows how much it lacks, and which is of no history that tells whether that is more than this one does.
fn unclear<'a>(me: &Identity, facts: &'a Facts, chosen: &Peer) -> Option<&'a NodeId> {
    let is_unclear =
        |peer: &Peer| peer.address != chosen.address && peer.is_of_unknown_age() && !peer.is_of_its_history(chosen);
    copies(me, facts).find(|(_, peer)| is_unclear(peer)).map(|(id, _)| id)
}

fn answered_replicas(me: &Identity, facts: &Facts) -> usize {
    known_replicas(me, &facts.followers).into_iter().filter(|id| facts.peers.contains_key(*id)).count()
}

fn copy_under_way(me: &Identity, facts: &Facts) -> bool {
    facts.peers.values().any(|peer| peer.replicates(&me.id) && (peer.syncing || peer.loading))
}

/// The other primaries with slots, by its record: those who voted when that was written.
fn voters(me: &Identity) -> impl Iterator<Item = &Node> {
    me.peers.iter().filter(|peer| !peer.slots.is_empty())
}

/// A majority of all primaries with slots, this dead one included.
fn quorum(me: &Identity) -> usize {
    majority(voters(me).count())
}

fn majority(others: usize) -> usize {
    others.saturating_add(1) / 2 + 1
}

/// Where there are other primaries, and no majority of these has said what it knows: how many have, and how many there are.
fn unheard(me: &Identity, facts: &Facts) -> Option<(usize, usize)> {
    let (answered, known) = (answered_voters(me, facts), voters(me).count());
    (known > 0 && answered <= known / 2).then_some((answered, known))
}

fn answered_voters(me: &Identity, facts: &Facts) -> usize {
    voters(me).filter(|voter| facts.peers.contains_key(&voter.id)).count()
}

/// Voters that answer and know the candidate as a replica of this member. One that takes it for a primary still would
/// deny its vote, and an election that is lost blocks the next one for four node timeouts.
fn votes(me: &Identity, facts: &Facts, candidate: &NodeId) -> usize {
    voters(me).filter(|voter| knows(me, facts, &voter.id, candidate)).count()
}

fn knows(me: &Identity, facts: &Facts, voter: &NodeId, candidate: &NodeId) -> bool {
    let is_it = |node: &Node| node.id == *candidate && node.primary.as_ref() == Some(&me.id);
    facts.peers.get(voter).is_some_and(|peer| peer.table.iter().any(is_it))
}

/// Who could vote for a candidate.
struct Votes {
    known: usize,
    quorum: usize,
}

/// The other primaries with slots by all that is known here: the tables of others, and its own record, which may be old. Not those whose slots have
/// all gone to others since, by a table.
fn electors<'a>(me: &'a Identity, facts: &'a Facts) -> Vec<&'a NodeId> {
    let told = facts.peers.values().flat_map(|peer| peer.table.iter());
    let mut owners: BTreeMap<&NodeId, &Node> = BTreeMap::new();
    for node in told.chain(&me.peers).filter(|node| node.id != me.id && !node.slots.is_empty()) {
        let newest = owners.entry(&node.id).or_insert(node);
        if node.config_epoch > newest.config_epoch {
            *newest = node;
        }
    }
    let gone = |node: &Node, peer: &Peer| have_gone(&node.id, node.config_epoch, &node.slots, &peer.table);
    let stays = |node: &&Node| !facts.peers.values().any(|peer| gone(node, peer));
    owners.into_values().filter(stays).map(|node| &node.id).collect()
}

/// How this replica may take over now. By itself only where nobody can ever be elected: where this member owned nothing, or by all that is known here
/// of other primaries, and each of these answers and has it for a replica of this member: then none of them serves these slots.
fn may_take_over(me: &Identity, facts: &Facts, replica: &NodeId) -> Result<Takeover, Votes> {
    let voters = electors(me, facts);
    let known = voters.iter().filter(|voter| knows(me, facts, voter, replica)).count();
    let quorum = majority(voters.len());
    let owned_nothing = first::owned_nothing(me, facts);
    if known >= quorum && !owned_nothing {
        return Ok(Takeover::Elected);
    }
    let can_nobody_elect = owned_nothing || (voters.len() < 2 && known == voters.len());
    // Two who take over by themselves may do so with one epoch, and both be followed. One who was asked has not done it only by its own word.
    let is_mine = |asked: &NodeId| facts.peers.get(asked).is_some_and(|peer| peer.replicates(&me.id));
    let is_alone = facts.took_over.iter().all(|asked| asked == replica || is_mine(asked));
    if is_alone && can_nobody_elect {
        return Ok(Takeover::ByItself);
    }
    Err(Votes { known, quorum })
}

fn ask(replica: &NodeId, peer: &Peer, how: Takeover) -> Start {
    Start::AskFailover { replica: replica.clone(), address: peer.address, how }
}

#[cfg(test)]
pub(crate) mod tests;
