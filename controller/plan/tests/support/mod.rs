//! A run: a world, what is wanted of it, and everything that is checked at every step.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, unreachable_pub)]

pub mod guard;
pub mod history;

use std::collections::BTreeMap;

use plan::model::{Home, Luck, Outcome, Process, Server, Truth, World};
use plan::{Desired, FailoverHow, Limits, Observed, PeerRole, Plan, Pod, SlotSet, Step, goal};

/// The planner under test: broken variants wrap the real one.
pub type Planner = fn(&Desired, &Observed, &Limits) -> Plan;

pub struct Run {
    pub world: World,
    pub desired: Desired,
    pub limits: Limits,
    pub luck: Luck,
    pub planner: Planner,
    /// The look before the last one, for planning on stale observations.
    pub older: Option<Observed>,
    pub log: Vec<String>,
    /// What was true after the last step of the batch.
    truth: Option<Truth>,
}

impl Run {
    pub fn new(desired: Desired, world: World, luck: Luck) -> Self {
        let limits = Limits { slots_per_move: 2_000, failover_patience_millis: 2_000, ..Limits::default() };
        Self { world, desired, limits, luck, planner: plan::plan, older: None, log: Vec::new(), truth: None }
    }

    /// A cluster that has been created without any trouble and holds some keys.
    pub fn created(desired: Desired, volumes: bool) -> Self {
        Self::created_in(World::new(volumes, volumes), desired)
    }

    /// The same, in this world.
    pub fn created_in(world: World, mut desired: Desired) -> Self {
        (desired.has_volumes, desired.restart_keeps_data) = (world.volumes, world.volumes && world.persistent);
        desired.keeps_each_write = desired.restart_keeps_data;
        let mut run = Self::new(desired, world, Luck::good());
        run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
        run.write_everywhere();
        run.tick(1);
        run
    }

    pub fn write_everywhere(&mut self) {
        for slot in SAMPLE {
            self.world.write(slot);
        }
    }

    pub fn tick(&mut self, times: u32) {
        for _ in 0..times {
            self.world.tick(&mut self.luck);
        }
    }

    /// One look, one plan, and the first `most` of its steps.
    pub fn round(&mut self, most: usize, stale: bool) -> Result<Plan, String> {
        self.world.provide(&self.desired);
        self.round_before_pods(most, stale)
    }

    /// The same before the next pods are made.
    pub fn round_before_pods(&mut self, most: usize, stale: bool) -> Result<Plan, String> {
        let now = self.world.observe();
        let before = self.older.replace(now.clone());
        // What others did since may be unknown; what the controller itself asked for never is.
        let own = (now.failovers_asked.clone(), now.failovers_refused.clone(), now.elections.clone());
        let mut seen = before.filter(|_| stale).unwrap_or(now);
        (seen.failovers_asked, seen.failovers_refused, seen.elections) = own;
        let plan = (self.planner)(&self.desired, &seen, &self.limits);
        if plan != (self.planner)(&self.desired, &seen, &self.limits) {
            return Err("the same input gave another plan".to_owned());
        }
        self.note(&plan);
        guard::lint(&plan, &seen, &self.desired, &self.limits).map_err(|fault| self.fail(&fault, &plan))?;
        self.truth = None;
        let mut failed: Vec<&Step> = Vec::new();
        for step in plan.steps.iter().take(most) {
            if failed.iter().any(|before| step.depends_on(before)) {
                continue;
            }
            if !self.carry_out(step, stale).map_err(|fault| self.fail(&fault, &plan))? {
                failed.push(step);
            }
        }
        Ok(plan)
    }

    fn carry_out(&mut self, step: &Step, stale: bool) -> Result<bool, String> {
        let before = self.truth.take().unwrap_or_else(|| self.world.truth());
        let permitted = guard::permitted(step, &self.world, &self.desired, stale);
        let outcome = self.world.obey(step, &mut self.luck);
        self.log.push(format!("  {step} → {outcome:?}"));
        if let Outcome::Refused(reason) = &outcome {
            let unnoticed = self.world.homes.values().any(|home| home.cut_off);
            return if stale || unnoticed || self.luck_is_bad() {
                Ok(false)
            } else {
                Err(format!("{step}: refused: {reason}"))
            };
        }
        permitted.map_err(|fault| format!("{step}: {fault}"))?;
        let after = self.world.truth();
        let mut granted = after.clone();
        if guard::is_ordered(step, &self.desired) {
            self.world.excused.extend(before.readable.difference(&after.readable));
            granted.readable.extend(&before.readable);
            if self.desired.failover.as_ref().is_some_and(|ask| ask.accept_data_loss) {
                // Also what the one that was replaced has on its disk, and nobody could read.
                self.world.excused.extend(self.world.acked.difference(&after.readable));
            }
        }
        if guard::replaces_who_is_gone(step) {
            // What its primary was told last and no copy has was excused when that one was cut off; it may run on, and show it.
            granted.readable.extend(before.readable.intersection(&self.world.excused));
        }
        guard::kept(step, &before, &granted).map_err(|fault| format!("{step}: {fault}"))?;
        // What an order has cost is no fault of the step after it.
        self.truth = Some(after);
        Ok(outcome == Outcome::Done)
    }

    /// A step may be overtaken by what an earlier step of the batch did half; never when nothing goes wrong.
    fn luck_is_bad(&self) -> bool {
        let mut luck = self.luck.clone();
        (0..64).any(|_| luck.fails(2))
    }

    fn note(&mut self, plan: &Plan) {
        self.log.push(format!("round at {}: {} steps", self.world.now, plan.steps.len()));
        self.log.extend(plan.waiting.iter().map(|reason| format!("  waits: {reason}")));
        self.log.extend(plan.refused.iter().map(|reason| format!("  refuses: {reason}")));
    }

    pub fn fail(&self, fault: &str, plan: &Plan) -> String {
        let tail = self.log.len().saturating_sub(250);
        format!(
            "{fault}\nwanted: {:?}\nplan: {plan:?}\nworld:\n{}\nlog:\n{}",
            self.desired,
            self.world.describe(),
            self.log[tail..].join("\n")
        )
    }

    /// Rounds until nothing changes any more. Fails if the goal and the planner disagree, or if it takes too long.
    pub fn settle(&mut self, most: usize) -> Result<Plan, String> {
        let mut still = 0;
        let mut last = None;
        for _ in 0..most {
            let before = self.world.homes.clone();
            let plan = self.round(usize::MAX, false)?;
            self.tick(2);
            // A disk catches up by itself.
            let is_written = self.world.servers().all(|server| server.stored.is_none());
            if plan.steps.is_empty() && before == self.world.homes && is_written {
                still += 1
            } else {
                still = 0
            }
            // Chance may make everything wait for a while.
            if still == if plan.is_satisfied() { 2 } else { 12 } {
                return self.judge(plan);
            }
            last = Some(plan);
        }
        Err(self.fail("no rest is found", &last.unwrap_or_default()))
    }

    /// Quiet if and only if the goal is met; a wait only if it is justified.
    fn judge(&mut self, plan: Plan) -> Result<Plan, String> {
        let unmet = goal::unmet(&self.desired, &self.world.observe());
        if plan.is_satisfied() != unmet.is_empty() {
            return Err(self.fail(&format!("satisfied {} but unmet {unmet:?}", plan.is_satisfied()), &plan));
        }
        guard::justified(&plan, &self.world, &self.desired).map_err(|fault| self.fail(&fault, &plan))?;
        Ok(plan)
    }

    /// A pod runs on, and its agent is not heard until the next pod has been started beside it. Gives the name of the process.
    pub fn starts_beside(&mut self, pod: Pod) -> Result<Pod, String> {
        let outside = self.world.run_on(pod);
        let hide =
            |world: &mut World, hidden| world.homes.get_mut(&outside).into_iter().for_each(|home| home.hidden = hidden);
        hide(&mut self.world, true);
        while self.world.up(pod).is_none() {
            self.round(usize::MAX, false)?;
            self.tick(1);
        }
        hide(&mut self.world, false);
        Ok(outside)
    }

    /// All acknowledged writes that had to survive are readable.
    pub fn everything_reads_back(&self) -> Result<(), String> {
        let readable = self.world.truth().readable;
        let lost: Vec<_> =
            self.world.acked.difference(&self.world.excused).filter(|key| !readable.contains(key)).collect();
        if lost.is_empty() { Ok(()) } else { Err(self.fail(&format!("lost: {lost:?}"), &Plan::default())) }
    }

    /// What the environment does to a place. Writes that nothing obliges to survive it are excused.
    pub fn crash(&mut self, pod: Pod, with_pod: bool) {
        self.log.push(format!("event: {pod} crashes, pod gone: {with_pod}"));
        self.world.crash(pod, with_pod);
        self.excuse();
    }

    pub fn wipe(&mut self, pod: Pod) {
        self.log.push(format!("event: {pod} is wiped"));
        self.world.wipe(pod);
        self.excuse();
    }

    /// The primary of this replica ends with its pod, and the replica has its copy and has not heard of a slot of it.
    pub fn lose_before_it_is_heard(&mut self, replica: Pod) {
        let Some(primary) = self.world.up(replica).and_then(Server::follows) else { return };
        let Some(home) = self.world.running().into_iter().find(|pod| self.world.up(*pod).unwrap().id == primary) else {
            return;
        };
        let server = self.world.homes.get_mut(&replica).unwrap().server.as_mut().unwrap();
        server.table.get_mut(&primary).unwrap().role = PeerRole::Primary { slots: SlotSet::EMPTY };
        self.crash(home, true);
    }

    pub fn cut_off(&mut self, pod: Pod) {
        self.log.push(format!("event: {pod} is cut off"));
        if let Some(home) = self.world.homes.get_mut(&pod).filter(|home| home.process == Process::Up) {
            home.cut_off = true;
        }
        self.excuse();
    }

    pub fn unlink(&mut self, pod: Pod) {
        self.log.push(format!("event: {pod} cannot replicate"));
        if let Some(home) = self.world.homes.get_mut(&pod) {
            home.unlinked = true;
        }
    }

    /// Pods that are being deleted are gone. Their agents may not have managed to hand over in time.
    pub fn end_grace(&mut self) {
        self.world.end_grace();
        self.excuse();
    }

    pub fn rejoin_all(&mut self) {
        for home in self.world.homes.values_mut() {
            home.cut_off = false;
            home.unlinked = false;
            home.hidden = false;
        }
    }

    /// Asynchronous replication: a write survives for sure only if every server that may end up as the owner of its slot has it.
    pub fn excuse(&mut self) {
        let open: Vec<(u16, u64)> = self.world.acked.difference(&self.world.excused).copied().collect();
        for (slot, key) in open {
            if !self.survives(slot, key) {
                self.world.excused.insert((slot, key));
            }
        }
    }

    fn survives(&self, slot: u16, key: u64) -> bool {
        let servers: Vec<(&Pod, &Server)> = self
            .world
            .homes
            .iter()
            .filter_map(|(pod, home)| home.server.as_ref().map(|server| (pod, server)))
            .collect();
        let claimers = servers.iter().filter(|(_, server)| server.slots().contains(slot));
        let owner = claimers.max_by_key(|(_, server)| server.epoch);
        let has = |server: &Server| server.data.get(&slot).is_some_and(|keys| keys.contains(&key));
        let sure = |pod: &Pod, server: &Server| {
            let steady = self.world.up(*pod).is_some() && self.world.homes.get(pod).is_some_and(|home| !home.cut_off);
            let is_heir = |other: &Server| other.follows() == Some(server.id) && other.is_synced() && other.is_whole();
            let heirs = servers.iter().filter(|(_, other)| is_heir(other));
            has(server) && (steady || heirs.into_iter().all(|(_, heir)| has(heir)))
                || !has(server) && !steady && {
                    let mut heirs = servers.iter().filter(|(_, other)| is_heir(other));
                    // Its files do not have it: it must not come back before a replica has taken over.
                    heirs.clone().next().is_some() && heirs.all(|(_, heir)| has(heir)) && server.data.is_empty()
                }
        };
        let Some((home, owner)) = owner else {
            return self.survives_without_owner(slot, key);
        };
        let foreign = servers.iter().filter(|(pod, server)| pod.shard != home.shard && server.follows().is_none());
        sure(home, owner)
            || foreign.into_iter().any(|(pod, server)| has(server) && sure(pod, server))
            || self.is_left_at_copies(slot, key)
    }

    /// A receiver that owned nothing was sent it, and is gone for good: all of its complete replicas have it, and nobody else leads their shard.
    fn is_left_at_copies(&self, slot: u16, key: u64) -> bool {
        let is_gone = |id: plan::NodeId| !self.world.servers().any(|server| server.id == id);
        let servers = || self.world.homes.iter().filter_map(|(pod, home)| Some((pod, home, home.server.as_ref()?)));
        let is_led = |shard: u16| servers().any(|(pod, _, server)| pod.shard == shard && !server.slots().is_empty());
        let is_steady = |home: &Home| home.process == Process::Up && !home.cut_off && !home.terminating;
        let is_copy = |server: &Server| {
            let line = server.follows().filter(|id| is_gone(*id)).and_then(|id| server.table.get(&id));
            server.is_synced() && server.is_whole() && line.is_some_and(|line| line.slots().is_empty())
        };
        let copies = servers().filter(|(pod, home, server)| is_steady(home) && is_copy(server) && !is_led(pod.shard));
        let mut by_primary: BTreeMap<Option<plan::NodeId>, bool> = BTreeMap::new();
        for (_, _, server) in copies {
            let has = server.data.get(&slot).is_some_and(|keys| keys.contains(&key));
            by_primary.entry(server.follows()).and_modify(|all| *all &= has).or_insert(has);
        }
        by_primary.values().any(|all| *all)
    }

    /// The owner's files are gone: its complete replicas must have it.
    fn survives_without_owner(&self, slot: u16, key: u64) -> bool {
        let heirs: Vec<&Server> = self
            .world
            .running()
            .into_iter()
            .filter_map(|pod| self.world.up(pod))
            .filter(|server| server.is_synced())
            .filter(|server| {
                // Whoever follows a server that runs is no heir, whatever its table says.
                let orphaned = |id: &plan::NodeId| {
                    !self.world.running().into_iter().any(|pod| self.world.up(pod).is_some_and(|up| up.id == *id))
                };
                let primary = server.follows().filter(orphaned).and_then(|id| server.table.get(&id));
                primary.is_some_and(|peer| peer.slots().contains(slot))
            })
            .collect();
        !heirs.is_empty() && heirs.iter().all(|server| server.data.get(&slot).is_some_and(|keys| keys.contains(&key)))
    }
}

/// Who is made a primary, and how.
pub fn promotions(plan: &Plan) -> Vec<(Pod, FailoverHow)> {
    let promotion = |step: &Step| {
        if let Step::Failover { replica, how, .. } = step { Some((replica.pod, *how)) } else { None }
    };
    plan.steps.iter().filter_map(promotion).collect()
}

/// Slots that are written to: corners, and enough others for every shard to have some.
pub const SAMPLE: [u16; 16] =
    [0, 1, 1_000, 2_730, 4_095, 4_096, 5_460, 5_461, 5_462, 8_191, 8_192, 10_922, 10_923, 13_000, 16_382, 16_383];
