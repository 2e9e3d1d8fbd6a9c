//! Who gets in: a seat first, then the handshake, within its time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use crate::seats::{Seat, Seats};

/// Pause after an accept that failed for want of file descriptors or memory: trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come in.
pub struct Door {
    acceptor: TlsAcceptor,
    seats: Seats,
    handshake: Duration,
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Arrived {
    /// The connection.
    pub stream: TlsStream<TcpStream>,
    /// Its seat: kept until dropped, unless it is taken away ([`Seat::lost`]).
    pub seat: Seat,
    /// Where it comes from.
    pub address: SocketAddr,
}

/// Why a connection did not get in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The handshake failed.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The handshake took too long.
    #[error("the TLS handshake took too long")]
    Late,
    /// Another connection took its seat meanwhile.
    #[error("it made room for another connection")]
    MadeRoom,
}

impl Door {
    /// A door with so many seats, `per_address` of them for one address, and so much time for a handshake.
    #[must_use]
    pub fn new(tls: Arc<ServerConfig>, connections: usize, per_address: usize, handshake: Duration) -> Self {
        Self { acceptor: TlsAcceptor::from(tls), seats: Seats::new(connections, per_address), handshake }
    }

    /// Lets connections in, each as a task of its own that goes on when this is dropped. It does not end by itself.
    pub async fn admit<F>(
        &self,
        listener: &TcpListener,
        tasks: &TaskTracker,
        arrive: impl Fn(Result<Arrived, Error>) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(seat) = self.seats.take(address.ip()) else {
                // A stranger must not fill the logs.
                tracing::debug!(%address, "too many connections: one more is closed");
                continue;
            };
            let (acceptor, limit, arrive) = (self.acceptor.clone(), self.handshake, arrive.clone());
            tasks.spawn(async move {
                let shaken = tokio::select! {
                    shaken = shake(&acceptor, stream, limit) => shaken,
                    () = seat.lost() => Err(Error::MadeRoom),
                };
                if let Err(error) = &shaken {
                    tracing::debug!(%address, error = error as &dyn std::error::Error, "a connection did not get in");
                }
                arrive(shaken.map(|stream| Arrived { stream, seat, address })).await;
            });
        }
    }
}

async fn shake(acceptor: &TlsAcceptor, stream: TcpStream, limit: Duration) -> Result<TlsStream<TcpStream>, Error> {
    // Small answers must not wait for the next acknowledgement; on failure they only do.
    let _ = stream.set_nodelay(true);
    timeout(limit, acceptor.accept(stream)).await.map_err(|_| Error::Late)?.map_err(Error::Handshake)
}
