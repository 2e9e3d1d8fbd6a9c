//! New records of actions: backups and operations, checked against the cluster they speak about.

use types::{
    RedisBackup, RedisCluster, RedisOperation,
    cluster::Mode,
    field::{Fault, FaultKind, Path},
    names,
    operation::FailoverAction,
    validate,
};

use super::{Objection, Verdict};
use crate::facts::Facts;

/// A new backup.
pub(super) fn backup(verdict: &mut Verdict, namespace: &str, new: &RedisBackup, facts: &Facts) {
    let faults = validate::backup(new);
    if !faults.is_empty() {
        verdict.refuse_all(Objection::Invalid, faults);
        return;
    }
    let Some(cluster) = subject(verdict, namespace, &new.spec.cluster_name, facts) else { return };
    if new.spec.target.is_none() && cluster.spec.backup.is_none() {
        let why = format!("must be given, because RedisCluster {:?} has no spec.backup.target", new.spec.cluster_name);
        verdict.refuse(Objection::Invalid, Fault::required(Path::new("spec.target"), why));
    }
    // A failover moves the primary role, which a stream from a replica survives; a restart ends the stream.
    for (name, running) in facts.unfinished(namespace, &new.spec.cluster_name) {
        if running.restarts {
            let why =
                format!("RedisOperation {name:?} is restarting members of the cluster; wait for it, or cancel it");
            verdict.refuse(Objection::Conflict, Fault::forbidden(Path::new("spec.clusterName"), why));
        }
    }
}

/// A new operation. Whether another one has not ended yet the API server knows, which decides it at the write; here it would be known
/// too late, both of one that has just been made and of one that has just ended.
pub(super) fn operation(verdict: &mut Verdict, namespace: &str, new: &RedisOperation, facts: &Facts) {
    let faults = validate::operation(new);
    if !faults.is_empty() {
        verdict.refuse_all(Objection::Invalid, faults);
        return;
    }
    let name = &new.spec.cluster_name;
    let Some(cluster) = subject(verdict, namespace, name, facts) else { return };
    if let Some(action) = &new.spec.failover {
        failover(verdict, name, action, cluster);
    }
    if let Some(action) = &new.spec.restart {
        for (at, shard) in action.shards.iter().enumerate() {
            shard_exists(verdict, Path::new("spec.restart.shards").index(at), *shard, cluster);
        }
    }
}

/// The cluster an action speaks about, refused when it is not there or goes away.
fn subject<'a>(verdict: &mut Verdict, namespace: &str, name: &str, facts: &'a Facts) -> Option<&'a RedisCluster> {
    let path = Path::new("spec.clusterName");
    let Some(cluster) = facts.clusters.get(namespace, name) else {
        let detail = format!("there is no RedisCluster of this name in namespace {namespace:?}");
        let fault = Fault { path, kind: FaultKind::NotFound, bad_value: Some(name.into()), detail };
        verdict.refuse(Objection::Invalid, fault);
        return None;
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        verdict.refuse(Objection::Conflict, Fault::forbidden(path, format!("RedisCluster {name:?} is being deleted")));
        return None;
    }
    Some(cluster)
}

fn failover(verdict: &mut Verdict, name: &str, action: &FailoverAction, cluster: &RedisCluster) {
    let path = Path::new("spec.failover");
    match cluster.spec.mode {
        Mode::Standalone => {
            verdict.refuse(Objection::Invalid, Fault::forbidden(path, "a cluster of mode Standalone has no replica"));
            return;
        }
        Mode::Cluster if cluster.spec.replicas() == 0 => {
            verdict.refuse(
                Objection::Invalid,
                Fault::forbidden(path, "the cluster has no replica (spec.replicasPerShard is 0)"),
            );
            return;
        }
        Mode::Cluster => {}
    }
    if !shard_exists(verdict, path.child("shard"), action.shard, cluster) {
        return;
    }
    let Some(candidate) = &action.candidate else { return };
    let shard = u16::try_from(action.shard).unwrap_or_default();
    let members: Vec<String> =
        (0..cluster.spec.members_per_shard()).map(|ordinal| names::pod(name, shard, ordinal)).collect();
    if !members.contains(candidate) {
        verdict.refuse(Objection::Invalid, Fault::not_supported(path.child("candidate"), candidate.as_str(), &members));
    }
}

fn shard_exists(verdict: &mut Verdict, path: Path, shard: i32, cluster: &RedisCluster) -> bool {
    let shards = i32::from(cluster.spec.shards());
    let exists = (0..shards).contains(&shard);
    if !exists {
        let why = format!("the cluster has {shards} shards, counted from 0 to {}", shards - 1);
        verdict.refuse(Objection::Invalid, Fault::invalid(path, shard, why));
    }
    exists
}
