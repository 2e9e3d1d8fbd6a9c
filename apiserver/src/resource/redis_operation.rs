//! Rules of RedisOperation, and which operations exclude each other.

use serde_json::Value;
use types::{RedisOperation, exclusion, validate};

use super::{
    Measure, Strategy, redis_action,
    redis_cluster::{causes, typed},
};
use crate::{
    error::{Cause, Error, Qualified, Result},
    request::User,
};

/// Seconds after which a refused operation may be tried again: most failovers are over by then.
const BUSY_SECONDS: u32 = 5;

/// RedisOperation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl Strategy for Rules {
    fn prepare_create(&self, object: &mut Value, user: &User) {
        redis_action::begin(object, user);
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        typed(object).map_or_else(|fault| vec![fault], |operation| causes(validate::operation(&operation)))
    }

    fn update_faults(&self, new: &Value, old: &Value) -> Vec<Cause> {
        match (typed::<RedisOperation>(new), typed::<RedisOperation>(old)) {
            (Ok(new), Ok(old)) => {
                let mut faults = validate::operation(&new);
                faults.extend(validate::operation_update(&new, &old));
                causes(faults)
            }
            (Ok(new), Err(_)) => causes(validate::operation(&new)),
            (Err(fault), _) => vec![fault],
        }
    }

    fn measure(&self, path: &[&str]) -> Option<Measure> {
        matches!(path, ["spec", "ttlAfterFinished"]).then_some(Measure::Duration)
    }

    fn status_faults(&self, object: &Value) -> Vec<Cause> {
        typed::<RedisOperation>(object).err().into_iter().collect()
    }

    fn exclusive_by(&self) -> Option<&'static str> {
        Some("spec.clusterName")
    }

    fn check_beside(&self, object: &Value, others: &[Value]) -> Result<()> {
        check_idle(object.pointer("/spec/clusterName").and_then(Value::as_str).unwrap_or_default(), others)
    }
}

/// Refuses while another operation on the same cluster has not ended.
pub fn check_idle(cluster: &str, others: &[Value]) -> Result<()> {
    let operations: Vec<RedisOperation> = others.iter().filter_map(|other| typed(other).ok()).collect();
    exclusion::busy(cluster, &operations).map_or(Ok(()), |busy| {
        Err(Error::Conflict {
            resource: Qualified::new(types::GROUP, "redisclusters"),
            name: cluster.to_owned(),
            message: busy.to_string(),
            retry_after: Some(BUSY_SECONDS),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_operation_at_a_time_per_cluster() {
        let other = |cluster: &str, phase: &str| json!({"metadata": {"name": "a-1", "namespace": "shop"}, "spec": {"clusterName": cluster, "restart": {}}, "status": {"phase": phase}});
        assert_eq!(check_idle("a", &[other("b", "Running"), other("a", "Succeeded"), other("a", "Failed")]), Ok(()));
        let busy = check_idle("a", &[other("a", "Running")]);
        assert_eq!(
            busy.map_err(|error| error.to_string()),
            Err(
                "Operation cannot be fulfilled on redisclusters.redis.kun.io \"a\": operation \"a-1\" is Running; one \
                 operation runs at a time; wait for it, or cancel it: kubectl patch redisoperation a-1 -n shop --type=merge -p \
                 '{\"spec\":{\"cancel\":true}}'"
                    .to_owned()
            )
        );
    }
}
