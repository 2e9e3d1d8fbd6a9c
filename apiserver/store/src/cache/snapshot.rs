//! All objects of one resource at a revision. Pure: a snapshot is cloned for the price of a pointer, and applying an
//! event changes only the clone.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};

use super::Error;
use super::header::Describe;
use super::notice::{Filter, Notice};
use super::object::{Entry, Kind, Object};
use crate::{Change, Event, Key, Range, Revision, Seals, Stored};

/// How stored values of a resource become objects.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) describe: &'a dyn Describe,
    /// What opens the values; none if they are not sealed.
    pub(super) seals: Option<&'a Seals>,
}

impl Reading<'_> {
    /// An object as it was found.
    pub(super) fn loaded(self, key: &Key, stored: &Stored) -> Result<Object, String> {
        self.object(Kind::Added, key, stored.revision, &stored.value)
    }

    fn object(self, kind: Kind, key: &Key, revision: Revision, value: &Bytes) -> Result<Object, String> {
        let Some(seals) = self.seals else { return Object::encode(kind, key.clone(), revision, value, self.describe) };
        let opened = seals.open(key, value)?;
        let object = Object::encode(kind, key.clone(), revision, &opened.value, self.describe)?;
        Ok(object.stale_if(opened.is_stale))
    }
}

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Which objects.
    pub filter: Filter,
    /// Exactly as of this revision; absent = as of now.
    pub at: Option<Revision>,
    /// At most so many items, but at least one; absent = all.
    pub limit: Option<usize>,
    /// Only objects after this key. With `at`, what an earlier page gave as `next`.
    pub after: Option<Key>,
    /// How many items earlier pages held, so that the rest need not be counted.
    pub served: usize,
}

/// A list, or one page of it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The objects in key order: by namespace, then by name.
    pub items: Vec<Arc<Object>>,
    /// The revision the list is exact at.
    pub revision: Revision,
    /// Present when more may follow: the key to continue after.
    pub next: Option<Key>,
    /// How many objects follow this page; none when a name or a selector makes that unknown.
    pub remaining: Option<usize>,
}

/// All objects of one resource at a revision.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    resource: Arc<str>,
    /// The newest change in it. It is exact from here up to the next change.
    changed: Revision,
    objects: OrdSet<Entry>,
    namespaces: OrdMap<Arc<str>, usize>,
    /// Keys whose values cannot be read. While there are any, lists fail: an incomplete list is a lie that others act
    /// upon.
    undecodable: OrdMap<Key, Arc<str>>,
}

impl Snapshot {
    /// Without objects, as of `revision`.
    pub(super) fn empty(resource: Arc<str>, revision: Revision) -> Snapshot {
        let (objects, namespaces, undecodable) = (OrdSet::new(), OrdMap::new(), OrdMap::new());
        Snapshot { resource, changed: revision, objects, namespaces, undecodable }
    }

    /// The newest change in it.
    pub(super) fn changed(&self) -> Revision {
        self.changed
    }

    /// Adds an object read from the store, or why it cannot be read.
    pub(super) fn load(&mut self, key: Key, object: Result<Object, String>) {
        match object {
            Ok(object) => drop(self.insert(Arc::new(object))),
            Err(reason) => drop(self.undecodable.insert(key, reason.into())),
        }
    }

    /// Declares that everything up to `revision` has been loaded.
    pub(super) fn loaded(&mut self, revision: Revision) {
        self.changed = revision;
    }

    /// Applies a committed event. None when there is nothing that could be shown to a watcher.
    pub(super) fn apply(&mut self, event: &Event, reading: Reading<'_>) -> Option<Notice> {
        let Event { revision, key, change } = event;
        self.changed = *revision;
        self.undecodable.remove(key);
        match change {
            Change::Put { value, previous: _ } => {
                let kind = if self.get(key.text()).is_some() { Kind::Modified } else { Kind::Added };
                match reading.object(kind, key, *revision, value) {
                    Ok(object) => {
                        let object = Arc::new(object);
                        let previous = self.insert(Arc::clone(&object));
                        Some(Notice::put(object, previous))
                    }
                    Err(reason) => {
                        self.remove(key);
                        self.undecodable.insert(key.clone(), reason.into());
                        None
                    }
                }
            }
            Change::Delete { previous: _ } => self.remove(key).map(|previous| Notice::deleted(previous, *revision)),
        }
    }

    /// Takes back `notices`, newest first, so that the snapshot is what it was at `revision`.
    pub(super) fn roll_back<'a>(&mut self, notices: impl Iterator<Item = &'a Arc<Notice>>, revision: Revision) {
        for notice in notices {
            match notice.previous() {
                Some(previous) => drop(self.insert(Arc::clone(previous))),
                None => drop(self.remove(notice.object().key())),
            }
        }
        self.changed = revision;
    }

    /// The object at `key`.
    pub(super) fn read(&self, key: &Key) -> Result<Option<Arc<Object>>, Error> {
        match self.undecodable.get(key) {
            Some(reason) => Err(Error::Undecodable { key: key.clone(), reason: reason.to_string() }),
            None => Ok(self.get(key.text()).cloned()),
        }
    }

    /// Whether the same values of both cannot be read.
    pub(super) fn lacks_the_same_as(&self, other: &Snapshot) -> bool {
        self.undecodable.keys().eq(other.undecodable.keys())
    }

    /// Fails while any value cannot be read.
    pub(super) fn check_complete(&self) -> Result<(), Error> {
        match self.undecodable.get_min() {
            Some((key, reason)) => Err(Error::Undecodable { key: key.clone(), reason: reason.to_string() }),
            None => Ok(()),
        }
    }

    /// One page, reported as of `revision`.
    pub(super) fn list(&self, query: &Query, revision: Revision) -> Result<Listed, Error> {
        self.check_complete()?;
        let filter = &query.filter;
        let (from, to) = Range::of(&self.resource, filter.namespace.as_deref()).bounds();
        let after = query.after.as_ref().map(Key::text).filter(|after| *after >= from.as_str());
        if after.is_some_and(|after| after >= to.as_str()) {
            return Ok(Listed { items: Vec::new(), revision, next: None, remaining: None });
        }
        let start = after.map_or(Bound::Included(from.as_str()), Bound::Excluded);
        let mut rest = self
            .objects
            .range::<_, str>((start, Bound::Excluded(to.as_str())))
            .filter(|entry| entry.marks.may_hold(filter.marks))
            .map(|entry| &entry.object);
        let limit = query.limit.unwrap_or(usize::MAX).max(1);
        let items: Vec<Arc<Object>> =
            rest.by_ref().filter(|object| filter.matches(object)).take(limit).cloned().collect();
        let more = rest.next().is_some();
        let next = items.last().map(|object| object.key().clone()).filter(|_| more);
        let remaining = self.remaining(query, items.len()).filter(|_| more);
        Ok(Listed { items, revision, next, remaining })
    }

    fn remaining(&self, query: &Query, listed: usize) -> Option<usize> {
        let Filter { namespace, name, select, marks: _ } = &query.filter;
        if name.is_some() || select.is_some() {
            return None;
        }
        let total = match namespace {
            None => self.objects.len(),
            Some(namespace) => self.namespaces.get(namespace.as_str()).copied().unwrap_or(0),
        };
        total.checked_sub(query.served)?.checked_sub(listed)
    }

    fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get::<str>(key).map(|entry| &entry.object)
    }

    fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let namespace = object.key().namespace().map(str::to_owned);
        let previous = self.objects.insert(object.into()).map(|entry| entry.object);
        if let Some(namespace) = namespace.filter(|_| previous.is_none()) {
            let count = self.namespaces.get(namespace.as_str()).map_or(1, |count| count + 1);
            self.namespaces.insert(namespace.into(), count);
        }
        previous
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let previous = self.objects.remove::<str>(key.text()).map(|entry| entry.object)?;
        if let Some(namespace) = key.namespace() {
            match self.namespaces.get(namespace).copied() {
                None | Some(0 | 1) => drop(self.namespaces.remove(namespace)),
                Some(count) => drop(self.namespaces.insert(namespace.into(), count - 1)),
            }
        }
        Some(previous)
    }
}
