//! What is known about the world when a request is decided: plain data, kept current by `gather`.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::{RedisCluster, RedisOperation, names};

use crate::decide::policy::Policy;

/// Everything known, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// RedisClusters.
    pub clusters: Table<RedisCluster>,
    /// RedisOperations; `None`: one that has ended.
    pub operations: Table<Option<Unfinished>>,
    /// RedisPolicies, compiled; the namespace is empty.
    pub policies: Table<Policy>,
    /// Labels of namespaces; the namespace of a namespace is empty.
    pub namespaces: Table<BTreeMap<String, String>>,
    /// Claims that KUN made; `None`: one that only bears its labels, or is being deleted.
    pub claims: Table<Option<Claim>>,
}

/// A RedisOperation that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Name of its RedisCluster.
    pub cluster: String,
    /// Whether it restarts members.
    pub restarts: bool,
}

impl Unfinished {
    /// The operation, if it has not ended.
    #[must_use]
    pub fn of(operation: &RedisOperation) -> Option<Self> {
        let spec = &operation.spec;
        let goes_on = !operation.phase().has_ended();
        goes_on.then(|| Self { cluster: spec.cluster_name.clone(), restarts: spec.restart.is_some() })
    }
}

/// A PersistentVolumeClaim of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of its RedisCluster, which may be gone.
    pub cluster: String,
    /// Index of its shard.
    pub shard: u16,
    /// Number of the member within it.
    pub ordinal: u16,
    /// When it was made.
    pub made: Option<Timestamp>,
}

impl Claim {
    /// The claim that has this metadata, if KUN made it and nobody has deleted it.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let label = |name: &str| metadata.labels.as_ref()?.get(name);
        let (name, cluster) = (metadata.name.as_ref()?, label(names::LABEL_CLUSTER)?.clone());
        let shard = label(names::LABEL_SHARD)?.parse().ok()?;
        let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
        let is_ours = *name == names::claim(&cluster, shard, ordinal) && metadata.deletion_timestamp.is_none();
        let made = metadata.creation_timestamp.as_ref().map(|time| time.0);
        is_ours.then_some(Self { cluster, shard, ordinal, made })
    }

    /// Whether it is older than this cluster: a former one of the name had it made.
    #[must_use]
    pub fn is_older_than(&self, cluster: &RedisCluster) -> bool {
        let since = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
        self.made.zip(since).is_some_and(|(made, since)| made < since)
    }
}

/// Objects of one kind by namespace and name.
#[derive(Clone, Debug)]
pub struct Table<T>(BTreeMap<String, BTreeMap<String, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Table<T> {
    /// The object of this name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.0.get(namespace)?.get(name)
    }

    /// The objects of a namespace, by name.
    pub fn within(&self, namespace: &str) -> impl Iterator<Item = (&String, &Arc<T>)> {
        self.0.get(namespace).into_iter().flatten()
    }

    /// Puts an object in, in place of its former self.
    pub fn put(&mut self, namespace: &str, name: &str, object: T) {
        self.0.entry(namespace.to_owned()).or_default().insert(name.to_owned(), Arc::new(object));
    }

    /// Takes an object out.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(objects) = self.0.get_mut(namespace) {
            objects.remove(name);
            if objects.is_empty() {
                self.0.remove(namespace);
            }
        }
    }
}

impl Facts {
    /// The policies that bind a namespace, by name. `None`: there are selectors, and the namespace is not known.
    #[must_use]
    pub fn policies_of(&self, namespace: &str) -> Option<Vec<(&str, &Policy)>> {
        let labels = self.namespaces.get("", namespace);
        let mut found = Vec::new();
        for (name, policy) in self.policies.within("") {
            let binds = match (policy.selector(), labels) {
                (None, _) => true,
                (Some(selector), Some(labels)) => selector.matches(labels),
                (Some(_), None) => return None,
            };
            if binds {
                found.push((name.as_str(), policy.as_ref()));
            }
        }
        Some(found)
    }

    /// Claims of a cluster, there or gone, by name.
    pub fn claims_of<'a>(&'a self, namespace: &str, cluster: &'a str) -> impl Iterator<Item = (&'a str, &'a Claim)> {
        let claims = self.claims.within(namespace);
        let claims = claims.filter_map(|(name, claim)| Some((name.as_str(), (**claim).as_ref()?)));
        claims.filter(move |(_, claim)| claim.cluster == cluster)
    }

    /// Whether a former cluster of its name has left volumes, which its members load.
    #[must_use]
    pub fn has_former_claims(&self, namespace: &str, cluster: &RedisCluster) -> bool {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        self.claims_of(namespace, name).any(|(_, claim)| claim.is_older_than(cluster))
    }

    /// Operations on a cluster that have not ended, by name.
    pub fn unfinished<'a>(
        &'a self,
        namespace: &str,
        cluster: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Unfinished)> {
        let operations = self.operations.within(namespace);
        let operations = operations.filter_map(|(name, one)| Some((name.as_str(), (**one).as_ref()?)));
        operations.filter(move |(_, one)| one.cluster == cluster)
    }
}
