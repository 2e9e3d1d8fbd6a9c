//! The file of an artifact: written under a name that is its worker's alone, read back, and only then given its own.
//!
//! Two workers may be at one artifact: that of a lost node is followed by another, and may live on. So nobody writes into a file that another may
//! have opened, and what has its name is neither replaced nor removed: it may be what was reported.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio::{sync::mpsc, time::timeout};

use super::{Error, STILL};
use crate::{digest::Sha256, disk};

/// After this many bytes what was written so far is sent to the disk, beside the writing, so that little is left at the end.
const SYNC_EVERY: usize = 32 << 20;
/// Chunks between network and disk; one is a TLS record of 16 KiB, so they hold 4 MiB.
const CHUNKS: usize = 256;
/// Read back in pieces of this size.
const READ_BACK: usize = 1 << 20;
/// Names that are tried: many times as many as there are workers of one artifact.
const NAMES_MOST: u16 = 100;

/// What the name of an unfinished file begins with.
fn begin(file: &str) -> String {
    format!(".{file}.")
}

/// A name that no other worker has.
pub(super) fn fresh(folder: &Path, file: &str) -> PathBuf {
    folder.join(format!("{}{}.part", begin(file), Timestamp::now().as_nanosecond()))
}

/// Removes what others have not finished, or each would leave as much as the artifact is large: one that lives fails when it is to give its file a
/// name.
pub(super) fn sweep(folder: &Path, file: &str) {
    let begin = begin(file);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(&begin) && name.ends_with(".part")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes the stream into a file and returns the trailers. The file is on disk when this returns.
///
/// # Errors
/// When the stream breaks off or stands still, ends without trailers, or cannot be written.
pub async fn receive(mut body: Incoming, partial: &Path) -> Result<HeaderMap, Error> {
    let (chunks, mut receiver) = mpsc::channel::<Bytes>(CHUNKS);
    let path = partial.to_owned();
    let writer = tokio::task::spawn_blocking(move || {
        write(&mut receiver, &path).map_err(|source| Error::Write { path: path.clone(), source })
    });
    let mut trailers = None;
    let still = |_| Error::Stream(format!("nothing came for {} s", STILL.as_secs()));
    while let Some(frame) = timeout(STILL, body.frame()).await.map_err(still)? {
        let frame = frame.map_err(|error| Error::Stream(error.to_string()))?;
        match frame.into_data() {
            Ok(data) => {
                if chunks.send(data).await.is_err() {
                    // The writing thread ended early; joining it says why.
                    break;
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    drop(chunks);
    writer.await.map_err(|error| Error::Stream(format!("the writing thread ended: {error}")))??;
    trailers.ok_or_else(|| Error::Stream("it ended without its checksum".to_owned()))
}

/// Writes chunks until there are no more; then the whole file is on disk. It is this worker's own:
/// into one that is there already another may write. A second thread syncs while this one writes.
fn write(chunks: &mut mpsc::Receiver<Bytes>, path: &Path) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    let early = file.try_clone()?;
    std::thread::scope(|scope| {
        let (due, wanted) = std::sync::mpsc::sync_channel::<()>(1);
        // The kernel reports a failed write once per open file: an error met here must not be lost.
        let syncing = scope.spawn(move || wanted.iter().try_for_each(|()| early.sync_data()));
        let mut unsynced: usize = 0;
        while let Some(chunk) = chunks.blocking_recv() {
            file.write_all(&chunk)?;
            unsynced = unsynced.saturating_add(chunk.len());
            if unsynced >= SYNC_EVERY && due.try_send(()).is_ok() {
                unsynced = 0;
            }
        }
        drop(due);
        syncing.join().unwrap_or_else(|_| Err(io::Error::other("the syncing thread ended")))?;
        file.sync_all()
    })
}

/// What lies on the disk: its size and its hash.
pub(super) fn read_back(path: &Path) -> io::Result<(u64, String)> {
    let mut file = fs::File::open(path)?;
    // Ask the kernel to forget its copy, so that the disk is read; a file system that cannot is read as it can.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut sum = Sha256::default();
    let mut buffer = vec![0; READ_BACK];
    let mut bytes: u64 = 0;
    loop {
        let size = file.read(&mut buffer)?;
        if size == 0 {
            return Ok((bytes, sum.hex()));
        }
        sum.update(buffer.get(..size).unwrap_or_default());
        bytes = bytes.saturating_add(size as u64);
    }
}

/// Gives a file the first of its names that nobody has, durably. Whoever makes the empty file of a name has it: not every target knows links, or a
/// rename that replaces nothing.
pub(super) fn name(partial: &Path, folder: &Path, file: &str) -> io::Result<String> {
    for number in 1..=NAMES_MOST {
        let name = numbered(file, number);
        let path = folder.join(&name);
        match fs::File::create_new(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        if let Err(error) = fs::rename(partial, &path) {
            give_back(&path);
            return Err(error);
        }
        disk::sync_dir(folder).map_err(io::Error::other)?;
        return Ok(name);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes the empty file of a name that is not used. Over NFS a rename whose answer was lost is asked for again, and fails for want of the file that
/// it has moved: then the whole artifact has the name.
fn give_back(path: &Path) {
    if fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        let _ = fs::remove_file(path);
    }
}

/// `shard-0.rdb`, `shard-0.2.rdb`, ….
fn numbered(file: &str, number: u16) -> String {
    match file.strip_suffix(".rdb") {
        _ if number == 1 => file.to_owned(),
        Some(stem) => format!("{stem}.{number}.rdb"),
        None => format!("{file}.{number}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::collections::BTreeMap;

    use super::*;

    const FILE: &str = "shard-1.rdb";

    /// What is in a folder.
    fn found(folder: &Path) -> BTreeMap<String, String> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())).collect()
    }

    fn files<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
        files.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
    }

    /// Before, a worker that came late replaced, or removed, what another had reported.
    #[test]
    fn what_has_its_name_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [("a", FILE), ("b", "shard-1.2.rdb"), ("c", "shard-1.3.rdb")] {
            let partial = fresh(folder.path(), FILE);
            fs::write(&partial, text).unwrap();
            assert_eq!(name(&partial, folder.path(), FILE).unwrap(), expected);
        }
        let expected = files([(FILE, "a"), ("shard-1.2.rdb", "b"), ("shard-1.3.rdb", "c")]);
        assert_eq!(found(folder.path()), expected);
    }

    /// Before, both wrote into one file.
    #[test]
    fn a_worker_that_another_followed_writes_nowhere_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(".shard-10.rdb.7.part");
        fs::write(&other, "of another shard").unwrap();
        let former = fresh(folder.path(), FILE);
        let mut written = fs::File::create_new(&former).unwrap();
        sweep(folder.path(), FILE);
        let next = fresh(folder.path(), FILE);
        fs::write(&next, "whole").unwrap();
        io::Write::write_all(&mut written, b"late").unwrap();
        assert_eq!(name(&former, folder.path(), FILE).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(name(&next, folder.path(), FILE).unwrap(), FILE);
        let expected = files([(".shard-10.rdb.7.part", "of another shard"), (FILE, "whole")]);
        assert_eq!(found(folder.path()), expected);
    }

    /// Before, an artifact that had just got its name was removed with it.
    #[test]
    fn a_name_is_given_back_as_long_as_nothing_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, whole) = (folder.path().join("shard-1.2.rdb"), folder.path().join(FILE));
        fs::write(&empty, "").unwrap();
        fs::write(&whole, "whole").unwrap();
        give_back(&empty);
        give_back(&whole);
        assert_eq!(found(folder.path()), files([(FILE, "whole")]));
    }

    #[test]
    fn a_file_that_is_there_is_not_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, "of another").unwrap();
        let (_, mut chunks) = mpsc::channel(1);
        assert_eq!(write(&mut chunks, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(found(folder.path()), files([(FILE, "of another")]));
    }
}
