//! Shape of a RedisCluster.

use std::collections::{BTreeMap, BTreeSet};

use super::{Faults, text};
use crate::{
    cluster::{Failover, Memory, Migration, Mode, Persistence, RedisCluster, RedisClusterSpec, Resources, Storage},
    config, duration,
    field::{Fault, Path},
    image::Reference,
    names::CLUSTER_NAME_MAX,
    quantity::Quantity,
    version::{Range, Version},
};

/// Fewest shards in mode Cluster: two primaries have no majority once one of them is gone.
pub const SHARDS_MIN_CLUSTER: i32 = 3;
/// Most shards: Redis Cluster's gossip is specified for about 1000 nodes.
pub const SHARDS_MAX: i32 = 1000;
/// Most replicas of a primary: each costs the primary a fork's worth of traffic on its first sync.
pub const REPLICAS_MAX: i32 = 5;
/// Most members in all: see [`SHARDS_MAX`].
pub const MEMBERS_MAX: i64 = 1000;
/// Least memory of a pod: an empty redis-server and the agent take about 20 MiB.
const MEMORY_LIMIT_MIN: u64 = 32 << 20;
/// Least maxmemory: below it Redis refuses nearly every write.
const MAX_MEMORY_MIN: u64 = 1 << 20;
/// Smallest volume: the append-only file and its rewrite need room even when empty.
const STORAGE_MIN: u64 = 16 << 20;
/// Most `save` lines; Redis' own default has three.
const SAVE_POINTS_MAX: usize = 8;
/// Longest interval of a save point: thirty days.
const SAVE_SECONDS_MAX: i32 = 30 * 86_400;
/// Node timeouts: below 500 ms a busy host looks dead, above 60 s nothing would ever be failed over.
const NODE_TIMEOUT_MILLIS: std::ops::RangeInclusive<u128> = 500..=60_000;
/// Slowest migration: at less than 64 KiB/s moving a gibibyte takes half a day.
const MIGRATION_RATE_MIN: u64 = 64 << 10;
/// Most keys of one MIGRATE: both ends stand still while it runs.
const BATCH_KEYS_MAX: i32 = 10_000;
/// Resource names a Redis container may ask for.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// All faults of a RedisCluster, with defaults applied or not.
#[must_use]
pub fn cluster(object: &RedisCluster) -> Vec<Fault> {
    let mut faults = Faults::default();
    name(&mut faults, object.metadata.name.as_deref());
    let path = Path::new("spec");
    let spec = &object.spec;
    topology(&mut faults, &path, spec);
    image(&mut faults, &path, spec);
    if let Some(given) = &spec.resources {
        resources(&mut faults, &path.child("resources"), given);
    }
    memory(&mut faults, &path.child("memory"), &spec.memory, spec);
    persistence(&mut faults, &path.child("persistence"), &spec.persistence);
    if let Some(given) = &spec.storage {
        storage(&mut faults, &path.child("storage"), given);
    }
    parameters(&mut faults, &path.child("config"), &spec.config);
    if let Some(secret) = spec.auth.as_ref().and_then(|auth| auth.secret_name.as_deref()) {
        faults.reference(path.child("auth.secretName"), secret);
    }
    failover(&mut faults, &path.child("failover"), &spec.failover, spec);
    migration(&mut faults, &path.child("migration"), &spec.migration);
    if let Some(given) = &spec.backup {
        super::backup::target(&mut faults, &path.child("backup.target"), &given.target);
    }
    super::placement::placement(&mut faults, &path.child("placement"), &spec.placement);
    super::network::policy(&mut faults, &path.child("networkPolicy"), &spec.network_policy);
    faults.0
}

fn name(faults: &mut Faults, name: Option<&str>) {
    // Absent while it is still to be generated.
    let Some(name) = name.filter(|name| !name.is_empty()) else { return };
    let path = Path::new("metadata.name");
    if name.len() > CLUSTER_NAME_MAX {
        let why =
            format!("must have at most {CLUSTER_NAME_MAX} characters: pods, Services and labels are named after it");
        faults.push(Fault::invalid(path, name, why));
    } else if !text::is_label(name, CLUSTER_NAME_MAX) {
        faults.push(Fault::invalid(path, name, text::LABEL));
    }
}

fn topology(faults: &mut Faults, path: &Path, spec: &RedisClusterSpec) {
    let (shards, replicas) = (spec.shards, spec.replicas_per_shard);
    let (shards_path, replicas_path) = (path.child("shards"), path.child("replicasPerShard"));
    match spec.mode {
        Mode::Cluster => {
            if let Some(shards) = shards {
                let why =
                    "a majority of primaries must survive the loss of one, and gossip is made for at most 1000 nodes";
                faults.range(shards_path.clone(), shards, &(SHARDS_MIN_CLUSTER..=SHARDS_MAX), why);
            }
            if let Some(replicas) = replicas {
                let why = "each replica is one more full copy that its primary feeds";
                faults.range(replicas_path, replicas, &(0..=REPLICAS_MAX), why);
            }
            let members = i64::from(spec.shards()) * i64::from(spec.members_per_shard());
            let each_is_fine =
                shards.is_none_or(|shards| shards <= SHARDS_MAX) && replicas.is_none_or(|some| some <= REPLICAS_MAX);
            if members > MEMBERS_MAX && each_is_fine {
                let why =
                    format!("shards × (1 + replicasPerShard) is {members}, must be at most {MEMBERS_MAX} members");
                faults.push(Fault::invalid(shards_path, shards.unwrap_or_default(), why));
            }
        }
        Mode::Standalone => {
            if let Some(shards) = shards.filter(|shards| *shards != 1) {
                faults.push(Fault::invalid(shards_path, shards, "must be 1 in mode Standalone"));
            }
            if let Some(replicas) = replicas.filter(|replicas| *replicas != 0) {
                faults.push(Fault::invalid(replicas_path, replicas, "must be 0 in mode Standalone"));
            }
        }
    }
}

fn image(faults: &mut Faults, path: &Path, spec: &RedisClusterSpec) {
    let parsed = version_faults(faults, &path.child("version"), spec);
    let Some(image) = spec.image.as_deref() else { return };
    let path = path.child("image");
    match Reference::parse(image) {
        Err(error) => faults.push(Fault::invalid(path, image, error.to_string())),
        Ok(Reference { tag: None, digest: None, .. }) => {
            faults.push(Fault::invalid(
                path,
                image,
                "must name a tag or a digest: an image without one changes by itself",
            ));
        }
        Ok(reference) => {
            if let (Some(tagged), Some(version)) = (reference.version(), parsed)
                && !version.agrees(tagged)
            {
                let why = format!("its tag tells version {tagged}, but spec.version is {version}");
                faults.push(Fault::invalid(path, image, why));
            }
        }
    }
}

fn version_faults(faults: &mut Faults, path: &Path, spec: &RedisClusterSpec) -> Option<Version> {
    let (text, supported) = (spec.version.as_str(), spec.engine.supported());
    match text.parse::<Version>() {
        Err(error) => {
            faults.push(Fault::invalid(path.clone(), text, error.to_string()));
            None
        }
        Ok(version) => {
            if supported.parse::<Range>().is_ok_and(|range| !range.contains(version)) {
                let why = format!("must be in the range {supported} with engine {:?}", spec.engine);
                faults.push(Fault::invalid(path.clone(), text, why));
            }
            Some(version)
        }
    }
}

fn resources(faults: &mut Faults, path: &Path, given: &Resources) {
    let requests = amounts(faults, &path.child("requests"), &given.requests);
    let limits = amounts(faults, &path.child("limits"), &given.limits);
    for (name, request) in requests {
        if let Some(limit) = limits.get(name)
            && request > *limit
        {
            let why = format!("must be at most the limit of {limit}");
            faults.push(Fault::invalid(path.child("requests").key(name), request.to_string(), why));
        }
    }
    if let Some(limit) = limits.get("memory").filter(|limit| limit.bytes() < MEMORY_LIMIT_MIN) {
        let least = Quantity::from_bytes(MEMORY_LIMIT_MIN);
        let why = format!("must be at least {least}: an empty Redis and the agent need about 20Mi");
        faults.push(Fault::invalid(path.child("limits").key("memory"), limit.to_string(), why));
    }
}

fn amounts<'a>(faults: &mut Faults, path: &Path, given: &'a BTreeMap<String, String>) -> BTreeMap<&'a str, Quantity> {
    let mut amounts = BTreeMap::new();
    for (name, text) in given {
        let path = path.key(name);
        if !RESOURCES.contains(&name.as_str()) {
            faults.push(Fault::not_supported(path, name.as_str(), &RESOURCES));
        } else if let Some(amount) = faults.quantity(&path, text) {
            amounts.insert(name.as_str(), amount);
        }
    }
    amounts
}

fn memory(faults: &mut Faults, path: &Path, memory: &Memory, spec: &RedisClusterSpec) {
    let why = "the rest is for buffers, fragmentation and copy-on-write";
    faults.range(path.child("maxPercent"), memory.max_percent, &(1..=95), why);
    let Some(text) = memory.max_bytes.as_deref() else { return };
    let path = path.child("maxBytes");
    let Some(bytes) = faults.bytes(&path, text, MAX_MEMORY_MIN, "with less Redis refuses nearly every write") else {
        return;
    };
    if let Some(limit) = spec.memory_limit_bytes().filter(|limit| bytes >= *limit) {
        let limit = Quantity::from_bytes(limit);
        let why = format!("must be less than the memory limit of {limit} (spec.resources.limits.memory)");
        faults.push(Fault::invalid(path, text, why));
    }
}

fn persistence(faults: &mut Faults, path: &Path, given: &Persistence) {
    let path = path.child("snapshots");
    if given.snapshots.len() > SAVE_POINTS_MAX {
        faults.push(Fault::too_many(path, given.snapshots.len(), SAVE_POINTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, point) in given.snapshots.iter().enumerate() {
        let path = path.index(at);
        faults.range(path.child("seconds"), point.seconds, &(1..=SAVE_SECONDS_MAX), "thirty days at most");
        faults.range(path.child("changes"), point.changes, &(1..=i32::MAX), "a snapshot without changes saves nothing");
        if !seen.insert((point.seconds, point.changes)) {
            faults.push(Fault::duplicate(path, format!("{} {}", point.seconds, point.changes)));
        }
    }
}

fn storage(faults: &mut Faults, path: &Path, given: &Storage) {
    faults.bytes(&path.child("size"), &given.size, STORAGE_MIN, "the append-only file and its rewrite need room");
    if let Some(class) = given.class_name.as_deref().filter(|class| !class.is_empty()) {
        faults.reference(path.child("className"), class);
    }
}

fn parameters(faults: &mut Faults, path: &Path, given: &BTreeMap<String, String>) {
    if given.len() > config::ENTRIES_MAX {
        faults.push(Fault::too_many(path.clone(), given.len(), config::ENTRIES_MAX));
        return;
    }
    for (name, value) in given {
        let path = path.key(name);
        match config::check(name, value) {
            Ok(_) => {}
            Err(refusal @ config::Refusal::Owned(_)) => faults.push(Fault::forbidden(path, refusal.to_string())),
            Err(refusal @ config::Refusal::Value(_)) => {
                faults.push(Fault::invalid(path, value.as_str(), refusal.to_string()));
            }
            Err(refusal @ config::Refusal::Unknown(_)) => {
                let mut fault = Fault::not_supported::<&str>(path, name.as_str(), &[]);
                fault.detail = refusal.to_string();
                faults.push(fault);
            }
        }
    }
}

fn failover(faults: &mut Faults, path: &Path, given: &Failover, spec: &RedisClusterSpec) {
    let (least, most) = (NODE_TIMEOUT_MILLIS.start(), NODE_TIMEOUT_MILLIS.end());
    let timeout = path.child("nodeTimeout");
    match duration::parse(&given.node_timeout) {
        Ok(span) if NODE_TIMEOUT_MILLIS.contains(&span.as_millis()) => {}
        Ok(_) => {
            let why =
                format!("must be from {least}ms to {}s: shorter mistakes a busy host for a dead one", most / 1000);
            faults.push(Fault::invalid(timeout, given.node_timeout.as_str(), why));
        }
        Err(error) => faults.push(Fault::invalid(timeout, given.node_timeout.as_str(), error.to_string())),
    }
    let replicas = i32::from(spec.replicas()).min(REPLICAS_MAX);
    let why = "more replicas than there are would stop all writes";
    faults.range(path.child("minReplicasToWrite"), given.min_replicas_to_write, &(0..=replicas), why);
}

fn migration(faults: &mut Faults, path: &Path, given: &Migration) {
    if let Some(rate) = given.max_bytes_per_second.as_deref() {
        faults.bytes(&path.child("maxBytesPerSecond"), rate, MIGRATION_RATE_MIN, "slower, a gibibyte takes half a day");
    }
    let why = "both ends stand still while a batch moves";
    faults.range(path.child("batchKeys"), given.batch_keys, &(1..=BATCH_KEYS_MAX), why);
    faults.bytes(&path.child("maxKeyBytes"), &given.max_key_bytes, 1 << 10, "hardly any key is smaller");
}
