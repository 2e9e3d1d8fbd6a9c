//! Which shards a backup stores: those that own slots when it begins, whatever is wanted of the cluster while it runs. Pure.

use plan::SlotSet;
use types::backup::RedisBackupStatus;

use super::source::Sources;
use super::{MEMBER_MISSING, Round};
use crate::resolve::Resolved;

/// The shards to be stored, or why somebody's slots cannot be: reason and sentence.
pub(super) fn wanted(sources: &Sources<'_>, round: Round<'_>) -> Result<Vec<u16>, (&'static str, String)> {
    let (shards, answers) = (sources.shards(), |shard: u16| sources.source(shard).is_some());
    let silent = shards.iter().copied().find(|shard| !answers(*shard));
    // Nobody says whose slots are missing: a shard that owns none is told, one that is to stay first.
    let members = || round.probed.observed.members.keys().map(|pod| pod.shard);
    let bare = || (0..round.resolved.shards).chain(members()).find(|shard| !shards.contains(shard));
    let is_whole = sources.owned == SlotSet::all() && !shards.is_empty();
    match silent.or_else(|| if is_whole { None } else { bare() }) {
        Some(shard) => Err(sources.nobody(shard)),
        None if is_whole => Ok(shards.into_iter().collect()),
        None => Err((MEMBER_MISSING, format!("only {} slots have an owner that answers", sources.owned.len()))),
    }
}

/// The shards that a backup stores. One that began under an earlier release has not written them down.
pub(super) fn of(status: &RedisBackupStatus, resolved: &Resolved) -> Vec<u16> {
    if status.wanted_shards.is_empty() {
        return (0..resolved.shards).collect();
    }
    status.wanted_shards.iter().filter_map(|index| u16::try_from(*index).ok()).collect()
}

/// Its artifact is there.
pub(super) fn is_stored(status: &RedisBackupStatus, shard: u16) -> bool {
    status.shards.iter().any(|artifact| artifact.index == i32::from(shard))
}
