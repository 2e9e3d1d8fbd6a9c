//! Types, required fields, enums and bounds: what a schema demands of a value, in the words of Kubernetes' validation.

use serde_json::Value;

use crate::{
    path::Path,
    schema::{Array, ListType, Node, Object, Schema, Shape},
};

/// Most faults that are reported at once; a body of 3 MiB could hold a million.
const REPORTED_MAX: usize = 100;

/// What is wrong, in Kubernetes' categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It must be given.
    Required,
    /// Its value is out of bounds.
    Invalid,
    /// Its type is wrong; the bad value is the name of the type found.
    TypeInvalid,
    /// It is not one of the enum's values.
    NotSupported,
    /// It occurs twice.
    Duplicate,
    /// It has too many characters.
    TooLong,
    /// It has too many items.
    TooMany,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Where, as `spec.snapshots[0].seconds`.
    pub path: String,
    /// What.
    pub kind: FaultKind,
    /// The value to show; `None` where there is none.
    pub bad_value: Option<Value>,
    /// Why; may be empty.
    pub detail: String,
}

/// All faults of an object, in the order of its fields (at most the first hundred).
#[must_use]
pub fn check(schema: &Schema, object: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    walk(schema.root(), object, &Path::ROOT, &mut faults);
    faults
}

fn report(faults: &mut Vec<Fault>, path: &Path<'_>, kind: FaultKind, bad_value: Option<Value>, detail: String) {
    if faults.len() < REPORTED_MAX {
        faults.push(Fault { path: path.text(), kind, bad_value, detail });
    }
}

fn walk(node: &Node, value: &Value, path: &Path<'_>, faults: &mut Vec<Fault>) {
    if faults.len() >= REPORTED_MAX || (value.is_null() && node.nullable) {
        return;
    }
    match (&node.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => object_faults(object, fields, path, faults),
        (Shape::Array(array), Value::Array(items)) => array_faults(array, items, path, faults),
        (Shape::String { is_time, least, most }, Value::String(text)) => {
            text_faults(text, *is_time, *least, *most, path, faults);
        }
        (Shape::Integer { least, most }, Value::Number(number)) => match number.as_i64() {
            Some(found) => integer_faults(found, *least, *most, path, faults),
            None if number.is_u64() => integer_faults(i64::MAX, *least, i64::MAX - 1, path, faults),
            None => wrong_type("integer", value, path, faults),
        },
        (Shape::IntOrString, Value::Number(number)) if number.is_i64() || number.is_u64() => {}
        (Shape::Number, Value::Number(_))
        | (Shape::Boolean, Value::Bool(_))
        | (Shape::IntOrString, Value::String(_))
        | (Shape::Any, _) => {}
        (Shape::Object(_), _) => wrong_type("object", value, path, faults),
        (Shape::Array(_), _) => wrong_type("array", value, path, faults),
        (Shape::String { .. }, _) => wrong_type("string", value, path, faults),
        (Shape::Integer { .. }, _) => wrong_type("integer", value, path, faults),
        (Shape::Number, _) => wrong_type("number", value, path, faults),
        (Shape::Boolean, _) => wrong_type("boolean", value, path, faults),
        (Shape::IntOrString, _) => wrong_type("integer,string", value, path, faults),
    }
    // A value of another type is told twice, as in Kubernetes.
    if !node.allowed.is_empty() && !value.is_null() && !node.allowed.contains(value) {
        let known: Vec<String> = node.allowed.iter().map(ToString::to_string).collect();
        let detail = format!("supported values: {}", known.join(", "));
        report(faults, path, FaultKind::NotSupported, Some(value.clone()), detail);
    }
}

fn wrong_type(wanted: &str, value: &Value, path: &Path<'_>, faults: &mut Vec<Fault>) {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let place = path.text();
    let detail = format!("{place} in body must be of type {wanted}: \"{found}\"");
    report(faults, path, FaultKind::TypeInvalid, Some(found.into()), detail);
}

fn object_faults(object: &Object, fields: &serde_json::Map<String, Value>, path: &Path<'_>, faults: &mut Vec<Fault>) {
    for name in &object.required {
        if !fields.contains_key(name) {
            report(faults, &path.field(name), FaultKind::Required, None, String::new());
        }
    }
    for (name, value) in fields {
        if let Some(inner) = object.properties.get(name).or(object.additional.as_deref()) {
            walk(inner, value, &path.field(name), faults);
        }
    }
}

fn array_faults(array: &Array, items: &[Value], path: &Path<'_>, faults: &mut Vec<Fault>) {
    if let Some(most) = array.most.filter(|most| items.len() > *most) {
        let detail = format!("must have at most {most} items");
        report(faults, path, FaultKind::TooMany, Some(items.len().into()), detail);
        return;
    }
    if let Some(least) = array.least.filter(|least| items.len() < *least) {
        let detail = format!("{} in body should have at least {least} items", path.text());
        report(faults, path, FaultKind::Invalid, Some(items.len().into()), detail);
    }
    let mut seen = std::collections::BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let place = path.index(at);
        walk(&array.items, item, &place, faults);
        let Some(key) = identity(&array.list_type, &array.items, item) else { continue };
        if !seen.insert(key.to_string()) {
            report(faults, &place, FaultKind::Duplicate, Some(key), String::new());
        }
    }
}

/// What must be unique about an item.
fn identity(list_type: &ListType, items: &Node, item: &Value) -> Option<Value> {
    match list_type {
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map(keys) => {
            let fields = item.as_object()?;
            let of = |key: &String| {
                let default = match &items.shape {
                    Shape::Object(object) => object.properties.get(key).and_then(|node| node.default.clone()),
                    Shape::Array(_)
                    | Shape::String { .. }
                    | Shape::Integer { .. }
                    | Shape::Number
                    | Shape::Boolean
                    | Shape::IntOrString
                    | Shape::Any => None,
                };
                Some((key.clone(), fields.get(key).cloned().or(default)?))
            };
            Some(Value::Object(keys.iter().filter_map(of).collect()))
        }
    }
}

fn text_faults(
    text: &str,
    is_time: bool,
    least: Option<usize>,
    most: Option<usize>,
    path: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    if is_time && text.parse::<jiff::Timestamp>().is_err() {
        let detail = format!("{} in body must be of type date-time: {text:?}", path.text());
        report(faults, path, FaultKind::TypeInvalid, Some(text.into()), detail);
    }
    let length = text.chars().count();
    if let Some(least) = least.filter(|least| length < *least) {
        let detail = format!("{} in body should be at least {least} chars long", path.text());
        report(faults, path, FaultKind::Invalid, Some(text.into()), detail);
    }
    if let Some(most) = most.filter(|most| length > *most) {
        let detail = format!("may not be more than {most} bytes");
        report(faults, path, FaultKind::TooLong, None, detail);
    }
}

fn integer_faults(found: i64, least: i64, most: i64, path: &Path<'_>, faults: &mut Vec<Fault>) {
    let detail = if found < least {
        format!("{} in body should be greater than or equal to {least}", path.text())
    } else if found > most {
        format!("{} in body should be less than or equal to {most}", path.text())
    } else {
        return;
    };
    report(faults, path, FaultKind::Invalid, Some(found.into()), detail);
}
