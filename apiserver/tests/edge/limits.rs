//! Too much, too many, too slow.

use std::sync::atomic::Ordering;
use std::time::Duration;

use apiserver::filter::limit::InFlight;
use apiserver::serve::Limits;
use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2};
use http::Method;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Body, Client, dial, full, read, request};
use crate::clock::{Clock, breathe, until};
use crate::stage::{Server, Setting, THINGS};

const MIB: usize = 1024 * 1024;

/// A body of `pieces` pieces of one MiB, of no announced length.
fn chunked(pieces: usize) -> Body {
    let piece = Bytes::from(vec![b'x'; MIB]);
    StreamBody::new(futures::stream::iter((0..pieces).map(move |_| Ok(Frame::data(piece.clone()))))).boxed_unsync()
}

#[tokio::test]
async fn three_mebibytes_are_read_and_one_byte_more_is_a_413() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let answer = client.ask(Method::POST, THINGS, &[], vec![b'x'; 3 * MIB]).await;
    assert_eq!((answer.code, answer.text.as_str()), (200, "3145728"));
    let answer = client.ask(Method::POST, THINGS, &[], vec![b'x'; 3 * MIB + 1]).await;
    assert_eq!((answer.code, answer.json()["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert_eq!(answer.json()["message"], "Request entity too large: limit is 3145728");
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 1, "an announced length is refused unread");
}

/// curl and Python send all they have before they read, and know nothing of an answer that a reset has taken away.
#[tokio::test]
async fn who_sends_all_of_a_body_that_is_too_large_still_reads_the_413() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut stream = dial(&server, Some(&jane), &[ALPN_H1]).await.unwrap();
    let bytes = 8 * MIB;
    let head = format!("POST {THINGS} HTTP/1.1\r\nhost: api\r\ncontent-length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; bytes]).await.unwrap();
    let mut answer = Vec::new();
    timeout(hung::answer(), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("limit is 3145728"), "{answer}");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_at_the_limit() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    for client in [Client::h1(&server, Some(&jane)).await, Client::h2(&server, Some(&jane)).await] {
        let mut client = client;
        let fits = client.send(request(Method::POST, THINGS, &[], chunked(3))).await.unwrap();
        assert_eq!(read(fits).await.text, "3145728");
        // A gigabyte, unless it is stopped.
        let outcome = client.send(request(Method::POST, THINGS, &[], chunked(1024))).await;
        // The client may see the answer or, still writing, the closed connection; never success.
        if let Ok(response) = outcome {
            assert_eq!(response.status().as_u16(), 413);
        }
    }
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn compressed_bodies_are_refused_unread() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let answer = client.ask(Method::POST, THINGS, &[("content-encoding", "gzip")], "bomb").await;
    assert_eq!((answer.code, server.stage.seen.load(Ordering::SeqCst)), (400, 0));
    assert_eq!(answer.json()["message"], "Content-Encoding \"gzip\" is not supported: send the body as it is");
    assert_eq!(client.ask(Method::POST, THINGS, &[("content-encoding", "identity")], "x").await.code, 200);
}

#[tokio::test]
async fn more_than_the_limit_in_flight_is_a_429_for_all_but_watches_and_administrators() {
    let server = Server::start(Setting { in_flight: InFlight::new(1, 1), ..Setting::default() }).await;
    let (admin, jane) = (server.client("root", &["system:masters"]), server.client("jane", &["team"]));
    let gate = format!("{THINGS}/gate");
    let hold = |method: Method| {
        let (server, jane, gate) = (&server, &jane, &gate);
        async move { Client::h2(server, Some(jane)).await.ask(method, gate, &[], "").await.code }
    };
    let beyond = async {
        server.has_seen(2).await;
        let mut client = Client::h2(&server, Some(&jane)).await;
        for method in [Method::GET, Method::PUT] {
            let answer = client.ask(method, &format!("{THINGS}/x"), &[], "").await;
            assert_eq!((answer.code, answer.header("retry-after")), (429, "1"));
            assert_eq!(answer.json()["details"]["retryAfterSeconds"], 1);
        }
        let watch = client.send(request(Method::GET, &format!("{THINGS}?watch=1"), &[], full(""))).await.unwrap();
        assert_eq!(watch.status().as_u16(), 200);
        assert_eq!(client.get("/healthz").await.code, 200);
        let mut admin = Client::h2(&server, Some(&admin)).await;
        assert_eq!(admin.get(&format!("{THINGS}/x")).await.code, 200);
        let metrics = admin.get("/metrics").await.text;
        assert!(metrics.contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 1"), "{metrics}");
        assert!(metrics.contains("apiserver_dropped_requests_total{request_kind=\"readOnly\"} 1"), "{metrics}");
        assert!(metrics.contains("apiserver_longrunning_requests 1"), "{metrics}");
        server.stage.gate.cancel();
    };
    let (reading, writing, ()) = tokio::join!(hold(Method::GET), hold(Method::PUT), beyond);
    assert_eq!((reading, writing), (200, 200));
    assert_eq!(
        Client::h2(&server, Some(&jane)).await.get(&format!("{THINGS}/x")).await.code,
        200,
        "the place is free again"
    );
}

#[tokio::test]
async fn a_mutation_runs_to_its_end_although_the_client_hung_up() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let gate = format!("{THINGS}/gate");
    let mut client = Client::h2(&server, Some(&jane)).await;
    tokio::select! {
        answer = client.ask(Method::PUT, &gate, &[], "") => panic!("{} before the gate is open", answer.code),
        () = server.has_seen(1) => {}
    }
    drop(client);
    until("the server knows that the client hung up", || server.connections() == 0).await;
    server.stage.gate.cancel();
    until("the mutation ends, without its connection", || server.stage.finished.load(Ordering::SeqCst) == 1).await;
}

fn hasty() -> Limits {
    Limits { handshake: Duration::from_millis(200), head: Duration::from_millis(300), ..Limits::default() }
}

/// Time goes by until the server has closed, for no longer than hasty limits may take; somebody honest is served meanwhile, so
/// that whoever wants to can keep up.
async fn is_shown_out(
    mut stream: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    clock: &Clock,
    honest: &mut Client,
) {
    let closed = tokio::spawn(async move {
        let mut buffer = [0u8; 1024];
        while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    });
    let mut passed = Duration::ZERO;
    while !closed.is_finished() {
        assert!(passed < Duration::from_secs(5), "the server kept a silent connection");
        clock.pass(STEP).await;
        passed += STEP;
        assert_eq!(honest.get(&format!("{THINGS}/x")).await.code, 200);
        breathe().await;
    }
}

/// What goes by at once of the time that hasty limits count.
const STEP: Duration = Duration::from_millis(50);

#[tokio::test]
async fn whoever_does_not_speak_is_shown_out() {
    let clock = Clock::stop();
    let server = Server::start(Setting { limits: hasty(), ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut honest = Client::h2(&server, Some(&jane)).await;
    assert_eq!(honest.get(&format!("{THINGS}/x")).await.code, 200);
    // No TLS at all, then TLS and nothing, in both versions, then half a head.
    is_shown_out(TcpStream::connect(server.address).await.unwrap(), &clock, &mut honest).await;
    for alpn in [ALPN_H1, ALPN_H2] {
        is_shown_out(dial(&server, Some(&jane), &[alpn]).await.unwrap(), &clock, &mut honest).await;
    }
    let mut slow = dial(&server, Some(&jane), &[ALPN_H1]).await.unwrap();
    slow.write_all(
        b"GET / HTTP/1.1
host: a
x-slow: ",
    )
    .await
    .unwrap();
    is_shown_out(slow, &clock, &mut honest).await;
    assert_eq!(Client::h2(&server, Some(&jane)).await.get(&format!("{THINGS}/x")).await.code, 200);
}

#[tokio::test]
async fn a_body_that_drips_ends_with_the_deadline_of_its_request() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut stream = dial(&server, Some(&jane), &[ALPN_H1]).await.unwrap();
    let head = format!("POST {THINGS}?timeout=300ms HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nx");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0u8; 12];
    timeout(hung::answer(), stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"HTTP/1.1 504");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused_and_the_server_goes_on() {
    let limits = Limits { head_bytes: 16 * 1024, ..Limits::default() };
    let server = Server::start(Setting { limits, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let large = "x".repeat(40 * 1024);
    let mut one = Client::h1(&server, Some(&jane)).await;
    let outcome = one.send(request(Method::GET, THINGS, &[("x-large", &large)], full(""))).await;
    assert!(outcome.is_err() || outcome.is_ok_and(|response| response.status().as_u16() == 431));
    let mut two = Client::h2(&server, Some(&jane)).await;
    let outcome = two.send(request(Method::GET, THINGS, &[("x-large", &large)], full(""))).await;
    assert!(outcome.is_err() || outcome.is_ok_and(|response| response.status().as_u16() == 431));
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
    assert_eq!(Client::h2(&server, Some(&jane)).await.get(&format!("{THINGS}/x")).await.code, 200);
}

#[tokio::test]
async fn beyond_the_limit_strangers_make_room_and_who_is_known_stays() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Server::start(Setting { limits, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let known = |mut client: Client| async {
        assert_eq!(client.get(&format!("{THINGS}/x")).await.code, 200);
        client
    };
    // Nobody has asked anything yet, and one is refused: the one that has been idle for longer goes.
    let mut silent = dial(&server, Some(&jane), &[ALPN_H1]).await.unwrap();
    let mut refused = Client::h1(&server, None).await;
    assert_eq!(refused.get(&format!("{THINGS}/x")).await.code, 401);
    let first = known(Client::h2(&server, Some(&jane)).await).await;
    timeout(hung::answer(), silent.read_to_end(&mut Vec::new())).await.expect("it made no room").unwrap_or_default();
    let second = known(Client::h2(&server, Some(&jane)).await).await;
    // All are known: one more is closed unread.
    assert!(dial(&server, Some(&jane), &[ALPN_H2]).await.is_err());
    let _second = known(second).await;
    drop(first);
    let again = async {
        while dial(&server, Some(&jane), &[ALPN_H2]).await.is_err() {
            breathe().await;
        }
    };
    timeout(hung::answer(), again).await.expect("the place of a closed connection is given back");
}

#[tokio::test]
async fn a_client_that_opens_and_abandons_requests_in_a_flood_stops_nobody_else() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut other = Client::h2(&server, Some(&jane)).await;
    assert_eq!(other.get(&format!("{THINGS}/x")).await.code, 200);
    let mut flood = Client::h2(&server, Some(&jane)).await;
    for _ in 0..5_000 {
        let abandoned = flood.send(request(Method::GET, &format!("{THINGS}/never"), &[], full("")));
        // Long enough to be sent, too short to be answered; the drop resets the stream.
        if let Ok(Err(_closed)) = timeout(Duration::from_micros(50), abandoned).await {
            break;
        }
    }
    let answer =
        timeout(hung::answer(), other.get(&format!("{THINGS}/x"))).await.expect("the flood starved another client");
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn hundreds_of_clients_at_once_are_all_answered() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let one = || async {
        let mut client = Client::h2(&server, Some(&jane)).await;
        client.ask(Method::POST, THINGS, &[], "hello").await.code
    };
    let codes = futures::future::join_all((0..200).map(|_| one())).await;
    // More than the in-flight limit at one moment is a 429, which is an answer too.
    assert!(codes.iter().all(|code| [200, 429].contains(code)), "{codes:?}");
    assert!(codes.contains(&200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_on_one_connection_are_served_and_the_next_one_when_there_is_room() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let mut open = Vec::new();
    for number in 0..1000 {
        let watch = client.send(request(Method::GET, &format!("{THINGS}?watch=1"), &[], full("")));
        let mut watch = timeout(hung::answer(), watch).await.expect("a stream is free").unwrap().into_body();
        let first = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "{\"type\":\"ADDED\"}\n", "{number}");
        open.push(watch);
    }
    // All are taken: a client of HTTP/2 waits until one of them ends. Another connection is served meanwhile.
    let path = format!("{THINGS}/x");
    let mut next = std::pin::pin!(client.send(request(Method::GET, &path, &[], full(""))));
    assert!(
        timeout(Duration::from_millis(300), &mut next).await.is_err(),
        "one request more than the limit was served"
    );
    assert_eq!(Client::h2(&server, Some(&jane)).await.get(&path).await.code, 200);
    drop(open.pop());
    let answer = timeout(hung::answer(), next).await.expect("there is room again").unwrap();
    assert_eq!(answer.status(), 200);
}
