//! How fast: a token bucket for the user's limit, and a budget that keeps each command batch short for everybody else.
//! Pure; the caller brings the time.

use std::time::{Duration, Instant};

/// How long one exchange with the source should take: Redis serves nobody else meanwhile, and clients shall wait at
/// most 10 ms at the 99th percentile, of which the network and a busy machine need their part.
const GOAL: Duration = Duration::from_millis(4);
/// Above this the budget is halved.
const TOO_LONG: Duration = Duration::from_millis(6);
/// Fewest and most keys of one exchange. A thousand small keys take about 10 ms on a slow machine.
const KEYS: (usize, usize) = (8, 1000);
/// Most bytes of one exchange and of one MIGRATE: at 50 MB/s a megabyte takes 20 ms, so this is a ceiling for single
/// large keys, not the usual size.
pub(super) const BYTES_MOST: u64 = 256 << 10;

/// How many keys the next exchange may carry, learned from how long the last ones took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    keys: usize,
}

impl Default for Budget {
    fn default() -> Self {
        // A cautious start: it doubles within a few exchanges.
        Self { keys: 64 }
    }
}

impl Budget {
    /// Keys of the next exchange.
    #[must_use]
    pub(super) fn keys(self) -> usize {
        self.keys
    }

    /// The last exchange carried `keys` and took `elapsed`.
    pub(super) fn learn(&mut self, keys: usize, elapsed: Duration) {
        if elapsed > TOO_LONG {
            self.keys = (self.keys / 2).max(KEYS.0);
        } else if elapsed < GOAL && keys.saturating_mul(2) >= self.keys {
            // Only an exchange that used its budget says something about a larger one.
            self.keys = (self.keys + self.keys / 4).min(KEYS.1);
        }
    }
}

/// Bytes per second that may be moved. Debt is allowed: one exchange may be larger than what is in the bucket, and the
/// next waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    per_second: Option<u64>,
    /// The time at which the bucket is empty of debt.
    clear_at: Option<Instant>,
}

impl Bucket {
    /// Sets the rate; it may change while slots move.
    pub fn rate(&mut self, per_second: Option<u64>) {
        self.per_second = per_second;
    }

    /// How long to wait before more may be sent.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        self.clear_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// So many bytes were sent.
    pub fn spend(&mut self, bytes: u64, now: Instant) {
        let Some(rate) = self.per_second else {
            self.clear_at = None;
            return;
        };
        let nanos = u128::from(bytes).saturating_mul(1_000_000_000) / u128::from(rate.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = self.clear_at.unwrap_or(now).max(now);
        self.clear_at = from.checked_add(takes).or(Some(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_grows_while_exchanges_are_short_and_halves_when_one_is_long() {
        let mut budget = Budget::default();
        for _ in 0..40 {
            budget.learn(budget.keys(), Duration::from_millis(1));
        }
        assert_eq!(budget.keys(), 1000);
        budget.learn(1000, Duration::from_millis(9));
        assert_eq!(budget.keys(), 500);
        budget.learn(3, Duration::from_millis(1));
        assert_eq!(budget.keys(), 500);
        for _ in 0..20 {
            budget.learn(budget.keys(), Duration::from_secs(1));
        }
        assert_eq!(budget.keys(), 8);
    }

    #[test]
    fn the_bucket_makes_the_next_exchange_wait_for_the_last() {
        let (mut bucket, now) = (Bucket::default(), Instant::now());
        bucket.spend(1 << 30, now);
        assert_eq!(bucket.wait(now), Duration::ZERO);
        bucket.rate(Some(1000));
        bucket.spend(500, now);
        bucket.spend(500, now);
        assert_eq!(bucket.wait(now), Duration::from_secs(1));
        assert_eq!(bucket.wait(now + Duration::from_secs(2)), Duration::ZERO);
        bucket.rate(None);
        bucket.spend(1 << 30, now);
        assert_eq!(bucket.wait(now), Duration::ZERO);
    }
}
