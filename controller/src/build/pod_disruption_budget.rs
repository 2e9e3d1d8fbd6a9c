//! One PodDisruptionBudget per shard: a drain takes one member at a time.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use types::names;

use super::{Error, labels, meta, sealed};
use crate::resolve::Resolved;

pub(super) fn budget(resolved: &Resolved, shard: u16) -> Result<PodDisruptionBudget, Error> {
    let cluster = &resolved.key.name;
    let budget = PodDisruptionBudget {
        metadata: meta(resolved, names::shard(cluster, shard), Some(shard)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(labels(cluster, Some(shard))),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    };
    sealed(budget, "a PodDisruptionBudget")
}
