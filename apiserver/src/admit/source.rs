//! What the chain must know about the world besides the request: namespaces and webhooks.
//!
//! Standalone answers from its own store; behind a kube-apiserver the same questions will be put to that.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use serde_json::Value;
use store::Key;
use store::cache::{Cache, Object, Query, Resource};

use super::REGISTRATION;
use super::config::{self, Kind, Webhook};
use super::select::Labels;
use crate::error::{Error, Qualified, Result};
use crate::storage::Storage;

/// Seconds after which a request may be tried again when the world cannot be asked.
const RETRY_AFTER: u32 = 1;

/// What admission must know of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: Labels,
    /// True once it is on its way out.
    pub is_terminating: bool,
}

/// Where the chain looks things up.
pub trait Sources: Send + Sync {
    /// A namespace, at least as new as every write acknowledged before the call; `None` if there is none.
    fn namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Namespace>>>;

    /// All webhooks of one kind, by configuration name, then in the order of their list.
    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>>;
}

/// The server's own store.
pub struct StoreSources {
    storage: Arc<Storage>,
    mutating: Parsed,
    validating: Parsed,
}

/// Webhooks as last parsed; parsed again when one of their objects changes.
#[derive(Default)]
struct Parsed(ArcSwapOption<Memory>);

/// Webhooks, and the objects they were parsed from.
struct Memory {
    objects: Vec<Arc<Object>>,
    webhooks: Arc<[Webhook]>,
}

impl StoreSources {
    /// Reads from `storage`.
    #[must_use]
    pub fn new(storage: Arc<Storage>) -> Self {
        Self { storage, mutating: Parsed::default(), validating: Parsed::default() }
    }

    fn cache(&self) -> &Cache {
        self.storage.cache()
    }

    async fn find(&self, name: &str) -> Result<Option<Namespace>> {
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
        Box::pin(self.find(name))
    }

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>> {
        // A server that does not serve the configurations has none.
        let Some(resource) = self.cache().resource(&format!("{REGISTRATION}/{}", kind.plural())) else {
            return Ok(Arc::default());
        };
        match kind {
            Kind::Mutating => self.mutating.of(kind, resource),
            Kind::Validating => self.validating.of(kind, resource),
        }
    }
}

impl Parsed {
    fn of(&self, kind: Kind, resource: &Resource) -> Result<Arc<[Webhook]>> {
        let listed = resource.list(&Query::default()).map_err(|_| not_ready(kind))?;
        if let Some(memory) = self.0.load().as_ref().filter(|memory| memory.is_of(&listed.items)) {
            return Ok(memory.webhooks.clone());
        }
        let mut webhooks = Vec::new();
        for object in &listed.items {
            let value: Value = serde_json::from_slice(object.as_bytes()).map_err(|_| not_ready(kind))?;
            webhooks.extend(config::parse(kind, &value));
        }
        report_faults(&webhooks);
        let webhooks: Arc<[Webhook]> = webhooks.into();
        self.0.store(Some(Arc::new(Memory { objects: listed.items, webhooks: webhooks.clone() })));
        Ok(webhooks)
    }
}

impl Memory {
    fn is_of(&self, objects: &[Arc<Object>]) -> bool {
        self.objects.len() == objects.len() && self.objects.iter().zip(objects).all(|(a, b)| Arc::ptr_eq(a, b))
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
    })
}

fn unavailable(error: store::cache::Error) -> Error {
    Error::Unavailable { message: format!("looking up a namespace: {error}"), retry_after: RETRY_AFTER }
}

/// The answer while it is not known which webhooks there are: to go on would be to skip them.
pub(crate) fn not_ready(kind: Kind) -> Error {
    let message = "not yet ready to handle request".to_owned();
    Error::Forbidden {
        resource: Qualified::new(REGISTRATION, kind.plural()),
        name: String::new(),
        message,
        causes: Vec::new(),
    }
}
