//! The start decision, hazard by hazard, and its properties over random peers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use proptest::prelude::*;
use resp::nodes::{Flags, SlotRange};

use super::*;
use crate::identity::{Role, tests::id};

mod beside;
mod double;
mod first;
mod former;
mod led;
mod older;

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
        current_epoch: 5,
        id: id(1),
        address: Some(SocketAddr::from(([127, 84, 0, 1], 6379))),
        role: Role::Primary,
        config_epoch: 5,
        slots: vec![SlotRange { first: 0, last: 99 }],
        importing: vec![],
        peers: vec![node(2, Some(1), 5, &[]), node(3, None, 3, &[(100, 9999)]), node(6, None, 4, &[(10000, 16383)])],
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
        stream: None,
        went_on_from: None,
        syncing: false,
        loading: false,
        lags: false,
        fails: false,
        link_down_for: primary.map(|_| SECOND),
        fed: None,
        current_ago: primary.map(|_| 2 * SECOND),
        keys: 10,
    }
}

pub(crate) fn crashed(holds_data: bool) -> Facts {
    Facts {
        mode: Mode::Cluster,
        verdict: Verdict::Intact(owner()),
        holds_data,
        lags: false,
        foreign: None,
        double: None,
        unheard: None,
        written: holds_data.then_some(SECOND),
        beat: holds_data.then_some(beat(5, 40)),
        copies: BTreeMap::new(),
        owed: Owed::default(),
        ahead: BTreeSet::new(),
        has_led_unnoted: false,
        given_up: false,
        has_log: holds_data,
        snapshot: None,
        stream: None,
        served_since: holds_data,
        keeps_each_write: true,
        peers: BTreeMap::from([(id(2), peer(2, Some(1))), (id(3), peer(3, None)), (id(6), peer(6, None))]),
        is_voter_late: false,
        node_timeout: 5 * SECOND,
        waited: Duration::ZERO,
        began: Duration::ZERO,
        asked: None,
        took_over: BTreeSet::new(),
        followers: BTreeSet::new(),
        former: None,
        recorded_former: None,
        released: None,
    }
}

fn beat(epoch: u64, count: u64) -> Beat {
    Beat { epoch, count }
}

fn ask(last: u8) -> Start {
    Start::AskFailover {
        replica: id(last),
        address: SocketAddr::from(([127, 84, 0, last], 6379)),
        how: Takeover::Elected,
    }
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
fn a_volume_of_another_member_is_never_started_as_it_is() {
    let foreign = Some("the volume holds the data of somebody else".to_owned());
    for mode in [Mode::Cluster, Mode::Standalone] {
        let mut facts = Facts { mode, foreign: foreign.clone(), ..crashed(true) };
        for released in [None, Some(ReleaseHow::AsIs)] {
            facts.released = released;
            assert_eq!(Some(held(&facts)), foreign);
        }
        facts.released = Some(ReleaseHow::Blank);
        assert_eq!(decide_start(&facts), Start::Blank { quarantine: true });
    }
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
    (lost_election.holds_data, lost_election.has_log) = (false, false);
    assert_eq!(decide_start(&lost_election), ask(2));
    let table = &mut facts.peers.get_mut(&id(3)).unwrap().table;
    *table = vec![node(1, Some(2), 5, &[]), node(2, None, 6, &[(0, 99)])];
    assert!(matches!(decide_start(&facts), Start::Wait { .. }), "the heir has not said so itself");
    let late = Facts { waited: TAKEOVER_LIMIT, ..facts.clone() };
    assert_eq!(decide_start(&late), Start::AsIs { why: "its slots have other owners, Redis will give them up" });
    // By its own word, and with more than it inherited.
    let mut heir = node(2, None, 6, &[(0, 99), (7000, 7000)]);
    heir.flags.myself = true;
    facts.peers.get_mut(&id(2)).unwrap().table = vec![heir];
    assert_eq!(decide_start(&facts), Start::Follow { heir: id(2) });
    facts.peers.get_mut(&id(2)).unwrap().loading = true;
    assert!(matches!(decide_start(&facts), Start::Wait { .. }));
    facts.peers.remove(&id(2));
    assert!(matches!(decide_start(&facts), Start::Wait { .. }), "a look that it did not answer");
    let strangers = vec![node(1, Some(7), 5, &[]), node(7, None, 6, &[(0, 99)])];
    facts.peers.get_mut(&id(3)).unwrap().table = strangers;
    assert_eq!(decide_start(&facts), Start::AsIs { why: "its slots have other owners, Redis will give them up" });
}

/// Member 7 owns its slots by a later decision; nobody knows of a replica of its own.
fn given_up() -> Facts {
    let mut facts = crashed(true);
    let mut line = node(7, None, 6, &[(0, 99)]);
    for peer in facts.peers.values_mut() {
        peer.table = vec![line.clone()];
    }
    line.flags.myself = true;
    facts.peers.remove(&id(2));
    facts.peers.insert(id(7), Peer { table: vec![line], ..peer(7, None) });
    facts
}

#[test]
fn what_lies_on_a_volume_that_was_given_up_is_not_thrown_away() {
    let mut facts = given_up();
    assert!(held(&facts).starts_with("all its slots have other owners, and nobody knows of a replica that took over"));
    assert!(is_given_up(&facts));
    facts.released = Some(ReleaseHow::AsIs);
    assert_eq!(held(&facts), orphaned::WHY, "who spoke did not know");
    facts.released = Some(ReleaseHow::Blank);
    assert_eq!(decide_start(&facts), Start::Blank { quarantine: true });
    for facts in [
        Facts { has_log: false, ..given_up() },
        Facts { beat: None, ..given_up() },
        Facts { waited: TAKEOVER_LIMIT, ..given_up() },
    ] {
        assert_eq!(held(&facts), orphaned::WHY);
    }
}

/// Before, one look without the present owner let it start, and what lay there was overwritten.
#[test]
fn who_was_given_up_is_held_also_when_nobody_says_so_any_more() {
    let mut facts = Facts { given_up: true, waited: TAKEOVER_LIMIT, ..given_up() };
    facts.peers.remove(&id(7));
    assert_eq!(held(&facts), orphaned::WHY, "its owner is silent");
    facts.peers.clear();
    assert_eq!(held(&facts), orphaned::WHY, "everybody is silent");
    facts.released = Some(ReleaseHow::AsIs);
    assert_eq!(held(&facts), orphaned::WHY);
}

/// Before, one look at which nobody answered let it start at once.
#[test]
fn who_has_no_replica_hears_others_before_it_starts() {
    let mut facts = crashed(true);
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.peers.remove(0);
    facts.peers.clear();
    let waits = Start::Listen { reason: "0 of 2 primaries answer; they know what has become of its slots".to_owned() };
    assert_eq!(decide_start(&facts), waits);
    let starts = Start::AsIs { why: "no replica in sync answers, and the data set is on disk" };
    assert_eq!(decide_start(&Facts { waited: PEERS_LIMIT, ..facts.clone() }), starts);
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.peers.clear();
    assert_eq!(decide_start(&facts), starts, "nobody is there who could know");
}

#[test]
fn who_has_an_heir_that_others_know_was_not_given_up() {
    let goes_on = Start::AsIs { why: "its slots have other owners, Redis will give them up" };
    let mut replica_is_known = Facts { given_up: true, ..given_up() };
    replica_is_known.peers.get_mut(&id(3)).unwrap().table.push(node(2, Some(7), 6, &[]));
    assert!(!is_given_up(&replica_is_known));
    assert_eq!(decide_start(&replica_is_known), goes_on);
    for line in replica_is_known.peers.get_mut(&id(3)).unwrap().table.iter_mut().filter(|line| line.id == id(2)) {
        line.flags.failed = true;
    }
    assert_eq!(held(&replica_is_known), orphaned::WHY, "others name it for long after it is gone");
    let mut gone_on = given_up();
    gone_on.peers.get_mut(&id(3)).unwrap().table.push(node(1, None, 8, &[(200, 300)]));
    assert!(!is_given_up(&gone_on), "its volume is an older copy");
    let nothing_lies_there = Facts { holds_data: false, ..given_up() };
    assert_eq!(decide_start(&nothing_lies_there), goes_on);
    let mut some_slots = given_up();
    for peer in some_slots.peers.values_mut() {
        peer.table[0].slots[0].last = 98;
    }
    assert!(!is_given_up(&some_slots), "it owns one of them still");
}

/// Before, it was held as one that was given up: nobody knew of a replica that could have taken over.
#[test]
fn an_heir_that_its_record_does_not_list_is_one_all_the_same() {
    let mut facts = crashed(true);
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.peers[0] = node(2, None, 2, &[]);
    facts.followers = followers(&facts);
    assert_eq!(decide_start(&facts), ask(2));
    facts.asked = Some(Asked { replica: id(2), ago: SECOND });
    let mut line = node(2, None, 6, &[(0, 99)]);
    for peer in facts.peers.values_mut() {
        peer.table = vec![line.clone()];
    }
    line.flags.myself = true;
    facts.peers.get_mut(&id(2)).unwrap().table = vec![line];
    let mut silent = facts.clone();
    silent.peers.remove(&id(2));
    for (facts, start) in [(&mut facts, Some(Start::Follow { heir: id(2) })), (&mut silent, None)] {
        facts.followers = followers(facts);
        assert!(!is_given_up(facts));
        let decided = decide_start(facts);
        assert!(start.is_none_or(|start| decided == start) && !matches!(decided, Start::Hold { .. }), "{:?}", facts);
    }
}

#[test]
fn a_replica_that_the_primaries_do_not_know_yet_is_not_asked_in_vain() {
    let mut facts = crashed(true);
    for voter in [3, 6] {
        facts.peers.get_mut(&id(voter)).unwrap().table.retain(|node| node.id != id(2));
    }
    let replica = id(2);
    let reason = format!(
        "0 primaries know replica {replica} and could elect it, 2 are needed; after 12 s it starts with its own data set"
    );
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
    (alone.holds_data, alone.has_log) = (false, false);
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

/// Before, it was: as a primary it would have taken no writes, and lost with its process what it has.
#[test]
fn a_replica_whose_disk_takes_no_writes_is_not_preferred() {
    for holds_data in [true, false] {
        let mut facts = Facts { has_log: false, ..crashed(holds_data) };
        let failing = Peer { lags: true, fails: true, ..peer(1, Some(1)) };
        let mut failing = Peer { table: peer(4, Some(1)).table, address: peer(4, Some(1)).address, ..failing };
        facts.peers.insert(id(4), failing.clone());
        assert_eq!(decide_start(&facts), ask(2));
        failing.offset += 1;
        facts.peers.insert(id(4), failing);
        assert_eq!(decide_start(&facts), ask(4), "it has more, and a disk can be mended");
        facts.peers.remove(&id(2));
        assert_eq!(decide_start(&facts), ask(4), "nobody else is there");
    }
}

#[test]
fn a_replica_that_is_not_whole_or_lags_behind_the_disk_is_never_asked() {
    let unfit: [fn(&mut Peer); 7] = [
        |peer| peer.syncing = true,
        |peer| peer.loading = true,
        |peer| (peer.offset, peer.keys) = (0, 0),
        |peer| peer.link_down_for = Some(10 * SECOND),
        // Redis shows its link as lost a second ago, or as up.
        |peer| peer.current_ago = Some(60 * SECOND),
        |peer| (peer.link_down_for, peer.current_ago) = (None, Some(Duration::MAX)),
        |peer| hold_back(peer),
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
    let replica = restarted.peers.get_mut(&id(2)).unwrap();
    (replica.offset, replica.current_ago) = (0, Some(Duration::MAX));
    restarted.waited = PEERS_LIMIT;
    assert!(matches!(decide_start(&restarted), Start::AsIs { .. }), "it has old keys and was not in sync since");
}

/// Before, it counted as one that was never in sync, and copied what its primary started with.
#[test]
fn a_copy_that_nothing_was_written_to_since_is_as_whole_as_any() {
    for has_log in [true, false] {
        let mut facts = Facts { has_log, written: Some(2 * SECOND), served_since: has_log, ..crashed(true) };
        let replica = facts.peers.get_mut(&id(2)).unwrap();
        replica.offset = 0;
        facts.ahead = ahead(&facts);
        assert_eq!(decide_start(&facts), ask(2), "{has_log}");
        // An earlier release of the agent does not tell.
        facts.peers.get_mut(&id(2)).unwrap().current_ago = None;
        (facts.waited, facts.ahead) = (2 * TAKEOVER_LIMIT, ahead(&facts));
        assert!(matches!(decide_start(&facts), Start::AsIs { .. }), "{has_log}");
    }
}

fn hold_back(peer: &mut Peer) {
    peer.table.iter_mut().filter(|node| node.flags.myself).for_each(|me| me.flags.no_failover = true);
}

/// Before, it came back with what its file had held before it got its copy, and its former primary copied that.
#[test]
fn a_primary_whose_file_lags_is_no_better_than_one_without_data() {
    let lagging = |facts: Facts| Facts { lags: true, ..facts };
    assert_eq!(decide_start(&lagging(crashed(false))), ask(2));
    let mut alone = lagging(crashed(false));
    alone.peers.remove(&id(2));
    assert!(matches!(decide_start(&alone), Start::Wait { .. }), "it may be started in a moment as well");
    alone.waited = PEERS_LIMIT * 2;
    let why = held(&alone);
    assert!(why.starts_with("it owned 100 slots and what lies here lags behind what it had; 0 of"), "{why}");
    // Nobody else has anything: then it is the best there is.
    alone.released = Some(ReleaseHow::AsIs);
    let lost = "started with files that lag behind what it had, as the controller said so; what its 100 slots held since then is lost";
    assert_eq!(decide_start(&alone), Start::Over { lost: lost.to_owned() });
}

/// Before, the configuration counted: the member started on a snapshot of before, and its replica, which had every write, copied that.
#[test]
fn until_its_first_log_is_written_a_member_has_a_snapshot_alone() {
    let mut facts = Facts { has_log: false, written: Some(600 * SECOND), ..crashed(true) };
    // The same was switched on there.
    facts.peers.get_mut(&id(2)).unwrap().lags = true;
    assert_eq!(decide_start(&facts), ask(2));
    // One that is to be switched off has every write for as long as it lies there.
    let lies_here = Facts { has_log: true, keeps_each_write: false, waited: PEERS_LIMIT, ..facts };
    assert!(matches!(decide_start(&lies_here), Start::AsIs { .. }));
}

/// Before, it was asked: a crash of it a minute later left the shard with what its file had held before it got its copy, or with nothing.
#[test]
fn a_replica_whose_own_file_lags_is_not_asked_while_the_data_set_is_here() {
    let mut facts = crashed(true);
    facts.peers.get_mut(&id(2)).unwrap().lags = true;
    facts.waited = PEERS_LIMIT;
    let why = "no replica in sync answers, and the data set is on disk";
    assert_eq!(decide_start(&facts), Start::AsIs { why });
    // Where snapshots are kept its file says nothing; where nothing is left, its memory is better than that.
    assert_eq!(decide_start(&Facts { has_log: false, ..facts.clone() }), ask(2));
    assert_eq!(decide_start(&Facts { holds_data: false, has_log: false, written: None, beat: None, ..facts }), ask(2));
}

#[test]
fn an_older_snapshot_is_worse_than_a_replica_that_missed_the_last_seconds() {
    let snapshot = Facts { has_log: false, served_since: false, ..crashed(true) };
    let mut facts = Facts { written: Some(600 * SECOND), ..snapshot };
    let replica = facts.peers.get_mut(&id(2)).unwrap();
    hold_back(replica);
    replica.current_ago = Some(20 * SECOND);
    facts.waited = 18 * SECOND;
    assert_eq!(decide_start(&facts), ask(2));
    facts.peers.get_mut(&id(2)).unwrap().current_ago = Some(700 * SECOND);
    assert!(matches!(decide_start(&facts), Start::AsIs { .. }));
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
fn a_primary_whose_data_is_gone_asks_the_freshest_of_its_replicas() {
    let mut facts = crashed(false);
    facts.keeps_each_write = false;
    // The numbers of another history say nothing.
    let stale = Peer { offset: 1_000_000, link_down_for: Some(10_000 * SECOND), ..peer(4, Some(1)) };
    facts.peers.insert(id(4), stale);
    assert_eq!(decide_start(&facts), ask(2));
    facts.peers.remove(&id(2));
    let reason = format!(
        "its data set is gone, replica {} has had no link for 10000 s, and replica {}, which does not answer, may have more",
        id(4),
        id(2)
    );
    assert_eq!(decide_start(&facts), Start::Wait { reason: reason.clone() });
    facts.waited = PEERS_LIMIT;
    assert_eq!(held(&facts), reason);
    // It has answered, and has nothing.
    facts.peers.insert(id(2), Peer { offset: 0, keys: 0, ..peer(2, Some(1)) });
    assert_eq!(decide_start(&facts), ask(4));
}

/// Before, the one whose age was known was forced to take over, however old, and the other, which had all of that and more, copied it.
#[test]
fn a_copy_of_which_nobody_knows_its_age_is_not_passed_over_for_an_old_one() {
    let mut facts = crashed(false);
    let stream = |name: &str| Some(name.to_owned());
    let old = Peer { link_down_for: Some(600 * SECOND), stream: stream("one"), ..peer(4, Some(1)) };
    let begun = Peer {
        current_ago: Some(Duration::MAX),
        link_down_for: Some(SECOND),
        stream: stream("one"),
        offset: 2000,
        ..peer(2, Some(1))
    };
    facts.peers.extend([(id(4), old), (id(2), begun)]);
    assert_eq!(decide_start(&facts), ask(2), "both are of one history, and it has come further");
    facts.peers.get_mut(&id(2)).unwrap().offset = 999;
    assert_eq!(decide_start(&facts), ask(4), "it has come less far");
    facts.peers.get_mut(&id(2)).unwrap().stream = stream("another");
    let reason = format!(
        "its data set is gone, and nobody can tell which of its replicas {} and {} lacks less. To go on with what one of them has: \
         `failover` that names it as candidate, with mode Force and acceptDataLoss",
        id(4),
        id(2)
    );
    assert_eq!(decide_start(&facts), Start::Wait { reason: reason.clone() });
    let mut unsaid = facts.clone();
    let replica = unsaid.peers.get_mut(&id(2)).unwrap();
    (replica.stream, replica.offset) = (stream("one"), 0);
    assert_eq!(decide_start(&unsaid), Start::Wait { reason: reason.clone() }, "it does not say how far it has come");
    facts.waited = PEERS_LIMIT;
    assert_eq!(held(&facts), reason);
    // One that had everything a moment ago has all that any other may have.
    facts.peers.get_mut(&id(4)).unwrap().link_down_for = Some(SECOND);
    assert_eq!(decide_start(&facts), ask(4));
}

/// Valkey answers while it loads, and one that is being sent a copy holds what it had. Before, a copy that had been left behind an hour ago was
/// promoted over what was just being read, and over what the other one had had until a moment ago.
#[test]
fn a_replica_that_loads_or_receives_is_waited_for_as_a_silent_one() {
    let spoil: [fn(&mut Peer); 2] = [|peer| peer.loading = true, |peer| peer.syncing = true];
    let because = ["is loading what it has", "is being sent a copy and holds what it had before"];
    for (spoil, why) in spoil.into_iter().zip(because) {
        let mut facts = crashed(false);
        let old = Peer { link_down_for: Some(3600 * SECOND), ..peer(4, Some(1)) };
        facts.peers.insert(id(4), old);
        spoil(facts.peers.get_mut(&id(2)).unwrap());
        let reason = format!(
            "its data set is gone, replica {} has had no link for 3600 s, and replica {}, which {why}, may have more",
            id(4),
            id(2)
        );
        assert_eq!(decide_start(&facts), Start::Wait { reason: reason.clone() });
        facts.waited = PEERS_LIMIT;
        assert_eq!(held(&facts), reason);
        // What it was sent broke off with its sender.
        facts.peers.insert(id(2), peer(2, Some(1)));
        assert_eq!(decide_start(&facts), ask(2));
        // Nobody has more than one that had everything until the end.
        facts.peers.insert(id(4), peer(4, Some(1)));
        spoil(facts.peers.get_mut(&id(2)).unwrap());
        assert_eq!(decide_start(&facts), ask(4));
    }
}

#[test]
fn a_primary_whose_data_is_gone_never_starts_while_anybody_may_hold_a_copy() {
    let mut facts = crashed(false);
    facts.keeps_each_write = false;
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
    let lost = |why: &str| Start::Over {
        lost: format!(
            "started empty, as its data set is gone and {why}; what its 100 slots held, if anything, is lost"
        ),
    };
    assert_eq!(decide_start(&facts), lost("no replica that is known of has a copy"));
    facts.keeps_each_write = true;
    assert!(matches!(decide_start(&facts), Start::Hold { .. }), "append-only files must be there; they are lost");
    facts.released = Some(ReleaseHow::AsIs);
    assert_eq!(decide_start(&facts), lost("the controller said so"));
    facts.released = None;
    facts.keeps_each_write = false;
    // One that joined a moment before its end is not in its record, and in the tables of those who do not answer.
    (facts.waited, facts.peers) = (Duration::ZERO, BTreeMap::new());
    let Verdict::Intact(me) = &mut facts.verdict else { panic!() };
    me.peers.retain(|line| line.id != id(2));
    assert!(matches!(decide_start(&facts), Start::Listen { .. }));
}

fn any_peer() -> impl Strategy<Value = (u8, Peer)> {
    (2u8..6, prop::option::of(prop::sample::select(vec![1u8, 3])), 0i64..3, 0i64..3, any::<(bool, bool)>(), 0u64..20)
        .prop_map(|(last, primary, offset, keys, (syncing, loading), down)| {
            let down = primary.map(|_| Duration::from_secs(down));
            (last, Peer { offset, keys, syncing, loading, link_down_for: down, ..peer(last, primary) })
        })
}

proptest! {
    #[test]
    fn an_empty_owner_starts_only_when_released_or_moved_or_nobody_holds_a_copy(
        peers in prop::collection::vec(any_peer(), 0..4),
        waited in 0u64..100, keeps_each_write in any::<bool>(), asked in prop::option::of(0u64..10)
    ) {
        let facts = Facts {
            peers: peers.into_iter().map(|(last, peer)| (id(last), peer)).collect(),
            waited: Duration::from_secs(waited),
            keeps_each_write,
            asked: asked.map(|ago| Asked { replica: id(2), ago: Duration::from_secs(ago) }),
            ..crashed(false)
        };
        match decide_start(&facts) {
            Start::AsIs { .. } => prop_assert!(false, "it owned slots, and what they held is lost"),
            Start::Over { .. } => {
                prop_assert!(!keeps_each_write);
                let copy = |peer: &Peer| peer.replicates(&id(1)) && (peer.keys > 0 || peer.offset > 0 || peer.syncing);
                prop_assert!(facts.peers.contains_key(&id(2)), "its known replica did not answer");
                prop_assert!(!facts.peers.values().any(copy));
            }
            Start::Follow { .. } => prop_assert!(false, "nobody has taken over"),
            Start::Blank { .. } => prop_assert!(false, "an intact identity is never given up"),
            Start::AskFailover { replica, .. } => {
                let peer = &facts.peers[&replica];
                prop_assert!(peer.has_whole_copy() && peer.replicates(&id(1)));
            }
            Start::Wait { .. } | Start::Listen { .. } | Start::Hold { .. } => {}
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
