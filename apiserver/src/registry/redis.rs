//! The kinds of redis.kun.io.

use std::sync::Arc;

use types::{GROUP, VERSION, schema};

use super::{
    Column, Kind, Names, Registry, ScalePaths, Scope, Subresource,
    access::{Access, FOLLOW, Part},
};
use crate::{
    request::Verb,
    resource::{
        redis_backup::{self, Backup},
        redis_cluster,
        redis_failover::Failover,
        redis_operation, redis_policy,
        redis_restart::Restart,
    },
};

const fn names(
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
) -> Names {
    Names { group: GROUP, version: VERSION, kind, plural, singular, short_names: short }
}

/// The controller works off records, and deletes those whose time is over.
const RECORD_OBJECT: Access = Access::of(Part::Controller, &[Verb::List, Verb::Watch, Verb::Delete]);
const RECORD_STATUS: Access = Access::to(Part::Controller, "status", &[Verb::Update]);

/// RedisCluster, RedisBackup, RedisOperation, RedisPolicy.
pub fn registry() -> Result<Registry, merge::SchemaError> {
    Ok(Registry::new(vec![cluster()?, backup()?, operation()?, policy()?]))
}

fn cluster() -> Result<Kind, merge::SchemaError> {
    let names = names("RedisCluster", "redisclusters", "rediscluster", &["rdc"]);
    let kind = Kind::new(names, Scope::Namespaced, schema::cluster(), Arc::new(redis_cluster::Rules))?;
    let scale = ScalePaths { spec: "/spec/shards", status: "/status/replicas", selector: "/status/selector" };
    Ok(Kind {
        categories: &["all"],
        columns: vec![
            Column::new("Mode", "string", "{.spec.mode}", "Cluster or Standalone."),
            Column::new("Version", "string", "{.spec.version}", "Version of Redis asked for."),
            Column::new(
                "Shards",
                "string",
                "{.status.replicas|0}/{.spec.shards}",
                "Serving primaries of those asked for.",
            ),
            Column::new("Replicas", "integer", "{.spec.replicasPerShard}", "Replicas of each primary."),
            Column::new("Phase", "string", "{.status.phase|Pending}", "What it is doing."),
            Column::new("Memory", "integer", "{.status.usedMemory}", "Memory of all primaries, in bytes.").wide(),
            Column::new("Keys", "integer", "{.status.keys}", "Keys of all primaries together.").wide(),
            Column::new("Endpoint", "string", "{.status.endpoints[0]}", "Where clients connect.").wide(),
            Column::new("Last Backup", "date", "{.status.lastBackup.completionTime}", "Age of the last backup.").wide(),
        ],
        subresources: vec![
            Subresource::Action(Arc::new(Backup)),
            Subresource::Action(Arc::new(Failover)),
            Subresource::Recover,
            Subresource::Action(Arc::new(Restart)),
            Subresource::Scale(scale),
            Subresource::Status,
        ],
        selectable: &["status.phase"],
        access: vec![
            Access::of(Part::Controller, &[Verb::Get, Verb::List, Verb::Watch, Verb::Patch]),
            Access::to(Part::Controller, "status", &[Verb::Update]),
            Access::of(Part::Webhook, FOLLOW),
        ],
        ..kind
    })
}

fn backup() -> Result<Kind, merge::SchemaError> {
    let names = names("RedisBackup", "redisbackups", "redisbackup", &["rbk"]);
    let kind = Kind::new(names, Scope::Namespaced, schema::backup(), Arc::new(redis_backup::Rules))?;
    Ok(Kind {
        columns: vec![
            Column::new("Cluster", "string", "{.spec.clusterName}", "The RedisCluster it came from."),
            Column::new("Phase", "string", "{.status.phase|Pending}", "How far it is."),
            Column::new("Shards", "integer", "{~.status.shards|0}", "Artifacts stored."),
            Column::new("Verified", "boolean", "{.status.verified|false}", "Every artifact was read back and checked."),
            Column::new("Completed", "date", "{.status.completionTime}", "Time since it completed."),
            Column::new("Location", "string", "{.status.location}", "Folder of the artifacts.").wide(),
        ],
        subresources: vec![Subresource::Status],
        selectable: &["spec.clusterName", "status.phase"],
        // Its finalizer keeps a backup until its artifacts have gone.
        access: vec![RECORD_OBJECT, Access::of(Part::Controller, &[Verb::Patch]), RECORD_STATUS],
        ..kind
    })
}

fn operation() -> Result<Kind, merge::SchemaError> {
    let names = names("RedisOperation", "redisoperations", "redisoperation", &["rop"]);
    let kind = Kind::new(names, Scope::Namespaced, schema::operation(), Arc::new(redis_operation::Rules))?;
    Ok(Kind {
        columns: vec![
            Column::new("Cluster", "string", "{.spec.clusterName}", "The RedisCluster it is about."),
            Column::new("Phase", "string", "{.status.phase|Pending}", "How far it is."),
            Column::new(
                "Progress",
                "string",
                "{.status.progress.done|0}/{.status.progress.total|0}",
                "How much is done.",
            ),
            Column::new("Requested By", "string", "{.status.requestedBy}", "Who asked.").wide(),
        ],
        subresources: vec![Subresource::Status],
        selectable: &["spec.clusterName", "status.phase"],
        access: vec![RECORD_OBJECT, RECORD_STATUS, Access::of(Part::Webhook, FOLLOW)],
        ..kind
    })
}

fn policy() -> Result<Kind, merge::SchemaError> {
    let names = names("RedisPolicy", "redispolicies", "redispolicy", &["rdp"]);
    let kind = Kind::new(names, Scope::Cluster, schema::policy(), Arc::new(redis_policy::Rules))?;
    Ok(Kind {
        columns: vec![Column::new("Action", "string", "{.spec.action}", "What a broken rule causes.")],
        access: vec![Access::of(Part::Webhook, FOLLOW)],
        ..kind
    })
}
