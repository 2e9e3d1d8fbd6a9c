//! Clients who break HTTP on purpose: each is refused or shown out, and meanwhile everybody else is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::serve::Limits;
use certs::{ALPN_H1, Issued};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::clock::{Clock, breathe, until};
use crate::frames::*;
use crate::stage::{Server, Setting, THINGS};

/// What a server may take of a flood it does not answer: what the sockets on both sides hold, and some more.
const TAKEN_MAX: usize = 24 << 20;

/// A server, a client of it, and somebody else who asks all the time.
struct Scene {
    server: Arc<Server>,
    jane: Issued,
    is_over: Arc<AtomicBool>,
    /// How often that one was answered.
    answers: Arc<AtomicUsize>,
    other: tokio::task::JoinHandle<()>,
}

impl Scene {
    async fn new(limits: Limits) -> Scene {
        let server = Arc::new(Server::start(Setting { limits, ..Setting::default() }).await);
        let jane = server.client("jane", &["team"]);
        let other = server.client("other", &["team"]);
        let (is_over, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (asked, ended, counted) = (Arc::clone(&server), Arc::clone(&is_over), Arc::clone(&answers));
        let other = tokio::spawn(async move {
            let mut client = Client::h2(&asked, Some(&other)).await;
            while !ended.load(Ordering::SeqCst) {
                assert_eq!(client.get(&format!("{THINGS}/other")).await.code, 200);
                counted.fetch_add(1, Ordering::SeqCst);
                breathe().await;
            }
        });
        let scene = Scene { server, jane, is_over, answers, other };
        scene.others_are_served().await;
        scene
    }

    async fn raw(&self, settings: &[u8]) -> Raw {
        Raw::open(&self.server, &self.jane, settings).await
    }

    /// Whoever else asks from now on is answered. Two answers: the first may have been on its way.
    async fn others_are_served(&self) {
        let enough = self.answers.load(Ordering::SeqCst) + 2;
        until("others are answered", || self.other.is_finished() || self.answers.load(Ordering::SeqCst) >= enough)
            .await;
        assert!(!self.other.is_finished(), "somebody else was shown out");
    }

    /// Floods until the server closes, takes nothing more, or has taken it all; others are served all the time. Returns how
    /// many bytes were taken.
    async fn flood(&self, raw: &mut Raw, bytes: &[u8], times: usize) -> usize {
        let taken = AtomicUsize::new(0);
        let no_more = async {
            let mut before = None;
            while before != Some(taken.load(Ordering::SeqCst)) {
                before = Some(taken.load(Ordering::SeqCst));
                for _ in 0..STILL {
                    self.others_are_served().await;
                }
            }
        };
        tokio::select! {
            () = raw.flood(bytes, times, &taken) => {}
            () = no_more => {}
        }
        taken.into_inner()
    }

    /// Time goes by, so slowly that everybody who wants to can keep up with it, until the server holds only so many
    /// connections; for no longer than the limits allow.
    async fn until_it_holds(&self, connections: usize, clock: &Clock) {
        let mut passed = Duration::ZERO;
        while self.server.connections() > connections {
            assert!(passed < PATIENCE, "a connection is kept");
            clock.pass(STEP).await;
            passed += STEP;
            self.others_are_served().await;
        }
    }

    /// Others are served after it, too, and so is a new connection.
    async fn end(self) {
        self.others_are_served().await;
        self.is_over.store(true, Ordering::SeqCst);
        self.other.await.unwrap();
        assert_eq!(Client::h2(&self.server, Some(&self.jane)).await.get(&format!("{THINGS}/x")).await.code, 200);
    }
}

/// How often others are answered before a flood of which nothing was taken meanwhile counts as stopped.
const STILL: usize = 50;

/// What goes by at once of a time that a test counts, and the most that may go by until somebody is shown out: much more than
/// hasty limits, much less than the usual ones.
const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);

/// Limits that run out within a test.
fn hasty() -> Limits {
    Limits { ping: Duration::from_millis(800), stall: Duration::from_millis(1500), ..Limits::default() }
}

fn is_told_to_calm_down(came: &[Came]) -> bool {
    came.iter().any(|came| came.kind == GOAWAY && came.reason() == ENHANCE_YOUR_CALM)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_opens_and_resets_streams_at_once_is_shown_out() {
    let scene = Scene::new(Limits::default()).await;
    let mut raw = scene.raw(&[]).await;
    let pair = |n| {
        let reset = frame(RST_STREAM, 0, stream(n), &8_u32.to_be_bytes());
        [get(stream(n), &format!("{THINGS}/never")), reset].concat()
    };
    for batch in 0..100 {
        let pairs: Vec<u8> = (batch * 100..(batch + 1) * 100).flat_map(pair).collect();
        if !raw.send(&pairs).await {
            break;
        }
    }
    scene.others_are_served().await;
    assert!(is_told_to_calm_down(&raw.until_closed().await));
    assert!(scene.server.stage.seen.load(Ordering::SeqCst) < 5_000, "most of them were never begun");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_never_ends_is_cut_whether_its_pieces_are_large_or_empty() {
    let large = literal("x-long", &"y".repeat(16_000));
    for piece in [large, Vec::new()] {
        let scene = Scene::new(Limits::default()).await;
        let mut raw = scene.raw(&[]).await;
        assert!(raw.send(&frame(HEADERS, END_STREAM, 1, &head(&format!("{THINGS}/x")))).await);
        let sent = scene.flood(&mut raw, &frame(CONTINUATION, 0, 1, &piece), 20_000).await;
        assert!(sent < TAKEN_MAX, "{sent} bytes of one head were taken");
        assert!(is_told_to_calm_down(&raw.until_closed().await));
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_head_that_stands_for_a_large_one_is_refused() {
    let scene = Scene::new(Limits::default()).await;
    let mut raw = scene.raw(&[]).await;
    // A header of 4 KB goes into the table (0x40), then a byte each names it again (62 is the first place of the table).
    let mut bomb = head(&format!("{THINGS}/x"));
    bomb.extend([&[0x40], text("x-bomb").as_slice(), &text(&"y".repeat(3_900))].concat());
    bomb.extend(vec![0x80 | 62; 12_000]);
    assert!(raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)).await);
    assert!(raw.send(&get(3, &format!("{THINGS}/x"))).await);
    // 48 MB of headers, had they been unfolded. The status 431 is none of those a byte stands for: its text is there.
    let refused = |came: &Came| {
        came.stream == 1
            && (came.kind == RST_STREAM
                || came.payload.windows(3).any(|text| text == b"431" || text == [0x68, 0x1c, 0x7f]))
    };
    raw.until(|came| came.iter().any(|came| refused(came) || came.kind == GOAWAY)).await;
    raw.until_quiet().await;
    let seen = scene.server.stage.last.lock().unwrap().as_ref().map(|(_, headers)| headers.len());
    assert!(seen.is_none_or(|headers| headers < 100), "{seen:?}");
    scene.end().await;
}

#[tokio::test]
async fn floods_that_ask_for_answers_nobody_reads_are_not_taken_without_end() {
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(4_000);
    let settings = frame(SETTINGS, 0, 0, &[]).repeat(8_000);
    let floods = [("pings", pings), ("settings", settings)];
    for (name, flood) in floods {
        let clock = Clock::stop();
        let scene = Scene::new(hasty()).await;
        let mut raw = scene.raw(&[]).await;
        let sent = scene.flood(&mut raw, &flood, 2_000).await;
        assert!(sent < TAKEN_MAX, "{sent} bytes of {name} were taken");
        // It does not answer the server's own pings either.
        let mut passed = Duration::ZERO;
        while passed < 4 * hasty().ping {
            clock.pass(STEP).await;
            passed += STEP;
            scene.others_are_served().await;
        }
        raw.until_closed().await;
        scene.end().await;
        clock.run();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_and_settings_that_are_read_are_answered_and_stop_nobody_else() {
    let scene = Scene::new(Limits::default()).await;
    let Raw { from, mut to } = scene.raw(&[]).await;
    const ROUNDS: usize = 50;
    let asked = 1_000 * ROUNDS;
    // The preface had settings of its own.
    let answers = tokio::spawn(answers(from, (asked, asked + 1)));
    let flood = [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])].concat().repeat(1_000);
    for _ in 0..ROUNDS {
        to.write_all(&flood).await.unwrap();
    }
    to.flush().await.unwrap();
    answers.await.unwrap();
    scene.end().await;
}

/// Reads until so many pings and settings are answered, and no more than these.
async fn answers(
    mut from: tokio::io::ReadHalf<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>,
    expected: (usize, usize),
) {
    let mut told = (0, 0);
    // More than one beyond would be seen, too; the wait for it is short, and no slow machine fails by it.
    while let Ok(Some(came)) = {
        let limit = if told == expected { Duration::from_millis(200) } else { hung::answer() };
        timeout(limit, next(&mut from)).await
    } {
        match (came.kind, came.flags & ACK) {
            (PING, ACK) => told.0 += 1,
            (SETTINGS, ACK) => told.1 += 1,
            _ => {}
        }
    }
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_pieces_of_a_body_without_end_are_cut() {
    let scene = Scene::new(Limits::default()).await;
    let mut raw = scene.raw(&[]).await;
    let post = [&[0x83, 0x87, 0x04], text(THINGS).as_slice(), &[0x01], &text("server")].concat();
    assert!(raw.send(&frame(HEADERS, END_HEADERS, 1, &post)).await);
    let sent = scene.flood(&mut raw, &frame(DATA, 0, 1, &[]).repeat(1_000), 5_000).await;
    assert!(sent < TAKEN_MAX, "{sent} bytes of nothing were taken");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_more_than_the_limit_is_refused_and_those_within_it_go_on() {
    let scene = Scene::new(Limits { streams: 10, ..Limits::default() }).await;
    let mut raw = scene.raw(&[]).await;
    raw.until_told(SETTINGS).await;
    assert!(raw.send(&frame(SETTINGS, ACK, 0, &[])).await);
    let many: Vec<u8> = (0..15).flat_map(|n| get(stream(n), &format!("{THINGS}/gate"))).collect();
    assert!(raw.send(&many).await);
    let of = |came: &[Came], kind| came.iter().filter(|came| came.kind == kind).count();
    let mut refused = raw.until(|came| of(came, RST_STREAM) == 5).await;
    refused.extend(raw.until_quiet().await);
    let refused: Vec<(u32, u32)> =
        refused.iter().filter(|came| came.kind == RST_STREAM).map(|came| (came.stream, came.reason())).collect();
    assert_eq!(refused, (10..15).map(|n| (stream(n), REFUSED_STREAM)).collect::<Vec<_>>());
    scene.server.stage.gate.cancel();
    let mut answered = raw.until(|came| of(came, HEADERS) == 10).await;
    answered.extend(raw.until_quiet().await);
    assert_eq!(of(&answered, HEADERS), 10);
    scene.end().await;
}

#[tokio::test]
async fn a_client_that_lets_nothing_be_sent_is_shown_out_although_it_answers_pings() {
    for window in [0, 1] {
        let clock = Clock::stop();
        let scene = Scene::new(hasty()).await;
        let mut raw = scene.raw(&setting(INITIAL_WINDOW_SIZE, window)).await;
        let many: Vec<u8> = (0..100).flat_map(|n| get(stream(n), &format!("{THINGS}/large"))).collect();
        assert!(raw.send(&many).await);
        scene.server.has_seen(100).await;
        let reading = tokio::spawn(async move { raw.until_closed().await });
        scene.until_it_holds(1, &clock).await;
        let came = reading.await.unwrap();
        let data: usize = came.iter().filter(|came| came.kind == DATA).map(|came| came.payload.len()).sum();
        assert_eq!(data, usize::try_from(window).unwrap() * 100);
        assert!(came.iter().any(|came| came.kind == PING), "it had a ping to answer");
        scene.end().await;
        clock.run();
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_shown_out_in_either_version() {
    let clock = Clock::stop();
    let scene = Scene::new(hasty()).await;
    let mut one = dial(&scene.server, Some(&scene.jane), &[ALPN_H1]).await.unwrap();
    let request = format!("GET {THINGS}/large HTTP/1.1\r\nhost: server\r\n\r\n");
    one.write_all(request.as_bytes()).await.unwrap();
    let mut two = scene.raw(&setting(INITIAL_WINDOW_SIZE, u32::MAX >> 1)).await;
    let many: Vec<u8> = (0..4).flat_map(|n| get(stream(n), &format!("{THINGS}/large"))).collect();
    assert!(two.send(&many).await);
    scene.server.has_seen(5).await;
    scene.until_it_holds(1, &clock).await;
    let mut rest = Vec::new();
    let whole = one.read_to_end(&mut rest).await;
    assert!(whole.is_err() || rest.len() < crate::stage::LARGE, "{} bytes", rest.len());
    two.until_closed().await;
    scene.end().await;
}

#[tokio::test]
async fn a_watch_on_which_nothing_happens_is_not_taken_for_a_client_that_reads_nothing() {
    let clock = Clock::stop();
    let scene = Scene::new(hasty()).await;
    let mut raw = scene.raw(&[]).await;
    assert!(raw.send(&get(1, &format!("{THINGS}?watch=1"))).await);
    raw.until_told(DATA).await;
    let pings = Arc::new(AtomicUsize::new(0));
    let answered = Arc::clone(&pings);
    let reading = tokio::spawn(async move {
        while let Some(came) = raw.next().await {
            if came.kind == PING && came.flags & ACK == 0 && raw.send(&frame(PING, ACK, 0, &came.payload)).await {
                answered.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    // As often as it takes for three times what an answer that is not taken has.
    for round in 1..=6 {
        let mut passed = Duration::ZERO;
        while pings.load(Ordering::SeqCst) < round {
            assert!(passed < 2 * hasty().ping, "a watch that is read is asked whether it lives");
            clock.pass(STEP).await;
            passed += STEP;
            scene.others_are_served().await;
        }
        assert!(!reading.is_finished(), "the server closed a watch that is read");
    }
    scene.end().await;
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let clock = Clock::stop();
    let scene = Scene::new(Limits { head: Duration::from_millis(400), ..Limits::default() }).await;
    let mut slow = dial(&scene.server, Some(&scene.jane), &[ALPN_H1]).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
    // A byte in every twentieth part of the time: a server that waited for the next one would wait for ever.
    let mut bytes = 0;
    while slow.write_all(b"y").await.is_ok() && slow.flush().await.is_ok() {
        bytes += 1;
        assert!(bytes < 150, "it is waited for");
        clock.pass(Duration::from_millis(20)).await;
        scene.others_are_served().await;
    }
    scene.end().await;
}
