//! What watchers are told: a change of one object, and how it looks through a filter. Pure.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::marks::Marks;
use super::object::{Kind, Object};
use crate::{Key, Revision};

/// Decides on an object by its header or content. It runs where events are published, so it must be quick.
pub type Selector = Arc<dyn Fn(&Object) -> bool + Send + Sync>;

/// Which objects of a resource a list or a watch is about.
#[derive(Clone, Default)]
pub struct Filter {
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only of this name.
    pub name: Option<String>,
    /// Only what this accepts.
    pub select: Option<Selector>,
    /// Labels without which that accepts nothing, so that lists can pass over most objects unseen.
    pub marks: Marks,
}

impl Filter {
    /// Everything in a namespace, or everywhere.
    #[must_use]
    pub fn of(namespace: Option<&str>) -> Filter {
        Filter { namespace: namespace.map(str::to_owned), name: None, select: None, marks: Marks::default() }
    }

    /// The same, and only what `select` accepts.
    #[must_use]
    pub fn selecting(self, select: impl Fn(&Object) -> bool + Send + Sync + 'static) -> Filter {
        Filter { select: Some(Arc::new(select)), ..self }
    }

    /// The same, when what selects accepts nothing that lacks one of these labels.
    #[must_use]
    pub fn needing(self, marks: Marks) -> Filter {
        Filter { marks, ..self }
    }

    /// Whether objects at `key` can be meant at all.
    pub(super) fn covers(&self, key: &Key) -> bool {
        self.namespace.as_deref().is_none_or(|n| key.namespace() == Some(n))
            && self.name.as_deref().is_none_or(|n| key.name() == n)
    }

    /// Whether `object` is meant.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        self.covers(object.key()) && self.select.as_ref().is_none_or(|select| select(object))
    }

    /// How `notice` looks to someone who sees only what matches: entering is being added, leaving is being deleted.
    pub(super) fn view(&self, notice: &Arc<Notice>) -> Option<Delivery> {
        if !self.covers(notice.object.key()) {
            return None;
        }
        let selected = |object: &Object| self.select.as_ref().is_none_or(|select| select(object));
        let before = notice.previous.as_deref().is_some_and(selected);
        let after = notice.kind != Kind::Deleted && selected(&notice.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => Kind::Added,
            (true, true) => Kind::Modified,
            (true, false) => Kind::Deleted,
        };
        Some(Delivery { kind, notice: Arc::clone(notice) })
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Filter { namespace, name, select, marks: _ } = self;
        let select = select.as_ref().map(|_| "…");
        f.debug_struct("Filter").field("namespace", namespace).field("name", name).field("select", &select).finish()
    }
}

/// A change of one object, shared by all who are told of it.
#[derive(Debug)]
pub struct Notice {
    kind: Kind,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    /// Other ways to show it, made when first needed; boxed, because most notices never need them.
    views: OnceLock<Box<Views>>,
}

/// How a notice looks to those whose selection its object enters or leaves.
#[derive(Debug, Default)]
struct Views {
    /// The previous content at this revision.
    left: OnceLock<Object>,
    /// The frame that adds an object which is not new.
    entered: OnceLock<Bytes>,
}

impl Notice {
    /// `object` was put where `previous` was.
    pub(super) fn put(object: Arc<Object>, previous: Option<Arc<Object>>) -> Notice {
        let kind = if previous.is_some() { Kind::Modified } else { Kind::Added };
        Notice { kind, object, previous, views: OnceLock::new() }
    }

    /// `previous` was deleted at `revision`.
    pub(super) fn deleted(previous: Arc<Object>, revision: Revision) -> Notice {
        let object = Arc::new(previous.restamp(Kind::Deleted, revision));
        let kind = Kind::Deleted;
        Notice { kind, object, previous: Some(previous), views: OnceLock::new() }
    }

    /// What happened, unfiltered.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// When it happened.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.object.revision()
    }

    /// The object after the change; of a deleted object its last content at the deletion's revision.
    #[must_use]
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The object before the change.
    #[must_use]
    pub fn previous(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    fn views(&self) -> &Views {
        self.views.get_or_init(Box::default)
    }

    /// Bytes it keeps alive, about, not counting what the notice before it keeps alive.
    pub(super) fn size(&self) -> usize {
        self.object.size() + 100
    }
}

/// A notice as one watcher sees it.
#[derive(Debug, Clone)]
pub struct Delivery {
    kind: Kind,
    notice: Arc<Notice>,
}

impl Delivery {
    /// What to tell the watcher.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What happened, unfiltered.
    #[must_use]
    pub fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    /// When it happened.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.notice.revision()
    }

    /// The object to show: the new one, or what was last seen of it, at this event's revision.
    #[must_use]
    pub fn object(&self) -> &Object {
        let Notice { kind, object, previous, views: _ } = &*self.notice;
        match (self.kind, kind, previous) {
            (Kind::Deleted, Kind::Added | Kind::Modified, Some(previous)) => {
                self.notice.views().left.get_or_init(|| previous.restamp(Kind::Deleted, object.revision()))
            }
            (Kind::Added | Kind::Modified | Kind::Deleted, Kind::Added | Kind::Modified | Kind::Deleted, _) => object,
        }
    }

    /// The encoded frame, `{"type":…,"object":…}` and a line feed, shared by all watchers that see the same.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        match (self.kind, self.notice.kind) {
            (Kind::Added, Kind::Modified) => {
                self.notice.views().entered.get_or_init(|| self.notice.object.frame(Kind::Added)).clone()
            }
            (kind, _) => self.object().frame(kind),
        }
    }
}
