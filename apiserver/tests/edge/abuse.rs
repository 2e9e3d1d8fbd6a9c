//! Clients who break HTTP on purpose: each is refused or shown out, and meanwhile everybody else is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use apiserver::serve::Limits;
use certs::{ALPN_H1, Issued};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::frames::*;
use crate::stage::{Server, Setting, THINGS};

/// How long anybody else may have to wait for an answer.
const OTHERS: Duration = Duration::from_secs(2);

/// What a server may take of a flood it does not answer: what the sockets on both sides hold, and some more.
const TAKEN_MAX: usize = 24 << 20;

/// A server, a client of it, and somebody else who asks all the time.
struct Scene {
    server: Arc<Server>,
    jane: Issued,
    is_over: Arc<AtomicBool>,
    other: tokio::task::JoinHandle<(usize, Duration)>,
}

impl Scene {
    async fn new(limits: Limits) -> Scene {
        let server = Arc::new(Server::start(Setting { limits, ..Setting::default() }).await);
        let jane = server.client("jane", &["team"]);
        let other = server.client("other", &["team"]);
        let is_over = Arc::new(AtomicBool::new(false));
        let (asked, ended) = (Arc::clone(&server), Arc::clone(&is_over));
        let other = tokio::spawn(async move {
            let mut client = Client::h2(&asked, Some(&other)).await;
            let (mut answers, mut longest) = (0, Duration::ZERO);
            while !ended.load(Ordering::SeqCst) || answers == 0 {
                let begun = Instant::now();
                assert_eq!(client.get(&format!("{THINGS}/other")).await.code, 200);
                (answers, longest) = (answers + 1, longest.max(begun.elapsed()));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (answers, longest)
        });
        Scene { server, jane, is_over, other }
    }

    async fn raw(&self, settings: &[u8]) -> Raw {
        Raw::open(&self.server, &self.jane, settings).await
    }

    /// Nobody else had to wait; a new connection is served, too.
    async fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let (answers, longest) = self.other.await.unwrap();
        assert!(longest < OTHERS, "{answers} answers, one of them after {longest:?}");
        assert_eq!(Client::h2(&self.server, Some(&self.jane)).await.get(&format!("{THINGS}/x")).await.code, 200);
    }
}

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
        let sent = raw.flood(&frame(CONTINUATION, 0, 1, &piece), 20_000).await;
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
    let came = raw.until_quiet().await;
    // 48 MB of headers, had they been unfolded. The status 431 is none of those a byte stands for: its text is there.
    let refused = |came: &Came| {
        came.stream == 1
            && (came.kind == RST_STREAM
                || came.payload.windows(3).any(|text| text == b"431" || text == [0x68, 0x1c, 0x7f]))
    };
    assert!(came.iter().any(|came| refused(came) || came.kind == GOAWAY), "{came:?}");
    let seen = scene.server.stage.last.lock().unwrap().as_ref().map(|(_, headers)| headers.len());
    assert!(seen.is_none_or(|headers| headers < 100), "{seen:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_that_ask_for_answers_nobody_reads_are_not_taken_without_end() {
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(4_000);
    let settings = frame(SETTINGS, 0, 0, &[]).repeat(8_000);
    let floods = [("pings", pings), ("settings", settings)];
    for (name, flood) in floods {
        let scene = Scene::new(hasty()).await;
        let mut raw = scene.raw(&[]).await;
        let sent = raw.flood(&flood, 2_000).await;
        assert!(sent < TAKEN_MAX, "{sent} bytes of {name} were taken");
        // It does not answer the server's own pings either.
        tokio::time::sleep(4 * hasty().ping).await;
        raw.until_closed().await;
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_and_settings_that_are_read_are_answered_and_stop_nobody_else() {
    let scene = Scene::new(Limits::default()).await;
    let Raw { from, mut to } = scene.raw(&[]).await;
    let answers = tokio::spawn(answers(from));
    let flood = [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])].concat().repeat(1_000);
    let (begun, mut asked) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(1) {
        to.write_all(&flood).await.unwrap();
        asked += 1_000;
    }
    to.flush().await.unwrap();
    // The preface had settings of its own.
    assert_eq!(answers.await.unwrap(), (asked, asked + 1));
    scene.end().await;
}

/// How many pings and settings are answered until there is nothing more for a moment.
async fn answers(
    mut from: tokio::io::ReadHalf<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>,
) -> (usize, usize) {
    let (mut pings, mut settings) = (0, 0);
    while let Ok(Some(came)) = timeout(Duration::from_secs(1), next(&mut from)).await {
        match (came.kind, came.flags & ACK) {
            (PING, ACK) => pings += 1,
            (SETTINGS, ACK) => settings += 1,
            _ => {}
        }
    }
    (pings, settings)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_pieces_of_a_body_without_end_are_cut() {
    let scene = Scene::new(Limits::default()).await;
    let mut raw = scene.raw(&[]).await;
    let post = [&[0x83, 0x87, 0x04], text(THINGS).as_slice(), &[0x01], &text("server")].concat();
    assert!(raw.send(&frame(HEADERS, END_HEADERS, 1, &post)).await);
    let sent = raw.flood(&frame(DATA, 0, 1, &[]).repeat(1_000), 5_000).await;
    assert!(sent < TAKEN_MAX, "{sent} bytes of nothing were taken");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_more_than_the_limit_is_refused_and_those_within_it_go_on() {
    let scene = Scene::new(Limits { streams: 10, ..Limits::default() }).await;
    let mut raw = scene.raw(&[]).await;
    raw.until_quiet().await;
    assert!(raw.send(&frame(SETTINGS, ACK, 0, &[])).await);
    let many: Vec<u8> = (0..15).flat_map(|n| get(stream(n), &format!("{THINGS}/gate"))).collect();
    assert!(raw.send(&many).await);
    let refused = raw.until_quiet().await;
    let refused: Vec<(u32, u32)> =
        refused.iter().filter(|came| came.kind == RST_STREAM).map(|came| (came.stream, came.reason())).collect();
    assert_eq!(refused, (10..15).map(|n| (stream(n), REFUSED_STREAM)).collect::<Vec<_>>());
    scene.server.stage.gate.notify_waiters();
    let answered = raw.until_quiet().await;
    let answered: Vec<u32> = answered.iter().filter(|came| came.kind == HEADERS).map(|came| came.stream).collect();
    assert_eq!(answered.len(), 10);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_lets_nothing_be_sent_is_shown_out_although_it_answers_pings() {
    for window in [0, 1] {
        let scene = Scene::new(hasty()).await;
        let mut raw = scene.raw(&setting(INITIAL_WINDOW_SIZE, window)).await;
        let many: Vec<u8> = (0..100).flat_map(|n| get(stream(n), &format!("{THINGS}/large"))).collect();
        assert!(raw.send(&many).await);
        let came = raw.until_closed().await;
        let data: usize = came.iter().filter(|came| came.kind == DATA).map(|came| came.payload.len()).sum();
        assert_eq!(data, usize::try_from(window).unwrap() * 100);
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_shown_out_in_either_version() {
    let scene = Scene::new(hasty()).await;
    let mut one = dial(&scene.server, Some(&scene.jane), &[ALPN_H1]).await.unwrap();
    let request = format!("GET {THINGS}/large HTTP/1.1\r\nhost: server\r\n\r\n");
    one.write_all(request.as_bytes()).await.unwrap();
    let mut two = scene.raw(&setting(INITIAL_WINDOW_SIZE, u32::MAX >> 1)).await;
    let many: Vec<u8> = (0..4).flat_map(|n| get(stream(n), &format!("{THINGS}/large"))).collect();
    assert!(two.send(&many).await);
    tokio::time::sleep(4 * hasty().stall).await;
    let mut rest = Vec::new();
    let whole = timeout(Duration::from_secs(10), one.read_to_end(&mut rest)).await.expect("a connection is kept");
    assert!(whole.is_err() || rest.len() < crate::stage::LARGE, "{} bytes", rest.len());
    two.until_closed().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_on_which_nothing_happens_is_not_taken_for_a_client_that_reads_nothing() {
    let scene = Scene::new(hasty()).await;
    let mut raw = scene.raw(&[]).await;
    assert!(raw.send(&get(1, &format!("{THINGS}?watch=1"))).await);
    let begun = Instant::now();
    while begun.elapsed() < 3 * hasty().stall {
        if let Ok(came) = timeout(Duration::from_millis(50), raw.next()).await {
            let came = came.expect("the server closed a watch that is read");
            if came.kind == PING && came.flags & ACK == 0 {
                raw.send(&frame(PING, ACK, 0, &came.payload)).await;
            }
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let scene = Scene::new(Limits { head: Duration::from_millis(400), ..Limits::default() }).await;
    let mut slow = dial(&scene.server, Some(&scene.jane), &[ALPN_H1]).await.unwrap();
    let begun = Instant::now();
    let drip = async {
        slow.write_all(b"GET / HTTP/1.1\r\nx: ").await?;
        loop {
            slow.write_all(b"y").await?;
            slow.flush().await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended: std::io::Result<()> = timeout(Duration::from_secs(5), drip).await.expect("it is waited for");
    assert!(ended.is_err() && begun.elapsed() < Duration::from_secs(3));
    scene.end().await;
}
