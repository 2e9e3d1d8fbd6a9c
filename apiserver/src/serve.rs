//! The outermost shell: a listener, TLS, HTTP/1.1 or HTTP/2, and a shutdown that lets everybody finish.
//!
//! A connection's identity is established once, by TLS. Everything a stranger can open, send slowly or leave hanging has
//! a limit here; when all seats are taken, strangers make room, and who has been known by a request stays. Certificates are the [`rustls::ServerConfig`]'s business: one made by [`certs::Reloading`] follows them.

use std::sync::Arc;
use std::time::Duration;

use listen::{Arrived, Door, Error};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout, timeout_at};
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
    /// Connections at once. For one more the stranger makes room that has been idle for longest; if all are known, it is closed unread.
    pub connections: usize,
    /// Of those, from one address.
    pub per_address: usize,
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
            // Whole clusters may come through one proxy or one address of a node; others still find room.
            per_address: 5_000,
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

/// Serves until `shutdown` is cancelled, then stops in order: `/readyz` fails, the listener closes, connections are told
/// to go away, watches end, and what is in progress is given time to finish. Returns when all are gone or the time is
/// over.
pub async fn run(options: Options, shutdown: CancellationToken) {
    let Options { listener, tls, edge, metrics, limits, drain } = options;
    let server = Arc::new(Server {
        door: Door::new(tls, limits.connections, limits.per_address, limits.handshake),
        edge: edge.clone(),
        metrics,
        limits,
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
    door: Door,
    edge: Arc<Edge>,
    metrics: Arc<Metrics>,
    limits: Limits,
    goodbye: CancellationToken,
    cut: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        let server = self.clone();
        let arrive = move |arrived: Result<Arrived, Error>| {
            let server = server.clone();
            async move {
                match arrived {
                    Ok(arrived) => server.serve(arrived).await,
                    Err(Error::Handshake(_) | Error::Late) => server.metrics.handshake_failed(),
                    Err(Error::MadeRoom) => {}
                }
            }
        };
        self.door.admit(listener, &self.connections, arrive).await;
    }

    /// One connection, from its handshake to its end.
    async fn serve(&self, Arrived { stream, seat, address }: Arrived) {
        let session = stream.get_ref().1;
        let is_h2 = session.alpn_protocol() == Some(certs::ALPN_H2);
        let peer = Arc::new(Peer::new(address, certs::Shown::of(session)));
        self.metrics.connection_opened();
        let conversation = connection::Connection {
            peer,
            seat: Arc::new(seat),
            edge: self.edge.clone(),
            limits: self.limits,
            goodbye: self.goodbye.clone(),
        };
        tokio::select! {
            ended = conversation.run(stream, is_h2) => if let Err(error) = ended {
                tracing::debug!(%address, %error, "a connection ended with an error");
            },
            () = self.cut.cancelled() => {}
        }
        self.metrics.connection_closed();
    }
}
