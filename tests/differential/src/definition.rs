//! CustomResourceDefinitions from our own registry: the same names, schema, subresources, columns and selectable fields.
//!
//! It must not know a field of a kind, with one exception: the paths of columns, which the registry keeps parsed.

use anyhow::{Context, Result};
use apiserver::registry::{Column, Kind, Registry, Scope, Subresource};
use serde_json::{Map, Value, json};

/// A definition for every kind of the registry.
///
/// # Errors
/// A column whose path is not known.
pub fn definitions(registry: &Registry) -> Result<Vec<Value>> {
    registry.kinds().map(definition).collect()
}

fn definition(kind: &Kind) -> Result<Value> {
    let mut columns = kind.columns.iter().map(|column| printer_column(kind, column)).collect::<Result<Vec<_>>>()?;
    // Kubernetes adds it by itself only where there is no other column. Ours stands before the wide ones.
    let wide = kind.columns.iter().position(|column| column.priority > 0).unwrap_or(columns.len());
    columns.insert(wide, json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    let selectable: Vec<Value> = kind.selectable.iter().map(|path| json!({"jsonPath": format!(".{path}")})).collect();
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": match kind.scope { Scope::Namespaced => "Namespaced", Scope::Cluster => "Cluster" },
            "names": {
                "kind": kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": kind.short_names,
                "categories": kind.categories,
            },
            "versions": [{
                "name": kind.version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema(kind)},
                "subresources": subresources(kind),
                "additionalPrinterColumns": columns,
                "selectableFields": selectable,
            }],
        },
    }))
}

/// The schema without what a definition may not say: the server knows `metadata` by itself.
fn schema(kind: &Kind) -> Value {
    let mut schema = kind.schema.clone();
    if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
        *metadata = json!({"type": "object"});
    }
    schema
}

fn subresources(kind: &Kind) -> Value {
    let mut found = Map::new();
    for subresource in &kind.subresources {
        match subresource {
            Subresource::Status => {
                found.insert("status".to_owned(), json!({}));
            }
            Subresource::Scale(paths) => {
                let dotted = |pointer: &str| pointer.replace('/', ".");
                let scale = json!({
                    "specReplicasPath": dotted(paths.spec),
                    "statusReplicasPath": dotted(paths.status),
                    "labelSelectorPath": dotted(paths.selector),
                });
                found.insert("scale".to_owned(), scale);
            }
            // A definition has no others.
            Subresource::Finalize | Subresource::Recover | Subresource::Action(_) => {}
        }
    }
    Value::Object(found)
}

fn printer_column(kind: &Kind, column: &Column) -> Result<Value> {
    let path = column_path(kind.kind, column.name).with_context(|| format!("path of {}/{}", kind.kind, column.name))?;
    Ok(json!({
        "name": column.name,
        "type": column.kind,
        "description": column.description,
        "priority": column.priority,
        "jsonPath": path,
    }))
}

/// Where a column's value lies. The registry's own columns may put several values and a text for absent ones into a cell,
/// which a definition cannot; there it is the value that comes closest, and `explained.json` says so.
fn column_path(kind: &str, column: &str) -> Option<&'static str> {
    Some(match (kind, column) {
        ("RedisCluster", "Mode") => ".spec.mode",
        ("RedisCluster", "Version") => ".spec.version",
        ("RedisCluster", "Shards") => ".spec.shards",
        ("RedisCluster", "Replicas") => ".spec.replicasPerShard",
        ("RedisCluster" | "RedisBackup" | "RedisOperation", "Phase") => ".status.phase",
        ("RedisCluster", "Memory") => ".status.usedMemory",
        ("RedisCluster", "Keys") => ".status.keys",
        ("RedisCluster", "Endpoint") => ".status.endpoints[0]",
        ("RedisCluster", "Last Backup") => ".status.lastBackup.completionTime",
        ("RedisBackup" | "RedisOperation", "Cluster") => ".spec.clusterName",
        ("RedisBackup", "Shards") => ".status.shards[0].index",
        ("RedisBackup", "Verified") => ".status.verified",
        ("RedisBackup", "Completed") => ".status.completionTime",
        ("RedisBackup", "Location") => ".status.location",
        ("RedisOperation", "Progress") => ".status.progress.total",
        ("RedisOperation", "Requested By") => ".status.requestedBy",
        ("RedisPolicy", "Action") => ".spec.action",
        _ => return None,
    })
}
