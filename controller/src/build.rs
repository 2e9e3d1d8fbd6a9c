//! What is wanted, as Kubernetes objects: pure and deterministic, one file per kind.
//!
//! Every object carries our labels and no ownerReference to our objects: Kubernetes' garbage collector believes
//! whatever our API answers, so a lost store must not be able to cost anybody their data (architecture.md).

pub mod config_map;
mod network_policy;
pub mod pod_disruption_budget;
#[cfg(test)]
mod reach;
pub mod secret;
pub mod service;
pub mod stateful_set;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::names;

use crate::resolve::Resolved;

/// Annotation with a digest of what we asked for: what we stop asking for is a change too, which "desired is part of
/// live" alone would not show.
pub const ANNOTATION_DIGEST: &str = "redis.kun.io/desired";

/// Why an object cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Our own types do not serialize: a fault of this program.
    #[error("writing {what} as JSON")]
    Json {
        /// What was written.
        what: &'static str,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// Everything a cluster consists of. `apply` takes it apart without `..`: a new field needs a decision there.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Passwords and certificates: needed by the pods.
    pub secrets: Vec<Secret>,
    /// The agents' configuration: needed by the pods.
    pub config_map: ConfigMap,
    /// Addresses.
    pub services: Vec<Service>,
    /// Who may reach the members; absent: everybody.
    pub network_policy: Option<NetworkPolicy>,
    /// One per wanted shard.
    pub stateful_sets: Vec<StatefulSet>,
    /// One per wanted shard that has a replica.
    pub budgets: Vec<PodDisruptionBudget>,
}

/// Builds everything.
///
/// # Errors
/// When something does not serialize.
pub fn build(resolved: &Resolved) -> Result<Objects, Error> {
    let shards = 0..resolved.shards;
    Ok(Objects {
        secrets: secret::secrets(resolved)?,
        config_map: config_map::config_map(resolved)?,
        services: service::services(resolved)?,
        network_policy: network_policy::network_policy(resolved)?,
        stateful_sets: shards.clone().map(|s| stateful_set::stateful_set(resolved, s)).collect::<Result<_, _>>()?,
        budgets: shards
            .filter(|_| resolved.members > 1)
            .map(|s| pod_disruption_budget::budget(resolved, s))
            .collect::<Result<_, _>>()?,
    })
}

/// Labels of every child.
#[must_use]
pub fn labels(cluster: &str, shard: Option<u16>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "redis".to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), names::MANAGED_BY.to_owned()),
        (names::LABEL_CLUSTER.to_owned(), cluster.to_owned()),
    ]);
    if let Some(shard) = shard {
        labels.insert(names::LABEL_SHARD.to_owned(), shard.to_string());
    }
    labels
}

/// Labels of every worker of a backup. They have the cluster's label and not the members' name, so that no Service sends clients to them.
#[must_use]
pub(crate) fn worker_labels(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "redis-backup".to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), names::MANAGED_BY.to_owned()),
        (names::LABEL_CLUSTER.to_owned(), cluster.to_owned()),
    ])
}

/// Metadata of a child: name, labels, and whose child it is.
fn meta(resolved: &Resolved, name: String, shard: Option<u16>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(resolved.key.namespace.clone()),
        labels: Some(labels(&resolved.key.name, shard)),
        annotations: Some(BTreeMap::from([(names::ANNOTATION_OWNER_UID.to_owned(), resolved.uid.clone())])),
        ..ObjectMeta::default()
    }
}

/// SHA-256 of something, the first 16 digits: it tells changes apart, nobody attacks it.
pub(crate) fn digest(value: &impl serde::Serialize, what: &'static str) -> Result<String, Error> {
    let text = serde_json::to_vec(value).map_err(|source| Error::Json { what, source })?;
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &text);
    Ok(sum.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Puts the digest of everything else on an object.
fn sealed<K: kube::Resource + serde::Serialize>(mut object: K, what: &'static str) -> Result<K, Error> {
    let digest = digest(&object, what)?;
    object.meta_mut().annotations.get_or_insert_default().insert(ANNOTATION_DIGEST.to_owned(), digest);
    Ok(object)
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
