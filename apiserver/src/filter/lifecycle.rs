//! Where the server is in its life: starting, serving, stopping, draining. Each state is entered once and never left
//! backwards.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::metrics::InProgress;
use crate::wire::body::ResponseBody;

/// The states, as switches.
#[derive(Debug, Default)]
pub struct Lifecycle {
    was_ready: AtomicBool,
    stopping: CancellationToken,
    draining: CancellationToken,
    /// Over how long streams end once the server drains; known from then on.
    spread: Arc<OnceLock<Duration>>,
    /// Streams so far.
    streams: AtomicU64,
}

impl Lifecycle {
    /// True once everything was ready at the same time.
    #[must_use]
    pub fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Acquire)
    }

    /// Notes that everything is ready.
    pub(super) fn set_ready(&self) {
        self.was_ready.store(true, Ordering::Release);
    }

    /// Stopping: `/readyz` fails, everything else goes on, so that load balancers look elsewhere.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// True once [`Lifecycle::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Draining: watches end, each at its own moment within `spread`: whoever watched here lists and watches somewhere
    /// else, and not everybody at once. The first call counts.
    pub fn drain(&self, spread: Duration) {
        self.stop();
        let _is_known_already = self.spread.set(spread);
        self.draining.cancel();
    }

    /// A body that ends, as if its source had ended, when the server drains. `in_progress` lives as long as it.
    pub(super) fn until_drained(&self, body: ResponseBody, in_progress: InProgress) -> ResponseBody {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        let (draining, spread) = (self.draining.clone(), Arc::clone(&self.spread));
        let drained = async move {
            draining.cancelled_owned().await;
            let pause = share(number, spread.get().copied().unwrap_or_default());
            if !pause.is_zero() {
                sleep(pause).await;
            }
        };
        let drained = drained.boxed();
        Ending { body, drained, _in_progress: in_progress }.boxed_unsync()
    }
}

/// When within `spread` the stream of this number ends. Multiples of the golden ratio lie evenly, however many there are
/// and whichever of them have ended already.
fn share(number: u64, spread: Duration) -> Duration {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let nanos = spread.as_nanos().saturating_mul(u128::from(number.wrapping_mul(GOLDEN))) >> 64_u32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

struct Ending {
    body: ResponseBody,
    drained: BoxFuture<'static, ()>,
    _in_progress: InProgress,
}

impl Body for Ending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // What is already there goes out first: the last events of a watch are not cut off by the drain.
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => match self.drained.poll_unpin(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn streams_end_evenly_over_the_time_they_are_given() {
        let spread = Duration::from_secs(10);
        let mut seconds = [0; 10];
        for number in 500..1500 {
            let share = share(number, spread);
            assert!(share < spread, "{number}");
            seconds[usize::try_from(share.as_secs()).unwrap_or(usize::MAX)] += 1;
        }
        assert!(seconds.iter().all(|ended| (95..=105).contains(ended)), "{seconds:?}");
        assert_eq!(share(7, Duration::ZERO), Duration::ZERO);
    }
}
