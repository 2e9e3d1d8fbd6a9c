//! Structural OpenAPI v3 schemas of the kinds, made from the Rust types.
//!
//! From this one source come pruning, defaulting, type checks, the published OpenAPI and (later) server-side apply.
//! schemars speaks JSON Schema 2020-12; Kubernetes understands a narrow form of OpenAPI v3 (no references, no
//! `oneOf`/`anyOf`/`null`, no boolean `additionalProperties`). The rewriting between the two lives here and nowhere else.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Schema of RedisCluster.
#[must_use]
pub fn cluster() -> Value {
    of::<crate::RedisCluster>()
}
/// Schema of RedisBackup.
#[must_use]
pub fn backup() -> Value {
    of::<crate::RedisBackup>()
}
/// Schema of RedisOperation.
#[must_use]
pub fn operation() -> Value {
    of::<crate::RedisOperation>()
}
/// Schema of RedisPolicy.
#[must_use]
pub fn policy() -> Value {
    of::<crate::RedisPolicy>()
}

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = structural(&settings.into_generator().into_root_schema_for::<T>().to_value());
    // The server fills these in from the request's URL; a default would be a second opinion.
    for name in ["apiVersion", "kind"] {
        if let Some(field) = schema.pointer_mut(&format!("/properties/{name}")).and_then(Value::as_object_mut) {
            field.remove("default");
        }
    }
    schema
}

/// One node of JSON Schema as one node of structural OpenAPI v3.
fn structural(node: &Value) -> Value {
    let mut out = Map::new();
    let merged = resolve_choice(node);
    for (key, value) in &merged {
        match key.as_str() {
            "properties" => {
                out.insert(key.clone(), each(value));
            }
            "items" => {
                out.insert(key.clone(), structural(value));
            }
            "additionalProperties" if value.is_object() => {
                out.insert(key.clone(), structural(value));
            }
            "type" => {
                out.insert(key.clone(), single_type(value));
            }
            "format" => {
                if let Some(format) = known_format(value) {
                    out.insert(key.clone(), json!(format));
                }
            }
            // An empty string is how an optional text says that it is absent.
            "default" if value.is_null() || *value == json!("") => {}
            "default" | "description" | "enum" | "required" | "minimum" | "maximum" | "pattern" | "minLength"
            | "maxLength" | "minItems" | "maxItems" => {
                out.insert(key.clone(), value.clone());
            }
            extension if extension.starts_with("x-kubernetes-") => {
                out.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
    Value::Object(out)
}

fn each(properties: &Value) -> Value {
    let fields = properties.as_object().into_iter().flatten();
    Value::Object(fields.map(|(name, field)| (name.clone(), structural(field))).collect())
}

/// `anyOf [X, null]` (an Option) becomes X; `oneOf` constants (an enum with documented variants) become `enum`.
fn resolve_choice(node: &Value) -> Map<String, Value> {
    let mut node = node.as_object().cloned().unwrap_or_default();
    if let Some(Value::Array(choices)) = node.remove("anyOf") {
        let real = choices.iter().find(|choice| choice.get("type") != Some(&json!("null")));
        let inner = real.map(resolve_choice).unwrap_or_default();
        for (key, value) in inner {
            node.entry(key).or_insert(value);
        }
    }
    if let Some(Value::Array(choices)) = node.remove("oneOf") {
        let constants: Vec<Value> = choices.iter().filter_map(|choice| choice.get("const").cloned()).collect();
        let meanings: Vec<String> = choices.iter().filter_map(meaning).collect();
        let before = node.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{before}\n{}", meanings.join("\n"));
        node.insert("description".to_owned(), json!(text.trim()));
        node.insert("type".to_owned(), json!("string"));
        node.insert("enum".to_owned(), Value::Array(constants));
    }
    node
}

fn meaning(choice: &Value) -> Option<String> {
    let name = choice.get("const")?.as_str()?;
    let description = choice.get("description")?.as_str()?;
    Some(format!("{name}: {description}"))
}

/// `["string", "null"]` becomes `"string"`.
fn single_type(value: &Value) -> Value {
    match value {
        Value::Array(types) => types.iter().find(|one| **one != json!("null")).cloned().unwrap_or(Value::Null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => value.clone(),
    }
}

/// OpenAPI knows signed integers only.
fn known_format(value: &Value) -> Option<&'static str> {
    match value.as_str()? {
        "int8" | "int16" | "int32" | "uint8" | "uint16" => Some("int32"),
        "int64" | "uint32" | "uint64" => Some("int64"),
        "date-time" => Some("date-time"),
        "float" => Some("float"),
        "double" => Some("double"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn walk(node: &Value, path: &str, visit: &mut dyn FnMut(&Map<String, Value>, &str)) {
        let fields = node.as_object().unwrap_or_else(|| panic!("{path} is not an object"));
        visit(fields, path);
        for (name, field) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            walk(field, &format!("{path}.{name}"), visit);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(schema) = fields.get(inner) {
                walk(schema, &format!("{path}.{inner}"), visit);
            }
        }
    }

    fn all() -> [(&'static str, Value); 4] {
        [("cluster", cluster()), ("backup", backup()), ("operation", operation()), ("policy", policy())]
    }

    #[test]
    fn no_schema_holds_a_form_that_kubernetes_refuses() {
        const KNOWN: [&str; 16] = [
            "type",
            "format",
            "properties",
            "items",
            "additionalProperties",
            "required",
            "enum",
            "default",
            "description",
            "minimum",
            "maximum",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ];
        const TYPES: [&str; 6] = ["object", "array", "string", "integer", "boolean", "number"];
        for (kind, schema) in all() {
            walk(&schema, kind, &mut |node, path| {
                for key in node.keys() {
                    assert!(KNOWN.contains(&key.as_str()), "{path}: {key}");
                }
                let int_or_string = node.get("x-kubernetes-int-or-string") == Some(&json!(true));
                let known = node.get("type").and_then(Value::as_str).is_some_and(|name| TYPES.contains(&name));
                assert!(known != int_or_string, "{path}: {node:?}");
                assert_ne!(node.get("default"), Some(&Value::Null), "{path}");
                assert!(!(node.contains_key("properties") && node.contains_key("additionalProperties")), "{path}");
                if let Some(values) = node.get("enum") {
                    assert!(values.as_array().unwrap().iter().all(Value::is_string), "{path}");
                }
            });
        }
    }

    #[test]
    fn every_field_of_ours_is_described() {
        for (kind, schema) in all() {
            walk(&schema, kind, &mut |node, path| {
                let inner = path.ends_with(".items") || path.ends_with(".additionalProperties");
                assert!(inner || node.get("description").is_some_and(|text| text != ""), "{path}: {node:?}");
            });
        }
    }

    #[test]
    fn formats_enums_defaults_and_list_keys_are_kept() {
        let schema = cluster();
        let spec = |path: &str| schema.pointer(&format!("/properties/spec/properties/{path}")).unwrap().clone();
        assert_eq!(spec("mode")["enum"], json!(["Cluster", "Standalone"]));
        assert_eq!(spec("mode")["default"], json!("Cluster"));
        assert_eq!(spec("placement/properties/spread")["enum"], json!(["Required", "Preferred", "Off"]));
        assert_eq!(spec("placement")["default"], json!({"spread": "Preferred"}));
        assert_eq!(spec("networkPolicy")["default"], json!({"enabled": true}));
        assert_eq!(spec("networkPolicy/properties/clients/items/properties/ipBlock")["required"], json!(["cidr"]));
        assert_eq!(spec("placement/properties/nodeSelector")["x-kubernetes-map-type"], json!("atomic"));
        let term = spec(
            "placement/properties/affinity/properties/podAffinity/properties/requiredDuringSchedulingIgnoredDuringExecution/items",
        );
        assert_eq!(term["required"], json!(["topologyKey"]));
        assert_eq!(
            spec("placement/properties/tolerations/items/properties/tolerationSeconds")["format"],
            json!("int64")
        );
        assert_eq!(spec("shards")["format"], json!("int32"));
        assert_eq!(spec("memory")["default"], json!({"maxPercent": 75, "policy": "noeviction"}));
        assert_eq!(spec("storage/properties/size")["x-kubernetes-int-or-string"], json!(true));
        assert_eq!(spec("storage")["required"], json!(["size"]));
        let condition = schema.pointer("/properties/status/properties/conditions").unwrap();
        assert_eq!(condition["x-kubernetes-list-map-keys"], json!(["type"]));
        assert_eq!(condition["items"]["properties"]["lastTransitionTime"]["format"], json!("date-time"));
        assert_eq!(schema["required"], json!(["metadata", "spec"]));
        assert_eq!(schema["properties"]["apiVersion"].get("default"), None);
    }
}
