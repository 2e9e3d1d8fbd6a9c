//! Time and chance, injected so that tests decide both.

use jiff::Timestamp;
use uuid::Uuid;

/// Where the server takes the time and random numbers from.
pub trait World: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// A fresh random UUID.
    fn uuid(&self) -> Uuid;
}

/// The machine's own clock and random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl World for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A time as Kubernetes writes it: RFC 3339, whole seconds, UTC.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    // Seconds of a valid timestamp are a valid timestamp.
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
