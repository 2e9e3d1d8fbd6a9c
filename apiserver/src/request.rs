//! What the server knows about one request before it looks at a body: who asks, what for, until when.
//!
//! These are the words every filter, verb and admission step shares. This module must not know HTTP bodies,
//! storage or any kind by name.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use tokio::time::Instant;

use crate::error::Error;
use crate::filter::audit::Record;
use crate::filter::authz::{Authorizer, Union};

/// What a request does, in the words of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection or one object.
    Watch,
    /// Makes an object, or calls a create-only subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes a part of an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// The word used in RBAC rules, discovery and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// True if the verb may change something; false for the three reading verbs.
    #[must_use]
    pub fn is_mutating(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection => true,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Coordinates of a resource request. Purely what the path says: the resource need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: Option<String>,
    /// Namespace of the request; for `/api/v1/namespaces/x` it is `x`, as in Kubernetes.
    pub namespace: Option<String>,
    /// Name of the object in the path.
    pub name: Option<String>,
    /// The one name that `fieldSelector=metadata.name=…` of a list or watch admits; authorization may use it.
    pub selected_name: Option<String>,
}

/// One request, parsed from method, path and query (see [`crate::route`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is done. For paths that are no resource: the verb nearest to the method.
    pub verb: Verb,
    /// The HTTP method in lower case: what RBAC calls the verb of a non-resource path.
    pub method: String,
    /// The path, percent-decoded.
    pub path: String,
    /// The resource; absent for paths such as `/version` or `/apis`.
    pub resource: Option<ResourcePath>,
    /// Query parameters in order of appearance, percent-decoded.
    pub query: Query,
}

impl Call {
    /// True for requests that may legitimately last: no deadline, not counted against the in-flight limits.
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        self.verb == Verb::Watch
    }
}

/// Decoded query parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Who asks, as authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name, such as `kun:admin`.
    pub name: String,
    /// Unique id, if the authenticator knows one.
    pub uid: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A user as Kubernetes' objects tell it (`authentication.k8s.io` UserInfo).
#[derive(Debug, Serialize)]
pub struct UserInfo<'a> {
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user as others are told.
    #[must_use]
    pub fn info(&self) -> UserInfo<'_> {
        UserInfo { username: &self.name, uid: &self.uid, groups: &self.groups, extra: &self.extra }
    }

    /// True if the user is a member of `group`.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|have| have == group)
    }
}

/// Everything a verb may know about the request besides its body.
#[derive(Clone, Debug)]
pub struct Context {
    /// Who asks.
    pub user: User,
    /// What for.
    pub call: Call,
    /// When the answer is due; absent for long-running requests.
    pub deadline: Option<Instant>,
    /// Sent back as `Warning` headers.
    pub warnings: Warnings,
    /// Written to the audit line.
    pub annotations: Annotations,
    /// What the audit policy wants to know of the request.
    pub record: Record,
    /// Value of `User-Agent`; the default field manager is taken from it.
    pub user_agent: String,
    /// Identifies the request in logs, audit and the `Audit-Id` header.
    pub audit_id: String,
    /// Why the user may not create what an apply would make; only set for applies.
    pub refused_create: Option<Error>,
    /// Who knows what somebody may do.
    pub rights: Rights,
}

/// Knows what somebody may do. By default: nobody may do anything.
#[derive(Clone)]
pub struct Rights(pub Arc<dyn Authorizer>);

impl Default for Rights {
    fn default() -> Self {
        Self(Arc::new(Union::of(Vec::new())))
    }
}

impl std::ops::Deref for Rights {
    type Target = dyn Authorizer;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rights")
    }
}

impl Context {
    /// A context for `call` by `user`, with nothing else known.
    #[must_use]
    pub fn new(user: User, call: Call) -> Self {
        Self {
            user,
            call,
            deadline: None,
            warnings: Warnings::default(),
            annotations: Annotations::default(),
            record: Record::default(),
            user_agent: String::new(),
            audit_id: String::new(),
            refused_create: None,
            rights: Rights::default(),
        }
    }
}

/// Most characters of all warnings of one response together; past it each is cut, then dropped (as Kubernetes does).
const WARNINGS_TOTAL: usize = 4096;
/// Length a warning is cut to once the total is reached.
const WARNING_CUT: usize = 256;

/// Warnings for the client, collected from anywhere in the request, without duplicates, in order.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning unless it is there already. One has a character at least: of more than may be sent in all, no more is kept or compared.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() <= WARNINGS_TOTAL && !text.is_empty() && !list.contains(&text) {
            list.push(text);
        }
    }

    /// The warnings, bounded: once their sum passes 4096 characters each is cut to 256, then the rest is dropped.
    #[must_use]
    pub fn bounded(&self) -> Vec<String> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = list.iter().map(|text| text.chars().count()).sum();
        if total <= WARNINGS_TOTAL {
            return list.clone();
        }
        let mut sum = 0;
        list.iter()
            .map(|text| text.chars().take(WARNING_CUT).collect::<String>())
            .take_while(|text| {
                sum += text.chars().count();
                sum <= WARNINGS_TOTAL
            })
            .collect()
    }
}

/// Audit annotations, collected from anywhere in the request. The first value of a key stays.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    values: BTreeMap<String, String>,
    wants_details: bool,
}

impl Annotations {
    /// Sets a key that is not set yet.
    pub fn set(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.values.entry(key.into()).or_insert_with(|| value.into());
    }

    /// The same of what holds parts of the object: only for an audit that records what was sent.
    pub fn set_detail(&self, key: impl Into<String>, value: impl FnOnce() -> String) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).wants_details {
            self.set(key, value());
        }
    }

    /// From now on details are kept, too.
    pub fn want_details(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wants_details = true;
    }

    /// A copy of what was collected so far.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_sent_once_and_long_ones_are_cut_then_dropped() {
        let warnings = Warnings::default();
        warnings.add("a");
        warnings.add("a");
        assert_eq!(warnings.bounded(), ["a"]);

        let warnings = Warnings::default();
        for index in 0..20 {
            warnings.add(format!("{index:04}{}", "x".repeat(400)));
        }
        let sent = warnings.bounded();
        assert_eq!(sent.len(), 16);
        assert!(sent.iter().all(|text| text.len() == 256));
    }

    /// Half a million of them, each compared with all before it, took a processor until the deadline.
    #[test]
    fn more_warnings_than_may_be_sent_are_not_kept() {
        let warnings = Warnings::default();
        (0..10_000).for_each(|index| warnings.add(index.to_string()));
        assert_eq!(warnings.0.lock().unwrap().len(), WARNINGS_TOTAL + 1);
        let sent = warnings.bounded();
        assert_eq!((sent.len(), sent.concat().len()), (1_301, 4_094));
        assert_eq!(sent.last().unwrap(), "1300");
    }

    #[test]
    fn the_first_audit_annotation_of_a_key_stays() {
        let annotations = Annotations::default();
        annotations.set("k", "first");
        annotations.set("k", "second");
        assert_eq!(annotations.snapshot().get("k").map(String::as_str), Some("first"));
    }
}
