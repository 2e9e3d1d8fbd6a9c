//! What admission must know of a cluster: its namespaces, webhooks and policies, followed by watches, and the parameters
//! of policies, which are asked for when they are needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::unanswered;
use crate::admission::GroupVersion;
use crate::admit::config::{self, Kind, Webhook};
use crate::admit::policy::{self, ParamKind, Policies, Which};
use crate::admit::select;
use crate::admit::source::{self, Namespace, Served, Sources, not_ready, served};
use crate::error::{Error, Result};
use crate::registry::{self, Registry};

/// How long a namespace that is not known yet is waited for: it may just have been made.
const NAMESPACE_PATIENCE: Duration = Duration::from_millis(50);

/// The kube-apiserver's objects.
pub struct CoreSources {
    client: Client,
    namespaces: Store<CoreNamespace>,
    mutating: Store<MutatingWebhookConfiguration>,
    validating: Store<ValidatingWebhookConfiguration>,
    policies: Store<ValidatingAdmissionPolicy>,
    bindings: Store<ValidatingAdmissionPolicyBinding>,
    changes: Maybe,
    change_bindings: Maybe,
    judged: Cached<ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding>,
    changed: Cached<DynamicObject, DynamicObject>,
    registry: Registry,
}

/// Policies as last read, and the objects they were read from: reading them is work.
struct Cached<P, B>(ArcSwapOption<(Vec<Arc<P>>, Vec<Arc<B>>, Policies)>);

/// Objects of a resource that the kube-apiserver may not serve at all.
struct Maybe {
    store: Store<DynamicObject>,
    /// The last word about it was that there is no such resource.
    is_absent: Arc<AtomicBool>,
}

impl CoreSources {
    /// Begins to follow; the future runs until it is dropped.
    #[must_use]
    pub fn follow(client: Client, registry: Registry) -> (Arc<Self>, BoxFuture<'static, ()>) {
        let (namespaces, a) = followed(client.clone());
        let (mutating, b) = followed(client.clone());
        let (validating, c) = followed(client.clone());
        let (policies, d) = followed(client.clone());
        let (bindings, e) = followed(client.clone());
        let (changes, f) = maybe_followed(client.clone(), "MutatingAdmissionPolicy", "mutatingadmissionpolicies");
        let (change_bindings, g) =
            maybe_followed(client.clone(), "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings");
        let run = async {
            futures::join!(a, b, c, d, e, f, g);
        };
        let (judged, changed) = (Cached(ArcSwapOption::empty()), Cached(ArcSwapOption::empty()));
        let sources = Self {
            client,
            namespaces,
            mutating,
            validating,
            policies,
            bindings,
            changes,
            change_bindings,
            judged,
            changed,
            registry,
        };
        (Arc::new(sources), Box::pin(run))
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
            ("validatingadmissionpolicies", is_complete(&self.policies)),
            ("validatingadmissionpolicybindings", is_complete(&self.bindings)),
            ("mutatingadmissionpolicies", self.changes.is_known()),
            ("mutatingadmissionpolicybindings", self.change_bindings.is_known()),
        ];
        let missing: Vec<&str> = seen.into_iter().filter(|(_, seen)| !seen).map(|(name, _)| name).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not listed yet: {}", missing.join(", "))) }
    }

    /// From the watch; one that it does not know is waited for a moment, then asked for.
    async fn lookup(&self, name: &str) -> Result<Option<Namespace>> {
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
        Box::pin(self.lookup(name))
    }

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>> {
        match kind {
            Kind::Mutating => parsed(kind, &self.mutating),
            Kind::Validating => parsed(kind, &self.validating),
        }
    }

    fn policies(&self, kind: policy::Kind) -> Result<Policies> {
        match kind {
            policy::Kind::Validating if is_complete(&self.policies) && is_complete(&self.bindings) => {
                self.judged.of(kind, self.policies.state(), self.bindings.state())
            }
            policy::Kind::Mutating if self.changes.is_known() && self.change_bindings.is_known() => {
                self.changed.of(kind, self.changes.state(), self.change_bindings.state())
            }
            policy::Kind::Validating | policy::Kind::Mutating => Err(not_ready(kind.policies())),
        }
    }

    fn params<'a>(&'a self, wanted: &'a ParamKind) -> BoxFuture<'a, Result<Option<Served>>> {
        Box::pin(async {
            if let Some(own) = served(&self.registry, wanted) {
                return Ok(Some(own));
            }
            let (group, version) = wanted.api_version.rsplit_once('/').unwrap_or(("", &wanted.api_version));
            let of = GroupVersionKind::gvk(group, version, &wanted.kind);
            match discovery::pinned_kind(&self.client, &of).await {
                Ok((resource, capabilities)) => Ok(Some(Served {
                    plural: resource.plural,
                    kind: GroupVersion {
                        group: group.to_owned(),
                        version: version.to_owned(),
                        name: wanted.kind.clone(),
                    },
                    is_namespaced: capabilities.scope == discovery::Scope::Namespaced,
                })),
                Err(kube::Error::Discovery(_)) => Ok(None),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(unanswered(&wanted.api_version, &error.to_string())),
            }
        })
    }

    fn find<'a>(
        &'a self,
        of: &'a Served,
        namespace: Option<&'a str>,
        which: &'a Which,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>>> {
        Box::pin(async move {
            let GroupVersion { group, version, name } = &of.kind;
            let kind = GroupVersionKind::gvk(group, version, name);
            let resource = ApiResource::from_gvk_with_plural(&kind, &of.plural);
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            let failed = |error: kube::Error| unanswered(&of.plural, &error.to_string());
            let objects = match which {
                Which::Named(name) => api.get_opt(name).await.map_err(failed)?.into_iter().collect(),
                Which::Selected(_) => api.list(&ListParams::default()).await.map_err(failed)?.items,
            };
            let selects = |object: &Value| match which {
                Which::Named(_) => true,
                Which::Selected(selector) => selector.selects(&select::labels(object)),
            };
            let json = |object: DynamicObject| serde_json::to_value(object).map_err(Error::internal);
            let values: Vec<Value> = objects.into_iter().map(json).collect::<Result<_>>()?;
            Ok(values.into_iter().filter(selects).map(Arc::new).collect())
        })
    }

    fn kind(&self, wanted: &GroupVersion) -> Option<Arc<registry::Kind>> {
        source::known(&self.registry, wanted)
    }
}

impl<P: Serialize, B: Serialize> Cached<P, B> {
    /// What the objects say; they are read only if they are not those of the last time.
    fn of(&self, kind: policy::Kind, policies: Vec<Arc<P>>, bindings: Vec<Arc<B>>) -> Result<Policies> {
        if let Some(last) = self.0.load().as_ref()
            && is_same(&last.0, &policies)
            && is_same(&last.1, &bindings)
        {
            return Ok(last.2.clone());
        }
        let read: Policies = policy::config::read(kind, &values(kind, &policies)?, &values(kind, &bindings)?).into();
        self.0.store(Some(Arc::new((policies, bindings, read.clone()))));
        Ok(read)
    }
}

fn is_same<T>(one: &[Arc<T>], other: &[Arc<T>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

fn values<T: Serialize>(kind: policy::Kind, objects: &[Arc<T>]) -> Result<Vec<Value>> {
    let value = |object: &Arc<T>| serde_json::to_value(object.as_ref()).map_err(|_| not_ready(kind.policies()));
    objects.iter().map(value).collect()
}

impl Maybe {
    /// Whether it is known what there is, be it that there is no such resource.
    fn is_known(&self) -> bool {
        self.is_absent.load(Ordering::Acquire) || is_seen(&self.store)
    }

    fn state(&self) -> Vec<Arc<DynamicObject>> {
        if self.is_absent.load(Ordering::Acquire) { Vec::new() } else { self.store.state() }
    }
}

/// Follows a resource of this version of Kubernetes that others do not have.
fn maybe_followed(client: Client, kind: &str, plural: &str) -> (Maybe, impl Future<Output = ()> + Send + 'static) {
    let of = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1beta1", kind);
    let resource = ApiResource::from_gvk_with_plural(&of, plural);
    let writer = Writer::<DynamicObject>::new(resource.clone());
    let store = writer.as_reader();
    let is_absent = Arc::new(AtomicBool::new(false));
    let absent = is_absent.clone();
    let api = Api::<DynamicObject>::all_with(client, &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let plural = plural.to_owned();
    let filled = reflector::reflector(writer, events).for_each(move |event| {
        let is_gone = matches!(
            &event,
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404
        );
        match event {
            Err(_) if is_gone && !absent.swap(true, Ordering::AcqRel) => {
                tracing::info!(plural, "the kube-apiserver does not serve them, so there are none");
            }
            Err(_) if is_gone => {}
            Err(error) => tracing::warn!(%error, plural, "following the kube-apiserver"),
            Ok(_) => absent.store(false, Ordering::Release),
        }
        futures::future::ready(())
    });
    (Maybe { store, is_absent }, filled)
}

fn parsed<K>(kind: Kind, store: &Store<K>) -> Result<Arc<[Webhook]>>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + 'static,
{
    if !is_complete(store) {
        return Err(not_ready(kind.plural()));
    }
    let mut objects = store.state();
    objects.sort_by_key(|object| object.meta().name.clone());
    let mut webhooks = Vec::new();
    for object in objects {
        let value: Value = serde_json::to_value(object.as_ref()).map_err(|_| not_ready(kind.plural()))?;
        webhooks.extend(config::parse(kind, &value));
    }
    Ok(webhooks.into())
}

fn known(namespace: &CoreNamespace) -> Namespace {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    Namespace {
        labels: namespace.metadata.labels.clone().unwrap_or_default(),
        is_terminating: phase == Some("Terminating") || namespace.metadata.deletion_timestamp.is_some(),
        object: Arc::new(serde_json::to_value(namespace).unwrap_or_default()),
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
    is_seen(store)
}

fn is_seen<K>(store: &Store<K>) -> bool
where
    K: reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    use futures::FutureExt as _;
    store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
}
