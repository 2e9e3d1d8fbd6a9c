//! What a user does, and what becomes of it, without any trouble and with one.

use std::collections::BTreeSet;

use crate::support::Run;
use crate::support::history::{Event, Setting, live_through};
use plan::model::{Luck, Outcome, World};
use plan::{
    Desired, FailoverHow, FailoverRequest, Open, Operation, Pod, Refused, Role, SlotSet, Stands, Step, Waiting, Who,
};

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

/// Scaled out to four shards, of which the last one takes so many keys and then refuses more.
fn scaled_out_to_a_shard_with_room_for(keys: u64) -> Run {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.write_everywhere();
    run.write_everywhere();
    run.desired.shards = 4;
    run.world.provide(&run.desired);
    run.world.homes.get_mut(&Pod::new(3, 0)).unwrap().limit = Some(keys);
    run
}

#[test]
fn a_half_moved_slot_whose_target_is_full_goes_back_with_its_shard() {
    let mut run = scaled_out_to_a_shard_with_room_for(4);
    assert!(!settle(&mut run).is_satisfied());
    let target = run.world.up(Pod::new(3, 0)).unwrap();
    assert_eq!((target.keys(), target.open.len()), (4, 1), "one slot with three keys, and a part of another");
    run.desired.shards = 3;
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn a_half_moved_slot_without_keys_left_needs_no_room_at_its_full_target() {
    let mut run = scaled_out_to_a_shard_with_room_for(4);
    let waits = settle(&mut run).waiting;
    assert!(waits.iter().any(|why| matches!(why, Waiting::Room { half_moved: true, .. })), "{waits:?}");
    let (slot, _) =
        run.world.up(Pod::new(3, 0)).unwrap().open.first_key_value().map(|(slot, mark)| (*slot, *mark)).unwrap();
    let owner = run.world.authority(slot).unwrap();
    // Clients delete, or let expire, what has not moved yet.
    let shard: Vec<Pod> = run.world.homes.keys().copied().filter(|pod| pod.shard == owner.shard).collect();
    for pod in shard {
        let server = run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap();
        let gone = server.data.remove(&slot).unwrap();
        run.world.acked.retain(|(of, key)| *of != slot || !gone.contains(key));
    }
    settle(&mut run);
    let target = run.world.up(Pod::new(3, 0)).unwrap();
    assert!(target.open.is_empty() && target.slots().contains(slot) && target.keys() == 4, "{:?}", target.open);
}

#[test]
fn a_target_that_owns_nothing_else_is_not_said_to_give_anything_back() {
    // Its first slot has three keys.
    let mut run = scaled_out_to_a_shard_with_room_for(2);
    settle(&mut run);
    run.desired.shards = 3;
    let waits = settle(&mut run).waiting;
    let full: Vec<String> =
        waits.iter().filter(|why| matches!(why, Waiting::Room { .. })).map(ToString::to_string).collect();
    let told = "1 half-moved slots of 2-0 wait for room in 3-0: it is 0 KiB below its maxmemory, 256 KiB are needed; raise it \
                (spec.memory.maxBytes or spec.memory.maxPercent, which count at once), or delete keys of these slots";
    assert_eq!(full, [told]);
    run.world.homes.get_mut(&Pod::new(3, 0)).unwrap().limit = None;
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn what_does_not_fit_is_not_begun_and_a_restart_with_more_memory_goes_on() {
    let mut run = scaled_out_to_a_shard_with_room_for(0);
    let plan = settle(&mut run);
    assert_eq!(plan.steps, []);
    let full = Pod::new(3, 0);
    let room = |from, slots, half_moved| Waiting::Room {
        pod: full,
        from,
        slots,
        half_moved,
        gives: false,
        room: 0,
        needs: 256 << 10,
    };
    assert_eq!(plan.waiting, [room(Pod::new(2, 0), 1366, false)]);
    assert!(run.world.up(full).unwrap().open.is_empty());
    // It comes with a restart, which this does not stand in the way of.
    run.world.homes.values_mut().for_each(|home| home.outdated = true);
    settle(&mut run);
    assert!(run.world.homes.values().all(|home| !home.outdated));
    run.world.homes.get_mut(&full).unwrap().limit = None;
    assert!(settle(&mut run).is_satisfied());
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
        let mut desired = Desired::cluster(3, replicas);
        desired.restart_keeps_data = volumes;
        let mut run = Run::created(desired, volumes);
        let before: Vec<String> = run.world.homes.values().map(|home| home.address.clone()).collect();
        run.world.homes.values_mut().for_each(|home| home.outdated = true);
        assert!(settle(&mut run).is_satisfied(), "{replicas} replicas, volumes {volumes}");
        assert!(run.world.homes.values().all(|home| !before.contains(&home.address)));
    }
}

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

#[test]
fn an_upgrade_goes_on_past_a_replica_that_is_too_old_for_its_primary() {
    for (replicas, volumes) in [(1, true), (1, false), (2, true), (2, false)] {
        let mut desired = Desired::cluster(3, replicas);
        desired.restart_keeps_data = volumes;
        let mut run = Run::created(desired, volumes);
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
fn a_dead_primary_is_replaced_or_comes_back() {
    for with_pod in [false, true] {
        for volumes in [false, true] {
            let mut desired = Desired::cluster(3, 1);
            desired.restart_keeps_data = volumes;
            let mut run = Run::created(desired, volumes);
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

/// Shard 0 has written on without its replica, and its primary's process ends.
fn a_primary_dies_beside_a_stale_copy(with_pod: bool, volumes: bool) -> Run {
    let mut desired = Desired::cluster(3, 1);
    desired.restart_keeps_data = volumes;
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
    let mut desired = Desired::cluster(3, 2);
    (desired.restart_keeps_data, desired.adopt_lost_slots) = (false, true);
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
fn a_half_moved_slot_is_finished_while_the_pod_of_its_owner_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (from, to) = (Pod::new(0, 0), Pod::new(1, 0));
    let ids = [from, to].map(|pod| run.world.up(pod).unwrap().id);
    for (pod, mark) in [(from, Open::Migrating(ids[1])), (to, Open::Importing(ids[0]))] {
        run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap().open.insert(0, mark);
    }
    run.world.terminate(from);
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!(plan.steps.iter().map(Step::kind).collect::<Vec<_>>(), ["Move"], "{plan:?}");
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
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
    assert_eq!((plan.steps, plan.waiting), (Vec::new(), vec![Waiting::Disk { pod: replica }]));
    run.tick(1);
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
    // Nor is the other copy restarted beside a primary whose disk is behind.
    run.desired.failover = None;
    run.world.homes.get_mut(&primary).unwrap().outdated = true;
    rewrite(&mut run, replica);
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!((plan.steps, plan.waiting), (Vec::new(), vec![Waiting::Disk { pod: replica }]));
    run.tick(1);
    assert!(settle(&mut run).is_satisfied());
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
fn a_replica_whose_pod_is_being_deleted_is_never_promoted_on_request() {
    let mut run = Run::created(Desired::cluster(3, 2), true);
    run.world.terminate(Pod::new(0, 1));
    let from = run.world.up(Pod::new(0, 0)).unwrap().id;
    run.desired.failover = Some(FailoverRequest {
        shard: 0,
        from,
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    let plan = run.round(usize::MAX, false).unwrap();
    let names: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert!(names.len() == 1 && names[0].contains("0-2"), "{names:?}");
}

#[test]
fn nobody_else_is_restarted_while_a_pod_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.homes.values_mut().for_each(|home| home.outdated = true);
    run.world.terminate(Pod::new(2, 1));
    let plan = run.round(usize::MAX, false).unwrap();
    let why = "member 2-1 is being stopped because its pod is being deleted; a new pod will take its place";
    assert_eq!((plan.steps.as_slice(), plan.waiting[0].to_string().as_str()), ([].as_slice(), why));
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn replicas_are_kept_while_the_pod_of_their_primary_is_being_deleted() {
    let mut desired = Desired::cluster(3, 1);
    desired.restart_keeps_data = false;
    let mut run = Run::created(desired, false);
    run.world.terminate(Pod::new(1, 0));
    run.desired.replicas = 0;
    let plan = run.round(usize::MAX, false).unwrap();
    assert!(!plan.steps.iter().any(|step| step.to_string().contains("1-1")), "{:?}", plan.steps);
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn no_slot_moves_to_a_pod_that_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(2, 1), true);
    run.desired.shards = 3;
    for _ in 0..20 {
        run.round(2, false).unwrap();
        run.tick(1);
        run.world.terminate(Pod::new(2, 0));
    }
    assert!(run.world.up(Pod::new(2, 0)).unwrap().slots().is_empty());
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

/// Histories that once ended badly, as the random campaign found them.
fn survives(shards: u16, replicas: u16, volumes: bool, seed: Option<u64>, history: &[Event]) {
    let setting = Setting { shards, replicas, volumes, seed, sites: 1 };
    let (run, plan) = live_through(&setting, history, plan::plan).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(plan.is_satisfied(), "{plan:?}");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

fn round(most: usize, stale: bool, ticks: u32) -> Event {
    Event::Round { most, stale, ticks }
}

#[test]
fn a_replica_whose_primary_died_since_the_look_is_not_restarted() {
    let died = Event::Crash { place: 103, with_pod: false };
    let history = [Event::Outdate(93), round(1, false, 1), round(0, true, 0), died, round(1, true, 0)];
    let setting = Setting { shards: 1, replicas: 1, volumes: false, seed: None, sites: 1 };
    let (run, plan) = live_through(&setting, &history, plan::plan).unwrap_or_else(|reason| panic!("{reason}"));
    // Its keys are there; with a single shard there is nobody to vote for it.
    assert_eq!(run.world.up(Pod::new(0, 0)).unwrap().data.len(), 16);
    assert_eq!(plan.refused, [Refused::NoQuorum { alive: 0, of: 1, shard: 0 }]);
}

#[test]
fn an_heir_that_heard_of_the_epoch_only_in_passing_may_claim_lost_slots() {
    let crash = |place| Event::Crash { place, with_pod: true };
    survives(3, 0, false, None, &[crash(188), round(0, true, 1), round(2, false, 0), crash(20)]);
}

#[test]
fn slots_are_not_moved_into_a_primary_that_was_replaced_while_it_was_cut_off() {
    let history = [Event::Shards(1), Event::CutOff(18), round(0, true, 2), Event::Rejoin, round(1, true, 0)];
    survives(3, 1, false, None, &history);
}

#[test]
fn a_replica_that_was_cut_off_is_told_whom_its_primary_lost_its_slots_to() {
    let crash = |place| Event::Crash { place, with_pod: false };
    let history = [
        Event::Write,
        Event::CutOff(118),
        crash(3),
        round(0, false, 2),
        crash(239),
        round(0, true, 0),
        Event::Terminate(9),
        round(2, true, 0),
    ];
    survives(4, 2, false, None, &history);
}

#[test]
fn a_primary_that_is_back_does_not_vote_for_its_own_replacement() {
    let crash = Event::Crash { place: 162, with_pod: true };
    let history = [Event::CutOff(73), crash, round(0, false, 3), round(0, true, 1), round(1, true, 2), Event::Write];
    survives(1, 1, true, Some(7_154_625_607_532_237_128), &history);
}

#[test]
fn a_primary_that_was_cut_off_takes_no_writes_before_it_sees_the_others_again() {
    let history = [
        Event::Terminate(109),
        Event::CutOff(3),
        round(0, false, 2),
        Event::Rejoin,
        Event::EndGrace,
        Event::Terminate(3),
    ];
    survives(4, 2, false, None, &[&history[..], &[Event::EndGrace, Event::Write]].concat());
}

#[test]
fn a_member_with_an_old_table_does_not_pass_on_what_its_owner_no_longer_claims() {
    let looks = [2, 3, 2, 1].map(|ticks| round(0, false, ticks));
    let shrunk = [Event::Replicas(0), round(4, false, 1), Event::Shards(1), Event::Replicas(1)];
    let history = [&looks[..], &shrunk, &[round(1, false, 0), Event::Shards(4)]].concat();
    survives(4, 1, true, Some(13_230_143_226_749_955_877), &history);
}

#[test]
fn keys_that_were_moved_to_a_primary_that_dies_at_once_are_what_replication_allows_to_lose() {
    let history = [
        round(0, false, 2),
        Event::CutOff(103),
        round(0, true, 2),
        Event::Rejoin,
        round(0, false, 3),
        Event::Crash { place: 43, with_pod: false },
        round(0, false, 1),
        Event::Shards(2),
        round(1, true, 0),
        round(1, false, 2),
        Event::CutOff(5),
        Event::CutOff(21),
        round(0, true, 0),
        round(1, false, 0),
        Event::Crash { place: 116, with_pod: true },
        round(0, false, 0),
    ];
    survives(3, 1, false, Some(7_060_101_905_997_997_165), &history);
}

#[test]
fn nothing_is_moved_while_another_primary_has_the_epoch_of_the_source() {
    let failover = Event::FailOver { shard: 0, candidate: None, force: false, accept_data_loss: false };
    let history =
        [Event::Replicas(2), failover, Event::Shards(4), round(1, false, 3), Event::Replicas(0), round(1, false, 0)];
    let setting = Setting { shards: 1, replicas: 1, volumes: false, seed: Some(17_472_924_004_802_001_734), sites: 1 };
    let (run, _) = live_through(&setting, &history, plan::plan).unwrap_or_else(|reason| panic!("{reason}"));
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

#[test]
fn a_dead_member_with_the_epoch_of_the_source_holds_up_nothing() {
    let history = [
        Event::Shards(5),
        round(0, false, 2),
        round(usize::MAX, false, 3),
        Event::Shards(1),
        round(usize::MAX, false, 1),
        Event::Shards(2),
    ];
    survives(1, 2, false, Some(1_025_174_000_185_210_515), &history);
}

/// Rounds and ticks while something is wrong; gives the last plan, and every address that a member's table had for a node meanwhile.
fn watch(run: &mut Run, at: Pod, id: plan::NodeId) -> (plan::Plan, std::collections::BTreeSet<String>) {
    let (mut last, mut addresses) = (plan::Plan::default(), std::collections::BTreeSet::new());
    for _ in 0..40 {
        last = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
        addresses.extend(run.world.up(at).unwrap().table.get(&id).map(|peer| peer.address.clone()));
    }
    (last, addresses)
}

#[test]
fn a_node_that_runs_on_a_copied_volume_too_stops_what_concerns_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (pod, other) = (Pod::new(0, 0), Pod::new(1, 0));
    let id = run.world.up(pod).unwrap().id;
    run.world.copy_volume(pod, other);
    let (plan, addresses) = watch(&mut run, Pod::new(2, 0), id);
    let [address, other_address] = [pod, other].map(|pod| run.world.homes[&pod].address.clone());
    // Everybody believes whoever spoke last: nobody finds the member where its pod is, whoever is introduced to whom.
    assert_eq!(addresses, [other_address.clone()].into());
    let told = Refused::Twins { id, pod, address, other: Some(other), other_address, copied: None };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    // The way out that the sentence names.
    run.wipe(other);
    assert!(settle(&mut run).is_satisfied());
}

/// Before, it was started: both acknowledged writes, and whichever of the two was ended took with it what it had acknowledged.
#[test]
fn a_node_that_runs_on_is_not_started_again_and_nothing_is_lost() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let pod = Pod::new(0, 0);
    let id = run.world.up(pod).unwrap().id;
    let outside = run.world.run_on(pod);
    let address = run.world.homes[&outside].address.clone();
    let mut plan = plan::Plan::default();
    for _ in 0..40 {
        plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
        run.write_everywhere();
        assert!(run.world.up(pod).is_none());
    }
    let told = Refused::RunsAlready { pod, id, reason: format!("its node runs already at {address}") };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    // It ends, and its volume is the one that the next pod has.
    let files = run.world.homes.remove(&outside).unwrap().server;
    run.world.homes.get_mut(&pod).unwrap().server = files;
    assert!(settle(&mut run).is_satisfied());
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

#[test]
fn a_dead_primary_elsewhere_is_replaced_while_a_double_is_waited_for() {
    let mut run = Run::created(Desired::cluster(4, 1), true);
    let outside = run.world.run_on(Pod::new(0, 0));
    for _ in 0..5 {
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
    }
    assert!(run.world.up(outside).is_some() && run.world.up(Pod::new(0, 0)).is_none());
    run.crash(Pod::new(2, 0), true);
    let heir = run.world.up(Pod::new(2, 1)).unwrap().id;
    let plan = plan::plan(&run.desired, &run.world.observe(), &run.limits);
    let promoted = plan.steps.iter().map(|step| matches!(step, Step::Failover { replica, .. } if replica.id == heir));
    assert_eq!(promoted.collect::<Vec<_>>(), [true], "{plan:?}");
}

#[test]
fn a_pod_that_runs_on_after_it_was_replaced_stops_what_concerns_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let pod = Pod::new(0, 0);
    let id = run.world.up(pod).unwrap().id;
    let outside = run.starts_beside(pod).unwrap_or_else(|reason| panic!("{reason}"));
    let (plan, addresses) = watch(&mut run, Pod::new(2, 0), id);
    let [address, other_address] = [pod, outside].map(|pod| run.world.homes[&pod].address.clone());
    assert_eq!(addresses, [other_address.clone()].into());
    let told = Refused::Twins { id, pod, address, other: None, other_address, copied: None };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    run.world.homes.remove(&outside);
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn a_dead_primary_of_another_shard_is_replaced_while_a_node_runs_twice() {
    let mut run = Run::created(Desired::cluster(4, 1), true);
    run.world.copy_volume(Pod::new(0, 0), Pod::new(0, 1));
    let id = run.world.up(Pod::new(0, 0)).unwrap().id;
    watch(&mut run, Pod::new(1, 0), id);
    run.crash(Pod::new(2, 0), true);
    let heir = run.world.up(Pod::new(2, 1)).unwrap().id;
    let plan = plan::plan(&run.desired, &run.world.observe(), &run.limits);
    let promoted = plan.steps.iter().map(|step| matches!(step, Step::Failover { replica, .. } if replica.id == heir));
    assert_eq!(promoted.collect::<Vec<_>>(), [true], "{plan:?}");
}

/// The slot that is half moved in these stories. All its keys have left the giver.
const HALF_MOVED: u16 = 8_191;

/// Both ends of a move mark a slot.
fn mark(run: &mut Run, slot: u16, giver: Pod, target: Pod) {
    let ids = [giver, target].map(|pod| run.world.up(pod).unwrap().id);
    server(run, giver).open.insert(slot, Open::Migrating(ids[1]));
    server(run, target).open.insert(slot, Open::Importing(ids[0]));
}

/// A slot of one shard is half moved to another one, with its keys at both ends of the replication there.
fn half_moved(run: &mut Run, [giver, target]: [u16; 2]) {
    mark(run, HALF_MOVED, Pod::new(giver, 0), Pod::new(target, 0));
    let keys = server(run, Pod::new(giver, 0)).data.remove(&HALF_MOVED).unwrap();
    server(run, Pod::new(giver, 1)).data.remove(&HALF_MOVED);
    for ordinal in [0, 1] {
        server(run, Pod::new(target, ordinal)).data.insert(HALF_MOVED, keys.clone());
    }
}

fn rounds(run: &mut Run, times: u32) {
    for _ in 0..times {
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
    }
}

/// The primary of one of so many shards is cut off while it receives a slot; its replica is elected and gets that.
fn cut_off_in_the_middle(shards: u16, shard: u16) -> (Run, Pod, Pod) {
    let mut run = Run::created(Desired::cluster(shards, 1), true);
    let (former, heir) = (Pod::new(shard, 0), Pod::new(shard, 1));
    half_moved(&mut run, [1, shard]);
    // Else the slot would go home again.
    run.desired.hold = Some(plan::Hold::Paused);
    run.cut_off(former);
    run.world.homes.get_mut(&former).unwrap().hidden = true;
    rounds(&mut run, 30);
    assert!(run.world.up(heir).unwrap().slots().contains(HALF_MOVED));
    (run, former, heir)
}

/// A former primary that was cut off while it received a slot, which its heir owns by now; with a key of its own, or without.
fn replaced(own: Option<u64>) -> (Run, Pod, (u16, BTreeSet<u64>)) {
    let (mut run, former, _) = cut_off_in_the_middle(3, 0);
    server(&mut run, former).data.get_mut(&HALF_MOVED).unwrap().extend(own);
    let keys = server(&mut run, former).data[&HALF_MOVED].clone();
    run.rejoin_all();
    (run, former, (HALF_MOVED, keys))
}

fn server(run: &mut Run, pod: Pod) -> &mut plan::model::Server {
    run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap()
}

/// Who imports a slot does not hear whose it becomes, and forgets with its process that its own table is in doubt.
#[test]
fn a_primary_without_slots_is_told_of_a_move_like_every_other() {
    let (mut run, former, (slot, _)) = replaced(None);
    let [giver, heir, third] =
        [Pod::new(1, 0), Pod::new(0, 1), Pod::new(2, 0)].map(|pod| Who { pod, id: run.world.up(pod).unwrap().id });
    let names = |run: &Run, owner: Who| run.world.up(former).unwrap().table[&owner.id].slots().contains(slot);
    let doubts = |run: &Run| run.world.up(former).unwrap().unclaimed.contains(slot);
    run.tick(2);
    assert!(names(&run, giver) && doubts(&run), "{}", run.world.describe());
    run.crash(former, false);
    // Nobody but the controller reaches it.
    run.world.homes.get_mut(&former).unwrap().cut_off = true;
    run.tick(3);
    assert!(names(&run, giver) && !doubts(&run), "{}", run.world.describe());
    let step = Step::Move { from: heir, to: third, slots: SlotSet::range(slot, slot) };
    assert_eq!(run.world.obey(&step, &mut Luck::good()), Outcome::Done);
    assert!(names(&run, third) && !names(&run, giver), "{}", run.world.describe());
}

#[test]
fn a_former_primary_that_kept_keys_is_told_of_and_holds_up_nothing() {
    for (own, is_lacking) in [(Some(77), true), (None, false)] {
        let (mut run, former, (slot, keys)) = replaced(own);
        for pod in [former, Pod::new(2, 1)] {
            run.world.homes.get_mut(&pod).unwrap().outdated = true;
        }
        let before = run.world.homes[&Pod::new(2, 1)].address.clone();
        let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
        let slots = SlotSet::range(slot, slot);
        let lacking = if is_lacking { slots.clone() } else { SlotSet::EMPTY };
        let (keys, unknown) = (u64::try_from(keys.len()).unwrap(), SlotSet::EMPTY);
        let told = Refused::Former { pod: former, keys, slots, lacking, unknown };
        let words = told.to_string();
        assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
        let lacks = "The owners of the slots 8191 lack some of these keys: deleted there since, or held by nobody else. Copy from 0-0 what \
                     is wanted of them, or give up what 0-0 holds: ";
        let ends = "delete its claim and its pod, and it comes back empty, as a replica";
        assert!(words.contains(lacks) == is_lacking && words.ends_with(ends), "{words}");
        run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
        assert_ne!(before, run.world.homes[&Pod::new(2, 1)].address, "the rest goes on: a replica was restarted");
        // The way out that the sentence names.
        run.desired.hold = None;
        run.wipe(former);
        assert!(settle(&mut run).is_satisfied());
    }
}

#[test]
fn a_former_primary_that_kept_keys_is_no_member_to_stay_alone_and_holds_up_no_other_shard() {
    let (mut run, former, _) = replaced(None);
    run.desired.replicas = 0;
    run.world.homes.get_mut(&Pod::new(2, 0)).unwrap().outdated = true;
    let before = run.world.homes[&Pod::new(2, 0)].address.clone();
    let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    assert!(
        run.world.up(Pod::new(0, 1)).is_some() && run.world.up(Pod::new(2, 1)).is_none(),
        "the others' replicas have left"
    );
    assert_ne!(before, run.world.homes[&Pod::new(2, 0)].address, "the rest goes on: an upgrade");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

#[test]
fn a_target_that_died_in_the_middle_of_a_move_comes_back_as_a_replica() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (target, heir, giver) = (Pod::new(0, 0), Pod::new(0, 1), Pod::new(1, 0));
    half_moved(&mut run, [1, 0]);
    // Of another one nothing has arrived yet.
    mark(&mut run, 8_192, giver, target);
    run.desired.hold = Some(plan::Hold::Paused);
    run.crash(target, true);
    // Its replica is elected, and gets both slots before it is back: more than it had itself.
    run.tick(8);
    rounds(&mut run, 12);
    let [target, heir] = [target, heir].map(|pod| run.world.up(pod).unwrap().clone());
    assert!([HALF_MOVED, 8_192].iter().all(|slot| heir.slots().contains(*slot)), "{}", run.world.describe());
    assert_eq!(target.follows(), Some(heir.id), "{}", run.world.describe());
    run.desired.hold = None;
    assert!(settle(&mut run).is_satisfied());
    assert_eq!(run.world.excused.len(), 0);
}

/// Before, the giver's mark led to the former primary, which got a slot beside its heir.
#[test]
fn what_is_half_moved_to_a_replaced_primary_goes_to_its_heir() {
    let (mut run, former, heir) = cut_off_in_the_middle(3, 0);
    // A move of two slots has come so far, and of the second one nothing has arrived.
    mark(&mut run, 8_192, Pod::new(1, 0), former);
    run.rejoin_all();
    let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    assert_eq!(run.world.authority(8_192), Some(heir), "{}", run.world.describe());
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Nobody else in its shard owns slots or has a newer claim: what it holds is on its way to it, whatever its mark says by now.
#[test]
fn the_first_slot_of_a_new_shard_arrives_although_its_giver_is_replaced() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.desired.shards = 4;
    run.desired.hold = Some(plan::Hold::Paused);
    run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    half_moved(&mut run, [1, 3]);
    run.crash(Pod::new(1, 0), true);
    // The heir of the giver has no mark.
    run.tick(8);
    let target = Pod::new(3, 0);
    assert_eq!(run.world.up(Pod::new(1, 1)).unwrap().open.len(), 0);
    for _ in 0..20 {
        let plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(plan.refused, []);
        run.tick(1);
    }
    assert_eq!(run.world.authority(HALF_MOVED), Some(target), "{}", run.world.describe());
    run.desired.hold = None;
    assert!(settle(&mut run).is_satisfied());
}

/// Before, it led its shard again because of its lower ordinal, and what clients had deleted came back with its keys.
#[test]
fn a_replaced_lead_of_a_shard_that_is_wanted_again_receives_no_slots() {
    let (mut run, former, heir) = cut_off_in_the_middle(4, 3);
    (run.desired.hold, run.desired.shards) = (None, 3);
    rounds(&mut run, 40);
    assert!(run.world.up(heir).unwrap().slots().is_empty(), "{}", run.world.describe());
    run.desired.shards = 4;
    run.rejoin_all();
    let plan = run.settle(100).unwrap_or_else(|reason| panic!("{reason}"));
    let [former_has, heir_has] = [former, heir].map(|pod| run.world.up(pod).unwrap().slots().len());
    assert_eq!((former_has, heir_has), (0, 4_096), "{}", run.world.describe());
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Its mark is a claim there: told of the new owner, it would never hear it claim the slot, and take that over from the giver.
#[test]
fn a_valkey_that_imports_a_slot_takes_it_from_nobody_when_another_gets_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.valkey = true;
    let [giver, target, importer] = [(1, 0), (2, 0), (0, 1)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
    let id = run.world.up(giver).unwrap().id;
    let left_over = server(&mut run, importer);
    left_over.role = Role::Primary { slots: SlotSet::EMPTY };
    left_over.open.insert(HALF_MOVED, Open::Importing(id));
    let [from, to] = [giver, target].map(|pod| Who { pod, id: run.world.up(pod).unwrap().id });
    let step = Step::Move { from, to, slots: SlotSet::range(HALF_MOVED, HALF_MOVED) };
    assert_eq!(run.world.obey(&step, &mut Luck::good()), Outcome::Done);
    run.tick(3);
    assert_eq!(run.world.authority(HALF_MOVED), Some(target), "{}", run.world.describe());
    assert!(run.world.up(importer).unwrap().open.is_empty(), "it has heard of the new owner");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Before, such a slot was moved, and where the giver was heard before the new owner it went back with the keys that had been left.
#[test]
fn a_slot_that_a_replaced_primary_imports_from_its_owner_stays_there() {
    let slot = 10_921;
    for seed in 0..20 {
        let mut run = Run::created(Desired::cluster(3, 1), true);
        assert!(run.world.write(slot));
        run.luck = Luck::seeded(seed);
        run.world.valkey = true;
        let (giver, left_over) = (Pod::new(1, 0), Pod::new(0, 1));
        let id = run.world.up(giver).unwrap().id;
        let server = server(&mut run, left_over);
        server.role = Role::Primary { slots: SlotSet::EMPTY };
        server.data = [(slot, [77].into())].into();
        server.open.insert(slot, Open::Importing(id));
        // It would be one of those that the new shard gets.
        run.desired.shards = 4;
        let plan = run.settle(400).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == left_over), "{plan:?}");
        assert!(run.world.up(left_over).unwrap().slots().is_empty(), "seed {seed}: {}", run.world.describe());
        run.everything_reads_back().unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
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
