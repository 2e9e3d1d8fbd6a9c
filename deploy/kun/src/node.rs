//! The standalone node: turns StatefulSets into pods and pods into processes of this machine, binds claims to
//! directories, collects garbage and ends namespaces. It stands where Kubernetes stands in a cluster and grows no
//! feature that redis.kun.io does not need.
//!
//! It must not know Redis beyond the version of redis-server, and it sees the API only as a client.
//!
//! What it does not do, on purpose: init containers (they only copy the agent's executable, and the node runs its own),
//! more than one container per pod, resource limits, security contexts, mount namespaces (paths are translated
//! instead), `kubectl logs` and `exec` (a pod's log is the file `log` in its directory), addresses for Services (there
//! is no proxy: clients use the addresses of pods).

pub mod address;
pub mod ask;
pub mod claims;
pub mod collect;
pub mod context;
pub mod environment;
pub mod event;
pub mod image;
pub mod kinds;
pub mod machine;
pub mod namespaces;
pub mod owners;
pub mod pods;
pub mod prepare;
pub mod probe;
pub mod process;
pub mod project;
pub mod record;
pub mod report;
pub mod set_plan;
pub mod sets;
pub mod status;
pub mod volume;
pub mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use address::{Cidr, Pool};
use context::{Clock, Layout, Machinery, Node, Objects, PROBES_AT_ONCE};

/// The node's name: `spec.nodeName` of pods that name one must be this.
pub const NAME: &str = "standalone";

/// How to run the node.
pub struct Options {
    /// Client with the node's own certificate.
    pub client: Client,
    /// Its directory.
    pub root: PathBuf,
    /// Range of pod addresses.
    pub cidr: Cidr,
    /// Each redis-server of this machine.
    pub redis: Vec<image::Local>,
    /// Our own executable.
    pub own_program: PathBuf,
}

/// A failure to start the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory.
    #[error(transparent)]
    Directory(#[from] project::Error),
    /// The records of pods.
    #[error("reading the pods on disk in {path}")]
    Find {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Discovery.
    #[error("asking the API for its kinds")]
    Discover(#[source] kube::Error),
    /// The first list of objects.
    #[error("following ConfigMaps, Secrets and claims")]
    Follow,
    /// TLS for probes.
    #[error("setting up TLS for probes")]
    Tls(#[source] rustls::Error),
}

/// Runs until `shutdown`; returns when every pod's process has stopped. Pods and their data stay.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let layout = Layout::new(&options.root);
    for directory in [&layout.pods, &layout.run, &layout.claims, &layout.lost] {
        project::directory(directory)?;
    }
    let found = pods::find(&layout.pods).map_err(|source| Error::Find { path: layout.pods.clone(), source })?;
    let kinds = kinds::discover(&options.client).await.map_err(Error::Discover)?;
    let mut tasks = JoinSet::new();
    let client = options.client.clone();
    tasks.spawn(claims::run(client.clone(), layout.clone(), shutdown.clone()));
    tasks.spawn(namespaces::run(client.clone(), kinds.clone(), shutdown.clone()));
    tasks.spawn(collect::run(client.clone(), kinds, shutdown.clone()));
    let node = Arc::new(node(options, layout, &found, &mut tasks).await?);
    tasks.spawn(sets::run(client.clone(), shutdown.clone()));
    pods::Pods::new(node, found).run(client, shutdown).await;
    Ok(())
}

async fn node(options: Options, layout: Layout, found: &pods::Found, tasks: &mut JoinSet<()>) -> Result<Node, Error> {
    let objects = Objects::follow(&options.client, tasks).await.map_err(|_| Error::Follow)?;
    let in_use = found.values().map(|(record, _)| record.address).collect();
    let events = event::Events::start(options.client.clone(), tasks);
    Ok(Node {
        pool: Pool::open(options.cidr, layout.addresses.clone(), in_use),
        asker: ask::Asker::new().map_err(Error::Tls)?,
        probe_slots: Arc::new(Semaphore::new(PROBES_AT_ONCE)),
        clock: Clock::start(),
        machinery: machinery(&options),
        client: options.client,
        layout,
        objects,
        events,
    })
}

fn machinery(options: &Options) -> Machinery {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Machinery {
        name: NAME.to_owned(),
        own_program: options.own_program.clone(),
        redis: options.redis.clone(),
        path,
        memory: memory_of_machine(),
        cpu_millis: u64::try_from(cpus).unwrap_or(1) * 1_000,
    }
}

fn memory_of_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
