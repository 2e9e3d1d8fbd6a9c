//! `metadata` of an object held as JSON: reading it, and what is always wrong with it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::name::{self, NameRule};
use crate::error::Cause;

/// Most bytes of all annotations together, as in Kubernetes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// Most bytes of what else of `metadata` grows with what is sent, for kinds of ours. Kubernetes bounds only the object as a whole; but whoever
/// lists or watches reads all of it, and a small text can become a large value there. Nobody needs a tenth of this.
const SIZES_MAX: [(&str, usize); 3] =
    [("labels", 64 * 1024), ("finalizers", 64 * 1024), ("ownerReferences", 256 * 1024)];
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

/// Most faults that are reported at once: a body of 3 MiB could hold half a million, each many times as long as what is wrong.
pub const REPORTED_MAX: usize = 100;

/// The faults of `metadata`, each made only when it is asked for; the schema has checked the types before.
pub fn faults(object: &Value, rule: NameRule) -> impl Iterator<Item = Cause> {
    let own = named(object, rule).into_iter().chain(base(object, rule));
    let maps = labels(object).chain(annotations(object)).chain(finalizer_faults(object));
    let lists = super::owners::faults(object).chain(super::managed::faults(object));
    own.chain(maps).chain(lists)
}

fn named(object: &Value, rule: NameRule) -> Option<Cause> {
    let name = text(object, "name");
    if name.is_empty() {
        return Some(Cause::required("metadata.name", "name or generateName is required"));
    }
    rule.fault(name).map(|fault| Cause::invalid("metadata.name", &quoted(name), &fault))
}

/// The base of a generated name; one dash may end it. A kind that knows its names itself knows no more of bases than that
/// they are the beginning of a name.
fn base(object: &Value, rule: NameRule) -> Option<Cause> {
    let base = text(object, "generateName");
    let rule = if rule == NameRule::Own { NameRule::Subdomain } else { rule };
    let masked = base.strip_suffix('-').filter(|rest| !rest.is_empty()).unwrap_or(base);
    let fault = rule.fault(masked).filter(|_| !base.is_empty())?;
    Some(Cause::invalid("metadata.generateName", &quoted(base), &fault))
}

/// What an update may not change of what only a deletion says; absent stands for unchanged.
#[must_use]
pub fn deletion_faults(new: &Value, old: &Value) -> Vec<Cause> {
    let is_changed = |field: &str, may_be_moved: bool| {
        get(new, field).filter(|value| Some(*value) != get(old, field) && !(may_be_moved && get(old, field).is_some()))
    };
    // The time of a deletion that runs is put back without a word, as in Kubernetes.
    let changed = [("deletionTimestamp", true), ("deletionGracePeriodSeconds", false)]
        .into_iter()
        .filter_map(|(field, may_be_moved)| is_changed(field, may_be_moved).map(|value| (field, value)));
    changed.map(|(field, value)| Cause::invalid(&format!("metadata.{field}"), value, "field is immutable")).collect()
}

/// Fields of metadata that are not written when they are empty.
const NOT_WRITTEN_EMPTY: [&str; 8] = [
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "generateName",
    "selfLink",
    "namespace",
];

/// Takes away what Kubernetes does not write: empty and null fields.
pub fn tidy(object: &mut Value) {
    let Some(map) = map(object) else { return };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    map.retain(|field, value| {
        let goes = if NOT_WRITTEN_EMPTY.contains(&field.as_str()) { is_empty(value) } else { value.is_null() };
        !goes
    });
}

/// What of `metadata` has the wrong type, in the words of Go's decoder.
#[must_use]
pub fn decode_fault(object: &Value) -> Option<String> {
    let metadata = object.get("metadata").filter(|metadata| !metadata.is_null())?;
    let Some(fields) = metadata.as_object() else {
        return Some(format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", go_kind(metadata)));
    };
    fields.iter().filter(|(_, value)| !value.is_null()).find_map(|(field, value)| {
        let wrong = |value: &Value, expected: &str| {
            let kind = go_kind(value);
            Some(format!("json: cannot unmarshal {kind} into Go struct field ObjectMeta.{field} of type {expected}"))
        };
        let odd = |values: Vec<&Value>| {
            let odd = values.into_iter().find(|value| !value.is_string() && !value.is_null());
            odd.and_then(|value| wrong(value, "string"))
        };
        match (field.as_str(), value) {
            ("labels" | "annotations", Value::Object(map)) => odd(map.values().collect()),
            ("labels" | "annotations", other) => wrong(other, "map[string]string"),
            ("finalizers", Value::Array(list)) => odd(list.iter().collect()),
            ("finalizers", other) => wrong(other, "[]string"),
            ("ownerReferences", other) if !other.is_array() => wrong(other, "[]v1.OwnerReference"),
            ("managedFields", Value::Array(list)) => {
                list.iter().filter_map(|entry| entry.get("time")).filter(|time| !time.is_null()).find_map(time_fault)
            }
            ("managedFields", other) => wrong(other, "[]v1.ManagedFieldsEntry"),
            ("generation" | "deletionGracePeriodSeconds", other) if !other.is_i64() => wrong(other, "int64"),
            ("creationTimestamp" | "deletionTimestamp", other) => time_fault(other),
            ("name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion", other)
                if !other.is_string() =>
            {
                wrong(other, "string")
            }
            _ => None,
        }
    })
}

fn time_fault(value: &Value) -> Option<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    match value.as_str() {
        Some(text) if text.parse::<jiff::Timestamp>().is_ok() => None,
        Some(text) => Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {text:?} as \"2006\"")),
        None => Some(format!("json: cannot unmarshal {} into Go value of type string", go_kind(value))),
    }
}

/// The type of a value, as Go's decoder names it.
#[must_use]
pub const fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Warnings that are no faults: finalizers without a domain and a path.
#[must_use]
pub fn warnings(object: &Value) -> Vec<String> {
    finalizers(object)
        .into_iter()
        .filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|name| {
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{} to avoid accidental conflicts with \
                 other finalizer writers",
                if name.contains('.') { " including a path (/)" } else { "" }
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
    let list: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
    vec![Cause::forbidden("metadata.finalizers", &format!("{detail} []string{{{}}}", list.join(", ")))]
}

/// What of `metadata` is too large, and has become so or larger still: `old` is what it was, if it was there.
#[must_use]
pub fn size_faults(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let too_large = |(field, most): (&str, usize)| {
        let size = size(new, field);
        let has_grown = old.is_none_or(|old| size > self::size(old, field));
        (size > most && has_grown).then(|| too_long(&format!("metadata.{field}"), most))
    };
    SIZES_MAX.into_iter().filter_map(too_large).collect()
}

/// Bytes of all texts of a member of `metadata`, names included.
fn size(object: &Value, field: &str) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(of).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + of(value)).sum(),
        }
    }
    get(object, field).map_or(0, of)
}

fn too_long(field: &str, most: usize) -> Cause {
    let message = format!("Too long: may not be more than {most} bytes");
    Cause { reason: "FieldValueTooLong".to_owned(), message, field: field.to_owned() }
}

fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let map = get(object, field).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
}

fn labels(object: &Value) -> impl Iterator<Item = Cause> {
    texts(object, "labels").flat_map(|(key, value)| {
        let invalid = |text: &str, fault: String| Cause::invalid("metadata.labels", &quoted(text), &fault);
        let of_key = name::qualified_name(key).map(|fault| invalid(key, fault));
        let of_value = name::label_value(value).map(|fault| invalid(value, fault));
        of_key.into_iter().chain(of_value)
    })
}

fn annotations(object: &Value) -> impl Iterator<Item = Cause> {
    let size: usize = texts(object, "annotations").map(|(key, value)| key.len() + value.len()).sum();
    let too_long = (size > ANNOTATIONS_MAX).then(|| too_long("metadata.annotations", ANNOTATIONS_MAX));
    let of_key = |key: &str| {
        let fault = name::qualified_name(&key.to_lowercase())?;
        Some(Cause::invalid("metadata.annotations", &quoted(key), &fault))
    };
    texts(object, "annotations").filter_map(move |(key, _)| of_key(key)).chain(too_long)
}

fn finalizer_faults(object: &Value) -> impl Iterator<Item = Cause> {
    let list = finalizers(object);
    let both = (list.contains(&FINALIZER_ORPHAN) && list.contains(&FINALIZER_FOREGROUND)).then(|| {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        Cause::invalid("metadata.finalizers", &Value::from(list.clone()), detail)
    });
    let of_name = |name: &str| {
        let fault = name::qualified_name(name)?;
        Some(Cause::invalid("metadata.finalizers", &quoted(name), &fault))
    };
    list.into_iter().filter_map(of_name).chain(both)
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
        faults(object, NameRule::Subdomain).map(|fault| format!("{}: {}", fault.field, fault.message)).collect()
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
        assert!(found[7].contains("Found \"true\" in references for A/n and A/m"));
    }

    /// Before, a request of 3 MiB took hundreds of megabytes: the faults of all were made.
    #[test]
    fn of_very_many_faults_no_more_are_made_than_are_asked_for() {
        let many = |one: &dyn Fn(usize) -> Value| (0..100_000).map(one).collect::<Vec<_>>();
        let map =
            |value: &str| (0..100_000).map(|n| (format!("!{n}"), json!(value))).collect::<serde_json::Map<_, _>>();
        let owner = |n: usize| json!({"apiVersion": "", "kind": "", "name": n.to_string(), "uid": ""});
        for (field, value) in [
            ("labels", Value::from(map("-"))),
            ("annotations", Value::from(map(""))),
            ("finalizers", Value::from(many(&|n| json!(format!("!{n}"))))),
            ("ownerReferences", Value::from(many(&owner))),
            ("managedFields", Value::from(many(&|_| json!({"operation": "Frob"})))),
        ] {
            let object = json!({"metadata": {"name": "a", field: value}});
            let mut found = faults(&object, NameRule::Subdomain);
            assert!(found.next().is_some_and(|fault| fault.field.starts_with(&format!("metadata.{field}"))), "{field}");
            assert_eq!(found.by_ref().take(REPORTED_MAX).count(), REPORTED_MAX, "{field}");
            assert!(found.next().is_some(), "{field}");
        }
    }

    #[test]
    fn annotations_have_a_limit_together() {
        let object =
            json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(200_000), "b": "x".repeat(100_000)}}});
        assert_eq!(fields(&object), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    }

    /// Before, each filled an object up to what the store takes, and everybody who watches held it.
    #[test]
    fn labels_finalizers_and_owners_have_a_limit_each() {
        let told = |new: &Value, old: Option<&Value>| -> Vec<String> {
            size_faults(new, old).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        };
        let of = |field: &str, bytes: usize| {
            let value = match field {
                "labels" => json!({"a": "x".repeat(9), "b": "x".repeat(bytes - 11)}),
                "finalizers" => json!(["x".repeat(9), "y".repeat(bytes - 9)]),
                _ => json!([{"name": "x".repeat(bytes - 7), "uid": ""}]),
            };
            json!({"metadata": {field: value}})
        };
        for (field, most) in [("labels", 65_536), ("finalizers", 65_536), ("ownerReferences", 262_144)] {
            let fault = [format!("metadata.{field}: Too long: may not be more than {most} bytes")];
            let [fits, large, larger] = [most, most + 1, most + 2].map(|bytes| of(field, bytes));
            assert_eq!(told(&fits, None), [""; 0], "{field}");
            assert_eq!(told(&large, None), fault);
            assert_eq!(told(&large, Some(&fits)), fault);
            assert_eq!(told(&larger, Some(&large)), fault, "larger still");
            assert_eq!(told(&large, Some(&larger)), [""; 0], "{field}: what was too large before may become smaller");
            assert_eq!(told(&large, Some(&large)), [""; 0], "{field}: and stay");
        }
    }

    #[test]
    fn finalizers_may_go_but_not_come_while_the_object_is_on_its_way_out() {
        let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]}});
        assert_eq!(update_faults(&json!({"metadata": {"finalizers": ["a/b"]}}), &old), []);
        let found = update_faults(&json!({"metadata": {"finalizers": ["a/b", "e/f"]}}), &old);
        assert_eq!(
            found[0].message,
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"e/f\"}"
        );
    }

    #[test]
    fn an_event_owns_nothing() {
        let owner = json!({"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "1", "controller": true});
        assert_eq!(
            fields(&json!({"metadata": {"name": "a", "ownerReferences": [owner]}})),
            [
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"n\",\"uid\":\"1\",\
              \"controller\":true}: /v1, Kind=Event is disallowed from being an owner"
            ]
        );
    }

    #[test]
    fn the_base_of_a_generated_name_may_end_with_a_dash_and_nothing_worse() {
        let base = |base: &str| fields(&json!({"metadata": {"name": "a", "generateName": base}})).len();
        assert_eq!((base("a-"), base("a"), base(""), base("A-"), base("a b"), base("-")), (0, 0, 0, 1, 1, 1));
    }

    #[test]
    fn only_a_deletion_says_that_an_object_goes() {
        let time = "2026-01-01T00:00:00Z";
        let live = json!({"metadata": {}});
        let told = |new: &Value, old: &Value| -> Vec<String> {
            deletion_faults(new, old).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        };
        assert_eq!(
            told(&json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": 3}}), &live),
            [
                "metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable",
                "metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable"
            ]
        );
        let going = json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": 0}});
        assert_eq!(told(&live, &going), Vec::<String>::new());
        assert_eq!(told(&going, &going), Vec::<String>::new());
        let other = json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z", "deletionGracePeriodSeconds": 9}});
        assert_eq!(told(&other, &going), ["metadata.deletionGracePeriodSeconds: Invalid value: 9: field is immutable"]);
    }
}
