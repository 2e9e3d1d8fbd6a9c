//! Defaults as a JSON patch: only what is absent is added, so a second round adds nothing.

use serde_json::{Value, json};
use types::{defaults, names};

use crate::{
    lean,
    review::{Operation, Request, Target, add},
};

/// The patch of a request; empty for most.
pub(super) fn patch(request: &Request<'_>) -> Result<Vec<Value>, serde_json::Error> {
    let Some(object) = request.object else { return Ok(Vec::new()) };
    match (request.target, request.operation) {
        (Target::Cluster, Operation::Create | Operation::Update) => {
            let spec = lean::cluster(object)?.spec;
            let shards = spec.shards.is_none().then(|| add("/spec/shards", defaults::shards(spec.mode)));
            let replicas = defaults::replicas_per_shard(spec.mode);
            let replicas = spec.replicas_per_shard.is_none().then(|| add("/spec/replicasPerShard", replicas));
            Ok(shards.into_iter().chain(replicas).collect())
        }
        (Target::Backup, Operation::Create) => {
            let backup = lean::backup(object)?;
            Ok(label(backup.metadata.labels.as_ref(), &backup.spec.cluster_name))
        }
        (Target::Operation, Operation::Create) => {
            let operation = lean::operation(object)?;
            Ok(label(operation.metadata.labels.as_ref(), &operation.spec.cluster_name))
        }
        (
            Target::Cluster | Target::Scale | Target::Backup | Target::Operation | Target::Policy | Target::Other,
            Operation::Create | Operation::Update | Operation::Delete | Operation::Connect,
        ) => Ok(Vec::new()),
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
