//! Garbage collection by owner references: background, foreground and orphaning, as kube-controller-manager does it.
//! Watches the metadata of every kind, and decides on live answers of the API only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kinds::Kind;
use super::owners::{self, Graph, Item, OwnerState, Uid, Verdict, Waits, judge};
use super::sets::has_code;

/// Events between the watches and the collector; a full queue holds the watches back.
const QUEUE: usize = 1024;
/// Pause before an object is looked at again after a failure or an unknown owner.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

type Meta = PartialObjectMeta<DynamicObject>;

/// Runs until `shutdown`.
pub async fn run(client: Client, kinds: Vec<Kind>, shutdown: CancellationToken) {
    let mut tasks = JoinSet::new();
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let mut unlisted: BTreeSet<usize> = BTreeSet::new();
    for (index, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.is_collected()) {
        unlisted.insert(index);
        tasks.spawn(follow(index, Api::all_with(client.clone(), &kind.resource), sender.clone()));
    }
    let mut collector =
        Collector { client, kinds, graph: Graph::default(), listing: BTreeMap::new(), due: BTreeMap::new(), unlisted };
    loop {
        let next = collector.next();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some((index, event)) = receiver.recv() => collector.seen(index, event),
            () = tokio::time::sleep_until(next.unwrap_or_else(far)), if next.is_some() => collector.look().await,
        }
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

async fn follow(index: usize, api: Api<Meta>, sender: mpsc::Sender<(usize, Event<Meta>)>) {
    let mut events = watch_objects(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if sender.send((index, event)).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "watching metadata failed; it is tried again"),
        }
    }
}

struct Collector {
    client: Client,
    kinds: Vec<Kind>,
    graph: Graph,
    listing: BTreeMap<usize, BTreeSet<Uid>>,
    /// What is to be looked at, and when.
    due: BTreeMap<Uid, Instant>,
    /// Kinds whose first list is not complete: before, nobody's dependents are known.
    unlisted: BTreeSet<usize>,
}

impl Collector {
    fn next(&self) -> Option<Instant> {
        if self.unlisted.is_empty() { self.due.values().min().copied() } else { None }
    }

    fn seen(&mut self, index: usize, event: Event<Meta>) {
        let look = match event {
            Event::Apply(object) => self.apply(index, &object),
            Event::InitApply(object) => {
                self.listing.entry(index).or_default().extend(object.metadata.uid.clone());
                self.apply(index, &object)
            }
            Event::Delete(object) => object.metadata.uid.as_ref().map(|uid| self.graph.remove(uid)).unwrap_or_default(),
            Event::Init => {
                self.listing.insert(index, BTreeSet::new());
                BTreeSet::new()
            }
            Event::InitDone => {
                self.unlisted.remove(&index);
                let listed = self.listing.remove(&index).unwrap_or_default();
                let gone: Vec<Uid> = self.graph.of_resource(index).difference(&listed).cloned().collect();
                gone.iter().flat_map(|uid| self.graph.remove(uid)).collect()
            }
        };
        let now = Instant::now();
        for uid in look {
            self.due.entry(uid).and_modify(|at| *at = now.min(*at)).or_insert(now);
        }
    }

    fn apply(&mut self, index: usize, object: &Meta) -> BTreeSet<Uid> {
        let Some(uid) = &object.metadata.uid else { return BTreeSet::new() };
        self.graph.apply(uid, Item::new(index, &object.metadata))
    }

    /// Looks at what has waited longest.
    async fn look(&mut self) {
        let now = Instant::now();
        let Some(uid) =
            self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(_, at)| **at).map(|(uid, _)| uid.clone())
        else {
            return;
        };
        self.due.remove(&uid);
        match self.treat(&uid).await {
            Ok(true) => {}
            Ok(false) => {
                self.due.insert(uid, now + LOOK_AGAIN);
            }
            Err(error) => {
                tracing::debug!("garbage collection of {uid}: {error}; it is tried again");
                self.due.insert(uid, now + LOOK_AGAIN);
            }
        }
    }

    /// Treats one object; false: look again later.
    async fn treat(&mut self, uid: &Uid) -> Result<bool, kube::Error> {
        let Some(item) = self.graph.get(uid).cloned() else { return Ok(true) };
        let Some(api) = self.api(item.resource, &item.namespace) else { return Ok(true) };
        let Some(live) = api.get_opt(&item.name).await? else { return Ok(true) };
        if live.metadata.uid.as_ref() != Some(uid) {
            return Ok(true);
        }
        match owners::waits(&live.metadata) {
            Some(Waits::Orphan) => return self.release_dependents(&api, uid, &live).await,
            Some(Waits::Foreground) => return self.foreground(&api, uid, &live).await,
            None => {}
        }
        let mut states = Vec::new();
        for owner in live.metadata.owner_references.iter().flatten() {
            states.push((owner.clone(), self.state(owner, &item.namespace).await));
        }
        let deleting = live.metadata.deletion_timestamp.is_some();
        match judge(&states, deleting, !self.graph.dependents(uid).is_empty()) {
            Verdict::Keep => Ok(true),
            Verdict::LookAgain => Ok(false),
            Verdict::Release(gone) => write_owners(&api, &live, &gone).await.map(|()| true),
            Verdict::Delete { foreground } => delete(&api, &live, foreground).await.map(|()| true),
        }
    }

    /// An owner in foreground deletion: its blocking dependents are looked at, and when none is left it may go.
    async fn foreground(&mut self, api: &Api<Meta>, uid: &Uid, live: &Meta) -> Result<bool, kube::Error> {
        let blocking: Vec<Uid> =
            self.graph.dependents(uid).into_iter().filter(|(_, blocks)| *blocks).map(|(uid, _)| uid).collect();
        let now = Instant::now();
        for (dependent, _) in self.graph.dependents(uid) {
            self.due.entry(dependent).or_insert(now);
        }
        if blocking.is_empty() {
            write_finalizers(api, live, owners::FOREGROUND).await?;
            return Ok(true);
        }
        // The end of the last one brings the owner up again; this is for a dependent that could not be deleted.
        Ok(false)
    }

    async fn release_dependents(&mut self, api: &Api<Meta>, uid: &Uid, live: &Meta) -> Result<bool, kube::Error> {
        for (dependent, _) in self.graph.dependents(uid) {
            let Some(item) = self.graph.get(&dependent).cloned() else { continue };
            let Some(api) = self.api(item.resource, &item.namespace) else { continue };
            if let Some(live) = api.get_opt(&item.name).await?
                && live.metadata.uid.as_ref() == Some(&dependent)
            {
                write_owners(&api, &live, std::slice::from_ref(uid)).await?;
            }
        }
        write_finalizers(api, live, owners::ORPHAN).await?;
        Ok(true)
    }

    async fn state(&self, owner: &OwnerReference, namespace: &str) -> OwnerState {
        let kind = self
            .kinds
            .iter()
            .position(|kind| kind.resource.api_version == owner.api_version && kind.resource.kind == owner.kind);
        // A kind this API does not serve says nothing about whether the owner exists.
        let Some(api) = kind.and_then(|index| self.api(index, namespace)) else { return OwnerState::Unknown };
        match api.get_opt(&owner.name).await {
            Ok(Some(live)) if live.metadata.uid.as_ref() != Some(&owner.uid) => OwnerState::Absent,
            Ok(Some(live)) if owners::waits(&live.metadata) == Some(Waits::Foreground) => {
                OwnerState::WaitsForDependents
            }
            Ok(Some(_)) => OwnerState::Present,
            Ok(None) => OwnerState::Absent,
            Err(_) => OwnerState::Unknown,
        }
    }

    fn api(&self, index: usize, namespace: &str) -> Option<Api<Meta>> {
        let kind = self.kinds.get(index)?;
        match (kind.namespaced, namespace) {
            (true, "") => None,
            (true, namespace) => Some(Api::namespaced_with(self.client.clone(), namespace, &kind.resource)),
            (false, _) => Some(Api::all_with(self.client.clone(), &kind.resource)),
        }
    }
}

async fn delete(api: &Api<Meta>, live: &Meta, foreground: bool) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(if foreground {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        }),
        preconditions: Some(Preconditions {
            uid: live.metadata.uid.clone(),
            resource_version: live.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    let name = live.metadata.name.as_deref().unwrap_or_default();
    tracing::info!("garbage collection: {name} goes, its owners have gone");
    accept_gone(api.delete(name, &params).await.map(drop))
}

async fn write_owners(api: &Api<Meta>, live: &Meta, gone: &[Uid]) -> Result<(), kube::Error> {
    let left: Vec<&OwnerReference> =
        live.metadata.owner_references.iter().flatten().filter(|owner| !gone.contains(&owner.uid)).collect();
    // In a merge patch null removes: an empty list would stay as one.
    let left = (!left.is_empty()).then_some(left);
    write_meta(api, live, serde_json::json!({"ownerReferences": left})).await
}

async fn write_finalizers(api: &Api<Meta>, live: &Meta, without: &str) -> Result<(), kube::Error> {
    let left: Vec<&String> =
        live.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != without).collect();
    let left = (!left.is_empty()).then_some(left);
    write_meta(api, live, serde_json::json!({"finalizers": left})).await
}

async fn write_meta(api: &Api<Meta>, live: &Meta, mut meta: serde_json::Value) -> Result<(), kube::Error> {
    if let Some(meta) = meta.as_object_mut() {
        meta.insert("uid".to_owned(), serde_json::json!(live.metadata.uid));
        meta.insert("resourceVersion".to_owned(), serde_json::json!(live.metadata.resource_version));
    }
    let name = live.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(serde_json::json!({"metadata": meta}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Err(error) if has_code(&error, &[404]) => Ok(()),
        other => other.map(drop),
    }
}

fn accept_gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if has_code(&error, &[404]) => Ok(()),
        other => other,
    }
}
