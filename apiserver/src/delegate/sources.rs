//! What admission must know of a cluster: its namespaces and its webhooks, followed by watches.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::unanswered;
use crate::admit::config::{self, Kind, Webhook};
use crate::admit::source::{Namespace, Sources, not_ready};
use crate::error::Result;

/// How long a namespace that is not known yet is waited for: it may just have been made.
const NAMESPACE_PATIENCE: Duration = Duration::from_millis(50);

/// The kube-apiserver's objects.
pub struct CoreSources {
    client: Client,
    namespaces: Store<CoreNamespace>,
    mutating: Store<MutatingWebhookConfiguration>,
    validating: Store<ValidatingWebhookConfiguration>,
}

impl CoreSources {
    /// Begins to follow; the future runs until it is dropped.
    #[must_use]
    pub fn follow(client: Client) -> (Arc<Self>, BoxFuture<'static, ()>) {
        let (namespaces, a) = followed(client.clone());
        let (mutating, b) = followed(client.clone());
        let (validating, c) = followed(client.clone());
        let run = async {
            futures::join!(a, b, c);
        };
        (Arc::new(Self { client, namespaces, mutating, validating }), Box::pin(run))
    }

    /// Whether everything was listed once.
    ///
    /// # Errors
    /// What was not.
    pub fn check(&self) -> Result<(), String> {
        let seen = [
            ("namespaces", is_complete(&self.namespaces)),
            ("mutatingwebhookconfigurations", is_complete(&self.mutating)),
            ("validatingwebhookconfigurations", is_complete(&self.validating)),
        ];
        let missing: Vec<&str> = seen.into_iter().filter(|(_, seen)| !seen).map(|(name, _)| name).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not listed yet: {}", missing.join(", "))) }
    }

    /// From the watch; one that it does not know is waited for a moment, then asked for.
    async fn find(&self, name: &str) -> Result<Option<Namespace>> {
        let key = reflector::ObjectRef::<CoreNamespace>::new(name);
        for pause in [Duration::ZERO, NAMESPACE_PATIENCE] {
            tokio::time::sleep(pause).await;
            if let Some(found) = self.namespaces.get(&key) {
                return Ok(Some(known(&found)));
            }
        }
        let found = Api::<CoreNamespace>::all(self.client.clone()).get_opt(name).await;
        let found = found.map_err(|error| unanswered("/api/v1/namespaces", &error.to_string()))?;
        Ok(found.as_ref().map(known))
    }
}

impl Sources for CoreSources {
    fn namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Namespace>>> {
        Box::pin(self.find(name))
    }

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>> {
        match kind {
            Kind::Mutating => parsed(kind, &self.mutating),
            Kind::Validating => parsed(kind, &self.validating),
        }
    }
}

fn parsed<K>(kind: Kind, store: &Store<K>) -> Result<Arc<[Webhook]>>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + 'static,
{
    if !is_complete(store) {
        return Err(not_ready(kind));
    }
    let mut objects = store.state();
    objects.sort_by_key(|object| object.meta().name.clone());
    let mut webhooks = Vec::new();
    for object in objects {
        let value: Value = serde_json::to_value(object.as_ref()).map_err(|_| not_ready(kind))?;
        webhooks.extend(config::parse(kind, &value));
    }
    Ok(webhooks.into())
}

fn known(namespace: &CoreNamespace) -> Namespace {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    Namespace {
        labels: namespace.metadata.labels.clone().unwrap_or_default(),
        is_terminating: phase == Some("Terminating") || namespace.metadata.deletion_timestamp.is_some(),
    }
}

/// A store, and what fills it.
fn followed<K>(client: Client) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let writer = Writer::<K>::default();
    let store = writer.as_reader();
    let events = watcher::watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
    let filled = reflector::reflector(writer, events).for_each(|event| async move {
        if let Err(error) = event {
            tracing::warn!(%error, kind = %K::kind(&()), "following the kube-apiserver");
        }
    });
    (store, filled)
}

fn is_complete<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    use futures::FutureExt as _;
    store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
}
