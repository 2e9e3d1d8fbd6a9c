//! When the machine itself stood still: nobody dealt that blow, and every member felt it.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    blow::Member,
    excuse::{Hit, How},
};

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(100);

/// Someone who only looks whether time goes on, for the processors and for the disk that the members are on.
pub(super) struct Stills {
    found: Arc<Mutex<Vec<(Instant, Instant)>>>,
    stopped: Arc<AtomicBool>,
}

impl Drop for Stills {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Stills {
    /// Begins to look. What is shorter than this counts as nothing.
    pub(super) fn watch(folder: &Path, least: Duration) -> Result<Self> {
        let mut file = File::create(folder.join("still"))?;
        let stills = Self { found: Arc::default(), stopped: Arc::default() };
        let (found, stopped) = (Arc::clone(&stills.found), Arc::clone(&stills.stopped));
        std::thread::spawn(move || {
            let mut before = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                // What cannot be written does not tell how long it takes.
                file.write_all(b".").and_then(|()| file.sync_data()).ok();
                let now = Instant::now();
                if now - before >= least {
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((before, now));
                }
                before = now;
                std::thread::sleep(PAUSE);
            }
        });
        Ok(stills)
    }

    /// Those since it was asked before, as blows that held every member of every shard.
    pub(super) fn hits(&self) -> Vec<Hit> {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let hit = |(from, until): (Instant, Instant)| Hit {
            shard: 0,
            member: Member::All,
            from,
            at: until,
            ends: from,
            until,
            slots: (0..16384).collect(),
            how: How::Held,
        };
        found.into_iter().map(hit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stands_still_for_longer_than_counts_is_noticed_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        // Whatever there is between two looks counts.
        let stills = Stills::watch(folder.path(), Duration::ZERO)?;
        let begin = Instant::now();
        let mut hits = stills.hits();
        while hits.is_empty() {
            assert!(begin.elapsed() < hung::answer(), "nobody looks");
            std::thread::sleep(PAUSE);
            hits = stills.hits();
        }
        assert!(hits.iter().all(|hit| hit.from <= hit.until && hit.slots.len() == 16384), "{hits:?}");
        let never = Stills::watch(folder.path(), Duration::from_secs(1 << 30))?;
        std::thread::sleep(3 * PAUSE);
        assert!(never.hits().is_empty());
        Ok(())
    }
}
