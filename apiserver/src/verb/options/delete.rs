//! Options of a delete, from the query and from the body.

use serde_json::{Value, json};

use super::{bad, dry_run, flag, number, refuse};
use crate::{
    error::{Cause, Error, Result},
    object::meta,
    request::Query,
};

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
    /// Reads the body; where there is none, the query.
    pub fn parse(query: &Query, body: Option<&Value>, api_version: &str) -> Result<Self> {
        let nothing = Query::default();
        let query = match body {
            Some(body) => {
                check_type(body, api_version)?;
                &nothing
            }
            None => query,
        };
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
            let asked = query.get(field).filter(|text| !text.is_empty());
            value.and_then(Value::as_str).or(asked).map(str::to_owned)
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
