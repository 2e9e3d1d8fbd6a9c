//! Makes Kubernetes hold what was built: creates what is missing, applies what differs. Deletes nothing but disruption budgets, which
//! protect what is no longer there, and a NetworkPolicy that is not wanted any more.
//!
//! What others add is no difference (`differs`), and it stays: a change is a server-side apply, by force and of all that we ask for, so
//! the API server puts right what is ours, takes away what we stop asking for and leaves the rest. The size of a StatefulSet is only
//! ever raised here; lowering it, and retiring StatefulSets, are steps of the plan. At rest it writes nothing.
//!
//! Of a cluster that runs, an object that cannot be written (somebody else's webhook fails, a quota is used up, somebody else has the name)
//! stops nothing else: it is told, and asked for again now and then.

pub(crate) mod claims;
mod differs;
mod growth;
mod hand;
mod owners;
mod repairs;
mod walls;

use std::time::Instant;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use types::names;

use crate::api::{self, Kubernetes};
use crate::build::{self, ANNOTATION_DIGEST, Objects};
use crate::cache::Cached;
use crate::gather::Gathered;
use crate::resolve::Resolved;

pub use differs::is_part_of;
use hand::Hand;
pub use repairs::{PAUSE, Repairs};

/// What is so while pods lack what their template is written with.
const SETS_STAY: &str = ", and StatefulSets stay as they are";

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
    /// An object of ours was not seen, for want of the labels by which it is found.
    #[error("{kind} {name} lacks labels of ours, without which it is not seen; they are put back")]
    Hidden {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// What is wanted cannot be told apart from what was.
    #[error(transparent)]
    Build(#[from] build::Error),
    /// Our own types do not serialize: a fault of this program.
    #[error("writing {kind} {name} as JSON")]
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
    /// Objects changed.
    pub changed: Vec<String>,
    /// Of these, such as others had changed: with who they are, as far as the API server knows.
    pub repaired: Vec<String>,
    /// Objects deleted.
    pub deleted: Vec<String>,
    /// Objects that differ and were made the same just now: they are put right again later.
    pub put_off: Vec<String>,
    /// What Kubernetes refuses and nothing else waits for, as sentences.
    pub refused: Vec<String>,
    /// What pods are made with is not what it should be.
    pub lacks_needs: bool,
}

impl Error {
    /// It says something of one object, and nothing of the others: that it has not changed since it was seen, and that this controller is sound
    /// and leads.
    fn is_of_one_object(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::Api(api::Error::Refused { .. } | api::Error::Request { .. }) => true,
            // Without passwords in use, or members that are there, all that follows would be computed wrongly.
            Self::Hidden { kind, .. } => kind != "Secret" && kind != "StatefulSet",
            Self::Api(api::Error::Changed { .. } | api::Error::NotLeading { .. })
            | Self::Build(_)
            | Self::Json { .. } => false,
        }
    }
}

/// Creates and changes until Kubernetes holds what was built. The pods' needs come before the pods.
///
/// # Errors
/// Before the first StatefulSet is there: at the first object that cannot be written. Later when the caches are behind, or members cannot be
/// asked for want of a Secret. The next reconcile goes on from there.
pub async fn apply(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    resolved: &Resolved,
    desired: Objects,
    repairs: &mut Repairs,
    now: Instant,
) -> Result<Applied, Error> {
    let Objects { secrets, config_map, services, network_policy, stateful_sets, budgets } = desired;
    let owner = Owner { uid: &resolved.uid, inherits: false };
    let heir = Owner { inherits: inherits(gathered, &resolved.uid), ..owner };
    let runs = gathered.stateful_sets.values().any(|set| owner_uid(&**set) == Some(owner.uid));
    let mut hand = Hand::new(kubernetes, repairs, now, runs);
    let mut has_needs = true;
    let internal = names::internal_secret(&resolved.key.name);
    for secret in &secrets {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let is_there = gathered.secrets.get(name).is_some_and(|live| owner_uid(&**live) == Some(owner.uid));
        if name == internal && !is_there {
            // What members are asked with is in it, and nobody knows that but us: none could be asked.
            hand.one(&gathered.secrets, secret, heir, |_, _| ()).await?;
        } else {
            has_needs &= hand.tried(&gathered.secrets, secret, heir, |_, _| (), SETS_STAY).await?;
        }
    }
    has_needs &= hand.tried(&gathered.config_maps, &config_map, owner, |_, _| (), SETS_STAY).await?;
    for service in &services {
        hand.tried(&gathered.services, service, owner, |_, _| (), "").await?;
    }
    // Before the pods: nobody is at their doors before the walls stand.
    if let Some(policy) = &network_policy {
        hand.tried(&gathered.network_policies, policy, owner, |_, _| (), walls::AS_BEFORE).await?;
    }
    // A pod that is made anew from a template must find what that was written with.
    for set in stateful_sets.into_iter().filter(|_| has_needs) {
        let Some(set) = claims::admit(&mut hand, gathered, set).await? else { continue };
        hand.tried(&gathered.stateful_sets, &set, owner, keep_size_and_claims, "").await?;
    }
    for budget in &budgets {
        hand.tried(&gathered.budgets, budget, owner, |_, _| (), "").await?;
    }
    walls::remove(&mut hand, gathered, network_policy.as_ref(), owner).await?;
    for budget in idle_budgets(gathered, &budgets, owner) {
        hand.deleted(budget, "").await?;
    }
    growth::grow(&mut hand, gathered, resolved).await?;
    Ok(Applied { lacks_needs: !has_needs, ..hand.applied })
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
            // One field of an object that else is to stay as it is, which an apply cannot do.
            let record = json!({"metadata": {"annotations": {names::ANNOTATION_OWNER: record}}});
            kubernetes.patch("recording the owner on", &**live, record).await?;
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

/// uid of the RedisCluster an object belongs to.
pub fn owner_uid<K: Cached>(object: &K) -> Option<&str> {
    annotation(object, names::ANNOTATION_OWNER_UID)
}

fn annotation<'a, K: Cached>(object: &'a K, name: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(name).map(String::as_str)
}

/// A StatefulSet never becomes smaller here, and its claim templates cannot be changed by anybody: to leave out what we own would be to
/// ask for its removal, so what cannot be changed is applied as it is. (A Service's addresses were never ours, but for the headless
/// one's "None".)
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
    if annotation(desired, ANNOTATION_DIGEST) != annotation(live, ANNOTATION_DIGEST) {
        return Ok(true);
    }
    Ok(!is_part_of(&value(desired)?, &value(live)?))
}

fn value<K: Cached>(object: &K) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|source| Error::Json {
        kind: K::kind(&()).into_owned(),
        name: object.meta().name.clone().unwrap_or_default(),
        source,
    })
}

/// Kind and name.
pub(crate) fn label<K: Cached>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.meta().name.as_deref().unwrap_or_default())
}
