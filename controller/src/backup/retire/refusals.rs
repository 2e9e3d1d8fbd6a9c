//! Workers that Kubernetes did not take, as where a quota is used up or a rule forbids them, and when they are asked for again. Pure.
//!
//! Losing it costs one request for each worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::queue::Key;

/// The first pause; each further one is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(10);
/// The longest: whoever makes room waits for us no longer than this, and a thousand backups of a cluster cost two requests a second.
const MOST: Duration = Duration::from_secs(600);

/// What was refused lately. Bounded by the backups that are being deleted.
#[derive(Debug, Default)]
pub struct Refusals {
    all: Mutex<BTreeMap<Key, BTreeMap<String, Refusal>>>,
    /// With which backup of a cluster the next look begins, where the last one came to no end.
    next: Mutex<BTreeMap<Key, String>>,
}

/// The last refusal of one backup's worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// How many there were in a row.
    pub(super) times: u32,
    /// The last one's words.
    pub(super) why: String,
    /// When it is asked for again.
    pub(super) due: Instant,
}

impl Refusals {
    fn with<T>(&self, key: &Key, what: impl FnOnce(&mut BTreeMap<String, Refusal>) -> T) -> T {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_cluster = all.entry(key.clone()).or_default();
        let answer = what(of_cluster);
        if of_cluster.is_empty() {
            all.remove(key);
        }
        answer
    }

    /// Forgets all but these backups, by uid.
    pub(super) fn keep(&self, key: &Key, uids: &BTreeSet<&str>) {
        self.with(key, |refused| refused.retain(|uid, _| uids.contains(uid.as_str())));
    }

    pub(super) fn of(&self, key: &Key, uid: &str) -> Option<Refusal> {
        self.with(key, |refused| refused.get(uid).cloned())
    }

    /// It was refused; says after which pause it is to be asked for again.
    pub(super) fn note(&self, key: &Key, uid: &str, why: String, now: Instant) -> Duration {
        self.with(key, |refused| {
            let times = refused.get(uid).map_or(0, |before| before.times);
            let pause = FIRST.saturating_mul(1 << times.min(16)).min(MOST);
            refused.insert(uid.to_owned(), Refusal { times: times.saturating_add(1), why, due: now + pause });
            pause
        })
    }

    /// It was taken.
    pub(super) fn forget(&self, key: &Key, uid: &str) {
        self.with(key, |refused| refused.remove(uid));
    }

    /// With which backup, by uid, this look begins.
    pub(super) fn take_next(&self, key: &Key) -> Option<String> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// With which backup the next look begins.
    pub(super) fn put_next(&self, key: &Key, uid: &str) {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), uid.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_worker_is_asked_for_ever_more_seldom() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let key = Key { namespace: "shop".to_owned(), name: "orders".to_owned() };
        let pauses: Vec<u64> = (0..9).map(|_| refusals.note(&key, "u1", "no".to_owned(), now).as_secs()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(refusals.note(&key, "u2", "no".to_owned(), now).as_secs(), 10);
        let last = Refusal { times: 9, why: "no".to_owned(), due: now + MOST };
        assert_eq!(refusals.of(&key, "u1"), Some(last));
        refusals.forget(&key, "u1");
        assert_eq!(refusals.of(&key, "u1"), None);
        refusals.keep(&key, &BTreeSet::new());
        assert!(refusals.all.lock().is_ok_and(|all| all.is_empty()), "what has gone is forgotten");
    }
}
