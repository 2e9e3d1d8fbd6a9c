//! OpenAPI v3: one document per group and version.

use serde_json::{Map, Value, json};

use super::{
    definition, info,
    operation::{self, ANSWER_TYPES, Operation, Parameter, Path},
    v2::description,
};
use crate::registry::Kind;

/// The document of the kinds of one group and version.
#[must_use]
pub fn document(kinds: &[&Kind]) -> Value {
    let paths: Map<String, Value> =
        kinds.iter().flat_map(|kind| operation::paths(kind)).map(|path| (path.path.clone(), item(&path))).collect();
    let mut document = json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": definition::all(kinds)},
    });
    // Beside a reference nothing else counts in OpenAPI 3.0; what has more to say wraps it.
    definition::place_references(&mut document, &|name, map| {
        let reference = json!(format!("#/components/schemas/{name}"));
        if map.is_empty() {
            map.insert("$ref".into(), reference);
        } else {
            map.insert("allOf".into(), json!([{"$ref": reference}]));
        }
    });
    document
}

fn item(path: &Path) -> Value {
    let mut map: Map<String, Value> =
        path.operations.iter().map(|operation| (operation.method.to_owned(), render(operation))).collect();
    map.insert("parameters".into(), path.parameters.iter().map(|parameter| place(parameter, "path", true)).collect());
    Value::Object(map)
}

fn place(parameter: &Parameter, location: &str, required: bool) -> Value {
    let mut map = Map::new();
    map.insert("name".into(), json!(parameter.name));
    map.insert("in".into(), json!(location));
    map.insert("description".into(), json!(parameter.about));
    map.insert("schema".into(), json!({"type": parameter.of, "uniqueItems": true}));
    if required {
        map.insert("required".into(), json!(true));
    }
    Value::Object(map)
}

fn render(operation: &Operation) -> Value {
    let content = |types: &[&str], name: &str| -> Map<String, Value> {
        types.iter().map(|media| ((*media).to_owned(), json!({"schema": {"$ref": name}}))).collect()
    };
    let response = |(code, name): &(&str, String)| {
        ((*code).to_owned(), json!({"description": description(code), "content": content(ANSWER_TYPES, name)}))
    };
    let mut map = Map::new();
    if let Some(body) = &operation.body {
        let rendered = json!({"required": body.required, "content": content(body.types, &body.definition)});
        map.insert("requestBody".into(), rendered);
    }
    map.insert("description".into(), json!(operation.description));
    map.insert("operationId".into(), json!(operation.id));
    map.insert("parameters".into(), operation.query.iter().map(|parameter| place(parameter, "query", false)).collect());
    map.insert("responses".into(), Value::Object(operation.responses.iter().map(response).collect()));
    map.insert("x-kubernetes-action".into(), json!(operation.action));
    map.insert("x-kubernetes-group-version-kind".into(), operation.gvk.clone());
    Value::Object(map)
}
