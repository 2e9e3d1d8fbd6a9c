//! Linearizability: one order of all writes, given by their revisions, which every answer agrees with and time does not
//! contradict.
//!
//! Because every acknowledged write says its place in the order, nothing has to be searched for. Of one key, each request
//! belongs to a version: a write to the one it made, a read to the one it saw. Two requests contradict each other if and
//! only if the one of the later version ended before the other began; so one sweep in order of time is enough. A read that
//! found nothing may belong to any time the key was absent; it is given the earliest one possible, which forbids least.

use std::collections::BTreeMap;

use super::truth::{Moment, Truth};
use super::{Answer, Call, History, Instant, List, Property, Request, Revision, Seen, Violation};

/// Everything that is wrong with the answers of a history.
pub(super) fn check(history: &History, truth: &Truth) -> Vec<Violation> {
    let mut found = clock(truth);
    found.extend(refusals(history));
    let mut moments: BTreeMap<&str, Vec<&Moment>> = BTreeMap::new();
    for moment in &truth.moments {
        moments.entry(&moment.key).or_default().push(moment);
    }
    let mut reads: BTreeMap<&str, Vec<(&Request, &Seen)>> = BTreeMap::new();
    for request in &history.requests {
        if let Answer::Read(seen) | Answer::Refused(seen) = &request.answer {
            reads.entry(&request.key).or_default().push((request, seen));
        }
    }
    for (key, reads) in reads {
        found.extend(object(key, moments.get(key).map_or(&[], Vec::as_slice), &reads));
    }
    found.extend(history.lists.iter().flat_map(|list| listed(list, truth)));
    found.into_iter().map(|what| Violation::new(Property::Linearizable, what)).collect()
}

/// The highest of what ended before an instant: requests are asked about in order of their beginning.
struct Past<T> {
    ended: BTreeMap<Instant, T>,
    highest: Option<T>,
}

impl<T: Copy + Ord> Past<T> {
    fn new() -> Past<T> {
        Past { ended: BTreeMap::new(), highest: None }
    }

    fn add(&mut self, end: Instant, value: T) {
        self.ended.insert(end, value);
    }

    fn before(&mut self, begin: Instant) -> Option<T> {
        let later = self.ended.split_off(&begin);
        let over = std::mem::replace(&mut self.ended, later);
        self.highest = over.into_values().chain(self.highest).max();
        self.highest
    }
}

/// A write that began after another had ended has the later revision, whatever their keys.
fn clock(truth: &Truth) -> Vec<String> {
    let mut moments: Vec<&Moment> = truth.moments.iter().collect();
    moments.sort_by_key(|moment| moment.begin);
    let mut past = Past::new();
    let mut found = Vec::new();
    for Moment { revision, key, begin, end, .. } in moments {
        if let Some(earlier) = past.before(*begin).filter(|earlier| earlier > revision) {
            found.push(format!("{key} was written at {revision}, after {earlier} had been acknowledged"));
        }
        past.add(*end, *revision);
    }
    found
}

/// What was refused had a reason.
fn refusals(history: &History) -> Vec<String> {
    let refused = |request: &&Request| {
        let Answer::Refused(seen) = &request.answer else { return false };
        match &request.call {
            Call::Create { .. } => seen.is_none(),
            Call::Update { expected, .. } | Call::Delete { expected } => {
                seen.as_ref().is_some_and(|(revision, _)| revision == expected)
            }
            Call::Get => true,
        }
    };
    history.requests.iter().filter(refused).map(|request| format!("refused without a reason: {request:?}")).collect()
}

/// Reads and writes of one key. Version n is what its n-th write left; version 0 is nothing.
fn object(key: &str, moments: &[&Moment], reads: &[(&Request, &Seen)]) -> Vec<String> {
    enum Step<'a> {
        Write(usize, &'a Moment),
        Read(&'a Request, &'a Seen),
    }
    let begin = |step: &Step<'_>| match step {
        Step::Write(_, moment) => moment.begin,
        Step::Read(request, _) => request.begin,
    };
    let writes = moments.iter().enumerate().map(|(n, moment)| Step::Write(n + 1, moment));
    let mut steps: Vec<Step<'_>> =
        writes.chain(reads.iter().map(|(request, seen)| Step::Read(request, seen))).collect();
    steps.sort_by_key(begin);
    let mut past: Past<usize> = Past::new();
    let mut found = Vec::new();
    for step in steps {
        let newest = past.before(begin(&step)).unwrap_or(0);
        match step {
            Step::Write(version, moment) => {
                if version < newest {
                    found.push(format!("{key} at {} was overwritten before it was asked for", moment.revision));
                }
                past.add(moment.end, version);
            }
            Step::Read(request, seen) => match version_of(seen, moments, newest, request.end) {
                Some(version) => past.add(request.end, version),
                None => found.push(format!("{key} was read as {seen:?} by {request:?}")),
            },
        }
    }
    found
}

/// The version a read belongs to, if there is one: not older than what was known before it began, and asked for before it
/// ended.
fn version_of(seen: &Seen, moments: &[&Moment], newest: usize, end: Instant) -> Option<usize> {
    let nothing = Some((0, Instant::MIN)).filter(|_| seen.is_none());
    let written = moments.iter().enumerate().filter(|(_, moment)| moment.after == *seen);
    let fitting = nothing.into_iter().chain(written.map(|(n, moment)| (n + 1, moment.begin)));
    fitting.filter(|(version, begin)| *version >= newest && *begin <= end).map(|(version, _)| version).min()
}

/// A list is one moment, not before what had been acknowledged when it began.
fn listed(list: &List, truth: &Truth) -> Vec<String> {
    let mut found = Vec::new();
    let known = |moment: &&Moment| moment.end < list.begin;
    let acknowledged: Option<Revision> = truth.moments.iter().filter(known).map(|moment| moment.revision).max();
    if acknowledged.is_some_and(|acknowledged| acknowledged > list.revision) {
        found.push(format!("a list at {} began after {acknowledged:?} had been acknowledged", list.revision));
    }
    if let Some(early) = truth.moments.iter().find(|m| m.revision <= list.revision && m.begin > list.end) {
        found.push(format!("a list at {} was over before {} was asked for", list.revision, early.revision));
    }
    let mut state = truth.state(list.revision);
    state.retain(|key, held| list.filter.shows(key, &Some(held.clone())).is_some());
    if state != list.items {
        found.push(format!("the list at {} holds {:?}, not {state:?}", list.revision, list.items));
    }
    found
}
