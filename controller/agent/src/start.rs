//! How redis-server may be started. Pure: what lies on disk and what peers say → one decision.
//!
//! Three hazards are decided here (reliability.md A3, A4). A primary that lost its data set must not come back as a primary:
//! its replicas would copy the emptiness. A primary that crashed and has a replica in sync comes back faster and safer as a
//! replica: its agent is the only witness that the process is dead, so it asks that replica to take over. A member whose
//! nodes.conf is damaged must not come back as a stranger that claims slots. Nothing destructive follows from "unknown": a
//! peer that does not answer is neither dead nor empty.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use resp::{Node, NodeId};
use types::{agent::ReleaseHow, cluster::Mode};

use crate::identity::{Identity, Verdict};

/// How long a member with data waits for peers before it starts as it is.
pub const PEERS_LIMIT: Duration = Duration::from_secs(3);
/// After this long `CLUSTER FAILOVER FORCE` has either worked or silently expired (performance.md T2).
pub const ASK_AGAIN: Duration = Duration::from_secs(6);
/// How long a member with data waits altogether: for the primaries to learn of the replica, and for it to take over.
pub const TAKEOVER_LIMIT: Duration = Duration::from_secs(12);
/// Inaccuracy allowed between file times and Redis' seconds of a lost link.
const SLACK: Duration = Duration::from_secs(2);

/// Everything the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Cluster or Standalone.
    pub mode: Mode,
    /// Judgement of nodes.conf.
    pub verdict: Verdict,
    /// Whether a data set lies on disk.
    pub holds_data: bool,
    /// How long ago the data set was last written; `None`: there is none.
    pub written: Option<Duration>,
    /// The configuration keeps every write (append-only file): files must be there once the member owned slots.
    pub append_only: bool,
    /// Peers that answered and proved to be who they are. Who is absent is unknown.
    pub peers: BTreeMap<NodeId, Peer>,
    /// How long the agent has been deciding.
    pub waited: Duration,
    /// The last request to take over.
    pub asked: Option<Asked>,
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
    /// Its replication offset; 0 if it never was in sync since it started.
    pub offset: i64,
    /// It receives a full copy just now.
    pub syncing: bool,
    /// It loads its data set.
    pub loading: bool,
    /// How long its link to its primary has been down; `None`: it is up, or it is no replica.
    pub link_down_for: Option<Duration>,
    /// Keys it holds.
    pub keys: i64,
}

impl Peer {
    fn myself(&self) -> Option<&Node> {
        self.table.iter().find(|node| node.flags.myself)
    }

    fn replicates(&self, id: &NodeId) -> bool {
        self.myself().is_some_and(|node| node.primary.as_ref() == Some(id))
    }

    fn has_whole_copy(&self) -> bool {
        !self.syncing && !self.loading && (self.offset > 0 || self.keys > 0)
    }
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the files as they are.
    AsIs {
        /// Why that is safe.
        why: &'static str,
    },
    /// As a blank node with a new identity.
    Blank {
        /// Files that are there are moved away first.
        quarantine: bool,
    },
    /// Send `CLUSTER FAILOVER FORCE` to this replica, then decide again.
    AskFailover {
        /// The replica.
        replica: NodeId,
        /// Where it answers.
        address: SocketAddr,
    },
    /// Look again shortly; the wait is bounded.
    Wait {
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
    if facts.mode == Mode::Standalone {
        return Start::AsIs { why: "a single server has no identity to lose" };
    }
    match (facts.released, &facts.verdict) {
        (Some(ReleaseHow::Blank), _) => return Start::Blank { quarantine: true },
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
        Verdict::Intact(identity) if identity.owned_slots() => decide_owner(identity, facts),
        Verdict::Intact(_) => Start::AsIs { why: "it owned no slot" },
    }
}

/// The member was a primary with slots and its process is dead.
fn decide_owner(me: &Identity, facts: &Facts) -> Start {
    if facts.peers.values().any(|peer| moved(me, &peer.table)) {
        return Start::AsIs { why: "its slots have another owner, Redis will follow it" };
    }
    if let Some(asked) = facts.asked.as_ref().filter(|asked| asked.ago < ASK_AGAIN) {
        return Start::Wait {
            reason: format!(
                "replica {} was asked {} ms ago to take over; waiting until a peer shows the slots at another owner",
                asked.replica,
                asked.ago.as_millis()
            ),
        };
    }
    if facts.holds_data { with_data(me, facts) } else { without_data(me, facts) }
}

/// Whether one peer's table gives every slot of mine to others, by a later decision than the one that gave them to me.
fn moved(me: &Identity, table: &[Node]) -> bool {
    let later =
        |slot: u16| table.iter().any(|node| node.id != me.id && node.owns(slot) && node.config_epoch > me.config_epoch);
    me.slots.iter().flat_map(|range| range.first..=range.last).all(later)
}

/// The replica to ask: the one with most of the stream; ties go to the smaller ID.
fn successor<'a>(me: &Identity, facts: &'a Facts, fit: impl Fn(&Peer) -> bool) -> Option<(&'a NodeId, &'a Peer)> {
    facts
        .peers
        .iter()
        .filter(|(_, peer)| peer.replicates(&me.id) && peer.has_whole_copy() && fit(peer))
        .max_by(|(a_id, a), (b_id, b)| (a.offset, a.keys, b_id).cmp(&(b.offset, b.keys, a_id)))
}

fn with_data(me: &Identity, facts: &Facts) -> Start {
    // A lost election is not repeated before four node timeouts have passed: waiting for the next would cost more.
    if facts.asked.is_some() || facts.waited >= TAKEOVER_LIMIT {
        return Start::AsIs { why: "no replica took over in time, and the data set is on disk" };
    }
    // A replica that lost its link before the last write to disk lacks writes that the disk has.
    let current = |peer: &Peer| {
        peer.offset > 0
            && peer.link_down_for.unwrap_or_default() <= facts.written.unwrap_or(Duration::MAX).saturating_add(SLACK)
    };
    let found = successor(me, facts, current);
    match found {
        Some((replica, peer)) if votes(me, facts, replica) >= quorum(me) => {
            Start::AskFailover { replica: replica.clone(), address: peer.address }
        }
        // The primaries are there and will hear of the replica by gossip, within a ping or two.
        Some((replica, _)) if answered_voters(me, facts) >= quorum(me) => wait_for_votes(me, facts, replica),
        Some((replica, _)) if facts.waited < PEERS_LIMIT => wait_for_votes(me, facts, replica),
        Some(_) => Start::AsIs { why: "too few primaries answer to elect a replica, and the data set is on disk" },
        None if facts.waited < PEERS_LIMIT && !all_replicas_answered(me, facts) => {
            let (known, answered) = (me.replicas().count(), answered_replicas(me, facts));
            let reason = format!("{answered} of {known} replicas answer; one in sync would be asked to take over");
            Start::Wait { reason }
        }
        None => Start::AsIs { why: "no replica in sync answers, and the data set is on disk" },
    }
}

fn wait_for_votes(me: &Identity, facts: &Facts, replica: &NodeId) -> Start {
    let (votes, quorum) = (votes(me, facts, replica), quorum(me));
    Start::Wait { reason: format!("{votes} primaries know replica {replica} and could elect it, {quorum} are needed") }
}

fn without_data(me: &Identity, facts: &Facts) -> Start {
    if let Some((replica, peer)) = successor(me, facts, |_| true) {
        let (votes, quorum) = (votes(me, facts, replica), quorum(me));
        if votes >= quorum {
            return Start::AskFailover { replica: replica.clone(), address: peer.address };
        }
        return Start::Hold {
            reason: format!(
                "its data set is gone, replica {replica} holds a copy, and {votes} primaries that know it answer where \
                 {quorum} are needed to elect it"
            ),
        };
    }
    let known = me.replicas().count();
    // Saved nothing by configuration, and no replica has a copy either: nothing is left that an empty primary could wipe.
    if !facts.append_only && all_replicas_answered(me, facts) && !copy_under_way(me, facts) {
        return Start::AsIs { why: "nothing is kept on disk and no replica holds a copy" };
    }
    Start::Hold {
        reason: format!(
            "it owned {} slots and its data set is gone; {} of its {known} replicas answer and none holds a whole copy. \
             It will not come back as an empty primary",
            me.slots.iter().map(resp::SlotRange::len).sum::<usize>(),
            answered_replicas(me, facts),
        ),
    }
}

fn answered_replicas(me: &Identity, facts: &Facts) -> usize {
    me.replicas().filter(|replica| facts.peers.contains_key(&replica.id)).count()
}

/// Whether every replica that anybody knows of has answered.
fn all_replicas_answered(me: &Identity, facts: &Facts) -> bool {
    let told = facts.peers.values().flat_map(|peer| peer.table.iter());
    let known = me.replicas().chain(told.filter(|node| node.primary.as_ref() == Some(&me.id)));
    known.into_iter().all(|replica| facts.peers.contains_key(&replica.id))
}

fn copy_under_way(me: &Identity, facts: &Facts) -> bool {
    facts.peers.values().any(|peer| peer.replicates(&me.id) && (peer.syncing || peer.loading))
}

/// The other primaries with slots: those who vote.
fn voters(me: &Identity) -> impl Iterator<Item = &Node> {
    me.peers.iter().filter(|peer| !peer.slots.is_empty())
}

/// A majority of all primaries with slots, this dead one included.
fn quorum(me: &Identity) -> usize {
    voters(me).count().saturating_add(1) / 2 + 1
}

fn answered_voters(me: &Identity, facts: &Facts) -> usize {
    voters(me).filter(|voter| facts.peers.contains_key(&voter.id)).count()
}

/// Voters that answer and know the candidate as a replica of this member. One that takes it for a primary still would
/// deny its vote, and an election that is lost blocks the next one for four node timeouts.
fn votes(me: &Identity, facts: &Facts, candidate: &NodeId) -> usize {
    let knows =
        |peer: &Peer| peer.table.iter().any(|node| node.id == *candidate && node.primary.as_ref() == Some(&me.id));
    voters(me).filter(|voter| facts.peers.get(&voter.id).is_some_and(knows)).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;
    use resp::nodes::{Flags, SlotRange};

    use super::*;
    use crate::identity::{Role, tests::id};

    const SECOND: Duration = Duration::from_secs(1);

    fn node(last: u8, primary: Option<u8>, epoch: u64, slots: &[(u16, u16)]) -> Node {
        Node {
            id: id(last),
            address: Some(SocketAddr::from(([127, 84, 0, last], 6379))),
            bus_port: Some(16379),
            flags: Flags { primary: primary.is_none(), replica: primary.is_some(), ..Flags::default() },
            primary: primary.map(id),
            ping_sent: 0,
            pong_received: 0,
            config_epoch: epoch,
            connected: true,
            slots: slots.iter().map(|(first, last)| SlotRange { first: *first, last: *last }).collect(),
            migrating: vec![],
            importing: vec![],
        }
    }

    /// Member 1 owned 0-99 at epoch 5, 2 is its replica, 3 and 6 are the other primaries.
    fn owner() -> Identity {
        Identity {
            id: id(1),
            role: Role::Primary,
            config_epoch: 5,
            slots: vec![SlotRange { first: 0, last: 99 }],
            peers: vec![
                node(2, Some(1), 5, &[]),
                node(3, None, 3, &[(100, 9999)]),
                node(6, None, 4, &[(10000, 16383)]),
            ],
        }
    }

    fn peer(last: u8, primary: Option<u8>) -> Peer {
        let mut table = vec![
            node(1, None, 5, &[(0, 99)]),
            node(2, Some(1), 5, &[]),
            node(3, None, 3, &[(100, 9999)]),
            node(4, Some(1), 5, &[]),
            node(6, None, 4, &[(10000, 16383)]),
        ];
        table.retain(|node| node.id != id(last));
        let mut own = node(last, primary, 5, &[]);
        own.flags.myself = true;
        table.push(own);
        Peer {
            address: SocketAddr::from(([127, 84, 0, last], 6379)),
            table,
            offset: 1000,
            syncing: false,
            loading: false,
            link_down_for: primary.map(|_| SECOND),
            keys: 10,
        }
    }

    fn crashed(holds_data: bool) -> Facts {
        Facts {
            mode: Mode::Cluster,
            verdict: Verdict::Intact(owner()),
            holds_data,
            written: holds_data.then_some(SECOND),
            append_only: true,
            peers: BTreeMap::from([(id(2), peer(2, Some(1))), (id(3), peer(3, None)), (id(6), peer(6, None))]),
            waited: Duration::ZERO,
            asked: None,
            released: None,
        }
    }

    fn ask(last: u8) -> Start {
        Start::AskFailover { replica: id(last), address: SocketAddr::from(([127, 84, 0, last], 6379)) }
    }

    fn held(facts: &Facts) -> String {
        match decide_start(facts) {
            Start::Hold { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_member_that_was_never_started_starts_blank() {
        let facts = Facts { verdict: Verdict::Blank, ..crashed(false) };
        assert_eq!(decide_start(&facts), Start::Blank { quarantine: false });
    }

    #[test]
    fn a_data_set_without_a_legible_identity_is_held_until_the_controller_speaks() {
        let damaged = || Verdict::Damaged { why: "nodes.conf is cut".to_owned() };
        let mut facts = Facts { verdict: damaged(), ..crashed(true) };
        assert_eq!(held(&facts), "nodes.conf is cut, and a data set lies beside it");
        facts.released = Some(ReleaseHow::AsIs);
        assert_eq!(held(&facts), "nodes.conf is cut, and a data set lies beside it");
        facts.released = Some(ReleaseHow::Blank);
        assert_eq!(decide_start(&facts), Start::Blank { quarantine: true });
        assert!(held(&Facts { verdict: Verdict::Blank, ..crashed(true) }).starts_with("the data directory holds"));
        let empty = Facts { verdict: damaged(), ..crashed(false) };
        assert_eq!(decide_start(&empty), Start::Blank { quarantine: true });
    }

    #[test]
    fn a_replica_and_a_single_server_start_as_they_are() {
        let mut identity = owner();
        identity.role = Role::Replica(id(3));
        identity.slots.clear();
        let facts = Facts { verdict: Verdict::Intact(identity), ..crashed(false) };
        assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
        let facts = Facts { mode: Mode::Standalone, verdict: Verdict::Blank, ..crashed(true) };
        assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
    }

    #[test]
    fn a_crashed_primary_asks_its_replica_and_waits_until_the_slots_have_moved() {
        let mut facts = crashed(true);
        assert_eq!(decide_start(&facts), ask(2));
        facts.asked = Some(Asked { replica: id(2), ago: SECOND });
        assert!(matches!(decide_start(&facts), Start::Wait { .. }));
        let mut lost_election = facts.clone();
        lost_election.asked = Some(Asked { replica: id(2), ago: ASK_AGAIN });
        assert_eq!(
            decide_start(&lost_election),
            Start::AsIs { why: "no replica took over in time, and the data set is on disk" }
        );
        lost_election.holds_data = false;
        assert_eq!(decide_start(&lost_election), ask(2));
        let table = &mut facts.peers.get_mut(&id(3)).unwrap().table;
        *table = vec![node(1, Some(2), 5, &[]), node(2, None, 6, &[(0, 99)])];
        assert_eq!(decide_start(&facts), Start::AsIs { why: "its slots have another owner, Redis will follow it" });
    }

    #[test]
    fn a_replica_that_the_primaries_do_not_know_yet_is_not_asked_in_vain() {
        let mut facts = crashed(true);
        for voter in [3, 6] {
            facts.peers.get_mut(&id(voter)).unwrap().table.retain(|node| node.id != id(2));
        }
        let replica = id(2);
        let reason = format!("0 primaries know replica {replica} and could elect it, 2 are needed");
        facts.waited = PEERS_LIMIT;
        assert_eq!(decide_start(&facts), Start::Wait { reason });
        facts.waited = TAKEOVER_LIMIT;
        assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
        let mut alone = crashed(true);
        alone.peers.remove(&id(6));
        assert!(matches!(decide_start(&alone), Start::Wait { .. }));
        alone.waited = PEERS_LIMIT;
        assert_eq!(
            decide_start(&alone),
            Start::AsIs { why: "too few primaries answer to elect a replica, and the data set is on disk" }
        );
        alone.holds_data = false;
        assert!(held(&alone).ends_with("1 primaries that know it answer where 2 are needed to elect it"));
    }

    #[test]
    fn an_older_or_partial_change_of_owner_is_no_change_of_owner() {
        for table in [vec![node(2, None, 5, &[(0, 99)])], vec![node(2, None, 6, &[(0, 98)])], vec![]] {
            let mut facts = crashed(true);
            facts.peers.insert(id(7), Peer { table, ..peer(7, None) });
            assert_eq!(decide_start(&facts), ask(2));
        }
    }

    #[test]
    fn the_replica_with_most_of_the_stream_is_asked() {
        let mut facts = crashed(true);
        let further = Peer { offset: 1001, ..peer(4, Some(1)) };
        facts.peers.insert(id(4), further);
        assert_eq!(decide_start(&facts), ask(4));
    }

    #[test]
    fn a_replica_that_is_not_whole_or_lags_behind_the_disk_is_never_asked() {
        let unfit: [fn(&mut Peer); 4] = [
            |peer| peer.syncing = true,
            |peer| peer.loading = true,
            |peer| (peer.offset, peer.keys) = (0, 0),
            |peer| peer.link_down_for = Some(10 * SECOND),
        ];
        for spoil in unfit {
            let mut facts = crashed(true);
            spoil(facts.peers.get_mut(&id(2)).unwrap());
            // A second replica, of which the peers tell, does not answer.
            assert!(matches!(decide_start(&facts), Start::Wait { .. }));
            facts.waited = PEERS_LIMIT;
            assert_eq!(
                decide_start(&facts),
                Start::AsIs { why: "no replica in sync answers, and the data set is on disk" }
            );
        }
        let mut restarted = crashed(true);
        (restarted.peers.get_mut(&id(2)).unwrap().offset) = 0;
        restarted.waited = PEERS_LIMIT;
        assert!(matches!(decide_start(&restarted), Start::AsIs { .. }), "it has old keys and was not in sync since");
    }

    #[test]
    fn with_data_on_disk_every_wait_ends() {
        let mut facts = Facts { peers: BTreeMap::new(), ..crashed(true) };
        assert!(matches!(decide_start(&facts), Start::Wait { .. }));
        facts.waited = PEERS_LIMIT;
        assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
        let mut stubborn = crashed(true);
        stubborn.waited = TAKEOVER_LIMIT;
        assert_eq!(
            decide_start(&stubborn),
            Start::AsIs { why: "no replica took over in time, and the data set is on disk" }
        );
    }

    #[test]
    fn a_primary_whose_data_is_gone_never_starts_while_anybody_may_hold_a_copy() {
        let mut facts = crashed(false);
        facts.append_only = false;
        assert_eq!(decide_start(&facts), ask(2));
        // A replica that was itself restarted from its files still has the only copy.
        (facts.peers.get_mut(&id(2)).unwrap().offset) = 0;
        assert_eq!(decide_start(&facts), ask(2));
        for voter in [2, 3, 6] {
            // Nobody tells of a second replica.
            facts.peers.get_mut(&id(voter)).unwrap().table.retain(|node| node.id != id(4));
        }
        facts.peers.remove(&id(2));
        facts.waited = 1000 * SECOND;
        assert_eq!(
            held(&facts),
            "it owned 100 slots and its data set is gone; 0 of its 1 replicas answer and none holds a whole copy. It \
             will not come back as an empty primary"
        );
        facts.peers.insert(id(2), Peer { syncing: true, offset: 0, keys: 0, ..peer(2, Some(1)) });
        assert!(matches!(decide_start(&facts), Start::Hold { .. }));
        let mut empty = Peer { offset: 0, keys: 0, ..peer(2, Some(1)) };
        empty.table.retain(|node| node.id != id(4));
        facts.peers.insert(id(2), empty);
        assert_eq!(decide_start(&facts), Start::AsIs { why: "nothing is kept on disk and no replica holds a copy" });
        facts.append_only = true;
        assert!(matches!(decide_start(&facts), Start::Hold { .. }), "append-only files must be there; they are lost");
        facts.released = Some(ReleaseHow::AsIs);
        assert_eq!(decide_start(&facts), Start::AsIs { why: "the controller said so" });
    }

    fn any_peer() -> impl Strategy<Value = (u8, Peer)> {
        (
            2u8..6,
            prop::option::of(prop::sample::select(vec![1u8, 3])),
            0i64..3,
            0i64..3,
            any::<(bool, bool)>(),
            0u64..20,
        )
            .prop_map(|(last, primary, offset, keys, (syncing, loading), down)| {
                let down = primary.map(|_| Duration::from_secs(down));
                (last, Peer { offset, keys, syncing, loading, link_down_for: down, ..peer(last, primary) })
            })
    }

    proptest! {
        #[test]
        fn an_empty_owner_starts_only_when_released_or_moved_or_nobody_holds_a_copy(
            peers in prop::collection::vec(any_peer(), 0..4),
            waited in 0u64..100, append_only in any::<bool>(), asked in prop::option::of(0u64..10)
        ) {
            let facts = Facts {
                peers: peers.into_iter().map(|(last, peer)| (id(last), peer)).collect(),
                waited: Duration::from_secs(waited),
                append_only,
                asked: asked.map(|ago| Asked { replica: id(2), ago: Duration::from_secs(ago) }),
                ..crashed(false)
            };
            match decide_start(&facts) {
                Start::AsIs { .. } => {
                    prop_assert!(!append_only);
                    let copy = |peer: &Peer| peer.replicates(&id(1)) && (peer.keys > 0 || peer.offset > 0 || peer.syncing);
                    prop_assert!(facts.peers.contains_key(&id(2)), "its known replica did not answer");
                    prop_assert!(!facts.peers.values().any(copy));
                }
                Start::Blank { .. } => prop_assert!(false, "an intact identity is never given up"),
                Start::AskFailover { replica, .. } => {
                    let peer = &facts.peers[&replica];
                    prop_assert!(peer.has_whole_copy() && peer.replicates(&id(1)));
                }
                Start::Wait { .. } | Start::Hold { .. } => {}
            }
        }

        #[test]
        fn with_data_the_decision_is_to_start_once_the_limit_has_passed(
            peers in prop::collection::vec(any_peer(), 0..4), asked in prop::option::of(0u64..10)
        ) {
            let facts = Facts {
                peers: peers.into_iter().map(|(last, peer)| (id(last), peer)).collect(),
                waited: TAKEOVER_LIMIT + ASK_AGAIN,
                asked: asked.map(|ago| Asked { replica: id(2), ago: ASK_AGAIN + Duration::from_secs(ago) }),
                ..crashed(true)
            };
            let starts = matches!(decide_start(&facts), Start::AsIs { .. });
            prop_assert!(starts);
        }
    }
}
