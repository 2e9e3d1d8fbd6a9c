//! Prints what the server itself costs, without TLS, HTTP and disk: requests per second on one thread, a list that
//! selects nothing among 100,000 objects, bytes per object and per watch. `cargo run --release -p apiserver --example figures`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::indexing_slicing)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver::{
    admission::AdmitAll,
    app::App,
    handler::Handler,
    registry::{host, redis},
    request::{Context, User},
    route,
    storage::Storage,
    wire::body,
    world::System,
};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const CLUSTERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters";
/// Objects of the list figures.
const MANY: usize = 100_000;
/// Watches of the memory figure.
const WATCHES: usize = 5_000;

async fn send(app: &Arc<App>, method: &str, uri: &str, content_type: &str, content: Bytes) -> (u16, Bytes) {
    let response = open(app, method, uri, content_type, content).await;
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes())
}

async fn open(
    app: &Arc<App>,
    method: &str,
    uri: &str,
    content_type: &str,
    content: Bytes,
) -> http::Response<body::ResponseBody> {
    let request = Request::builder().method(method).uri(uri).header("content-type", content_type);
    let request = request.body(body::request(content)).unwrap();
    let call = route::parse(method, request.uri().path(), request.uri().query()).unwrap();
    Arc::clone(app).handle(Context::new(User::default(), call), request).await
}

/// An object of about 1.8 KB.
fn object(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "x"}, "annotations": {"a.io/pad": "x".repeat(1_100)}},
        "spec": {"shards": 3, "config": {"maxclients": "500"}}})
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn report(name: &str, count: usize, took: Duration) {
    let each = took / u32::try_from(count).unwrap();
    println!("{name}: {:.0}/s, {each:?} each", 1.0 / each.as_secs_f64());
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let registry = redis::registry().unwrap().and(host::registry().unwrap());
    let storage = Storage::open(Arc::new(store::Memory::default()), &registry).await.unwrap();
    let app = App::new(registry, Arc::new(System));
    app.open(Arc::new(storage), Arc::new(AdmitAll));

    let before = resident();
    let begun = Instant::now();
    let mut size = 0;
    for index in 0..MANY {
        let made = send(&app, "POST", CLUSTERS, "", object(&format!("c{index:06}")).to_string().into()).await;
        assert_eq!(made.0, 201, "{:?}", made.1);
        size = made.1.len();
    }
    report("create", MANY, begun.elapsed());
    let slope = (resident() - before) / MANY;
    println!("object: {size} bytes encoded, {slope} bytes resident (in memory store and cache together)");

    let uri = format!("{CLUSTERS}/c000000");
    let mut live: Value = serde_json::from_slice(&send(&app, "GET", &uri, "", Bytes::new()).await.1).unwrap();
    let count = 10_000;
    let begun = Instant::now();
    for index in 0..count {
        live["metadata"]["labels"]["app"] = json!(format!("v{index}"));
        let (code, bytes) = send(&app, "PUT", &uri, "", live.to_string().into()).await;
        assert_eq!(code, 200);
        live = serde_json::from_slice(&bytes).unwrap();
    }
    report("update (client's own JSON included)", count, begun.elapsed());
    let begun = Instant::now();
    for index in 0..count {
        let patch = json!({"status": {"replicas": index}}).to_string().into();
        let patched = send(&app, "PATCH", &format!("{uri}/status"), "application/merge-patch+json", patch).await;
        assert_eq!(patched.0, 200);
    }
    report("status patch", count, begun.elapsed());
    let begun = Instant::now();
    for _ in 0..count {
        assert_eq!(send(&app, "GET", &uri, "", Bytes::new()).await.0, 200);
    }
    report("get", count, begun.elapsed());

    let mut times = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        let (code, bytes) = send(&app, "GET", &format!("{CLUSTERS}?labelSelector=app%3Dnone"), "", Bytes::new()).await;
        assert!(code == 200 && bytes.len() < 200);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("list of {MANY} that selects nothing: p50 {:?}, p99 {:?}", times[49], times[98]);
    let begun = Instant::now();
    let mut body = open(&app, "GET", CLUSTERS, "", Bytes::new()).await.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    println!("list of all: {bytes} bytes in {:?}", begun.elapsed());

    let before = resident();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let query = format!("{CLUSTERS}?watch=true&allowWatchBookmarks=true&labelSelector=app%3Dnone");
        let mut body = open(&app, "GET", &query, "", Bytes::new()).await.into_body();
        // The first frame is the (empty) present state; after it the watch waits.
        let _first = body.frame().await;
        let waiting = tokio::time::timeout(Duration::from_micros(1), body.frame()).await;
        assert!(waiting.is_err());
        watches.push(body);
    }
    println!("watch: {} bytes resident each", (resident() - before) / watches.len());
}
