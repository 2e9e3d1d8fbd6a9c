//! A person orders a replica to go on without its primary: which copy he means, and over whom.

use super::{at, id, layout, peer, pod};
use crate::support::promotions;
use plan::{
    Desired, FailoverHow, FailoverRequest, Limits, NodeId, Observed, Operation, Peer, PeerRole, Plan, Refused, Role,
    Seen, SlotSet, Step, Waiting,
};

fn ordered(observed: &Observed, from: NodeId, candidate: Option<u16>) -> Plan {
    let failover = Some(FailoverRequest { shard: 0, from, candidate, how: FailoverHow::Force, accept_data_loss: true });
    plan::plan(&Desired { failover, ..Desired::cluster(3, 2) }, observed, &Limits::default())
}

/// Shard 0's primary stands still; 0-1 has been without it for ten minutes, and 0-2 is being sent everything, and has still what it had before.
fn beside_one_that_is_sent_everything() -> Observed {
    let mut observed =
        layout("0-0 ?:P0-5460 0-1 r0-0 0-2 r0-0 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    observed.members.get_mut(&pod("0-0")).unwrap().seen = Seen::Unknown { since_millis: 60_000 };
    for (copy, is_sent) in [("0-1", false), ("0-2", true)] {
        if let Role::Replica { synced, link_up, gap, .. } = &mut at(&mut observed, copy).role {
            (*synced, *link_up) = (!is_sent, false);
            (gap.missed_millis, gap.behind_millis) = if is_sent { (u64::MAX, u64::MAX) } else { (600_000, 600_000) };
        }
    }
    observed
}

/// Before, it promoted the one of which it is known how old it is, however old, and the other one copied it.
#[test]
fn an_order_that_names_nobody_takes_no_copy_where_there_may_be_a_better_one() {
    let (mut observed, from) = (beside_one_that_is_sent_everything(), id(pod("0-0")));
    let steps = |plan: &Plan| plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    let unnamed = ordered(&observed, from, None);
    let stale = |others| Refused::StaleCopy {
        shard: 0,
        primary: from,
        replica: pod("0-1"),
        missed_millis: 600_000,
        lag_bytes: 0,
        silent_millis: 0,
        others,
    };
    assert_eq!((steps(&unnamed), unnamed.operation), (vec![], Some(Operation::Refused)));
    assert_eq!(unnamed.refused, [stale(vec![pod("0-2")])]);
    let text = unnamed.refused[0].to_string();
    let end = "create a failover of shard 0 that names 0-1 as candidate, with mode Force and acceptDataLoss; how much other replicas lack (0-2) is not \
               known, and may be less: to go on with one of those, name that one";
    assert!(text.ends_with(end), "{text}");
    for candidate in [1, 2] {
        let named = steps(&ordered(&observed, from, Some(candidate)));
        assert_eq!(named, [format!("promote 0-{candidate} in place of the dead primary 00000000")]);
    }
    // Their streams tell which of them has more.
    observed.further.insert(pod("0-2"), pod("0-1"));
    assert_eq!(steps(&ordered(&observed, from, None)), ["promote 0-1 in place of the dead primary 00000000"]);
    // What it loads is known once it has.
    observed.further.clear();
    at(&mut observed, "0-2").loading = true;
    let loads = ordered(&observed, from, None);
    assert_eq!((steps(&loads), loads.operation), (vec![], Some(Operation::Running)));
    assert!(loads.waiting.contains(&Waiting::Copy { pod: pod("0-2"), instead_of: pod("0-1") }), "{loads:?}");
    assert_eq!(steps(&ordered(&observed, from, Some(1))), ["promote 0-1 in place of the dead primary 00000000"]);
}

/// Two nodes are lost, or a drain goes on beside an emptied volume: its pod is being deleted, and its data is not. Before, it was not waited for.
#[test]
fn a_better_copy_whose_pod_is_being_deleted_is_waited_for_before_an_old_one() {
    let planned = |primary: &str, going: &str, has_volumes, is_ordered: bool| {
        let mut observed = layout(&format!(
            "0-0 {primary}:P0-5460 0-1 r0-0 0-2 {going}:r0-0 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0"
        ));
        if let Role::Replica { link_up, gap, .. } = &mut at(&mut observed, "0-1").role {
            (*link_up, gap.missed_millis) = (false, 600_000);
        }
        observed.members.get_mut(&pod("0-2")).unwrap().terminating = true;
        let (from, how) = (id(pod("0-0")), FailoverHow::Force);
        let ask = FailoverRequest { shard: 0, from, candidate: None, how, accept_data_loss: true };
        let failover = Some(ask).filter(|_| is_ordered);
        let wanted = Desired { has_volumes, restart_keeps_data: has_volumes, failover, ..Desired::cluster(3, 2) };
        let plan = plan::plan(&wanted, &observed, &Limits::default());
        let is_awaited = plan.waiting.contains(&Waiting::Copy { pod: pod("0-2"), instead_of: pod("0-1") });
        (promotions(&plan).len(), is_awaited)
    };
    for has_volumes in [true, false] {
        assert_eq!(planned("?", "?", has_volumes, true), (0, true), "volumes {has_volumes}");
        assert_eq!(planned("H", "?", has_volumes, false), (0, true), "volumes {has_volumes}");
    }
    assert_eq!(planned("H", "x", true, false), (0, true));
    assert_eq!(planned("H", "x", false, false), (1, false), "it has ended, and what it held goes with its pod");
}

/// Before, whoever carried it out refused it for ever, as somebody of the shard owns slots.
#[test]
fn an_order_over_who_serves_the_slots_says_so_to_who_carries_it_out() {
    let mut observed = layout("0-0 P0-5460 0-1 r0-9 0-2 r0-0 1-0 x:P5461-10922 2-0 x:P10923-16383");
    let (gone, rival) = (id(pod("0-9")), id(pod("0-0")));
    let slots = SlotSet::parse("0-5460").unwrap();
    for place in ["0-0", "0-1", "0-2"] {
        let node = at(&mut observed, place);
        node.current_epoch = 9;
        let role = PeerRole::Primary { slots: slots.clone() };
        node.peers.insert(gone, Peer { epoch: 9, noaddr: true, ..peer(pod("0-9"), role, false) });
        if let Some(line) = node.peers.get_mut(&rival) {
            line.role = PeerRole::Primary { slots: SlotSet::EMPTY };
        }
    }
    if let Role::Replica { link_up, .. } = &mut at(&mut observed, "0-1").role {
        *link_up = false;
    }
    let failovers = |candidate| {
        let plan = ordered(&observed, rival, candidate);
        let failover = |step: &Step| match step {
            Step::Failover { replica, how, over, .. } => Some((replica.pod, *how, *over)),
            _ => None,
        };
        plan.steps.iter().filter_map(failover).collect::<Vec<_>>()
    };
    assert_eq!(failovers(Some(1)), [(pod("0-1"), FailoverHow::Takeover, Some(rival))]);
    assert_eq!(failovers(None), []);
}

/// Another one was elected after it was asked for, and is lost as well. Before, the order ran until its time was over.
#[test]
fn an_order_over_another_primary_than_the_lost_one_is_refused_at_once() {
    let mut observed =
        layout("0-0 - 0-1 ?:P0-5460 0-2 r0-1 1-0 P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0");
    if let Role::Replica { link_up, gap, .. } = &mut at(&mut observed, "0-2").role {
        (*link_up, gap.missed_millis) = (false, 600_000);
    }
    let [before, lost] = ["0-0", "0-1"].map(|place| id(pod(place)));
    let refused = ordered(&observed, before, Some(2));
    assert_eq!((promotions(&refused), refused.operation), (vec![], Some(Operation::Refused)));
    let says = "the failover was asked for while node 00000000 was the primary of shard 0, which is node 00010000 by now (member 0-1); to go on without \
                that one, create it anew";
    assert!(refused.refused.iter().any(|why| why.to_string() == says), "{:?}", refused.refused);
    let meant = ordered(&observed, lost, Some(2));
    assert_eq!(
        (promotions(&meant), meant.operation),
        (vec![(pod("0-2"), FailoverHow::Force)], Some(Operation::Running))
    );
    // Where it has everything it is promoted without any order.
    if let Role::Replica { gap, .. } = &mut at(&mut observed, "0-2").role {
        gap.missed_millis = 0;
    }
    observed.members.get_mut(&pod("0-1")).unwrap().seen = Seen::Absent;
    let promoted = ordered(&observed, before, Some(2));
    assert_eq!(promoted.operation, Some(Operation::Running), "{promoted:?}");
}
