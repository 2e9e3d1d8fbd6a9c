//! Claims: each is bound at once to a directory of its own; the directory goes only when the claim was deleted through
//! the API and no pod uses it. Absence of a claim deletes nothing: a lost store must not cost anybody data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::context::Layout;
use super::record::{is_safe_name, write_atomically};
use super::sets::has_code;
use super::volume::claim_directory;

/// Keeps a claim until its directory is gone; the name is Kubernetes' own.
pub const FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Claims handled at the same time.
const CLAIMS_AT_ONCE: u16 = 8;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Longest directory name; file systems allow 255 bytes and the mark beside it needs a few.
const NAME_MAX: usize = 240;

/// A failure to serve a claim.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("gathering the pods that use the claim")]
    Gather(#[source] kube::Error),
    #[error("preparing the directory {path}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("removing the directory {path}")]
    Remove { path: PathBuf, source: std::io::Error },
    #[error("writing the claim")]
    Write(#[source] kube::Error),
    #[error("the claim's name makes a path of more than {NAME_MAX} bytes, or is not a plain name")]
    Name,
}

/// What a claim needs: pure.
#[derive(Clone, Debug, PartialEq)]
enum Need {
    /// Nothing.
    Nothing,
    /// Its protection first.
    Protect,
    /// A directory, then this status.
    Bind(Box<core::PersistentVolumeClaimStatus>),
    /// It is deleted and unused: directory and finalizer go.
    Release,
}

fn need(claim: &core::PersistentVolumeClaim, used: bool) -> Need {
    let protected = claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    if claim.metadata.deletion_timestamp.is_some() {
        return if protected && !used { Need::Release } else { Need::Nothing };
    }
    if !protected {
        return Need::Protect;
    }
    let spec = claim.spec.as_ref();
    let capacity: Option<BTreeMap<String, Quantity>> = spec
        .and_then(|spec| spec.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref())
        .and_then(|requests| requests.get("storage"))
        .map(|size| BTreeMap::from([("storage".to_owned(), size.clone())]));
    let status = core::PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        access_modes: spec.and_then(|spec| spec.access_modes.clone()),
        // A directory has the size of its disk; growing a claim is therefore always done at once.
        capacity,
        ..core::PersistentVolumeClaimStatus::default()
    };
    if claim.status.as_ref() == Some(&status) { Need::Nothing } else { Need::Bind(Box::new(status)) }
}

/// Whether a pod that has not run its course names the claim.
fn uses(pod: &core::Pod, claim: &str) -> bool {
    let over = matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    !over && claims_of(pod).any(|name| name == claim)
}

fn claims_of(pod: &core::Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|source| source.claim_name.as_str())
}

struct Context {
    client: Client,
    layout: Layout,
}

/// Runs until `shutdown`.
pub async fn run(client: Client, layout: Layout, shutdown: CancellationToken) {
    let config = controller::Config::default().concurrency(CLAIMS_AT_ONCE);
    let context = Arc::new(Context { client: client.clone(), layout });
    Controller::new(Api::<core::PersistentVolumeClaim>::all(client.clone()), watcher::Config::default())
        .watches(Api::<core::Pod>::all(client), watcher::Config::default(), |pod: core::Pod| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            claims_of(&pod).map(|name| ObjectRef::new(name).within(&namespace)).collect::<Vec<_>>()
        })
        .with_config(config)
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, on_error, context)
        .for_each(|_| std::future::ready(()))
        .await;
}

fn on_error(claim: Arc<core::PersistentVolumeClaim>, error: &Error, _: Arc<Context>) -> Action {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    tracing::warn!("persistentvolumeclaim {name}: {}; it is tried again", crate::log::chain(error));
    Action::requeue(RETRY)
}

async fn reconcile(claim: Arc<core::PersistentVolumeClaim>, context: Arc<Context>) -> Result<Action, Error> {
    let meta = &claim.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let uid = meta.uid.as_deref().unwrap_or_default();
    let directory_name = claim_directory(namespace, name);
    if !is_safe_name(namespace) || !is_safe_name(name) || !is_safe_name(uid) || directory_name.len() > NAME_MAX {
        return Err(Error::Name);
    }
    let api: Api<core::PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let used = match meta.deletion_timestamp {
        Some(_) => is_used(&context.client, namespace, name).await?,
        None => false,
    };
    let written = match need(&claim, used) {
        Need::Nothing => return Ok(Action::await_change()),
        Need::Protect => {
            let mut finalizers = meta.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            patch_finalizers(&api, &claim, name, finalizers).await
        }
        Need::Bind(status) => {
            provide(&context.layout, &directory_name, uid)?;
            let patch = serde_json::json!({"metadata": {"uid": uid}, "status": status});
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
        Need::Release => {
            release(&context.layout, &directory_name, uid)?;
            let finalizers = meta.finalizers.iter().flatten().filter(|f| *f != FINALIZER).cloned().collect();
            patch_finalizers(&api, &claim, name, finalizers).await
        }
    };
    match written {
        Ok(()) => Ok(Action::await_change()),
        Err(error) if has_code(&error, &[404]) => Ok(Action::await_change()),
        // Somebody else wrote it: the watch brings their version.
        Err(error) if has_code(&error, &[409]) => Ok(Action::requeue(RETRY)),
        Err(error) => Err(Error::Write(error)),
    }
}

async fn patch_finalizers(
    api: &Api<core::PersistentVolumeClaim>,
    claim: &core::PersistentVolumeClaim,
    name: &str,
    finalizers: Vec<String>,
) -> Result<(), kube::Error> {
    let patch = serde_json::json!({"metadata": {
        "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "finalizers": finalizers}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn is_used(client: &Client, namespace: &str, claim: &str) -> Result<bool, Error> {
    let pods: Api<core::Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await.map_err(Error::Gather)?;
    Ok(pods.items.iter().any(|pod| uses(pod, claim)))
}

/// The file beside a claim's directory that says whose it is.
fn mark(layout: &Layout, name: &str) -> PathBuf {
    layout.claims.join(format!(".{name}.uid"))
}

/// Makes the claim's directory. One that belongs to another claim of that name is kept aside, not handed on.
fn provide(layout: &Layout, name: &str, uid: &str) -> Result<(), Error> {
    let path = layout.claims.join(name);
    let failed = |source| Error::Directory { path: path.clone(), source };
    let owner = std::fs::read_to_string(mark(layout, name)).unwrap_or_default();
    if path.exists() && owner.trim() != uid {
        let aside = set_aside(&layout.lost, name, owner.trim());
        tracing::warn!(
            "{} holds data of another claim of that name; it is kept in {}",
            path.display(),
            aside.display()
        );
        std::fs::rename(&path, aside).map_err(failed)?;
    }
    write_atomically(&mark(layout, name), uid.as_bytes()).map_err(failed)?;
    super::project::directory(&path).map_err(|error| failed(std::io::Error::other(error)))
}

fn set_aside(lost: &Path, name: &str, owner: &str) -> PathBuf {
    let owner = if is_safe_name(owner) { owner } else { "unknown" };
    let first = lost.join(format!("{name}.{owner}"));
    if !first.exists() {
        return first;
    }
    (1_u32..).map(|n| lost.join(format!("{name}.{owner}.{n}"))).find(|path| !path.exists()).unwrap_or(first)
}

/// Removes the directory of a claim that was deleted; another claim's directory is left alone.
fn release(layout: &Layout, name: &str, uid: &str) -> Result<(), Error> {
    let path = layout.claims.join(name);
    let mark = mark(layout, name);
    let owner = std::fs::read_to_string(&mark).unwrap_or_default();
    if owner.trim() != uid {
        return Ok(());
    }
    for result in [std::fs::remove_dir_all(&path), std::fs::remove_file(&mark)] {
        match result {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(Error::Remove { path, source }),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn claim(patch: serde_json::Value) -> core::PersistentVolumeClaim {
        let mut base = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        json_merge(&mut base, patch);
        serde_json::from_value(base).unwrap()
    }

    fn json_merge(into: &mut serde_json::Value, from: serde_json::Value) {
        match (into, from) {
            (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
                for (key, value) in from {
                    json_merge(into.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn a_claim_is_protected_then_bound_then_at_rest() {
        assert_eq!(need(&claim(json!({})), false), Need::Protect);
        let protected = json!({"metadata": {"finalizers": [FINALIZER]}});
        let Need::Bind(status) = need(&claim(protected.clone()), false) else { panic!() };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})
        );
        let mut bound = claim(protected);
        bound.status = Some(*status);
        assert_eq!(need(&bound, false), Need::Nothing);
        bound
            .spec
            .as_mut()
            .unwrap()
            .resources
            .as_mut()
            .unwrap()
            .requests
            .as_mut()
            .unwrap()
            .insert("storage".into(), Quantity("2Gi".into()));
        assert!(matches!(need(&bound, false), Need::Bind(_)), "a claim that grows is bound anew");
    }

    #[test]
    fn a_deleted_claim_keeps_its_directory_while_a_pod_uses_it() {
        let deleted =
            claim(json!({"metadata": {"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(need(&deleted, true), Need::Nothing);
        assert_eq!(need(&deleted, false), Need::Release);
        let foreign = claim(json!({"metadata": {"finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(need(&foreign, false), Need::Nothing);
    }

    #[test]
    fn a_pod_that_has_run_its_course_uses_nothing() {
        let pod = |phase: &str| -> core::Pod {
            serde_json::from_value(json!({"spec": {"containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}, "status": {"phase": phase}})).unwrap()
        };
        assert!(uses(&pod("Running"), "c") && uses(&pod("Pending"), "c"));
        assert!(!uses(&pod("Succeeded"), "c") && !uses(&pod("Running"), "other"));
    }

    #[test]
    fn data_of_another_claim_of_the_same_name_is_kept_aside_and_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir_all(&layout.claims).unwrap();
        std::fs::create_dir_all(&layout.lost).unwrap();
        provide(&layout, "ns_c", "uid-1").unwrap();
        std::fs::write(layout.claims.join("ns_c/data"), "old").unwrap();
        provide(&layout, "ns_c", "uid-1").unwrap();
        assert_eq!(std::fs::read(layout.claims.join("ns_c/data")).unwrap(), b"old");
        release(&layout, "ns_c", "uid-2").unwrap();
        assert!(layout.claims.join("ns_c/data").exists(), "another claim's release touches nothing");
        provide(&layout, "ns_c", "uid-2").unwrap();
        assert!(!layout.claims.join("ns_c/data").exists());
        assert_eq!(std::fs::read(layout.lost.join("ns_c.uid-1/data")).unwrap(), b"old");
        release(&layout, "ns_c", "uid-2").unwrap();
        assert!(!layout.claims.join("ns_c").exists());
        release(&layout, "ns_c", "uid-2").unwrap();
    }
}
