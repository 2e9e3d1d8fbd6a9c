//! OpenAPI, computed once from the registry: operations ([`operation`]) and definitions ([`definition`]) are collected
//! version-neutral, then rendered as v2 JSON, v2 protobuf and v3 JSON.
//!
//! What kube-openapi's parsers and kube-controller-manager's type checker refuse is not written: no boolean
//! `additionalProperties`, no `oneOf`, no `nullable`.

use serde_json::{Value, json};

use super::discovery::Document;
use crate::registry::Registry;

pub mod definition;
pub mod operation;
pub mod proto;
pub mod v2;
pub mod v3;

/// Media type of the v2 protobuf form, as clients ask for it (an older spelling has a dot for the at sign).
pub const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// Everything under `/openapi`.
#[derive(Clone, Debug)]
pub struct OpenApi {
    /// `/openapi/v2` as JSON.
    pub v2: Document,
    /// `/openapi/v2` as protobuf.
    pub v2_protobuf: Document,
    /// `/openapi/v3`: the index.
    pub v3: Document,
    /// `/openapi/v3/<path>`, by path (`apis/G/V`, `api/v1`).
    pub v3_versions: Vec<(String, Document)>,
}

impl OpenApi {
    /// Renders all documents of a registry.
    #[must_use]
    pub fn of(registry: &Registry) -> Self {
        let v2 = v2::document(registry);
        let v3_versions: Vec<(String, Document)> = registry
            .by_version()
            .into_iter()
            .map(|((group, version), kinds)| (base(group, version), Document::of(&v3::document(&kinds))))
            .collect();
        Self {
            v2_protobuf: Document::of_bytes(proto::encode(&v2).into()),
            v2: Document::of(&v2),
            v3: Document::of(&index(&v3_versions)),
            v3_versions,
        }
    }

    /// The v3 document of a path, such as `apis/redis.kun.io/v1`.
    #[must_use]
    pub fn v3_version(&self, path: &str) -> Option<&Document> {
        self.v3_versions.iter().find(|(have, _)| have == path).map(|(_, document)| document)
    }
}

/// The URL under which the content of a v3 document never changes.
#[must_use]
pub fn v3_url(path: &str, document: &Document) -> String {
    format!("/openapi/v3/{path}?hash={}", document.etag.trim_matches('"'))
}

fn index(versions: &[(String, Document)]) -> Value {
    let entry =
        |(path, document): &(String, Document)| (path.clone(), json!({"serverRelativeURL": v3_url(path, document)}));
    json!({"paths": versions.iter().map(entry).collect::<serde_json::Map<_, _>>()})
}

/// `api/v1` or `apis/G/V`.
#[must_use]
pub fn base(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

/// Title and version of the documents.
fn info() -> Value {
    json!({"title": "KUN", "version": env!("CARGO_PKG_VERSION")})
}
