//! The status of a RedisCluster that is being deleted: what is waited for, which pods are left, and what will be left behind. Its members are
//! not looked at any more, so nothing that was seen of them before is said as if it were so now.

use std::collections::BTreeSet;

use jiff::Timestamp;
use types::RedisCluster;
use types::cluster::{Phase, PlanStatus, RedisClusterStatus, ShardStatus};
use types::condition::{Status, cluster as kind};

use super::ConditionOf;

/// The word for programs, in each condition.
const REASON: &str = "Deleting";

/// What is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// What is waited for.
    pub why: &'a str,
    /// What stays.
    pub kept: Option<&'a str>,
    /// Members that are still there, by the names of their pods.
    pub pods: &'a BTreeSet<&'a str>,
}

/// The status that tells all this.
#[must_use]
pub fn leaving(cluster: &RedisCluster, of: &Leaving<'_>, now: Timestamp) -> RedisClusterStatus {
    let previous = cluster.status.clone().unwrap_or_default();
    let told = [Some(of.why), of.kept].into_iter().flatten().collect::<Vec<_>>().join("; ");
    let say =
        |kind, status, message: &str| ConditionOf { kind, status }.with(REASON, message, (cluster, now), &previous);
    let unseen = "its members are not looked at any more";
    let mut conditions = vec![
        say(kind::READY, Status::False, &told),
        say(kind::AVAILABLE, Status::False, &told),
        say(kind::PROGRESSING, Status::True, &told),
        say(kind::DEGRADED, Status::Unknown, unseen),
        say(kind::DATA_AT_RISK, Status::Unknown, unseen),
    ];
    conditions.extend(previous.conditions.iter().filter(|known| known.kind == kind::BACKUP_HEALTHY).cloned());
    conditions.push(say(kind::UP_TO_DATE, Status::Unknown, unseen));
    let shards = previous.shards.into_iter().filter_map(|shard| left_of(shard, of.pods)).collect();
    RedisClusterStatus {
        phase: Some(Phase::Deleting),
        observed_generation: cluster.metadata.generation,
        conditions,
        replicas: 0,
        shards,
        plan: Some(PlanStatus { waiting: Some(told), ..PlanStatus::default() }),
        operation: None,
        endpoints: Vec::new(),
        temporary_config: std::collections::BTreeMap::new(),
        ..previous
    }
}

/// The members of a shard whose pods are still there.
fn left_of(mut shard: ShardStatus, pods: &BTreeSet<&str>) -> Option<ShardStatus> {
    shard.members.retain(|member| pods.contains(member.pod.as_str()));
    shard.primary = shard.primary.filter(|primary| pods.contains(primary.as_str()));
    (!shard.members.is_empty()).then_some(shard)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::cluster;

    #[test]
    fn a_cluster_that_is_deleted_says_what_is_waited_for_and_is_not_ready() {
        let mut going = cluster(&json!({}));
        let ready = json!({"type": "Ready", "status": "True", "reason": "AllAgree", "message": "m", "lastTransitionTime": "1970-01-01T00:00:05Z"});
        let backup = json!({"type": "BackupHealthy", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "1970-01-01T00:00:05Z"});
        let member = |pod: &str| json!({"pod": pod, "role": "Primary", "state": "Online"});
        going.status = serde_json::from_value(json!({
            "phase": "Ready", "observedGeneration": 2, "replicas": 2, "endpoints": ["a:1"], "operation": "o", "conditions": [ready, backup],
            "shards": [
                {"index": 0, "slots": "0-8191", "primary": "orders-0-0", "members": [member("orders-0-0"), member("orders-0-1")]},
                {"index": 1, "slots": "8192-16383", "primary": "orders-1-0", "members": [member("orders-1-0")]},
            ],
        }))
        .unwrap();
        let pods = BTreeSet::from(["orders-0-1"]);
        let of = Leaving {
            why: "still stopping: Pod orders-0-1",
            kept: Some("kept: PersistentVolumeClaim data-orders-0-0"),
            pods: &pods,
        };
        let status = leaving(&going, &of, Timestamp::from_second(9).unwrap());
        let told = "still stopping: Pod orders-0-1; kept: PersistentVolumeClaim data-orders-0-0";
        let said = |kind: &str| {
            status.conditions.iter().find(|c| c.kind == kind).map(|c| (c.status, c.reason.as_str(), c.message.as_str()))
        };
        let unseen = Some((Status::Unknown, "Deleting", "its members are not looked at any more"));
        assert_eq!(said("Ready"), Some((Status::False, "Deleting", told)));
        assert_eq!(said("Available"), Some((Status::False, "Deleting", told)));
        assert_eq!(said("Progressing"), Some((Status::True, "Deleting", told)));
        assert_eq!([said("Degraded"), said("DataAtRisk"), said("UpToDate")], [unseen; 3]);
        assert_eq!(said("BackupHealthy"), Some((Status::True, "r", "m")));
        let members: Vec<_> =
            status.shards.iter().flat_map(|shard| &shard.members).map(|member| member.pod.as_str()).collect();
        assert_eq!((members, status.shards.iter().find_map(|shard| shard.primary.clone())), (vec!["orders-0-1"], None));
        assert_eq!((status.phase, status.observed_generation, status.replicas), (Some(Phase::Deleting), Some(3), 0));
        assert_eq!(
            (status.plan.unwrap().waiting.unwrap(), status.endpoints, status.operation),
            (told.to_owned(), vec![], None)
        );
        let again = RedisCluster { status: Some(leaving(&going, &of, Timestamp::from_second(9).unwrap())), ..going };
        assert_eq!(
            again.status,
            Some(leaving(&again, &of, Timestamp::from_second(20).unwrap())),
            "the same is not news"
        );
    }
}
