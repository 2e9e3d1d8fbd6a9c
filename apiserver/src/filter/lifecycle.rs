//! Where the server is in its life: starting, serving, stopping, draining. Each state is entered once and never left
//! backwards.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use super::metrics::InProgress;
use crate::wire::body::ResponseBody;

/// The states, as switches.
#[derive(Debug, Default)]
pub struct Lifecycle {
    was_ready: AtomicBool,
    stopping: CancellationToken,
    draining: CancellationToken,
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

    /// Draining: watches end.
    pub fn drain(&self) {
        self.stop();
        self.draining.cancel();
    }

    /// A body that ends, as if its source had ended, when the server drains. `in_progress` lives as long as it.
    pub(super) fn until_drained(&self, body: ResponseBody, in_progress: InProgress) -> ResponseBody {
        let drained = self.draining.clone().cancelled_owned().boxed();
        Ending { body, drained, _in_progress: in_progress }.boxed_unsync()
    }
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
