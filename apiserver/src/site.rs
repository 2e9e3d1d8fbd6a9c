//! Paths that are no resource: version, discovery, OpenAPI. All documents are made once, when the server is.

use std::collections::BTreeMap;

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, EXPIRES, LOCATION, VARY},
};
use serde_json::json;

use crate::{
    error::{Error, Result},
    registry::Registry,
    request::{Call, Verb},
    wire::{
        body::{self, ResponseBody},
        discovery::{self, Document},
        encode, etag,
        negotiate::{self, Shape},
        openapi::{self, OpenApi, V2_PROTOBUF},
    },
};

/// The Kubernetes version whose behaviour is the model; kubectl compares itself with it.
const MODEL_MINOR: &str = "33";
const OPENAPI_JSON: &str = "application/json";

/// All documents.
#[derive(Debug)]
pub struct Site {
    /// Path → legacy document.
    plain: BTreeMap<String, Document>,
    /// Path → aggregated discovery.
    aggregated: BTreeMap<&'static str, Document>,
    openapi: OpenApi,
}

impl Site {
    /// Computes every document of a registry.
    #[must_use]
    pub fn of(registry: &Registry) -> Self {
        let mut plain = BTreeMap::new();
        let mut aggregated = BTreeMap::new();
        plain.insert("/apis".to_owned(), Document::of(&discovery::group_list(registry)));
        aggregated.insert("/apis", Document::of(&discovery::aggregated_groups(registry)));
        for group in registry.groups().keys() {
            if let Some(document) = discovery::group(registry, group) {
                plain.insert(format!("/apis/{group}"), Document::of(&document));
            }
        }
        for (group, version) in registry.by_version().keys() {
            if let Some(document) = discovery::resource_list(registry, group, version) {
                plain.insert(format!("/{}", openapi::base(group, version)), Document::of(&document));
            }
        }
        // A server without core kinds has no /api: the aggregator must not take it for one.
        if registry.has_version("", "v1") {
            plain.insert("/api".to_owned(), Document::of(&discovery::core_versions()));
            aggregated.insert("/api", Document::of(&discovery::aggregated_core(registry)));
        }
        plain.insert("/version".to_owned(), Document::of(&version()));
        let roots: Vec<String> =
            plain.keys().cloned().chain(["/openapi/v2".to_owned(), "/openapi/v3".to_owned()]).collect();
        plain.insert("/".to_owned(), Document::of(&json!({"paths": roots})));
        Self { plain, aggregated, openapi: OpenApi::of(registry) }
    }

    /// Answers a path that is no resource.
    pub fn get(&self, call: &Call, headers: &HeaderMap) -> Result<Response<ResponseBody>> {
        let path = call.path.as_str();
        let known = self.plain.contains_key(path) || path.starts_with("/openapi/");
        if !known {
            return Err(Error::PageNotFound);
        }
        if call.verb != Verb::Get {
            return Err(Error::MethodNotAllowed);
        }
        if let Some(rest) = path.strip_prefix("/openapi/") {
            return self.openapi(rest, call, headers);
        }
        self.discovery(path, call, headers)
    }

    fn discovery(&self, path: &str, call: &Call, headers: &HeaderMap) -> Result<Response<ResponseBody>> {
        if let Some(document) = self.aggregated.get(path).filter(|_| wants_aggregated(headers)) {
            return Ok(etag::respond(document, discovery::AGGREGATED, headers));
        }
        let document = self.plain.get(path).ok_or(Error::PageNotFound)?;
        let pretty = negotiate::is_pretty(call.query.get("pretty"), header(headers, http::header::USER_AGENT));
        let form = match negotiate::negotiate(accept(headers), Shape::Plain, pretty) {
            Ok(form) => form,
            // Old clients ask discovery for protobuf alone; JSON is what they then understand.
            Err(_) => negotiate::negotiate(None, Shape::Plain, pretty)?,
        };
        let bytes = encode::encoded_json(document.bytes.clone(), form)?;
        let mut response = body::respond(StatusCode::OK, form.format.media_type(), body::full(bytes));
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        Ok(response)
    }

    fn openapi(&self, path: &str, call: &Call, headers: &HeaderMap) -> Result<Response<ResponseBody>> {
        match path {
            "v2" => self.v2(headers),
            "v3" => json_only(headers).map(|()| etag::respond(&self.openapi.v3, OPENAPI_JSON, headers)),
            deeper => {
                let path = deeper.strip_prefix("v3/").ok_or(Error::PageNotFound)?;
                let document = self.openapi.v3_version(path).ok_or(Error::PageNotFound)?;
                json_only(headers)?;
                Ok(hashed(path, document, call.query.get("hash"), headers))
            }
        }
    }

    /// Protobuf or JSON, by the order of the client's clauses.
    fn v2(&self, headers: &HeaderMap) -> Result<Response<ResponseBody>> {
        let accept = accept(headers).unwrap_or("*/*");
        for clause in negotiate::clauses(accept) {
            match clause.media_type {
                "application/json" | "*/*" | "application/*" => {
                    return Ok(etag::respond(&self.openapi.v2, OPENAPI_JSON, headers));
                }
                other if V2_PROTOBUF.contains(&other) => {
                    let [_, answered] = V2_PROTOBUF;
                    return Ok(etag::respond(&self.openapi.v2_protobuf, answered, headers));
                }
                _ => {}
            }
        }
        Err(Error::NotAcceptable(vec![OPENAPI_JSON, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"]))
    }
}

/// With the right hash the content never changes; with a wrong one the client is sent to the right one.
fn hashed(path: &str, document: &Document, hash: Option<&str>, headers: &HeaderMap) -> Response<ResponseBody> {
    let current = document.etag.trim_matches('"');
    match hash {
        Some(hash) if !hash.is_empty() && hash != current => {
            let mut response = Response::new(body::full(""));
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            if let Ok(url) = HeaderValue::from_str(&openapi::v3_url(path, document)) {
                response.headers_mut().insert(LOCATION, url);
            }
            response
        }
        Some(hash) if !hash.is_empty() => {
            let mut response = etag::respond(document, OPENAPI_JSON, headers);
            let map = response.headers_mut();
            map.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            if let Ok(expires) = HeaderValue::from_str(&in_a_year()) {
                map.insert(EXPIRES, expires);
            }
            response
        }
        _ => etag::respond(document, OPENAPI_JSON, headers),
    }
}

/// One year from now, as HTTP writes dates.
fn in_a_year() -> String {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    let then = jiff::Timestamp::now().checked_add(year).unwrap_or(jiff::Timestamp::MAX);
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn json_only(headers: &HeaderMap) -> Result<()> {
    let accept = accept(headers).unwrap_or("*/*");
    let fits = |media_type: &str| matches!(media_type, "application/json" | "*/*" | "application/*");
    if negotiate::clauses(accept).iter().any(|clause| fits(clause.media_type)) {
        return Ok(());
    }
    Err(Error::NotAcceptable(vec![OPENAPI_JSON]))
}

/// True if the first clause that can be served is the aggregated form.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let first = negotiate::clauses(accept(headers).unwrap_or_default()).into_iter().find_map(|clause| {
        let is = |name: &str, value: &str| clause.parameter(name) == Some(value);
        match (clause.media_type, clause.parameter("as")) {
            ("application/json", Some("APIGroupDiscoveryList")) => {
                (is("g", "apidiscovery.k8s.io") && is("v", "v2")).then_some(true)
            }
            ("application/json" | "application/yaml" | "*/*" | "application/*", None) => Some(false),
            _ => None,
        }
    });
    first.unwrap_or(false)
}

fn accept(headers: &HeaderMap) -> Option<&str> {
    Some(header(headers, ACCEPT)).filter(|text| !text.is_empty())
}

fn header(headers: &HeaderMap, name: http::header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn version() -> serde_json::Value {
    json!({
        "major": "1",
        "minor": MODEL_MINOR,
        "gitVersion": format!("v1.{MODEL_MINOR}.0+kun.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
