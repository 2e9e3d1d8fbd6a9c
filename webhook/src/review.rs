//! AdmissionReview v1 ⇄ [`Request`] and `Verdict`.
//!
//! A body is read once: texts are borrowed from it, objects are built as far as a decision needs them.

mod read;
mod write;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::Value;

pub use self::{read::read, write::write};
pub use crate::lean::{Scaled, Subject};

/// The version of AdmissionReview that is spoken.
const API_VERSION: &str = "admission.k8s.io/v1";
/// Its kind.
const KIND: &str = "AdmissionReview";

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
    /// The status of any of them, written by somebody who is not our controller: we are not asked about its own writes.
    Status,
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
            ("redisclusters" | "redisbackups" | "redisoperations", "status") => Self::Status,
            _ => Self::Other,
        }
    }
}

/// Who asks, as the API server has authenticated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Author {
    /// Name.
    pub username: String,
    /// Identifies them for ever; may be empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What the authenticator adds.
    pub extra: BTreeMap<String, Vec<String>>,
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
    /// Who asks.
    pub author: Author,
    /// The new object; absent on DELETE.
    pub object: Option<Subject>,
    /// The old object; absent on CREATE.
    pub old_object: Option<Subject>,
}

/// Why a body is not answered with a review.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of the form.
    #[error("reading the AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    /// Not UTF-8, which all JSON is.
    #[error("reading the AdmissionReview")]
    NotText(#[source] std::str::Utf8Error),
    /// Another version or kind.
    #[error("reading the AdmissionReview: it must be {API_VERSION} {KIND} with a request")]
    NotAReview,
}

/// One operation of a JSON patch that adds or replaces a value.
#[must_use]
pub fn add(path: &str, value: impl Into<Value>) -> Value {
    serde_json::json!({"op": "add", "path": path, "value": value.into()})
}
