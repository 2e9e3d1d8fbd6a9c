//! Random histories: what is wanted changes, members fail, looks are stale, batches stop anywhere.

use plan::model::{Luck, Process, World};
use plan::{Approval, Desired, FailoverHow, FailoverRequest, Pod};
use proptest::prelude::*;

use super::{Planner, Run};

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Event {
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
    /// A person asks for the next version.
    Upgrade,
    FailOver {
        shard: u16,
        candidate: Option<u16>,
        force: bool,
        accept_data_loss: bool,
    },
    Forgive,
    /// A person approves only these shards (as bits), or nobody is asked.
    Approve(Option<u8>),
    Crash {
        place: u8,
        with_pod: bool,
    },
    CrashAll {
        with_pods: bool,
    },
    Wipe(u8),
    CutOff(u8),
    /// Its replication breaks, and nothing else.
    Unlink(u8),
    Hide(u8),
    Rejoin,
    /// Somebody deletes a pod: it goes on for its grace period.
    Terminate(u8),
    /// All grace periods are over.
    EndGrace,
    /// The same, and the cluster is looked at before the next pods are made.
    Gap,
    /// Two pods end, and their successors get each other's addresses.
    Trade {
        one: u8,
        other: u8,
    },
    /// A replica that has just met its primary gets its copy before it hears of a slot, and the primary ends with its pod.
    Unheard(u8),
    /// A person changes the parameters: engines refuse them, or take them.
    Configure {
        refused: bool,
    },
}

pub fn peaceful() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (prop_oneof![Just(0_usize), Just(1), Just(2), 3_usize..9, Just(usize::MAX)], 0_u32..4)
            .prop_map(|(most, ticks)| Event::Round { most, stale: false, ticks }),
        2 => Just(Event::Write),
        2 => (1_u16..=5).prop_map(Event::Shards),
        1 => (0_u16..=2).prop_map(Event::Replicas),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => any::<u8>().prop_map(Event::Outdate),
        1 => (0_u16..5, proptest::option::of(0_u16..4)).prop_map(|(shard, candidate)| Event::FailOver { shard, candidate, force: false, accept_data_loss: false }),
        1 => Just(Event::Forgive),
        1 => proptest::option::of(any::<u8>()).prop_map(Event::Approve),
    ]
}

/// Changes of mind in the middle of moves.
pub fn reversals() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1_u16..=4).prop_map(Event::Shards),
        3 => (1_usize..3, 0_u32..2).prop_map(|(most, ticks)| Event::Round { most, stale: false, ticks }),
    ]
}

pub fn stale() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => peaceful(),
        2 => (0_usize..6, 0_u32..3).prop_map(|(most, ticks)| Event::Round { most, stale: true, ticks }),
    ]
}

pub fn rough() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => stale(),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(place, with_pod)| Event::Crash { place, with_pod }),
        1 => (0_u16..5, any::<bool>())
            .prop_map(|(shard, accept_data_loss)| Event::FailOver { shard, candidate: None, force: true, accept_data_loss }),
        1 => any::<u8>().prop_map(Event::Hide),
        1 => any::<u8>().prop_map(Event::CutOff),
        1 => any::<u8>().prop_map(Event::Unlink),
        1 => Just(Event::Rejoin),
    ]
}

/// Primaries go on without their replicas for a while, and die.
pub fn unlinked() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => rough(),
        3 => any::<u8>().prop_map(Event::Unlink),
        3 => Just(Event::Write),
        3 => (2_u32..5).prop_map(|ticks| Event::Round { most: usize::MAX, stale: false, ticks }),
        3 => any::<u8>().prop_map(|place| Event::Crash { place, with_pod: true }),
        3 => (0_u16..4)
            .prop_map(|shard| Event::FailOver { shard, candidate: None, force: true, accept_data_loss: false }),
    ]
}

/// Pods are deleted by others, and take their time to go.
pub fn partings() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => rough(),
        2 => any::<u8>().prop_map(Event::Terminate),
        1 => Just(Event::EndGrace),
        1 => Just(Event::Gap),
    ]
}

/// Machines are started anew, and addresses are given out again.
pub fn reboots() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => partings(),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(one, other)| Event::Trade { one, other }),
        2 => Just(Event::Write),
        4 => (2_u32..6).prop_map(|ticks| Event::Round { most: usize::MAX, stale: false, ticks }),
    ]
}

pub fn brutal() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => partings(),
        1 => any::<bool>().prop_map(|with_pods| Event::CrashAll { with_pods }),
        1 => any::<u8>().prop_map(Event::Wipe),
        1 => any::<u8>().prop_map(Event::Unheard),
    ]
}

/// Rolls, and parameters that are refused and corrected.
pub fn rolls() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => rough(),
        3 => any::<u8>().prop_map(Event::Outdate),
        2 => any::<bool>().prop_map(|refused| Event::Configure { refused }),
        4 => (2_u32..6).prop_map(|ticks| Event::Round { most: usize::MAX, stale: false, ticks }),
    ]
}

/// Versions change, and replicas of the old one get primaries of the new one.
pub fn upgrades() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => partings(),
        2 => Just(Event::Upgrade),
        1 => any::<u8>().prop_map(Event::Wipe),
        2 => Just(Event::Write),
        4 => (2_u32..6).prop_map(|ticks| Event::Round { most: usize::MAX, stale: false, ticks }),
    ]
}

/// From none that is known to more than there are shards.
const SITES: u64 = 6;
/// Of so many with volumes one keeps nothing on them.
const KEEPS: u64 = 4;

#[derive(Clone, Debug)]
pub struct Setting {
    pub shards: u16,
    pub replicas: u16,
    pub volumes: bool,
    /// Everything is written there.
    pub persistent: bool,
    pub seed: Option<u64>,
    /// Sites on which pods are made; 0: it is not known on which.
    pub sites: u64,
}

pub fn setting() -> impl Strategy<Value = Setting> {
    (1_u16..=4, 0_u16..=2, any::<bool>(), proptest::option::weighted(0.8, any::<u64>())).prop_map(
        |(shards, replicas, volumes, seed)| {
            // As good as by chance, and shrunk along with the seed.
            let sites = seed.map_or(1, |seed| seed % SITES);
            let persistent = volumes && seed.is_none_or(|seed| !(seed / SITES).is_multiple_of(KEEPS));
            Setting { shards, replicas, volumes, persistent, seed, sites }
        },
    )
}

pub fn run_of(setting: &Setting) -> Run {
    let mut desired = Desired::cluster(setting.shards, setting.replicas);
    (desired.restart_keeps_data, desired.has_volumes) = (setting.persistent, setting.volumes);
    // Now and then snapshots are all that is asked for: what is waited for then costs nothing that a disk has.
    desired.keeps_each_write = setting.persistent && setting.seed.is_none_or(|seed| !seed.is_multiple_of(3));
    // As the controller asks for it: who keeps nothing on disk cannot be asked to restore it.
    desired.adopt_lost_slots = !setting.persistent;
    let luck = setting.seed.map_or(Luck::good(), Luck::seeded);
    let mut world = World::new(setting.volumes, setting.persistent);
    world.sites = setting.sites;
    Run::new(desired, world, luck)
}

pub fn happen(run: &mut Run, event: &Event) -> Result<(), String> {
    run.log.push(format!("event: {event:?}"));
    match event {
        Event::Round { most, stale, ticks } => {
            run.round(*most, *stale)?;
            run.tick(*ticks);
        }
        Event::Write => run.write_everywhere(),
        Event::Shards(shards) => run.desired.shards = *shards,
        Event::Replicas(replicas) => run.desired.replicas = *replicas,
        Event::Pause(paused) => run.desired.hold = paused.then_some(plan::Hold::Paused),
        Event::Outdate(places) => {
            for (index, home) in run.world.homes.values_mut().enumerate() {
                home.outdated |= places >> (index % 8) & 1 == 1;
            }
        }
        Event::Upgrade => run.world.upgrade(),
        Event::FailOver { shard, candidate, force, accept_data_loss } => {
            let from = run.world.homes.iter().find_map(|(pod, home)| {
                let server = home.server.as_ref().filter(|server| pod.shard == *shard && !server.slots().is_empty());
                server.map(|server| server.id)
            });
            let how = if *force { FailoverHow::Force } else { FailoverHow::Coordinated };
            let (shard, candidate, accept_data_loss) = (*shard, *candidate, *accept_data_loss);
            run.desired.failover = from.map(|from| FailoverRequest { shard, from, candidate, how, accept_data_loss });
        }
        Event::Forgive => run.desired.failover = None,
        Event::Approve(shards) => {
            run.desired.approval = shards.map_or(Approval::Automatic, |bits| Approval::Supervised {
                approved: (0_u16..8).filter(|shard| bits >> shard & 1 == 1).collect(),
            });
        }
        Event::Crash { place, with_pod } => on(run, *place, |run, pod| run.crash(pod, *with_pod)),
        Event::CrashAll { with_pods } => {
            for pod in run.world.running() {
                run.world.crash(pod, *with_pods);
            }
            run.excuse();
        }
        Event::Wipe(place) => on(run, *place, Run::wipe),
        Event::Unheard(place) => on(run, *place, Run::lose_before_it_is_heard),
        Event::CutOff(place) => on(run, *place, Run::cut_off),
        Event::Unlink(place) => on(run, *place, Run::unlink),
        Event::Hide(place) => on(run, *place, |run, pod| {
            if let Some(home) = run.world.homes.get_mut(&pod) {
                home.hidden = home.process != Process::NoPod;
            }
        }),
        Event::Rejoin => run.rejoin_all(),
        Event::Terminate(place) => on(run, *place, |run, pod| run.world.terminate(pod)),
        Event::EndGrace => run.end_grace(),
        Event::Gap => {
            run.end_grace();
            run.round_before_pods(usize::MAX, false)?;
        }
        Event::Trade { one, other } => trade(run, *one, *other),
        Event::Configure { refused } => run.world.configure(*refused),
    }
    Ok(())
}

fn on(run: &mut Run, place: u8, act: impl FnOnce(&mut Run, Pod)) {
    let running = run.world.running();
    if let Some(pod) = running.get(usize::from(place) % running.len().max(1)) {
        act(run, *pod);
    }
}

fn trade(run: &mut Run, one: u8, other: u8) {
    let running = run.world.running();
    let at = |place: u8| running.get(usize::from(place) % running.len().max(1)).copied();
    if let Some((one, other)) = at(one).zip(at(other)).filter(|(one, other)| one != other) {
        run.world.trade_addresses(one, other);
        [one, other].into_iter().for_each(|pod| run.crash(pod, true));
    }
}

/// Creates, lets the history happen, ends the trouble, and waits for rest.
pub fn live_through(setting: &Setting, history: &[Event], planner: Planner) -> Result<(Run, plan::Plan), String> {
    let mut run = run_of(setting);
    run.planner = planner;
    // Nobody can check what a third party has not heard yet: stale looks and lost words together are two faults at once.
    run.world.lossy = !history.iter().any(|event| matches!(event, Event::Round { stale: true, .. }));
    run.settle(200)?;
    run.write_everywhere();
    run.tick(3);
    for event in history {
        happen(&mut run, event)?;
    }
    run.rejoin_all();
    run.end_grace();
    run.world.configure(false);
    run.desired.hold = None;
    run.desired.failover = None;
    run.desired.approval = Approval::Automatic;
    let plan = run.settle(400)?;
    Ok((run, plan))
}
