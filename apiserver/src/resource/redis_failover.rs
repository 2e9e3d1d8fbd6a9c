//! POST …/failover: refused at once, with the numbers, when it cannot be done.

use serde_json::Value;
use types::{
    RedisCluster, RedisOperation,
    cluster::{MemberState, MemberStatus, Mode, Role, ShardStatus},
    names,
    operation::{FailoverAction, FailoverMode},
};

use super::{
    Action,
    redis_action::{self, refused},
    redis_cluster::typed,
    redis_operation::check_idle,
};
use crate::{
    error::{Cause, Error, Qualified, Result},
    object::meta,
};

/// Seconds after which a replica may be in sync.
const SYNC_SECONDS: u32 = 5;

/// POST …/failover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failover;

impl Action for Failover {
    fn name(&self) -> &'static str {
        "failover"
    }

    fn kind(&self) -> &'static str {
        "RedisOperation"
    }

    fn parent_field(&self) -> &'static str {
        "spec.clusterName"
    }

    fn build(&self, parent: &Value, body: Value) -> Result<Value> {
        let record = redis_action::build(self.kind(), parent, body)?;
        if record.pointer("/spec/failover").is_some_and(Value::is_object) {
            return Ok(record);
        }
        let cause = Cause::required("spec.failover", "tell at least the shard");
        Err(refused(self.kind(), &record, vec![cause]))
    }

    fn check(&self, parent: &Value, record: &Value, others: &[Value]) -> Result<()> {
        // A record of the wrong types has been refused by its schema.
        let Ok(operation) = typed::<RedisOperation>(record) else { return Ok(()) };
        let Some(action) = operation.spec.failover else { return Ok(()) };
        let cluster: RedisCluster = typed(parent).map_err(|fault| Error::internal(fault.message))?;
        let causes = faults(&cluster, &action);
        if !causes.is_empty() {
            return Err(refused(self.kind(), record, causes));
        }
        check_idle(meta_name(&cluster), others)?;
        check_synced(&cluster, &action)
    }
}

/// What no waiting mends: a shard or candidate that does not exist.
fn faults(cluster: &RedisCluster, action: &FailoverAction) -> Vec<Cause> {
    if cluster.spec.mode == Mode::Standalone {
        return vec![Cause::forbidden(
            "spec.failover",
            "a RedisCluster in mode Standalone has no replica to fail over to",
        )];
    }
    let shards = cluster.spec.shards();
    let Some(index) = u16::try_from(action.shard).ok().filter(|index| *index < shards) else {
        let detail = format!("must be from 0 to {}: the cluster has {shards} shards", i32::from(shards) - 1);
        return vec![Cause::invalid("spec.failover.shard", &action.shard, &detail)];
    };
    let Some(candidate) = &action.candidate else { return Vec::new() };
    let members: Vec<String> =
        (0..cluster.spec.members_per_shard()).map(|ordinal| names::pod(meta_name(cluster), index, ordinal)).collect();
    let shown = meta::quoted(candidate);
    if !members.contains(candidate) {
        let detail = format!("is no member of shard {index}; its members are {}", members.join(", "));
        return vec![Cause::invalid("spec.failover.candidate", &shown, &detail)];
    }
    let is_primary = shard(cluster, action).is_some_and(|shard| shard.primary.as_ref() == Some(candidate));
    if is_primary {
        return vec![Cause::invalid(
            "spec.failover.candidate",
            &shown,
            &format!("is the primary of shard {index} already"),
        )];
    }
    Vec::new()
}

/// What time may mend: no replica that has everything the primary acknowledged. Force does without, and says so. Where the primary was seen, a
/// member that was not may have it, as it most often does: who carries this out looks for itself, and waits.
fn check_synced(cluster: &RedisCluster, action: &FailoverAction) -> Result<()> {
    let members = shard(cluster, action).map(|shard| shard.members.as_slice()).unwrap_or_default();
    let is_wanted = |member: &&MemberStatus| action.candidate.as_ref().is_none_or(|name| *name == member.pod);
    let has_primary = members.iter().any(|member| member.role == Some(Role::Primary));
    let is_usable = |member: &MemberStatus| match (member.role, action.mode) {
        (Some(Role::Replica), FailoverMode::Coordinated) => member.state == MemberState::Online,
        (Some(Role::Replica), FailoverMode::Force) => member.state != MemberState::Absent,
        (Some(Role::Primary), FailoverMode::Coordinated | FailoverMode::Force) => false,
        (None, FailoverMode::Coordinated | FailoverMode::Force) => has_primary && member.state == MemberState::Unknown,
    };
    if members.iter().filter(is_wanted).any(is_usable) {
        return Ok(());
    }
    let states: Vec<String> = members.iter().map(|member| format!("{} is {:?}", member.pod, member.state)).collect();
    let seen = if states.is_empty() { "nothing has been observed of it yet".to_owned() } else { states.join(", ") };
    Err(Error::Conflict {
        resource: Qualified::new(types::GROUP, "redisclusters"),
        name: meta_name(cluster).to_owned(),
        message: format!("shard {} has no synced replica to promote: {seen}", action.shard),
        retry_after: Some(SYNC_SECONDS),
    })
}

fn shard<'a>(cluster: &'a RedisCluster, action: &FailoverAction) -> Option<&'a ShardStatus> {
    cluster.status.as_ref()?.shards.iter().find(|shard| shard.index == action.shard)
}

fn meta_name(cluster: &RedisCluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parent(replica: &str) -> Value {
        let member = |pod: &str, role: &str, state: &str| json!({"pod": pod, "role": role, "state": state});
        json!({
            "metadata": {"name": "a"},
            "spec": {"shards": 3, "replicasPerShard": 1},
            "status": {"shards": [{"index": 1, "primary": "a-1-0",
                "members": [member("a-1-0", "Primary", "Online"), member("a-1-1", "Replica", replica)]}]}
        })
    }

    fn checked(parent: &Value, failover: Value) -> Result<(), String> {
        let record = json!({"metadata": {"name": "r"}, "spec": {"clusterName": "a", "failover": failover}});
        Failover.check(parent, &record, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_failover_that_can_be_done_passes() {
        assert_eq!(checked(&parent("Online"), json!({"shard": 1})), Ok(()));
        assert_eq!(checked(&parent("Online"), json!({"shard": 1, "candidate": "a-1-1"})), Ok(()));
        assert_eq!(checked(&parent("Syncing"), json!({"shard": 1, "mode": "Force"})), Ok(()));
    }

    #[test]
    fn a_failover_that_cannot_be_done_is_refused_with_the_numbers() {
        let online = parent("Online");
        for (failover, message) in [
            (
                json!({"shard": 3}),
                "RedisOperation.redis.kun.io \"r\" is invalid: spec.failover.shard: Invalid value: 3: must be from 0 to 2: the cluster has 3 shards",
            ),
            (
                json!({"shard": 1, "candidate": "a-2-0"}),
                "RedisOperation.redis.kun.io \"r\" is invalid: spec.failover.candidate: Invalid value: \"a-2-0\": is no member of shard 1; its members are a-1-0, a-1-1",
            ),
            (
                json!({"shard": 1, "candidate": "a-1-0"}),
                "RedisOperation.redis.kun.io \"r\" is invalid: spec.failover.candidate: Invalid value: \"a-1-0\": is the primary of shard 1 already",
            ),
            (
                json!({"shard": 2}),
                "Operation cannot be fulfilled on redisclusters.redis.kun.io \"a\": shard 2 has no synced replica to promote: nothing has been observed of it yet",
            ),
        ] {
            assert_eq!(checked(&online, failover), Err(message.to_owned()));
        }
        assert_eq!(
            checked(&parent("Syncing"), json!({"shard": 1})),
            Err("Operation cannot be fulfilled on redisclusters.redis.kun.io \"a\": shard 1 has no synced replica to promote: a-1-0 is Online, a-1-1 is Syncing".to_owned())
        );
    }

    /// Before, one look that a replica did not answer in time was taken for a shard without one.
    #[test]
    fn a_replica_that_was_not_seen_at_the_last_look_is_no_reason_to_refuse() {
        let unseen = |primary: Value| {
            let mut cluster = parent("Online");
            let members = &mut cluster["status"]["shards"][0]["members"];
            members[0] = primary;
            members[1] = json!({"pod": "a-1-1", "state": "Unknown"});
            checked(&cluster, json!({"shard": 1}))
        };
        assert_eq!(unseen(json!({"pod": "a-1-0", "role": "Primary", "state": "Online"})), Ok(()));
        let refused = unseen(json!({"pod": "a-1-0", "state": "Unknown"})).unwrap_err();
        assert!(refused.ends_with("no synced replica to promote: a-1-0 is Unknown, a-1-1 is Unknown"), "{refused}");
    }

    #[test]
    fn a_body_without_the_action_is_refused() {
        let error = Failover.build(&parent("Online"), json!({"spec": {"restart": {}}})).unwrap_err();
        assert!(error.to_string().contains("spec.failover: Required value"));
    }
}
