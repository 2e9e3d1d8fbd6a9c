//! What a write does to ownership, and what an apply does to the object (KEP-555).
//!
//! Every write that changes a field makes its manager the owner and takes the field from the others. An apply says what its manager
//! wants to own: what it said before and leaves out now goes, unless another manager owns it as well; what another one owns with another
//! value is a conflict.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::fields::{Path, Set};
use crate::managed::{Managed, Manager, Operation, Owned, is_reset};
use crate::schema::Node;
use crate::typed::{self, Comparison, Faults};

/// Most managers of updates; the oldest beyond it are folded into one.
const UPDATERS_MAX: usize = 10;
/// Who owns what several old updaters owned.
const ANCIENT: &str = "ancient-changes";
/// Who owns what was there before somebody applied for the first time.
const BEFORE_APPLY: &str = "before-first-apply";
/// Of metadata, what belongs to the server.
const SERVERS: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The versions a kind is served in. Who owns what is written down in the version it was written in, and compared there.
pub trait Versions: std::fmt::Debug {
    /// The schema of a version; `None`: it is not served (any more).
    fn node(&self, api_version: &str) -> Option<&Node>;
    /// An object of one served version in another.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Value;
}

/// A kind that is served in no other version than the frame's.
#[derive(Clone, Copy, Debug)]
pub struct Single;

impl Versions for Single {
    fn node(&self, _api_version: &str) -> Option<&Node> {
        None
    }

    fn convert(&self, object: &Value, _from: &str, _to: &str) -> Value {
        object.clone()
    }
}

/// A kind as ownership sees it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its schema.
    pub node: &'a Node,
    /// The version the objects are in.
    pub api_version: &'a str,
    /// Its other versions.
    pub versions: &'a dyn Versions,
    /// What this endpoint does not write: `status` for the object, `spec` for its status.
    pub reset: &'a Set,
}

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    /// Field manager; empty: unknown.
    pub name: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// RFC 3339, UTC, seconds; empty where the time is not written down, as Kubernetes does it for `/scale`.
    pub now: &'a str,
}

/// A field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who.
    pub manager: Manager,
    /// Which field.
    pub path: Path,
}

/// Why an object is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What is applied does not fit the schema.
    #[error("failed to create typed patch object: {0}")]
    Patch(Faults),
    /// What is stored has ownership that cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managed(#[from] crate::managed::Error),
    /// Others own some of it.
    #[error("{}", message(.0))]
    Conflicts(Vec<Conflict>),
}

/// The sentence about conflicts, by manager.
#[must_use]
pub fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
    }
    // Of one manager's entries those of subresources come first: Kubernetes sorts by their encoded form.
    let order = |manager: &Manager| {
        let Manager { name, operation, api_version, subresource } = manager.clone();
        (name, operation, api_version, subresource.is_empty(), subresource)
    };
    let mut by_manager: BTreeMap<_, (&Manager, Vec<&Path>)> = BTreeMap::new();
    for conflict in conflicts {
        let entry = by_manager.entry(order(&conflict.manager)).or_insert((&conflict.manager, Vec::new()));
        entry.1.push(&conflict.path);
    }
    let lines = by_manager.into_values().flat_map(|(manager, paths)| {
        let paths = paths.into_iter().map(|path| format!("- {path}"));
        std::iter::once(format!("conflicts with {manager}:")).chain(paths)
    });
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.collect::<Vec<_>>().join("\n"))
}

impl<'a> Frame<'a> {
    fn owned(&self, set: Set, time: Option<String>) -> Owned {
        Owned { set, api_version: self.api_version.to_owned(), time }
    }

    fn manager(&self, name: &str, operation: Operation, author: &Author<'_>) -> Manager {
        let name = if name.is_empty() { "unknown" } else { name };
        Manager::of(name, operation, self.api_version, author.subresource)
    }

    /// The schema of a version, this one or another.
    fn node_of(&self, api_version: &str) -> Option<&'a Node> {
        if api_version == self.api_version { Some(self.node) } else { self.versions.node(api_version) }
    }

    /// What a change changed, seen in another version; `None`: the version is not served.
    fn compared(&self, api_version: &str, old: &Value, new: &Value) -> Option<Comparison> {
        let node = self.versions.node(api_version)?;
        let there = |object: &Value| plain(&self.versions.convert(object, self.api_version, api_version));
        Some(typed::compare(node, &there(old), &there(new)).without(self.reset))
    }
}

/// A change, as each version sees it. Other versions than the frame's are looked at only when somebody owns fields there.
struct Seen<'a> {
    frame: Frame<'a>,
    old: &'a Value,
    new: &'a Value,
    own: Comparison,
    others: BTreeMap<String, Option<Comparison>>,
}

impl<'a> Seen<'a> {
    fn new(frame: Frame<'a>, old: &'a Value, new: &'a Value) -> Self {
        let own = typed::compare(frame.node, old, new).without(frame.reset);
        Self { frame, old, new, own, others: BTreeMap::new() }
    }

    /// The change in a version; `None`: it is not served any more.
    fn within(&mut self, api_version: &str) -> Option<&Comparison> {
        if api_version == self.frame.api_version {
            return Some(&self.own);
        }
        if !self.others.contains_key(api_version) {
            let found = self.frame.compared(api_version, self.old, self.new);
            self.others.insert(api_version.to_owned(), found);
        }
        self.others.get(api_version)?.as_ref()
    }
}

/// The managers after a write that is no apply. `live` is `None` when the object is made.
///
/// An object nobody has tracked so far stays untracked. Through a subresource nobody can change the list itself.
#[must_use]
pub fn update(frame: Frame<'_>, live: Option<&Value>, new: &Value, author: Author<'_>) -> Managed {
    let managed = decode(live, new, !author.subresource.is_empty());
    if managed.0.is_empty() && live.is_some() {
        return managed;
    }
    let empty = json!({});
    updated(frame, live.unwrap_or(&empty), new, managed, author)
}

/// From the new object, or, where that has none or nonsense, from the live one.
fn decode(live: Option<&Value>, new: &Value, is_subresource: bool) -> Managed {
    let of_live = || Managed::decode(live.and_then(list_of)).unwrap_or_default();
    if is_subresource {
        return of_live();
    }
    if is_reset(list_of(new)) {
        return Managed::default();
    }
    Managed::decode(list_of(new)).ok().filter(|managed| !managed.0.is_empty()).unwrap_or_else(of_live)
}

fn list_of(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/managedFields")
}

fn updated(frame: Frame<'_>, live: &Value, new: &Value, mut managed: Managed, author: Author<'_>) -> Managed {
    let mut seen = Seen::new(frame, live, new);
    take(&mut managed, &mut seen, None);
    let taken = seen.own.modified.union(&seen.own.added).difference(&SERVERS_OWN);
    if !taken.is_empty() {
        let manager = frame.manager(author.name, Operation::Update, &author);
        let (before, since) = managed.0.remove(&manager).map(|owned| (owned.set, owned.time)).unwrap_or_default();
        let now = Some(author.now.to_owned()).filter(|now| !now.is_empty());
        managed.0.insert(manager, frame.owned(taken.union(&before), now.or(since)));
    }
    cap(&mut managed);
    managed
}

/// What changed is no longer the others', and what went is nobody's. Entries of versions that are not served any more are dropped.
fn take(managed: &mut Managed, seen: &mut Seen<'_>, except: Option<&Manager>) {
    let mut changed: BTreeMap<String, Option<Set>> = BTreeMap::new();
    managed.0.retain(|manager, owned| {
        if Some(manager) == except {
            return !owned.set.is_empty();
        }
        if !changed.contains_key(&owned.api_version) {
            let found = seen.within(&owned.api_version);
            let all = found.map(|found| found.modified.union(&found.added).union(&found.removed));
            changed.insert(owned.api_version.clone(), all);
        }
        let Some(Some(changed)) = changed.get(&owned.api_version) else { return false };
        owned.set = owned.set.difference(changed);
        !owned.set.is_empty()
    });
}

/// Folds the oldest updaters together, each version for itself, until there are few enough.
fn cap(managed: &mut Managed) {
    let is_update = |(manager, _): &(&Manager, &Owned)| manager.operation == Operation::Update;
    let mut updaters: Vec<(Option<String>, Manager)> =
        managed.0.iter().filter(is_update).map(|(manager, owned)| (owned.time.clone(), manager.clone())).collect();
    updaters.sort();
    let mut count = updaters.len();
    let mut first: BTreeMap<String, Manager> = BTreeMap::new();
    for (time, manager) in updaters {
        if count <= UPDATERS_MAX {
            return;
        }
        let version = manager.api_version.clone();
        let Some(oldest) = first.get(&version) else {
            first.insert(version, manager);
            continue;
        };
        let bucket = Manager::of(ANCIENT, Operation::Update, &version, "");
        if !managed.0.contains_key(&bucket)
            && let Some(owned) = managed.0.remove(oldest)
        {
            managed.0.insert(bucket.clone(), owned);
        }
        if let Some(folded) = managed.0.remove(&manager)
            && let Some(owned) = managed.0.get_mut(&bucket)
        {
            owned.set = owned.set.union(&folded.set);
            owned.time = time;
            count -= 1;
        }
    }
}

/// An object after an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The object, without its managers.
    pub object: Value,
    /// Its managers.
    pub managed: Managed,
    /// Whether anything but the managers is another than before.
    pub is_changed: bool,
}

/// Applies a configuration to the live object; `None`: there is none, and it is made.
///
/// # Errors
/// The configuration does not fit the schema, or others own what it changes and it is not forced.
pub fn apply(
    frame: Frame<'_>,
    live: Option<&Value>,
    config: &Value,
    author: Author<'_>,
    force: bool,
) -> Result<Applied, Error> {
    let config = plain(config);
    typed::check(frame.node, &config).map_err(Error::Patch)?;
    let mut managed = Managed::decode(live.and_then(list_of))?;
    let bare = bare(&config);
    if managed.0.is_empty()
        && let Some(live) = live
    {
        managed = updated(frame, &bare, live, managed, Author { name: BEFORE_APPLY, ..author });
    }
    let live = live.map_or(bare, plain);
    let manager = frame.manager(author.name, Operation::Apply, &author);
    let last = managed.0.remove(&manager);
    let time = last.as_ref().and_then(|last| last.time.clone());
    let set = typed::places(frame.node, &config).recursive_difference(frame.reset);
    managed.0.insert(manager.clone(), frame.owned(set, time));
    let merged = typed::merge(frame.node, Some(&live), Some(&config)).unwrap_or_default();
    let object = match last {
        Some(last) => prune(frame, merged, &managed, &last),
        None => merged,
    };
    let mut seen = Seen::new(frame, &live, &object);
    let conflicts = conflicts(&managed, &mut seen, &manager);
    if !force && !conflicts.is_empty() {
        return Err(Error::Conflicts(conflicts));
    }
    take(&mut managed, &mut seen, Some(&manager));
    let is_changed = crate::fields::order(&live, &object).is_ne();
    settle(&mut managed, &manager, is_changed.then_some(author.now).filter(|now| !now.is_empty()));
    Ok(Applied { object, managed, is_changed })
}

/// The applier does not own what is the server's, and its entry is as old as its last change.
fn settle(managed: &mut Managed, manager: &Manager, now: Option<&str>) {
    let Some(mut owned) = managed.0.remove(manager) else { return };
    owned.set = owned.set.difference(&SERVERS_OWN);
    owned.time = now.map(str::to_owned).or(owned.time);
    if !owned.set.is_empty() {
        managed.0.insert(manager.clone(), owned);
    }
}

fn conflicts(managed: &Managed, seen: &mut Seen<'_>, applier: &Manager) -> Vec<Conflict> {
    let others = managed.0.iter().filter(|(manager, _)| *manager != applier);
    let paths = others.flat_map(|(manager, owned)| {
        let changed = seen.within(&owned.api_version).map(|found| found.modified.union(&found.added));
        let shared = owned.set.intersection(&changed.unwrap_or_default()).paths();
        shared.into_iter().map(|path| Conflict { manager: manager.clone(), path })
    });
    paths.collect()
}

/// Takes away what the manager applied last time and does not apply now, unless somebody else owns it, or nobody has ever.
/// All of it is decided in the version it was applied in last time; if that is not served any more, everything stays.
fn prune(frame: Frame<'_>, merged: Value, managed: &Managed, last: &Owned) -> Value {
    let version = last.api_version.as_str();
    let Some(node) = frame.node_of(version) else { return merged };
    let there = between(frame, frame.api_version, version, merged);
    let last = typed::named(node, &last.set);
    let pruned = typed::remove(node, &there, &last);
    let pruned = add_back_owned(frame, version, &there, pruned, managed);
    let all = typed::named(node, &typed::places(node, &there));
    let left = typed::named(node, &typed::places(node, &pruned));
    let pruned = typed::remove(node, &there, &all.difference(&left).intersection(&last));
    between(frame, version, frame.api_version, pruned)
}

/// Puts back into `pruned`, both in `version`, what managers own; first what they own in that version, then version by version.
fn add_back_owned(frame: Frame<'_>, version: &str, merged: &Value, mut pruned: Value, managed: &Managed) -> Value {
    let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
    for entry in managed.0.values() {
        let set = owned.entry(&entry.api_version).or_default();
        *set = set.union(&entry.set);
    }
    let here = owned.remove_entry(version);
    for (of, set) in here.into_iter().chain(owned) {
        let Some(node) = frame.node_of(of) else { continue };
        let elsewhere = (of != version).then(|| between(frame, version, of, merged.clone()));
        let merged = elsewhere.as_ref().unwrap_or(merged);
        let left = between(frame, version, of, pruned);
        let all = typed::named(node, &typed::places(node, merged));
        let kept = typed::named(node, &typed::places(node, &left)).union(&typed::named(node, &set));
        pruned = between(frame, of, version, typed::remove(node, merged, &all.difference(&kept)));
    }
    pruned
}

/// An object of one version in another; the same where they are the same.
fn between(frame: Frame<'_>, from: &str, to: &str, object: Value) -> Value {
    if from == to { object } else { frame.versions.convert(&object, from, to) }
}

/// What no manager owns.
static SERVERS_OWN: LazyLock<Set> = LazyLock::new(|| {
    let metadata = SERVERS.iter().map(|name| Path::of(&["metadata", name]));
    let top = ["apiVersion", "kind", "metadata"].map(|name| Path::of(&[name]));
    Set::of(top.into_iter().chain(metadata))
});

/// Without the list of managers, which nobody owns.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// An object of the kind with nothing in it.
fn bare(object: &Value) -> Value {
    let kept = |name: &str| object.get(name).map(|value| (name.to_owned(), value.clone()));
    Value::Object(["apiVersion", "kind"].into_iter().filter_map(kept).collect::<Map<String, Value>>())
}

/// Fields that an object was applied with by an old kubectl, as its annotation tells, and that are still the same.
#[must_use]
pub fn still_as(node: &Node, last: &Value, live: &Value) -> Set {
    let found = typed::compare(node, last, &plain(live));
    let changed = found.modified.union(&found.added).union(&found.removed);
    typed::places(node, last).difference(&changed)
}

/// Conflicts about other fields than these.
#[must_use]
pub fn beyond(conflicts: Vec<Conflict>, allowed: &Set) -> Vec<Conflict> {
    conflicts.into_iter().filter(|conflict| !allowed.has(&conflict.path.0)).collect()
}

#[cfg(test)]
mod tests;
