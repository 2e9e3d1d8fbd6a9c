//! What the API server holds, as far as the controller needs it: one cache per kind, indexed by RedisCluster.
//!
//! Filled by watches and by our own writes: what a write answered is visible at once, and a late watch event that
//! carries an older version of it is ignored, so a reconcile never acts on a state older than its own last write.
//! A complete list is believed, also where it says less than we knew: the store may have been restored from an older copy.
//! Looking up one cluster costs nothing that grows with the number of clusters. Objects are kept as JSON and read when they are
//! asked for: as typed values, with room for every field that Kubernetes knows, they take five times as much. Knows nothing
//! of what is reconciled.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, RwLock};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{RedisBackup, RedisCluster, RedisOperation, names};

use crate::queue::Key;

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
cached!(Pod, pods);
cached!(Service, services);
cached!(ConfigMap, config_maps);
cached!(Secret, secrets);
cached!(PersistentVolumeClaim, claims);
cached!(PodDisruptionBudget, budgets);

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
}

impl Caches {
    /// Takes the caches for complete as they are: for a caller that has filled them itself.
    pub fn assume_complete(&self) {
        self.clusters.write().complete = true;
        self.operations.write().complete = true;
        self.backups.write().complete = true;
        self.stateful_sets.write().complete = true;
        self.pods.write().complete = true;
        self.services.write().complete = true;
        self.config_maps.write().complete = true;
        self.secrets.write().complete = true;
        self.claims.write().complete = true;
        self.budgets.write().complete = true;
    }

    /// Whether every watch has delivered its first complete state.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.clusters.complete()
            && self.operations.complete()
            && self.backups.complete()
            && self.stateful_sets.complete()
            && self.pods.complete()
            && self.services.complete()
            && self.config_maps.complete()
            && self.secrets.complete()
            && self.claims.complete()
            && self.budgets.complete()
    }

    /// What has not delivered its first complete state, and what was said the last time when it was asked for.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
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
        } = self;
        let all = [
            clusters.missing(),
            operations.missing(),
            backups.missing(),
            stateful_sets.missing(),
            pods.missing(),
            services.missing(),
            config_maps.missing(),
            secrets.missing(),
            claims.missing(),
            budgets.missing(),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Objects of one kind, by cluster and name.
#[derive(Debug)]
pub struct Cache<K> {
    inner: RwLock<Inner<K>>,
}

/// An object as it is kept.
#[derive(Clone, Debug)]
struct Kept<K> {
    uid: Option<String>,
    version: Option<u128>,
    /// What only [`Kept::new`] makes, from a `K`.
    json: Arc<[u8]>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Cached> Kept<K> {
    #[expect(
        clippy::expect_used,
        reason = "Kubernetes' types and ours have text for keys: nothing in them cannot be JSON"
    )]
    fn new(object: &K) -> Self {
        let json = serde_json::to_vec(object).expect("an object is JSON");
        let meta = object.meta();
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        Self { uid: meta.uid.clone(), version, json: json.into(), kind: PhantomData }
    }

    #[expect(clippy::expect_used, reason = "it was written from a value of the same type")]
    fn read(&self) -> K {
        serde_json::from_slice(&self.json).expect("what was written is read")
    }

    /// Whether it should replace `old`: it is another object of the same name, or not an older version of it. Versions of
    /// etcd and of our own store are decimal and grow.
    fn supersedes(&self, old: &Self) -> bool {
        self.uid != old.uid
            || match (self.version, old.version) {
                (Some(new), Some(old)) => new >= old,
                (None, _) | (_, None) => true,
            }
    }
}

type ByName<K> = BTreeMap<String, Kept<K>>;

#[derive(Debug)]
struct Inner<K> {
    objects: BTreeMap<Key, ByName<K>>,
    /// A new complete state, between `Init` and `InitDone`.
    incoming: Option<Incoming<K>>,
    complete: bool,
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
        let inner = Inner { objects: BTreeMap::new(), incoming: None, complete: false, fault: None };
        Self { inner: RwLock::new(inner) }
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

    /// Whether the first complete state has arrived.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.read().complete
    }

    /// That it is not complete yet, and why, as far as that is known.
    fn missing(&self) -> Option<String> {
        let inner = self.read();
        let why = inner.fault.as_deref().unwrap_or("not listed yet");
        (!inner.complete).then(|| format!("{}: {why}", K::kind(&())))
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

    /// One object of a cluster.
    #[must_use]
    pub fn get(&self, key: &Key, name: &str) -> Option<Arc<K>> {
        let kept = self.read().objects.get(key)?.get(name)?.clone();
        Some(Arc::new(kept.read()))
    }

    /// Every cluster that has an object here.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    /// Puts the answer to one of our writes in, unless a newer version of it is there. Says which cluster it belongs to.
    pub fn put(&self, object: K) -> Option<Key> {
        let placed = Placed::of(object)?;
        let mut inner = self.write();
        if let Some(incoming) = &mut inner.incoming {
            placed.clone().put(&mut incoming.written);
        }
        Some(placed.put(&mut inner.objects))
    }

    /// Takes an object out, if it is still the one with this uid.
    pub fn remove(&self, object: &K) -> Option<Key> {
        let (key, name) = place(object)?;
        let mut inner = self.write();
        let of_cluster = inner.objects.get_mut(&key)?;
        if of_cluster.get(&name).is_some_and(|kept| kept.uid == object.meta().uid) {
            of_cluster.remove(&name);
            if of_cluster.is_empty() {
                inner.objects.remove(&key);
            }
        }
        Some(key)
    }

    /// Takes in one watch event and says which clusters it touches.
    pub(crate) fn take_in(&self, event: Event<K>) -> Vec<Key> {
        match &event {
            // That a list is about to be asked for says nothing of what will be answered.
            Event::Init => {}
            Event::InitApply(_) | Event::InitDone | Event::Apply(_) | Event::Delete(_) => self.write().fault = None,
        }
        match event {
            Event::Apply(object) => {
                let placed = Placed::of(object);
                placed.map(|placed| placed.put(&mut self.write().objects)).into_iter().collect()
            }
            Event::Delete(object) => self.remove(&object).into_iter().collect(),
            Event::Init => {
                self.write().incoming = Some(Incoming { objects: BTreeMap::new(), written: BTreeMap::new() });
                Vec::new()
            }
            Event::InitApply(object) => {
                if let (Some(placed), Some(incoming)) = (Placed::of(object), &mut self.write().incoming) {
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
        let touched = inner.objects.keys().chain(objects.keys()).cloned().collect();
        inner.objects = objects;
        inner.complete = true;
        touched
    }
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
    fn of(mut object: K) -> Option<Self> {
        // Nobody here reads managedFields, and they are often half of an object.
        object.meta_mut().managed_fields = None;
        let (key, name) = place(&object)?;
        Some(Self { key, name, kept: Kept::new(&object) })
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn pod(name: &str, uid: &str, version: u32) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("ns".to_owned()),
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_string()),
                labels: Some([(names::LABEL_CLUSTER.to_owned(), "orders".to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }
    fn key() -> Key {
        Key { namespace: "ns".to_owned(), name: "orders".to_owned() }
    }
    fn held(cache: &Cache<Pod>, name: &str) -> Option<String> {
        cache.get(&key(), name).and_then(|pod| pod.metadata.resource_version.clone())
    }

    #[test]
    fn an_older_version_never_replaces_our_own_newer_write() {
        let cache = Cache::<Pod>::default();
        cache.put(pod("a", "u1", 10));
        cache.take_in(Event::Apply(pod("a", "u1", 9)));
        assert_eq!(held(&cache, "a").as_deref(), Some("10"));
        cache.take_in(Event::Apply(pod("a", "u2", 3)));
        assert_eq!(held(&cache, "a").as_deref(), Some("3"));
    }

    #[test]
    fn a_late_deletion_of_a_predecessor_does_not_remove_its_successor() {
        let cache = Cache::<Pod>::default();
        cache.put(pod("a", "u2", 20));
        cache.take_in(Event::Delete(pod("a", "u1", 19)));
        assert_eq!(held(&cache, "a").as_deref(), Some("20"));
        assert_eq!(cache.take_in(Event::Delete(pod("a", "u2", 21))), [key()]);
        assert!(cache.keys().is_empty());
    }

    #[test]
    fn a_complete_state_removes_what_it_lacks_and_wakes_everything() {
        let cache = Cache::<Pod>::default();
        assert!(!cache.complete());
        cache.put(pod("a", "u1", 10));
        cache.put(pod("b", "u3", 30));
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("b", "u3", 31)));
        assert_eq!(cache.take_in(Event::InitDone), [key(), key()]);
        assert!(cache.complete());
        assert_eq!(held(&cache, "a"), None);
        assert_eq!(held(&cache, "b").as_deref(), Some("31"));
    }

    #[test]
    fn a_list_of_a_store_that_went_back_is_believed() {
        let cache = Cache::<Pod>::default();
        cache.put(pod("written", "u1", 50));
        cache.take_in(Event::Apply(pod("watched", "u2", 60)));
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("written", "u1", 10)));
        cache.take_in(Event::InitApply(pod("watched", "u2", 20)));
        cache.take_in(Event::InitDone);
        assert_eq!(held(&cache, "written").as_deref(), Some("10"));
        assert_eq!(held(&cache, "watched").as_deref(), Some("20"));
        // And what happens in that store afterwards is taken in.
        cache.take_in(Event::Apply(pod("watched", "u2", 21)));
        assert_eq!(held(&cache, "watched").as_deref(), Some("21"));
    }

    #[test]
    fn our_own_write_while_a_list_is_under_way_is_not_lost_to_it() {
        let cache = Cache::<Pod>::default();
        for name in ["a", "gone"] {
            cache.put(pod(name, "u1", 10));
        }
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("a", "u1", 10)));
        cache.put(pod("a", "u1", 11));
        cache.put(pod("gone", "u1", 12));
        assert_eq!(held(&cache, "a").as_deref(), Some("11"), "it is visible at once");
        cache.take_in(Event::InitApply(pod("b", "u2", 9)));
        cache.take_in(Event::InitDone);
        assert_eq!(held(&cache, "a").as_deref(), Some("11"));
        assert_eq!(held(&cache, "gone"), None, "what a complete state lacks is gone; if not, the watch will say so");
        // The next list is asked for after that write, and knows of it.
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("a", "u1", 7)));
        cache.take_in(Event::InitDone);
        assert_eq!(held(&cache, "a").as_deref(), Some("7"));
    }

    #[test]
    fn a_list_that_was_given_up_leaves_what_was_known() {
        let cache = Cache::<Pod>::default();
        cache.put(pod("a", "u1", 10));
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("b", "u2", 20)));
        cache.put(pod("a", "u1", 11));
        cache.take_in(Event::Init);
        cache.take_in(Event::InitApply(pod("a", "u1", 5)));
        cache.take_in(Event::InitDone);
        assert_eq!((held(&cache, "a").as_deref(), held(&cache, "b")), (Some("5"), None));
    }
}
