//! The durable store on one file, for one process.
//!
//! Writes queue for one plain thread, which commits them in batches: one fsync acknowledges all of a batch. A commit
//! that fails poisons the store, because after a failed fsync nobody knows what the disk holds; only opening the file
//! again tells. Reads go to the file; the API server reads from the cache instead.

mod commit;
mod copy;
mod file;
mod seam;

use std::io::Write as IoWrite;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use futures::FutureExt;
use futures::future::BoxFuture;
use redb::{Database, ReadTransaction, ReadableDatabase};

use self::commit::{Poison, Queue};
use crate::backup;
use crate::feed::{Feed, Log};
use crate::lock::lock;
use crate::pins::Pins;
use crate::{Clock, Error, Key, ListOptions, Page, Revision, Store, Stored, Write, Written, check_size};

/// How the file is opened.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Bytes of file pages kept in memory. The cache above holds every object, so the file is read to find what a write
    /// replaces and at start; the system's page cache is behind this one.
    pub page_cache: usize,
    /// The counter is raised to at least this, for a file restored from a backup: clients that saw later revisions must
    /// not meet them again with other content.
    pub minimum_revision: Revision,
    /// The time by which paging snapshots age.
    pub clock: Clock,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions { page_cache: 16 << 20, minimum_revision: Revision::FIRST, clock: Clock::system() }
    }
}

/// Why the file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error("opening {}: another process is using this store; stop it first", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer version, or is something else.
    #[error("opening {}: its format is {found}, this version reads format {supported}", .path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u64,
        /// What is understood.
        supported: u64,
    },
    /// Its content contradicts itself.
    #[error("opening {}: the store is damaged: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It could not be read or written.
    #[error("opening {}: {reason}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
}

/// The durable store on one file.
#[derive(Debug)]
pub struct Embedded {
    readers: Arc<Mutex<Option<Readers>>>,
    queue: Queue,
    thread: Mutex<Option<JoinHandle<()>>>,
    log: Arc<Log>,
    clock: Clock,
    poison: Poison,
}

/// What reading needs. Dropped by closing, so that the file is released.
struct Readers {
    database: Arc<Database>,
    pins: Pins<Arc<ReadTransaction>>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Readers")
    }
}

impl Embedded {
    /// Opens the store in the file at `path`, which is created if it is absent and readable by its owner only. Blocks
    /// while a file that was not closed is checked.
    ///
    /// # Errors
    /// When the file is in use, is not a store, or cannot be read.
    pub fn open(path: &Path, options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let database = file::open(path, options.page_cache)?;
        Embedded::start(database, path, options)
    }

    fn start(database: Database, path: &Path, options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let revision = file::prepare(&database, path, options.minimum_revision)?;
        let database = Arc::new(database);
        let log = Log::new(revision);
        let poison = Poison::default();
        let (queue, thread) = commit::start(Arc::clone(&database), Arc::clone(&log), Arc::clone(&poison))
            .map_err(|error| OpenError::Io { path: path.to_owned(), reason: error.to_string() })?;
        let readers = Arc::new(Mutex::new(Some(Readers { database, pins: Pins::default() })));
        Ok(Embedded { readers, queue, thread: Mutex::new(Some(thread)), log, clock: options.clock, poison })
    }

    /// Writes a backup of everything as it is now, while others go on reading and writing. Blocks.
    ///
    /// # Errors
    /// When the store is closed or cannot be read, or `to` cannot be written.
    pub fn backup(&self, to: impl IoWrite) -> Result<backup::Summary, backup::Error> {
        let (transaction, _) = snapshot(&self.readers, None, &self.clock)?;
        copy::out(&transaction, to)
    }

    /// Makes a store in a new file at `path` from a backup, with `revision` as its newest. Blocks. There is nothing at
    /// `path` until all of it is durable, so that a restore which dies midway is not taken for a new store.
    ///
    /// # Errors
    /// When the backup is damaged, there is something at `path`, or it cannot be written.
    pub fn restore(path: &Path, from: &Path, revision: Revision) -> Result<backup::Summary, backup::Error> {
        if path.exists() {
            return Err(backup::Error::Make(format!("{} exists already", path.display())));
        }
        let making = file::beside(path);
        // Of a restore that died. What cannot be removed cannot be written either, and is reported then.
        let _ = std::fs::remove_file(&making);
        let made = copy::into(&making, EmbeddedOptions::default().page_cache, from, revision).and_then(|summary| {
            file::give_name(&making, path).map(|()| summary).map_err(|error| backup::Error::Make(error.to_string()))
        });
        if made.is_err() {
            // Nothing opens it under this name; the next restore tries to remove it again.
            let _ = std::fs::remove_file(&making);
        }
        made
    }

    /// Runs a read where it may block.
    async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Mutex<Option<Readers>>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(&self.readers);
        let joined = tokio::task::spawn_blocking(move || read(&readers)).await;
        joined.unwrap_or_else(|error| Err(Error::Backend { doing, reason: error.to_string() }))
    }

    /// Waits until what was read from the file is published: there it can be seen a moment earlier. Whoever has seen it must
    /// not be told of an older revision afterwards, by [`Store::current_revision`] or by a cache that is up to that. What
    /// will never be published, because its commit failed, nobody waits for.
    async fn published(&self, revision: Revision) {
        self.log.until_published(revision, || self.poison.get().is_some()).await;
    }

    /// Waits for the commit thread to finish what is queued, and releases the file.
    fn stop(&self) {
        self.queue.close();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread was reported by it; its writers were told that their writes failed.
            let _ = thread.join();
        }
        self.log.close();
        *lock(&self.readers) = None;
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The transaction to read `options` in, and the revision it is exact at.
fn snapshot(
    readers: &Mutex<Option<Readers>>,
    at: Option<Revision>,
    clock: &Clock,
) -> Result<(Arc<ReadTransaction>, Revision), Error> {
    let mut guard = lock(readers);
    let readers = guard.as_mut().ok_or(Error::Closed)?;
    let newest = Arc::new(readers.database.begin_read().map_err(|e| file::failed("beginning to read", e))?);
    let current = file::revision(&newest)?;
    match at {
        None => Ok((newest, current)),
        Some(at) if at == current => Ok((newest, current)),
        Some(requested) if requested > current => Err(Error::Future { requested, current }),
        Some(requested) => match readers.pins.get(requested, clock.now()) {
            Some(pinned) => Ok((pinned, requested)),
            None => {
                let oldest = readers.pins.oldest().unwrap_or(current);
                Err(Error::Expired { requested, oldest, current })
            }
        },
    }
}

fn list(readers: &Mutex<Option<Readers>>, options: &ListOptions, clock: &Clock) -> Result<Page, Error> {
    let (transaction, revision) = snapshot(readers, options.at, clock)?;
    let (items, next) = file::page(&transaction, options)?;
    if next.is_some()
        && let Some(readers) = lock(readers).as_mut()
    {
        readers.pins.pin(revision, transaction, clock.now());
    }
    Ok(Page { items, revision, next })
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        let (key, clock) = (key.clone(), self.clock.clone());
        async move {
            let read = self.read("reading one key", move |readers| {
                let (transaction, revision) = snapshot(readers, None, &clock)?;
                Ok((file::get(&transaction, &key)?, revision))
            });
            let (found, revision) = read.await?;
            self.published(revision).await;
            Ok(found)
        }
        .boxed()
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        let clock = self.clock.clone();
        async move {
            let page = self.read("reading a list", move |readers| list(readers, &options, &clock)).await?;
            self.published(page.revision).await;
            Ok(page)
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        async move {
            check_size(&write)?;
            self.queue.push(write)?.await
        }
        .boxed()
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        async move { self.log.feed(from) }.boxed()
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async move { Ok(self.log.revision()) }.boxed()
    }

    fn health(&self) -> Result<(), String> {
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(format!("a commit failed, and nothing is written until a restart: {reason}")),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.queue.close();
        let thread = lock(&self.thread).take();
        async move {
            let joined = tokio::task::spawn_blocking(move || thread.map(JoinHandle::join)).await;
            if joined.is_err() {
                tracing::error!("waiting for the commit thread failed");
            }
            self.stop();
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
