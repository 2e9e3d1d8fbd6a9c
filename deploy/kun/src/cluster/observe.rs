//! What probes and scrapers are told by the parts that serve nothing else: `/livez`, `/readyz`, `/metrics`, in plain HTTP.
//!
//! Nothing here is a secret, and nothing can be changed.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What is told.
pub(super) trait Observed: Send + Sync + 'static {
    /// Whether the part can do its work, or why not.
    fn ready(&self) -> Result<(), String>;
    /// Its metrics, as Prometheus reads them.
    fn metrics(&self) -> String;
}

/// Why nothing is told.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct Error {
    address: SocketAddr,
    source: std::io::Error,
}

/// Opens the port; answers until `stop`.
pub(super) async fn observe(
    address: SocketAddr,
    observed: Arc<impl Observed>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error { address, source })?;
    let (asked, scraped) = (Arc::clone(&observed), observed);
    let ready = move || {
        let ready = asked.ready();
        async move {
            match ready {
                Ok(()) => (StatusCode::OK, "ok".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
            }
        }
    };
    let metrics = move || {
        let text = scraped.metrics();
        async move { text }
    };
    let routes =
        Router::new().route("/livez", get(async || "ok")).route("/readyz", get(ready)).route("/metrics", get(metrics));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await {
            tracing::error!(%error, "probes and scrapers are not answered any more");
        }
    });
    Ok(())
}
