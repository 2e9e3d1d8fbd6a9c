//! What is known about the world when a request is decided: plain data, kept current by `gather`.

use std::{collections::BTreeMap, sync::Arc};

use types::{RedisCluster, RedisOperation, operation::OperationPhase};

use crate::decide::policy::Policy;

/// Everything known, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// RedisClusters.
    pub clusters: Table<RedisCluster>,
    /// RedisOperations.
    pub operations: Table<RedisOperation>,
    /// RedisPolicies, compiled; the namespace is empty.
    pub policies: Table<Policy>,
    /// Labels of namespaces; the namespace of a namespace is empty.
    pub namespaces: Table<BTreeMap<String, String>>,
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

    /// Operations on a cluster that have not ended, by name.
    pub fn unfinished<'a>(
        &'a self,
        namespace: &str,
        cluster: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a RedisOperation)> {
        let runs = |operation: &RedisOperation| match operation
            .status
            .as_ref()
            .map_or(OperationPhase::Pending, |status| status.phase)
        {
            OperationPhase::Pending | OperationPhase::Running => true,
            OperationPhase::Succeeded | OperationPhase::Failed | OperationPhase::Cancelled => false,
        };
        let of_cluster =
            move |operation: &&Arc<RedisOperation>| operation.spec.cluster_name == cluster && runs(operation);
        let within = self.operations.within(namespace);
        within
            .filter(move |(_, operation)| of_cluster(operation))
            .map(|(name, operation)| (name.as_str(), operation.as_ref()))
    }
}
