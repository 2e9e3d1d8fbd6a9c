//! Taking out what the schema does not know.

use serde_json::Value;

use crate::{
    path::Path,
    schema::{Node, Schema, Shape},
};

/// Most paths that are reported; all unknown fields are removed all the same. Kubernetes lists as many.
const REPORTED_MAX: usize = 100;

/// Removes every field that the schema does not describe and returns their paths, sorted, for
/// `unknown field "spec.x"`.
pub fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema.root(), object, &Path::ROOT, &mut unknown);
    unknown.sort_unstable();
    unknown
}

fn walk(node: &Node, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    match (&node.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            if object.additional.is_none() && !object.preserve_unknown {
                fields.retain(|name, _| {
                    let known = object.properties.contains_key(name);
                    if !known && unknown.len() < REPORTED_MAX {
                        unknown.push(path.field(name).text());
                    }
                    known
                });
            }
            for (name, value) in fields {
                if let Some(inner) = object.properties.get(name).or(object.additional.as_deref()) {
                    walk(inner, value, &path.field(name), unknown);
                }
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                walk(&array.items, item, &path.index(at), unknown);
            }
        }
        // A value of another type is left for `check` to name.
        (
            Shape::Object(_)
            | Shape::Array(_)
            | Shape::String { .. }
            | Shape::Integer { .. }
            | Shape::Number
            | Shape::Boolean
            | Shape::IntOrString
            | Shape::Any,
            _,
        ) => {}
    }
}
