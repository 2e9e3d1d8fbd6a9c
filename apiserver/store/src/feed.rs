//! Recent events and those who follow them. Both back ends publish here, after a write is durable and before it is
//! acknowledged.
//!
//! A follower has a cursor and no queue: it reads shared history at its own pace, and one that falls out of the history
//! is told so. Nothing ever waits for a follower.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use crate::lock::lock;
use crate::{Change, Error, Event, Revision};

/// How many events are remembered. The follower that matters, the cache, applies more than 50,000 per second, so this
/// is more than a second behind.
const EVENTS_LIMIT: usize = 65_536;

/// How many bytes of values the remembered events may hold.
const BYTES_LIMIT: usize = 32 << 20;

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
    closed: bool,
}

impl Log {
    /// A log that begins after `revision`.
    pub(crate) fn new(revision: Revision) -> Arc<Log> {
        let recent = Recent { events: VecDeque::new(), bytes: 0, floor: revision, closed: false };
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

    /// Ends every feed.
    pub(crate) fn close(&self) {
        lock(&self.recent).closed = true;
        self.published.send_modify(|_| {});
    }

    /// Follows the events after `from`.
    pub(crate) fn feed(self: &Arc<Self>, from: Revision) -> Result<Feed, Error> {
        let changed = self.published.subscribe();
        lock(&self.recent).check(from, self.revision())?;
        let start = Some((Arc::clone(self), changed, from));
        Ok(Feed::new(stream::unfold(start, |state| async move {
            let (log, mut changed, cursor) = state?;
            match log.follow(&mut changed, cursor).await {
                Ok(batch) => {
                    let cursor = batch.revision;
                    Some((Ok(batch), Some((log, changed, cursor))))
                }
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    async fn follow(&self, changed: &mut watch::Receiver<Revision>, cursor: Revision) -> Result<Batch, Error> {
        loop {
            let published = *changed.borrow_and_update();
            if let Some(batch) = lock(&self.recent).take(cursor, published)? {
                return Ok(batch);
            }
            if changed.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }
}

impl Recent {
    fn append(&mut self, events: Vec<Event>) {
        self.bytes += events.iter().map(size).sum::<usize>();
        self.events.extend(events);
        while self.events.len() > EVENTS_LIMIT || self.bytes > BYTES_LIMIT {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= size(&event);
            self.floor = event.revision;
        }
    }

    fn check(&self, cursor: Revision, current: Revision) -> Result<(), Error> {
        if cursor < self.floor {
            return Err(Error::Expired { requested: cursor, oldest: self.floor, current });
        }
        Ok(())
    }

    /// What follows `cursor`, if anything does yet.
    fn take(&self, cursor: Revision, published: Revision) -> Result<Option<Batch>, Error> {
        self.check(cursor, published)?;
        let start = self.events.partition_point(|e| e.revision <= cursor);
        let is_published = |e: &&Event| e.revision <= published;
        let events: Vec<Event> =
            self.events.iter().skip(start).take_while(is_published).take(TAKE_LIMIT).cloned().collect();
        let reached = if events.len() < TAKE_LIMIT { Some(published) } else { events.last().map(|e| e.revision) };
        match reached.filter(|r| *r > cursor) {
            Some(revision) => Ok(Some(Batch { events, revision })),
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
