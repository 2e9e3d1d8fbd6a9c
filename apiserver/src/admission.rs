//! The seam between the verbs and admission: what is asked, and the trait that answers.
//!
//! The verbs call it in the right order (mutate → prepare → validate → admission validate → store); the real chain,
//! with webhooks and NamespaceLifecycle, lives in `admit`. This module must not know how an answer is found.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    error::Result,
    registry::{Versions, kind::api_version},
    request::{Annotations, User, Warnings},
};

/// What admission is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

impl Operation {
    /// The word of AdmissionReview and of webhook rules.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Group, version and a kind or a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersion {
    /// Group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind (CamelCase) or resource (plural), as the field says that holds it.
    pub name: String,
}

impl GroupVersion {
    /// `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

/// In which version of the resource the operation is looked at. Rules may name another version than the request's.
#[derive(Clone, Debug, Default)]
pub struct Aspect {
    /// The versions of the resource.
    pub versions: Versions,
    /// True if the object is one of the resource, and so changes with its version; not a Scale or an action's record.
    pub is_own: bool,
    /// Kind and resource of the request, where this is not the request's version.
    pub requested: Option<(GroupVersion, GroupVersion)>,
}

/// Everything about the operation but the object under change.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// CREATE, UPDATE, DELETE or CONNECT.
    pub operation: Operation,
    /// Kind of `object` (for `scale`: autoscaling/v1 Scale).
    pub kind: GroupVersion,
    /// The resource in the URL.
    pub resource: GroupVersion,
    /// The subresource in the URL.
    pub subresource: Option<String>,
    /// Name of the object; empty on create with `generateName` until a name was made.
    pub name: String,
    /// Namespace; absent for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Who asks.
    pub user: User,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of meta.k8s.io/v1, with apiVersion and kind.
    pub options: Value,
    /// The new object, in the request's version. Absent on DELETE, and while it is being mutated (it is the argument then).
    pub object: Option<Arc<Value>>,
    /// The live object on UPDATE and DELETE.
    pub old_object: Option<Arc<Value>>,
    /// Warnings for the client.
    pub warnings: Warnings,
    /// Audit annotations.
    pub annotations: Annotations,
    /// What is held until the operation is over.
    pub holds: Holds,
    /// In which version all of this is.
    pub aspect: Aspect,
}

impl Attributes {
    /// The kind and the resource of the request itself.
    #[must_use]
    pub fn requested(&self) -> (&GroupVersion, &GroupVersion) {
        match &self.aspect.requested {
            Some((kind, resource)) => (kind, resource),
            None => (&self.kind, &self.resource),
        }
    }

    /// The same operation in another version of the resource.
    #[must_use]
    pub fn in_version(&self, version: &str) -> Cow<'_, Self> {
        if self.resource.version == version {
            return Cow::Borrowed(self);
        }
        let mut seen = self.clone();
        let (kind, resource) = self.requested();
        seen.aspect.requested = Some((kind.clone(), resource.clone()));
        version.clone_into(&mut seen.resource.version);
        if self.aspect.is_own {
            version.clone_into(&mut seen.kind.version);
        }
        let shown =
            |object: &Option<Arc<Value>>| object.as_ref().map(|object| Arc::new(seen.shown(object).into_owned()));
        let (object, old_object) = (shown(&self.object), shown(&self.old_object));
        Cow::Owned(Self { object, old_object, ..seen })
    }

    /// An object of the request as it is shown in this version.
    #[must_use]
    pub fn shown<'o>(&self, object: &'o Value) -> Cow<'o, Value> {
        match &self.aspect.requested {
            Some((_, resource)) => Cow::Owned(self.convert(object.clone(), resource, &self.resource)),
            None => Cow::Borrowed(object),
        }
    }

    /// An object that is shown in this version, in that of the request.
    #[must_use]
    pub fn back(&self, object: Value) -> Value {
        self.convert(object, &self.resource, self.requested().1)
    }

    fn convert(&self, object: Value, from: &GroupVersion, to: &GroupVersion) -> Value {
        if !self.aspect.is_own {
            return object;
        }
        self.aspect.versions.convert(object, &from.api_version(), &to.api_version())
    }
}

/// What admission holds for an operation until it is over, such as its place in a quota: released when the last copy of
/// the attributes goes.
#[derive(Clone, Default)]
pub struct Holds(Arc<Mutex<Vec<Box<dyn Send>>>>);

impl Holds {
    /// Keeps something until then.
    pub fn keep(&self, what: impl Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(what));
    }
}

impl std::fmt::Debug for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holds")
    }
}

/// Decides whether an operation may proceed, and may change the object on the way.
pub trait Admission: Send + Sync {
    /// Asks everything that may change the object, one after the other. On DELETE `object` is `Value::Null` and must
    /// be answered unchanged.
    fn mutate<'a>(&'a self, attributes: &'a Attributes, object: Value) -> BoxFuture<'a, Result<Value>>;

    /// Asks everything that only judges. `attributes.object` is what is going to be stored.
    fn validate<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<()>>;
}

/// Admits everything unchanged: for tests, and for parts run alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn mutate<'a>(&'a self, _: &'a Attributes, object: Value) -> BoxFuture<'a, Result<Value>> {
        Box::pin(async move { Ok(object) })
    }

    fn validate<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
