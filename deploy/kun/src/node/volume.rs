//! Volumes of a pod, pure: which directory stands for which mount path, and how paths in the container's environment
//! are translated. The node has no mount namespace, so a path inside the container becomes the real path before the
//! process sees it. It must not touch the file system: `project.rs` does.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1 as core;

use super::machine::Waiting;
use super::record::is_safe_name;

/// Most volumes of a pod.
const VOLUMES_MAX: usize = 32;

/// Where a volume's content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the pod's own, gone with it.
    Empty,
    /// A claim's directory, which outlives the pod.
    Claim {
        /// Name of the claim.
        name: String,
    },
    /// Files from a ConfigMap.
    ConfigMap(Keys),
    /// Files from a Secret.
    Secret(Keys),
    /// A directory of the machine.
    Host {
        /// Whether it may be created.
        create: bool,
    },
}

/// Which keys of an object become which files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Name of the ConfigMap or Secret.
    pub name: String,
    /// Whether its absence is accepted.
    pub optional: bool,
    /// (key, relative path); empty: every key under its own name.
    pub items: Vec<(String, String)>,
}

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// Its content.
    pub source: Source,
    /// Its real directory.
    pub directory: PathBuf,
}

/// Directories a pod may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The pod's own directory.
    pub pod: PathBuf,
    /// A short one for memory-backed volumes: sockets lie there, and a socket's path has 107 bytes at most.
    pub run: PathBuf,
    /// The directory of all claims.
    pub claims: PathBuf,
}

/// Directory name of a claim.
#[must_use]
pub fn claim_directory(namespace: &str, claim: &str) -> String {
    format!("{namespace}_{claim}")
}

/// Lays out the volumes of a pod.
pub fn lay_out(namespace: &str, spec: &core::PodSpec, places: &Places) -> Result<Vec<Volume>, Waiting> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    if volumes.len() > VOLUMES_MAX {
        return Err(refused(format!(
            "the pod has {} volumes; the standalone node allows {VOLUMES_MAX}",
            volumes.len()
        )));
    }
    volumes.iter().map(|volume| lay_out_one(namespace, volume, places)).collect()
}

fn lay_out_one(namespace: &str, volume: &core::Volume, places: &Places) -> Result<Volume, Waiting> {
    let name = volume.name.clone();
    if !is_safe_name(&name) {
        return Err(refused(format!("volume name {name:?} is not a DNS name")));
    }
    let own = places.pod.join("mounts").join(&name);
    let (source, directory) = if let Some(empty) = &volume.empty_dir {
        let memory = empty.medium.as_deref() == Some("Memory");
        (Source::Empty, if memory { places.run.join(&name) } else { own })
    } else if let Some(claim) = &volume.persistent_volume_claim {
        if !is_safe_name(&claim.claim_name) {
            return Err(refused(format!("volume {name}: claim name {:?} is not a DNS name", claim.claim_name)));
        }
        let directory = places.claims.join(claim_directory(namespace, &claim.claim_name));
        (Source::Claim { name: claim.claim_name.clone() }, directory)
    } else if let Some(map) = &volume.config_map {
        (Source::ConfigMap(keys(&name, Some(&map.name), map.optional, map.items.as_deref())?), own)
    } else if let Some(secret) = &volume.secret {
        (Source::Secret(keys(&name, secret.secret_name.as_ref(), secret.optional, secret.items.as_deref())?), own)
    } else if let Some(host) = &volume.host_path {
        let (create, path) = host_path(&name, host)?;
        (Source::Host { create }, path)
    } else {
        return Err(refused(format!(
            "volume {name}: the standalone node knows emptyDir, persistentVolumeClaim, configMap, secret and hostPath"
        )));
    };
    Ok(Volume { name, source, directory })
}

fn keys(
    volume: &str,
    name: Option<&String>,
    optional: Option<bool>,
    items: Option<&[core::KeyToPath]>,
) -> Result<Keys, Waiting> {
    let name = name.filter(|name| is_safe_name(name));
    let Some(name) = name else {
        return Err(refused(format!("volume {volume} does not name its ConfigMap or Secret by a DNS name")));
    };
    let items: Vec<(String, String)> =
        items.unwrap_or_default().iter().map(|item| (item.key.clone(), item.path.clone())).collect();
    for (_, path) in &items {
        if !is_inside(path) {
            return Err(refused(format!(
                "volume {volume}: item path {path:?} must be relative and stay inside the volume"
            )));
        }
    }
    Ok(Keys { name: name.clone(), optional: optional.unwrap_or(false), items })
}

fn host_path(volume: &str, host: &core::HostPathVolumeSource) -> Result<(bool, PathBuf), Waiting> {
    let path = PathBuf::from(&host.path);
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && !host.path.chars().any(char::is_control);
    if !plain {
        return Err(refused(format!("volume {volume}: hostPath {:?} must be an absolute path without ..", host.path)));
    }
    match host.type_.as_deref().unwrap_or_default() {
        "" | "Directory" => Ok((false, path)),
        "DirectoryOrCreate" => Ok((true, path)),
        other => Err(refused(format!(
            "volume {volume}: hostPath type {other:?} is not supported; use Directory or DirectoryOrCreate"
        ))),
    }
}

/// Whether a relative path names something inside its directory.
#[must_use]
pub fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= 512
        && !path.chars().any(char::is_control)
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        && !path.starts_with("..")
}

fn refused(message: String) -> Waiting {
    Waiting { reason: "CreateContainerConfigError".to_owned(), message }
}

/// Translates paths inside the container into real ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<(String, PathBuf)>);

impl Mounts {
    /// The mounts of a container, and the file its termination message goes to.
    pub fn new(container: &core::Container, volumes: &[Volume], termination_log: &Path) -> Result<Self, Waiting> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.as_deref().unwrap_or_default() {
            mounts.push(translate(mount, volumes)?);
        }
        let message_path = container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG);
        mounts.push((message_path.to_owned(), termination_log.to_path_buf()));
        // The longest prefix wins, as nested mounts do.
        mounts.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        Ok(Self(mounts))
    }

    /// The text with a mounted path at its beginning, or after its first `=`, replaced by the real one.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        if let Some(real) = self.real(text) {
            return real;
        }
        match text.split_once('=') {
            Some((key, value)) => self.real(value).map_or_else(|| text.to_owned(), |real| format!("{key}={real}")),
            None => text.to_owned(),
        }
    }

    fn real(&self, text: &str) -> Option<String> {
        self.0.iter().find_map(|(mount, real)| {
            let rest = text.strip_prefix(mount.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{}{rest}", real.display()))
        })
    }
}

/// Kubernetes' default for `terminationMessagePath`.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

fn translate(mount: &core::VolumeMount, volumes: &[Volume]) -> Result<(String, PathBuf), Waiting> {
    let path = mount.mount_path.trim_end_matches('/');
    if !path.starts_with('/') || path.len() < 2 {
        return Err(refused(format!("mount path {:?} must be absolute and not the root", mount.mount_path)));
    }
    let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else {
        return Err(refused(format!("mount {path} names volume {:?}, which the pod does not have", mount.name)));
    };
    if mount.sub_path_expr.is_some() {
        return Err(refused(format!("mount {path}: subPathExpr is not supported by the standalone node")));
    }
    match mount.sub_path.as_deref().filter(|sub| !sub.is_empty()) {
        None => Ok((path.to_owned(), volume.directory.clone())),
        Some(sub) if is_inside(sub) => Ok((path.to_owned(), volume.directory.join(sub))),
        Some(sub) => Err(refused(format!("mount {path}: subPath {sub:?} must stay inside the volume"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn places() -> Places {
        Places { pod: "/d/node/pods/p".into(), run: "/d/node/run/r".into(), claims: "/d/node/volumes".into() }
    }

    fn spec(volumes: serde_json::Value) -> core::PodSpec {
        serde_json::from_value(json!({"containers": [], "volumes": volumes})).unwrap()
    }

    #[test]
    fn each_source_gets_its_directory() {
        let spec = spec(json!([
            {"name": "bin", "emptyDir": {}},
            {"name": "run", "emptyDir": {"medium": "Memory"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-a-0"}},
            {"name": "config", "configMap": {"name": "a-config"}},
            {"name": "auth", "secret": {"secretName": "a-auth", "items": [{"key": "password", "path": "p/w"}]}},
            {"name": "host", "hostPath": {"path": "/srv/backup", "type": "DirectoryOrCreate"}},
        ]));
        let volumes = lay_out("default", &spec, &places()).unwrap();
        let directories: Vec<&str> = volumes.iter().map(|v| v.directory.to_str().unwrap()).collect();
        assert_eq!(
            directories,
            [
                "/d/node/pods/p/mounts/bin",
                "/d/node/run/r/run",
                "/d/node/volumes/default_data-a-0",
                "/d/node/pods/p/mounts/config",
                "/d/node/pods/p/mounts/auth",
                "/srv/backup"
            ]
        );
        let expected = Keys { name: "a-auth".into(), optional: false, items: vec![("password".into(), "p/w".into())] };
        assert_eq!(volumes[4].source, Source::Secret(expected));
    }

    #[test]
    fn a_path_that_would_leave_its_place_is_refused_with_its_name() {
        for (volume, part) in [
            (json!({"name": "x", "hostPath": {"path": "relative"}}), "absolute"),
            (json!({"name": "x", "hostPath": {"path": "/srv/../etc"}}), "without .."),
            (json!({"name": "x", "hostPath": {"path": "/srv\n/etc"}}), "absolute"),
            (json!({"name": "x", "hostPath": {"path": "/dev/kvm", "type": "CharDevice"}}), "CharDevice"),
            (json!({"name": "x", "secret": {"secretName": "../../etc"}}), "DNS name"),
            (json!({"name": "x", "configMap": {"name": "c", "items": [{"key": "k", "path": "../k"}]}}), "inside"),
            (json!({"name": "x", "configMap": {"name": "c", "items": [{"key": "k", "path": "/k"}]}}), "inside"),
            (json!({"name": "x", "persistentVolumeClaim": {"claimName": "a/../../b"}}), "DNS name"),
            (json!({"name": "../x", "emptyDir": {}}), "DNS name"),
            (json!({"name": "x", "nfs": {"server": "s", "path": "/"}}), "knows emptyDir"),
        ] {
            let refusal = lay_out("default", &spec(json!([volume])), &places()).unwrap_err();
            assert!(refusal.message.contains(part), "{volume}: {}", refusal.message);
            assert_eq!(refusal.reason, "CreateContainerConfigError");
        }
    }

    fn mounts() -> Mounts {
        let spec = spec(json!([{"name": "data", "emptyDir": {}}, {"name": "nested", "emptyDir": {}}]));
        let volumes = lay_out("default", &spec, &places()).unwrap();
        let container: core::Container = serde_json::from_value(json!({"name": "redis", "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "nested", "mountPath": "/data/nested/"},
            {"name": "data", "mountPath": "/etc/x", "subPath": "sub"},
        ]}))
        .unwrap();
        Mounts::new(&container, &volumes, Path::new("/d/node/pods/p/termination-log")).unwrap()
    }

    #[test]
    fn a_mounted_path_becomes_the_real_one_and_the_longest_mount_wins() {
        for (text, expected) in [
            ("/data", "/d/node/pods/p/mounts/data"),
            ("/data/", "/d/node/pods/p/mounts/data/"),
            ("/data/nested/a", "/d/node/pods/p/mounts/nested/a"),
            ("/database", "/database"),
            ("--dir=/data/a", "--dir=/d/node/pods/p/mounts/data/a"),
            ("/etc/x/f", "/d/node/pods/p/mounts/data/sub/f"),
            ("/dev/termination-log", "/d/node/pods/p/termination-log"),
            ("see /data", "see /data"),
            ("", ""),
        ] {
            assert_eq!(mounts().apply(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mount_of_nothing_or_outside_its_volume_is_refused() {
        for mount in [
            json!({"name": "none", "mountPath": "/x"}),
            json!({"name": "data", "mountPath": "x"}),
            json!({"name": "data", "mountPath": "/"}),
            json!({"name": "data", "mountPath": "/x", "subPath": "../up"}),
            json!({"name": "data", "mountPath": "/x", "subPathExpr": "$(A)"}),
        ] {
            let spec = spec(json!([{"name": "data", "emptyDir": {}}]));
            let volumes = lay_out("default", &spec, &places()).unwrap();
            let container = serde_json::from_value(json!({"name": "c", "volumeMounts": [mount]})).unwrap();
            assert!(Mounts::new(&container, &volumes, Path::new("/t")).is_err(), "{mount}");
        }
    }
}
