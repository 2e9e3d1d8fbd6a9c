//! How often what is not allowed is asked for again.
//!
//! A right that is missing is a person's to give: asking does not bring it, and whoever gives it does not want to wait long.

use std::time::Duration;

/// The first pause: as long as after any other fault of a watch.
const FIRST: Duration = Duration::from_secs(2);
/// The longest: whoever gives the right waits for us no longer than this.
pub const MOST: Duration = Duration::from_secs(30);

/// The pause after so many refusals in a row, each twice as long as the one before.
#[must_use]
pub fn after(refusals: u32) -> Duration {
    FIRST.saturating_mul(1 << refusals.saturating_sub(1).min(16)).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_asked_for_ever_more_seldom_and_within_half_a_minute() {
        let pauses: Vec<u64> = (0..7).map(|refusals| after(refusals).as_secs()).collect();
        assert_eq!(pauses, [2, 2, 4, 8, 16, 30, 30]);
        assert_eq!(after(u32::MAX), MOST);
    }
}
