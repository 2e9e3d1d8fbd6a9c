//! Two servers on one real etcd: what one has acknowledged the other shows; and what clients hear when etcd is away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::handler::Handler;
use serde_json::{Value, json};
use store::{Etcd, EtcdOptions};

use crate::{
    clock::Clock,
    etcd::{self, Server},
    support::{Api, CLUSTERS, cluster},
};

async fn replica(server: &Server) -> Api {
    let options = EtcdOptions { compact_every: None, ..EtcdOptions::new(vec![server.url()]) };
    Api::replica(Arc::new(Etcd::connect(options).await.unwrap())).await
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// What /readyz goes by.
fn is_ready(api: &Api) -> bool {
    api.app.checks().iter().all(|(_, state)| state.is_ok())
}

fn names(list: &Value) -> Vec<String> {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_acknowledged_every_read_of_the_other_shows() {
    let Some(binary) = etcd::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (replica(&server).await, replica(&server).await);
    let begin = version(&two.get(CLUSTERS).await.ok());
    let mut events = two.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={begin}")).await;
    for n in 0..20 {
        let name = format!("c{n:02}");
        let path = format!("{CLUSTERS}/{name}");
        let created = one.cluster(&name).await;
        let at = version(&created);
        assert_eq!(two.get(&path).await.ok(), created, "a read without a version");
        assert_eq!(two.get(&format!("{path}?resourceVersion={at}")).await.ok(), created);
        assert!(names(&two.get(&format!("{CLUSTERS}?resourceVersion={at}")).await.ok()).contains(&name));
        assert_eq!(names(&two.get(CLUSTERS).await.ok()).len(), n + 1, "a list without a version");

        let labelled = two.merge(&path, &json!({"metadata": {"labels": {"n": n.to_string()}}})).await.ok();
        assert_eq!(one.get(&path).await.ok(), labelled);
        let stale = one.put(&path, &created).await.fault();
        assert_eq!((stale.0, stale.1.as_str()), (409, "Conflict"));

        let first = events.next().await.unwrap();
        assert_eq!((first["type"].as_str(), &first["object"]), (Some("ADDED"), &created));
        let second = events.next().await.unwrap();
        assert_eq!((second["type"].as_str(), &second["object"]), (Some("MODIFIED"), &labelled));
    }
    one.delete(&format!("{CLUSTERS}/c00")).await.ok();
    assert_eq!(two.get(&format!("{CLUSTERS}/c00")).await.code, 404);
    assert_eq!(events.next_short().await, ("DELETED".to_owned(), "c00".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_creates_of_one_name_exactly_one_succeeds_and_every_uid_is_its_own() {
    let Some(binary) = etcd::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (replica(&server).await, replica(&server).await);
    let mut uids = BTreeSet::new();
    for n in 0..30 {
        let body = cluster(&format!("c{n}"));
        let (first, second) = futures::join!(one.post(CLUSTERS, &body), two.post(CLUSTERS, &body));
        let (won, lost) = if first.code == 201 { (first, second) } else { (second, first) };
        let refused = lost.fault();
        assert_eq!((won.code, refused.0, refused.1.as_str()), (201, 409, "AlreadyExists"));
        uids.insert(won.ok()["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    assert_eq!(uids.len(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_restarts_asked_of_two_servers_at_once_never_both_are_recorded() {
    let Some(binary) = etcd::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (replica(&server).await, replica(&server).await);
    let mut recorded = 0;
    for n in 0..30 {
        let name = format!("c{n}");
        one.cluster(&name).await;
        let ready = json!({"status": {"phase": "Ready"}});
        one.merge(&format!("{CLUSTERS}/{name}/status"), &ready).await.ok();
        let (path, body) = (format!("{CLUSTERS}/{name}/restart"), json!({}));
        let (first, second) = futures::join!(one.post(&path, &body), two.post(&path, &body));
        let codes = [first.code, second.code];
        assert!(codes.iter().all(|code| [201, 409].contains(code)) && codes != [201, 201], "{first:?} {second:?}");
        let operations = "/apis/redis.kun.io/v1/namespaces/shop/redisoperations";
        let selector = format!("{operations}?fieldSelector=spec.clusterName%3D{name}");
        let left = names(&two.get(&selector).await.ok()).len();
        assert_eq!(left, codes.iter().filter(|code| **code == 201).count(), "what is refused is not left behind");
        recorded += left;
    }
    assert!(recorded >= 20, "{recorded} of 30: they give way to each other too often");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_begun_at_one_server_goes_on_at_the_other_as_one_snapshot() {
    let Some(binary) = etcd::binary() else { return };
    let server = Server::fast(binary);
    let (one, two) = (replica(&server).await, replica(&server).await);
    for name in ["a", "b", "c"] {
        one.cluster(name).await;
    }
    let page = one.get(&format!("{CLUSTERS}?limit=2")).await.ok();
    one.delete(&format!("{CLUSTERS}/c")).await.ok();
    one.cluster("d").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = two.get(&format!("{CLUSTERS}?limit=2&continue={token}")).await.ok();
    assert_eq!((names(&page), names(&rest)), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
    assert_eq!(version(&rest), version(&page));
}

#[tokio::test]
async fn while_etcd_is_away_nothing_is_not_found_and_no_list_is_empty() {
    let Some(binary) = etcd::binary() else { return };
    let mut server = Server::durable(binary);
    let api = replica(&server).await;
    let created = api.cluster("a").await;
    let path = format!("{CLUSTERS}/a");
    let mut events = api.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={}", version(&created))).await;

    assert!(is_ready(&api));
    server.hold();
    let (body, none) = (cluster("b"), format!("{CLUSTERS}/none"));
    let (clock, step) = (Clock::stop(), Duration::from_millis(100));
    let asked = async { futures::join!(api.get(&path), api.get(&none), api.get(CLUSTERS), api.post(CLUSTERS, &body)) };
    let ((get, absent, list, create), waited) = clock.pass_until(step, asked).await;
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    for (reply, what) in [(get, "get"), (absent, "get of nothing"), (list, "list")] {
        let (code, reason, message) = reply.fault();
        assert_eq!((code, reason.as_str()), (503, "ServiceUnavailable"), "{what}: {message}");
    }
    let (code, reason, message) = create.fault();
    assert!(matches!((code, reason.as_str()), (503, "ServiceUnavailable") | (504, "Timeout")), "{code} {message}");
    let cached = api.get(&format!("{CLUSTERS}?resourceVersion=0")).await.ok();
    assert_eq!(names(&cached), ["a"], "who asks for anything gets what is known");
    let mut more = Duration::ZERO;
    while is_ready(&api) {
        assert!(waited + more < Duration::from_secs(40), "a server cut off from etcd says that it is ready");
        clock.pass(step).await;
        more += step;
    }

    server.release();
    server.restart();
    clock.run();
    let start = Instant::now();
    let labels = json!({"metadata": {"labels": {"is": "back"}}});
    let labelled = loop {
        let reply = api.merge(&path, &labels).await;
        if reply.code == 200 {
            break reply.ok();
        }
        assert!(reply.code >= 500, "{}", reply.code);
        assert!(start.elapsed() < hung::process(), "etcd is back, the server is not");
    };
    while !is_ready(&api) {
        assert!(start.elapsed() < hung::process(), "etcd is back, the server is not ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The create that nobody knew about may have come through; the watch tells either way, and nothing twice.
    let mut told = events.next().await.unwrap();
    if told["object"]["metadata"]["name"] == "b" {
        assert_eq!(told["type"], "ADDED");
        told = events.next().await.unwrap();
    }
    assert_eq!((told["type"].as_str(), &told["object"]), (Some("MODIFIED"), &labelled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_etcd_takes_is_a_413_and_the_rest_goes_on() {
    let Some(binary) = etcd::binary() else { return };
    let server = Server::narrow(binary, 100_000);
    let api = replica(&server).await;
    api.cluster("orders").await;
    let with_note = |bytes: usize| json!({"metadata": {"annotations": {"note": "x".repeat(bytes)}}});
    let path = format!("{CLUSTERS}/orders");
    let (code, reason, message) = api.merge(&path, &with_note(150_000)).await.fault();
    assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"), "{message}");
    let mut large = cluster("large");
    large["metadata"]["annotations"] = with_note(150_000)["metadata"]["annotations"].clone();
    assert_eq!(api.post(CLUSTERS, &large).await.fault().0, 413);
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), ["orders"]);
    assert_eq!(api.merge(&path, &with_note(50_000)).await.code, 200, "what fits is taken");
    assert!(is_ready(&api));
}
