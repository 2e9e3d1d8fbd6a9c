//! The time by which history and paging snapshots age. Injected, so that tests decide when 75 seconds have passed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A monotonic clock: time since some fixed start.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The machine's monotonic clock.
    #[must_use]
    pub fn system() -> Clock {
        let start = Instant::now();
        Clock(Arc::new(move || start.elapsed()))
    }

    /// A clock that shows what `read` returns.
    #[must_use]
    pub fn from_fn(read: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(read))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
