//! A node that runs already.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::super::double::{
    self, Elsewhere,
    Heard::{Not, Nothing, Runs, Stops},
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
                "node {} runs already at 127.84.0.1:6379, as the agent there has said, and this pod is at 127.84.0.7:6379",
                id(1)
            );
            assert!(why.starts_with(&says) && why.contains("End the process at 127.84.0.1:6379"), "{why}");
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

#[test]
fn where_no_agent_answers_nothing_is_waited_for() {
    let (mut elsewhere, begun, told) = (Elsewhere::default(), Instant::now(), BTreeSet::from([at(1)]));
    assert_eq!(elsewhere.due(&told, begun), told);
    elsewhere.note(at(1), Nothing, begun);
    assert_eq!((elsewhere.runs_at(), elsewhere.due(&told, begun + 4 * SECOND)), (None, BTreeSet::new()));
    assert_eq!(elsewhere.due(&told, begun + 5 * SECOND), told);
}

#[test]
fn a_double_counts_until_its_agent_denies_it_or_is_silent_for_ten_looks() {
    let (mut elsewhere, now, nowhere) = (Elsewhere::default(), Instant::now(), BTreeSet::new());
    let mut hears = |heard: &[double::Heard]| {
        heard.iter().for_each(|heard| elsewhere.note(at(1), *heard, now));
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
}
