//! Recent events and those who follow them. Both back ends publish here, after a write is durable and before it is
//! acknowledged.
//!
//! A follower has a cursor and no queue: it reads shared history at its own pace, and one that falls out of the history
//! is told so. Nothing ever waits for a follower.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use crate::lock::lock;
use crate::{Change, Error, Event, Revision};

/// How many events are remembered for followers that have not taken them yet. The follower that matters, the cache,
/// applies more than 50,000 per second, so this is a second behind.
const EVENTS_LIMIT: usize = 65_536;

/// How many bytes of values the remembered events may hold.
const BYTES_LIMIT: usize = 64 << 20;

/// How many events are remembered although every follower has taken them, for one that is about to begin.
const TAIL_EVENTS: usize = 1024;

/// How many bytes of values that tail may hold.
const TAIL_BYTES: usize = 1 << 20;

/// How many events a follower takes at once, so that it holds the lock for microseconds.
const TAKE_LIMIT: usize = 256;

/// Some events in order, and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The events; may be empty when only the clock has moved.
    pub events: Vec<Event>,
    /// Everything up to and including this revision has been delivered.
    pub revision: Revision,
}

/// A stream of batches that starts after a revision and misses nothing.
pub struct Feed(Pin<Box<dyn Stream<Item = Result<Batch, Error>> + Send>>);

impl Feed {
    /// A feed over any stream of batches.
    pub fn new(stream: impl Stream<Item = Result<Batch, Error>> + Send + 'static) -> Feed {
        Feed(Box::pin(stream))
    }

    /// The next batch. Cancelling loses nothing.
    ///
    /// # Errors
    /// `Expired` when this feed fell too far behind, `Closed` when the store was closed. Nothing follows an error.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        self.0.next().await.unwrap_or(Err(Error::Closed))
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Feed")
    }
}

/// The recent events of a store.
#[derive(Debug)]
pub(crate) struct Log {
    recent: Mutex<Recent>,
    /// The revision up to which everything is published. Changing it wakes the followers.
    published: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Recent {
    events: VecDeque<Event>,
    bytes: usize,
    /// Every event after this revision is in `events`.
    floor: Revision,
    /// How far each follower has come.
    followers: BTreeMap<u64, Revision>,
    next_id: u64,
    closed: bool,
}

/// One follower's place in the log.
struct Follower {
    log: Arc<Log>,
    changed: watch::Receiver<Revision>,
    id: u64,
    cursor: Revision,
}

impl Drop for Follower {
    fn drop(&mut self) {
        lock(&self.log.recent).followers.remove(&self.id);
    }
}

impl Log {
    /// A log that begins after `revision`.
    pub(crate) fn new(revision: Revision) -> Arc<Log> {
        let (events, followers) = (VecDeque::new(), BTreeMap::new());
        let recent = Recent { events, bytes: 0, floor: revision, followers, next_id: 0, closed: false };
        Arc::new(Log { recent: Mutex::new(recent), published: watch::Sender::new(revision) })
    }

    /// The revision up to which everything is published.
    pub(crate) fn revision(&self) -> Revision {
        *self.published.borrow()
    }

    /// Publishes durable events; the last one's revision is the store's from now on.
    pub(crate) fn publish(&self, events: Vec<Event>) {
        let Some(revision) = events.last().map(|e| e.revision) else { return };
        lock(&self.recent).append(events);
        self.published.send_replace(revision);
    }

    /// Waits until everything up to `revision` is published, or `is_over` says that it will not be. That is asked again
    /// whenever somebody calls [`wake`](Log::wake).
    pub(crate) async fn until_published(&self, revision: Revision, is_over: impl Fn() -> bool) {
        // The sender lives as long as this log: there is no error.
        let _ = self.published.subscribe().wait_for(|published| *published >= revision || is_over()).await;
    }

    /// Has everybody look again who waits for something.
    pub(crate) fn wake(&self) {
        self.published.send_modify(|_| {});
    }

    /// Ends every feed.
    pub(crate) fn close(&self) {
        lock(&self.recent).closed = true;
        self.wake();
    }

    /// Nothing is published while this is held.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.recent)
    }

    /// Follows the events after `from`.
    pub(crate) fn feed(self: &Arc<Self>, from: Revision) -> Result<Feed, Error> {
        let changed = self.published.subscribe();
        let id = lock(&self.recent).join(from, self.revision())?;
        let follower = Follower { log: Arc::clone(self), changed, id, cursor: from };
        Ok(Feed::new(stream::unfold(Some(follower), |follower| async move {
            let mut follower = follower?;
            match follower.next().await {
                Ok(batch) => Some((Ok(batch), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }
}

impl Follower {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            let published = *self.changed.borrow_and_update();
            let taken = lock(&self.log.recent).take(self.id, self.cursor, published)?;
            if let Some(batch) = taken {
                self.cursor = batch.revision;
                return Ok(batch);
            }
            if self.changed.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }
}

impl Recent {
    fn append(&mut self, events: Vec<Event>) {
        self.bytes += events.iter().map(size).sum::<usize>();
        self.events.extend(events);
        let slowest = self.followers.values().min().copied();
        while let Some(event) = self.events.front() {
            let full = self.events.len() > EVENTS_LIMIT || self.bytes > BYTES_LIMIT;
            let taken = slowest.is_none_or(|slowest| event.revision <= slowest);
            let spare = self.events.len() > TAIL_EVENTS || self.bytes > TAIL_BYTES;
            let may_go = full || (taken && spare);
            if !may_go {
                break;
            }
            self.bytes -= size(event);
            self.floor = event.revision;
            self.events.pop_front();
        }
    }

    fn join(&mut self, cursor: Revision, current: Revision) -> Result<u64, Error> {
        self.check(cursor, current)?;
        self.next_id += 1;
        self.followers.insert(self.next_id, cursor);
        Ok(self.next_id)
    }

    fn check(&self, cursor: Revision, current: Revision) -> Result<(), Error> {
        if cursor < self.floor {
            return Err(Error::Expired { requested: cursor, oldest: self.floor, current });
        }
        Ok(())
    }

    /// What follows `cursor`, if anything does yet.
    fn take(&mut self, id: u64, cursor: Revision, published: Revision) -> Result<Option<Batch>, Error> {
        self.check(cursor, published)?;
        let start = self.events.partition_point(|e| e.revision <= cursor);
        let is_published = |e: &&Event| e.revision <= published;
        let events: Vec<Event> =
            self.events.iter().skip(start).take_while(is_published).take(TAKE_LIMIT).cloned().collect();
        let reached = if events.len() < TAKE_LIMIT { Some(published) } else { events.last().map(|e| e.revision) };
        match reached.filter(|r| *r > cursor) {
            Some(revision) => {
                self.followers.insert(id, revision);
                Ok(Some(Batch { events, revision }))
            }
            None if self.closed => Err(Error::Closed),
            None => Ok(None),
        }
    }
}

fn size(event: &Event) -> usize {
    match &event.change {
        Change::Put { value, previous } => value.len() + previous.as_ref().map_or(0, |p| p.value.len()),
        Change::Delete { previous } => previous.value.len(),
    }
}
