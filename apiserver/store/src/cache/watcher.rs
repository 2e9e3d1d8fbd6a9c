//! One watch: a bounded mailbox that publishing fills and the request empties.
//!
//! Publishing never waits. A mailbox that is full is closed; what is in it is still delivered, then the watch ends and
//! the client comes back with the last revision it saw.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use tokio::sync::watch;

use super::notice::{Delivery, Filter, Notice};
use crate::Revision;
use crate::lock::lock;

/// How many deliveries may wait for one watcher: a fifth of a second at 5,000 writes per second.
pub const MAILBOX_EVENTS: usize = 1000;

/// How many bytes of objects may wait for one watcher.
pub const MAILBOX_BYTES: usize = 16 << 20;

/// What an empty mailbox may keep allocated: bursts must not stay in the memory of thousands of quiet watches.
const IDLE_CAPACITY: usize = 32;

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The watcher did not keep up; [`MAILBOX_EVENTS`] or [`MAILBOX_BYTES`] were waiting for it.
    #[error("watching: the watcher was too slow")]
    Slow,
    /// The cache had to be loaded again; events may be missing.
    #[error("watching: the cache was loaded again")]
    Reloaded,
    /// The store was closed.
    #[error("watching: the store is closed")]
    Closed,
}

/// Where deliveries wait.
#[derive(Debug)]
pub(super) struct Mailbox {
    filter: Filter,
    /// Only what happens after this revision is delivered.
    after: Revision,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: VecDeque<Delivery>,
    bytes: usize,
    end: Option<End>,
    waker: Option<Waker>,
}

impl Mailbox {
    pub(super) fn new(filter: Filter, after: Revision) -> Mailbox {
        Mailbox { filter, after, inbox: Mutex::default() }
    }

    /// Delivers `notice` if it is meant for this watcher. False when the watch has ended because it was full.
    pub(super) fn deliver(&self, notice: &Arc<Notice>) -> bool {
        let Some(delivery) = self.view(notice) else { return true };
        let mut inbox = lock(&self.inbox);
        let bytes = inbox.bytes + delivery.notice().size();
        if inbox.waiting.len() >= MAILBOX_EVENTS || bytes > MAILBOX_BYTES {
            drop(inbox);
            self.end(End::Slow);
            return false;
        }
        inbox.bytes = bytes;
        inbox.waiting.push_back(delivery);
        wake(inbox.waker.take());
        true
    }

    /// How `notice` looks to this watcher, if it is meant for it at all.
    pub(super) fn view(&self, notice: &Arc<Notice>) -> Option<Delivery> {
        if notice.revision() <= self.after { None } else { self.filter.view(notice) }
    }

    /// Ends the watch after what is already waiting.
    pub(super) fn end(&self, end: End) {
        let mut inbox = lock(&self.inbox);
        inbox.end.get_or_insert(end);
        wake(inbox.waker.take());
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A watch in progress: a stream of deliveries in order of revision, which ends with an error that says why.
pub struct Watcher {
    /// What had happened before the watch began; not counted against the mailbox.
    backlog: VecDeque<Delivery>,
    mailbox: Arc<Mailbox>,
    /// The revision up to which the cache has delivered everything to mailboxes.
    applied: watch::Receiver<Revision>,
    /// Everything up to here was handed to the caller.
    reached: Revision,
    ended: bool,
    /// Takes the mailbox off the resource's list.
    _leave: Leave,
}

impl Watcher {
    pub(super) fn new(
        mailbox: Arc<Mailbox>,
        backlog: VecDeque<Delivery>,
        applied: watch::Receiver<Revision>,
        leave: Leave,
    ) -> Watcher {
        let reached = mailbox.after;
        Watcher { backlog, mailbox, applied, reached, ended: false, _leave: leave }
    }

    /// The next delivery. Cancelling loses nothing.
    ///
    /// # Errors
    /// Why the watch ended. Nothing follows.
    pub async fn next(&mut self) -> Result<Delivery, End> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// A revision a bookmark may carry: every event up to it that this watch is about was handed out already.
    #[must_use]
    pub fn progress(&mut self) -> Revision {
        // Read before the mailbox is looked at: what was applied by now is in the mailbox or was handed out.
        let applied = *self.applied.borrow();
        if self.backlog.is_empty() && lock(&self.mailbox.inbox).waiting.is_empty() {
            self.reached = self.reached.max(applied);
        }
        self.reached
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Delivery, End>> {
        if let Some(delivery) = self.backlog.pop_front() {
            self.reached = delivery.revision();
            return Poll::Ready(Ok(delivery));
        }
        let mut inbox = lock(&self.mailbox.inbox);
        if let Some(delivery) = inbox.waiting.pop_front() {
            inbox.bytes -= delivery.notice().size();
            if inbox.waiting.is_empty() && inbox.waiting.capacity() > IDLE_CAPACITY {
                inbox.waiting = VecDeque::new();
            }
            self.reached = delivery.revision();
            return Poll::Ready(Ok(delivery));
        }
        match inbox.end {
            Some(end) => Poll::Ready(Err(end)),
            None => {
                inbox.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for Watcher {
    type Item = Result<Delivery, End>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll(context);
        self.ended = matches!(polled, Poll::Ready(Err(_)));
        polled.map(Some)
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Watcher { backlog, mailbox, applied: _, reached, ended, _leave } = self;
        f.debug_struct("Watcher")
            .field("backlog", &backlog.len())
            .field("filter", &mailbox.filter)
            .field("reached", reached)
            .field("ended", ended)
            .finish_non_exhaustive()
    }
}

/// Runs its function when dropped.
pub(super) struct Leave(pub(super) Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(leave) = self.0.take() {
            leave();
        }
    }
}
