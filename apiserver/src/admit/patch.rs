//! A webhook's JSON patch, applied; pure.

use serde_json::Value;

/// The object after the patch, and whether it differs. `None`: the patch has no operations. A text says why it cannot
/// be applied.
pub(super) fn apply(patch: &[u8], object: &Value) -> Result<Option<Value>, String> {
    let operations: Value = serde_json::from_slice(patch).map_err(|error| format!("the patch is no JSON: {error}"))?;
    let count = operations.as_array().map(Vec::len).ok_or("the patch is no list of operations")?;
    if count == 0 {
        return Ok(None);
    }
    if object.is_null() {
        return Err("attempted to modify the object, which is not supported for this operation".to_owned());
    }
    let mut patched = object.clone();
    merge::json_patch(&mut patched, &operations).map_err(|error| error.to_string())?;
    if !patched.is_object() {
        return Err("the patch leaves no object".to_owned());
    }
    // What an object is cannot be patched away; everything else is judged by the verb that called.
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != object.get(field) {
            return Err(format!("the patch changes {field}"));
        }
    }
    Ok(Some(patched))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(patch: &Value, object: &Value) -> Result<Option<Value>, String> {
        apply(patch.to_string().as_bytes(), object)
    }

    #[test]
    fn a_patch_changes_the_object_and_an_empty_one_does_not() {
        let object = json!({"apiVersion": "v1", "kind": "K", "spec": {"a": 1}});
        let patch = json!([{"op": "add", "path": "/spec/b", "value": 2}]);
        assert_eq!(
            patched(&patch, &object),
            Ok(Some(json!({"apiVersion": "v1", "kind": "K", "spec": {"a": 1, "b": 2}})))
        );
        assert_eq!(patched(&json!([]), &object), Ok(None));
    }

    #[test]
    fn a_patch_that_makes_no_sense_is_an_error_and_never_a_panic() {
        let object = json!({"apiVersion": "v1", "kind": "K"});
        let refused = |patch: Value, object: &Value| patched(&patch, object).err().unwrap_or_default();
        let touch = json!([{"op": "add", "path": "/spec", "value": 1}]);
        assert_eq!(
            refused(touch, &Value::Null),
            "attempted to modify the object, which is not supported for this operation"
        );
        let kind = json!([{"op": "replace", "path": "/kind", "value": "Other"}]);
        assert_eq!(refused(kind, &object), "the patch changes kind");
        assert_eq!(refused(json!([{"op": "replace", "path": "", "value": 3}]), &object), "the patch leaves no object");
        assert_eq!(refused(json!({"op": "add"}), &object), "the patch is no list of operations");
        for patch in [
            json!([{"op": "remove", "path": "/absent"}]),
            json!([{"op": "jump"}]),
            json!([{"op": "test", "path": "/kind", "value": "X"}]),
        ] {
            assert!(!refused(patch.clone(), &object).is_empty(), "{patch}");
        }
        assert!(apply(b"\xff", &object).is_err());
    }
}
