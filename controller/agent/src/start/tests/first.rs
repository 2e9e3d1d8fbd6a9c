//! A primary without slots, to which its first are on their way.
use super::*;

/// Slot 7 is on its way from 3 to member 1, which owned nothing. Replica 2 is known to all.
fn given(facts: Facts) -> Facts {
    let me = Identity { slots: vec![], importing: vec![(7, id(3))], ..owner() };
    let mut facts = Facts { verdict: Verdict::Intact(me), keeps_each_write: false, ..facts };
    for peer in facts.peers.values_mut() {
        peer.table.retain(|node| node.id != id(4));
        peer.table.iter_mut().filter(|node| node.id == id(1)).for_each(|me| me.slots.clear());
    }
    facts
}

/// A snapshot of ten minutes ago lies there.
fn beside_a_snapshot() -> Facts {
    given(Facts { has_log: false, written: Some(600 * SECOND), ..crashed(true) })
}

/// One look more, as the guard takes it.
fn look(facts: &mut Facts) -> Start {
    facts.followers = followers(facts);
    (facts.owed, facts.ahead) = (remember(facts), ahead(facts));
    decide_start(facts)
}

fn takes_over() -> Start {
    let Start::AskFailover { replica, address, .. } = ask(2) else { panic!() };
    Start::AskFailover { replica, address, how: Takeover::ByItself }
}

/// Before, it started as it was, and its replica copied what it had left, or nothing.
#[test]
fn the_replica_of_a_primary_without_slots_takes_over_by_itself() {
    for mut facts in [given(crashed(false)), beside_a_snapshot()] {
        assert_eq!(look(&mut facts), takes_over());
        let mut alone = facts.clone();
        alone.peers.retain(|peer, _| *peer == id(2));
        assert_eq!(look(&mut alone), takes_over(), "nobody has to elect it");
        facts.asked = Some(Asked { replica: id(2), ago: SECOND });
        assert!(matches!(look(&mut facts), Start::Wait { .. }));
        facts.took_over.insert(id(2));
        let mut leads = node(2, None, 9, &[]);
        leads.flags.myself = true;
        facts.peers.get_mut(&id(3)).unwrap().table = vec![node(2, None, 9, &[])];
        let replica = facts.peers.remove(&id(2)).unwrap();
        assert!(matches!(look(&mut facts), Start::Wait { .. }), "it is asked for its own word");
        facts.peers.insert(id(2), Peer { table: vec![leads], ..replica });
        assert_eq!(look(&mut facts), Start::Follow { heir: id(2) });
    }
}

/// Its record and those of all others are of before 2 followed it, as they are for some seconds.
fn unlisted(mut facts: Facts) -> Facts {
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    let tables = facts.peers.iter_mut().filter(|(of, _)| **of != id(2)).map(|(_, peer)| &mut peer.table);
    for line in tables.chain([&mut me.peers]).flatten().filter(|line| line.id == id(2)) {
        *line = node(2, None, 5, &[]);
    }
    facts
}

/// The own word of 2 from now on.
fn says(facts: &mut Facts, primary: Option<u8>) {
    let mut line = node(2, primary, 9, &[]);
    line.flags.myself = true;
    facts.peers.insert(id(2), Peer { table: vec![line], ..peer(2, primary) });
}

/// Before, it started as it was beside its heir.
#[test]
fn an_heir_that_no_table_had_as_a_replica_is_followed() {
    for mut facts in [unlisted(given(crashed(false))), unlisted(beside_a_snapshot())] {
        assert_eq!(look(&mut facts), takes_over(), "by its own word");
        facts.took_over.insert(id(2));
        facts.asked = Some(Asked { replica: id(2), ago: ASK_AGAIN });
        let mut silent = facts.clone();
        silent.peers.remove(&id(2));
        for waited in [Duration::ZERO, PEERS_LIMIT, TAKEOVER_LIMIT] {
            silent.waited = waited;
            assert!(matches!(look(&mut silent), Start::Wait { .. } | Start::Hold { .. }), "it may have everything");
        }
        let mut gone_on = Facts { waited: 1000 * SECOND, ..facts.clone() };
        says(&mut facts, None);
        assert_eq!(look(&mut facts), Start::Follow { heir: id(2) });
        // Who spoke knew less: Redis makes no replica of a primary without slots by itself.
        let mut told = Facts { released: Some(ReleaseHow::AsIs), ..facts.clone() };
        assert_eq!(look(&mut told), Start::Follow { heir: id(2) });
        told.released = Some(ReleaseHow::Blank);
        assert_eq!(look(&mut told), Start::Blank { quarantine: true });
        // It copies another one's data, and what it had of this member's is gone.
        for primary in [Some(3), None] {
            says(&mut gone_on, primary);
            let start = look(&mut gone_on);
            let is_right = if gone_on.holds_data { matches!(start, Start::AsIs { .. }) } else { start == lost() };
            assert!(is_right, "{start:?}");
        }
    }
}

#[test]
fn a_primary_without_slots_waits_for_a_replica_that_is_silent_or_loads() {
    let spoil: [fn(&mut Facts); 2] =
        [|facts| drop(facts.peers.remove(&id(2))), |facts| facts.peers.get_mut(&id(2)).unwrap().loading = true];
    for spoil in spoil {
        let mut facts = Facts { waited: 1000 * SECOND, ..given(crashed(false)) };
        spoil(&mut facts);
        let why = held(&facts);
        assert!(why.starts_with("its first slots were on their way to it and its data set is gone"), "{why}");
        let mut facts = beside_a_snapshot();
        spoil(&mut facts);
        assert!(matches!(look(&mut facts), Start::Wait { .. }));
        let mut seen = beside_a_snapshot();
        assert_eq!(look(&mut seen), takes_over());
        spoil(&mut seen);
        seen.waited = 59 * SECOND;
        assert!(matches!(look(&mut seen), Start::Wait { .. }), "it was seen to be ahead");
    }
}

#[test]
fn a_primary_without_slots_starts_with_what_nobody_has_more_of() {
    let log = Start::AsIs { why: "it owned no slot, and its append-only file has what it had" };
    assert_eq!(look(&mut given(crashed(true))), log);
    let empty = |facts: &mut Facts| {
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        (replica.offset, replica.keys) = (0, 0);
    };
    let (mut bare, mut snapshot) = (given(crashed(false)), beside_a_snapshot());
    empty(&mut bare);
    assert_eq!(look(&mut bare), lost());
    empty(&mut snapshot);
    assert!(matches!(look(&mut snapshot), Start::AsIs { .. }));
}

/// How much had arrived nobody knows.
fn lost() -> Start {
    let lost = "started empty, as its data set is gone and no replica that is known of has a copy; what had arrived of its first slots, if anything, is lost";
    Start::Over { lost: lost.to_owned() }
}

/// Its record is of before it had any, and others may elect.
#[test]
fn nobody_takes_over_by_itself_from_who_has_got_slots_since() {
    let mut facts = beside_a_snapshot();
    let line = node(1, None, 5, &[(0, 99)]);
    facts.peers.get_mut(&id(6)).unwrap().table = vec![node(2, Some(1), 5, &[]), line];
    assert_eq!(look(&mut facts), ask(2));
    facts.peers.remove(&id(3));
    assert!(matches!(look(&mut facts), Start::Wait { .. }));
}

/// Of two who take over by themselves both would be followed.
#[test]
fn a_second_replica_takes_over_by_itself_only_where_the_first_has_not() {
    let mut facts = given(crashed(false));
    let mut second = Peer { offset: 2000, ..peer(4, Some(1)) };
    second.table.retain(|node| node.flags.myself);
    facts.peers.insert(id(4), second);
    facts.took_over.insert(id(2));
    assert!(matches!(decide_start(&facts), Start::AskFailover { replica, .. } if replica == id(4)), "it follows still");
    facts.peers.remove(&id(2));
    assert!(held(&facts).contains("primaries that know it answer where"));
}
