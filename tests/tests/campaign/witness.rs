//! Clients and a watch of the API beside the blows, kun's own end included, who write down what they asked and were told (T12). Whether that
//! has one order, and whether the watch kept its nine properties, is judged as for the store alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams, Preconditions, WatchParams},
    core::WatchEvent,
};
use tokio::task::JoinHandle;

use super::{
    Chance,
    history::{self, Answer, Call, Event, Filter, History, Kind, List, Record, Request, Revision, Seen, Watch},
};

/// Clients, who meet at the same objects.
const CLIENTS: u64 = 2;
const OBJECTS: u64 = 2;
/// Pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(100);
/// After so long an answer is not waited for any more, nor the next event: a server that was killed says nothing.
const SILENT: Duration = Duration::from_secs(5);
/// The value of an object is here.
const TOKEN: &str = "token";

/// What all share.
struct Room {
    api: Api<ConfigMap>,
    prefix: String,
    now: AtomicU64,
    stopped: AtomicU64,
    history: Mutex<History>,
}

/// Those who are at work.
pub(super) struct Witness {
    room: Arc<Room>,
    clients: Vec<JoinHandle<()>>,
    watch: JoinHandle<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.clients.iter().chain([&self.watch]).for_each(JoinHandle::abort);
    }
}

impl Witness {
    /// Starts them on objects of a name that nobody had before.
    pub(super) async fn start(kubeconfig: &Path, name: &str, seed: u64) -> Result<Self> {
        let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
        let api = Api::default_namespaced(Client::try_from(config)?);
        let room = Arc::new(Room {
            api,
            prefix: format!("{name}-"),
            now: AtomicU64::new(1),
            stopped: AtomicU64::new(0),
            history: Mutex::default(),
        });
        let begin = Instant::now();
        let from = loop {
            match room.list().await {
                Ok(from) => break from,
                Err(error) if begin.elapsed() >= hung::process() => return Err(error.context("a first list")),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let clients = (0..CLIENTS).map(|n| tokio::spawn(work(Arc::clone(&room), n, Chance(seed ^ (n << 32) | 1))));
        let clients = clients.collect();
        let watch = tokio::spawn(watch(Arc::clone(&room), from));
        Ok(Self { room, clients, watch })
    }

    /// Ends them, waits until the watch has shown everything, and judges. Returns how many writes were acknowledged.
    pub(super) async fn judge(mut self) -> Result<usize> {
        self.room.stopped.store(1, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            client.await?;
        }
        self.until_all_is_shown().await?;
        self.watch.abort();
        let history = self.room.locked().clone();
        let violations: Vec<String> = history::check(&history).iter().map(ToString::to_string).collect();
        let unanswered: Vec<&Request> = history.requests.iter().filter(|r| r.answer == Answer::Unknown).collect();
        ensure!(
            violations.is_empty(),
            "T12: {violations:#?}\nunanswered: {unanswered:#?}\nlists: {:#?}",
            history.lists
        );
        let written = |request: &&Request| matches!(request.answer, Answer::Written(_) | Answer::Done);
        Ok(history.requests.iter().filter(written).count())
    }

    /// What was deleted just now is shown before what is created now. A watch that has to begin anew (410, as after a restart) is shown by its list what was
    /// created before that, and by no event: then the next one is shown.
    async fn until_all_is_shown(&self) -> Result<()> {
        let (begin, mut last) = (Instant::now(), None);
        for number in 0_u64.. {
            ensure!(last.is_some() || begin.elapsed() < hung::process(), "no last object is created");
            ensure!(begin.elapsed() < hung::change(), "T12: the watch never shows a last object, as revision {last:?}");
            let key = format!("{}end{number}", self.room.prefix);
            let Some((created, _)) = write(&self.room, &key, None, "end".to_owned(), false).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            last = Some(created);
            let since = Instant::now();
            while since.elapsed() < SILENT {
                if self.room.shown() >= created {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }
}

impl Room {
    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, begin: u64, key: &str, call: Call, answer: Answer) {
        let end = if answer == Answer::Unknown { u64::MAX } else { self.tick() };
        let request = Request { begin, end, key: key.to_owned(), call, answer, in_transaction: false };
        self.locked().requests.push(request);
    }

    /// What a key holds, by an object.
    fn seen(object: &ConfigMap) -> Option<(Revision, String)> {
        let revision = object.metadata.resource_version.as_ref()?.parse().ok()?;
        Some((revision, object.data.as_ref()?.get(TOKEN)?.clone()))
    }

    fn filter(&self) -> Filter {
        Filter { prefix: self.prefix.clone(), value: String::new() }
    }

    /// Lists them, writes that down, and returns of which revision the list is.
    async fn list(&self) -> Result<Revision> {
        let begin = self.tick();
        let listed = tokio::time::timeout(SILENT, self.api.list(&ListParams::default())).await??;
        let revision = listed.metadata.resource_version.as_deref().context("revision of a list")?.parse()?;
        let ours = listed.items.iter().filter(|object| object.name_any().starts_with(&self.prefix));
        let items: BTreeMap<_, _> = ours.filter_map(|object| Some((object.name_any(), Self::seen(object)?))).collect();
        let list = List { begin, end: self.tick(), filter: self.filter(), revision, items };
        self.locked().lists.push(list);
        Ok(revision)
    }

    /// The last revision that the watch has shown.
    fn shown(&self) -> Revision {
        let history = self.locked();
        let records = history.watches.iter().flat_map(|watch| &watch.records);
        let last = records.filter_map(|record| match record {
            Record::Events(events) => events.last().map(|event| event.revision),
            Record::Bookmark(_) => None,
        });
        last.max().unwrap_or_default()
    }
}

/// One client: reads, then writes what it has seen; now and then with something out of date.
async fn work(room: Arc<Room>, client: u64, mut chance: Chance) {
    let mut known: BTreeMap<String, Seen> = BTreeMap::new();
    let mut number = 0_u64;
    // What takes an object away says no revision. So one client alone does it, and each version once: which write an event shows is then
    // known although nobody answered.
    let mut tried: BTreeSet<Revision> = BTreeSet::new();
    while room.stopped.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(PAUSE).await;
        number += 1;
        let key = format!("{}{}", room.prefix, chance.below(OBJECTS));
        match chance.below(6) {
            0 => drop(room.list().await),
            1 | 2 => {
                if let Some(seen) = read(&room, &key).await {
                    known.insert(key, seen);
                }
            }
            kind => {
                let seen = known.get(&key).cloned().flatten();
                let version = seen.as_ref().map(|(revision, _)| *revision);
                let deletes = kind == 3 && client == 0 && version.is_some_and(|version| tried.insert(version));
                let now = write(&room, &key, seen, format!("{client}-{number}"), deletes).await;
                known.insert(key, now);
            }
        }
    }
}

/// None: nobody answered.
async fn read(room: &Room, key: &str) -> Option<Seen> {
    let begin = room.tick();
    let got = tokio::time::timeout(SILENT, room.api.get_opt(key)).await.ok()?.ok()?;
    let seen = got.as_ref().and_then(Room::seen);
    room.note(begin, key, Call::Get, Answer::Read(seen.clone()));
    Some(seen)
}

/// Writes on what is known of a key; returns what is known then.
async fn write(room: &Room, key: &str, known: Seen, token: String, deletes: bool) -> Seen {
    let begin = room.tick();
    let mut object = ConfigMap { data: Some([(TOKEN.to_owned(), token.clone())].into()), ..ConfigMap::default() };
    object.metadata.name = Some(key.to_owned());
    let asked = async {
        match &known {
            None => room.api.create(&PostParams::default(), &object).await.map(Some),
            Some((revision, _)) if deletes => {
                let version = Some(revision.to_string());
                let only = Preconditions { resource_version: version, uid: None };
                let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
                room.api.delete(key, &how).await.map(|_| None)
            }
            Some((revision, _)) => {
                object.metadata.resource_version = Some(revision.to_string());
                room.api.replace(key, &PostParams::default(), &object).await.map(Some)
            }
        }
    };
    let answer = tokio::time::timeout(SILENT, asked).await;
    let call = match &known {
        None => Call::Create { value: token },
        Some((expected, _)) if deletes => Call::Delete { expected: *expected },
        Some((expected, _)) => Call::Update { expected: *expected, value: token },
    };
    let (answer, now) = match answer {
        Ok(Ok(Some(written))) => {
            let now = Room::seen(&written);
            (now.as_ref().map_or(Answer::Unknown, |(revision, _)| Answer::Written(*revision)), now)
        }
        Ok(Ok(None)) => (Answer::Done, None),
        // Too many requests, or a server that drains: who refuses says so before he does anything.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409 | 429) => (Answer::Declined, None),
        Ok(Err(_)) | Err(_) => (Answer::Unknown, None),
    };
    room.note(begin, key, call, answer);
    now
}

/// A watch that is resumed where it ended, for as long as it may be, and else begins after a list.
async fn watch(room: Arc<Room>, mut from: Revision) {
    loop {
        let number = {
            let mut history = room.locked();
            let number = history.watches.len();
            let name = format!("watch {number}");
            history.watches.push(Watch { name, from, filter: room.filter(), records: Vec::new() });
            number
        };
        if let Err(kube::Error::Api(status)) = follow(&room, number, &mut from).await
            && status.code == 410
            && let Ok(revision) = room.list().await
        {
            from = revision;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn follow(room: &Room, number: usize, from: &mut Revision) -> Result<(), kube::Error> {
    let (selection, version) = (WatchParams::default(), from.to_string());
    let begun = room.api.watch(&selection, &version);
    let Ok(begun) = tokio::time::timeout(SILENT, begun).await else { return Ok(()) };
    let mut events = pin!(begun?);
    while let Ok(event) = tokio::time::timeout(SILENT, events.try_next()).await {
        let (kind, object) = match event? {
            Some(WatchEvent::Added(object)) => (Kind::Added, object),
            Some(WatchEvent::Modified(object)) => (Kind::Modified, object),
            Some(WatchEvent::Deleted(object)) => (Kind::Deleted, object),
            Some(WatchEvent::Bookmark(bookmark)) => {
                if let Ok(revision) = bookmark.metadata.resource_version.parse() {
                    *from = revision;
                    note(room, number, Record::Bookmark(revision));
                }
                continue;
            }
            Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
            None => return Ok(()),
        };
        let key = object.name_any();
        if let Some((revision, value)) = Room::seen(&object).filter(|_| key.starts_with(&room.prefix)) {
            *from = revision;
            note(room, number, Record::Events(vec![Event { kind, key, revision, value, previous: None }]));
        }
    }
    Ok(())
}

fn note(room: &Room, number: usize, record: Record) {
    if let Some(watch) = room.locked().watches.get_mut(number) {
        watch.records.push(record);
    }
}
