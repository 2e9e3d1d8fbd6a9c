//! Most primaries are gone: who may be promoted without votes.

use super::{at, id, layout, pod};
use plan::{Desired, FailoverHow, Limits, Observed, Plan, Pod, Step, Waiting};

const TWO_OF_THREE: &str = "0-0 s:P0-5460 0-1 r0-0 1-0 s:P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";

fn planned(observed: &Observed) -> Plan {
    plan::plan(&Desired::cluster(3, 1), observed, &Limits::default())
}

fn promotions(plan: &Plan) -> Vec<(Pod, FailoverHow)> {
    let promotion = |step: &Step| {
        if let Step::Failover { replica, how, .. } = step { Some((replica.pod, *how)) } else { None }
    };
    plan.steps.iter().filter_map(promotion).collect()
}

/// Beside a snapshot each of them waited for the others until a limit, and then came back with it over a replica that had more.
#[test]
fn who_ended_and_waits_for_votes_that_cannot_come_is_replaced_without_any() {
    let mut observed = layout(TWO_OF_THREE);
    assert_eq!(promotions(&planned(&observed)), [], "they are about to start");
    for place in ["0-0", "1-0"] {
        observed.members.get_mut(&pod(place)).unwrap().waits = true;
        observed.ended.insert(id(pod(place)));
    }
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    // One that is not known to have ended has no majority alone.
    observed.ended.remove(&id(pod("1-0")));
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    observed.ended.remove(&id(pod("0-0")));
    assert_eq!(promotions(&planned(&observed)), []);
}

#[test]
fn a_claim_without_votes_is_made_above_the_epoch_of_what_it_replaces() {
    let mut observed = layout(&TWO_OF_THREE.replace("s:", "x:"));
    observed.ended.extend([id(pod("0-0")), id(pod("1-0"))]);
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    // Somebody else knows a later epoch of the primary than the replica has heard of.
    at(&mut observed, "2-0").peers.get_mut(&id(pod("0-0"))).unwrap().epoch = 9;
    let plan = planned(&observed);
    assert_eq!(promotions(&plan), [(pod("1-1"), FailoverHow::Takeover)]);
    assert!(plan.waiting.contains(&Waiting::Agreement { right: 3, of: 4, away: None }), "{plan:?}");
}
