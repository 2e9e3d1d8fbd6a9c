//! Rules of RedisBackup, and the action `backup` of a RedisCluster that makes one.

use serde_json::Value;
use types::{RedisBackup, RedisCluster, validate};

use super::{
    Action, Measure, Strategy,
    redis_action::{self, refused},
    redis_cluster::{causes, typed},
};
use crate::{
    error::{Cause, Result},
    object::name::NameRule,
    request::User,
};

/// RedisBackup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl Strategy for Rules {
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn prepare_create(&self, object: &mut Value, user: &User) {
        redis_action::begin(object, user);
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        typed(object).map_or_else(|fault| vec![fault], |backup| causes(validate::backup(&backup)))
    }

    fn update_faults(&self, new: &Value, old: &Value) -> Vec<Cause> {
        match (typed::<RedisBackup>(new), typed::<RedisBackup>(old)) {
            (Ok(new), Ok(old)) => {
                let mut faults = validate::backup(&new);
                faults.extend(validate::backup_update(&new, &old));
                causes(faults)
            }
            (Ok(new), Err(_)) => causes(validate::backup(&new)),
            (Err(fault), _) => vec![fault],
        }
    }

    fn measure(&self, path: &[&str]) -> Option<Measure> {
        matches!(path, ["spec", "ttlAfterFinished"]).then_some(Measure::Duration)
    }

    fn status_faults(&self, object: &Value) -> Vec<Cause> {
        typed::<RedisBackup>(object).err().into_iter().collect()
    }
}

/// POST …/backup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backup;

impl Action for Backup {
    fn name(&self) -> &'static str {
        "backup"
    }

    fn kind(&self) -> &'static str {
        "RedisBackup"
    }

    fn parent_field(&self) -> &'static str {
        "spec.clusterName"
    }

    fn build(&self, parent: &Value, body: Value) -> Result<Value> {
        redis_action::build("RedisBackup", parent, body)
    }

    /// There must be somewhere to put it.
    fn check(&self, parent: &Value, record: &Value, _others: &[Value]) -> Result<()> {
        let has_own = record.pointer("/spec/target").is_some_and(|target| !target.is_null());
        let cluster: RedisCluster = typed(parent).unwrap_or_default();
        if has_own || cluster.spec.backup.is_some() {
            return Ok(());
        }
        let detail = "the RedisCluster has no spec.backup.target, so the backup must name one";
        Err(refused("RedisBackup", record, vec![Cause::required("spec.target", detail)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use serde_json::json;

    #[test]
    fn a_backup_needs_a_target_of_its_own_or_of_its_cluster() {
        let record = json!({"metadata": {}, "spec": {"clusterName": "a"}});
        let own = json!({"metadata": {}, "spec": {"clusterName": "a", "target": {"directory": {"path": "/b"}}}});
        let bare = json!({"metadata": {"name": "a"}, "spec": {}});
        let with = json!({"metadata": {"name": "a"}, "spec": {"backup": {"target": {"directory": {"path": "/b"}}}}});
        assert_eq!(Backup.check(&with, &record, &[]), Ok(()));
        assert_eq!(Backup.check(&bare, &own, &[]), Ok(()));
        let Err(Error::Invalid { causes, .. }) = Backup.check(&bare, &record, &[]) else { unreachable!() };
        assert_eq!(causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(), ["spec.target"]);
    }
}
