//! Writers that say what they were told, and a watcher that says what it was shown. Each writer owns its keys and has one
//! write in flight, so that what a store must hold afterwards is known although they run at once.

use std::sync::Arc;

use bytes::Bytes;
use store::{Change, Error, Event, Feed, Key, Revision, Store, Write};

pub(crate) const WRITERS: usize = 8;
const KEYS: u64 = 5;

/// A write that was acknowledged, or one that a watcher was shown.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    /// The counter in the value; none for a delete.
    pub(crate) count: Option<u64>,
}

/// What was said until the end.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) acknowledged: Vec<Line>,
    pub(crate) seen: Vec<Line>,
}

pub(crate) fn writer_of(key: &Key) -> String {
    key.name().split('-').next().unwrap().to_owned()
}

pub(crate) fn count_in(value: &Bytes) -> u64 {
    std::str::from_utf8(value).unwrap().trim_end().parse().unwrap()
}

/// Says every event of a feed until it ends.
pub(crate) async fn follow(mut feed: Feed, mut say: impl FnMut(Line)) {
    while let Ok(batch) = feed.next().await {
        for Event { revision, key, change } in batch.events {
            let count = match change {
                Change::Put { value, previous: _ } => Some(count_in(&value)),
                Change::Delete { previous: _ } => None,
            };
            say(Line { key, revision, count });
        }
    }
}

/// The write number `count` of a writer.
pub(crate) async fn write_next(store: &Arc<dyn Store>, writer: usize, count: u64) -> Result<Line, Error> {
    let key = Key::new("pods", Some("a"), &format!("w{writer}-{}", count % KEYS)).unwrap();
    // Padded, so that a batch is many pages.
    let value = Bytes::from(format!("{count:<1200}"));
    let (write, count) = match store.get(&key).await? {
        None => (Write::create(key.clone(), value), Some(count)),
        Some(stored) if count % 7 == 3 => (Write::delete(key.clone(), stored.revision), None),
        Some(stored) => (Write::update(key.clone(), stored.revision, value), Some(count)),
    };
    let revision = store.write(write).await?.revision;
    Ok(Line { key, revision, count })
}
