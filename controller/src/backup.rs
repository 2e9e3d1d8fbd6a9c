//! The life of a RedisBackup: one worker pod per shard pulls a snapshot from a member's agent, writes it to the target
//! and reads it back. Deciding is pure ([`decide`]); the rest carries it out.
//!
//! A backup is Completed only when every artifact was read back and checked, and together they hold every slot exactly
//! once. While one runs no slot begins to move (the planner is told so), or a key could be in no artifact, or in two.

mod attempt;
mod complete;
mod retire;
mod shards;
mod source;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use types::RedisBackup;
use types::backup::{BackupPhase, RedisBackupStatus};
use types::cluster::BackupTarget;
use types::names;

use crate::api::{self, Kubernetes};
use crate::gather::Gathered;
use crate::probe::Probed;
use crate::queue::Key;
use crate::resolve::Resolved;

use attempt::{State, shard_state};
pub use retire::{Means, Refusals, retire};
use source::{Source, Sources};

/// Workers started for one shard before the backup is given up.
const ATTEMPTS: u16 = 3;
/// So long after the end of the first attempt the second one is made, and twice as long after that of the second the third.
const BETWEEN_SECONDS: i64 = 10;

/// How long a worker may wait for its node, its volume or its image: slots may not begin to move meanwhile.
const START_MOST: Duration = Duration::from_secs(600);

/// How long a backup may wait for one and the same thing, in seconds: slots may not begin to move meanwhile. Each reason has its own time.
const WAIT_MOST: i64 = 600;

/// How long a backup may stand behind others, in seconds: what it was to hold nobody means any more.
const QUEUE_MOST: i64 = 24 * 3600;

/// How long a backup may run, in hours: three attempts of a day each, and what is between them. Slots may not begin to move meanwhile.
const RUN_MOST: i64 = 3 * 24 + 1;

/// How long the end of a worker that the kubelet has to end may take to be known, in seconds.
const END_MOST: i64 = 600;

/// Why a backup could not be looked after.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("looking after backup {backup}")]
    Api {
        /// Which.
        backup: String,
        /// Why.
        #[source]
        source: api::Error,
    },
}

/// The backup that runs, or the oldest that waits: one at a time.
#[must_use]
pub fn current(backups: &[Arc<RedisBackup>]) -> Option<&Arc<RedisBackup>> {
    // One that is being deleted stores nothing any more.
    let stays = || backups.iter().filter(|backup| backup.metadata.deletion_timestamp.is_none());
    let of = |wanted| stays().find(|backup| phase(backup) == wanted);
    of(BackupPhase::Running).or_else(|| of(BackupPhase::Pending))
}

/// The backup because of which slots may not begin to move, also one that waits for those that move now.
#[must_use]
pub fn holds_slots(backups: &[Arc<RedisBackup>]) -> Option<String> {
    current(backups).and_then(|backup| backup.metadata.name.clone())
}

fn phase(backup: &RedisBackup) -> BackupPhase {
    backup.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// What is known when a decision about a backup is due.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// What should be.
    pub resolved: &'a Resolved,
    /// What was seen.
    pub probed: &'a Probed,
    /// Which slots are half moved or about to move, and between whom: nothing is begun before.
    pub slots_moving: Option<&'a str>,
    /// Worker pods of this cluster.
    pub workers: &'a BTreeMap<String, Arc<Pod>>,
    /// The time.
    pub now: Timestamp,
}

/// What is to be done for a backup.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Its next status.
    pub status: RedisBackupStatus,
    /// Workers to be made, after the status is written.
    pub create: Vec<Pod>,
}

/// Carries out what is due for the current backup, and for records that have outlived their time.
///
/// # Errors
/// When the API server does not take it; the next reconcile goes on from there.
pub async fn backup(kubernetes: &Kubernetes, gathered: &Gathered, round: Round<'_>) -> Result<(), Error> {
    if let Some(backup) = current(&gathered.backups) {
        let backup = &guard(kubernetes, backup).await?;
        let decision = decide(backup, round);
        write_status(kubernetes, backup, decision.status).await?;
        for pod in former_of(backup, round.workers).filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            kubernetes.delete(&**pod).await.map_err(failed(backup))?;
        }
        for pod in &decision.create {
            match kubernetes.create(pod).await {
                Ok(_) => {}
                Err(api::Error::Changed { .. }) if is_ours(kubernetes, backup, pod).await? => {}
                Err(api::Error::Changed { .. }) => return give_up(kubernetes, backup, pod, round.now).await,
                Err(source) => return Err(failed(backup)(source)),
            }
        }
        for waiting in queue(&gathered.backups, backup) {
            write_status(kubernetes, waiting, queued(waiting, backup, round.now)).await?;
        }
    }
    tidy(kubernetes, gathered, round.now).await
}

/// Backups that have not begun, behind this one.
fn queue<'a>(backups: &'a [Arc<RedisBackup>], before: &RedisBackup) -> impl Iterator<Item = &'a Arc<RedisBackup>> {
    let ahead = before.metadata.uid.clone();
    let stays = backups.iter().filter(|backup| backup.metadata.deletion_timestamp.is_none());
    stays.filter(move |backup| phase(backup) == BackupPhase::Pending && backup.metadata.uid != ahead)
}

/// The next status of a backup that stands behind another. Pure.
fn queued(backup: &RedisBackup, before: &RedisBackup, now: Timestamp) -> RedisBackupStatus {
    let mut status = backup.status.clone().unwrap_or_default();
    let name = before.metadata.name.as_deref().unwrap_or_default();
    let why = format!("the backup {name} has not ended; one of a cluster runs at a time");
    status.conditions = crate::report::waits("Queued", &why, &status.conditions, now);
    // A pause of the cluster is another reason, with a time of its own.
    if crate::report::waits_for(&status.conditions, now) > QUEUE_MOST {
        let hours = QUEUE_MOST / 3600;
        let why = format!("it stood behind others for {hours} h, the last of them the backup {name}");
        return fail(status, "NotBegun", why, now);
    }
    status
}

/// The statuses of backups of a cluster that is to be left alone. Pure.
pub fn paused(
    backups: &[Arc<RedisBackup>],
    now: Timestamp,
) -> impl Iterator<Item = (&Arc<RedisBackup>, RedisBackupStatus)> {
    let open = backups.iter().filter(|backup| matches!(phase(backup), BackupPhase::Pending | BackupPhase::Running));
    open.filter(|backup| backup.metadata.deletion_timestamp.is_none()).map(move |backup| {
        let mut status = backup.status.clone().unwrap_or_default();
        status.conditions = crate::report::waits("Paused", crate::operate::PAUSED, &status.conditions, now);
        (backup, status)
    })
}

/// A worker that is there already was made before the last crash, or is an earlier backup's: its labels show whose it is, and the next round sees it.
async fn is_ours(kubernetes: &Kubernetes, backup: &RedisBackup, pod: &Pod) -> Result<bool, Error> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let live: Option<Pod> =
        kubernetes.live(namespace.unwrap_or_default(), name.unwrap_or_default()).await.map_err(failed(backup))?;
    Ok(live.is_none_or(|live| is_worker_of(&live, backup) || is_former_here(&live, backup)))
}

fn is_worker_of(pod: &Pod, backup: &RedisBackup) -> bool {
    label(pod, names::LABEL_BACKUP) == backup.metadata.name.as_deref() && !is_former(pod, backup)
}

/// A pod of an earlier backup of this name, whose object went without it. One that says no uid is of an earlier release, and taken by its name.
fn is_former(pod: &Pod, backup: &RedisBackup) -> bool {
    let uid = label(pod, names::LABEL_BACKUP_UID);
    label(pod, names::LABEL_BACKUP) == backup.metadata.name.as_deref()
        && uid.is_some_and(|uid| Some(uid) != backup.metadata.uid.as_deref())
}

/// The same, of the same cluster: that of another is not among its workers.
fn is_former_here(pod: &Pod, backup: &RedisBackup) -> bool {
    is_former(pod, backup) && label(pod, names::LABEL_CLUSTER) == Some(backup.spec.cluster_name.as_str())
}

async fn give_up(kubernetes: &Kubernetes, backup: &RedisBackup, pod: &Pod, now: Timestamp) -> Result<(), Error> {
    write_status(kubernetes, backup, name_taken(backup, pod, now)).await
}

fn name_taken(backup: &RedisBackup, pod: &Pod, now: Timestamp) -> RedisBackupStatus {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let why = format!("there is a pod {name} already that is no worker of this backup");
    fail(backup.status.clone().unwrap_or_default(), NAME_TAKEN, why, now)
}

/// Nothing is stored for a backup that could go without us: its workers and its artifacts would be left to nobody.
async fn guard(kubernetes: &Kubernetes, backup: &Arc<RedisBackup>) -> Result<Arc<RedisBackup>, Error> {
    if has_finalizer(backup) {
        return Ok(Arc::clone(backup));
    }
    let mut finalizers = backup.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(names::FINALIZER_ARTIFACTS.to_owned());
    Ok(Arc::new(kubernetes.finalizers(&**backup, &finalizers).await.map_err(failed(backup))?))
}

fn has_finalizer(backup: &RedisBackup) -> bool {
    backup.metadata.finalizers.iter().flatten().any(|name| name == names::FINALIZER_ARTIFACTS)
}

/// Removes workers of backups that have ended, and records that have outlived their time.
///
/// # Errors
/// When the API server does not take it.
pub async fn tidy(kubernetes: &Kubernetes, gathered: &Gathered, now: Timestamp) -> Result<(), Error> {
    tidy_all(kubernetes, gathered.backups.iter(), &gathered.workers, now).await
}

/// As [`tidy`], for a cluster that does not exist (any more).
///
/// # Errors
/// When the API server does not take it.
pub async fn tidy_without_cluster(kubernetes: &Kubernetes, key: &Key, now: Timestamp) -> Result<(), Error> {
    let backups = kubernetes.caches.backups.of(key);
    tidy_all(kubernetes, backups.values(), &kubernetes.caches.pods.of(key), now).await
}

async fn tidy_all(
    kubernetes: &Kubernetes,
    backups: impl Iterator<Item = &Arc<RedisBackup>>,
    pods: &BTreeMap<String, Arc<Pod>>,
    now: Timestamp,
) -> Result<(), Error> {
    for backup in backups {
        let status = backup.status.clone().unwrap_or_default();
        // What is being deleted has its own order ([`retire`]).
        if status.completion_time.is_none() || backup.metadata.deletion_timestamp.is_some() {
            continue;
        }
        for worker in workers_of(backup, pods) {
            if worker.metadata.deletion_timestamp.is_none() {
                kubernetes.delete(&**worker).await.map_err(failed(backup))?;
            }
        }
        if crate::operate::expired(status.completion_time, backup.spec.ttl_after_finished.as_deref(), false, now) {
            kubernetes.delete(&**backup).await.map_err(failed(backup))?;
        }
    }
    Ok(())
}

async fn write_status(kubernetes: &Kubernetes, backup: &RedisBackup, status: RedisBackupStatus) -> Result<(), Error> {
    if backup.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let next = RedisBackup { status: Some(status), ..backup.clone() };
    kubernetes.replace_status(&next).await.map_err(failed(backup))?;
    Ok(())
}

fn failed(backup: &RedisBackup) -> impl Fn(api::Error) -> Error + use<> {
    let name = backup.metadata.name.clone().unwrap_or_default();
    move |source| Error::Api { backup: name.clone(), source }
}

fn workers_of<'a>(
    backup: &'a RedisBackup,
    workers: &'a BTreeMap<String, Arc<Pod>>,
) -> impl Iterator<Item = &'a Arc<Pod>> + 'a {
    workers.values().filter(move |pod| is_worker_of(pod, backup))
}

/// Pods of an earlier backup of this name.
fn former_of<'a>(
    backup: &'a RedisBackup,
    workers: &'a BTreeMap<String, Arc<Pod>>,
) -> impl Iterator<Item = &'a Arc<Pod>> + 'a {
    workers.values().filter(move |pod| is_former(pod, backup))
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// The next status of the current backup and the workers it needs. Pure.
#[must_use]
pub fn decide(backup: &RedisBackup, round: Round<'_>) -> Decision {
    let status = backup.status.clone().unwrap_or_default();
    let serving = plan::serving(round.resolved.planned_mode(), &round.probed.observed);
    let sources = &Sources::of(round, &serving);
    match status.phase {
        BackupPhase::Pending => begin(backup, status, sources, round),
        BackupPhase::Running if status.cluster_uid.as_ref().is_some_and(|uid| *uid != round.resolved.uid) => {
            let why = "the cluster with which it began has gone, and another one has its name".to_owned();
            Decision { status: fail(status, "ClusterReplaced", why, round.now), create: Vec::new() }
        }
        BackupPhase::Running => go_on(backup, status, sources, round),
        BackupPhase::Completed | BackupPhase::Failed => Decision { status, create: Vec::new() },
    }
}

/// Where the artifacts go.
fn target(backup: &RedisBackup, round: Round<'_>) -> Option<BackupTarget> {
    backup.spec.target.clone().or_else(|| round.resolved.backup_target.clone())
}

fn begin(backup: &RedisBackup, mut status: RedisBackupStatus, sources: &Sources<'_>, round: Round<'_>) -> Decision {
    let Some(target) = target(backup, round) else {
        let why = "neither the backup nor the cluster names a target".to_owned();
        return Decision { status: fail(status, "NoTarget", why, round.now), create: Vec::new() };
    };
    // What moves now is finished first; every shard must have somebody to ask.
    let obstacle = round.slots_moving.map(|moving| ("SlotsMoving", format!("{moving}; that is finished first")));
    let wanted = obstacle.map_or_else(|| shards::wanted(sources, round), Err);
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err((reason, why)) => return Decision { status: wait(status, reason, &why, round.now), create: Vec::new() },
    };
    let uid = backup.metadata.uid.as_deref().unwrap_or_default();
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    status.phase = BackupPhase::Running;
    status.start_time = Some(round.now);
    let Key { namespace, name: cluster } = &round.resolved.key;
    status.location = Some(names::backup_folder(namespace, cluster, name, uid));
    status.cluster_uid = Some(round.resolved.uid.clone());
    // So many as there are now: how many the cluster is to have may change while it runs.
    status.wanted_shards = wanted.into_iter().map(i32::from).collect();
    // The cluster's target may be another one by the time this backup is looked for.
    status.target = Some(target);
    status.engine = Some(round.resolved.engine);
    status.engine_version = round.probed.facts.values().map(|facts| facts.version.clone()).min();
    go_on(backup, status, sources, round)
}

/// Reason of a backup that has nobody to copy from.
const MEMBER_MISSING: &str = "MemberMissing";
/// Reason of a backup that has more than one to copy from, of whom one holds what is in service.
const UNCLEAR: &str = "Unclear";
/// Reason of a backup one of whose workers would have the name of another pod.
const NAME_TAKEN: &str = "NameTaken";

/// It waits, or has waited for this one thing for too long.
fn wait(mut status: RedisBackupStatus, reason: &str, why: &str, now: Timestamp) -> RedisBackupStatus {
    status.conditions = crate::report::waits(reason, why, &status.conditions, now);
    if crate::report::waits_for(&status.conditions, now) <= WAIT_MOST {
        return status;
    }
    let minutes = WAIT_MOST / 60;
    fail(status, reason, format!("given up after {minutes} min: {why}"), now)
}

fn go_on(backup: &RedisBackup, mut status: RedisBackupStatus, sources: &Sources<'_>, round: Round<'_>) -> Decision {
    let (mut create, mut stands) = (Vec::new(), Stands::default());
    for shard in shards::of(&status, round.resolved) {
        if shards::is_stored(&status, shard) {
            continue;
        }
        match shard_state(backup, shard, round) {
            State::Begin { attempt } => {
                let pod =
                    sources.source(shard).and_then(|source| start(backup, &status, (shard, attempt), source, round));
                match pod {
                    Some(pod) => create.push(pod),
                    None => {
                        stands.silent.get_or_insert_with(|| sources.nobody(shard));
                    }
                }
            }
            State::Runs => {}
            State::Stuck { why } => {
                let text = format!("the worker of shard {shard} does not start: {why}");
                stands.stuck.get_or_insert(text);
            }
            State::Unheard { why } => {
                let text = format!("nobody hears of the worker of shard {shard}: {why}");
                stands.stuck.get_or_insert(text);
            }
            State::Rests { why } => {
                let text = format!("the worker of shard {shard} failed and is tried again in some seconds: {why}");
                stands.rests.get_or_insert(text);
            }
            State::Former { pod } => {
                let text = format!("the pod {pod} of an earlier backup of this name is still there");
                stands.former.get_or_insert(text);
            }
            State::Stored(artifact) => status.shards.push(*artifact),
            State::GivenUp(why) => {
                let why = format!("shard {shard} could not be stored: {why}");
                return Decision { status: fail(status, "WorkerFailed", why, round.now), create: Vec::new() };
            }
        }
    }
    status = told(status, stands, round);
    if status.phase == BackupPhase::Failed {
        return Decision { status, create: Vec::new() };
    }
    status.shards.sort_by_key(|artifact| artifact.index);
    if shards::of(&status, round.resolved).into_iter().all(|shard| shards::is_stored(&status, shard)) {
        return Decision { status: complete::complete(status, round), create };
    }
    let began = status.start_time.unwrap_or(round.now);
    if round.now.duration_since(began).as_hours() >= RUN_MOST {
        let why = format!("it has not ended within {RUN_MOST} h");
        return Decision { status: fail(status, "TookTooLong", why, round.now), create: Vec::new() };
    }
    Decision { status, create }
}

/// Why shards do not get on, the first of each kind.
#[derive(Default)]
struct Stands {
    /// A shard of which nobody can be asked: reason and sentence.
    silent: Option<(&'static str, String)>,
    /// A pod of an earlier backup that has a worker's name.
    former: Option<String>,
    /// A worker that does not begin, or of which nobody hears.
    stuck: Option<String>,
    /// A worker that has failed and has another attempt before it.
    rests: Option<String>,
}

/// What a backup waits for; what nobody but a person may mend comes before what is over in some seconds.
fn told(status: RedisBackupStatus, stands: Stands, round: Round<'_>) -> RedisBackupStatus {
    let says = |reason: &str, why: &str| crate::report::waits(reason, why, &status.conditions, round.now);
    let conditions = match stands {
        Stands { silent: Some((reason, why)), .. } => return wait(status, reason, &why, round.now),
        Stands { silent: None, former: Some(why), .. } => return wait(status, NAME_TAKEN, &why, round.now),
        Stands { silent: None, former: None, stuck: Some(why), rests: _ } => says("Stalled", &why),
        Stands { silent: None, former: None, stuck: None, rests: Some(why) } => says("Retrying", &why),
        Stands { silent: None, former: None, stuck: None, rests: None } => Vec::new(),
    };
    RedisBackupStatus { conditions, ..status }
}

fn start(
    backup: &RedisBackup,
    status: &RedisBackupStatus,
    (shard, attempt): (u16, u16),
    source: Source<'_>,
    round: Round<'_>,
) -> Option<Pod> {
    let target = status.target.clone().or_else(|| target(backup, round))?;
    let order = worker::Order {
        backup: backup.metadata.name.as_deref()?,
        uid: backup.metadata.uid.as_deref()?,
        location: status.location.as_deref()?,
        target: &target,
        shard,
        attempt,
        source,
    };
    Some(worker::pod(round.resolved, order))
}

fn fail(mut status: RedisBackupStatus, reason: &str, why: String, now: Timestamp) -> RedisBackupStatus {
    status.phase = BackupPhase::Failed;
    status.completion_time = Some(now);
    status.conditions = crate::report::ended(false, reason, &why, now);
    status
}

/// A backup of a cluster that does not exist.
#[must_use]
pub fn without_cluster(backup: &RedisBackup, now: Timestamp) -> Option<RedisBackupStatus> {
    let status = backup.status.clone().unwrap_or_default();
    let ended = status.completion_time.is_some();
    let why = format!("there is no RedisCluster {:?} in this namespace", backup.spec.cluster_name);
    (!ended).then(|| fail(status, "NoCluster", why, now))
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
