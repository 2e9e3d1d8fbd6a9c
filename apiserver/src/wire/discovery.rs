//! Discovery documents, computed once from the registry: aggregated (apidiscovery.k8s.io/v2) and legacy forms.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::etag;
use crate::registry::{Kind, Registry, Scope, Subresource, kind::api_version};

/// Media type of the aggregated form.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A document and the tag of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// JSON.
    pub bytes: Bytes,
    /// Quoted SHA-512 in hex.
    pub etag: String,
}

impl Document {
    /// A document of a value.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        Self::of_bytes(Bytes::from(value.to_string()))
    }

    /// A document of bytes.
    #[must_use]
    pub fn of_bytes(bytes: Bytes) -> Self {
        let etag = etag::of(&bytes);
        Self { bytes, etag }
    }
}

/// `/apis`, aggregated: every named group.
#[must_use]
pub fn aggregated_groups(registry: &Registry) -> Value {
    let groups = registry.groups();
    aggregated(groups.iter().map(|(group, versions)| aggregated_group(registry, group, versions)).collect())
}

/// `/api`, aggregated: the core group.
#[must_use]
pub fn aggregated_core(registry: &Registry) -> Value {
    aggregated(vec![aggregated_group(registry, "", &["v1"])])
}

fn aggregated(items: Vec<Value>) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_group(registry: &Registry, group: &str, versions: &[&str]) -> Value {
    let of_version = |version: &&str| {
        let kinds = registry.kinds().filter(|kind| kind.group == group && kind.version == *version);
        json!({"version": version, "freshness": "Current", "resources": kinds.map(aggregated_resource).collect::<Vec<_>>()})
    };
    let mut metadata = Map::new();
    if !group.is_empty() {
        metadata.insert("name".into(), json!(group));
    }
    metadata.insert("creationTimestamp".into(), Value::Null);
    json!({"metadata": metadata, "versions": versions.iter().map(of_version).collect::<Vec<_>>()})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut map = Map::new();
    map.insert("resource".into(), json!(kind.plural));
    map.insert("responseKind".into(), response_kind(kind.group, kind.version, kind.kind));
    map.insert("scope".into(), json!(scope(kind.scope)));
    map.insert("singularResource".into(), json!(kind.singular));
    map.insert("verbs".into(), verbs(kind.verbs()));
    if !kind.short_names.is_empty() {
        map.insert("shortNames".into(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        map.insert("categories".into(), json!(kind.categories));
    }
    if !kind.subresources.is_empty() {
        map.insert(
            "subresources".into(),
            kind.subresources.iter().map(|sub| aggregated_subresource(kind, sub)).collect(),
        );
    }
    Value::Object(map)
}

fn aggregated_subresource(kind: &Kind, sub: &Subresource) -> Value {
    let (group, version, name) = answers(kind, sub);
    json!({"subresource": sub.name(), "responseKind": response_kind(group, version, name), "verbs": verbs(sub.verbs())})
}

fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    }
}

fn verbs(verbs: &[crate::request::Verb]) -> Value {
    verbs.iter().map(|verb| json!(verb.as_str())).collect()
}

/// What a subresource reads and answers: group, version, kind.
fn answers<'a>(kind: &'a Kind, sub: &Subresource) -> (&'a str, &'a str, &'a str) {
    match sub {
        Subresource::Scale(_) => ("autoscaling", "v1", "Scale"),
        Subresource::Status | Subresource::Finalize | Subresource::Recover => (kind.group, kind.version, kind.kind),
        // Records are what they are, through whichever version of the parent they are asked for.
        Subresource::Action(action) => (kind.group, kind.stored_version(), action.kind()),
    }
}

/// `/apis`, legacy.
#[must_use]
pub fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().map(|(group, versions)| group_entry(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`, legacy; `None` if there is no such group.
#[must_use]
pub fn group(registry: &Registry, group: &str) -> Option<Value> {
    let versions = registry.groups().remove(group)?;
    let mut entry = group_entry(group, &versions);
    if let Some(map) = entry.as_object_mut() {
        map.insert("kind".into(), json!("APIGroup"));
        map.insert("apiVersion".into(), json!("v1"));
    }
    Some(entry)
}

fn group_entry(group: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let list: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "preferredVersion": list.first(), "versions": list})
}

/// `/api`, legacy.
#[must_use]
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/api/v1` or `/apis/GROUP/VERSION`, legacy; `None` if nothing is served there.
#[must_use]
pub fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    if !registry.has_version(group, version) {
        return None;
    }
    let kinds = registry.kinds().filter(|kind| kind.group == group && kind.version == version);
    let mut resources: Vec<Value> = kinds.flat_map(legacy_resources).collect();
    resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let of = api_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": of, "resources": resources}))
}

fn legacy_resources(kind: &Kind) -> Vec<Value> {
    let namespaced = kind.scope == Scope::Namespaced;
    let mut own = Map::new();
    own.insert("name".into(), json!(kind.plural));
    own.insert("singularName".into(), json!(kind.singular));
    own.insert("namespaced".into(), json!(namespaced));
    own.insert("kind".into(), json!(kind.kind));
    own.insert("verbs".into(), verbs(kind.verbs()));
    if !kind.short_names.is_empty() {
        own.insert("shortNames".into(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        own.insert("categories".into(), json!(kind.categories));
    }
    own.insert("storageVersionHash".into(), json!(storage_version_hash(kind)));
    let mut list = vec![Value::Object(own)];
    for sub in &kind.subresources {
        list.push(legacy_subresource(kind, sub, namespaced));
    }
    list
}

fn legacy_subresource(kind: &Kind, sub: &Subresource, namespaced: bool) -> Value {
    let (group, version, name) = answers(kind, sub);
    let mut map = Map::new();
    map.insert("name".into(), json!(format!("{}/{}", kind.plural, sub.name())));
    map.insert("singularName".into(), json!(""));
    map.insert("namespaced".into(), json!(namespaced));
    map.insert("kind".into(), json!(name));
    map.insert("verbs".into(), verbs(sub.verbs()));
    if group != kind.group {
        map.insert("group".into(), json!(group));
        map.insert("version".into(), json!(version));
    }
    Value::Object(map)
}

/// First eight bytes of the SHA-256 of `group/version/kind` of the stored version, as Kubernetes computes it.
fn storage_version_hash(kind: &Kind) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = format!("{}/{}/{}", kind.group, kind.stored_version(), kind.kind);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    STANDARD.encode(digest.as_ref().iter().take(8).copied().collect::<Vec<u8>>())
}
