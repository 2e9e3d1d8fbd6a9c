//! What must hold between an object and what replaces it, and before it is deleted.

use serde_json::Value;

use crate::{
    backup::{RedisBackup, RedisBackupSpec},
    cluster::{RedisCluster, RedisClusterSpec, Storage},
    field::{Fault, Path},
    operation::{OperationPhase, RedisOperation, RedisOperationSpec},
    quantity::Quantity,
    version::Version,
};

/// Faults of replacing `old` by `new`, both with defaults applied: immutable fields, shrinking, downgrades.
#[must_use]
pub fn cluster_update(new: &RedisCluster, old: &RedisCluster) -> Vec<Fault> {
    let path = Path::new("spec");
    let mut faults = Vec::new();
    if new.spec.mode != old.spec.mode {
        let why = format!("is immutable: it is {:?}, and data does not carry over", old.spec.mode);
        faults.push(Fault::invalid(path.child("mode"), format!("{:?}", new.spec.mode), why));
    }
    if new.spec.engine != old.spec.engine {
        let why = format!("is immutable: it is {:?}, and its files are not for another engine", old.spec.engine);
        faults.push(Fault::invalid(path.child("engine"), format!("{:?}", new.spec.engine), why));
    } else {
        // Versions of different engines are not comparable.
        faults.extend(downgrade(&path.child("version"), new, old));
    }
    storage(&mut faults, &path.child("storage"), &new.spec, old);
    faults
}

/// A version below what members run cannot read their files. Where it is not known what they run, the old spec stands
/// for it; where it is known, a rollout that never got anywhere may be taken back.
fn downgrade(path: &Path, new: &RedisCluster, old: &RedisCluster) -> Option<Fault> {
    if new.spec.version == old.spec.version {
        return None;
    }
    let wanted: Version = new.spec.version.parse().ok()?;
    let (present, whose) = match running(old) {
        Some(running) => (running, "that a member runs"),
        None => (old.spec.version.parse().ok()?, "of the present spec"),
    };
    // "7" says nothing about the minor version: it is held against another open one or against the major alone.
    let lower = if wanted.minor.is_some() { present.is_downgrade_to(wanted) } else { wanted.major < present.major };
    lower.then(|| {
        let why = format!(
            "must not go below {present}, the version {whose}: {:?} does not read files of a later minor version",
            old.spec.engine
        );
        Fault::invalid(path.clone(), new.spec.version.as_str(), why)
    })
}

/// The highest version any member runs, as far as it was observed.
fn running(cluster: &RedisCluster) -> Option<Version> {
    cluster.status.as_ref()?.highest_version.as_deref()?.parse().ok()
}

fn storage(faults: &mut Vec<Fault>, path: &Path, new: &RedisClusterSpec, old: &RedisCluster) {
    match (&new.storage, &old.spec.storage) {
        (None, None) => {}
        (None, Some(_)) => {
            faults.push(Fault::forbidden(
                path.clone(),
                "may not be removed: the data lies on its volumes; make a new cluster",
            ));
        }
        (Some(_), None) => {
            faults.push(Fault::forbidden(
                path.clone(),
                "may not be added: the pods' data lies elsewhere; make a new cluster",
            ));
        }
        (Some(new), Some(storage)) => volumes(faults, path, new, storage, given(old)),
    }
}

/// Volumes do not shrink. Where it is not known how large they are, the old spec stands for it; where it is known, a size that none of
/// them has been given may be taken back.
fn volumes(faults: &mut Vec<Fault>, path: &Path, new: &Storage, old: &Storage, given: Option<Quantity>) {
    if new.class_name != old.class_name {
        let value = new.class_name.clone().map_or(Value::Null, Value::String);
        let was = old.class_name.as_deref().unwrap_or("the cluster's default");
        faults.push(Fault::invalid(path.child("className"), value, format!("is immutable: it is {was}")));
    }
    if let (Ok(wanted), Ok(asked)) = (Quantity::parse(&new.size), Quantity::parse(&old.size)) {
        let least = given.filter(|given| given.bytes() < asked.bytes()).unwrap_or(asked);
        if wanted.bytes() < least.bytes() {
            let why = format!("must be at least {least}: a volume cannot shrink");
            faults.push(Fault::invalid(path.child("size"), new.size.as_str(), why));
        }
    }
}

/// What the largest volume was asked to hold, as far as it was observed.
fn given(cluster: &RedisCluster) -> Option<Quantity> {
    Quantity::parse(cluster.status.as_ref()?.volume_size.as_deref()?).ok()
}

/// Faults of replacing a RedisBackup.
#[must_use]
pub fn backup_update(new: &RedisBackup, old: &RedisBackup) -> Vec<Fault> {
    let RedisBackupSpec { cluster_name, target, deletion_policy: _, ttl_after_finished: _ } = &new.spec;
    let path = Path::new("spec");
    let mut faults = Vec::new();
    if *cluster_name != old.spec.cluster_name {
        faults.push(immutable(path.child("clusterName"), cluster_name.as_str()));
    }
    if *target != old.spec.target {
        faults.push(Fault::forbidden(path.child("target"), "is immutable"));
    }
    faults
}

/// Faults of replacing a RedisOperation.
#[must_use]
pub fn operation_update(new: &RedisOperation, old: &RedisOperation) -> Vec<Fault> {
    let RedisOperationSpec { cluster_name, failover, restart, cancel, ttl_after_finished: _ } = &new.spec;
    let path = Path::new("spec");
    let mut faults = Vec::new();
    if *cluster_name != old.spec.cluster_name {
        faults.push(immutable(path.child("clusterName"), cluster_name.as_str()));
    }
    if *failover != old.spec.failover {
        faults.push(Fault::forbidden(path.child("failover"), "is immutable"));
    }
    if *restart != old.spec.restart {
        faults.push(Fault::forbidden(path.child("restart"), "is immutable"));
    }
    // One that ended otherwise was not stopped by it.
    let had_no_effect = old.phase().has_ended() && old.phase() != OperationPhase::Cancelled;
    if old.spec.cancel && !*cancel && !had_no_effect {
        faults
            .push(Fault::forbidden(path.child("cancel"), "cannot be taken back: the controller may have acted on it"));
    }
    faults
}

fn immutable(path: Path, value: &str) -> Fault {
    Fault::invalid(path, value, "is immutable")
}

/// Whether the cluster may be deleted.
///
/// # Errors
/// The fault to answer with, when it is protected.
pub fn deletable(cluster: &RedisCluster) -> Result<(), Fault> {
    if cluster.spec.deletion.protected {
        let why = "the RedisCluster is protected from deletion; set spec.deletion.protected to false first";
        return Err(Fault::forbidden(Path::new("spec.deletion.protected"), why));
    }
    Ok(())
}
