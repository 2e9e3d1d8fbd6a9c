//! Values over a schema, as structured merge sees them: which places they have, how two of them differ, how they merge.
//!
//! Each walk asks for a view: at every place a value is a leaf, a map or a list, by its schema, or by itself where the schema
//! leaves it open. The rules are those of Kubernetes' structured-merge-diff (KEP-555); the differential corpus holds them together.

mod check;
mod compare;
mod merge;
mod place;
mod remove;

pub use check::{Faults, check};
pub use compare::{Comparison, compare};
pub use merge::merge;
pub use place::{named, places};
pub use remove::remove;

use serde_json::{Map, Value};

use crate::fields::{Atom, Element};
use crate::schema::{Array, ListType, MapType, Node, Object, Shape};

/// Where the schema says nothing: scalars and lists are leaves, maps are shared entry by entry.
static OPEN: Node = Node::plain(Shape::Any);

/// What a value is at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View<'a> {
    /// Owned as a whole.
    Leaf,
    /// Fields or entries; `None`: open.
    Map(Option<&'a Object>),
    /// Items with names.
    List(&'a Array),
}

impl<'a> View<'a> {
    /// By the schema; where that is open, by the value. Null takes any form.
    pub(crate) fn of(node: &'a Node, value: Option<&Value>) -> Self {
        match &node.shape {
            Shape::Object(object) if object.map_type == MapType::Granular => Self::Map(Some(object)),
            Shape::Array(array) if array.list_type != ListType::Atomic => Self::List(array),
            Shape::Any => match value {
                None | Some(Value::Null | Value::Object(_)) => Self::Map(None),
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => Self::Leaf,
            },
            Shape::Object(_)
            | Shape::Array(_)
            | Shape::String { .. }
            | Shape::Integer { .. }
            | Shape::Number
            | Shape::Boolean
            | Shape::IntOrString => Self::Leaf,
        }
    }
}

/// The schema of an entry. `None`: the schema does not know it.
pub(crate) fn entry<'a>(object: Option<&'a Object>, name: &str) -> Option<&'a Node> {
    let Some(object) = object else { return Some(&OPEN) };
    let open = object.preserve_unknown.then_some(&OPEN);
    object.properties.get(name).or(object.additional.as_deref()).or(open)
}

/// The same for walks over what has been checked, or is stored already: what is unknown is open.
pub(crate) fn entry_or_open<'a>(object: Option<&'a Object>, name: &str) -> &'a Node {
    entry(object, name).unwrap_or(&OPEN)
}

/// Whether the schema has a field of this name, other than an entry of a map.
pub(crate) fn is_field(object: Option<&Object>, name: &str) -> bool {
    object.is_some_and(|object| object.properties.contains_key(name))
}

pub(crate) fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub(crate) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The name of an item in its list.
///
/// # Errors
/// A sentence, when it can have none.
pub(crate) fn name(array: &Array, item: &Value) -> Result<Element, String> {
    match &array.list_type {
        ListType::Map(keys) => key(array, keys, item),
        ListType::Set | ListType::Atomic => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(Atom(item.clone()))),
        },
    }
}

/// A key field that is absent counts with its default; without one, it is no part of the name.
fn key(array: &Array, keys: &[String], item: &Value) -> Result<Element, String> {
    let fields = match item {
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
    };
    let default = |name: &String| {
        let Shape::Object(object) = &array.items.shape else { return None };
        object.properties.get(name)?.default.clone()
    };
    let given = |name: &String| Some((name.clone(), Atom(fields.get(name).cloned().or_else(|| default(name))?)));
    let mut found: Vec<(String, Atom)> = keys.iter().filter_map(given).collect();
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort();
    Ok(Element::Key(found))
}

#[cfg(test)]
mod tests;
