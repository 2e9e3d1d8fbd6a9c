//! The rule of compare-and-set, written once for all back ends. Pure.

use crate::{Action, Change, Refusal, Stored, Write};

/// What `write` does to a key that holds `current`, or why it may not.
pub(crate) fn decide(write: &Write, current: Option<Stored>) -> Result<Change, Refusal> {
    match (&write.action, current) {
        (Action::Create { value }, None) => Ok(Change::Put { value: value.clone(), previous: None }),
        (Action::Create { .. }, Some(current)) => Err(Refusal::Exists { current }),
        (Action::Update { .. } | Action::Delete { .. }, None) => Err(Refusal::Absent),
        (Action::Update { value, expected }, Some(current)) if current.revision == *expected => {
            Ok(Change::Put { value: value.clone(), previous: Some(current) })
        }
        (Action::Delete { expected }, Some(previous)) if previous.revision == *expected => {
            Ok(Change::Delete { previous })
        }
        (Action::Update { .. } | Action::Delete { .. }, Some(current)) => Err(Refusal::Conflict { current }),
    }
}
