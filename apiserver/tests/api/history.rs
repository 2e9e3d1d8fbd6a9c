//! Concurrent clients of the whole server, who write down what they asked and were told, and watches that end and are
//! resumed; judged afterwards by the same checker as the store's own histories.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use store::{Embedded, EmbeddedOptions, Memory, Store};
use tokio::sync::Semaphore;

use crate::histories::{self, Answer, Call, Event, Filter, History, Kind, List, Record, Request, Seen, Watch};
use crate::support::{Api, Reply};
use crate::tally::{next_random, soak};

const CLIENTS: u64 = 5;
const REQUESTS: u64 = 40;
const WATCHES: u32 = 6;
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const COLORS: [&str; 2] = ["red", "blue"];

struct Room {
    api: Api,
    now: AtomicU64,
    history: Mutex<History>,
    /// One for each watch that knows from where it watches.
    begun: Semaphore,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_concurrent_clients_keep_every_property() {
    for n in 0..2 * soak() as u64 {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = match n % 2 {
            0 => Arc::new(Memory::default()),
            _ => Arc::new(Embedded::open(&directory.path().join("store"), EmbeddedOptions::default()).unwrap()),
        };
        let history = record(Api::replica(store).await, next_random(0xca11 + n)).await;
        let violations: Vec<String> = histories::check(&history).iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{n}:\n{}", violations.join("\n"));
        let events: usize = history.watches.iter().map(|watch| watch.records.len()).sum();
        assert!(history.requests.len() > 150 && events > 30, "{} {events}", history.requests.len());
    }
}

async fn record(api: Api, seed: u64) -> History {
    let room = Arc::new(Room { api, now: AtomicU64::new(1), history: Mutex::default(), begun: Semaphore::new(0) });
    // One that misses nothing tells at which revisions objects were deleted.
    let begin = list(&room, Filter::default()).await;
    let mut watches: Vec<_> = (0..WATCHES)
        .map(|n| {
            tokio::spawn(watch(Arc::clone(&room), next_random(seed.wrapping_mul(31).wrapping_add(u64::from(n) + 1))))
        })
        .collect();
    watches.push(tokio::spawn(follow(Arc::clone(&room), Filter::default(), begin, seed)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(work(Arc::clone(&room), n, next_random(seed.wrapping_mul(97).wrapping_add(n + 1)))))
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    // Whatever a watch is about, one of these is the last it needs: who began after it would wait for ever.
    room.begun.acquire_many(WATCHES).await.unwrap().forget();
    for (namespace, color) in [("a", "red"), ("a", "blue"), ("b", "red"), ("b", "blue")] {
        write(&room, namespace, &format!("end-{color}"), None, format!("{color}-end-{namespace}"), false).await;
    }
    for watch in watches {
        tokio::time::timeout(hung::answer(), watch).await.expect("the watch shows the last event").unwrap();
    }
    std::mem::take(&mut *room.history.lock().unwrap())
}

impl Room {
    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst)
    }
}

fn collection(namespace: &str) -> String {
    if namespace.is_empty() {
        "/api/v1/configmaps".to_owned()
    } else {
        format!("/api/v1/namespaces/{namespace}/configmaps")
    }
}

/// Key, revision and token of an object.
fn held(object: &Value) -> (String, u64, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let metadata = &object["metadata"];
    let key = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    (key, text(&metadata["resourceVersion"]).parse().unwrap(), text(&object["data"]["token"]))
}

fn filter(random: u64) -> Filter {
    let prefix = [String::new(), format!("{}/", NAMESPACES[(random >> 8) as usize % 2])][random as usize % 2].clone();
    let value = [String::new(), COLORS[(random >> 9) as usize % 2].to_owned()][(random >> 1) as usize % 2].clone();
    Filter { prefix, value }
}

/// The query that asks for what a filter shows.
fn uri(filter: &Filter, rest: &str) -> String {
    let selector =
        if filter.value.is_empty() { String::new() } else { format!("labelSelector=color%3D{}&", filter.value) };
    format!("{}?{selector}{rest}", collection(filter.prefix.trim_end_matches('/')))
}

async fn work(room: Arc<Room>, client: u64, mut random: u64) {
    let mut known: BTreeMap<(&str, &str), Seen> = BTreeMap::new();
    for n in 0..REQUESTS {
        random = next_random(random);
        let (namespace, name) = (NAMESPACES[random as usize % 2], NAMES[(random >> 4) as usize % 3]);
        let last = known.get(&(namespace, name)).cloned().flatten();
        match (random >> 12) % 8 {
            0 => drop(list(&room, filter(random >> 16)).await),
            1..=3 => drop(known.insert((namespace, name), read(&room, namespace, name).await)),
            _ => {
                let token = format!("{}-{client}-{n}", COLORS[(random >> 16) as usize % 2]);
                let now = write(&room, namespace, name, last, token, (random >> 20).is_multiple_of(4)).await;
                known.insert((namespace, name), now);
            }
        }
    }
}

fn note(room: &Room, begin: u64, key: String, call: Call, answer: Answer) {
    let request = Request { begin, end: room.tick(), key, call, answer, in_transaction: false };
    room.history.lock().unwrap().requests.push(request);
}

async fn read(room: &Room, namespace: &str, name: &str) -> Seen {
    let begin = room.tick();
    let reply = room.api.get(&format!("{}/{name}", collection(namespace))).await;
    let seen =
        if reply.code == 404 { None } else { Some(held(&reply.ok())).map(|(_, revision, token)| (revision, token)) };
    note(room, begin, format!("{namespace}/{name}"), Call::Get, Answer::Read(seen.clone()));
    seen
}

async fn list(room: &Room, filter: Filter) -> u64 {
    let begin = room.tick();
    let listed = room.api.get(&uri(&filter, "")).await.ok();
    let end = room.tick();
    let revision = listed["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let items =
        listed["items"].as_array().unwrap().iter().map(held).map(|(key, at, token)| (key, (at, token))).collect();
    room.history.lock().unwrap().lists.push(List { begin, end, filter, revision, items });
    revision
}

/// Writes on what is known of an object; returns what is known then.
async fn write(room: &Room, namespace: &str, name: &str, known: Seen, token: String, deletes: bool) -> Seen {
    let color = token.split('-').next().unwrap();
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"token": token},
        "metadata": {"name": name, "namespace": namespace, "labels": {"color": color}}});
    let path = format!("{}/{name}", collection(namespace));
    let begin = room.tick();
    let (reply, call) = match known {
        None => (room.api.post(&collection(namespace), &object).await, Call::Create { value: token.clone() }),
        Some((expected, _)) if deletes => {
            let options = json!({"preconditions": {"resourceVersion": expected.to_string()}});
            (room.api.call("DELETE", &path).json(&options).send().await, Call::Delete { expected })
        }
        Some((expected, _)) => {
            object["metadata"]["resourceVersion"] = json!(expected.to_string());
            (room.api.put(&path, &object).await, Call::Update { expected, value: token.clone() })
        }
    };
    let (answer, now) = answered(&reply, &call);
    note(room, begin, format!("{namespace}/{name}"), call, answer);
    now
}

fn answered(reply: &Reply, call: &Call) -> (Answer, Seen) {
    if reply.code >= 300 {
        assert!([404, 409].contains(&reply.code), "{}: {}", reply.code, String::from_utf8_lossy(&reply.bytes));
        return (Answer::Declined, None);
    }
    match call {
        // The answer to a delete does not say at which revision: whoever watches is told.
        Call::Delete { .. } => (Answer::Done, None),
        Call::Create { .. } | Call::Update { .. } | Call::Get => {
            let (_, revision, token) = held(&reply.json());
            (Answer::Written(revision), Some((revision, token)))
        }
    }
}

/// Lists and watches.
async fn watch(room: Arc<Room>, random: u64) {
    tokio::time::sleep(Duration::from_micros(random % 20_000)).await;
    let filter = if random.is_multiple_of(3) { Filter::default() } else { filter(random) };
    let from = list(&room, filter.clone()).await;
    room.begun.add_permits(1);
    follow(room, filter, from, random).await;
}

/// Watches, and goes on from the last event with a new watch now and then, until everything has happened.
async fn follow(room: Arc<Room>, filter: Filter, mut from: u64, mut random: u64) {
    loop {
        random = next_random(random);
        let mut events = room.api.watch(&uri(&filter, &format!("watch=1&resourceVersion={from}"))).await;
        let name = format!("from {from}, {filter:?}");
        let mut watch = Watch { name, from, filter: filter.clone(), records: Vec::new() };
        let mut is_over = false;
        for _ in 0..=random % 40 {
            let event = shown(&events.next().await.expect("the watch goes on"));
            from = event.revision;
            is_over = event.key.contains("/end-");
            watch.records.push(Record::Events(vec![event]));
            if is_over {
                break;
            }
        }
        room.history.lock().unwrap().watches.push(watch);
        if is_over {
            return;
        }
    }
}

fn shown(event: &Value) -> Event {
    let kind = match event["type"].as_str() {
        Some("ADDED") => Kind::Added,
        Some("MODIFIED") => Kind::Modified,
        Some("DELETED") => Kind::Deleted,
        other => panic!("{other:?}: {event}"),
    };
    let (key, revision, value) = held(&event["object"]);
    Event { kind, key, revision, value, previous: None }
}
