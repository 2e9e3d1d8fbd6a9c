//! Which shards a backup stores: those that own slots when it begins, whatever is wanted of the cluster while it runs. Pure.

use std::collections::BTreeSet;

use plan::SlotSet;
use types::backup::RedisBackupStatus;
use types::cluster::Mode;

use super::{Round, nobody, worker};
use crate::resolve::Resolved;

/// The shards to be stored, or whose slots nobody answers with.
pub(super) fn wanted(round: Round<'_>) -> Result<Vec<u16>, String> {
    let Round { resolved, probed, slots_moving: _, workers: _, now: _ } = round;
    let answers = |shard: &u16| worker::source(probed, *shard).is_some();
    let (shards, all): (BTreeSet<u16>, SlotSet) = match resolved.mode {
        Mode::Standalone => ((0..resolved.shards).collect(), SlotSet::all()),
        Mode::Cluster => {
            let owned = probed.observed.owned();
            let all = owned.values().fold(SlotSet::EMPTY, |all, slots| all.union(slots));
            (owned.into_keys().map(|pod| pod.shard).collect(), all)
        }
    };
    if all == SlotSet::all() && shards.iter().all(answers) {
        return Ok(shards.into_iter().collect());
    }
    // Whose slots are missing is not asked: who is silent is told, one that is to stay first.
    let known = || (0..resolved.shards).chain(probed.observed.members.keys().map(|pod| pod.shard));
    let silent = known().find(|shard| !answers(shard)).or_else(|| known().find(|shard| !shards.contains(shard)));
    Err(silent
        .map_or_else(|| format!("only {} slots have an owner that answers", all.len()), |shard| nobody(probed, shard)))
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
