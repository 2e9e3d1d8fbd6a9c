//! A wait before redis-server is started that takes long is told of: in the log, by the readiness probe, and to the controller, which has it in the
//! status. Sparingly, as each time is a change of the status.

use std::time::Duration;

use tokio::time::Instant;

use crate::shared::Shared;

/// So long any start may take.
const LONG: Duration = Duration::from_secs(5);
/// How often it is told again.
const AGAIN: Duration = Duration::from_secs(30);

/// One wait.
#[derive(Debug)]
pub struct Wait {
    began: Instant,
    told: Option<Instant>,
}

impl Wait {
    /// It begins now.
    #[must_use]
    pub fn begun() -> Self {
        Self { began: Instant::now(), told: None }
    }

    /// Tells what is waited for, when it is time to.
    pub fn tell(&mut self, shared: &Shared, reason: &str) {
        if let Some(seconds) = self.due(Instant::now()) {
            tracing::warn!(seconds, reason, "redis-server is not started yet");
            shared.tell_wait(Some(format!("{reason} (waiting for {seconds} s)")));
        }
    }

    /// Tells why redis-server starts with what lies there: after a long wait that is news.
    pub fn over(&self, why: &str) {
        if self.told.is_some() {
            tracing::warn!(why, "the wait is over, and redis-server starts with its files as they are");
        } else {
            tracing::info!(why, "redis-server starts with its files as they are");
        }
    }

    /// For how many seconds it has waited, if that is to be told.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let (since, pause) = self.told.map_or((self.began, LONG), |told| (told, AGAIN));
        let is_due = now.saturating_duration_since(since) >= pause;
        is_due.then(|| {
            self.told = Some(now);
            now.saturating_duration_since(self.began).as_secs()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_once_it_is_long_and_then_sparingly() {
        let mut wait = Wait::begun();
        let told: Vec<u64> = (0..100).filter_map(|second| wait.due(wait.began + Duration::from_secs(second))).collect();
        assert_eq!(told, [5, 35, 65, 95]);
    }
}
