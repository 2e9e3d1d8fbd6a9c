//! The parameters of Redis 7.0 that users may set, in the order of their names.
//!
//! Whether a parameter is Live was tried on 7.0.15 (`CONFIG SET` accepts it); bounds are Redis' own where they are
//! sensible, else narrower with the reason beside them.

use super::{
    Class::{Live, Restart},
    Kind::{Bool, Enum, Form, Int, Memory},
    Parameter, integer, memory,
    shown::{same_events, same_memory_or_percent, same_output_limits, same_percentiles},
};

/// No list or counter of Redis needs more; larger numbers are mistakes of unit.
const MANY: i64 = 10_000_000;
/// A day in seconds: no timeout of a live server is longer.
const DAY: i64 = 86_400;
/// Largest buffer: as large as the largest machines, and far from an overflow when Redis doubles it.
const TERABYTE: u64 = 1 << 40;

const fn live(name: &'static str, kind: super::Kind, default: &'static str) -> Parameter {
    Parameter { name, class: Live, kind, default }
}
const fn restart(name: &'static str, kind: super::Kind, default: &'static str) -> Parameter {
    Parameter { name, class: Restart, kind, default }
}

/// Every parameter that may be set, sorted by name.
pub static PARAMETERS: &[Parameter] = &[
    live("acllog-max-len", Int(0, 100_000), "128"),
    live("active-expire-effort", Int(1, 10), "1"),
    live("activerehashing", Bool, "yes"),
    live("aof-load-truncated", Bool, "yes"),
    live("aof-rewrite-incremental-fsync", Bool, "yes"),
    live("aof-timestamp-enabled", Bool, "no"),
    live("aof-use-rdb-preamble", Bool, "yes"),
    live("auto-aof-rewrite-min-size", Memory(1 << 20, TERABYTE), "64mb"),
    live("auto-aof-rewrite-percentage", Int(0, 10_000), "100"),
    live("busy-reply-threshold", Int(0, DAY * 1000), "5000"),
    live(
        "client-output-buffer-limit",
        Form(
            is_output_limits,
            "groups of class (normal, replica, pubsub), hard limit, soft limit and seconds",
            same_output_limits,
        ),
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
    ),
    live("client-query-buffer-limit", Memory(1 << 20, TERABYTE), "1gb"),
    live("crash-log-enabled", Bool, "yes"),
    live("crash-memcheck-enabled", Bool, "yes"),
    restart("databases", Int(1, 1024), "16"),
    live("dynamic-hz", Bool, "yes"),
    live("hash-max-listpack-entries", Int(0, MANY), "512"),
    live("hash-max-listpack-value", Int(0, MANY), "64"),
    live("hll-sparse-max-bytes", Int(0, 16_000), "3000"),
    live("hz", Int(1, 500), "10"),
    restart("io-threads", Int(1, 128), "1"),
    restart("io-threads-do-reads", Bool, "no"),
    live("jemalloc-bg-thread", Bool, "yes"),
    live("latency-monitor-threshold", Int(0, DAY * 1000), "0"),
    live("latency-tracking", Bool, "yes"),
    live(
        "latency-tracking-info-percentiles",
        Form(is_percentiles, "up to 8 numbers from 0 to 100 with spaces between", same_percentiles),
        "50 99 99.9",
    ),
    live("lazyfree-lazy-eviction", Bool, "no"),
    live("lazyfree-lazy-expire", Bool, "no"),
    live("lazyfree-lazy-server-del", Bool, "no"),
    live("lazyfree-lazy-user-del", Bool, "no"),
    live("lazyfree-lazy-user-flush", Bool, "no"),
    live("lfu-decay-time", Int(0, MANY), "1"),
    live("lfu-log-factor", Int(0, MANY), "10"),
    live("list-compress-depth", Int(0, MANY), "0"),
    live("list-max-listpack-size", Int(-5, 65_536), "-2"),
    live("loglevel", Enum(&["debug", "verbose", "notice", "warning"]), "notice"),
    // The controller, the agent and replication hold a handful of connections of their own; 64 leaves room for all.
    live("maxclients", Int(64, 1_000_000), "10000"),
    live(
        "maxmemory-clients",
        Form(
            is_memory_or_percent,
            "a number of bytes such as 64mb, or a percentage such as 5%",
            same_memory_or_percent,
        ),
        "0",
    ),
    live("maxmemory-eviction-tenacity", Int(0, 100), "10"),
    live("maxmemory-samples", Int(1, 64), "5"),
    live("min-replicas-max-lag", Int(1, DAY), "10"),
    live("no-appendfsync-on-rewrite", Bool, "no"),
    live("notify-keyspace-events", Form(is_event_classes, "letters of KEg$lshzxetdmnA", same_events), ""),
    live("proto-max-bulk-len", Memory(1 << 20, TERABYTE), "512mb"),
    live("rdb-save-incremental-fsync", Bool, "yes"),
    live("rdbcompression", Bool, "yes"),
    live("repl-backlog-size", Memory(16 << 10, TERABYTE), "1mb"),
    live("repl-backlog-ttl", Int(0, DAY * 365), "3600"),
    live("repl-disable-tcp-nodelay", Bool, "no"),
    live("repl-ping-replica-period", Int(1, DAY), "10"),
    live("repl-timeout", Int(5, DAY), "60"),
    live("replica-ignore-maxmemory", Bool, "yes"),
    live("replica-lazy-flush", Bool, "no"),
    live("replica-serve-stale-data", Bool, "yes"),
    live("sanitize-dump-payload", Enum(&["no", "yes", "clients"]), "no"),
    live("set-max-intset-entries", Int(0, MANY), "512"),
    live("slowlog-log-slower-than", Int(-1, DAY * 1_000_000), "10000"),
    live("slowlog-max-len", Int(0, MANY), "128"),
    live("stop-writes-on-bgsave-error", Bool, "yes"),
    live("stream-node-max-bytes", Memory(0, 1 << 30), "4096"),
    live("stream-node-max-entries", Int(0, MANY), "100"),
    restart("tcp-backlog", Int(1, 65_535), "511"),
    live("tcp-keepalive", Int(0, DAY), "300"),
    live("timeout", Int(0, DAY * 365), "0"),
    live("tracking-table-max-keys", Int(0, 1_000_000_000), "1000000"),
    live("zset-max-listpack-entries", Int(0, MANY), "128"),
    live("zset-max-listpack-value", Int(0, MANY), "64"),
];

/// Defaults of Valkey since 8.0 that are not Redis'; tried on 8.1.1 and 9.1.2, which take every parameter of the table in
/// their configuration file. There `io-threads-do-reads`, `dynamic-hz` and (9.1) `sanitize-dump-payload` have no effect.
pub(super) static OF_VALKEY: &[(&str, &str)] = &[
    ("lazyfree-lazy-eviction", "yes"),
    ("lazyfree-lazy-expire", "yes"),
    ("lazyfree-lazy-server-del", "yes"),
    ("lazyfree-lazy-user-del", "yes"),
    ("lazyfree-lazy-user-flush", "yes"),
    ("repl-backlog-size", "10mb"),
    ("replica-lazy-flush", "yes"),
];

fn is_output_limits(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    let size = |word: &str| memory(word).is_some_and(|bytes| bytes <= TERABYTE);
    let group = |group: &[&str]| match group {
        [class, hard, soft, seconds] => {
            matches!(*class, "normal" | "replica" | "pubsub")
                && size(hard)
                && size(soft)
                && seconds.parse::<u32>().is_ok_and(|seconds| i64::from(seconds) <= DAY)
        }
        _ => false,
    };
    words.chunks(4).all(group)
}

fn is_percentiles(text: &str) -> bool {
    let number = |word: &str| {
        let plain = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        plain && word.parse::<f64>().is_ok_and(|number| (0.0..=100.0).contains(&number))
    };
    text.split(' ').count() <= 8 && text.split(' ').all(number)
}

fn is_memory_or_percent(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(number) => integer(number).is_some_and(|percent| (0..=100).contains(&percent)),
        None => memory(text).is_some_and(|bytes| bytes <= TERABYTE),
    }
}

fn is_event_classes(text: &str) -> bool {
    text.len() <= 16 && text.chars().all(|letter| "KEg$lshzxetdmnA".contains(letter))
}
