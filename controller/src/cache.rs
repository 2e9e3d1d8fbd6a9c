//! What the API server holds, as far as the controller needs it: one cache per kind, indexed by RedisCluster.
//!
//! Filled by watches and by our own writes: what a write answered is visible at once, and a late watch event that
//! carries an older version of it is ignored, so a reconcile never acts on a state older than its own last write.
//! A complete list is believed, also where it says less than we knew: the store may have been restored from an older copy.
//! Looking up one cluster costs nothing that grows with the number of clusters. Knows nothing of what is
//! reconciled.

mod kept;
mod strangers;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, RwLock};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PersistentVolumeClaim, Pod, PodSpec, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{RedisBackup, RedisCluster, RedisOperation, names};

use crate::build::stateful_set::AUTH;
use crate::queue::Key;

use kept::Kept;

/// Objects that went and are remembered: an answer is late by some milliseconds, in which not as many go.
const GONE_MOST: usize = 512;

/// A kind the controller reads or writes, and the cache that holds it.
pub trait Cached:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// The cache of this kind.
    fn cache(caches: &Caches) -> &Cache<Self>;
    /// Name of the RedisCluster this object belongs to.
    fn cluster(&self) -> Option<&str> {
        self.meta().labels.as_ref()?.get(names::LABEL_CLUSTER).map(String::as_str)
    }
    /// Which objects are watched: for children those we made, so that foreign objects cost nothing.
    fn selector() -> Option<String> {
        Some(format!("app.kubernetes.io/managed-by={}", names::MANAGED_BY))
    }
    /// Takes out what nobody reads here, before it is kept.
    fn prune(&mut self) {}
    /// Leaves only what it is and whose.
    fn strip(&mut self) {}
    /// Objects in one page of a list. A page exists as text and as typed values at once, and eleven kinds are listed at the same time; an object may have
    /// 1.5 MiB, whoever made it: what kube asks for by itself, 500, would be the end of the controller at every start.
    const PAGE: u32 = 10;
    /// Whether the controller reads what is in an object of this name; of any other it need only know that there is one. `None`: it reads all of
    /// this kind.
    fn is_read(_name: &str, _cluster: &str) -> Option<bool> {
        None
    }
}

macro_rules! cached {
    ($kind:ty, $field:ident) => {
        impl Cached for $kind {
            fn cache(caches: &Caches) -> &Cache<Self> {
                &caches.$field
            }
        }
    };
}
cached!(StatefulSet, stateful_sets);
cached!(Service, services);
cached!(PersistentVolumeClaim, claims);
cached!(PodDisruptionBudget, budgets);
cached!(NetworkPolicy, network_policies);

impl Cached for Pod {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.pods
    }
    /// What a pod should be is read from its StatefulSet. Of its own specification only what its place is read from counts (`probe::place`):
    /// where it is, where it may be, which images it runs, and from which Secret it has its password.
    fn prune(&mut self) {
        let only_image = |Container { name, image, .. }| Container { name, image, ..Container::default() };
        self.spec = self.spec.take().map(|PodSpec { node_name, affinity, containers, volumes, .. }| PodSpec {
            node_name,
            affinity,
            containers: containers.into_iter().map(only_image).collect(),
            volumes: volumes.map(|all| all.into_iter().filter(|volume| volume.name == AUTH).collect()),
            ..PodSpec::default()
        });
    }
}

impl Cached for RedisCluster {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.clusters
    }
    fn cluster(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }
    fn selector() -> Option<String> {
        None
    }
}
impl Cached for RedisOperation {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.operations
    }
    fn cluster(&self) -> Option<&str> {
        Some(&self.spec.cluster_name)
    }
    fn selector() -> Option<String> {
        None
    }
}
impl Cached for RedisBackup {
    fn cache(caches: &Caches) -> &Cache<Self> {
        &caches.backups
    }
    fn cluster(&self) -> Option<&str> {
        Some(&self.spec.cluster_name)
    }
    fn selector() -> Option<String> {
        None
    }
}

/// One cache per kind.
#[derive(Debug, Default)]
pub struct Caches {
    /// RedisClusters.
    pub clusters: Cache<RedisCluster>,
    /// RedisOperations.
    pub operations: Cache<RedisOperation>,
    /// RedisBackups.
    pub backups: Cache<RedisBackup>,
    /// StatefulSets of shards.
    pub stateful_sets: Cache<StatefulSet>,
    /// Pods of shards and of backups.
    pub pods: Cache<Pod>,
    /// Services.
    pub services: Cache<Service>,
    /// ConfigMaps.
    pub config_maps: Cache<ConfigMap>,
    /// Secrets.
    pub secrets: Cache<Secret>,
    /// Claims of members.
    pub claims: Cache<PersistentVolumeClaim>,
    /// PodDisruptionBudgets.
    pub budgets: Cache<PodDisruptionBudget>,
    /// NetworkPolicies.
    pub network_policies: Cache<NetworkPolicy>,
}

/// What is asked of every cache, whatever it holds.
trait OfAnyKind {
    /// Takes it for complete as it is.
    fn assume_complete(&self);
    /// Whether the first complete state has arrived.
    fn complete(&self) -> bool;
    /// That it is not complete yet, and why, as far as that is known.
    fn missing(&self) -> Option<String>;
    /// Names, uids and versions of the objects of one cluster.
    fn versions(&self, key: &Key, state: &mut dyn Hasher);
}

impl Caches {
    fn all(&self) -> [&dyn OfAnyKind; 11] {
        let Self {
            clusters,
            operations,
            backups,
            stateful_sets,
            pods,
            services,
            config_maps,
            secrets,
            claims,
            budgets,
            network_policies,
        } = self;
        [
            clusters,
            operations,
            backups,
            stateful_sets,
            pods,
            services,
            config_maps,
            secrets,
            claims,
            budgets,
            network_policies,
        ]
    }

    /// Takes the caches for complete as they are: for a caller that has filled them itself.
    pub fn assume_complete(&self) {
        self.all().into_iter().for_each(OfAnyKind::assume_complete);
    }

    /// Whether every watch has delivered its first complete state.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.all().into_iter().all(OfAnyKind::complete)
    }

    /// What has not delivered its first complete state, and what was said the last time when it was asked for.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.all().into_iter().filter_map(OfAnyKind::missing).collect()
    }

    /// Names, uids and versions of all that is held of one cluster.
    pub fn versions(&self, key: &Key, state: &mut impl Hasher) {
        self.all().into_iter().for_each(|cache| cache.versions(key, state));
    }

    /// Takes in one watch event and says which clusters it touches. Of kinds that anybody may fill with whatever he likes, no more is kept than that an
    /// object is there, unless its cluster exists and the controller reads objects of its name.
    pub fn take_in<K: Cached>(&self, event: Event<K>) -> Vec<Key> {
        K::cache(self).take_in(event, |object| self.reads(object))
    }

    /// Whether it is known which clusters there are.
    pub(crate) fn knows_clusters(&self) -> bool {
        self.clusters.complete()
    }

    fn reads<K: Cached>(&self, object: &K) -> bool {
        let Some((key, name)) = place(object) else { return true };
        K::is_read(&name, &key.name).is_none_or(|is_read| is_read && self.clusters.has(&key, &key.name))
    }
}

/// Objects of one kind, by cluster and name.
#[derive(Debug)]
pub struct Cache<K> {
    inner: RwLock<Inner<K>>,
}

type ByName<K> = BTreeMap<String, Kept<K>>;

#[derive(Debug)]
struct Inner<K> {
    objects: BTreeMap<Key, ByName<K>>,
    /// A new complete state, between `Init` and `InitDone`.
    incoming: Option<Incoming<K>>,
    complete: bool,
    /// uids of the last objects that went. The answer to a write may come after the word that its object is gone, as when a claim is
    /// deleted whose finalizer goes at once: it must not come back here, for nothing would ever take it out again.
    gone: VecDeque<String>,
    /// Why it cannot be followed now.
    fault: Option<String>,
}

/// A complete state on its way.
#[derive(Debug)]
struct Incoming<K> {
    objects: BTreeMap<Key, ByName<K>>,
    /// What our own writes were answered since the list was asked for: alone among all that is known, it may be newer than
    /// the list.
    written: BTreeMap<Key, ByName<K>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        let inner =
            Inner { objects: BTreeMap::new(), incoming: None, complete: false, gone: VecDeque::new(), fault: None };
        Self { inner: RwLock::new(inner) }
    }
}

impl<K: Cached> OfAnyKind for Cache<K> {
    fn assume_complete(&self) {
        self.write().complete = true;
    }

    fn complete(&self) -> bool {
        self.read().complete
    }

    fn missing(&self) -> Option<String> {
        let inner = self.read();
        let why = inner.fault.as_deref().unwrap_or("not listed yet");
        (!inner.complete).then(|| format!("{}: {why}", K::kind(&())))
    }

    fn versions(&self, key: &Key, mut state: &mut dyn Hasher) {
        let inner = self.read();
        let objects = inner.objects.get(key);
        objects.map_or(0, BTreeMap::len).hash(&mut state);
        for (name, kept) in objects.into_iter().flatten() {
            (name, kept.uid(), kept.version()).hash(&mut state);
        }
    }
}

impl<K: Cached> Cache<K> {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner<K>> {
        // A panic while writing cannot leave the maps half changed in a way that matters: each change is one insert.
        self.inner.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner<K>> {
        self.inner.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Why it cannot be followed now; says whether that is news.
    pub(crate) fn complain(&self, why: String) -> bool {
        let mut inner = self.write();
        let is_news = inner.fault.as_ref() != Some(&why);
        inner.fault = Some(why);
        is_news
    }

    /// The objects of one cluster, by name.
    #[must_use]
    pub fn of(&self, key: &Key) -> BTreeMap<String, Arc<K>> {
        // What is read is read outside of the lock.
        let kept = self.read().objects.get(key).cloned().unwrap_or_default();
        kept.into_iter().map(|(name, kept)| (name, Arc::new(kept.read()))).collect()
    }

    /// The same; `None` while one that the controller reads is not held whole.
    #[must_use]
    pub fn whole_of(&self, key: &Key) -> Option<BTreeMap<String, Arc<K>>> {
        let kept = self.read().objects.get(key).cloned().unwrap_or_default();
        let is_whole = !kept.iter().any(|(name, kept)| is_stripped(key, name, kept));
        is_whole.then(|| kept.into_iter().map(|(name, kept)| (name, Arc::new(kept.read()))).collect())
    }

    /// One object of a cluster.
    #[must_use]
    pub fn get(&self, key: &Key, name: &str) -> Option<Arc<K>> {
        let kept = self.read().objects.get(key)?.get(name)?.clone();
        Some(Arc::new(kept.read()))
    }

    pub(crate) fn has(&self, key: &Key, name: &str) -> bool {
        self.read().objects.get(key).is_some_and(|of_cluster| of_cluster.contains_key(name))
    }

    /// Names of objects that the controller reads, and of which no more is kept than that they are there: their cluster came after them.
    #[must_use]
    pub fn stripped(&self, key: &Key) -> Vec<String> {
        let inner = self.read();
        let of_cluster = inner.objects.get(key).into_iter().flatten();
        let stripped = of_cluster.filter(|(name, kept)| is_stripped(key, name, kept));
        stripped.map(|(name, _)| name.clone()).collect()
    }

    /// The same, and `known` itself if that is what is held.
    #[must_use]
    pub fn get_or_known(&self, key: &Key, name: &str, known: Option<&Arc<K>>) -> Option<Arc<K>> {
        let kept = self.read().objects.get(key)?.get(name)?.clone();
        let is_held = |known: &&Arc<K>| kept.is_of(known.meta());
        Some(known.filter(is_held).map_or_else(|| Arc::new(kept.read()), Arc::clone))
    }

    /// Every cluster that has an object here.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    /// Puts the answer to one of our writes in, unless a newer version of it is there or it has gone meanwhile. Says which cluster it belongs to.
    pub fn put(&self, object: K) -> Option<Key> {
        let placed = Placed::of(object, |_| true)?;
        let mut inner = self.write();
        if placed.kept.uid().is_some_and(|uid| inner.gone.iter().any(|gone| gone == uid)) {
            return Some(placed.key);
        }
        if let Some(incoming) = &mut inner.incoming {
            placed.clone().put(&mut incoming.written);
        }
        Some(placed.put(&mut inner.objects))
    }

    /// Takes an object out, if it is still the one with this uid.
    pub fn remove(&self, object: &K) -> Option<Key> {
        let (key, name) = place(object)?;
        let mut inner = self.write();
        if let Some(uid) = &object.meta().uid {
            inner.gone.push_back(uid.clone());
            if inner.gone.len() > GONE_MOST {
                inner.gone.pop_front();
            }
        }
        let of_cluster = inner.objects.get_mut(&key)?;
        if of_cluster.get(&name).is_some_and(|kept| kept.uid() == object.meta().uid.as_deref()) {
            of_cluster.remove(&name);
            if of_cluster.is_empty() {
                inner.objects.remove(&key);
            }
        }
        Some(key)
    }

    /// Takes in one watch event and says which clusters it touches.
    fn take_in(&self, event: Event<K>, reads: impl Fn(&K) -> bool) -> Vec<Key> {
        match &event {
            // That a list is about to be asked for says nothing of what will be answered.
            Event::Init => {}
            Event::InitApply(_) | Event::InitDone | Event::Apply(_) | Event::Delete(_) => self.write().fault = None,
        }
        match event {
            Event::Apply(object) => {
                let placed = Placed::of(object, reads);
                placed.map(|placed| placed.put(&mut self.write().objects)).into_iter().collect()
            }
            Event::Delete(object) => self.remove(&object).into_iter().collect(),
            Event::Init => {
                self.write().incoming = Some(Incoming { objects: BTreeMap::new(), written: BTreeMap::new() });
                Vec::new()
            }
            Event::InitApply(object) => {
                if let (Some(placed), Some(incoming)) = (Placed::of(object, reads), &mut self.write().incoming) {
                    placed.put(&mut incoming.objects);
                }
                Vec::new()
            }
            Event::InitDone => self.swap(),
        }
    }

    /// A complete state has arrived: what it lacks is gone, and of what it has only our own writes since it was asked for
    /// can be newer. Whatever else seems newer was in a store that is not there any more.
    fn swap(&self) -> Vec<Key> {
        let mut inner = self.write();
        let Some(Incoming { mut objects, written }) = inner.incoming.take() else { return Vec::new() };
        for (key, of_cluster) in written {
            for (name, ours) in of_cluster {
                if let Some(listed) = objects.get_mut(&key).and_then(|listed| listed.get_mut(&name))
                    && !listed.supersedes(&ours)
                {
                    *listed = ours;
                }
            }
        }
        // What it has exists, whatever was believed to have gone.
        inner.gone.clear();
        let touched = inner.objects.keys().chain(objects.keys()).cloned().collect();
        inner.objects = objects;
        inner.complete = true;
        touched
    }
}

/// The controller reads it, and no more is kept of it than that it is there.
fn is_stripped<K: Cached>(key: &Key, name: &str, kept: &Kept<K>) -> bool {
    !kept.is_whole() && K::is_read(name, &key.name) == Some(true)
}

fn place<K: Cached>(object: &K) -> Option<(Key, String)> {
    let meta = object.meta();
    let key = Key { namespace: meta.namespace.clone()?, name: object.cluster()?.to_owned() };
    Some((key, meta.name.clone()?))
}

/// An object ready to be kept, and where.
#[derive(Clone)]
struct Placed<K> {
    key: Key,
    name: String,
    kept: Kept<K>,
}

impl<K: Cached> Placed<K> {
    /// `reads`: whether more is kept of it than that it is there.
    fn of(mut object: K, reads: impl Fn(&K) -> bool) -> Option<Self> {
        // Nobody here reads managedFields, and they are often half of an object.
        object.meta_mut().managed_fields = None;
        let is_whole = reads(&object);
        if is_whole {
            object.prune();
        } else {
            object.strip();
        }
        let (key, name) = place(&object)?;
        Some(Self { key, name, kept: Kept::new(&object, is_whole) })
    }

    /// Puts it in, unless a newer version of it is there.
    fn put(self, objects: &mut BTreeMap<Key, ByName<K>>) -> Key {
        let Self { key, name, kept } = self;
        let of_cluster = objects.entry(key.clone()).or_default();
        if of_cluster.get(&name).is_none_or(|old| kept.supersedes(old)) {
            of_cluster.insert(name, kept);
        }
        key
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
