//! What the chain must know about the world besides the request: namespaces, webhooks, policies and their parameters.
//!
//! Standalone answers from its own store; behind a kube-apiserver the same questions are put to that (`delegate`).

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use store::cache::{Cache, Filter, Object, Query};
use store::{Key, Revision, Write};

use super::REGISTRATION;
use super::config::{self, Kind, Webhook};
use super::policy::{self, ParamKind, Policies, Which};
use super::quota::{Quota, Quotas};
use super::select::{self, Labels};
use crate::admission::GroupVersion;
use crate::error::{Error, Result};
use crate::object::meta;
use crate::parsed::Parsed;
use crate::registry::{self, Registry, Scope};
use crate::storage::{self, Storage, WriteError};

/// Quotas, as the store names them.
const QUOTAS: &str = "resourcequotas";
/// Seconds after which a request may be tried again when the world cannot be asked.
const RETRY_AFTER: u32 = 1;

/// What admission must know of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: Labels,
    /// True once it is on its way out.
    pub is_terminating: bool,
    /// Itself.
    pub object: Arc<Value>,
}

/// Where objects of parameters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Plural.
    pub plural: String,
    /// Group, version and kind.
    pub kind: GroupVersion,
    /// Whether they lie in namespaces.
    pub is_namespaced: bool,
}

/// It is not known which webhooks and policies there are: to go on would be to skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not yet ready to handle request")]
pub struct NotReady;

/// Where the chain looks things up.
pub trait Sources: Send + Sync {
    /// A namespace, at least as new as every write acknowledged before the call; `None` if there is none.
    fn namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Namespace>>>;

    /// All webhooks of one kind, by configuration name, then in the order of their list.
    ///
    /// # Errors
    /// While it is not known which there are.
    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>, NotReady>;

    /// All policies of one kind that have bindings, by name.
    ///
    /// # Errors
    /// While it is not known which there are.
    fn policies(&self, kind: policy::Kind) -> Result<Policies, NotReady>;

    /// Where objects of a kind are that may be parameters; `None`: they are not known here.
    fn params<'a>(&'a self, kind: &'a ParamKind) -> BoxFuture<'a, Result<Option<Served>>>;

    /// Objects of parameters, by name, at least as new as every write acknowledged before the call.
    fn find<'a>(
        &'a self,
        of: &'a Served,
        namespace: Option<&'a str>,
        which: &'a Which,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>>>;

    /// What is known of a kind that is served here.
    fn kind(&self, kind: &GroupVersion) -> Option<Arc<registry::Kind>>;
}

/// The server's own store.
pub struct StoreSources {
    storage: Arc<Storage>,
    registry: Registry,
    mutating: Parsed<Object, Arc<[Webhook]>>,
    validating: Parsed<Object, Arc<[Webhook]>>,
    changing: Parsed<Object, Policies>,
    judging: Parsed<Object, Policies>,
}

impl StoreSources {
    /// Reads from `storage`, which holds the kinds of `registry`.
    #[must_use]
    pub fn new(storage: Arc<Storage>, registry: Registry) -> Self {
        let (mutating, validating) = (Parsed::default(), Parsed::default());
        let (changing, judging) = (Parsed::default(), Parsed::default());
        Self { storage, registry, mutating, validating, changing, judging }
    }

    fn cache(&self) -> &Cache {
        self.storage.cache()
    }

    /// The objects of one kind of configuration; none if this server does not serve it.
    fn listed(&self, plural: &str) -> Result<Vec<Arc<Object>>, NotReady> {
        let Some(resource) = self.cache().resource(&format!("{REGISTRATION}/{plural}")) else { return Ok(Vec::new()) };
        Ok(resource.list(&Query::default()).map_err(|error| not_ready(plural, &error))?.items)
    }

    async fn found(&self, of: &Served, namespace: Option<&str>, which: &Which) -> Result<Vec<Arc<Value>>> {
        let kind = self.registry.find(&of.kind.group, &of.kind.version, &of.plural);
        let kind = kind.ok_or_else(|| Error::internal("parameters are not served here"))?;
        let name = kind.store_resource();
        let resource = self.cache().resource(&name).ok_or_else(|| Error::internal("parameters are not served here"))?;
        self.storage.fresh().await?;
        let decoded = |object: &Arc<Object>| storage::decode(object).map(|kept| Arc::new(kind.shown(kept)));
        match which {
            Which::Named(wanted) => {
                let Ok(key) = Key::new(&name, namespace, wanted) else { return Ok(Vec::new()) };
                resource.get(&key).map_err(unavailable)?.iter().map(decoded).collect()
            }
            Which::Selected(selector) => {
                let query = Query { filter: Filter::of(namespace), ..Query::default() };
                let listed = resource.list(&query).map_err(unavailable)?;
                let values: Vec<Arc<Value>> = listed.items.iter().map(decoded).collect::<Result<_>>()?;
                Ok(values.into_iter().filter(|value| selector.selects(&select::labels(value))).collect())
            }
        }
    }

    async fn lookup(&self, name: &str) -> Result<Option<Namespace>> {
        let namespaces =
            self.cache().resource("namespaces").ok_or_else(|| Error::internal("namespaces are not served here"))?;
        self.storage.fresh().await?;
        let Ok(key) = Key::new("namespaces", None, name) else { return Ok(None) };
        let found = namespaces.get(&key).map_err(unavailable)?;
        found.map(|object| read(object.as_bytes())).transpose()
    }
}

impl Sources for StoreSources {
    fn namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Namespace>>> {
        Box::pin(self.lookup(name))
    }

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>, NotReady> {
        let parsed = match kind {
            Kind::Mutating => &self.mutating,
            Kind::Validating => &self.validating,
        };
        let listed = self.listed(kind.plural())?;
        parsed.of(listed, |objects| {
            let objects = decoded(kind.plural(), objects)?;
            let webhooks: Vec<Webhook> = objects.iter().flat_map(|object| config::parse(kind, object)).collect();
            report_faults(&webhooks);
            Ok(webhooks.into())
        })
    }

    fn policies(&self, kind: policy::Kind) -> Result<Policies, NotReady> {
        let parsed = match kind {
            policy::Kind::Mutating => &self.changing,
            policy::Kind::Validating => &self.judging,
        };
        let policies = self.listed(kind.policies())?;
        let count = policies.len();
        let listed = [policies, self.listed(kind.bindings())?].concat();
        parsed.of(listed, |objects| {
            let objects = decoded(kind.policies(), objects)?;
            let (policies, bindings) = objects.split_at(count.min(objects.len()));
            Ok(policy::config::read(kind, policies, bindings).into())
        })
    }

    fn params<'a>(&'a self, wanted: &'a ParamKind) -> BoxFuture<'a, Result<Option<Served>>> {
        Box::pin(async { Ok(served(&self.registry, wanted)) })
    }

    fn find<'a>(
        &'a self,
        of: &'a Served,
        namespace: Option<&'a str>,
        which: &'a Which,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>>> {
        Box::pin(self.found(of, namespace, which))
    }

    fn kind(&self, wanted: &GroupVersion) -> Option<Arc<registry::Kind>> {
        known(&self.registry, wanted)
    }
}

/// Where objects of a kind of this registry are.
pub(crate) fn served(registry: &Registry, wanted: &ParamKind) -> Option<Served> {
    let is_wanted = |kind: &&registry::Kind| kind.kind == wanted.kind && kind.api_version() == wanted.api_version;
    let kind = registry.kinds().find(is_wanted)?;
    let of =
        GroupVersion { group: kind.group.to_owned(), version: kind.version.to_owned(), name: kind.kind.to_owned() };
    Some(Served { plural: kind.plural.to_owned(), kind: of, is_namespaced: kind.scope == Scope::Namespaced })
}

/// What a registry knows of a kind.
pub(crate) fn known(registry: &Registry, wanted: &GroupVersion) -> Option<Arc<registry::Kind>> {
    let GroupVersion { group, version, name } = wanted;
    let is_wanted = |kind: &&registry::Kind| kind.kind == name && kind.group == group && kind.version == version;
    let kind = registry.kinds().find(is_wanted)?;
    registry.find(group, version, kind.plural).cloned()
}

/// The objects of one kind of configuration as values.
fn decoded(plural: &str, objects: &[Arc<Object>]) -> Result<Vec<Value>, NotReady> {
    let decode =
        |object: &Arc<Object>| serde_json::from_slice(object.as_bytes()).map_err(|error| not_ready(plural, &error));
    objects.iter().map(decode).collect()
}

impl Quotas for StoreSources {
    fn quotas<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Quota>>> {
        Box::pin(async move {
            let Some(resource) = self.cache().resource(QUOTAS) else { return Ok(Vec::new()) };
            self.storage.fresh().await?;
            let query = Query { filter: Filter::of(namespace), ..Query::default() };
            let listed = resource.list(&query).map_err(unavailable)?;
            let quota = |object: &Arc<Object>| {
                let key = object.key();
                let namespace = key.namespace().unwrap_or_default().to_owned();
                let (name, revision) = (key.name().to_owned(), object.revision().0);
                Ok(Quota { namespace, name, revision, object: storage::decode(object)? })
            };
            listed.items.iter().map(quota).collect()
        })
    }

    fn names<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<BTreeSet<String>>> {
        Box::pin(async move {
            let kind = self.registry.resource(group, resource);
            let Some(resource) = kind.and_then(|kind| self.cache().resource(&kind.store_resource())) else {
                return Ok(BTreeSet::new());
            };
            self.storage.fresh().await?;
            let query = Query { filter: Filter::of(Some(namespace)), ..Query::default() };
            let listed = resource.list(&query).map_err(unavailable)?;
            Ok(listed.items.iter().map(|object| object.key().name().to_owned()).collect())
        })
    }

    fn set_status<'a>(&'a self, quota: &'a Quota, status: Value) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut object = quota.object.clone();
            if let Some(map) = object.as_object_mut() {
                map.insert("status".to_owned(), status);
            }
            meta::remove(&mut object, "resourceVersion");
            let value =
                serde_json::to_vec(&object).map_err(|error| Error::internal(format!("encoding a quota: {error}")))?;
            let key = Key::new(QUOTAS, Some(&quota.namespace), &quota.name)
                .map_err(|error| Error::internal(format!("the key of a quota: {error}")))?;
            match self.storage.write(Write::update(key, Revision(quota.revision), value.into())).await {
                Ok(_revision) => Ok(true),
                Err(WriteError::Refused(_changed)) => Ok(false),
                Err(WriteError::Failed(error)) => Err(error),
            }
        })
    }
}

fn report_faults(webhooks: &[Webhook]) {
    for webhook in webhooks {
        if let Err(fault) = &webhook.target {
            let (configuration, name, policy) = (&webhook.configuration, &webhook.name, webhook.failure_policy);
            tracing::warn!(
                configuration,
                webhook = name,
                fault,
                ?policy,
                "a webhook cannot be called: its failure policy applies"
            );
        }
    }
}

fn read(bytes: &[u8]) -> Result<Namespace> {
    let object: Value =
        serde_json::from_slice(bytes).map_err(|error| Error::internal(format!("reading a namespace: {error}")))?;
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    Ok(Namespace {
        labels: labels.map(|labels| labels.iter().filter_map(pair).collect()).unwrap_or_default(),
        is_terminating: phase == Some("Terminating")
            || object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()),
        object: Arc::new(object),
    })
}

fn unavailable(error: store::cache::Error) -> Error {
    Error::Unavailable { message: format!("looking up what admission needs: {error}"), retry_after: RETRY_AFTER }
}

/// The client learns that it is too early; the reason is for the log.
pub(crate) fn not_ready(plural: &str, reason: &dyn std::fmt::Display) -> NotReady {
    tracing::error!(plural, %reason, "it is not known which there are: what admission should see is refused");
    NotReady
}
