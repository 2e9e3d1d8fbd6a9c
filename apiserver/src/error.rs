//! What can go wrong with a request, in the reasons of Kubernetes.
//!
//! This module must not know HTTP codes: [`crate::wire::status`] is the one place that does.

use std::fmt;

/// Result of anything that answers a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A resource (plural) or a kind, with its group: what messages name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qualified {
    /// Group; empty for the core group.
    pub group: String,
    /// Plural resource name or kind.
    pub name: String,
}

impl Qualified {
    /// `name` of `group`.
    #[must_use]
    pub fn new(group: &str, name: &str) -> Self {
        Self { group: group.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Qualified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.name),
            group => write!(f, "{}.{group}", self.name),
        }
    }
}

/// One fault of a refused object: `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    pub reason: String,
    /// For people, without the field.
    pub message: String,
    /// Path of the field, such as `spec.shards`; empty if none.
    pub field: String,
}

impl Cause {
    /// `Invalid value`: the value is of the right type and not allowed.
    #[must_use]
    pub fn invalid(field: &str, value: &dyn fmt::Display, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"))
    }

    /// `Required value`: it has to be there.
    #[must_use]
    pub fn required(field: &str, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, joined("Required value", detail))
    }

    /// `Forbidden`: it must not be there or must not change.
    #[must_use]
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, joined("Forbidden", detail))
    }

    /// `Unsupported value`: not one of a known set.
    #[must_use]
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|item| format!("{item:?}")).collect();
        let message = format!("Unsupported value: {value:?}: supported values: {}", list.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    fn new(reason: &str, field: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, field: field.to_owned() }
    }
}

fn joined(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such object.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource.
        resource: Qualified,
        /// The name.
        name: String,
    },
    /// The path is inside an API group and names nothing that is served.
    #[error("the server could not find the requested resource")]
    ResourceNotFound,
    /// The path is nothing at all; answered as plain text.
    #[error("404 page not found")]
    PageNotFound,
    /// The path exists, the method does not.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// The resource exists, and has no such verb.
    #[error("{verb} is not supported on resources of kind \"{resource}\"")]
    MethodNotSupported {
        /// In the words of RBAC.
        verb: &'static str,
        /// The resource.
        resource: Qualified,
    },
    /// The name is taken.
    #[error("{}{resource} {name:?} already exists{}", if *.terminating { "object is being deleted: " } else { "" },
        if *.generated { ", the server was not able to generate a unique name for the object" } else { "" })]
    AlreadyExists {
        /// The resource.
        resource: Qualified,
        /// The name.
        name: String,
        /// The object that has the name is on its way out.
        terminating: bool,
        /// The name came from `generateName`; the client may simply try again.
        generated: bool,
    },
    /// The object is not as the client believes.
    #[error("Operation cannot be fulfilled on {resource} {name:?}: {message}")]
    Conflict {
        /// The resource.
        resource: Qualified,
        /// The name.
        name: String,
        /// What differs.
        message: String,
        /// Seconds after which a retry is worthwhile.
        retry_after: Option<u32>,
    },
    /// The content is refused; every fault is listed.
    #[error("{kind} {name:?} is invalid: {}", sentences(.causes))]
    Invalid {
        /// Kind of the object.
        kind: Qualified,
        /// Its name; may be empty.
        name: String,
        /// All faults.
        causes: Vec<Cause>,
    },
    /// A JSON patch cannot be applied to the object; 422 without a kind, as Kubernetes answers it.
    #[error("{0}")]
    Unprocessable(String),
    /// The request itself makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// Nobody we know.
    #[error("Unauthorized")]
    Unauthorized,
    /// Known, and not allowed. The message is complete; the resource is for `details`.
    #[error("{message}")]
    Forbidden {
        /// The resource, if any.
        resource: Qualified,
        /// The object's name, if any.
        name: String,
        /// The whole message.
        message: String,
        /// Causes, such as NamespaceTerminating.
        causes: Vec<Cause>,
    },
    /// A webhook said no. Code and reason are the hook's own, if it gave any.
    #[error("{message}")]
    Denied {
        /// The whole message.
        message: String,
        /// The hook's reason; empty if none.
        reason: String,
        /// The hook's code.
        code: Option<u16>,
        /// Details the hook gave, passed through.
        details: Option<serde_json::Value>,
    },
    /// A patch makes something of the object that cannot be read; 422 without a kind.
    #[error(" \"\" is invalid: patch: Invalid value: {object:?}: {why}")]
    BadPatch {
        /// What it makes, as JSON.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// No representation the client accepts.
    #[error("only the following media types are accepted: {}", .0.join(", "))]
    NotAcceptable(Vec<&'static str>),
    /// A body in a form this server does not read.
    #[error("the body of the request was in an unknown format - accepted media types include: {}", .0.join(", "))]
    UnsupportedMediaType(Vec<&'static str>),
    /// Others own what is applied, each field with its owner.
    #[error("{message}")]
    ApplyConflict {
        /// The whole message.
        message: String,
        /// A cause for each field.
        causes: Vec<Cause>,
    },
    /// A request that makes no sense where Kubernetes answers 500 without a reason, and so do we: an applied object that does not fit
    /// its kind, a version that is none.
    #[error("{0}")]
    Unmergeable(String),
    /// The body, the object or the patch is too large.
    #[error("{0}")]
    TooLarge(String),
    /// The revision is no longer in the history.
    #[error("{message}")]
    Expired {
        /// The whole message.
        message: String,
        /// A token with which the list may be continued on a newer snapshot.
        continue_token: Option<String>,
    },
    /// The revision is from the future.
    #[error("Timeout: Too large resource version: {requested}, current: {current}")]
    TooLargeResourceVersion {
        /// What the client asked for.
        requested: u64,
        /// What the store has.
        current: u64,
    },
    /// Not done in time.
    #[error("{0}")]
    Timeout(String),
    /// Too much at once.
    #[error("{message}")]
    TooManyRequests {
        /// The whole message.
        message: String,
        /// Seconds to wait.
        retry_after: u32,
    },
    /// Not now: starting, stopping, or the store does not answer.
    #[error("{message}")]
    Unavailable {
        /// The whole message.
        message: String,
        /// Seconds to wait.
        retry_after: u32,
    },
    /// Our own fault, or a webhook that could not be asked.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

impl Error {
    /// 400 with a message.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest(message.into())
    }

    /// 500 with a message.
    #[must_use]
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::Internal(message.to_string())
    }
}

/// Most causes that an answer tells: more than anybody mends at once.
const CAUSES_MOST: usize = 100;
/// Most bytes of them: several causes may each repeat a value that is nearly as long as the request.
const CAUSES_BYTES: usize = 1 << 20;

/// The causes that an answer tells, so that no request is answered with many times its own length; the first one always is.
#[must_use]
pub(crate) fn told(causes: &[Cause]) -> &[Cause] {
    let mut bytes = 0_usize;
    let fits = |cause: &&Cause| {
        bytes = bytes.saturating_add(cause.message.len()).saturating_add(cause.field.len());
        bytes <= CAUSES_BYTES
    };
    let fitting = causes.iter().take(CAUSES_MOST).take_while(fits).count().max(1);
    causes.get(..fitting).unwrap_or(causes)
}

fn sentences(causes: &[Cause]) -> String {
    let sentence = |cause: &Cause| match cause.field.as_str() {
        "" => cause.message.clone(),
        field => format!("{field}: {}", cause.message),
    };
    let told = told(causes);
    match (told, causes.len().saturating_sub(told.len())) {
        ([one], 0) => sentence(one),
        (many, 0) => format!("[{}]", many.iter().map(sentence).collect::<Vec<_>>().join(", ")),
        (many, more) => {
            format!("[{}, and {more} more]", many.iter().map(sentence).collect::<Vec<_>>().join(", "))
        }
    }
}
