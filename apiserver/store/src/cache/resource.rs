//! The cache of one resource: the current snapshot, its recent past, and who watches it.
//!
//! Reading is taking a pointer. Publishing (snapshot, history, mailboxes) is one step under one lock, so that a watch
//! that begins sees everything exactly once: what came before from the history, what comes after in its mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::Error;
use super::header::Describe;
use super::history::{History, Window};
use super::notice::{Delivery, Filter, Notice};
use super::object::Object;
use super::snapshot::{Listed, Query, Reading, Snapshot};
use super::watcher::{End, Leave, Mailbox, Watcher};
use crate::lock::lock;
use crate::pins::Pins;
use crate::{Clock, Event, Key, Revision, Seals};

/// How many watches of one resource there may be. At 8 KiB each that is 160 MB, and one event reaches the last of them
/// within tens of milliseconds.
pub const WATCHERS_LIMIT: usize = 20_000;

/// How many changes a snapshot is rolled back over at most: some ten milliseconds of work.
const ROLL_BACK_LIMIT: usize = 10_000;

/// The cache of one resource.
pub struct Resource {
    name: Arc<str>,
    describe: Arc<dyn Describe>,
    seals: Option<Arc<Seals>>,
    current: ArcSwap<Snapshot>,
    hub: Mutex<Hub>,
    pins: Mutex<Pins<Arc<Snapshot>>>,
    /// How far the whole cache has applied the store's events.
    applied: watch::Receiver<Revision>,
    clock: Clock,
    window: Window,
    this: Weak<Resource>,
}

struct Hub {
    history: History,
    mailboxes: BTreeMap<u64, Arc<Mailbox>>,
    next_id: u64,
    closed: bool,
}

impl Resource {
    pub(super) fn new(
        name: &str,
        describe: Arc<dyn Describe>,
        seals: Option<Arc<Seals>>,
        applied: watch::Receiver<Revision>,
        clock: Clock,
        window: Window,
    ) -> Arc<Resource> {
        let name: Arc<str> = name.into();
        let empty = Snapshot::empty(Arc::clone(&name), Revision::default());
        let history = History::new(window, Revision::default());
        let hub = Hub { history, mailboxes: BTreeMap::new(), next_id: 0, closed: false };
        Arc::new_cyclic(|this| Resource {
            name,
            describe,
            seals,
            current: ArcSwap::from_pointee(empty),
            hub: Mutex::new(hub),
            pins: Mutex::default(),
            applied,
            clock,
            window,
            this: this.clone(),
        })
    }

    /// The resource, such as `redis.kun.io/redisclusters`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object at `key`, as of now. To see every acknowledged write, wait for [`super::Cache::fresh`] first.
    ///
    /// # Errors
    /// When the stored value cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Arc<Object>>, Error> {
        self.current.load().read(key)
    }

    /// A list, or one page of it. When more follows, the snapshot is kept for the next page, which asks for it with
    /// `at` = this page's revision and `after` = its `next`.
    ///
    /// # Errors
    /// `Expired` when `at` is no longer readable, `Future` when it is not yet; wait for the latter first.
    pub fn list(&self, query: &Query) -> Result<Listed, Error> {
        let (snapshot, revision) = match query.at {
            None => self.newest(),
            Some(at) => (self.snapshot_at(at)?, at),
        };
        let listed = snapshot.list(query, revision)?;
        if listed.next.is_some() {
            lock(&self.pins).pin(revision, snapshot, self.clock.now());
        }
        Ok(listed)
    }

    /// Watches what happens after `from`, which may lie in the future.
    ///
    /// # Errors
    /// `Expired` when the history no longer reaches back to `from`.
    pub fn watch(&self, from: Revision, filter: Filter) -> Result<Watcher, Error> {
        self.begin(&mut lock(&self.hub), from, filter)
    }

    /// The current state as seen through `filter`, and a watch of everything after it.
    ///
    /// # Errors
    /// When there are too many watchers, or a value cannot be read.
    pub fn list_and_watch(&self, filter: Filter) -> Result<(Listed, Watcher), Error> {
        let mut hub = lock(&self.hub);
        let (snapshot, revision) = self.newest();
        let watcher = self.begin(&mut hub, revision, filter.clone())?;
        drop(hub);
        let listed = snapshot.list(&Query { filter, ..Query::default() }, revision)?;
        Ok((listed, watcher))
    }

    /// How many watches are open.
    #[must_use]
    pub fn watchers(&self) -> usize {
        lock(&self.hub).mailboxes.len()
    }

    fn begin(&self, hub: &mut Hub, from: Revision, filter: Filter) -> Result<Watcher, Error> {
        if hub.closed {
            return Err(Error::Closed);
        }
        if hub.mailboxes.len() >= WATCHERS_LIMIT {
            return Err(Error::TooManyWatchers { limit: WATCHERS_LIMIT });
        }
        let Some(missed) = hub.history.after(from) else {
            let current = self.newest().1;
            return Err(Error::Expired { requested: from, oldest: hub.history.floor(), current });
        };
        let mailbox = Arc::new(Mailbox::new(filter, from));
        let backlog: VecDeque<Delivery> = missed.filter_map(|notice| mailbox.view(notice)).collect();
        let id = hub.next_id;
        hub.next_id += 1;
        hub.mailboxes.insert(id, Arc::clone(&mailbox));
        let this = self.this.clone();
        let leave = Leave(Some(Box::new(move || {
            if let Some(resource) = this.upgrade() {
                lock(&resource.hub).mailboxes.remove(&id);
            }
        })));
        Ok(Watcher::new(mailbox, backlog, self.applied.clone(), leave))
    }

    /// The current snapshot and the newest revision it is known to be exact at.
    fn newest(&self) -> (Arc<Snapshot>, Revision) {
        // In this order: a snapshot taken later holds everything that was applied before.
        let applied = *self.applied.borrow();
        let snapshot = self.current.load_full();
        let revision = applied.max(snapshot.changed());
        (snapshot, revision)
    }

    /// The snapshot that is exact at `at`: the current one, one kept for paging, or one rebuilt from the history.
    fn snapshot_at(&self, at: Revision) -> Result<Arc<Snapshot>, Error> {
        let (snapshot, current) = self.newest();
        if at > current {
            return Err(Error::Future { requested: at, current });
        }
        if at >= snapshot.changed() {
            return Ok(snapshot);
        }
        if let Some(snapshot) = lock(&self.pins).get(at, self.clock.now()) {
            return Ok(snapshot);
        }
        // The snapshot and the history must be of the same moment.
        let (mut past, notices, oldest) = {
            let hub = lock(&self.hub);
            let past = Snapshot::clone(&self.current.load());
            let notices: Option<Vec<Arc<Notice>>> =
                hub.history.after(at).filter(|n| n.len() <= ROLL_BACK_LIMIT).map(|n| n.rev().cloned().collect());
            (past, notices, hub.history.floor())
        };
        let notices = notices.ok_or(Error::Expired { requested: at, oldest, current })?;
        past.roll_back(notices.iter(), at);
        Ok(Arc::new(past))
    }

    /// The snapshot loading starts with.
    pub(super) fn blank(&self) -> Snapshot {
        Snapshot::empty(Arc::clone(&self.name), Revision::default())
    }

    /// Reads one header, to refuse a value before it is written.
    pub(super) fn check(&self, key: &Key, value: &[u8]) -> Result<(), String> {
        Object::encode(super::Kind::Added, key.clone(), Revision::FIRST, value, &*self.describe).map(drop)
    }

    /// How objects of this resource are read.
    pub(super) fn reading(&self) -> Reading<'_> {
        Reading { describe: &*self.describe, seals: self.seals.as_deref() }
    }

    /// Starts over with `snapshot`: nothing older is remembered, and every watch ends.
    pub(super) fn reset(&self, snapshot: Snapshot) {
        let mut hub = lock(&self.hub);
        hub.history = History::new(self.window, snapshot.changed());
        self.current.store(Arc::new(snapshot));
        for mailbox in std::mem::take(&mut hub.mailboxes).into_values() {
            mailbox.end(End::Reloaded);
        }
        *lock(&self.pins) = Pins::default();
    }

    /// Applies committed events of this resource, in order.
    pub(super) fn publish(&self, events: &[Event]) {
        let mut snapshot = Snapshot::clone(&self.current.load());
        let (loaded, before) = (snapshot.changed(), snapshot.clone());
        let mut notices = Vec::with_capacity(events.len());
        for event in events.iter().filter(|event| event.revision > loaded) {
            notices.extend(snapshot.apply(event, self.reading()).map(Arc::new));
        }
        if !snapshot.lacks_the_same_as(&before) {
            // What happened to a value that cannot be read cannot be told. Whoever watched must list again. While nothing
            // happens to it, the others are watched as ever.
            return self.reset(snapshot);
        }
        let now = self.clock.now();
        let mut hub = lock(&self.hub);
        self.current.store(Arc::new(snapshot));
        for notice in notices {
            hub.mailboxes.retain(|_, mailbox| mailbox.deliver(&notice));
            hub.history.push(notice, now);
        }
    }

    /// Ends every watch, and refuses new ones.
    pub(super) fn close(&self) {
        let mut hub = lock(&self.hub);
        hub.closed = true;
        for mailbox in std::mem::take(&mut hub.mailboxes).into_values() {
            mailbox.end(End::Closed);
        }
    }
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource").field("name", &self.name).finish_non_exhaustive()
    }
}
