//! How many requests may be worked on at once. Whoever comes too much is told to come again, at once and cheaply.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::authn::MASTERS;
use super::metrics::{InProgress, Metrics};
use crate::error::{Error, Result};
use crate::request::{Call, User};

/// Reads at once: Kubernetes' default.
pub const READS_MAX: usize = 400;
/// Requests that may change something at once: Kubernetes' default.
pub const MUTATIONS_MAX: usize = 200;
/// Seconds after which a refused client should come again.
const RETRY_AFTER: u32 = 1;

/// The limits on what is in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    reads: Arc<Semaphore>,
    mutations: Arc<Semaphore>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new(READS_MAX, MUTATIONS_MAX)
    }
}

/// One request's place; given back when dropped.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _in_progress: InProgress,
}

impl InFlight {
    /// So many reads and so many mutations at once.
    #[must_use]
    pub fn new(reads: usize, mutations: usize) -> Self {
        Self { reads: Arc::new(Semaphore::new(reads)), mutations: Arc::new(Semaphore::new(mutations)) }
    }

    /// Takes a place, or refuses. Requests that last and the administrator's are not counted: the first would fill the
    /// limit for ever, the second must get through when it matters.
    pub(super) fn enter(&self, user: &User, call: &Call, metrics: &Metrics) -> Result<Option<Place>> {
        if call.is_long_running() || user.is_in(MASTERS) {
            return Ok(None);
        }
        let is_mutating = call.verb.is_mutating();
        let places = if is_mutating { &self.mutations } else { &self.reads };
        match places.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(Place { _permit: permit, _in_progress: metrics.in_flight(is_mutating) })),
            Err(_full) => {
                metrics.dropped(is_mutating);
                let message = "Too many requests, please try again later.".to_owned();
                Err(Error::TooManyRequests { message, retry_after: RETRY_AFTER })
            }
        }
    }
}
