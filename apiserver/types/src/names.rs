//! Names: labels, annotations, ports and the names of the children a RedisCluster gets.
//!
//! Both sides of every name live here, so that the controller that writes one and the reader that looks for it agree.

/// Label on every child: the RedisCluster's name.
pub const LABEL_CLUSTER: &str = "redis.kun.io/cluster";
/// Label on every child of a shard: the shard's index.
pub const LABEL_SHARD: &str = "redis.kun.io/shard";
/// Label on the pod that is its shard's serving primary, with the value [`ROLE_PRIMARY`]; no other pod carries it.
pub const LABEL_ROLE: &str = "redis.kun.io/role";
/// Value of [`LABEL_ROLE`].
pub const ROLE_PRIMARY: &str = "primary";
/// Label on a backup's worker pods, and on a RedisBackup: its cluster / its name.
pub const LABEL_BACKUP: &str = "redis.kun.io/backup";
/// Label on a backup's worker pods: uid of the RedisBackup. A later one of the same name is another.
pub const LABEL_BACKUP_UID: &str = "redis.kun.io/backup-uid";
/// Value of `app.kubernetes.io/managed-by` on every child.
pub const MANAGED_BY: &str = "kun";
/// Value of `app.kubernetes.io/name` on the controller's own pods, as the chart has it: NetworkPolicies let them in.
pub const CONTROLLER_NAME: &str = "kun-controller";
/// Finalizer on a RedisCluster: its children are removed by the controller, in its order.
pub const FINALIZER: &str = "redis.kun.io/teardown";
/// Finalizer on a RedisBackup: its workers end, and its artifacts go or stay as `deletionPolicy` says, before it goes.
pub const FINALIZER_ARTIFACTS: &str = "redis.kun.io/artifacts";
/// Annotation on the StatefulSet of shard 0: what is needed to make its owner anew ([`crate::record::Record`], JSON).
pub const ANNOTATION_OWNER: &str = "redis.kun.io/owner";
/// Annotation on every child: uid of the RedisCluster. Children of another uid are never touched.
pub const ANNOTATION_OWNER_UID: &str = "redis.kun.io/owner-uid";
/// Annotation on a RedisCluster in a supervised update: `"<generation>:<shard>,…"` or `"<generation>:*"`.
pub const ANNOTATION_APPROVE: &str = "redis.kun.io/approve";
/// Annotation on a pod template: changes when a restart is due (hash of restart-class configuration).
pub const ANNOTATION_RESTART: &str = "redis.kun.io/restart";

/// Client port of Redis.
pub const PORT_REDIS: u16 = 6379;
/// Cluster bus port.
pub const PORT_BUS: u16 = 16379;
/// HTTPS port of the agent.
pub const PORT_AGENT: u16 = 16443;
/// Name on every agent's certificate: the controller dials an address and verifies this name.
pub const AGENT_SERVER_NAME: &str = "agent.redis.kun.io";
/// Common name of the controller's client certificate, the only one an agent obeys (besides its own cluster's).
pub const CONTROLLER_USER: &str = "kun:controller";

/// ACL user of the controller.
pub const USER_OPERATOR: &str = "kun-operator";
/// ACL user of the agents.
pub const USER_AGENT: &str = "kun-agent";
/// ACL user of replication (`masteruser`).
pub const USER_REPLICA: &str = "kun-replica";
/// ACL user of one pod's agent at its own Redis: it switches users on. Its password is made anew with every start and leaves the pod never.
pub const USER_LOCAL: &str = "kun-local";

/// Longest name of a RedisCluster: a StatefulSet's pods carry `<cluster>-<shard>-<hash>` as a label (63 at most).
pub const CLUSTER_NAME_MAX: usize = 40;

/// StatefulSet and PodDisruptionBudget of one shard.
#[must_use]
pub fn shard(cluster: &str, index: u16) -> String {
    format!("{cluster}-{index}")
}
/// Shards in words: `shard 3`, `shards 3 and 4`, `shards 1, 3 and 4`.
#[must_use]
pub fn shards<'a>(indexes: impl IntoIterator<Item = &'a u16>) -> String {
    let all: Vec<String> = indexes.into_iter().map(u16::to_string).collect();
    match all.split_last() {
        None => "no shard".to_owned(),
        Some((one, [])) => format!("shard {one}"),
        Some((last, rest)) => format!("shards {} and {last}", rest.join(", ")),
    }
}
/// Pod of one member.
#[must_use]
pub fn pod(cluster: &str, shard: u16, ordinal: u16) -> String {
    format!("{cluster}-{shard}-{ordinal}")
}
/// Claim of one member.
#[must_use]
pub fn claim(cluster: &str, shard: u16, ordinal: u16) -> String {
    format!("data-{cluster}-{shard}-{ordinal}")
}
/// Service that reaches any node.
#[must_use]
pub fn service(cluster: &str) -> String {
    cluster.to_owned()
}
/// Headless Service of all members.
#[must_use]
pub fn headless_service(cluster: &str) -> String {
    format!("{cluster}-nodes")
}
/// NetworkPolicy of all members. Not the cluster's own name: who had policies before KUN made any called them like what they protect.
#[must_use]
pub fn network_policy(cluster: &str) -> String {
    format!("{cluster}-members")
}
/// ConfigMap with the agent's configuration (key `agent.json`, see [`crate::agent::AgentConfig`]).
#[must_use]
pub fn config_map(cluster: &str) -> String {
    format!("{cluster}-config")
}
/// Secret with the application's generated password (key `password`).
#[must_use]
pub fn auth_secret(cluster: &str) -> String {
    format!("{cluster}-auth")
}
/// Secret with the internal users' passwords (keys `operator`, `agent`, `replica`) and the agent's certificate
/// (`ca.crt`, `tls.crt`, `tls.key`).
#[must_use]
pub fn internal_secret(cluster: &str) -> String {
    format!("{cluster}-internal")
}
/// Common name of the certificates of a RedisCluster's agents.
#[must_use]
pub fn agent_user(namespace: &str, cluster: &str) -> String {
    format!("kun:agent:{namespace}:{cluster}")
}

/// Worker pod that stores one shard of one backup; `attempt` counts from 0. Pods of StatefulSets end with a number, those of others with five
/// random characters: none is called like this.
#[must_use]
pub fn backup_pod(backup: &str, shard: u16, attempt: u16) -> String {
    format!("{backup}-{shard}-{attempt}-backup")
}
/// Worker pod that deletes the artifacts of one backup; `attempt` counts from 0.
#[must_use]
pub fn erase_pod(backup: &str, attempt: u16) -> String {
    format!("{backup}-erase-{attempt}")
}
/// Folder of a backup's artifacts within its target. The uid keeps two backups of one name apart.
#[must_use]
pub fn backup_folder(namespace: &str, cluster: &str, backup: &str, uid: &str) -> String {
    let short: String = uid.chars().take(8).collect();
    format!("{namespace}_{cluster}_{backup}_{short}")
}
/// File of one shard within the folder of a backup.
#[must_use]
pub fn backup_file(shard: u16) -> String {
    format!("shard-{shard}.rdb")
}
