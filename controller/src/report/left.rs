//! Volumes of shards that nobody asks for and nothing runs of: a former cluster of the same name had them. What a new, smaller one misses
//! may lie there. Admission refuses to create such a cluster; where it was not asked, the status says what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use types::names;

use crate::gather::{Gathered, shard_of};
use crate::queue::Key;

/// Shards beyond those that are asked for, of which there are volumes and nothing else.
#[must_use]
pub fn left_behind(gathered: &Gathered, shards: u16) -> BTreeSet<u16> {
    let runs: BTreeSet<u16> = gathered.shards().into_iter().collect();
    let found = of_claims(&gathered.key(), &gathered.claims);
    found.into_iter().filter(|shard| *shard >= shards && !runs.contains(shard)).collect()
}

/// Shards that these claims are of, as far as KUN had them made and nobody has deleted them.
fn of_claims(key: &Key, claims: &BTreeMap<String, Arc<PersistentVolumeClaim>>) -> BTreeSet<u16> {
    let is_member = |name: &str, shard: u16| {
        let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
        ordinal.is_some_and(|ordinal| name == names::claim(&key.name, shard, ordinal))
    };
    let lasting = claims.iter().filter(|(_, claim)| claim.metadata.deletion_timestamp.is_none());
    lasting.filter_map(|(name, claim)| shard_of(&claim.metadata).filter(|shard| is_member(name, *shard))).collect()
}

/// What to do about them.
#[must_use]
pub(super) fn advice(key: &Key, left: &BTreeSet<u16>) -> Option<String> {
    let all = left.last()?.saturating_add(1);
    let (words, Key { namespace, name }) = (names::shards(left), key);
    Some(format!(
        "volumes of {words} exist and may hold the slots that are missing: kubectl scale rediscluster/{name} -n {namespace} --replicas={all}"
    ))
}
