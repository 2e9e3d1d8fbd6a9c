//! `metadata` of an object held as JSON: reading it, and what is always wrong with it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::name::{self, NameRule};
use crate::error::Cause;

/// Most bytes of all annotations together, as in Kubernetes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Finalizer of the garbage collector: dependents lose their reference first.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// Finalizer of the garbage collector: dependents are deleted first.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// Finalizer names that are allowed without a domain.
const STANDARD_FINALIZERS: [&str; 3] = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND, "kubernetes"];

/// A text of `metadata`; empty if absent.
#[must_use]
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    get(object, field).and_then(Value::as_str).unwrap_or_default()
}

/// A member of `metadata`, null counting as absent.
#[must_use]
pub fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field).filter(|value| !value.is_null())
}

/// Sets a member of `metadata`, making `metadata` if it is missing.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = map(object) {
        map.insert(field.to_owned(), value.into());
    }
}

/// Removes a member of `metadata`.
pub fn remove(object: &mut Value, field: &str) {
    if let Some(map) = map(object) {
        map.remove(field);
    }
}

/// Makes a member of `metadata` what it is in `from`, absent if it is absent there.
pub fn keep(object: &mut Value, field: &str, from: &Value) {
    match get(from, field) {
        Some(value) => set(object, field, value.clone()),
        None => remove(object, field),
    }
}

/// `metadata` itself, made if it is missing; `None` if the object is no JSON object.
pub fn map(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// The finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    get(object, "finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// True if the object is on its way out.
#[must_use]
pub fn is_terminating(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Every fault of `metadata`; the schema has checked the types before.
#[must_use]
pub fn faults(object: &Value, rule: NameRule) -> Vec<Cause> {
    let mut faults = Vec::new();
    let name = text(object, "name");
    if name.is_empty() {
        faults.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(fault) = rule.fault(name) {
        faults.push(Cause::invalid("metadata.name", &quoted(name), &fault));
    }
    labels(object, &mut faults);
    annotations(object, &mut faults);
    finalizer_faults(object, &mut faults);
    owners(object, &mut faults);
    faults
}

/// Warnings that are no faults: finalizers without a domain and a path.
#[must_use]
pub fn warnings(object: &Value) -> Vec<String> {
    finalizers(object)
        .into_iter()
        .filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|name| {
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name including a path (/) to avoid \
                 accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Faults of a change of `metadata`: no new finalizers while the object is on its way out.
#[must_use]
pub fn update_faults(new: &Value, old: &Value) -> Vec<Cause> {
    let before: BTreeSet<&str> = finalizers(old).into_iter().collect();
    let added: Vec<&str> = finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
    if added.is_empty() || !is_terminating(old) {
        return Vec::new();
    }
    let detail = "no new finalizers can be added if the object is being deleted, found new finalizers";
    vec![Cause::forbidden("metadata.finalizers", &format!("{detail} {added:?}"))]
}

/// Removes references to an owner that is named before; true if there were any.
pub fn dedup_owners(object: &mut Value) -> bool {
    let owners = map(object).and_then(|map| map.get_mut("ownerReferences")).and_then(Value::as_array_mut);
    let Some(owners) = owners else { return false };
    let before = owners.len();
    let mut seen: Vec<Value> = Vec::new();
    owners.retain(|owner| {
        let new = !seen.contains(owner);
        if new {
            seen.push(owner.clone());
        }
        new
    });
    owners.len() != before
}

fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let map = get(object, field).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
}

fn labels(object: &Value, faults: &mut Vec<Cause>) {
    for (key, value) in texts(object, "labels") {
        if let Some(fault) = name::qualified_name(key) {
            faults.push(Cause::invalid("metadata.labels", &quoted(key), &fault));
        }
        if let Some(fault) = name::label_value(value) {
            faults.push(Cause::invalid("metadata.labels", &quoted(value), &fault));
        }
    }
}

fn annotations(object: &Value, faults: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in texts(object, "annotations") {
        size += key.len() + value.len();
        if let Some(fault) = name::qualified_name(&key.to_lowercase()) {
            faults.push(Cause::invalid("metadata.annotations", &quoted(key), &fault));
        }
    }
    if size > ANNOTATIONS_MAX {
        faults.push(Cause {
            reason: "FieldValueTooLong".into(),
            message: format!("Too long: may not be more than {ANNOTATIONS_MAX} bytes"),
            field: "metadata.annotations".into(),
        });
    }
}

fn finalizer_faults(object: &Value, faults: &mut Vec<Cause>) {
    let list = finalizers(object);
    for name in &list {
        if let Some(fault) = name::qualified_name(name) {
            faults.push(Cause::invalid("metadata.finalizers", &quoted(name), &fault));
        }
    }
    if list.contains(&FINALIZER_ORPHAN) && list.contains(&FINALIZER_FOREGROUND) {
        let detail = "finalizer orphan and finalizer foregroundDeletion cannot be both set";
        faults.push(Cause::invalid("metadata.finalizers", &format!("{list:?}"), detail));
    }
}

fn owners(object: &Value, faults: &mut Vec<Cause>) {
    let owners = get(object, "ownerReferences").and_then(Value::as_array);
    let mut controllers = Vec::new();
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        let part = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if part(field).is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                faults.push(Cause::invalid(&path, &quoted(""), "must not be empty"));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(part("name").to_owned());
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        faults.push(Cause::invalid("metadata.ownerReferences", &"[…]", &detail));
    }
}

/// A value as messages show it.
#[must_use]
pub fn quoted(text: &str) -> String {
    const SHOWN_MAX: usize = 256;
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    if cut.len() < text.len() { format!("{cut:?}…") } else { format!("{cut:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(object: &Value) -> Vec<String> {
        faults(object, NameRule::Subdomain)
            .into_iter()
            .map(|fault| format!("{}: {}", fault.field, fault.message))
            .collect()
    }

    #[test]
    fn every_fault_of_metadata_is_found_at_once() {
        let object = json!({"metadata": {
            "labels": {"a b": "x", "ok": "-"},
            "annotations": {"/": ""},
            "finalizers": ["orphan", "foregroundDeletion", "a b"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "n", "uid": "", "controller": true},
                {"apiVersion": "v1", "kind": "A", "name": "m", "uid": "2", "controller": true}
            ]
        }});
        let found = fields(&object);
        assert_eq!(found.len(), 8, "{found:#?}");
        assert_eq!(found[0], "metadata.name: Required value: name or generateName is required");
        assert!(found[7].contains("Found \"true\" in references for n and m"));
    }

    #[test]
    fn annotations_have_a_limit_together() {
        let object =
            json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(200_000), "b": "x".repeat(100_000)}}});
        assert_eq!(fields(&object), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    }

    #[test]
    fn finalizers_may_go_but_not_come_while_the_object_is_on_its_way_out() {
        let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]}});
        assert_eq!(update_faults(&json!({"metadata": {"finalizers": ["a/b"]}}), &old), []);
        let found = update_faults(&json!({"metadata": {"finalizers": ["a/b", "e/f"]}}), &old);
        assert_eq!(
            found[0].message,
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers [\"e/f\"]"
        );
    }

    #[test]
    fn an_owner_named_twice_is_named_once_afterwards() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "n", "uid": "1"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert!(dedup_owners(&mut object));
        assert!(!dedup_owners(&mut object));
    }
}
