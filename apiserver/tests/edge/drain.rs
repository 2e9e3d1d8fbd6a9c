//! Stopping: everybody may finish, nobody may stay.

use std::time::Duration;

use apiserver::serve::Drain;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::client::{Client, dial, full, read, request};
use crate::stage::{Server, Setting, THINGS};

#[tokio::test]
async fn readiness_fails_first_then_watches_end_and_requests_in_progress_are_finished() {
    let drain = Drain { notice: Duration::from_secs(2), finish: Duration::from_secs(10) };
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
    let drain = Drain { notice: Duration::ZERO, finish: Duration::from_millis(200) };
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
