//! What the planner is asked for: the specification, what a restart would lose, and what a person has asked for. Pure.

use types::cluster::Spread;

use crate::gather::Gathered;
use crate::resolve::{Approval, Resolved};
use crate::{backup, operate};

/// What the planner is asked for.
pub(super) fn wanted(resolved: &Resolved, gathered: &Gathered, lacks_secret: bool) -> plan::Desired {
    let restart_keeps_data = resolved.restart_keeps_data();
    plan::Desired {
        mode: resolved.planned_mode(),
        shards: resolved.shards,
        replicas: resolved.members.saturating_sub(1),
        node_timeout_millis: resolved.agent.node_timeout_millis,
        restart_keeps_data,
        keeps_each_write: resolved.keeps_each_write(),
        has_volumes: resolved.storage.is_some(),
        // Who keeps nothing on purpose cannot be asked to restore it.
        adopt_lost_slots: !restart_keeps_data,
        lacks_secret,
        hold: hold(resolved, gathered),
        approval: match &resolved.approval {
            Approval::All => plan::Approval::Automatic,
            Approval::Shards(approved) => plan::Approval::Supervised { approved: approved.clone() },
        },
        failover: gathered.current_operation().and_then(|operation| operate::request(operation)),
        spread: match resolved.placement.spread {
            Spread::Required | Spread::Preferred => true,
            Spread::Off => false,
        },
        placed_by_hand: gathered.operations.iter().filter_map(|operation| operate::placed(operation)).collect(),
    }
}

/// What keeps new slots from moving. A person's word comes first: it is what he can take back.
fn hold(resolved: &Resolved, gathered: &Gathered) -> Option<plan::Hold> {
    let paused = resolved.migration.paused.then_some(plan::Hold::Paused);
    paused.or_else(|| backup::holds_slots(&gathered.backups).map(|name| plan::Hold::Backup { name }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::{cluster, gathered, resolved};

    #[test]
    fn moves_are_held_by_a_person_or_by_a_backup_that_is_named() {
        let backup = |name: &str, phase: &str| {
            let metadata = json!({"name": name, "namespace": "shop", "uid": name});
            let spec = json!({"clusterName": "orders"});
            Arc::new(
                serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}}))
                    .unwrap(),
            )
        };
        let held = |spec: &serde_json::Value, backups| {
            let mut gathered = gathered(cluster(spec));
            gathered.backups = backups;
            wanted(&resolved(spec), &gathered, false).hold
        };
        let (free, paused) = (json!({}), json!({"migration": {"paused": true}}));
        assert_eq!(held(&free, vec![backup("old", "Completed")]), None);
        let by = plan::Hold::Backup { name: "b1".to_owned() };
        assert_eq!(held(&free, vec![backup("b0", "Pending"), backup("b1", "Running")]), Some(by));
        assert_eq!(held(&paused, vec![backup("b1", "Running")]), Some(plan::Hold::Paused));
    }
}
