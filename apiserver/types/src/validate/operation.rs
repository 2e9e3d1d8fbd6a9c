//! Shape of a RedisOperation.

use std::collections::BTreeSet;

use super::{Faults, SHARDS_MAX, backup::cluster_name, text};
use crate::{
    field::{Fault, Path},
    operation::{FailoverAction, FailoverMode, RedisOperation, RestartAction},
};

/// Longest reason, a sentence or two.
const REASON_MAX: usize = 1024;

/// All faults of a RedisOperation.
#[must_use]
pub fn operation(object: &RedisOperation) -> Vec<Fault> {
    let mut faults = Faults::default();
    if let Some(name) = object.metadata.name.as_deref().filter(|name| !name.is_empty() && !text::is_subdomain(name)) {
        faults.push(Fault::invalid(Path::new("metadata.name"), name, text::SUBDOMAIN));
    }
    let path = Path::new("spec");
    cluster_name(&mut faults, path.child("clusterName"), &object.spec.cluster_name);
    match (&object.spec.failover, &object.spec.restart) {
        (None, None) => faults.push(Fault::required(path.clone(), "one of failover, restart must be given")),
        (Some(_), Some(_)) => faults.push(Fault::forbidden(path.clone(), "only one of failover, restart may be given")),
        (Some(_), None) | (None, Some(_)) => {}
    }
    if let Some(action) = &object.spec.failover {
        failover(&mut faults, &path.child("failover"), action);
    }
    if let Some(action) = &object.spec.restart {
        restart(&mut faults, &path.child("restart"), action);
    }
    faults.ttl(path.child("ttlAfterFinished"), object.spec.ttl_after_finished.as_deref());
    faults.0
}

fn failover(faults: &mut Faults, path: &Path, action: &FailoverAction) {
    let FailoverAction { shard, candidate, mode, accept_data_loss, reason } = action;
    faults.range(path.child("shard"), *shard, &(0..=SHARDS_MAX - 1), "shards are counted from 0");
    if let Some(candidate) = candidate {
        faults.reference(path.child("candidate"), candidate);
    }
    if *accept_data_loss && *mode != FailoverMode::Force {
        let why = "may be true with mode Force only: a coordinated failover loses nothing";
        faults.push(Fault::invalid(path.child("acceptDataLoss"), true, why));
    }
    faults.prose(path.child("reason"), reason.as_deref(), REASON_MAX);
}

fn restart(faults: &mut Faults, path: &Path, action: &RestartAction) {
    let RestartAction { shards, reason } = action;
    let most = usize::try_from(SHARDS_MAX).unwrap_or(usize::MAX);
    if shards.len() > most {
        faults.push(Fault::too_many(path.child("shards"), shards.len(), most));
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, shard) in shards.iter().enumerate() {
        let path = path.child("shards").index(at);
        faults.range(path.clone(), *shard, &(0..=SHARDS_MAX - 1), "shards are counted from 0");
        if !seen.insert(shard) {
            faults.push(Fault::duplicate(path, *shard));
        }
    }
    faults.prose(path.child("reason"), reason.as_deref(), REASON_MAX);
}
