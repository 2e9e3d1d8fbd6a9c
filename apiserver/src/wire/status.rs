//! `Error` → `metav1.Status` and the HTTP code: the only file that knows the codes of errors.

use http::{
    HeaderValue, Response, StatusCode,
    header::{HeaderName, RETRY_AFTER},
};
use serde_json::{Map, Value, json};

use super::{
    body::{self, ResponseBody},
    encode,
    negotiate::{self, Shape},
};
use crate::error::{Cause, Error, Qualified, told};

/// An answer that is not what was asked for: code, reason and details of `metav1.Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    code: u16,
    reason: String,
    resource: Qualified,
    name: String,
    causes: Vec<Cause>,
    retry_after: Option<u32>,
    continue_token: Option<String>,
}

/// Seconds a client should wait for what is a matter of a moment.
const SOON: u32 = 1;

/// The HTTP code of an error.
#[must_use]
pub fn code(error: &Error) -> u16 {
    verdict(error).code
}

/// The reason of an error; empty if it has none.
#[must_use]
pub fn reason(error: &Error) -> String {
    verdict(error).reason
}

/// The Status object of an error.
#[must_use]
pub fn status(error: &Error) -> Value {
    let verdict = verdict(error);
    let mut metadata = Map::new();
    if let Some(token) = &verdict.continue_token {
        metadata.insert("continue".into(), json!(token));
    }
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": "Failure",
        "message": error.to_string(),
        "code": verdict.code,
    });
    if let Some(map) = status.as_object_mut() {
        if !verdict.reason.is_empty() {
            map.insert("reason".into(), json!(verdict.reason));
        }
        if let Some(details) = details(error, &verdict) {
            map.insert("details".into(), details);
        }
    }
    status
}

/// The whole response of an error, in the form that the client accepts; JSON, indented, if it accepts none of ours.
#[must_use]
pub fn response_to(error: &Error, accept: Option<&str>, pretty: bool) -> Response<ResponseBody> {
    let form = match error {
        Error::PageNotFound | Error::NotAcceptable(_) => None,
        _other => negotiate::negotiate(accept, Shape::Plain, pretty).ok(),
    };
    let encoded = form.and_then(|form| Some((form.format.media_type(), encode::value(&status(error), form).ok()?)));
    let Some((media_type, bytes)) = encoded else { return indented(error) };
    finished(error, media_type, body::full(bytes))
}

/// The whole response of an error: Status as JSON, whatever the client accepts.
#[must_use]
pub fn response(error: &Error) -> Response<ResponseBody> {
    match error {
        Error::PageNotFound | Error::NotAcceptable(_) => indented(error),
        other => finished(other, "application/json", body::full(status(other).to_string())),
    }
}

/// For people: as text, or indented.
fn indented(error: &Error) -> Response<ResponseBody> {
    match error {
        Error::PageNotFound => finished(error, "text/plain; charset=utf-8", body::full("404 page not found\n")),
        other => {
            let text = serde_json::to_string_pretty(&status(other)).unwrap_or_default();
            finished(other, "application/json", body::full(text))
        }
    }
}

fn finished(error: &Error, media_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let verdict = verdict(error);
    let code = StatusCode::from_u16(verdict.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = body::respond(code, media_type, body);
    if let Some(seconds) = verdict.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if code == StatusCode::FORBIDDEN {
        let nosniff = HeaderName::from_static("x-content-type-options");
        response.headers_mut().insert(nosniff, HeaderValue::from_static("nosniff"));
    }
    response
}

fn details(error: &Error, verdict: &Verdict) -> Option<Value> {
    if let Error::Denied { details, .. } = error {
        return details.clone();
    }
    let mut map = Map::new();
    let texts = [("name", &verdict.name), ("group", &verdict.resource.group), ("kind", &verdict.resource.name)];
    for (key, text) in texts {
        if !text.is_empty() {
            map.insert(key.into(), json!(text));
        }
    }
    if !verdict.causes.is_empty() {
        map.insert("causes".into(), told(&verdict.causes).iter().map(cause).collect());
    }
    if let Some(seconds) = verdict.retry_after {
        map.insert("retryAfterSeconds".into(), json!(seconds));
    }
    let bare = match error {
        Error::ResourceNotFound | Error::MethodNotAllowed | Error::Unprocessable(_) => true,
        _other => false,
    };
    (bare || !map.is_empty()).then_some(Value::Object(map))
}

fn cause(cause: &Cause) -> Value {
    let mut map = Map::new();
    for (key, text) in [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)] {
        if !text.is_empty() {
            map.insert(key.into(), json!(text));
        }
    }
    Value::Object(map)
}

fn verdict(error: &Error) -> Verdict {
    let plain = |code: u16, reason: &str| Verdict { code, reason: reason.to_owned(), ..Verdict::default() };
    match error {
        Error::NotFound { resource, name } => named(404, "NotFound", resource, name),
        Error::ResourceNotFound | Error::PageNotFound => plain(404, "NotFound"),
        Error::MethodNotAllowed => plain(405, "MethodNotAllowed"),
        Error::MethodNotSupported { verb: _, resource } => named(405, "MethodNotAllowed", resource, ""),
        Error::BadPatch { object, why } => {
            Verdict { causes: vec![Cause::invalid("patch", &format!("{object:?}"), why)], ..plain(422, "Invalid") }
        }
        Error::AlreadyExists { resource, name, terminating: _, generated } => {
            Verdict { retry_after: generated.then_some(SOON), ..named(409, "AlreadyExists", resource, name) }
        }
        Error::Conflict { resource, name, message: _, retry_after } => {
            Verdict { retry_after: *retry_after, ..named(409, "Conflict", resource, name) }
        }
        Error::Invalid { kind, name, causes } => {
            Verdict { causes: causes.clone(), ..named(422, "Invalid", kind, name) }
        }
        Error::Unprocessable(_) => plain(422, "Invalid"),
        Error::BadRequest(_) => plain(400, "BadRequest"),
        Error::Unauthorized => plain(401, "Unauthorized"),
        Error::Forbidden { resource, name, message: _, causes } => {
            Verdict { causes: causes.clone(), ..named(403, "Forbidden", resource, name) }
        }
        Error::Denied { message: _, reason, code, details } => {
            Verdict { retry_after: details.as_ref().and_then(retry_after), ..plain(denied(*code), reason) }
        }
        Error::NotAcceptable(_) => plain(406, "NotAcceptable"),
        Error::UnsupportedMediaType(_) => plain(415, "UnsupportedMediaType"),
        Error::ApplyConflict { message: _, causes } => Verdict { causes: causes.clone(), ..plain(409, "Conflict") },
        Error::Unmergeable(_) => plain(500, ""),
        Error::TooLarge(_) => plain(413, "RequestEntityTooLarge"),
        Error::Expired { message: _, continue_token } => {
            Verdict { continue_token: continue_token.clone(), ..plain(410, "Expired") }
        }
        Error::TooLargeResourceVersion { .. } => Verdict {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                field: String::new(),
            }],
            retry_after: Some(SOON),
            ..plain(504, "Timeout")
        },
        Error::Timeout(_) => plain(504, "Timeout"),
        Error::TooManyRequests { message: _, retry_after } => {
            Verdict { retry_after: Some(*retry_after), ..plain(429, "TooManyRequests") }
        }
        Error::Unavailable { message: _, retry_after } => {
            Verdict { retry_after: Some(*retry_after), ..plain(503, "ServiceUnavailable") }
        }
        Error::Internal(text) => Verdict {
            causes: vec![Cause { reason: String::new(), message: text.clone(), field: String::new() }],
            ..plain(500, "InternalError")
        },
    }
}

fn named(code: u16, reason: &str, resource: &Qualified, name: &str) -> Verdict {
    Verdict { code, reason: reason.to_owned(), resource: resource.clone(), name: name.to_owned(), ..Verdict::default() }
}

/// What a webhook's details say about when to try again. Clients do so by the header, which Kubernetes sets from any Status (kubernetes/apiserver,
/// pkg/endpoints/handlers/responsewriters, `ErrorNegotiated`).
fn retry_after(details: &Value) -> Option<u32> {
    // An int32 there.
    let seconds = i32::try_from(details.get("retryAfterSeconds")?.as_i64()?).ok()?;
    u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// A hook's code below 400 is no refusal; Kubernetes reads it, and an absent one, as 400.
fn denied(code: Option<u16>) -> u16 {
    match code {
        Some(code @ 400..=599) => code,
        Some(_) | None => 400,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_absent_object_is_a_404_whose_details_name_the_plural() {
        let error = Error::NotFound { resource: Qualified::new("redis.kun.io", "redisclusters"), name: "a".into() };
        assert_eq!(
            status(&error),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "redisclusters.redis.kun.io \"a\" not found", "reason": "NotFound",
                "details": {"name": "a", "group": "redis.kun.io", "kind": "redisclusters"}, "code": 404
            })
        );
    }

    #[test]
    fn an_answer_tells_a_hundred_faults_and_how_many_more_there_are() {
        let answer = |number: usize, value: &str| {
            let cause = Cause::invalid("spec", &value, "no");
            let causes = vec![cause; number];
            let error = Error::Invalid { kind: Qualified::new("g", "K"), name: "a".into(), causes };
            let status = status(&error);
            let causes = status["details"]["causes"].as_array().map_or(0, Vec::len);
            (causes, status["message"].as_str().unwrap_or_default().ends_with(" more]"))
        };
        assert_eq!([answer(100, "x"), answer(2000, "x")], [(100, false), (100, true)]);
        // Few of them may be as long as the request.
        assert_eq!([answer(2, &"x".repeat(3 << 20)), answer(5, &"x".repeat(300 << 10))], [(1, true), (3, true)]);
    }

    #[test]
    fn every_fault_of_an_invalid_object_is_in_the_message_and_in_the_causes() {
        let error = Error::Invalid {
            kind: Qualified::new("redis.kun.io", "RedisCluster"),
            name: "a".into(),
            causes: vec![
                Cause::invalid("spec.shards", &0, "must be at least 1"),
                Cause::required("metadata.name", "name or generateName is required"),
            ],
        };
        let status = status(&error);
        assert_eq!(
            status["message"],
            "RedisCluster.redis.kun.io \"a\" is invalid: [spec.shards: Invalid value: 0: must be at least 1, \
             metadata.name: Required value: name or generateName is required]"
        );
        assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueInvalid");
        assert_eq!(status["details"]["causes"][1]["field"], "metadata.name");
        assert_eq!(status["code"], 422);
    }

    #[test]
    fn whatever_may_be_tried_later_carries_retry_after() {
        let error = Error::Unavailable { message: "starting".into(), retry_after: 5 };
        let response = response(&error);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "5");
        assert_eq!(status(&error)["details"]["retryAfterSeconds"], 5);
    }

    #[test]
    fn a_webhook_that_says_when_to_try_again_is_repeated_in_the_header() {
        let header = |details| {
            let error = Error::Denied { message: "later".into(), reason: String::new(), code: Some(503), details };
            response(&error).headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(Some(json!({"retryAfterSeconds": 1}))).as_deref(), Some("1"));
        assert_eq!(header(Some(json!({"retryAfterSeconds": i32::MAX}))).as_deref(), Some("2147483647"));
        for none in [json!(0), json!(-1), json!(2_147_483_648_u32), json!(u64::MAX), json!(1.5), json!("1")] {
            assert_eq!(header(Some(json!({"retryAfterSeconds": none}))), None, "{none}");
        }
        assert_eq!(header(Some(json!({"name": "orders"}))), None);
        assert_eq!(header(None), None);
    }

    #[test]
    fn a_revision_from_the_future_is_a_timeout_that_says_so() {
        let error = Error::TooLargeResourceVersion { requested: 9, current: 3 };
        let status = status(&error);
        assert_eq!(status["message"], "Timeout: Too large resource version: 9, current: 3");
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!((status["code"].as_u64(), status["reason"].as_str()), (Some(504), Some("Timeout")));
    }

    #[test]
    fn a_webhook_cannot_refuse_with_a_code_that_means_success() {
        let denied = |code| Error::Denied { message: "no".into(), reason: String::new(), code, details: None };
        assert_eq!(code(&denied(Some(200))), 400);
        assert_eq!(code(&denied(None)), 400);
        assert_eq!(code(&denied(Some(422))), 422);
    }
}
