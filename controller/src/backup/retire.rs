//! The end of a RedisBackup: its workers end, its artifacts go or stay as `deletionPolicy` says, then its finalizer
//! goes. Deciding is pure ([`decide`]); the rest carries it out.
//!
//! Artifacts are deleted by a worker pod that has the target mounted, as they were written by one. It needs no cluster:
//! a backup outlives the one it came from. A target that is gone must not keep the object (or its namespace) for ever,
//! so tries and time are bounded; then an event says what may be left, and where. A worker that is refused, or finds no node,
//! has not been tried: it is waited for, and told of, for a day.

mod refusals;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use tokio::time;
use types::RedisBackup;
use types::agent::WorkerReport;
use types::backup::ArtifactPolicy;
use types::cluster::Placement;
use types::names;

use super::worker::{self, End, Erasure};
use super::{Error, failed, former_of, is_former, workers_of};
use crate::api::Kubernetes;
use crate::events::{Events, Tone};
use crate::queue::Key;

pub use refusals::Refusals;
use start::Look;

/// Workers started to delete the artifacts of one backup.
const ATTEMPTS: u16 = 3;
/// From the end of one attempt to the next: a server of files that restarts is back by then.
const BETWEEN: SignedDuration = SignedDuration::from_secs(30);
/// How long a worker may take that its node has taken: one whose volume cannot be mounted waits for ever.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// For how long a worker is waited for that no node has taken, or that is refused: within a day a person has seen what is told, and made room.
const PATIENCE_TO_START: SignedDuration = SignedDuration::from_hours(24);
/// A worker's end is told by an event; this is for one that got lost.
const WHILE_IT_RUNS: Duration = Duration::from_secs(1);
/// The same for what keeps a worker from its node.
const WHILE_IT_WAITS: Duration = Duration::from_secs(30);

/// What is to be done for a backup that is being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Decision {
    /// Pods that must go.
    delete: Vec<Arc<Pod>>,
    /// The worker that is to delete the artifacts.
    create: Option<Pod>,
    /// Why the worker that there is does not begin.
    waits: Option<String>,
    /// Nothing is left to be done.
    end: Option<Ending>,
}

/// How the artifacts of a deleted backup ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ending {
    /// There was nothing to delete, or it is to stay.
    Quiet,
    /// They are deleted; the sentence says what.
    Erased(String),
    /// There are none where they should be; the sentence says where.
    Missing(String),
    /// They may be left; the sentence says where and why.
    Left(String),
}

/// The image with `kun`, where events go, and what is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// Image that holds `kun`, which is all that deleting needs.
    pub kun_image: &'a str,
    /// Where events go.
    pub events: &'a Events,
    /// What was refused lately.
    pub refusals: &'a Refusals,
}

/// What an eraser is made of, besides what its backup says.
#[derive(Clone, Copy, Debug)]
struct Made<'a> {
    kun_image: &'a str,
    /// Where its pods may run, as long as there is a cluster that says it.
    placement: Option<&'a Placement>,
}

/// Carries out what is due for every backup of this cluster that is being deleted, whether the cluster exists or not.
/// Says when to look again, if one is still waited for. What it does not come to within some seconds is left to the next look, which begins there: the
/// members of the cluster wait for this one.
///
/// # Errors
/// The first of what the API server did not take; the others were looked after all the same.
pub async fn retire(kubernetes: &Kubernetes, means: Means<'_>, key: &Key) -> Result<Option<Duration>, Error> {
    let pods = kubernetes.caches.pods.of(key);
    let cluster = kubernetes.caches.clusters.get(key, &key.name);
    let placement = cluster.as_ref().map(|cluster| &cluster.spec.placement);
    let made = Made { kun_image: means.kun_image, placement };
    let mut leaving: Vec<_> = kubernetes.caches.backups.of(key).into_values().filter(|b| is_leaving(b)).collect();
    means.refusals.keep(key, &leaving.iter().map(|backup| uid(backup)).collect::<BTreeSet<_>>());
    let next = means.refusals.take_next(key);
    let first = leaving.iter().position(|backup| Some(uid(backup)) == next.as_deref());
    leaving.rotate_left(first.unwrap_or(0));
    // Who was refused again and again holds back nobody who was not.
    leaving.sort_by_key(|backup| means.refusals.of(key, uid(backup)).map_or(0, |refusal| refusal.times));
    let mut look = Look::new(kubernetes, means, key);
    let (mut again, mut first_error) = (None, None);
    for backup in &leaving {
        if look.is_over() {
            means.refusals.put_next(key, uid(backup));
            again = again.into_iter().chain([WHILE_IT_RUNS]).min();
            break;
        }
        let decision = decide(backup, &pods, made, Timestamp::now());
        match time::timeout_at(look.ends(), carry_out(&mut look, backup, decision)).await {
            Ok(Ok(pause)) => again = pause.into_iter().chain(again).min(),
            Ok(Err(error)) => first_error = first_error.or(Some(error)),
            // What was asked may have been done: the next look sees it.
            Err(_) => again = again.into_iter().chain([WHILE_IT_RUNS]).min(),
        }
    }
    first_error.map_or(Ok(again), Err)
}

/// It is being deleted, and waits for us.
fn is_leaving(backup: &RedisBackup) -> bool {
    backup.metadata.deletion_timestamp.is_some() && super::has_finalizer(backup)
}

fn uid(backup: &RedisBackup) -> &str {
    backup.metadata.uid.as_deref().unwrap_or_default()
}

/// When to look at it again; `None`: it may go.
async fn carry_out(look: &mut Look<'_>, backup: &RedisBackup, decision: Decision) -> Result<Option<Duration>, Error> {
    let Decision { delete, create, waits, end } = decision;
    for pod in &delete {
        look.kubernetes.delete(&**pod).await.map_err(failed(backup))?;
    }
    let (pause, end) = match (create, end) {
        (_, Some(end)) => (WHILE_IT_RUNS, Some(end)),
        (Some(pod), None) => look.start(backup, &pod).await?,
        (None, None) => {
            look.tell(backup, "WorkerNotStarted", waits.as_deref()).await?;
            (waits.map_or(WHILE_IT_RUNS, |_| WHILE_IT_WAITS), None)
        }
    };
    let Some(end) = end else { return Ok(Some(pause)) };
    let (events, last) = (look.means.events, look.last_refusal(backup));
    match &end {
        Ending::Quiet => {}
        Ending::Erased(text) => events.tell(backup, Tone::Normal, "ArtifactsDeleted", text),
        Ending::Missing(text) => events.tell(backup, Tone::Warning, "ArtifactsNotFound", text),
        Ending::Left(text) => {
            let text = last.map_or_else(|| text.clone(), |why| format!("{text}; the last one was refused: {why}"));
            tracing::warn!(backup = backup.metadata.name, "{text}");
            events.tell(backup, Tone::Warning, "ArtifactsLeft", &text);
        }
    }
    let mut finalizers = backup.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != names::FINALIZER_ARTIFACTS);
    look.kubernetes.finalizers(backup, &finalizers).await.map_err(failed(backup))?;
    Ok(None)
}

/// What is due now. Pure.
fn decide(backup: &RedisBackup, pods: &BTreeMap<String, Arc<Pod>>, made: Made<'_>, now: Timestamp) -> Decision {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let erasers: BTreeMap<String, u16> =
        (0..ATTEMPTS).map(|attempt| (names::erase_pod(name, attempt), attempt)).collect();
    let is_eraser = |pod: &Pod| pod.metadata.name.as_ref().is_some_and(|name| erasers.contains_key(name));
    let living = |wanted: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
        let pods = workers_of(backup, pods).filter(|pod| wanted(pod) && pod.metadata.deletion_timestamp.is_none());
        pods.map(Arc::clone).collect()
    };
    // Whoever still writes would undo what is deleted.
    let is_written = workers_of(backup, pods).any(|pod| !is_eraser(pod));
    if is_written && !is_leaving_for(backup, PATIENCE, now) {
        return Decision { delete: living(&|pod| !is_eraser(pod)), ..Decision::default() };
    }
    let next = match next(backup, pods, now) {
        Next::Try(_) if is_written => give_up(backup, "a worker that stores it does not end"),
        next => next,
    };
    match next {
        Next::Wait(waits) => {
            let former = former_of(backup, pods).filter(|pod| pod.metadata.deletion_timestamp.is_none());
            Decision { delete: former.map(Arc::clone).collect(), waits, ..Decision::default() }
        }
        Next::Try(attempt) => {
            let end = |why: &str| Decision { end: Some(Ending::Left(left(backup, why))), ..Decision::default() };
            match erasure(backup, attempt, made) {
                Ok(order) => Decision { create: Some(worker::eraser(order)), ..Decision::default() },
                Err(why) => end(why),
            }
        }
        Next::End(end) => Decision { delete: living(&|_| true), end: Some(end), ..Decision::default() },
    }
}

/// It has been waiting for us for longer than this.
fn is_leaving_for(backup: &RedisBackup, most: SignedDuration, now: Timestamp) -> bool {
    backup.metadata.deletion_timestamp.as_ref().is_none_or(|since| now.duration_since(since.0) > most)
}

enum Next {
    /// For a worker, which may have reasons not to begin.
    Wait(Option<String>),
    Try(u16),
    End(Ending),
}

fn next(backup: &RedisBackup, pods: &BTreeMap<String, Arc<Pod>>, now: Timestamp) -> Next {
    let began = backup.status.as_ref().is_some_and(|status| status.location.is_some());
    match backup.spec.deletion_policy {
        ArtifactPolicy::Retain => return Next::End(Ending::Quiet),
        ArtifactPolicy::Delete if !began => return Next::End(Ending::Quiet),
        ArtifactPolicy::Delete => {}
    }
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let is_over = is_leaving_for(backup, PATIENCE_TO_START, now);
    let (mut last, mut before) = (String::new(), None);
    for attempt in 0..ATTEMPTS {
        let Some(pod) = pods.get(&names::erase_pod(name, attempt)) else {
            return match before {
                _ if is_over => give_up(backup, "within a day no worker could delete them"),
                Some(before) if rests_after(before, now) => Next::Wait(None),
                Some(_) | None => Next::Try(attempt),
            };
        };
        if is_former(pod, backup) {
            let why = "the worker of an earlier backup of this name is still there";
            return if is_over { give_up(backup, why) } else { Next::Wait(Some(why.to_owned())) };
        }
        match worker::end(pod) {
            End::Stuck(why) if is_over => return give_up(backup, &format!("the worker did not start in a day: {why}")),
            End::Stuck(why) => return Next::Wait(Some(why)),
            End::Runs if has_hung(pod, is_over, now) => {
                return give_up(backup, "the worker did not end in time; is the target gone?");
            }
            End::Runs => return Next::Wait(None),
            End::Reported(WorkerReport::Erased { files, left }) => return Next::End(erased(backup, files, left)),
            End::Reported(WorkerReport::Failed { message }) | End::Silent(message) => last = message,
            End::Reported(WorkerReport::Stored { .. }) => last = "the worker did something else".to_owned(),
        }
        before = Some(&**pod);
    }
    give_up(backup, &format!("{ATTEMPTS} attempts failed, the last with: {last}"))
}

/// The attempt ended a moment ago. One that ends only in future by the clock of its node has ended, and nobody knows when.
fn rests_after(pod: &Pod, now: Timestamp) -> bool {
    let ended = worker::ended_at(pod).or(pod.metadata.creation_timestamp.as_ref());
    ended.is_some_and(|ended| (SignedDuration::ZERO..BETWEEN).contains(&now.duration_since(ended.0)))
}

/// Its node has had it for long. Where none has, the same counts as for one that cannot start.
fn has_hung(pod: &Pod, is_over: bool, now: Timestamp) -> bool {
    let taken = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    taken.map_or(is_over, |taken| now.duration_since(taken.0) > PATIENCE)
}

fn give_up(backup: &RedisBackup, why: &str) -> Next {
    Next::End(Ending::Left(left(backup, why)))
}

fn erased(backup: &RedisBackup, files: u32, left: u32) -> Ending {
    let place = place(backup);
    match (files, left) {
        (0, 0) => Ending::Missing(format!("there was nothing to delete in {place}")),
        (_, 0) => Ending::Erased(format!("{files} files were deleted in {place}")),
        (_, _) => Ending::Left(format!("{files} files were deleted in {place}; {left} that are not ours stay there")),
    }
}

fn left(backup: &RedisBackup, why: &str) -> String {
    format!("the artifacts may be left in {}: {why}", place(backup))
}

fn place(backup: &RedisBackup) -> String {
    let status = backup.status.clone().unwrap_or_default();
    let target = target(backup).map(|target| match (&target.directory, &target.persistent_volume_claim) {
        (Some(directory), _) => format!("directory {}", directory.path),
        (None, Some(claim)) => format!("claim {}", claim.claim_name),
        (None, None) => "an unknown target".to_owned(),
    });
    let target = target.unwrap_or_else(|| "a target that is not known any more".to_owned());
    format!("{target}, folder {}", status.location.unwrap_or_default())
}

fn target(backup: &RedisBackup) -> Option<types::cluster::BackupTarget> {
    let recorded = backup.status.as_ref().and_then(|status| status.target.clone());
    recorded.or_else(|| backup.spec.target.clone())
}

/// The order to delete exactly what this backup may have written. The folder is computed, never taken from the status,
/// which anybody with the right to write it could have pointed elsewhere.
fn erasure<'a>(backup: &'a RedisBackup, attempt: u16, made: Made<'a>) -> Result<Erasure<'a>, &'static str> {
    let meta = &backup.metadata;
    let (Some(namespace), Some(name), Some(uid)) = (&meta.namespace, &meta.name, &meta.uid) else {
        return Err("the object has no identity");
    };
    let folder = names::backup_folder(namespace, &backup.spec.cluster_name, name, uid);
    if backup.status.as_ref().and_then(|status| status.location.as_ref()) != Some(&folder) {
        return Err("status.location is not the folder that belongs to this backup");
    }
    let target = target(backup).ok_or("the target is not known any more")?;
    let cluster = &backup.spec.cluster_name;
    let Made { kun_image, placement } = made;
    Ok(Erasure { namespace, cluster, backup: name, uid, folder, target, attempt, kun_image, placement })
}

#[cfg(test)]
#[path = "retire_tests.rs"]
mod tests;
