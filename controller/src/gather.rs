//! What exists in Kubernetes of one RedisCluster: a snapshot of the caches, taken once per reconcile.
//!
//! The caches contain our own last writes (see `cache`), so a reconcile never works on a state older than what it
//! did itself. Knows nothing of Redis.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use types::operation::OperationPhase;
use types::quantity::Quantity;
use types::{RedisBackup, RedisCluster, RedisOperation, names};

use crate::cache::Caches;
use crate::queue::Key;

/// Why nothing can be gathered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The watches have not delivered their first complete state.
    #[error("the caches are not complete yet")]
    Incomplete,
    /// Of a Secret that is there nobody has read yet what is in it.
    #[error("what is in the Secrets of this cluster is not known yet")]
    Unread,
}

/// What exists of one RedisCluster.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The object itself.
    pub cluster: Arc<RedisCluster>,
    /// One per shard, also of shards that are being retired.
    pub stateful_sets: BTreeMap<String, Arc<StatefulSet>>,
    /// Members, by pod name.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Worker pods of backups.
    pub workers: BTreeMap<String, Arc<Pod>>,
    /// Services.
    pub services: BTreeMap<String, Arc<Service>>,
    /// Who may reach the members.
    pub network_policies: BTreeMap<String, Arc<NetworkPolicy>>,
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    /// Secrets we made.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// Claims of members.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// PodDisruptionBudgets.
    pub budgets: BTreeMap<String, Arc<PodDisruptionBudget>>,
    /// Operations on it, oldest first, ended ones included.
    pub operations: Vec<Arc<RedisOperation>>,
    /// Backups of it, oldest first, ended ones included.
    pub backups: Vec<Arc<RedisBackup>>,
}

/// Takes the snapshot. `None`: there is no such object.
///
/// # Errors
/// When the caches are not complete: absence would mean nothing. Nor would that of passwords in a Secret of which no more is known than that it is
/// there: others would be written over them.
pub fn gather(caches: &Caches, key: &Key) -> Result<Option<Gathered>, Error> {
    if !caches.complete() {
        return Err(Error::Incomplete);
    }
    let Some(cluster) = caches.clusters.get(key, &key.name) else { return Ok(None) };
    let secrets = caches.secrets.whole_of(key).ok_or(Error::Unread)?;
    let (workers, pods) = caches.pods.of(key).into_iter().partition(|(_, pod)| is_worker(pod));
    Ok(Some(Gathered {
        cluster,
        stateful_sets: caches.stateful_sets.of(key),
        pods,
        workers,
        services: caches.services.of(key),
        network_policies: caches.network_policies.of(key),
        config_maps: caches.config_maps.of(key),
        secrets,
        claims: caches.claims.of(key),
        budgets: caches.budgets.of(key),
        operations: operations(caches, key),
        backups: backups(caches, key),
    }))
}

/// Operations on a cluster, oldest first, ended ones included.
pub(crate) fn operations(caches: &Caches, key: &Key) -> Vec<Arc<RedisOperation>> {
    let mut operations: Vec<_> = caches.operations.of(key).into_values().collect();
    operations.sort_by_key(|o| (o.metadata.creation_timestamp.clone(), o.metadata.name.clone()));
    operations
}

/// Backups of a cluster, oldest first, ended ones included.
pub(crate) fn backups(caches: &Caches, key: &Key) -> Vec<Arc<RedisBackup>> {
    let mut backups: Vec<_> = caches.backups.of(key).into_values().collect();
    backups.sort_by_key(|b| (b.metadata.creation_timestamp.clone(), b.metadata.name.clone()));
    backups
}

/// What the largest claim of a cluster asks for.
pub(crate) fn volume_size(caches: &Caches, key: &Key) -> Option<Quantity> {
    caches.claims.of(key).values().filter_map(|claim| asks_for(claim)).max_by_key(|size| size.bytes())
}

/// What a claim asks for.
pub(crate) fn asks_for(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    Quantity::parse(&requests.get("storage")?.0).ok()
}

/// The operation that runs, or the oldest that waits: one at a time.
pub(crate) fn current_operation(operations: &[Arc<RedisOperation>]) -> Option<&Arc<RedisOperation>> {
    let phase = |operation: &RedisOperation| operation.status.as_ref().map(|s| s.phase).unwrap_or_default();
    let of = |wanted| operations.iter().find(|operation| phase(operation) == wanted);
    of(OperationPhase::Running).or_else(|| of(OperationPhase::Pending))
}

fn is_worker(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::LABEL_BACKUP))
}

impl Gathered {
    /// The object, before anything was made for it.
    #[must_use]
    pub fn alone(cluster: Arc<RedisCluster>) -> Self {
        Self {
            cluster,
            stateful_sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            workers: BTreeMap::new(),
            services: BTreeMap::new(),
            network_policies: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            claims: BTreeMap::new(),
            budgets: BTreeMap::new(),
            operations: Vec::new(),
            backups: Vec::new(),
        }
    }

    /// The StatefulSet of a shard.
    #[must_use]
    pub fn stateful_set(&self, shard: u16) -> Option<&StatefulSet> {
        self.stateful_sets.get(&names::shard(&self.key().name, shard)).map(|set| &**set)
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            namespace: self.cluster.metadata.namespace.clone().unwrap_or_default(),
            name: self.cluster.metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Shards that have a StatefulSet, wanted or not.
    #[must_use]
    pub fn shards(&self) -> Vec<u16> {
        let mut shards: Vec<u16> = self.stateful_sets.values().filter_map(|set| shard_of(&set.metadata)).collect();
        shards.sort_unstable();
        shards
    }

    /// The operation that runs, or the oldest that waits: one at a time.
    #[must_use]
    pub fn current_operation(&self) -> Option<&Arc<RedisOperation>> {
        current_operation(&self.operations)
    }
}

/// The shard an object belongs to, by label.
#[must_use]
pub fn shard_of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<u16> {
    meta.labels.as_ref()?.get(names::LABEL_SHARD)?.parse().ok()
}
