//! Carries out the steps of a plan. One arm per step, no decisions: check the step's precondition on the connection
//! that carries the command, check the lease, send, and say what became of it.
//!
//! Steps run in their order, neighbours of the same kind side by side. A step that was not done ends what depends on it
//! ([`Step::depends_on`]: what concerns one of its members, or is of its kind), and nothing else: an agent that takes no release, or an
//! API server that deletes no pod, must not keep another shard from being promoted, at this look and at each one to come. Each step asks for
//! its own precondition, so none counts on one before it. Everything ends where the lease does, or where the look has become too old.
//! Every step is safe to repeat, also by two controllers at once.

mod copy;
mod looks;
mod member;
pub mod migrate;
mod nodes;
mod restart;
mod settings;
mod slots;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use futures::StreamExt;
use plan::{NodeId, Plan, Seen, Step, Who};

use crate::api::{self, Kubernetes};
use crate::gather::Gathered;
use crate::lease::Guard;
use crate::probe::agent::{self, Agents};
use crate::probe::{Memory, Place, Probed};
use crate::redis::{self, Access};
use crate::resolve::Resolved;

use nodes::Nodes;
pub use settings::{COMPRESSION, NODE_TIMEOUT, settle, temporary};

/// Steps of one kind that run at the same time: bounds sockets; the planner bounds what may be disturbed.
const AT_ONCE: usize = 32;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A precondition does not hold (any more): nothing was sent.
    #[error("{0}")]
    Refused(String),
    /// It was asked for, or may have been, and is not known to have come about.
    #[error("{0}")]
    Late(String),
    /// Another controller may lead by now: nothing was sent.
    #[error("this controller does not hold the lease")]
    NotLeading,
    /// A node failed or refused.
    #[error(transparent)]
    Node(#[from] redis::Error),
    /// Slots could not be moved.
    #[error(transparent)]
    Migrate(#[from] migrate::Error),
    /// An agent failed or refused.
    #[error(transparent)]
    Agent(#[from] agent::Error),
    /// The API server failed or refused.
    #[error(transparent)]
    Api(#[from] api::Error),
}

/// Nothing was sent, and why.
fn refused(why: impl Into<String>) -> Error {
    Error::Refused(why.into())
}

impl From<resp::Error> for Error {
    fn from(error: resp::Error) -> Self {
        Self::Node(error.into())
    }
}

/// What a step achieved, beyond being done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// A sentence worth an event, where the step's own is not enough.
    pub note: Option<String>,
    /// Keys moved.
    pub keys: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Slots handed over.
    pub slots: u64,
    /// Why it stopped before its end, if it did.
    pub held: Option<String>,
    /// That is, as no replica of who was to get its first slot came into sync.
    pub is_alone: bool,
}

impl Done {
    /// It stopped before it had done anything.
    #[must_use]
    pub fn only_waited(&self) -> bool {
        self.held.is_some() && (self.slots, self.keys) == (0, 0)
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Executed {
    /// Steps that were done, in order.
    pub done: Vec<(Step, Done)>,
    /// Steps that were not, with the reason. Steps that depend on them were not begun.
    pub failed: Vec<(Step, Error)>,
}

impl Executed {
    /// Why steps stopped before their end.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        self.done.iter().filter_map(|(_, done)| done.held.clone()).collect()
    }
}

/// Everything a step may need. Nothing in it is decided here.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// What should be.
    pub resolved: &'a Resolved,
    /// What exists in Kubernetes.
    pub gathered: &'a Gathered,
    /// Where members are.
    pub places: &'a BTreeMap<plan::Pod, Place>,
    /// What was seen.
    pub probed: &'a Probed,
    /// How Redis is reached.
    pub access: &'a Access,
    /// How agents are reached.
    pub agents: &'a Agents,
    /// The API server.
    pub kubernetes: &'a Kubernetes,
    /// Bytes per second, shared by all moves of this cluster.
    pub bucket: &'a std::sync::Mutex<migrate::Bucket>,
    /// The time, by which the age of what was seen is judged.
    pub clock: &'a (dyn Fn() -> Instant + Sync),
}

impl World<'_> {
    /// The lease.
    fn guard(&self) -> &Guard {
        self.kubernetes.guard()
    }

    /// Asked immediately before every Redis write.
    fn leading(&self) -> Result<(), Error> {
        if self.guard().is_valid() { Ok(()) } else { Err(Error::NotLeading) }
    }

    /// Asked immediately before whatever cannot be undone.
    fn finally(&self) -> Result<(), Error> {
        self.leading()?;
        looks::too_old(self.probed.begun, (self.clock)()).map_or(Ok(()), |why| Err(Error::Refused(why)))
    }

    /// The name on the certificates of this cluster's agents.
    fn whose(&self) -> String {
        let key = &self.resolved.key;
        types::names::agent_user(&key.namespace, &key.name)
    }

    /// Where a member was when it was seen.
    fn address(&self, who: Who) -> Result<SocketAddr, Error> {
        let member = self.probed.observed.members.get(&who.pod).map(|member| &member.seen);
        match member {
            Some(Seen::Node(node)) if node.id == who.id => {
                node.address.parse().map_err(|_| Error::Refused(format!("member {who} has no legible address")))
            }
            _ => Err(Error::Refused(format!("member {who} was not seen with the expected identity"))),
        }
    }

    /// All primaries that were seen, but for these.
    fn other_primaries(&self, except: &[NodeId]) -> Vec<migrate::End> {
        crate::probe::nodes(&self.probed.observed)
            .filter(|node| node.is_primary() && !except.contains(&node.id))
            .filter_map(|node| Some(migrate::End { id: node.id, address: node.address.parse().ok()? }))
            .collect()
    }
}

/// Carries out one batch.
pub async fn execute(plan: &Plan, world: World<'_>, memory: &mut Memory) -> Executed {
    let mut executed = Executed::default();
    let nodes = Nodes::new(world.access.clone());
    for group in plan.steps.chunk_by(|one, next| one.kind() == next.kind()) {
        if !executed.failed.is_empty() && world.finally().is_err() {
            break;
        }
        let nodes = &nodes;
        let run: Vec<_> = begun(group, &executed.failed)
            .map(|step| async move { (step.clone(), one(step, world, nodes).await) })
            .collect();
        // Unordered in time, ordered in the result.
        let results: Vec<_> = futures::stream::iter(run).buffered(AT_ONCE).collect().await;
        for (step, result) in results {
            remember(&step, &result, memory);
            if let Some((pair, at)) = introduction(&step, world) {
                memory.introduced(pair, at);
            }
            match result {
                Ok(done) => executed.done.push((step, done)),
                Err(error) => executed.failed.push((step, error)),
            }
        }
    }
    executed
}

/// Those of the steps that depend on none that was not done. Pure.
fn begun<'a>(steps: &'a [Step], failed: &[(Step, Error)]) -> impl Iterator<Item = &'a Step> {
    steps.iter().filter(move |step| failed.iter().all(|(before, _)| !step.depends_on(before)))
}

/// The two who were introduced, whatever came of it, and where they were seen.
fn introduction(step: &Step, world: World<'_>) -> Option<((plan::Pod, plan::Pod), [plan::Address; 2])> {
    match step {
        Step::Meet { node, peer, address } => {
            let at = world.address(*node).ok()?.to_string();
            Some(((node.pod, peer.pod), [at, address.clone()]))
        }
        Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::RaiseEpoch { .. }
        | Step::AddSlots { .. }
        | Step::Replicate { .. }
        | Step::Failover { .. }
        | Step::Adopt { .. }
        | Step::Move { .. }
        | Step::Mark { .. }
        | Step::MarkOwner { .. }
        | Step::Stabilise { .. }
        | Step::Forget { .. }
        | Step::Release { .. }
        | Step::Restart { .. }
        | Step::RetireMembers { .. }
        | Step::RetireShard { .. } => None,
    }
}

/// What the next look has to know.
fn remember(step: &Step, result: &Result<Done, Error>, memory: &mut Memory) {
    let done = result.is_ok();
    match step {
        Step::Failover { replica, .. } => match result {
            Ok(_) => memory.failover_over(replica.pod.shard),
            Err(Error::Late(_)) => memory.failover_asked(replica.pod.shard),
            // Nobody was asked to take over, and nobody has to rest from it.
            Err(Error::NotLeading) => {}
            Err(_) => memory.failover_refused(replica.pod.shard),
        },
        // Keys may lie where their slot is not any more.
        Step::Stabilise { .. } => memory.count_anew(),
        Step::Adopt { .. } => {
            memory.epoch_raised();
            memory.count_anew();
        }
        Step::Move { from, to, slots } => {
            memory.epoch_raised();
            memory.moved(from.id, to.id, slots);
            if result.as_ref().is_ok_and(|done| done.is_alone) {
                memory.first_slot_held(to.pod.shard);
            }
            if !done {
                memory.count_anew();
            }
        }
        Step::Mark { from, to, slots } => memory.moved(from.id, to.id, slots),
        Step::MarkOwner { owner, to, slots } => memory.moved(owner.id, *to, slots),
        Step::Epoch { .. } | Step::RaiseEpoch { .. } => memory.epoch_raised(),
        Step::NodeTimeout { .. }
        | Step::AddSlots { .. }
        | Step::Meet { .. }
        | Step::Replicate { .. }
        | Step::Forget { .. }
        | Step::Release { .. }
        | Step::Restart { .. }
        | Step::RetireMembers { .. }
        | Step::RetireShard { .. } => {}
    }
}

/// One step.
async fn one(step: &Step, world: World<'_>, nodes: &Nodes) -> Result<Done, Error> {
    if looks::is_final(step) {
        // Also before anybody is asked anything: what comes of a look that is too old is another look.
        world.finally()?;
    }
    match step {
        Step::NodeTimeout { node, millis } => member::node_timeout(world, nodes, *node, *millis).await,
        Step::Epoch { node, epoch } => member::epoch(world, nodes, *node, *epoch).await,
        Step::RaiseEpoch { node, above, through } => member::raise_epoch(world, nodes, *node, *above, *through).await,
        Step::AddSlots { node, slots } => slots::add(world, nodes, *node, slots).await,
        Step::Meet { node, peer, address } => member::meet(world, nodes, *node, *peer, address).await,
        Step::Replicate { node, primary } => member::replicate(world, nodes, *node, *primary).await,
        Step::Failover { replica, primary, how, over, unheard } => {
            member::failover(world, nodes, *replica, *primary, (*how, *over, unheard)).await
        }
        Step::Adopt { node, owner, slots } => slots::adopt(world, nodes, *node, *owner, slots).await,
        Step::Move { from, to, slots } => slots::move_slots(world, *from, *to, slots).await,
        Step::Mark { from, to, slots } => slots::mark(world, *from, *to, slots).await,
        Step::MarkOwner { owner, to, slots } => slots::mark_owner(world, nodes, *owner, *to, slots).await,
        Step::Stabilise { node, slots } => slots::stabilise(world, nodes, *node, slots).await,
        Step::Forget { id, by } => member::forget(world, nodes, *id, by).await,
        Step::Release { pod, how } => restart::release(world, *pod, *how).await,
        Step::Restart { pod, expect } => restart::restart(world, nodes, *pod, *expect).await,
        Step::RetireMembers { shard, keep, leaving } => {
            restart::retire_members(world, nodes, *shard, *keep, leaving).await
        }
        Step::RetireShard { shard, leaving } => restart::retire_shard(world, nodes, *shard, leaving).await,
    }
}

#[cfg(test)]
mod tests {
    use plan::{FailoverHow, Pod, ReleaseHow, RestartAs, SlotSet};

    use super::*;
    use crate::testing::id;

    fn who(shard: u16, ordinal: u16) -> Who {
        Who { pod: Pod::new(shard, ordinal), id: id(shard, ordinal) }
    }

    /// Before, a release that an agent refused at every look kept a dead primary of another shard from being replaced for ever.
    #[test]
    fn a_step_that_failed_ends_what_depends_on_it_and_nothing_else() {
        let release = |shard| Step::Release { pod: Pod::new(shard, 0), how: ReleaseHow::AsIs };
        let promote = Step::Failover {
            replica: who(1, 1),
            primary: id(1, 0),
            how: FailoverHow::Force,
            over: None,
            unheard: SlotSet::EMPTY,
        };
        let joins = Step::Replicate { node: who(2, 1), primary: who(2, 0) };
        let follows_held = Step::Replicate { node: who(0, 1), primary: who(0, 0) };
        let restart = Step::Restart { pod: Pod::new(0, 0), expect: RestartAs::NotRunning };
        let moves = Step::Move { from: who(2, 0), to: who(1, 1), slots: SlotSet::range(0, 9) };
        let forget = Step::Forget { id: id(3, 0), by: vec![who(0, 0), who(2, 0)] };
        let retire = Step::RetireMembers { shard: 0, keep: 1, leaving: Vec::new() };
        let steps = [release(3), promote.clone(), joins.clone(), follows_held, restart, moves.clone(), forget, retire];
        let after = |failed: &Step| {
            let failed = [(failed.clone(), refused("nothing is started yet"))];
            begun(&steps, &failed).cloned().collect::<Vec<_>>()
        };
        assert_eq!(after(&release(0)), [promote.clone(), joins.clone(), moves]);
        // The replica that is promoted is the receiver of the move. The place of its dead primary has steps of its own.
        let [held, _, joins, follows_held, restart, moves, forget, retire] = steps.clone();
        assert_eq!(after(&moves), [&held, &follows_held, &restart, &retire].map(Step::clone));
        assert_eq!(after(&promote), [held, joins, follows_held, restart, forget, retire]);
    }
}
