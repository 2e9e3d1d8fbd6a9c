//! Makes Kubernetes hold what was built: creates what is missing, replaces what differs. Deletes nothing but disruption budgets, which
//! protect what is no longer there.
//!
//! What Kubernetes adds (defaults, status, cluster addresses) is no difference: desired must be part of live. The size
//! of a StatefulSet is only ever raised here; lowering it, and retiring StatefulSets, are steps of the plan. At rest
//! it writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use types::names;

use crate::api::{self, Kubernetes};
use crate::build::{ANNOTATION_DIGEST, Objects};
use crate::cache::Cached;
use crate::gather::Gathered;
use crate::resolve::Resolved;

/// Why a child could not be made what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// An object of that name is not ours.
    #[error("{kind} {name} exists and belongs to {owner}; it is not touched")]
    Foreign {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Whose it is.
        owner: String,
    },
    /// Our own types do not serialize: a fault of this program.
    #[error("comparing {kind} {name}")]
    Json {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// What was changed, in sentences for events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Objects created.
    pub created: Vec<String>,
    /// Objects replaced.
    pub replaced: Vec<String>,
    /// Objects deleted.
    pub deleted: Vec<String>,
}

/// Creates and replaces until Kubernetes holds what was built. The pods' needs come before the pods.
///
/// # Errors
/// At the first object that cannot be written; the next reconcile goes on from there.
pub async fn apply(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    resolved: &Resolved,
    desired: Objects,
) -> Result<Applied, Error> {
    let Objects { secrets, config_map, services, stateful_sets, budgets } = desired;
    let mut applied = Applied::default();
    let owner = Owner { uid: &resolved.uid, inherits: false };
    let heir = Owner { inherits: inherits(gathered, &resolved.uid), ..owner };
    for secret in secrets {
        one(kubernetes, &gathered.secrets, secret, heir, &mut applied, |_, _| ()).await?;
    }
    one(kubernetes, &gathered.config_maps, config_map, owner, &mut applied, |_, _| ()).await?;
    for service in services {
        one(kubernetes, &gathered.services, service, owner, &mut applied, keep_addresses).await?;
    }
    for set in stateful_sets {
        one(kubernetes, &gathered.stateful_sets, set, owner, &mut applied, keep_size_and_claims).await?;
    }
    for budget in &budgets {
        one(kubernetes, &gathered.budgets, budget.clone(), owner, &mut applied, |_, _| ()).await?;
    }
    for budget in idle_budgets(gathered, &budgets, owner) {
        kubernetes.delete(budget).await?;
        applied.deleted.push(format!("PodDisruptionBudget {}", budget.metadata.name.as_deref().unwrap_or_default()));
    }
    grow_claims(kubernetes, gathered, resolved, &mut applied).await?;
    Ok(applied)
}

/// Of all that was built, only the record of the owner: for a cluster that is to be left alone, and may be lost meanwhile all
/// the same.
///
/// # Errors
/// When the API server does not take it.
pub async fn keep_record(kubernetes: &Kubernetes, gathered: &Gathered, desired: &Objects) -> Result<(), Error> {
    for set in &desired.stateful_sets {
        let (Some(name), Some(record)) = (&set.metadata.name, annotation(set, names::ANNOTATION_OWNER)) else {
            continue;
        };
        let Some(live) = gathered.stateful_sets.get(name) else { continue };
        if owner_uid(&**live) == owner_uid(set) && annotation(&**live, names::ANNOTATION_OWNER) != Some(record) {
            let mut next = (**live).clone();
            let annotations = next.metadata.annotations.get_or_insert_default();
            annotations.insert(names::ANNOTATION_OWNER.to_owned(), record.to_owned());
            kubernetes.replace(&next).await?;
        }
    }
    Ok(())
}

/// For whom objects are made.
#[derive(Clone, Copy)]
struct Owner<'a> {
    uid: &'a str,
    /// Takes over what a predecessor of the same name has left behind.
    inherits: bool,
}

/// Secrets that outlived a deleted cluster of this name are taken over, with the passwords in them. Not while members
/// of another cluster exist: then it is not gone, but its object was lost, and a person has to decide.
fn inherits(gathered: &Gathered, uid: &str) -> bool {
    gathered.stateful_sets.values().all(|set| owner_uid(&**set) == Some(uid))
}

/// Budgets of shards that have one member and shall have no more. While that member is not ready, a budget over it allows no eviction
/// at all, and whoever drains its node waits for ever. A set that still has to shrink keeps its budget until it has shrunk.
fn idle_budgets<'a>(
    gathered: &'a Gathered,
    wanted: &[PodDisruptionBudget],
    owner: Owner<'_>,
) -> Vec<&'a PodDisruptionBudget> {
    let is_wanted = |name: &str| wanted.iter().any(|budget| budget.metadata.name.as_deref() == Some(name));
    let protects = |name: &str| {
        let set = gathered.stateful_sets.get(name).and_then(|set| set.spec.as_ref());
        set.is_some_and(|spec| spec.replicas.is_none_or(|size| size > 1))
    };
    let budgets = gathered.budgets.iter().filter(|(name, _)| !is_wanted(name) && !protects(name));
    budgets.map(|(_, budget)| &**budget).filter(|budget| owner_uid(*budget) == Some(owner.uid)).collect()
}

/// Creates or replaces one object. `keep` carries over what the live object has and may not be changed here.
async fn one<K: Cached>(
    kubernetes: &Kubernetes,
    live: &BTreeMap<String, Arc<K>>,
    mut desired: K,
    owner: Owner<'_>,
    applied: &mut Applied,
    keep: fn(&mut K, &K),
) -> Result<(), Error> {
    let name = desired.meta().name.clone().unwrap_or_default();
    let label = format!("{} {name}", K::kind(&()));
    let Some(live) = live.get(&name) else {
        return match kubernetes.create(&desired).await {
            Ok(_) => {
                applied.created.push(label);
                Ok(())
            }
            Err(changed @ api::Error::Changed { .. }) => Err(in_the_way(kubernetes, &desired, owner, changed).await),
            Err(error) => Err(error.into()),
        };
    };
    if owner_uid(&**live) != Some(owner.uid) && !owner.inherits {
        return Err(foreign(&**live));
    }
    keep(&mut desired, live);
    if !differs(&desired, &**live)? {
        return Ok(());
    }
    let replacement = onto(desired, live);
    kubernetes.replace(&replacement).await?;
    applied.replaced.push(label);
    Ok(())
}

/// Something of that name exists that the caches do not show: somebody else's, or ours and not seen yet.
async fn in_the_way<K: Cached>(kubernetes: &Kubernetes, desired: &K, owner: Owner<'_>, changed: api::Error) -> Error {
    let meta = desired.meta();
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    match kubernetes.live::<K>(namespace, name).await {
        Ok(Some(live)) if owner_uid(&live) != Some(owner.uid) => foreign(&live),
        Ok(_) => changed.into(),
        Err(error) => error.into(),
    }
}

fn foreign<K: Cached>(live: &K) -> Error {
    let owner = owner_uid(live).map_or_else(|| "somebody else".to_owned(), |uid| format!("the RedisCluster {uid}"));
    let name = live.meta().name.clone().unwrap_or_default();
    Error::Foreign { kind: K::kind(&()).into_owned(), name, owner }
}

/// uid of the RedisCluster an object belongs to.
pub fn owner_uid<K: Cached>(object: &K) -> Option<&str> {
    annotation(object, names::ANNOTATION_OWNER_UID)
}

fn annotation<'a, K: Cached>(object: &'a K, name: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(name).map(String::as_str)
}

/// The desired object as the next version of the live one: what others put on its metadata stays.
fn onto<K: Cached>(mut desired: K, live: &K) -> K {
    let mut meta = live.meta().clone();
    let wanted = desired.meta();
    meta.labels.get_or_insert_default().extend(wanted.labels.clone().unwrap_or_default());
    meta.annotations.get_or_insert_default().extend(wanted.annotations.clone().unwrap_or_default());
    *desired.meta_mut() = meta;
    desired
}

/// A Service's addresses are given once and may not be taken away.
fn keep_addresses(desired: &mut Service, live: &Service) {
    let (Some(desired), Some(live)) = (desired.spec.as_mut(), live.spec.as_ref()) else { return };
    desired.cluster_ip = live.cluster_ip.clone().or(desired.cluster_ip.take());
    desired.cluster_ips.clone_from(&live.cluster_ips);
    desired.ip_families.clone_from(&live.ip_families);
    desired.ip_family_policy.clone_from(&live.ip_family_policy);
}

/// A StatefulSet never becomes smaller here, and its claim templates cannot be changed by anybody.
fn keep_size_and_claims(desired: &mut StatefulSet, live: &StatefulSet) {
    let (Some(desired), Some(live)) = (desired.spec.as_mut(), live.spec.as_ref()) else { return };
    desired.replicas = desired.replicas.max(live.replicas);
    desired.volume_claim_templates.clone_from(&live.volume_claim_templates);
    desired.service_name.clone_from(&live.service_name);
    desired.selector.clone_from(&live.selector);
    desired.pod_management_policy.clone_from(&live.pod_management_policy);
}

/// Whether the live object lacks something of the desired one, or still has something we no longer ask for.
fn differs<K: Cached>(desired: &K, live: &K) -> Result<bool, Error> {
    let digest = |object: &K| object.meta().annotations.as_ref().and_then(|all| all.get(ANNOTATION_DIGEST).cloned());
    if digest(desired) != digest(live) {
        return Ok(true);
    }
    let value = |object: &K| {
        serde_json::to_value(object).map_err(|source| Error::Json {
            kind: K::kind(&()).into_owned(),
            name: object.meta().name.clone().unwrap_or_default(),
            source,
        })
    };
    Ok(!is_part_of(&value(desired)?, &value(live)?))
}

/// Whether everything in `desired` is in `live`: objects by key, lists element by element, quantities by amount.
#[must_use]
pub fn is_part_of(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired.iter().all(|(key, wanted)| match live.get(key) {
            Some(found) => is_part_of(wanted, found),
            None => is_nothing(wanted),
        }),
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len() && desired.iter().zip(live).all(|(wanted, found)| is_part_of(wanted, found))
        }
        (Value::String(desired), Value::String(live)) => desired == live || same_amount(desired, live),
        (desired, live) => desired == live || (is_nothing(desired) && is_nothing(live)),
    }
}

/// API servers leave empty things out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// API servers write quantities in their canonical form: "1024Mi" becomes "1Gi".
fn same_amount(one: &str, other: &str) -> bool {
    use types::quantity::Quantity;
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Raises the size of existing claims; Kubernetes grows the volume. Claims never shrink.
async fn grow_claims(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    resolved: &Resolved,
    applied: &mut Applied,
) -> Result<(), Error> {
    let Some(volume) = &resolved.storage else { return Ok(()) };
    for (name, live) in &gathered.claims {
        let Some(grown) = grown(live, volume.bytes, &volume.size) else { continue };
        kubernetes.replace(&grown).await?;
        applied.replaced.push(format!("PersistentVolumeClaim {name}"));
    }
    Ok(())
}

fn grown(live: &PersistentVolumeClaim, bytes: u64, size: &str) -> Option<PersistentVolumeClaim> {
    let mut grown = live.clone();
    let requests = grown.spec.as_mut()?.resources.as_mut()?.requests.as_mut()?;
    let now = types::quantity::Quantity::parse(&requests.get("storage")?.0).ok()?.bytes();
    if bytes <= now {
        return None;
    }
    requests.insert("storage".to_owned(), Quantity(size.to_owned()));
    Some(grown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_adds_is_no_difference_and_what_it_lacks_is() {
        let desired = json!({"spec": {"ports": [{"port": 1}], "type": null, "labels": {}}, "n": 1});
        let live = json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}], "x": true}, "n": 1, "status": {}});
        assert!(is_part_of(&desired, &live));
        assert!(!is_part_of(&json!({"spec": {"ports": [{"port": 2}]}}), &live));
        assert!(!is_part_of(&json!({"spec": {"ports": []}}), &live));
        assert!(!is_part_of(&json!({"spec": {"y": 1}}), &live));
    }

    #[test]
    fn quantities_are_compared_by_amount() {
        assert!(is_part_of(&json!({"memory": "1024Mi"}), &json!({"memory": "1Gi"})));
        assert!(!is_part_of(&json!({"memory": "1Gi"}), &json!({"memory": "1G"})));
        assert!(!is_part_of(&json!({"name": "a"}), &json!({"name": "b"})));
    }
}
