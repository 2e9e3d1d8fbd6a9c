//! What really happened: every write that was done, in the order of its revision. A write whose outcome nobody knows was
//! done if anybody was shown it.

use std::collections::BTreeMap;

use super::{
    Answer, Call, Event, History, Instant, Kind, Property, Record, Request, Revision, Seen, Violation, unseen,
};

/// One key's change at one revision.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub(super) revision: Revision,
    pub(super) key: String,
    pub(super) before: Seen,
    pub(super) after: Seen,
    /// When the write was asked for, and when it was answered.
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

/// All changes, in order.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) moments: Vec<Moment>,
}

impl Truth {
    /// Puts the writes of a history in order. What cannot be put in order is a violation.
    pub(super) fn of(history: &History) -> (Truth, Vec<Violation>) {
        let (mut done, mut violations) = told(history);
        done.sort_by(|(a, x, _), (b, y, _)| (a, &x.key).cmp(&(b, &y.key)));
        for pair in done.windows(2) {
            let [(a, x, _), (b, y, _)] = pair else { continue };
            if a == b && (x.key == y.key || !x.in_transaction || !y.in_transaction) {
                let what = format!("revision {a} was given to a write of {} and to one of {}", x.key, y.key);
                violations.push(Violation::new(Property::Linearizable, what));
            }
        }
        let mut state: BTreeMap<&str, (Revision, String)> = BTreeMap::new();
        let mut moments = Vec::with_capacity(done.len());
        for (revision, Request { begin, key, call, .. }, end) in done {
            let before = state.get(key.as_str()).cloned();
            let found = before.as_ref().map(|(revision, _)| *revision);
            let (expected, after) = match call {
                Call::Create { value } => (None, Some((revision, value.clone()))),
                Call::Update { expected, value } => (Some(*expected), Some((revision, value.clone()))),
                Call::Delete { expected } => (Some(*expected), None),
                Call::Get => continue,
            };
            if expected != found {
                let what = format!("{key} was written at {revision} expecting {expected:?} where {found:?} was");
                violations.push(Violation::new(Property::Linearizable, what));
            }
            match &after {
                Some(held) => drop(state.insert(key, held.clone())),
                None => drop(state.remove(key.as_str())),
            }
            moments.push(Moment { revision, key: key.clone(), before, after, begin: *begin, end });
        }
        (Truth { moments }, violations)
    }

    pub(super) fn at(&self, revision: Revision, key: &str) -> Option<&Moment> {
        let start = self.moments.partition_point(|moment| moment.revision < revision);
        let same = self.moments.iter().skip(start).take_while(|moment| moment.revision == revision);
        same.into_iter().find(|moment| moment.key == key)
    }

    /// What every key held right after a revision.
    pub(super) fn state(&self, revision: Revision) -> BTreeMap<String, (Revision, String)> {
        let mut state = BTreeMap::new();
        for Moment { key, after, .. } in self.moments.iter().take_while(|moment| moment.revision <= revision) {
            match after {
                Some(held) => drop(state.insert(key.clone(), held.clone())),
                None => drop(state.remove(key)),
            }
        }
        state
    }
}

/// A write that was done: at which revision, and when it was known.
pub(super) type Done<'a> = (Revision, &'a Request, Instant);

/// The writes that were done, in no order, and what was changed without anybody being shown how.
fn told(history: &History) -> (Vec<Done<'_>>, Vec<Violation>) {
    let mut done: Vec<Done<'_>> = Vec::new();
    let mut hidden: Vec<(&Request, Instant)> = Vec::new();
    for request in &history.requests {
        let (revision, known) = match request.answer {
            Answer::Written(revision) => (Some(revision), request.end),
            Answer::Done => (shown(history, request), request.end),
            Answer::Unknown => (shown(history, request), Instant::MAX),
            Answer::Refused(_) | Answer::Declined | Answer::Read(_) => continue,
        };
        match revision {
            Some(revision) => done.push((revision, request, known)),
            None => hidden.push((request, known)),
        }
    }
    hidden.sort_by_key(|(request, _)| request.begin);
    let mut violations = Vec::new();
    for (request, known) in hidden {
        match unseen::revision(history, &done, request) {
            Some(revision) => done.push((revision, request, known)),
            None if request.answer == Answer::Done => {
                let what = format!("{} was changed, and nobody was shown how: {:?}", request.key, request.call);
                violations.push(Violation::new(Property::Reliable, what));
            }
            None => {}
        }
    }
    (done, violations)
}

/// The value that a key had at a revision, as far as anybody was told: who wrote it, or, where that one got no answer, who read it.
pub(super) fn value_at<'a>(history: &'a History, key: &str, revision: Revision) -> Option<&'a String> {
    let told = history.requests.iter().filter(|request| request.key == key).find_map(|request| {
        match (&request.answer, &request.call) {
            (Answer::Written(at), Call::Create { value } | Call::Update { value, .. }) => {
                Some(value).filter(|_| *at == revision)
            }
            (Answer::Read(seen) | Answer::Refused(seen), _) => {
                seen.as_ref().filter(|(at, _)| *at == revision).map(|(_, value)| value)
            }
            (Answer::Written(_), Call::Delete { .. } | Call::Get) => None,
            (Answer::Declined | Answer::Done | Answer::Unknown, _) => None,
        }
    });
    let listed = history.lists.iter().filter_map(|list| list.items.get(key));
    told.or_else(|| listed.into_iter().find(|(at, _)| *at == revision).map(|(_, value)| value))
}

/// The revision at which anybody was shown what an unanswered write does.
fn shown(history: &History, request: &Request) -> Option<Revision> {
    let is_told = |revision: &Revision| {
        history.requests.iter().any(|other| other.answer == Answer::Written(*revision) && other.key == request.key)
    };
    // Of a delete: what it took away.
    let (value, last) = match &request.call {
        Call::Create { value } | Call::Update { value, .. } => (Some(value), None),
        Call::Delete { expected } => (None, value_at(history, &request.key, *expected)),
        Call::Get => return None,
    };
    let by_event = |event: &&Event| {
        event.key == request.key
            && match value {
                Some(value) => event.kind != Kind::Deleted && event.value == *value,
                None => {
                    let takes_it = last.is_none_or(|last| event.value == *last);
                    event.kind == Kind::Deleted && takes_it && !is_told(&event.revision)
                }
            }
    };
    let records = history.watches.iter().flat_map(|watch| &watch.records);
    let events = records.filter_map(|record| match record {
        Record::Events(events) => Some(events),
        Record::Bookmark(_) => None,
    });
    let in_watches = events.flatten().find(by_event).map(|event| event.revision);
    let read =
        history.requests.iter().filter(|other| other.key == request.key).filter_map(|other| match &other.answer {
            Answer::Read(seen) | Answer::Refused(seen) => seen.as_ref(),
            Answer::Written(_) | Answer::Declined | Answer::Done | Answer::Unknown => None,
        });
    let listed = history.lists.iter().filter_map(|list| list.items.get(&request.key));
    let in_reads = read.chain(listed).find(|(_, held)| Some(held) == value).map(|(revision, _)| *revision);
    in_watches.or(in_reads)
}
