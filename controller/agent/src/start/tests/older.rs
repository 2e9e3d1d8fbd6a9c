//! A volume that went back, and what outlasts one look.
use super::*;

/// Its volume has come to beat 40, its files were written anew, and its replica, which has noted beat 50, has had the link until now.
fn gone_back() -> Facts {
    let mut facts = Facts { copies: BTreeMap::from([(id(2), beat(5, 50))]), ..crashed(true) };
    forget(&mut facts, 4);
    facts
}

/// Nobody tells of this member.
fn forget(facts: &mut Facts, last: u8) {
    for peer in facts.peers.values_mut() {
        peer.table.retain(|node| node.id != id(last));
    }
}

/// One look more, as the guard takes it.
fn look(facts: &mut Facts) -> Start {
    facts.owed = remember(facts);
    decide_start(facts)
}

fn held_at(facts: &mut Facts) -> String {
    match look(facts) {
        Start::Hold { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn older_beat() -> String {
    format!(
        "its volume is an older copy: it says beat 40 of configuration epoch 5, and replica {} had a whole copy at beat 50 of epoch 5",
        id(2)
    )
}

#[test]
fn a_volume_that_its_replica_has_outlived_never_comes_back_over_it() {
    let mut facts = gone_back();
    assert_eq!(look(&mut facts), ask(2));
    assert_eq!(facts.owed.replicas, BTreeMap::from([(id(2), Some(beat(5, 50)))]));
    facts.asked = Some(Asked { replica: id(2), ago: ASK_AGAIN });
    facts.waited = 1000 * SECOND;
    assert_eq!(look(&mut facts), ask(2), "there is no time after which it would be right");
    facts.released = Some(ReleaseHow::AsIs);
    assert_eq!(look(&mut facts), ask(2), "who spoke did not know");
    facts.peers.remove(&id(6));
    let whom = format!("Replica {} is to take over; 1 primaries that know it answer where 2 are needed", id(2));
    let reason = format!("{}. {whom}", older_beat());
    assert_eq!(held_at(&mut facts), reason);
    facts.waited = SECOND;
    assert_eq!(look(&mut facts), Start::Wait { reason });
    facts.released = Some(ReleaseHow::Blank);
    assert_eq!(look(&mut facts), Start::Blank { quarantine: true });
}

#[test]
fn what_a_replica_has_noted_proves_an_older_volume_only_where_it_is_later() {
    let rows = [
        (Some(beat(5, 40)), beat(5, 40), false),
        (Some(beat(5, 40)), beat(5, 39), false),
        (Some(beat(5, 40)), beat(5, 41), true),
        // After a change of primaries and back, the count of a replica that was away says nothing.
        (Some(beat(7, 1)), beat(5, 900), false),
        (Some(beat(5, 900)), beat(7, 1), true),
        // Of an earlier release, or illegible.
        (None, beat(5, 900), false),
    ];
    for (own, noted, is_older) in rows {
        let mut facts = Facts { beat: own, ..gone_back() };
        facts.copies = BTreeMap::from([(id(2), noted)]);
        assert_eq!(!remember(&facts).is_empty(), is_older, "{own:?} {noted:?}");
    }
}

#[test]
fn what_was_seen_once_counts_until_it_is_disproved() {
    let mut facts = Facts { waited: TAKEOVER_LIMIT, ..gone_back() };
    assert_eq!(look(&mut facts), ask(2));
    let with_witness = facts.clone();
    (facts.peers.remove(&id(2)), facts.copies.clear()).0.unwrap();
    let silent = format!("{}. Replica {}, which does not answer, may have more", older_beat(), id(2));
    for _ in 0..3 {
        assert_eq!(held_at(&mut facts), silent);
    }
    facts.asked = Some(Asked { replica: id(2), ago: ASK_AGAIN });
    facts.released = Some(ReleaseHow::AsIs);
    assert_eq!(held_at(&mut facts), silent);
    facts.released = None;
    // Nobody answers at all.
    let mut alone = Facts { peers: BTreeMap::new(), ..facts.clone() };
    assert_eq!(held_at(&mut alone), silent);
    // It is gone for good, as those say who would elect.
    let mut forgotten = facts.clone();
    forget(&mut forgotten, 2);
    assert!(matches!(look(&mut forgotten), Start::AsIs { .. }));
    let mut one_says_so = facts.clone();
    forget(&mut one_says_so, 2);
    one_says_so.peers.remove(&id(6));
    assert_eq!(held_at(&mut one_says_so), silent);
    // It answers, and has nothing, or not more.
    facts.peers.insert(id(2), Peer { offset: 0, keys: 0, ..with_witness.peers[&id(2)].clone() });
    assert!(matches!(look(&mut facts.clone()), Start::AsIs { .. }));
    let kept = Peer { offset: 0, link_down_for: Some(Duration::MAX), ..with_witness.peers[&id(2)].clone() };
    facts.peers.insert(id(2), kept);
    assert!(matches!(look(&mut facts.clone()), Start::Hold { .. }));
    facts.copies = BTreeMap::from([(id(2), beat(5, 40))]);
    assert!(matches!(look(&mut facts), Start::AsIs { .. }));
}

#[test]
fn an_older_volume_alone_forces_no_replica_that_was_not_fed_until_the_end() {
    let mut facts = Facts { waited: PEERS_LIMIT, ..gone_back() };
    let unknown = format!(
        "{}. Replica {} holds 10 keys, and nobody can tell whether it had everything when this member died. To go on with what it has: \
         `failover` with mode Force and acceptDataLoss",
        older_beat(),
        id(2)
    );
    for (offset, down) in [(0, Duration::MAX), (1000, Duration::MAX), (1000, PEERS_LIMIT + RESTART + SECOND)] {
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        (replica.offset, replica.link_down_for) = (offset, Some(down));
        assert_eq!(held_at(&mut facts), unknown);
    }
    // Another was fed until the end, but the first had more.
    facts.peers.insert(id(4), Peer { offset: 2000, ..peer(4, Some(1)) });
    facts.peers.extend([3, 6].map(|voter| (id(voter), peer(voter, None))));
    facts.copies.insert(id(4), beat(5, 45));
    assert_eq!(held_at(&mut facts), unknown);
    facts.copies.insert(id(4), beat(5, 50));
    assert_eq!(look(&mut facts), ask(4), "of two that have come as far, the one with more of the stream");
}

#[test]
fn a_replica_that_loads_or_is_not_started_has_what_its_volume_says() {
    let mut facts = Facts { waited: TAKEOVER_LIMIT, ..gone_back() };
    let not_ready = format!("{}. Replica {}, whose Redis is not ready, has more", older_beat(), id(2));
    facts.peers.get_mut(&id(2)).unwrap().loading = true;
    assert_eq!(held_at(&mut facts), not_ready);
    facts.owed = Owed::default();
    facts.peers.remove(&id(2));
    assert_eq!(held_at(&mut facts), not_ready);
}

#[test]
fn a_volume_that_does_not_know_its_members_own_epoch_is_older() {
    let mut facts = crashed(true);
    let voter = facts.peers.get_mut(&id(3)).unwrap();
    voter.table.iter_mut().find(|node| node.id == id(1)).unwrap().config_epoch = 8;
    facts.waited = PEERS_LIMIT;
    let why = "its volume is an older copy: it says configuration epoch 5, and others know this member at 8";
    assert_eq!(held_at(&mut facts), format!("{why}. Replica {}, which does not answer, may have more", id(4)));
    forget(&mut facts, 4);
    assert_eq!(look(&mut facts), ask(2));
    let mut alone = facts.clone();
    alone.peers.remove(&id(6));
    assert_eq!(
        held_at(&mut alone),
        format!("{why}. Replica {} is to take over; 1 primaries that know it answer where 2 are needed", id(2))
    );
    // Nobody can tell how old this copy is, and it makes no difference whether the volume says how far it had come.
    facts.waited = TAKEOVER_LIMIT;
    for (own, down) in [(Some(beat(5, 40)), Duration::MAX), (None, Duration::MAX), (None, 100 * SECOND)] {
        facts.beat = own;
        facts.peers.get_mut(&id(2)).unwrap().link_down_for = Some(down);
        assert!(held_at(&mut facts).starts_with(&format!("{why}. Replica {} holds 10 keys, and nobody", id(2))));
    }
    // A replica that was left behind before the volume has less.
    let mut behind = Facts { beat: Some(beat(5, 40)), copies: BTreeMap::from([(id(2), beat(5, 30))]), ..facts.clone() };
    assert!(matches!(look(&mut behind), Start::AsIs { .. }));
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    (replica.keys, replica.offset) = (0, 0);
    assert!(matches!(look(&mut facts.clone()), Start::AsIs { .. }), "its one replica holds nothing");
    let nobody = Facts { owed: Owed::default(), peers: BTreeMap::new(), ..facts };
    assert!(matches!(decide_start(&nobody), Start::AsIs { .. }), "nobody says anything else");
}

/// Another node answers at the address that this member had, and its line has taken that one's epoch.
#[test]
fn a_borrowed_epoch_says_nothing_where_every_replica_tells_its_beat() {
    let told_by = |copies: &[u8], epoch: u64, others: u64, no_address: bool| {
        let mut facts = Facts { waited: PEERS_LIMIT, ..crashed(true) };
        facts.copies.extend(copies.iter().map(|replica| (id(*replica), beat(5, 30))));
        for voter in [3, 6] {
            let table = &mut facts.peers.get_mut(&id(voter)).unwrap().table;
            table.iter_mut().filter(|node| node.id == id(6)).for_each(|node| node.config_epoch = others);
            let line = table.iter_mut().find(|node| node.id == id(1)).unwrap();
            (line.config_epoch, line.flags.no_address) = (epoch, no_address);
            // Of replicas Redis tells the epoch of their primary.
            let own = table.iter_mut().filter(|node| node.primary.as_ref() == Some(&id(1)));
            own.for_each(|node| node.config_epoch = epoch);
        }
        look(&mut facts)
    };
    let all_told = |epoch, others, no_address| told_by(&[2, 4], epoch, others, no_address);
    let as_it_is = all_told(5, 8, false);
    assert!(!matches!(as_it_is, Start::Hold { .. }), "{as_it_is:?}");
    assert_eq!(all_told(8, 8, true), as_it_is);
    assert_eq!(all_told(8, 9, true), as_it_is, "whose epoch that was may have another one by now");
    let is_older =
        |start: Start| matches!(start, Start::Hold { reason } if reason.starts_with("its volume is an older copy"));
    assert!(is_older(told_by(&[2], 8, 8, true)), "a replica that is silent may have more");
    assert!(is_older(told_by(&[], 8, 8, false)), "the line of a node that has its address is its own");
}

type LookOf = (Vec<(u8, Peer)>, BTreeMap<u8, u64>, u64, Option<u64>, bool);

/// Replicas come and go, and the two that vote are both there, or one or none is.
fn any_look() -> impl Strategy<Value = LookOf> {
    let voters = prop::sample::subsequence(vec![3u8, 6], 0..=2);
    let peers = (prop::collection::vec(any_peer(), 0..4), voters).prop_map(|(peers, voters)| {
        let replicas = peers.into_iter().filter(|(last, _)| *last != 3);
        replicas.chain(voters.into_iter().map(|voter| (voter, peer(voter, None)))).collect()
    });
    let copies = prop::collection::btree_map(prop::sample::select(vec![2u8, 4, 5]), 38u64..44, 0..3);
    (peers, copies, 0u64..2000, prop::option::of(0u64..10), any::<bool>())
}

proptest! {
    #[test]
    fn nobody_starts_over_a_replica_that_was_fed_after_the_volume(looks in prop::collection::vec(any_look(), 1..6)) {
        let (mut owed, mut more) = (Owed::default(), std::collections::BTreeSet::new());
        for (peers, copies, waited, asked, released) in looks {
            let mut facts = Facts {
                peers: peers.into_iter().map(|(last, peer)| (id(last), peer)).collect(),
                copies: copies.into_iter().map(|(last, count)| (id(last), beat(5, count))).collect(),
                waited: Duration::from_secs(waited),
                asked: asked.map(|ago| Asked { replica: id(2), ago: Duration::from_secs(ago) }),
                released: released.then_some(ReleaseHow::AsIs),
                owed,
                ..crashed(true)
            };
            let start = look(&mut facts);
            more.extend(facts.copies.iter().filter(|(_, noted)| **noted > beat(5, 40)).map(|(id, _)| id.clone()));
            // Only its own answer, or what all who would elect say of it, shows that it has no more.
            more.retain(|replica| match facts.peers.get(replica) {
                Some(peer) if peer.syncing || peer.loading => true,
                Some(peer) => {
                    let is_less = facts.copies.get(replica).is_some_and(|noted| *noted <= beat(5, 40));
                    peer.replicates(&id(1)) && peer.has_whole_copy() && !is_less
                }
                None => facts.copies.contains_key(replica)
                    || !facts.peers.contains_key(&id(3)) || !facts.peers.contains_key(&id(6))
                    || facts.peers.values().any(|peer| peer.table.iter().any(|node| node.id == *replica)),
            });
            let starts = matches!(start, Start::AsIs { .. } | Start::Over { .. });
            prop_assert!(more.is_empty() || !starts);
            prop_assert!(more.is_empty() || !facts.owed.is_empty(), "it would tell its node ID");
            if let Start::AskFailover { replica, .. } = start && !more.is_empty() {
                let peer = &facts.peers[&replica];
                prop_assert!(peer.link_down_for.unwrap_or_default() <= facts.waited + RESTART);
            }
            owed = facts.owed;
        }
    }
}

/// Measured before, with Redis 8.0: its former primary became its replica before it had heard of the raise, and lowered the heir's epoch. Both were killed,
/// and the heir was held for ever.
#[test]
fn an_epoch_that_its_record_has_heard_of_is_no_later_one() {
    let mut facts = crashed(true);
    for peer in facts.peers.values_mut() {
        peer.table.iter_mut().filter(|node| node.id == id(1)).for_each(|line| line.config_epoch = 8);
    }
    facts.beat = None;
    assert_eq!(remember(&facts).epoch, Some(8));
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.current_epoch = 8;
    assert_eq!(remember(&facts).epoch, None);
}
