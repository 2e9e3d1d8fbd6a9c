//! Merge patches (RFC 7396) and JSON patches (RFC 6902), bounded in number of operations and growth.

use json_patch::{PatchOperation, jsonptr};
use serde::Deserialize as _;
use serde_json::Value;

use crate::strategic::STRATEGIC_ITEMS_MAX;

/// Most operations of one JSON patch, as in Kubernetes.
pub const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;
/// Most bytes that the copies of one JSON patch may add, as in Kubernetes: a few hundred copies of an object into
/// itself would otherwise fill any memory.
const JSON_PATCH_COPIED_MAX: usize = 3 << 20;

/// Why a patch is not applied; the object may then be half changed and must be dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not a patch.
    #[error("the patch is malformed: {0}")]
    Malformed(String),
    /// It has too many operations.
    #[error("the patch has {0} operations, more than the limit of {JSON_PATCH_OPERATIONS_MAX}")]
    TooManyOperations(usize),
    /// A list of a strategic merge patch is too long.
    #[error("the patch has {count} items in {list}, more than the limit of {STRATEGIC_ITEMS_MAX}")]
    TooManyItems {
        /// The list.
        list: String,
        /// Its length.
        count: usize,
    },
    /// An operation does not apply to this object.
    #[error("applying operation {at} of the patch: {why}")]
    Failed {
        /// Which, from 0.
        at: usize,
        /// Why not.
        why: String,
    },
}

/// Applies a merge patch: null removes, objects merge, all else replaces.
pub fn merge_patch(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Applies a JSON patch, operation by operation.
///
/// # Errors
/// `Malformed` and `TooManyOperations` speak about the patch alone, `Failed` about the patch on this object.
pub fn json_patch(object: &mut Value, patch: &Value) -> Result<(), Error> {
    if let Some(count) = patch.as_array().map(Vec::len).filter(|count| *count > JSON_PATCH_OPERATIONS_MAX) {
        return Err(Error::TooManyOperations(count));
    }
    if patch.is_null() {
        return Ok(());
    }
    let operations = patch.as_array().ok_or_else(|| Error::Malformed("a patch is a list".to_owned()))?;
    operations.iter().try_for_each(check_types)?;
    let mut copied = 0;
    for (at, operation) in operations.iter().enumerate() {
        let failed = |why: String| Error::Failed { at, why };
        let operation = read(operation).map_err(failed)?;
        if let PatchOperation::Copy(copy) = &operation {
            let source = object.pointer(copy.from.as_str());
            copied += source.map_or(0, |value| value.to_string().len());
            if copied > JSON_PATCH_COPIED_MAX {
                return Err(failed(format!("copies add more than {JSON_PATCH_COPIED_MAX} bytes")));
            }
        }
        let operation = lenient(object, operation);
        json_patch::patch(object, std::slice::from_ref(&operation)).map_err(|error| failed(error.kind.to_string()))?;
    }
    Ok(())
}

/// The members of an operation must have the right types, whatever it does.
fn check_types(operation: &Value) -> Result<(), Error> {
    let malformed = |why: &str| Error::Malformed(why.to_owned());
    let fields = operation.as_object().ok_or_else(|| malformed("an operation is an object"))?;
    let is_text = |name: &&str| fields.get(*name).is_none_or(|value| value.is_string() || value.is_null());
    match ["op", "path", "from"].iter().find(|name| !is_text(name)) {
        Some(odd) => Err(malformed(&format!("{odd} of an operation is a text"))),
        None => Ok(()),
    }
}

/// An operation; one that lacks a value has null, as in Kubernetes.
fn read(operation: &Value) -> Result<PatchOperation, String> {
    let mut operation = operation.clone();
    if let Some(fields) = operation.as_object_mut() {
        fields.entry("value").or_insert(Value::Null);
    }
    PatchOperation::deserialize(operation).map_err(|error| error.to_string())
}

/// To replace a member that an object does not have is to add it, and a copy of one is null: Kubernetes' own library does
/// so, against RFC 6902.
fn lenient(object: &Value, operation: PatchOperation) -> PatchOperation {
    let is_absent = |path: &jsonptr::Pointer| {
        let parent = path.parent().and_then(|parent| object.pointer(parent.as_str()));
        parent.is_some_and(Value::is_object) && object.pointer(path.as_str()).is_none()
    };
    match operation {
        PatchOperation::Replace(replace) if is_absent(&replace.path) => {
            PatchOperation::Add(json_patch::AddOperation { path: replace.path, value: replace.value })
        }
        PatchOperation::Copy(copy) if is_absent(&copy.from) => {
            PatchOperation::Add(json_patch::AddOperation { path: copy.path, value: Value::Null })
        }
        other => other,
    }
}
