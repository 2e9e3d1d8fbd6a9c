//! AdmissionReview, both ways: the question as bytes, the answer as a verdict; pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{Kind, ReviewVersion};
use crate::admission::{Attributes, GroupVersion};
use crate::error::Error;
use crate::request::UserInfo;

const KIND: &str = "AdmissionReview";
/// The one type of patches.
pub(super) const PATCH_TYPE: &str = "JSONPatch";
/// Longest warning kept of a webhook's answer, and how many: what it writes reaches the client's terminal.
const WARNING_MAX: usize = 1024;
const WARNINGS_MAX: usize = 32;
/// Most audit annotations kept of one answer, and the longest value.
const ANNOTATIONS_MAX: usize = 32;
const ANNOTATION_MAX: usize = 10 * 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    kind: KindRef<'a>,
    resource: ResourceRef<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_resource: Option<&'a str>,
    request_kind: KindRef<'a>,
    request_resource: ResourceRef<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_sub_resource: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    operation: &'static str,
    user_info: UserInfo<'a>,
    object: &'a Value,
    old_object: &'a Value,
    dry_run: bool,
    options: &'a Value,
}

#[derive(Serialize)]
struct KindRef<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct ResourceRef<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

fn kind_ref(kind: &GroupVersion) -> KindRef<'_> {
    KindRef { group: &kind.group, version: &kind.version, kind: &kind.name }
}

fn resource_ref(resource: &GroupVersion) -> ResourceRef<'_> {
    ResourceRef { group: &resource.group, version: &resource.version, resource: &resource.name }
}

/// The question, encoded. `object` is the object under change; null on DELETE.
pub(super) fn question(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes,
    object: &Value,
) -> serde_json::Result<Vec<u8>> {
    let Attributes {
        operation, kind, resource, subresource, name, namespace, user, dry_run, options, old_object, ..
    } = attributes;
    let (requested_kind, requested_resource) = attributes.requested();
    let request = Request {
        uid,
        kind: kind_ref(kind),
        resource: resource_ref(resource),
        sub_resource: subresource.as_deref(),
        request_kind: kind_ref(requested_kind),
        request_resource: resource_ref(requested_resource),
        request_sub_resource: subresource.as_deref(),
        name,
        namespace: namespace.as_deref(),
        operation: operation.as_str(),
        user_info: user.info(),
        object,
        old_object: old_object.as_deref().unwrap_or(&Value::Null),
        dry_run: *dry_run,
        options,
    };
    serde_json::to_vec(&Review { kind: KIND, api_version: version.api_version(), request })
}

/// What a webhook said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Whether the request may go on.
    pub(super) allowed: bool,
    /// Why not, as `metav1.Status`.
    pub(super) status: Refusal,
    /// How to change the object; only of mutating webhooks.
    pub(super) patch: Option<Vec<u8>>,
    /// For the audit, without the webhook's name.
    pub(super) annotations: BTreeMap<String, String>,
    /// For the client.
    pub(super) warnings: Vec<String>,
}

/// The parts of a refusal's Status that are passed on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    message: Option<String>,
    reason: Option<String>,
    code: Option<i64>,
    details: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    allowed: bool,
    status: Option<Refusal>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// Reads an answer to the question `uid`; a text says why it is none.
pub(super) fn verdict(kind: Kind, version: ReviewVersion, uid: &str, bytes: &[u8]) -> Result<Verdict, String> {
    let mut answer: Answer =
        serde_json::from_slice(bytes).map_err(|error| format!("the answer is no AdmissionReview: {error}"))?;
    let response = answer.response.take().ok_or("webhook response was absent")?;
    if version == ReviewVersion::V1 {
        answers(&answer, &response, version, uid)?;
    }
    let patch = patch(kind, version, &response)?;
    let warnings = response.warnings.unwrap_or_default().into_iter().take(WARNINGS_MAX);
    let annotations = response.audit_annotations.unwrap_or_default().into_iter().take(ANNOTATIONS_MAX);
    Ok(Verdict {
        allowed: response.allowed,
        status: response.status.unwrap_or_default(),
        patch,
        annotations: annotations.map(|(key, value)| (key, cut(&value, ANNOTATION_MAX))).collect(),
        warnings: warnings.map(|text| cut(&text, WARNING_MAX)).collect(),
    })
}

/// An answer says what it is and to which question.
fn answers(answer: &Answer, response: &Response, version: ReviewVersion, uid: &str) -> Result<(), String> {
    let expected = version.api_version();
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    if answer.api_version != expected || answer.kind != KIND {
        let got = format!("{}, Kind={}", answer.api_version, answer.kind);
        return Err(format!("expected webhook response of {expected}, Kind={KIND}, got {got}"));
    }
    Ok(())
}

/// The patch of an answer. Whoever only judges has none; in v1 he must not try, before he was not heard.
fn patch(kind: Kind, version: ReviewVersion, response: &Response) -> Result<Option<Vec<u8>>, String> {
    let patch = response.patch.as_deref().filter(|patch| !patch.is_empty());
    match (kind, version, patch, response.patch_type.as_deref()) {
        (Kind::Validating, ReviewVersion::V1, Some(_), _) => {
            Err("validating webhook may not return response.patch".to_owned())
        }
        (Kind::Validating, ReviewVersion::V1, None, Some(_)) => {
            Err("validating webhook may not return response.patchType".to_owned())
        }
        (Kind::Mutating, ReviewVersion::V1, None, Some(_)) => {
            Err("webhook returned response.patchType but not response.patch".to_owned())
        }
        (Kind::Mutating, ReviewVersion::V1, Some(_), None) => {
            Err("webhook returned response.patch but not response.patchType".to_owned())
        }
        (Kind::Mutating, ReviewVersion::V1, Some(_), Some(other)) if other != PATCH_TYPE => {
            Err(format!("webhook returned invalid response.patchType of {other:?}"))
        }
        (Kind::Mutating, ReviewVersion::V1, Some(patch), Some(_))
        | (Kind::Mutating, ReviewVersion::V1beta1, Some(patch), _) => {
            let bytes = BASE64_STANDARD.decode(patch);
            bytes.map(Some).map_err(|_| "webhook returned a response.patch that is not base64".to_owned())
        }
        (Kind::Validating, ReviewVersion::V1, None, None)
        | (Kind::Mutating, ReviewVersion::V1, None, None)
        | (Kind::Validating, ReviewVersion::V1beta1, _, _)
        | (Kind::Mutating, ReviewVersion::V1beta1, None, _) => Ok(None),
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// The refusal as the client sees it, in Kubernetes' words.
pub(super) fn denied(webhook: &str, refusal: Refusal) -> Error {
    let Refusal { message, reason, code, details } = refusal;
    let denied = format!("admission webhook {webhook:?} denied the request");
    let reason = reason.unwrap_or_default();
    let message = match (message.as_deref().unwrap_or_default(), reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Error::Denied { message, reason, code: code.and_then(|code| u16::try_from(code).ok()), details }
}

#[cfg(test)]
mod tests;
