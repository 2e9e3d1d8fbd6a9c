//! Defaults as a JSON patch: only what is absent is added, so a second round adds nothing.

use serde_json::{Value, json};
use types::{defaults, names};

use crate::review::{Operation, Request, Subject, Target, add};

/// The patch of a request; empty for most. What could not be read is left for validation to refuse.
pub(super) fn patch(request: &Request<'_>) -> Vec<Value> {
    match (request.target, request.operation, &request.object) {
        (Target::Cluster, Operation::Create | Operation::Update, Some(Subject::Cluster(cluster))) => {
            let spec = &cluster.spec;
            let shards = spec.shards.is_none().then(|| add("/spec/shards", defaults::shards(spec.mode)));
            let replicas = defaults::replicas_per_shard(spec.mode);
            let replicas = spec.replicas_per_shard.is_none().then(|| add("/spec/replicasPerShard", replicas));
            shards.into_iter().chain(replicas).collect()
        }
        (Target::Backup, Operation::Create, Some(Subject::Backup(backup))) => {
            label(backup.metadata.labels.as_ref(), &backup.spec.cluster_name)
        }
        (Target::Operation, Operation::Create, Some(Subject::Operation(operation))) => {
            label(operation.metadata.labels.as_ref(), &operation.spec.cluster_name)
        }
        (
            Target::Cluster
            | Target::Scale
            | Target::Backup
            | Target::Operation
            | Target::Policy
            | Target::Status
            | Target::Other,
            Operation::Create | Operation::Update | Operation::Delete | Operation::Connect,
            _,
        ) => Vec::new(),
    }
}

/// Labels a record with its cluster, so that a person can select by it.
fn label(labels: Option<&std::collections::BTreeMap<String, String>>, cluster: &str) -> Vec<Value> {
    // An invalid name would be refused as a label before validation can say what is wrong with it.
    if !types::validate::is_label(cluster, names::CLUSTER_NAME_MAX) {
        return Vec::new();
    }
    match labels {
        Some(labels) if labels.contains_key(names::LABEL_CLUSTER) => Vec::new(),
        Some(_) => vec![add(&format!("/metadata/labels/{}", names::LABEL_CLUSTER.replace('/', "~1")), cluster)],
        None => vec![add("/metadata/labels", json!({names::LABEL_CLUSTER: cluster}))],
    }
}
