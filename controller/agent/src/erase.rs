//! Deletes the artifacts of one backup, `kun agent erase`: the files this program gave their names, in the one folder
//! that belongs to the backup, and the folder itself once it is empty.
//!
//! It never follows a link and never deletes what it does not know by name, so a wrong argument cannot cost more than a
//! backup. That there is nothing to delete is no failure: the folder may have been removed by hand.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use types::agent::WorkerReport;

use crate::{backup, disk};

/// Longest name of a folder.
const NAME_MAX: usize = 255;

/// Why artifacts may be left.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments do not say what to do.
    #[error("read the arguments: {0}")]
    Arguments(String),
    /// The place of the backup is not a folder.
    #[error("{0} is not a folder; nothing was deleted")]
    NotAFolder(PathBuf),
    /// The target cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or the folder cannot be deleted.
    #[error("delete {path}: {source}")]
    Delete {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The deletion is not on disk.
    #[error("make the deletion durable: {0}")]
    Sync(#[from] disk::Error),
}

/// Which folder of which target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The target: all backups lie in folders below it.
    pub target: PathBuf,
    /// Name of the backup's folder.
    pub folder: String,
    /// Where the report goes.
    pub termination_log: PathBuf,
}

impl Job {
    /// Reads `--target DIR --folder NAME` and the environment.
    ///
    /// # Errors
    /// Names what is missing, unknown or not legal.
    pub fn from_args(args: &[String], env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let [target_flag, target, folder_flag, folder] = args else {
            return Err(Error::Arguments("need --target DIR --folder NAME".to_owned()));
        };
        if target_flag != "--target" || folder_flag != "--folder" {
            return Err(Error::Arguments(format!("{target_flag:?} and {folder_flag:?} are not --target and --folder")));
        }
        if !backup::is_plain_name(folder, NAME_MAX) {
            return Err(Error::Arguments(format!("--folder {folder:?} is not a plain name")));
        }
        Ok(Self { target: target.into(), folder: folder.clone(), termination_log: backup::termination_log(env) })
    }
}

/// Does the job and leaves its report in the termination message. Returns whether nothing of the backup is left.
#[must_use]
pub fn run(job: &Job) -> bool {
    let report = erase(job).unwrap_or_else(|error| {
        tracing::error!(%error, "the artifacts were not deleted");
        WorkerReport::Failed { message: error.to_string() }
    });
    backup::leave(&job.termination_log, &report);
    matches!(report, WorkerReport::Erased { .. })
}

fn erase(job: &Job) -> Result<WorkerReport, Error> {
    let folder = job.target.join(&job.folder);
    if !is_folder(&folder)? {
        return Ok(WorkerReport::Erased { files: 0, left: 0 });
    }
    let (mut files, mut left) = (0_u32, 0_u32);
    let unreadable = |source| Error::Read { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        // The type of the entry itself: a link is not a file.
        let is_file = entry.file_type().map_err(unreadable)?.is_file();
        if is_file && is_artifact(&entry.file_name()) {
            fs::remove_file(entry.path()).map_err(|source| Error::Delete { path: entry.path(), source })?;
            files = files.saturating_add(1);
        } else {
            left = left.saturating_add(1);
        }
    }
    disk::sync_dir(&folder)?;
    if left == 0 {
        // Fails if somebody has put something in since: then it stays, as it should.
        fs::remove_dir(&folder).map_err(|source| Error::Delete { path: folder.clone(), source })?;
        disk::sync_dir(&job.target)?;
    }
    Ok(WorkerReport::Erased { files, left })
}

/// Whether there is such a folder; anything else under that name is an error.
pub(crate) fn is_folder(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(Error::NotAFolder(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

/// `shard-<number>.rdb`, with another number before its end where that name was taken, or the beginning of one that was never finished.
fn is_artifact(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_file = |name: &str| {
        let numbers = name.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(".rdb"));
        numbers.is_some_and(|numbers| match numbers.split_once('.') {
            Some((shard, number)) => is_number(shard) && is_number(number),
            None => is_number(numbers),
        })
    };
    match name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".part")) {
        // Earlier releases gave it no number of its own.
        Some(begun) => {
            is_file(begun) || begun.rsplit_once('.').is_some_and(|(file, own)| is_file(file) && is_number(own))
        }
        None => is_file(name),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn job(target: &Path) -> Job {
        Job { target: target.to_owned(), folder: "ns_c_b_0123".into(), termination_log: target.join("log") }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_artifacts_of_the_one_folder_are_deleted_and_then_the_folder() {
        let target = tempfile::tempdir().unwrap();
        for folder in ["ns_c_b_0123", "ns_c_b_4567"] {
            fs::create_dir(target.path().join(folder)).unwrap();
            for file in ["shard-0.rdb", "shard-17.rdb", "shard-17.2.rdb", ".shard-2.rdb.part", ".shard-2.rdb.170.part"]
            {
                fs::write(target.path().join(folder).join(file), "x").unwrap();
            }
        }
        let job = job(target.path());
        assert_eq!(erase(&job).unwrap(), WorkerReport::Erased { files: 5, left: 0 });
        assert_eq!(names(target.path()), ["ns_c_b_4567"]);
        assert_eq!(names(&target.path().join("ns_c_b_4567")).len(), 5);
        assert_eq!(erase(&job).unwrap(), WorkerReport::Erased { files: 0, left: 0 }, "twice is no failure");
    }

    #[test]
    fn what_it_does_not_know_stays_and_no_link_is_followed() {
        let target = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("shard-0.rdb"), "x").unwrap();
        let folder = target.path().join("ns_c_b_0123");
        fs::create_dir(&folder).unwrap();
        symlink(other.path().join("shard-0.rdb"), folder.join("shard-0.rdb")).unwrap();
        symlink(other.path(), folder.join("elsewhere")).unwrap();
        fs::create_dir(folder.join("shard-1.rdb")).unwrap();
        for file in ["shard-2.rdb", "shard-.rdb", "shard-x.rdb", "shard-2.x.rdb", "shard-3.rdb.bak", "notes"] {
            fs::write(folder.join(file), "x").unwrap();
        }
        assert_eq!(erase(&job(target.path())).unwrap(), WorkerReport::Erased { files: 1, left: 8 });
        assert_eq!(
            names(&folder),
            [
                "elsewhere",
                "notes",
                "shard-.rdb",
                "shard-0.rdb",
                "shard-1.rdb",
                "shard-2.x.rdb",
                "shard-3.rdb.bak",
                "shard-x.rdb"
            ]
        );
        assert_eq!(names(other.path()), ["shard-0.rdb"]);
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let target = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("shard-0.rdb"), "x").unwrap();
        symlink(other.path(), target.path().join("ns_c_b_0123")).unwrap();
        assert!(matches!(erase(&job(target.path())), Err(Error::NotAFolder(_))));
        assert_eq!(names(other.path()), ["shard-0.rdb"]);
    }

    #[test]
    fn a_folder_cannot_lead_out_of_the_target() {
        let read = |words: &[&str]| {
            let args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Job::from_args(&args, &|_| None).map(|job| job.folder).map_err(|error| error.to_string())
        };
        assert_eq!(read(&["--target", "/backup", "--folder", "ns_c_b_01"]), Ok("ns_c_b_01".to_owned()));
        for bad in ["..", ".", "", "a/b", "/etc", "../x", "a\nb", ".hidden", "a\0b"] {
            assert!(read(&["--target", "/backup", "--folder", bad]).unwrap_err().contains("plain name"), "{bad:?}");
        }
        assert!(read(&["--target", "/backup"]).is_err());
        assert!(read(&["--folder", "a", "--target", "/backup"]).is_err());
    }
}
