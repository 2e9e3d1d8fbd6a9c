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
    path::Path,
};

use resp::{AppendOnlyFile, Info};

use crate::disk::{self, Error};

/// Name of the file.
pub const FILE: &str = "kun-lags";
/// What Redis calls the list of its append-only files: a line for each of them, a few in all.
const MANIFEST: &str = "appendonly.aof.manifest";
/// What it writes to before the first one that counts.
const UNNAMED: &str = "temp-appendonly.aof.incr";
/// So much of a manifest is compared.
const MOST: u64 = 64 << 10;

/// What is known of it, from look to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    lags: bool,
}

impl Default for Lag {
    /// Where nothing can be read it lags until a look shows that it does not.
    fn default() -> Self {
        Self { lags: true }
    }
}

impl Lag {
    /// What the volume says.
    ///
    /// # Errors
    /// When that cannot be read: unknown is not absent.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let lags = match content(&dir.join(FILE))? {
            Some(then) => then == manifest(dir)?,
            None => false,
        };
        Ok(Self { lags })
    }

    /// Whether what lies there is not what its member had.
    #[must_use]
    pub fn lags(self) -> bool {
        self.lags
    }

    /// Notes what one look shows, durably. `keeps`: every write is to be in the append-only file.
    ///
    /// # Errors
    /// When the volume cannot be read or written: what it says is older then, and what is told to others is not.
    pub fn note(&mut self, dir: &Path, info: &Info, keeps: bool) -> Result<(), Error> {
        let before = std::mem::replace(self, Self { lags: after(self.lags, info, is_first(dir), keeps) });
        // While everything is being sent, what counts may be written anew as usual; after that only what ends the lag is.
        if self.lags && (!before.lags || is_being_sent_all(info)) {
            let counts = manifest(dir)?;
            if content(&dir.join(FILE))?.as_ref() != Some(&counts) {
                disk::replace(dir, FILE, &counts)?;
            }
        }
        if !self.lags && before.lags {
            remove(dir)?;
        }
        Ok(())
    }
}

/// Whether Redis writes to a file that counts only once the one before it does.
fn is_first(dir: &Path) -> bool {
    dir.join(disk::AOF_DIR).join(UNNAMED).exists()
}

/// Takes away what an earlier process left of that: it is loaded by nobody, and would be taken for this one's. Before Redis starts.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn tidy(dir: &Path) -> Result<(), Error> {
    let path = dir.join(disk::AOF_DIR).join(UNNAMED);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write { path, source: error }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The manifest of the append-only files; nothing where there is none.
fn manifest(dir: &Path) -> Result<Vec<u8>, Error> {
    Ok(content(&dir.join(disk::AOF_DIR).join(MANIFEST))?.unwrap_or_default())
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
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write { path, source: error }),
        Ok(()) | Err(_) => disk::sync_dir(dir),
    }
}

fn is_being_sent_all(info: &Info) -> bool {
    info.flag("master_sync_in_progress") == Some(true)
}

/// Whether it lags after a look. Pure.
fn after(before: bool, info: &Info, is_first: bool, keeps: bool) -> bool {
    let file = info.append_only_file();
    let begins = is_being_sent_all(info) || (file == AppendOnlyFile::Rewriting && is_first);
    let is_loading = info.flag("loading") != Some(false);
    keeps && (begins || (before && (is_loading || file != AppendOnlyFile::Current)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SENT: &str = "loading:0\nmaster_sync_in_progress:1\naof_enabled:1\n";
    const WRITING: &str = "loading:0\nmaster_sync_in_progress:0\naof_enabled:1\naof_rewrite_in_progress:1\n";
    const CURRENT: &str = "loading:0\nmaster_sync_in_progress:0\naof_enabled:1\n";

    #[test]
    fn a_file_lags_from_a_synchronisation_until_it_is_written_anew() {
        let says = |before, text, is_first| after(before, &Info::parse(text), is_first, true);
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(false, text, false)), [true, false, false]);
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(true, text, false)), [true, true, false]);
        // It came and went between two looks; what is written already lags no more.
        assert_eq!([WRITING, CURRENT].map(|text| says(false, text, true)), [true, false]);
        assert!(says(true, "loading:1\naof_enabled:1\n", false) && says(true, "aof_enabled:0\nloading:0\n", false));
        assert!(!after(true, &Info::parse(SENT), true, false), "where not every write is kept its file says nothing");
    }

    #[test]
    fn what_lags_is_told_by_the_volume_until_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut lag = Lag::read(dir.path()).unwrap();
        assert!(!lag.lags());
        for (text, lags) in [(CURRENT, false), (WRITING, false), (SENT, true), (WRITING, true), (CURRENT, false)] {
            lag.note(dir.path(), &Info::parse(text), true).unwrap();
            assert_eq!([lag, Lag::read(dir.path()).unwrap()].map(Lag::lags), [lags; 2], "{text}");
        }
    }

    /// The agent that wrote it has died, or one that does not know of it runs in its place.
    #[test]
    fn what_was_left_behind_says_nothing_once_the_file_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(disk::AOF_DIR)).unwrap();
        let write = |base: u32| {
            let text = format!("file appendonly.aof.{base}.base.rdb seq {base} type b\n");
            fs::write(dir.path().join(disk::AOF_DIR).join(MANIFEST), text).unwrap();
        };
        let says = || Lag::read(dir.path()).unwrap().lags();
        write(1);
        let mut lag = Lag::read(dir.path()).unwrap();
        lag.note(dir.path(), &Info::parse(SENT), true).unwrap();
        assert!(says());
        // Written anew as usual while everything is sent, and it goes on.
        write(2);
        lag.note(dir.path(), &Info::parse(SENT), true).unwrap();
        assert!(says());
        write(3);
        assert!(!says());
    }
}
