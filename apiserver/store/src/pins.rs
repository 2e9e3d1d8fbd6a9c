//! Snapshots kept alive because a page of them was handed out and the next page will be asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Revision;

/// How long a page may take to be followed by the next: as long as watch history is kept at least.
pub(crate) const PIN_AGE: Duration = Duration::from_secs(75);

/// How many snapshots are kept for paging. Each costs what was written since, so this bounds memory (and file growth)
/// under many slow pagers; the one used longest ago goes first.
pub(crate) const PIN_LIMIT: usize = 64;

/// Snapshots by the revision they are exact at. Pure: the caller tells the time.
#[derive(Debug)]
pub(crate) struct Pins<S> {
    held: BTreeMap<Revision, (Duration, S)>,
}

impl<S> Default for Pins<S> {
    fn default() -> Self {
        Pins { held: BTreeMap::new() }
    }
}

impl<S: Clone> Pins<S> {
    /// Keeps `snapshot` for whoever asks for `revision` next.
    pub(crate) fn pin(&mut self, revision: Revision, snapshot: S, now: Duration) {
        self.held.insert(revision, (now, snapshot));
        self.drop_old(now);
        while self.held.len() > PIN_LIMIT {
            let Some(oldest) = self.held.iter().min_by_key(|(_, (used, _))| *used).map(|(r, _)| *r) else { break };
            self.held.remove(&oldest);
        }
    }

    /// The snapshot at `revision`, whose time starts again.
    pub(crate) fn get(&mut self, revision: Revision, now: Duration) -> Option<S> {
        self.drop_old(now);
        let (used, snapshot) = self.held.get_mut(&revision)?;
        *used = now;
        Some(snapshot.clone())
    }

    /// The oldest revision still kept.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.held.keys().next().copied()
    }

    fn drop_old(&mut self, now: Duration) {
        self.held.retain(|_, (used, _)| now.saturating_sub(*used) <= PIN_AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_lives_while_it_is_used_and_dies_of_age() {
        let mut pins = Pins::default();
        pins.pin(Revision(5), "five", Duration::ZERO);
        assert_eq!(pins.get(Revision(5), PIN_AGE), Some("five"));
        assert_eq!(pins.get(Revision(5), PIN_AGE * 2), Some("five"));
        assert_eq!(pins.get(Revision(5), PIN_AGE * 3 + Duration::from_millis(1)), None);
    }

    #[test]
    fn the_pin_used_longest_ago_makes_room() {
        let mut pins = Pins::default();
        let second = |n: usize| Duration::from_millis(n as u64);
        for n in 0..PIN_LIMIT {
            pins.pin(Revision(n as u64), n, second(n));
        }
        assert_eq!(pins.get(Revision(0), second(PIN_LIMIT)), Some(0));
        pins.pin(Revision(1000), 1000, second(PIN_LIMIT + 1));
        assert_eq!((pins.get(Revision(1), second(PIN_LIMIT + 2)), pins.oldest()), (None, Some(Revision(0))));
    }
}
