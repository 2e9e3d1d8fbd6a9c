//! WATCH: the present state if asked for, then what happens, then an orderly end. Nothing runs on its own: the stream
//! does its work when the connection asks for more.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use store::{
    Revision,
    cache::{Filter, Object, Watcher},
};
use tokio::time::{Instant, sleep_until};

use super::{Answer, Work, list, options::ListOptions};
use crate::{
    error::{Error, Result},
    registry::Kind,
    storage::{self, Storage},
    wire::{table::Include, watch::Frames},
    world::World,
};

/// How often a bookmark is sent.
pub const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark is sent so long before the end, so that the client can come back exactly there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without `timeoutSeconds` lasts thirty minutes and up to as much again, so that not all end at once.
const LEAST_DURATION: Duration = Duration::from_secs(30 * 60);
/// Events that are ready together go out together, up to this size.
const CHUNK: usize = 64 * 1024;

/// A watch, as a stream of chunks.
pub struct Stream {
    frames: Frames,
    world: Arc<dyn World>,
    state: State,
    end: Instant,
    next_bookmark: Option<Instant>,
}

enum State {
    /// The present state is being sent.
    Initial { items: std::vec::IntoIter<Arc<Object>>, revision: u64, mark_end: bool, watcher: Watcher },
    /// What happens is sent.
    Live(Watcher),
    /// One error event, then the end.
    Failed(Error),
    /// Nothing follows.
    Over,
}

/// GET with `watch`.
pub async fn watch(work: &Work<'_>) -> Result<Answer> {
    let options = ListOptions::watch(&work.context.call)?;
    let include = Include::parse(work.context.call.query.get("includeObject"))?;
    let filter = list::filter(work)?;
    let kind = work.route.kind;
    if options.timeout == Some(0) {
        return Ok(Answer::Watch(Box::new(Stream::new(work, kind, options, include, State::Over))));
    }
    // Parameters have been checked; from here on errors are events, because clients look for them there.
    let wants_state = options.initial_events == Some(true);
    let state = match begin(work.storage, kind, &options, filter).await {
        Ok(state) => state,
        Err(error @ Error::Expired { .. }) => State::Failed(error),
        Err(error @ Error::TooLargeResourceVersion { .. }) if wants_state => State::Failed(error),
        Err(other) => return Err(other),
    };
    Ok(Answer::Watch(Box::new(Stream::new(work, kind, options, include, state))))
}

/// Where the watch begins: at a revision, at the present state, or now.
async fn begin(storage: &Storage, kind: &Kind, options: &ListOptions, filter: Filter) -> Result<State> {
    let resource = storage.resource(kind)?;
    let starts_with_state = match (options.initial_events, options.version) {
        (Some(wanted), _) => wanted,
        (None, None | Some(0)) => true,
        (None, Some(_)) => false,
    };
    match options.version {
        None => storage.fresh().await?,
        // Whoever has seen more than there is, as before a restore from an older copy, would never hear of anything again.
        Some(version) => storage.wait_for(version).await?,
    }
    if starts_with_state {
        let (listed, watcher) = resource.list_and_watch(filter).map_err(storage::unavailable)?;
        let mark_end = options.initial_events == Some(true) && options.bookmarks;
        return Ok(State::Initial { items: listed.items.into_iter(), revision: listed.revision.0, mark_end, watcher });
    }
    let from = match options.version {
        None | Some(0) => storage.cache().revision(),
        Some(version) => Revision(version),
    };
    resource.watch(from, filter).map(State::Live).map_err(storage::unavailable)
}

impl Stream {
    fn new(work: &Work<'_>, kind: &Arc<Kind>, options: ListOptions, include: Include, state: State) -> Self {
        let now = Instant::now();
        let jitter = u64::from(work.world.uuid().as_fields().0) % LEAST_DURATION.as_secs();
        let lasts = options.timeout.map_or(LEAST_DURATION + Duration::from_secs(jitter), Duration::from_secs);
        let end = now.checked_add(lasts).unwrap_or(now + LEAST_DURATION);
        let next_bookmark = options.bookmarks.then(|| now + BOOKMARK_PERIOD);
        Self {
            frames: Frames::new(Arc::clone(kind), work.form.view, include),
            world: Arc::clone(work.world),
            state,
            end,
            next_bookmark,
        }
    }

    /// The form of the frames.
    pub(crate) fn into_chunks(self) -> impl futures::Stream<Item = Bytes> + Send + 'static {
        futures::stream::unfold(self, |mut stream| async move { stream.next().await.map(|chunk| (chunk, stream)) })
    }

    /// The next chunk; `None` at the end. A frame that cannot be made ends the watch: nothing may be left out silently.
    async fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over => None,
            State::Failed(error) => Some(Frames::error(&error)),
            State::Initial { items, revision, mark_end, watcher } => self.initial(items, revision, mark_end, watcher),
            State::Live(watcher) => self.live(watcher).await,
        }
    }

    fn initial(
        &mut self,
        mut items: std::vec::IntoIter<Arc<Object>>,
        revision: u64,
        mark_end: bool,
        watcher: Watcher,
    ) -> Option<Bytes> {
        let now = self.world.now();
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK {
            let Some(object) = items.next() else {
                if mark_end {
                    chunk.extend_from_slice(&self.frames.bookmark(revision, true, now));
                }
                self.state = State::Live(watcher);
                return Some(chunk.freeze());
            };
            chunk.extend_from_slice(&self.frames.initial(&object, now).ok()?);
        }
        self.state = State::Initial { items, revision, mark_end, watcher };
        Some(chunk.freeze())
    }

    async fn live(&mut self, mut watcher: Watcher) -> Option<Bytes> {
        let bookmark_at = self.bookmark_at();
        let first = tokio::select! {
            biased;
            delivery = watcher.next() => delivery,
            () = sleep_until(bookmark_at.unwrap_or(self.end)), if bookmark_at.is_some() => {
                return self.bookmark(watcher);
            }
            () = sleep_until(self.end) => return None,
        };
        let now = self.world.now();
        let mut frame = self.frames.delivery(&first.ok()?, now).ok()?;
        // What else is ready goes along; a single frame is passed on without a copy.
        let mut chunk: Option<BytesMut> = None;
        while chunk.as_ref().map_or(frame.len(), BytesMut::len) < CHUNK {
            let Some(Ok(delivery)) = watcher.next().now_or_never() else { break };
            let chunk = chunk.get_or_insert_with(|| BytesMut::from(frame.as_ref()));
            chunk.extend_from_slice(&self.frames.delivery(&delivery, now).ok()?);
        }
        if let Some(chunk) = chunk {
            frame = chunk.freeze();
        }
        self.state = State::Live(watcher);
        Some(frame)
    }

    /// When the next bookmark is due: every minute, and shortly before the end.
    fn bookmark_at(&self) -> Option<Instant> {
        let next = self.next_bookmark?;
        let last = self.end.checked_sub(BOOKMARK_BEFORE_END)?;
        if next <= last { Some(next) } else { Some(last).filter(|last| *last > next - BOOKMARK_PERIOD) }
    }

    fn bookmark(&mut self, mut watcher: Watcher) -> Option<Bytes> {
        let due = self.bookmark_at().unwrap_or(self.end);
        let frame = self.frames.bookmark(watcher.progress().0, false, self.world.now());
        self.next_bookmark = Some(due + BOOKMARK_PERIOD);
        self.state = State::Live(watcher);
        Some(frame)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("end", &self.end).finish_non_exhaustive()
    }
}
