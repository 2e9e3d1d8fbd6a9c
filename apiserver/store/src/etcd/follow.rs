//! A feed over etcd's watch: opens the stream, keeps its clock moving, and opens it again where it broke.
//!
//! etcd tells a watch of what happens to its keys, not that nothing did. Its revision moves with everybody's writes, so
//! whoever waits for a revision says so (see [`Signals::expect`]) and the feed asks etcd how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::Client;
use super::message::{WatchAction, WatchCreateRequest, WatchProgressRequest, WatchRequest};
use super::reader::{Reader, Told};
use super::request::wire;
use super::wire::{Failure, WatchStream};
use crate::lock::lock;
use crate::{Batch, Error, Feed, Range, Revision};

/// How often etcd is asked again how far it is, while somebody waits. It does not answer while the watch is behind.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// How long a wish to reach a revision lives: as long as who waits for it. A revision that never comes is not asked for
/// for ever.
const WISH_LIMIT: Duration = Duration::from_secs(3);

/// The pause before a broken stream is opened again, at first and at most.
const RESUME_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long a closed store's feeds go on to deliver what was acknowledged.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// What the store tells its feeds.
#[derive(Debug)]
pub(super) struct Signals {
    closed: watch::Sender<bool>,
    /// The newest revision a write of this store received.
    acknowledged: AtomicU64,
    /// Why a feed is cut off; none while it is not.
    cut_off: Mutex<Option<String>>,
    wish: watch::Sender<Wish>,
}

/// Somebody waits until the feeds reach a revision.
#[derive(Debug, Clone, Copy)]
struct Wish {
    revision: Revision,
    until: Instant,
}

impl Default for Signals {
    fn default() -> Self {
        let wish = Wish { revision: Revision::default(), until: Instant::now() };
        Signals {
            closed: watch::Sender::new(false),
            acknowledged: AtomicU64::new(0),
            cut_off: Mutex::new(None),
            wish: watch::Sender::new(wish),
        }
    }
}

impl Signals {
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) fn acknowledge(&self, revision: Revision) {
        self.acknowledged.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Whether feeds hear from etcd. The keep-alive of connections sees to it that they notice when they do not.
    pub(super) fn health(&self) -> Result<(), String> {
        match &*lock(&self.cut_off) {
            None => Ok(()),
            Some(reason) => Err(format!("no word from etcd: {reason}")),
        }
    }

    /// Somebody waits until feeds reach `revision`.
    pub(super) fn expect(&self, revision: Revision) {
        let now = Instant::now();
        self.wish.send_modify(|wish| {
            let alive = wish.until > now;
            let revision = if alive { wish.revision.max(revision) } else { revision };
            *wish = Wish { revision, until: now + WISH_LIMIT };
        });
    }
}

/// One feed.
struct Follower {
    client: Client,
    signals: Arc<Signals>,
    reader: Reader,
    stream: Option<WatchStream>,
    pause: Duration,
    closed: watch::Receiver<bool>,
    wish: watch::Receiver<Wish>,
    /// When etcd may be asked for progress again.
    ask_after: Instant,
    /// Set when the store was closed.
    drain_until: Option<Instant>,
}

/// What a follower wakes up for.
enum Woken {
    Answer(Result<Option<super::message::WatchResponse>, Failure>),
    /// Somebody waits for a revision that was not reached yet.
    Ask,
    Closed,
    DrainedTooLong,
}

/// A feed of everything after `from`.
pub(super) async fn feed(client: Client, signals: Arc<Signals>, from: Revision) -> Result<Feed, Error> {
    let stream = client.open(from).await?;
    // Whatever cut an earlier feed off is over.
    *lock(&signals.cut_off) = None;
    let (closed, wish) = (signals.closed.subscribe(), signals.wish.subscribe());
    let reader = Reader::new(client.layout.clone(), from);
    let follower = Follower {
        client,
        signals,
        reader,
        stream: Some(stream),
        pause: RESUME_PAUSE.0,
        closed,
        wish,
        ask_after: Instant::now(),
        drain_until: None,
    };
    Ok(Feed::new(stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next().await {
            Ok(batch) => Some((Ok(batch), Some(follower))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

impl Client {
    /// Opens a watch of everything after `from`, once it is sure that etcd still knows all of it.
    async fn open(&self, from: Revision) -> Result<WatchStream, Error> {
        self.check_readable(from).await?;
        let (key, range_end) = self.layout.bounds(&Range::All);
        let start_revision = wire(from.next());
        let create =
            WatchCreateRequest { key, range_end, start_revision, progress_notify: true, prev_kv: true, fragment: true };
        let request = WatchRequest { action: Some(WatchAction::Create(create)) };
        self.wire.watch(request).await.map_err(|failure| super::fault::of_read("opening a watch", failure))
    }
}

impl Follower {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            if self.is_drained() {
                return Err(Error::Closed);
            }
            if self.stream.is_none() {
                self.resume().await?;
                continue;
            }
            match self.wake().await {
                Woken::Answer(Ok(Some(answer))) => match self.reader.take(answer) {
                    Told::Nothing => {}
                    Told::Batch(batch) => {
                        self.pause = RESUME_PAUSE.0;
                        return Ok(batch);
                    }
                    Told::Broken(reason) => self.broke(&reason),
                    Told::Lost(error) => return Err(error),
                },
                Woken::Answer(Ok(None)) => self.broke("the stream ended"),
                Woken::Answer(Err(failure)) => self.broke(&failure.message),
                Woken::Ask => self.ask(),
                Woken::Closed => self.drain_until = Some(Instant::now() + DRAIN_LIMIT),
                Woken::DrainedTooLong => return Err(Error::Closed),
            }
        }
    }

    async fn wake(&mut self) -> Woken {
        let Some(stream) = self.stream.as_mut() else { return Woken::Answer(Ok(None)) };
        let cursor = self.reader.cursor();
        let drain_until = self.drain_until;
        let drained = async move {
            match drain_until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = stream.answers.message() => Woken::Answer(answer.map_err(|status| Failure::of(&status))),
            () = wished(&mut self.wish, cursor, self.ask_after) => Woken::Ask,
            _ = self.closed.wait_for(|closed| *closed), if drain_until.is_none() => Woken::Closed,
            () = drained => Woken::DrainedTooLong,
        }
    }

    /// Asks etcd how far it is.
    fn ask(&mut self) {
        self.ask_after = Instant::now() + PROGRESS_EVERY;
        let request = WatchRequest { action: Some(WatchAction::Progress(WatchProgressRequest {})) };
        if let Some(stream) = &self.stream {
            // A full channel means that a question waits to be sent already.
            let _ = stream.requests.try_send(request);
        }
    }

    fn broke(&mut self, reason: &str) {
        tracing::warn!(reason, cursor = %self.reader.cursor(), "a watch of etcd broke and is opened again");
        self.stream = None;
        *lock(&self.signals.cut_off) = Some(reason.to_owned());
    }

    /// Opens the stream again, where it broke. Fails if what happened meanwhile is not to be had.
    async fn resume(&mut self) -> Result<(), Error> {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RESUME_PAUSE.1);
        self.reader.restart();
        match self.client.open(self.reader.cursor()).await {
            Ok(stream) => {
                self.stream = Some(stream);
                *lock(&self.signals.cut_off) = None;
            }
            Err(error @ (Error::Expired { .. } | Error::Future { .. } | Error::Closed)) => return Err(error),
            Err(error) => tracing::warn!(%error, "opening a watch of etcd again failed; trying once more"),
        }
        if self.signals.is_closed() && self.drain_until.is_none() {
            self.drain_until = Some(Instant::now() + DRAIN_LIMIT);
        }
        Ok(())
    }

    /// Whether the store was closed and everything it acknowledged, or as much as can be had, was told.
    fn is_drained(&self) -> bool {
        let Some(until) = self.drain_until else { return false };
        self.reader.cursor().0 >= self.signals.acknowledged.load(Ordering::Acquire) || Instant::now() >= until
    }
}

/// Returns when somebody waits for a revision after `cursor` and etcd may be asked again.
async fn wished(wish: &mut watch::Receiver<Wish>, cursor: Revision, ask_after: Instant) {
    loop {
        let Wish { revision, until } = *wish.borrow_and_update();
        let due = ask_after.max(Instant::now());
        if revision > cursor && due < until {
            return tokio::time::sleep_until(due).await;
        }
        if wish.changed().await.is_err() {
            // The store is gone; nobody waits any more.
            return std::future::pending().await;
        }
    }
}
