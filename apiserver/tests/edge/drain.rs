//! Stopping: everybody may finish, nobody may stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::serve::Drain;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::client::{Client, dial, full, read, request};
use crate::clock::{Clock, breathe, until};
use crate::frames::*;
use crate::stage::{Server, Setting, THINGS};

#[tokio::test]
async fn readiness_fails_first_then_watches_end_and_requests_in_progress_are_finished() {
    let (clock, notice) = (Clock::stop(), Duration::from_secs(2));
    let drain = Drain { notice, finish: Duration::from_secs(10), ..Drain::default() };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let watch = client.send(request(Method::GET, &format!("{THINGS}?watch=1"), &[], full(""))).await.unwrap();
    let mut watch = watch.into_body();
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "{\"type\":\"ADDED\"}\n");
    let mut slow = Client::h1(&server, Some(&jane)).await;
    let in_progress = tokio::spawn(async move {
        let response = slow.send(request(Method::PUT, &format!("{THINGS}/gate"), &[], full(""))).await.unwrap();
        read(response).await.text
    });
    server.has_seen(2).await;
    server.shutdown.cancel();
    // Within the notice: not ready, but serving, new connections too.
    let mut late = Client::h2(&server, Some(&jane)).await;
    while late.get("/readyz").await.code == 200 {}
    assert_eq!(
        late.get("/readyz").await.text,
        "[+]ping ok\n[+]log ok\n[+]store ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"
    );
    assert_eq!(late.get("/livez").await.code, 200);
    assert_eq!(late.get(&format!("{THINGS}/x")).await.code, 200);
    // Afterwards the watch ends without an error, and nobody new gets in.
    clock.pass(notice).await;
    assert_eq!(watch.collect().await.unwrap().to_bytes(), "");
    assert!(dial(&server, Some(&jane), &[]).await.is_err());
    assert!(!server.running.is_finished());
    server.stage.gate.cancel();
    assert_eq!(in_progress.await.unwrap(), "through");
    // No time goes by in which idle connections would be cut off.
    server.running.await.unwrap();
}

#[tokio::test]
async fn whatever_does_not_finish_in_time_is_cut_off() {
    let (clock, finish) = (Clock::stop(), Duration::from_secs(20));
    let drain = Drain { notice: Duration::ZERO, spread: Duration::ZERO, finish };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let stuck = tokio::spawn(async move {
        client.send(request(Method::GET, &format!("{THINGS}/never"), &[], full(""))).await.is_err()
    });
    server.has_seen(1).await;
    server.shutdown.cancel();
    clock.pass(Duration::ZERO).await;
    until("it drains", || std::net::TcpStream::connect(server.address).is_err()).await;
    clock.pass(finish - Duration::from_millis(100)).await;
    breathe().await;
    assert!(!server.running.is_finished(), "it was cut off too early");
    clock.pass(Duration::from_millis(100)).await;
    server.running.await.unwrap();
    assert!(stuck.await.unwrap());
}

#[tokio::test]
async fn http2_is_told_to_go_away_and_what_it_asked_before_is_answered() {
    let drain = Drain { finish: hung::process(), ..Drain::default() };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut raw = Raw::open(&server, &jane, &[]).await;
    assert!(raw.send(&get(stream(0), &format!("{THINGS}?watch=1"))).await);
    assert!(raw.send(&get(stream(1), &format!("{THINGS}/gate"))).await);
    server.has_seen(2).await;
    assert!(raw.until_quiet().await.iter().all(|came| came.kind != GOAWAY));
    server.shutdown.cancel();
    let mut came = raw.until_told(GOAWAY).await;
    server.stage.gate.cancel();
    came.extend(raw.until_closed().await);
    let told: Vec<(u32, u32)> =
        came.iter().filter(|came| came.kind == GOAWAY).map(|came| (came.last_stream(), came.reason())).collect();
    // First without a word about what is still taken, in case a request is on its way, then with the last one.
    assert_eq!(told, [(u32::MAX >> 1, 0), (stream(1), 0)]);
    assert!(came.iter().all(|came| came.kind != RST_STREAM), "{came:?}");
    for n in [0, 1] {
        let is_end = |came: &&Came| came.kind == DATA && came.stream == stream(n) && came.flags & END_STREAM != 0;
        assert_eq!(came.iter().filter(is_end).count(), 1, "stream {n}: {came:?}");
    }
    let answer: Vec<u8> = came
        .iter()
        .filter(|came| came.kind == DATA && came.stream == stream(1))
        .flat_map(|came| came.payload.clone())
        .collect();
    assert_eq!(answer, b"through");
    timeout(hung::answer(), server.running).await.expect("it ends with its last connection").unwrap();
}

#[tokio::test]
async fn watches_end_one_by_one_over_the_time_given_for_it() {
    const WATCHES: usize = 40;
    const STEPS: u32 = 8;
    let (clock, spread) = (Clock::stop(), Duration::from_millis(1600));
    let drain = Drain { spread, finish: Duration::from_secs(10), ..Drain::default() };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let ended = Arc::new(AtomicUsize::new(0));
    let mut open = Vec::new();
    for _ in 0..WATCHES {
        let watch = client.send(request(Method::GET, &format!("{THINGS}?watch=1"), &[], full(""))).await.unwrap();
        let ended = ended.clone();
        open.push(tokio::spawn(async move {
            // The end is an end, not an error.
            assert_eq!(watch.into_body().collect().await.unwrap().to_bytes(), "{\"type\":\"ADDED\"}\n");
            ended.fetch_add(1, Ordering::SeqCst);
        }));
    }
    server.shutdown.cancel();
    clock.pass(Duration::ZERO).await;
    // The first has no time at all; when its end is seen, the others have begun to wait for theirs.
    until("the first ends", || ended.load(Ordering::SeqCst) > 0).await;
    for step in 1..STEPS {
        clock.pass(spread / STEPS).await;
        let share = WATCHES * usize::try_from(step).unwrap() / usize::try_from(STEPS).unwrap();
        until("a share of them ends", || ended.load(Ordering::SeqCst) >= share - 2).await;
        breathe().await;
        let so_far = ended.load(Ordering::SeqCst);
        assert!(so_far <= share + 3, "{so_far} instead of {share} after {step} of {STEPS} parts of the time");
    }
    clock.pass(spread / STEPS).await;
    for watch in open {
        watch.await.unwrap();
    }
    server.running.await.unwrap();
}
