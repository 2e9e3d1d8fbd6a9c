//! The node's writes to the API about pods: a status, and the end of a deletion.

use k8s_openapi::api::core::v1 as core;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};

/// A failure to write.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The status.
    #[error("writing the pod's status")]
    Status(#[source] kube::Error),
    /// The node's name.
    #[error("binding the pod to the node")]
    Bind(#[source] kube::Error),
    /// The deletion.
    #[error("completing the pod's deletion")]
    Delete(#[source] kube::Error),
}

/// Writes a pod's status. A pod that has gone, or has another uid, needs none.
pub async fn write(client: &Client, pod: &core::Pod, status: &core::PodStatus) -> Result<(), Error> {
    let (namespace, name) = coordinates(pod);
    let api: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    // The uid is a precondition: a newcomer of the same name is not given the status of its predecessor.
    let patch = serde_json::json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(Error::Status(error)),
    }
}

/// Writes the node's name into a pod.
pub async fn bind(client: &Client, pod: &core::Pod, node: &str) -> Result<core::Pod, Error> {
    let (namespace, name) = coordinates(pod);
    let api: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    let patch = serde_json::json!({"metadata": {"uid": pod.metadata.uid}, "spec": {"nodeName": node}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(Error::Bind)
}

/// Completes a deletion: the process has gone, so may the object.
pub async fn delete(client: &Client, pod: &core::Pod) -> Result<(), Error> {
    let (namespace, name) = coordinates(pod);
    let api: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(Error::Delete(error)),
    }
}

fn coordinates(pod: &core::Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}

/// 404: it has gone; 409 on a write that names no resourceVersion: its uid is another one.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}
