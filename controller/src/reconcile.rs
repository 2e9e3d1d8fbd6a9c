//! One reconcile, as a story: gather ▸ resolve ▸ build ▸ apply ▸ probe ▸ plan ▸ execute ▸ report.
//!
//! Level-driven: everything is computed from what exists now; nothing needed for correctness lives in memory. `report`
//! runs also when a step before it failed, so a stuck object explains itself. Only this file and `delete` know the
//! order of steps.

mod local;
mod pace;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::{Plan, Step};
use types::{RedisBackup, RedisCluster, RedisOperation, names};

use crate::api::{self, Kubernetes};
use crate::apply::{self, Applied, apply};
use crate::build::{self, build};
use crate::credentials::Issuer;
use crate::delete::{self, delete, sweep_claims};
use crate::events::{Events, Tone};
use crate::execute::{Executed, World, execute, settle, temporary};
use crate::gather::{self, Gathered, gather};
use crate::metrics::Metrics;
use crate::probe::agent::Agents;
use crate::probe::{Place, Probed, Question, marks, places, probe};
use crate::queue::{Key, Next};
use crate::redis::Access;
use crate::report::{Seeing, Urgency, report, urgency};
use crate::resolve::{self, Approval, Resolved, resolve};
use crate::{backup, chain, operate};

use local::Local;
pub use local::Locals;

/// A reconcile that takes longer is given up and begun anew: every part of it has its own, shorter deadline.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Which step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What exists is not known.
    #[error("gathering")]
    Gather(#[from] gather::Error),
    /// The specification cannot be worked with.
    #[error("resolving the specification")]
    Resolve(#[from] resolve::Error),
    /// An object could not be built.
    #[error("building the objects")]
    Build(#[from] build::Error),
    /// A child could not be written.
    #[error("applying")]
    Apply(#[from] apply::Error),
    /// A child could not be deleted.
    #[error("deleting")]
    Delete(#[from] delete::Error),
    /// A backup could not be looked after.
    #[error("backing up")]
    Backup(#[from] backup::Error),
    /// The object or one of its records could not be written.
    #[error("reporting")]
    Report(#[from] api::Error),
}

impl Error {
    /// Somebody else wrote first: not a failure, look again.
    #[must_use]
    pub fn is_change(&self) -> bool {
        let api = match self {
            Self::Apply(apply::Error::Api(api)) | Self::Delete(delete::Error::Api(api)) | Self::Report(api) => api,
            Self::Backup(backup::Error::Api { source, .. })
            | Self::Delete(delete::Error::Backup(backup::Error::Api { source, .. })) => source,
            Self::Apply(apply::Error::Foreign { .. } | apply::Error::Json { .. })
            | Self::Gather(_)
            | Self::Resolve(_)
            | Self::Build(_) => return false,
        };
        matches!(api, api::Error::Changed { .. })
    }
}

/// What all reconciles share.
pub struct Context {
    /// The API server.
    pub kubernetes: Kubernetes,
    /// Where new secrets come from.
    pub issuer: Arc<dyn Issuer>,
    /// How agents are reached.
    pub agents: Agents,
    /// Where events go.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
    /// Image that holds `/kun/bin/kun`.
    pub kun_image: String,
    /// How much one batch may do.
    pub limits: plan::Limits,
    /// What this process remembers of each cluster.
    pub locals: Locals,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// What one round knows so far; a step that was not reached leaves its part at the default.
#[derive(Debug, Default)]
struct Round {
    resolved: Option<Arc<Resolved>>,
    applied: Applied,
    probed: Probed,
    plan: Plan,
    executed: Executed,
    temporary: BTreeMap<String, String>,
    troubles: Vec<String>,
}

/// Makes one RedisCluster what it should be, one round further; says when to look again.
///
/// # Errors
/// Which step failed. The status tells it, too.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let Some(gathered) = gather(&context.kubernetes.caches, key)? else { return absent(context, key).await };
    if gathered.cluster.metadata.deletion_timestamp.is_some() {
        return leave(context, &gathered).await;
    }
    if !has_finalizer(&gathered.cluster) {
        context.kubernetes.replace(&with_finalizer(&gathered.cluster)).await?;
        return Ok(Next::After(Duration::ZERO));
    }
    let local = context.locals.of(key);
    let mut local = local.lock().await;
    let mut round = Round::default();
    let outcome = go(context, key, &mut local, &mut round).await;
    if let Err(error) = &outcome
        && !error.is_change()
    {
        round.troubles.push(chain(error));
    }
    let told = tell(context, key, &mut local, &round).await;
    outcome?;
    let rewrite = told?;
    Ok(pace::next(&mut local, &round, rewrite))
}

/// From gather to execute.
async fn go(context: &Context, key: &Key, local: &mut Local, round: &mut Round) -> Result<(), Error> {
    let Some(gathered) = gather(&context.kubernetes.caches, key)? else { return Ok(()) };
    let now = Timestamp::now();
    let given = resolve::Context { kun_image: &context.kun_image, issuer: &*context.issuer, now };
    let resolved = Arc::new(resolve(&gathered, given)?);
    round.resolved = Some(Arc::clone(&resolved));
    let resolved = &*resolved;
    let objects = build(resolved)?;
    let restart = gathered.current_operation().and_then(|operation| operate::running_restart(operation));
    let marks = marks(&objects.stateful_sets, restart);
    if !resolved.paused {
        round.applied = apply(&context.kubernetes, &gathered, resolved, objects).await?;
    }
    // What was just applied is in the caches.
    let Some(gathered) = gather(&context.kubernetes.caches, key)? else { return Ok(()) };
    let access = Access::new(resolved.credentials.operator());
    let places = places(&gathered, &marks);
    let question = Question { mode: resolved.mode, places: &places, access: &access, agents: &context.agents };
    round.probed = probe(question, &mut local.memory).await;
    round.temporary = temporary(resolved, &round.probed, &Plan::default());
    if resolved.paused {
        return Ok(());
    }
    round.plan = plan::plan(&wanted(resolved, &gathered), &round.probed.observed, &context.limits);
    round.temporary = temporary(resolved, &round.probed, &round.plan);
    announce(context, key, local, round).await?;
    let bucket = Arc::clone(&local.bucket);
    let world = World {
        resolved,
        gathered: &gathered,
        places: &places,
        probed: &round.probed,
        access: &access,
        agents: &context.agents,
        kubernetes: &context.kubernetes,
        bucket: &bucket,
    };
    round.executed = execute(&round.plan, world, &mut local.memory).await;
    count(context, &round.executed);
    round.troubles.extend(round.executed.failed.iter().map(|(step, error)| format!("{step}: {}", chain(error))));
    if let Err(error) = settle(&round.plan, world).await {
        round.troubles.push(format!("putting settings back: {}", chain(&error)));
    }
    follow_up(context, &gathered, &places, round, now).await
}

/// What the planner is asked for.
fn wanted(resolved: &Resolved, gathered: &Gathered) -> plan::Desired {
    use types::cluster::{AppendOnly, Mode};
    let keeps = match resolved.agent.append_only {
        AppendOnly::EverySec | AppendOnly::Always => true,
        AppendOnly::Off => !resolved.agent.snapshots.is_empty(),
    };
    let restart_keeps_data = resolved.storage.is_some() && keeps;
    plan::Desired {
        mode: match resolved.mode {
            Mode::Cluster => plan::Mode::Cluster,
            Mode::Standalone => plan::Mode::Standalone,
        },
        shards: resolved.shards,
        replicas: resolved.members.saturating_sub(1),
        node_timeout_millis: resolved.agent.node_timeout_millis,
        restart_keeps_data,
        // Who keeps nothing on purpose cannot be asked to restore it.
        adopt_lost_slots: !restart_keeps_data,
        migration_paused: resolved.migration.paused || backup::holds_slots(&gathered.backups),
        approval: match &resolved.approval {
            Approval::All => plan::Approval::Automatic,
            Approval::Shards(approved) => plan::Approval::Supervised { approved: approved.clone() },
        },
        failover: gathered.current_operation().and_then(|operation| operate::request(operation)),
    }
}

/// What is about to be changed for the time of a step is in the status before it is changed.
async fn announce(context: &Context, key: &Key, local: &mut Local, round: &Round) -> Result<(), Error> {
    let Some(cluster) = context.kubernetes.caches.clusters.get(key, &key.name) else { return Ok(()) };
    let recorded = cluster.status.as_ref().map(|status| &status.temporary_config);
    let known = |(name, value): (&String, &String)| recorded.is_some_and(|all| all.get(name) == Some(value));
    if !round.temporary.iter().all(known) {
        tell(context, key, local, round).await?;
    }
    Ok(())
}

/// Operations, backups, and volumes of members that have left.
async fn follow_up(
    context: &Context,
    gathered: &Gathered,
    places: &BTreeMap<plan::Pod, Place>,
    round: &Round,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(resolved) = &round.resolved else { return Ok(()) };
    let telling = round.executed.done.iter().filter(|(step, _)| is_telling(step));
    let done: Vec<String> = telling.map(|(step, done)| sentence(step, done.note.as_ref())).collect();
    if let Some(operation) = gathered.current_operation() {
        let observed = &round.probed.observed;
        let view = operate::Round { resolved, observed, plan: &round.plan, done: &done, now };
        let status = operate::advance(operation, view);
        write_operation(context, operation, status).await?;
    }
    expire_operations(context, &gathered.operations, now).await?;
    let half_moved = crate::probe::nodes(&round.probed.observed).any(|node| !node.open.is_empty());
    let moving = half_moved || round.plan.steps.iter().any(|step| matches!(step, Step::Move { .. }));
    let view = backup::Round { resolved, probed: &round.probed, slots_moving: moving, workers: &gathered.workers, now };
    backup::backup(&context.kubernetes, gathered, view).await?;
    let at_rest =
        round.plan.is_satisfied() && places.len() == usize::from(resolved.shards) * usize::from(resolved.members);
    if at_rest {
        sweep_claims(&context.kubernetes, gathered, resolved).await?;
    }
    Ok(())
}

async fn write_operation(
    context: &Context,
    operation: &RedisOperation,
    status: types::operation::RedisOperationStatus,
) -> Result<(), Error> {
    if operation.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let ended = status.conditions.iter().find(|condition| condition.kind == "Complete");
    if let (Some(condition), Some(_)) = (ended, status.completion_time) {
        let tone =
            if status.phase == types::operation::OperationPhase::Succeeded { Tone::Normal } else { Tone::Warning };
        context.events.tell(operation, tone, &format!("{:?}", status.phase), &condition.message);
    }
    context.kubernetes.replace_status(&RedisOperation { status: Some(status), ..operation.clone() }).await?;
    Ok(())
}

async fn expire_operations(context: &Context, operations: &[Arc<RedisOperation>], now: Timestamp) -> Result<(), Error> {
    for operation in operations {
        let completion = operation.status.as_ref().and_then(|status| status.completion_time);
        if operate::expired(completion, operation.spec.ttl_after_finished.as_deref(), true, now) {
            context.kubernetes.delete(&**operation).await?;
        }
    }
    Ok(())
}

/// Writes the status if it is worth it; `Some`: it is worth it after that time.
async fn tell(context: &Context, key: &Key, local: &mut Local, round: &Round) -> Result<Option<Duration>, Error> {
    let Some(cluster) = context.kubernetes.caches.clusters.get(key, &key.name) else { return Ok(None) };
    let operations = gather(&context.kubernetes.caches, key)?;
    let operation = operations.as_ref().and_then(|gathered| gathered.current_operation().cloned());
    let backups = operations.map(|gathered| gathered.backups).unwrap_or_default();
    let seeing = Seeing {
        cluster: &cluster,
        resolved: round.resolved.as_deref(),
        probed: &round.probed,
        plan: &round.plan,
        temporary: &round.temporary,
        troubles: &round.troubles,
        operation: operation.as_ref().and_then(|operation| operation.metadata.name.as_deref()),
        backups: &backups,
        now: Timestamp::now(),
    };
    let status = report(seeing);
    tell_events(context, &cluster, local, round, &status);
    match urgency(cluster.status.as_ref(), &status, local.since_status()) {
        Urgency::Never => Ok(None),
        Urgency::In(wait) => Ok(Some(wait)),
        Urgency::Now => {
            let next = RedisCluster { status: Some(status), ..(*cluster).clone() };
            context.kubernetes.replace_status(&next).await?;
            local.status_written = Some(Instant::now());
            Ok(None)
        }
    }
}

/// Events: what was done and is worth telling, what failed, and when readiness changed.
fn tell_events(
    context: &Context,
    cluster: &RedisCluster,
    local: &mut Local,
    round: &Round,
    status: &types::cluster::RedisClusterStatus,
) {
    if !round.applied.created.is_empty() {
        let created = format!("created {}", round.applied.created.join(", "));
        context.events.tell(cluster, Tone::Normal, "Created", &created);
    }
    for (step, done) in round.executed.done.iter().filter(|(step, _)| is_telling(step)) {
        context.events.tell(cluster, Tone::Normal, step.kind(), &sentence(step, done.note.as_ref()));
    }
    if round.troubles != local.troubles {
        for trouble in &round.troubles {
            context.events.tell(cluster, Tone::Warning, "Trouble", trouble);
        }
        local.troubles.clone_from(&round.troubles);
    }
    let ready = |status: Option<&types::cluster::RedisClusterStatus>| {
        let condition = status?.conditions.iter().find(|c| c.kind == types::condition::cluster::READY)?;
        Some((condition.status == types::condition::Status::True, condition.message.clone()))
    };
    let (before, after) = (ready(cluster.status.as_ref()), ready(Some(status)));
    // A cluster that is being made is not ready, which is no news.
    let was_ready = before.is_some_and(|(was, _)| was);
    if let Some((is_ready, message)) = after
        && was_ready != is_ready
    {
        let (tone, reason) = if is_ready { (Tone::Normal, "Ready") } else { (Tone::Warning, "NotReady") };
        context.events.tell(cluster, tone, reason, &message);
    }
}

/// The steps a person wants to read about; the others are details of these.
fn is_telling(step: &Step) -> bool {
    match step {
        Step::Failover { .. }
        | Step::Adopt { .. }
        | Step::Move { .. }
        | Step::Forget { .. }
        | Step::Release { .. }
        | Step::Restart { .. }
        | Step::RetireMembers { .. }
        | Step::RetireShard { .. }
        | Step::AddSlots { .. }
        | Step::Replicate { .. } => true,
        Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::RaiseEpoch { .. }
        | Step::Meet { .. }
        | Step::Stabilise { .. } => false,
    }
}

fn sentence(step: &Step, note: Option<&String>) -> String {
    note.cloned().unwrap_or_else(|| step.to_string())
}

fn count(context: &Context, executed: &Executed) {
    for (step, done) in &executed.done {
        context.metrics.step(step.kind(), "done");
        context.metrics.moved(done.slots, done.keys, done.bytes);
    }
    for (step, _) in &executed.failed {
        context.metrics.step(step.kind(), "failed");
    }
}

fn has_finalizer(cluster: &RedisCluster) -> bool {
    cluster.metadata.finalizers.iter().flatten().any(|name| name == names::FINALIZER)
}

fn with_finalizer(cluster: &RedisCluster) -> RedisCluster {
    let mut next = cluster.clone();
    next.metadata.finalizers.get_or_insert_default().push(names::FINALIZER.to_owned());
    next
}

/// The object is being deleted.
async fn leave(context: &Context, gathered: &Gathered) -> Result<Next, Error> {
    if !has_finalizer(&gathered.cluster) {
        return Ok(Next::OnChange);
    }
    let progress = delete(&context.kubernetes, gathered).await?;
    match progress {
        delete::Progress::Waiting(_) => {
            tell_leaving(context, gathered).await?;
            Ok(Next::After(pace::WHILE_LEAVING))
        }
        delete::Progress::Done => {
            context.locals.forget(&gathered.key());
            Ok(Next::OnChange)
        }
    }
}

/// One word, once.
async fn tell_leaving(context: &Context, gathered: &Gathered) -> Result<(), Error> {
    let mut status = gathered.cluster.status.clone().unwrap_or_default();
    if status.phase == Some(types::cluster::Phase::Deleting) {
        return Ok(());
    }
    status.phase = Some(types::cluster::Phase::Deleting);
    context.kubernetes.replace_status(&RedisCluster { status: Some(status), ..(*gathered.cluster).clone() }).await?;
    Ok(())
}

/// There is no such object. Its records end; whatever else carries its labels is reported and never touched.
async fn absent(context: &Context, key: &Key) -> Result<Next, Error> {
    context.locals.forget(key);
    let now = Timestamp::now();
    let caches = &context.kubernetes.caches;
    for operation in caches.operations.of(key).values() {
        if let Some(status) = operate::without_cluster(operation, now) {
            write_operation(context, operation, status).await?;
        }
    }
    for backup in caches.backups.of(key).values() {
        if let Some(status) = backup::without_cluster(backup, now) {
            let next = RedisBackup { status: Some(status), ..(**backup).clone() };
            context.kubernetes.replace_status(&next).await?;
        }
    }
    let operations: Vec<_> = caches.operations.of(key).into_values().collect();
    expire_operations(context, &operations, now).await?;
    backup::tidy_without_cluster(&context.kubernetes, key, now).await?;
    let orphans = gather::orphans(caches, key);
    if !orphans.is_empty() {
        tracing::warn!(cluster = %key, stateful_sets = ?orphans, "children of a RedisCluster that does not exist are left alone");
    }
    let records = !operations.is_empty() || !caches.backups.of(key).is_empty();
    Ok(if records { Next::After(pace::RECORDS) } else { Next::OnChange })
}
