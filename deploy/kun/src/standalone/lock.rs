//! One process per role and data directory.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cli::Role;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is in use.
    #[error(
        "{data} is in use by another kun (process {holder}) with the role {role}; stop it first, or give another --data"
    )]
    InUse {
        /// The data directory.
        data: PathBuf,
        /// Which role it runs.
        role: Role,
        /// Its process id, as it wrote it down.
        holder: String,
    },
    /// The file cannot be opened.
    #[error("open {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Digits of the longest process id.
const PID_DIGITS: usize = 10;

/// Takes the lock of each role; they are given back when the result is dropped, or the process ends in any way.
pub(crate) fn take(data: &Path, roles: &BTreeSet<Role>) -> Result<Vec<File>, Error> {
    let mut locks = Vec::new();
    for role in roles {
        let path = data.join(format!("lock.{role}"));
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        let mut file = opened.map_err(|source| Error::Open { path: path.clone(), source })?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = String::new();
            // A holder that has not written its number yet is still a holder.
            let _ = file.read_to_string(&mut text);
            let holder = text.chars().filter(char::is_ascii_digit).take(PID_DIGITS).collect();
            return Err(Error::InUse { data: data.to_owned(), role: *role, holder });
        }
        let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        noted.map_err(|source| Error::Open { path, source })?;
        locks.push(file);
    }
    Ok(locks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_role_belongs_to_one_process_and_the_refusal_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let api = BTreeSet::from([Role::Apiserver]);
        let held = take(dir.path(), &api).unwrap();
        assert!(take(dir.path(), &BTreeSet::from([Role::Node])).is_ok(), "another role is another lock");
        let refused = take(dir.path(), &api).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process {}", std::process::id())) && refused.contains("role apiserver;"),
            "{refused}"
        );
        drop(held);
        assert!(take(dir.path(), &api).is_ok());
    }
}
