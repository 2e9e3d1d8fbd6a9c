//! What admission must know of a cluster: its namespaces, webhooks and policies, followed by watches, and the parameters
//! of policies, which are asked for when they are needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, discovery};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::refused::Refused;
use super::unanswered;
use crate::admission::GroupVersion;
use crate::admit::config::{self, Kind, Webhook};
use crate::admit::policy::{self, ParamKind, Policies, Which};
use crate::admit::select;
use crate::admit::source::{self, Namespace, NotReady, Served, Sources, not_ready, served};
use crate::error::{Error, Result};
use crate::parsed::Parsed;
use crate::registry::{self, Registry};

/// How long a namespace that is not known yet is waited for: it may just have been made.
const NAMESPACE_PATIENCE: Duration = Duration::from_millis(50);
/// How long a resource that is not served is not asked for again. It begins to be served when the kube-apiserver is
/// another one, which breaks a watch and is looked at then; this is for what no watch tells.
const ABSENT_PAUSE: Duration = Duration::from_secs(600);

/// The kube-apiserver's objects.
pub struct CoreSources {
    client: Client,
    namespaces: Store<CoreNamespace>,
    mutating: Followed,
    validating: Followed,
    policies: Followed,
    bindings: Followed,
    changes: Followed,
    change_bindings: Followed,
    asked: Parsed<DynamicObject, Arc<[Webhook]>>,
    told: Parsed<DynamicObject, Arc<[Webhook]>>,
    judging: Parsed<DynamicObject, Policies>,
    changing: Parsed<DynamicObject, Policies>,
    registry: Registry,
}

/// A resource of the configuration of admission, as the kube-apiserver has it.
struct Followed {
    plural: &'static str,
    store: Store<DynamicObject>,
    /// The last word about it was that there is no such resource, as in an older Kubernetes.
    is_absent: Arc<AtomicBool>,
}

impl CoreSources {
    /// Begins to follow; the future runs until it is dropped.
    #[must_use]
    pub fn follow(client: Client, registry: Registry) -> (Arc<Self>, BoxFuture<'static, ()>) {
        let broken = Arc::new(Notify::new());
        let (namespaces, filling) = namespaces(client.clone(), broken.clone());
        let mut all = vec![filling];
        let mut follow = |version, kind, plural| {
            let (followed, filling) = followed(client.clone(), broken.clone(), version, kind, plural);
            all.push(filling);
            followed
        };
        let sources = Self {
            namespaces,
            mutating: follow("v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            validating: follow("v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
            policies: follow("v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            bindings: follow("v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
            changes: follow("v1beta1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
            change_bindings: follow("v1beta1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
            asked: Parsed::default(),
            told: Parsed::default(),
            judging: Parsed::default(),
            changing: Parsed::default(),
            client,
            registry,
        };
        let run = async {
            futures::future::join_all(all).await;
        };
        (Arc::new(sources), Box::pin(run))
    }

    /// Whether everything was listed once.
    ///
    /// # Errors
    /// What was not.
    pub fn check(&self) -> Result<(), String> {
        let followed =
            [&self.mutating, &self.validating, &self.policies, &self.bindings, &self.changes, &self.change_bindings];
        let namespaces = (!is_listed(&self.namespaces)).then_some("namespaces");
        let unknown = followed.into_iter().filter(|followed| !followed.is_known()).map(|followed| followed.plural);
        let missing: Vec<&str> = namespaces.into_iter().chain(unknown).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not listed yet: {}", missing.join(", "))) }
    }

    /// From the watch; one that it does not know is waited for a moment, then asked for.
    async fn lookup(&self, name: &str) -> Result<Option<Namespace>> {
        let key = reflector::ObjectRef::<CoreNamespace>::new(name);
        if let Some(found) = self.namespaces.get(&key) {
            return Ok(Some(known(&found)));
        }
        tokio::time::sleep(NAMESPACE_PATIENCE).await;
        if let Some(found) = self.namespaces.get(&key) {
            return Ok(Some(known(&found)));
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

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>, NotReady> {
        let (followed, parsed) = match kind {
            Kind::Mutating => (&self.mutating, &self.asked),
            Kind::Validating => (&self.validating, &self.told),
        };
        parsed.of(followed.objects()?, |objects| {
            let objects = values(kind.plural(), objects)?;
            Ok(objects.iter().flat_map(|object| config::parse(kind, object)).collect())
        })
    }

    fn policies(&self, kind: policy::Kind) -> Result<Policies, NotReady> {
        let (policies, bindings, parsed) = match kind {
            policy::Kind::Validating => (&self.policies, &self.bindings, &self.judging),
            policy::Kind::Mutating => (&self.changes, &self.change_bindings, &self.changing),
        };
        let (policies, bindings) = (policies.objects()?, bindings.objects()?);
        let count = policies.len();
        parsed.of([policies, bindings].concat(), |objects| {
            let objects = values(kind.policies(), objects)?;
            let (policies, bindings) = objects.split_at(count.min(objects.len()));
            Ok(policy::config::read(kind, policies, bindings).into())
        })
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

fn values(plural: &str, objects: &[Arc<DynamicObject>]) -> Result<Vec<Value>, NotReady> {
    let value =
        |object: &Arc<DynamicObject>| serde_json::to_value(object.as_ref()).map_err(|error| not_ready(plural, &error));
    objects.iter().map(value).collect()
}

impl Followed {
    /// Whether it is known what there is, be it that there is no such resource.
    fn is_known(&self) -> bool {
        self.is_absent.load(Ordering::Acquire) || is_listed(&self.store)
    }

    /// All objects, by name.
    fn objects(&self) -> Result<Vec<Arc<DynamicObject>>, NotReady> {
        if !self.is_known() {
            return Err(not_ready(self.plural, &"they were not listed yet"));
        }
        if self.is_absent.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let mut objects = self.store.state();
        objects.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Ok(objects)
    }
}

/// What fills a store; it runs until it is dropped.
type Filling = BoxFuture<'static, ()>;

/// Follows one resource of the configuration of admission. Whose watch breaks tells it by `broken`; a resource that is
/// absent is asked for again then.
fn followed(
    client: Client,
    broken: Arc<Notify>,
    version: &str,
    kind: &str,
    plural: &'static str,
) -> (Followed, Filling) {
    let of = GroupVersionKind::gvk("admissionregistration.k8s.io", version, kind);
    let resource = ApiResource::from_gvk_with_plural(&of, plural);
    let writer = Writer::<DynamicObject>::new(resource.clone());
    let store = writer.as_reader();
    let is_absent = Arc::new(AtomicBool::new(false));
    let absent = is_absent.clone();
    // What every Kubernetes that is supported has is waited for.
    let may_be_absent = version != "v1";
    let api = Api::<DynamicObject>::all_with(client, &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut refused = Refused::default();
    let filled = reflector::reflector(writer, events).for_each(move |event| {
        let refused = refused.pause(&event);
        let told = told(&event).filter(|told| may_be_absent || *told == Told::Served);
        let is_absent = told == Some(Told::Absent);
        match (told, event) {
            (Some(Told::Served), _) => absent.store(false, Ordering::Release),
            (Some(Told::Absent), _) if absent.swap(true, Ordering::AcqRel) => {}
            (Some(Told::Absent), _) => {
                tracing::info!(plural, "the kube-apiserver does not serve them, so there are none")
            }
            (None, Err(error)) => {
                tracing::warn!(%error, plural, "following the kube-apiserver");
                broken.notify_waiters();
            }
            (None, Ok(_)) => {}
        }
        let absent = pause(is_absent, broken.clone());
        async move {
            absent.await;
            sleep(refused).await;
        }
    });
    (Followed { plural, store, is_absent }, Box::pin(filled))
}

/// Keeps a watch of what is absent from asking again before a watch breaks, or [`ABSENT_PAUSE`] is over.
async fn pause(is_absent: bool, broken: Arc<Notify>) {
    if is_absent {
        // Both ends mean the same: it is asked for once more.
        let _ = tokio::time::timeout(ABSENT_PAUSE, broken.notified()).await;
    }
}

/// What an event tells of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// It is served: its objects were listed, or one of them changed.
    Served,
    /// It is not.
    Absent,
}

/// `None`: nothing. That a list is about to be asked for says nothing of what will be answered: a resource that is not
/// served is asked for again and again, and stays known as absent meanwhile.
fn told<K>(event: &Result<watcher::Event<K>, watcher::Error>) -> Option<Told> {
    match event {
        Ok(watcher::Event::Init) => None,
        Ok(watcher::Event::InitApply(_) | watcher::Event::InitDone) => Some(Told::Served),
        Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => Some(Told::Served),
        Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => Some(Told::Absent),
        Err(_) => None,
    }
}

fn known(namespace: &CoreNamespace) -> Namespace {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    Namespace {
        labels: namespace.metadata.labels.clone().unwrap_or_default(),
        is_terminating: phase == Some("Terminating") || namespace.metadata.deletion_timestamp.is_some(),
        object: Arc::new(serde_json::to_value(namespace).unwrap_or_default()),
    }
}

/// Follows the namespaces, and tells by `broken` when that breaks.
fn namespaces(client: Client, broken: Arc<Notify>) -> (Store<CoreNamespace>, Filling) {
    let writer = Writer::<CoreNamespace>::default();
    let store = writer.as_reader();
    let events = watcher::watcher(Api::<CoreNamespace>::all(client), watcher::Config::default()).default_backoff();
    let mut refused = Refused::default();
    let filled = reflector::reflector(writer, events).for_each(move |event| {
        let refused = refused.pause(&event);
        if let Err(error) = event {
            tracing::warn!(%error, "following the namespaces of the kube-apiserver");
            broken.notify_waiters();
        }
        sleep(refused)
    });
    (store, Box::pin(filled))
}

/// Whether everything was listed once.
fn is_listed<K>(store: &Store<K>) -> bool
where
    K: reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    use futures::FutureExt as _;
    store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_absent_is_asked_for_again_when_a_watch_breaks_or_after_a_long_time() {
        use futures::FutureExt as _;

        let broken = Arc::new(Notify::new());
        assert_eq!(pause(false, broken.clone()).now_or_never(), Some(()), "what is there is not waited for");
        let begin = tokio::time::Instant::now();
        pause(true, broken.clone()).await;
        assert_eq!(begin.elapsed(), ABSENT_PAUSE);
        let waiting = tokio::spawn(pause(true, broken.clone()));
        tokio::task::yield_now().await;
        broken.notify_waiters();
        assert!(waiting.await.is_ok());
        assert_eq!(begin.elapsed(), ABSENT_PAUSE, "no time passed");
    }

    #[test]
    fn a_resource_that_is_not_served_stays_absent_while_it_is_asked_for_again() {
        let failed = |code| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            Err::<watcher::Event<()>, _>(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
        };
        assert_eq!(told(&Ok(watcher::Event::<()>::Init)), None);
        assert_eq!(told(&failed(404)), Some(Told::Absent));
        assert_eq!(told(&failed(503)), None);
        assert_eq!(told(&Ok(watcher::Event::<()>::InitDone)), Some(Told::Served));
    }
}
