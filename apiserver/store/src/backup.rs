//! Backups of the embedded store: one file with every object as it was at one revision, and a store made from it.
//!
//! The file, all numbers big-endian:
//!
//! ```text
//! "kun store backup" · format u32 · revision u64
//! 1 u8 · length u32 · key · revision u64 · length u32 · value      for each object, in key order
//! 0 u8 · number of objects u64 · SHA-256 of everything before
//! ```
//!
//! A store made from a backup goes on far beyond the backup's revision (see [`resume_at`]): whoever saw what was written
//! after the backup must not meet its revisions again with other content, and is told to list again instead.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::{Key, Revision, VALUE_LIMIT};

/// How a backup begins.
const MAGIC: &[u8; 16] = b"kun store backup";

/// The layout this version writes and reads.
const FORMAT: u32 = 1;

/// Before an object, and before the end.
const OBJECT: u8 = 1;
const END: u8 = 0;

/// The longest key: group, resource, namespace and name with what parts them.
const KEY_LIMIT: usize = 4 * 254;

/// By how much a restored store's revision exceeds everything that is known to have been given out, where the clock does
/// not show a later one. What the old server wrote after the backup is not known if its file is lost; this is 115 days of
/// 100,000 writes per second. Nine million restores fit into the 63 bits that clients have for a revision.
pub const JUMP: u64 = 1_000_000_000_000;

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The revision it is exact at.
    pub revision: Revision,
    /// How many objects.
    pub objects: u64,
}

/// Why a backup was not written, or is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The failure.
        source: io::Error,
    },
    /// The store failed.
    #[error("reading the store: {0}")]
    Store(#[from] crate::Error),
    /// The store to be made could not be opened or written.
    #[error("making the store: {0}")]
    Make(String),
    /// It is something else.
    #[error("reading the backup: this file is no backup of a store")]
    NoBackup,
    /// Another version wrote it.
    #[error("reading the backup: its format is {found}, this version reads format {FORMAT}")]
    UnknownFormat {
        /// What it says.
        found: u32,
    },
    /// It ends too early, or is not what was written.
    #[error("reading the backup: it is damaged: {0}")]
    Damaged(&'static str),
}

/// One object of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) value: Vec<u8>,
}

/// Writes a backup, piece by piece.
pub(crate) struct Writer<W> {
    to: W,
    digest: Context,
    summary: Summary,
}

impl<W: Write> Writer<W> {
    /// Begins a backup of what was there at `revision`.
    pub(crate) fn begin(to: W, revision: Revision) -> Result<Self, Error> {
        let mut writer = Writer { to, digest: Context::new(&SHA256), summary: Summary { revision, objects: 0 } };
        writer.put(MAGIC)?;
        writer.put(&FORMAT.to_be_bytes())?;
        writer.put(&revision.0.to_be_bytes())?;
        Ok(writer)
    }

    /// Adds an object. `key` is its key's text.
    pub(crate) fn add(&mut self, key: &[u8], revision: u64, value: &[u8]) -> Result<(), Error> {
        self.summary.objects += 1;
        self.put(&[OBJECT])?;
        self.put_sized(key)?;
        self.put(&revision.to_be_bytes())?;
        self.put_sized(value)
    }

    /// Ends the backup with its checksum.
    pub(crate) fn end(mut self) -> Result<Summary, Error> {
        self.put(&[END])?;
        self.put(&self.summary.objects.to_be_bytes())?;
        let digest = self.digest.clone().finish();
        self.put(digest.as_ref())?;
        self.to.flush().map_err(writing)?;
        Ok(self.summary)
    }

    fn put_sized(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let size = u32::try_from(bytes.len()).map_err(|_| Error::Damaged("the store holds a value of 4 GiB"))?;
        self.put(&size.to_be_bytes())?;
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.digest.update(bytes);
        self.to.write_all(bytes).map_err(writing)
    }
}

/// Reads a backup, piece by piece. Nothing it gave is to be trusted before it gave the summary.
pub(crate) struct Reader<R> {
    from: R,
    digest: Context,
    summary: Summary,
}

/// The next piece of a backup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// An object.
    Object(Record),
    /// That was all, and it was what was written.
    End(Summary),
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    pub(crate) fn begin(from: R) -> Result<Self, Error> {
        let summary = Summary { revision: Revision::FIRST, objects: 0 };
        let mut reader = Reader { from, digest: Context::new(&SHA256), summary };
        if reader.take::<16>().map_err(|_| Error::NoBackup)? != *MAGIC {
            return Err(Error::NoBackup);
        }
        let found = u32::from_be_bytes(reader.take()?);
        if found != FORMAT {
            return Err(Error::UnknownFormat { found });
        }
        reader.summary.revision = Revision(u64::from_be_bytes(reader.take()?));
        Ok(reader)
    }

    /// The next piece.
    pub(crate) fn next(&mut self) -> Result<Piece, Error> {
        match self.take::<1>()? {
            [OBJECT] => {
                self.summary.objects += 1;
                let key = self.take_sized(KEY_LIMIT)?;
                let key = std::str::from_utf8(&key).ok().and_then(Key::from_text);
                let key = key.ok_or(Error::Damaged("it holds a key no version writes"))?;
                let revision = Revision(u64::from_be_bytes(self.take()?));
                let value = self.take_sized(VALUE_LIMIT)?;
                Ok(Piece::Object(Record { key, revision, value }))
            }
            [END] => self.end(),
            _ => Err(Error::Damaged("an object does not begin where one should")),
        }
    }

    fn end(&mut self) -> Result<Piece, Error> {
        let objects = u64::from_be_bytes(self.take()?);
        let digest = self.digest.clone().finish();
        let written: [u8; SHA256_OUTPUT_LEN] = self.take()?;
        if digest.as_ref() != written || objects != self.summary.objects {
            return Err(Error::Damaged("its checksum is another"));
        }
        Ok(Piece::End(self.summary))
    }

    fn take_sized(&mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let size = usize::try_from(u32::from_be_bytes(self.take()?)).unwrap_or(usize::MAX);
        if size > limit {
            return Err(Error::Damaged("a key or a value is longer than any can be"));
        }
        let mut bytes = vec![0; size];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.from.read_exact(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::Damaged("it ends too early"),
            _ => Error::Io { doing: "reading the backup", source },
        })?;
        self.digest.update(bytes);
        Ok(())
    }
}

/// Reads a whole backup and says what it holds.
///
/// # Errors
/// When it cannot be read, is none, or is damaged.
pub fn verify(file: &Path) -> Result<Summary, Error> {
    let mut reader = open(file)?;
    loop {
        if let Piece::End(summary) = reader.next()? {
            return Ok(summary);
        }
    }
}

/// A reader of the backup in a file.
pub(crate) fn open(file: &Path) -> Result<Reader<BufReader<File>>, Error> {
    let file = File::open(file).map_err(|source| Error::Io { doing: "opening the backup", source })?;
    Reader::begin(BufReader::new(file))
}

/// The revision that belongs to a moment: nanoseconds since 1970. A store that begins there, or goes on there, is beyond
/// all that any predecessor of its name has given out, because nobody writes a billion times a second. It fits 63 bits
/// until the year 2262; a clock before 1970 shows nothing.
#[must_use]
pub fn at_time(since_1970: std::time::Duration) -> Revision {
    Revision(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX).clamp(Revision::FIRST.0, u64::MAX >> 1))
}

/// The revision a store made from a backup goes on from: beyond the backup's and beyond all that is known of the store it
/// replaces, and where the `clock` is (see [`at_time`]), if that is later: what a store gave out that was lost without a
/// trace is before it.
#[must_use]
pub fn resume_at(backup: Revision, replaced: Option<Revision>, clock: Revision) -> Revision {
    let known = backup.max(replaced.unwrap_or_default());
    // A clock that is behind what was given out is wrong and proves nothing.
    if clock > known { clock } else { Revision(known.0.saturating_add(JUMP)) }
}

fn writing(source: io::Error) -> Error {
    Error::Io { doing: "writing the backup", source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::time::Duration;

    use super::*;

    fn record(name: &str, revision: u64) -> Record {
        let key = Key::new("pods", Some("a"), name).unwrap();
        Record { key, revision: Revision(revision), value: format!("value of {name}").into_bytes() }
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes, Revision(99)).unwrap();
        for Record { key, revision, value } in records {
            writer.add(key.text().as_bytes(), revision.0, value).unwrap();
        }
        let objects = u64::try_from(records.len()).unwrap();
        assert_eq!(writer.end().unwrap(), Summary { revision: Revision(99), objects });
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Record>, Summary), Error> {
        let mut reader = Reader::begin(bytes)?;
        let mut records = Vec::new();
        loop {
            match reader.next()? {
                Piece::Object(record) => records.push(record),
                Piece::End(summary) => return Ok((records, summary)),
            }
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        for records in [Vec::new(), vec![record("x", 7), record("y", 99)]] {
            let objects = u64::try_from(records.len()).unwrap();
            let (found, summary) = read(&written(&records)).unwrap();
            assert_eq!((found, summary), (records, Summary { revision: Revision(99), objects }));
        }
    }

    #[test]
    fn a_backup_that_was_cut_or_changed_anywhere_is_refused() {
        let good = written(&[record("x", 7), record("y", 99)]);
        for length in 0..good.len() {
            read(&good[..length]).expect_err("a cut backup");
        }
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 4;
            read(&bad).expect_err("a changed backup");
        }
    }

    #[test]
    fn another_file_and_another_format_are_told_apart() {
        assert!(matches!(read(b"short"), Err(Error::NoBackup)));
        assert!(matches!(read(&[7; 100]), Err(Error::NoBackup)));
        let mut newer = written(&[]);
        newer[19] = 2;
        assert!(matches!(read(&newer), Err(Error::UnknownFormat { found: 2 })));
    }

    #[test]
    fn a_restored_store_goes_on_beyond_the_backup_and_what_it_replaces_and_where_the_clock_is() {
        let early = Revision(7);
        assert_eq!(resume_at(Revision(50), None, early), Revision(JUMP + 50));
        assert_eq!(resume_at(Revision(50), Some(Revision(80)), early), Revision(JUMP + 80));
        assert_eq!(resume_at(Revision(80), Some(Revision(50)), early), Revision(JUMP + 80));
        assert_eq!(resume_at(Revision(80), Some(Revision(50)), Revision(80)), Revision(JUMP + 80));
        assert_eq!(resume_at(Revision(50), Some(Revision(80)), Revision(81)), Revision(81));
        let now = at_time(Duration::from_secs(1_790_000_000));
        assert_eq!(resume_at(at_time(Duration::from_secs(1_789_999_999)), Some(Revision(80)), now), now);
    }

    #[test]
    fn the_revision_of_a_moment_fits_what_clients_have_for_it() {
        assert_eq!(at_time(Duration::ZERO), Revision::FIRST);
        assert_eq!(at_time(Duration::from_nanos(1_790_000_000_123_456_789)), Revision(1_790_000_000_123_456_789));
        assert_eq!(at_time(Duration::MAX), Revision(i64::MAX.unsigned_abs()));
    }
}
