//! Random histories: what is wanted changes, members fail, looks are stale, batches stop anywhere. After every step nothing is lost; when
//! the trouble ends, the cluster is what was asked for, or there is a reason.
//!
//! `KUN_PLAN_CASES` sets the number of histories and `KUN_PLAN_SEED` their seed (`make soak`); a failure prints the shortest history that fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use plan::model::{Luck, Process, World};
use plan::{Approval, Desired, FailoverHow, FailoverRequest, Pod};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::Run;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// One look, the first so many steps of the plan, and a few ticks.
    Round {
        most: usize,
        stale: bool,
        ticks: u32,
    },
    Write,
    Shards(u16),
    Replicas(u16),
    Pause(bool),
    Outdate(u8),
    FailOver {
        shard: u16,
        candidate: Option<u16>,
        force: bool,
    },
    Forgive,
    Crash {
        place: u8,
        with_pod: bool,
    },
    CrashAll {
        with_pods: bool,
    },
    Wipe(u8),
    CutOff(u8),
    Hide(u8),
    Rejoin,
}

fn peaceful() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (prop_oneof![Just(0_usize), Just(1), Just(2), 3_usize..9, Just(usize::MAX)], 0_u32..4)
            .prop_map(|(most, ticks)| Event::Round { most, stale: false, ticks }),
        2 => Just(Event::Write),
        2 => (1_u16..=5).prop_map(Event::Shards),
        1 => (0_u16..=2).prop_map(Event::Replicas),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<u8>().prop_map(Event::Outdate),
        1 => (0_u16..5, proptest::option::of(0_u16..4)).prop_map(|(shard, candidate)| Event::FailOver { shard, candidate, force: false }),
        1 => Just(Event::Forgive),
    ]
}

fn stale() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => peaceful(),
        2 => (0_usize..6, 0_u32..3).prop_map(|(most, ticks)| Event::Round { most, stale: true, ticks }),
    ]
}

fn rough() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => stale(),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(place, with_pod)| Event::Crash { place, with_pod }),
        1 => any::<u8>().prop_map(Event::Hide),
        1 => any::<u8>().prop_map(Event::CutOff),
        1 => Just(Event::Rejoin),
    ]
}

fn brutal() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => rough(),
        1 => any::<bool>().prop_map(|with_pods| Event::CrashAll { with_pods }),
        1 => any::<u8>().prop_map(Event::Wipe),
    ]
}

#[derive(Clone, Debug)]
struct Setting {
    shards: u16,
    replicas: u16,
    volumes: bool,
    adopt: bool,
    seed: Option<u64>,
}

fn setting() -> impl Strategy<Value = Setting> {
    (1_u16..=4, 0_u16..=2, any::<bool>(), any::<bool>(), proptest::option::weighted(0.8, any::<u64>()))
        .prop_map(|(shards, replicas, volumes, adopt, seed)| Setting { shards, replicas, volumes, adopt, seed })
}

fn run_of(setting: &Setting) -> Run {
    let mut desired = Desired::cluster(setting.shards, setting.replicas);
    desired.restart_keeps_data = setting.volumes;
    desired.adopt_lost_slots = setting.adopt && !setting.volumes;
    let luck = setting.seed.map_or(Luck::good(), Luck::seeded);
    Run::new(desired, World::new(setting.volumes, setting.volumes), luck)
}

fn happen(run: &mut Run, event: &Event) -> Result<(), String> {
    run.log.push(format!("event: {event:?}"));
    match event {
        Event::Round { most, stale, ticks } => {
            run.round(*most, *stale)?;
            run.tick(*ticks);
        }
        Event::Write => run.write_everywhere(),
        Event::Shards(shards) => run.desired.shards = *shards,
        Event::Replicas(replicas) => run.desired.replicas = *replicas,
        Event::Pause(paused) => run.desired.migration_paused = *paused,
        Event::Outdate(places) => {
            for (index, home) in run.world.homes.values_mut().enumerate() {
                home.outdated |= places >> (index % 8) & 1 == 1;
            }
        }
        Event::FailOver { shard, candidate, force } => {
            let from = run.world.homes.iter().find_map(|(pod, home)| {
                let server = home.server.as_ref().filter(|server| pod.shard == *shard && !server.slots().is_empty());
                server.map(|server| server.id)
            });
            let how = if *force { FailoverHow::Force } else { FailoverHow::Coordinated };
            run.desired.failover = from.map(|from| FailoverRequest { shard: *shard, from, candidate: *candidate, how });
        }
        Event::Forgive => run.desired.failover = None,
        Event::Crash { place, with_pod } => on(run, *place, |run, pod| run.crash(pod, *with_pod)),
        Event::CrashAll { with_pods } => {
            for pod in run.world.running() {
                run.world.crash(pod, *with_pods);
            }
            run.excuse();
        }
        Event::Wipe(place) => on(run, *place, Run::wipe),
        Event::CutOff(place) => on(run, *place, Run::cut_off),
        Event::Hide(place) => on(run, *place, |run, pod| {
            if let Some(home) = run.world.homes.get_mut(&pod) {
                home.hidden = home.process != Process::NoPod;
            }
        }),
        Event::Rejoin => run.rejoin_all(),
    }
    Ok(())
}

fn on(run: &mut Run, place: u8, act: impl FnOnce(&mut Run, Pod)) {
    let running = run.world.running();
    if let Some(pod) = running.get(usize::from(place) % running.len().max(1)) {
        act(run, *pod);
    }
}

/// Creates, lets the history happen, ends the trouble, and waits for rest.
fn live_through(setting: &Setting, history: &[Event]) -> Result<(Run, plan::Plan), String> {
    let mut run = run_of(setting);
    run.settle(200)?;
    run.write_everywhere();
    run.tick(3);
    for event in history {
        happen(&mut run, event)?;
    }
    run.rejoin_all();
    run.desired.migration_paused = false;
    run.desired.failover = None;
    run.desired.approval = Approval::Automatic;
    let plan = run.settle(400)?;
    Ok((run, plan))
}

/// The same histories each time, unless `KUN_PLAN_SEED` names another seed or says `random`.
fn cases(share: u32) -> ProptestConfig {
    let cases = std::env::var("KUN_PLAN_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200_u32);
    let rng_seed = match std::env::var("KUN_PLAN_SEED") {
        Ok(text) => text.parse().map_or(RngSeed::Random, RngSeed::Fixed),
        Err(_) => RngSeed::Fixed(20_261_121),
    };
    ProptestConfig {
        cases: (cases / share).max(1),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        rng_seed,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(2))]

    /// Whatever is asked for, in whatever order, and wherever each batch ends: it is reached, and every write is still there.
    #[test]
    fn peaceful_changes_arrive_and_lose_nothing(setting in setting(), history in prop::collection::vec(peaceful(), 0..24)) {
        let (run, plan) = live_through(&setting, &history).map_err(TestCaseError::fail)?;
        let alone = !setting.volumes && run.desired.replicas == 0;
        prop_assert!(plan.is_satisfied() || alone, "{:?}", plan);
        prop_assert!(run.world.excused.is_empty());
        run.everything_reads_back().map_err(TestCaseError::fail)?;
    }

    /// Planning on an older look never breaks anything.
    #[test]
    fn stale_looks_lose_nothing(setting in setting(), history in prop::collection::vec(stale(), 0..24)) {
        let (run, _) = live_through(&setting, &history).map_err(TestCaseError::fail)?;
        prop_assert!(run.world.excused.is_empty());
        run.everything_reads_back().map_err(TestCaseError::fail)?;
    }

    /// Members die, are cut off, or are not seen.
    #[test]
    fn failures_cost_no_more_than_asynchronous_replication(setting in setting(), history in prop::collection::vec(rough(), 0..30)) {
        let (run, plan) = live_through(&setting, &history).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }

    /// Everything at once, and files are lost.
    #[test]
    fn catastrophes_end_in_rest_or_in_a_reason(setting in setting(), history in prop::collection::vec(brutal(), 0..30)) {
        let (run, plan) = live_through(&setting, &history).map_err(TestCaseError::fail)?;
        if plan.is_satisfied() {
            run.everything_reads_back().map_err(TestCaseError::fail)?;
        }
    }
}
