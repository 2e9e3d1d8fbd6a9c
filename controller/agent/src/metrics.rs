//! `/metrics`: the numbers of INFO as Prometheus metrics. The table is the whole mapping; encoding is pure.

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info as ConstInfo},
    registry::Registry,
};
use resp::Info;

/// One metric: its name, its field in INFO, what it says.
struct Metric {
    name: &'static str,
    field: &'static str,
    help: &'static str,
    kind: Kind,
}

enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows while the process lives.
    Counter,
    /// 1 when the field has this value.
    Is(&'static str),
}

const fn gauge(name: &'static str, field: &'static str, help: &'static str) -> Metric {
    Metric { name, field, help, kind: Kind::Gauge }
}
const fn counter(name: &'static str, field: &'static str, help: &'static str) -> Metric {
    Metric { name, field, help, kind: Kind::Counter }
}
const fn is(name: &'static str, field: &'static str, value: &'static str, help: &'static str) -> Metric {
    Metric { name, field, help, kind: Kind::Is(value) }
}

const METRICS: &[Metric] = &[
    gauge("uptime_seconds", "uptime_in_seconds", "Seconds since redis-server started"),
    gauge("connected_clients", "connected_clients", "Client connections"),
    gauge("blocked_clients", "blocked_clients", "Clients that wait in a blocking command"),
    gauge("memory_used_bytes", "used_memory", "Bytes allocated for data and overhead"),
    gauge("memory_rss_bytes", "used_memory_rss", "Bytes of physical memory"),
    gauge("memory_max_bytes", "maxmemory", "maxmemory, 0 if unlimited"),
    gauge("memory_fragmentation_ratio", "mem_fragmentation_ratio", "Physical memory by used memory"),
    gauge("loading", "loading", "1 while the data set is loaded"),
    gauge("rdb_changes_since_last_save", "rdb_changes_since_last_save", "Writes since the last snapshot"),
    gauge("rdb_last_save_timestamp_seconds", "rdb_last_save_time", "Time of the last snapshot"),
    is("rdb_last_save_ok", "rdb_last_bgsave_status", "ok", "1 if the last snapshot succeeded"),
    is("aof_last_write_ok", "aof_last_write_status", "ok", "1 if the last write to the append-only file succeeded"),
    is("aof_last_rewrite_ok", "aof_last_bgrewrite_status", "ok", "1 if the last rewrite succeeded"),
    gauge("aof_size_bytes", "aof_current_size", "Size of the append-only files"),
    gauge("aof_delayed_fsync", "aof_delayed_fsync", "Syncs that were delayed"),
    counter("connections_received", "total_connections_received", "Accepted connections"),
    counter("connections_rejected", "rejected_connections", "Connections over maxclients"),
    counter("commands_processed", "total_commands_processed", "Commands"),
    counter("network_input_bytes", "total_net_input_bytes", "Bytes received"),
    counter("network_output_bytes", "total_net_output_bytes", "Bytes sent"),
    counter("expired_keys", "expired_keys", "Keys that expired"),
    counter("evicted_keys", "evicted_keys", "Keys that were evicted"),
    counter("keyspace_hits", "keyspace_hits", "Lookups that found a key"),
    counter("keyspace_misses", "keyspace_misses", "Lookups that found none"),
    counter("sync_full", "sync_full", "Full copies sent to replicas"),
    counter("sync_partial_ok", "sync_partial_ok", "Partial resynchronisations"),
    counter("sync_partial_err", "sync_partial_err", "Partial resynchronisations that were refused"),
    is("primary", "role", "master", "1 if this member is a primary"),
    gauge("connected_replicas", "connected_slaves", "Replicas attached, readers of backups included"),
    is("primary_link_up", "master_link_status", "up", "1 if this replica's link to its primary is up"),
    gauge("primary_sync_in_progress", "master_sync_in_progress", "1 while a full copy is received"),
    gauge("replication_offset_bytes", "master_repl_offset", "Replication offset"),
    gauge("last_fork_microseconds", "latest_fork_usec", "Duration of the last fork"),
    gauge("cpu_system_seconds", "used_cpu_sys", "System CPU time of the process"),
    gauge("cpu_user_seconds", "used_cpu_user", "User CPU time of the process"),
];

/// Encodes what INFO says; `None`: Redis did not answer.
#[must_use]
pub fn encode_metrics(info: Option<&Info>, phase: &str) -> String {
    let mut registry = Registry::with_prefix("redis");
    registry.register("up", "1 if redis-server answers", ConstGauge::new(i64::from(info.is_some())));
    let phase = [("phase", phase.to_owned())];
    registry.register("agent_phase", "What the agent is doing", ConstInfo::new(phase));
    if let Some(info) = info {
        METRICS.iter().for_each(|metric| register(&mut registry, metric, info));
        registry.register("keys", "Keys", ConstGauge::new(info.keys()));
    }
    let mut text = String::new();
    // Writing to a String cannot fail; an empty answer would be noticed by whoever scrapes it.
    let _ = encode(&mut text, &registry);
    text
}

fn register(registry: &mut Registry, metric: &Metric, info: &Info) {
    match metric.kind {
        Kind::Gauge => {
            if let Some(value) = info.fraction(metric.field) {
                registry.register(metric.name, metric.help, ConstGauge::new(value));
            }
        }
        Kind::Counter => {
            if let Some(value) = info.number(metric.field) {
                registry.register(metric.name, metric.help, ConstCounter::new(value.max(0).unsigned_abs()));
            }
        }
        Kind::Is(expected) => {
            if let Some(value) = info.get(metric.field) {
                registry.register(metric.name, metric.help, ConstGauge::new(i64::from(value == expected)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_metrics_and_absent_fields_are_left_out() {
        let info = Info::parse(
            "role:slave\nmaster_link_status:up\nused_memory:123\nexpired_keys:4\nmem_fragmentation_ratio:1.5\n\
             db0:keys=7,expires=0,avg_ttl=0\nrequirepass:canary\n",
        );
        let text = encode_metrics(Some(&info), "Running");
        for line in [
            "redis_up 1",
            "redis_memory_used_bytes 123.0",
            "redis_memory_fragmentation_ratio 1.5",
            "redis_expired_keys_total 4",
            "redis_primary 0",
            "redis_primary_link_up 1",
            "redis_keys 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("canary") && !text.contains("redis_loading"), "{text}");
        assert!(encode_metrics(None, "Held").contains("redis_up 0"));
    }
}
