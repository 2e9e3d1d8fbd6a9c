//! OpenAPI v2 (swagger): one document for everything.

use serde_json::{Map, Value, json};

use super::{
    definition, info,
    operation::{self, ANSWER_TYPES, Operation, Parameter, Path},
};
use crate::registry::{Kind, Registry};

/// The document.
#[must_use]
pub fn document(registry: &Registry) -> Value {
    let kinds: Vec<&Kind> = registry.kinds().collect();
    let paths: Map<String, Value> =
        kinds.iter().flat_map(|kind| operation::paths(kind)).map(|path| (path.path.clone(), item(&path))).collect();
    let mut document = json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definition::all(&kinds),
    });
    definition::place_references(&mut document, &|name, map| {
        map.insert("$ref".into(), json!(format!("#/definitions/{name}")));
    });
    document
}

fn item(path: &Path) -> Value {
    let mut map: Map<String, Value> =
        path.operations.iter().map(|operation| (operation.method.to_owned(), render(operation))).collect();
    let in_path = |parameter: &Parameter| {
        json!({"name": parameter.name, "in": "path", "required": true, "type": parameter.of, "uniqueItems": true,
               "description": parameter.about})
    };
    map.insert("parameters".into(), path.parameters.iter().map(in_path).collect());
    Value::Object(map)
}

fn render(operation: &Operation) -> Value {
    let in_query = |parameter: &Parameter| json!({"name": parameter.name, "in": "query", "type": parameter.of, "uniqueItems": true, "description": parameter.about});
    let mut parameters: Vec<Value> = operation.query.iter().map(in_query).collect();
    let mut map = Map::new();
    if let Some(body) = &operation.body {
        parameters.push(
            json!({"name": "body", "in": "body", "required": body.required, "schema": {"$ref": body.definition}}),
        );
        map.insert("consumes".into(), json!(body.types));
    }
    let response = |(code, name): &(&str, String)| {
        ((*code).to_owned(), json!({"description": description(code), "schema": {"$ref": name}}))
    };
    map.insert("description".into(), json!(operation.description));
    map.insert("operationId".into(), json!(operation.id));
    map.insert("parameters".into(), Value::Array(parameters));
    map.insert("produces".into(), json!(ANSWER_TYPES));
    map.insert("responses".into(), Value::Object(operation.responses.iter().map(response).collect()));
    map.insert("schemes".into(), json!(["https"]));
    map.insert("x-kubernetes-action".into(), json!(operation.action));
    map.insert("x-kubernetes-group-version-kind".into(), operation.gvk.clone());
    Value::Object(map)
}

/// What a code means.
pub(super) fn description(code: &str) -> &'static str {
    match code {
        "201" => "Created",
        "202" => "Accepted",
        "401" => "Unauthorized",
        _ => "OK",
    }
}
