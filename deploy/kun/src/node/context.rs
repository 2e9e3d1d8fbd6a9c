//! What all workers of the node share: its directories, its facts, the objects pods refer to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as core;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::address::Pool;
use super::ask::Asker;
use super::environment::Surroundings;
use super::event::Events;
use super::image::Local;
use super::machine::{Millis, millis};

/// Probes carried out at the same time, over all pods: more would only queue in the kernel.
pub const PROBES_AT_ONCE: usize = 64;

/// The node's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// One directory per pod.
    pub pods: PathBuf,
    /// Short paths for memory-backed volumes.
    pub run: PathBuf,
    /// One directory per claim.
    pub claims: PathBuf,
    /// What was found without an owner: kept, never deleted by the node.
    pub lost: PathBuf,
    /// The cursor of the address pool.
    pub addresses: PathBuf,
}

impl Layout {
    /// The directories below `root`.
    #[must_use]
    pub fn new(root: &std::path::Path) -> Self {
        Self {
            pods: root.join("pods"),
            run: root.join("run"),
            claims: root.join("volumes"),
            lost: root.join("lost"),
            addresses: root.join("addresses.json"),
        }
    }
}

/// Facts that do not change while the node runs.
#[derive(Clone, Debug)]
pub struct Machinery {
    /// The node's name.
    pub name: String,
    /// Our own executable.
    pub own_program: PathBuf,
    /// Each redis-server.
    pub redis: Vec<Local>,
    /// PATH of pods, without the folder of their redis-server.
    pub path: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Processors in thousandths.
    pub cpu_millis: u64,
}

/// The node's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Millis {
        millis(self.0.elapsed())
    }

    /// Sleeps until a time on this clock.
    pub async fn sleep_until(&self, at: Millis) {
        tokio::time::sleep_until(self.0 + Duration::from_millis(at)).await;
    }
}

/// Shared by all workers.
pub struct Node {
    /// Client with the node's own certificate.
    pub client: Client,
    /// Directories.
    pub layout: Layout,
    /// Facts.
    pub machinery: Machinery,
    /// Addresses.
    pub pool: Pool,
    /// Carries probes out.
    pub asker: Asker,
    /// Bounds how many at once.
    pub probe_slots: std::sync::Arc<Semaphore>,
    /// ConfigMaps, Secrets and claims.
    pub objects: Objects,
    /// Time.
    pub clock: Clock,
    /// Where events go.
    pub events: Events,
}

/// Live copies of the objects pods refer to.
#[derive(Clone)]
pub struct Objects {
    maps: Store<core::ConfigMap>,
    secrets: Store<core::Secret>,
    claims: Store<core::PersistentVolumeClaim>,
    /// Counts changes; a worker that waits for something looks again when it moves.
    pub changed: watch::Receiver<u64>,
}

impl Objects {
    /// Starts to follow the objects. Returns when each kind was listed once.
    pub async fn follow(client: &Client, tasks: &mut JoinSet<()>) -> Result<Self, reflector::store::WriterDropped> {
        let (change, changed) = watch::channel(0);
        let objects = Self {
            maps: follow(Api::all(client.clone()), change.clone(), tasks),
            secrets: follow(Api::all(client.clone()), change.clone(), tasks),
            claims: follow(Api::all(client.clone()), change, tasks),
            changed,
        };
        objects.maps.wait_until_ready().await?;
        objects.secrets.wait_until_ready().await?;
        objects.claims.wait_until_ready().await?;
        Ok(objects)
    }

    /// A claim of a namespace.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<core::PersistentVolumeClaim>> {
        self.claims.get(&ObjectRef::new(name).within(namespace))
    }

    /// All claims.
    #[must_use]
    pub fn claims(&self) -> Vec<std::sync::Arc<core::PersistentVolumeClaim>> {
        self.claims.state()
    }

    /// A ConfigMap's resourceVersion and data.
    #[must_use]
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<(String, BTreeMap<String, Vec<u8>>)> {
        let map = self.maps.get(&ObjectRef::new(name).within(namespace))?;
        let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
        Some((map.metadata.resource_version.clone().unwrap_or_default(), text.chain(binary).collect()))
    }

    /// A Secret's resourceVersion and data.
    #[must_use]
    pub fn secret(&self, namespace: &str, name: &str) -> Option<(String, BTreeMap<String, Vec<u8>>)> {
        let secret = self.secrets.get(&ObjectRef::new(name).within(namespace))?;
        let data = secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
        Some((secret.metadata.resource_version.clone().unwrap_or_default(), data))
    }
}

fn follow<K>(api: Api<K>, change: watch::Sender<u64>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let stream = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    tasks.spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => change.send_modify(|count| *count = count.wrapping_add(1)),
                Err(error) => tracing::debug!(kind = %K::kind(&()), %error, "watching failed; it is tried again"),
            }
        }
    });
    reader
}

/// The ConfigMaps and Secrets of one namespace, as a container's environment may refer to them.
pub struct InNamespace<'a> {
    /// All objects.
    pub objects: &'a Objects,
    /// The pod's namespace.
    pub namespace: &'a str,
}

impl Surroundings for InNamespace<'_> {
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let (_, data) = self.objects.config_map(self.namespace, name)?;
        Some(
            data.into_iter()
                .filter_map(|(key, value)| String::from_utf8(value).ok().map(|value| (key, value)))
                .collect(),
        )
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        self.objects.secret(self.namespace, name).map(|(_, data)| data)
    }
}
