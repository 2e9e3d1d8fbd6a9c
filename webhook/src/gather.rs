//! Keeps [`Facts`] current by watching the API; requests only ever read memory.
//!
//! One watch per kind. A list that is being read again replaces the old one only when it is complete, so that nothing
//! known is forgotten in between. Nobody is called ready before every first list is complete.

use std::{
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;
use types::{RedisCluster, RedisOperation, RedisPolicy, names, patience};

use crate::{
    decide::policy::Policy,
    facts::{Claim, Facts, Table},
    lean,
};

/// Objects per page of a first list; at 10 KB each a page takes about 5 MB.
const PAGE: u32 = 500;

/// How long after it broke a watch is made anew. What was created meanwhile is not known here and may be refused for it,
/// so it is short; five watches that ask every 2 s are no load for anybody.
const AGAIN: Duration = Duration::from_secs(2);

/// Which claims are watched: also those that a person gave the labels of a member, as docs/operations.md says.
const CLAIMS: &str = names::LABEL_CLUSTER;

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Clusters,
    Operations,
    Policies,
    Namespaces,
    Claims,
}

/// How far the first lists are, and how often anything changed.
#[derive(Clone, Debug, Default)]
struct Progress {
    waiting_for: Vec<Kind>,
    changes: u64,
}

/// Facts that follow the API.
#[derive(Debug)]
pub struct Gathered {
    facts: RwLock<Facts>,
    progress: watch::Sender<Progress>,
}

impl Gathered {
    /// Facts that nothing is known of yet.
    #[must_use]
    pub fn unsynced() -> Arc<Self> {
        let waiting_for = vec![Kind::Clusters, Kind::Operations, Kind::Policies, Kind::Namespaces, Kind::Claims];
        let (progress, _) = watch::channel(Progress { waiting_for, changes: 0 });
        Arc::new(Self { facts: RwLock::default(), progress })
    }

    /// Facts that stay as they are.
    #[must_use]
    pub fn fixed(facts: Facts) -> Arc<Self> {
        let (progress, _) = watch::channel(Progress::default());
        Arc::new(Self { facts: RwLock::new(facts), progress })
    }

    /// The facts as they are now. Held only while deciding; nothing is awaited under it.
    pub fn read(&self) -> RwLockReadGuard<'_, Facts> {
        // A writer that panicked left whole tables behind: each change is one insert or one swap.
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every first list is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.progress.borrow().waiting_for.is_empty()
    }

    /// What has not been listed yet.
    #[must_use]
    pub fn waits_for(&self) -> String {
        let progress = self.progress.borrow();
        let words = progress.waiting_for.iter().map(|kind| format!("{kind:?}").to_lowercase());
        words.collect::<Vec<_>>().join(", ")
    }

    /// Waits until `enough` is satisfied with the facts, at most for `patience`. Says whether it is.
    pub async fn wait(&self, patience: Duration, enough: impl Fn(&Facts) -> bool) -> bool {
        if enough(&self.read()) {
            return true;
        }
        let mut changes = self.progress.subscribe();
        let satisfied = async {
            while !enough(&self.read()) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, satisfied).await.is_ok() && enough(&self.read())
    }

    /// Watches until cancelled by being dropped.
    pub async fn follow(self: Arc<Self>, client: Client) {
        let all = watcher::Config::default().page_size(PAGE);
        futures::join!(
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Clusters,
                |facts| &mut facts.clusters,
                |mut cluster: RedisCluster| {
                    lean::trim(&mut cluster);
                    cluster
                }
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Operations,
                |facts| &mut facts.operations,
                |operation: RedisOperation| { operation }
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Policies,
                |facts| &mut facts.policies,
                |policy: RedisPolicy| { Policy::from(&policy) }
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Namespaces,
                |facts| &mut facts.namespaces,
                |namespace: Namespace| { namespace.metadata.labels.unwrap_or_default() }
            ),
            self.watch(
                watcher::watcher(Api::all(client), all.clone().labels(CLAIMS)),
                Kind::Claims,
                |facts| &mut facts.claims,
                // Whose they are is all that is asked of claims.
                |claim: PartialObjectMeta<PersistentVolumeClaim>| { Claim::of(&claim.metadata) }
            ),
        );
    }

    async fn watch<K, T>(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
        kind: Kind,
        table: fn(&mut Facts) -> &mut Table<T>,
        keep: fn(K) -> T,
    ) where
        K: Resource,
        T: Send,
    {
        let mut listed: Option<Table<T>> = None;
        let mut events = std::pin::pin!(events);
        let mut fault = Fault::default();
        loop {
            let event = events.try_next().await;
            let pause = fault.note(kind, event.as_ref());
            match event {
                Ok(Some(Event::Init)) => listed = Some(Table::default()),
                Ok(Some(Event::InitApply(object))) => {
                    let (namespace, name) = place(&object);
                    listed.get_or_insert_default().put(&namespace, &name, keep(object));
                }
                Ok(Some(Event::InitDone)) => {
                    let complete = listed.take().unwrap_or_default();
                    self.change(kind, true, |facts| *table(facts) = complete);
                }
                Ok(Some(Event::Apply(object))) => {
                    let (namespace, name) = place(&object);
                    self.change(kind, false, |facts| table(facts).put(&namespace, &name, keep(object)));
                }
                Ok(Some(Event::Delete(object))) => {
                    let (namespace, name) = place(&object);
                    self.change(kind, false, |facts| table(facts).remove(&namespace, &name));
                }
                // The watcher begins anew; what is known stays known until then.
                Err(_) => tokio::time::sleep(pause).await,
                Ok(None) => return,
            }
        }
    }

    fn change(&self, kind: Kind, complete: bool, how: impl FnOnce(&mut Facts)) {
        how(&mut self.facts.write().unwrap_or_else(PoisonError::into_inner));
        self.progress.send_modify(|progress| {
            progress.changes += 1;
            if complete {
                progress.waiting_for.retain(|one| *one != kind);
            }
        });
    }
}

/// Why a watch is broken, and how often in a row it was refused.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fault {
    why: String,
    refusals: u32,
}

impl Fault {
    /// Tells of what is new, and says how long to pause if something is wrong: what is not allowed is asked for ever more
    /// seldom.
    fn note<K>(&mut self, kind: Kind, event: Result<&Option<Event<K>>, &watcher::Error>) -> Duration {
        match event {
            // That a list is about to be asked for says nothing of what will be answered.
            Ok(Some(Event::Init)) => {}
            Ok(_) => *self = Self::default(),
            Err(error) => {
                let why = error.to_string();
                if why != self.why {
                    tracing::warn!(?kind, error = why, "the watch broke and is made anew");
                }
                let refusals = if is_refusal(error) { self.refusals.saturating_add(1) } else { 0 };
                *self = Self { why, refusals };
            }
        }
        AGAIN.max(patience::after(self.refusals))
    }
}

/// Whether the API server understood and said that we may not.
fn is_refusal(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}

fn place<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_the_label_that_a_person_gives_them() {
        assert_eq!(CLAIMS, "redis.kun.io/cluster");
    }

    #[test]
    fn what_is_not_allowed_is_asked_for_ever_more_seldom() {
        let status = kube::core::Status { code: 403, ..kube::core::Status::default() };
        let refusal = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        let away = watcher::Error::NoResourceVersion;
        let mut fault = Fault::default();
        let mut pause =
            |event: Result<&Option<Event<()>>, &watcher::Error>| fault.note(Kind::Clusters, event).as_secs();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            pause(Ok(&Some(Event::Init)));
            pauses.push(pause(Err(&refusal)));
        }
        assert_eq!(pauses, [2, 4, 8]);
        assert_eq!(pause(Err(&away)), AGAIN.as_secs());
        assert_eq!(pause(Err(&refusal)), AGAIN.as_secs());
        pause(Ok(&Some(Event::InitDone)));
        assert_eq!(fault, Fault::default());
    }
}
