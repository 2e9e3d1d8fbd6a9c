//! Whether what lies on a volume lags behind what its member had in memory: a file beside the data set that says so.
//!
//! A replica that is sent everything anew has it in memory first. Its append-only file counts again only once it is written anew
//! (`AOF_WAIT_REWRITE`); until then a restart would load what was there before, which may be hours old, or nothing. Elected meanwhile, it is
//! the primary, and by its record what it loads is the shard's data. INFO does not tell that rewriting from any other; the disk does: only then
//! Redis writes what comes meanwhile to a file that no manifest names (`getTempIncrAofName`).
//!
//! The file holds the manifest that counted then. Redis writes another one when it has written the file anew, so one that was left behind, by an agent
//! that died or does not know of it, says nothing any more.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use resp::{AppendOnlyFile, Info};
use tokio::task::JoinHandle;

use crate::disk::{self, Error};

/// Name of the file.
pub const FILE: &str = "kun-lags";
/// What Redis calls the list of its append-only files: a line for each of them, a few in all.
pub(crate) const MANIFEST: &str = "appendonly.aof.manifest";
/// So much of a manifest is read, and compared.
pub(crate) const MOST: u64 = 64 << 10;

/// What is known of it, from look to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    lags: bool,
    /// The last look showed a rewriting of the file that counts.
    was_usual: bool,
    /// The last look showed a primary. Of a server that has just started its agent has seen every synchronisation.
    was_primary: bool,
    /// The manifest that counts and lags behind, if the last look showed which.
    behind: Option<Vec<u8>>,
}

/// What lies on the volume at one moment.
#[derive(Clone, Debug)]
pub struct Lies {
    /// `None`: it cannot be read.
    pub manifest: Option<Vec<u8>>,
    has_log: bool,
    is_first: bool,
}

impl Default for Lies {
    /// Of a volume that does not answer: unknown is not absent.
    fn default() -> Self {
        Self { manifest: None, has_log: true, is_first: true }
    }
}

impl Lies {
    /// In this order: see [`Lag::see`].
    #[must_use]
    pub fn read(dir: &Path) -> Self {
        let has_log = dir.join(disk::AOF_DIR).join(MANIFEST).exists();
        let manifest = manifest(dir).ok();
        Self { manifest, has_log, is_first: is_first(dir) }
    }
}

impl Default for Lag {
    /// Where nothing can be read it lags until a look shows that it does not.
    fn default() -> Self {
        Self::of(true)
    }
}

impl Lag {
    fn of(lags: bool) -> Self {
        Self { lags, was_usual: false, was_primary: true, behind: None }
    }

    /// What the volume says.
    ///
    /// # Errors
    /// When that cannot be read: unknown is not absent.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let lags = match content(&dir.join(FILE))? {
            Some(then) => files(&then) == files(&manifest(dir)?),
            None => false,
        };
        Ok(Self::of(lags))
    }

    /// Whether what lies there is not what its member had.
    #[must_use]
    pub fn lags(&self) -> bool {
        self.lags
    }

    /// What one look shows. `counted`: the manifest from before the look; `lies`: what lay there after it. `keeps`: every write is to be in the append-only
    /// file.
    pub fn see(&mut self, counted: Option<Vec<u8>>, lies: Lies, info: &Info, keeps: bool) {
        // Files that are to be switched off are loaded for as long as they lie there.
        let keeps = keeps || lies.has_log;
        *self = self.after(info, lies.is_first, keeps);
        // While everything is sent, what counts may be written anew as usual. After that only what ends the lag changes it: the file without a
        // name, seen after the manifest was read, shows that this has not happened yet.
        self.behind = if is_being_sent_all(info) || (self.lags && is_unwritten(info)) {
            counted
        } else {
            lies.manifest.filter(|_| self.lags && lies.is_first)
        };
    }

    /// After a look. Pure.
    fn after(&self, info: &Info, is_first: bool, keeps: bool) -> Self {
        let is_primary = info.get("role") == Some("master");
        // A primary whose file is switched on while it runs writes it in the same way, and has lost nothing of what it had before.
        let is_switched_on = is_primary && self.was_primary;
        // A primary takes no more writes then, and its replicas have those that it has taken.
        let is_behind = (info.rewrites_its_log() && is_first) || is_unwritten(info);
        let begins = is_being_sent_all(info) || (is_behind && !is_switched_on);
        let is_loading = info.flag("loading") != Some(false);
        let is_running = info.rewrites_its_log() && info.flag("aof_rewrite_in_progress") == Some(true);
        let is_usual = is_running && !is_loading && !is_first;
        // Twice: of a first one the file gets its name a moment before the manifest does, and Redis does not answer in between.
        let is_over = !is_loading
            && (info.append_only_file() == AppendOnlyFile::Current
                || (is_usual && self.was_usual && !is_unwritten(info)));
        let lags = keeps && (begins || (self.lags && !is_over));
        Self { lags, was_usual: is_usual, was_primary: is_primary, behind: None }
    }

    /// Has the volume say it, durably.
    fn write(&self, dir: &Path) -> Result<(), Error> {
        match &self.behind {
            _ if !self.lags => remove(dir),
            Some(behind) if content(&dir.join(FILE))?.is_none_or(|then| files(&then) != files(behind)) => {
                disk::replace(dir, FILE, behind)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Keeps the file up to date, beside the looks: a disk that stands still may not keep them. What could not be written is when it is noted next.
#[derive(Debug, Default)]
pub struct Keeper(Option<JoinHandle<()>>);

impl Keeper {
    /// Notes what one look has shown.
    pub fn note(&mut self, dir: PathBuf, lag: Lag) {
        if self.0.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.0 = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = lag.write(&dir) {
                tracing::warn!(%error, "the volume does not say whether what lies there is what is in memory");
            }
        }));
    }
}

/// Whether Redis writes to a file that counts only once the one before it does.
pub(crate) fn is_first(dir: &Path) -> bool {
    dir.join(disk::AOF_DIR).join(disk::UNNAMED).try_exists().unwrap_or(true)
}

/// Takes away what an earlier process left of that: it is loaded by nobody, and would be taken for this one's. Before Redis starts. `is_loaded`: it
/// loads the files that the manifest names. Empty ones that are not loaded because of that would be at the next start, so they are put aside with it.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn tidy(dir: &Path, is_loaded: bool) -> Result<(), Error> {
    // What is said to lag behind does not count then either.
    let is_named = !is_loaded && !manifest(dir)?.is_empty() && !Lag::read(dir)?.lags();
    if is_named && is_first(dir) {
        let to = disk::quarantine(dir, Timestamp::now(), &[disk::AOF_DIR])?;
        tracing::info!(?to, "append-only files that hold nothing, and do not count, were put aside");
        return Ok(());
    }
    disk::remove(&dir.join(disk::AOF_DIR), disk::UNNAMED)?;
    Ok(())
}

/// The manifest of the append-only files; nothing where there is none.
///
/// # Errors
/// When it cannot be read: unknown is not absent.
pub fn manifest(dir: &Path) -> Result<Vec<u8>, Error> {
    Ok(content(&dir.join(disk::AOF_DIR).join(MANIFEST))?.unwrap_or_default())
}

/// The files that a manifest names, `file NAME seq N type T` each. Redis 8 notes beside them where they begin and end, when it stops writing
/// (`stopAppendOnly`) and when it goes on, and they are the same then. Pure.
fn files(manifest: &[u8]) -> Vec<Vec<&[u8]>> {
    manifest.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b' ').take(6).collect()).collect()
}

/// What a small file holds; `None`: it is not there.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed(source)),
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes).map_err(failed)?;
            Ok(Some(bytes))
        }
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE);
    if !path.try_exists().map_err(|source| Error::Read { path: path.clone(), source })? {
        return Ok(());
    }
    fs::remove_file(&path).map_err(|source| Error::Write { path, source })?;
    disk::sync_dir(dir)
}

fn is_being_sent_all(info: &Info) -> bool {
    info.flag("master_sync_in_progress") == Some(true)
}

/// Its file lacks what it has taken since its disk is full, say.
fn is_unwritten(info: &Info) -> bool {
    info.flag("aof_enabled") == Some(true) && info.get("aof_last_write_status") == Some("err")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SENT: &str = "role:slave\nloading:0\nmaster_sync_in_progress:1\naof_enabled:1\n";
    const WRITING: &str =
        "role:slave\nloading:0\nmaster_sync_in_progress:0\naof_enabled:1\naof_rewrite_in_progress:1\n";
    const CURRENT: &str = "role:slave\nloading:0\nmaster_sync_in_progress:0\naof_enabled:1\n";

    /// One look, of a volume that may be written.
    fn note(lag: &mut Lag, dir: &Path, text: &str) -> [bool; 2] {
        lag.see(manifest(dir).ok(), Lies::read(dir), &Info::parse(text), true);
        lag.write(dir).unwrap();
        [lag.lags(), Lag::read(dir).unwrap().lags()]
    }

    /// A volume with a folder of append-only files, and what writes their manifest.
    fn volume() -> (tempfile::TempDir, impl Fn(&str)) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(disk::AOF_DIR);
        fs::create_dir(&folder).unwrap();
        (dir, move |text: &str| fs::write(folder.join(MANIFEST), text).unwrap())
    }

    #[test]
    fn a_file_lags_from_a_synchronisation_until_it_is_written_anew() {
        let says = |lags, text, is_first| Lag::of(lags).after(&Info::parse(text), is_first, true).lags();
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(false, text, false)), [true, false, false]);
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(true, text, true)), [true, true, false]);
        // It came and went between two looks; what is written already lags no more.
        assert_eq!([WRITING, CURRENT].map(|text| says(false, text, true)), [true, false]);
        assert!(says(true, "loading:1\naof_enabled:1\n", false) && says(true, "aof_enabled:0\nloading:0\n", false));
    }

    #[test]
    fn a_primary_whose_file_is_first_written_has_what_it_had_before() {
        let writing = Info::parse(&WRITING.replace("slave", "master"));
        let after = |lag: Lag| lag.after(&writing, true, true).lags();
        assert!(!after(Lag::of(false)), "its file was switched on while it ran");
        assert!(after(Lag::of(true)), "one that was elected is a primary, too");
        let replica = Lag::of(false).after(&Info::parse(CURRENT), false, true);
        assert!(after(replica), "the whole synchronisation, and its election, came between two looks");
    }

    /// Before, it counted as whole, and with most of the stream it was preferred to one whose disk takes writes.
    #[test]
    fn a_replica_whose_file_cannot_be_written_lags_until_it_can() {
        let (dir, write) = volume();
        write("file appendonly.aof.1.base.rdb seq 1 type b\n");
        let mut lag = Lag::read(dir.path()).unwrap();
        assert_eq!(note(&mut lag, dir.path(), CURRENT), [false; 2]);
        let failed = format!("{CURRENT}aof_last_write_status:err\n");
        assert_eq!(note(&mut lag, dir.path(), &failed), [true; 2]);
        let retried = format!("{failed}aof_rewrite_in_progress:1\n");
        assert_eq!([&retried; 3].map(|text| note(&mut lag, dir.path(), text)), [[true; 2]; 3]);
        assert_eq!(note(&mut lag, dir.path(), CURRENT), [false; 2]);
        let primary = Info::parse(&failed.replace("slave", "master"));
        assert!(!Lag::of(false).after(&primary, false, true).lags(), "its replicas have what it took");
        assert!(Lag::of(true).after(&primary, false, true).lags());
    }

    /// Everything was about to be sent, and the link broke before it was loaded.
    #[test]
    fn who_writes_what_counts_anew_as_usual_lags_no_more() {
        let writing = Info::parse(WRITING);
        let once = Lag::of(true).after(&writing, false, true);
        assert!(once.lags(), "the file may just have got its name, and the manifest not");
        assert!(!once.after(&writing, false, true).lags());
        let others = ["aof_enabled:1\naof_rewrite_scheduled:1", "aof_enabled:0\naof_rewrite_in_progress:1"];
        let waits = others.map(|text| {
            let info = Info::parse(&format!("role:slave\nloading:0\n{text}\n"));
            once.after(&info, false, true).lags()
        });
        assert_eq!(
            waits, [true; 2],
            "a first one that waits for a child has no file yet; one beside a file that is off is none"
        );
    }

    /// Before, the marker went when `appendOnly` was switched off, and the next start loaded the files that still lay there.
    #[test]
    fn a_file_that_is_to_be_switched_off_lags_until_it_is_put_aside() {
        let (dir, write) = volume();
        write("file appendonly.aof.1.base.rdb seq 1 type b\n");
        let mut lag = Lag::of(true);
        let mut see = |text: &str| {
            lag.see(None, Lies::read(dir.path()), &Info::parse(text), false);
            lag.lags()
        };
        assert!(see(WRITING) && see("role:slave\nloading:0\naof_enabled:0\n"));
        fs::remove_dir_all(dir.path().join(disk::AOF_DIR)).unwrap();
        assert!(!see(SENT), "where no write is kept there is no file that could lag");
    }

    #[test]
    fn what_lags_is_told_by_the_volume_until_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut lag = Lag::read(dir.path()).unwrap();
        assert!(!lag.lags());
        for (text, lags) in [(CURRENT, false), (WRITING, false), (SENT, true), (WRITING, true), (CURRENT, false)] {
            assert_eq!(note(&mut lag, dir.path(), text), [lags; 2], "{text}");
        }
    }

    /// Before, one write that failed was the only one.
    #[test]
    fn what_could_not_be_said_on_the_volume_is_said_at_the_next_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut lag = Lag::read(dir.path()).unwrap();
        let mut is_said = |text: &str| {
            lag.see(manifest(dir.path()).ok(), Lies::read(dir.path()), &Info::parse(text), true);
            lag.write(dir.path()).is_ok()
        };
        // Neither a file nor one that can be replaced.
        fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(!is_said(SENT));
        fs::remove_dir_all(&path).unwrap();
        assert!(is_said(SENT) && path.is_file());
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(!is_said(CURRENT));
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(is_said(CURRENT) && !path.exists());
    }

    /// The agent that wrote it has died, or one that does not know of it runs in its place.
    #[test]
    fn what_was_left_behind_says_nothing_once_the_file_is_written_anew() {
        let (dir, write) = volume();
        let write = |base: u32| write(&format!("file appendonly.aof.{base}.base.rdb seq {base} type b\n"));
        write(1);
        let mut lag = Lag::read(dir.path()).unwrap();
        assert_eq!(note(&mut lag, dir.path(), SENT), [true; 2]);
        // Written anew as usual while everything is sent, and it goes on.
        write(2);
        assert_eq!(note(&mut lag, dir.path(), SENT), [true; 2]);
        write(3);
        assert!(!Lag::read(dir.path()).unwrap().lags());
    }

    /// Before, what Redis 8 does when it stops writing was taken for a file that is written anew.
    #[test]
    fn a_manifest_that_notes_where_a_file_ends_is_still_behind() {
        let (dir, write) = volume();
        let mut lag = Lag::read(dir.path()).unwrap();
        write("file appendonly.aof.1.incr.aof seq 1 type i startoffset 0\n");
        assert_eq!(note(&mut lag, dir.path(), SENT), [true; 2]);
        write("file appendonly.aof.1.incr.aof seq 1 type i startoffset 0 endoffset 9\n");
        assert_eq!(
            note(&mut lag, dir.path(), "role:slave\nloading:0\naof_enabled:1\naof_rewrite_scheduled:1\n"),
            [true; 2]
        );
        write("file appendonly.aof.2.incr.aof seq 2 type i startoffset 9\n");
        assert!(!Lag::read(dir.path()).unwrap().lags());
    }

    /// Before, they were an empty data set at the next start, and what the snapshot beside them has was gone.
    #[test]
    fn empty_files_that_do_not_count_at_a_start_do_not_at_the_next() {
        let (dir, write) = volume();
        let put = |name: &str, content: &str| fs::write(dir.path().join(disk::AOF_DIR).join(name), content).unwrap();
        let counts = || disk::survey(dir.path()).unwrap().aof;
        fs::write(dir.path().join(disk::RDB_FILE), "what was sent").unwrap();
        write("file appendonly.aof.1.incr.aof seq 1 type i\n");
        put("appendonly.aof.1.incr.aof", "");
        tidy(dir.path(), counts()).unwrap();
        assert!(counts(), "it has every write");
        put(disk::UNNAMED, "");
        assert!(!counts());
        tidy(dir.path(), counts()).unwrap();
        assert!(!counts() && !is_first(dir.path()));
        // What holds something is loaded all the same, and stays.
        fs::create_dir(dir.path().join(disk::AOF_DIR)).unwrap();
        write("file appendonly.aof.1.incr.aof seq 1 type i\n");
        put("appendonly.aof.1.incr.aof", "writes");
        put(disk::UNNAMED, "");
        tidy(dir.path(), counts()).unwrap();
        assert!(counts() && !is_first(dir.path()));
    }

    /// The agent stood still between the answer and the disk, and all was written meanwhile.
    #[test]
    fn a_file_that_was_written_during_the_look_is_not_the_one_behind() {
        let (dir, write) = volume();
        let unnamed = dir.path().join(disk::AOF_DIR).join(disk::UNNAMED);
        let mut lag = Lag::of(false);
        write("file appendonly.aof.1.base.rdb seq 1 type b\n");
        let counted = manifest(dir.path()).ok();
        write("file appendonly.aof.2.base.rdb seq 2 type b\n");
        lag.see(counted, Lies::read(dir.path()), &Info::parse(SENT), true);
        lag.write(dir.path()).unwrap();
        assert!(!Lag::read(dir.path()).unwrap().lags());
        assert_eq!(note(&mut lag, dir.path(), WRITING), [true, false], "it is not first written any more");
        fs::write(unnamed, "").unwrap();
        assert_eq!(note(&mut lag, dir.path(), WRITING), [true; 2]);
    }
}
