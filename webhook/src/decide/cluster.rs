//! Creating, changing and scaling a RedisCluster.

use types::{
    RedisCluster,
    field::{Fault, Path},
    validate,
};

use super::{Objection, Verdict, capacity, consequence, disruption, leftover, policy, worse};
use crate::{
    facts::Facts,
    review::{Request, Scaled},
};

/// A new cluster: its shape, what a former one left behind, and the policies of its namespace.
pub(super) fn create(verdict: &mut Verdict, namespace: &str, new: &RedisCluster, facts: &Facts) {
    verdict.refuse_all(Objection::Invalid, validate::cluster(new));
    leftover::check(verdict, namespace, new, facts);
    policy::apply(verdict, namespace, new, None, facts);
    consequence::tell(verdict, &new.spec, None);
}

/// A changed cluster. One that is being deleted is never held up, nor a change that leaves the spec as it is.
pub(super) fn update(verdict: &mut Verdict, namespace: &str, new: &RedisCluster, old: &RedisCluster, facts: &Facts) {
    if new.metadata.deletion_timestamp.is_some() || new.spec == old.spec {
        return;
    }
    worse::shape(verdict, validate::cluster(new), || validate::cluster(old));
    verdict.refuse_all(Objection::Invalid, validate::cluster_update(new, old));
    capacity::check(verdict, new, old, facts.has_former_claims(namespace, old));
    leftover::check_scale_in(verdict, namespace, new, old, facts);
    let name = new.metadata.name.as_deref().unwrap_or_default();
    disruption::check(verdict, new, old, facts.clusters.get(namespace, name).map(|known| &**known));
    policy::apply(verdict, namespace, new, Some(old), facts);
    consequence::tell(verdict, &new.spec, Some(&old.spec));
    consequence::tell_of_the_way(verdict, new, old);
    leftover::tell_of_sweep(verdict, namespace, new, old, facts);
}

/// The scale subresource: the same as changing `spec.shards` of the live cluster, in the words of a Scale.
pub(super) fn scale(verdict: &mut Verdict, request: &Request<'_>, wanted: i32, before: Option<&Scaled>, facts: &Facts) {
    // Without the cluster as it is nothing can be measured; only growth is harmless then.
    let shrinks = before.is_none_or(|before| wanted < before.replicas);
    let mut unknown = |why: String| {
        if shrinks {
            verdict.refuse(Objection::Unknown, Fault::forbidden(Path::new("spec.replicas"), why));
        }
    };
    let Some(live) = facts.clusters.get(&request.namespace, &request.name) else {
        unknown(format!("RedisCluster {:?} has not been observed yet; try again in a second", request.name));
        return;
    };
    if before.is_some_and(|before| is_behind(live, before)) {
        unknown(format!(
            "RedisCluster {:?} has been observed only as it was before it was changed last; try again in a second",
            request.name
        ));
        if shrinks {
            return;
        }
        verdict.is_open = true;
    }
    let mut old = live.as_ref().clone();
    // The request's own old object is later than what was watched.
    if let Some(before) = before {
        old.spec.shards = Some(before.replicas);
    }
    let mut new = old.clone();
    new.spec.shards = Some(wanted);
    update(verdict, &request.namespace, &new, &old, facts);
    if let Some(denial) = &mut verdict.denial {
        for (_, fault) in &mut denial.0 {
            if fault.path.as_str() == "spec.shards" {
                fault.path = Path::new("spec.replicas");
            }
        }
    }
}

/// Whether the cluster was watched before it became what is to be scaled: memory, version and policy may have been others then.
fn is_behind(watched: &RedisCluster, scaled: &Scaled) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    let (known, told) = (watched.metadata.resource_version.as_deref(), scaled.version.as_deref());
    match (number(known), number(told)) {
        (Some(known), Some(told)) => known < told,
        (Some(_), None) | (None, Some(_)) | (None, None) => told.is_some() && known != told,
    }
}
