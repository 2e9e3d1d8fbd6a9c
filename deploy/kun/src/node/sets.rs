//! StatefulSets: gathers a set and its pods, plans (`set_plan.rs`), applies, reports the status when it changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::set_plan::{self, Plan};

/// Sets reconciled at the same time: each round is a handful of requests.
const SETS_AT_ONCE: u16 = 8;
/// How often it is looked whether the claims of pods that have not begun are there: the claims of a namespace are not watched.
const PENDING: Duration = Duration::from_secs(2);
/// Pause after a failed round.
const RETRY: Duration = Duration::from_millis(500);

/// A failure in a round.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("gathering the set and its pods")]
    Gather(#[source] kube::Error),
    #[error("creating {kind} {name}")]
    Create { kind: &'static str, name: String, source: kube::Error },
    #[error("deleting pod {name}")]
    Delete { name: String, source: kube::Error },
    #[error("reporting the set's status")]
    Report(#[source] kube::Error),
}

/// Runs until `shutdown`.
pub async fn run(client: Client, shutdown: CancellationToken) {
    let config = controller::Config::default().concurrency(SETS_AT_ONCE);
    Controller::new(Api::<apps::StatefulSet>::all(client.clone()), watcher::Config::default())
        .owns(Api::<core::Pod>::all(client.clone()), watcher::Config::default())
        .with_config(config)
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, on_error, Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

fn on_error(set: Arc<apps::StatefulSet>, error: &Error, _: Arc<Client>) -> Action {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!("statefulset {name}: {}; it is tried again", crate::log::chain(error));
    Action::requeue(RETRY)
}

async fn reconcile(seen: Arc<apps::StatefulSet>, client: Arc<Client>) -> Result<Action, Error> {
    let namespace = seen.metadata.namespace.clone().unwrap_or_default();
    let name = seen.metadata.name.clone().unwrap_or_default();
    // Live, not from the cache: a decision to delete a pod is never made on what was true a moment ago.
    let sets: Api<apps::StatefulSet> = Api::namespaced((*client).clone(), &namespace);
    let Some(set) = sets.get_opt(&name).await.map_err(Error::Gather)? else { return Ok(Action::await_change()) };
    let (pods, claims) = gather(&client, &namespace, &set).await?;
    let plan = set_plan::plan(&set, &pods.iter().collect::<Vec<_>>(), &claims);
    apply(&client, &namespace, &plan).await?;
    report(&sets, &name, &set, &plan).await?;
    Ok(if plan.pending { Action::requeue(PENDING) } else { Action::await_change() })
}

async fn gather(
    client: &Client,
    namespace: &str,
    set: &apps::StatefulSet,
) -> Result<(Vec<core::Pod>, BTreeSet<String>), Error> {
    let pods: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await.map_err(Error::Gather)?.items;
    let templates =
        set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_ref()).is_some_and(|all| !all.is_empty());
    if !templates {
        return Ok((pods, BTreeSet::new()));
    }
    let claims: Api<core::PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claims = claims.list_metadata(&ListParams::default()).await.map_err(Error::Gather)?;
    Ok((pods, claims.items.into_iter().filter_map(|claim| claim.metadata.name).collect()))
}

async fn apply(client: &Client, namespace: &str, plan: &Plan) -> Result<(), Error> {
    let pods: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    let claims: Api<core::PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    for (name, uid) in &plan.delete {
        let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match pods.delete(name, &params).await {
            Ok(_) => {}
            Err(error) if has_code(&error, &[404, 409]) => {}
            Err(source) => return Err(Error::Delete { name: name.clone(), source }),
        }
    }
    for claim in &plan.claims {
        create(&claims, "persistentvolumeclaim", claim).await?;
    }
    for pod in &plan.create {
        create(&pods, "pod", pod).await?;
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, kind: &'static str, object: &K) -> Result<(), Error>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        // It is there already, or its namespace is going (403): the next event tells more.
        Err(error) if has_code(&error, &[403, 409]) => {
            tracing::debug!("not creating {kind}: {error}");
            Ok(())
        }
        Err(source) => Err(Error::Create { kind, name: object.meta().name.clone().unwrap_or_default(), source }),
    }
}

async fn report(sets: &Api<apps::StatefulSet>, name: &str, set: &apps::StatefulSet, plan: &Plan) -> Result<(), Error> {
    if set.status.as_ref() == Some(&plan.status) {
        return Ok(());
    }
    let patch = serde_json::json!({"metadata": {"uid": set.metadata.uid}, "status": plan.status});
    match sets.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if has_code(&error, &[404, 409]) => Ok(()),
        Err(error) => Err(Error::Report(error)),
    }
}

/// Whether an API error carries one of these codes.
pub(super) fn has_code(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}
