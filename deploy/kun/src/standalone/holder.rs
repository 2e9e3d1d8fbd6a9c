//! The name under which the controller of a data directory holds its lease.
//!
//! It is the same after every start, so that a restarted kun takes over from itself at once, and another for every directory: two that
//! share an etcd, or an API server, must not both take themselves for the holder.

use std::io;
use std::path::Path;

/// What all names begin with.
const PREFIX: &str = "kun-standalone-";
/// The file in the data directory.
const FILE: &str = "holder";

/// The name that the directory has, or is given now.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn name(data: &Path) -> io::Result<String> {
    let path = data.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if is_name(text.trim()) => Ok(text.trim().to_owned()),
        // A file that was cut off in the middle of its making named nobody yet.
        Ok(_) => make(&path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path),
        Err(error) => Err(error),
    }
}

fn is_name(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(|rest| uuid::Uuid::try_parse(rest).is_ok())
}

fn make(path: &Path) -> io::Result<String> {
    let name = format!("{PREFIX}{}", uuid::Uuid::new_v4());
    std::fs::write(path, format!("{name}\n"))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_directory_keeps_its_name_and_another_has_another() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = name(one.path()).unwrap();
        assert_eq!(name(one.path()).unwrap(), first);
        assert_ne!(name(other.path()).unwrap(), first);
        std::fs::write(one.path().join(FILE), "kun-standalone-12").unwrap();
        let anew = name(one.path()).unwrap();
        assert!(anew != first && is_name(&anew), "{anew}");
    }
}
