//! The outermost shell: a listener, TLS, HTTP/1.1 or HTTP/2, and a shutdown that lets everybody finish.
//!
//! A connection's identity is established once, by TLS. Everything a stranger can open, send slowly or leave hanging has
//! a limit here. Certificates are the [`rustls::ServerConfig`]'s business: one made by [`certs::Reloading`] follows them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::filter::metrics::Metrics;
use crate::filter::{Edge, Peer};

mod connection;
mod linger;
mod stall;

/// What to serve, and how.
pub struct Options {
    /// Where connections come from.
    pub listener: TcpListener,
    /// Certificates and ALPN.
    pub tls: Arc<ServerConfig>,
    /// What answers.
    pub edge: Arc<Edge>,
    /// The edge's metrics.
    pub metrics: Arc<Metrics>,
    /// Limits on connections.
    pub limits: Limits,
    /// How to stop.
    pub drain: Drain,
}

/// Limits on connections. The defaults suit strangers; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; one more is closed unread.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time until a connection has sent its first request, and for the head of each request on HTTP/1.1 (idle time
    /// between requests included).
    pub head: Duration,
    /// Largest head of a request, in bytes.
    pub head_bytes: u32,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// Time between two HTTP/2 pings, and for their answer.
    pub ping: Duration,
    /// How long a client may leave no room for an answer it has asked for.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // About 50 KiB each with TLS buffers: half a gigabyte at worst.
            connections: 10_000,
            handshake: Duration::from_secs(10),
            // Go's servers of Kubernetes use 32 s.
            head: Duration::from_secs(32),
            head_bytes: 64 * 1024,
            // What Kubernetes recommends for aggregated servers: the aggregator pools few connections.
            streams: 1000,
            ping: Duration::from_secs(30),
            // Twice what a dead client gets: one that answers pings may be slow for a reason.
            stall: Duration::from_secs(120),
        }
    }
}

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long to go on serving after `/readyz` began to fail, so that load balancers notice.
    pub notice: Duration,
    /// Over how long watches end after that, one by one; at most half of `finish`.
    pub spread: Duration,
    /// How long requests in progress may take after the notice.
    pub finish: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { notice: Duration::ZERO, spread: Duration::ZERO, finish: Duration::from_secs(60) }
    }
}

/// Pause after an accept that failed for want of file descriptors or memory: trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is cancelled, then stops in order: `/readyz` fails, the listener closes, connections are told
/// to go away, watches end, and what is in progress is given time to finish. Returns when all are gone or the time is
/// over.
pub async fn run(options: Options, shutdown: CancellationToken) {
    let Options { listener, tls, edge, metrics, limits, drain } = options;
    let server = Arc::new(Server {
        acceptor: TlsAcceptor::from(tls),
        edge: edge.clone(),
        metrics,
        limits,
        places: Arc::new(Semaphore::new(limits.connections)),
        goodbye: CancellationToken::new(),
        cut: CancellationToken::new(),
        connections: TaskTracker::new(),
    });
    tokio::select! {
        () = server.accept_all(&listener) => {}
        () = shutdown.cancelled() => {}
    }
    edge.lifecycle.stop();
    let notice_ends = Instant::now() + drain.notice;
    // Serving goes on, new connections included, until the notice is over.
    let _ = timeout_at(notice_ends, server.accept_all(&listener)).await;
    drop(listener);
    edge.lifecycle.drain(drain.spread.min(drain.finish / 2));
    server.goodbye.cancel();
    server.connections.close();
    if timeout(drain.finish, server.connections.wait()).await.is_err() {
        tracing::warn!(connections = server.connections.len(), "the time to drain is over: closing what is left");
        server.cut.cancel();
        server.connections.wait().await;
    }
}

struct Server {
    acceptor: TlsAcceptor,
    edge: Arc<Edge>,
    metrics: Arc<Metrics>,
    limits: Limits,
    places: Arc<Semaphore>,
    goodbye: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.take(stream, address),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::warn!(%address, limit = self.limits.connections, "too many connections: one more is closed");
            return;
        };
        let server = self.clone();
        self.connections.spawn(async move { server.serve(stream, address, place).await });
    }

    /// One connection, from its handshake to its end.
    async fn serve(self: Arc<Self>, stream: TcpStream, address: SocketAddr, _place: OwnedSemaphorePermit) {
        // Small answers should leave at once; on failure they only leave later.
        let _ = stream.set_nodelay(true);
        let shaken = timeout(self.limits.handshake, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = shaken else {
            self.metrics.handshake_failed();
            tracing::debug!(%address, "a TLS handshake failed");
            return;
        };
        let session = stream.get_ref().1;
        let is_h2 = session.alpn_protocol() == Some(certs::ALPN_H2);
        let peer = Arc::new(Peer::new(address, certs::Shown::of(session)));
        self.metrics.connection_opened();
        let conversation = connection::Connection {
            peer,
            edge: self.edge.clone(),
            limits: self.limits,
            goodbye: self.goodbye.clone(),
        };
        tokio::select! {
            ended = conversation.run(stream, is_h2) => if let Err(error) = ended {
                tracing::debug!(%address, %error, "a connection ended with an error");
            },
            () = self.cut.clone().cancelled_owned() => {}
        }
        self.metrics.connection_closed();
    }
}
