//! One process per role and data directory.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cli::Role;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is in use.
    #[error("{data} is in use by another kun with the role {role:?}; stop it first, or give another --data")]
    InUse {
        /// The data directory.
        data: PathBuf,
        /// Which role it runs.
        role: Role,
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

/// Takes the lock of each role; they are given back when the result is dropped, or the process ends in any way.
pub(super) fn take(data: &Path, roles: &BTreeSet<Role>) -> Result<Vec<File>, Error> {
    let mut locks = Vec::new();
    for role in roles {
        let path = data.join(format!("lock.{}", format!("{role:?}").to_lowercase()));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|source| Error::Open { path, source })?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::InUse { data: data.to_owned(), role: *role })?;
        locks.push(file);
    }
    Ok(locks)
}
