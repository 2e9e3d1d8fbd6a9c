//! One audit event, in the shape of Kubernetes' `audit.k8s.io/v1` Event. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderMap;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::policy::{Level, Stage};
use crate::object::meta;
use crate::request::{ResourcePath, UserInfo};

/// Longest name a client gives itself that is recorded, and what follows a longer one.
const USER_AGENT_MAX: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";
/// Most addresses taken from headers: whoever sends more has made them up.
const ADDRESSES_MAX: usize = 32;

/// The event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: &'static str,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: Who<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<&'a ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<&'a Value>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// Who asked.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Who<'a> {
    /// Somebody.
    Known(UserInfo<'a>),
    /// Nobody has been authenticated.
    Nobody {},
}

impl Event<'_> {
    pub(super) const KIND: &'static str = "Event";
    pub(super) const API_VERSION: &'static str = "audit.k8s.io/v1";

    /// The event as one line.
    pub(super) fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The words of a level and a stage.
pub(super) fn words(level: Level, stage: Stage) -> (&'static str, &'static str) {
    (level.as_str(), stage.as_str())
}

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

impl ObjectRef {
    /// As far as the path says.
    pub(super) fn of(path: &ResourcePath) -> Self {
        Self {
            resource: path.resource.clone(),
            namespace: path.namespace.clone().unwrap_or_default(),
            name: path.name.as_ref().or(path.selected_name.as_ref()).cloned().unwrap_or_default(),
            api_group: path.group.clone(),
            api_version: path.version.clone(),
            subresource: path.subresource.clone().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// What the path does not say, from the object that was sent.
    pub(super) fn complete(&mut self, object: &Value) {
        let Self { namespace, name, uid, resource_version, .. } = self;
        for (field, place) in
            [("namespace", namespace), ("name", name), ("uid", uid), ("resourceVersion", resource_version)]
        {
            if place.is_empty() {
                meta::text(object, field).clone_into(place);
            }
        }
    }
}

/// The outcome: of a Status its bounded fields, of everything else the code.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ResponseStatus {
    metadata: Nothing,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    code: u16,
}

/// An empty mapping.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Nothing {}

impl ResponseStatus {
    /// Of an answer that has this code.
    pub(super) fn of_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// Of an answer that is a Status.
    pub(super) fn of(status: &Value, code: u16) -> Self {
        let field = |name: &str| status.get(name).filter(|value| !value.is_null()).cloned();
        Self {
            metadata: Nothing {},
            status: field("status"),
            message: field("message"),
            reason: field("reason"),
            details: field("details"),
            code,
        }
    }

    /// Of an answer that nobody waited for: as Kubernetes tells it.
    pub(super) fn of_nothing() -> Self {
        Self { status: Some("Success".into()), message: Some("Connection closed early".into()), ..Self::of_code(200) }
    }

    /// Of a panic.
    pub(super) fn of_panic(code: u16) -> Self {
        Self {
            status: Some("Failure".into()),
            message: Some("APIServer panic'd".into()),
            reason: Some("InternalError".into()),
            ..Self::of_code(code)
        }
    }
}

/// Whether an object is a Status.
pub(super) fn is_status(object: &Value) -> bool {
    object.get("kind").is_some_and(|kind| kind == "Status") && object.get("apiVersion").is_some_and(|v| v == "v1")
}

/// Takes the owners of fields out of an object, of a list's items and of a table's rows.
pub(super) fn without_managed_fields(object: &mut Value) {
    forget_managers(object);
    let items = object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
    items.for_each(forget_managers);
    let rows = object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
    rows.filter_map(|row| row.get_mut("object")).for_each(forget_managers);
}

fn forget_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// A time with microseconds, as Kubernetes' MicroTime.
pub(super) fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Where a request comes from: what proxies say of it, then who is on the other end of the connection. Only the last is
/// more than hearsay.
pub(super) fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<String> {
    let said = |name: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|text| text.split(','))
            .filter_map(|text| text.trim().parse::<IpAddr>().ok())
            .collect::<Vec<_>>()
    };
    let mut all: Vec<IpAddr> = said("x-forwarded-for").into_iter().take(ADDRESSES_MAX).collect();
    let real = said("x-real-ip").into_iter().next();
    all.extend(real.filter(|real| !all.contains(real)));
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all.into_iter().map(|ip| ip.to_string()).collect()
}

/// What a client calls itself, cut where Kubernetes cuts it.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let text = headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text.char_indices().nth(USER_AGENT_MAX) {
        Some((end, _)) => format!("{}{TRUNCATED}", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_those_that_proxies_say_then_the_peers_own() {
        let ips = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            source_ips(&headers, [127, 0, 0, 1].into())
        };
        assert_eq!(ips(&[]), ["127.0.0.1"]);
        assert_eq!(ips(&[("x-forwarded-for", "10.0.0.1, nonsense,10.0.0.2")]), ["10.0.0.1", "10.0.0.2", "127.0.0.1"]);
        assert_eq!(
            ips(&[("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.9")]),
            ["10.0.0.1", "10.0.0.9", "127.0.0.1"]
        );
        assert_eq!(ips(&[("x-forwarded-for", "10.0.0.1,127.0.0.1")]), ["10.0.0.1", "127.0.0.1"]);
    }

    #[test]
    fn a_long_name_of_a_client_is_cut() {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_str(&"x".repeat(1025)).unwrap());
        assert_eq!(user_agent(&headers), format!("{}...TRUNCATED", "x".repeat(1024)));
        headers.insert("user-agent", HeaderValue::from_static("kubectl"));
        assert_eq!(user_agent(&headers), "kubectl");
    }

    #[test]
    fn the_owners_of_fields_are_taken_out_of_objects_lists_and_tables() {
        let object = json!({"metadata": {"name": "a", "managedFields": []}});
        let bare = json!({"metadata": {"name": "a"}});
        let without = |mut object: Value| {
            without_managed_fields(&mut object);
            object
        };
        assert_eq!(without(object.clone()), bare);
        assert_eq!(without(json!({"items": [object]})), json!({"items": [bare]}));
        assert_eq!(
            without(json!({"rows": [{"cells": [], "object": object}, {"object": null}]})),
            json!({"rows": [{"cells": [], "object": bare}, {"object": null}]})
        );
    }

    #[test]
    fn a_time_has_microseconds() {
        assert_eq!(micros("2026-11-21T18:31:09.1234567Z".parse().unwrap()), "2026-11-21T18:31:09.123456Z");
        assert_eq!(micros("2026-11-21T18:31:09Z".parse().unwrap()), "2026-11-21T18:31:09.000000Z");
    }
}
