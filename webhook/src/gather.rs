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
use tokio::sync::{Mutex, MutexGuard, watch};
use types::{RedisOperation, RedisPolicy, names, patience};

use crate::{
    decide::policy::Policy,
    facts::{Claim, Facts, Table, Unfinished},
    lean::{self, Watched},
};

/// Objects in one page of a list. Whoever may make one object may make many of 1.5 MiB, which is as much as is stored, and a page exists twice as
/// text: 30 MiB, while all that this process may have is 128 MiB.
const PAGE: u32 = 10;

/// How long after it broke a watch is made anew. What was created meanwhile is not known here and may be refused for it,
/// so it is short; five watches that ask every 2 s are no load for anybody.
const AGAIN: Duration = Duration::from_secs(2);

/// How long a list waits for the one that is being read: that of 1,000 clusters takes seconds, and one that hangs must not make the others deaf.
const TURN: Duration = Duration::from_secs(30);

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
    /// Whoever holds it lists: one page is in memory at a time, and not one of each kind. A list that hangs holds up the others for [`TURN`].
    lists: Mutex<()>,
}

impl Gathered {
    /// Facts that nothing is known of yet.
    #[must_use]
    pub fn unsynced() -> Arc<Self> {
        let waiting_for = vec![Kind::Clusters, Kind::Operations, Kind::Policies, Kind::Namespaces, Kind::Claims];
        let (progress, _) = watch::channel(Progress { waiting_for, changes: 0 });
        Arc::new(Self { facts: RwLock::default(), progress, lists: Mutex::default() })
    }

    /// Facts that stay as they are.
    #[must_use]
    pub fn fixed(facts: Facts) -> Arc<Self> {
        let (progress, _) = watch::channel(Progress::default());
        Arc::new(Self { facts: RwLock::new(facts), progress, lists: Mutex::default() })
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
                lean::kept
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Operations,
                |facts| &mut facts.operations,
                |Watched(operation): Watched<RedisOperation>| { Unfinished::of(&operation) }
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Policies,
                |facts| &mut facts.policies,
                |Watched(policy): Watched<RedisPolicy>| { Policy::from(&policy) }
            ),
            self.watch(
                watcher::watcher(Api::all(client.clone()), all.clone()),
                Kind::Namespaces,
                |facts| &mut facts.namespaces,
                |Watched(namespace): Watched<Namespace>| { namespace.metadata.labels.unwrap_or_default() }
            ),
            self.watch(
                watcher::watcher(Api::all(client), all.clone().labels(CLAIMS)),
                Kind::Claims,
                |facts| &mut facts.claims,
                // Whose they are is all that is asked of claims.
                |Watched(claim): Watched<PartialObjectMeta<PersistentVolumeClaim>>| { Claim::of(&claim.metadata) }
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
        // A list that is being read, with the turn to read it.
        let mut listed: Option<(Table<T>, Option<MutexGuard<'_, ()>>)> = None;
        let mut events = std::pin::pin!(events);
        let mut fault = Fault::default();
        loop {
            let event = events.try_next().await;
            let pause = fault.note(kind, event.as_ref());
            match event {
                Ok(Some(Event::Init)) => {
                    // Nobody waits for the turn that he has.
                    drop(listed.take());
                    listed = Some((Table::default(), tokio::time::timeout(TURN, self.lists.lock()).await.ok()));
                }
                Ok(Some(Event::InitApply(object))) => {
                    let (namespace, name) = place(&object);
                    if let Some((list, _)) = &mut listed {
                        list.put(&namespace, &name, keep(object));
                    }
                }
                Ok(Some(Event::InitDone)) => {
                    let complete = listed.take().map(|(list, _)| list).unwrap_or_default();
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
                Err(_) => {
                    drop(listed.take());
                    tokio::time::sleep(pause).await;
                }
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
    use std::collections::BTreeMap;

    use futures::StreamExt as _;
    use types::RedisCluster;

    use super::*;

    #[test]
    fn claims_are_found_by_the_label_that_a_person_gives_them() {
        assert_eq!(CLAIMS, "redis.kun.io/cluster");
    }

    #[test]
    fn a_page_of_the_largest_objects_leaves_most_of_the_memory() {
        let (largest, texts, memory) = (3_u32 << 19, 2, 128 << 20);
        assert!(PAGE.saturating_mul(largest).saturating_mul(texts) <= memory / 4);
    }

    /// Before, a page of each of the five kinds could be there at the same moment.
    #[tokio::test]
    async fn one_kind_is_listed_at_a_time_and_a_broken_list_makes_room() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let gathered = Gathered::unsynced();
        let running = AtomicUsize::new(0);
        // What is asked for once a list has begun are its pages.
        let list = |steps: &'static [&str]| {
            let running = &running;
            futures::stream::iter(steps).then(move |step| async move {
                if *step == "begin" {
                    return Ok(Event::Init);
                }
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "another list runs");
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                match *step {
                    "break" => Err(watcher::Error::NoResourceVersion),
                    "end" => Ok(Event::InitDone),
                    _ => Ok(Event::InitApply(Watched(Namespace::default()))),
                }
            })
        };
        let broken = list(&["begin", "page", "break", "begin"]);
        let whole = || list(&["begin", "page", "page", "end"]);
        let broken = gathered.watch(broken, Kind::Clusters, |facts| &mut facts.clusters, |_| RedisCluster::default());
        let others = async {
            futures::join!(
                gathered.watch(whole(), Kind::Namespaces, |facts| &mut facts.namespaces, |_| BTreeMap::new()),
                gathered.watch(whole(), Kind::Claims, |facts| &mut facts.claims, |_| None),
            )
        };
        tokio::select! {
            biased;
            () = broken => panic!("it begins anew, but after a pause"),
            _ = others => {}
        }
        assert_eq!(gathered.waits_for(), "clusters, operations, policies");
        assert!(gathered.read().namespaces.get("", "").is_some());
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
