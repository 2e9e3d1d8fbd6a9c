//! What a specification means for the data where it is legal and easily not meant. Each is told once, in one sentence: when the cluster is
//! created, or by the change that causes it.

use types::RedisCluster;
use types::cluster::{Mode, RedisClusterSpec};

use super::{
    Verdict,
    capacity::{SNAPSHOT_CHANGES_MOST, SNAPSHOT_SECONDS_MOST, persists},
};

/// Warns of what the old specification did not mean already. Of what is refused nothing comes.
pub(super) fn tell(verdict: &mut Verdict, new: &RedisClusterSpec, old: Option<&RedisClusterSpec>) {
    if !verdict.is_allowed() {
        return;
    }
    let known = old.map(consequences).unwrap_or_default();
    for text in consequences(new).into_iter().filter(|text| !known.contains(text)) {
        verdict.warn(text);
    }
}

/// Warns of what holds only until the change is done.
pub(super) fn tell_of_the_way(verdict: &mut Verdict, new: &RedisCluster, old: &RedisCluster) {
    if verdict.is_allowed() && new.auth_secret() != old.auth_secret() {
        verdict.warn(
            "spec.auth.secretName: members restart one by one and take the new Secret's password then, the others the former one. If both \
             Secrets hold the same, no client notices: then change it in the new one once UpToDate is True",
        );
    }
}

fn consequences(spec: &RedisClusterSpec) -> Vec<String> {
    let (persistence, has_volumes) = (&spec.persistence, spec.storage.is_some());
    let writes_log = persistence.append_only.keeps_every_write();
    let has_snapshots = !persistence.snapshots.is_empty();
    let mut found = Vec::new();
    let mut told = |holds: bool, text: &str| found.extend(holds.then(|| text.to_owned()));
    told(
        spec.mode == Mode::Cluster && spec.replicas() == 0,
        "spec.replicasPerShard: with 0 the slots of a shard are away while its member restarts or its node is down, and what is not on disk \
         is lost with it",
    );
    told(
        !has_volumes && (writes_log || has_snapshots),
        "spec.storage: without it what persistence writes lies in the pod and goes with it: a shard whose pods are all deleted comes back \
         empty",
    );
    told(
        has_volumes && !writes_log && !has_snapshots,
        "spec.persistence: nothing is written to the volumes of spec.storage: a shard whose members all stop unexpectedly comes back empty",
    );
    let unsynced = spec.config.get("no-appendfsync-on-rewrite").is_some_and(|value| value.eq_ignore_ascii_case("yes"));
    told(
        writes_log && unsynced,
        "spec.config: with no-appendfsync-on-rewrite the append-only file is not synced while it is written anew, a snapshot is saved or a replica \
         is sent everything: a loss of power costs all writes since then",
    );
    told(
        spec.max_memory_bytes().is_none(),
        "spec.resources.limits.memory: without it Redis has no maxmemory and grows until its node has no memory left, where the kernel ends \
         whom it chooses",
    );
    told(
        spec.network_policy.enabled && spec.network_policy.clients.as_ref().is_some_and(Vec::is_empty),
        "spec.networkPolicy.clients: an empty list lets everybody in who reaches the pods, as an empty from of a NetworkPolicy does; name those \
         who may reach Redis",
    );
    if has_snapshots && !persists(spec) {
        found.push(format!(
            "spec.persistence.snapshots: none is due within {SNAPSHOT_SECONDS_MOST} seconds and {SNAPSHOT_CHANGES_MOST} writes: a crash of a \
             whole shard loses everything written since the last one"
        ));
    }
    found
}
