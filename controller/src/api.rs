//! The one seam through which the controller writes to the API server.
//!
//! It counts every write (metrics, and the failpoint that lets a test kill the process after exactly the n-th one),
//! refuses to write without a valid lease, and shows each answer to the caches. It must not know why something is
//! written. The lease and Events are not written through it: they change nothing a reconcile reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::{Value, json};

use crate::cache::{Cached, Caches};
use crate::lease::Guard;
use crate::queue::Key;

/// Field manager of everything we write.
pub const FIELD_MANAGER: &str = "kun-controller";

/// How long one request may take: a webhook of others that says nothing has 10 s if its owner has said nothing else, and kube's client would wait
/// for five minutes.
const ANSWER_MOST: Duration = Duration::from_secs(15);

/// Kubernetes' word for two items of a list that cannot be told apart.
const DUPLICATE: &str = "FieldValueDuplicate";
/// Its word for a namespace that is being deleted, in which nothing is made any more.
const LEAVING: &str = "NamespaceTerminating";

/// Exit code of a failpoint: what a shell reports for a process killed with SIGKILL.
const FAILPOINT_EXIT: i32 = 137;

/// Why a request to the API server did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another controller may lead by now.
    #[error("{verb} {kind} {name}: this controller does not hold the lease")]
    NotLeading {
        /// What was being done.
        verb: &'static str,
        /// To which kind.
        kind: String,
        /// To which object.
        name: String,
    },
    /// The object changed (or appeared, or went) since it was read: look again.
    #[error("{verb} {kind} {name}: it changed since it was read")]
    Changed {
        /// What was being done.
        verb: &'static str,
        /// To which kind.
        kind: String,
        /// To which object.
        name: String,
    },
    /// The API server said no.
    #[error("{verb} {kind} {name}: {message} ({code})")]
    Refused {
        /// What was being done.
        verb: &'static str,
        /// To which kind.
        kind: String,
        /// To which object.
        name: String,
        /// Its words.
        message: String,
        /// Its words for programs, one for each field.
        causes: Vec<String>,
        /// Its HTTP code.
        code: u16,
    },
    /// The API server could not be asked.
    #[error("{verb} {kind} {name}")]
    Request {
        /// What was being done.
        verb: &'static str,
        /// To which kind.
        kind: String,
        /// To which object.
        name: String,
        /// Its answer.
        #[source]
        source: kube::Error,
    },
}

impl Error {
    /// Two items of a list cannot be told apart.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.has_cause(DUPLICATE)
    }

    /// The namespace is being deleted: no later try will fare better.
    #[must_use]
    pub fn is_of_leaving_namespace(&self) -> bool {
        self.has_cause(LEAVING)
    }

    fn has_cause(&self, wanted: &str) -> bool {
        match self {
            Self::Refused { causes, .. } => causes.iter().any(|cause| cause == wanted),
            Self::Request { .. } | Self::NotLeading { .. } | Self::Changed { .. } => false,
        }
    }

    /// The API server understood and said no (403, 422): the same request will not fare better.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 403 | 422),
            Self::Request { .. } | Self::NotLeading { .. } | Self::Changed { .. } => false,
        }
    }
}

/// The API server as the controller sees it.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    client: Handle,
    /// What the watches have delivered.
    pub caches: Arc<Caches>,
    guard: Guard,
    writes: Arc<AtomicU64>,
    failpoint: Option<u64>,
}

/// The client; its own Debug would print nothing useful.
#[derive(Clone)]
struct Handle(kube::Client);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Kubernetes {
    /// A view through `client`. With a failpoint the process exits right after that many writes were answered.
    #[must_use]
    pub fn new(client: kube::Client, caches: Arc<Caches>, guard: Guard, failpoint: Option<u64>) -> Self {
        Self { client: Handle(client), caches, guard, writes: Arc::default(), failpoint }
    }

    /// Whether this controller may act now.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.guard.is_valid()
    }

    /// The lease guard, for those who write to Redis.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Writes so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    fn api<K: Cached>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.0.clone(), namespace)
    }

    /// Reads one object from the API server itself, not from a cache.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub async fn live<K: Cached>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        answered(self.api::<K>(namespace).get_opt(name)).await.map_err(|source| request::<K>("reading", name, source))
    }

    /// Reads what the caches do not hold whole although the controller reads it, as its cluster has come after it.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub async fn read_stripped(&self, key: &Key) -> Result<(), Error> {
        if !self.caches.clusters.has(key, &key.name) {
            return Ok(());
        }
        self.read_stripped_of::<ConfigMap>(key).await?;
        self.read_stripped_of::<Secret>(key).await
    }

    async fn read_stripped_of<K: Cached>(&self, key: &Key) -> Result<(), Error> {
        for name in K::cache(&self.caches).stripped(key) {
            if let Some(object) = self.live::<K>(&key.namespace, &name).await? {
                K::cache(&self.caches).put(object);
            }
        }
        Ok(())
    }

    /// As [`Kubernetes::live`], by a list of that name: where we may list objects and not get one.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub async fn named<K: Cached>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let only = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        let found = answered(self.api::<K>(namespace).list(&only)).await;
        let found = found.map_err(|source| request::<K>("listing", name, source))?;
        Ok(found.items.into_iter().find(|object| object.meta().name.as_deref() == Some(name)))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// `Changed` when one of that name exists.
    pub async fn create<K: Cached>(&self, object: &K) -> Result<K, Error> {
        let (namespace, name) = self.begin("creating", object)?;
        let answer = answered(self.api::<K>(&namespace).create(&params(), object)).await;
        self.end("creating", &name, answer)
    }

    /// The object as it is, with who owns its fields, which caches do not hold.
    ///
    /// # Errors
    /// `Changed` when it has another version than the one given, or is gone.
    pub async fn whole<K: Cached>(&self, object: &K) -> Result<K, Error> {
        let (verb, meta) = ("reading", object.meta());
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let live = self.live::<K>(namespace, name).await?;
        live.filter(|live| live.meta().resource_version == meta.resource_version && live.meta().uid == meta.uid)
            .ok_or_else(|| Error::Changed { verb, kind: K::kind(&()).into_owned(), name: name.to_owned() })
    }

    /// Applies an object by force: its fields become ours and as they are given, and what we applied before and is not given goes.
    /// Its uid and resourceVersion say which state it was computed from.
    ///
    /// # Errors
    /// `Changed` when it has another version by now, or is gone.
    pub async fn apply<K: Cached>(&self, object: &K) -> Result<K, Error> {
        let (namespace, name) = self.begin("applying", object)?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = answered(self.api::<K>(&namespace).patch(&name, &params, &Patch::Apply(object))).await;
        self.end("applying", &name, answer)
    }

    /// Changes some fields of exactly this version of an object, and no others: also not such as this program does not know.
    ///
    /// # Errors
    /// `Changed` when it has another version by now, or is gone.
    pub async fn patch<K: Cached>(&self, verb: &'static str, object: &K, mut fields: Value) -> Result<K, Error> {
        let meta = object.meta();
        fields.merge_from(json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}));
        self.merge(verb, object, fields).await
    }

    /// Says which finalizers exactly this version of an object has.
    ///
    /// # Errors
    /// `Changed` when it has another version by now, or is gone.
    pub async fn finalizers<K: Cached>(&self, object: &K, finalizers: &[String]) -> Result<K, Error> {
        self.patch("setting the finalizers of", object, json!({"metadata": {"finalizers": finalizers}})).await
    }

    /// Replaces the status of an object; its resourceVersion says which state it was computed from.
    ///
    /// # Errors
    /// `Changed` when it has another version by now.
    pub async fn replace_status<K: Cached>(&self, object: &K) -> Result<K, Error> {
        let (namespace, name) = self.begin("writing the status of", object)?;
        let answer = answered(self.api::<K>(&namespace).replace_status(&name, &params(), object)).await;
        self.end("writing the status of", &name, answer)
    }

    /// Sets or removes one label of exactly this object (by uid), whatever else has changed meanwhile.
    ///
    /// # Errors
    /// `Changed` when another object has that name by now, or none.
    pub async fn label<K: Cached>(&self, object: &K, label: &str, value: Option<&str>) -> Result<K, Error> {
        let patch = json!({"metadata": {"uid": object.meta().uid, "labels": {label: value}}});
        self.merge("labelling", object, patch).await
    }

    async fn merge<K: Cached>(&self, verb: &'static str, object: &K, patch: Value) -> Result<K, Error> {
        let (namespace, name) = self.begin(verb, object)?;
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let answer = answered(self.api::<K>(&namespace).patch(&name, &params, &Patch::Merge(patch))).await;
        self.end(verb, &name, answer)
    }

    /// Deletes exactly this object (by uid). That it is gone already is no error.
    ///
    /// # Errors
    /// `Changed` when another object has that name by now.
    pub async fn delete<K: Cached>(&self, object: &K) -> Result<(), Error> {
        let (namespace, name) = self.begin("deleting", object)?;
        let meta: &ObjectMeta = object.meta();
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: None };
        let delete = DeleteParams::background().preconditions(preconditions);
        let answer = answered(self.api::<K>(&namespace).delete(&name, &delete)).await;
        self.count();
        match answer {
            Ok(either) => {
                // An object with finalizers or a grace period is answered as it now is; else only a Status.
                if let Some(left) = either.left() {
                    K::cache(&self.caches).put(left);
                } else {
                    K::cache(&self.caches).remove(object);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                K::cache(&self.caches).remove(object);
                Ok(())
            }
            Err(source) => Err(failed::<K>("deleting", &name, source)),
        }
    }

    fn begin<K: Cached>(&self, verb: &'static str, object: &K) -> Result<(String, String), Error> {
        let meta = object.meta();
        let name = meta.name.clone().unwrap_or_default();
        if !self.guard.is_valid() {
            return Err(Error::NotLeading { verb, kind: K::kind(&()).into_owned(), name });
        }
        Ok((meta.namespace.clone().unwrap_or_default(), name))
    }

    fn end<K: Cached>(&self, verb: &'static str, name: &str, answer: Result<K, kube::Error>) -> Result<K, Error> {
        self.count();
        let object = answer.map_err(|source| failed::<K>(verb, name, source))?;
        K::cache(&self.caches).put(object.clone());
        Ok(object)
    }

    /// Counts a write that was answered, and ends the process at the failpoint: as abruptly as SIGKILL would.
    fn count(&self) {
        let writes = self.writes.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        if self.failpoint == Some(writes) {
            tracing::error!(writes, "failpoint: the process ends here");
            std::process::exit(FAILPOINT_EXIT);
        }
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let silence = || kube::Error::Service(format!("no answer within {} s", ANSWER_MOST.as_secs()).into());
    tokio::time::timeout(ANSWER_MOST, request).await.unwrap_or_else(|_| Err(silence()))
}

fn params() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

fn failed<K: Cached>(verb: &'static str, name: &str, source: kube::Error) -> Error {
    match source {
        kube::Error::Api(status)
            if status.is_conflict() || status.is_already_exists() || status.is_not_found() || is_another(&status) =>
        {
            Error::Changed { verb, kind: K::kind(&()).into_owned(), name: name.to_owned() }
        }
        source => request::<K>(verb, name, source),
    }
}

/// A patch that names a uid is refused as a change of it when another object has the name by now.
fn is_another(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_invalid() && causes.any(|cause| cause.field == "metadata.uid")
}

fn request<K: Cached>(verb: &'static str, name: &str, source: kube::Error) -> Error {
    let (kind, name) = (K::kind(&()).into_owned(), name.to_owned());
    match source {
        kube::Error::Api(status) => {
            let Status { message, code, details, .. } = *status;
            let causes = details.into_iter().flat_map(|details| details.causes).map(|cause| cause.reason).collect();
            Error::Refused { verb, kind, name, message, causes, code }
        }
        source => Error::Request { verb, kind, name, source },
    }
}
