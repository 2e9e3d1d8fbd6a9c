//! The verbs, one file each, generic over the entries of the registry. Every verb returns an [`Answer`] or an error;
//! none writes to the response.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    admission::{Admission, Aspect, Attributes, GroupVersion, Holds, Operation},
    error::Result,
    registry::{Kind, Registry},
    request::Context,
    route::Route,
    storage::Storage,
    wire::negotiate::Negotiated,
    world::World,
};

pub mod action;
pub mod apply;
mod beside;
pub mod change;
pub mod create;
pub mod delete;
pub mod get;
pub mod incoming;
pub mod list;
pub mod options;
pub mod patch;
pub mod recover;
pub mod review;
pub mod scale;
pub mod token;
pub mod update;
pub mod watch;

/// Everything a verb works with.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The kinds.
    pub registry: &'a Registry,
    /// The objects.
    pub storage: &'a Arc<Storage>,
    /// Who may object.
    pub admission: &'a dyn Admission,
    /// Time and chance.
    pub world: &'a Arc<dyn World>,
    /// Held while what excludes others is checked and recorded, so that two cannot both find that none is there.
    pub actions: &'a Mutex<()>,
    /// The request.
    pub context: &'a Context,
    /// What it is about.
    pub route: Route<'a>,
    /// What it wants back.
    pub form: Negotiated,
}

/// What a verb answers.
pub enum Answer {
    /// An object of a kind, encoded as it is kept, with its resourceVersion.
    Object {
        /// 201 instead of 200.
        created: bool,
        /// Its kind is the route's unless an action made it.
        kind_of: String,
        /// JSON.
        json: Bytes,
    },
    /// What has no other view than itself: Status.
    Plain(Value),
    /// A Scale.
    Scale(Value),
    /// A list.
    List(list::Listing),
    /// A stream of events.
    Watch(Box<watch::Stream>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Object { json, .. } => f.debug_tuple("Object").field(json).finish(),
            Self::Plain(value) => f.debug_tuple("Plain").field(value).finish(),
            Self::Scale(value) => f.debug_tuple("Scale").field(value).finish(),
            Self::List(_) => f.write_str("List"),
            Self::Watch(_) => f.write_str("Watch"),
        }
    }
}

impl<'a> Work<'a> {
    /// Attributes of an operation on `kind`; `shown` is the kind admission sees, if not the kind itself.
    #[must_use]
    pub fn attributes(
        &self,
        operation: Operation,
        kind: &Kind,
        shown: Option<GroupVersion>,
        options: Value,
    ) -> Attributes {
        let of = |name: &str| GroupVersion {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            name: name.to_owned(),
        };
        Attributes {
            operation,
            aspect: Aspect { versions: kind.versions.clone(), is_own: shown.is_none(), requested: None },
            kind: shown.unwrap_or_else(|| of(kind.kind)),
            resource: of(kind.plural),
            subresource: self.route.subresource.map(|sub| sub.name().to_owned()),
            name: self.route.name.unwrap_or_default().to_owned(),
            namespace: self.route.namespace.map(str::to_owned),
            user: self.context.user.clone(),
            dry_run: options.get("dryRun").is_some(),
            options,
            object: None,
            old_object: None,
            warnings: self.context.warnings.clone(),
            annotations: self.context.annotations.clone(),
            holds: Holds::default(),
        }
    }

    /// The name in the path. Routing lets no call through to a verb on one object without a name.
    pub fn name(&self) -> Result<&'a str> {
        self.route.name.ok_or(crate::error::Error::MethodNotAllowed)
    }

    /// The key of the object in the path.
    pub fn key(&self) -> Result<store::Key> {
        Storage::key(self.route.kind, self.route.namespace, self.name()?)
    }
}
