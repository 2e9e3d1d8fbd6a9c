//! The watch cache: what requests read, for every resource the server knows.
//!
//! Use: [`Cache::start`] once, with the resources of the registry; [`Cache::write`] for every write; for a read that
//! must see every acknowledged write [`Cache::fresh`], for one "not older than N" [`Cache::wait_for`], for "any"
//! nothing; then [`Resource::get`], [`Resource::list`], [`Resource::watch`] or [`Resource::list_and_watch`].
//!
//! One task, the pump, follows the store's feed and applies each batch to the resources it touches, then raises the
//! applied revision. Reads never lock anything the pump holds for long; the pump never waits for a reader.
//!
//! What it must not know: HTTP, selectors' grammar, kinds. What an object's uid, labels and selectable fields are comes
//! from the [`Describe`] each resource brings.

mod header;
mod history;
mod marks;
mod notice;
mod object;
mod resource;
mod snapshot;
mod splice;
mod watcher;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{Stream, TryStreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use header::{Describe, Header, Pairs, Paths};
pub use history::Window;
pub use marks::Marks;
pub use notice::{Delivery, Filter, Notice, Selector};
pub use object::{Kind, Object};
pub use resource::{Resource, WATCHERS_LIMIT};
pub use snapshot::{Listed, Query};
pub use splice::{SpliceError, with_revision};
pub use watcher::{End, MAILBOX_BYTES, MAILBOX_EVENTS, Watcher};

use crate::{Clock, Error as StoreError, Event, Feed, Key, ListOptions, Page, Range, Revision, Store, Write, Written};

/// How long a read waits for a revision that has not arrived: what kube-apiserver waits.
pub const WAIT_LIMIT: Duration = Duration::from_secs(3);

/// How many objects are loaded at once, so that loading holds no second copy of everything.
const LOAD_PAGE: usize = 500;

/// How many pages are made into objects at the same time: with more threads, reading is what takes the time.
const LOAD_AHEAD: usize = 4;

/// How long the pump pauses after the store failed to answer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why the cache did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The revision asked for is no longer remembered.
    #[error("reading at revision {requested}: the oldest one still readable is {oldest}, the newest {current}")]
    Expired {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that would have been possible.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The revision asked for has not arrived within [`WAIT_LIMIT`].
    #[error("waiting for revision {requested}: the newest one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// A stored value cannot be read.
    #[error("reading {key}: {reason}")]
    Undecodable {
        /// The key.
        key: Key,
        /// What is wrong with the value.
        reason: String,
    },
    /// Too many watches of one resource are open.
    #[error("opening a watch: {limit} watches of this resource are open")]
    TooManyWatchers {
        /// How many may be open.
        limit: usize,
    },
    /// The store was closed.
    #[error("reading: the store is closed")]
    Closed,
    /// The store could not be asked.
    #[error("asking the store: {0}")]
    Store(#[from] StoreError),
}

/// How the cache is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much of each resource's past is kept.
    pub window: Window,
    /// The time by which it ages.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options { window: Window::default(), clock: Clock::system() }
    }
}

/// The watch cache of a store.
pub struct Cache {
    shared: Arc<Shared>,
    pump: JoinHandle<()>,
}

struct Shared {
    store: Arc<dyn Store>,
    resources: BTreeMap<String, Arc<Resource>>,
    applied: watch::Sender<Revision>,
}

impl Cache {
    /// Loads every named resource from `store` and follows it from then on. Returns when all are complete.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(
        store: Arc<dyn Store>,
        resources: impl IntoIterator<Item = (String, Arc<dyn Describe>)>,
        options: Options,
    ) -> Result<Cache, Error> {
        let applied = watch::Sender::new(Revision::default());
        let seals = store.seals();
        // From before the first value is opened: no exchange of keys is missed.
        let exchanges = seals.as_ref().map(|seals| seals.exchanges());
        let entry = |(name, describe): (String, Arc<dyn Describe>)| {
            let Options { window, clock } = options.clone();
            let resource = Resource::new(&name, describe, seals.clone(), applied.subscribe(), clock, window);
            (name, resource)
        };
        let resources = resources.into_iter().map(entry).collect();
        let shared = Arc::new(Shared { store, resources, applied });
        let feed = shared.load().await?;
        let pump = tokio::spawn(Arc::clone(&shared).pump(feed, exchanges));
        Ok(Cache { shared, pump })
    }

    /// One resource's cache; none for a resource it was not started with.
    #[must_use]
    pub fn resource(&self, name: &str) -> Option<&Arc<Resource>> {
        self.shared.resources.get(name)
    }

    /// The store behind the cache.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Writes, and returns once the write is durable and every later read from this cache sees it. A value the cache
    /// could not show is refused before it reaches the store.
    ///
    /// # Errors
    /// The store's, in particular [`StoreError::Refused`].
    pub async fn write(&self, write: Write) -> Result<Written, StoreError> {
        if let (Some(value), Some(resource)) = (write.value(), self.resource(write.key.resource())) {
            resource.check(&write.key, value).map_err(|reason| StoreError::Undecodable { reason })?;
        }
        let key = write.key.clone();
        let written = self.shared.store.write(write).await?;
        // The event is on its way; nobody need be asked for it.
        if let Err(error) = self.reach(written.revision).await {
            // The write is durable, so it is acknowledged; only the cache is behind, and `fresh` reads will wait.
            tracing::warn!(%key, revision = %written.revision, %error, "a write is durable but the cache does not show it yet");
        }
        Ok(written)
    }

    /// The revision up to which everything is visible here.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.shared.applied.borrow()
    }

    /// Waits until reads see at least every write acknowledged before this call; returns the revision they see.
    ///
    /// # Errors
    /// When the store cannot be asked, or the cache does not catch up within [`WAIT_LIMIT`].
    pub async fn fresh(&self) -> Result<Revision, Error> {
        let revision = self.shared.store.current_revision().await?;
        self.wait_for(revision).await
    }

    /// Waits until reads see `revision`; returns the revision they see.
    ///
    /// # Errors
    /// `Future` when that does not happen within [`WAIT_LIMIT`].
    pub async fn wait_for(&self, revision: Revision) -> Result<Revision, Error> {
        if self.revision() < revision {
            self.shared.store.expect(revision);
        }
        self.reach(revision).await
    }

    async fn reach(&self, revision: Revision) -> Result<Revision, Error> {
        let mut applied = self.shared.applied.subscribe();
        let reached = |applied: &Revision| *applied >= revision;
        match tokio::time::timeout(WAIT_LIMIT, applied.wait_for(reached)).await {
            Ok(Ok(applied)) => Ok(*applied),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::Future { requested: revision, current: self.revision() }),
        }
    }

    /// Closes the store; what was acknowledged stays, watches end.
    pub async fn close(&self) {
        self.shared.store.close().await;
        self.shared.close();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.pump.abort();
        self.shared.close();
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// Returns when the keys of stored values were exchanged.
async fn exchanged(exchanges: &mut Option<watch::Receiver<u64>>) {
    let changed = match exchanges {
        Some(exchanges) => exchanges.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        // Nobody can exchange them any more.
        std::future::pending().await
    }
}

/// A page's values as objects, made on a thread of its own: that is most of the work of loading.
async fn objects(
    resource: Arc<Resource>,
    page: Page,
) -> Result<(Vec<(Key, Result<Object, String>)>, Revision), StoreError> {
    let read = move || {
        let reading = resource.reading();
        let object = |(key, stored)| {
            let object = reading.loaded(&key, &stored);
            (key, object)
        };
        page.items.into_iter().map(object).collect()
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(objects) => Ok((objects, page.revision)),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(StoreError::Closed),
    }
}

impl Shared {
    /// Reads every resource, and returns the feed of what happens after.
    async fn load(&self) -> Result<Feed, StoreError> {
        // Taken before the lists: what is written meanwhile comes again by the feed, and is passed over by revision.
        let from = self.store.current_revision().await?;
        for resource in self.resources.values() {
            self.load_resource(resource).await?;
        }
        let feed = self.store.watch(from).await?;
        self.applied.send_replace(from);
        Ok(feed)
    }

    /// Pages are read one after the other while those before are made into objects beside it.
    async fn load_resource(&self, resource: &Arc<Resource>) -> Result<(), StoreError> {
        let mut snapshot = resource.blank();
        let make = |page: Page| objects(Arc::clone(resource), page);
        let mut pages = pin!(self.pages(resource.name()).map_ok(make).try_buffered(LOAD_AHEAD));
        while let Some((objects, revision)) = pages.try_next().await? {
            objects.into_iter().for_each(|(key, object)| snapshot.load(key, object));
            snapshot.loaded(revision);
        }
        resource.reset(snapshot);
        Ok(())
    }

    /// Everything of a resource as of one revision.
    fn pages<'a>(&'a self, resource: &str) -> impl Stream<Item = Result<Page, StoreError>> + 'a {
        let first = ListOptions { limit: Some(LOAD_PAGE), ..ListOptions::all(Range::of(resource, None)) };
        futures::stream::try_unfold(Some(first), async |options| {
            let Some(options) = options else { return Ok(None) };
            let page = self.store.list(options.clone()).await?;
            let rest = |after| ListOptions { at: Some(page.revision), after: Some(after), ..options };
            let next = page.next.clone().map(rest);
            Ok(Some((page, next)))
        })
    }

    /// Follows the store until it is closed.
    async fn pump(self: Arc<Self>, mut feed: Feed, mut exchanges: Option<watch::Receiver<u64>>) {
        loop {
            let next = tokio::select! {
                biased;
                () = exchanged(&mut exchanges) => None,
                next = feed.next() => Some(next),
            };
            match next {
                Some(Ok(batch)) => {
                    self.apply(&batch.events, batch.revision);
                    continue;
                }
                Some(Err(StoreError::Closed)) => break,
                Some(Err(error)) => {
                    tracing::warn!(%error, "the cache lost the store's feed and loads everything again");
                }
                None => tracing::info!("the keys of stored values were exchanged: the cache opens everything again"),
            }
            match self.reload().await {
                Some(again) => feed = again,
                None => break,
            }
        }
        self.close();
    }

    fn apply(&self, events: &[Event], revision: Revision) {
        for run in events.chunk_by(|a, b| a.key.resource() == b.key.resource()) {
            let resource = run.first().and_then(|event| self.resources.get(event.key.resource()));
            if let Some(resource) = resource {
                resource.publish(run);
            }
        }
        self.applied.send_replace(revision);
    }

    /// Loads until it succeeds. None when the store is closed.
    async fn reload(&self) -> Option<Feed> {
        loop {
            match self.load().await {
                Ok(feed) => return Some(feed),
                Err(StoreError::Closed) => return None,
                Err(error) => tracing::error!(%error, "loading the cache from the store failed; trying again"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn close(&self) {
        for resource in self.resources.values() {
            resource.close();
        }
    }
}
