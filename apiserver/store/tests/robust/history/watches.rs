//! The nine properties of one watch.

use std::collections::{BTreeMap, BTreeSet};

use super::truth::{Moment, Truth};
use super::{Event, Filter, Kind, Property, Record, Revision, Violation, Watch};

/// An event, and which record of the watch it came in.
type Told<'a> = (usize, &'a Event);

/// Everything that is wrong with a watch.
pub(super) fn check(watch: &Watch, truth: &Truth) -> Vec<Violation> {
    let mut told: Vec<Told<'_>> = Vec::new();
    let mut bookmarks: Vec<(usize, Revision)> = Vec::new();
    for (n, record) in watch.records.iter().enumerate() {
        match record {
            Record::Events(events) => told.extend(events.iter().map(|event| (n, event))),
            Record::Bookmark(revision) => bookmarks.push((n, *revision)),
        }
    }
    let mut found = order(&told);
    found.extend(content(&told, watch, truth));
    found.extend(gaps(&told, &bookmarks, watch, truth));
    found.extend(marks(&told, &bookmarks, watch));
    found.into_iter().map(|(property, what)| Violation::new(property, format!("{}: {what}", watch.name))).collect()
}

type Found = Vec<(Property, String)>;

/// Ordered, unique, atomic.
fn order(told: &[Told<'_>]) -> Found {
    let mut found = Found::new();
    for pair in told.windows(2) {
        if let [(_, a), (_, b)] = pair
            && b.revision < a.revision
        {
            found.push((Property::Ordered, format!("{} came after {}", b.revision, a.revision)));
        }
    }
    let mut seen: BTreeSet<(Revision, &str)> = BTreeSet::new();
    let mut records: BTreeMap<Revision, usize> = BTreeMap::new();
    for (n, event) in told {
        if !seen.insert((event.revision, &event.key)) {
            found.push((Property::Unique, format!("{} at {} came twice", event.key, event.revision)));
        } else if *records.entry(event.revision).or_insert(*n) != *n {
            found.push((Property::Atomic, format!("what was written at {} came in parts", event.revision)));
        }
    }
    found
}

/// How a change looks through a filter.
fn view(moment: &Moment, filter: &Filter) -> Option<(Kind, String)> {
    let Moment { key, before, after, .. } = moment;
    match (filter.shows(key, before), filter.shows(key, after)) {
        (None, None) => None,
        (None, Some((_, value))) => Some((Kind::Added, value.clone())),
        (Some(_), Some((_, value))) => Some((Kind::Modified, value.clone())),
        (Some((_, value)), None) => Some((Kind::Deleted, value.clone())),
    }
}

/// What each event says: written at all, asked for, what it replaced, whether it is new.
fn content(told: &[Told<'_>], watch: &Watch, truth: &Truth) -> Found {
    let mut found = Found::new();
    for (_, event) in told {
        let Event { kind, key, revision, value, previous } = event;
        let Some(moment) = truth.at(*revision, key) else {
            found.push((Property::Reliable, format!("{key} at {revision} was never written")));
            continue;
        };
        let Some((expected, right)) = view(moment, &watch.filter) else {
            found.push((Property::Filter, format!("{key} at {revision} was not asked for")));
            continue;
        };
        if *kind != expected {
            found.push((Property::IsCreate, format!("{key} at {revision} is {kind:?}, not {expected:?}")));
        } else if *value != right {
            let property = if *kind == Kind::Deleted { Property::PreviousValue } else { Property::Reliable };
            found.push((property, format!("{key} at {revision} is {value:?}, not {right:?}")));
        }
        if previous.as_ref().is_some_and(|previous| *previous != moment.before) {
            let what = format!("{key} at {revision} replaced {:?}, not {previous:?}", moment.before);
            found.push((Property::PreviousValue, what));
        }
    }
    found
}

/// What is missing: at the start, in between, or before a bookmark. What may still have come later is not missing.
fn gaps(told: &[Told<'_>], bookmarks: &[(usize, Revision)], watch: &Watch, truth: &Truth) -> Found {
    let shown: BTreeSet<(Revision, &str)> =
        told.iter().map(|(_, event)| (event.revision, event.key.as_str())).collect();
    let first = shown.first().map(|(revision, _)| *revision);
    let last = shown.last().map(|(revision, _)| *revision);
    let marked = bookmarks.iter().map(|(_, revision)| *revision).max();
    let mut found = Found::new();
    for moment in truth.moments.iter().filter(|moment| moment.revision > watch.from) {
        let Moment { revision, key, .. } = moment;
        if shown.contains(&(*revision, key.as_str())) || view(moment, &watch.filter).is_none() {
            continue;
        }
        let property = if first.is_some_and(|first| *revision < first) {
            Property::Resumable
        } else if last.is_some_and(|last| *revision <= last) {
            Property::Reliable
        } else if marked.is_some_and(|marked| *revision <= marked) {
            Property::Bookmarkable
        } else {
            continue;
        };
        found.push((property, format!("{key} at {revision} is missing after {}", watch.from)));
    }
    for (_, event) in told.iter().filter(|(_, event)| event.revision <= watch.from) {
        found.push((Property::Resumable, format!("{} is not after {}", event.revision, watch.from)));
    }
    found
}

/// Bookmarks do not go back, and what they cover does not come after them.
fn marks(told: &[Told<'_>], bookmarks: &[(usize, Revision)], watch: &Watch) -> Found {
    let mut found = Found::new();
    let mut last = watch.from;
    for (at, revision) in bookmarks {
        if *revision < last {
            found.push((Property::Bookmarkable, format!("a bookmark at {revision} came after {last}")));
        }
        last = last.max(*revision);
        for (_, event) in told.iter().filter(|(n, event)| n > at && event.revision <= *revision) {
            found.push((Property::Bookmarkable, format!("{} came after a bookmark at {revision}", event.revision)));
        }
    }
    found
}
