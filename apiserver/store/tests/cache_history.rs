//! What watchers and pagers see of any history, compared with a model written independently: events are ordered, unique,
//! complete, resumable from any of them and from any bookmark, show the right kind and content through any filter, and a
//! list followed by a watch yields exactly the final state.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use proptest::prelude::*;
use store::cache::{Cache, Delivery, Describe, Error, Filter, Kind, Options, Paths, Query, Resource, Watcher, Window};
use store::{Clock, Embedded, EmbeddedOptions, Key, Memory, Revision, Store, Write};

const NAMESPACES: [&str; 2] = ["a", "b"];
const COLORS: [&str; 2] = ["red", "blue"];

#[derive(Debug, Clone)]
enum Step {
    /// Creates or replaces.
    Put { namespace: usize, name: u8, color: usize },
    /// Deletes if present.
    Delete { namespace: usize, name: u8 },
    /// Writes another resource, which moves the revision only.
    Elsewhere,
    /// Starts a watcher.
    Start { how: Start, view: View },
    /// Lets a watcher take at most so many events.
    Take { watcher: usize, count: usize },
    /// Stops a watcher and resumes it after what it saw last, or after its bookmark.
    Resume { watcher: usize, bookmark: bool },
    /// Lists in pages, with the writes of the history in between.
    Page { view: View, limit: usize },
    /// Fetches the next page of every list begun.
    Continue,
    /// Lists as of some earlier revision.
    Past { part: u8 },
}

#[derive(Debug, Clone, Copy)]
enum Start {
    ListThenWatch,
    ListAndWatch,
    /// From a part of the history so far.
    From(u8),
    /// From a revision that has not happened yet.
    Future(u8),
}

/// What a watcher or a pager asks for.
#[derive(Debug, Clone, Copy)]
struct View {
    namespace: Option<usize>,
    color: Option<usize>,
}

impl View {
    fn filter(self) -> Filter {
        let filter = Filter::of(self.namespace.map(|n| NAMESPACES[n]));
        match self.color {
            None => filter,
            Some(color) => filter.selecting(move |object| object.header().labels.get("color") == Some(COLORS[color])),
        }
    }

    fn shows(self, key: &Key, color: usize) -> bool {
        self.namespace.is_none_or(|n| key.namespace() == Some(NAMESPACES[n])) && self.color.is_none_or(|c| c == color)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let view = (prop::option::of(0..2_usize), prop::option::of(0..2_usize))
        .prop_map(|(namespace, color)| View { namespace, color });
    let start = prop_oneof![
        Just(Start::ListThenWatch),
        Just(Start::ListAndWatch),
        any::<u8>().prop_map(Start::From),
        (1..9_u8).prop_map(Start::Future),
    ];
    let step = prop_oneof![
        8 => (0..2_usize, 0..4_u8, 0..2_usize).prop_map(|(namespace, name, color)| Step::Put { namespace, name, color }),
        3 => (0..2_usize, 0..4_u8).prop_map(|(namespace, name)| Step::Delete { namespace, name }),
        1 => Just(Step::Elsewhere),
        2 => (start, view.clone()).prop_map(|(how, view)| Step::Start { how, view }),
        4 => (0..4_usize, 1..5_usize).prop_map(|(watcher, count)| Step::Take { watcher, count }),
        2 => (0..4_usize, any::<bool>()).prop_map(|(watcher, bookmark)| Step::Resume { watcher, bookmark }),
        1 => (view, 1..4_usize).prop_map(|(view, limit)| Step::Page { view, limit }),
        2 => Just(Step::Continue),
        1 => any::<u8>().prop_map(|part| Step::Past { part }),
    ];
    prop::collection::vec(step, 1..80)
}

fn pod(namespace: usize, name: u8) -> Key {
    Key::new("pods", Some(NAMESPACES[namespace]), &format!("p{name}")).unwrap()
}

fn value(key: &Key, color: usize) -> Bytes {
    let (color, name) = (COLORS[color], key.name());
    format!(r#"{{"metadata":{{"name":"{name}","labels":{{"color":"{color}"}}}}}}"#).into()
}

fn json(key: &Key, color: usize, revision: Revision) -> String {
    String::from_utf8(store::cache::with_revision(&value(key, color), revision).unwrap().to_vec()).unwrap()
}

/// As it must look on the wire.
type Seen = (Kind, Revision, String);

fn seen(delivery: &Delivery) -> Seen {
    let frame = String::from_utf8(delivery.frame().to_vec()).unwrap();
    let head = format!("{{\"type\":\"{}\",\"object\":", delivery.kind().as_str());
    let object = frame.strip_prefix(&head).and_then(|rest| rest.strip_suffix("}\n")).expect("a frame");
    assert_eq!(delivery.object().as_bytes(), object.as_bytes());
    (delivery.kind(), delivery.revision(), object.to_owned())
}

/// By key: revision and color.
type Objects = BTreeMap<Key, (Revision, usize)>;

/// Everything that ever happened to pods.
#[derive(Default)]
struct Model {
    /// After each write of a pod: its revision, its key, and all pods then.
    moments: Vec<(Revision, Key, Objects)>,
    now: Objects,
}

impl Model {
    fn at(&self, revision: Revision) -> Objects {
        self.moments.iter().rev().find(|(at, ..)| *at <= revision).map(|(.., all)| all.clone()).unwrap_or_default()
    }

    fn listed(&self, revision: Revision, view: View) -> Vec<String> {
        let shown = self.at(revision).into_iter().filter(|(key, (_, color))| view.shows(key, *color));
        shown.map(|(key, (revision, color))| json(&key, color, revision)).collect()
    }

    /// What a watcher of `view` must be told of the time after `from`.
    fn told(&self, from: Revision, view: View) -> Vec<Seen> {
        let mut before = Objects::new();
        let mut told = Vec::new();
        for (revision, key, after) in &self.moments {
            let shown = |all: &Objects| all.get(key).copied().filter(|(_, color)| view.shows(key, *color));
            let kind = match (shown(&before), shown(after)) {
                (None, Some((_, color))) => Some((Kind::Added, color)),
                (Some(_), Some((_, color))) => Some((Kind::Modified, color)),
                (Some((_, color)), None) => Some((Kind::Deleted, color)),
                (None, None) => None,
            };
            if let Some((kind, color)) = kind.filter(|_| *revision > from) {
                told.push((kind, *revision, json(key, color, *revision)));
            }
            before.clone_from(after);
        }
        told
    }
}

struct Watching {
    from: Revision,
    view: View,
    watcher: Watcher,
    seen: Vec<Seen>,
}

struct Paging {
    query: Query,
    view: View,
    revision: Revision,
    items: Vec<String>,
    done: bool,
}

/// A cache, what it should show, and who looks at it.
struct World {
    cache: Cache,
    model: Model,
    watching: Vec<Watching>,
    paging: Vec<Paging>,
}

impl World {
    async fn new(store: Arc<dyn Store>, window: Window) -> World {
        let describe: Arc<dyn Describe> = Arc::new(Paths::new([]));
        let resources = ["pods", "secrets"].map(|name| (name.to_owned(), Arc::clone(&describe)));
        let options = Options { window, clock: Clock::system() };
        let cache = Cache::start(store, resources, options).await.unwrap();
        World { cache, model: Model::default(), watching: Vec::new(), paging: Vec::new() }
    }

    fn pods(&self) -> &Resource {
        self.cache.resource("pods").unwrap()
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Put { namespace, name, color } => self.put(pod(*namespace, *name), *color).await,
            Step::Delete { namespace, name } => self.delete(pod(*namespace, *name)).await,
            Step::Elsewhere => {
                let key = Key::new("secrets", None, &format!("s{}", self.cache.revision())).unwrap();
                self.cache.write(Write::create(key.clone(), value(&key, 0))).await.unwrap();
            }
            Step::Start { how, view } => self.start(*how, *view),
            Step::Take { watcher, count } => {
                if let Some(watching) = self.watching.get_mut(*watcher) {
                    watching.take(*count);
                }
            }
            Step::Resume { watcher, bookmark } => self.resume(*watcher, *bookmark),
            Step::Page { view, limit } => {
                let query = Query { filter: view.filter(), limit: Some(*limit), ..Query::default() };
                let (revision, items) = (Revision::default(), Vec::new());
                self.paging.push(Paging { query, view: *view, revision, items, done: false });
                self.next_page(self.paging.len() - 1);
            }
            Step::Continue => (0..self.paging.len()).for_each(|n| self.next_page(n)),
            Step::Past { part } => self.look_back(*part),
        }
    }

    async fn put(&mut self, key: Key, color: usize) {
        let write = match self.model.now.get(&key) {
            None => Write::create(key.clone(), value(&key, color)),
            Some((seen, _)) => Write::update(key.clone(), *seen, value(&key, color)),
        };
        let revision = self.cache.write(write).await.unwrap().revision;
        self.model.now.insert(key.clone(), (revision, color));
        self.model.moments.push((revision, key.clone(), self.model.now.clone()));
        let object = self.pods().get(&key).unwrap().expect("a write is visible when it is acknowledged");
        assert_eq!(object.as_bytes(), json(&key, color, revision).as_bytes());
    }

    async fn delete(&mut self, key: Key) {
        let Some((seen, _)) = self.model.now.get(&key).copied() else { return };
        let revision = self.cache.write(Write::delete(key.clone(), seen)).await.unwrap().revision;
        self.model.now.remove(&key);
        self.model.moments.push((revision, key.clone(), self.model.now.clone()));
        assert_eq!(self.pods().get(&key), Ok(None));
    }

    fn start(&mut self, how: Start, view: View) {
        let current = self.cache.revision();
        let (from, watcher) = match how {
            Start::ListThenWatch => {
                let listed = self.pods().list(&Query { filter: view.filter(), ..Query::default() }).unwrap();
                assert_eq!(bodies(&listed.items), self.model.listed(listed.revision, view));
                (listed.revision, self.pods().watch(listed.revision, view.filter()))
            }
            Start::ListAndWatch => {
                let (listed, watcher) = self.pods().list_and_watch(view.filter()).unwrap();
                assert_eq!(bodies(&listed.items), self.model.listed(listed.revision, view));
                (listed.revision, Ok(watcher))
            }
            Start::From(part) => {
                let from = Revision(1 + (current.0 - 1) * u64::from(part) / 255);
                (from, self.pods().watch(from, view.filter()))
            }
            Start::Future(steps) => {
                let from = Revision(current.0 + u64::from(steps));
                (from, self.pods().watch(from, view.filter()))
            }
        };
        if let Some(watcher) = unless_expired(watcher, from) {
            self.watching.push(Watching { from, view, watcher, seen: Vec::new() });
        }
    }

    fn resume(&mut self, n: usize, bookmark: bool) {
        if n >= self.watching.len() {
            return;
        }
        let mut watching = self.watching.remove(n);
        let last = watching.seen.last().map_or(watching.from, |(_, revision, _)| *revision);
        let from = if bookmark { watching.watcher.progress() } else { last };
        assert!(from >= last);
        if let Some(watcher) = unless_expired(self.pods().watch(from, watching.view.filter()), from) {
            watching.watcher = watcher;
            self.watching.push(watching);
        }
    }

    fn next_page(&mut self, n: usize) {
        let pods = Arc::clone(self.cache.resource("pods").unwrap());
        let Some(paging) = self.paging.get_mut(n).filter(|paging| !paging.done) else { return };
        let listed = pods.list(&paging.query).unwrap();
        if paging.items.is_empty() {
            paging.revision = listed.revision;
        }
        assert_eq!(listed.revision, paging.revision);
        paging.items.extend(bodies(&listed.items));
        let expected = self.model.listed(paging.revision, paging.view);
        if paging.view.color.is_none() && listed.next.is_some() {
            assert_eq!(listed.remaining, Some(expected.len() - paging.items.len()));
        }
        paging.done = listed.next.is_none();
        if paging.done {
            assert_eq!(paging.items, expected);
        }
        let (at, served) = (Some(paging.revision), paging.items.len());
        paging.query = Query { at, after: listed.next, served, ..paging.query.clone() };
    }

    fn look_back(&self, part: u8) {
        let current = self.cache.revision();
        let at = Revision(1 + (current.0 - 1) * u64::from(part) / 255);
        let view = View { namespace: None, color: None };
        match self.pods().list(&Query { at: Some(at), ..Query::default() }) {
            Ok(listed) => assert_eq!((bodies(&listed.items), listed.revision), (self.model.listed(at, view), at)),
            Err(Error::Expired { requested, oldest, .. }) => assert!(requested == at && oldest > at),
            Err(other) => panic!("{other}"),
        }
    }

    /// Every watcher has been told everything, exactly.
    fn check(mut self) {
        for watching in &mut self.watching {
            watching.take(usize::MAX);
            assert_eq!(watching.seen, self.model.told(watching.from, watching.view));
            let last = self.cache.revision().max(watching.from);
            assert_eq!(watching.watcher.progress(), last);
        }
        while self.paging.iter().any(|paging| !paging.done) {
            (0..self.paging.len()).for_each(|n| self.next_page(n));
        }
    }
}

impl Watching {
    fn take(&mut self, count: usize) {
        for _ in 0..count {
            match self.watcher.next().now_or_never() {
                Some(Ok(delivery)) => self.seen.push(seen(&delivery)),
                Some(Err(end)) => panic!("{end}"),
                None => break,
            }
        }
    }
}

fn bodies(items: &[Arc<store::cache::Object>]) -> Vec<String> {
    items.iter().map(|object| String::from_utf8(object.json().to_vec()).unwrap()).collect()
}

fn unless_expired(watcher: Result<Watcher, Error>, from: Revision) -> Option<Watcher> {
    match watcher {
        Ok(watcher) => Some(watcher),
        Err(Error::Expired { requested, oldest, .. }) => {
            assert!(requested == from && oldest > from);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn play(history: &[Step], window: Window) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(Arc::new(Memory::default()), window).await;
        for step in history {
            world.step(step).await;
        }
        world.check();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_watcher_and_every_page_agree_with_the_model(history in steps()) {
        play(&history, Window::default());
    }

    #[test]
    fn with_a_short_memory_some_is_refused_as_expired_and_nothing_is_wrong(history in steps(), at_most in 0..6_usize) {
        play(&history, Window { at_least: 0, at_most, ..Window::default() });
    }
}

/// The same with real concurrency: writers, watchers and the commit thread at once, on the durable store.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn watchers_that_start_amid_concurrent_writes_end_with_the_final_state() {
    const WRITERS: u8 = 6;
    const WRITES: usize = 60;
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(&directory.path().join("store"), EmbeddedOptions::default()).unwrap();
    let world = World::new(Arc::new(store), Window::default()).await;
    let cache = Arc::new(world.cache);
    let writers: Vec<_> = (0..WRITERS).map(|name| tokio::spawn(write_some(Arc::clone(&cache), name, WRITES))).collect();
    let watchers: Vec<_> = (0..12_u8)
        .map(|n| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(u64::from(n) * 7)).await;
                follow(&cache, u64::from(WRITERS) * WRITES as u64 + 1).await
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let last = bodies(&cache.resource("pods").unwrap().list(&Query::default()).unwrap().items);
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), last);
    }
}

async fn write_some(cache: Arc<Cache>, name: u8, writes: usize) {
    for n in 0..writes {
        let key = pod(n % 2, name);
        let seen = cache.resource("pods").unwrap().get(&key).unwrap().map(|object| object.revision());
        let write = match seen {
            None => Write::create(key.clone(), value(&key, n % 2)),
            Some(seen) if n % 5 == 4 => Write::delete(key.clone(), seen),
            Some(seen) => Write::update(key.clone(), seen, value(&key, n % 2)),
        };
        cache.write(write).await.unwrap();
    }
}

/// Lists, watches until everything has happened, and returns the state it arrived at.
async fn follow(cache: &Cache, end: u64) -> Vec<String> {
    let pods = cache.resource("pods").unwrap();
    let listed = pods.list(&Query::default()).unwrap();
    let mut state: BTreeMap<Key, String> =
        listed.items.iter().map(|o| (o.key().clone(), String::from_utf8(o.json().to_vec()).unwrap())).collect();
    let mut watcher = pods.watch(listed.revision, Filter::default()).unwrap();
    let mut at = listed.revision;
    while at.0 < end {
        let delivery = watcher.next().await.unwrap();
        assert_eq!(delivery.revision(), at.next());
        at = delivery.revision();
        let (kind, _, json) = seen(&delivery);
        let key = delivery.object().key().clone();
        match kind {
            Kind::Added => assert_eq!(state.insert(key, json), None),
            Kind::Modified => assert!(state.insert(key, json).is_some()),
            Kind::Deleted => assert!(state.remove(&key).is_some()),
        }
    }
    state.into_values().collect()
}
