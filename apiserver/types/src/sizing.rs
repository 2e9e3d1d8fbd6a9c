//! What the numbers of a spec come to, with defaults applied: the readings that several parts need alike.
//!
//! Every method is total on an unchecked spec; what validation would refuse reads as the nearest sensible value.

use std::time::Duration;

use crate::{cluster::RedisClusterSpec, defaults, duration, image, quantity::Quantity};

impl RedisClusterSpec {
    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        count(self.shards.unwrap_or(defaults::shards(self.mode)))
    }

    /// Replicas of each primary.
    #[must_use]
    pub fn replicas(&self) -> u16 {
        count(self.replicas_per_shard.unwrap_or(defaults::replicas_per_shard(self.mode)))
    }

    /// Pods of one shard: its primary and its replicas.
    #[must_use]
    pub fn members_per_shard(&self) -> u16 {
        self.replicas().saturating_add(1)
    }

    /// The image each pod runs.
    #[must_use]
    pub fn image(&self) -> String {
        self.image.clone().unwrap_or_else(|| image::of_version(self.engine, &self.version))
    }

    /// Memory limit of one pod in bytes; absent: none.
    #[must_use]
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        bytes(self.resources.as_ref()?.limits.get("memory")?)
    }

    /// maxmemory of one Redis in bytes: as given, else the given part of the limit; absent: unlimited.
    #[must_use]
    pub fn max_memory_bytes(&self) -> Option<u64> {
        if let Some(given) = self.memory.max_bytes.as_deref().and_then(bytes) {
            return Some(given);
        }
        let percent = u128::try_from(self.memory.max_percent).unwrap_or(0).min(100);
        let part = u128::from(self.memory_limit_bytes()?) * percent / 100;
        u64::try_from(part).ok()
    }

    /// Size of one pod's volume in bytes; absent: no volume.
    #[must_use]
    pub fn storage_bytes(&self) -> Option<u64> {
        bytes(&self.storage.as_ref()?.size)
    }

    /// cluster-node-timeout.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        duration::parse(&self.failover.node_timeout).unwrap_or(Duration::from_secs(5))
    }

    /// Largest key that is moved, in bytes.
    #[must_use]
    pub fn max_key_bytes(&self) -> u64 {
        bytes(&self.migration.max_key_bytes).unwrap_or(512 << 20)
    }

    /// Bound of moved bytes per second; absent: none.
    #[must_use]
    pub fn max_bytes_per_second(&self) -> Option<u64> {
        self.migration.max_bytes_per_second.as_deref().and_then(bytes)
    }
}

fn count(number: i32) -> u16 {
    u16::try_from(number.max(0)).unwrap_or(u16::MAX)
}

fn bytes(text: &str) -> Option<u64> {
    Quantity::parse(text).ok().map(Quantity::bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> RedisClusterSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn maxmemory_is_what_is_given_else_a_part_of_the_limit_else_unlimited() {
        let limit = json!({"limits": {"memory": "1Gi", "cpu": 2}});
        assert_eq!(spec(json!({})).max_memory_bytes(), None);
        assert_eq!(spec(json!({"resources": limit})).max_memory_bytes(), Some(3 << 28));
        let given = spec(json!({"resources": limit, "memory": {"maxBytes": "64Mi"}}));
        assert_eq!(given.max_memory_bytes(), Some(64 << 20));
    }

    #[test]
    fn readings_of_a_spec_that_says_nothing_are_the_defaults() {
        let empty = spec(json!({}));
        assert_eq!((empty.shards(), empty.replicas(), empty.members_per_shard()), (3, 1, 2));
        assert_eq!(empty.image(), "docker.io/library/redis:7.0");
        assert_eq!((empty.node_timeout(), empty.max_key_bytes()), (Duration::from_secs(5), 512 << 20));
        assert_eq!((empty.storage_bytes(), empty.max_bytes_per_second()), (None, None));
    }

    #[test]
    fn absurd_numbers_read_as_something_bounded() {
        let odd = spec(json!({"shards": -5, "replicasPerShard": 2_000_000_000, "memory": {"maxPercent": -1}}));
        assert_eq!((odd.shards(), odd.replicas(), odd.members_per_shard()), (0, u16::MAX, u16::MAX));
    }
}
