//! From what arrives on a watch stream to batches of events. Pure.
//!
//! The reader knows how far it has told (its cursor) and never tells anything twice, whatever a resumed stream repeats. It
//! tells a revision only when it has all of it: etcd may cut a large answer in the middle of one.

use super::layout::Layout;
use super::message::{EventType, KeyValue, WatchEvent, WatchResponse};
use super::request::{revision, stored};
use crate::{Batch, Change, Error, Event, Revision};

/// What an answer amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing new.
    Nothing,
    /// Something to deliver.
    Batch(Batch),
    /// The stream is over and may be opened again at the cursor.
    Broken(String),
    /// What follows the cursor is not to be had any more.
    Lost(Error),
}

/// The state of reading a feed.
#[derive(Debug)]
pub(super) struct Reader {
    layout: Layout,
    cursor: Revision,
    /// Events of a revision of which more may follow.
    held: Vec<Event>,
    /// The newest revision seen in an answer that was cut.
    cut: Revision,
}

impl Reader {
    /// A reader of what happens after `cursor`.
    pub(super) fn new(layout: Layout, cursor: Revision) -> Reader {
        Reader { layout, cursor, held: Vec::new(), cut: Revision::default() }
    }

    /// Everything up to here has been told.
    pub(super) fn cursor(&self) -> Revision {
        self.cursor
    }

    /// A new stream begins after the cursor.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        self.cut = Revision::default();
    }

    /// Takes the next answer.
    pub(super) fn take(&mut self, answer: WatchResponse) -> Told {
        if answer.canceled {
            return self.canceled(&answer);
        }
        let at = revision(answer.header.map_or(0, |header| header.revision));
        if answer.created {
            return Told::Nothing;
        }
        let Some(newest) = answer.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max()
        else {
            // Nothing happened to our keys up to here.
            return self.tell(Vec::new(), at);
        };
        let newest = revision(newest);
        for event in answer.events {
            match self.event(event) {
                Ok(event) => self.held.extend(event),
                Err(error) => return Told::Lost(error),
            }
        }
        if answer.fragment {
            return self.tell_whole_revisions(newest);
        }
        let (held, newest) = (std::mem::take(&mut self.held), newest.max(self.cut));
        self.cut = Revision::default();
        self.tell(held, newest)
    }

    /// Tells what is complete of an answer that was cut: all but its newest revision.
    fn tell_whole_revisions(&mut self, newest: Revision) -> Told {
        let whole = Revision(newest.0.saturating_sub(1));
        self.cut = newest;
        let begin = self.held.partition_point(|event| event.revision <= whole);
        let rest = self.held.split_off(begin);
        let events = std::mem::replace(&mut self.held, rest);
        self.tell(events, whole)
    }

    fn tell(&mut self, events: Vec<Event>, reached: Revision) -> Told {
        if reached <= self.cursor {
            return Told::Nothing;
        }
        self.cursor = reached;
        Told::Batch(Batch { events, revision: reached })
    }

    fn canceled(&self, answer: &WatchResponse) -> Told {
        if answer.compact_revision > 0 {
            let oldest = revision(answer.compact_revision);
            return Told::Lost(Error::Expired { requested: self.cursor, oldest, current: oldest });
        }
        Told::Broken(answer.cancel_reason.clone())
    }

    /// An event of ours that was not told yet.
    fn event(&self, event: WatchEvent) -> Result<Option<Event>, Error> {
        let is_delete = event.r#type == i32::from(EventType::Delete);
        let Some(kv) = event.kv else { return Ok(None) };
        let at = revision(kv.mod_revision);
        // Others may keep things below our prefix; they are none of our business.
        let Some(key) = self.layout.key(&kv.key).filter(|_| at > self.cursor) else { return Ok(None) };
        let was_there = is_delete || kv.create_revision != kv.mod_revision;
        let previous = event.prev_kv.map(stored);
        if was_there && previous.is_none() {
            // It was compacted before it was sent.
            return Err(Error::Expired { requested: self.cursor, oldest: at, current: at });
        }
        let KeyValue { value, .. } = kv;
        let change = match previous {
            Some(previous) if is_delete => Change::Delete { previous },
            previous => Change::Put { value, previous },
        };
        Ok(Some(Event { revision: at, key, change }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use bytes::Bytes;

    use super::super::message::ResponseHeader;
    use super::*;
    use crate::{Key, Stored};

    fn reader(cursor: u64) -> Reader {
        Reader::new(Layout::new("/registry").unwrap(), Revision(cursor))
    }

    fn put(name: &str, create: i64, at: i64) -> WatchEvent {
        let key = Bytes::from(format!("/registry/pods/a/{name}"));
        let value = Bytes::from(at.to_string());
        let before = (create != at).then(|| KeyValue {
            key: key.clone(),
            mod_revision: at - 1,
            value: Bytes::from((at - 1).to_string()),
            ..KeyValue::default()
        });
        let kv = KeyValue { key, create_revision: create, mod_revision: at, version: 1, value };
        WatchEvent { r#type: 0, kv: Some(kv), prev_kv: before }
    }

    fn answer(at: i64, events: Vec<WatchEvent>) -> WatchResponse {
        WatchResponse { header: Some(ResponseHeader { revision: at }), events, ..WatchResponse::default() }
    }

    fn event(name: &str, at: u64, is_new: bool) -> Event {
        let stored = |at: u64| Stored { revision: Revision(at), value: Bytes::from(at.to_string()) };
        let previous = (!is_new).then(|| stored(at - 1));
        let change = Change::Put { value: stored(at).value, previous };
        Event { revision: Revision(at), key: Key::new("pods", Some("a"), name).unwrap(), change }
    }

    fn batch(events: Vec<Event>, at: u64) -> Told {
        Told::Batch(Batch { events, revision: Revision(at) })
    }

    #[test]
    fn events_reach_as_far_as_the_newest_of_them_and_progress_as_far_as_it_says() {
        let mut reader = reader(4);
        assert_eq!(reader.take(WatchResponse { created: true, ..answer(20, Vec::new()) }), Told::Nothing);
        let told = reader.take(answer(20, vec![put("x", 5, 5), put("x", 5, 6)]));
        assert_eq!(told, batch(vec![event("x", 5, true), event("x", 6, false)], 6));
        assert_eq!(reader.take(answer(9, Vec::new())), batch(Vec::new(), 9));
        assert_eq!(reader.take(answer(9, Vec::new())), Told::Nothing);
        assert_eq!(reader.take(answer(8, Vec::new())), Told::Nothing);
    }

    #[test]
    fn what_a_resumed_stream_repeats_is_not_told_again() {
        let mut reader = reader(5);
        let told = reader.take(answer(20, vec![put("x", 5, 5), put("y", 6, 6)]));
        assert_eq!(told, batch(vec![event("y", 6, true)], 6));
        assert_eq!(reader.take(answer(20, vec![put("y", 6, 6)])), Told::Nothing);
    }

    #[test]
    fn a_revision_is_told_when_all_of_it_is_there() {
        let mut reader = reader(4);
        let cut = |events| WatchResponse { fragment: true, ..answer(20, events) };
        assert_eq!(reader.take(cut(vec![put("x", 5, 5), put("y", 6, 6)])), batch(vec![event("x", 5, true)], 5));
        assert_eq!(reader.take(cut(vec![put("z", 6, 6)])), Told::Nothing);
        let told = reader.take(answer(20, vec![put("w", 6, 6), put("w", 6, 7)]));
        let whole = [("y", 6, true), ("z", 6, true), ("w", 6, true), ("w", 7, false)];
        assert_eq!(told, batch(whole.map(|(name, at, is_new)| event(name, at, is_new)).to_vec(), 7));
    }

    #[test]
    fn what_was_cut_off_before_the_stream_broke_comes_again() {
        let mut reader = reader(4);
        let cut = WatchResponse { fragment: true, ..answer(20, vec![put("x", 5, 5), put("y", 6, 6)]) };
        assert_eq!(reader.take(cut), batch(vec![event("x", 5, true)], 5));
        reader.restart();
        assert_eq!(reader.cursor(), Revision(5));
        let told = reader.take(answer(20, vec![put("y", 6, 6), put("z", 6, 6)]));
        assert_eq!(told, batch(vec![event("y", 6, true), event("z", 6, true)], 6));
    }

    #[test]
    fn a_deletion_carries_what_was_there_and_without_it_the_feed_is_lost() {
        let mut reader = reader(4);
        let mut gone = put("x", 4, 5);
        gone.r#type = 1;
        let previous = Stored { revision: Revision(4), value: Bytes::from_static(b"4") };
        let deleted = Event { change: Change::Delete { previous }, ..event("x", 5, true) };
        assert_eq!(reader.take(answer(5, vec![gone.clone()])), batch(vec![deleted], 5));
        gone.prev_kv = None;
        gone.kv.as_mut().unwrap().mod_revision = 6;
        let (requested, at) = (Revision(5), Revision(6));
        let lost = Error::Expired { requested, oldest: at, current: at };
        assert_eq!(reader.take(answer(6, vec![gone])), Told::Lost(lost));
    }

    #[test]
    fn what_others_keep_below_the_prefix_moves_the_clock_only() {
        let mut foreign = put("x", 5, 5);
        foreign.kv.as_mut().unwrap().key = Bytes::from_static(b"/registry/pods/a/b/c/d");
        foreign.prev_kv = None;
        foreign.kv.as_mut().unwrap().create_revision = 1;
        assert_eq!(reader(4).take(answer(5, vec![foreign])), batch(Vec::new(), 5));
    }

    #[test]
    fn a_canceled_watch_is_broken_or_too_old() {
        let canceled = WatchResponse { canceled: true, cancel_reason: "no leader".to_owned(), ..answer(9, Vec::new()) };
        assert_eq!(reader(4).take(canceled.clone()), Told::Broken("no leader".to_owned()));
        let (requested, at) = (Revision(4), Revision(7));
        let lost = Error::Expired { requested, oldest: at, current: at };
        assert_eq!(reader(4).take(WatchResponse { compact_revision: 7, ..canceled }), Told::Lost(lost));
    }
}
