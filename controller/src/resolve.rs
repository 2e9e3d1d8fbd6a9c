//! From what the user wrote and what exists to one complete description of what should be: every default filled,
//! every quantity a number, every name a word. Pure. What is optional afterwards is truly optional.
//!
//! It takes the specification apart without `..`, so a new field does not compile until somebody decided about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use types::agent::AgentConfig;
use types::cluster::{
    Backup, BackupTarget, Deletion, DeletionPolicy, Failover, Memory, Migration, Mode, NetworkPolicy, Persistence,
    Placement, RedisClusterSpec, Resources, Retain, Storage, Update, UpdateStrategy,
};
use types::engine::Engine;
use types::quantity::Quantity;
use types::record::Record;
use types::{RedisCluster, RedisOperation, names};

use crate::build;
use crate::credentials::{self, Credentials, Existing, Issuer};
use crate::gather::Gathered;
use crate::queue::Key;

/// Why a specification cannot be worked with. Admission refuses all of these, so a person who sees one has an object
/// that was stored by an older or a foreign server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A number is outside of what can be built.
    #[error("spec.{field}: {value} is not between {least} and {most}")]
    Range {
        /// Path below `spec`.
        field: &'static str,
        /// What is written.
        value: i64,
        /// The least.
        least: i64,
        /// The most.
        most: i64,
    },
    /// A quantity is not legible.
    #[error("spec.{field}: {value:?} is not a quantity")]
    Quantity {
        /// Path below `spec`.
        field: &'static str,
        /// What is written.
        value: String,
        /// Why.
        #[source]
        source: types::quantity::Error,
    },
    /// A duration is not legible.
    #[error("spec.{field}: {value:?} is not a duration")]
    Duration {
        /// Path below `spec`.
        field: &'static str,
        /// What is written.
        value: String,
        /// Why.
        #[source]
        source: types::duration::Error,
    },
    /// The object has no name, namespace or uid: no API server stores such.
    #[error("the object has no {0}")]
    Identity(&'static str),
    /// Its secrets could not be made.
    #[error("preparing the secrets")]
    Credentials(#[source] credentials::Error),
}

/// Everything that should be, spelled out.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Namespace and name.
    pub key: Key,
    /// uid of the RedisCluster.
    pub uid: String,
    /// What is needed to make the object anew.
    pub record: Record,
    /// Cluster or Standalone.
    pub mode: Mode,
    /// Redis or Valkey.
    pub engine: Engine,
    /// Number of shards.
    pub shards: u16,
    /// Members of each shard: the primary and its replicas.
    pub members: u16,
    /// Image of the Redis container.
    pub image: String,
    /// Image that holds `/kun/bin/kun`.
    pub kun_image: String,
    /// Version asked for.
    pub version: String,
    /// Requests and limits.
    pub resources: Resources,
    /// The container's memory limit in bytes.
    pub memory_limit: Option<u64>,
    /// maxmemory of one node in bytes; absent: unlimited.
    pub max_memory: Option<u64>,
    /// A volume for each pod; absent: emptyDir.
    pub storage: Option<Volume>,
    /// What the agents are told.
    pub agent: AgentConfig,
    /// Name of the Secret with the application's password.
    pub auth_secret: String,
    /// The user brings it; else it is made.
    pub auth_is_brought: bool,
    /// The generated secrets.
    pub credentials: Credentials,
    /// cluster-node-timeout.
    pub node_timeout: Duration,
    /// How slots move.
    pub migration: Moving,
    /// Whether claims stay when their pod is scaled away.
    pub retain_claims: Retain,
    /// Whether claims and Secrets stay when the cluster is deleted.
    pub retain_on_delete: Retain,
    /// Where backups go by default.
    pub backup_target: Option<BackupTarget>,
    /// Stops every change.
    pub paused: bool,
    /// Which primaries may be handed over now.
    pub approval: Approval,
    /// Where pods may run, and how strictly members are kept on different nodes.
    pub placement: Placement,
    /// Who may reach the members.
    pub network_policy: NetworkPolicy,
    /// From where the controller reaches them.
    pub controller_namespace: String,
    /// For each shard the last restart that was asked for, as the uid of its operation.
    pub restarted_by: BTreeMap<u16, String>,
}

impl Resolved {
    /// Whether it asks for this pod.
    #[must_use]
    pub const fn wants(&self, pod: plan::Pod) -> bool {
        pod.shard < self.shards && pod.ordinal < self.members
    }

    /// The mode, in the planner's words.
    #[must_use]
    pub const fn planned_mode(&self) -> plan::Mode {
        match self.mode {
            Mode::Cluster => plan::Mode::Cluster,
            Mode::Standalone => plan::Mode::Standalone,
        }
    }

    /// Whether a member that is restarted finds every write again, as its volume and its append-only file are asked for.
    #[must_use]
    pub fn keeps_each_write(&self) -> bool {
        self.storage.is_some() && self.agent.append_only.keeps_every_write()
    }

    /// Whether a member that is restarted finds its data again: as its volume, and what is written on it, are asked for.
    #[must_use]
    pub fn restart_keeps_data(&self) -> bool {
        self.keeps_each_write() || self.storage.is_some() && !self.agent.snapshots.is_empty()
    }
}

/// A volume for each pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Size in bytes.
    pub bytes: u64,
    /// Size as written.
    pub size: String,
    /// StorageClass; absent: the cluster's default.
    pub class_name: Option<String>,
}

/// How slots move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Upper bound; absent: none.
    pub max_bytes_per_second: Option<u64>,
    /// Most keys of one MIGRATE.
    pub batch_keys: u32,
    /// A slot with a larger key is not moved.
    pub max_key_bytes: u64,
    /// No new slot is begun.
    pub paused: bool,
}

/// Which primaries may be handed over in a rolling update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// All: the update is automatic, or a person approved `*`.
    All,
    /// Those a person named for this generation.
    Shards(BTreeSet<u16>),
}

/// What is not of the object itself.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Image that holds `/kun/bin/kun`.
    pub kun_image: &'a str,
    /// The controller's own namespace.
    pub namespace: &'a str,
    /// Where new secrets come from.
    pub issuer: &'a dyn Issuer,
    /// The time, for certificates.
    pub now: Timestamp,
}

/// Hash slots: no cluster has more primaries.
const SHARDS_MOST: i64 = 16384;
/// The most members of a shard: far beyond use, within what names can carry.
const REPLICAS_MOST: i64 = 1000;

/// Spells out what should be.
///
/// # Errors
/// When the specification is not legible, or new secrets were needed and could not be made.
pub fn resolve(gathered: &Gathered, context: Context<'_>) -> Result<Resolved, Error> {
    let cluster = &*gathered.cluster;
    let key = identity(cluster)?;
    let RedisClusterSpec {
        mode,
        engine,
        version,
        image,
        shards,
        replicas_per_shard,
        resources,
        memory,
        persistence,
        storage,
        config,
        auth,
        failover,
        migration,
        backup,
        deletion,
        paused,
        update: Update { strategy },
        placement,
        network_policy,
    } = cluster.spec.clone();
    let (default_shards, default_replicas) = default_size(mode);
    let shards = ranged("shards", shards.unwrap_or(default_shards), 1, SHARDS_MOST)?;
    let replicas = ranged("replicasPerShard", replicas_per_shard.unwrap_or(default_replicas), 0, REPLICAS_MOST)?;
    let resources = spelled_alike(resources.unwrap_or_default());
    let memory_limit = resources.limits.get("memory").map(|q| bytes("resources.limits.memory", q)).transpose()?;
    let node_timeout = duration("failover.nodeTimeout", &failover.node_timeout)?;
    let auth_is_brought = auth.is_some_and(|auth| auth.secret_name.is_some());
    let credentials = credentials(gathered, &key, !auth_is_brought, context)?;
    let agent = agent_config(&key, mode, &memory, persistence, config, &failover, node_timeout)?;
    let Deletion { policy, protected: _ } = deletion;
    let retain_claims = storage.as_ref().map_or(Retain::Delete, |storage| storage.retain);
    Ok(Resolved {
        uid: cluster.metadata.uid.clone().ok_or(Error::Identity("uid"))?,
        record: Record::of(cluster).ok_or(Error::Identity("uid"))?,
        mode,
        engine,
        shards,
        members: replicas.saturating_add(1),
        image: image.unwrap_or_else(|| types::image::of_version(engine, &version)),
        kun_image: context.kun_image.to_owned(),
        version,
        max_memory: max_memory(&agent, memory_limit),
        memory_limit,
        resources,
        storage: storage.map(volume).transpose()?,
        agent,
        auth_is_brought,
        auth_secret: cluster.auth_secret(),
        credentials,
        node_timeout,
        migration: moving(migration)?,
        retain_claims,
        retain_on_delete: retain_on_delete(policy, retain_claims),
        backup_target: backup.map(|Backup { target }| target),
        paused,
        approval: approval(cluster, strategy),
        placement,
        network_policy,
        controller_namespace: context.namespace.to_owned(),
        restarted_by: restarts(gathered, shards),
        key,
    })
}

/// Shards, and replicas of each, where nothing is said.
const fn default_size(mode: Mode) -> (i32, i32) {
    match mode {
        Mode::Cluster => (3, 1),
        Mode::Standalone => (1, 0),
    }
}

fn retain_on_delete(policy: DeletionPolicy, claims: Retain) -> Retain {
    match policy {
        DeletionPolicy::Retain => Retain::Retain,
        DeletionPolicy::Delete => claims,
    }
}

fn identity(cluster: &RedisCluster) -> Result<Key, Error> {
    Ok(Key {
        namespace: cluster.metadata.namespace.clone().ok_or(Error::Identity("namespace"))?,
        name: cluster.metadata.name.clone().ok_or(Error::Identity("name"))?,
    })
}

fn ranged(field: &'static str, value: i32, least: i64, most: i64) -> Result<u16, Error> {
    let value = i64::from(value);
    let fits = (least..=most).contains(&value);
    u16::try_from(value).ok().filter(|_| fits).ok_or(Error::Range { field, value, least, most })
}

fn bytes(field: &'static str, text: &str) -> Result<u64, Error> {
    let quantity = Quantity::parse(text);
    quantity.map(Quantity::bytes).map_err(|source| Error::Quantity { field, value: text.to_owned(), source })
}

fn duration(field: &'static str, text: &str) -> Result<Duration, Error> {
    types::duration::parse(text).map_err(|source| Error::Duration { field, value: text.to_owned(), source })
}

fn credentials(
    gathered: &Gathered,
    key: &Key,
    generate_application: bool,
    context: Context<'_>,
) -> Result<Credentials, Error> {
    let secrets = &gathered.secrets;
    let existing = Existing {
        namespace: &key.namespace,
        cluster: &key.name,
        internal: secrets.get(&names::internal_secret(&key.name)).map(|secret| &**secret),
        application: secrets.get(&names::auth_secret(&key.name)).map(|secret| &**secret),
        generate_application,
    };
    credentials::keep_or_make(existing, context.issuer, context.now).map_err(Error::Credentials)
}

fn agent_config(
    key: &Key,
    mode: Mode,
    memory: &Memory,
    persistence: Persistence,
    parameters: BTreeMap<String, String>,
    failover: &Failover,
    node_timeout: Duration,
) -> Result<AgentConfig, Error> {
    let Memory { max_percent, max_bytes, policy } = memory;
    let Persistence { append_only, snapshots } = persistence;
    Ok(AgentConfig {
        namespace: key.namespace.clone(),
        cluster: key.name.clone(),
        mode,
        node_timeout_millis: u64::try_from(node_timeout.as_millis()).unwrap_or(u64::MAX),
        min_replicas_to_write: u32::from(ranged(
            "failover.minReplicasToWrite",
            failover.min_replicas_to_write,
            0,
            REPLICAS_MOST,
        )?),
        max_memory_bytes: max_bytes.as_deref().map(|text| bytes("memory.maxBytes", text)).transpose()?,
        max_memory_percent: u32::from(ranged("memory.maxPercent", *max_percent, 1, 100)?),
        max_memory_policy: *policy,
        append_only,
        snapshots,
        parameters,
    })
}

/// maxmemory as the agents compute it.
fn max_memory(agent: &AgentConfig, limit: Option<u64>) -> Option<u64> {
    agent.max_memory_bytes.or_else(|| {
        let share = u128::from(limit?).saturating_mul(u128::from(agent.max_memory_percent)) / 100;
        u64::try_from(share).ok()
    })
}

fn volume(storage: Storage) -> Result<Volume, Error> {
    let Storage { size, class_name, retain: _ } = storage;
    Ok(Volume { bytes: bytes("storage.size", &size)?, size: uniform(&size), class_name })
}

/// The same amounts in the same words, however they were spelled: another spelling restarts nobody.
fn spelled_alike(resources: Resources) -> Resources {
    let alike = |map: BTreeMap<String, String>| map.into_iter().map(|(name, text)| (name, uniform(&text))).collect();
    let Resources { requests, limits } = resources;
    Resources { requests: alike(requests), limits: alike(limits) }
}

fn uniform(text: &str) -> String {
    Quantity::parse(text).map_or_else(|_| text.to_owned(), Quantity::uniform)
}

fn moving(migration: Migration) -> Result<Moving, Error> {
    let Migration { max_bytes_per_second, batch_keys, max_key_bytes, paused } = migration;
    let rate = max_bytes_per_second.as_deref().map(|q| bytes("migration.maxBytesPerSecond", q)).transpose()?;
    Ok(Moving {
        max_bytes_per_second: rate,
        batch_keys: u32::from(ranged("migration.batchKeys", batch_keys, 1, i64::from(u16::MAX))?),
        max_key_bytes: bytes("migration.maxKeyBytes", &max_key_bytes)?,
        paused,
    })
}

/// What a person approved. An annotation that speaks about another generation approves nothing.
fn approval(cluster: &RedisCluster, strategy: UpdateStrategy) -> Approval {
    match strategy {
        UpdateStrategy::Automatic => Approval::All,
        UpdateStrategy::Supervised => {
            let annotations = cluster.metadata.annotations.as_ref();
            let text = annotations.and_then(|all| all.get(names::ANNOTATION_APPROVE));
            let generation = cluster.metadata.generation.unwrap_or(0).to_string();
            let approved = text.and_then(|text| text.split_once(':')).filter(|(of, _)| of.trim() == generation);
            match approved.map(|(_, shards)| shards.trim()) {
                Some("*") => Approval::All,
                Some(shards) => Approval::Shards(shards.split(',').filter_map(|s| s.trim().parse().ok()).collect()),
                None => Approval::Shards(BTreeSet::new()),
            }
        }
    }
}

/// The last restart of each shard: a running operation's, else what the StatefulSet carries. It stays on the template
/// after the operation's record is gone, or its disappearance would look like another change of the template.
fn restarts(gathered: &Gathered, shards: u16) -> BTreeMap<u16, String> {
    let asked = gathered.current_operation().and_then(|operation| restart_of(operation));
    (0..shards)
        .filter_map(|shard| {
            let named = asked.as_ref().filter(|(_, shards)| shards.is_empty() || shards.contains(&i32::from(shard)));
            let carried = || build::stateful_set::restarted_by(gathered.stateful_set(shard)?);
            Some((shard, named.map(|(uid, _)| uid.clone()).or_else(carried)?))
        })
        .collect()
}

fn restart_of(operation: &RedisOperation) -> Option<(String, BTreeSet<i32>)> {
    let restart = operation.spec.restart.as_ref().filter(|_| !operation.spec.cancel)?;
    Some((operation.metadata.uid.clone()?, restart.shards.iter().copied().collect()))
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
