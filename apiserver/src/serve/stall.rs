//! Answers that nobody takes. A client may ask and then let nothing be sent: by a window of zero, or by not reading. What
//! it asked for would be kept for ever, and pings alone do not tell, since it may answer those.
//!
//! A body is *owed* from the moment HTTP took a piece of it until HTTP comes for the next: that is as long as the client
//! leaves no room. A watch on which nothing happens is not owed; HTTP has come and waits for us.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::wire::body::ResponseBody;

/// Largest piece of an answer given to HTTP at once. HTTP/2 takes a whole piece as soon as the client has room for one
/// byte, so this is what a stream can make us keep besides the send buffer.
const PIECE: usize = 64 * 1024;

/// The answers one connection owes its client.
#[derive(Clone, Default)]
pub(super) struct Owed(Arc<Mutex<Ledger>>);

#[derive(Default)]
struct Ledger {
    next: u64,
    /// By answer: since when the client has left no room.
    since: BTreeMap<u64, Instant>,
}

impl Owed {
    /// `body`, with an eye on whether it is taken.
    pub(super) fn watch(&self, body: ResponseBody) -> ResponseBody {
        let mut ledger = self.ledger();
        let id = ledger.next;
        ledger.next = id.wrapping_add(1);
        ledger.since.insert(id, Instant::now());
        drop(ledger);
        Watched { body, rest: Bytes::new(), owed: self.clone(), id }.boxed_unsync()
    }

    /// Since when the client has taken nothing of the answer it neglects most.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.ledger().since.values().min().copied()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Every change is one step, so a panic cannot have left half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watched {
    body: ResponseBody,
    /// What is left of a piece that was too large.
    rest: Bytes,
    owed: Owed,
    id: u64,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx).map_ok(Frame::into_data) {
                Poll::Ready(Some(Ok(Ok(data)))) => this.rest = data,
                Poll::Ready(Some(Ok(Err(other)))) => {
                    this.owed.ledger().since.insert(this.id, Instant::now());
                    return Poll::Ready(Some(Ok(other)));
                }
                Poll::Ready(Some(Err(never))) => match never {},
                Poll::Ready(None) => {
                    this.owed.ledger().since.remove(&this.id);
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    this.owed.ledger().since.remove(&this.id);
                    return Poll::Pending;
                }
            }
        }
        this.owed.ledger().since.insert(this.id, Instant::now());
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(of_body.lower().saturating_add(rest));
        hint
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.owed.ledger().since.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

    use futures::FutureExt;

    use super::*;
    use crate::wire::body::{full, streamed};

    #[tokio::test]
    async fn an_answer_is_owed_until_it_is_asked_for_more_and_never_while_it_has_nothing() {
        let owed = Owed::default();
        let pieces =
            futures::StreamExt::chain(futures::stream::iter([Bytes::from_static(b"one")]), futures::stream::pending());
        let mut body = owed.watch(streamed(pieces));
        assert!(owed.oldest().is_some(), "nobody has come for it");
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first == "one" && owed.oldest().is_some(), "nobody has come for more");
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(owed.oldest(), None, "there is no more");
        drop(body);
        let other = owed.watch(full("x"));
        assert!(owed.oldest().is_some());
        drop(other);
        assert_eq!(owed.oldest(), None, "it was given up");
    }

    #[tokio::test]
    async fn a_large_answer_is_given_in_pieces_and_keeps_its_length_and_content() {
        let bytes: Bytes = (0..3 * PIECE + 5).map(|n| u8::try_from(n % 251).unwrap()).collect::<Vec<_>>().into();
        let mut body = Owed::default().watch(full(bytes.clone()));
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
            let left = bytes.len() - pieces.iter().map(Bytes::len).sum::<usize>();
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left as u64), left == 0));
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, PIECE, 5]);
        assert_eq!(pieces.concat(), bytes);
    }
}
