//! POST …/restart: restarts pods in the safe order.

use serde_json::{Value, json};
use types::{RedisCluster, RedisOperation};

use super::{
    Action,
    redis_action::{self, refused},
    redis_cluster::typed,
    redis_operation::check_idle,
};
use crate::error::{Cause, Error, Result};

/// POST …/restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restart;

impl Action for Restart {
    fn name(&self) -> &'static str {
        "restart"
    }

    fn kind(&self) -> &'static str {
        "RedisOperation"
    }

    fn parent_field(&self) -> &'static str {
        "spec.clusterName"
    }

    /// An empty body restarts everything.
    fn build(&self, parent: &Value, body: Value) -> Result<Value> {
        let mut record = redis_action::build(self.kind(), parent, body)?;
        if let Some(spec) = record.get_mut("spec").and_then(Value::as_object_mut) {
            let restart = spec.entry("restart").or_insert_with(|| json!({}));
            if restart.is_null() {
                *restart = json!({});
            }
        }
        Ok(record)
    }

    fn check(&self, parent: &Value, record: &Value, others: &[Value]) -> Result<()> {
        let Ok(operation) = typed::<RedisOperation>(record) else { return Ok(()) };
        let Some(action) = operation.spec.restart else { return Ok(()) };
        let cluster: RedisCluster = typed(parent).map_err(|fault| Error::internal(fault.message))?;
        let shards = cluster.spec.shards();
        let is_known = |index: i32| u16::try_from(index).is_ok_and(|index| index < shards);
        let fault = |(at, index): (usize, &i32)| {
            let detail = format!("must be from 0 to {}: the cluster has {shards} shards", i32::from(shards) - 1);
            (!is_known(*index)).then(|| Cause::invalid(&format!("spec.restart.shards[{at}]"), index, &detail))
        };
        let causes: Vec<Cause> = action.shards.iter().enumerate().filter_map(fault).collect();
        if !causes.is_empty() {
            return Err(refused(self.kind(), record, causes));
        }
        check_idle(cluster.metadata.name.as_deref().unwrap_or_default(), others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_do_not_exist_are_named() {
        let parent = json!({"metadata": {"name": "a"}, "spec": {"shards": 3}});
        let record = |shards: Value| json!({"metadata": {"name": "r"}, "spec": {"clusterName": "a", "restart": {"shards": shards}}});
        assert_eq!(Restart.check(&parent, &record(json!([0, 2])), &[]), Ok(()));
        assert_eq!(
            Restart.check(&parent, &record(json!([0, 3])), &[]).map_err(|error| error.to_string()),
            Err("RedisOperation.redis.kun.io \"r\" is invalid: spec.restart.shards[1]: Invalid value: 3: must be from 0 to \
                 2: the cluster has 3 shards"
                .to_owned())
        );
    }

    #[test]
    fn an_empty_body_restarts_everything() {
        let built = Restart.build(&json!({"metadata": {"name": "a"}}), json!({"spec": null}));
        assert_eq!(built.map(|record| record["spec"].clone()), Ok(json!({"clusterName": "a", "restart": {}})));
    }
}
