//! AdmissionReview v1 ⇄ [`Request`] and [`Verdict`].
//!
//! Objects stay raw JSON here, borrowed from the body: they are parsed once, into what a decision needs of them.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use types::field::Fault;

use crate::decide::{Denial, Objection, Verdict};

/// The version of AdmissionReview that is spoken.
const API_VERSION: &str = "admission.k8s.io/v1";
/// Its kind.
const KIND: &str = "AdmissionReview";
/// Most warnings of one answer, and the longest; API servers cut both (4096 characters in all).
const WARNINGS_MAX: usize = 16;
const WARNING_LENGTH_MAX: usize = 255;

/// When we are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The object may still be changed.
    Mutate,
    /// The object is what is going to be stored.
    Validate,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object that goes away.
    Delete,
    /// A connection to a subresource.
    Connect,
}

/// What it is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// redisclusters
    Cluster,
    /// redisclusters/scale, an autoscaling/v1 Scale
    Scale,
    /// redisbackups, and redisclusters/backup
    Backup,
    /// redisoperations, and the actions of redisclusters
    Operation,
    /// redispolicies
    Policy,
    /// Anything else: not ours to judge.
    Other,
}

impl Target {
    fn of(group: &str, resource: &str, subresource: &str) -> Self {
        if group != types::GROUP {
            return Self::Other;
        }
        match (resource, subresource) {
            ("redisclusters", "") => Self::Cluster,
            ("redisclusters", "scale") => Self::Scale,
            ("redisbackups", "") | ("redisclusters", "backup") => Self::Backup,
            ("redisoperations", "") | ("redisclusters", "failover" | "restart") => Self::Operation,
            ("redispolicies", "") => Self::Policy,
            _ => Self::Other,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Before or after the object is final.
    pub stage: Stage,
    /// Identifies the answer.
    pub uid: Cow<'a, str>,
    /// What is done.
    pub operation: Operation,
    /// To what.
    pub target: Target,
    /// Its name; empty while it is to be generated.
    pub name: Cow<'a, str>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Cow<'a, str>,
    /// Kind of the object, for the answer.
    pub kind: Cow<'a, str>,
    /// The new object; absent on DELETE.
    pub object: Option<&'a RawValue>,
    /// The old object; absent on CREATE.
    pub old_object: Option<&'a RawValue>,
}

/// Why a body is not answered with a review.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of the form.
    #[error("reading the AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    /// Another version or kind.
    #[error("reading the AdmissionReview: it must be {API_VERSION} {KIND} with a request")]
    NotAReview,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    kind: WireKind<'a>,
    #[serde(borrow)]
    resource: WireResource<'a>,
    #[serde(borrow, default)]
    sub_resource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    operation: Operation,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireKind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct WireResource<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    resource: Cow<'a, str>,
}

/// Reads the body of a request to `/mutate` or `/validate`.
///
/// # Errors
/// When it is not an AdmissionReview v1 with a request.
pub fn read(body: &[u8], stage: Stage) -> Result<Request<'_>, Error> {
    let review: WireReview<'_> = serde_json::from_slice(body).map_err(Error::Malformed)?;
    let request = review.request.filter(|_| review.api_version == API_VERSION && review.kind == KIND);
    let request = request.ok_or(Error::NotAReview)?;
    let subresource = request.sub_resource.unwrap_or_default();
    Ok(Request {
        stage,
        uid: request.uid,
        operation: request.operation,
        target: Target::of(&request.resource.group, &request.resource.resource, &subresource),
        name: request.name.unwrap_or_default(),
        namespace: request.namespace.unwrap_or_default(),
        kind: request.kind.kind,
        object: request.object,
        old_object: request.old_object,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireAnswer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    audit_annotations: &'a std::collections::BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: WireDetails<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireDetails<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    group: &'static str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<WireCause<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Serialize)]
struct WireCause<'a> {
    reason: &'static str,
    message: String,
    field: &'a str,
}

/// Writes the answer.
///
/// # Errors
/// None that a verdict can cause; serde_json's signature says otherwise.
pub fn write(request: &Request<'_>, verdict: &Verdict) -> Result<Vec<u8>, serde_json::Error> {
    let Verdict { patch, denial, warnings, audit } = verdict;
    let patch = if patch.is_empty() { None } else { Some(STANDARD.encode(serde_json::to_vec(patch)?)) };
    let answer = WireAnswer {
        api_version: API_VERSION,
        kind: KIND,
        response: WireResponse {
            uid: &request.uid,
            allowed: denial.is_none(),
            status: denial.as_ref().map(|denial| status(request, denial)),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
            warnings: warnings.iter().take(WARNINGS_MAX).map(|warning| cut(warning)).collect(),
            audit_annotations: audit,
        },
    };
    serde_json::to_vec(&answer)
}

fn status<'a>(request: &'a Request<'_>, denial: &'a Denial) -> WireStatus<'a> {
    let (code, reason) = match denial.objection() {
        Objection::Malformed => (400, "BadRequest"),
        Objection::Invalid => (422, "Invalid"),
        Objection::Conflict => (409, "Conflict"),
        Objection::Forbidden => (403, "Forbidden"),
        Objection::Unknown => (503, "ServiceUnavailable"),
    };
    let cause = |fault: &'a Fault| WireCause {
        reason: fault.kind.reason(),
        message: fault.message(),
        field: fault.path.as_str(),
    };
    WireStatus {
        status: "Failure",
        code,
        reason,
        message: denial.message(),
        details: WireDetails {
            name: &request.name,
            group: types::GROUP,
            kind: &request.kind,
            causes: denial.faults().map(cause).collect(),
            retry_after_seconds: (code == 503).then_some(1),
        },
    }
}

fn cut(warning: &str) -> String {
    let clean: String = warning.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    if clean.len() <= WARNING_LENGTH_MAX {
        return clean;
    }
    let end = (0..=WARNING_LENGTH_MAX - 3).rev().find(|at| clean.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", clean.get(..end).unwrap_or_default())
}

/// One operation of a JSON patch that adds or replaces a value.
#[must_use]
pub fn add(path: &str, value: impl Into<Value>) -> Value {
    serde_json::json!({"op": "add", "path": path, "value": value.into()})
}
