//! Rules of RedisCluster. Shape and transitions are judged by `types`, which the webhook shares.

use serde::Deserialize;
use serde_json::Value;
use types::{RedisCluster, defaults, validate};

use super::{Measure, Strategy};
use crate::{error::Cause, object::name::NameRule};

/// RedisCluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl Strategy for Rules {
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn before_default(&self, object: &mut Value) {
        defaults::before_schema(object);
    }

    fn default(&self, object: &mut Value) {
        defaults::cluster_value(object);
    }

    fn faults(&self, object: &Value) -> Vec<Cause> {
        typed(object).map_or_else(|fault| vec![fault], |cluster| causes(validate::cluster(&cluster)))
    }

    fn update_faults(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let (new, old) = match (typed::<RedisCluster>(new), typed::<RedisCluster>(old)) {
            (Ok(new), Ok(old)) => (new, old),
            (Err(fault), _) => return vec![fault],
            // An old object that cannot be read any more must not keep a good one from replacing it.
            (Ok(new), Err(_)) => return causes(validate::cluster(&new)),
        };
        let mut faults = validate::cluster(&new);
        faults.extend(validate::cluster_update(&new, &old));
        causes(faults)
    }

    fn status_faults(&self, object: &Value) -> Vec<Cause> {
        typed::<RedisCluster>(object).err().into_iter().collect()
    }

    fn measure(&self, path: &[&str]) -> Option<Measure> {
        match path {
            ["spec", "resources", "requests" | "limits", _]
            | ["spec", "storage", "size"]
            | ["spec", "memory", "maxBytes"]
            | ["spec", "migration", "maxBytesPerSecond" | "maxKeyBytes"] => Some(Measure::Quantity),
            ["spec", "failover", "nodeTimeout"] => Some(Measure::Duration),
            _ => None,
        }
    }

    fn delete_faults(&self, object: &Value) -> Vec<Cause> {
        let refusal = typed::<RedisCluster>(object).ok().and_then(|cluster| validate::deletable(&cluster).err());
        refusal.map(Cause::from).into_iter().collect()
    }
}

/// The object in its type; a fault if the schema let something through that the type does not read.
pub(super) fn typed<'a, T: Deserialize<'a>>(object: &'a Value) -> Result<T, Cause> {
    T::deserialize(object).map_err(|error| Cause::invalid("", &"object", &error.to_string()))
}

pub(super) fn causes(faults: Vec<types::field::Fault>) -> Vec<Cause> {
    faults.into_iter().map(Cause::from).collect()
}
