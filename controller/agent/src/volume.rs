//! One agent at a time uses a volume. I/O around one lock.
//!
//! A claim that is ReadWriteOnce lets in every pod of its node: beside one that was deleted by force and still stops, its successor would take away
//! what the other's server writes just now, and start a second server on the same files. The lock is the kernel's and ends with the agent, whose
//! server the kernel ends next where the agent is PID 1. Some file systems of several nodes (CephFS) keep it for minutes after a machine has died.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::Duration,
};

use tokio::time::sleep;

use crate::{disk, shared::Shared};

/// Between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// Waits until no other agent uses the volume, and keeps others out for as long as what it gives is held. It gives nothing where the volume knows no
/// locks. Until then this agent is one that starts: of the node, and of whoever runs it, that proves nothing.
///
/// # Errors
/// When the data directory cannot be opened.
pub async fn claimed(shared: &Shared) -> Result<Option<File>, disk::Error> {
    let dir = &shared.options.data_dir;
    let mut said = None;
    loop {
        let error = match claim(dir).map_err(|source| disk::Error::Read { path: dir.clone(), source })? {
            Ok(lock) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => io::ErrorKind::WouldBlock.into(),
            Err(TryLockError::Error(error)) => error,
        };
        if knows_no_locks(&error) {
            tracing::warn!(dir = %dir.display(), %error, "this volume cannot be locked");
            return Ok(None);
        }
        if said != Some(error.kind()) {
            tracing::warn!(
                dir = %dir.display(),
                %error,
                "another pod still uses this volume, or it cannot be locked just now: it is tried again. A pod that was deleted by force keeps its \
                 volume until its container has ended"
            );
        }
        said = Some(error.kind());
        sleep(AGAIN).await;
    }
}

/// Any other error is of the moment, as while a server of a network file system is replaced.
fn knows_no_locks(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
        || error.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error())
}

/// The directory itself is locked: on a full volume there may be no room for a file.
fn claim(dir: &Path) -> io::Result<Result<File, TryLockError>> {
    fs::create_dir_all(dir)?;
    let open = File::open(dir)?;
    Ok(open.try_lock().map(|()| open))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_volume_is_claimed_once_and_again_when_its_agent_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("data");
        let first = claim(&volume).unwrap().unwrap();
        assert!(matches!(claim(&volume).unwrap(), Err(TryLockError::WouldBlock)));
        drop(first);
        claim(&volume).unwrap().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(claim(&dir.path().join("file")).is_err());
    }

    #[test]
    fn only_a_volume_that_knows_no_locks_is_used_without() {
        use rustix::io::Errno;
        let never = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
        let now = [Errno::IO, Errno::STALE, Errno::INTR, Errno::WOULDBLOCK];
        let is_without = |errno: Errno| knows_no_locks(&io::Error::from(errno));
        assert_eq!((never.map(is_without), now.map(is_without)), ([true; 4], [false; 4]));
    }
}
