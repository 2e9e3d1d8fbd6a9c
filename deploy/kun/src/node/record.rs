//! What the node remembers about a pod on disk: `state.json` in the pod's directory, written atomically.
//!
//! The record of a process exists before the process does anything (see `process.rs`), so that a node that was killed
//! finds every process it started. It must not know the API.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::machine::Exit;

/// File name of the record.
pub const FILE: &str = "state.json";
/// Longest name of a pod's directory; file systems allow 255 bytes.
const NAME_MAX: usize = 100;

/// A failure to read or write a record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Understanding.
    #[error("{path} is not a pod record")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Writing.
    #[error("writing {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// One process, such that no other process is ever taken for it: a pid is reused, a pid with its start time within one
/// boot is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// Process id; also the id of its session and process group.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks since boot.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Uid of the pod.
    pub uid: String,
    /// The pod's address.
    pub address: Ipv4Addr,
    /// The process, if one was started and not seen to end.
    pub process: Option<ProcessId>,
    /// When that process was started.
    pub started_at: Option<Timestamp>,
    /// Times it was started again.
    pub restarts: u32,
    /// How it ended last.
    pub last: Option<Exit>,
    /// Whether the restart policy wants no other process.
    pub done: bool,
    /// Whether the pod's deletion was seen: only then are its directories removed.
    pub deleting: bool,
}

impl Record {
    /// A pod that has not run yet.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str, address: Ipv4Addr) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            address,
            process: None,
            started_at: None,
            restarts: 0,
            last: None,
            done: false,
            deleting: false,
        }
    }

    /// Reads the record of a pod directory.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let bytes = std::fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Parse { path, source })
    }

    /// Writes it so that a crash leaves either the old or the new one.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(FILE);
        let bytes = serde_json::to_vec_pretty(self).map_err(|source| Error::Parse { path: path.clone(), source })?;
        write_atomically(&path, &bytes).map_err(|source| Error::Write { path, source })
    }
}

/// Writes a file (mode 0600) beside its target, syncs it and renames it over the target.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all())
}

/// Whether a string may become part of a file name here: what DNS names and uids consist of, and nothing else. The API
/// server validates names already; the node relies on no one for what it joins to a path.
#[must_use]
pub fn is_safe_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// Directory name of a pod: `<namespace>_<pod>_<uid>`; long names are cut, the uid keeps it unique.
#[must_use]
pub fn directory_name(namespace: &str, name: &str, uid: &str) -> String {
    let cut = |text: &str| text.chars().take(NAME_MAX).collect::<String>();
    format!("{}_{}_{}", cut(namespace), cut(name), cut(uid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_record_reads_back_as_written_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::new("default", "orders-0-0", "uid-1", Ipv4Addr::new(127, 86, 0, 1));
        record.process = Some(ProcessId { pid: 7, start_ticks: 9, boot_id: "b".into() });
        record.write(dir.path()).unwrap();
        record.restarts = 3;
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), record);
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn only_plain_names_reach_a_path() {
        for good in ["a", "orders-0-0", "kube-system", "a.b-c", "0f3c1a2e-1111-2222-3333-444455556666"] {
            assert!(is_safe_name(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in ["", ".", "..", "../x", "a/b", "a\0b", "a\nb", "A", "a..b", "-a", ".a", "a b", "a'b", "ä", &long] {
            assert!(!is_safe_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_directory_name_always_fits_a_file_system() {
        let name = directory_name(&"n".repeat(63), &"p".repeat(253), &"u".repeat(36));
        assert!(name.len() <= 255, "{}", name.len());
        assert_eq!(directory_name("default", "a-0", "u"), "default_a-0_u");
    }
}
