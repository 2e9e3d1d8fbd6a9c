//! The audit log of a server: opened before the first request, closed after the last.

use std::path::PathBuf;
use std::sync::Arc;

use apiserver::filter::Edge;
use apiserver::filter::audit::Trail;
use apiserver::filter::audit::log::Log;
use apiserver::filter::metrics::Metrics;

use crate::cli::audit::Audit;

/// Why nothing can be recorded. A server that was asked to record does not serve without.
#[derive(Debug, thiserror::Error)]
#[error("opening the audit log {}", .path.display())]
pub struct Error {
    path: PathBuf,
    source: std::io::Error,
}

/// Records what was asked for.
pub(crate) fn start(audit: Option<Audit>, edge: &Edge, metrics: &Arc<Metrics>) -> Result<Option<Arc<Trail>>, Error> {
    let Some(Audit { policy, target }) = audit else { return Ok(None) };
    let path = target.path.clone().unwrap_or_else(|| PathBuf::from("-"));
    let log = Log::open(target, Arc::clone(metrics)).map_err(|source| Error { path, source })?;
    let trail = Arc::new(Trail::new(policy, log));
    edge.record(Arc::clone(&trail));
    Ok(Some(trail))
}

/// Waits until everything is written.
pub(crate) async fn close(trail: Option<Arc<Trail>>) {
    let Some(trail) = trail else { return };
    if let Err(error) = tokio::task::spawn_blocking(move || trail.close()).await {
        tracing::error!(%error, "closing the audit log failed");
    }
}
