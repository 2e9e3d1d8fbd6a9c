//! One reconcile, as a story: gather ▸ resolve ▸ build ▸ apply ▸ probe ▸ plan ▸ execute ▸ report.
//!
//! Level-driven: everything is computed from what exists now; nothing needed for correctness lives in memory. `report`
//! runs also when a step before it failed, so a stuck object explains itself. Only this file and `delete` know the
//! order of steps.

mod gone;
mod hold;
mod local;
mod pace;
mod records;
mod rest;
mod secret;
mod tell;
mod wanted;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::Plan;
use types::{RedisCluster, names};

use crate::api::{self, Kubernetes};
use crate::apply::{self, Applied, apply, keep_record};
use crate::build::{self, build};
use crate::credentials::Issuer;
use crate::delete;
use crate::events::Events;
use crate::execute::{Executed, World, execute, settle, temporary};
use crate::gather::{self, Gathered, gather};
use crate::metrics::Metrics;
use crate::probe::agent::Agents;
use crate::probe::{Place, Probed, Question, marks, places, probe};
use crate::queue::{Key, Next};
use crate::redis::Access;
use crate::report::{Reach, left_behind};
use crate::resolve::{self, Resolved, resolve};
use crate::{backup, chain};

use gone::{absent, leave};
pub use hold::Held;
use hold::{gather_ours, hold};
use local::Local;
pub use local::Locals;
use records::{follow_up, tell_paused};
use rest::{Basis, Rest};
use tell::{announce, count, tell};
use wanted::wanted;
use written::{planned_with, running_restart, written};

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
            Self::Apply(
                apply::Error::Foreign { .. }
                | apply::Error::Hidden { .. }
                | apply::Error::Build(_)
                | apply::Error::Json { .. },
            )
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
    /// Our own namespace.
    pub namespace: String,
    /// How clients reach the members.
    pub reach: Reach,
    /// How much one batch may do.
    pub limits: plan::Limits,
    /// What this process remembers of each cluster.
    pub locals: Locals,
    /// Which clusters are held back.
    pub held: Held,
    /// Workers of deleted backups that were refused.
    pub refusals: backup::Refusals,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// What one round knows so far; a step that was not reached leaves its part at the default.
#[derive(Debug, Default)]
struct Round {
    basis: Basis,
    cluster: Option<Arc<RedisCluster>>,
    resolved: Option<Arc<Resolved>>,
    applied: Applied,
    /// Shards whose StatefulSets are not as they are to be.
    unwritten: BTreeSet<u16>,
    places: BTreeMap<plan::Pod, Place>,
    probed: Probed,
    plan: Plan,
    /// Nobody plans for a cluster that is paused.
    planned: bool,
    executed: Executed,
    temporary: BTreeMap<String, String>,
    secret_lack: Option<secret::Lack>,
    troubles: Vec<String>,
    left_behind: BTreeSet<u16>,
    rest: Option<Rest>,
}

/// Makes one RedisCluster what it should be, one round further, and lets its deleted backups go; says when to look again.
///
/// # Errors
/// Which step failed. The status tells it, too.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Next, Error> {
    let basis = Basis::of(context, key);
    if is_at_rest(context, key, basis).await {
        context.metrics.rested();
        return Ok(Next::After(pace::AT_REST));
    }
    let means = backup::Means { kun_image: &context.kun_image, events: &context.events, refusals: &context.refusals };
    let retired = backup::retire(&context.kubernetes, means, key).await;
    // Whatever a backup's end meets, the cluster is looked after.
    let next = one_round(context, key, basis).await?;
    Ok(retired?.map_or(next, |pause| next.within(pause)))
}

/// Whether the last whole look is still true.
async fn is_at_rest(context: &Context, key: &Key, basis: Basis) -> bool {
    let Some(local) = context.locals.known(key) else { return false };
    let mut local = local.lock().await;
    let Some(rest) = local.rest.take() else { return false };
    let lasts = rest.lasts(context, basis, &mut local.memory).await;
    // Until now all was well, so whatever comes next has not been waited for yet.
    local.progress_at = Instant::now();
    local.rest = lasts.then_some(rest);
    lasts
}

async fn one_round(context: &Context, key: &Key, basis: Basis) -> Result<Next, Error> {
    context.kubernetes.read_stripped(key).await?;
    let gathered = gather(&context.kubernetes.caches, key)?;
    if let Some(next) = hold(context, key, gathered.as_ref()).await? {
        return Ok(next);
    }
    let Some(gathered) = gathered else { return absent(context, key).await };
    if gathered.cluster.metadata.deletion_timestamp.is_some() {
        return leave(context, &gathered).await;
    }
    if !has_finalizer(&gathered.cluster) {
        let cluster = &*gathered.cluster;
        let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(names::FINALIZER.to_owned());
        context.kubernetes.finalizers(cluster, &finalizers).await?;
        return Ok(Next::After(Duration::ZERO));
    }
    let local = context.locals.of(key);
    let mut local = local.lock().await;
    let mut round = Round { basis, cluster: Some(Arc::clone(&gathered.cluster)), ..Round::default() };
    let outcome = go(context, key, gathered, &mut local, &mut round).await;
    if let Err(error) = &outcome
        && !error.is_change()
    {
        round.troubles.push(chain(error));
    }
    let told = tell(context, key, &mut local, &round).await;
    outcome?;
    let rewrite = told?;
    let next = pace::next(&mut local, &round, rewrite);
    local.rest = round.rest.filter(|rest| rewrite.is_none() && rest.is_of(Basis::of(context, key)));
    Ok(next)
}

/// From resolve to execute, with what was gathered and found to be ours.
async fn go(
    context: &Context,
    key: &Key,
    gathered: Gathered,
    local: &mut Local,
    round: &mut Round,
) -> Result<(), Error> {
    let now = Timestamp::now();
    let (kun_image, namespace) = (&context.kun_image, &context.namespace);
    let given = resolve::Context { kun_image, namespace, issuer: &*context.issuer, now };
    let resolved = Arc::new(resolve(&gathered, given)?);
    round.resolved = Some(Arc::clone(&resolved));
    let resolved = &*resolved;
    round.secret_lack = secret::lack(context, resolved, local).await;
    let objects = build(resolved)?;
    let wished = marks(&objects.stateful_sets, running_restart(&gathered));
    let applied = if resolved.paused {
        keep_record(&context.kubernetes, &gathered, &objects).await.map(|()| Applied::default())
    } else {
        let repairs = &mut local.repairs;
        apply(&context.kubernetes, &gathered, resolved, objects, repairs, Instant::now()).await
    };
    let is_as_gathered = !resolved.paused && applied.as_ref().is_ok_and(|applied| *applied == Applied::default());
    // What was just applied is in the caches.
    let gathered = if is_as_gathered { Some(gathered) } else { gather_ours(context, key)? };
    let Some(gathered) = gathered else { return Ok(()) };
    let (gathered, marks) = written(gathered, resolved, wished, &mut round.unwritten);
    let access = Access::new(resolved.credentials.operator());
    round.places = places(&gathered, &marks);
    let question = Question {
        mode: resolved.mode,
        logs: resolved.agent.append_only.keeps_every_write(),
        parameters: &resolved.agent.parameters,
        places: &round.places,
        access: &access,
        agents: &context.agents,
        whose: &names::agent_user(&key.namespace, &key.name),
    };
    round.probed = probe(question, &mut local.memory).await;
    round.temporary = temporary(resolved, &round.probed, &Plan::default());
    // Where members cannot be asked for want of a child, or the caches are behind, nothing is planned; how they are is told all the same.
    round.applied = applied?;
    round.troubles.extend(round.applied.refused.iter().cloned());
    round.planned = true;
    if resolved.paused {
        return tell_paused(context, &gathered, now).await;
    }
    round.left_behind = left_behind(&gathered, resolved.shards);
    let observed = planned_with(&round.probed.observed, round.applied.lacks_needs, &mut round.troubles);
    let wanted = wanted(resolved, &gathered, round.secret_lack.is_some());
    round.plan = plan::plan(&wanted, &observed, &context.limits);
    round.temporary = temporary(resolved, &round.probed, &round.plan);
    announce(context, key, local, round).await?;
    let bucket = Arc::clone(&local.bucket);
    let world = World {
        resolved,
        gathered: &gathered,
        places: &round.places,
        probed: &round.probed,
        access: &access,
        agents: &context.agents,
        kubernetes: &context.kubernetes,
        bucket: &bucket,
        clock: &Instant::now,
    };
    round.executed = execute(&round.plan, world, &mut local.memory).await;
    count(context, &round.executed);
    round.troubles.extend(round.executed.failed.iter().map(|(step, error)| format!("{step}: {}", chain(error))));
    if let Err(error) = settle(&round.plan, world).await {
        round.troubles.push(format!("putting settings back: {}", chain(&error)));
    }
    follow_up(context, &gathered, round, now).await?;
    round.rest = Rest::after(round, &gathered, access, now);
    Ok(())
}

fn has_finalizer(cluster: &RedisCluster) -> bool {
    cluster.metadata.finalizers.iter().flatten().any(|name| name == names::FINALIZER)
}
