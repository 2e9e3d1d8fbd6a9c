//! The store on a real etcd: the conformance suite, and what only it can get wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../tests/etcd/server.rs"]
mod server;

#[path = "../../tests/robust/clock.rs"]
mod clock;
mod faults;
mod replicas;
mod tls;

use bytes::Bytes;

use self::server::Server;
use super::client::marker;
use super::message::{CompactionRequest, CompactionResponse, RangeRequest, TxnRequest, TxnResponse};
use super::wire::{Effect, Failure, TXN, WRITE};
use super::*;
use crate::conformance::{Subject, conformance};

conformance!(match server::binary() {
    Some(binary) => subject(Server::fast(binary)).await,
    None => return,
});

fn options(server: &Server) -> EtcdOptions {
    EtcdOptions { compact_every: None, ..EtcdOptions::new(vec![server.url()]) }
}

async fn connect(server: &Server) -> Arc<Etcd> {
    Arc::new(Etcd::connect(options(server)).await.unwrap())
}

fn pod(name: &str) -> Key {
    Key::new("pods", Some("a"), name).unwrap()
}

/// A value the cache can show.
fn object(name: &str, color: &str) -> Bytes {
    let labels = format!(r#"{{"color":"{color}"}}"#);
    format!(r#"{{"kind":"Pod","metadata":{{"name":"{name}","namespace":"a","labels":{labels}}}}}"#).into()
}

/// Writes past the store, as somebody else would.
async fn put(client: &Client, path: &'static str, value: &'static str) -> Revision {
    let put = request::put(&Bytes::from_static(path.as_bytes()), &Bytes::from_static(value.as_bytes()));
    let question = TxnRequest { success: vec![put.into()], ..TxnRequest::default() };
    let answer: TxnResponse = client.wire.call(TXN, question, Effect::Write, WRITE).await.unwrap();
    request::revision(answer.header.unwrap().revision)
}

async fn subject(server: Server) -> Subject {
    let store = connect(&server).await;
    let forget = {
        let store = Arc::clone(&store);
        move || -> BoxFuture<'static, ()> {
            let client = store.client.clone();
            async move { compact(&client).await }.boxed()
        }
    };
    Subject::over(store, server, forget)
}

/// Has etcd forget everything before now.
async fn compact(client: &Client) {
    let revision = request::wire(client.revision().await.unwrap());
    let question = CompactionRequest { revision };
    let answer: Result<CompactionResponse, Failure> =
        client.wire.call(wire::COMPACT, question, Effect::Write, wire::SMALL).await;
    answer.unwrap();
}

#[tokio::test]
async fn what_is_stored_lies_where_and_as_kubernetes_has_it() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    let key = Key::new("redis.kun.io/redisclusters", Some("shop"), "orders").unwrap();
    let first = store.write(Write::create(key.clone(), "one".into())).await.unwrap().revision;
    let second = store.write(Write::update(key, first, "two".into())).await.unwrap().revision;
    let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..RangeRequest::default() };
    let found = store.client.range(all, wire::SMALL).await.unwrap().kvs;
    let expected = message::KeyValue {
        key: "/registry/redis.kun.io/redisclusters/shop/orders".into(),
        create_revision: request::wire(first),
        mod_revision: request::wire(second),
        version: 2,
        value: "two".into(),
    };
    assert_eq!(found, [expected]);
}

#[tokio::test]
async fn a_key_without_a_place_is_neither_written_nor_read() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    let odd = Key::new("apps/things", None, "a").unwrap();
    let refused = Error::Undecodable {
        reason: "apps/things/a has no place in etcd's layout: its group needs a dot, or a namespace".to_owned(),
    };
    assert_eq!(store.write(Write::create(odd.clone(), "x".into())).await, Err(refused.clone()));
    assert_eq!(store.get(&odd).await, Err(refused));
}

#[tokio::test]
async fn the_prefix_of_a_kube_apiserver_is_refused_and_another_beside_it_is_not() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    put(&store.client, "/registry/namespaces/default", "k8s\0\n\x0f\n\x02v1").await;
    let refused = Etcd::connect(options(&server)).await.unwrap_err().to_string();
    let expected = "connecting to etcd: below /registry a kube-apiserver keeps its objects; an etcd can be shared, a prefix cannot";
    assert_eq!(refused, expected);
    let beside = EtcdOptions { prefix: "/kun".to_owned(), ..options(&server) };
    assert!(Etcd::connect(beside).await.is_ok());
}

#[tokio::test]
async fn a_list_that_holds_what_nobody_wrote_fails() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    put(&store.client, "/registry/pods/a/b/c/d", "x").await;
    let failed = store.list(ListOptions::all(crate::Range::of("pods", Some("a")))).await.unwrap_err();
    let reason = "etcd holds the key \"/registry/pods/a/b/c/d\", which no version writes".to_owned();
    assert_eq!(failed, Error::Backend { doing: "reading a list", reason });
}

#[tokio::test]
async fn a_feed_of_many_large_changes_arrives_whole_and_in_order() {
    let Some(binary) = server::binary() else { return };
    let server = Server::fast(binary);
    let store = connect(&server).await;
    // With what each replaced this is 25 MB, which etcd cuts into many answers.
    let value = |n: u8| Bytes::from(vec![n; 1_400_000]);
    let mut at = store.write(Write::create(pod("big"), value(0))).await.unwrap().revision;
    let start = at;
    for n in 1..10 {
        at = store.write(Write::update(pod("big"), at, value(n))).await.unwrap().revision;
    }
    let mut feed = store.watch(start).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 9 {
        let batch = tokio::time::timeout(hung::answer(), feed.next()).await.unwrap().unwrap();
        told.extend(batch.events);
    }
    for (n, event) in (1..).zip(told) {
        let previous = Some(Stored { revision: Revision(start.0 + u64::from(n) - 1), value: value(n - 1) });
        assert_eq!(event.revision, Revision(start.0 + u64::from(n)));
        assert!(event.change == crate::Change::Put { value: value(n), previous }, "change {n}");
    }
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_with_a_sentence() {
    let of = |servers: &[&str], prefix: &str| {
        let servers = servers.iter().map(|server| (*server).to_owned()).collect();
        EtcdOptions { prefix: prefix.to_owned(), ..EtcdOptions::new(servers) }
    };
    for (options, sentence) in [
        (of(&[], "/registry"), "no server is named"),
        (of(&["127.0.0.1:2379"], "/registry"), "\"127.0.0.1:2379\" is not http://HOST:PORT or https://HOST:PORT"),
        (of(&["http://127.0.0.1"], "/registry"), "\"http://127.0.0.1\" is not http://HOST:PORT or https://HOST:PORT"),
        (of(&["http://a:1/v3"], "/registry"), "\"http://a:1/v3\" is not http://HOST:PORT or https://HOST:PORT"),
        (of(&["https://a:1"], "/registry"), "https://a:1/ needs a certificate authority to trust"),
        (of(&["http://a:1"], "/"), "the prefix \"/\" is not a path of at least one part"),
    ] {
        let refused = Etcd::connect(options).await.unwrap_err().to_string();
        assert_eq!(refused, format!("connecting to etcd: {sentence}"));
    }
}
