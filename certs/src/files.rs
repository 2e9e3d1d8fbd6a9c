//! Files that hold secrets: written whole or not at all, readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Writes a file that only its owner may read. The content is on disk under a temporary name before the name is taken,
/// so that a reader, or a start after a crash, sees the old content or the new one and never a part.
pub fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content).map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let temporary = temporary_name(path);
    // A leftover of a crash may carry other permissions, and `mode` applies only to files that are created here.
    match fs::remove_file(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Reads a text file; `None` when it is absent.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_file_is_readable_by_its_owner_only_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tls.key");
        fs::write(&path, "old").unwrap();
        fs::write(directory.path().join("tls.key.new"), "leftover of a crash").unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["tls.key"]);
    }

    #[test]
    fn an_absent_file_is_not_an_error_and_an_unreadable_one_is() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&directory.path().join("absent")).unwrap(), None);
        assert!(matches!(read_optional(directory.path()), Err(Error::Read { .. })));
    }
}
