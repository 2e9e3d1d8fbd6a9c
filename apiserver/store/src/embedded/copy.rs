//! The embedded store out to a backup, and a new one in from it.

use std::io::Write;
use std::path::Path;

use redb::{Database, ReadTransaction, ReadableTable};

use super::file::{self, OBJECTS};
use crate::Revision;
use crate::backup::{self, Error, Piece, Record, Summary, Writer};
use crate::failpoint::{Point, reach};

/// How many bytes of values one commit of a restore takes, so that memory stays bounded.
const COMMIT_BYTES: usize = 32 << 20;

/// Writes everything the transaction sees.
pub(super) fn out(transaction: &ReadTransaction, to: impl Write) -> Result<Summary, Error> {
    let failed = |error: redb::Error| Error::Store(file::failed("reading for a backup", error));
    let mut writer = Writer::begin(to, file::revision(transaction)?)?;
    let objects = transaction.open_table(OBJECTS).map_err(|error| failed(error.into()))?;
    for item in objects.iter().map_err(|error| failed(error.into()))? {
        let (key, stored) = item.map_err(|error| failed(error.into()))?;
        let (revision, value) = stored.value();
        reach(Point::InBackup);
        writer.add(key.value(), revision, value)?;
    }
    writer.end()
}

/// Makes a store at `path`, where there is none, from a backup. It is a store only once everything has been read and
/// found right; until then it must not be where a store is looked for.
pub(super) fn into(path: &Path, page_cache: usize, from: &Path, revision: Revision) -> Result<Summary, Error> {
    let mut reader = backup::open(from)?;
    let made = file::writable(path).map_err(|error| Error::Make(error.to_string()))?;
    let database = file::database(path, made, page_cache).map_err(|error| Error::Make(error.to_string()))?;
    let mut waiting: Vec<Record> = Vec::new();
    let mut bytes = 0;
    loop {
        match reader.next()? {
            Piece::Object(record) => {
                bytes += record.value.len();
                waiting.push(record);
            }
            Piece::End(summary) => {
                insert(&database, &waiting).and_then(|()| file::record(&database, revision)).map_err(make)?;
                return Ok(summary);
            }
        }
        if bytes > COMMIT_BYTES {
            insert(&database, &waiting).map_err(make)?;
            (waiting, bytes) = (Vec::new(), 0);
        }
    }
}

fn insert(database: &Database, records: &[Record]) -> Result<(), redb::Error> {
    reach(Point::InRestore);
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for Record { key, revision, value } in records {
            objects.insert(key.text().as_bytes(), (revision.0, value.as_slice()))?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn make(error: redb::Error) -> Error {
    Error::Make(error.to_string())
}
