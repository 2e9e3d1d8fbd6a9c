//! What must be true before a pod's process starts: the pod is one the node can run, its volumes are on disk, its
//! environment is complete. Every "no" is a reason and a sentence in the pod's status.

use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use super::context::{InNamespace, Node};
use super::environment::{self, Command, Facts};
use super::image;
use super::machine::Waiting;
use super::process::find_program;
use super::project;
use super::record::is_safe_name;
use super::volume::{self, Mounts, Places, Source, Volume};
use crate::log::chain;

/// Environment variable by which the node recognises what a pod's processes leave behind.
pub const MARK: &str = "KUN_NODE_POD";
/// Longest directory of a socket's volume: a Unix socket path has 107 bytes, the rest is for the file name.
pub const RUN_PATH_MAX: usize = 80;
/// How old a pod is from which on its claims should be there. The node looks again after as long.
const CLAIM_SECONDS: i64 = 5;

/// A pod ready to be started.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its process.
    pub command: Command,
    /// Path translation, for probes.
    pub mounts: Mounts,
    /// Its volumes, for later updates.
    pub volumes: Vec<Volume>,
}

/// Checks a pod before anything is done for it: pure.
pub fn check_shape(pod: &core::Pod) -> Result<&core::Container, Waiting> {
    let names = [pod.metadata.name.as_deref(), pod.metadata.namespace.as_deref(), pod.metadata.uid.as_deref()];
    if !names.iter().all(|name| name.is_some_and(is_safe_name)) {
        return Err(refuse(
            "CreateContainerConfigError",
            format!("name, namespace or uid of the pod are not plain names: {names:?}"),
        ));
    }
    let Some(spec) = &pod.spec else {
        return Err(refuse("CreateContainerConfigError", "the pod has no spec".to_owned()));
    };
    match spec.containers.as_slice() {
        // initContainers only copy the agent's executable; the node runs its own and skips them.
        [container] => Ok(container),
        containers => Err(refuse(
            "CreateContainerConfigError",
            format!("the pod has {} containers; the standalone node runs pods of exactly one", containers.len()),
        )),
    }
}

/// Brings everything on disk that the pod needs and builds its command.
pub fn prepare(
    node: &Node,
    pod: &core::Pod,
    places: &Places,
    address: std::net::Ipv4Addr,
) -> Result<Prepared, Waiting> {
    let container = check_shape(pod)?;
    let machinery = &node.machinery;
    let redis = image::chosen(container.image.as_deref().unwrap_or_default(), &machinery.redis)
        .map_err(|message| refuse("ErrImagePull", message))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let spec =
        pod.spec.as_ref().ok_or_else(|| refuse("CreateContainerConfigError", "the pod has no spec".to_owned()))?;
    let volumes = volume::lay_out(namespace, spec, places)?;
    let is_new = is_new(pod, Timestamp::now());
    for volume in &volumes {
        provide(node, namespace, is_new, volume)?;
    }
    let mounts = Mounts::new(container, &volumes, &places.pod.join("termination-log"))?;
    for mount in container.volume_mounts.iter().flatten().filter(|mount| mount.sub_path.is_some()) {
        provide_sub_path(&mounts.apply(&mount.mount_path))?;
    }
    let facts = Facts {
        address,
        node_name: machinery.name.clone(),
        memory: machinery.memory,
        cpu_millis: machinery.cpu_millis,
        path: redis.path(&machinery.path),
        work: places.pod.join("work"),
        own_program: machinery.own_program.clone(),
        redis_server: redis.program.clone(),
    };
    project::directory(&facts.work).map_err(|error| refuse("CreateContainerError", chain(&error)))?;
    let around = InNamespace { objects: &node.objects, namespace };
    let mut command = environment::build(pod, container, &mounts, &facts, &around)?;
    command.env.insert(MARK.to_owned(), pod.metadata.uid.clone().unwrap_or_default());
    let path = command.env.get("PATH").map_or("", String::as_str);
    if find_program(&command.program, path, &command.work).is_none() {
        return Err(refuse(
            "CreateContainerError",
            format!("program {:?} is not an executable file on this machine (PATH of pods: {path})", command.program),
        ));
    }
    Ok(Prepared { command, mounts, volumes })
}

fn provide(node: &Node, namespace: &str, is_new: bool, volume: &Volume) -> Result<(), Waiting> {
    let failed = |error: project::Error| {
        refuse("CreateContainerConfigError", format!("volume {}: {}", volume.name, chain(&error)))
    };
    match &volume.source {
        Source::Empty => {
            check_length(volume)?;
            project::directory(&volume.directory).map_err(failed)
        }
        Source::Claim { name } => {
            let claim = node.objects.claim(namespace, name);
            let Some(lack) = lack_of(claim.as_deref(), &volume.directory) else { return Ok(()) };
            let reason = if is_new { "ContainerCreating" } else { "CreateContainerConfigError" };
            Err(refuse(reason, format!("volume {}: persistentvolumeclaim {name:?} {lack}", volume.name)))
        }
        Source::ConfigMap(_) | Source::Secret(_) => refresh(node, namespace, volume),
        Source::Host { create } => {
            if *create {
                project::directory(&volume.directory).map_err(failed)?;
            }
            if volume.directory.is_dir() {
                return Ok(());
            }
            let path = volume.directory.display();
            Err(refuse(
                "CreateContainerConfigError",
                format!("volume {}: hostPath {path} is not a directory", volume.name),
            ))
        }
    }
}

/// Why a claim cannot be used.
fn lack_of(claim: Option<&core::PersistentVolumeClaim>, directory: &Path) -> Option<&'static str> {
    let Some(claim) = claim else { return Some("not found") };
    if claim.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted");
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Some("is not bound yet");
    }
    (!directory.is_dir()).then_some("has lost its directory")
}

/// A claim is made together with its pod and bound a moment later: that it is not there yet is no trouble at first.
fn is_new(pod: &core::Pod, now: Timestamp) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| now.as_second().saturating_sub(made.0.as_second()) < CLAIM_SECONDS)
}

/// Brings a volume's files up to date with its object. A volume of another kind has nothing to bring up to date.
pub fn refresh(node: &Node, namespace: &str, volume: &Volume) -> Result<(), Waiting> {
    let (kind, keys, found) = match &volume.source {
        Source::ConfigMap(keys) => ("configmap", keys, node.objects.config_map(namespace, &keys.name)),
        Source::Secret(keys) => ("secret", keys, node.objects.secret(namespace, &keys.name)),
        Source::Empty | Source::Claim { .. } | Source::Host { .. } => return Ok(()),
    };
    let failed = |error: project::Error| {
        refuse("CreateContainerConfigError", format!("volume {}: {}", volume.name, chain(&error)))
    };
    match found {
        Some((version, data)) => {
            let files = project::files(keys, &data).map_err(failed)?;
            let generation: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
            project::swap(&volume.directory, &files, &format!("v{generation}")).map_err(failed)
        }
        None if keys.optional => project::directory(&volume.directory).map_err(failed),
        None => Err(refuse("CreateContainerConfigError", format!("{kind} {:?} not found", keys.name))),
    }
}

fn check_length(volume: &Volume) -> Result<(), Waiting> {
    let length = volume.directory.as_os_str().len();
    let is_run = volume.directory.parent().and_then(Path::parent).and_then(Path::file_name) == Some("run".as_ref());
    if is_run && length > RUN_PATH_MAX {
        return Err(refuse(
            "CreateContainerConfigError",
            format!(
                "volume {}: its path has {length} bytes, {RUN_PATH_MAX} at most leave room for a socket; start kun with a shorter --data",
                volume.name
            ),
        ));
    }
    Ok(())
}

fn provide_sub_path(path: &str) -> Result<(), Waiting> {
    let path = Path::new(path);
    if path.exists() {
        Ok(())
    } else {
        project::directory(path).map_err(|error| refuse("CreateContainerConfigError", chain(&error)))
    }
}

/// A reason and a sentence.
#[must_use]
pub fn refuse(reason: &str, message: String) -> Waiting {
    Waiting { reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn pod(name: &str, containers: usize) -> core::Pod {
        let containers: Vec<_> = (0..containers).map(|n| json!({"name": format!("c{n}")})).collect();
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "ns", "uid": "u-1"}, "spec": {"containers": containers}}),
        )
        .unwrap()
    }

    #[test]
    fn a_claim_that_cannot_be_used_says_why() {
        let (here, gone) = (Path::new("/"), Path::new("/nowhere"));
        let of =
            |claim: serde_json::Value, directory| lack_of(Some(&serde_json::from_value(claim).unwrap()), directory);
        let bound = json!({"status": {"phase": "Bound"}});
        assert_eq!(lack_of(None, here), Some("not found"));
        assert_eq!(of(json!({"status": {"phase": "Pending"}}), here), Some("is not bound yet"));
        assert_eq!(of(bound.clone(), gone), Some("has lost its directory"));
        assert_eq!(of(bound, here), None);
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Bound"}});
        assert_eq!(of(going, here), Some("is being deleted"));
    }

    #[test]
    fn a_pod_is_new_for_some_seconds() {
        let mut pod = pod("a-0", 1);
        assert!(!is_new(&pod, Timestamp::UNIX_EPOCH), "one without a time is not");
        pod.metadata.creation_timestamp = serde_json::from_value(json!("1970-01-01T00:00:10Z")).unwrap();
        let at = |second| is_new(&pod, Timestamp::from_second(second).unwrap());
        assert_eq!([at(9), at(14), at(15)], [true, true, false]);
    }

    #[test]
    fn only_pods_of_one_container_with_plain_names_run() {
        assert!(check_shape(&pod("a-0", 1)).is_ok());
        assert!(check_shape(&pod("a-0", 2)).unwrap_err().message.contains("2 containers"));
        assert!(check_shape(&pod("a-0", 0)).unwrap_err().message.contains("0 containers"));
        for name in ["../../etc", "a/b", "a\nb", "a\0", "", "A;rm -rf"] {
            assert!(check_shape(&pod(name, 1)).is_err(), "{name:?}");
        }
    }
}
