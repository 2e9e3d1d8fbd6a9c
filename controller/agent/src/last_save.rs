//! A snapshot that Redis wrote when it stopped stands in for append-only files that lack what it has. I/O on files; what counts is decided by proofs.
//!
//! The next start loads append-only files if there are any. Where the last ones could not be written (a full disk), they lack acknowledged writes
//! that the snapshot has. It takes their place without a copy, for which there may be no room: a hard link, and a manifest that names it. Which of both
//! is newer must not rest on clocks, nor on an agent that lives on. A note says before the shutdown how long the files were and which snapshot lay
//! there, at a moment when none was being written. One that came later was begun later, so it has what the files had, and
//! if they have not changed it has what they have. Where anything differs from the note the files count.

use std::{collections::BTreeMap, fs, io, path::Path};

use jiff::Timestamp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{
    disk::{self, AOF_DIR, Error, RDB_FILE, Stamp},
    handover,
    lag::{self, MANIFEST},
    shared::Shared,
};

/// Name of the note.
pub const FILE: &str = "kun-last-save.json";

/// What lay on the volume before Redis was told to save.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Lengths of the append-only files that counted.
    log: BTreeMap<String, Option<u64>>,
    /// [`disk::snapshot_stamp`].
    snapshot: Stamp,
}

impl Note {
    /// Whether a snapshot lies there that has all that the append-only files have.
    fn is_outdone(&self, dir: &Path) -> Result<bool, Error> {
        Ok(disk::is_newly_saved(self.snapshot, disk::snapshot_stamp(dir)) && lengths(dir)? == self.log)
    }
}

/// Notes what lies there, where append-only files would be loaded at the next start. What cannot be noted is not proven later.
pub async fn note(shared: &Shared) {
    let dir = &shared.options.data_dir;
    // In this order: a snapshot that is begun after Redis has answered has all that the files had before.
    let log = lengths(dir);
    let info = handover::info(&shared.local, &["persistence"]).await;
    let is_quiet = info.is_ok_and(|info| info.flag("rdb_bgsave_in_progress") == Some(false));
    let written = match log {
        Ok(log) if log.is_empty() && !shared.local.logs_writes() => return,
        Ok(log) if is_quiet => write(dir, &Note { log, snapshot: disk::snapshot_stamp(dir) }),
        Ok(_) => forget(dir),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(%error, "the volume does not say what lay there before Redis saves");
    }
}

/// Whether a note lies there that nothing has been made of yet.
#[must_use]
pub fn is_noted(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Has the next start load what is newer. `is_saved`: Redis has ended just now after it had saved all it had. `keeps`: every write is to be in an
/// append-only file; where not, a snapshot does.
///
/// # Errors
/// When the files cannot be read or written. What counts is the same then as before, or as after it, and it may be called again.
pub fn settle(dir: &Path, keeps: bool, is_saved: bool) -> Result<(), Error> {
    let noted = read(dir)?;
    let is_newer = is_saved || noted.map_or(Ok(false), |note| note.is_outdone(dir))?;
    if is_newer && keeps {
        adopt(dir)?;
    } else if is_newer {
        put_aside(dir)?;
    }
    forget(dir)
}

/// The snapshot becomes the base of new append-only files. Redis removes the former ones once it has loaded it (type `h`).
fn adopt(dir: &Path) -> Result<(), Error> {
    let folder = dir.join(AOF_DIR);
    let failed = |source| Error::Write { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(failed)?;
    let former = manifest(dir)?;
    let former = parts(&former);
    let number = 1 + former.iter().map(|part| part.number).max().unwrap_or_default();
    let [base, log] = ["base.rdb", "incr.aof"].map(|what| format!("appendonly.aof.{number}.{what}"));
    // One that was cut off before the manifest named it.
    disk::remove(&folder, &base)?;
    match fs::hard_link(dir.join(RDB_FILE), folder.join(&base)) {
        Err(error) if !has_links(&error) => {
            tracing::warn!(%error, "a file system without hard links: the snapshot is loaded where it lies");
            return put_aside(dir);
        }
        linked => linked.map_err(failed)?,
    }
    fs::File::create(folder.join(&log)).and_then(|file| file.sync_all()).map_err(failed)?;
    let gone = former.iter().map(|part| format!("file {} seq {} type h\n", part.name, part.number));
    let manifest =
        format!("file {base} seq {number} type b\n{}file {log} seq {number} type i\n", gone.collect::<String>());
    // Before anything names them.
    [dir, &folder].into_iter().try_for_each(disk::sync_dir)?;
    disk::replace(&folder, MANIFEST, manifest.as_bytes())?;
    tracing::warn!(base, "the last snapshot has what the append-only files lack, and is their new base");
    // It has another name now, and would grow stale under this one.
    disk::forget_snapshot(dir)
}

/// Whether one that could not be made now can be made later: there was no room, or the disk failed. Pure.
fn has_links(error: &io::Error) -> bool {
    let is_unknown = |errno| matches!(errno, Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK);
    !Errno::from_io_error(error).is_some_and(is_unknown)
}

fn put_aside(dir: &Path) -> Result<(), Error> {
    if let Some(to) = disk::quarantine(dir, Timestamp::now(), &[AOF_DIR])? {
        tracing::info!(to = %to.display(), "append-only files that lack what the snapshot has were put aside");
    }
    Ok(())
}

/// A file that a manifest names.
struct Part<'a> {
    name: &'a str,
    number: u64,
    /// It was replaced, and is loaded no more.
    is_former: bool,
}

impl<'a> Part<'a> {
    /// By a line of a manifest, `file NAME seq N type T …`. Pure.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let words: [&str; 6] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let ["file", name, "seq", number, "type", kind] = words else { return None };
        Some(Self { name, number: number.parse().ok()?, is_former: kind == "h" })
    }
}

/// The lines of a manifest. Pure.
fn parts(manifest: &[u8]) -> Vec<Part<'_>> {
    manifest.split(|byte| *byte == b'\n').filter_map(Part::parse).collect()
}

/// How long the append-only files are that a start would load. One that is missing has no length: what was noted of it is no more.
fn lengths(dir: &Path) -> Result<BTreeMap<String, Option<u64>>, Error> {
    let manifest = manifest(dir)?;
    let counting = parts(&manifest).into_iter().filter(|part| !part.is_former);
    let length = |part: Part<'_>| {
        let path = dir.join(AOF_DIR).join(part.name);
        let length = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file.map_err(|source| Error::Read { path, source })?.len()),
        };
        Ok((part.name.to_owned(), length))
    };
    counting.map(length).collect()
}

/// The whole list: a file that it does not show may be one that counts, or have the number of a new one.
fn manifest(dir: &Path) -> Result<Vec<u8>, Error> {
    let manifest = lag::manifest(dir)?;
    if u64::try_from(manifest.len()).is_ok_and(|bytes| bytes < lag::MOST) {
        return Ok(manifest);
    }
    let source = io::Error::other(format!("it is longer than the {} bytes that are read of it", lag::MOST));
    Err(Error::Read { path: dir.join(AOF_DIR).join(MANIFEST), source })
}

/// Whether the append-only files that a start would load have every write, as far as files tell: each that the manifest names is there, and Redis
/// was not writing the first one that is to count beside them, be it because they are of earlier days. What cannot be read does not.
#[must_use]
pub fn is_log_whole(dir: &Path) -> bool {
    let is_there =
        |lengths: BTreeMap<String, Option<u64>>| !lengths.is_empty() && lengths.values().all(Option::is_some);
    lengths(dir).is_ok_and(is_there) && !lag::is_first(dir)
}

fn write(dir: &Path, note: &Note) -> Result<(), Error> {
    let failed = |error| Error::Write { path: dir.join(FILE), source: io::Error::other(error) };
    disk::replace(dir, FILE, &serde_json::to_vec(note).map_err(failed)?)
}

/// One that is not legible proves nothing.
fn read(dir: &Path) -> Result<Option<Note>, Error> {
    let path = dir.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// What happens to the volume from now on is not judged by it: a snapshot that somebody puts there would count.
fn forget(dir: &Path) -> Result<(), Error> {
    if disk::remove(dir, FILE)? { disk::sync_dir(dir) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const BEFORE: &str = "file appendonly.aof.1.base.rdb seq 1 type b\n\
        file appendonly.aof.3.incr.aof seq 3 type h startoffset 0 endoffset 9\n\
        file appendonly.aof.4.incr.aof seq 4 type i startoffset 9\n";

    /// A volume with append-only files of which the last one lacks something, an old snapshot, and a note of them.
    struct Volume(tempfile::TempDir);

    impl Volume {
        fn noted() -> Self {
            let volume = Self(tempfile::tempdir().unwrap());
            fs::create_dir(volume.dir().join(AOF_DIR)).unwrap();
            volume.put(&format!("{AOF_DIR}/{MANIFEST}"), BEFORE);
            volume.put("appendonlydir/appendonly.aof.1.base.rdb", "base");
            volume.put("appendonlydir/appendonly.aof.4.incr.aof", "log");
            volume.put(RDB_FILE, "old");
            let note = Note { log: lengths(volume.dir()).unwrap(), snapshot: disk::snapshot_stamp(volume.dir()) };
            write(volume.dir(), &note).unwrap();
            volume
        }

        fn dir(&self) -> &Path {
            self.0.path()
        }

        fn put(&self, name: &str, content: &str) {
            fs::write(self.dir().join(name), content).unwrap();
        }

        /// As Redis writes it: under another name first.
        fn save(&self) {
            self.put("temp-7.rdb", "everything");
            fs::rename(self.dir().join("temp-7.rdb"), self.dir().join(RDB_FILE)).unwrap();
        }

        fn manifest(&self) -> String {
            fs::read_to_string(self.dir().join(AOF_DIR).join(MANIFEST)).unwrap_or_default()
        }

        /// Whether the next start would load the snapshot.
        fn settled(&self, keeps: bool, is_saved: bool) -> bool {
            settle(self.dir(), keeps, is_saved).unwrap();
            assert!(!self.dir().join(FILE).exists(), "the note is done with");
            !self.manifest().contains("file appendonly.aof.1.base.rdb seq 1 type b")
        }
    }

    /// Before, the configuration was asked instead: it says so from the moment on at which the file is switched on.
    #[test]
    fn a_log_has_every_write_once_the_manifest_names_what_is_there() {
        let volume = Volume::noted();
        assert!(is_log_whole(volume.dir()));
        let unnamed = format!("{AOF_DIR}/{}", disk::UNNAMED);
        volume.put(&unnamed, "what came while the first one was written");
        assert!(!is_log_whole(volume.dir()), "those are of earlier days");
        fs::remove_file(volume.dir().join(unnamed)).unwrap();
        fs::remove_file(volume.dir().join("appendonlydir/appendonly.aof.4.incr.aof")).unwrap();
        assert!(!is_log_whole(volume.dir()), "one of them is missing");
        let first = Volume(tempfile::tempdir().unwrap());
        first.save();
        assert!(!is_log_whole(first.dir()), "a snapshot is all that lies there");
    }

    #[test]
    fn a_snapshot_of_after_the_note_becomes_the_base_of_new_files() {
        let volume = Volume::noted();
        volume.save();
        let inode = fs::metadata(volume.dir().join(RDB_FILE)).unwrap().ino();
        assert!(volume.settled(true, false));
        assert_eq!(
            volume.manifest(),
            "file appendonly.aof.5.base.rdb seq 5 type b\n\
             file appendonly.aof.1.base.rdb seq 1 type h\n\
             file appendonly.aof.3.incr.aof seq 3 type h\n\
             file appendonly.aof.4.incr.aof seq 4 type h\n\
             file appendonly.aof.5.incr.aof seq 5 type i\n"
        );
        let base = fs::metadata(volume.dir().join("appendonlydir/appendonly.aof.5.base.rdb")).unwrap();
        assert_eq!((base.ino(), base.nlink()), (inode, 1), "the same file under one name: it takes no room twice");
        let named = lengths(volume.dir()).unwrap().into_values().collect::<Vec<_>>();
        assert_eq!(named, [Some(10), Some(0)], "every file that the manifest names is there");
    }

    #[test]
    fn a_snapshot_that_is_no_newer_than_the_files_never_counts() {
        let unsaved = Volume::noted();
        let written_on = Volume::noted();
        written_on.save();
        written_on.put("appendonlydir/appendonly.aof.4.incr.aof", "log and more");
        let anew = Volume::noted();
        anew.save();
        anew.put("appendonlydir/appendonly.aof.5.incr.aof", "log");
        anew.put(&format!("{AOF_DIR}/{MANIFEST}"), &BEFORE.replace(".4.incr.aof seq 4", ".5.incr.aof seq 5"));
        let vanished = Volume::noted();
        fs::remove_file(vanished.dir().join(RDB_FILE)).unwrap();
        let illegible = Volume::noted();
        illegible.save();
        illegible.put(FILE, "{");
        let without = Volume::noted();
        without.save();
        fs::remove_file(without.dir().join("appendonlydir/appendonly.aof.4.incr.aof")).unwrap();
        let all = [&unsaved, &written_on, &anew, &vanished, &illegible, &without];
        assert_eq!(all.map(|volume| volume.settled(true, false)), [false; 6]);
        unsaved.save();
        assert!(!unsaved.settled(true, false), "a snapshot of a later time is not judged by that note");
    }

    #[test]
    fn a_server_that_has_saved_all_and_ended_needs_no_note() {
        let volume = Volume::noted();
        fs::remove_file(volume.dir().join(FILE)).unwrap();
        volume.save();
        volume.put("appendonlydir/appendonly.aof.4.incr.aof", "half of what was left");
        assert!(volume.settled(true, true));
    }

    #[test]
    fn where_snapshots_keep_the_data_the_files_are_put_aside() {
        let volume = Volume::noted();
        volume.save();
        assert!(volume.settled(false, false));
        assert_eq!(volume.manifest(), "");
        assert_eq!(fs::read_to_string(volume.dir().join(RDB_FILE)).unwrap(), "everything");
    }

    /// Before, the file was switched on while the server ran: on a full disk that fails, and what is written then is in no file.
    #[test]
    fn where_no_file_was_ever_written_the_snapshot_is_the_first_base() {
        let volume = Volume(tempfile::tempdir().unwrap());
        volume.save();
        settle(volume.dir(), true, true).unwrap();
        assert!(volume.manifest().starts_with("file appendonly.aof.1.base.rdb seq 1 type b\n"));
        assert_eq!(lengths(volume.dir()).unwrap().into_values().collect::<Vec<_>>(), [Some(10), Some(0)]);
    }

    /// Before, a file of a high number was not seen, and the new one written over it.
    #[test]
    fn a_manifest_that_cannot_be_seen_whole_is_not_replaced() {
        let volume = Volume::noted();
        volume.save();
        let long = format!("{}{BEFORE}", "file appendonly.aof.2.incr.aof seq 2 type h\n".repeat(1500));
        volume.put(&format!("{AOF_DIR}/{MANIFEST}"), &long);
        assert!(settle(volume.dir(), true, false).unwrap_err().to_string().contains("longer than the 65536 bytes"));
        assert!(settle(volume.dir(), true, true).is_err());
        assert!(volume.manifest() == long && is_noted(volume.dir()), "and it is asked again");
    }

    /// Before, a full disk counted as one without links: the log stayed on it, and the snapshot could not become one.
    #[test]
    fn a_link_that_there_is_no_room_for_may_be_made_later() {
        let has = |errno: Errno| has_links(&errno.into());
        assert_eq!([Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::ACCESS].map(has), [true; 5]);
        assert_eq!([Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK].map(has), [false; 4]);
    }

    #[test]
    fn what_was_cut_off_at_any_step_is_done_again() {
        for step in 0..2 {
            let volume = Volume::noted();
            volume.save();
            let base = volume.dir().join("appendonlydir/appendonly.aof.5.base.rdb");
            match step {
                0 => fs::write(base, "of another time").unwrap(),
                _ => fs::hard_link(volume.dir().join(RDB_FILE), base).unwrap(),
            }
            assert!(volume.settled(true, false));
            let base = fs::read_to_string(volume.dir().join("appendonlydir/appendonly.aof.5.base.rdb")).unwrap();
            assert_eq!(base, "everything");
        }
    }
}
