//! The end of a RedisBackup: its workers end, its artifacts go or stay as `deletionPolicy` says, then its finalizer
//! goes. Deciding is pure ([`decide`]); the rest carries it out.
//!
//! Artifacts are deleted by a worker pod that has the target mounted, as they were written by one. It needs no cluster:
//! a backup outlives the one it came from. A target that is gone must not keep the object (or its namespace) for ever,
//! so tries and time are bounded; then an event says what may be left, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use types::RedisBackup;
use types::agent::WorkerReport;
use types::backup::ArtifactPolicy;
use types::cluster::Placement;
use types::names;

use super::worker::{self, End, Erasure};
use super::{Error, failed, workers_of};
use crate::api::{self, Kubernetes};
use crate::events::{Events, Tone};
use crate::queue::Key;

/// Workers started to delete the artifacts of one backup.
const ATTEMPTS: u16 = 3;
/// From one attempt to the next: a server of files that restarts is back by then.
const BETWEEN: SignedDuration = SignedDuration::from_secs(30);
/// How long deletion may take before it lets go: a worker whose volume cannot be mounted waits for ever.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// What is to be done for a backup that is being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Decision {
    /// Pods that must go.
    delete: Vec<Arc<Pod>>,
    /// The worker that is to delete the artifacts.
    create: Option<Pod>,
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

/// The image with `kun`, and where events go.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// Image that holds `kun`, which is all that deleting needs.
    pub kun_image: &'a str,
    /// Where events go.
    pub events: &'a Events,
}

/// What an eraser is made of, besides what its backup says.
#[derive(Clone, Copy, Debug)]
struct Made<'a> {
    kun_image: &'a str,
    /// Where its pods may run, as long as there is a cluster that says it.
    placement: Option<&'a Placement>,
}

/// Carries out what is due for every backup of this cluster that is being deleted, whether the cluster exists or not.
/// Says whether one is still waited for.
///
/// # Errors
/// When the API server does not take it; the next reconcile goes on from there.
pub async fn retire(kubernetes: &Kubernetes, means: Means<'_>, key: &Key) -> Result<bool, Error> {
    let pods = kubernetes.caches.pods.of(key);
    let cluster = kubernetes.caches.clusters.get(key, &key.name);
    let placement = cluster.as_ref().map(|cluster| &cluster.spec.placement);
    let made = Made { kun_image: means.kun_image, placement };
    let mut waiting = false;
    for backup in kubernetes.caches.backups.of(key).values().filter(|backup| is_leaving(backup)) {
        let decision = decide(backup, &pods, made, Timestamp::now());
        waiting |= !carry_out(kubernetes, means.events, backup, decision).await?;
    }
    Ok(waiting)
}

/// It is being deleted, and waits for us.
fn is_leaving(backup: &RedisBackup) -> bool {
    backup.metadata.deletion_timestamp.is_some() && super::has_finalizer(backup)
}

/// True: it may go.
async fn carry_out(
    kubernetes: &Kubernetes,
    events: &Events,
    backup: &RedisBackup,
    decision: Decision,
) -> Result<bool, Error> {
    let Decision { delete, create, mut end } = decision;
    for pod in &delete {
        kubernetes.delete(&**pod).await.map_err(failed(backup))?;
    }
    if let Some(pod) = &create {
        match kubernetes.create(pod).await {
            Ok(_) | Err(api::Error::Changed { .. }) => {}
            // As in a namespace that is being deleted: no later try will fare better.
            Err(error) if error.is_refusal() => {
                let why = format!("no worker may be started: {}", crate::chain(&error));
                end = Some(Ending::Left(left(backup, &why)));
            }
            Err(source) => return Err(failed(backup)(source)),
        }
    }
    let Some(end) = end else { return Ok(false) };
    match &end {
        Ending::Quiet => {}
        Ending::Erased(text) => events.tell(backup, Tone::Normal, "ArtifactsDeleted", text),
        Ending::Missing(text) => events.tell(backup, Tone::Warning, "ArtifactsNotFound", text),
        Ending::Left(text) => {
            tracing::warn!(backup = backup.metadata.name, "{text}");
            events.tell(backup, Tone::Warning, "ArtifactsLeft", text);
        }
    }
    let mut finalizers = backup.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != names::FINALIZER_ARTIFACTS);
    kubernetes.finalizers(backup, &finalizers).await.map_err(failed(backup))?;
    Ok(true)
}

/// What is due now. Pure.
fn decide(backup: &RedisBackup, pods: &BTreeMap<String, Arc<Pod>>, made: Made<'_>, now: Timestamp) -> Decision {
    let late = backup.metadata.deletion_timestamp.as_ref().is_none_or(|since| now.duration_since(since.0) > PATIENCE);
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let erasers: BTreeMap<String, u16> =
        (0..ATTEMPTS).map(|attempt| (names::erase_pod(name, attempt), attempt)).collect();
    let is_eraser = |pod: &Pod| pod.metadata.name.as_ref().is_some_and(|name| erasers.contains_key(name));
    let living = |wanted: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
        let pods = workers_of(backup, pods).filter(|pod| wanted(pod) && pod.metadata.deletion_timestamp.is_none());
        pods.map(Arc::clone).collect()
    };
    // Whoever still writes would undo what is deleted.
    if workers_of(backup, pods).any(|pod| !is_eraser(pod)) && !late {
        return Decision { delete: living(&|pod| !is_eraser(pod)), ..Decision::default() };
    }
    match next(backup, pods, late, now) {
        Next::Wait => Decision::default(),
        Next::Try(attempt) => {
            let end = |why: &str| Decision { end: Some(Ending::Left(left(backup, why))), ..Decision::default() };
            match erasure(backup, attempt, made) {
                Ok(order) => Decision { create: Some(worker::eraser(order)), ..Decision::default() },
                Err(why) => end(why),
            }
        }
        Next::End(end) => Decision { delete: living(&|_| true), create: None, end: Some(end) },
    }
}

enum Next {
    Wait,
    Try(u16),
    End(Ending),
}

fn next(backup: &RedisBackup, pods: &BTreeMap<String, Arc<Pod>>, late: bool, now: Timestamp) -> Next {
    let began = backup.status.as_ref().is_some_and(|status| status.location.is_some());
    match backup.spec.deletion_policy {
        ArtifactPolicy::Retain => return Next::End(Ending::Quiet),
        ArtifactPolicy::Delete if !began => return Next::End(Ending::Quiet),
        ArtifactPolicy::Delete => {}
    }
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        let Some(pod) = pods.get(&names::erase_pod(name, attempt)) else {
            return if late {
                give_up(backup, "there is no time for another attempt")
            } else {
                next_try(backup, attempt, now)
            };
        };
        match worker::end(pod) {
            End::Stuck(why) if late => return give_up(backup, &format!("the worker did not start in time: {why}")),
            End::Runs if late => return give_up(backup, "the worker did not end in time; is the target gone?"),
            End::Runs | End::Stuck(_) => return Next::Wait,
            End::Reported(WorkerReport::Erased { files, left }) => return Next::End(erased(backup, files, left)),
            End::Reported(WorkerReport::Failed { message }) | End::Silent(message) => last = message,
            End::Reported(WorkerReport::Stored { .. }) => last = "the worker did something else".to_owned(),
        }
    }
    give_up(backup, &format!("{ATTEMPTS} attempts failed, the last with: {last}"))
}

/// Attempts are spread over time, whatever made the one before fail.
fn next_try(backup: &RedisBackup, attempt: u16, now: Timestamp) -> Next {
    let since = backup.metadata.deletion_timestamp.as_ref().map(|since| now.duration_since(since.0));
    let due = since.is_none_or(|since| since >= BETWEEN.saturating_mul(i32::from(attempt)));
    if due { Next::Try(attempt) } else { Next::Wait }
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
    Ok(Erasure { namespace, cluster, backup: name, folder, target, attempt, kun_image, placement })
}

#[cfg(test)]
#[path = "retire_tests.rs"]
mod tests;
