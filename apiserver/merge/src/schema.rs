//! A structural OpenAPI v3 schema, compiled from its JSON form into typed nodes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::metadata;

/// Deepest schema that is compiled; Kubernetes' own kinds have about 15 levels.
const DEPTH_MAX: usize = 64;

/// The schema of one kind: its root is an object with apiVersion, kind and metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    root: Node,
    shared: Node,
}

/// What is known about one place in an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its type.
    pub shape: Shape,
    /// Value to use where it is absent.
    pub default: Option<Value>,
    /// Whether null is a value of its own.
    pub nullable: bool,
    /// The only values allowed; empty: any.
    pub allowed: Vec<Value>,
}

/// The type of a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Fields or a map.
    Object(Object),
    /// A list.
    Array(Array),
    /// A text.
    String {
        /// Must be an RFC 3339 time.
        is_time: bool,
        /// Fewest characters.
        least: Option<usize>,
        /// Most characters.
        most: Option<usize>,
    },
    /// A whole number within bounds (those of its format included).
    Integer {
        /// The least.
        least: i64,
        /// The most.
        most: i64,
    },
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A whole number or a text.
    IntOrString,
    /// Anything, kept as it is.
    Any,
}

/// Fields or a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// Fields by name.
    pub properties: BTreeMap<String, Node>,
    /// Schema of the values, if this is a map.
    pub additional: Option<Box<Node>>,
    /// Whether fields that are not described are kept.
    pub preserve_unknown: bool,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// How two writers share it.
    pub map_type: MapType,
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Schema of the items.
    pub items: Box<Node>,
    /// How two writers share it.
    pub list_type: ListType,
    /// Fewest items.
    pub least: Option<usize>,
    /// Most items.
    pub most: Option<usize>,
}

/// How two writers share a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Not at all.
    #[default]
    Atomic,
    /// By value; no value twice.
    Set,
    /// By the value of these fields of each item; no key twice.
    Map(Vec<String>),
}

/// How two writers share an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Field by field.
    #[default]
    Granular,
    /// Not at all.
    Atomic,
}

/// Why a schema cannot be compiled: each is a mistake of the author of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A node is not an object.
    #[error("reading the schema at {0:?}: a node must be an object")]
    NotAnObject(String),
    /// A keyword that structural schemas do not have, or that is not enforced here.
    #[error("reading the schema at {path:?}: keyword {keyword:?} is not supported")]
    Unsupported {
        /// Where.
        path: String,
        /// Which.
        keyword: String,
    },
    /// No type and nothing that stands for one.
    #[error("reading the schema at {0:?}: the node has no type")]
    NoType(String),
    /// Deeper than any kind.
    #[error("reading the schema at {0:?}: deeper than {DEPTH_MAX} levels")]
    TooDeep(String),
}

/// Keywords that are read here; any other would be a promise that nobody keeps.
const KEYWORDS: [&str; 23] = [
    "type",
    "format",
    "properties",
    "additionalProperties",
    "items",
    "required",
    "enum",
    "default",
    "nullable",
    "description",
    "title",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-group-version-kind",
];

impl Schema {
    /// Compiles the schema of a kind. apiVersion, kind and the fields of metadata need not be described.
    ///
    /// # Errors
    /// A mistake in the schema.
    pub fn compile(json: &Value) -> Result<Self, Error> {
        let mut root = node(json, "", 0)?;
        if let Shape::Object(object) = &mut root.shape {
            for name in ["apiVersion", "kind"] {
                object.properties.entry(name.to_owned()).or_insert_with(metadata::text);
            }
            object.properties.insert("metadata".to_owned(), metadata::object_meta());
        }
        let mut shared = root.clone();
        if let Shape::Object(object) = &mut shared.shape {
            object.properties.insert("metadata".to_owned(), metadata::shared_meta());
        }
        Ok(Self { root, shared })
    }

    /// The node of the whole object.
    #[must_use]
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// The same node, as managers share an object: some lists of metadata have named items there.
    #[must_use]
    pub const fn shared(&self) -> &Node {
        &self.shared
    }
}

impl Node {
    /// A node that only has a shape.
    pub(crate) const fn plain(shape: Shape) -> Self {
        Self { shape, default: None, nullable: false, allowed: Vec::new() }
    }
}

fn node(json: &Value, path: &str, depth: usize) -> Result<Node, Error> {
    let fields = json.as_object().ok_or_else(|| Error::NotAnObject(path.to_owned()))?;
    if depth > DEPTH_MAX {
        return Err(Error::TooDeep(path.to_owned()));
    }
    if let Some(keyword) = fields.keys().find(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
        return Err(Error::Unsupported { path: path.to_owned(), keyword: keyword.clone() });
    }
    Ok(Node {
        shape: shape(fields, path, depth)?,
        default: fields.get("default").cloned(),
        nullable: flag(fields, "nullable"),
        allowed: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
    })
}

fn shape(fields: &Map<String, Value>, path: &str, depth: usize) -> Result<Shape, Error> {
    if flag(fields, "x-kubernetes-int-or-string") {
        return Ok(Shape::IntOrString);
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("object") => Ok(Shape::Object(object(fields, path, depth)?)),
        Some("array") => Ok(Shape::Array(array(fields, path, depth)?)),
        Some("string") => Ok(Shape::String {
            is_time: fields.get("format").is_some_and(|format| format == "date-time"),
            least: size(fields, "minLength"),
            most: size(fields, "maxLength"),
        }),
        Some("integer") => {
            let (least, most) = match fields.get("format").and_then(Value::as_str) {
                Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                Some(_) | None => (i64::MIN, i64::MAX),
            };
            let given = |name: &str| fields.get(name).and_then(Value::as_i64);
            let least = given("minimum").unwrap_or(least).max(least);
            Ok(Shape::Integer { least, most: given("maximum").unwrap_or(most).min(most) })
        }
        Some("number") => Ok(Shape::Number),
        Some("boolean") => Ok(Shape::Boolean),
        None if flag(fields, "x-kubernetes-preserve-unknown-fields") => Ok(Shape::Any),
        Some(_) | None => Err(Error::NoType(path.to_owned())),
    }
}

fn object(fields: &Map<String, Value>, path: &str, depth: usize) -> Result<Object, Error> {
    let mut properties = BTreeMap::new();
    for (name, json) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        properties.insert(name.clone(), node(json, &format!("{path}.{name}"), depth + 1)?);
    }
    let additional = fields.get("additionalProperties").map(|json| node(json, &format!("{path}.*"), depth + 1));
    let map_type = match fields.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => MapType::Atomic,
        Some(_) | None => MapType::Granular,
    };
    Ok(Object {
        properties,
        additional: additional.transpose()?.map(Box::new),
        preserve_unknown: flag(fields, "x-kubernetes-preserve-unknown-fields"),
        required: texts(fields, "required"),
        map_type,
    })
}

fn array(fields: &Map<String, Value>, path: &str, depth: usize) -> Result<Array, Error> {
    let items = fields.get("items").ok_or_else(|| Error::NoType(format!("{path}[]")))?;
    let list_type = match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(fields, "x-kubernetes-list-map-keys")),
        Some(_) | None => ListType::Atomic,
    };
    Ok(Array {
        items: Box::new(node(items, &format!("{path}[]"), depth + 1)?),
        list_type,
        least: size(fields, "minItems"),
        most: size(fields, "maxItems"),
    })
}

fn flag(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn size(fields: &Map<String, Value>, name: &str) -> Option<usize> {
    fields.get(name).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok())
}

fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = fields.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_with_a_keyword_that_nobody_enforces_is_refused() {
        for keyword in ["$ref", "oneOf", "anyOf", "pattern", "not"] {
            let schema = json!({"type": "object", "properties": {"a": {"type": "string", keyword: "x"}}});
            let expected = Error::Unsupported { path: ".a".to_owned(), keyword: keyword.to_owned() };
            assert_eq!(Schema::compile(&schema), Err(expected));
        }
    }

    #[test]
    fn a_schema_with_a_boolean_or_without_a_type_is_refused() {
        let with = |field: Value| Schema::compile(&json!({"type": "object", "properties": {"a": field}}));
        assert_eq!(with(json!(true)), Err(Error::NotAnObject(".a".to_owned())));
        assert_eq!(with(json!({})), Err(Error::NoType(".a".to_owned())));
        assert_eq!(with(json!({"type": "array"})), Err(Error::NoType(".a[]".to_owned())));
        let boolean = with(json!({"type": "object", "additionalProperties": false}));
        assert_eq!(boolean, Err(Error::NotAnObject(".a.*".to_owned())));
    }

    #[test]
    fn a_schema_without_end_is_refused() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "array", "items": schema});
        }
        assert!(matches!(Schema::compile(&schema), Err(Error::TooDeep(_))));
    }
}
