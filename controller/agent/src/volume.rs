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

use tokio::time::{Instant, sleep};

use crate::{disk, shared::Shared, wait::Wait};

/// What is said meanwhile.
const USED: &str =
    "another pod still uses this volume: one that was deleted by force keeps it until its container has ended";
/// Between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// So often an error that may be of the moment is waited for, as while a server of a network file system is replaced. Only another agent is waited for
/// without a limit.
const TRIES: u32 = 60;

/// Waits until no other agent uses the volume, and keeps others out for as long as what it gives is held. It gives nothing where the volume cannot be
/// locked. Until then this agent is one that starts: of the node, and of whoever runs it, that proves nothing.
///
/// # Errors
/// When the data directory cannot be opened.
pub async fn claimed(shared: &Shared) -> Result<Option<File>, disk::Error> {
    let dir = &shared.options.data_dir;
    let (mut wait, mut since, mut tries) = (Wait::begun(), None, 0..TRIES);
    loop {
        match claim(dir).map_err(|source| disk::Error::Read { path: dir.clone(), source })? {
            Ok(lock) => {
                shared.tell_wait(None);
                shared.waits_for_volume(None);
                return Ok(Some(lock));
            }
            Err(TryLockError::WouldBlock) => {
                shared.waits_for_volume(Some(since.get_or_insert_with(Instant::now).elapsed()));
                wait.tell(shared, USED);
            }
            Err(TryLockError::Error(error)) if is_lasting(&error) || tries.next().is_none() => {
                tracing::warn!(dir = %dir.display(), %error, "this volume cannot be locked, and is used without");
                shared.waits_for_volume(None);
                return Ok(None);
            }
            Err(TryLockError::Error(error)) => {
                tracing::warn!(dir = %dir.display(), %error, "this volume cannot be locked just now");
                shared.waits_for_volume(None);
            }
        }
        sleep(AGAIN).await;
    }
}

/// Whether a volume knows no locks, or this agent may not have one: so was every volume used before there were any.
fn is_lasting(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), Unsupported | InvalidInput | PermissionDenied)
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
    fn a_volume_that_cannot_be_locked_is_used_without() {
        use rustix::io::Errno;
        let lasting = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::ACCESS, Errno::PERM];
        let passing = [Errno::IO, Errno::STALE, Errno::INTR];
        let is_without = |errno: Errno| is_lasting(&io::Error::from(errno));
        assert_eq!((lasting.map(is_without), passing.map(is_without)), ([true; 6], [false; 3]));
    }
}
