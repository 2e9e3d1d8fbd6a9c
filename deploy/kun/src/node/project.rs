//! Brings volumes onto disk: directories, and the files of ConfigMaps and Secrets with Kubernetes' symlink swap, so that
//! a reader sees either all old files or all new ones.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::volume::Keys;

/// A failure to bring a volume onto disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory.
    #[error("creating directory {path}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A projected file or link.
    #[error("projecting files into {path}")]
    Project {
        /// The volume.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key that a volume asks for by name.
    #[error("{object} has no key {key:?}")]
    Key {
        /// The ConfigMap or Secret.
        object: String,
        /// The key.
        key: String,
    },
}

/// Creates a directory that only its owner may enter.
pub fn directory(path: &Path) -> Result<(), Error> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| Error::Directory { path: path.to_path_buf(), source })
}

/// Which files a volume shall hold, given an object's data: pure.
pub fn files(keys: &Keys, data: &BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    if keys.items.is_empty() {
        // Keys are validated by the API server; one that could leave the volume is still left out here.
        return Ok(data
            .iter()
            .filter(|(key, _)| super::volume::is_inside(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect());
    }
    let mut files = BTreeMap::new();
    for (key, path) in &keys.items {
        match data.get(key) {
            Some(value) => {
                files.insert(path.clone(), value.clone());
            }
            None if keys.optional => {}
            None => return Err(Error::Key { object: keys.name.clone(), key: key.clone() }),
        }
    }
    Ok(files)
}

/// Makes `volume` hold exactly `files`. `generation` names the new set; it differs from the one in force.
pub fn swap(volume: &Path, files: &BTreeMap<String, Vec<u8>>, generation: &str) -> Result<(), Error> {
    directory(volume)?;
    swap_files(volume, files, generation).map_err(|source| Error::Project { path: volume.to_path_buf(), source })
}

fn swap_files(volume: &Path, files: &BTreeMap<String, Vec<u8>>, generation: &str) -> std::io::Result<()> {
    let set = format!("..{generation}");
    let directory = volume.join(&set);
    if directory.exists() {
        // The very set in force: a crash may have come between the swap and the links.
        if std::fs::read_link(volume.join("..data")).is_ok_and(|target| target == Path::new(&set)) {
            return link_names(volume, files);
        }
        // Left by a crash in the middle.
        std::fs::remove_dir_all(&directory)?;
    }
    for (path, bytes) in files {
        let file = directory.join(path);
        if let Some(parent) = file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        file.write_all(bytes)?;
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let old = std::fs::read_link(volume.join("..data")).ok();
    let link = volume.join("..data_tmp");
    remove_if_there(&link)?;
    std::os::unix::fs::symlink(&set, &link)?;
    std::fs::rename(&link, volume.join("..data"))?;
    link_names(volume, files)?;
    match old {
        Some(old) if old != Path::new(&set) => std::fs::remove_dir_all(volume.join(old)).or_else(ignore_missing),
        Some(_) | None => Ok(()),
    }
}

/// One link per first path component, so that a volume's names exist before and after every swap.
fn link_names(volume: &Path, files: &BTreeMap<String, Vec<u8>>) -> std::io::Result<()> {
    let tops: std::collections::BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let link = volume.join(top);
        let target = Path::new("..data").join(top);
        if std::fs::read_link(&link).is_ok_and(|now| now == target) {
            continue;
        }
        remove_if_there(&link)?;
        std::os::unix::fs::symlink(target, &link)?;
    }
    for entry in std::fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !tops.contains(name.as_ref()) && entry.file_type()?.is_symlink() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    std::fs::remove_file(path).or_else(ignore_missing)
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_swapped_as_a_whole_and_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("config");
        swap(&volume, &data(&[("a", "1"), ("b", "1")]), "1").unwrap();
        assert_eq!(names(&volume), ["..1", "..data", "a", "b"]);
        swap(&volume, &data(&[("a", "2"), ("c/d", "2")]), "2").unwrap();
        assert_eq!(names(&volume), ["..2", "..data", "a", "c"]);
        assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "2");
        assert_eq!(std::fs::read_to_string(volume.join("c/d")).unwrap(), "2");
        let mode = std::fs::metadata(volume.join("a")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        swap(&volume, &data(&[]), "3").unwrap();
        assert_eq!(names(&volume), ["..3", "..data"]);
    }

    #[test]
    fn a_swap_that_a_crash_interrupted_is_finished_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("config");
        swap(&volume, &data(&[("a", "1")]), "1").unwrap();
        std::fs::create_dir(volume.join("..2")).unwrap();
        std::fs::write(volume.join("..2/a"), "half").unwrap();
        std::os::unix::fs::symlink("..2", volume.join("..data_tmp")).unwrap();
        swap(&volume, &data(&[("a", "2")]), "2").unwrap();
        assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "2");
        assert_eq!(names(&volume), ["..2", "..data", "a"]);
    }

    #[test]
    fn a_crash_between_the_swap_and_the_links_leaves_no_name_out() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("config");
        swap(&volume, &data(&[("a", "1"), ("b", "1")]), "1").unwrap();
        std::fs::remove_file(volume.join("b")).unwrap();
        swap(&volume, &data(&[("a", "1"), ("b", "1")]), "1").unwrap();
        assert_eq!(names(&volume), ["..1", "..data", "a", "b"]);
    }

    #[test]
    fn a_key_that_is_asked_for_and_missing_is_named() {
        let keys = |optional| Keys { name: "x".into(), optional, items: vec![("k".into(), "f".into())] };
        assert_eq!(files(&keys(false), &data(&[])).unwrap_err().to_string(), "x has no key \"k\"");
        assert_eq!(files(&keys(true), &data(&[])).unwrap(), data(&[]));
        assert_eq!(files(&keys(false), &data(&[("k", "v"), ("z", "")])).unwrap(), data(&[("f", "v")]));
        let all = Keys { name: "x".into(), optional: false, items: vec![] };
        assert_eq!(files(&all, &data(&[("../up", ""), ("ok", "1")])).unwrap(), data(&[("ok", "1")]));
    }
}
