//! The dispatcher: one worker per pod, never two for one name, none forgotten.
//!
//! It follows all pods, hands each to its worker, takes over what an earlier life of the node left on disk, and when
//! the node stops, parks all workers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1 as core;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::Node;
use super::prepare::MARK;
use super::process::{self, Process};
use super::record::{self, Record};
use super::worker::{Orders, Worker};
use crate::log::chain;

/// Most pods on the node; each costs at least one process and a share of the machine.
pub const PODS_MAX: usize = 500;
/// Grace period of a process whose pod the API does not know.
const GRACE_LOST: Duration = Duration::from_secs(30);

/// A pod's namespace and name.
type Key = (String, String);

/// What an earlier life of the node left: by uid.
pub type Found = BTreeMap<String, (Record, PathBuf)>;

/// Reads the records of all pods on disk. A directory that cannot be read is set aside, with a warning.
pub fn find(pods: &Path) -> std::io::Result<Found> {
    let mut found = Found::new();
    for entry in std::fs::read_dir(pods)? {
        let path = entry?.path();
        match Record::read(&path) {
            Ok(record) => {
                found.insert(record.uid.clone(), (record, path));
            }
            Err(error) => tracing::warn!("{}: left alone: {}", path.display(), chain(&error)),
        }
    }
    Ok(found)
}

struct Slot {
    uid: String,
    orders: Option<watch::Sender<Orders>>,
    /// The pod that took the name while the old one is still being ended.
    next: Option<Arc<core::Pod>>,
}

/// The dispatcher.
pub struct Pods {
    node: Arc<Node>,
    found: Found,
    slots: BTreeMap<Key, Slot>,
    workers: JoinSet<Key>,
    park: CancellationToken,
    listed: BTreeSet<Key>,
    synced: bool,
}

impl Pods {
    /// A dispatcher that knows what was found on disk.
    #[must_use]
    pub fn new(node: Arc<Node>, found: Found) -> Self {
        Self {
            node,
            found,
            slots: BTreeMap::new(),
            workers: JoinSet::new(),
            park: CancellationToken::new(),
            listed: BTreeSet::new(),
            synced: false,
        }
    }

    /// Runs until `shutdown`, then until every pod's process has stopped.
    pub async fn run(mut self, client: Client, shutdown: CancellationToken) {
        let mut events =
            watch_objects(Api::<core::Pod>::all(client), watcher::Config::default()).default_backoff().boxed();
        let mut stopping = false;
        loop {
            tokio::select! {
                () = shutdown.cancelled(), if !stopping => {
                    stopping = true;
                    self.park.cancel();
                }
                Some(Ok(key)) = self.workers.join_next(), if !self.workers.is_empty() => self.finished(&key),
                event = events.try_next() => match event {
                    Ok(Some(event)) => self.seen(event),
                    Ok(None) => tracing::error!("the watch of pods ended"),
                    Err(error) => tracing::debug!(%error, "watching pods failed; it is tried again"),
                },
            }
            if stopping && self.workers.is_empty() {
                return;
            }
        }
    }

    fn seen(&mut self, event: Event<core::Pod>) {
        match event {
            Event::Apply(pod) => self.upsert(Arc::new(pod)),
            Event::Delete(pod) => self.vanish(&key(&pod), pod.metadata.uid.as_deref()),
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.insert(key(&pod));
                self.upsert(Arc::new(pod));
            }
            Event::InitDone => {
                let gone: Vec<Key> = self.slots.keys().filter(|key| !self.listed.contains(*key)).cloned().collect();
                for key in gone {
                    self.vanish(&key, None);
                }
                self.synced = true;
                self.bury_unknown();
            }
        }
    }

    fn upsert(&mut self, pod: Arc<core::Pod>) {
        let key = key(&pod);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match self.slots.get_mut(&key) {
            Some(slot) if slot.uid == uid => {
                if let Some(orders) = &slot.orders {
                    orders.send_modify(|orders| orders.pod = pod);
                }
            }
            Some(slot) => {
                slot.next = Some(pod);
                if let Some(orders) = &slot.orders {
                    orders.send_modify(|orders| orders.vanished = true);
                }
            }
            None => self.employ(key, pod),
        }
    }

    fn vanish(&mut self, key: &Key, uid: Option<&str>) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.next.as_ref().is_some_and(|next| uid.is_none() || next.metadata.uid.as_deref() == uid) {
            slot.next = None;
        }
        if uid.is_none_or(|uid| uid == slot.uid)
            && let Some(orders) = &slot.orders
        {
            orders.send_modify(|orders| orders.vanished = true);
        }
    }

    fn employ(&mut self, key: Key, pod: Arc<core::Pod>) {
        let ours = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .is_none_or(|name| name == self.node.machinery.name);
        if !ours || self.park.is_cancelled() {
            return;
        }
        if self.slots.len() >= PODS_MAX {
            tracing::warn!("pod {}/{}: not started, the node has {PODS_MAX} pods already", key.0, key.1);
            return;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        // An older process of the same name, left on disk, must have gone before this one may start.
        let predecessor = self
            .found
            .iter()
            .find(|(found, (record, _))| **found != uid && record.namespace == key.0 && record.name == key.1);
        if let Some(predecessor) = predecessor.map(|(found, _)| found.clone()) {
            self.bury(&predecessor, Some(pod));
            return;
        }
        let record = self.found.remove(&uid).map(|(record, _)| record);
        let (orders, receiver) = watch::channel(Orders { pod, vanished: false });
        let worker = Worker::new(Arc::clone(&self.node), receiver, self.park.clone(), record);
        self.slots.insert(key.clone(), Slot { uid, orders: Some(orders), next: None });
        self.workers.spawn(async move {
            worker.run().await;
            key
        });
    }

    fn finished(&mut self, key: &Key) {
        if let Some(next) = self.slots.remove(key).and_then(|slot| slot.next) {
            self.employ(key.clone(), next);
        } else if self.synced {
            self.bury_unknown();
        }
    }

    fn bury_unknown(&mut self) {
        let unknown: Vec<String> = self.found.keys().cloned().collect();
        for uid in unknown {
            self.bury(&uid, None);
        }
    }

    /// Ends a process whose pod the API does not know (any more).
    fn bury(&mut self, uid: &str, next: Option<Arc<core::Pod>>) {
        let Some((record, directory)) = self.found.remove(uid) else { return };
        let key = (record.namespace.clone(), record.name.clone());
        if let Some(slot) = self.slots.get_mut(&key) {
            // One worker per name: this one waits its turn.
            slot.next = next.or(slot.next.take());
            self.found.insert(uid.to_owned(), (record, directory));
            return;
        }
        self.slots.insert(key.clone(), Slot { uid: uid.to_owned(), orders: None, next });
        let node = Arc::clone(&self.node);
        self.workers.spawn(async move {
            bury(&node, record, &directory).await;
            key
        });
    }
}

async fn bury(node: &Node, record: Record, directory: &Path) {
    let label = format!("{}/{}", record.namespace, record.name);
    if let Some(id) = &record.process {
        match Process::adopt(id) {
            Ok(Some(mut process)) => {
                tracing::warn!("pod {label} is not known to the API; its process {} is stopped", id.pid);
                process.terminate();
                if tokio::time::timeout(GRACE_LOST, process.wait()).await.is_err() {
                    process.kill();
                    process.wait().await;
                }
                process::sweep(id.pid).await;
            }
            Ok(None) => process::sweep_recorded(id, &format!("{MARK}={}", record.uid), directory).await,
            Err(error) => {
                tracing::error!("pod {label}: {}; left alone", chain(&error));
                return;
            }
        }
    }
    put_away(node, &record, directory);
    node.pool.release(record.address);
}

/// A pod whose deletion was seen is removed; one that is merely unknown is kept aside, because a store that was lost
/// must not cost anybody data.
fn put_away(node: &Node, record: &Record, directory: &Path) {
    let result = if record.deleting {
        std::fs::remove_dir_all(directory)
    } else {
        let name = record::directory_name(&record.namespace, &record.name, &record.uid);
        tracing::warn!(
            "the directory of pod {}/{} is kept in {}",
            record.namespace,
            record.name,
            node.layout.lost.display()
        );
        std::fs::rename(directory, node.layout.lost.join(name))
    };
    if let Err(error) = result {
        tracing::warn!("putting {} away: {error}", directory.display());
    }
}

fn key(pod: &core::Pod) -> Key {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}
