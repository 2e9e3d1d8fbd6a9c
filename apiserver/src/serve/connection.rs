//! One connection that speaks HTTP: its limits, its first request, its goodbye.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use listen::Seat;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::linger::Linger;
use super::stall::Owed;
use crate::filter::{Edge, Peer};
use crate::wire::body::ResponseBody;

/// What an HTTP/2 client may send on one stream, and on one connection, before we have taken it: enough for one object
/// in one round trip, little enough for a thousand streams.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
/// What is buffered of answers per HTTP/2 stream before the handler must wait.
const SEND_BUFFER: usize = 128 * 1024;
/// Streams a client may have opened and reset before we accepted them (rapid reset); hyper's default, stated.
const RESETS_MAX: usize = 20;
/// Most header fields of one request; kubectl sends about eight.
const HEADERS_MAX: usize = 100;
/// How often within its time a connection is looked at for answers that are not taken.
const STALL_LOOKS: u32 = 4;
/// Smallest read buffer hyper takes.
const BUFFER_MIN: usize = 8 * 1024;

/// What one connection needs to know.
pub(super) struct Connection {
    pub(super) peer: Arc<Peer>,
    pub(super) seat: Arc<Seat>,
    pub(super) edge: Arc<Edge>,
    pub(super) limits: Limits,
    pub(super) goodbye: CancellationToken,
}

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It never spoke.
    #[error("no request came in time")]
    Silent,
    /// All seats are taken, nobody had been idle for longer, and it is not known who it is.
    #[error("a stranger makes room for another connection")]
    MadeRoom,
    /// It asked, and then let nothing be sent.
    #[error("the client takes none of an answer it has asked for")]
    Stalled,
    /// HTTP itself failed.
    #[error("speaking HTTP")]
    Http(#[from] hyper::Error),
}

impl Connection {
    /// Serves requests until the client leaves, breaks a limit, or the server says goodbye and the last one is done.
    pub(super) async fn run(self, stream: TlsStream<TcpStream>, is_h2: bool) -> Result<(), Error> {
        let (seat, owed) = (self.seat, Owed::default());
        let service = Answer { edge: self.edge, peer: self.peer, seat: seat.clone(), owed: owed.clone() };
        let mut conversation = if is_h2 {
            let io = TokioIo::new(Linger::not(stream));
            Conversation::Two(Box::pin(http2_builder(&self.limits).serve_connection(io, service)))
        } else {
            let io = TokioIo::new(Linger::new(stream));
            Conversation::One(Box::pin(http1_builder(&self.limits).serve_connection(io, service)))
        };
        // Without a time for the first request, a connection that never speaks would stay for ever. Afterwards the
        // limits of HTTP itself apply.
        let mut first_due = pin!(sleep(self.limits.head));
        let mut goodbye = pin!(self.goodbye.cancelled_owned());
        let mut looks = interval(self.limits.stall / STALL_LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut was_due, mut said_goodbye) = (false, false);
        loop {
            tokio::select! {
                ended = &mut conversation => return Ok(ended?),
                () = &mut first_due, if !was_due => {
                    if !seat.has_spoken() {
                        return Err(Error::Silent);
                    }
                    was_due = true;
                }
                () = seat.lost() => return Err(Error::MadeRoom),
                _ = looks.tick() => {
                    if owed.oldest().is_some_and(|since| since.elapsed() > self.limits.stall) {
                        return Err(Error::Stalled);
                    }
                }
                () = &mut goodbye, if !said_goodbye => {
                    conversation.say_goodbye();
                    said_goodbye = true;
                }
            }
        }
    }
}

type Io = TokioIo<Linger<TlsStream<TcpStream>>>;

/// A connection in either version of HTTP.
enum Conversation {
    One(Pin<Box<http1::Connection<Io, Answer>>>),
    Two(Pin<Box<http2::Connection<Io, Answer, TokioExecutor>>>),
}

impl Conversation {
    /// No new requests (HTTP/2: GOAWAY); those in progress are finished.
    fn say_goodbye(&mut self) {
        match self {
            Self::One(connection) => connection.as_mut().graceful_shutdown(),
            Self::Two(connection) => connection.as_mut().graceful_shutdown(),
        }
    }
}

impl Future for Conversation {
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::One(connection) => connection.as_mut().poll(cx),
            Self::Two(connection) => connection.as_mut().poll(cx),
        }
    }
}

/// Hands a connection's requests to the edge.
struct Answer {
    edge: Arc<Edge>,
    peer: Arc<Peer>,
    seat: Arc<Seat>,
    owed: Owed,
}

impl Service<Request<Incoming>> for Answer {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = self.seat.busy();
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let answered = self.edge.clone().answer(self.peer.clone(), request);
        let (peer, seat, owed) = (self.peer.clone(), self.seat.clone(), self.owed.clone());
        Box::pin(async move {
            let response = answered.await;
            if peer.is_known() {
                seat.keep();
            }
            drop(busy);
            Ok(response.map(|body| owed.watch(body)))
        })
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let head_bytes = usize::try_from(limits.head_bytes).unwrap_or(BUFFER_MIN).max(BUFFER_MIN);
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(HEADERS_MAX)
        .max_header_size(head_bytes)
        .max_buf_size(head_bytes)
        .keep_alive(true);
    builder
}

fn http2_builder(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.head_bytes)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    builder
}
