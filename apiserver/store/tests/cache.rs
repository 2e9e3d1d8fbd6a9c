//! The watch cache, used as the API server uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::cache::{Cache, Delivery, Describe, End, Error, Filter, Kind, MAILBOX_EVENTS, Options, Paths, Query};
use store::{Clock, Error as StoreError, Key, Memory, Refusal, Revision, Store, Write};

const PODS: &str = "pods";

fn key(namespace: &str, name: &str) -> Key {
    Key::new(PODS, Some(namespace), name).unwrap()
}

fn pod(key: &Key, color: &str) -> Bytes {
    let (namespace, name) = (key.namespace().unwrap(), key.name());
    format!(
        r#"{{"kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{"color":"{color}"}}}}}}"#
    )
    .into()
}

fn shown(key: &Key, color: &str, revision: Revision) -> String {
    String::from_utf8(store::cache::with_revision(&pod(key, color), revision).unwrap().to_vec()).unwrap()
}

fn describers() -> Vec<(String, Arc<dyn Describe>)> {
    let paths: Arc<dyn Describe> = Arc::new(Paths::new([]));
    vec![(PODS.to_owned(), paths.clone()), ("secrets".to_owned(), paths)]
}

async fn cache_over(store: Arc<dyn Store>, options: Options) -> Cache {
    Cache::start(store, describers(), options).await.unwrap()
}

async fn cache() -> Cache {
    cache_over(Arc::new(Memory::default()), Options::default()).await
}

async fn create(cache: &Cache, key: &Key, color: &str) -> Revision {
    cache.write(Write::create(key.clone(), pod(key, color))).await.unwrap().revision
}

async fn recolor(cache: &Cache, key: &Key, color: &str) -> Revision {
    let seen = cache.resource(PODS).unwrap().get(key).unwrap().unwrap().revision();
    cache.write(Write::update(key.clone(), seen, pod(key, color))).await.unwrap().revision
}

async fn delete(cache: &Cache, key: &Key) -> Revision {
    let seen = cache.resource(PODS).unwrap().get(key).unwrap().unwrap().revision();
    cache.write(Write::delete(key.clone(), seen)).await.unwrap().revision
}

fn names(listed: &store::cache::Listed) -> Vec<String> {
    listed.items.iter().map(|object| object.key().to_string()).collect()
}

fn told(delivery: &Delivery) -> (Kind, Revision, String) {
    let frame = String::from_utf8(delivery.frame().to_vec()).unwrap();
    let head = format!("{{\"type\":\"{}\",\"object\":", delivery.kind().as_str());
    let json = frame.strip_prefix(&head).unwrap().strip_suffix("}\n").unwrap();
    assert_eq!(delivery.object().as_bytes(), json.as_bytes());
    (delivery.kind(), delivery.revision(), json.to_owned())
}

#[tokio::test]
async fn a_read_after_an_acknowledged_write_sees_it() {
    let cache = cache().await;
    for round in 0..100 {
        let key = key("a", &format!("p{round}"));
        let revision = create(&cache, &key, "red").await;
        let object = cache.resource(PODS).unwrap().get(&key).unwrap().unwrap();
        assert_eq!((object.revision(), object.as_bytes()), (revision, shown(&key, "red", revision).as_bytes()));
        assert!(cache.fresh().await.unwrap() >= revision);
    }
}

#[tokio::test]
async fn a_write_that_expects_too_much_is_refused_with_what_is_there() {
    let cache = cache().await;
    let a = key("a", "a");
    let revision = create(&cache, &a, "red").await;
    let refused = cache.write(Write::create(a.clone(), pod(&a, "blue"))).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(Refusal::Exists { current }) if current.revision == revision));
    let refused = cache.write(Write::delete(a.clone(), Revision(77))).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused(Refusal::Conflict { current }) if current.value == pod(&a, "red")));
    let unreadable = cache.write(Write::update(a.clone(), revision, "{".into())).await.unwrap_err();
    assert!(matches!(unreadable, StoreError::Undecodable { .. }), "{unreadable}");
    assert_eq!(cache.fresh().await.unwrap(), revision);
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_its_start_in_the_shape_of_the_wire() {
    let cache = cache().await;
    let a = key("a", "a");
    let first = create(&cache, &a, "red").await;
    let mut watch = cache.resource(PODS).unwrap().watch(first, Filter::default()).unwrap();
    let second = recolor(&cache, &a, "blue").await;
    let third = delete(&cache, &a).await;
    assert_eq!(told(&watch.next().await.unwrap()), (Kind::Modified, second, shown(&a, "blue", second)));
    assert_eq!(told(&watch.next().await.unwrap()), (Kind::Deleted, third, shown(&a, "blue", third)));
    let fourth = create(&cache, &a, "green").await;
    assert_eq!(told(&watch.next().await.unwrap()), (Kind::Added, fourth, shown(&a, "green", fourth)));
}

#[tokio::test]
async fn entering_a_selection_looks_like_creation_and_leaving_it_like_deletion() {
    let cache = cache().await;
    let (a, other) = (key("a", "a"), key("b", "a"));
    let red = Filter::of(Some("a")).selecting(|object| object.header().labels.get("color") == Some("red"));
    let mut watch = cache.resource(PODS).unwrap().watch(Revision::FIRST, red).unwrap();
    create(&cache, &other, "red").await;
    create(&cache, &a, "blue").await;
    let entered = recolor(&cache, &a, "red").await;
    let left = recolor(&cache, &a, "green").await;
    recolor(&cache, &a, "blue").await;
    let again = recolor(&cache, &a, "red").await;
    let gone = delete(&cache, &a).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(told(&watch.next().await.unwrap()));
    }
    let expected = [
        (Kind::Added, entered, shown(&a, "red", entered)),
        (Kind::Deleted, left, shown(&a, "red", left)),
        (Kind::Added, again, shown(&a, "red", again)),
        (Kind::Deleted, gone, shown(&a, "red", gone)),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn pages_of_one_list_are_one_snapshot_whatever_is_written_meanwhile() {
    let cache = cache().await;
    let pods = cache.resource(PODS).unwrap();
    for n in 0..5 {
        create(&cache, &key("a", &format!("p{n}")), "red").await;
    }
    create(&cache, &key("b", "x"), "red").await;
    let mut query = Query { filter: Filter::of(Some("a")), limit: Some(2), ..Query::default() };
    let first = pods.list(&query).unwrap();
    assert_eq!((names(&first).join(" "), first.remaining), ("pods/a/p0 pods/a/p1".to_owned(), Some(3)));
    delete(&cache, &key("a", "p3")).await;
    create(&cache, &key("a", "p2x"), "red").await;
    let mut all = names(&first);
    let (mut after, mut served) = (first.next.clone(), first.items.len());
    while let Some(key) = after {
        query = Query { at: Some(first.revision), after: Some(key), served, ..query };
        let page = pods.list(&query).unwrap();
        assert_eq!(page.revision, first.revision);
        served += page.items.len();
        all.extend(names(&page));
        after = page.next;
    }
    assert_eq!(all.join(" "), "pods/a/p0 pods/a/p1 pods/a/p2 pods/a/p3 pods/a/p4");
    let now = pods.list(&Query { filter: Filter::of(Some("a")), ..Query::default() }).unwrap();
    assert_eq!(names(&now).join(" "), "pods/a/p0 pods/a/p1 pods/a/p2 pods/a/p2x pods/a/p4");
}

#[tokio::test]
async fn a_slow_watcher_is_closed_and_nobody_waits_for_it() {
    let cache = cache().await;
    let pods = cache.resource(PODS).unwrap();
    let mut slow = pods.watch(Revision::FIRST, Filter::default()).unwrap();
    let mut last = Revision::FIRST;
    for n in 0..=MAILBOX_EVENTS {
        last = create(&cache, &key("a", &format!("p{n}")), "red").await;
    }
    assert_eq!(pods.watchers(), 0);
    for n in 0..MAILBOX_EVENTS {
        assert_eq!(slow.next().await.unwrap().revision(), Revision(2 + n as u64));
    }
    assert_eq!(slow.next().await.unwrap_err(), End::Slow);
    let mut resumed = pods.watch(Revision(1 + MAILBOX_EVENTS as u64), Filter::default()).unwrap();
    assert_eq!(resumed.next().await.unwrap().revision(), last);
    drop(resumed);
    assert_eq!(pods.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_revision_ends_after_three_seconds() {
    let cache = cache().await;
    let start = tokio::time::Instant::now();
    let expected = Error::Future { requested: Revision(5), current: Revision(1) };
    assert_eq!(cache.wait_for(Revision(5)).await, Err(expected));
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn an_idle_resource_keeps_up_with_the_revision_of_the_store() {
    let cache = cache().await;
    let mut watch = cache.resource("secrets").unwrap().watch(Revision::FIRST, Filter::default()).unwrap();
    let revision = create(&cache, &key("a", "a"), "red").await;
    assert_eq!(watch.progress(), revision);
    assert_eq!(cache.resource("secrets").unwrap().list(&Query::default()).unwrap().revision, revision);
}

#[tokio::test]
async fn a_value_that_cannot_be_read_fails_lists_loudly_until_it_is_replaced() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let cache = cache_over(store.clone(), Options::default()).await;
    let pods = cache.resource(PODS).unwrap();
    let (good, bad) = (key("a", "good"), key("a", "bad"));
    create(&cache, &good, "red").await;
    let mut watch = pods.watch(cache.revision(), Filter::default()).unwrap();
    let written = store.write(Write::create(bad.clone(), "{".into())).await.unwrap();
    cache.fresh().await.unwrap();
    assert_eq!(watch.next().await.unwrap_err(), End::Reloaded);
    assert!(matches!(pods.list(&Query::default()).unwrap_err(), Error::Undecodable { key, .. } if key == bad));
    assert!(matches!(pods.get(&bad).unwrap_err(), Error::Undecodable { .. }));
    assert!(pods.get(&good).unwrap().is_some());
    let again = cache_over(store.clone(), Options::default()).await;
    assert!(again.resource(PODS).unwrap().list(&Query::default()).is_err());
    store.write(Write::delete(bad, written.revision)).await.unwrap();
    cache.fresh().await.unwrap();
    assert_eq!(names(&pods.list(&Query::default()).unwrap()), ["pods/a/good"]);
    assert!(matches!(pods.watch(Revision::FIRST, Filter::default()).unwrap_err(), Error::Expired { .. }));
}

#[tokio::test]
async fn closing_ends_every_watch_and_refuses_writes() {
    let cache = cache().await;
    let mut watch = cache.resource(PODS).unwrap().watch(Revision::FIRST, Filter::default()).unwrap();
    cache.close().await;
    assert_eq!(watch.next().await.unwrap_err(), End::Closed);
    let a = key("a", "a");
    assert_eq!(cache.write(Write::create(a.clone(), pod(&a, "red"))).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn the_clock_decides_how_long_a_page_may_wait() {
    let now = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let read = now.clone();
    let clock = Clock::from_fn(move || *read.lock().unwrap());
    let window = store::cache::Window { at_least: 0, ..store::cache::Window::default() };
    let cache = cache_over(Arc::new(Memory::default()), Options { window, clock }).await;
    let pods = cache.resource(PODS).unwrap();
    for n in 0..3 {
        create(&cache, &key("a", &format!("p{n}")), "red").await;
    }
    let first = pods.list(&Query { limit: Some(1), ..Query::default() }).unwrap();
    *now.lock().unwrap() = Duration::from_secs(75);
    let next = Query { at: Some(first.revision), after: first.next.clone(), ..Query::default() };
    recolor(&cache, &key("a", "p2"), "blue").await;
    assert_eq!(names(&pods.list(&next).unwrap()), ["pods/a/p1", "pods/a/p2"]);
    *now.lock().unwrap() = Duration::from_secs(151);
    let current = recolor(&cache, &key("a", "p2"), "red").await;
    let expired = Error::Expired { requested: first.revision, oldest: Revision(5), current };
    assert_eq!(pods.list(&next).unwrap_err(), expired);
}
