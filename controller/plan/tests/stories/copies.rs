//! Copies that lack something, or whose disk does.

use super::settle;
use crate::support::{Run, promotions};
use plan::{Desired, FailoverHow, FailoverRequest, NodeId, Operation, Pod, Refused, Role, Stands, Step, Waiting};

/// Before, nobody was ever elected for it: its machine had stood still while that of its primary was lost.
#[test]
fn a_replica_that_stood_still_is_promoted_once_most_hold_its_primary_dead() {
    let (primary, replica) = (Pod::new(0, 0), Pod::new(0, 1));
    let lose = |held_back: Stands, missed: u64| {
        let mut run = Run::created(Desired::cluster(3, 1), true);
        run.cut_off(primary);
        run.world.homes.get_mut(&primary).unwrap().hidden = true;
        let server = run.world.homes.get_mut(&replica).unwrap().server.as_mut().unwrap();
        let Role::Replica { link_up, gap, stands, .. } = &mut server.role else { panic!("{:?}", server.role) };
        (*link_up, gap.missed_millis, *stands) = (false, missed, held_back);
        let mut plan = run.round(usize::MAX, false).unwrap();
        for _ in 0..8 {
            run.tick(2);
            plan = run.round(usize::MAX, false).unwrap();
        }
        let is_promoted = run.world.up(replica).unwrap().follows().is_none();
        let held_back = plan.waiting.iter().any(|why| matches!(why, Waiting::Election { held_back: Some(_), .. }));
        let stale = plan.refused.iter().any(|why| matches!(why, Refused::StaleCopy { .. }));
        (is_promoted, held_back, stale)
    };
    assert_eq!(lose(Stands::ByItself, 0), (true, false, false));
    assert_eq!(lose(Stands::OnOrder, 0), (true, false, false));
    assert_eq!(lose(Stands::OnOrder, 9_000), (false, false, true), "its primary went on without it");
    assert_eq!(lose(Stands::Never, 0), (false, true, false), "nobody knows when it lost its link");
}

/// Before, it was asked to stand for election for ever: Redis says OK, and does not where its own table gives the primary no slot. Where nobody else had
/// heard either, the slots went to the next pod, and the copy was emptied.
#[test]
fn a_copy_that_never_heard_of_its_primarys_slots_takes_them_over_without_votes() {
    for shards in [1, 3] {
        let mut run = Run::created(Desired { adopt_lost_slots: true, ..Desired::cluster(shards, 1) }, false);
        let replica = Pod::new(0, 1);
        run.lose_before_it_is_heard(replica);
        // The copy has all of it.
        run.world.excused.clear();
        assert!(settle(&mut run).is_satisfied());
        assert!(run.world.up(replica).unwrap().follows().is_none(), "{shards} shards");
    }
    // One that has heard is elected instead.
    let mut run = Run::created(Desired { adopt_lost_slots: true, ..Desired::cluster(3, 2) }, false);
    run.lose_before_it_is_heard(Pod::new(0, 1));
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(Pod::new(0, 2)).unwrap().follows().is_none());
}

/// Before, the copy was told to take over at once, which its executor refused.
#[test]
fn a_takeover_waits_until_who_led_before_has_heard_that_it_leads_no_more() {
    let mut run = Run::created(Desired { adopt_lost_slots: true, ..Desired::cluster(3, 2) }, false);
    let [former, heir, copy] = [0, 1, 2].map(|ordinal| Pod::new(1, ordinal));
    run.cut_off(former);
    while run.world.up(heir).unwrap().follows().is_some() {
        run.tick(1);
        assert!(run.world.now < 1_000_000, "nobody was elected");
    }
    run.tick(6);
    [Pod::new(2, 0), heir].into_iter().for_each(|pod| run.crash(pod, false));
    run.world.homes.get_mut(&former).unwrap().cut_off = false;
    for _ in 0..4 {
        let plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        let takes_over = promotions(&plan).iter().any(|(pod, how)| *pod == copy && *how == FailoverHow::Takeover);
        assert!(!takes_over || run.world.up(former).unwrap().slots().is_empty(), "{plan:?}");
        run.tick(1);
    }
    run.rejoin_all();
    assert!(run.settle(150).unwrap().is_satisfied());
}

/// Shard 0 has written on without its replica, and its primary's process ends.
fn a_primary_dies_beside_a_stale_copy(with_pod: bool, volumes: bool) -> Run {
    let mut desired = Desired::cluster(3, 1);
    desired.adopt_lost_slots = !volumes;
    let mut run = Run::created(desired, volumes);
    run.unlink(Pod::new(0, 1));
    run.tick(10);
    run.write_everywhere();
    run.crash(Pod::new(0, 0), with_pod);
    run
}

#[test]
fn a_stale_copy_waits_for_the_primary_that_has_everything() {
    for with_pod in [false, true] {
        let mut run = a_primary_dies_beside_a_stale_copy(with_pod, true);
        let plan = run.round(usize::MAX, false).unwrap();
        assert_eq!(plan.steps, []);
        let primary = run.world.homes[&Pod::new(0, 0)].last_id.unwrap();
        let refused = Refused::StaleCopy {
            shard: 0,
            primary,
            replica: Pod::new(0, 1),
            missed_millis: 10_000,
            lag_bytes: 7,
            silent_millis: 0,
            others: Vec::new(),
        };
        assert_eq!(plan.refused, [refused]);
        run.rejoin_all();
        assert!(settle(&mut run).is_satisfied());
        assert!(run.world.excused.is_empty());
        assert!(run.world.up(Pod::new(0, 0)).unwrap().follows().is_none(), "with pod {with_pod}");
    }
}

#[test]
fn a_stale_copy_is_promoted_where_nothing_better_can_come_back() {
    let mut run = a_primary_dies_beside_a_stale_copy(true, false);
    assert!(settle(&mut run).is_satisfied());
    run.rejoin_all();
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(Pod::new(0, 1)).unwrap().follows().is_none());
}

#[test]
fn a_stale_copy_waits_for_a_replica_that_may_have_more() {
    let desired = Desired { adopt_lost_slots: true, ..Desired::cluster(3, 2) };
    let mut run = Run::created(desired, false);
    let (stale, better) = (Pod::new(0, 1), Pod::new(0, 2));
    run.unlink(stale);
    run.tick(10);
    run.write_everywhere();
    run.crash(Pod::new(0, 0), true);
    let away = run.world.homes.get_mut(&better).unwrap();
    (away.hidden, away.cut_off) = (true, true);
    // For however long it is not seen.
    let mut plan = plan::Plan::default();
    for _ in 0..20 {
        plan = run.round(usize::MAX, false).unwrap();
        assert!(!plan.steps.iter().any(|step| step.kind() == "Failover"), "{plan:?}");
        run.tick(1);
    }
    assert!(plan.waiting.contains(&Waiting::Copy { pod: better, instead_of: stale }), "{plan:?}");
    run.rejoin_all();
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(better).unwrap().follows().is_none());
}

#[test]
fn a_stale_copy_is_promoted_when_a_person_accepts_the_loss() {
    let mut run = a_primary_dies_beside_a_stale_copy(true, true);
    // It stays away.
    run.world.homes.get_mut(&Pod::new(0, 0)).unwrap().hidden = true;
    let from = run.world.homes[&Pod::new(0, 0)].last_id.unwrap();
    let ask = |accept_data_loss| FailoverRequest {
        shard: 0,
        from,
        candidate: None,
        how: FailoverHow::Force,
        accept_data_loss,
    };
    run.desired.failover = Some(ask(false));
    let plan = run.round(usize::MAX, false).unwrap();
    assert!(plan.steps.is_empty() && matches!(plan.refused[..], [Refused::StaleCopy { .. }]), "{plan:?}");
    run.desired.failover = Some(ask(true));
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!(plan.steps.iter().map(Step::kind).collect::<Vec<_>>(), ["Failover"]);
}

#[test]
fn a_replica_that_is_gone_for_a_moment_is_waited_for_it_may_have_more() {
    let mut run = Run::created(Desired::cluster(3, 2), true);
    run.crash(Pod::new(0, 0), true);
    run.world.homes.get_mut(&Pod::new(0, 2)).unwrap().hidden = true;
    let plan = run.round(usize::MAX, false).unwrap();
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert!(plan.waiting.contains(&Waiting::Unknown { pod: Pod::new(0, 2), since_millis: 1_000 }), "{plan:?}");
}

#[test]
fn a_role_moves_only_to_a_member_whose_disk_is_current() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (primary, replica) = (Pod::new(0, 0), Pod::new(0, 1));
    let from = run.world.up(primary).unwrap().id;
    let ask =
        FailoverRequest { shard: 0, from, candidate: None, how: FailoverHow::Coordinated, accept_data_loss: false };
    let rewrite = |run: &mut Run, pod| {
        run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap().stored = Some(plan::model::Data::new());
    };
    rewrite(&mut run, replica);
    run.desired.failover = Some(ask);
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!((plan.steps, plan.waiting), (Vec::new(), vec![Waiting::Disk { pod: replica, fails: None }]));
    run.tick(1);
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
    // Nor is the other copy restarted beside a primary whose disk is behind.
    run.desired.failover = None;
    run.world.homes.get_mut(&primary).unwrap().outdated = true;
    rewrite(&mut run, replica);
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!((plan.steps, plan.waiting), (Vec::new(), vec![Waiting::Disk { pod: replica, fails: None }]));
    run.tick(1);
    assert!(settle(&mut run).is_satisfied());
}

/// All members of shard 0 are stopped, and the volume of its primary is blank when they start again.
fn a_shard_comes_back_without_its_primary(replicas: u16) -> (Run, NodeId) {
    let mut run = Run::created(Desired::cluster(3, replicas), true);
    let members = (0..=replicas).map(|ordinal| Pod::new(0, ordinal));
    let primary = run.world.up(Pod::new(0, 0)).unwrap().id;
    members.for_each(|pod| run.crash(pod, true));
    run.world.homes.get_mut(&Pod::new(0, 0)).unwrap().server = None;
    (run, primary)
}

/// Nobody knows whether they had everything before they were stopped, nor which of them had more.
#[test]
fn of_copies_that_were_started_without_their_primary_a_person_names_one() {
    for replicas in [1, 2] {
        let (mut run, primary) = a_shard_comes_back_without_its_primary(replicas);
        let go_on = |run: &mut Run| {
            for _ in 0..20 {
                run.round(usize::MAX, false).unwrap();
                run.tick(2);
            }
            run.round(usize::MAX, false).unwrap()
        };
        let copies = (1..=replicas).map(|ordinal| Pod::new(0, ordinal)).collect();
        let refused = vec![Refused::LostSlots { id: primary, slots: 5_461, copies, former: None }];
        let (shard, how) = (0, FailoverHow::Force);
        let mut ask = |candidate, accept_data_loss| {
            run.desired.failover = Some(FailoverRequest { shard, from: primary, candidate, how, accept_data_loss });
            go_on(&mut run)
        };
        let vague = if replicas == 1 { Some(0) } else { None };
        for (candidate, accept_data_loss) in [(Some(1), false), (Some(0), true), (vague, true)] {
            let plan = ask(candidate, accept_data_loss);
            assert_eq!((plan.steps, plan.refused), (vec![], refused.clone()), "{candidate:?}");
        }
        // Before, it was said to be gone with all its keys, and no order helped.
        let plan = ask(if replicas == 1 { None } else { Some(2) }, true);
        assert_eq!((plan.steps, plan.refused, plan.operation), (vec![], vec![], Some(Operation::Done)));
        run.everything_reads_back().unwrap();
        assert!(run.world.up(Pod::new(0, replicas)).unwrap().follows().is_none());
    }
}
