//! The end of namespaces: deletes what a Terminating namespace holds, waits for finalizers and grace periods, then
//! lets the namespace go.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as core;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::kinds::Kind;
use super::sets::has_code;

/// Namespaces ended at the same time.
const NAMESPACES_AT_ONCE: u16 = 4;
/// Pause between two looks at what a namespace still holds.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The finalizer in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";

/// A failure to end a namespace.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("listing {kind}")]
    List { kind: String, source: kube::Error },
    #[error("deleting {kind} {name}")]
    Delete { kind: String, name: String, source: kube::Error },
    #[error("finalizing the namespace")]
    Finalize(#[source] kube::Error),
    #[error("building the request to finalize the namespace")]
    Request(#[source] http::Error),
}

struct Context {
    client: Client,
    kinds: Vec<Kind>,
}

/// Runs until `shutdown`.
pub async fn run(client: Client, kinds: Vec<Kind>, shutdown: CancellationToken) {
    let config = controller::Config::default().concurrency(NAMESPACES_AT_ONCE);
    Controller::new(Api::<core::Namespace>::all(client.clone()), watcher::Config::default())
        .with_config(config)
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, on_error, Arc::new(Context { client, kinds }))
        .for_each(|_| std::future::ready(()))
        .await;
}

fn on_error(namespace: Arc<core::Namespace>, error: &Error, _: Arc<Context>) -> Action {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!("namespace {name}: {}; it is tried again", crate::log::chain(error));
    Action::requeue(LOOK_AGAIN)
}

async fn reconcile(namespace: Arc<core::Namespace>, context: Arc<Context>) -> Result<Action, Error> {
    if namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Action::await_change());
    }
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Action::await_change());
    }
    let name = namespace.metadata.name.clone().unwrap_or_default();
    let mut left = 0_usize;
    for kind in context.kinds.iter().filter(|kind| kind.namespaced && kind.can_be_collected) {
        left += empty(&context.client, &name, kind).await?;
    }
    if left > 0 {
        tracing::debug!("namespace {name}: waiting for {left} objects to go");
        return Ok(Action::requeue(LOOK_AGAIN));
    }
    finalize(&context.client, &namespace, &name).await?;
    Ok(Action::await_change())
}

/// Deletes all objects of a kind that are not being deleted yet; returns how many were there.
async fn empty(client: &Client, namespace: &str, kind: &Kind) -> Result<usize, Error> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::namespaced_with(client.clone(), namespace, &kind.resource);
    let label = || kind.resource.plural.clone();
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects.items,
        Err(error) if has_code(&error, &[404, 405]) => return Ok(0),
        Err(source) => return Err(Error::List { kind: label(), source }),
    };
    for object in objects.iter().filter(|object| object.metadata.deletion_timestamp.is_none()) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let preconditions = Some(Preconditions { uid: object.metadata.uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match api.delete(&name, &params).await {
            Ok(_) => {}
            Err(error) if has_code(&error, &[404, 409]) => {}
            Err(source) => return Err(Error::Delete { kind: label(), name, source }),
        }
    }
    Ok(objects.len())
}

async fn finalize(client: &Client, namespace: &core::Namespace, name: &str) -> Result<(), Error> {
    let mut namespace = namespace.clone();
    if let Some(spec) = &mut namespace.spec {
        spec.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
    }
    let body = serde_json::to_vec(&namespace).map_err(|error| Error::Finalize(kube::Error::SerdeError(error)))?;
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(Error::Request)?;
    match client.request::<core::Namespace>(request).await {
        Ok(_) => Ok(()),
        Err(error) if has_code(&error, &[404, 409]) => Ok(()),
        Err(error) => Err(Error::Finalize(error)),
    }
}
