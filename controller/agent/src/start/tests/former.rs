//! One that was elected in place of a primary that stands still.
use super::*;

/// Elected in place of 2, which is a primary without slots to everybody.
fn elected(facts: Facts) -> Facts {
    let mut facts = Facts { keeps_each_write: false, former: Some(id(2)), waited: 1000 * SECOND, ..facts };
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    let tables = facts.peers.values_mut().map(|peer| &mut peer.table);
    for table in tables.chain([&mut me.peers]) {
        table.retain(|line| line.id != id(4));
        table.iter_mut().filter(|line| line.id == id(2)).for_each(|line| *line = node(2, None, 5, &[]));
    }
    facts.peers.remove(&id(2));
    facts
}

/// The own word of 2.
fn says(facts: &mut Facts, primary: Option<u8>, keys: i64, slots: &[resp::SlotRange], epoch: u64) {
    let mut line = node(2, primary, epoch, &[]);
    (line.flags.myself, line.slots) = (true, slots.to_vec());
    facts.peers.insert(id(2), Peer { table: vec![line], keys, ..peer(2, primary) });
}

/// Measured before: elected in place of one that stood still, killed and started again at once, it was empty, and who woke up then copied that.
#[test]
fn in_whose_place_it_was_elected_is_waited_for_and_asked() {
    let mut facts = elected(crashed(false));
    let why = |why: &str| {
        format!(
            "it owned 100 slots and its data set is gone; node {}, in whose place it was elected and which {why}, may have everything until then. It \
             will not come back as an empty primary",
            id(2)
        )
    };
    assert_eq!(held(&facts), why("does not answer"));
    says(&mut facts, None, 7, &[], 5);
    assert_eq!(held(&facts), why("takes itself for a primary"));
    // As soon as most primaries know that it follows.
    let known = Facts { peers: crashed(false).peers, ..facts.clone() };
    assert_eq!(decide_start(&known), ask(2));
    says(&mut facts, None, 0, &[], 5);
    assert!(matches!(decide_start(&facts), Start::Over { .. }), "it has nothing");
}

#[test]
fn one_that_most_have_forgotten_is_waited_for_no_more() {
    let mut facts = elected(crashed(false));
    facts.peers.values_mut().for_each(|peer| peer.table.retain(|line| line.id != id(2)));
    assert!(matches!(decide_start(&facts), Start::Over { .. }));
    facts.peers.clear();
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "nobody says so");
}

#[test]
fn beside_a_snapshot_of_before_it_is_waited_for_as_any_silent_one() {
    let snapshot = Facts { has_log: false, written: Some(600 * SECOND), ..crashed(true) };
    let mut facts = Facts { waited: Duration::ZERO, ..elected(snapshot) };
    let Start::Wait { reason } = decide_start(&facts) else { panic!() };
    assert!(reason.contains("in whose place it was elected and which does not answer, may be ahead of it"), "{reason}");
    facts.waited = 1000 * SECOND;
    assert!(matches!(decide_start(&facts), Start::Over { .. }));
    facts.former = None;
    assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
    // What it has is in its file.
    let log = elected(crashed(true));
    assert!(matches!(decide_start(&log), Start::AsIs { .. }));
}

/// It is no replica that was promoted: its volume would be overwritten where it is set aside, and kept.
#[test]
fn one_that_has_won_the_slots_back_is_no_heir() {
    let Verdict::Intact(me) = crashed(true).verdict else { panic!() };
    for facts in [crashed(true), crashed(false)] {
        let mut with = elected(facts);
        says(&mut with, None, 7, &me.slots, 99);
        let without = Facts { former: None, ..with.clone() };
        assert_eq!(decide_start(&with), decide_start(&without));
        assert!(!matches!(decide_start(&with), Start::Follow { .. }));
    }
}

/// Before, an old copy was asked to take over at once, and who stood still, and had everything, copied that.
#[test]
fn an_old_copy_is_not_asked_beside_one_in_whose_place_it_was_elected() {
    let mut facts = elected(crashed(false));
    let old = || {
        let mut old = Peer { offset: 5, link_down_for: Some(300 * SECOND), ..peer(4, Some(1)) };
        old.table.retain(|line| line.id != id(2));
        old
    };
    facts.peers.insert(id(4), old());
    let why = held(&facts);
    let other = format!("node {}, in whose place it was elected and which does not answer, may have more", id(2));
    assert!(why.starts_with("its data set is gone, replica ") && why.ends_with(&other), "{why}");
    let snapshot = Facts { has_log: false, written: Some(600 * SECOND), ..crashed(true) };
    let mut facts = Facts { waited: Duration::ZERO, ..elected(snapshot) };
    facts.peers.insert(id(4), old());
    assert!(matches!(decide_start(&facts), Start::Wait { .. }), "{:?}", decide_start(&facts));
}

/// Who said that it may start knew less than this.
#[test]
fn it_does_not_start_empty_as_it_is_told_to_beside_one_that_answers_with_keys() {
    let mut facts = elected(crashed(false));
    facts.released = Some(ReleaseHow::AsIs);
    assert!(matches!(decide_start(&facts), Start::Over { .. }), "nobody answers");
    says(&mut facts, None, 7, &[], 5);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }));
}

/// Before, with another identity nobody could be elected in its place, and a person had to order what it would have asked for itself.
#[test]
fn it_takes_no_other_identity_where_somebody_answers_who_has_a_copy() {
    let mut facts = elected(crashed(false));
    facts.released = Some(ReleaseHow::Blank);
    assert_eq!(decide_start(&facts), Start::Blank { quarantine: true }, "nobody answers");
    says(&mut facts, None, 7, &[], 5);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }));
    let known = Facts { peers: crashed(false).peers, ..facts };
    assert_eq!(decide_start(&known), ask(2));
}

/// One that Redis leaves a primary with keys of before follows nobody, however long it is waited for: then the controller's word counts.
#[test]
fn beside_a_former_primary_that_has_heard_of_the_election_the_word_counts() {
    let mut facts = elected(crashed(false));
    let Verdict::Intact(me) = facts.verdict.clone() else { panic!() };
    let heard = |facts: &mut Facts, slots: &[resp::SlotRange], epoch: u64| {
        says(facts, None, 7, &[], 5);
        let mut line = node(1, None, epoch, &[]);
        line.slots = slots.to_vec();
        facts.peers.get_mut(&id(2)).unwrap().table.push(line);
    };
    heard(&mut facts, &me.slots, me.config_epoch);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "what it has may be nowhere else");
    facts.released = Some(ReleaseHow::Blank);
    assert_eq!(decide_start(&facts), Start::Blank { quarantine: true });
    heard(&mut facts, &me.slots, me.config_epoch - 1);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "it has heard of what was before");
    heard(&mut facts, &[resp::SlotRange { first: 0, last: 9 }], me.config_epoch);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "not all of it");
}

/// Measured before: killed 0.3 s after it was elected, it started empty, and who woke up then copied that.
#[test]
fn in_whose_place_it_was_elected_is_in_its_record_before_it_is_noted() {
    let mut facts = elected(crashed(false));
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.config_epoch = 9;
    let recorded = |me: &Identity, epoch: Option<u64>| recorded_former(me, epoch.map(|epoch| beat(epoch, 4)));
    assert_eq!(recorded(me, None), Some(id(2)));
    assert_eq!(recorded(me, Some(8)), Some(id(2)), "that was noted before it was elected");
    assert_eq!(recorded(me, Some(9)), None, "what was noted since counts");
    me.peers.push(node(9, None, 8, &[]));
    assert_eq!(recorded(me, None), Some(id(9)), "it owned slots later");
    me.peers.iter_mut().filter(|peer| peer.id == id(2)).for_each(|peer| peer.flags.failed = true);
    assert_eq!(recorded(me, None), Some(id(2)));
    me.peers.iter_mut().filter(|peer| [id(2), id(9)].contains(&peer.id)).for_each(|peer| {
        (peer.flags.primary, peer.flags.replica, peer.primary) = (false, true, Some(id(1)));
    });
    assert_eq!(recorded(me, None), None, "they follow");
    me.slots.clear();
    assert_eq!(recorded(me, None), None);
}

/// Before, it was held for every primary of another shard that its record had without slots.
#[test]
fn a_primary_of_another_shard_is_no_former_one() {
    let mut facts = Facts { former: None, recorded_former: Some(id(2)), ..elected(crashed(false)) };
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "it may be");
    says(&mut facts, None, 7, &[resp::SlotRange { first: 0, last: 9 }], 3);
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "it has slots of this one");
    let [mine, other] = [(0, 9), (10000, 10009)].map(|(first, last)| resp::SlotRange { first, last });
    says(&mut facts, None, 7, &[mine, other], 3);
    facts.peers.get_mut(&id(2)).unwrap().table[0].importing = vec![(10010, id(6))];
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "and more, and more are on their way to it");
    says(&mut facts, None, 7, &[resp::SlotRange { first: 10000, last: 10009 }], 3);
    for released in [None, Some(ReleaseHow::AsIs)] {
        facts.released = released;
        assert!(matches!(decide_start(&facts), Start::Over { .. }), "{released:?}");
    }
    says(&mut facts, None, 7, &[], 3);
    let line = &mut facts.peers.get_mut(&id(2)).unwrap().table[0];
    line.importing = vec![(10000, id(6))];
    assert!(matches!(decide_start(&facts), Start::Over { .. }), "its first slots are on their way to it");
}

/// Before, a snapshot that nobody was known to have gone beyond was loaded at once.
#[test]
fn beside_a_snapshot_one_that_is_only_in_the_record_is_waited_for() {
    let snapshot = Facts { has_log: false, served_since: false, written: Some(600 * SECOND), ..crashed(true) };
    let mut facts = Facts { former: None, waited: Duration::ZERO, ..elected(snapshot) };
    assert!(matches!(decide_start(&facts), Start::AsIs { .. }), "it saved when it ended");
    facts.recorded_former = Some(id(2));
    let Start::Wait { reason } = decide_start(&facts) else { panic!() };
    assert!(reason.contains("in whose place it was elected and which does not answer, may be ahead of it"), "{reason}");
}

/// Its agent notes once a second: as what, and in which life.
#[test]
fn it_has_led_unnoted_where_the_last_note_is_a_replicas_or_of_before() {
    let Verdict::Intact(mut me) = crashed(false).verdict else { panic!() };
    me.config_epoch = 9;
    let noted = |epoch: u64, copy_of: Option<&str>| {
        let copy_of = copy_of.map(str::to_owned);
        crate::alive::Alive { beat: beat(epoch, 4), copy_of, stream: None, in_place_of: None }
    };
    let cases = [noted(9, None), noted(8, None), noted(9, Some("a"))].map(|noted| has_led_unnoted(&me, Some(&noted)));
    assert_eq!((cases, has_led_unnoted(&me, None)), ([false, true, true], true));
    me.slots.clear();
    assert!(!has_led_unnoted(&me, None), "it has not led");
}

/// Before, it loaded its snapshot over one that it had just sent everything, as nobody had seen that one's copy to be whole.
#[test]
fn whoever_had_a_link_to_one_that_led_for_a_moment_is_asked() {
    let mut led = Facts { has_log: false, written: Some(600 * SECOND), waited: Duration::ZERO, ..crashed(true) };
    led.peers.values_mut().for_each(|peer| peer.table.retain(|line| line.id != id(4)));
    let replica = led.peers.get_mut(&id(2)).unwrap();
    (replica.current_ago, replica.stream) = (Some(Duration::MAX), Some("its own".to_owned()));
    let decides = |change: &dyn Fn(&mut Facts)| {
        let mut facts = Facts { has_led_unnoted: true, served_since: false, ..led.clone() };
        change(&mut facts);
        count_unnoted_lead(&mut facts);
        decide_start(&facts)
    };
    let replica = |change: fn(&mut Peer)| move |facts: &mut Facts| change(facts.peers.get_mut(&id(2)).unwrap());
    assert_eq!(decides(&|_| {}), ask(2));
    let waits = [
        decides(&|facts| (facts.has_led_unnoted, facts.served_since) = (false, true)),
        // Restarted since, it holds what its disk had.
        decides(&replica(|peer| peer.link_down_for = Some(Duration::MAX))),
        // Its link is another's.
        decides(&replica(|peer| peer.link_down_for = Some(60 * SECOND))),
        // It led long before, under this ID, and somebody's agent could have seen it.
        decides(&|facts| facts.stream = Some("its own".to_owned())),
    ];
    assert!(waits.iter().all(|start| matches!(start, Start::Wait { .. })), "{waits:?}");
}

/// The link is there as soon as the rest is to be sent (`+CONTINUE`), and may end before that has come.
#[test]
fn one_that_lacks_what_the_snapshot_has_of_their_history_is_not_asked() {
    for (offset, is_asked) in [(600, false), (800, false), (801, true)] {
        let snapshot = Some(crate::origin::Origin { stream: "before".to_owned(), offset: 800 });
        let mut facts =
            Facts { has_log: false, snapshot, written: Some(600 * SECOND), waited: Duration::ZERO, ..crashed(true) };
        facts.peers.values_mut().for_each(|peer| peer.table.retain(|line| line.id != id(4)));
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        (replica.current_ago, replica.offset) = (Some(Duration::MAX), offset);
        (replica.stream, replica.went_on_from) = (Some("its own".to_owned()), Some(("before".to_owned(), 501)));
        facts.has_led_unnoted = true;
        count_unnoted_lead(&mut facts);
        assert_eq!(decide_start(&facts) == ask(2), is_asked, "{offset}: {:?}", decide_start(&facts));
    }
}
