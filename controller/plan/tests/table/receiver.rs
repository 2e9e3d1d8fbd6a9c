//! A shard without slots loses its primary in the middle of its first one.

use super::{at, id, layout, peer, pod, told};
use plan::{Desired, FailoverHow, FailoverRequest, Health, Observed, Open, Peer, PeerRole, Role, Seen, SlotSet};

/// Shard 3 has just been added. Its primary was sent keys of slot 5, has lost all of them, and is back as somebody else; its replica has them.
fn a_receiver_that_came_back_blank(copy: &str, change: fn(&mut Observed)) -> Vec<String> {
    a_receiver_that_came_back_blank_to(&Desired::cluster(4, 1), copy, change)
}

fn a_receiver_that_came_back_blank_to(wanted: &Desired, copy: &str, change: fn(&mut Observed)) -> Vec<String> {
    let gone = id(pod("3-9"));
    let shards = "0-0 P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";
    let mut observed = layout(&format!("{shards} 3-0 P 3-1 {copy}"));
    let line = Peer { noaddr: true, ..peer(pod("3-9"), PeerRole::Primary { slots: SlotSet::EMPTY }, false) };
    for place in observed.members.keys().copied().collect::<Vec<_>>() {
        at(&mut observed, &place.to_string()).peers.insert(gone, line.clone());
    }
    at(&mut observed, "0-0").open.insert(5, Open::Migrating(gone));
    let copy = at(&mut observed, "3-1");
    copy.keys = 3;
    if let Role::Replica { link_up, .. } = &mut copy.role {
        *link_up = false;
    }
    change(&mut observed);
    told(wanted, &observed)
}

const TAKES_OVER: &str =
    "promote 3-1 in place of the dead primary 03090000 without votes, as nobody could be elected there";

/// What is said of a copy that may lack something.
fn held(what: &str) -> String {
    format!(
        "refuses: node 03090000, which owned no slot yet, is gone for good, and {what} is left at its replicas (3-1) alone, none of which is known to \
         have had everything until then; shard 3 gets no slots before that is decided. To go on with what such a replica holds, create a failover of \
         shard 3 that names it as candidate, with mode Force and acceptDataLoss. To go on without it, delete the pods and the claims of those replicas"
    )
}

/// Before, the giver's mark was cleared, and the replica was to copy the blank one: what had moved was nowhere any more.
#[test]
fn what_a_receiver_was_sent_of_its_first_slot_is_not_given_up_with_it() {
    assert_eq!(a_receiver_that_came_back_blank("r3-9", |_| {}), [TAKES_OVER]);
    // Which slots it was sent nobody may know any more.
    assert_eq!(a_receiver_that_came_back_blank("r3-9", |seen| at(seen, "0-0").open.clear()), [TAKES_OVER]);
    let unsynced = "waits: replica 3-1 is not in sync: its link to the primary is down";
    let held = held("what had come to it of 1 slots of 0-0");
    let held = held.as_str();
    assert_eq!(a_receiver_that_came_back_blank("r3-9~", |_| {}), [unsynced, held]);
    let older = |seen: &mut Observed| {
        if let Role::Replica { gap, .. } = &mut at(seen, "3-1").role {
            gap.missed_millis = 60_000;
        }
    };
    assert_eq!(a_receiver_that_came_back_blank("r3-9", older), [unsynced, held]);
    let loads = a_receiver_that_came_back_blank("r3-9~", |seen| at(seen, "3-1").loading = true);
    assert_eq!(loads, ["waits: member 3-1 is loading its data set"]);
    // Nobody sees it for a moment.
    let away = a_receiver_that_came_back_blank("r3-9", |seen| {
        seen.members.get_mut(&pod("3-1")).unwrap().seen = Seen::Unknown { since_millis: 100 };
        let line = |role| Peer { health: Health::Suspect, ..peer(pod("3-1"), role, true) };
        for place in ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1", "3-0"] {
            at(seen, place).peers.insert(id(pod("3-1")), line(PeerRole::Replica { of: id(pod("3-9")) }));
        }
    });
    let unserved = "waits: 1 slots of shard 3 are not served: no member that holds them answers";
    assert_eq!(away, ["waits: member 3-1 has not answered for 0 s; its state is not known", unserved]);
    // It runs on where nobody looks: others hear of it.
    let runs = a_receiver_that_came_back_blank("r3-9", |seen| {
        let line = at(seen, "1-0").peers.get_mut(&id(pod("3-9"))).unwrap();
        (line.noaddr, line.connected, line.health) = (false, true, Health::Ok);
    });
    assert!(runs.contains(&unserved.to_owned()), "{runs:?}");
    assert!(!runs.iter().any(|line| line.starts_with("clear") || line == TAKES_OVER), "{runs:?}");
    // What it has is somebody's now: it goes on to that one.
    let promoted = |seen: &mut Observed| {
        at(seen, "3-1").role = Role::Primary { slots: SlotSet::EMPTY };
        at(seen, "3-1").foreign_keys = [(5, 3)].into();
    };
    let goes_on = a_receiver_that_came_back_blank("r3-9", promoted);
    assert!(goes_on.contains(&"move 1 slots from 0-0 to 3-1: 5".to_owned()), "{goes_on:?}");
    assert!(!goes_on.iter().any(|line| line.starts_with("clear") || line.starts_with("make 3-1")), "{goes_on:?}");
    // Where nobody has anything of it, the mark means nothing.
    let nothing = a_receiver_that_came_back_blank("r3-9~", |seen| at(seen, "3-1").keys = 0);
    assert_eq!(nothing, ["clear the marks of 1 slots on 0-0: 5"]);
}

#[test]
fn a_copy_of_a_receiver_that_may_lack_something_leads_on_an_order() {
    let ordered = |from: &str, candidate: Option<u16>| {
        let (from, how) = (id(pod(from)), FailoverHow::Force);
        let failover = Some(FailoverRequest { shard: 3, from, candidate, how, accept_data_loss: true });
        a_receiver_that_came_back_blank_to(&Desired { failover, ..Desired::cluster(4, 1) }, "r3-9~", |_| {})
    };
    assert_eq!(ordered("3-9", Some(1)), [TAKES_OVER]);
    for (from, candidate) in [("3-9", None), ("3-9", Some(0)), ("3-0", Some(1))] {
        assert!(!ordered(from, candidate).contains(&TAKES_OVER.to_owned()), "{from} {candidate:?}");
    }
    // Nothing was ever to be kept: what is left of it is the best there is.
    let adopts = Desired { adopt_lost_slots: true, restart_keeps_data: false, ..Desired::cluster(4, 1) };
    assert_eq!(a_receiver_that_came_back_blank_to(&adopts, "r3-9~", |_| {}), [TAKES_OVER]);
}

/// Whoever leads a shard without slots has taken nobody's place while it holds nothing, and the giver's mark is gone where that one was replaced as well.
/// Before, the blank lead was given a slot, and what had moved was gone as soon as the replica copied that.
#[test]
fn a_replica_that_may_be_the_only_one_copies_no_blank_lead() {
    let unsynced = "waits: replica 3-1 is not in sync: its link to the primary is down".to_owned();
    let told = a_receiver_that_came_back_blank("r3-9~", |seen| at(seen, "0-0").open.clear());
    assert_eq!(told[..2], [unsynced.clone(), held("what it may have been sent of its first slots")]);
    assert!(told[2..].iter().all(|line| line.starts_with("waits: the dead node 03090000")), "{told:?}");
    // Nor does it leave with its shard.
    let leaves =
        a_receiver_that_came_back_blank_to(&Desired::cluster(3, 1), "r3-9~", |seen| at(seen, "0-0").open.clear());
    assert!(leaves.contains(&held("what it may have been sent of its first slots")), "{leaves:?}");
    assert!(leaves.iter().all(|line| !line.starts_with("remove")), "{leaves:?}");
    // What its ends showed last says which slots these were.
    let known = a_receiver_that_came_back_blank("r3-9~", |seen| {
        at(seen, "0-0").open.clear();
        seen.silent_marks = [(id(pod("3-9")), [(5, Open::Importing(id(pod("0-0"))))].into())].into();
    });
    assert_eq!(known[..2], [unsynced, held("what had come to it of 1 slots of 0-0")]);
    let holds = a_receiver_that_came_back_blank("r3-9~", |seen| {
        at(seen, "0-0").open.clear();
        at(seen, "3-0").keys = 1;
    });
    assert!(holds.contains(&"make 3-1 a replica of 3-0".to_owned()), "{holds:?}");
}

/// A person decides also where nobody knows which slots were on their way. Where nothing was ever to be kept, the shard begins without it.
#[test]
fn a_copy_of_a_receiver_leads_on_an_order_also_where_no_mark_is_left() {
    let (from, how) = (id(pod("3-9")), FailoverHow::Force);
    let failover = Some(FailoverRequest { shard: 3, from, candidate: Some(1), how, accept_data_loss: true });
    let unmarked = |seen: &mut Observed| at(seen, "0-0").open.clear();
    let wanted = Desired { failover, ..Desired::cluster(4, 1) };
    assert_eq!(a_receiver_that_came_back_blank_to(&wanted, "r3-9~", unmarked), [TAKES_OVER]);
    let adopts = Desired { adopt_lost_slots: true, restart_keeps_data: false, ..Desired::cluster(4, 1) };
    let begins = a_receiver_that_came_back_blank_to(&adopts, "r3-9~", unmarked);
    assert!(begins.iter().any(|line| line.starts_with("move 1 slots from ") && line.contains(" to 3-0")), "{begins:?}");
    // What is known to have been on its way is the best there is.
    let known = a_receiver_that_came_back_blank_to(&adopts, "r3-9~", |seen| {
        at(seen, "0-0").open.clear();
        seen.silent_marks = [(id(pod("3-9")), [(5, Open::Importing(id(pod("0-0"))))].into())].into();
    });
    assert_eq!(known, [TAKES_OVER]);
}

/// Shard 3 has just been added, and its primary is away with what it was sent of slot 5; whoever gave that was replaced by 0-0.
fn a_receiver_that_is_away(wanted: &Desired, copy: &str, change: fn(&mut Observed)) -> Vec<String> {
    let shards = "0-0 P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";
    let mut observed = layout(&format!("{shards} 3-0 x:P 3-1 {copy}"));
    let line = Peer { health: Health::Failed, ..peer(pod("3-0"), PeerRole::Primary { slots: SlotSet::EMPTY }, false) };
    let nodes = observed.members.iter().filter(|(_, member)| matches!(member.seen, Seen::Node(_)));
    for place in nodes.map(|(place, _)| *place).collect::<Vec<_>>() {
        at(&mut observed, &place.to_string()).peers.insert(id(pod("3-0")), line.clone());
    }
    change(&mut observed);
    told(wanted, &observed)
}

/// What its ends showed last.
fn remembered(observed: &mut Observed) {
    observed.silent_marks = [(id(pod("3-0")), [(5, Open::Importing(id(pod("0-1"))))].into())].into();
}

/// Before, the shard left with the only copies of what had moved, and with `retain: Delete` their volumes.
#[test]
fn a_shard_does_not_leave_before_who_was_sent_its_first_slot_is_back() {
    let leaves = |copy: &str, change| {
        let told = a_receiver_that_is_away(&Desired::cluster(3, 1), copy, change);

        told.iter().any(|line| line.starts_with("remove shard 3"))
    };
    assert!(leaves("r3-0~", |seen| at(seen, "3-1").keys = 0), "nobody holds anything of it");
    assert!(!leaves("r3-0~", |seen| at(seen, "3-1").keys = 3), "a copy does");
    assert!(!leaves("r3-0~", |seen| (at(seen, "3-1").keys, at(seen, "3-1").loading) = (0, true)), "a copy may");
    let shown = |seen: &mut Observed| {
        remembered(seen);
        at(seen, "3-1").keys = 0;
    };
    assert!(!leaves("r3-0~", shown), "it was shown");
    assert!(!leaves("x:r3-0", remembered), "it was shown, and no copy is seen");
}

/// Before, the heir said that what had moved did not exist, and clients made it anew, for as long as the receiver was away.
#[test]
fn the_heir_of_a_giver_is_told_of_a_receiver_that_is_away() {
    let mark = "mark 1 slots on 0-0 that are half moved to node 03000000: 5";
    for shards in [4, 3] {
        let told = |change| a_receiver_that_is_away(&Desired::cluster(shards, 1), "r3-0~", change);
        assert_eq!(told(remembered).first().map(String::as_str), Some(mark), "{shards}");
        let is_told = |change| told(change).iter().any(|line| line.starts_with("mark"));
        assert!(!is_told(|_| {}), "nobody has shown anything");
        assert!(
            !is_told(|seen| {
                remembered(seen);
                at(seen, "0-0").open.insert(5, Open::Migrating(id(pod("3-0"))));
            }),
            "it is marked"
        );
        assert!(
            !is_told(|seen| {
                seen.silent_marks = [(id(pod("3-0")), [(5, Open::Importing(id(pod("0-0"))))].into())].into();
            }),
            "the giver itself answers, and has cleared its mark"
        );
    }
}

/// Before, a person's order did nothing while the volume of that one was there, and nothing told of one.
#[test]
fn a_copy_of_a_receiver_that_is_away_leads_on_an_order() {
    let marked = |seen: &mut Observed| {
        at(seen, "0-0").open.insert(5, Open::Migrating(id(pod("3-0"))));
        at(seen, "3-1").keys = 3;
    };
    let waits = "waits: the first slots of shard 3 are half moved to member 3-0, which does not answer; nothing else is moved until it is back. To go on \
                 with what its replica 3-1 holds, create a failover of shard 3 that names it as candidate, with mode Force and acceptDataLoss";
    let away = a_receiver_that_is_away(&Desired::cluster(4, 1), "r3-0~", marked);
    assert!(away.contains(&waits.to_owned()), "{away:?}");
    let (from, how) = (id(pod("3-0")), FailoverHow::Force);
    let failover = Some(FailoverRequest { shard: 3, from, candidate: Some(1), how, accept_data_loss: true });
    let ordered = a_receiver_that_is_away(&Desired { failover, ..Desired::cluster(4, 1) }, "r3-0~", marked);
    let promoted = "promote 3-1 in place of the dead primary 03000000 without votes, as nobody could be elected there";
    assert_eq!(ordered, [promoted, "waits: member 3-0 has not started yet"]);
}
