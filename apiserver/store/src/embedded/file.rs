//! What is in the file, and reading it. Two tables: the objects by key, and a few numbers about the whole.

use std::fs::{File, OpenOptions, TryLockError};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::OpenError;
use super::seam::Seam;
use crate::{Error, Key, ListOptions, Revision, Stored};

/// Key text → revision of the last write, value. Keys are bytes, because text would be validated at every comparison.
pub(super) const OBJECTS: TableDefinition<'_, &[u8], (u64, &[u8])> = TableDefinition::new("objects");

/// The numbers about the whole.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// In [`META`]: the revision of the newest commit.
pub(super) const REVISION: &str = "revision";

/// In [`META`]: which layout the file has.
const FORMAT: &str = "format";

/// The layout this version writes and reads.
const FORMAT_NUMBER: u64 = 1;

/// The error of a failed read.
pub(super) fn failed(doing: &'static str, error: impl std::fmt::Display) -> Error {
    Error::Backend { doing, reason: error.to_string() }
}

/// Opens the store at `path`, or makes an empty one, so that it survives a power cut from here on.
pub(super) fn open(path: &Path, page_cache: usize) -> Result<Database, OpenError> {
    if path.exists() {
        return database(path, writable(path).map_err(|error| unusable(path, error))?, page_cache);
    }
    make(path, page_cache)
}

/// Makes an empty store beside `path` and gives it its name when it is whole: a file cut short by a crash on the very
/// first start would never open.
fn make(path: &Path, page_cache: usize) -> Result<Database, OpenError> {
    let making = beside(path);
    let io = |error: std::io::Error| unusable(path, error);
    let file = writable(&making).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    if path.exists() {
        // Somebody else finished it between our two looks.
        return database(path, writable(path).map_err(io)?, page_cache);
    }
    // What a crash left of an earlier try.
    file.set_len(0).map_err(io)?;
    let database = database(path, file, page_cache)?;
    record(&database, Revision::FIRST).map_err(|error| unusable(path, error))?;
    give_name(&making, path).map_err(io)?;
    Ok(database)
}

/// Opens a file for reading and writing, and creates it if it is absent.
pub(super) fn writable(path: &Path) -> std::io::Result<File> {
    // It holds Secrets.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The database in a file that is empty or holds one; `path` is what it is called to people.
pub(super) fn database(path: &Path, file: File, page_cache: usize) -> Result<Database, OpenError> {
    let mut builder = Builder::new();
    builder.set_cache_size(page_cache);
    let backend = FileBackend::new(file).map_err(|error| refused(path, error))?;
    builder.create_with_backend(Seam(backend)).map_err(|error| refused(path, error))
}

/// Where a store is made that is to lie at `path`: in the same folder.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".making");
    path.with_file_name(name)
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> OpenError {
    OpenError::Io { path: path.to_owned(), reason: error.to_string() }
}

/// Gives a finished file the name it is looked for by, durably.
pub(super) fn give_name(made: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::rename(made, path)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Says what a failure to open means to a person.
pub(super) fn refused(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        DatabaseError::Storage(redb::StorageError::Corrupted(reason)) => OpenError::Damaged { path, reason },
        other => OpenError::Io { path, reason: other.to_string() },
    }
}

/// Checks the file's format and content, writes both numbers to a new one, and returns the revision to go on from.
pub(super) fn prepare(database: &Database, path: &Path, minimum: Revision) -> Result<Revision, OpenError> {
    let io = |error: redb::Error| unusable(path, error);
    let damaged = |reason: String| OpenError::Damaged { path: path.to_owned(), reason };
    let found = numbers(database).map_err(io)?;
    let revision = match found {
        None => Revision::FIRST,
        Some((FORMAT_NUMBER, revision)) => Revision(revision),
        Some((found, _)) => {
            let (path, supported) = (path.to_owned(), FORMAT_NUMBER);
            return Err(OpenError::UnknownFormat { path, found, supported });
        }
    };
    verify(database, revision).map_err(io)?.map_err(damaged)?;
    let start = revision.max(minimum);
    if found.is_none() || start > revision {
        record(database, start).map_err(io)?;
    }
    Ok(start)
}

/// Format and revision; none when the file is new.
fn numbers(database: &Database) -> Result<Option<(u64, u64)>, redb::Error> {
    let transaction = database.begin_read()?;
    let has_tables = transaction.list_tables()?.next().is_some();
    if !has_tables {
        return Ok(None);
    }
    let read = |meta: &redb::ReadOnlyTable<&'static str, u64>, name| {
        Ok::<u64, redb::Error>(meta.get(name)?.map_or(0, |number| number.value()))
    };
    match transaction.open_table(META) {
        Ok(meta) => Ok(Some((read(&meta, FORMAT)?, read(&meta, REVISION)?))),
        // Some other program's file.
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(Some((0, 0))),
        Err(error) => Err(error.into()),
    }
}

/// Nothing may have been written after the newest revision, or that revision would be given out twice.
fn verify(database: &Database, newest: Revision) -> Result<Result<(), String>, redb::Error> {
    let transaction = database.begin_read()?;
    let objects = match transaction.open_table(OBJECTS) {
        Ok(objects) => objects,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Ok(())),
        Err(error) => return Err(error.into()),
    };
    for item in objects.iter()? {
        let (text, stored) = item?;
        let revision = Revision(stored.value().0);
        let Some(key) = key(text.value()) else {
            let text = String::from_utf8_lossy(text.value());
            return Ok(Err(format!("it holds the key {text:?}, which no version writes")));
        };
        if revision > newest {
            return Ok(Err(format!("{key} was written at revision {revision}, but the newest revision is {newest}")));
        }
    }
    Ok(Ok(()))
}

/// Writes the numbers, which make the file a store.
pub(super) fn record(database: &Database, revision: Revision) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT, FORMAT_NUMBER)?;
        meta.insert(REVISION, revision.0)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The revision a transaction reads at.
pub(super) fn revision(transaction: &ReadTransaction) -> Result<Revision, Error> {
    let doing = "reading the revision";
    let meta = transaction.open_table(META).map_err(|e| failed(doing, e))?;
    let number = meta.get(REVISION).map_err(|e| failed(doing, e))?;
    number.map(|number| Revision(number.value())).ok_or_else(|| failed(doing, "the file has none"))
}

/// What `key` holds.
pub(super) fn get(transaction: &ReadTransaction, key: &Key) -> Result<Option<Stored>, Error> {
    let doing = "reading one key";
    let objects = transaction.open_table(OBJECTS).map_err(|e| failed(doing, e))?;
    current(&objects, key).map_err(|e| failed(doing, e))
}

/// What `key` holds in an open table.
pub(super) fn current(
    objects: &impl ReadableTable<&'static [u8], (u64, &'static [u8])>,
    key: &Key,
) -> Result<Option<Stored>, redb::StorageError> {
    Ok(objects.get(key.text().as_bytes())?.map(|found| stored(found.value())))
}

/// The items of one page, and the key to continue after when there is more.
type Items = (Vec<(Key, Stored)>, Option<Key>);

/// One page.
pub(super) fn page(transaction: &ReadTransaction, options: &ListOptions) -> Result<Items, Error> {
    let doing = "reading a list";
    let (from, to) = options.range.bounds();
    let after = options.after.as_ref().map(Key::text).filter(|after| *after >= from.as_str());
    if after.is_some_and(|after| after >= to.as_str()) {
        return Ok((Vec::new(), None));
    }
    let start = after.map_or(Bound::Included(from.as_bytes()), |after| Bound::Excluded(after.as_bytes()));
    let objects = transaction.open_table(OBJECTS).map_err(|e| failed(doing, e))?;
    let range = objects.range::<&[u8]>((start, Bound::Excluded(to.as_bytes()))).map_err(|e| failed(doing, e))?;
    let limit = options.limit.unwrap_or(usize::MAX).max(1);
    let mut items: Vec<(Key, Stored)> = Vec::new();
    for item in range {
        if items.len() == limit {
            let next = items.last().map(|(key, _)| key.clone());
            return Ok((items, next));
        }
        let (text, found) = item.map_err(|e| failed(doing, e))?;
        let key = key(text.value()).ok_or_else(|| failed(doing, "it holds a key no version writes"))?;
        items.push((key, stored(found.value())));
    }
    Ok((items, None))
}

fn key(text: &[u8]) -> Option<Key> {
    Key::from_text(std::str::from_utf8(text).ok()?)
}

fn stored((revision, value): (u64, &[u8])) -> Stored {
    Stored { revision: Revision(revision), value: Bytes::copy_from_slice(value) }
}
