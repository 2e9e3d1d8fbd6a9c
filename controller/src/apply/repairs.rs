//! How often the same is asked of Kubernetes again. Pure.
//!
//! Somebody who insists on another value (a controller that applies by force, a webhook that changes what we write) wakes us with
//! each of his writes. Who is answered at once is answered for ever; so the same object is not made the same thing twice within some
//! seconds. What Kubernetes refused, and nothing else waits for, is asked for more seldom still: a person has to change something, and
//! nothing tells us that he has. What we ask for anew is never put off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use types::patience;

/// Between two writes of the same to the same object: as long as the pause between two looks at rest, so that a fight costs not more
/// than one write for each of them, and who changed something by mistake sees it put right at once.
pub const PAUSE: Duration = Duration::from_secs(5);

/// What was written lately, and what was refused last. Bounded by the objects of one cluster.
#[derive(Debug, Default)]
pub struct Repairs {
    written: BTreeMap<String, (String, Instant)>,
    refused: BTreeMap<String, Refusal>,
}

#[derive(Debug)]
struct Refusal {
    wish: String,
    why: String,
    at: Instant,
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

    /// Why an object may not be made this, if that was refused so lately that it is not asked for again.
    #[must_use]
    pub fn refusal(&self, object: &str, wish: &str, now: Instant) -> Option<&str> {
        let refusal = self.refused.get(object)?;
        let is_valid = refusal.wish == wish && now.saturating_duration_since(refusal.at) < patience::MOST;
        is_valid.then_some(&refusal.why)
    }

    /// Whether anything was refused of an object, however long ago.
    #[must_use]
    pub fn is_refused(&self, object: &str) -> bool {
        self.refused.contains_key(object)
    }

    /// Why an object was not made this when it was asked for last, however long ago. Of another wish that says nothing.
    #[must_use]
    pub fn why(&self, object: &str, wish: &str) -> Option<&str> {
        self.refused.get(object).filter(|refusal| refusal.wish == wish).map(|refusal| refusal.why.as_str())
    }

    /// An object is as it should be.
    pub fn granted(&mut self, object: &str) {
        self.refused.remove(object);
    }

    /// Kubernetes refused to make an object this.
    pub fn refused(&mut self, object: &str, wish: String, why: String, now: Instant) {
        self.refused.insert(object.to_owned(), Refusal { wish, why, at: now });
    }

    /// Nothing of what was refused of this kind is wished any more: should it be again, it is asked for at once.
    pub fn forget_refusals(&mut self, kind: &str) {
        self.refused.retain(|object, _| object.split_once(' ').is_none_or(|(of, _)| of != kind));
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

    #[test]
    fn what_was_refused_is_not_asked_for_again_within_its_pause_but_something_new_is() {
        let (mut repairs, start) = (Repairs::default(), Instant::now());
        assert_eq!(repairs.refusal("Claim a", "2Gi", start), None);
        repairs.refused("Claim a", "2Gi".to_owned(), "no".to_owned(), start);
        assert_eq!(repairs.refusal("Claim a", "2Gi", start + patience::MOST / 2), Some("no"));
        assert_eq!(repairs.refusal("Claim a", "3Gi", start), None);
        assert_eq!(repairs.refusal("Claim b", "2Gi", start), None);
        assert_eq!(repairs.refusal("Claim a", "2Gi", start + patience::MOST), None);
        let told = ["2Gi", "3Gi"].map(|wish| repairs.why("Claim a", wish));
        assert_eq!(told, [Some("no"), None], "what it was refused for is told until it is asked for again");
        repairs.forget_refusals("Service");
        assert_eq!(repairs.refusal("Claim a", "2Gi", start), Some("no"));
        repairs.forget_refusals("Claim");
        assert_eq!(repairs.refusal("Claim a", "2Gi", start), None);
    }
}
