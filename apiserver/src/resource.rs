//! What a kind may say about itself beyond its schema. The verbs are generic; everything particular is behind these
//! two traits, and implemented in the files beside.

use serde_json::Value;
use types::{duration, quantity::Quantity};

use crate::{
    error::{Cause, Result},
    object::{meta, name::NameRule},
    request::User,
};

pub mod host;
pub mod policy;
pub mod redis_action;
pub mod redis_backup;
pub mod redis_cluster;
pub mod redis_failover;
pub mod redis_operation;
pub mod redis_policy;
pub mod redis_restart;
pub mod roles;

/// The rules of a kind. Everything is pure; the order in which the verbs call is: `default`, (admission),
/// `default` again, `prepare_*`, `faults` or `update_faults`.
pub trait Strategy: Send + Sync {
    /// What its names may look like.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Defaults that depend on other fields and differ from those of the schema, which come after them. Idempotent.
    fn before_default(&self, _object: &mut Value) {}

    /// Defaults that depend on other fields. Idempotent.
    fn default(&self, _object: &mut Value) {}

    /// What the server itself fills in on create, such as a first status. The client's status is gone by then.
    fn prepare_create(&self, _object: &mut Value, _user: &User) {}

    /// What the server carries over from the live object on an update of the object itself.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Every fault of a new object.
    fn faults(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Every fault of a changed object: those of the object itself, which count only if they are new, and those of the
    /// transition.
    fn update_faults(&self, new: &Value, _old: &Value) -> Vec<Cause> {
        self.faults(new)
    }

    /// Every fault of a status.
    fn status_faults(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Why this object may not be deleted now; none if it may.
    fn delete_faults(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// True while something must happen before the object may go.
    fn is_held(&self, object: &Value) -> bool {
        !meta::finalizers(object).is_empty()
    }

    /// What changes besides `metadata` when a deletion begins.
    fn mark_terminating(&self, _object: &mut Value) {}

    /// Seconds a deletion leaves the object to end by itself, if the options do not say. Only for kinds deleted
    /// gracefully.
    fn grace(&self, _object: &Value) -> i64 {
        0
    }

    /// The selectable field by whose value objects of this kind get in each other's way: a new one is judged beside all that have the
    /// same. `None`: none do.
    fn exclusive_by(&self) -> Option<&'static str> {
        None
    }

    /// Judges a new object beside the others.
    fn check_beside(&self, _object: &Value, _others: &[Value]) -> Result<()> {
        Ok(())
    }

    /// True if an update must name the version it is based on. Ours do; Kubernetes' own kinds may be overwritten.
    fn needs_version(&self) -> bool {
        true
    }

    /// What the field at this path measures: another spelling of the same amount is no change.
    fn measure(&self, _path: &[&str]) -> Option<Measure> {
        None
    }

    /// True if `metadata.generation` counts changes.
    fn has_generation(&self) -> bool {
        true
    }
}

/// What can be spelled in several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// An amount, as in "1Gi" and "1024Mi".
    Quantity,
    /// A Go duration, as in "2s" and "2000ms".
    Duration,
}

impl Measure {
    /// True if both texts can be read and stand for the same.
    #[must_use]
    pub fn is_same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Quantity => Quantity::same(one, other),
            Self::Duration => duration::same(one, other),
        }
    }
}

/// A create-only subresource that leaves a record of another kind in the parent's namespace.
pub trait Action: Send + Sync {
    /// Name of the subresource.
    fn name(&self) -> &'static str;

    /// Kind of the record: what is sent and what is answered.
    fn kind(&self) -> &'static str;

    /// The selectable field of the record that holds the parent's name.
    fn parent_field(&self) -> &'static str;

    /// Makes the record from what was sent: fills in what the path says, refuses what contradicts it.
    fn build(&self, parent: &Value, body: Value) -> Result<Value>;

    /// Judges the record, with its defaults, against the live parent and the records that exist for it.
    fn check(&self, parent: &Value, record: &Value, others: &[Value]) -> Result<()>;
}
