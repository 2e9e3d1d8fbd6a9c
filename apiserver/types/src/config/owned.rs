//! Directives that KUN sets itself, and why a user may not.

const ADDRESS: &str = "members listen on and announce their pod's address";
const ACL: &str = "users and passwords come from spec.auth and from Secrets";
const MEMORY: &str = "use spec.memory and spec.resources";
const PERSISTENCE: &str = "use spec.persistence";
const FILES: &str = "files lie on the pod's volume under names the agent knows";
const REPLICATION: &str = "replication follows the topology that KUN plans";
const CLUSTER: &str = "the cluster's behaviour is part of KUN's guarantees; see spec.failover";
const TLS: &str = "TLS of Redis is not configurable yet";
const DANGER: &str = "it would open the server to code or commands from outside";
const PROCESS: &str = "the agent runs and stops the process";
const LOGGING: &str = "the log goes to the container's output";
const DEFRAG: &str = "it needs an allocator that not every build of Redis has, and such a build does not start";
const CPU: &str = "processors are assigned by spec.resources";
const OLD_NAME: &str = "it is an old name; use the present one";
const INTERNAL: &str = "it is a switch for Redis' own developers";

/// Whole families.
const PREFIXES: [(&str, &str); 6] = [
    ("cluster-", CLUSTER),
    ("tls-", TLS),
    ("repl-diskless-", REPLICATION),
    ("active-defrag-", DEFRAG),
    ("enable-", DANGER),
    ("sentinel", CLUSTER),
];

/// Single directives, in the order of their names.
const NAMES: [(&str, &str); 76] = [
    ("acl-pubsub-default", ACL),
    ("aclfile", ACL),
    ("activedefrag", DEFRAG),
    ("always-show-logo", LOGGING),
    ("aof-disable-auto-gc", INTERNAL),
    ("aof_rewrite_cpulist", CPU),
    ("appenddirname", FILES),
    ("appendfilename", FILES),
    ("appendfsync", PERSISTENCE),
    ("appendonly", PERSISTENCE),
    ("bgsave_cpulist", CPU),
    ("bind", ADDRESS),
    ("bind-source-addr", ADDRESS),
    ("bio_cpulist", CPU),
    ("daemonize", PROCESS),
    ("dbfilename", FILES),
    ("dir", FILES),
    ("disable-thp", PROCESS),
    ("hash-max-ziplist-entries", OLD_NAME),
    ("hash-max-ziplist-value", OLD_NAME),
    ("ignore-warnings", PROCESS),
    ("include", FILES),
    ("list-max-ziplist-size", OLD_NAME),
    ("loadmodule", DANGER),
    ("logfile", LOGGING),
    ("lua-time-limit", OLD_NAME),
    ("masterauth", ACL),
    ("masteruser", ACL),
    ("maxmemory", MEMORY),
    ("maxmemory-policy", MEMORY),
    ("min-replicas-to-write", "use spec.failover.minReplicasToWrite"),
    ("min-slaves-max-lag", OLD_NAME),
    ("min-slaves-to-write", OLD_NAME),
    ("oom-score-adj", PROCESS),
    ("oom-score-adj-values", PROCESS),
    ("pidfile", FILES),
    ("port", ADDRESS),
    ("proc-title-template", PROCESS),
    ("propagation-error-behavior", INTERNAL),
    ("protected-mode", ADDRESS),
    ("rdb-del-sync-files", PERSISTENCE),
    ("rdbchecksum", "backups are verified by it"),
    ("rename-command", ACL),
    ("repl-ping-slave-period", OLD_NAME),
    ("replica-announce-ip", ADDRESS),
    ("replica-announce-port", ADDRESS),
    ("replica-announced", ADDRESS),
    ("replica-ignore-disk-write-errors", PERSISTENCE),
    ("replica-priority", REPLICATION),
    ("replica-read-only", REPLICATION),
    ("replicaof", REPLICATION),
    ("requirepass", ACL),
    ("save", PERSISTENCE),
    ("server_cpulist", CPU),
    ("set-proc-title", PROCESS),
    ("shutdown-on-sigint", PROCESS),
    ("shutdown-on-sigterm", PROCESS),
    ("shutdown-timeout", PROCESS),
    ("slave-announce-ip", OLD_NAME),
    ("slave-announce-port", OLD_NAME),
    ("slave-ignore-maxmemory", OLD_NAME),
    ("slave-lazy-flush", OLD_NAME),
    ("slave-priority", OLD_NAME),
    ("slave-read-only", OLD_NAME),
    ("slave-serve-stale-data", OLD_NAME),
    ("slaveof", OLD_NAME),
    ("socket-mark-id", ADDRESS),
    ("supervised", PROCESS),
    ("syslog-enabled", LOGGING),
    ("syslog-facility", LOGGING),
    ("syslog-ident", LOGGING),
    ("unixsocket", ADDRESS),
    ("unixsocketperm", ADDRESS),
    ("user", ACL),
    ("zset-max-ziplist-entries", OLD_NAME),
    ("zset-max-ziplist-value", OLD_NAME),
];

/// Why KUN owns a directive, in any spelling of its case; `None`: it does not.
#[must_use]
pub fn reason(name: &str) -> Option<&'static str> {
    let name = name.trim().to_ascii_lowercase();
    let single = NAMES.iter().find(|(owned, _)| *owned == name);
    let family = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    single.or(family).map(|(_, reason)| *reason)
}
