//! Shape of a RedisBackup, and of every backup target.

use super::{Faults, text};
use crate::{
    backup::RedisBackup,
    cluster::BackupTarget,
    field::{Fault, Path},
    names::CLUSTER_NAME_MAX,
};

/// Longest name of a RedisBackup: worker pods are `<backup>-<shard>-<attempt>`, and the name is a label value (63).
const BACKUP_NAME_MAX: usize = 52;
/// Longest path of a directory target; a shard's file name is appended to it (PATH_MAX is 4096).
const PATH_LENGTH_MAX: usize = 1024;
/// Folders of the system: a backup written there could change how the node works.
const SYSTEM_FOLDERS: [&str; 15] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/run",
];

/// All faults of a RedisBackup.
#[must_use]
pub fn backup(object: &RedisBackup) -> Vec<Fault> {
    let mut faults = Faults::default();
    if let Some(name) = object.metadata.name.as_deref().filter(|name| !name.is_empty()) {
        let path = Path::new("metadata.name");
        if name.len() > BACKUP_NAME_MAX {
            let why = format!("must have at most {BACKUP_NAME_MAX} characters: worker pods are named after it");
            faults.push(Fault::invalid(path, name, why));
        } else if name.contains('.') || !text::is_subdomain(name) {
            faults.push(Fault::invalid(path, name, "must hold only lower case letters, digits and '-' (RFC 1123)"));
        }
    }
    let path = Path::new("spec");
    cluster_name(&mut faults, path.child("clusterName"), &object.spec.cluster_name);
    if let Some(given) = &object.spec.target {
        target(&mut faults, &path.child("target"), given);
    }
    faults.ttl(path.child("ttlAfterFinished"), object.spec.ttl_after_finished.as_deref());
    faults.0
}

/// The cluster an object speaks about.
pub(super) fn cluster_name(faults: &mut Faults, path: Path, name: &str) {
    if name.is_empty() {
        faults.push(Fault::required(path, "must be the name of a RedisCluster of the same namespace"));
    } else if !text::is_label(name, CLUSTER_NAME_MAX) {
        faults.push(Fault::invalid(path, name, text::LABEL));
    }
}

/// Exactly one target, with a path or name that is safe to hand to a pod.
pub(super) fn target(faults: &mut Faults, path: &Path, given: &BackupTarget) {
    let BackupTarget { directory, persistent_volume_claim } = given;
    match (directory, persistent_volume_claim) {
        (None, None) => {
            faults.push(Fault::required(path.clone(), "one of directory, persistentVolumeClaim must be given"))
        }
        (Some(_), Some(_)) => {
            faults.push(Fault::forbidden(path.clone(), "only one of directory, persistentVolumeClaim may be given"));
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    if let Some(directory) = directory {
        directory_path(faults, path.child("directory.path"), &directory.path);
    }
    if let Some(claim) = persistent_volume_claim {
        faults.reference(path.child("persistentVolumeClaim.claimName"), &claim.claim_name);
    }
}

fn directory_path(faults: &mut Faults, path: Path, directory: &str) {
    let within =
        |folder: &&&str| directory.strip_prefix(**folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if directory.is_empty() {
        faults.push(Fault::required(path, "must be an absolute path"));
    } else if directory.len() > PATH_LENGTH_MAX {
        faults.push(Fault::too_long(path, PATH_LENGTH_MAX));
    } else if !text::is_plain_path(directory) {
        faults.push(Fault::invalid(path, directory, text::PATH));
    } else if let Some(folder) = SYSTEM_FOLDERS.iter().find(within) {
        faults.push(Fault::invalid(path, directory, format!("must not lie in {folder}, which belongs to the system")));
    }
}
