//! What pods are made from now: StatefulSets as they are, which is not as they are to be where one could not be written. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plan::Observed;

use crate::apply::owner_uid;
use crate::gather::{Gathered, shard_of};
use crate::operate;
use crate::probe::{Marks, marks, unwritten};
use crate::resolve::Resolved;

/// The restart that runs, if one does.
pub(super) fn running_restart(gathered: &Gathered) -> Option<&str> {
    gathered.current_operation().and_then(|operation| operate::running_restart(operation))
}

/// What there is of the cluster, without StatefulSets that carry its labels and were made by somebody else, whose pods are no members; and what
/// a pod carries that is up to date. Notes which shards' StatefulSets are not as they were `wished`.
pub(super) fn written(
    mut gathered: Gathered,
    resolved: &Resolved,
    wished: Marks,
    behind: &mut BTreeSet<u16>,
) -> (Gathered, Marks) {
    gathered.stateful_sets.retain(|_, set| owner_uid(&**set) == Some(resolved.uid.as_str()));
    let sets = gathered.stateful_sets.values().map(|set| &**set);
    let wanted = sets.filter(|set| shard_of(&set.metadata).is_some_and(|shard| shard < resolved.shards));
    let written = marks(wanted, running_restart(&gathered));
    *behind = unwritten(&wished, &written);
    // Who is made anew while his StatefulSet cannot be written would be as he was, and made anew again and again. In a cluster that is paused nobody
    // is, and the wish is told.
    (gathered, if resolved.paused { wished } else { written })
}

/// What is planned with. While a Secret or the ConfigMap that pods mount is not what it should be, it may be somebody else's: nobody is made
/// anew from it, which is told where somebody is to be.
pub(super) fn planned_with<'a>(
    observed: &'a Observed,
    lacks_needs: bool,
    troubles: &mut Vec<String>,
) -> Cow<'a, Observed> {
    if !lacks_needs || observed.members.values().all(|member| !member.outdated) {
        return Cow::Borrowed(observed);
    }
    troubles.push(
        "members wait to be made anew: a Secret or the ConfigMap that their pods mount is not what it should be"
            .to_owned(),
    );
    let mut observed = observed.clone();
    observed.members.values_mut().for_each(|member| member.outdated = false);
    Cow::Owned(observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::healthy;

    #[test]
    fn nobody_is_made_anew_while_what_pods_mount_is_not_what_it_should_be() {
        let newest = healthy(3, 2).observed;
        let mut old = newest.clone();
        old.members.values_mut().for_each(|member| member.outdated = true);
        let planned = |observed: &Observed, lacks_needs| {
            let mut troubles = Vec::new();
            (planned_with(observed, lacks_needs, &mut troubles).into_owned(), troubles.len())
        };
        assert_eq!(planned(&old, false), (old.clone(), 0));
        assert_eq!(planned(&old, true), (newest.clone(), 1));
        assert_eq!(planned(&newest, true), (newest, 0));
    }
}
