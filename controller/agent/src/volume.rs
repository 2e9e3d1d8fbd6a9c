//! One agent at a time uses a volume. I/O around one lock.
//!
//! A claim that is ReadWriteOnce lets in every pod of its node: beside one that was deleted by force and still stops, its successor would take away
//! what the other's server writes just now, and start a second server on the same files. The lock is the kernel's and ends with the agent, and with
//! it ends the server wherever the agent is PID 1.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::Duration,
};

use tokio::time::sleep;
use types::agent::AgentPhase;

use crate::{disk, shared::Shared};

/// Between two attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// Why nothing is started.
const USED: &str = "another pod still uses this volume: it was deleted before its process had ended. This member starts by itself once that pod's \
                    container has ended on this node";

/// Waits until no other agent uses the volume, and keeps others out for as long as what it gives is held. It gives nothing where the volume knows no
/// locks.
///
/// # Errors
/// When the data directory cannot be opened.
pub async fn claimed(shared: &Shared) -> Result<Option<File>, disk::Error> {
    let dir = &shared.options.data_dir;
    let mut waits = false;
    loop {
        let error = match claim(dir).map_err(|source| disk::Error::Read { path: dir.clone(), source })? {
            Ok(lock) => {
                if waits {
                    // It was said before anybody knew what lies there.
                    shared.released.send_replace(None);
                    shared.enter(AgentPhase::Starting, None);
                }
                return Ok(Some(lock));
            }
            Err(error) => error,
        };
        match error {
            TryLockError::WouldBlock => {
                if !waits {
                    tracing::warn!(dir = %dir.display(), "another agent uses this volume");
                    shared.enter(AgentPhase::Starting, Some(USED.to_owned()));
                }
                waits = true;
                sleep(AGAIN).await;
            }
            TryLockError::Error(error) => {
                tracing::warn!(dir = %dir.display(), %error, "this volume cannot be locked");
                return Ok(None);
            }
        }
    }
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
}
