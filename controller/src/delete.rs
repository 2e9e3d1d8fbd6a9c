//! Takes a RedisCluster away, behind its finalizer and in an order it knows: pods first (they get their grace period
//! and hand their data to disk), then what pointed at them, then volumes as the specification says, then the object.
//!
//! Only for an object whose deletion has been seen, and only children that carry its labels *and* its uid. Children of
//! an object that is merely absent are never touched: absence may be a lost store (architecture.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::Pod;
use types::cluster::{DeletionPolicy, Retain};
use types::{RedisCluster, names};

use crate::api::{self, Kubernetes};
use crate::apply::claims::place_of;
use crate::apply::{label, owner_uid};
use crate::cache::Cached;
use crate::gather::Gathered;
use crate::resolve::Resolved;

/// Why deletion does not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("deleting the children of a RedisCluster")]
    Api(#[from] api::Error),
    /// A backup could not be ended.
    #[error("ending the backups of a RedisCluster")]
    Backup(#[from] crate::backup::Error),
}

/// How far deletion is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something has been deleted and is waited for.
    Waiting(String),
    /// Nothing of ours is left.
    Done,
}

/// One step of deletion; called until it is done.
///
/// # Errors
/// When the API server does not take it; the next call goes on from there.
pub async fn delete(kubernetes: &Kubernetes, gathered: &Gathered) -> Result<Progress, Error> {
    let uid = gathered.cluster.metadata.uid.as_deref().unwrap_or_default();
    let ours = !uid.is_empty() && gathered.cluster.metadata.deletion_timestamp.is_some();
    if !ours {
        return Ok(Progress::Waiting("the deletion of this very object has not been seen".to_owned()));
    }
    end_records(kubernetes, gathered).await?;
    let mut left = all(kubernetes, &gathered.stateful_sets, uid).await?;
    left.extend(gathered.pods.values().map(|pod| label(&**pod)));
    if !left.is_empty() {
        return Ok(Progress::Waiting(format!("still stopping: {}", listed(&left))));
    }
    left = all(kubernetes, &gathered.services, uid).await?;
    left.extend(all(kubernetes, &gathered.network_policies, uid).await?);
    left.extend(all(kubernetes, &gathered.budgets, uid).await?);
    left.extend(all(kubernetes, &gathered.config_maps, uid).await?);
    if !keeps_secrets(gathered) {
        left.extend(all(kubernetes, &gathered.secrets, uid).await?);
    }
    if retain(&gathered.cluster) == Retain::Delete {
        left.extend(claims(kubernetes, gathered, |_, _| true).await?);
    }
    if !left.is_empty() {
        return Ok(Progress::Waiting(format!("still being deleted: {}", listed(&left))));
    }
    let_go(kubernetes, &gathered.cluster).await?;
    Ok(Progress::Done)
}

/// Whether volumes and Secrets outlive the object.
fn retain(cluster: &RedisCluster) -> Retain {
    match cluster.spec.deletion.policy {
        DeletionPolicy::Retain => Retain::Retain,
        DeletionPolicy::Delete => cluster.spec.storage.as_ref().map_or(Retain::Delete, |storage| storage.retain),
    }
}

/// A volume that stays is of no use without the passwords that are in use on it.
fn keeps_secrets(gathered: &Gathered) -> bool {
    match gathered.cluster.spec.deletion.policy {
        DeletionPolicy::Retain => true,
        DeletionPolicy::Delete => gathered.claims.values().any(|claim| outlives(gathered, claim)),
    }
}

/// Whether a claim is there after the object has gone.
fn outlives(gathered: &Gathered, claim: &PersistentVolumeClaim) -> bool {
    let place = place_of(claim, &gathered.key().name);
    match retain(&gathered.cluster) {
        Retain::Retain => true,
        Retain::Delete => place.is_some_and(|place| is_a_former_ones(&gathered.cluster, claim, place)),
    }
}

/// Whether an earlier cluster of this name had this claim made, and this one has no member for it: what that one wrote last may be there alone.
/// A claim that this cluster took over and has scaled away since cannot be told from it, and stays as well.
fn is_a_former_ones(cluster: &RedisCluster, claim: &PersistentVolumeClaim, (shard, ordinal): (u16, u16)) -> bool {
    let spec = &cluster.spec;
    let is_members = spec.storage.is_some() && shard < spec.shards() && ordinal < spec.members_per_shard();
    is_older(cluster, claim) && !is_members
}

/// The claim was there before this cluster was, as their two API servers say.
pub(crate) fn is_older(cluster: &RedisCluster, claim: &PersistentVolumeClaim) -> bool {
    let made = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0);
    made(&claim.metadata).zip(made(&cluster.metadata)).is_some_and(|(claim, cluster)| claim < cluster)
}

/// Operations end; backups that run end as failed, completed ones are untouched: they outlive the cluster.
async fn end_records(kubernetes: &Kubernetes, gathered: &Gathered) -> Result<(), Error> {
    let now = jiff::Timestamp::now();
    for operation in &gathered.operations {
        if let Some(status) = crate::operate::without_cluster(operation, now) {
            let next = types::RedisOperation { status: Some(status), ..(**operation).clone() };
            kubernetes.replace_status(&next).await?;
        }
    }
    for backup in &gathered.backups {
        if let Some(status) = crate::backup::without_cluster(backup, now) {
            let next = types::RedisBackup { status: Some(status), ..(**backup).clone() };
            kubernetes.replace_status(&next).await?;
        }
    }
    Ok(crate::backup::tidy(kubernetes, gathered, now).await?)
}

/// Objects named in one sentence.
const NAMED_MOST: usize = 5;

/// The first of these, and how many more there are.
fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MOST);
    let named = names.iter().take(NAMED_MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// What outlives the object, by its specification: the claims of its members, and the Secrets without which they are of no use.
#[must_use]
pub fn kept(gathered: &Gathered) -> Option<String> {
    let uid = gathered.cluster.metadata.uid.as_deref();
    let claims = gathered.claims.values().filter(|claim| place_of(claim, &gathered.key().name).is_some());
    let claims = claims.filter(|claim| outlives(gathered, claim)).map(|claim| label(&**claim));
    let secrets = gathered.secrets.values().filter(|secret| owner_uid(&***secret) == uid);
    let secrets = secrets.filter(|_| keeps_secrets(gathered)).map(|secret| label(&**secret));
    let kept: Vec<String> = claims.chain(secrets).collect();
    (!kept.is_empty()).then(|| format!("kept: {}", listed(&kept)))
}

/// Deletes every object of this owner; names those that are still there.
async fn all<K: Cached>(
    kubernetes: &Kubernetes,
    objects: &BTreeMap<String, Arc<K>>,
    uid: &str,
) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for object in objects.values().filter(|object| owner_uid(&***object) == Some(uid)) {
        if object.meta().deletion_timestamp.is_none() {
            kubernetes.delete(&**object).await?;
        }
        left.push(label(&**object));
    }
    Ok(left)
}

/// Deletes the claims that `which` names by shard and ordinal, but those of a former cluster; names those that are still there. Claims are
/// made by the StatefulSet controller and carry our labels, but not our annotation.
async fn claims(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    which: impl Fn(u16, u16) -> bool,
) -> Result<Vec<String>, Error> {
    let (name, mut left) = (gathered.key().name, Vec::new());
    for claim in gathered.claims.values() {
        let place = place_of(claim, &name).filter(|(shard, ordinal)| which(*shard, *ordinal));
        if place.is_some_and(|place| !is_a_former_ones(&gathered.cluster, claim, place)) {
            if claim.metadata.deletion_timestamp.is_none() {
                kubernetes.delete(&**claim).await?;
            }
            left.push(label(&**claim));
        }
    }
    Ok(left)
}

/// Takes our finalizer away: nothing holds the object any more.
///
/// # Errors
/// When the API server does not take it.
pub async fn let_go(kubernetes: &Kubernetes, cluster: &RedisCluster) -> Result<(), Error> {
    let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    finalizers.retain(|name| name != names::FINALIZER);
    if finalizers.len() < before {
        kubernetes.finalizers(cluster, &finalizers).await?;
    }
    Ok(())
}

/// Deletes the claims of members that have been scaled away, where the specification says so: of shards and ordinals
/// that are not wanted, whose StatefulSet does not want them and whose pod is gone. The planner has moved their slots
/// before it let them go.
///
/// # Errors
/// When the API server does not take it.
pub async fn sweep_claims(kubernetes: &Kubernetes, gathered: &Gathered, resolved: &Resolved) -> Result<(), Error> {
    if resolved.retain_claims == Retain::Retain {
        return Ok(());
    }
    let size = |shard: u16| {
        let set = gathered.stateful_set(shard)?;
        set.spec.as_ref()?.replicas.and_then(|size| u16::try_from(size).ok())
    };
    let unwanted = |shard: u16, ordinal: u16| {
        !resolved.wants(Pod::new(shard, ordinal))
            && size(shard).is_none_or(|size| ordinal >= size)
            && !gathered.pods.contains_key(&names::pod(&resolved.key.name, shard, ordinal))
    };
    claims(kubernetes, gathered, unwanted).await?;
    Ok(())
}
