//! `kun controller`: the controller of a cluster. Several may run; one of them leads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use controller::cache::Caches;
use controller::metrics::Metrics;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::observe::{self, Observed, observe};
use super::{client, ring};
use crate::standalone::Signals;

/// How long the authority of the agents may be awaited before a line says so again.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// What to run, already checked.
#[derive(Debug)]
pub struct Options {
    /// How to reach the kube-apiserver; absent: as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease and of the authorities.
    pub namespace: String,
    /// Our name in the lease.
    pub identity: String,
    /// Image that holds `kun`, for the init container of pods.
    pub kun_image: String,
    /// Secret that holds the authority of the agents.
    pub agents_authority: String,
    /// Where probes and scrapers are answered.
    pub observe: SocketAddr,
}

/// Why the controller could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Signals.
    #[error("listening to signals")]
    Signals(#[source] std::io::Error),
    /// The client of the kube-apiserver.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Probes.
    #[error(transparent)]
    Observe(#[from] observe::Error),
    /// The controller.
    #[error("reconciling")]
    Run(#[from] controller::run::Error),
}

struct Told {
    metrics: Metrics,
    caches: Arc<Caches>,
}

impl Observed for Told {
    /// Who does not lead is ready, too: ready to take over. Who does not know what there is is not, and says why he does not.
    fn ready(&self) -> Result<(), String> {
        let missing = self.caches.missing();
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    }

    fn metrics(&self) -> String {
        self.metrics.encode()
    }
}

/// Reconciles until a signal.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let client = client::client(options.kubeconfig.as_deref()).await?;
    let stop = CancellationToken::new();
    let (metrics, caches) = (Metrics::default(), Arc::new(Caches::default()));
    let told = Told { metrics: metrics.clone(), caches: Arc::clone(&caches) };
    observe(options.observe, Arc::new(told), stop.clone()).await?;
    let agents = tokio::select! {
        agents = agents(&client, &options) => agents,
        () = signals.first() => return Ok(ExitCode::SUCCESS),
    };
    let Options { namespace, identity, kun_image, .. } = options;
    let mut reconciling = controller::run::Options::new(client, agents, namespace, identity, kun_image);
    reconciling.metrics = metrics;
    reconciling.caches = caches;
    let ended = controller::run::run(reconciling, async move { signals.first().await }).await;
    stop.cancel();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// The authority of the agents, once there is one: whoever makes it may come up later than we.
async fn agents(client: &Client, options: &Options) -> watch::Receiver<Arc<certs::Ring>> {
    let ring = ring::follow(client.clone(), options.namespace.clone(), options.agents_authority.clone());
    let mut ring = std::pin::pin!(ring);
    loop {
        if let Ok(agents) = tokio::time::timeout(SAY_AGAIN, &mut ring).await {
            return agents;
        }
        tracing::info!(
            namespace = options.namespace,
            secret = options.agents_authority,
            "waiting for the Secret that holds the authority of the agents"
        );
    }
}
