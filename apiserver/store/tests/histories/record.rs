//! Concurrent clients on a store and its cache, who write everything down.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use store::cache::{Cache, Delivery, Describe, Kind as Shown, Object, Options, Paths, Query, Watcher};
use store::{Batch, Change, Error, Feed, Key, Refusal, Revision, Store, Write};

use crate::history::{Answer, Call, Event, Filter, History, Instant, Kind, List, Record, Request, Seen, Watch};
use crate::tally::next_random;

const CLIENTS: u64 = 6;

/// Requests of each client.
const REQUESTS: u64 = 60;

/// Watches that begin while the clients are at work, and end and are resumed now and then.
const WATCHES: u64 = 8;

/// Few keys, so that clients meet.
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const COLORS: [&str; 2] = ["red", "blue"];

/// What all clients share.
struct Room {
    store: Arc<dyn Store>,
    cache: Cache,
    now: AtomicU64,
    history: Mutex<History>,
}

/// Has clients at work until they are done, and returns what they wrote down.
pub(crate) async fn record(store: Arc<dyn Store>, seed: u64) -> History {
    let describe: Arc<dyn Describe> = Arc::new(Paths::new([]));
    let cache = Cache::start(Arc::clone(&store), [("pods".to_owned(), describe)], Options::default()).await.unwrap();
    let room = Arc::new(Room { store, cache, now: AtomicU64::new(1), history: Mutex::default() });
    let from = room.store.current_revision().await.unwrap();
    let feeds = [room.store.watch(from).await.unwrap(), room.store.watch(from).await.unwrap()];
    let (over, _) = tokio::sync::watch::channel(Revision::default());
    let mut watchers: Vec<_> =
        feeds.into_iter().map(|feed| tokio::spawn(follow(Arc::clone(&room), feed, from, over.subscribe()))).collect();
    watchers.extend((0..WATCHES).map(|n| {
        let random = next_random(seed.wrapping_mul(31).wrapping_add(n + 1));
        tokio::spawn(watch(Arc::clone(&room), from, random, over.subscribe()))
    }));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(work(Arc::clone(&room), n, next_random(seed.wrapping_mul(97).wrapping_add(n + 1)))))
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let last = room.cache.fresh().await.unwrap();
    over.send_replace(last);
    for watcher in watchers {
        tokio::time::timeout(hung::answer(), watcher).await.expect("the watch shows the last event").unwrap();
    }
    room.cache.close().await;
    std::mem::take(&mut *room.history.lock().unwrap())
}

impl Room {
    fn tick(&self) -> Instant {
        self.now.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, begin: Instant, key: &Key, call: Call, answer: Answer) {
        let request = Request { begin, end: self.tick(), key: text(key), call, answer, in_transaction: false };
        self.history.lock().unwrap().requests.push(request);
    }
}

/// As the checker names it.
fn text(key: &Key) -> String {
    format!("{}/{}", key.namespace().unwrap(), key.name())
}

/// An object with a color and a token that no other write has: `red-3-17`.
fn object(key: &Key, token: &str) -> Bytes {
    let color = token.split('-').next().unwrap();
    let labels = format!(r#"{{"color":"{color}","token":"{token}"}}"#);
    format!(
        r#"{{"metadata":{{"name":"{}","namespace":"{}","labels":{labels}}}}}"#,
        key.name(),
        key.namespace().unwrap()
    )
    .into()
}

fn token_in(json: &[u8]) -> String {
    let text = std::str::from_utf8(json).unwrap();
    text.split_once(r#""token":""#).unwrap().1.split_once('"').unwrap().0.to_owned()
}

fn seen(stored: Option<&store::Stored>) -> Seen {
    stored.map(|stored| (stored.revision.0, token_in(&stored.value)))
}

fn held(object: Option<&Arc<Object>>) -> Seen {
    object.map(|object| (object.revision().0, token_in(object.as_bytes())))
}

fn filter(random: u64) -> Filter {
    let prefix = [String::new(), format!("{}/", NAMESPACES[(random >> 8) as usize % 2])][random as usize % 2].clone();
    let value = [String::new(), COLORS[(random >> 9) as usize % 2].to_owned()][(random >> 1) as usize % 2].clone();
    Filter { prefix, value }
}

fn selecting(filter: &Filter) -> store::cache::Filter {
    let namespace = filter.prefix.strip_suffix('/');
    let color = filter.value.clone();
    let all = store::cache::Filter::of(namespace);
    if color.is_empty() {
        return all;
    }
    all.selecting(move |object| object.header().labels.get("color") == Some(color.as_str()))
}

/// One client: reads, then writes what it has seen or has not, now and then with something out of date.
async fn work(room: Arc<Room>, client: u64, mut random: u64) {
    let mut known: BTreeMap<Key, Seen> = BTreeMap::new();
    for n in 0..REQUESTS {
        random = next_random(random);
        let (namespace, name) = (NAMESPACES[random as usize % 2], NAMES[(random >> 4) as usize % 3]);
        let key = Key::new("pods", Some(namespace), name).unwrap();
        match (random >> 12) % 8 {
            0 => list(&room, filter(random >> 16)).await,
            1 | 2 => drop(known.insert(key.clone(), read(&room, &key, random >> 16).await)),
            _ => {
                let token = format!("{}-{client}-{n}", COLORS[(random >> 16) as usize % 2]);
                let now =
                    write(&room, &key, known.get(&key).cloned().flatten(), token, (random >> 20).is_multiple_of(4))
                        .await;
                known.insert(key, now);
            }
        }
    }
}

/// Reads from the store, or from the cache when it is fresh.
async fn read(room: &Room, key: &Key, random: u64) -> Seen {
    let begin = room.tick();
    let seen = if random.is_multiple_of(3) {
        seen(room.store.get(key).await.unwrap().as_ref())
    } else {
        room.cache.fresh().await.unwrap();
        held(room.cache.resource("pods").unwrap().get(key).unwrap().as_ref())
    };
    room.note(begin, key, Call::Get, Answer::Read(seen.clone()));
    seen
}

async fn list(room: &Room, filter: Filter) {
    let begin = room.tick();
    room.cache.fresh().await.unwrap();
    let query = Query { filter: selecting(&filter), ..Query::default() };
    let listed = room.cache.resource("pods").unwrap().list(&query).unwrap();
    let end = room.tick();
    let items = listed.items.iter().map(|object| (text(object.key()), held(Some(object)).unwrap())).collect();
    let list = List { begin, end, filter, revision: listed.revision.0, items };
    room.history.lock().unwrap().lists.push(list);
}

/// Writes on what is known of a key; returns what is known then.
async fn write(room: &Room, key: &Key, known: Seen, token: String, deletes: bool) -> Seen {
    let begin = room.tick();
    let (write, call) = match &known {
        None => (Write::create(key.clone(), object(key, &token)), Call::Create { value: token.clone() }),
        Some((expected, _)) if deletes => {
            (Write::delete(key.clone(), Revision(*expected)), Call::Delete { expected: *expected })
        }
        Some((expected, _)) => {
            let call = Call::Update { expected: *expected, value: token.clone() };
            (Write::update(key.clone(), Revision(*expected), object(key, &token)), call)
        }
    };
    let is_delete = matches!(call, Call::Delete { .. });
    let (answer, now) = match room.cache.write(write).await {
        Ok(written) => {
            let now = Some((written.revision.0, token)).filter(|_| !is_delete);
            (Answer::Written(written.revision.0), now)
        }
        Err(Error::Refused(Refusal::Absent)) => (Answer::Refused(None), None),
        Err(Error::Refused(Refusal::Exists { current } | Refusal::Conflict { current })) => {
            let found = seen(Some(&current));
            (Answer::Refused(found.clone()), found)
        }
        Err(other) => panic!("{other}"),
    };
    room.note(begin, key, call, answer);
    now
}

type Over = tokio::sync::watch::Receiver<Revision>;

/// A feed of the store, until everything has happened and was shown.
async fn follow(room: Arc<Room>, mut feed: Feed, from: Revision, mut over: Over) {
    let mut watch = Watch { name: "feed".to_owned(), from: from.0, ..Watch::default() };
    let mut reached = from;
    loop {
        tokio::select! {
            batch = feed.next() => {
                let Batch { events, revision } = batch.unwrap();
                reached = revision;
                let events: Vec<Event> = events.into_iter().map(told).collect();
                // Each revision is one write here, so each event is a record of its own.
                watch.records.extend(events.into_iter().map(|event| Record::Events(vec![event])));
                watch.records.push(Record::Bookmark(revision.0));
            }
            _ = over.wait_for(|last| *last != Revision::default() && *last <= reached) => break,
        }
    }
    room.history.lock().unwrap().watches.push(watch);
}

fn told(event: store::Event) -> Event {
    let (kind, value, previous) = match event.change {
        Change::Put { value, previous } => {
            let kind = if previous.is_some() { Kind::Modified } else { Kind::Added };
            (kind, token_in(&value), seen(previous.as_ref()))
        }
        Change::Delete { previous } => (Kind::Deleted, token_in(&previous.value), seen(Some(&previous))),
    };
    Event { kind, key: text(&event.key), revision: event.revision.0, value, previous: Some(previous) }
}

/// Watches of the cache, one after the other: each goes on from where the one before was left, by an event or a bookmark.
async fn watch(room: Arc<Room>, begin: Revision, mut random: u64, over: Over) {
    tokio::time::sleep(Duration::from_micros(random % 20_000)).await;
    let filter = filter(random);
    let pods = Arc::clone(room.cache.resource("pods").unwrap());
    let (mut from, mut watcher) = match random % 3 {
        0 => {
            let (listed, watcher) = pods.list_and_watch(selecting(&filter)).unwrap();
            (listed.revision, watcher)
        }
        // From the past, and from what may not have happened yet.
        1 => start(&pods, Revision((begin.0 + room.cache.revision().0) / 2), &filter),
        _ => start(&pods, Revision(room.cache.revision().0 + random % 3), &filter),
    };
    loop {
        random = next_random(random);
        let (watch, is_over) = follow_some(&mut watcher, from, &filter, random % 40, over.clone()).await;
        let last = watch.records.last().map(|record| match record {
            Record::Events(events) => events.last().unwrap().revision,
            Record::Bookmark(revision) => *revision,
        });
        from = last.map_or(from, Revision);
        room.history.lock().unwrap().watches.push(watch);
        if is_over {
            return;
        }
        (from, watcher) = start(&pods, from, &filter);
    }
}

fn start(pods: &store::cache::Resource, from: Revision, filter: &Filter) -> (Revision, Watcher) {
    (from, pods.watch(from, selecting(filter)).unwrap())
}

/// Some events of a watch, and whether there will be no more.
async fn follow_some(
    watcher: &mut Watcher,
    from: Revision,
    filter: &Filter,
    count: u64,
    mut over: Over,
) -> (Watch, bool) {
    let mut watch =
        Watch { name: format!("from {from}, {filter:?}"), from: from.0, filter: filter.clone(), records: vec![] };
    for n in 0..=count {
        tokio::select! {
            biased;
            delivery = watcher.next() => watch.records.push(Record::Events(vec![shown(&delivery.unwrap())])),
            last = over.wait_for(|last| *last != Revision::default()) => {
                let last = *last.unwrap();
                // Everything has happened, and the last of it may have come since this watch was looked at.
                while let Some(delivery) = watcher.next().now_or_never() {
                    watch.records.push(Record::Events(vec![shown(&delivery.unwrap())]));
                }
                assert!(watcher.progress() >= last);
                watch.records.push(Record::Bookmark(watcher.progress().0));
                return (watch, true);
            }
        }
        if n % 5 == 4 {
            watch.records.push(Record::Bookmark(watcher.progress().0));
        }
    }
    (watch, false)
}

fn shown(delivery: &Delivery) -> Event {
    let kind = match delivery.kind() {
        Shown::Added => Kind::Added,
        Shown::Modified => Kind::Modified,
        Shown::Deleted => Kind::Deleted,
    };
    let object = delivery.object();
    let (key, revision) = (text(object.key()), delivery.revision().0);
    assert_eq!(object.revision().0, revision, "an object is shown at the revision of its event");
    let previous = Some(held(delivery.notice().previous()));
    Event { kind, key, revision, value: token_in(object.as_bytes()), previous }
}
