//! A value without some of its places.

use serde_json::{Map, Value};

use super::{View, entry_or_open, name};
use crate::fields::{Element, Set};
use crate::schema::Node;

/// Takes the places of a set, with all below them, out of a value. A map or list of which nothing is left becomes null.
#[must_use]
pub fn remove(node: &Node, value: &Value, set: &Set) -> Value {
    match (View::of(node, Some(value)), value) {
        (View::Map(object), Value::Object(fields)) => {
            let entry = |(key, value): (&String, &Value)| {
                let left = left(entry_or_open(object, key), &Element::field(key), value, set)?;
                Some((key.clone(), left))
            };
            let left: Map<String, Value> = fields.iter().filter_map(entry).collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (View::List(array), Value::Array(items)) => {
            let item = |item: &Value| match name(array, item) {
                Ok(element) => left(&array.items, &element, item, set),
                Err(_) => Some(item.clone()),
            };
            let left: Vec<Value> = items.iter().filter_map(item).collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (View::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        (View::Leaf | View::Map(_) | View::List(_), other) => other.clone(),
    }
}

/// What is left of one entry.
fn left(node: &Node, element: &Element, value: &Value, set: &Set) -> Option<Value> {
    if set.has(std::slice::from_ref(element)) {
        return None;
    }
    Some(set.below(element).map_or_else(|| value.clone(), |below| remove(node, value, below)))
}
