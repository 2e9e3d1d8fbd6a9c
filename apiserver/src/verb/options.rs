//! Options of the verbs, from the query (and, for deletes, from the body). Pure.

use std::num::{IntErrorKind, ParseIntError};

use serde_json::{Value, json};

use crate::{
    error::{Cause, Error, Qualified, Result},
    object::{managed, meta},
    request::{Call, Context, Query},
};

/// What unknown and duplicate fields cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning.
    Warn,
    /// A refusal.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// What unknown and duplicate fields cause.
    pub validation: FieldValidation,
    /// Who makes the change.
    pub manager: String,
    /// Take fields from their owners; only of an apply.
    pub force: bool,
}

impl WriteOptions {
    /// Reads the query. `kind` is the name of the options in messages: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    pub fn parse(context: &Context, kind: &str) -> Result<Self> {
        Self::read(context, kind, false)
    }

    /// Reads the query of an apply: it must name its manager, and may take fields from others.
    pub fn parse_apply(context: &Context) -> Result<Self> {
        Self::read(context, "PatchOptions", true)
    }

    fn read(context: &Context, kind: &str, is_apply: bool) -> Result<Self> {
        let query = &context.call.query;
        let mut causes = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut causes);
        let validation = match query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                causes.push(Cause::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let manager = query.get("fieldManager").unwrap_or_default();
        managed::manager(manager, "fieldManager", &mut causes);
        if is_apply && manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        // Other options than those of a patch do not know the parameter.
        let force = if kind == "PatchOptions" { flag(query, "force")? } else { None };
        if !is_apply && force.is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        refuse(kind, causes)?;
        let manager = match manager {
            "" => context.user_agent.split('/').next().unwrap_or_default().chars().take(managed::MANAGER_MAX).collect(),
            given => given.to_owned(),
        };
        Ok(Self { dry_run, validation, manager, force: force.unwrap_or(false) })
    }

    /// As an options object for admission.
    #[must_use]
    pub fn object(&self, kind: &str) -> Value {
        let mut object = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if let Some(map) = object.as_object_mut() {
            if self.dry_run {
                map.insert("dryRun".into(), json!(["All"]));
            }
            if self.force {
                map.insert("force".into(), json!(true));
            }
            if !self.manager.is_empty() {
                map.insert("fieldManager".into(), json!(self.manager));
            }
            let validation = match self.validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            map.insert("fieldValidation".into(), json!(validation));
        }
        object
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        // As Kubernetes words it: the whole list is the value.
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(values));
        causes.push(Cause { reason: "FieldValueNotSupported".into(), message, field: "dryRun".into() });
    }
    values.contains(&"All")
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their reference.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// Seconds the object is given.
    pub grace: Option<i64>,
    /// What happens to dependents; absent: the garbage collector's finalizers stay as they are.
    pub propagation: Option<Propagation>,
    /// UID the object must have.
    pub uid: Option<String>,
    /// Version the object must have.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads body and query; the body wins.
    pub fn parse(query: &Query, body: Option<&Value>, api_version: &str) -> Result<Self> {
        if let Some(body) = body {
            check_type(body, api_version)?;
        }
        let from_body = |field: &str| body.and_then(|body| body.get(field)).filter(|value| !value.is_null());
        let mut causes = Vec::new();
        let listed = from_body("dryRun").and_then(Value::as_array);
        let dry_run = match listed {
            Some(list) => dry_run(list.iter().filter_map(Value::as_str), &mut causes),
            None => dry_run(query.all("dryRun"), &mut causes),
        };
        let grace = match from_body("gracePeriodSeconds") {
            Some(value) => Some(value.as_i64().ok_or_else(|| bad("gracePeriodSeconds"))?),
            None => number(query, "gracePeriodSeconds")?,
        };
        let orphan = match from_body("orphanDependents") {
            Some(value) => Some(value.as_bool().ok_or_else(|| bad("orphanDependents"))?),
            None => flag(query, "orphanDependents")?,
        };
        let policy = match from_body("propagationPolicy") {
            Some(value) => Some(value.as_str().ok_or_else(|| bad("propagationPolicy"))?),
            None => query.get("propagationPolicy"),
        };
        let propagation = propagation(policy.filter(|text| !text.is_empty()), orphan, &mut causes);
        let precondition = |field: &str| {
            let value = body.and_then(|body| body.get("preconditions")).and_then(|inner| inner.get(field));
            value.and_then(Value::as_str).map(str::to_owned)
        };
        refuse("DeleteOptions", causes)?;
        Ok(Self {
            dry_run,
            // A negative grace period is read as one second, as Kubernetes does.
            grace: grace.map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }

    /// As an options object for admission.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut object = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let Some(map) = object.as_object_mut() else { return object };
        if self.dry_run {
            map.insert("dryRun".into(), json!(["All"]));
        }
        if let Some(grace) = self.grace {
            map.insert("gracePeriodSeconds".into(), json!(grace));
        }
        if let Some(policy) = self.propagation {
            let word = match policy {
                Propagation::Orphan => "Orphan",
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
            };
            map.insert("propagationPolicy".into(), json!(word));
        }
        if self.uid.is_some() || self.resource_version.is_some() {
            let mut preconditions = serde_json::Map::new();
            for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
                if let Some(value) = value {
                    preconditions.insert(field.into(), json!(value));
                }
            }
            map.insert("preconditions".into(), Value::Object(preconditions));
        }
        object
    }
}

fn check_type(body: &Value, api_version: &str) -> Result<()> {
    let part = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = part("kind");
    let version = part("apiVersion");
    if !body.is_object() || !(kind.is_empty() || kind == "DeleteOptions") {
        return Err(Error::bad_request(format!("the body of a delete is a DeleteOptions object, not {kind:?}")));
    }
    if !version.is_empty() && !["v1", "meta.k8s.io/v1", api_version].contains(&version) {
        return Err(Error::bad_request(format!("DeleteOptions of version {version:?} are not known")));
    }
    Ok(())
}

fn propagation(policy: Option<&str>, orphan: Option<bool>, causes: &mut Vec<Cause>) -> Option<Propagation> {
    if policy.is_some() && orphan.is_some() {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(Cause::invalid("propagationPolicy", &meta::quoted(policy.unwrap_or_default()), detail));
    }
    match (policy, orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some(other), _) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::not_supported("propagationPolicy", other, &known));
            None
        }
        (None, None) => None,
    }
}

/// The parameter that says how a resourceVersion is read.
const MATCH: &str = "resourceVersionMatch";

/// How a list's resourceVersion is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Exactly then.
    Exact,
    /// Then or later.
    NotOlderThan,
}

/// Options of list and watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `resourceVersion`; absent: at least as new as every acknowledged write.
    pub version: Option<u64>,
    /// How it is read.
    pub version_match: Option<Match>,
    /// Most items of one page; absent: all.
    pub limit: Option<usize>,
    /// Token of the page before.
    pub continue_token: Option<String>,
    /// A watch begins with the present state.
    pub initial_events: Option<bool>,
    /// A watch gets bookmarks.
    pub bookmarks: bool,
    /// Seconds a watch may last; 0: it is over at once.
    pub timeout: Option<u64>,
}

impl ListOptions {
    /// Reads the query of a list.
    pub fn list(call: &Call) -> Result<Self> {
        let options = Self::read(call).map_err(|error| match error {
            Error::Unmergeable(text) => Error::bad_request(format!("invalid resource version: {text}")),
            other => other,
        })?;
        let mut causes = Vec::new();
        let forbidden = |field: &str, detail: &str| Cause::forbidden(field, detail);
        if let Some(given) = call.query.get(MATCH).filter(|text| !text.is_empty()) {
            if options.version.is_none() {
                causes.push(forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if options.continue_token.is_some() {
                causes.push(forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if options.version_match.is_none() {
                causes.push(Cause::not_supported(MATCH, given, &["Exact", "NotOlderThan", ""]));
            }
            if options.version_match == Some(Match::Exact) && options.version == Some(0) {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(forbidden(MATCH, detail));
            }
        }
        if options.initial_events.is_some() {
            causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        refuse("ListOptions", causes)?;
        if options.continue_token.is_some() && options.version.is_some_and(|version| version > 0) {
            return Err(Error::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(options)
    }

    /// Reads the query of a watch.
    pub fn watch(call: &Call) -> Result<Self> {
        let options = Self::read(call)?;
        let given = call.query.get(MATCH).filter(|text| !text.is_empty());
        let mut causes = Vec::new();
        let mut forbidden = |detail: &str| causes.push(Cause::forbidden(MATCH, detail));
        if options.initial_events.is_some() && options.version_match != Some(Match::NotOlderThan) {
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if given.is_some() && options.initial_events.is_none() {
            forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        // A watch that begins with the present state counts as one that says NotOlderThan.
        let begins_with_state = options.initial_events.is_none() && matches!(options.version, None | Some(0));
        if (given.is_some() || begins_with_state) && options.continue_token.is_some() {
            forbidden("resourceVersionMatch is forbidden when continue is provided");
        }
        if let Some(odd) = given.filter(|_| options.version_match != Some(Match::NotOlderThan)) {
            causes.push(Cause::not_supported(MATCH, odd, &["NotOlderThan"]));
        }
        refuse("ListOptions", causes)?;
        Ok(options)
    }

    fn read(call: &Call) -> Result<Self> {
        let query = &call.query;
        let version_match = match query.get(MATCH) {
            Some("Exact") => Some(Match::Exact),
            Some("NotOlderThan") => Some(Match::NotOlderThan),
            Some(_) | None => None,
        };
        Ok(Self {
            version: version(query.get("resourceVersion"))?,
            version_match,
            limit: number(query, "limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            continue_token: query.get("continue").filter(|token| !token.is_empty()).map(str::to_owned),
            initial_events: flag(query, "sendInitialEvents")?,
            bookmarks: flag(query, "allowWatchBookmarks")?.unwrap_or(false),
            // Less than nothing is over at once, as in Kubernetes.
            timeout: number(query, "timeoutSeconds")?
                .filter(|seconds| *seconds != 0)
                .map(|seconds| u64::try_from(seconds).unwrap_or(0)),
        })
    }
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
    use crate::{request::User, route};

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
