//! Rules of RedisPolicy.

use serde_json::Value;
use types::{RedisPolicy, validate};

use super::{
    Strategy,
    redis_cluster::{causes, typed},
};
use crate::error::Cause;

/// RedisPolicy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules;

impl Strategy for Rules {
    fn faults(&self, object: &Value) -> Vec<Cause> {
        typed::<RedisPolicy>(object).map_or_else(|fault| vec![fault], |policy| causes(validate::policy(&policy)))
    }
}
