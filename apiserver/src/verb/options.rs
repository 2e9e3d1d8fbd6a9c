//! Options of the verbs, from the query (and, for deletes, from the body). Pure.

use std::num::{IntErrorKind, ParseIntError};

use serde_json::json;

use crate::{
    error::{Cause, Error, Qualified, Result},
    request::Query,
};

mod delete;
mod list;
mod write;

pub use delete::{DeleteOptions, Propagation};
pub use list::{ListOptions, Match};
pub use write::{FieldValidation, WriteOptions};

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        // As Kubernetes words it: the whole list is the value.
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(values));
        causes.push(Cause { reason: "FieldValueNotSupported".into(), message, field: "dryRun".into() });
    }
    values.contains(&"All")
}

/// Reads a resourceVersion: a decimal number; absent or empty says nothing.
pub fn version(text: Option<&str>) -> Result<Option<u64>> {
    match text {
        None | Some("") => Ok(None),
        Some(text) => match text.parse() {
            Ok(version) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(version)),
            // 500 without a reason, as Kubernetes answers it.
            Ok(_) | Err(_) => Err(Error::Unmergeable(format!(
                "resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: invalid syntax",
                text
            ))),
        },
    }
}

fn number(query: &Query, name: &str) -> Result<Option<i64>> {
    match query.get(name) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|error| not_a_number(text, &error)),
    }
}

/// In the words of Go's reader of numbers, which is what Kubernetes answers.
fn not_a_number(text: &str, error: &ParseIntError) -> Error {
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Error::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
}

fn flag(query: &Query, name: &str) -> Result<Option<bool>> {
    match query.get(name) {
        None => Ok(None),
        // As Kubernetes reads it: whatever does not say no says yes.
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Ok(Some(true)),
    }
}

fn bad(name: &str) -> Error {
    Error::bad_request(format!("the parameter {name} has a value of the wrong type"))
}

fn refuse(kind: &str, causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid { kind: Qualified::new("meta.k8s.io", kind), name: String::new(), causes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        request::{Context, User},
        route,
    };

    fn context(query: &str) -> Context {
        let call = route::parse("GET", "/api/v1/pods", Some(query)).unwrap();
        Context { user_agent: "kubectl/v1.32 (linux)".into(), ..Context::new(User::default(), call) }
    }
    fn write(query: &str) -> Result<WriteOptions> {
        WriteOptions::parse(&context(query), "CreateOptions")
    }
    fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_write_is_for_real_warns_and_is_managed_by_the_client_unless_said_otherwise() {
        let plain =
            WriteOptions { dry_run: false, validation: FieldValidation::Warn, manager: "kubectl".into(), force: false };
        assert_eq!(write(""), Ok(plain));
        let said =
            WriteOptions { dry_run: true, validation: FieldValidation::Strict, manager: "me".into(), force: false };
        assert_eq!(write("dryRun=All&fieldValidation=Strict&fieldManager=me"), Ok(said));
    }

    #[test]
    fn every_bad_write_option_is_named_at_once() {
        assert_eq!(
            message(WriteOptions::parse(&context("dryRun=x&fieldValidation=y&force=true"), "PatchOptions")),
            "PatchOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"x\"]: supported values: \"All\", \
             fieldValidation: Unsupported value: \"y\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\", \
             force: Forbidden: may not be specified for non-apply patch]"
        );
        assert!(write("force=true").is_ok());
        assert!(
            message(write(&format!("fieldManager={}", "x".repeat(129)))).contains("may not be more than 128 bytes")
        );
    }

    #[test]
    fn the_body_of_a_delete_beats_its_query() {
        let query = context("propagationPolicy=Orphan&gracePeriodSeconds=-3&dryRun=All").call.query;
        let from_query = DeleteOptions::parse(&query, None, "g/v1").unwrap();
        assert_eq!(
            (from_query.grace, from_query.propagation, from_query.dry_run),
            (Some(1), Some(Propagation::Orphan), true)
        );
        let body = json!({"kind": "DeleteOptions", "apiVersion": "g/v1", "propagationPolicy": "Foreground", "dryRun": [],
            "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
        let from_body = DeleteOptions::parse(&query, Some(&body), "g/v1").unwrap();
        let expected = DeleteOptions {
            dry_run: false,
            grace: Some(0),
            propagation: Some(Propagation::Foreground),
            uid: Some("u".into()),
            resource_version: None,
        };
        assert_eq!(from_body, expected);
        let both = json!({"orphanDependents": true, "propagationPolicy": "Foreground"});
        assert!(message(DeleteOptions::parse(&query, Some(&both), "g/v1")).contains("cannot be both set"));
        // A body that says nothing is one: what the query says is not read.
        assert_eq!(DeleteOptions::parse(&query, Some(&json!({})), "g/v1"), Ok(DeleteOptions::default()));
        let conditions = context("uid=u&resourceVersion=7").call.query;
        let expected =
            DeleteOptions { uid: Some("u".into()), resource_version: Some("7".into()), ..DeleteOptions::default() };
        assert_eq!(DeleteOptions::parse(&conditions, None, "g/v1"), Ok(expected));
        assert_eq!(DeleteOptions::parse(&conditions, Some(&json!({})), "g/v1"), Ok(DeleteOptions::default()));
        let odd = json!({"propagationPolicy": "Sideways"});
        assert!(message(DeleteOptions::parse(&query, Some(&odd), "g/v1")).contains("Unsupported value: \"Sideways\""));
        assert!(DeleteOptions::parse(&query, Some(&json!({"kind": "Pod"})), "g/v1").is_err());
    }

    #[test]
    fn list_options_that_contradict_each_other_are_refused() {
        let list = |query: &str| ListOptions::list(&context(query).call);
        for (query, part) in [
            ("resourceVersionMatch=Exact", "forbidden unless resourceVersion is provided"),
            ("resourceVersionMatch=Exact&resourceVersion=0", "is forbidden for resourceVersion"),
            ("resourceVersionMatch=Exact&resourceVersion=4&continue=x", "forbidden when continue is provided"),
            ("resourceVersionMatch=Later&resourceVersion=4", "Unsupported value: \"Later\""),
            ("sendInitialEvents=true", "sendInitialEvents is forbidden for list"),
            ("resourceVersion=abc", "strconv.ParseUint: parsing \"abc\": invalid syntax"),
            ("resourceVersion=%2B5", "invalid resource version"),
            ("resourceVersion=5&continue=x", "not allowed when using continue"),
            ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("limit=99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
        ] {
            assert!(message(list(query)).contains(part), "{query}: {}", message(list(query)));
        }
        let watch = |query: &str| ListOptions::watch(&context(query).call);
        assert!(
            message(watch("sendInitialEvents=true")).contains("requires setting resourceVersionMatch to NotOlderThan")
        );
        assert!(message(watch("continue=x")).contains("is forbidden when continue is provided"));
        assert!(watch("continue=x&resourceVersion=4").is_ok());
        assert_eq!(watch("timeoutSeconds=-1").unwrap().timeout, Some(0));
        assert!(
            message(watch("resourceVersionMatch=NotOlderThan&resourceVersion=1")).contains("unless sendInitialEvents")
        );
        assert!(
            watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
                .unwrap()
                .bookmarks
        );
    }
}
