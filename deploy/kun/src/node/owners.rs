//! Garbage collection, the pure part: a graph of objects and their owners, and the verdict on one object.
//!
//! The graph says what to look at; what is done is decided on live answers of the API (`collect.rs`), and an owner whose
//! state is not known keeps its dependents: unknown is not absent.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Finalizer of an owner whose dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are set free first.
pub const ORPHAN: &str = "orphan";

/// An object's uid.
pub type Uid = String;

/// What the graph remembers of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Index of its resource in the collector's list.
    pub resource: usize,
    /// Namespace, empty for none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who owns it: (uid, whether it blocks the owner's foreground deletion).
    pub owners: BTreeMap<Uid, bool>,
    /// Whether it is being deleted and waits for its dependents, in one way or the other.
    pub waits: Option<Waits>,
}

/// Why an object that is being deleted waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For its dependents' deletion.
    Foreground,
    /// For its dependents' release.
    Orphan,
}

impl Item {
    /// Reads an object's metadata.
    #[must_use]
    pub fn new(resource: usize, meta: &ObjectMeta) -> Self {
        let owners = meta.owner_references.iter().flatten();
        Self {
            resource,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            owners: owners.map(|owner| (owner.uid.clone(), owner.block_owner_deletion == Some(true))).collect(),
            waits: waits(meta),
        }
    }
}

/// Whether an object being deleted waits for the collector.
#[must_use]
pub fn waits(meta: &ObjectMeta) -> Option<Waits> {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    match meta.deletion_timestamp {
        Some(_) if has(ORPHAN) => Some(Waits::Orphan),
        Some(_) if has(FOREGROUND) => Some(Waits::Foreground),
        Some(_) | None => None,
    }
}

/// All objects by uid, and who depends on whom.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    items: BTreeMap<Uid, Item>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl Graph {
    /// Takes in an object; returns what has to be looked at because of it.
    pub fn apply(&mut self, uid: &Uid, item: Item) -> BTreeSet<Uid> {
        let mut look = BTreeSet::new();
        let before = self.items.get(uid).cloned();
        if before.as_ref() == Some(&item) {
            return look;
        }
        let old_owners: BTreeSet<&Uid> = before.iter().flat_map(|item| item.owners.keys()).collect();
        for owner in old_owners.iter().filter(|owner| !item.owners.contains_key(**owner)) {
            self.forget(owner, uid);
            look.insert((*owner).clone());
        }
        for owner in item.owners.keys() {
            self.dependents.entry(owner.clone()).or_default().insert(uid.clone());
            // An owner that is not in the graph may be gone, or not be seen yet: the live look tells.
            if !self.items.contains_key(owner) || self.items.get(owner).is_some_and(|owner| owner.waits.is_some()) {
                look.insert(uid.clone());
            }
        }
        if item.waits.is_some() {
            look.insert(uid.clone());
        }
        self.items.insert(uid.clone(), item);
        look
    }

    /// An object has gone; returns what has to be looked at because of it: its dependents, and owners that waited for it.
    pub fn remove(&mut self, uid: &Uid) -> BTreeSet<Uid> {
        let mut look = self.dependents.get(uid).cloned().unwrap_or_default();
        if let Some(item) = self.items.remove(uid) {
            for owner in item.owners.keys() {
                self.forget(owner, uid);
                look.insert(owner.clone());
            }
        }
        look
    }

    fn forget(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(all) = self.dependents.get_mut(owner) {
            all.remove(dependent);
            if all.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// An object.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(uid)
    }

    /// The objects that name `uid` as an owner, and whether each blocks its foreground deletion.
    #[must_use]
    pub fn dependents(&self, uid: &str) -> Vec<(Uid, bool)> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter_map(|dependent| Some((dependent.clone(), *self.items.get(dependent)?.owners.get(uid)?))).collect()
    }

    /// The uids of a resource.
    #[must_use]
    pub fn of_resource(&self, resource: usize) -> BTreeSet<Uid> {
        self.items.iter().filter(|(_, item)| item.resource == resource).map(|(uid, _)| uid.clone()).collect()
    }
}

/// What the API says about an owner now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there.
    Present,
    /// It is there, being deleted, and waits for its dependents to go first.
    WaitsForDependents,
    /// There is no object of that name and uid.
    Absent,
    /// The API did not say.
    Unknown,
}

/// What to do with a dependent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Nothing now; look again later.
    LookAgain,
    /// It has an owner left: only the references to these go.
    Release(Vec<Uid>),
    /// It goes, in the background, or after its own dependents.
    Delete {
        /// Whether its own dependents go first.
        foreground: bool,
    },
}

/// Judges an object by the live state of its owners.
#[must_use]
pub fn judge(owners: &[(OwnerReference, OwnerState)], deleting: bool, has_dependents: bool) -> Verdict {
    let with = |state: OwnerState| owners.iter().filter(move |(_, s)| *s == state);
    if owners.is_empty() || deleting {
        return Verdict::Keep;
    }
    if with(OwnerState::Unknown).next().is_some() {
        return Verdict::LookAgain;
    }
    let present = with(OwnerState::Present).count();
    let waiting = with(OwnerState::WaitsForDependents).count();
    let gone: Vec<Uid> =
        owners.iter().filter(|(_, state)| *state != OwnerState::Present).map(|(owner, _)| owner.uid.clone()).collect();
    match (present, waiting, gone.is_empty()) {
        (_, _, true) => Verdict::Keep,
        (1.., _, false) => Verdict::Release(gone),
        (0, 1.., false) => Verdict::Delete { foreground: has_dependents },
        (0, 0, false) => Verdict::Delete { foreground: false },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn owner(uid: &str, state: OwnerState) -> (OwnerReference, OwnerState) {
        (OwnerReference { uid: uid.into(), ..OwnerReference::default() }, state)
    }

    fn item(owners: &[(&str, bool)], waits: Option<Waits>) -> Item {
        Item {
            resource: 0,
            namespace: "ns".into(),
            name: "x".into(),
            owners: owners.iter().map(|(uid, blocks)| ((*uid).to_owned(), *blocks)).collect(),
            waits,
        }
    }

    fn uids(uids: &[&str]) -> BTreeSet<Uid> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn an_object_goes_only_when_every_owner_is_known_to_be_absent() {
        use OwnerState::{Absent, Present, Unknown, WaitsForDependents as Waiting};
        let go = Verdict::Delete { foreground: false };
        for (states, deleting, expected) in [
            (vec![], false, Verdict::Keep),
            (vec![Present], false, Verdict::Keep),
            (vec![Absent], false, go.clone()),
            (vec![Absent, Absent], false, go.clone()),
            (vec![Absent], true, Verdict::Keep),
            (vec![Absent, Unknown], false, Verdict::LookAgain),
            (vec![Unknown], false, Verdict::LookAgain),
            (vec![Present, Absent], false, Verdict::Release(vec!["1".into()])),
            (vec![Present, Waiting], false, Verdict::Release(vec!["1".into()])),
            (vec![Waiting], false, go),
        ] {
            let owners: Vec<_> = states.iter().enumerate().map(|(n, state)| owner(&n.to_string(), *state)).collect();
            assert_eq!(judge(&owners, deleting, false), expected, "{states:?}");
        }
        let waiting = [owner("0", Waiting)];
        assert_eq!(
            judge(&waiting, false, true),
            Verdict::Delete { foreground: true },
            "its own dependents go before it"
        );
    }

    #[test]
    fn the_end_of_an_owner_brings_up_its_dependents_and_the_end_of_a_dependent_its_waiting_owner() {
        let mut graph = Graph::default();
        assert_eq!(graph.apply(&"set".into(), item(&[], None)), uids(&[]));
        assert_eq!(graph.apply(&"pod".into(), item(&[("set", true)], None)), uids(&[]));
        assert_eq!(graph.dependents("set"), [("pod".to_owned(), true)]);
        assert_eq!(graph.apply(&"set".into(), item(&[], Some(Waits::Foreground))), uids(&["set"]));
        assert_eq!(graph.remove(&"pod".into()), uids(&["set"]));
        assert_eq!(graph.dependents("set"), []);
        graph.apply(&"pod2".into(), item(&[("set", false)], None));
        assert_eq!(graph.remove(&"set".into()), uids(&["pod2"]));
    }

    #[test]
    fn an_object_that_names_an_unseen_owner_is_looked_at_once() {
        let mut graph = Graph::default();
        assert_eq!(graph.apply(&"pod".into(), item(&[("gone", true)], None)), uids(&["pod"]));
        assert_eq!(graph.apply(&"pod".into(), item(&[("gone", true)], None)), uids(&[]));
        assert_eq!(
            graph.apply(&"pod".into(), item(&[], None)),
            uids(&["gone"]),
            "a released dependent frees its owner"
        );
    }
}
