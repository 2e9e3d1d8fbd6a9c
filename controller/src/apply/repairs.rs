//! How often what others change is put right. Pure.
//!
//! Somebody who insists on another value (a controller that applies by force, a webhook that changes what we write) wakes us with
//! each of his writes. Who is answered at once is answered for ever; so the same object is not made the same thing twice within some
//! seconds. What we ask for anew is never put off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two writes of the same to the same object: as long as the pause between two looks at rest, so that a fight costs not more
/// than one write for each of them, and who changed something by mistake sees it put right at once.
pub const PAUSE: Duration = Duration::from_secs(5);

/// What was written lately. Bounded by the objects of one cluster that were changed within the pause.
#[derive(Debug, Default)]
pub struct Repairs {
    written: BTreeMap<String, (String, Instant)>,
}

impl Repairs {
    /// Whether an object may be made this now.
    #[must_use]
    pub fn may(&self, object: &str, wish: &str, now: Instant) -> bool {
        self.written.get(object).is_none_or(|(last, at)| last != wish || now.saturating_duration_since(*at) >= PAUSE)
    }

    /// An object was made this.
    pub fn made(&mut self, object: &str, wish: String, now: Instant) {
        self.written.retain(|_, (_, at)| now.saturating_duration_since(*at) < PAUSE);
        self.written.insert(object.to_owned(), (wish, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_not_written_twice_within_the_pause_but_something_new_is() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        assert!(repairs.may("Service a", "one", start));
        repairs.made("Service a", "one".to_owned(), start);
        assert!(!repairs.may("Service a", "one", start));
        assert!(!repairs.may("Service a", "one", start + PAUSE / 2));
        assert!(repairs.may("Service a", "two", start));
        assert!(repairs.may("Service b", "one", start));
        assert!(repairs.may("Service a", "one", start + PAUSE));
    }

    #[test]
    fn what_is_past_is_forgotten() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        repairs.made("Service a", "one".to_owned(), start);
        repairs.made("Service b", "one".to_owned(), start + PAUSE / 2);
        repairs.made("Service c", "one".to_owned(), start + PAUSE);
        assert_eq!(repairs.written.keys().collect::<Vec<_>>(), ["Service b", "Service c"]);
    }
}
