//! Most primaries are gone: who may be promoted without votes.

use super::{at, id, layout, pod};
use crate::support::promotions;
use plan::{
    Desired, FailoverHow, FailoverRequest, Limits, Observed, Operation, Peer, PeerRole, Plan, Refused, ReleaseHow,
    Role, Seen, SlotSet, Step, Waiting, Who,
};

const TWO_OF_THREE: &str = "0-0 s:P0-5460 0-1 r0-0 1-0 s:P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";

fn planned(observed: &Observed) -> Plan {
    plan::plan(&Desired::cluster(3, 1), observed, &Limits::default())
}

/// Beside a snapshot each of them waited for the others until a limit, and then came back with it over a replica that had more.
#[test]
fn who_ended_and_waits_for_votes_that_cannot_come_is_replaced_without_any() {
    let mut observed = layout(TWO_OF_THREE);
    assert_eq!(promotions(&planned(&observed)), [], "they are about to start");
    for place in ["0-0", "1-0"] {
        observed.members.get_mut(&pod(place)).unwrap().waits = true;
        observed.ended.insert(id(pod(place)), 4_000);
    }
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    // No vote is counted, so none of a moment ago is.
    observed.elections.insert(0, 100);
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    observed.failovers_asked.insert(0, 100);
    assert!(planned(&observed).waiting.contains(&Waiting::Failover { shard: 0, since_millis: 100 }));
    observed.failovers_asked.clear();
    // What became of the other one is of no matter for this shard.
    observed.ended.remove(&id(pod("1-0")));
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    observed.ended.remove(&id(pod("0-0")));
    assert_eq!(promotions(&planned(&observed)), []);
}

/// A voter gives one vote in an epoch. Asked side by side, two who need most votes cannot both get them, and where neither does both rest for as
/// long as an election counts.
#[test]
fn one_replica_is_promoted_at_a_time() {
    let of = |shards: u32| {
        let member = |shard: u32| {
            let (first, end) = (shard * 16_384 / shards, (shard + 1) * 16_384 / shards);
            let dead = if shard < 2 { "x:" } else { "" };
            format!("{shard}-0 {dead}P{first}-{} {shard}-1 r{shard}-0", end - 1)
        };
        layout(&(0..shards).map(member).collect::<Vec<_>>().join(" "))
    };
    let planned = |shards: u16, observed: &Observed| {
        promotions(&plan::plan(&Desired::cluster(shards, 1), observed, &Limits::default()))
    };
    let [first, second] = ["0-1", "1-1"].map(|place| (pod(place), FailoverHow::Force));
    for shards in [5, 6, 7, 60] {
        assert_eq!(planned(shards, &of(u32::from(shards))), [first], "{shards} shards");
    }
    // The first one has asked, and may ask no more for now.
    let mut asked = of(5);
    asked.elections.insert(0, 100);
    assert_eq!(planned(5, &asked), [second]);
    // What was refused a moment ago lets the other one go first, and the one of the longest time ago is tried again.
    let mut refused = of(5);
    refused.failovers_refused.insert(0, 100);
    assert_eq!(planned(5, &refused), [second]);
    refused.failovers_refused.insert(1, 50);
    assert_eq!(planned(5, &refused), [first]);
}

/// Before, it was started beside the order to replace it, and might serve while the votes came in.
#[test]
fn a_held_primary_is_not_released_while_it_is_replaced() {
    let mut observed = layout("0-0 Hd:P0-5460 0-1 r0-0 1-0 P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0");
    let plan = planned(&observed);
    let promotion = Step::Failover {
        replica: Who { pod: pod("0-1"), id: id(pod("0-1")) },
        primary: id(pod("0-0")),
        how: FailoverHow::Force,
        over: None,
        unheard: SlotSet::EMPTY,
    };
    assert_eq!(plan.steps, [promotion]);
    // It was asked to, and may still be elected.
    observed.failovers_asked.insert(0, 9_900);
    observed.elections.insert(0, 9_900);
    let plan = planned(&observed);
    assert_eq!(
        (&plan.steps[..], &plan.waiting[..1]),
        (&[][..], &[Waiting::Failover { shard: 0, since_millis: 9_900 }][..])
    );
    // Where nobody could be asked it is started, or the shard would stay down.
    observed.failovers_asked.clear();
    observed.elections.clear();
    observed.failovers_refused.insert(0, 100);
    assert_eq!(planned(&observed).steps, [Step::Release { pod: pod("0-0"), how: ReleaseHow::AsIs }]);
}

#[test]
fn a_claim_without_votes_is_made_above_the_epoch_of_what_it_replaces() {
    let mut observed = layout(&TWO_OF_THREE.replace("s:", "H:"));
    observed.ended.extend(["0-0", "1-0"].map(|place| (id(pod(place)), 4_000)));
    assert_eq!(promotions(&planned(&observed)), [(pod("0-1"), FailoverHow::Takeover)]);
    // Somebody else knows a later epoch than the replicas have heard of.
    at(&mut observed, "2-0").peers.get_mut(&id(pod("0-0"))).unwrap().epoch = 9;
    let plan = planned(&observed);
    assert_eq!(promotions(&plan), []);
    assert!(plan.waiting.contains(&Waiting::Agreement { right: 3, of: 4, away: None }), "{plan:?}");
}

/// What comes with one that has nothing to load is heard at once, and the copy takes over above that. Before, both had one epoch.
#[test]
fn a_claim_without_votes_waits_for_who_starts_without_keys() {
    let planned = |other: &str, keeps: bool, waits: bool| {
        let text = format!("0-0 H:P0-5460 0-1 r0-0 1-0 {other}:P5461-10922 2-0 P10923-16383 2-1 r2-0");
        let mut observed = layout(&text);
        observed.ended.extend(["0-0", "1-0"].map(|place| (id(pod(place)), 4_000)));
        observed.members.get_mut(&pod("1-0")).unwrap().waits = waits;
        observed.blank.insert(pod("1-1"));
        let wanted = Desired { restart_keeps_data: keeps, has_volumes: keeps, ..Desired::cluster(3, 1) };
        promotions(&plan::plan(&wanted, &observed, &Limits::default()))
    };
    let promoted = [(pod("0-1"), FailoverHow::Takeover)];
    for other in ["H", "s", "x"] {
        assert_eq!(planned(other, false, false), [], "{other}");
        assert_eq!(planned(other, true, false), promoted, "{other}: it may load for long");
    }
    assert_eq!(planned("s", false, true), promoted, "it waits itself");
    assert_eq!(planned("-", false, false), promoted);
}

/// Before, another one took over, of which nothing had been accepted.
#[test]
fn an_order_means_the_copy_that_it_names_where_nobody_can_vote() {
    let text = "0-0 ?:P0-5460 0-1 r0-0 0-2 r0-0 1-0 ?:P5461-10922 1-1 r1-0 1-2 r1-0 2-0 P10923-16383 2-1 r2-0 2-2 r2-0";
    let planned = |text: &str, candidate| {
        let mut observed = layout(text);
        for place in ["0-0", "1-0"] {
            observed.members.get_mut(&pod(place)).unwrap().seen = Seen::Unknown { since_millis: 60_000 };
        }
        let (from, how) = (id(pod("0-0")), FailoverHow::Force);
        let failover = Some(FailoverRequest { shard: 0, from, candidate, how, accept_data_loss: true });
        let plan = plan::plan(&Desired { failover, ..Desired::cluster(3, 2) }, &observed, &Limits::default());
        (promotions(&plan), plan.operation)
    };
    let promoted = |name: &str| (vec![(pod(name), FailoverHow::Takeover)], Some(Operation::Running));
    assert_eq!(planned(text, None), promoted("0-1"));
    assert_eq!(planned(text, Some(2)), promoted("0-2"));
    let behind = text.replacen("0-2 r0-0", "0-2 r0-0~", 1);
    assert_eq!(planned(&behind, Some(2)), (vec![], Some(Operation::Refused)), "0-1 has everything, and is not named");
    assert_eq!(planned(&behind, Some(1)), promoted("0-1"));
}

/// Those who have not heard of the primary for an hour may be the few: it ended a moment ago, and until then it may have served all others.
#[test]
fn what_a_copy_lacks_counts_until_the_end_of_the_primary_itself() {
    let mut observed = layout(&TWO_OF_THREE.replace("s:", "Hd:"));
    observed.ended.extend(["0-0", "1-0"].map(|place| (id(pod(place)), 4_000)));
    let mut behind = |millis: u64| {
        if let Role::Replica { gap, .. } = &mut at(&mut observed, "0-1").role {
            (gap.behind_millis, gap.silent_millis) = (millis, 3_600_000);
        }
        planned(&observed)
    };
    assert_eq!(promotions(&behind(7_000)), [(pod("0-1"), FailoverHow::Takeover)]);
    let plan = behind(3_600_000);
    assert_eq!(promotions(&plan), [(pod("1-1"), FailoverHow::Takeover)]);
    let (shard, primary, replica, missed_millis) = (0, id(pod("0-0")), pod("0-1"), 3_596_000);
    let (lag_bytes, silent_millis, others) = (0, 4_000, Vec::new());
    let stale = Refused::StaleCopy { shard, primary, replica, missed_millis, lag_bytes, silent_millis, others };
    assert!(plan.refused.contains(&stale), "{plan:?}");
}

#[test]
fn another_replica_that_does_not_answer_may_have_been_elected_where_nobody_looks() {
    let three = "0-0 H:P0-5460 0-1 r0-0 0-2 -:r0-0 1-0 H:P5461-10922 1-1 r1-0 2-0 P10923-16383 2-1 r2-0";
    let planned = |found: &str, ended: &[&str]| {
        let mut observed = layout(&three.replace("-:r0-0", found));
        observed.ended.extend(ended.iter().map(|place| (id(pod(place)), 4_000)));
        plan::plan(&Desired::cluster(3, 2), &observed, &Limits::default())
    };
    let of_shard = |plan: &Plan| promotions(plan).into_iter().filter(|(pod, _)| pod.shard == 0).count();
    let gone = planned("-:r0-0", &["0-0", "1-0"]);
    let unproven = vec![(id(pod("0-2")), Some(pod("0-2")))];
    assert_eq!(of_shard(&gone), 0);
    let (alive, refuse, of, shard, primary, replica) = (1, 0, 3, 0, id(pod("0-0")), pod("0-1"));
    let refused = Refused::NoQuorum { alive, refuse, of, shard, primary, replica, unproven };
    assert!(gone.refused.contains(&refused), "{gone:?}");
    // It comes back by itself.
    let starts = planned("s:r0-0", &["0-0", "1-0"]);
    assert_eq!(of_shard(&starts), 0);
    assert!(starts.waiting.contains(&Waiting::Copy { pod: pod("0-2"), instead_of: pod("0-1") }), "{starts:?}");
    assert_eq!(of_shard(&planned("r0-0", &["0-0", "1-0"])), 1);
    // Without a volume it brings nothing back once it has ended, whatever it was elected for; unless somebody has a copy.
    let without_volumes = |change: fn(&mut Observed)| {
        let mut observed = layout(three);
        observed.ended.extend(["0-0", "1-0"].map(|place| (id(pod(place)), 4_000)));
        change(&mut observed);
        let desired = Desired { has_volumes: false, ..Desired::cluster(3, 2) };
        of_shard(&plan::plan(&desired, &observed, &Limits::default()))
    };
    let ends = |observed: &mut Observed| {
        observed.ended.insert(id(pod("0-2")), 4_000);
    };
    assert_eq!([without_volumes(|_| {}), without_volumes(ends)], [0, 1]);
    let is_copied = |observed: &mut Observed| {
        observed.ended.insert(id(pod("0-2")), 4_000);
        let node = at(observed, "2-1");
        if let Role::Replica { of, .. } = &mut node.role {
            *of = id(pod("0-2"));
        }
    };
    assert_eq!(without_volumes(is_copied), 0);
    // Nor is a copy seen of which others know.
    let is_copied_out_of_sight = |observed: &mut Observed| {
        observed.ended.insert(id(pod("0-2")), 4_000);
        let heard = PeerRole::Replica { of: id(pod("0-2")) };
        let peer = at(observed, "2-0").peers[&id(pod("2-1"))].clone();
        at(observed, "2-0").peers.insert(id(pod("0-3")), Peer { role: heard, ..peer });
    };
    assert_eq!(without_volumes(is_copied_out_of_sight), 0);
}

/// What is on disk comes back with them: nobody is told to give anything up.
#[test]
fn primaries_that_are_about_to_start_again_are_waited_for() {
    for found in ["x:", "s:"] {
        let plan = planned(&layout(&TWO_OF_THREE.replace("s:", found)));
        assert_eq!((promotions(&plan), plan.refused), (vec![], vec![]));
    }
}

/// It hands its role over at once, or goes: when its grace period ends, which may be in an hour.
#[test]
fn a_voter_whose_pod_is_being_deleted_is_waited_for_but_a_moment() {
    let text =
        TWO_OF_THREE.replacen("0-0 s:", "0-0 -:", 1).replacen("1-0 s:", "1-0 ?:", 1).replacen("r1-0", "r1-0~", 1);
    let told = |since_millis: u64, terminating: bool| {
        let mut observed = layout(&text);
        let member = observed.members.get_mut(&pod("1-0")).unwrap();
        (member.seen, member.terminating) = (Seen::Unknown { since_millis }, terminating);
        let plan = planned(&observed);
        let is_awaited = plan.waiting.contains(&Waiting::Unknown { pod: pod("1-0"), since_millis });
        (promotions(&plan), plan.refused, is_awaited)
    };
    let (shard, primary, replica, unproven) = (0, id(pod("0-0")), pod("0-1"), vec![(id(pod("0-0")), Some(pod("0-0")))]);
    let refused = vec![Refused::NoQuorum { alive: 1, refuse: 0, of: 3, shard, primary, replica, unproven }];
    for terminating in [false, true] {
        assert_eq!(told(2_000, terminating), (vec![], vec![], true));
        assert_eq!(told(20_000, terminating), (vec![], refused.clone(), true));
    }
    assert_eq!(told(4_000, false), (vec![], vec![], true));
    assert_eq!(told(4_000, true), (vec![], refused, true));
}

/// What stops the others' votes is then no reason to wait: the primary is known to have ended.
#[test]
fn who_has_ended_is_replaced_while_the_last_voter_stops() {
    let text =
        TWO_OF_THREE.replacen("0-0 s:", "0-0 H:", 1).replacen("1-0 s:", "1-0 ?:", 1).replacen("r1-0", "r1-0~", 1);
    let promoted = |since_millis: u64| {
        let mut observed = layout(&text);
        observed.ended.insert(id(pod("0-0")), 4_000);
        let member = observed.members.get_mut(&pod("1-0")).unwrap();
        (member.seen, member.terminating) = (Seen::Unknown { since_millis }, true);
        promotions(&planned(&observed))
    };
    assert_eq!(promoted(0), [], "it may hand over");
    assert_eq!(promoted(4_000), [(pod("0-1"), FailoverHow::Takeover)]);
}
