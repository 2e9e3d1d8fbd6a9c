//! What the random campaign has found.

use super::settle;
use crate::support::Run;
use crate::support::history::{Event, Setting, live_through};
use plan::{Desired, Pod};

/// Histories that once ended badly, as the random campaign found them.
fn survives(shards: u16, replicas: u16, volumes: bool, seed: Option<u64>, history: &[Event]) {
    let setting = Setting { shards, replicas, volumes, persistent: volumes, seed, sites: 1 };
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
    let setting = Setting { shards: 1, replicas: 1, volumes: false, persistent: false, seed: None, sites: 1 };
    let (run, plan) = live_through(&setting, &history, plan::plan).unwrap_or_else(|reason| panic!("{reason}"));
    // Its keys are there. With a single shard there is nobody to vote for it, and its primary is known to have ended.
    assert_eq!(run.world.up(Pod::new(0, 0)).unwrap().data.len(), 16);
    assert!(plan.is_satisfied(), "{plan:?}");
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
    let seed = Some(17_472_924_004_802_001_734);
    let setting = Setting { shards: 1, replicas: 1, volumes: false, persistent: false, seed, sites: 1 };
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

/// It hears of the heir after it has called the former primary's address, at which a replica of the heir answers by then: of two claims under one
/// epoch it goes on to believe the older one.
#[test]
fn a_member_that_calls_a_gone_primary_before_it_hears_of_the_heir_is_put_right() {
    let mut run = Run::created(Desired::cluster(3, 1), false);
    let (former, heir, away) = (Pod::new(0, 0), Pod::new(0, 1), Pod::new(2, 1));
    let gone = run.world.up(former).unwrap().id;
    run.cut_off(away);
    let address = run.world.homes[&former].address.clone();
    run.wipe(former);
    for _ in 0..40 {
        run.world.homes.get_mut(&former).unwrap().address.clone_from(&address);
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
    }
    let owner = run.world.up(heir).unwrap();
    assert_eq!(run.world.up(former).unwrap().follows(), Some(owner.id));
    let epoch = owner.epoch;
    run.rejoin_all();
    run.tick(1);
    let entry = &run.world.up(away).unwrap().table[&gone];
    assert_eq!(
        (entry.epoch, entry.slots()),
        (epoch, &run.world.up(heir).unwrap().slots()),
        "{:?} {}",
        run.world.up(away).unwrap().table,
        run.world.homes[&former].address
    );
    assert!(settle(&mut run).is_satisfied());
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Who plans on an older look has not seen that they were given away meanwhile, and whom it gives them to has not heard of it. Before, both took
/// writes of them, under one epoch.
#[test]
fn lost_slots_are_not_given_away_once_more_on_an_older_look() {
    let history = [
        Event::Terminate(65),
        Event::EndGrace,
        round(0, true, 1),
        round(0, false, 0),
        round(2, true, 1),
        round(1, false, 0),
        Event::Shards(1),
        round(1, true, 0),
    ];
    survives(3, 0, false, Some(19), &history);
}

/// It was given slots just before it and their giver ended, and nobody who answers has heard of it. Before, the giver's copy took over with the very epoch
/// that it came back with, and their IDs decided whose the slots are.
#[test]
fn nobody_takes_over_beside_an_owner_that_starts_without_keys() {
    for pods in 0..8_u32 {
        let crash = |place, which: u32| Event::Crash { place, with_pod: pods >> which & 1 == 1 };
        let before = [Event::Replicas(0), Event::Shards(1), Event::CutOff(27), crash(149, 0), round(0, false, 1)];
        let after = [Event::Outdate(0), round(1, false, 1), crash(9, 1), round(0, false, 0), crash(8, 2)];
        let seed = Some(4_925_656_716_565_518_696);
        let setting = Setting { shards: 2, replicas: 1, volumes: false, persistent: false, seed, sites: 0 };
        let (run, plan) = live_through(&setting, &[before, after].concat(), plan::plan)
            .unwrap_or_else(|reason| panic!("{pods}: {reason}"));
        // Where a pod is gone nobody knows when its process ended, or what it held.
        assert!(plan.is_satisfied() || pods > 0, "{plan:?}");
        if plan.is_satisfied() {
            run.everything_reads_back().unwrap_or_else(|reason| panic!("{pods}: {reason}"));
        }
    }
}
