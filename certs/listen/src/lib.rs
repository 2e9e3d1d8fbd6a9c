//! TLS in a network of strangers: who gets in ([`Door`]), and HTTPS for a few known callers, what the agent and the webhook listen with
//! ([`serve`]). The API server speaks HTTP with limits of its own behind the same door.
//!
//! Whoever reaches the port may connect, and say nothing. So every step of a connection has its time (handshake, first request, the head
//! of each further one, pings on HTTP/2), one address has only its share of the seats, and when those are taken, the one that has been idle
//! for longest makes room. Only who is expected ([`Options::keeps`]), by a certificate that was verified, is never sent away for others.

mod door;
mod seats;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use door::{Arrived, Door, Error};
pub use seats::{Busy, Seat};

/// Most header fields of one request.
const HEADERS_MAX: usize = 100;
/// Largest head of a request.
const HEAD_BYTES: u32 = 32 * 1024;
/// The same on HTTP/1.1, whose buffer holds it.
const HEAD_BUFFER: usize = 32 * 1024;

/// Limits on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Of those, from one address.
    pub per_address: usize,
    /// Time for the TLS handshake, then until the first request, then for the head of each further one on HTTP/1.1 (idle time between
    /// requests included).
    pub head: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// Time between two HTTP/2 pings, and for their answer.
    pub ping: Duration,
}

/// Who has connected.
#[derive(Clone, Debug)]
pub struct Caller {
    /// From where.
    pub address: SocketAddr,
    /// By a certificate that TLS has verified; `None`: anonymous.
    pub identity: Option<certs::Identity>,
}

/// Tells whether somebody is expected.
pub type Keeps = Box<dyn Fn(&certs::Identity) -> bool + Send + Sync>;

/// What to listen on, and how to stop.
pub struct Options {
    /// Where connections come from.
    pub listener: TcpListener,
    /// Certificates and ALPN.
    pub tls: Arc<ServerConfig>,
    /// Limits on connections.
    pub limits: Limits,
    /// Who is expected, and keeps a seat: an authority may have given certificates to others as well.
    pub keeps: Keeps,
    /// Nobody new is let in from then on, and running requests are finished.
    pub shutdown: CancellationToken,
    /// How long those may take.
    pub drain: Duration,
}

/// Serves each connection with what `service` makes for its caller; returns once it was told to stop and all have ended, or their time is
/// over.
pub async fn serve<S, B>(options: Options, service: impl Fn(Caller) -> S + Send + Sync + 'static)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Options { listener, tls, limits, keeps, shutdown, drain } = options;
    let door = Door::new(tls, limits.connections, limits.per_address, limits.head);
    let connections = TaskTracker::new();
    let (each, goodbye) = (Arc::new((service, keeps)), shutdown.clone());
    let arrive = move |arrived: Result<Arrived, Error>| {
        let (each, goodbye) = (Arc::clone(&each), goodbye.clone());
        async move {
            let (Ok(Arrived { stream, seat, address }), (service, keeps)) = (arrived, each.as_ref()) else { return };
            let caller = Caller { address, identity: certs::peer_identity(stream.get_ref().1) };
            if caller.identity.as_ref().is_some_and(keeps) {
                seat.keep();
            }
            let answering = service(caller.clone());
            Conversation { stream, seat, caller, limits, goodbye }.run(answering).await;
        }
    };
    tokio::select! {
        () = door.admit(&listener, &connections, arrive) => {}
        () = shutdown.cancelled() => {}
    }
    // The socket is closed, not just ignored.
    drop(listener);
    connections.close();
    if timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!(seconds = drain.as_secs(), "connections were still open after draining");
    }
}

/// One connection after its handshake.
struct Conversation {
    stream: TlsStream<TcpStream>,
    seat: Seat,
    caller: Caller,
    limits: Limits,
    goodbye: CancellationToken,
}

impl Conversation {
    /// Serves requests until the client leaves, breaks a limit, has to make room, or the last one is done after a goodbye.
    async fn run<S, B>(self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Self { stream, seat, caller, limits, goodbye } = self;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(certs::ALPN_H2);
        let builder = builder(&limits, is_h2);
        let seat = Arc::new(seat);
        let asked = Arc::clone(&seat);
        let counted = hyper::service::service_fn(move |request| {
            let busy = asked.busy();
            let answered = service.call(request);
            async move {
                let response = answered.await;
                drop(busy);
                response
            }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), counted));
        // Until it speaks for the first time nothing else bounds how long it may stay.
        let mut first_due = pin!(sleep(limits.head));
        let (mut was_due, mut said_goodbye) = (false, false);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(address = %caller.address, error, "a connection ended early");
                    }
                    return;
                }
                () = first_due.as_mut(), if !was_due => {
                    if !seat.has_spoken() {
                        tracing::debug!(address = %caller.address, "no request came in time");
                        return;
                    }
                    was_due = true;
                }
                () = seat.lost() => {
                    tracing::debug!(address = %caller.address, "an idle connection makes room");
                    return;
                }
                () = goodbye.cancelled(), if !said_goodbye => {
                    connection.as_mut().graceful_shutdown();
                    said_goodbye = true;
                }
            }
        }
    }
}

/// The version of HTTP is what the handshake has agreed on: to wait for the first bytes to tell it would have no limit.
fn builder(limits: &Limits, is_h2: bool) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if is_h2 { builder.http2_only() } else { builder.http1_only() };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEAD_BYTES)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    builder
}
