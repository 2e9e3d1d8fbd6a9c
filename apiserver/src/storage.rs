//! Objects by kind, on top of the store and its watch cache; the store's errors in the words of the API.
//!
//! Never answers "not found" or an empty list for a store that cannot be asked.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::Value;
use store::{
    Key, Revision, Store, Write,
    cache::{self, Cache, Describe, Header, Object, Paths, Resource},
};

use crate::{
    error::{Error, Result},
    registry::{Kind, Registry, Versions},
};

/// Seconds after which a client should try again when the store does not answer.
const RETRY_SECONDS: u32 = 5;

/// The open store with a complete cache of every registered resource.
#[derive(Debug)]
pub struct Storage {
    cache: Cache,
    resources: BTreeMap<String, Arc<Resource>>,
}

/// An object as read: its bytes and revision from the cache, and the decoded value.
#[derive(Clone, Debug)]
pub struct Live {
    /// As cached: encoded, with its resourceVersion.
    pub object: Arc<Object>,
    /// Decoded, in the version that was asked for, with its resourceVersion.
    pub value: Arc<Value>,
}

impl Storage {
    /// Loads every resource of the registry from the store. Returns when all are complete.
    pub async fn open(store: Arc<dyn Store>, registry: &Registry) -> Result<Self> {
        Self::open_with(store, registry, cache::Options::default()).await
    }

    /// As [`Self::open`], with the cache's options chosen (tests let time pass faster).
    pub async fn open_with(store: Arc<dyn Store>, registry: &Registry, options: cache::Options) -> Result<Self> {
        let kept = || registry.hubs().filter(|kind| kind.review.is_none());
        let forms: Vec<(String, Arc<Form>)> =
            kept().map(|kind| (kind.store_resource(), Arc::new(Form::of(kind)))).collect();
        let names: Vec<_> =
            forms.iter().map(|(name, form)| (name.clone(), Arc::clone(form) as Arc<dyn Describe>)).collect();
        let cache = Cache::start(store, names, options).await.map_err(unavailable)?;
        let removed: BTreeSet<String> = forms.iter().flat_map(|(_, form)| form.removed()).collect();
        if !removed.is_empty() {
            let versions = removed.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::internal(format!(
                "the store holds objects of {versions}, which this release does not serve any more: with a release that serves \
                 both, write each of them once (kubectl get … -o json | kubectl replace -f -), then upgrade"
            )));
        }
        let by_name = |kind: &Kind| Some((kind.store_resource(), Arc::clone(cache.resource(&kind.store_resource())?)));
        let resources = kept().filter_map(by_name).collect();
        Ok(Self { cache, resources })
    }

    /// The cache, for those who follow more than one resource.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The cache of one kind.
    pub fn resource(&self, kind: &Kind) -> Result<&Arc<Resource>> {
        self.resources.get(&kind.store_resource()).ok_or(Error::ResourceNotFound)
    }

    /// The key of an object. A name no key can have is the name of no object.
    pub fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Key> {
        let absent = |_| Error::NotFound { resource: kind.resource(), name: name.to_owned() };
        Key::new(&kind.store_resource(), namespace, name).map_err(absent)
    }

    /// Waits until every acknowledged write can be read.
    pub async fn fresh(&self) -> Result<()> {
        self.cache.fresh().await.map(drop).map_err(unavailable)
    }

    /// Waits until a revision can be read.
    pub async fn wait_for(&self, revision: u64) -> Result<()> {
        self.cache.wait_for(Revision(revision)).await.map(drop).map_err(unavailable)
    }

    /// The object under a key as cached now.
    pub fn cached(&self, kind: &Kind, key: &Key) -> Result<Option<Arc<Object>>> {
        self.resource(kind)?.get(key).map_err(unavailable)
    }

    /// The object under a key, at least as new as every acknowledged write, decoded; 404 if there is none.
    pub async fn live(&self, kind: &Kind, key: &Key) -> Result<Live> {
        self.fresh().await?;
        let object = self.cached(kind, key)?;
        let object =
            object.ok_or_else(|| Error::NotFound { resource: kind.resource(), name: key.name().to_owned() })?;
        Ok(Live { value: Arc::new(kind.shown(decode(&object)?)), object })
    }

    /// Writes one key.
    pub async fn write(&self, write: Write) -> Result<Revision, WriteError> {
        match self.cache.write(write).await {
            Ok(written) => Ok(written.revision),
            Err(store::Error::Refused(refusal)) => Err(WriteError::Refused(refusal)),
            Err(other) => Err(WriteError::Failed(failed(other))),
        }
    }

    /// Whether the store can be reached, as far as is known without asking it.
    pub fn health(&self) -> Result<(), String> {
        self.cache.store().health()
    }

    /// Closes the store and ends all watches.
    pub async fn close(&self) {
        self.cache.close().await;
    }
}

/// How the objects of one kind are kept: in the version of the hub. What an earlier release kept in another version that is
/// still served is read as if it were the hub's.
struct Form {
    paths: Paths,
    versions: Versions,
    /// Versions of objects that were found and are not served any more.
    removed: Mutex<BTreeSet<String>>,
}

/// Of an object, what tells its version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnlyVersion<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
}

impl Form {
    fn of(kind: &Kind) -> Self {
        let paths = Paths::new(kind.selectable.iter().copied());
        Self { paths, versions: kind.versions.clone(), removed: Mutex::default() }
    }

    fn removed(&self) -> BTreeSet<String> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Describe for Form {
    fn describe(&self, key: &Key, value: &[u8]) -> Result<Header, String> {
        self.paths.describe(key, value)
    }

    fn renew(&self, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let Some(hub) = self.versions.hub() else { return Ok(None) };
        // What we wrote begins with its version: the usual case costs no look at the rest.
        let head = br#"{"apiVersion":""#;
        let rest = value.strip_prefix(head).and_then(|rest| rest.strip_prefix(hub.api_version.as_bytes()));
        if rest.is_some_and(|rest| rest.starts_with(b"\"")) {
            return Ok(None);
        }
        let OnlyVersion { api_version } = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        if api_version.is_empty() || api_version == hub.api_version {
            return Ok(None);
        }
        if self.versions.find(&api_version).is_none() {
            self.removed.lock().unwrap_or_else(PoisonError::into_inner).insert(api_version.to_string());
            return Err(format!("its version {api_version} is not served any more"));
        }
        let object = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let renewed = self.versions.convert(object, &api_version, &hub.api_version);
        serde_json::to_vec(&renewed).map(Some).map_err(|error| error.to_string())
    }
}

/// Why a write did not happen.
#[derive(Debug)]
pub enum WriteError {
    /// Its expectation did not hold.
    Refused(store::Refusal),
    /// The store could not do it.
    Failed(Error),
}

/// A cached object as a value, with its resourceVersion.
pub fn decode(object: &Object) -> Result<Value> {
    serde_json::from_slice(object.as_bytes())
        .map_err(|error| Error::internal(format!("decoding {}: {error}", object.key())))
}

/// The cache's refusal to answer.
pub fn unavailable(error: cache::Error) -> Error {
    match error {
        cache::Error::Expired { requested, oldest, current: _ } => Error::Expired {
            message: format!("too old resource version: {requested} ({oldest})"),
            continue_token: None,
        },
        cache::Error::Future { requested, current } => {
            Error::TooLargeResourceVersion { requested: requested.0, current: current.0 }
        }
        cache::Error::Undecodable { key, reason } => Error::Internal(format!("reading {key} from the store: {reason}")),
        cache::Error::TooManyWatchers { limit } => Error::TooManyRequests {
            message: format!("{limit} watches of this resource are open, and no more may be"),
            retry_after: RETRY_SECONDS,
        },
        cache::Error::Closed => closed(),
        cache::Error::Store(error) => failed(error),
    }
}

fn failed(error: store::Error) -> Error {
    match error {
        store::Error::TooLarge { size, limit } => {
            Error::TooLarge(format!("Request entity too large: the object has {size} bytes, limit is {limit}"))
        }
        store::Error::Busy { limit } => Error::TooManyRequests {
            message: format!("{limit} writes are waiting for the disk already, please try again later"),
            retry_after: 1,
        },
        store::Error::Closed => closed(),
        store::Error::Undecodable { reason } => Error::bad_request(format!("the object cannot be stored: {reason}")),
        store::Error::Poisoned { .. } | store::Error::Backend { .. } => {
            Error::Unavailable { message: format!("the store does not answer: {error}"), retry_after: RETRY_SECONDS }
        }
        // Neither done nor refused: who asked must look before trying again.
        store::Error::Unclear { reason } => {
            Error::Timeout(format!("Timeout: the store did not say whether the write was done: {reason}"))
        }
        store::Error::Refused(_) | store::Error::Expired { .. } | store::Error::Future { .. } => Error::internal(error),
    }
}

fn closed() -> Error {
    Error::Unavailable { message: "the server is shutting down".to_owned(), retry_after: RETRY_SECONDS }
}
