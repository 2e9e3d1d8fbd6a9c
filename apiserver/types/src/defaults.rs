//! Defaults that depend on other fields. Plain ones are in the types themselves and so in the schema.
//!
//! Every function is idempotent: the API server and the webhook both apply them, in any order and number.

use serde_json::Value;

use crate::{
    backup::RedisBackupSpec,
    cluster::{Mode, RedisClusterSpec},
    engine::Engine,
    operation::RedisOperationSpec,
    policy::RedisPolicySpec,
};

/// Shards of a cluster that says nothing: three primaries are the fewest of which a majority survives one loss.
#[must_use]
pub const fn shards(mode: Mode) -> i32 {
    match mode {
        Mode::Cluster => 3,
        Mode::Standalone => 1,
    }
}

/// Replicas per shard of a cluster that says nothing.
#[must_use]
pub const fn replicas_per_shard(mode: Mode) -> i32 {
    match mode {
        Mode::Cluster => 1,
        Mode::Standalone => 0,
    }
}

/// Defaults of a RedisCluster. The image stays absent: it follows the version through the catalogue.
pub fn cluster(spec: &mut RedisClusterSpec) {
    spec.shards.get_or_insert(shards(spec.mode));
    spec.replicas_per_shard.get_or_insert(replicas_per_shard(spec.mode));
}

/// As [`cluster`], on an object as it came in (any shape; what is not understood is left to validation).
pub fn cluster_value(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let mode = match spec.get("mode") {
        None | Some(Value::Null) => Mode::default(),
        Some(given) => match serde_json::from_value(given.clone()) {
            Ok(mode) => mode,
            Err(_) => return,
        },
    };
    for (name, value) in [("shards", shards(mode)), ("replicasPerShard", replicas_per_shard(mode))] {
        let field = spec.entry(name).or_insert(Value::Null);
        if field.is_null() {
            *field = value.into();
        }
    }
}

/// Defaults of a RedisCluster that come before those of its schema, because a schema cannot say them: the version of an
/// engine that is not the default one.
pub fn before_schema(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let engine = spec.get("engine").and_then(|given| serde_json::from_value::<Engine>(given.clone()).ok());
    let Some(engine) = engine.filter(|engine| *engine != Engine::default()) else { return };
    let version = spec.entry("version").or_insert(Value::Null);
    if version.is_null() {
        *version = engine.default_version().into();
    }
}

/// Defaults of a RedisBackup: none depend on other fields.
pub const fn backup(_: &mut RedisBackupSpec) {}

/// Defaults of a RedisOperation: none depend on other fields.
pub const fn operation(_: &mut RedisOperationSpec) {}

/// Defaults of a RedisPolicy: none depend on other fields.
pub const fn policy(_: &mut RedisPolicySpec) {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_says_nothing_gets_three_shards_with_one_replica_and_a_standalone_one_server() {
        let mut cluster_mode = RedisClusterSpec::default();
        cluster(&mut cluster_mode);
        assert_eq!(
            (cluster_mode.shards, cluster_mode.replicas_per_shard, cluster_mode.image),
            (Some(3), Some(1), None)
        );
        let mut single = RedisClusterSpec { mode: Mode::Standalone, ..Default::default() };
        cluster(&mut single);
        assert_eq!((single.shards, single.replicas_per_shard), (Some(1), Some(0)));
    }

    #[test]
    fn an_object_as_it_came_in_gets_the_same_defaults() {
        let mut object = json!({"spec": {"shards": null, "mode": "Standalone"}});
        cluster_value(&mut object);
        assert_eq!(object, json!({"spec": {"shards": 1, "replicasPerShard": 0, "mode": "Standalone"}}));
        for odd in [json!(null), json!({"spec": 3}), json!({"spec": {"mode": "x"}}), json!([])] {
            let mut object = odd.clone();
            cluster_value(&mut object);
            assert_eq!(object, odd);
        }
    }

    #[test]
    fn the_version_follows_the_engine_unless_it_is_given() {
        for (given, defaulted) in [
            (json!({"spec": {"engine": "Valkey"}}), json!({"spec": {"engine": "Valkey", "version": "8.1"}})),
            (
                json!({"spec": {"engine": "Valkey", "version": null}}),
                json!({"spec": {"engine": "Valkey", "version": "8.1"}}),
            ),
            (
                json!({"spec": {"engine": "Valkey", "version": "9"}}),
                json!({"spec": {"engine": "Valkey", "version": "9"}}),
            ),
        ] {
            let mut object = given.clone();
            before_schema(&mut object);
            assert_eq!(object, defaulted);
        }
        // The schema's own default is Redis'.
        for same in [
            json!({"spec": {"engine": "Redis"}}),
            json!({"spec": {}}),
            json!({"spec": {"engine": null, "version": null}}),
            json!({"spec": {"engine": "valkey"}}),
            json!({"spec": 3}),
            json!(null),
        ] {
            let mut object = same.clone();
            before_schema(&mut object);
            assert_eq!(object, same);
        }
    }

    proptest! {
        #[test]
        fn defaults_are_idempotent_and_keep_what_is_given(
            shards in proptest::option::of(any::<i32>()),
            replicas in proptest::option::of(any::<i32>()),
            standalone: bool,
        ) {
            let mode = if standalone { Mode::Standalone } else { Mode::Cluster };
            let given = RedisClusterSpec { mode, shards, replicas_per_shard: replicas, ..Default::default() };
            let mut once = given.clone();
            cluster(&mut once);
            let mut twice = once.clone();
            cluster(&mut twice);
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(once.shards, shards.or(once.shards));
            prop_assert_eq!(once.replicas_per_shard, replicas.or(once.replicas_per_shard));
            let mut value = json!({"spec": serde_json::to_value(&given).unwrap()});
            cluster_value(&mut value);
            prop_assert_eq!(&value, &json!({"spec": serde_json::to_value(&once).unwrap()}));
        }
    }
}
