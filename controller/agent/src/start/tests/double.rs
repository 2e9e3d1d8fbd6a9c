//! A node that runs already.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::super::double::{
    self, Elsewhere,
    Heard::{Begins, Feeds, Gone, MayFeed, Not, Nothing, Quiet, Runs, Stops, Strange},
    LATE_AGAIN, LATE_MOST, QUIET_MOST, SILENT_FIRST, SILENT_MOST,
};
use super::*;

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 84, 0, last], 6379))
}

fn doubled(facts: Facts) -> Facts {
    Facts { double: Some(Double { here: at(7), there: at(1) }), ..facts }
}

/// Before, it was started, or its replica was asked to take over from a primary that served.
#[test]
fn a_node_that_runs_already_is_not_started_and_nobody_is_asked() {
    let mut replica = owner();
    (replica.role, replica.slots) = (Role::Replica(id(3)), vec![]);
    let replica = Facts { verdict: Verdict::Intact(replica), ..crashed(true) };
    let mut late = crashed(true);
    late.waited = 1_000 * TAKEOVER_LIMIT;
    for facts in [crashed(true), crashed(false), replica, late] {
        // Nor is what anybody says followed who did not know.
        for released in [None, Some(ReleaseHow::AsIs), Some(ReleaseHow::Blank)] {
            let why = held(&doubled(Facts { released, ..facts.clone() }));
            let says = format!(
                "node {} runs already at 127.84.0.1:6379, as the agent there or its replica has said, and this pod is at 127.84.0.7:6379",
                id(1)
            );
            assert!(why.starts_with(&says) && why.contains("Else end the process at 127.84.0.1:6379"), "{why}");
        }
        assert!(!matches!(decide_start(&facts), Start::Hold { reason } if reason.contains("runs already")));
    }
}

#[test]
fn a_node_is_looked_for_where_its_record_and_others_have_it() {
    let (me, peers) = (owner(), crashed(true).peers);
    assert_eq!(double::recorded(&me, at(1)), BTreeSet::new());
    assert_eq!(double::recorded(&me, at(7)), [at(1)].into());
    assert_eq!(double::recorded(&Identity { address: None, ..me.clone() }, at(7)), BTreeSet::new());
    let mut moved = peers.clone();
    let line = moved.get_mut(&id(3)).unwrap().table.iter_mut().find(|node| node.id == id(1)).unwrap();
    line.address = Some(at(9));
    assert_eq!(double::told(&me, &peers, at(1)), BTreeSet::new());
    assert_eq!(double::told(&me, &moved, at(7)), [at(1), at(9)].into());
}

/// Before, its replica was asked to take over from a primary that had been silent for a second.
#[test]
fn nothing_is_decided_while_a_node_may_run_where_it_was() {
    for released in [None, Some(ReleaseHow::AsIs), Some(ReleaseHow::Blank)] {
        for holds_data in [true, false] {
            let facts = Facts { unheard: Some(at(1)), released, ..crashed(holds_data) };
            let Start::Wait { reason } = decide_start(&facts) else { panic!("{:?}", decide_start(&facts)) };
            assert!(reason.contains("127.84.0.1:6379"), "{reason}");
            assert!(held(&doubled(facts)).contains("runs already"));
        }
    }
    let blank = Facts { unheard: Some(at(1)), verdict: Verdict::Blank, ..crashed(false) };
    assert_eq!(decide_start(&blank), Start::Blank { quarantine: false });
}

/// The controller would take it for a member without an identity, whose node is dead.
#[test]
fn of_a_node_that_runs_nobody_has_more_and_nothing_is_given_up() {
    let facts = Facts { copies: BTreeMap::from([(id(2), beat(5, 50))]), ..crashed(true) };
    assert!(!remember(&facts).is_empty() && remember(&doubled(facts)).is_empty());
    let facts = Facts { given_up: true, peers: BTreeMap::new(), ..crashed(true) };
    assert!(is_given_up(&facts) && !is_given_up(&doubled(facts)));
}

/// One look in which these were heard; gives who runs it, and who may.
fn look(elsewhere: &mut Elsewhere, now: Instant, heard: &[(u8, double::Heard)]) -> [Option<SocketAddr>; 2] {
    elsewhere.note(heard.iter().map(|(last, heard)| (at(*last), *heard)).collect(), now);
    [elsewhere.runs_at(), elsewhere.unheard()]
}

#[test]
fn silence_is_believed_after_three_looks_and_an_answer_at_once() {
    let (told, now) = (BTreeSet::from([at(1)]), Instant::now());
    let mut silent = Elsewhere::default();
    assert_eq!(silent.due(&told, now), told);
    for _ in 1..SILENT_FIRST {
        assert_eq!(look(&mut silent, now, &[(1, Nothing)]), [None, Some(at(1))]);
        assert_eq!(silent.due(&BTreeSet::new(), now), told, "also where nobody tells of it any more");
    }
    assert_eq!(look(&mut silent, now, &[(1, Nothing)]), [None, None]);
    assert_eq!(silent.due(&told, now + 4 * SECOND), BTreeSet::new());
    assert_eq!(silent.due(&told, now + 5 * SECOND), told);
    assert_eq!(look(&mut silent, now, &[(1, Runs)]), [Some(at(1)), None], "it was only out of reach");

    for answer in [Not, Gone] {
        assert_eq!(look(&mut Elsewhere::default(), now, &[(1, answer)]), [None, None]);
        let mut late = Elsewhere::default();
        assert_eq!(look(&mut late, now, &[(1, Nothing)]), [None, Some(at(1))]);
        assert_eq!(look(&mut late, now, &[(1, answer)]), [None, None]);
    }
    let mut late = Elsewhere::default();
    assert_eq!(look(&mut late, now, &[(1, Nothing)]), [None, Some(at(1))]);
    assert_eq!(look(&mut late, now, &[(1, Runs)]), [Some(at(1)), None]);
}

/// Before, a machine that was so slow that nobody answered within a second started the node beside the process that fed its replica: the network
/// refused what was new at its address.
#[test]
fn a_replica_that_is_late_is_waited_for_for_ten_looks() {
    let now = Instant::now();
    for (heard, unheard) in [(Gone, Some(at(1))), (Strange, Some(at(1))), (Not, None)] {
        let mut elsewhere = Elsewhere::default();
        elsewhere.note_replicas(true);
        assert_eq!(look(&mut elsewhere, now, &[(1, heard)]), [None, unheard], "{heard:?}");
        assert_eq!(
            elsewhere.may_feed(),
            unheard.is_some(),
            "its silence is none of those that are waited for otherwise"
        );
        // One look in which its port seems closed is not the end of it.
        for _ in 1..LATE_AGAIN {
            elsewhere.note_replicas(false);
            assert_eq!(look(&mut elsewhere, now, &[]), [None, unheard], "{heard:?}");
        }
        elsewhere.note_replicas(false);
        assert_eq!(look(&mut elsewhere, now, &[]), [None, None], "{heard:?}");
    }
    let mut hangs = Elsewhere::default();
    for _ in 1..LATE_MOST + LATE_AGAIN {
        hangs.note_replicas(true);
        assert_eq!(look(&mut hangs, now, &[(1, Gone)]), [None, Some(at(1))]);
    }
    for _ in 0..100 {
        hangs.note_replicas(true);
        assert_eq!(look(&mut hangs, now, &[(1, Gone)]), [None, None]);
    }
    // Of one that comes back where it was nobody tells of another address.
    let mut in_place = Elsewhere::default();
    in_place.note_replicas(true);
    assert_eq!(look(&mut in_place, now, &[]), [None, None]);
}

#[test]
fn a_replica_is_late_by_whoever_knows_that_it_is_one() {
    let (me, mut peers) = (owner(), crashed(true).peers);
    let unsaid = BTreeMap::from([2, 3, 7].map(|node| (id(node), at(node))));
    let late = |me: &Identity, peers: &BTreeMap<_, _>, followers: &[u8]| {
        double::late(me, peers, &followers.iter().copied().map(id).collect(), &unsaid)
    };
    assert_eq!(late(&me, &peers, &[]), BTreeSet::new(), "who answers is not late");
    peers.remove(&id(2));
    assert_eq!(late(&me, &peers, &[]), [at(2)].into());
    // A record of before it was a replica, and others that know; nobody, but what it said itself; nobody at all.
    let old = Identity { peers: vec![], ..me };
    assert_eq!(late(&old, &peers, &[7]), [at(2), at(7)].into());
    assert_eq!(late(&old, &BTreeMap::new(), &[]), BTreeSet::new());
}

/// Before, a replica that had been fed until that process ended counted as stale after the silent looks that followed.
#[test]
fn a_process_may_have_ended_when_it_was_heard_for_the_last_time() {
    let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
    assert_eq!(look(&mut elsewhere, now, &[(1, Runs)]), [Some(at(1)), None]);
    assert_eq!(elsewhere.alive(), Some(now));
    assert_eq!(look(&mut elsewhere, now, &[(1, Nothing)]), [Some(at(1)), None], "it may be slow");
    assert_eq!(elsewhere.alive(), None);
}

/// Before, a replica was asked to take over from a primary that served, because this pod could not reach it.
#[test]
fn a_process_that_feeds_its_replica_runs_whoever_cannot_reach_it() {
    let me = owner();
    let of = |fed: Option<(SocketAddr, Duration)>, heard: &[(SocketAddr, double::Heard)], here| {
        let mut peers = crashed(true).peers;
        peers.get_mut(&id(2)).unwrap().fed = fed;
        double::feeds(&me, &peers, (&Elsewhere::default(), heard), (here, 10 * SECOND)).into_iter().collect::<Vec<_>>()
    };
    let lately = Some((at(1), SECOND));
    for heard in [Nothing, Gone, Strange] {
        assert_eq!(of(lately, &[(at(1), heard)], at(7)), [(at(1), Feeds(SECOND))], "{heard:?}");
    }
    for heard in [Not, Stops, Begins, Runs] {
        assert_eq!(of(lately, &[(at(1), heard)], at(7)), [], "its agent knows better: {heard:?}");
    }
    assert_eq!(of(lately, &[], at(1)), [], "that is this pod: what came from here is of before");
    assert_eq!(
        of(Some((at(1), 8 * SECOND)), &[], at(7)),
        [(at(1), MayFeed)],
        "it was on its way when this agent began"
    );
    assert_eq!(of(None, &[], at(7)), []);
    // Another member's replica.
    let mut peers = crashed(true).peers;
    peers.get_mut(&id(3)).unwrap().fed = lately;
    assert_eq!(double::feeds(&me, &peers, (&Elsewhere::default(), &[]), (at(7), 10 * SECOND)), BTreeMap::new());
}

/// Before, in the first look of an agent "refused" was believed, and a replica was asked to take over from the primary that fed it.
#[test]
fn a_link_that_is_up_is_waited_for_until_it_tells_or_ends() {
    let me = owner();
    let mut elsewhere = Elsewhere::default();
    let start = Instant::now();
    let mut at_look = |millis: u64, ago: Option<u64>, heard: double::Heard| {
        let mut peers = crashed(true).peers;
        peers.get_mut(&id(2)).unwrap().fed = ago.map(|ago| (at(1), Duration::from_secs(ago)));
        let began = Duration::from_millis(millis);
        let fed = double::feeds(&me, &peers, (&elsewhere, &[(at(1), heard)]), (at(7), began));
        let heard = fed.into_iter().next().unwrap_or((at(1), heard));
        elsewhere.note(vec![heard], start + began);
        [elsewhere.runs_at(), elsewhere.unheard()]
    };
    // For longer than silence is.
    for look in 0..u64::from(2 * SILENT_FIRST) {
        assert_eq!(at_look(50 + 100 * look, Some(look % 2), Gone), [None, Some(at(1))], "{look}");
    }
    assert_eq!(at_look(10_000, Some(9), Gone), [None, Some(at(1))], "it has nothing to send");
    assert_eq!(at_look(12_500, Some(10), Gone), [Some(at(1)), None], "and sends that it has nothing");
    // Of a machine that was switched off.
    let ends = [at_look(30_000, Some(14), Gone), at_look(31_000, Some(15), Gone)];
    assert_eq!(ends, [[Some(at(1)), None], [None, None]]);
    // A crash closes the link at once.
    assert_eq!(at_look(40_000, None, Gone), [None, None]);
}

#[test]
fn a_process_that_fed_its_replica_may_have_ended_right_after_that() {
    let (mut elsewhere, now) = (Elsewhere::default(), Instant::now() + 100 * SECOND);
    for (heard, alive) in
        [(Runs, Some(now)), (Feeds(9 * SECOND), Some(now - 9 * SECOND)), (MayFeed, None), (Gone, None)]
    {
        elsewhere.note(vec![(at(1), heard)], now);
        assert_eq!(elsewhere.alive(), alive, "{heard:?}");
    }
}

/// It is asked only now and then, and a replica is heard at each look.
#[test]
fn what_an_agent_has_said_counts_until_it_says_something_else() {
    let (me, now) = (owner(), Instant::now());
    let mut peers = crashed(true).peers;
    peers.get_mut(&id(2)).unwrap().fed = Some((at(1), SECOND));
    let mut elsewhere = Elsewhere::default();
    let fed = |elsewhere: &Elsewhere| double::feeds(&me, &peers, (elsewhere, &[]), (at(7), 10 * SECOND)).len();
    for (heard, count) in [(Not, 0), (Gone, 1), (Not, 0), (Strange, 1), (Stops, 0), (Nothing, 1)] {
        elsewhere.note(vec![(at(1), heard)], now);
        assert_eq!(fed(&elsewhere), count, "{heard:?}");
    }
}

/// A stranger on the bus can have a node be told anywhere.
#[test]
fn ever_new_addresses_delay_a_start_no_longer_than_one() {
    let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
    for last in 1..10 {
        let looks = u32::from(last);
        let [_, unheard] = look(&mut elsewhere, now, &[(last, Nothing)]);
        assert_eq!(unheard.is_some(), looks < SILENT_FIRST, "{looks}");
    }
    let many: BTreeSet<SocketAddr> = (10..100).map(at).collect();
    assert_eq!(elsewhere.due(&many, now).len(), 16);
}

#[test]
fn a_double_counts_until_its_agent_denies_it_or_is_silent_for_ten_looks() {
    let (mut elsewhere, now, nowhere) = (Elsewhere::default(), Instant::now(), BTreeSet::new());
    let mut hears = |heard: &[double::Heard]| {
        heard.iter().for_each(|heard| elsewhere.note(vec![(at(1), *heard)], now));
        // Whether it counts, and is asked at every look although nobody tells of it any more.
        let (runs_at, due) = (elsewhere.runs_at(), elsewhere.due(&nowhere, now));
        assert_eq!(runs_at.into_iter().collect::<BTreeSet<_>>(), due);
        runs_at.is_some()
    };

    assert!(hears(&[Runs]) && !hears(&[Not]));
    assert!(hears(&[Runs]) && hears(&[Nothing; 9]) && !hears(&[Nothing]));
    assert!(hears(&[Runs]) && hears(&[Nothing; 9]) && hears(&[Runs]) && hears(&[Nothing; 9]));
    // Its agent has said that it was on its way out.
    assert!(hears(&[Stops]) && hears(&[Nothing]) && !hears(&[Nothing]));
    // Nobody is there. Its container may be started again, on a machine that does so without Kubernetes.
    assert!(hears(&[Runs]) && hears(&[Gone]) && hears(&[Runs, Gone]) && !hears(&[Gone]));
    assert!(hears(&[Runs]) && hears(&[Gone]) && hears(&[Begins]) && hears(&[Gone]) && !hears(&[Gone]));
}

/// Before, a held copy of its volume was started beside it, as its agent alone stood still.
#[test]
fn a_node_whose_agent_stands_still_runs_as_long_as_its_port_is_open() {
    let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
    assert_eq!(look(&mut elsewhere, now, &[(1, Runs)]), [Some(at(1)), None]);
    for _ in 0..QUIET_MOST {
        assert_eq!(look(&mut elsewhere, now, &[(1, Quiet)]), [Some(at(1)), None]);
    }
    // The address may be another's by now.
    for _ in 1..SILENT_MOST {
        assert_eq!(look(&mut elsewhere, now, &[(1, Quiet)]), [Some(at(1)), None]);
    }
    assert_eq!(look(&mut elsewhere, now, &[(1, Quiet)]), [None, None]);
    // It was on its way out.
    assert_eq!(look(&mut elsewhere, now, &[(1, Stops)]), [Some(at(1)), None]);
    assert_eq!(look(&mut elsewhere, now, &[(1, Quiet)]), [Some(at(1)), None]);
    assert_eq!(look(&mut elsewhere, now, &[(1, Quiet)]), [None, None]);
    // Who was never heard may be anybody.
    let mut never = Elsewhere::default();
    for _ in 1..SILENT_FIRST {
        assert_eq!(look(&mut never, now, &[(1, Quiet)]), [None, Some(at(1))]);
    }
    assert_eq!(look(&mut never, now, &[(1, Quiet)]), [None, None]);
}

/// Of two that begin at once one waits, and not for ever: the other may be held, or wait for something that never comes.
#[test]
fn who_is_about_to_start_is_waited_for_with_a_limit() {
    let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
    for _ in 0..30 {
        assert_eq!(look(&mut elsewhere, now, &[(1, Begins)]), [Some(at(1)), None]);
    }
    assert_eq!(look(&mut elsewhere, now, &[(1, Begins)]), [None, None]);
    assert_eq!(look(&mut elsewhere, now, &[(1, Begins)]), [None, None]);
    assert_eq!(look(&mut elsewhere, now, &[(1, Runs)]), [Some(at(1)), None]);
}
