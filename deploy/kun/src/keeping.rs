//! `kun store backup` and `kun store restore`: the embedded store to a file and back.
//!
//! Neither ever changes a file in place: what is written gets its name only once it is whole and on disk.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use store::backup::{self, Summary};
use store::{Embedded, EmbeddedOptions, OpenError, Revision, Store as _};

use crate::cli::Role;
use crate::standalone::{hatch, keep, lock};

/// How long a running server may take to send the next piece of a backup: it begins at once, one after the other.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Why there is no backup, or no store made from it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing to back up.
    #[error("{0}: there is no store in it")]
    NoStore(PathBuf),
    /// Nothing is overwritten.
    #[error("{0} exists already; give the name of a file that does not")]
    Exists(PathBuf),
    /// The server has the file open and does not hand out backups.
    #[error(
        "{data} is in use by a kun that does not hand out backups (yet): wait until it is ready, or stop it; a store can be copied through its server or while it has none"
    )]
    NoHatch {
        /// The data directory.
        data: PathBuf,
        /// Why it could not be asked.
        source: io::Error,
    },
    /// The directory is not empty.
    #[error(
        "{0} is not empty; give an empty directory, or --force to replace its store (the old one is kept as {OLD})"
    )]
    NotEmpty(PathBuf),
    /// A server runs.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backup is wrong, or could not be written.
    #[error(transparent)]
    Backup(#[from] backup::Error),
    /// A file.
    #[error("{doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The store that is replaced cannot tell how far it was.
    #[error("asking the store that is to be replaced how far it was: {0}")]
    Replaced(store::Error),
    /// The runtime.
    #[error("starting the runtime")]
    Runtime(#[source] io::Error),
}

/// What the replaced store's file is called afterwards.
const OLD: &str = "store.redb.replaced";

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { doing, path: path.to_owned(), source }
}

/// Writes a backup of the store in `data`; says what it holds.
pub fn backup(data: &Path, to: &Path) -> Result<String, Error> {
    let store = data.join(keep::FILE);
    if !store.is_file() {
        return Err(Error::NoStore(data.to_owned()));
    }
    if to.exists() {
        return Err(Error::Exists(to.to_owned()));
    }
    let partial = beside(to, "partial");
    let written = write(data, &store, &partial);
    let summary = match written {
        Ok(summary) => summary,
        Err(error) => {
            // It may not even have been made.
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
    };
    rename(&partial, to)?;
    Ok(format!("backed up {} objects at revision {} to {}", summary.objects, summary.revision, to.display()))
}

/// Writes the file and reads it again: what is reported is what is there.
fn write(data: &Path, store: &Path, partial: &Path) -> Result<Summary, Error> {
    let file = create(partial)?;
    match Embedded::open(store, EmbeddedOptions::default()) {
        Ok(store) => drop(store.backup(BufWriter::new(&file))?),
        Err(OpenError::InUse { .. }) => take(data, &file, partial)?,
        Err(other) => return Err(other.into()),
    }
    file.sync_all().map_err(io_error("syncing", partial))?;
    Ok(backup::verify(partial)?)
}

/// Takes the backup from the running server.
fn take(data: &Path, mut file: &File, partial: &Path) -> Result<(), Error> {
    let asked = UnixStream::connect(hatch::path(data))
        .and_then(|stream| stream.set_read_timeout(Some(ANSWER_LIMIT)).map(|()| stream));
    let mut stream = asked.map_err(|source| Error::NoHatch { data: data.to_owned(), source })?;
    io::copy(&mut stream, &mut file).map_err(io_error("taking the backup from the server into", partial))?;
    file.flush().map_err(io_error("writing", partial))
}

/// Makes the store of `data` from a backup; says where its revision goes on, which depends on the time `now`.
pub fn restore(from: &Path, data: &Path, force: bool, now: SystemTime) -> Result<String, Error> {
    // All of it, before anything is touched.
    let summary = backup::verify(from)?;
    if !force && !is_empty(data)? {
        return Err(Error::NotEmpty(data.to_owned()));
    }
    if !data.exists() {
        fs::create_dir_all(data).and_then(|()| crate::standalone::private(data)).map_err(io_error("making", data))?;
    }
    let _lock = lock::take(data, &BTreeSet::from([Role::Apiserver]))?;
    let store = data.join(keep::FILE);
    let replaced = if store.exists() { Some(revision_of(&store)?) } else { None };
    let revision = backup::resume_at(summary.revision, replaced, keep::beginning(now));
    let made = beside(&store, "restoring");
    match fs::remove_file(&made) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(Error::Io { doing: "removing a leftover", path: made, source }),
    }
    Embedded::restore(&made, from, revision)?;
    if replaced.is_some() {
        keep_as(&store, &data.join(OLD))?;
    }
    rename(&made, &store)?;
    Ok(format!(
        "restored {} objects of revision {} to {}; revisions go on after {revision}, and who watched the old store must list again",
        summary.objects,
        summary.revision,
        store.display()
    ))
}

fn is_empty(data: &Path) -> Result<bool, Error> {
    match fs::read_dir(data) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::Io { doing: "reading", path: data.to_owned(), source }),
    }
}

/// How far the store that is to be replaced has come. One that is damaged does not tell: [`backup::resume_at`] does without.
fn revision_of(store: &Path) -> Result<Revision, Error> {
    let opened = match Embedded::open(store, EmbeddedOptions::default()) {
        Ok(opened) => opened,
        Err(OpenError::Damaged { .. } | OpenError::UnknownFormat { .. } | OpenError::Io { .. }) => {
            return Ok(Revision::default());
        }
        Err(error @ OpenError::InUse { .. }) => return Err(error.into()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(Error::Runtime)?;
    runtime.block_on(opened.current_revision()).map_err(Error::Replaced)
}

/// `path` with something after its name, in the same folder.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// A new file for its owner only: it holds Secrets. A leftover of an earlier try is overwritten.
fn create(path: &Path) -> Result<File, Error> {
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io_error("creating", path))
}

/// Gives a file another name besides its own, which may be that of an older one. It never loses its own: a kun that starts
/// after a crash between the two names of a store would begin an empty one.
fn keep_as(file: &Path, name: &Path) -> Result<(), Error> {
    let spare = beside(name, "keeping");
    let _ = fs::remove_file(&spare);
    fs::hard_link(file, &spare).map_err(io_error("giving a second name to", file))?;
    rename(&spare, name)
}

/// Gives a file its name, durably.
fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(io_error("renaming to", to))?;
    let folder = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("syncing", folder))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use store::{Key, Write};

    use super::*;

    struct Stage {
        dir: tempfile::TempDir,
        runtime: tokio::runtime::Runtime,
    }

    impl Stage {
        /// A data directory with `count` objects in its store.
        fn new(count: u64) -> Self {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let stage = Self { dir: tempfile::tempdir().unwrap(), runtime };
            fs::create_dir(stage.path("data")).unwrap();
            stage.write("data", 0..count);
            stage
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn open(&self, data: &str) -> Embedded {
            Embedded::open(&self.path(data).join(keep::FILE), EmbeddedOptions::default()).unwrap()
        }

        fn write(&self, data: &str, which: std::ops::Range<u64>) -> Revision {
            let store = self.open(data);
            for n in which {
                let key = Key::new("pods", Some("a"), &format!("p{n}")).unwrap();
                self.runtime.block_on(store.write(Write::create(key, "x".into()))).unwrap();
            }
            self.revision(&store)
        }

        fn revision(&self, store: &Embedded) -> Revision {
            self.runtime.block_on(store.current_revision()).unwrap()
        }
    }

    #[test]
    fn a_backup_comes_back_and_its_revision_is_beyond_all_that_was_given_out() {
        let stage = Stage::new(3);
        let file = stage.path("backup");
        let said = backup(&stage.path("data"), &file).unwrap();
        assert_eq!(said, format!("backed up 3 objects at revision 4 to {}", file.display()));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(stage.write("data", 3..9), Revision(10), "after the backup");

        restore(&file, &stage.path("new"), false, UNIX_EPOCH).unwrap();
        assert_eq!(stage.revision(&stage.open("new")), Revision(4 + backup::JUMP));
        restore(&file, &stage.path("data"), true, UNIX_EPOCH).unwrap();
        assert_eq!(stage.revision(&stage.open("data")), Revision(10 + backup::JUMP));
        assert_eq!(stage.write("data", 3..4), Revision(11 + backup::JUMP), "p3 is not there any more");
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        restore(&file, &stage.path("timely"), false, now).unwrap();
        assert_eq!(stage.revision(&stage.open("timely")), keep::beginning(now));
        let kept = Embedded::open(&stage.path("data").join(OLD), EmbeddedOptions::default()).unwrap();
        assert_eq!(stage.revision(&kept), Revision(10), "the replaced store is kept");
    }

    #[test]
    fn a_running_server_hands_out_its_backup() {
        let stage = Stage::new(3);
        let (data, file) = (stage.path("data"), stage.path("backup"));
        let store = Arc::new(stage.open("data"));
        let refused = backup(&data, &file).unwrap_err();
        assert!(matches!(refused, Error::NoHatch { .. }), "{refused}");
        assert_eq!(fs::read_dir(stage.dir.path()).unwrap().count(), 1, "nothing is left behind");
        let _inside = stage.runtime.enter();
        let running = hatch::open(&data, Arc::clone(&store)).unwrap();
        for round in 0..3 {
            let file = stage.path(&format!("backup{round}"));
            let said = backup(&data, &file).unwrap();
            assert_eq!(said, format!("backed up 3 objects at revision 4 to {}", file.display()));
        }
        assert_eq!(fs::metadata(data.join("run")).unwrap().permissions().mode() & 0o777, 0o700);
        running.end(&stage.runtime);
        assert!(!hatch::path(&data).exists());
    }

    #[test]
    fn nothing_is_overwritten_unasked_and_nothing_that_is_in_use_at_all() {
        let stage = Stage::new(1);
        let (data, file) = (stage.path("data"), stage.path("backup"));
        assert!(matches!(backup(&stage.path("none"), &file), Err(Error::NoStore(_))));
        backup(&data, &file).unwrap();
        assert!(matches!(backup(&data, &file), Err(Error::Exists(path)) if path == file));
        assert!(matches!(restore(&file, &data, false, UNIX_EPOCH), Err(Error::NotEmpty(path)) if path == data));
        let held = lock::take(&data, &BTreeSet::from([Role::Apiserver])).unwrap();
        assert!(matches!(restore(&file, &data, true, UNIX_EPOCH), Err(Error::Lock(lock::Error::InUse { .. }))));
        drop(held);
        fs::write(stage.path("other"), "something else entirely").unwrap();
        let refused = restore(&stage.path("other"), &stage.path("new"), false, UNIX_EPOCH).unwrap_err();
        assert_eq!(refused.to_string(), "reading the backup: this file is no backup of a store");
        assert!(!stage.path("new").exists());
    }

    #[test]
    fn at_no_moment_of_a_restore_is_there_no_store() {
        let stage = Stage::new(1);
        let (data, file) = (stage.path("data"), stage.path("backup"));
        backup(&data, &file).unwrap();
        let (store, is_over) = (data.join(keep::FILE), std::sync::atomic::AtomicBool::new(false));
        let missing = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut missing = 0;
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    missing += usize::from(!store.exists());
                }
                missing
            });
            (0..20).for_each(|_| drop(restore(&file, &data, true, UNIX_EPOCH).unwrap()));
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
            looking.join().unwrap()
        });
        assert_eq!(missing, 0);
    }

    #[test]
    fn a_store_that_is_damaged_can_be_replaced() {
        let stage = Stage::new(2);
        let (data, file) = (stage.path("data"), stage.path("backup"));
        backup(&data, &file).unwrap();
        fs::write(data.join(keep::FILE), "ruined".repeat(1000)).unwrap();
        restore(&file, &data, true, UNIX_EPOCH).unwrap();
        assert_eq!(stage.revision(&stage.open("data")), Revision(3 + backup::JUMP));
    }
}
