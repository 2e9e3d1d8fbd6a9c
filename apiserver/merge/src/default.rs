//! Structural defaulting: absent fields get the schema's defaults, from the outside in.
//!
//! Null for a field that is not nullable counts as absent, as it does for Kubernetes' own types: it is replaced by the
//! default or taken out. Entries of maps and items of lists are never taken out; `check` names a null there.

use serde_json::Value;

use crate::schema::{Node, Object, Schema, Shape};

/// Fills in the defaults. Idempotent.
pub fn default(schema: &Schema, object: &mut Value) {
    walk(schema.root(), object);
}

fn walk(node: &Node, value: &mut Value) {
    match (&node.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            drop_nulls(object, fields);
            for (name, inner) in &object.properties {
                if let Some(present) = fields.get_mut(name) {
                    walk(inner, present);
                } else if let Some(default) = &inner.default {
                    let mut default = default.clone();
                    walk(inner, &mut default);
                    fields.insert(name.clone(), default);
                }
            }
            if let Some(inner) = object.additional.as_deref() {
                fields.iter_mut().filter(|(name, _)| !object.properties.contains_key(*name)).for_each(|(_, value)| {
                    if value.is_null() && !inner.nullable {
                        *value = inner.default.clone().unwrap_or_default();
                    }
                    walk(inner, value);
                });
            }
        }
        (Shape::Array(array), Value::Array(items)) => items.iter_mut().for_each(|item| walk(&array.items, item)),
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

fn drop_nulls(object: &Object, fields: &mut serde_json::Map<String, Value>) {
    let is_absent = |name: &str, value: &Value| {
        value.is_null() && object.properties.get(name).is_some_and(|inner| !inner.nullable && inner.shape != Shape::Any)
    };
    if fields.values().any(Value::is_null) {
        fields.retain(|name, value| !is_absent(name, value));
    }
}
