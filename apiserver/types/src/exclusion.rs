//! What may be asked of a cluster while something else that was asked of it has not ended: the one rule, for whichever way it is asked.
//!
//! One operation of a cluster runs at a time, and none waits behind another: what a record was checked against (who the primary is, who
//! is in sync, how many shards there are) would be old by its turn, and nobody looks at a queue.

use std::fmt;

use crate::{RedisOperation, operation::OperationPhase};

/// An operation that has not ended, because of which no other may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Its name.
    pub operation: String,
    /// Its namespace.
    pub namespace: String,
    /// How far it is.
    pub phase: OperationPhase,
    /// It was told to stop.
    pub is_stopping: bool,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, namespace, phase, is_stopping } = self;
        write!(f, "operation {operation:?} is {phase:?}; one operation runs at a time; ")?;
        if *is_stopping {
            return f.write_str("it is being cancelled, try again");
        }
        write!(
            f,
            "wait for it, or cancel it: kubectl patch redisoperation {operation} -n {namespace} --type=merge -p \
             '{{\"spec\":{{\"cancel\":true}}}}'"
        )
    }
}

/// The first of these operations that keeps another on this cluster from being asked for.
pub fn busy<'a>(cluster: &str, operations: impl IntoIterator<Item = &'a RedisOperation>) -> Option<Busy> {
    let mut on_it = operations.into_iter().filter(|operation| operation.spec.cluster_name == cluster);
    let found = on_it.find(|operation| !operation.phase().has_ended())?;
    let (name, namespace) = (found.metadata.name.clone(), found.metadata.namespace.clone());
    Some(Busy {
        operation: name.unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        phase: found.phase(),
        is_stopping: found.spec.cancel,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::{Value, json};

    use super::*;

    fn operation(name: &str, cluster: &str, action: &Value, phase: &str) -> RedisOperation {
        let mut spec = action.clone();
        spec["clusterName"] = json!(cluster);
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": {"phase": phase}}),
        )
        .unwrap()
    }

    #[test]
    fn one_operation_of_a_cluster_runs_at_a_time_whatever_both_are() {
        let (failover, restart) = (json!({"failover": {"shard": 0}}), json!({"restart": {"shards": [1]}}));
        let cancelled = json!({"restart": {}, "cancel": true});
        let table = [
            (&failover, "orders", "Pending", true),
            (&failover, "orders", "Running", true),
            (&restart, "orders", "Running", true),
            // It goes on until the controller has stopped.
            (&cancelled, "orders", "Running", true),
            (&failover, "orders", "Succeeded", false),
            (&restart, "orders", "Failed", false),
            (&cancelled, "orders", "Cancelled", false),
            (&failover, "users", "Running", false),
        ];
        for (action, cluster, phase, is_busy) in table {
            let found = busy("orders", &[operation("one", cluster, action, phase)]);
            assert_eq!(found.is_some(), is_busy, "{action} of {cluster}, {phase}");
        }
    }

    #[test]
    fn the_first_in_the_way_is_named_with_the_way_out() {
        let ended = operation("a", "orders", &json!({"restart": {}}), "Succeeded");
        let fresh = RedisOperation { status: None, ..operation("b", "orders", &json!({"restart": {}}), "Pending") };
        let later = operation("c", "orders", &json!({"failover": {"shard": 0}}), "Running");
        let found = busy("orders", [&ended, &fresh, &later]).map(|busy| busy.to_string());
        let told = "operation \"b\" is Pending; one operation runs at a time; wait for it, or cancel it: kubectl patch redisoperation b -n shop \
                    --type=merge -p '{\"spec\":{\"cancel\":true}}'";
        assert_eq!(found.as_deref(), Some(told));
        let stopping = operation("d", "orders", &json!({"restart": {}, "cancel": true}), "Running");
        let told = "operation \"d\" is Running; one operation runs at a time; it is being cancelled, try again";
        assert_eq!(busy("orders", [&stopping]).map(|busy| busy.to_string()).as_deref(), Some(told));
        assert_eq!(busy("orders", [&ended]), None);
    }
}
