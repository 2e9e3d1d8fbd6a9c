//! The definitions: one per kind, one per list, and those of meta/v1 and autoscaling/v1 they refer to.
//!
//! References are written as `{"$ref": "NAME"}`; the renderers turn NAME into the place their version keeps it.

use serde_json::{Map, Value, json};

use crate::{object::meta_schema, registry::Kind};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Name of a definition of meta/v1.
#[must_use]
pub fn meta(name: &str) -> String {
    format!("{META}.{name}")
}

/// Name of the definition of Scale.
pub const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// Name of the definition of a kind: the group reversed, as Kubernetes names those of custom resources.
#[must_use]
pub fn name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        group if !group.contains('.') => format!("io.k8s.api.{group}.{version}.{kind}"),
        group => match group.strip_suffix(".k8s.io") {
            Some(own) => format!("io.k8s.api.{own}.{version}.{kind}"),
            None => format!("{}.{version}.{kind}", group.rsplit('.').collect::<Vec<_>>().join(".")),
        },
    }
}

/// All definitions the given kinds need, by name.
#[must_use]
pub fn all(kinds: &[&Kind]) -> Map<String, Value> {
    let mut map = Map::new();
    for kind in kinds {
        let own = name(kind.group, kind.version, kind.kind);
        map.insert(own.clone(), object(kind));
        map.insert(format!("{own}List"), list(kind, &own));
    }
    map.insert(meta("ObjectMeta"), meta_schema::object_meta());
    map.insert(meta("ListMeta"), list_meta());
    map.insert(meta("Status"), status());
    map.insert(meta("DeleteOptions"), delete_options());
    map.insert(
        meta("Patch"),
        json!({"type": "object", "description": "Patch is the body of a patch, in the form its content type names."}),
    );
    map.insert(SCALE.to_owned(), scale());
    map
}

fn object(kind: &Kind) -> Value {
    let mut schema = kind.schema.clone();
    let Some(map) = schema.as_object_mut() else { return schema };
    map.insert("type".into(), json!("object"));
    map.insert("x-kubernetes-group-version-kind".into(), json!([gvk(kind.group, kind.version, kind.kind)]));
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".into(), api_version());
        properties.insert("kind".into(), kind_field());
        properties.insert(
            "metadata".into(),
            json!({"$ref": meta("ObjectMeta"), "description": "Standard object's metadata."}),
        );
    }
    schema
}

fn list(kind: &Kind, own: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("{} is a list of {}.", kind.list_kind(), kind.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": api_version(),
            "kind": kind_field(),
            "metadata": {"$ref": meta("ListMeta"), "description": "Standard list metadata."},
            "items": {"type": "array", "description": format!("List of {}.", kind.plural), "items": {"$ref": own}},
        },
        "x-kubernetes-group-version-kind": [gvk(kind.group, kind.version, &kind.list_kind())],
    })
}

/// `x-kubernetes-group-version-kind`.
#[must_use]
pub fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn api_version() -> Value {
    json!({"type": "string", "description": "APIVersion is the versioned schema of this object."})
}

fn kind_field() -> Value {
    json!({"type": "string", "description": "Kind is the REST resource this object represents."})
}

fn list_meta() -> Value {
    json!({"type": "object", "description": "ListMeta is the metadata of a list.", "properties": {
        "continue": {"type": "string", "description": "Token with which the next page is asked for; absent on the last page."},
        "remainingItemCount": {"type": "integer", "format": "int64", "description": "Items behind this page, where that is known."},
        "resourceVersion": {"type": "string", "description": "Version of the list as a whole; a watch may begin there."},
        "selfLink": {"type": "string", "description": "Not used any more."},
    }})
}

fn status() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    json!({"type": "object", "description": "Status is the answer of calls that return no object.", "properties": {
        "apiVersion": api_version(),
        "kind": kind_field(),
        "metadata": {"$ref": meta("ListMeta"), "description": "Standard list metadata."},
        "status": text("Success or Failure."),
        "message": text("For people."),
        "reason": text("For programs, in CamelCase."),
        "code": {"type": "integer", "format": "int32", "description": "HTTP code."},
        "details": {"type": "object", "description": "More about the reason.", "properties": {
            "name": text("Name of the object."),
            "group": text("Group of the kind."),
            "kind": text("Kind or resource."),
            "uid": text("UID of the object."),
            "retryAfterSeconds": {"type": "integer", "format": "int32", "description": "When to try again."},
            "causes": {"type": "array", "description": "All causes.", "items": {"type": "object", "properties": {
                "field": text("Path of the field."),
                "message": text("For people."),
                "reason": text("For programs."),
            }}},
        }},
    }, "x-kubernetes-group-version-kind": [gvk("", "v1", "Status")]})
}

fn delete_options() -> Value {
    json!({"type": "object", "description": "DeleteOptions may be sent with a delete.", "properties": {
        "apiVersion": api_version(),
        "kind": kind_field(),
        "dryRun": {"type": "array", "description": "All: do everything but store.", "items": {"type": "string"}},
        "gracePeriodSeconds": {"type": "integer", "format": "int64", "description": "Seconds the object is given to end by itself."},
        "orphanDependents": {"type": "boolean", "description": "Deprecated: use propagationPolicy."},
        "propagationPolicy": {"type": "string", "description": "Orphan, Background or Foreground."},
        "preconditions": {"type": "object", "description": "What must hold for the delete to happen.", "properties": {
            "uid": {"type": "string", "description": "UID of the object."},
            "resourceVersion": {"type": "string", "description": "Version of the object."},
        }},
    }, "x-kubernetes-group-version-kind": [gvk("", "v1", "DeleteOptions"), gvk("meta.k8s.io", "v1", "DeleteOptions")]})
}

fn scale() -> Value {
    json!({"type": "object", "description": "Scale is the number of replicas of a scalable resource.", "properties": {
        "apiVersion": api_version(),
        "kind": kind_field(),
        "metadata": {"$ref": meta("ObjectMeta"), "description": "Standard object's metadata."},
        "spec": {"type": "object", "description": "What is asked for.", "properties": {
            "replicas": {"type": "integer", "format": "int32", "description": "Number asked for."},
        }},
        "status": {"type": "object", "description": "What there is.", "required": ["replicas"], "properties": {
            "replicas": {"type": "integer", "format": "int32", "description": "Number there is."},
            "selector": {"type": "string", "description": "Label selector of what is counted."},
        }},
    }, "x-kubernetes-group-version-kind": [gvk("autoscaling", "v1", "Scale")]})
}

/// Rewrites every `{"$ref": NAME}` with what `place` makes of the name.
pub fn place_references(value: &mut Value, place: &dyn Fn(&str, &mut Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(name)) = map.remove("$ref") {
                place(&name, map);
            }
            for (key, inner) in map.iter_mut() {
                // Data, not schema: a default that happens to contain "$ref" stays as it is.
                if key != "default" && key != "allOf" {
                    place_references(inner, place);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| place_references(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
