//! The storage seam: where the API server keeps encoded objects, and the cache it reads them from.
//!
//! Two layers, both usable through a handful of methods:
//!
//! * [`Store`] is the durable layer. It knows keys, bytes and revisions. One counter, the *revision*, orders every
//!   write of the whole store; it never goes back, not even over a crash. Three back ends: [`Memory`] for tests,
//!   [`Embedded`] on one file with group commit for one process, [`Etcd`] for several. All pass the same conformance suite.
//! * [`cache::Cache`] is what requests read. It holds every object once, encoded, with `metadata.resourceVersion`
//!   spliced in, in immutable snapshots; it pages lists through them and feeds watchers with shared bytes.
//!
//! ```text
//!  request ──▶ Cache::write ──▶ Store::write ── commit + fsync ──▶ feed ──▶ cache snapshot, watchers ──▶ 2xx
//!  request ──▶ Cache::fresh ──▶ Resource::{get, list, watch, list_and_watch}
//! ```
//!
//! Between the two, [`Sealed`] encrypts values on their way into any back end; the cache opens them.
//!
//! Why a read after a 2xx sees the write: [`cache::Cache::write`] returns only once the cache itself has applied the
//! write's revision, and [`cache::Cache::fresh`] asks the store for its revision (raised before any
//! acknowledgement, whichever process it goes to) and waits until the cache has applied that much.
//!
//! What this crate must not know: HTTP, status codes, what a Redis is, which kinds exist. Of an object it knows only
//! that it is JSON with a `metadata` member.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

// Tests that are shared with those outside name the crate as these do.
#[cfg(test)]
extern crate self as store;

pub mod backup;
pub mod cache;
mod clock;
#[cfg(test)]
mod conformance;
mod decide;
mod embedded;
mod etcd;
mod failpoint;
mod feed;
mod key;
mod lock;
mod memory;
mod pins;
pub mod seal;
mod sealed;

pub use clock::Clock;
pub use embedded::{Embedded, EmbeddedOptions, OpenError};
pub use etcd::{COMPACT_EVERY, DEFAULT_PREFIX, Etcd, EtcdError, EtcdOptions};
pub use feed::{Batch, Feed};
pub use key::{Key, KeyError, Range};
pub use memory::Memory;
pub use sealed::{Sealed, Seals};

/// The largest value a store accepts: etcd's default limit of a request less what key and transaction take, so that an
/// object that fits one back end fits all.
pub const VALUE_LIMIT: usize = 1_572_864 - 8192;

/// A point on the store's one clock. It is the `resourceVersion` of everything, written in decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a store nothing was ever written to. It is not 0, because clients read "0" as "any".
    pub const FIRST: Revision = Revision(1);

    /// The revision of the write that follows this one.
    #[must_use]
    pub const fn next(self) -> Revision {
        // 2^64 writes at a million per second take half a million years.
        Revision(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The revision of the last write of this key.
    pub revision: Revision,
    /// The encoded object, without `metadata.resourceVersion`.
    pub value: Bytes,
}

/// One write of one key. Every write names what it expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key written.
    pub key: Key,
    /// What is done to it.
    pub action: Action,
}

/// What a write does, and what it expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Puts a value where none may be.
    Create {
        /// The encoded object.
        value: Bytes,
    },
    /// Replaces the value last written at `expected`.
    Update {
        /// The encoded object.
        value: Bytes,
        /// The revision the writer has seen.
        expected: Revision,
    },
    /// Removes the value last written at `expected`.
    Delete {
        /// The revision the writer has seen.
        expected: Revision,
    },
}

impl Write {
    /// A write that creates `key`.
    #[must_use]
    pub fn create(key: Key, value: Bytes) -> Write {
        Write { key, action: Action::Create { value } }
    }

    /// A write that replaces what `key` held at `expected`.
    #[must_use]
    pub fn update(key: Key, expected: Revision, value: Bytes) -> Write {
        Write { key, action: Action::Update { value, expected } }
    }

    /// A write that removes what `key` held at `expected`.
    #[must_use]
    pub fn delete(key: Key, expected: Revision) -> Write {
        Write { key, action: Action::Delete { expected } }
    }

    /// The value this write would store; none for a delete.
    #[must_use]
    pub fn value(&self) -> Option<&Bytes> {
        match &self.action {
            Action::Create { value } | Action::Update { value, .. } => Some(value),
            Action::Delete { .. } => None,
        }
    }
}

/// The acknowledgement of a write: it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision the write received.
    pub revision: Revision,
}

/// Why a write was not done although the store is well. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A create found a value.
    #[error("the key already exists at revision {}", .current.revision)]
    Exists {
        /// What is there.
        current: Stored,
    },
    /// An update or a delete found nothing.
    #[error("the key does not exist")]
    Absent,
    /// An update or a delete found a value written at another revision than it expected.
    #[error("the key was written at revision {}", .current.revision)]
    Conflict {
        /// What is there, so that the writer can try again without another read.
        current: Stored,
    },
}

/// What happened to a key at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision of the write.
    pub revision: Revision,
    /// The key written.
    pub key: Key,
    /// What was done.
    pub change: Change,
}

/// What a committed write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A value was put.
    Put {
        /// The new value.
        value: Bytes,
        /// What it replaced; none when it was created.
        previous: Option<Stored>,
    },
    /// A value was removed.
    Delete {
        /// The last value.
        previous: Stored,
    },
}

/// Which part of the store to list, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOptions {
    /// Which keys.
    pub range: Range,
    /// Read as of this revision, which an earlier page reported; absent = now.
    pub at: Option<Revision>,
    /// At most so many items, but at least one; absent = all.
    pub limit: Option<usize>,
    /// Only keys after this one.
    pub after: Option<Key>,
}

impl ListOptions {
    /// Everything in `range`, now.
    #[must_use]
    pub fn all(range: Range) -> ListOptions {
        ListOptions { range, at: None, limit: None, after: None }
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The items, in key order within a namespace. The order of namespaces is the back end's own; pages follow it.
    pub items: Vec<(Key, Stored)>,
    /// The revision this page is exact at. Give it back as [`ListOptions::at`] for the next page.
    pub revision: Revision,
    /// Present when more follows: give it back as [`ListOptions::after`].
    pub next: Option<Key>,
}

/// Why the store did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The write's expectation did not hold.
    #[error("refusing the write: {0}")]
    Refused(#[from] Refusal),
    /// The revision asked for is no longer remembered.
    #[error("reading at revision {requested}: the oldest one still readable is {oldest}, the newest {current}")]
    Expired {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that would have been possible, as far as the back end knows.
        oldest: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("reading at revision {requested}: the newest one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The value is larger than [`VALUE_LIMIT`].
    #[error("writing {size} bytes: the limit is {limit}")]
    TooLarge {
        /// The size of the value.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The value is not an object the cache can show; it was not written.
    #[error("reading the object: {reason}")]
    Undecodable {
        /// What is wrong with it.
        reason: String,
    },
    /// Too many writes are waiting; the write was not queued. Try again soon.
    #[error("queueing the write: {limit} writes are waiting already")]
    Busy {
        /// How many writes may wait.
        limit: usize,
    },
    /// A commit failed earlier or just now. No write succeeds until a restart has re-read what the disk really holds.
    /// The write this answers may or may not be there then.
    #[error("writing: the store refuses all writes until it is restarted, because a commit failed: {reason}")]
    Poisoned {
        /// The failure.
        reason: String,
    },
    /// Nobody knows whether the write was done, or will be: the back end was asked and did not answer.
    #[error("writing: whether it was done is not known: {reason}")]
    Unclear {
        /// The failure.
        reason: String,
    },
    /// The store was closed.
    #[error("using the store: it is closed")]
    Closed,
    /// The back end could not do it.
    #[error("{doing}: {reason}")]
    Backend {
        /// What was being done.
        doing: &'static str,
        /// The failure.
        reason: String,
    },
}

/// Durable storage of encoded objects under one clock of revisions.
///
/// The promises, which the conformance suite checks: a write that was acknowledged is durable and visible to every
/// later read; writes are atomic compare-and-set on one key; each successful write takes a later revision (the next one,
/// if nobody else writes to the same back end) and no refused write takes any; pages of one list are one snapshot; a feed delivers every event after its start once, in
/// order; only durable writes are ever published.
pub trait Store: Send + Sync + 'static {
    /// Reads one key, as of now.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>>;

    /// Reads a range of keys, or one page of it.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>>;

    /// Writes one key. `Ok` means durable.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>>;

    /// Every event after `from`, in order. `Error::Expired` when they are not all remembered.
    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>>;

    /// The revision of the newest write acknowledged to anybody, or a later one.
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// Somebody waits until feeds reach `revision`. A back end whose revision can move without an event for its feeds
    /// sees to it that they hear of it; the others need do nothing.
    fn expect(&self, revision: Revision) {
        let _ = revision;
    }

    /// Whether the back end can be reached, as far as is known without asking it; a sentence if not.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    /// What opens the values this store gives; none for one that keeps them as they are written.
    fn seals(&self) -> Option<Arc<Seals>> {
        None
    }

    /// Finishes the writes already queued and refuses all that come later. Feeds end.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Checks what every back end must check before it queues a write. What sealing adds is nobody's fault.
fn check_size(write: &Write) -> Result<(), Error> {
    let size = write.value().map_or(0, Bytes::len);
    let is_sealed = write.value().is_some_and(|value| seal::is_sealed(value));
    let limit = if is_sealed { VALUE_LIMIT + seal::SEAL_LIMIT } else { VALUE_LIMIT };
    if size > limit {
        return Err(Error::TooLarge { size, limit });
    }
    Ok(())
}
