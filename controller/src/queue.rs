//! The work queue: which object is reconciled when. Pure: the caller brings the time.
//!
//! One object is never worked on twice at once; a key that is added while it runs runs once more afterwards; adding
//! a key again never makes it later. Failures are spaced out per object. This module must not know what work is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// First pause after a failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest pause after repeated failures: long enough to be cheap, short enough that a person sees the recovery.
const BACKOFF_MOST: Duration = Duration::from_secs(15);
/// A change that arrives within this time of the previous run waits for its end, so that a burst of events (six pods
/// becoming ready) is one run and not six.
pub const SETTLE: Duration = Duration::from_millis(5);

/// Identity of a RedisCluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a finished run asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    OnChange,
    /// Again after this time, or earlier when something changes.
    After(Duration),
    /// It failed: again after a pause that grows with each failure in a row.
    Failed,
}

impl Next {
    /// The same, but not later than after this time.
    #[must_use]
    pub fn within(self, most: Duration) -> Self {
        match self {
            Self::OnChange => Self::After(most),
            Self::After(pause) => Self::After(pause.min(most)),
            Self::Failed => Self::Failed,
        }
    }
}

/// Which object is reconciled when.
///
/// What a look at the queue costs does not grow with what waits: those that are due come first, and of these only running
/// ones are passed over.
#[derive(Debug, Default)]
pub struct Queue {
    /// When each waiting key is due. Bounded by the number of objects that exist.
    due: BTreeMap<Key, Instant>,
    /// The same, by time.
    order: BTreeSet<(Instant, Key)>,
    running: BTreeSet<Key>,
    failures: BTreeMap<Key, u32>,
}

impl Queue {
    /// Something about `key` changed: it is due at `at`, or earlier if it already was.
    pub fn add(&mut self, key: Key, at: Instant) {
        let at = self.due.get(&key).map_or(at, |due| at.min(*due));
        self.set(key, at);
    }

    /// `key` is due at `at`, whatever was said before.
    fn set(&mut self, key: Key, at: Instant) {
        if let Some(before) = self.due.insert(key.clone(), at) {
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((at, key));
    }

    /// The next key that is due and not running; it counts as running until [`Queue::done`].
    pub fn take(&mut self, now: Instant) -> Option<Key> {
        let first = self.waiting().next().filter(|(at, _)| *at <= now)?.clone();
        self.order.remove(&first);
        let (_, key) = first;
        self.due.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// When the next key becomes due, if any waits.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting().next().map(|(at, _)| *at)
    }

    /// What waits and does not run, the earliest first.
    fn waiting(&self) -> impl Iterator<Item = &(Instant, Key)> {
        self.order.iter().filter(|(_, key)| !self.running.contains(key))
    }

    /// A run has ended. A change that came meanwhile stays due.
    pub fn done(&mut self, key: &Key, next: Next, now: Instant) {
        self.running.remove(key);
        match next {
            Next::OnChange => {
                self.failures.remove(key);
            }
            Next::After(pause) => {
                self.failures.remove(key);
                self.add(key.clone(), now + pause);
            }
            Next::Failed => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                *failures = failures.saturating_add(1);
                let pause = backoff(*failures);
                // A change that came meanwhile must not undo the pause: its cause may be our own failing writes.
                self.set(key.clone(), now + pause);
            }
        }
    }

    /// The object is gone: nothing about it is remembered.
    pub fn forget(&mut self, key: &Key) {
        self.failures.remove(key);
    }

    /// Keys waiting and running.
    #[must_use]
    pub fn depth(&self) -> (usize, usize) {
        (self.due.len(), self.running.len())
    }
}

/// The pause after the n-th failure in a row.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    BACKOFF_FIRST.saturating_mul(1_u32 << doublings).min(BACKOFF_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_key_runs_once_at_a_time_and_once_more_when_it_changed_meanwhile() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("a"), now);
        queue.add(key("a"), now);
        assert_eq!(queue.take(now), Some(key("a")));
        assert_eq!(queue.take(now), None);
        queue.add(key("a"), now);
        assert_eq!(queue.take(now), None);
        assert_eq!(queue.next_due(), None);
        queue.done(&key("a"), Next::OnChange, now);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.done(&key("a"), Next::OnChange, now);
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn adding_a_key_again_never_makes_it_later() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("a"), now + Duration::from_secs(1));
        queue.add(key("a"), now);
        queue.add(key("a"), now + Duration::from_secs(9));
        assert_eq!(queue.next_due(), Some(now));
    }

    #[test]
    fn failures_are_spaced_out_until_a_success() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..12 {
            queue.add(key("a"), now);
            assert_eq!(queue.take(now), Some(key("a")));
            queue.add(key("a"), now);
            queue.done(&key("a"), Next::Failed, now);
            pauses.push(queue.next_due().map(|at| at - now));
            queue.due.clear();
            queue.order.clear();
        }
        assert_eq!(pauses.first(), Some(&Some(BACKOFF_FIRST)));
        assert_eq!(pauses.get(3), Some(&Some(BACKOFF_FIRST * 8)));
        assert_eq!(pauses.last(), Some(&Some(BACKOFF_MOST)));
        queue.add(key("a"), now);
        assert!(queue.take(now).is_some());
        queue.done(&key("a"), Next::After(Duration::ZERO), now);
        assert!(queue.failures.is_empty());
    }

    #[test]
    fn the_key_that_was_due_first_goes_first() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("a"), now + Duration::from_millis(2));
        queue.add(key("b"), now + Duration::from_millis(1));
        let later = now + Duration::from_secs(1);
        assert_eq!((queue.take(later), queue.take(later), queue.take(later)), (Some(key("b")), Some(key("a")), None));
    }
}
