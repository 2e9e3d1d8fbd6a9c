//! Whether a value can be merged at all: types fit, fields are declared, items have names.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{View, entry, name};
use crate::fields::Element;
use crate::schema::{Node, Shape};

/// What does not fit, as Kubernetes words it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<(String, String)>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line =
            |(path, why): &(String, String)| if path.is_empty() { why.clone() } else { format!("{path}: {why}") };
        match self.0.as_slice() {
            [one] => f.write_str(&line(one)),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|fault| write!(f, "\n  {}", line(fault)))
            }
        }
    }
}

impl std::error::Error for Faults {}

/// Checks a value before it is applied.
///
/// # Errors
/// Everything that does not fit.
pub fn check(node: &Node, value: &Value) -> Result<(), Faults> {
    let mut faults = Faults::default();
    walk(node, value, &mut String::new(), &mut faults);
    if faults.0.is_empty() { Ok(()) } else { Err(faults) }
}

fn walk(node: &Node, value: &Value, path: &mut String, faults: &mut Faults) {
    let why = if value.is_null() { None } else { misfit(&node.shape, value) };
    if let Some(why) = why {
        return faults.0.push((path.clone(), why));
    }
    match (&node.shape, value) {
        (Shape::Array(_), Value::Array(items)) => walk_items(node, items, path, faults),
        (Shape::Object(object), Value::Object(fields)) => {
            for (key, value) in fields {
                let element = Element::field(key);
                let Some(node) = entry(Some(object), key) else {
                    return faults.0.push((format!("{path}{element}"), "field not declared in schema".to_owned()));
                };
                under(path, &element, |path| walk(node, value, path, faults));
            }
        }
        _ => {}
    }
}

/// Why a value, not null, cannot be of this type; what is in it is looked at later.
fn misfit(shape: &Shape, value: &Value) -> Option<String> {
    let (fits, why) = match shape {
        // Kubernetes deduces the type of a number or a text from the value; only validation refuses others.
        Shape::Any | Shape::IntOrString => (true, String::new()),
        Shape::Object(_) => (value.is_object(), format!("expected map, got &{{{}}}", plain(value))),
        Shape::Array(_) => (value.is_array(), format!("expected list, got &{{{}}}", plain(value))),
        Shape::Integer { .. } | Shape::Number => {
            (value.is_number(), format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Shape::String { is_time: false, .. } => {
            (value.is_string(), format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(value)))
        }
        Shape::Boolean => (value.is_boolean(), format!("expected boolean, got &{{{}}}", plain(value))),
        Shape::String { is_time: true, .. } => {
            let is_scalar = !value.is_object() && !value.is_array();
            (is_scalar, format!("expected any scalar, got &{{{}}}", plain(value)))
        }
    };
    (!fits).then_some(why)
}

fn walk_items(node: &Node, items: &[Value], path: &mut String, faults: &mut Faults) {
    let Shape::Array(array) = &node.shape else { return };
    let mut seen = BTreeSet::new();
    for (index, item) in (0_i64..).zip(items) {
        let element = match View::of(node, None) {
            View::List(array) => match name(array, item) {
                Ok(element) => element,
                Err(why) => return faults.0.push((path.clone(), format!("element {index}: {why}"))),
            },
            View::Leaf | View::Map(_) => Element::Index(index),
        };
        if !seen.insert(element.clone()) {
            faults.0.push((path.clone(), format!("duplicate entries for key {element}")));
        }
        under(path, &element, |path| walk(&array.items, item, path, faults));
    }
}

fn under(path: &mut String, element: &Element, walk: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(&element.to_string());
    walk(path);
    path.truncate(length);
}

/// As Go prints a value in a message (`%v`).
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// As Go would write a value (`%#v`).
fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name:?}:{}", syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

const fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(_) => "int64",
        Value::Null => "<nil>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_told_as_go_tells_them() {
        let value = json!({"b": [1, "x", null, true], "a": {}});
        assert_eq!(plain(&value), "map[a:map[] b:[1 x <nil> true]]");
        assert_eq!(
            syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{}, "b":[]interface {}{1, "x", interface {}(nil), true}}"#
        );
    }
}
