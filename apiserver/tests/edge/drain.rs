//! Stopping: everybody may finish, nobody may stay.

use std::time::Duration;

use apiserver::serve::Drain;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::client::{Client, dial, full, read, request};
use crate::frames::*;
use crate::stage::{Server, Setting, THINGS};

#[tokio::test]
async fn readiness_fails_first_then_watches_end_and_requests_in_progress_are_finished() {
    let drain = Drain { notice: Duration::from_secs(2), finish: Duration::from_secs(10), ..Drain::default() };
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
    server.shutdown.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Within the notice: not ready, but serving, new connections too.
    let mut late = Client::h2(&server, Some(&jane)).await;
    assert_eq!(
        late.get("/readyz").await.text,
        "[+]ping ok\n[+]log ok\n[+]store ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"
    );
    assert_eq!(late.get("/livez").await.code, 200);
    assert_eq!(late.get(&format!("{THINGS}/x")).await.code, 200);
    // Afterwards the watch ends without an error, and nobody new gets in.
    let rest = timeout(Duration::from_secs(10), watch.collect()).await.unwrap();
    assert_eq!(rest.unwrap().to_bytes(), "");
    assert!(dial(&server, Some(&jane), &[]).await.is_err());
    assert!(!server.running.is_finished());
    server.stage.gate.notify_waiters();
    assert_eq!(in_progress.await.unwrap(), "through");
    timeout(Duration::from_secs(5), server.running).await.expect("idle connections hold the server up").unwrap();
}

#[tokio::test]
async fn whatever_does_not_finish_in_time_is_cut_off() {
    let drain = Drain { notice: Duration::ZERO, spread: Duration::ZERO, finish: Duration::from_millis(200) };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let stuck = tokio::spawn(async move {
        client.send(request(Method::GET, &format!("{THINGS}/never"), &[], full(""))).await.is_err()
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    server.shutdown.cancel();
    timeout(Duration::from_secs(3), server.running).await.unwrap().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert!(stuck.await.unwrap());
}

#[tokio::test]
async fn http2_is_told_to_go_away_and_what_it_asked_before_is_answered() {
    let drain = Drain { finish: Duration::from_secs(8), ..Drain::default() };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut raw = Raw::open(&server, &jane, &[]).await;
    assert!(raw.send(&get(stream(0), &format!("{THINGS}?watch=1"))).await);
    assert!(raw.send(&get(stream(1), &format!("{THINGS}/gate"))).await);
    assert!(raw.until_quiet().await.iter().all(|came| came.kind != GOAWAY));
    server.shutdown.cancel();
    let mut came = raw.until_told(GOAWAY).await;
    server.stage.gate.notify_waiters();
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
    timeout(Duration::from_secs(5), server.running).await.unwrap().unwrap();
}

#[tokio::test]
async fn watches_end_one_by_one_over_the_time_given_for_it() {
    const WATCHES: usize = 40;
    let spread = Duration::from_millis(1600);
    let drain = Drain { spread, finish: Duration::from_secs(10), ..Drain::default() };
    let server = Server::start(Setting { drain, ..Setting::default() }).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let mut open = Vec::new();
    for _ in 0..WATCHES {
        let watch = client.send(request(Method::GET, &format!("{THINGS}?watch=1"), &[], full(""))).await.unwrap();
        open.push(watch.into_body());
    }
    let begin = Instant::now();
    server.shutdown.cancel();
    let ends = open.into_iter().map(|watch| async move {
        // The end is an end, not an error.
        assert_eq!(watch.collect().await.unwrap().to_bytes(), "{\"type\":\"ADDED\"}\n");
        begin.elapsed()
    });
    let mut ends = timeout(Duration::from_secs(9), futures::future::join_all(ends)).await.unwrap();
    ends.sort_unstable();
    let within = |from: Duration, to: Duration| ends.iter().filter(|end| (from..to).contains(*end)).count();
    // A loaded machine may be late; it is never early.
    assert!(within(Duration::ZERO, spread / 2) <= WATCHES * 6 / 10, "{ends:?}");
    assert!(within(spread * 3 / 4, Duration::MAX) >= WATCHES / 5, "{ends:?}");
    assert!(ends[0] < ends[WATCHES - 1] / 2, "{ends:?}");
    timeout(Duration::from_secs(5), server.running).await.unwrap().unwrap();
}
