//! Marks the pods that are their shards' serving primaries with a label, which `status.selector` selects: an autoscaler
//! looks at exactly the pods that serve. What is to change is pure (`changes`).
//!
//! The mark follows what was seen. While a shard shows no primary the mark stays where it was: unknown is not absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as KubePod;
use types::names;

use crate::api::{self, Kubernetes};
use crate::gather::{Gathered, shard_of};
use crate::probe::Probed;
use crate::report::primaries;
use crate::resolve::Resolved;

/// Brings the marks up to date. Writes nothing when nobody's role has changed.
///
/// # Errors
/// When the API server does not take it.
pub async fn mark(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    resolved: &Resolved,
    probed: &Probed,
) -> Result<(), api::Error> {
    for (pod, role) in changes(&gathered.pods, &resolved.key.name, &primaries(resolved, probed)) {
        match kubernetes.label(&**pod, names::LABEL_ROLE, role).await {
            // The pod has gone or been replaced: its successor is looked at in the next round, which must not be put off.
            Ok(_) | Err(api::Error::Changed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Pods whose label is not right, with the value it should have: new primaries before old ones, so that a selector
/// never finds fewer.
fn changes<'a>(
    pods: &'a BTreeMap<String, Arc<KubePod>>,
    cluster: &str,
    primaries: &BTreeMap<u16, plan::Pod>,
) -> Vec<(&'a Arc<KubePod>, Option<&'static str>)> {
    let named = |shard: u16| primaries.get(&shard).map(|primary| names::pod(cluster, shard, primary.ordinal));
    let mut changes: Vec<_> = pods
        .iter()
        .filter_map(|(name, pod)| {
            let wanted = (named(shard_of(&pod.metadata)?)? == *name).then_some(names::ROLE_PRIMARY);
            let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_ROLE));
            (label.map(String::as_str) != wanted).then_some((pod, wanted))
        })
        .collect();
    changes.sort_by_key(|(_, wanted)| wanted.is_none());
    changes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::json;

    use super::*;
    use crate::testing::{healthy, resolved};

    fn pods(marked: &[&str]) -> BTreeMap<String, Arc<KubePod>> {
        let all = ["orders-0-0", "orders-0-1", "orders-1-0", "orders-1-1"];
        let pod = |name: &&str| {
            let mut labels = json!({names::LABEL_SHARD: &name[7..8]});
            if marked.contains(name) {
                labels[names::LABEL_ROLE] = json!("primary");
            }
            let pod = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
            ((*name).to_owned(), Arc::new(pod))
        };
        all.iter().map(pod).collect()
    }

    fn changed(marked: &[&str], primaries: &[(u16, u16)]) -> Vec<(String, bool)> {
        let primaries = primaries.iter().map(|(shard, ordinal)| (*shard, plan::Pod::new(*shard, *ordinal))).collect();
        changes(&pods(marked), "orders", &primaries)
            .into_iter()
            .map(|(pod, role)| (pod.metadata.name.clone().unwrap(), role.is_some()))
            .collect()
    }

    #[test]
    fn exactly_the_serving_primaries_are_marked_and_a_new_one_before_the_old_one_is_not_any_more() {
        let on = |name: &str| (name.to_owned(), true);
        let off = |name: &str| (name.to_owned(), false);
        assert_eq!(changed(&[], &[(0, 0), (1, 0)]), [on("orders-0-0"), on("orders-1-0")]);
        assert_eq!(changed(&["orders-0-0", "orders-1-0"], &[(0, 0), (1, 0)]), []);
        assert_eq!(changed(&["orders-0-0", "orders-1-0"], &[(0, 1), (1, 0)]), [on("orders-0-1"), off("orders-0-0")]);
    }

    #[test]
    fn a_shard_that_shows_no_primary_keeps_its_mark() {
        assert_eq!(changed(&["orders-0-0", "orders-1-0"], &[(1, 0)]), []);
    }

    #[test]
    fn the_primary_of_a_shard_is_whoever_owns_its_slots() {
        let resolved = resolved(&json!({"shards": 2, "replicasPerShard": 1}));
        let expected = BTreeMap::from([(0, plan::Pod::new(0, 0)), (1, plan::Pod::new(1, 0))]);
        assert_eq!(primaries(&resolved, &healthy(2, 2)), expected);
    }
}
