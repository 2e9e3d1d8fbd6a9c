//! A snapshot, and replicas of its history, of a later one or of an unknown one.
use super::*;

/// The snapshot has 900 bytes of a history, and replica 2 so many.
fn of_one_history(offset: i64) -> Facts {
    let stream = "8371445e".to_owned();
    let mut facts = Facts { snapshot: Some(Origin { stream: stream.clone(), offset: 900 }), ..snapshot() };
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    (replica.offset, replica.stream) = (offset, Some(stream));
    facts
}

/// Its process was started anew, with the snapshot that it saved as it ended: it has had no link since.
fn restart(peer: &mut Peer) {
    (peer.link_down_for, peer.current_ago) = (Some(Duration::MAX), Some(Duration::MAX));
}

/// Before, a replica that was restarted counted as behind whatever it had, and one that was fed when the last snapshot ended as ahead.
#[test]
fn of_one_history_the_offsets_say_who_is_ahead() {
    let starts = Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    for (offset, start) in [(901, ask(2)), (900, starts.clone()), (899, starts.clone())] {
        let mut linked = of_one_history(offset);
        assert_eq!(look(&mut linked, 0), start, "{offset}, linked");
        let mut restarted = of_one_history(offset);
        restart(restarted.peers.get_mut(&id(2)).unwrap());
        assert_eq!(look(&mut restarted, 0), start, "{offset}, restarted");
        // It was seen to be ahead before.
        restarted.ahead = BTreeSet::from([id(2)]);
        assert_eq!(look(&mut restarted, 1), start, "{offset}, seen before");
    }
    // Numbers of another history say nothing.
    let mut other = of_one_history(899);
    other.peers.get_mut(&id(2)).unwrap().stream = Some("another".to_owned());
    assert_eq!(look(&mut other, 0), ask(2));
}

/// Measured before: killed 0.2 s after it was elected, a primary loaded its snapshot of before, and the former one, which followed it by then under its
/// new replication ID, copied that.
#[test]
fn a_history_that_goes_on_under_another_id_keeps_its_numbers() {
    let starts = Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    // A replica has gone on at least to where the other history ends.
    for (offset, start) in [(950, ask(2)), (901, ask(2)), (900, starts)] {
        let mut facts = of_one_history(offset);
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        restart(replica);
        replica.went_on_from = replica.stream.replace("its heir's".to_owned()).map(|before| (before, 901));
        assert_eq!(look(&mut facts, 0), start, "{offset}");
    }
    // The snapshot has what the other history lacks.
    let mut facts = of_one_history(901);
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    restart(replica);
    replica.went_on_from = replica.stream.replace("its heir's".to_owned()).map(|before| (before, 900));
    assert!(matches!(look(&mut facts, 0), Start::Wait { .. }));
}

/// Before, it copied the snapshot at once, whatever it had, and nobody was told.
#[test]
fn a_restarted_replica_of_an_unknown_history_is_lost_only_late_and_told() {
    let starts = Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    let reason = format!(
        "a snapshot of 600 s ago lies here, and replica {}, which may be ahead of it, cannot be compared with it. 17 s of 18 s are over: then this \
         member starts with that snapshot, and what was written since is lost",
        id(2)
    );
    let spoil: [fn(&mut Facts); 3] = [
        |other| other.peers.get_mut(&id(2)).unwrap().stream = Some("another".to_owned()),
        // It loaded its append-only file.
        |other| other.peers.get_mut(&id(2)).unwrap().offset = 0,
        |other| other.snapshot = None,
    ];
    for spoil in spoil {
        let mut facts = of_one_history(1_100);
        restart(facts.peers.get_mut(&id(2)).unwrap());
        spoil(&mut facts);
        assert_eq!(look(&mut facts, 17), Start::Wait { reason: reason.clone() });
        assert_eq!(look(&mut facts, 18), over(2, 18, "may have been ahead of it, cannot be compared with it"));
        let mut ended = Facts { served_since: false, ..facts.clone() };
        assert_eq!(look(&mut ended, 0), starts, "it saved when it ended");
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        (replica.offset, replica.keys) = (0, 0);
        assert_eq!(look(&mut facts, 0), starts, "it has nothing");
    }
}

/// The snapshot is of a life before the member's last one, and replica 2, started anew, has so many bytes of this one.
fn of_the_last_life(offset: i64) -> Facts {
    let mut facts = Facts { stream: Some("last".to_owned()), ..of_one_history(offset) };
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    replica.stream.clone_from(&facts.stream);
    restart(replica);
    facts
}

#[test]
fn a_replica_of_the_last_life_is_ahead_of_a_snapshot_of_an_earlier_one() {
    for offset in [1, 900, 9_000] {
        assert_eq!(look(&mut of_the_last_life(offset), 0), ask(2), "{offset}");
    }
    // What was noted before the snapshot was written does not say which of both lives is later.
    let mut before = Facts { served_since: false, ..of_the_last_life(9_000) };
    let starts = Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    assert_eq!(look(&mut before, 0), starts);
    // One that was left in the life of the snapshot has less, whatever the numbers say.
    let mut facts = of_the_last_life(1_000);
    let stream = facts.snapshot.as_ref().map(|snapshot| snapshot.stream.clone());
    another(&mut facts, Peer { offset: 9_000, stream, ..peer(4, Some(1)) });
    assert_eq!(look(&mut facts, 0), ask(2));
}

#[test]
fn beside_one_that_is_ahead_one_of_an_unknown_history_has_its_time() {
    let mut facts = of_the_last_life(1_000);
    another(&mut facts, Peer { stream: Some("another".to_owned()), ..peer(4, Some(1)) });
    restart(facts.peers.get_mut(&id(4)).unwrap());
    let reason = format!(
        "a snapshot of 600 s ago lies here, and replica {} has 1000 bytes of the stream of writes and is asked to take over after 18 s of waiting, \
         as replica {}, which cannot be compared with it, may have more. 17 s of 60 s are over: then this member starts with that snapshot, and \
         what was written since is lost",
        id(2),
        id(4)
    );
    assert_eq!(look(&mut facts, 17), Start::Wait { reason });
    assert_eq!(look(&mut facts, 18), ask(2));
}

/// Before, whoever had the link until the end was asked first, and the other one copied it.
#[test]
fn of_one_history_the_one_with_most_is_asked_before_the_one_fed_last() {
    for (offset, asked) in [(950, 2), (1_200, 4)] {
        let mut facts = of_one_history(1_100);
        restart(facts.peers.get_mut(&id(2)).unwrap());
        let stream = facts.peers[&id(2)].stream.clone();
        another(&mut facts, Peer { offset, stream, ..peer(4, Some(1)) });
        assert_eq!(look(&mut facts, 0), ask(asked), "{offset}");
    }
}

#[test]
fn of_several_of_one_history_the_one_with_most_is_asked_also_after_a_restart() {
    let mut facts = of_one_history(1_100);
    restart(facts.peers.get_mut(&id(2)).unwrap());
    let stream = facts.peers[&id(2)].stream.clone();
    another(&mut facts, Peer { current_ago: Some(60 * SECOND), stream, ..peer(4, Some(1)) });
    assert_eq!(look(&mut facts.clone(), 0), ask(2));
    // Beside numbers of another history it is who was fed last.
    facts.peers.get_mut(&id(4)).unwrap().stream = Some("another".to_owned());
    assert_eq!(look(&mut facts.clone(), 0), ask(4));
    // One that is silent may have more still.
    facts.peers.remove(&id(4));
    let told = format!(
        "replica {} has 1100 bytes of the stream of writes and is asked to take over after 18 s of waiting, as replica {}, which does not answer",
        id(2),
        id(4)
    );
    facts.ahead.clear();
    let reason = waits_at(&mut facts, 17);
    assert!(reason.contains(&told), "{reason}");
    assert_eq!(look(&mut facts, 18), ask(2));
}
