//! Who owns which fields: the API server's own rules, over as much of Kubernetes' schemas as the tests need.

use merge::own::{self, Frame, Single};
use merge::{Schema, fields};
use serde_json::{Value, json};

/// Under which name somebody writes.
#[derive(Clone, Copy)]
pub(crate) struct Author<'a>(pub(crate) &'a str);

impl<'a> Author<'a> {
    /// As a query says it.
    pub(crate) fn of(query: &'a str) -> Self {
        Self(query.split('&').find_map(|part| part.strip_prefix("fieldManager=")).unwrap_or_default())
    }

    fn author(self) -> own::Author<'a> {
        own::Author { name: self.0, subresource: "", now: "2026-01-01T00:00:00Z" }
    }
}

fn open(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

fn list(keys: &[&str], item: &Value) -> Value {
    json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})
}

fn numbered(key: &str) -> Value {
    let number = json!({"type": "integer"});
    let protocol = json!({"type": "string", "default": "TCP"});
    let mut item = open(&json!({key: number, "protocol": protocol}));
    item["required"] = json!([key]);
    list(&[key, "protocol"], &item)
}

fn named(properties: &Value) -> Value {
    let mut item = open(properties);
    item["properties"]["name"] = json!({"type": "string"});
    item["required"] = json!(["name"]);
    list(&["name"], &item)
}

/// The schema of a kind, as far as its lists are shared.
fn schema(plural: &str) -> (&'static str, Schema) {
    let one_value =
        json!({"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let (version, spec) = match plural {
        "services" => ("v1", open(&json!({"selector": one_value, "ports": numbered("port")}))),
        "statefulsets" => {
            let container = named(&json!({"ports": numbered("containerPort"), "env": named(&json!({}))}));
            let quantities = json!({"limits": texts, "requests": texts});
            let mut containers = container;
            containers["items"]["properties"]["resources"] = open(&quantities);
            let pod = open(
                &json!({"containers": containers, "initContainers": named(&json!({})), "volumes": named(&json!({}))}),
            );
            ("apps/v1", open(&json!({"template": open(&json!({"spec": pod}))})))
        }
        "poddisruptionbudgets" => ("policy/v1", open(&json!({}))),
        "networkpolicies" => ("networking.k8s.io/v1", open(&json!({}))),
        _ => ("v1", open(&json!({}))),
    };
    (version, Schema::compile(&open(&json!({"spec": spec, "data": texts}))).unwrap())
}

/// Writes down who owns the fields after a write that is no apply.
pub(crate) fn track(plural: &str, live: Option<&Value>, new: &mut Value, author: Author<'_>) {
    if author.0.is_empty() {
        return;
    }
    let (api_version, schema) = schema(plural);
    let frame = Frame { node: schema.shared(), api_version, versions: &Single, reset: &fields::Set::default() };
    let managed = own::update(frame, live, new, author.author());
    new["metadata"]["managedFields"] = managed.encode().unwrap_or_else(|| json!([]));
}

/// The object with something applied to it by force.
pub(crate) fn apply(plural: &str, live: &Value, config: &Value, author: Author<'_>) -> Value {
    let (api_version, schema) = schema(plural);
    let frame = Frame { node: schema.shared(), api_version, versions: &Single, reset: &fields::Set::default() };
    let applied = own::apply(frame, Some(live), config, author.author(), true).unwrap();
    let mut object = applied.object;
    object["metadata"]["managedFields"] = applied.managed.encode().unwrap_or_else(|| json!([]));
    object
}
