//! A recorded history, and what is wrong with it: the nine properties of a watch, and linearizability of every object.
//!
//! Pure. It knows no store: whoever records says when each request began and ended, what it was told, and what each watch
//! was shown, in the order of one clock. It shares no code with what it judges, so that both cannot be wrong alike.
#![allow(dead_code, reason = "each test uses a part of it")]

mod objects;
mod truth;
mod unseen;
mod watches;

use std::collections::BTreeMap;
use std::fmt;

use self::truth::Truth;

/// Order of requests, from one counter: smaller is earlier.
pub(crate) type Instant = u64;

/// A point on the store's one clock.
pub(crate) type Revision = u64;

/// What a key holds: the revision of its last write and a text no other write has; none when nothing.
pub(crate) type Seen = Option<(Revision, String)>;

/// Everything that was asked, answered and shown, beginning with an empty store.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) requests: Vec<Request>,
    pub(crate) lists: Vec<List>,
    pub(crate) watches: Vec<Watch>,
}

/// One request about one key.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) begin: Instant,
    /// [`Instant::MAX`] when no answer came.
    pub(crate) end: Instant,
    pub(crate) key: String,
    pub(crate) call: Call,
    pub(crate) answer: Answer,
    /// Whether it is one of several writes of one transaction, which share a revision.
    pub(crate) in_transaction: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Create { value: String },
    Update { expected: Revision, value: String },
    Delete { expected: Revision },
    Get,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Written(Revision),
    /// Not done, because of what was found.
    Refused(Seen),
    /// Not done; what was found is not said.
    Declined,
    Read(Seen),
    /// Done; at which revision is for watches to tell.
    Done,
    /// Nobody knows whether it was done.
    Unknown,
}

/// A list that had to see everything acknowledged before it.
#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    pub(crate) filter: Filter,
    pub(crate) revision: Revision,
    pub(crate) items: BTreeMap<String, (Revision, String)>,
}

/// What a list or a watch is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Keys that begin so.
    pub(crate) prefix: String,
    /// Values that begin so.
    pub(crate) value: String,
}

impl Filter {
    fn shows<'a>(&self, key: &str, seen: &'a Seen) -> Option<&'a (Revision, String)> {
        let in_sight = |held: &&(Revision, String)| key.starts_with(&self.prefix) && held.1.starts_with(&self.value);
        seen.as_ref().filter(in_sight)
    }
}

/// One watch, from its start to wherever it ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    pub(crate) name: String,
    /// It is about what happens after this.
    pub(crate) from: Revision,
    pub(crate) filter: Filter,
    pub(crate) records: Vec<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// Events that came together.
    Events(Vec<Event>),
    /// Everything up to here was shown.
    Bookmark(Revision),
}

/// One event as it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    pub(crate) revision: Revision,
    /// The new value; of what is gone the last one.
    pub(crate) value: String,
    /// What it replaced, if that was said.
    pub(crate) previous: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not shown before.
    Added,
    Modified,
    /// Not shown any more.
    Deleted,
}

/// What every history must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Property {
    /// A watch never goes back.
    Ordered,
    /// No event comes twice in a watch.
    Unique,
    /// What was written together comes together.
    Atomic,
    /// Between the first event shown and the last nothing is missing, and everything shown was written.
    Reliable,
    /// A watch begins with the first event after its start.
    Resumable,
    /// Nothing up to a bookmark comes after it, or not at all.
    Bookmarkable,
    /// An event says what it replaced.
    PreviousValue,
    /// An event says whether its object is new, changed or gone.
    IsCreate,
    /// What was not asked for is not shown.
    Filter,
    /// There is one order of all writes, in which every answer is right, and which time does not contradict.
    Linearizable,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) what: String,
}

impl Violation {
    fn new(property: Property, what: impl Into<String>) -> Violation {
        Violation { property, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.what)
    }
}

/// Everything that is wrong with a history.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let (truth, mut violations) = Truth::of(history);
    violations.extend(objects::check(history, &truth));
    for watch in &history.watches {
        violations.extend(watches::check(watch, &truth));
    }
    violations
}
