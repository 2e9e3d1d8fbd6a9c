//! The schema of `metadata`, which is the same for every kind and defined by the server.

use serde_json::{Value, json};

/// ObjectMeta, structural: what clients may send. Anything else in `metadata` is an unknown field.
#[must_use]
pub fn object_meta() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let texts =
        |about: &str| json!({"type": "object", "additionalProperties": {"type": "string"}, "description": about});
    let time = |about: &str| json!({"type": "string", "format": "date-time", "description": about});
    let number = |about: &str| json!({"type": "integer", "format": "int64", "description": about});
    json!({
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "properties": {
            "annotations": texts("Unstructured texts for programs. Not for queries."),
            "creationTimestamp": time("When the server made this object. Read-only."),
            "deletionGracePeriodSeconds": number("Seconds the object is given to end by itself. Read-only."),
            "deletionTimestamp": time("When the object is to be gone. Set by the server on a graceful delete. Read-only."),
            "finalizers": {
                "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
                "description": "Must be empty before the object is deleted; each entry is removed by the one responsible for it."
            },
            "generateName": text("Prefix of a name the server makes unique; used only if name is absent."),
            "generation": number("Grows with every change of the desired state. Read-only."),
            "labels": texts("Texts by which objects are organised and selected."),
            "managedFields": {
                "type": "array", "x-kubernetes-list-type": "atomic",
                "description": "Which manager set which fields. Kept by the server.",
                "items": {"type": "object", "properties": {
                    "apiVersion": text("Version of the fields."),
                    "fieldsType": text("Always FieldsV1."),
                    "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "The fields."},
                    "manager": text("Who."),
                    "operation": text("Apply or Update."),
                    "subresource": text("Which subresource."),
                    "time": time("When.")
                }}
            },
            "name": text("Unique within a namespace. Cannot be changed."),
            "namespace": text("Where the name is unique. Cannot be changed."),
            "ownerReferences": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "uid",
                "description": "Objects this one depends on. When all of them are gone it is collected.",
                "items": {"type": "object", "required": ["apiVersion", "kind", "name", "uid"], "properties": {
                    "apiVersion": text("API version of the owner."),
                    "blockOwnerDeletion": {"type": "boolean", "description": "Foreground deletion of the owner waits for this object."},
                    "controller": {"type": "boolean", "description": "The owner is the controller of this object."},
                    "kind": text("Kind of the owner."),
                    "name": text("Name of the owner."),
                    "uid": text("UID of the owner.")
                }}
            },
            "resourceVersion": text("Opaque version for optimistic concurrency and watches. Set by the server."),
            "selfLink": text("Not used any more."),
            "uid": text("Unique in time and space. Set by the server.")
        }
    })
}
