//! Whether what lies on a volume lags behind what its member had in memory: a file beside the data set that says so.
//!
//! A replica that is sent everything anew has it in memory first. Its append-only file counts again only once it is written anew
//! (`AOF_WAIT_REWRITE`); until then a restart would load what was there before, which may be hours old, or nothing. Elected meanwhile, it is
//! the primary, and by its record what it loads is the shard's data. INFO does not tell that rewriting from any other. What tells is that the
//! member was sent everything before it: a look saw that, or the stream does not go on from where it was at the look before (the backlog begins anew
//! with each full synchronisation). Where a stream is so fast that its backlog has nothing of a second ago, any rewriting counts.

use std::{fs, io, path::Path};

use resp::{AppendOnlyFile, Info};

use crate::disk::{self, Error};

/// Name of the file.
pub const FILE: &str = "kun-lags";

/// What is known of it, from look to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    lags: bool,
    /// How far the stream had come at the look before.
    came_to: Option<i64>,
}

impl Default for Lag {
    /// Where nothing can be read it lags until a look shows that it does not.
    fn default() -> Self {
        Self { lags: true, came_to: None }
    }
}

impl Lag {
    /// What the volume says.
    ///
    /// # Errors
    /// When that cannot be read: unknown is not absent.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let lags = fs::exists(&path).map_err(|source| Error::Read { path, source })?;
        Ok(Self { lags, came_to: None })
    }

    /// Whether what lies there is not what its member had.
    #[must_use]
    pub fn lags(self) -> bool {
        self.lags
    }

    /// Notes what one look shows, durably. `keeps`: every write is to be in the append-only file.
    ///
    /// # Errors
    /// When it cannot be written. It is tried again at the next look.
    pub fn note(&mut self, dir: &Path, info: &Info, keeps: bool) -> Result<(), Error> {
        let next = after(*self, info, keeps);
        if next && !self.lags {
            disk::replace(dir, FILE, b"")?;
        }
        if !next && self.lags {
            remove(dir)?;
        }
        *self = Self { lags: next, came_to: info.number("master_repl_offset") };
        Ok(())
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write { path, source: error }),
        Ok(()) | Err(_) => disk::sync_dir(dir),
    }
}

/// Whether it lags after a look. Pure.
fn after(before: Lag, info: &Info, keeps: bool) -> bool {
    let is_rewriting = info.append_only_file() == AppendOnlyFile::Rewriting;
    let begins = info.number("repl_backlog_first_byte_offset").unwrap_or_default();
    let goes_on = before.came_to.is_some_and(|came_to| begins <= came_to.saturating_add(1));
    let was_sent_all = info.get("role") == Some("slave") && is_rewriting && !goes_on;
    let is_sent_all = info.flag("master_sync_in_progress") == Some(true);
    let is_loading = info.flag("loading") != Some(false);
    let is_written = info.append_only_file() == AppendOnlyFile::Current;
    keeps && (is_sent_all || was_sent_all || (before.lags && (is_loading || !is_written)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SENT: &str = "role:slave\nloading:0\nmaster_sync_in_progress:1\naof_enabled:1\n";
    const WRITING: &str =
        "role:slave\nloading:0\nmaster_sync_in_progress:0\naof_enabled:1\naof_rewrite_in_progress:1\n";
    const CURRENT: &str = "role:slave\nloading:0\nmaster_sync_in_progress:0\naof_enabled:1\n";

    /// A look at which the stream had come so far, and the backlog begins there.
    fn stream(text: &str, came_to: i64, begins: i64) -> Info {
        Info::parse(&format!("{text}master_repl_offset:{came_to}\nrepl_backlog_first_byte_offset:{begins}\n"))
    }

    #[test]
    fn a_file_lags_from_a_synchronisation_until_it_is_written_anew() {
        let says = |lags, text| after(Lag { lags, came_to: Some(600) }, &stream(text, 700, 1), true);
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(false, text)), [true, false, false]);
        assert_eq!([SENT, WRITING, CURRENT].map(|text| says(true, text)), [true, true, false]);
        assert!(says(true, "loading:1\naof_enabled:1\n") && says(true, "aof_enabled:0\nloading:0\n"));
        let sent = stream(SENT, 700, 1);
        assert!(!after(Lag::default(), &sent, false), "where not every write is kept its file says nothing");
    }

    #[test]
    fn a_synchronisation_between_two_looks_is_seen_by_where_the_stream_begins() {
        let says = |came_to, info: &Info| after(Lag { lags: false, came_to }, info, true);
        // It goes on from where it was, or the next byte; it does not; nothing is known of it.
        let anew = stream(WRITING, 75_386, 75_387);
        assert_eq!([Some(75_386), Some(637), None].map(|came_to| says(came_to, &anew)), [false, true, true]);
        // A primary's own rewriting, and a file that is written already.
        assert!(!says(Some(637), &stream(&WRITING.replace("slave", "master"), 75_386, 75_387)));
        assert!(!says(Some(637), &stream(CURRENT, 75_386, 75_387)));
    }

    #[test]
    fn what_lags_is_told_by_the_volume_until_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut lag = Lag::read(dir.path()).unwrap();
        assert!(!lag.lags());
        for (text, lags) in [(CURRENT, false), (WRITING, false), (SENT, true), (WRITING, true), (CURRENT, false)] {
            lag.note(dir.path(), &stream(text, 700, 1), true).unwrap();
            assert_eq!([lag, Lag::read(dir.path()).unwrap()].map(Lag::lags), [lags; 2], "{text}");
        }
    }
}
