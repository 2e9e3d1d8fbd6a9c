//! Who did what. Without a policy: one JSON line per request that may change something, on the tracing target `audit`,
//! metadata only, and no body is ever written. With a policy ([`policy`]): Kubernetes' events ([`trail`]), as much as it
//! asks for, in a file of their own ([`log`]).

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, StatusCode};
use serde::Serialize;

use super::{Exchange, headers};
use crate::request::{Call, ResourcePath};

mod event;
pub mod log;
pub mod policy;
pub mod trail;

pub use trail::{Record, Trail};

/// Tracing target of the audit lines.
pub const TARGET: &str = "audit";
/// Annotation with which admission tells the name of an object that is being created; becomes the line's `name`.
pub(crate) const ANNOTATION_NAME: &str = "name";
/// Annotation with which admission tells that nothing is stored, also when only the body says so.
pub(crate) const ANNOTATION_DRY_RUN: &str = "dryRun";
/// Longest audit id taken from a client. Ours have 36 characters.
const ID_MAX: usize = 64;

/// The request's audit id: what the client sent, if it is short and harmless, or a new one.
pub(crate) fn id(headers: &HeaderMap) -> String {
    let given = headers.get(headers::AUDIT_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(given) if !given.is_empty() && given.len() <= ID_MAX && given.bytes().all(|b| b.is_ascii_graphic()) => {
            given.to_owned()
        }
        Some(_) | None => uuid::Uuid::new_v4().to_string(),
    }
}

/// Writes the line of a request that may have changed something; true if it did.
pub(super) fn record(exchange: &Exchange, code: StatusCode) -> bool {
    let is_mutating = match &exchange.call {
        Some(call) => call.verb.is_mutating(),
        // Refused before it was understood: the method is all there is.
        None => !exchange.method.is_safe(),
    };
    if is_mutating {
        tracing::info!(target: TARGET, "{}", line(exchange, code));
    }
    is_mutating
}

/// The line, in the order it is read: who, what, to what, with what outcome.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    user: Option<&'a str>,
    groups: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<&'a str>,
    #[serde(rename = "sourceIP")]
    source_ip: IpAddr,
    user_agent: &'a str,
    method: &'a str,
    path: &'a str,
    verb: Option<&'static str>,
    #[serde(flatten)]
    object: Option<Object<'a>>,
    dry_run: bool,
    code: u16,
    latency_millis: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// What a request is about, as far as its path and admission tell.
#[derive(Serialize)]
struct Object<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

fn line(exchange: &Exchange, code: StatusCode) -> String {
    let mut annotations = exchange.annotations.snapshot();
    let told_name = annotations.remove(ANNOTATION_NAME);
    let told_dry_run = annotations.remove(ANNOTATION_DRY_RUN).is_some();
    let call = exchange.call.as_ref();
    let line = Line {
        audit_id: &exchange.audit_id,
        user: exchange.user.as_ref().map(|user| user.name.as_str()),
        groups: exchange.user.as_ref().map(|user| user.groups.as_slice()),
        impersonated_user: exchange.acts_as.as_ref().map(|user| user.name.as_str()),
        source_ip: exchange.peer.address.ip(),
        user_agent: &exchange.user_agent,
        method: exchange.method.as_str(),
        path: &exchange.path,
        verb: call.map(|call| call.verb.as_str()),
        object: call.and_then(|call| call.resource.as_ref()).map(|path| Object::of(path, told_name)),
        dry_run: told_dry_run || call.is_some_and(is_dry_run),
        code: code.as_u16(),
        latency_millis: (exchange.started.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        annotations,
    };
    // A structure of texts and numbers always encodes; a line that did not would still say whose it was.
    serde_json::to_string(&line).unwrap_or_else(|_| exchange.audit_id.clone())
}

impl<'a> Object<'a> {
    fn of(path: &'a ResourcePath, told_name: Option<String>) -> Self {
        Self {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: path.subresource.as_deref(),
            namespace: path.namespace.as_deref(),
            name: path.name.clone().or(told_name),
        }
    }
}

fn is_dry_run(call: &Call) -> bool {
    call.query.all("dryRun").any(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use http::{HeaderValue, Method};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::super::Peer;
    use super::*;
    use crate::request::{Annotations, User, Warnings};
    use crate::route;

    fn exchange(method: Method, path: &str, query: &str) -> Exchange {
        let user = User { name: "jane".to_owned(), groups: vec!["team".to_owned()], ..User::default() };
        Exchange {
            started: Instant::now(),
            audit_id: "a1".to_owned(),
            user_agent: "kubectl".to_owned(),
            peer: Arc::new(Peer::new(([127, 83, 0, 1], 1).into(), None)),
            call: Some(route::parse(method.as_str(), path, Some(query)).unwrap()),
            method,
            path: path.to_owned(),
            user: Some(user),
            acts_as: None,
            record: Record::default(),
            warnings: Warnings::default(),
            annotations: Annotations::default(),
        }
    }

    #[test]
    fn a_line_says_who_did_what_to_which_object_and_what_came_of_it() {
        let path = "/apis/redis.kun.io/v1/namespaces/prod/redisclusters/orders/scale";
        let exchange = exchange(Method::PATCH, path, "dryRun=All");
        exchange.annotations.set("authorization.k8s.io/decision", "allow");
        let mut line: Value = serde_json::from_str(&line(&exchange, StatusCode::OK)).unwrap();
        assert!(line.as_object_mut().unwrap().remove("latencyMillis").unwrap().is_f64());
        assert_eq!(
            line,
            json!({
                "auditID": "a1", "user": "jane", "groups": ["team"], "sourceIP": "127.83.0.1", "userAgent": "kubectl",
                "method": "PATCH", "path": path, "verb": "patch", "group": "redis.kun.io", "version": "v1",
                "resource": "redisclusters", "subresource": "scale", "namespace": "prod", "name": "orders",
                "code": 200, "dryRun": true, "annotations": {"authorization.k8s.io/decision": "allow"}
            })
        );
    }

    #[test]
    fn admission_tells_the_name_of_what_is_created_and_a_dry_run_asked_for_in_the_body() {
        let exchange = exchange(Method::POST, "/apis/g/v1/namespaces/n/things", "");
        exchange.annotations.set(ANNOTATION_NAME, "made-up");
        exchange.annotations.set(ANNOTATION_DRY_RUN, "true");
        let line: Value = serde_json::from_str(&line(&exchange, StatusCode::CREATED)).unwrap();
        assert_eq!(
            (line.get("name"), line.get("dryRun"), line.get("annotations")),
            (Some(&json!("made-up")), Some(&json!(true)), None)
        );
    }

    #[test]
    fn only_what_may_change_something_has_a_line() {
        let recorded = |method: Method, path: &str| record(&exchange(method, path, ""), StatusCode::OK);
        assert!(recorded(Method::DELETE, "/apis/g/v1/namespaces/n/things"));
        assert!(!recorded(Method::GET, "/apis/g/v1/namespaces/n/things"));
        let refused = Exchange { call: None, user: None, ..exchange(Method::POST, "/x", "") };
        assert!(
            record(&refused, StatusCode::BAD_REQUEST),
            "a request refused before it was understood is told by its method"
        );
    }

    #[test]
    fn an_audit_id_is_echoed_only_if_it_is_short_and_harmless() {
        let given = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(headers::AUDIT_ID, HeaderValue::from_static(text));
            id(&headers)
        };
        assert_eq!(given("abc-1"), "abc-1");
        assert_eq!(given("two words").len(), 36);
        assert_eq!(given("").len(), 36);
        assert_eq!(
            given(concat!("0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"))
                .len(),
            36
        );
    }
}
