//! A snapshot, and replicas that are ahead of it.
use super::*;
use crate::start::beside::limit;

mod history;

/// A snapshot of ten minutes ago lies here, and replica 2 has had the link until now. Nobody knows of another one.
fn snapshot() -> Facts {
    let mut facts = Facts { has_log: false, keeps_each_write: false, written: Some(600 * SECOND), ..crashed(true) };
    for peer in facts.peers.values_mut() {
        peer.table.retain(|node| node.id != id(4));
    }
    facts
}

/// Another replica, of which all tell.
fn another(facts: &mut Facts, peer: Peer) {
    for known in facts.peers.values_mut() {
        known.table.push(node(4, Some(1), 5, &[]));
    }
    facts.peers.insert(id(4), peer);
}

/// One look more, as the guard takes it.
fn look(facts: &mut Facts, waited: u64) -> Start {
    facts.waited = Duration::from_secs(waited);
    facts.ahead = ahead(facts);
    decide_start(facts)
}

fn waits_at(facts: &mut Facts, waited: u64) -> String {
    match look(facts, waited) {
        Start::Wait { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn over(last: u8, waited: u64, which: &str) -> Start {
    let replica = id(last);
    let lost = format!(
        "started with a snapshot of 600 s ago after it had waited for {waited} s: replica {replica}, which {which}. What was written after that \
         snapshot is lost"
    );
    Start::Over { lost }
}

/// Before, one look in which it, or one of those who vote, was silent had the member start, and the replica copied the snapshot.
#[test]
fn who_is_silent_for_a_look_is_waited_for_beside_a_snapshot() {
    let mut facts = snapshot();
    assert_eq!(look(&mut facts, 0), ask(2));
    let all = facts.peers.clone();
    facts.peers.remove(&id(2));
    let silent = format!(
        "a snapshot of 600 s ago lies here, and replica {}, which is ahead of it, does not answer or is not ready. 20 s of 60 s are over: then \
         this member starts with that snapshot, and what was written since is lost",
        id(2)
    );
    assert_eq!(waits_at(&mut facts, 20), silent);
    facts.peers.clear();
    assert_eq!(waits_at(&mut facts, 20), silent);
    facts.peers.clone_from(&all);
    facts.peers.remove(&id(6));
    let few = format!(
        "a snapshot of 600 s ago lies here, and replica {} is ahead of it; 1 primaries that know it answer where 2 are needed to elect it. 59 s of \
         60 s are over: then this member starts with that snapshot, and what was written since is lost",
        id(2)
    );
    assert_eq!(waits_at(&mut facts, 59), few);
    let mut back = Facts { peers: all, ..facts.clone() };
    assert_eq!(look(&mut back, 59), ask(2));
    assert_eq!(look(&mut facts, 60), over(2, 60, "was ahead of it, was not elected"));
    facts.peers.clear();
    assert_eq!(look(&mut facts, 60), over(2, 60, "was ahead of it, did not answer"));
}

#[test]
fn beside_a_snapshot_an_election_that_was_lost_is_tried_again() {
    let mut facts = Facts { asked: Some(Asked { replica: id(2), ago: ASK_AGAIN }), ..snapshot() };
    assert_eq!(look(&mut facts, 30), ask(2));
    facts.asked = Some(Asked { replica: id(2), ago: SECOND });
    assert!(waits_at(&mut facts, 30).contains("was asked 1000 ms ago"));
    let limits = [1, 15, 3600].map(|seconds| limit(&Facts { node_timeout: seconds * SECOND, ..snapshot() }));
    assert_eq!(limits, [60, 180, 600].map(Duration::from_secs));
}

#[test]
fn who_has_answered_that_it_is_not_ahead_is_waited_for_no_longer() {
    let spoil: [fn(&mut Peer); 3] = [
        |peer| (peer.offset, peer.keys) = (0, 0),
        |peer| peer.current_ago = Some(700 * SECOND),
        |peer| peer.table.iter_mut().filter(|node| node.flags.myself).for_each(|me| me.primary = Some(id(3))),
    ];
    for spoil in spoil {
        let mut facts = snapshot();
        assert_eq!(look(&mut facts, 0), ask(2));
        spoil(facts.peers.get_mut(&id(2)).unwrap());
        let why = "no replica in sync answers, and the data set is on disk";
        assert_eq!(look(&mut facts, 1), Start::AsIs { why });
    }
    let mut loads = snapshot();
    assert_eq!(look(&mut loads, 0), ask(2));
    loads.peers.get_mut(&id(2)).unwrap().loading = true;
    assert!(waits_at(&mut loads, 59).contains("does not answer or is not ready"));
}

/// It may be ahead. Before, it had three seconds to answer.
#[test]
fn a_replica_that_was_never_heard_has_its_time_beside_a_snapshot() {
    let mut facts = snapshot();
    facts.peers.remove(&id(2));
    assert_eq!(
        waits_at(&mut facts, 17),
        "0 of 1 replicas answer; one in sync would be asked to take over, but for 18 s at most"
    );
    assert_eq!(look(&mut facts, 18), over(2, 18, "may have been ahead of it, did not answer"));
    let why = "no replica in sync answers, and the data set is on disk";
    let mut ended = Facts { served_since: false, ..facts.clone() };
    assert_eq!(look(&mut ended, 18), Start::AsIs { why }, "it saved when it ended");
    let mut slow = Facts { node_timeout: 15 * SECOND, ..facts.clone() };
    assert!(waits_at(&mut slow, 37).contains("for 38 s at most"), "others notice its death after 15 s");
    let mut beside_a_log = Facts { has_log: true, ..facts };
    assert!(matches!(look(&mut beside_a_log, 3), Start::AsIs { .. }));
}

/// What it had before may be ahead. Before, its answer was taken for one that it was not.
#[test]
fn a_replica_that_is_being_sent_a_copy_has_its_time_beside_a_snapshot() {
    let mut facts = snapshot();
    facts.peers.get_mut(&id(2)).unwrap().syncing = true;
    let waits = "is being sent a copy and holds what it had before; it is waited for, but for 18 s at most";
    assert_eq!(waits_at(&mut facts, 17), format!("replica {} {waits}", id(2)));
    let which = "may have been ahead of it, was being sent a copy and held what it had before";
    assert_eq!(look(&mut facts, 18), over(2, 18, which));
    let mut beside_a_log = Facts { has_log: true, ..facts };
    assert!(matches!(look(&mut beside_a_log, 3), Start::AsIs { .. }));
}

/// Before, it was asked at once: the other one had what it had missed, and copied it.
#[test]
fn who_was_left_behind_is_asked_once_better_ones_had_their_time() {
    let late: [fn(&mut Peer); 3] = [
        |peer| peer.current_ago = Some(60 * SECOND),
        |peer| peer.link_down_for = Some(60 * SECOND),
        |peer| hold_back(peer),
    ];
    for spoil in late {
        let mut facts = snapshot();
        spoil(facts.peers.get_mut(&id(2)).unwrap());
        assert_eq!(look(&mut facts.clone(), 0), ask(2), "nobody else is there");
        another(&mut facts, peer(4, Some(1)));
        assert_eq!(look(&mut facts, 0), ask(4));
        // Offsets of another history say nothing.
        facts.peers.get_mut(&id(2)).unwrap().offset = 1_000_000;
        assert_eq!(look(&mut facts, 0), ask(4));
        facts.peers.remove(&id(4));
        let mut never = Facts { ahead: BTreeSet::new(), ..facts.clone() };
        // One that was seen to be ahead has its whole time; of one that was never heard nobody knows.
        for (facts, given) in [(&mut facts, 60), (&mut never, 18)] {
            let reason = waits_at(facts, given - 1);
            let who = format!(
                "is asked to take over after {given} s of waiting, as replica {}, which does not answer, may have more",
                id(4)
            );
            assert!(reason.contains(&who), "{reason}");
            assert_eq!(look(facts, given), ask(2));
        }
        facts.asked = Some(Asked { replica: id(4), ago: ASK_AGAIN });
        assert_eq!(look(&mut facts, 60), ask(2), "another one was asked before");
        facts.asked = Some(Asked { replica: id(2), ago: ASK_AGAIN });
        assert_eq!(look(&mut facts, 60), over(2, 60, "was ahead of it, was not elected"));
    }
}

/// The clock was set back, or the file server's is ahead. Before, a replica of any age was asked.
#[test]
fn beside_a_snapshot_of_nobody_knows_when_only_who_was_fed_until_the_end_is_asked() {
    let mut facts = Facts { written: None, ..snapshot() };
    assert_eq!(look(&mut facts, 0), ask(2));
    facts.peers.get_mut(&id(2)).unwrap().current_ago = Some(3_600 * SECOND);
    facts.ahead.clear();
    assert!(matches!(look(&mut facts, 0), Start::AsIs { .. }));
}

#[test]
fn of_those_that_were_left_behind_the_freshest_is_asked() {
    let mut facts = snapshot();
    let [near, far] = [30, 300].map(|ago| Some(ago * SECOND));
    facts.peers.get_mut(&id(2)).unwrap().current_ago = near;
    another(&mut facts, Peer { current_ago: far, offset: 1_000_000, ..peer(4, Some(1)) });
    assert_eq!(look(&mut facts, 0), ask(2));
}

/// Before, it waited for a minute, and then started over the replica.
#[test]
fn where_nobody_can_be_elected_the_replica_takes_over_by_itself() {
    let [by_itself, of_two] = [1, 2].map(|shards| {
        let mut facts = snapshot();
        let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
        me.peers.truncate(shards);
        let known: Vec<NodeId> = me.peers.iter().map(|peer| peer.id.clone()).collect();
        facts.peers.retain(|peer, _| known.contains(peer));
        for peer in facts.peers.values_mut() {
            peer.table.retain(|node| node.id == id(1) || known.contains(&node.id));
        }
        facts
    });
    let takes_over = Start::AskFailover {
        replica: id(2),
        address: SocketAddr::from(([127, 84, 0, 2], 6379)),
        how: Takeover::ByItself,
    };
    assert_eq!(look(&mut by_itself.clone(), 0), takes_over);
    assert_eq!(look(&mut of_two.clone(), 0), takes_over);
    let gone = Facts { holds_data: false, ..by_itself.clone() };
    assert_eq!(decide_start(&gone), takes_over, "its data set is gone");
    let mut second = Facts { took_over: BTreeSet::from([id(4)]), ..by_itself.clone() };
    assert!(matches!(look(&mut second, 1), Start::Wait { .. }), "another one was asked, and may lead by now");
    let mut again = Facts { took_over: BTreeSet::from([id(2)]), ..by_itself.clone() };
    assert_eq!(look(&mut again, 1), takes_over);

    let mut silent = of_two.clone();
    silent.peers.retain(|peer, _| *peer == id(2));
    assert!(waits_at(&mut silent, 1).contains("0 primaries that know it answer where 2 are needed to elect it"));
    let mut grown = by_itself;
    let told = [node(6, None, 7, &[(100, 200)]), node(7, None, 8, &[(201, 300)])];
    grown.peers.get_mut(&id(2)).unwrap().table.extend(told);
    assert!(matches!(look(&mut grown, 1), Start::Wait { .. }), "others tell of primaries that could elect it");
}

/// Before, the voters of its record were counted: an older volume waited for ever for those who have been replaced since.
#[test]
fn who_has_been_replaced_since_its_record_was_written_has_no_vote() {
    let by_itself = Start::AskFailover {
        replica: id(2),
        address: SocketAddr::from(([127, 84, 0, 2], 6379)),
        how: Takeover::ByItself,
    };
    // By the record 3 is the only other primary; 6 has all of its slots.
    let replaced_at = |epoch: u64| {
        let mut facts = snapshot();
        let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
        me.peers = vec![node(2, Some(1), 5, &[]), node(3, None, 3, &[(100, 16383)])];
        facts.peers.remove(&id(3));
        for peer in facts.peers.values_mut() {
            peer.table.retain(|node| ![id(3), id(6)].contains(&node.id));
            peer.table.push(node(6, None, epoch, &[(100, 16383)]));
        }
        facts
    };
    assert_eq!(look(&mut replaced_at(7), 0), by_itself);
    let waits = waits_at(&mut replaced_at(3), 0);
    assert!(waits.contains("1 primaries that know it answer where 2 are needed"), "no later decision: {waits}");
    let mut part = replaced_at(7);
    for peer in part.peers.values_mut() {
        peer.table
            .iter_mut()
            .filter(|node| node.id == id(6))
            .for_each(|six| six.slots = vec![SlotRange { first: 100, last: 9999 }]);
    }
    let waits = waits_at(&mut part, 0);
    assert!(waits.contains("1 primaries that know it answer where 2 are needed"), "it has the rest: {waits}");
    // And of more primaries than it knows enough may elect.
    let mut grown = snapshot();
    let Verdict::Intact(me) = &mut grown.verdict else { panic!() };
    me.peers.truncate(1);
    assert_eq!(look(&mut grown, 0), ask(2));
}

#[test]
fn of_a_node_that_runs_elsewhere_nobody_is_ahead() {
    let mut facts = snapshot();
    facts.ahead = ahead(&facts);
    assert_eq!(facts.ahead, BTreeSet::from([id(2)]));
    let [here, there] = [1, 2].map(|last| SocketAddr::from(([127, 84, 0, last], 6379)));
    assert_eq!(ahead(&Facts { double: Some(Double { here, there }), ..facts.clone() }), BTreeSet::new());
    assert_eq!(ahead(&Facts { has_log: true, ..facts }), BTreeSet::new());
}

proptest! {
    #[test]
    fn nobody_starts_with_a_snapshot_over_a_replica_that_is_ahead(
        looks in prop::collection::vec((prop::collection::vec(any_peer(), 0..4), 0u64..90, prop::option::of(0u64..10)), 1..6)
    ) {
        let (mut facts, mut more) = (snapshot(), BTreeSet::new());
        for (peers, waited, asked) in looks {
            facts.peers = peers.into_iter().map(|(last, peer)| (id(last), peer)).collect();
            facts.asked = asked.map(|ago| Asked { replica: id(2), ago: Duration::from_secs(ago) });
            let start = look(&mut facts, waited);
            more.extend(facts.peers.keys().cloned());
            more.retain(|replica| facts.peers.get(replica).is_none_or(|peer| {
                let is_open = peer.syncing || peer.loading;
                is_open && facts.ahead.contains(replica) || !is_open && peer.replicates(&id(1)) && peer.offset > 0
            }));
            let starts = matches!(start, Start::AsIs { .. } | Start::Over { .. });
            prop_assert!(more.is_empty() || waited >= 60 || !starts);
        }
    }
}
