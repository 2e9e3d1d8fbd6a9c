//! Volumes that a former cluster of the same name left behind. Whoever deletes a cluster of five shards and creates it again with three (as
//! a controlled repository does) would have two fifths of the slots on volumes that nobody mounts.

use std::collections::BTreeSet;

use types::{
    Condition, RedisCluster,
    cluster::{Mode, RedisClusterStatus, Retain},
    condition::{Status, cluster as condition},
    field::{Fault, Path},
    names::{self, LABEL_CLUSTER, LABEL_SHARD},
};

use super::{Objection, Verdict};
use crate::facts::{Claim, Facts};

/// Most claims that are named: the command names all of them.
const NAMED_MOST: usize = 6;

/// Refuses a new cluster that leaves out shards whose volumes there are, and warns of other volumes that it would not use.
pub(super) fn check(verdict: &mut Verdict, namespace: &str, new: &RedisCluster, facts: &Facts) {
    // One that is recovered has been before, and counts on: what lies beyond its shards it has scaled away itself.
    if new.metadata.generation.is_some_and(|generation| generation > 1) {
        return;
    }
    let (spec, name) = (&new.spec, new.metadata.name.as_deref().unwrap_or_default());
    let claims: Vec<(&str, &Claim)> = facts.claims_of(namespace, name).collect();
    // They are no former cluster's: it is there, and whoever creates it once more is told just that. One that has just been deleted is known
    // for a moment longer.
    if facts.clusters.get(namespace, name).is_some() {
        verdict.is_open |= spec.storage.is_some() && claims.iter().any(|(_, claim)| claim.shard >= spec.shards());
        return;
    }
    if spec.storage.is_none() {
        if let Some(named) = named(claims.iter().map(|(name, _)| *name)) {
            verdict.warn(format!("spec.storage: volumes of a former cluster of this name stay unused: {named}"));
        }
        return;
    }
    let is_beyond = |claim: &Claim| claim.shard >= spec.shards();
    let beyond: Vec<_> = claims.iter().filter(|(_, claim)| is_beyond(claim)).collect();
    let shards: BTreeSet<u16> = beyond.iter().map(|(_, claim)| claim.shard).collect();
    if let (Some(last), Some(named)) = (shards.last(), named(beyond.iter().map(|(name, _)| *name))) {
        let mode = match spec.mode {
            Mode::Cluster => "",
            Mode::Standalone => "mode: Cluster and ",
        };
        let (words, all) = (names::shards(&shards), last.saturating_add(1));
        let list: Vec<String> = shards.iter().map(u16::to_string).collect();
        let selector = format!("{LABEL_CLUSTER}={name},{LABEL_SHARD} in ({})", list.join(","));
        let why = format!(
            "volumes of {words} of a former cluster of this name exist and may hold slots: create it with {mode}shards: {all}; or, if nothing \
             on them is wanted, delete these claims: {named} (kubectl delete pvc -n {namespace} -l '{selector}')"
        );
        verdict.refuse(Objection::Leftover, Fault::forbidden(Path::new("spec.shards"), why));
    }
    let unused = claims.iter().filter(|(_, claim)| !is_beyond(claim) && claim.ordinal >= spec.members_per_shard());
    if let Some(named) = named(unused.map(|(name, _)| *name)) {
        verdict.warn(format!(
            "spec.replicasPerShard: volumes of a former cluster of this name stay unused, one may be of its last primary: {named}"
        ));
    }
}

/// Refuses to leave out shards of a former cluster before their members have been seen: nobody knows yet what is on their volumes.
pub(super) fn check_scale_in(
    verdict: &mut Verdict,
    namespace: &str,
    new: &RedisCluster,
    old: &RedisCluster,
    facts: &Facts,
) {
    if new.spec.storage.is_none() || new.spec.shards() >= old.spec.shards() || has_been_seen(old.status.as_ref()) {
        return;
    }
    let claims = facts.claims_of(namespace, new.metadata.name.as_deref().unwrap_or_default());
    let beyond: Vec<(&str, &Claim)> =
        claims.filter(|(_, claim)| claim.shard >= new.spec.shards() && claim.is_older_than(old)).collect();
    let shards: BTreeSet<u16> = beyond.iter().map(|(_, claim)| claim.shard).collect();
    if !shards.is_empty() {
        let why = format!(
            "volumes of {} are older than this cluster, and what is on them has not been seen yet: scale it in once it is available. Only if they \
             are of a former cluster of this name and nobody wants what is on them, delete these claims instead: {}",
            names::shards(&shards),
            named(beyond.iter().map(|(name, _)| *name)).unwrap_or_default()
        );
        verdict.refuse(Objection::Leftover, Fault::forbidden(Path::new("spec.shards"), why));
    }
}

/// Whether all slots are served, or were before a failure. The phase does not tell: a pause, or a first look that fails, leads past Creating.
fn has_been_seen(status: Option<&RedisClusterStatus>) -> bool {
    let is_available = |one: &Condition| one.kind == condition::AVAILABLE && one.status == Status::True;
    status.is_some_and(|status| status.has_served || status.conditions.iter().any(is_available))
}

/// Tells by which change volumes go that members of this cluster have left behind. Those of a former cluster stay.
pub(super) fn tell_of_sweep(
    verdict: &mut Verdict,
    namespace: &str,
    new: &RedisCluster,
    old: &RedisCluster,
    facts: &Facts,
) {
    let deletes = |cluster: &RedisCluster| cluster.spec.storage.as_ref().map(|one| one.retain) == Some(Retain::Delete);
    if !verdict.is_allowed() || deletes(old) || !deletes(new) {
        return;
    }
    let spec = &new.spec;
    let is_left = |claim: &Claim| claim.shard >= spec.shards() || claim.ordinal >= spec.members_per_shard();
    let claims = facts.claims_of(namespace, new.metadata.name.as_deref().unwrap_or_default());
    let swept = claims.filter(|(_, claim)| is_left(claim) && !claim.is_older_than(old));
    if let Some(named) = named(swept.map(|(name, _)| name)) {
        verdict.warn(format!(
            "spec.storage.retain: with Delete the volumes of members that were scaled away are deleted: {named}"
        ));
    }
}

/// Names of claims as one text; `None`: there are none.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    let rest = names.len().saturating_sub(NAMED_MOST);
    let first = names.get(..NAMED_MOST).unwrap_or(&names).join(", ");
    match (names.is_empty(), rest) {
        (true, _) => None,
        (false, 0) => Some(first),
        (false, rest) => Some(format!("{first} and {rest} more")),
    }
}
