//! Where a delete lies that no watch showed.
//!
//! A server that is killed right after it carried out a delete tells nobody of it: its client has no answer, its watches are gone, and who
//! comes back after that may have to list and watch anew from the list on. Such a delete lies between two revisions at which the object was
//! there and was not, where no watch looked. Where one looked, it would have been shown.

use std::collections::BTreeSet;

use super::truth::{Done, value_at};
use super::{Answer, Call, History, Record, Request, Revision, Watch};

/// The first revision at which nobody could have been shown this delete, if the object is gone by then and not before.
pub(super) fn revision(history: &History, done: &[Done<'_>], delete: &Request) -> Option<Revision> {
    let Call::Delete { expected } = delete.call else { return None };
    let held = Some((expected, value_at(history, &delete.key, expected)?.clone()));
    let lists = history.lists.iter().filter(|list| list.filter.shows(&delete.key, &held).is_some());
    let (there, gone): (Vec<_>, Vec<_>) = lists
        .filter(|list| list.revision >= expected)
        .partition(|list| list.items.get(&delete.key).is_some_and(|(revision, _)| *revision == expected));

    let next = done.iter().filter(|(revision, write, _)| *revision > expected && write.key == delete.key);
    let next = next.min_by_key(|(revision, ..)| *revision);
    let before = match next {
        Some((revision, Request { call: Call::Create { .. }, .. }, _)) => Some(*revision),
        // It was there to be changed.
        Some(_) => return None,
        None => None,
    };
    let read = |other: &Request| other.key == delete.key && other.answer == Answer::Read(None);
    let was_read = history.requests.iter().any(|other| other.begin > delete.begin && read(other));
    // A list may be of the very revision that took it away.
    let before = before.into_iter().chain(gone.iter().map(|list| list.revision + 1)).min();
    let before = before.or_else(|| was_read.then_some(Revision::MAX))?;

    // What was acknowledged or listed before it was asked for came before it.
    let acknowledged = done.iter().filter(|(_, _, end)| *end < delete.begin).map(|(revision, ..)| *revision);
    let listed = history.lists.iter().filter(|list| list.end < delete.begin).map(|list| list.revision);
    let after = there.iter().map(|list| list.revision).chain(acknowledged).chain(listed).max();
    let after = after.map_or(expected, |after| after.max(expected));

    let taken: BTreeSet<Revision> = done.iter().map(|(revision, ..)| *revision).collect();
    let watches: Vec<(Revision, Revision)> = history
        .watches
        .iter()
        .filter(|watch| watch.filter.shows(&delete.key, &held).is_some())
        .filter_map(|watch| Some((watch.from, last(watch)?)))
        .collect();
    let mut revision = after + 1;
    while revision < before {
        let looked = watches.iter().find(|(from, last)| *from < revision && revision <= *last);
        match looked {
            Some((_, last)) => revision = last + 1,
            None if taken.contains(&revision) => revision += 1,
            None => return Some(revision),
        }
    }
    None
}

/// Up to where a watch looked.
fn last(watch: &Watch) -> Option<Revision> {
    let records = watch.records.iter().filter_map(|record| match record {
        Record::Events(events) => events.iter().map(|event| event.revision).max(),
        Record::Bookmark(revision) => Some(*revision),
    });
    records.max()
}
