//! A verdict as the body of an answer.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use types::field::Fault;

use super::{API_VERSION, KIND, Operation, Request};
use crate::decide::{Denial, Objection, Verdict};

/// Most warnings of one answer, and the longest; API servers cut both (4096 characters in all).
const WARNINGS_MAX: usize = 16;
const WARNING_LENGTH_MAX: usize = 255;

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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
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
    let Verdict { patch, denial, warnings, audit, is_open: _ } = verdict;
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
        // Of an update clients take a 409 for a version that is too old, and try again without a word: kubectl scale for minutes.
        Objection::Conflict if request.operation == Operation::Update => (403, "Forbidden"),
        Objection::Conflict => (409, "Conflict"),
        // A server-side apply takes a 409 for fields of other managers, and advises --force-conflicts, also where it creates.
        Objection::Leftover | Objection::Forbidden => (403, "Forbidden"),
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
