//! `/scale`: a view of the parent as autoscaling/v1 Scale, and the change it makes of it.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::{
    Answer, Work,
    change::{Change, Changed, Face, Part},
    incoming,
    options::{FieldValidation, WriteOptions},
    update,
};
use crate::{
    admission::GroupVersion,
    error::{Cause, Error, Qualified, Result},
    object::{meta, shape::Shape},
    registry::{Kind, ScalePaths},
    request::Warnings,
    wire::decode,
};

/// autoscaling/v1 Scale, as admission names it.
#[must_use]
pub fn group_version() -> GroupVersion {
    GroupVersion { group: "autoscaling".to_owned(), version: "v1".to_owned(), name: "Scale".to_owned() }
}

/// GET.
pub async fn get(work: &Work<'_>, paths: ScalePaths) -> Result<Answer> {
    let kind = work.route.kind;
    let live = work.storage.live(kind, &work.key()?).await?;
    Ok(Answer::Scale(of(&paths, &live.value)))
}

/// PUT. The Content-Type may be absent: the horizontal autoscaler sends none.
pub async fn update(work: &Work<'_>, paths: ScalePaths, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "UpdateOptions")?;
    let sent = decode::decode(bytes, content_type, &|why| Error::bad_request(format!("error decoding Scale: {why}")))?;
    let twice =
        if options.validation == FieldValidation::Strict { sent.twice.refusals() } else { sent.twice.warnings() };
    let sent = checked(sent.value, twice, options.validation, &work.context.warnings)?;
    work.context.record.object(&sent, |scale| {
        // Kubernetes records a Scale as it reads it: with a status.
        if let Some(members) = scale.as_object_mut() {
            members.entry("status").or_insert_with(|| json!({"replicas": 0}));
        }
    });
    let sent = update::named(work.name()?, sent)?;
    let given = meta::text(&sent, "namespace");
    if !given.is_empty() && work.route.namespace.is_some_and(|namespace| given != namespace) {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Error::bad_request(text));
    }
    let face = Face::Scale(paths);
    let change = Change {
        part: Part::Main,
        face,
        options,
        options_kind: "UpdateOptions",
        uid_is_field: false,
        is_owned: false,
        generation: None,
    };
    let changed = change.run(work, |live| into(&paths, &sent, live.clone())).await?;
    answer(work.route.kind, &paths, &changed)
}

/// The changed parent as Scale.
pub fn answer(kind: &Kind, paths: &ScalePaths, changed: &Changed) -> Result<Answer> {
    let parent = super::get::value(kind, &changed.json)?;
    Ok(Answer::Scale(of(paths, &parent)))
}

/// The parent seen as Scale.
#[must_use]
pub fn of(paths: &ScalePaths, parent: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::get(parent, field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let number = |pointer: &str| parent.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut status = Map::new();
    status.insert("replicas".to_owned(), json!(number(paths.status)));
    if let Some(selector) = parent.pointer(paths.selector).and_then(selector_text) {
        status.insert("selector".to_owned(), json!(selector));
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": number(paths.spec)},
        "status": status,
    })
}

/// A selector in string form; `matchLabels` of a structured one are written out.
fn selector_text(selector: &Value) -> Option<String> {
    match selector {
        Value::String(text) => Some(text.clone()),
        Value::Object(map) => {
            let labels = map.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
            let terms: Vec<String> =
                labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            (!terms.is_empty()).then(|| terms.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The parent with the number a Scale asks for. Version and uid of the Scale become those of the parent, where they are
/// preconditions.
pub fn into(paths: &ScalePaths, scale: &Value, mut parent: Value) -> Result<Value> {
    let asked = match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => 0,
        Some(value) => match value.as_i64() {
            Some(number) if i32::try_from(number).is_ok() && number >= 0 => number,
            _ => return Err(refused(paths, &parent, value)),
        },
    };
    for field in ["resourceVersion", "uid"] {
        match meta::text(scale, field) {
            "" => meta::remove(&mut parent, field),
            given => meta::set(&mut parent, field, given),
        }
    }
    set_pointer(&mut parent, paths.spec, json!(asked));
    Ok(parent)
}

/// The fault is told as one of the parent's field, as for custom resources.
fn refused(paths: &ScalePaths, parent: &Value, value: &Value) -> Error {
    let cause = Cause::invalid(&paths.spec.replace('/', "."), value, "should be a non-negative integer");
    let text = |field: &str| parent.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let name = meta::text(parent, "name").to_owned();
    Error::Invalid { kind: Qualified::new(group, text("kind")), name, causes: vec![cause] }
}

/// Sets a member by JSON pointer, making the objects on the way.
pub fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(part.to_owned()).or_insert(Value::Null);
    }
    *at = value;
}

/// The schema of a Scale, for what is unknown in one.
fn shape() -> Option<&'static Shape> {
    static SHAPE: OnceLock<Option<Shape>> = OnceLock::new();
    let schema = || {
        json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "format": "int32"}}},
            "status": {"type": "object", "properties": {
                "replicas": {"type": "integer", "format": "int32"}, "selector": {"type": "string"}
            }}
        }})
    };
    SHAPE.get_or_init(|| Shape::new(&schema()).ok()).as_ref()
}

/// What a Scale holds that a Scale does not have.
fn unknown(scale: &mut Value) -> Vec<String> {
    let paths = shape().map(|shape| shape.prune(scale)).unwrap_or_default();
    paths.iter().map(|path| format!("unknown field {path:?}")).collect()
}

/// Why a document cannot be read as a Scale: the numbers of one are 32 bits wide.
fn decode_fault(scale: &Value) -> Option<String> {
    let numbers = [("/spec/replicas", "ScaleSpec.spec.replicas"), ("/status/replicas", "ScaleStatus.status.replicas")];
    numbers.into_iter().find_map(|(pointer, field)| {
        let value = scale.pointer(pointer).filter(|value| !value.is_null())?;
        let fits = value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
        let kind = meta::go_kind(value);
        let shown = if value.is_number() { format!("number {value}") } else { kind.to_owned() };
        (!fits).then(|| format!("json: cannot unmarshal {shown} into Go struct field {field} of type int32"))
    })
}

/// A Scale that was sent: it must be one, and what else it holds is odd.
fn checked(mut scale: Value, twice: Vec<String>, validation: FieldValidation, warnings: &Warnings) -> Result<Value> {
    let cannot = |why: &str| Error::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"));
    if !scale.is_object() {
        return Err(cannot("the document is not an object"));
    }
    for (field, expected, what) in [("kind", "Scale", "kind"), ("apiVersion", "autoscaling/v1", "API version")] {
        match scale.get(field).and_then(Value::as_str) {
            Some(given) if given == expected => {}
            None | Some("") => {
                if let Some(map) = scale.as_object_mut() {
                    map.insert(field.to_owned(), json!(expected));
                }
            }
            Some(given) => {
                let text = format!("the {what} in the data ({given}) does not match the expected {what} ({expected})");
                return Err(Error::bad_request(text));
            }
        }
    }
    if let Some(why) = decode_fault(&scale) {
        return Err(cannot(&why));
    }
    let odd = twice.into_iter().chain(unknown(&mut scale));
    incoming::report(odd, validation, warnings).map_err(|all| cannot(&format!("strict decoding error: {all}")))?;
    Ok(scale)
}

/// What a patch makes of a Scale.
pub fn patched(mut scale: Value, odd: &[String], validation: FieldValidation, warnings: &Warnings) -> Result<Value> {
    let text = scale.to_string();
    let bad = |why: &str| Error::BadPatch { object: text.clone(), why: why.to_owned() };
    if let Some(why) = decode_fault(&scale) {
        return Err(bad(&why));
    }
    let odd = odd.iter().cloned().chain(unknown(&mut scale));
    incoming::report(odd, validation, warnings).map_err(|all| bad(&format!("strict decoding error: {all}")))?;
    Ok(scale)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PATHS: ScalePaths =
        ScalePaths { spec: "/spec/shards", status: "/status/replicas", selector: "/status/selector" };

    #[test]
    fn a_scale_shows_the_numbers_and_the_selector_as_text() {
        let parent = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}},
            "spec": {"shards": 3}, "status": {"replicas": 2, "selector": "a=b"}});
        assert_eq!(
            of(&PATHS, &parent),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}})
        );
        assert_eq!(selector_text(&json!({"matchLabels": {"b": "2", "a": "1"}})), Some("a=1,b=2".to_owned()));
    }

    #[test]
    fn a_scale_changes_one_number_and_nothing_else() {
        let parent = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {"shards": 3, "mode": "Cluster"}});
        let scale = json!({"metadata": {"name": "a"}, "spec": {"replicas": 5}});
        let expected = json!({"metadata": {"name": "a"}, "spec": {"shards": 5, "mode": "Cluster"}});
        assert_eq!(into(&PATHS, &scale, parent), Ok(expected));
    }

    #[test]
    fn absurd_numbers_are_invalid_scales() {
        for number in [json!(-1), json!(1.5), json!("3"), json!(4_294_967_296_i64)] {
            let scale = json!({"metadata": {"name": "a"}, "spec": {"replicas": number}});
            let parent = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
            let error = into(&PATHS, &scale, parent).unwrap_err().to_string();
            assert!(error.starts_with("K.g \"a\" is invalid: .spec.shards: Invalid value: "), "{error}");
        }
    }
}
