//! A volume of a time when its member owned nothing, and replicas that are started anew as every day.
use super::*;

/// By its record member 1 follows 2, at epoch 5. Others know it as the primary of 0-99 at `epoch`, and 2 as its replica.
fn went_back(epoch: u64) -> Facts {
    let me = Identity {
        role: Role::Replica(id(2)),
        slots: vec![],
        peers: vec![
            node(2, None, 5, &[(0, 99)]),
            node(3, None, 3, &[(100, 9999)]),
            node(6, None, 4, &[(10000, 16383)]),
        ],
        ..owner()
    };
    let mut facts = Facts { verdict: Verdict::Intact(me), ..crashed(true) };
    for peer in facts.peers.values_mut() {
        peer.table.retain(|node| node.id != id(4));
        peer.table.iter_mut().filter(|node| node.id == id(1)).for_each(|line| line.config_epoch = epoch);
    }
    facts
}

/// Changes what everybody says of a node.
fn tell(facts: &mut Facts, last: u8, change: impl Fn(&mut Node)) {
    let lines = facts.peers.values_mut().flat_map(|peer| &mut peer.table);
    lines.filter(|node| node.id == id(last)).for_each(change);
}

/// One look more, as the guard takes it.
fn look(facts: &mut Facts) -> Start {
    facts.owed = remember(facts);
    decide_start(facts)
}

fn held_at(facts: &mut Facts) -> String {
    facts.waited = PEERS_LIMIT;
    match look(facts) {
        Start::Hold { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn starts() -> Start {
    Start::AsIs { why: "it owned no slot" }
}

/// Replica 2 has been elected.
fn take_over(facts: &mut Facts) {
    tell(facts, 1, |line| line.slots.clear());
    tell(facts, 2, |line| *line = Node { flags: line.flags, ..node(2, None, 9, &[(0, 99)]) });
    tell(facts, 2, |line| (line.flags.primary, line.flags.replica) = (true, false));
}

/// Before, both followed each other, the shard had no primary, and no order helped.
#[test]
fn a_volume_of_when_its_member_was_a_replica_is_older() {
    let mut facts = went_back(8);
    assert_eq!(look(&mut facts), ask(2));
    facts.asked = Some(Asked { replica: id(2), ago: SECOND });
    assert!(matches!(look(&mut facts), Start::Wait { .. }));
    let why = format!(
        "its volume is an older copy: it says that this member is a replica of {}, at configuration epoch 5, and others know it at 8 as the primary of \
         100 slots. Started so, it and its replica would follow each other",
        id(2)
    );
    facts.asked = None;
    // It was started anew as well.
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    (replica.link_down_for, replica.current_ago) = (Some(Duration::MAX), Some(Duration::MAX));
    let unknown = format!(
        "{why}. Replica {} holds 10 keys, and nobody can tell whether it had everything when this member died. To go on with what it has: \
         `failover` with mode Force and acceptDataLoss",
        id(2)
    );
    for released in [None, Some(ReleaseHow::AsIs)] {
        facts.released = released;
        assert_eq!(held_at(&mut facts), unknown);
    }
    let mut silent = facts.clone();
    silent.peers.remove(&id(2));
    assert_eq!(held_at(&mut silent), format!("{why}. Replica {}, which does not answer, may have more", id(2)));
    facts.released = None;
    take_over(&mut facts);
    assert_eq!(look(&mut facts), starts(), "it follows its heir");
    facts.released = Some(ReleaseHow::Blank);
    assert_eq!(look(&mut facts), Start::Blank { quarantine: true });
}

/// Before, it started as it was, and its replica copied that.
#[test]
fn a_volume_of_when_its_member_had_no_slots_yet_is_older() {
    let mut facts = went_back(8);
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.role = Role::Primary;
    me.peers[0] = node(2, Some(1), 5, &[]);
    let mut given = facts.clone();
    let Verdict::Intact(me) = &mut given.verdict else { panic!() };
    me.importing = vec![(7, id(3))];
    let why = "its volume is an older copy: it says configuration epoch 5, and others know this member at 8";
    for facts in [&mut facts, &mut given] {
        assert_eq!(look(facts), ask(2));
        facts.peers.remove(&id(2));
        assert_eq!(held_at(facts), format!("{why}. Replica {}, which does not answer, may have more", id(2)));
        tell(facts, 1, |line| line.slots.clear());
        facts.owed = Owed::default();
        assert_eq!(remember(facts), Owed::default(), "it has never had any");
    }
}

#[test]
fn that_a_record_is_older_counts_until_the_slots_have_gone() {
    let mut facts = went_back(8);
    assert_eq!(look(&mut facts), ask(2));
    let mut alone = Facts { peers: BTreeMap::new(), ..facts.clone() };
    for _ in 0..2 {
        assert!(held_at(&mut alone).starts_with("its volume is an older copy"), "nobody answers any more");
    }
    take_over(&mut facts);
    facts.peers.remove(&id(2));
    assert_eq!(look(&mut facts), starts(), "the heir is silent, and others know it");
    // Gone for good, as those say who would elect it.
    let mut forgotten = went_back(8);
    forgotten.peers.remove(&id(2));
    assert!(held_at(&mut forgotten).contains("which does not answer, may have more"));
    for peer in forgotten.peers.values_mut() {
        peer.table.retain(|node| node.id != id(2));
    }
    assert_eq!(look(&mut forgotten), starts(), "nobody has more");
}

type Row = (u64, fn(&mut Facts));

/// Its primary may be gone, and tables be late or borrowed.
#[test]
fn a_replica_whose_record_is_not_behind_waits_for_nobody() {
    let rows: [Row; 7] = [
        (5, |_| {}),
        // It was the primary until a moment ago, and one of the others has not heard of its heir.
        (4, |_| {}),
        (8, |facts| tell(facts, 1, |line| line.slots.clear())),
        (8, |facts| tell(facts, 1, |line| line.flags.no_address = true)),
        (8, |facts| tell(facts, 1, |line| (line.flags.primary, line.primary) = (false, Some(id(2))))),
        // Its slots went to another shard.
        (8, |facts| tell(facts, 3, |line| *line = node(3, None, 9, &[(0, 9999)]))),
        // Its replica has nothing.
        (8, |facts| facts.peers.values_mut().for_each(|peer| (peer.offset, peer.keys) = (0, 0))),
    ];
    for (row, (epoch, change)) in rows.into_iter().enumerate() {
        let mut facts = went_back(epoch);
        change(&mut facts);
        assert_eq!(look(&mut facts), starts(), "{row}");
        assert_eq!(look(&mut Facts { waited: TAKEOVER_LIMIT, ..facts }), starts(), "{row}");
    }
}

/// Before, a first look in which nobody answered in time let it start, and it followed the one that followed it.
#[test]
fn those_who_vote_are_heard_before_a_replica_starts() {
    let mut facts = Facts { peers: BTreeMap::new(), ..went_back(8) };
    let waits = |answered: u8, limit: u8| Start::Listen {
        reason: format!(
            "{answered} of 3 primaries answer; they know whether it has owned slots since, and are waited for, but for {limit} s at most"
        ),
    };
    assert_eq!(look(&mut facts), waits(0, 3));
    let nothing = Facts { holds_data: false, ..facts.clone() };
    assert_eq!(decide_start(&nothing), starts(), "who holds nothing can only copy");
    let gone = Facts { waited: PEERS_LIMIT, ..facts.clone() };
    assert_eq!(decide_start(&gone), starts(), "nobody is there");
    let mut late = Facts { is_voter_late: true, ..gone };
    assert_eq!(look(&mut late), waits(0, 12), "one is there and is slow");
    late.waited = TAKEOVER_LIMIT;
    assert_eq!(look(&mut late), starts());
    let Verdict::Intact(me) = &facts.verdict else { panic!() };
    let at = |last: u8| SocketAddr::from(([127, 84, 0, last], 6379));
    let unsaid = BTreeMap::from([2, 3, 5].map(|node| (id(node), at(node))));
    let heard = BTreeMap::from([(id(2), peer(2, None))]);
    assert_eq!(late_voters(me, &heard, &unsaid), BTreeSet::from([at(3)]), "2 has said it, and 5 has no vote");
    let mut one = facts.clone();
    one.peers = went_back(5).peers;
    one.peers.retain(|peer, _| *peer == id(3));
    assert_eq!(look(&mut one), waits(1, 3));
    facts.peers = went_back(8).peers;
    assert_eq!(look(&mut facts), ask(2));
}

proptest! {
    #[test]
    fn no_table_of_its_time_holds_a_replica(
        peers in prop::collection::vec((any_peer(), 0u64..=5, any::<bool>()), 0..4), noted in prop::option::of(0u64..100)
    ) {
        let mut facts = went_back(5);
        facts.peers = peers.into_iter().map(|((last, mut peer), epoch, has_slots)| {
            for line in peer.table.iter_mut().filter(|line| line.id == id(1)) {
                line.config_epoch = epoch;
                line.slots.retain(|_| has_slots);
            }
            (id(last), peer)
        }).collect();
        facts.copies = noted.map(|count| (id(2), beat(5, count))).into_iter().collect();
        let first = look(&mut facts);
        let hears_others = matches!(first, Start::Listen { .. });
        prop_assert!(hears_others || first == starts());
        facts.waited = PEERS_LIMIT;
        prop_assert_eq!(look(&mut facts), starts());
    }
}
