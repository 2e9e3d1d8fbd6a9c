//! When the data set on a volume was last in service: a file beside it that is written again every few seconds.
//!
//! A volume may go back: a snapshot is restored to its claim, a storage system loses its last hours. Everything on it then agrees with
//! itself. What shows it is that others know later things of this member than its volume does, and the times of files do not say: an idle
//! primary's are old, and those of a copy may be new. So the time is kept as content, and goes back with all the rest.

use std::{fs, io, path::Path, time::Duration};

use jiff::Timestamp;
use resp::{Info, Node, NodeId};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinHandle, time::Instant};
use types::agent::CopyReport;

use crate::{
    disk::{self, Error},
    handover,
};

/// Name of the file.
pub const FILE: &str = "kun-alive.json";
/// Largest file that is read.
const MOST: u64 = 4096;
/// How often it is written: one sync of a hundred bytes, where Redis syncs every second.
const EVERY: Duration = Duration::from_secs(10);

/// What the data set was, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alive {
    /// Milliseconds since 1970 by the node's clock.
    pub at_millis: i64,
    /// The primary whose whole copy it was; absent: it was a primary's own.
    pub copy_of: Option<String>,
}

impl Alive {
    /// How long ago that was; a time to come, after the clock was set back, is now.
    #[must_use]
    pub fn ago(&self, now: Timestamp) -> Duration {
        let millis = now.as_millisecond().saturating_sub(self.at_millis);
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    /// What is told of it to others.
    #[must_use]
    pub fn copy(&self, now: Timestamp) -> Option<CopyReport> {
        let whole_millis_ago = u64::try_from(self.ago(now).as_millis()).unwrap_or(u64::MAX);
        self.copy_of.clone().map(|of| CopyReport { of, whole_millis_ago })
    }
}

/// Reads the file. One that is not legible, as a crash may leave it, says nothing.
///
/// # Errors
/// When it cannot be read: unknown is not absent.
pub fn read(dir: &Path) -> Result<Option<Alive>, Error> {
    let path = dir.join(FILE);
    let failed = |source| Error::Read { path: path.clone(), source };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
        Ok(file) if file.len() > MOST => return Ok(None),
        Ok(_) => {}
    }
    Ok(serde_json::from_slice(&fs::read(&path).map_err(failed)?).ok())
}

/// Writes the file, durably.
///
/// # Errors
/// When it cannot be written.
pub fn write(dir: &Path, alive: &Alive) -> Result<(), Error> {
    let failed = |error| Error::Write { path: dir.join(FILE), source: io::Error::other(error) };
    disk::replace(dir, FILE, &serde_json::to_vec(alive).map_err(failed)?)
}

/// As what its data set is in service; `None`: as nothing that could be relied on later. Pure.
///
/// A replica's counts while its link is up and its own disk holds what its memory holds, so only where every write is kept.
#[must_use]
pub fn service(info: &Info, table: &[Node], keeps_every_write: bool) -> Option<Service> {
    let myself = table.iter().find(|node| node.flags.myself)?;
    match (&myself.primary, info.get("role")?) {
        (None, "master") => (!myself.slots.is_empty()).then_some(Service::Primary),
        (Some(primary), "slave") => {
            let is_whole = info.get("master_link_status") == Some("up")
                && info.flag("master_sync_in_progress") == Some(false)
                && keeps_every_write
                && handover::behind(info, keeps_every_write).is_none();
            is_whole.then(|| Service::CopyOf(primary.clone()))
        }
        // The two roles differ for a moment.
        _ => None,
    }
}

/// What a data set serves as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// A primary's own.
    Primary,
    /// A whole copy of this primary's.
    CopyOf(NodeId),
}

/// Keeps the file up to date, beside the looks: a disk that stands still must not keep them.
#[derive(Debug, Default)]
pub struct Keeper {
    last: Option<(Service, Instant)>,
    writing: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Notes what one look has shown. Returns what is being written, if it was due.
    pub fn note(&mut self, dir: &Path, service: Service, now: Timestamp) -> Option<Alive> {
        let is_fresh = self.last.as_ref().is_some_and(|(last, at)| *last == service && at.elapsed() < EVERY);
        if is_fresh || self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return None;
        }
        let copy_of = match &service {
            Service::Primary => None,
            Service::CopyOf(primary) => Some(primary.to_string()),
        };
        let alive = Alive { at_millis: now.as_millisecond(), copy_of };
        let (dir, content) = (dir.to_owned(), alive.clone());
        self.last = Some((service, Instant::now()));
        self.writing = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&dir, &content) {
                tracing::warn!(%error, "the volume does not say any more when it was in service");
            }
        }));
        Some(alive)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_volume_says_when_it_was_in_service_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let alive = Alive { at_millis: 5_000, copy_of: Some("a".repeat(40)) };
        write(dir.path(), &alive).unwrap();
        assert_eq!(read(dir.path()).unwrap().as_ref(), Some(&alive));
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!([6_500, 5_000, 0].map(|now| alive.ago(at(now)).as_millis()), [1_500, 0, 0]);
        assert_eq!(alive.copy(at(6_000)), Some(CopyReport { of: "a".repeat(40), whole_millis_ago: 1_000 }));
        assert_eq!(Alive { copy_of: None, ..alive }.copy(at(6_000)), None);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
    }

    #[test]
    fn only_a_primary_with_slots_or_a_copy_that_is_whole_on_disk_is_in_service() {
        let table = |me: &str| {
            let other = format!("{:040x} 127.84.0.2:6379@16379 master - 0 0 2 connected 6-9", 2);
            resp::nodes::parse(&format!("{:040x} 127.84.0.1:6379@16379 myself,{me}\n{other}\n", 1)).unwrap()
        };
        let (primary, replica) =
            (table("master - 0 0 1 connected 0-5"), table(&format!("slave {:040x} 0 0 2 connected", 2)));
        let says = |text: &str, table: &[Node]| service(&Info::parse(text), table, true);
        let synced = "role:slave\nmaster_link_status:up\nmaster_sync_in_progress:0\naof_enabled:1\n";
        let of = NodeId::parse(&format!("{:040x}", 2)).unwrap();
        assert_eq!(says("role:master\n", &primary), Some(Service::Primary));
        assert_eq!(says("role:master\n", &table("master - 0 0 1 connected")), None);
        assert_eq!(says(synced, &replica), Some(Service::CopyOf(of)));
        assert_eq!(service(&Info::parse(synced), &replica, false), None, "what it keeps on disk is older");
        for (from, to) in [(":up", ":down"), ("progress:0", "progress:1"), ("aof_enabled:1", "aof_enabled:0")] {
            assert_eq!(says(&synced.replace(from, to), &replica), None, "{to}");
        }
        assert_eq!(says(&format!("{synced}aof_rewrite_in_progress:1\n"), &replica), None);
        assert_eq!(says(synced, &primary), None);
    }
}
