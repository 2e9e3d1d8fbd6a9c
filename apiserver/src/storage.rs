//! Objects by kind, on top of the store and its watch cache; the store's errors in the words of the API.
//!
//! Never answers "not found" or an empty list for a store that cannot be asked.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use store::{
    Key, Revision, Store, Write,
    cache::{self, Cache, Describe, Object, Paths, Resource},
};

use crate::{
    error::{Error, Result},
    registry::{Kind, Registry},
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
    /// Decoded, with its resourceVersion.
    pub value: Arc<Value>,
}

impl Storage {
    /// Loads every resource of the registry from the store. Returns when all are complete.
    pub async fn open(store: Arc<dyn Store>, registry: &Registry) -> Result<Self> {
        Self::open_with(store, registry, cache::Options::default()).await
    }

    /// As [`Self::open`], with the cache's options chosen (tests let time pass faster).
    pub async fn open_with(store: Arc<dyn Store>, registry: &Registry, options: cache::Options) -> Result<Self> {
        let describe = |kind: &Kind| -> (String, Arc<dyn Describe>) {
            (kind.store_resource(), Arc::new(Paths::new(kind.selectable.iter().copied())))
        };
        let kept = || registry.kinds().filter(|kind| kind.review.is_none());
        let names: Vec<(String, Arc<dyn Describe>)> = kept().map(describe).collect();
        let cache = Cache::start(store, names, options).await.map_err(unavailable)?;
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
        Ok(Live { value: Arc::new(decode(&object)?), object })
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
