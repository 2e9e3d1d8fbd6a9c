//! Whether the measured data set fits what a change leaves, and whether it stays on disk.

use types::{
    RedisCluster,
    cluster::{EvictionPolicy, Phase, RedisClusterSpec, RedisClusterStatus, SavePoint, ShardStatus},
    condition::{Status, cluster as condition},
    field::{Fault, Path},
    quantity::Quantity,
};

use super::{Objection, Verdict};

/// What must stay free after a change, in percent of the data set: hash slots differ in size, and moving a slot holds
/// its keys twice for a moment. What Redis counts beside them is in what is measured.
const HEADROOM_PERCENT: u128 = 10;

/// Longest wait of a snapshot that is counted on, and most writes that it waits for: one that comes later bounds no loss that anybody
/// means to accept.
pub(super) const SNAPSHOT_SECONDS_MOST: i32 = 86_400;
pub(super) const SNAPSHOT_CHANGES_MOST: i32 = 1_000_000;

/// Refuses what would not fit, and what would leave data without a copy on disk. `loads`: its members load the volumes of a former cluster.
pub(super) fn check(verdict: &mut Verdict, new: &RedisCluster, old: &RedisCluster, loads: bool) {
    let nothing = RedisClusterStatus::default();
    let status = old.status.as_ref().unwrap_or(&nothing);
    fits(verdict, new, old, status, loads);
    keeps_persistence(verdict, &new.spec, &old.spec, status, loads);
}

fn fits(verdict: &mut Verdict, new: &RedisCluster, old: &RedisCluster, status: &RedisClusterStatus, loads: bool) {
    let (shards, before) = (u128::from(new.spec.shards()), u128::from(old.spec.shards()));
    let measured = status.max_memory.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    // Where the limits do not tell, the members' own maxmemory does; without any, Redis takes what it needs.
    let old_memory = old.spec.max_memory_bytes().or(measured);
    let Some(memory) = new.spec.max_memory_bytes().or(old_memory) else { return };
    let room = shards * u128::from(memory);
    let shrinks = old_memory.is_none_or(|old_memory| room < before * u128::from(old_memory));
    // More shards with less memory each hold as much together, and the fullest of them does not.
    let is_cut = old_memory.is_none_or(|old_memory| memory < old_memory);
    if !shrinks && !is_cut {
        return;
    }
    let path = Path::new(if shards < before { "spec.shards" } else { "spec.memory" });
    let Some(used) = measured_data(status) else {
        let known_empty = !loads && matches!(status.phase, None | Some(Phase::Pending | Phase::Creating));
        if !known_empty {
            let why = "not every shard's data has been measured, so it is not known whether it would fit; try again when the cluster is available";
            verdict.refuse(Objection::Unknown, Fault::forbidden(path, why));
        }
        return;
    };
    let whole = if shrinks { all_need(used, shards, memory) } else { None };
    let Some(why) = whole.or_else(|| one_needs(status, shards, memory)) else {
        if shards < before && new.spec.memory.policy != EvictionPolicy::NoEviction {
            // A hash slot is not moved by its size, and clients go on writing meanwhile.
            verdict.warn(format!(
                "{path}: the shards that stay fill up while slots move; with spec.memory.policy {} a full one drops keys instead of refusing \
                 writes",
                word(new.spec.memory.policy)
            ));
        }
        return;
    };
    if evicts(new.spec.memory.policy) {
        verdict.warn(format!("{path}: {why}; keys will be evicted"));
    } else {
        verdict.refuse(Objection::Invalid, Fault::forbidden(path, why));
    }
}

/// Why so many shards are too few for all of it.
fn all_need(used: u128, shards: u128, memory: u64) -> Option<String> {
    let (needed, room) = (with_headroom(used), shards * u128::from(memory));
    (needed > room).then(|| {
        format!(
            "the data set of {} with {HEADROOM_PERCENT}% headroom needs {}, but {shards} shards of {} hold {}; at least {} shards are needed",
            amount(used),
            amount(needed),
            amount(u128::from(memory)),
            amount(room),
            needed.div_ceil(u128::from(memory).max(1)),
        )
    })
}

/// Why the fullest of the shards that stay is too small for what it holds already.
fn one_needs(status: &RedisClusterStatus, shards: u128, memory: u64) -> Option<String> {
    let stays = |shard: &&ShardStatus| u128::try_from(shard.index).is_ok_and(|index| index < shards);
    let used = |shard: &ShardStatus| u128::try_from(shard.used_memory).unwrap_or(0);
    let (used, index) = status.shards.iter().filter(stays).map(|shard| (used(shard), shard.index)).max()?;
    let needed = with_headroom(used);
    (needed > u128::from(memory)).then(|| {
        format!(
            "shard {index} holds {} and with {HEADROOM_PERCENT}% headroom needs {}, but each shard may hold {}",
            amount(used),
            amount(needed),
            amount(u128::from(memory)),
        )
    })
}

const fn with_headroom(used: u128) -> u128 {
    used + used * HEADROOM_PERCENT / 100
}

/// Bytes of the whole data set; `None` while a shard without a primary to ask counts as nothing in the sum.
fn measured_data(status: &RedisClusterStatus) -> Option<u128> {
    if is_partial(status) {
        return None;
    }
    status.used_memory.and_then(|bytes| u128::try_from(bytes).ok())
}

/// Whether a sum leaves out a shard that nobody could be asked of.
fn is_partial(status: &RedisClusterStatus) -> bool {
    status.conditions.iter().any(|one| one.kind == condition::AVAILABLE && one.status == Status::False)
}

/// The policy in Redis' own word.
fn word(policy: EvictionPolicy) -> String {
    serde_json::to_value(policy).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether Redis may drop any key to make room: such a cluster is a cache by its owner's own word.
const fn evicts(policy: EvictionPolicy) -> bool {
    match policy {
        EvictionPolicy::AllkeysLru | EvictionPolicy::AllkeysLfu | EvictionPolicy::AllkeysRandom => true,
        EvictionPolicy::NoEviction
        | EvictionPolicy::VolatileLru
        | EvictionPolicy::VolatileLfu
        | EvictionPolicy::VolatileRandom
        | EvictionPolicy::VolatileTtl => false,
    }
}

fn keeps_persistence(
    verdict: &mut Verdict,
    new: &RedisClusterSpec,
    old: &RedisClusterSpec,
    status: &RedisClusterStatus,
    loads: bool,
) {
    let loses = (persists(old) && !persists(new)) || (writes(old) && !writes(new));
    let is_new = !loads && matches!(status.phase, None | Some(Phase::Pending));
    if !loses || is_new {
        return;
    }
    let path = Path::new("spec.persistence");
    if status.keys == Some(0) {
        if is_partial(status) {
            let why = "not every shard's keys have been counted, so it is not known that the cluster is empty; try again when it is available";
            verdict.refuse(Objection::Unknown, Fault::forbidden(path, why));
        }
        return;
    }
    let held = status.keys.map_or_else(|| "may hold data".to_owned(), |keys| format!("holds {keys} keys"));
    let why = format!(
        "the cluster {held} that would no longer be written to disk; keep an append-only file or a snapshot that is due within \
         {SNAPSHOT_SECONDS_MOST} seconds and {SNAPSHOT_CHANGES_MOST} writes"
    );
    verdict.refuse(Objection::Invalid, Fault::forbidden(path, why));
}

/// Whether anything is written to disk that is worth counting on.
pub(super) fn persists(spec: &RedisClusterSpec) -> bool {
    let counts = |point: &SavePoint| point.seconds <= SNAPSHOT_SECONDS_MOST && point.changes <= SNAPSHOT_CHANGES_MOST;
    spec.persistence.append_only.keeps_every_write() || spec.persistence.snapshots.iter().any(counts)
}

/// Whether anything is written to disk at all, however seldom: a member that starts then finds it, and one that finds nothing is let begin empty.
fn writes(spec: &RedisClusterSpec) -> bool {
    spec.persistence.append_only.keeps_every_write() || !spec.persistence.snapshots.is_empty()
}

/// A number of bytes for people: three digits and a binary suffix, rounded up.
fn amount(bytes: u128) -> String {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let mut unit = 1_u64;
    while bytes / unit >= 10_000 {
        unit <<= 10;
    }
    Quantity::from_bytes(bytes.div_ceil(unit).saturating_mul(unit)).to_string()
}
