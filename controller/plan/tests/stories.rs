//! What a user does, and what becomes of it, without any trouble and with one.

mod copies;
mod deleted;
mod found;
mod quorum;
mod received;
mod replaced;
mod room;
mod twice;

use crate::support::Run;
use plan::model::{Luck, World};
use plan::{Desired, FailoverHow, FailoverRequest, Open, Operation, Pod, Step, Waiting};

fn settle(run: &mut Run) -> plan::Plan {
    let plan = run.settle(150).unwrap_or_else(|reason| panic!("{reason}"));
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
    plan
}

#[test]
fn a_cluster_is_created_with_the_first_ordinals_as_primaries() {
    let mut run = Run::new(Desired::cluster(3, 1), World::new(true, true), Luck::good());
    assert!(settle(&mut run).is_satisfied());
    for shard in 0..3 {
        assert!(run.world.up(Pod::new(shard, 0)).unwrap().follows().is_none());
    }
    let slots: Vec<String> =
        (0..3).map(|shard| run.world.up(Pod::new(shard, 0)).unwrap().slots().to_string()).collect();
    assert_eq!(slots, ["0-5460", "5461-10921", "10922-16383"]);
}

#[test]
fn scaling_out_and_in_moves_as_little_as_possible_and_loses_nothing() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    for shards in [5, 3, 4, 1, 2, 3] {
        run.desired.shards = shards;
        run.write_everywhere();
        assert!(settle(&mut run).is_satisfied(), "{shards} shards");
        assert_eq!(run.world.homes.len(), usize::from(shards) * 2);
    }
}

#[test]
fn a_copy_that_is_never_made_may_leave_although_a_new_shard_waits_for_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.desired.shards = 4;
    run.world.provide(&run.desired);
    run.unlink(Pod::new(3, 1));
    let waits = |plan: &plan::Plan| {
        plan.waiting.iter().any(|why| matches!(why, Waiting::Sync { pod, .. } if *pod == Pod::new(3, 1)))
    };
    for _ in 0..40 {
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(2);
    }
    let plan = run.round(usize::MAX, false).unwrap();
    assert!(plan.steps.is_empty() && waits(&plan), "{plan:?}");
    run.desired.replicas = 0;
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn replicas_come_and_go() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    for replicas in [2, 0, 1, 3, 1] {
        run.desired.replicas = replicas;
        assert!(settle(&mut run).is_satisfied(), "{replicas} replicas");
    }
}

#[test]
fn a_primary_that_is_to_leave_hands_over_first() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let from = run.world.up(Pod::new(1, 0)).unwrap().id;
    run.desired.failover = Some(FailoverRequest {
        shard: 1,
        from,
        candidate: Some(1),
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
    run.desired.failover = None;
    run.desired.replicas = 0;
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(Pod::new(1, 0)).unwrap().follows().is_none());
}

#[test]
fn a_role_that_has_just_moved_rests_before_it_moves_back() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let ask = |run: &Run, pod| {
        let from = run.world.up(pod).unwrap().id;
        Some(FailoverRequest {
            shard: 0,
            from,
            candidate: None,
            how: FailoverHow::Coordinated,
            accept_data_loss: false,
        })
    };
    run.desired.failover = ask(&run, Pod::new(0, 0));
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
    let moved = run.world.won[&0];
    run.desired.failover = ask(&run, Pod::new(0, 1));
    let mut plan = run.round(usize::MAX, false).unwrap();
    while plan.steps.is_empty() {
        let since_millis = (run.world.now - moved) * 1_000;
        assert_eq!(plan.waiting, [Waiting::Rest { shard: 0, since_millis, of_millis: 20_500 }]);
        run.tick(1);
        plan = run.round(usize::MAX, false).unwrap();
    }
    assert_eq!(run.world.now - moved, 21, "in ticks of a second");
    assert_eq!(
        Waiting::Rest { shard: 0, since_millis: 1_250, of_millis: 20_500 }.to_string(),
        "the primary role of shard 0 moved, or may have moved, 1.2 s ago; it may move again 21 s after that, when Redis counts votes anew"
    );
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
}

#[test]
fn a_rolling_restart_replaces_every_pod_and_keeps_every_key() {
    for (replicas, volumes) in [(1, true), (1, false), (2, false), (0, true)] {
        let mut run = Run::created(Desired::cluster(3, replicas), volumes);
        let before: Vec<String> = run.world.homes.values().map(|home| home.address.clone()).collect();
        run.world.homes.values_mut().for_each(|home| home.outdated = true);
        assert!(settle(&mut run).is_satisfied(), "{replicas} replicas, volumes {volumes}");
        assert!(run.world.homes.values().all(|home| !before.contains(&home.address)));
    }
}

#[test]
fn an_upgrade_goes_on_past_a_replica_that_is_too_old_for_its_primary() {
    for (replicas, volumes) in [(1, true), (1, false), (2, true), (2, false)] {
        let mut run = Run::created(Desired::cluster(3, replicas), volumes);
        run.world.upgrade();
        let old = Pod::new(0, 0);
        let is_new = |run: &Run, pod: Pod| {
            run.world.homes[&pod].version == 1 && run.world.up(pod).is_some_and(|server| server.is_synced())
        };
        while !(1..=replicas).all(|ordinal| is_new(&run, Pod::new(0, ordinal))) {
            run.round(usize::MAX, false).unwrap();
            run.tick(2);
        }
        // A new replica takes over while the primary hangs.
        run.cut_off(old);
        run.tick(6);
        run.rejoin_all();
        run.tick(6);
        let server = run.world.up(old).unwrap();
        assert!(
            server.follows().is_some() && !server.is_synced() && server.data.is_empty(),
            "{}",
            run.world.describe()
        );
        assert!(settle(&mut run).is_satisfied(), "{replicas} replicas, volumes {volumes}");
        assert!(run.world.homes.values().all(|home| home.version == 1));
    }
}

#[test]
fn a_roll_stops_at_the_first_member_whose_parameters_are_refused() {
    for (replicas, first) in [(1, Pod::new(0, 1)), (0, Pod::new(0, 0))] {
        let mut run = Run::created(Desired::cluster(3, replicas), true);
        run.world.homes.values_mut().for_each(|home| home.outdated = true);
        // Not known to anybody yet: what has not been tried proves nothing, and the first restart is the trial.
        run.world.refuses = true;
        let plan = settle(&mut run);
        let bare =
            |run: &Run| run.world.homes.iter().filter(|(_, home)| home.bare).map(|(pod, _)| *pod).collect::<Vec<_>>();
        assert_eq!(bare(&run), [first]);
        assert_eq!((plan.steps, plan.waiting), (vec![], vec![Waiting::Parameters { pod: first, refused: true }]));
        run.world.configure(false);
        assert!(settle(&mut run).is_satisfied());
        assert_eq!(bare(&run), []);
    }
}

#[test]
fn no_roll_is_begun_while_a_member_says_that_parameters_are_refused() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.configure(true);
    run.tick(1);
    let before: Vec<String> = run.world.homes.values().map(|home| home.address.clone()).collect();
    run.world.homes.values_mut().for_each(|home| home.outdated = true);
    let plan = settle(&mut run);
    assert_eq!(plan.waiting, [Waiting::Parameters { pod: Pod::new(0, 0), refused: true }]);
    assert_eq!(before, run.world.homes.values().map(|home| home.address.clone()).collect::<Vec<_>>());
    run.world.configure(false);
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.homes.values().all(|home| !home.outdated));
}

#[test]
fn nobody_is_restarted_while_new_pods_lack_their_secret() {
    for desired in [Desired::cluster(3, 1), Desired { mode: plan::Mode::Standalone, ..Desired::cluster(1, 0) }] {
        let mut run = Run::created(Desired { lacks_secret: true, ..desired }, true);
        run.world.homes.values_mut().for_each(|home| home.outdated = true);
        let plan = settle(&mut run);
        assert_eq!((plan.steps, plan.waiting), (vec![], vec![Waiting::Secret]));
        assert!(run.world.homes.values().all(|home| home.outdated));
        run.desired.lacks_secret = false;
        assert!(settle(&mut run).is_satisfied());
        assert!(run.world.homes.values().all(|home| !home.outdated));
    }
}

#[test]
fn a_dead_primary_is_replaced_or_comes_back() {
    for with_pod in [false, true] {
        for volumes in [false, true] {
            let mut run = Run::created(Desired::cluster(3, 1), volumes);
            run.crash(Pod::new(0, 0), with_pod);
            assert!(settle(&mut run).is_satisfied());
            // With its files it may be back before anybody is elected.
            let replaced = run.world.up(Pod::new(0, 1)).unwrap().follows().is_none();
            assert!(replaced || volumes, "with pod {with_pod}");
            assert_eq!(run.world.excused.len(), 0);
        }
    }
}

#[test]
fn a_member_that_leaves_or_comes_back_blank_is_no_matter_for_a_person() {
    let changes: [fn(&mut Run); 2] = [|run| run.wipe(Pod::new(0, 1)), |run| run.desired.replicas = 0];
    for change in changes {
        let mut run = Run::created(Desired::cluster(3, 1), true);
        // It has been looked at.
        run.round(usize::MAX, false).unwrap();
        change(&mut run);
        for _ in 0..20 {
            let plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
            assert_eq!(plan.refused, [], "{:?}", run.log.last());
            run.tick(1);
        }
        assert!(settle(&mut run).is_satisfied());
    }
}

#[test]
fn no_role_moves_in_the_middle_of_a_slot_that_an_older_look_misses() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.tick(30);
    let (from, to) = (Pod::new(0, 0), Pod::new(1, 0));
    let ids = [from, to].map(|pod| run.world.up(pod).unwrap().id);
    run.round(0, false).unwrap();
    run.desired.failover = Some(FailoverRequest {
        shard: 0,
        from: ids[0],
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    // Since that look a part of a slot has moved.
    for (pod, mark) in [(from, Open::Migrating(ids[1])), (to, Open::Importing(ids[0]))] {
        run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap().open.insert(0, mark);
    }
    let moved = run.world.homes.get_mut(&from).unwrap().server.as_mut().unwrap().data.remove(&0).unwrap();
    run.world.homes.get_mut(&to).unwrap().server.as_mut().unwrap().data.insert(0, moved);
    let plan = run.round(usize::MAX, true).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!(plan.steps.iter().map(Step::kind).collect::<Vec<_>>(), ["Failover"]);
    assert!(run.world.up(from).unwrap().follows().is_none(), "it is the primary still");
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
}

#[test]
fn a_new_shard_gets_its_second_slot_once_its_replica_has_a_copy() {
    let mut run = Run::created(Desired::cluster(2, 1), true);
    let (lead, replica) = (Pod::new(2, 0), Pod::new(2, 1));
    run.desired.shards = 3;
    let owned = |run: &Run| run.world.up(lead).map_or(0, |server| server.slots().len());
    let mut plan = run.round(usize::MAX, false).unwrap();
    run.unlink(replica);
    for _ in 0..20 {
        run.tick(1);
        plan = run.round(usize::MAX, false).unwrap();
    }
    assert_eq!(owned(&run), 1, "{plan:?}");
    assert!(plan.waiting.iter().any(|reason| matches!(reason, Waiting::Sync { pod, .. } if *pod == replica)));
    run.rejoin_all();
    assert!(settle(&mut run).is_satisfied());
    assert!(owned(&run) > 5000);
}

#[test]
fn all_pods_come_back_with_new_addresses() {
    for ends_with_pod in [true, false] {
        let mut run = Run::created(Desired::cluster(3, 1), true);
        for pod in run.world.running() {
            run.world.crash(pod, ends_with_pod);
        }
        assert!(settle(&mut run).is_satisfied());
    }
}

#[test]
fn volumes_that_were_swapped_end_as_a_whole_cluster() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let pods = [Pod::new(0, 0), Pod::new(1, 0)];
    pods.iter().for_each(|pod| run.world.crash(*pod, true));
    let [one, other] = pods.map(|pod| run.world.homes.get_mut(&pod).unwrap().server.take());
    for (pod, files) in pods.into_iter().zip([other, one]) {
        run.world.homes.get_mut(&pod).unwrap().server = files;
    }
    assert!(settle(&mut run).is_satisfied());
}
