//! Makes the folder of one backup, `kun agent folder`, before its worker is started: the worker then sees this folder of the target and
//! nothing else that lies there.
//!
//! It is a program of its own because a kubelet that makes the folder of a `subPath` makes it as root, where a worker may not write. It
//! hears nobody, follows no link and touches nothing that is there already.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use types::agent::WorkerReport;

use crate::{
    backup, disk,
    erase::{self, is_folder},
};

/// Why there is no folder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What has its name is not a folder, or nobody can tell.
    #[error(transparent)]
    Found(#[from] erase::Error),
    /// It cannot be made.
    #[error("make {path}: {source}")]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not on disk.
    #[error("make the folder durable: {0}")]
    Sync(#[from] disk::Error),
}

/// Makes it, and leaves a report in the termination message where it cannot. Returns whether it is there.
#[must_use]
pub fn run(job: &erase::Job) -> bool {
    let Err(error) = make(&job.target, &job.folder) else { return true };
    tracing::error!(%error, "the folder of the backup was not made");
    backup::leave(&job.termination_log, &WorkerReport::Failed { message: error.to_string() });
    false
}

fn make(target: &Path, folder: &str) -> Result<(), Error> {
    let path = target.join(folder);
    if is_folder(&path)? {
        return Ok(());
    }
    match fs::create_dir(&path) {
        Ok(()) => Ok(disk::sync_dir(target)?),
        // The worker of another shard was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_folder(&path)? => Ok(()),
        Err(source) => Err(Error::Make { path, source }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_folder_is_made_once_and_keeps_what_is_in_it() {
        let target = tempfile::tempdir().unwrap();
        make(target.path(), "ns_c_b_0123").unwrap();
        fs::write(target.path().join("ns_c_b_0123/shard-0.rdb"), "x").unwrap();
        make(target.path(), "ns_c_b_0123").unwrap();
        assert_eq!(fs::read(target.path().join("ns_c_b_0123/shard-0.rdb")).unwrap(), b"x");
    }

    #[test]
    fn a_link_or_a_file_in_place_of_the_folder_is_refused() {
        let (target, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), target.path().join("link")).unwrap();
        symlink(other.path().join("none"), target.path().join("broken")).unwrap();
        fs::write(target.path().join("file"), "x").unwrap();
        for name in ["link", "broken", "file"] {
            let error = make(target.path(), name).unwrap_err();
            assert!(matches!(error, Error::Found(erase::Error::NotAFolder(_))), "{name}: {error}");
        }
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_target_that_is_not_there_is_told_in_the_termination_message() {
        let folder = tempfile::tempdir().unwrap();
        let (target, termination_log) = (folder.path().join("none"), folder.path().join("log"));
        let job = erase::Job { target: target.clone(), folder: "a".to_owned(), termination_log };
        assert!(!run(&job));
        let report: WorkerReport = serde_json::from_slice(&fs::read(&job.termination_log).unwrap()).unwrap();
        let message = format!("make {}: No such file or directory (os error 2)", target.join("a").display());
        assert_eq!(report, WorkerReport::Failed { message });
    }
}
