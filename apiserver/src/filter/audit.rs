//! Who changed what: one JSON line per request that may change something, on the tracing target `audit`.
//!
//! Metadata only. No body is ever written: Secrets pass through here.

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use super::{Exchange, headers};
use crate::request::{Call, ResourcePath};

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

fn line(exchange: &Exchange, code: StatusCode) -> Value {
    let mut annotations = exchange.annotations.snapshot();
    let told_name = annotations.remove(ANNOTATION_NAME);
    let told_dry_run = annotations.remove(ANNOTATION_DRY_RUN).is_some();
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            line.insert(key.to_owned(), value);
        }
    };
    put("auditID", json!(exchange.audit_id));
    put("user", json!(exchange.user.as_ref().map(|user| &user.name)));
    put("groups", json!(exchange.user.as_ref().map(|user| &user.groups)));
    put("sourceIP", json!(exchange.peer.address.ip()));
    put("userAgent", json!(exchange.user_agent));
    put("method", json!(exchange.method.as_str()));
    put("path", json!(exchange.path));
    put("code", json!(code.as_u16()));
    put("latencyMillis", json!(millis(exchange)));
    if let Some(call) = &exchange.call {
        put("verb", json!(call.verb.as_str()));
        put("dryRun", json!(told_dry_run || is_dry_run(call)));
        if let Some(path) = &call.resource {
            put("resource", json!(path.resource));
            put("group", json!(path.group));
            put("version", json!(path.version));
            put("subresource", json!(path.subresource));
            put("namespace", json!(path.namespace));
            put("name", json!(name(path).or(told_name.as_deref())));
        }
    }
    if !annotations.is_empty() {
        put("annotations", json!(annotations));
    }
    Value::Object(line)
}

fn name(path: &ResourcePath) -> Option<&str> {
    path.name.as_deref()
}

fn is_dry_run(call: &Call) -> bool {
    call.query.all("dryRun").any(|value| !value.is_empty())
}

fn millis(exchange: &Exchange) -> f64 {
    (exchange.started.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use http::{HeaderValue, Method};
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
            peer: Arc::new(Peer { address: ([127, 83, 0, 1], 1).into(), identity: None, good_until: None }),
            call: Some(route::parse(method.as_str(), path, Some(query)).unwrap()),
            method,
            path: path.to_owned(),
            user: Some(user),
            warnings: Warnings::default(),
            annotations: Annotations::default(),
        }
    }

    #[test]
    fn a_line_says_who_did_what_to_which_object_and_what_came_of_it() {
        let path = "/apis/redis.kun.io/v1/namespaces/prod/redisclusters/orders/scale";
        let exchange = exchange(Method::PATCH, path, "dryRun=All");
        exchange.annotations.set("authorization.k8s.io/decision", "allow");
        let mut line = line(&exchange, StatusCode::OK);
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
        let line = line(&exchange, StatusCode::CREATED);
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
