//! Figures of the store on this machine: `cargo run --release -p store --example store_figures [DIR [ETCD]]`.
//!
//! Durable updates per second beside the raw rate of fdatasync in the same run, the scan of a list that matches nothing,
//! memory per object, start-up time. With ETCD, such as `http://127.0.0.1:2379` (empty, and only for this), the updates and
//! the price of a fresh read on that instead.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::cache::{Cache, Describe, Filter, Options, Paths, Query};
use store::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, Key, Memory, Store, Write};

const RESOURCE: &str = "redis.kun.io/redisclusters";
const OBJECTS: usize = 20_000;
const RUN: Duration = Duration::from_secs(3);

fn key(n: usize) -> Key {
    Key::new(RESOURCE, Some(&format!("team-{}", n % 50)), &format!("orders-{n}")).unwrap()
}

/// An object of about 1.8 KB with a counter in it, because engines skip what does not change.
fn object(n: usize, counter: u64) -> Bytes {
    let filler = "x".repeat(1430);
    format!(
        r#"{{"apiVersion":"redis.kun.io/v1","kind":"RedisCluster","metadata":{{"name":"orders-{n}","namespace":"team-{}","uid":"6f9619ff-8b86-d011-b42d-{n:012}","labels":{{"app.kubernetes.io/name":"redis","team":"t{}","tier":"cache"}},"creationTimestamp":"2026-11-21T00:00:00Z"}},"spec":{{"shards":3,"counter":{counter},"filler":"{filler}"}},"status":{{"phase":"Ready"}}}}"#,
        n % 50,
        n % 50,
    )
    .into()
}

fn describers() -> Vec<(String, Arc<dyn Describe>)> {
    vec![(RESOURCE.to_owned(), Arc::new(Paths::new(["status.phase"])) as Arc<dyn Describe>)]
}

#[tokio::main]
async fn main() {
    let base = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = tempfile::tempdir_in(base).unwrap();
    raw_sync_rate(&directory.path().join("raw"));
    if let Some(server) = std::env::args().nth(2) {
        return on_etcd(server).await;
    }
    let path = directory.path().join("store");
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&path, EmbeddedOptions::default()).unwrap());
    let cache = write_rates(&store).await;
    raw_sync_rate(&directory.path().join("raw"));
    drop(cache);
    store.close().await;
    drop(store);
    start_time(&path).await;
    scan_and_memory().await;
}

/// Rates of updates, at the store itself and through a cache; the cache, with all objects.
async fn write_rates(store: &Arc<dyn Store>) -> Arc<Cache> {
    let cache = Arc::new(Cache::start(Arc::clone(store), describers(), Options::default()).await.unwrap());
    fill(&cache, 0..OBJECTS).await;
    for writers in [1, 16, 64, 256] {
        engine_rate(store, writers).await;
    }
    for writers in [1, 16, 64, 256] {
        update_rate(&cache, writers).await;
    }
    cache
}

async fn on_etcd(server: String) {
    let store: Arc<dyn Store> = Arc::new(Etcd::connect(EtcdOptions::new(vec![server])).await.unwrap());
    let cache = write_rates(&store).await;
    for readers in [1, 16, 64] {
        fresh_rate(&cache, readers).await;
    }
    let began = Instant::now();
    Cache::start(store, describers(), Options::default()).await.unwrap();
    println!("start with {OBJECTS} objects: ready {:?}", began.elapsed());
}

/// Reads that must see every acknowledged write, while nobody writes.
async fn fresh_rate(cache: &Arc<Cache>, readers: usize) {
    let start = Instant::now();
    let reader = || {
        let cache = Arc::clone(cache);
        async move {
            let mut times = Vec::new();
            while start.elapsed() < RUN {
                let began = Instant::now();
                cache.fresh().await.unwrap();
                times.push(began.elapsed());
            }
            times
        }
    };
    let tasks: Vec<_> = (0..readers).map(|_| tokio::spawn(reader())).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    let rate = times.len() as f64 / RUN.as_secs_f64();
    println!("fresh reads, {readers:>3} readers: {rate:>7.0}/s  p50 {:?}  p99 {:?}", at(0.5), at(0.99));
}

fn raw_sync_rate(path: &Path) {
    let mut file = File::create(path).unwrap();
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&[7; 1800]).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    println!("raw append + fdatasync: {count} per second");
}

async fn fill(cache: &Arc<Cache>, range: std::ops::Range<usize>) {
    let numbers: Vec<usize> = range.collect();
    let tasks: Vec<_> = numbers
        .chunks(numbers.len().div_ceil(256).max(1))
        .map(|chunk| {
            let (cache, chunk) = (Arc::clone(cache), chunk.to_vec());
            tokio::spawn(async move {
                for n in chunk {
                    cache.write(Write::create(key(n), object(n, 0))).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn update_rate(cache: &Arc<Cache>, writers: usize) {
    let (start, counter) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let writer = |writer: usize| {
        let (cache, counter) = (Arc::clone(cache), Arc::clone(&counter));
        async move {
            let mut times = Vec::new();
            let mut n = writer;
            while start.elapsed() < RUN {
                let count = counter.fetch_add(1, Ordering::Relaxed);
                n = (n + 7919 * writers) % OBJECTS / writers * writers + writer;
                let n = if n < OBJECTS { n } else { writer };
                let key = key(n);
                let seen = cache.resource(RESOURCE).unwrap().get(&key).unwrap().unwrap().revision();
                let began = Instant::now();
                cache.write(Write::update(key, seen, object(n, count))).await.unwrap();
                times.push(began.elapsed());
            }
            times
        }
    };
    let cpu = cpu_time();
    let tasks: Vec<_> = (0..writers).map(|n| tokio::spawn(writer(n))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let elapsed = start.elapsed();
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / times.len() as f64;
    println!(
        "durable updates, {writers:>3} writers: {rate:>7.0}/s  p50 {:?}  p99 {:?}  cpu {cpu:.0} µs each",
        at(0.5),
        at(0.99)
    );
}

/// The store alone: no cache reads, small fixed work per write beside the store's own.
async fn engine_rate(store: &Arc<dyn Store>, writers: usize) {
    let (start, cpu) = (Instant::now(), cpu_time());
    let writer = |writer: usize| {
        let store = Arc::clone(store);
        async move {
            let key = key(writer * 77);
            let mut seen = store.get(&key).await.unwrap().unwrap().revision;
            let (mut value, mut count) = (object(writer, 0).to_vec(), 0_u64);
            value.truncate(1024);
            while start.elapsed() < RUN {
                count += 1;
                value.splice(0..8, count.to_be_bytes());
                seen = store.write(Write::update(key.clone(), seen, value.clone().into())).await.unwrap().revision;
            }
            let whole = object(writer * 77, count);
            store.write(Write::update(key, seen, whole)).await.unwrap();
            count
        }
    };
    let tasks: Vec<_> = (0..writers).map(|n| tokio::spawn(writer(n))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / count as f64;
    println!("store alone, 1 KiB,  {writers:>3} writers: {rate:>7.0}/s  cpu {cpu:.0} µs each");
}

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 =
        stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

async fn start_time(path: &Path) {
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(path, EmbeddedOptions::default()).unwrap());
    let opened = began.elapsed();
    let cache = Cache::start(store, describers(), Options::default()).await.unwrap();
    println!("start with {OBJECTS} objects: open {opened:?}, ready {:?}", began.elapsed());
    cache.close().await;
}

fn rss() -> f64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

/// In memory only, so that the figures are the cache's. What the memory store itself holds is counted by loading the
/// same objects into a store without a cache first.
async fn scan_and_memory() {
    const COUNT: usize = 100_000;
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let before_store = rss();
    let mut length = 0;
    for n in 0..COUNT {
        let value = object(n, 0);
        length = value.len();
        store.write(Write::create(key(n), value)).await.unwrap();
    }
    let before = rss();
    let cache = Cache::start(Arc::clone(&store), describers(), Options::default()).await.unwrap();
    let slope = (rss() - before) / COUNT as f64;
    let bar = 1.5 * length as f64 + 300.0;
    let bare = (before - before_store) / COUNT as f64;
    println!(
        "memory per object of {length} B: cache {slope:.0} B (bar {bar:.0}); a bare map of the values {bare:.0} B"
    );
    let resource = cache.resource(RESOURCE).unwrap();
    let nothing = Filter::default().selecting(|object| object.header().labels.get("team") == Some("none"));
    time("list, selector matches nothing, 100k", || {
        resource.list(&Query { filter: nothing.clone(), ..Query::default() }).unwrap().items.len()
    });
    time("list, everything, 100k", || resource.list(&Query::default()).unwrap().items.len());
    time("list, one namespace of 50", || {
        resource.list(&Query { filter: Filter::of(Some("team-7")), ..Query::default() }).unwrap().items.len()
    });
    let began = rss();
    let watches: Vec<_> = (0..5000).map(|_| resource.watch(cache.revision(), Filter::default()).unwrap()).collect();
    println!("memory per idle watch: {:.0} B", (rss() - began) / watches.len() as f64);
}

fn time(what: &str, mut run: impl FnMut() -> usize) {
    let mut times: Vec<Duration> = Vec::new();
    let mut found = 0;
    for _ in 0..30 {
        let began = Instant::now();
        found = run();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    println!("{what}: {found} items, p50 {median:?}, worst {:?}", times.last().copied().unwrap_or_default());
}
