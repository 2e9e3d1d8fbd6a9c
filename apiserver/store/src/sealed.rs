//! A store whose values are sealed before they reach the back end, whichever it is.
//!
//! Reads and feeds give values as they are kept; who shows them opens them with [`Seals::open`], and so learns whether
//! they are stale and keeps one bad value from spoiling a whole list. Only what a refused write found is opened here.
//! Backups are made below this seam and carry sealed values as they are.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::seal::{Keyring, Opened, SealError};
use crate::{
    Action, Error, Feed, Key, ListOptions, Page, Refusal, Revision, Store, Stored, Write, Written, check_size,
};

/// The keyring in use, which may be exchanged, and where keys lie in the back end.
pub struct Seals {
    /// Begins and ends with a slash.
    folder: String,
    current: ArcSwap<Keyring>,
    exchanged: watch::Sender<u64>,
}

impl Seals {
    /// Seals with `keyring`, for a back end that keeps its keys below `prefix`. Kubernetes binds a value to the whole path.
    #[must_use]
    pub fn new(keyring: Keyring, prefix: &str) -> Arc<Seals> {
        let folder = format!("/{}/", prefix.trim_matches('/'));
        Arc::new(Seals { folder, current: ArcSwap::from_pointee(keyring), exchanged: watch::Sender::new(0) })
    }

    /// Uses another keyring from now on; whoever holds opened values is told to open them again.
    pub fn exchange(&self, keyring: Keyring) {
        self.current.store(Arc::new(keyring));
        self.exchanged.send_modify(|times| *times += 1);
    }

    /// Changes whenever the keyring was exchanged: what was unreadable, or stale, may be so no longer.
    #[must_use]
    pub fn exchanges(&self) -> watch::Receiver<u64> {
        self.exchanged.subscribe()
    }

    /// Opens the value kept at `key`.
    ///
    /// # Errors
    /// A sentence when no key here can.
    pub fn open(&self, key: &Key, value: &Bytes) -> Result<Opened, String> {
        self.current.load().open(key.resource(), self.place(key).as_bytes(), value)
    }

    fn seal(&self, key: &Key, value: Bytes) -> Result<Bytes, SealError> {
        self.current.load().seal(key.resource(), self.place(key).as_bytes(), value)
    }

    fn place(&self, key: &Key) -> String {
        format!("{}{key}", self.folder)
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A store with its seals.
pub struct Sealed {
    inner: Arc<dyn Store>,
    seals: Arc<Seals>,
}

impl Sealed {
    /// Keeps in `inner` what `seals` has sealed.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, seals: Arc<Seals>) -> Sealed {
        Sealed { inner, seals }
    }

    fn seal(&self, write: Write) -> Result<Write, Error> {
        check_size(&write)?;
        let Write { key, action } = write;
        let sealed = |value| {
            self.seals
                .seal(&key, value)
                .map_err(|error| Error::Backend { doing: "sealing the value", reason: error.to_string() })
        };
        let action = match action {
            Action::Create { value } => Action::Create { value: sealed(value)? },
            Action::Update { value, expected } => Action::Update { value: sealed(value)?, expected },
            Action::Delete { expected } => Action::Delete { expected },
        };
        Ok(Write { key, action })
    }

    /// What the write found, as it was before it was sealed. What cannot be opened stays as it is kept.
    fn show(&self, key: &Key, refusal: Refusal) -> Refusal {
        let open = |Stored { revision, value }| {
            let value = self.seals.open(key, &value).map_or(value, |opened| opened.value);
            Stored { revision, value }
        };
        match refusal {
            Refusal::Exists { current } => Refusal::Exists { current: open(current) },
            Refusal::Conflict { current } => Refusal::Conflict { current: open(current) },
            Refusal::Absent => Refusal::Absent,
        }
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

impl Store for Sealed {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        self.inner.get(key)
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        self.inner.list(options)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        async move {
            let write = self.seal(write)?;
            let key = write.key.clone();
            self.inner.write(write).await.map_err(|error| match error {
                Error::Refused(refusal) => Error::Refused(self.show(&key, refusal)),
                other => other,
            })
        }
        .boxed()
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        self.inner.watch(from)
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.inner.current_revision()
    }

    fn expect(&self, revision: Revision) {
        self.inner.expect(revision);
    }

    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }

    fn seals(&self) -> Option<Arc<Seals>> {
        Some(Arc::clone(&self.seals))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests;
