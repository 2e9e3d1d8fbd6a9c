//! `kun standalone`: API server, webhook, controller and node in one process, on one data directory.
//!
//! This file tells the order of start and stop. Each part is an ordinary client of the API with its own certificate and
//! rights; none of them can tell standalone from Kubernetes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::audit::Audit;
use crate::cli::store::Kept;
use crate::cli::{Role, say};
use crate::node::{self, address::Cidr, image::Local};

mod api;
mod bootstrap;
pub mod client;
pub(crate) mod hatch;
mod holder;
mod hooks;
pub(crate) mod keep;
mod kubeconfig;
pub(crate) mod lock;
mod pki;

use pki::Pki;

/// Namespace of our own objects.
const NAMESPACE: &str = "kun-system";
/// Image named in the pods' init container, which the standalone node skips.
const KUN_IMAGE: &str = concat!("kun.io/kun:", env!("CARGO_PKG_VERSION"));
/// Exit code after a second signal, as shells have it for SIGINT.
const INTERRUPTED: u8 = 130;
/// Environment variable for tests: the controller ends the process after so many of its API writes.
const FAILPOINT: &str = "KUN_FAILPOINT";
/// How long the API server may be awaited by parts that run in another process.
const API_PATIENCE: Duration = Duration::from_secs(60);

/// What to run, already checked.
#[derive(Debug)]
pub struct Options {
    /// The data directory, absolute.
    pub data: PathBuf,
    /// Where objects are kept.
    pub store: Kept,
    /// What is recorded of requests; absent: a line for each change.
    pub audit: Option<Audit>,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Network of pod addresses.
    pub pod_cidr: Cidr,
    /// Each redis-server; one at least if the node runs.
    pub redis: Vec<Local>,
    /// Which parts.
    pub roles: BTreeSet<Role>,
    /// Our own executable: what pods run.
    pub own_program: PathBuf,
}

/// Why standalone could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Keys and certificates.
    #[error("preparing certificates")]
    Pki(#[from] pki::Error),
    /// The API server.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// A client of the API.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The webhook.
    #[error(transparent)]
    Hooks(#[from] hooks::Error),
    /// The first objects.
    #[error("creating the objects every cluster has")]
    Bootstrap(#[from] bootstrap::Error),
    /// The kubeconfig.
    #[error("writing the kubeconfig")]
    Kubeconfig(#[from] kubeconfig::Error),
    /// The node.
    #[error("running the node")]
    Node(#[from] node::Error),
    /// The file with the controller's name.
    #[error("naming the controller")]
    Holder(#[source] std::io::Error),
    /// Signals.
    #[error("listening to signals")]
    Signals(#[source] std::io::Error),
    /// A part ended by itself.
    #[error("{0} ended by itself")]
    Ended(&'static str),
}

/// A part that runs, and how to end it.
pub(crate) struct Running {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// What is done after the task has ended.
    last: Option<BoxFuture<'static, ()>>,
}

#[cfg(test)]
impl Running {
    /// Stops it and waits.
    pub(crate) fn end(self, runtime: &tokio::runtime::Runtime) {
        self.stop.cancel();
        runtime.block_on(self.task).unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
}

/// Runs until a signal.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut signals = Signals::listen().map_err(Error::Signals)?;
    let _locks = lock::take(&options.data, &options.roles)?;
    let pki = Pki::open(&options.data.join("pki"), options.listen)?;
    let mut parts = Vec::new();
    tokio::select! {
        started = start(&options, &pki, &mut parts) => started?,
        () = signals.first() => {
            tracing::info!("stopping before everything had started");
            stop(parts).await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    say(&format!("ready: export KUBECONFIG={}", kubeconfig::path(&options.data).display()));
    let ended = tokio::select! {
        () = signals.first() => None,
        name = first_end(&mut parts) => Some(name),
    };
    tokio::select! {
        () = stop(parts) => {}
        () = signals.first() => {
            tracing::warn!("a second signal: leaving at once; pods go on and are taken over by the next start");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    match ended {
        None => Ok(ExitCode::SUCCESS),
        Some(name) => Err(Error::Ended(name)),
    }
}

/// Starts the parts in the order in which they need each other; returns when all of them can be used.
async fn start(options: &Options, pki: &Pki, parts: &mut Vec<Running>) -> Result<(), Error> {
    let has = |role| options.roles.contains(&role);
    if has(Role::Apiserver) {
        parts.extend(api::start(options, pki).await?);
        kubeconfig::write(&options.data, options.listen, pki)?;
        tracing::info!(address = %options.listen, "the API server serves");
    }
    let admin = client::client(options.listen, pki.admin())?;
    if !has(Role::Apiserver) {
        tracing::info!(address = %options.listen, data = %options.data.display(), "waiting for the API server, which another kun runs on the same --data and --listen");
    }
    client::reachable(&admin, API_PATIENCE).await?;
    if has(Role::Apiserver) {
        bootstrap::namespaces(&admin).await?;
        bootstrap::roles(&admin).await?;
    }
    if has(Role::Webhook) {
        let (running, registration) = hooks::start(&options.data, options.listen, pki).await?;
        parts.push(running);
        bootstrap::webhooks(&admin, &registration).await?;
        tracing::info!(url = %registration.url, "the webhook is registered");
    }
    if has(Role::Node) {
        parts.push(start_node(options, pki)?);
    }
    if has(Role::Controller) {
        // Lease times have microseconds, and are cut, not rounded.
        let since = Timestamp::now().checked_sub(Duration::from_millis(1)).unwrap_or(Timestamp::UNIX_EPOCH);
        let identity = holder::name(&options.data).map_err(Error::Holder)?;
        parts.push(start_controller(options, pki, identity.clone())?);
        client::leads(&admin, &identity, since, API_PATIENCE).await?;
        tracing::info!("the controller leads");
    }
    parts.push(renewal(pki.clone()));
    Ok(())
}

fn start_node(options: &Options, pki: &Pki) -> Result<Running, Error> {
    if options.redis.is_empty() {
        return Err(Error::Ended("the node, which has no redis-server,"));
    }
    for redis in &options.redis {
        tracing::info!(redis = %redis.program.display(), version = %redis.version, pods = %options.pod_cidr, "the node starts");
    }
    let node_options = node::Options {
        client: client::client(options.listen, pki.node())?,
        root: options.data.join("node"),
        cidr: options.pod_cidr,
        redis: options.redis.clone(),
        own_program: options.own_program.clone(),
    };
    Ok(spawn("the node", |stop| async move {
        if let Err(error) = node::run(node_options, stop).await {
            tracing::error!(error = crate::log::chain(&error), "the node ended");
        }
    }))
}

fn start_controller(options: &Options, pki: &Pki, identity: String) -> Result<Running, Error> {
    let client = client::client(options.listen, pki.controller())?;
    // One authority for as long as the directory lives: its certificate is renewed over the same key.
    let agents = watch::channel(Arc::new(certs::Ring::of(pki.agent_authority()?))).1;
    let mut controller =
        controller::run::Options::new(client, agents, NAMESPACE.to_owned(), identity, KUN_IMAGE.to_owned());
    // This host has no DNS for Services.
    controller.reach = controller::report::Reach::PodAddresses;
    controller.failpoint = std::env::var(FAILPOINT).ok().and_then(|count| count.parse().ok());
    Ok(spawn("the controller", |stop| async move {
        if let Err(error) = controller::run::run(controller, stop.cancelled_owned()).await {
            tracing::error!(error = crate::log::chain(&error), "the controller ended");
        }
    }))
}

fn renewal(pki: Pki) -> Running {
    spawn("the renewal of certificates", |stop| async move {
        tokio::select! {
            () = pki.renew_for_ever() => {}
            () = stop.cancelled() => {}
        }
    })
}

fn spawn<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    part: impl FnOnce(CancellationToken) -> F,
) -> Running {
    let stop = CancellationToken::new();
    let task = tokio::spawn(part(stop.clone()));
    Running { name, stop, task, last: None }
}

/// Waits until a part ends, which none does by itself.
async fn first_end(parts: &mut [Running]) -> &'static str {
    let tasks = parts.iter_mut().map(|part| {
        let name = part.name;
        Box::pin(async move {
            let _ = (&mut part.task).await;
            name
        })
    });
    futures::future::select_all(tasks).await.0
}

/// Stops in the opposite order of start: nobody loses the API before it has said its last word.
pub(crate) async fn stop(parts: Vec<Running>) {
    for part in parts.into_iter().rev() {
        tracing::info!("stopping {}", part.name);
        part.stop.cancel();
        if let Err(error) = part.task.await
            && error.is_panic()
        {
            tracing::error!(%error, "{} ended badly", part.name);
        }
        if let Some(last) = part.last {
            last.await;
        }
    }
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn first(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = self.interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
    }
}

/// Makes a directory ours alone.
pub(crate) fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}
