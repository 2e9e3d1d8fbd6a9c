//! Answers that are remembered for a short time: decisions of others about tokens and rights.
//!
//! The time is passed in. Nothing here knows what is remembered.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer counts, yes or no: what Kubernetes' aggregated servers use.
pub const LIFE: Duration = Duration::from_secs(10);
/// Most answers of one kind. One more takes the place of the oldest.
const ANSWERS_MAX: usize = 4096;

/// Answers by question.
#[derive(Debug)]
pub struct Remembered<K, V> {
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    answers: HashMap<K, (u64, Instant, V)>,
    /// In the order in which they were learned, which is the order in which they end.
    order: BTreeMap<u64, K>,
    learned: u64,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { answers: HashMap::new(), order: BTreeMap::new(), learned: 0 }) }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Remembered<K, V> {
    /// The answer, if it still counts at `now`.
    pub fn get(&self, question: &K, now: Instant) -> Option<V> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.answers.get(question).filter(|(_, until, _)| now < *until).map(|(_, _, answer)| answer.clone())
    }

    /// Remembers an answer from `now` on.
    pub fn learn(&self, question: K, answer: V, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.learned += 1;
        let number = inner.learned;
        if let Some((old, _, _)) = inner.answers.insert(question.clone(), (number, now + LIFE, answer)) {
            inner.order.remove(&old);
        }
        inner.order.insert(number, question);
        inner.forget(now);
    }
}

impl<K: Clone + Eq + Hash, V> Inner<K, V> {
    /// Lets go of what has ended, and of the oldest beyond the limit.
    fn forget(&mut self, now: Instant) {
        while let Some((&number, question)) = self.order.first_key_value() {
            let has_ended = self.answers.get(question).is_none_or(|(_, until, _)| *until <= now);
            if !has_ended && self.answers.len() <= ANSWERS_MAX {
                return;
            }
            self.answers.remove(question);
            self.order.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_ten_seconds_and_the_oldest_makes_room() {
        let (memory, start) = (Remembered::<usize, bool>::default(), Instant::now());
        memory.learn(1, true, start);
        assert_eq!(memory.get(&1, start + LIFE - Duration::from_millis(1)), Some(true));
        assert_eq!(memory.get(&1, start + LIFE), None);
        assert_eq!(memory.get(&2, start), None);

        let memory = Remembered::<usize, usize>::default();
        (0..=ANSWERS_MAX).for_each(|number| memory.learn(number, number, start));
        assert_eq!((memory.get(&0, start), memory.get(&1, start)), (None, Some(1)));
        assert_eq!(memory.get(&ANSWERS_MAX, start), Some(ANSWERS_MAX));
    }

    #[test]
    fn an_answer_learned_again_counts_from_then_on() {
        let (memory, start) = (Remembered::<&str, u8>::default(), Instant::now());
        memory.learn("a", 1, start);
        memory.learn("a", 2, start + Duration::from_secs(9));
        memory.learn("b", 3, start + Duration::from_secs(11));
        assert_eq!(memory.get(&"a", start + Duration::from_secs(18)), Some(2));
    }
}
