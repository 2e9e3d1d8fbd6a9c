//! `kun install-agent PATH`: puts a copy of this executable there, for the init container that hands the agent to a pod.
//!
//! Our image holds nothing but `kun`, not even `cp`. The copy takes its name when it is whole, so a pod whose init
//! container was interrupted never runs half a program.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name of the subcommand.
pub const SUBCOMMAND: &str = "install-agent";
/// Everybody may run it: the container it is for may have another user.
const MODE: u32 = 0o755;
/// Exit code when there is no copy.
const FAILED: u8 = 1;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// Not exactly one path.
    #[error("give one absolute path, such as /kun/bin/kun")]
    Usage,
    /// Our own executable is not known.
    #[error("finding our own executable: {0}")]
    OwnProgram(#[source] io::Error),
    /// It cannot be copied.
    #[error("copying {} to {}: {source}", from.display(), to.display())]
    Copy { from: PathBuf, to: PathBuf, source: io::Error },
}

/// Installs and says on standard error what went wrong.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match install(&args.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write as _;
            // If standard error is closed there is nobody to tell.
            let _ = writeln!(io::stderr(), "kun {SUBCOMMAND}: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn install(args: &[OsString]) -> Result<(), Error> {
    let [to] = args else { return Err(Error::Usage) };
    let to = Path::new(to);
    let (Some(folder), Some(name), true) = (to.parent(), to.file_name(), to.is_absolute()) else {
        return Err(Error::Usage);
    };
    let from = std::env::current_exe().map_err(Error::OwnProgram)?;
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(".part");
    copy(&from, &folder.join(partial), to).map_err(|source| Error::Copy { from, to: to.to_owned(), source })
}

fn copy(from: &Path, partial: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, partial)?;
    fs::set_permissions(partial, Permissions::from_mode(MODE))?;
    File::open(partial)?.sync_all()?;
    fs::rename(partial, to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn the_copy_is_this_executable_for_everybody_and_replaces_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("kun");
        fs::write(&to, "old").unwrap();
        fs::set_permissions(&to, Permissions::from_mode(0o400)).unwrap();
        fs::write(folder.path().join(".kun.part"), "half of an earlier try").unwrap();
        install(&[to.clone().into()]).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o7777, MODE);
        assert!(fs::read(&to).unwrap() == fs::read(std::env::current_exe().unwrap()).unwrap(), "another content");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_wrong_path_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none/kun");
        for args in [vec![], vec!["relative"], vec!["/"], vec!["/a", "/b"]] {
            let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
            assert!(matches!(install(&args), Err(Error::Usage)), "{args:?}");
        }
        assert!(matches!(install(&[missing.into()]), Err(Error::Copy { .. })));
    }
}
