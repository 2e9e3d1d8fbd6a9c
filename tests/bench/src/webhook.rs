//! Reviews per second of the webhook on one core, beside an echo server of the same stack on the same core.
//!
//! Both servers are pinned to the first core and the client to the second, so that they do not take turns on one.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use tests::standalone::{Standalone, kun_binary};
use tokio::process::{Child, Command};

use crate::{
    api, http,
    http::{ConnectionH1, Rate, Target},
    machine,
    report::{Better, Line, Pairs, Report, median, percentile},
};

/// Connections, each with one review in flight: an API server that keeps HTTP/1.1 connections.
const CONNECTIONS: usize = 16;
/// How long each server is asked, and how long before that without counting.
const MEASURE: Duration = Duration::from_secs(4);
const WARM: Duration = Duration::from_secs(1);
/// Turns of the two servers.
const PAIRS: usize = 3;
/// Size of one review (the body of the reference figure in performance.md §6).
const REVIEW_BYTES: usize = 5800;

/// What one turn of one server measured.
struct Turn {
    rate: Rate,
    /// CPU time of the server for each review, in microseconds.
    cpu_micros: f64,
}

/// Measures the pairs.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
    let pki = kun.data().join("pki");
    let review = review(&kun).await?;
    let webhook = pinned(Command::new(kun_binary()?).arg("standalone").arg("--data").arg(kun.data()).args([
        "--listen",
        &kun.listen().to_string(),
        "--roles",
        "webhook",
    ]))?;
    let port = tokio::time::timeout(hung::process(), port(&kun.data().join("webhook-port")))
        .await
        .context("webhook's port")?;
    let ours = target(&pki, SocketAddr::new([127, 0, 0, 1].into(), port))?;
    decides(&ours, &review).await?;

    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let echo = pinned(Command::new(std::env::current_exe()?).args(["echo", &address.to_string()]).arg(&pki))?;
    let theirs = target(&pki, address)?;
    let (mut asked, mut echoed) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        asked.push(turn(&ours, &review, &webhook).await?);
        echoed.push(turn(&theirs, &review, &echo).await?);
    }
    add(report, review.len(), asked, echoed)
}

fn add(report: &mut Report, bytes: usize, asked: Vec<Turn>, echoed: Vec<Turn>) -> Result<()> {
    let pairs = |name: String, of: fn(&Turn) -> f64, unit: &str, better: Better, bar: &str| Pairs {
        name,
        ours: asked.iter().map(of).collect(),
        reference: echoed.iter().map(of).collect(),
        against: "echo server, same stack and core".to_owned(),
        unit: unit.to_owned(),
        better,
        bar: bar.to_owned(),
    };
    let name = format!("reviews of {bytes} B on one core, {CONNECTIONS} in flight");
    let rates = pairs(name, |turn| turn.rate.per_second, "1/s", Better::More, "≥ 15000/s");
    let name = "the same, CPU time of a review".to_owned();
    let cpu = pairs(name, |turn| turn.cpu_micros, "µs", Better::Less, "≤ 1.6 x");
    report.compare(rates, |ours, _| median(&mut ours.to_vec()) >= 15_000.0)?;
    report.compare(cpu, |_, ratio| ratio * 1.6 >= 1.0)?;
    let mut millis: Vec<f64> = asked.into_iter().flat_map(|turn| turn.rate.millis).collect();
    let (p50, p99) = (percentile(&mut millis, 0.5), percentile(&mut millis, 0.99));
    report.add(Line {
        name: format!("the same, p99 of all reviews (p50 {p50:.2} ms)"),
        ours: p99,
        reference: 3.0,
        against: "bound".to_owned(),
        unit: "ms".to_owned(),
        ratio: 3.0 / p99,
        bar: "≤ 3 ms".to_owned(),
        met: Some(p99 <= 3.0),
    })
}

/// Starts a server on the first core; it ends with the handle.
fn pinned(command: &Command) -> Result<Child> {
    let command = command.as_std();
    Command::new("taskset")
        .args(["-c", "0"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("taskset")
}

async fn port(file: &Path) -> u16 {
    loop {
        if let Some(port) = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()) {
            return port;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server of standalone's, called as the API server calls webhooks.
fn target(pki: &Path, address: SocketAddr) -> Result<Target> {
    let read = |file: &str| std::fs::read_to_string(pki.join(file)).with_context(|| format!("read {file}"));
    Ok(Target {
        address,
        name: "localhost".to_owned(),
        ca: read("ca.crt")?,
        certificate: read("apiserver.crt")?,
        key: read("apiserver.key")?,
    })
}

/// The review of an update that a RedisPolicy is asked about, too.
async fn review(kun: &Standalone) -> Result<Bytes> {
    let policy = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisPolicy", "metadata": {"name": "platform"},
                        "spec": {"shards": {"max": 9}}});
    let kubectl = kun.kubectl();
    kubectl.feed(&["create", "-f", "-"], &policy.to_string()).await?;
    kubectl.feed(&["create", "-f", "-"], &api::object("orders").to_string()).await?;
    let old = kubectl.get("rdc", "orders").await?;
    let mut new = old.clone();
    new["spec"]["shards"] = json!(5);
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "redis.kun.io", "version": "v1", "kind": "RedisCluster"},
        "resource": {"group": "redis.kun.io", "version": "v1", "resource": "redisclusters"},
        "requestKind": {"group": "redis.kun.io", "version": "v1", "kind": "RedisCluster"},
        "requestResource": {"group": "redis.kun.io", "version": "v1", "resource": "redisclusters"},
        "name": "orders", "namespace": "default", "operation": "UPDATE",
        "userInfo": {"username": "kun:admin", "groups": ["system:masters", "system:authenticated"]},
        "object": new, "oldObject": old, "dryRun": false,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"},
    }});
    let pad = "x".repeat(REVIEW_BYTES.saturating_sub(review.to_string().len()) / 2);
    for object in ["object", "oldObject"] {
        let annotations = &mut review["request"][object]["metadata"]["annotations"];
        annotations["more"] = json!(pad);
    }
    Ok(Bytes::from(review.to_string()))
}

/// The server under test must be one that decides: this review passes, and one that breaks the policy does not.
async fn decides(target: &Target, review: &Bytes) -> Result<()> {
    let mut broken: Value = serde_json::from_slice(review)?;
    broken["request"]["object"]["spec"]["shards"] = json!(12);
    let mut connection = connected(target).await?;
    for (body, allowed) in [(review.clone(), true), (Bytes::from(broken.to_string()), false)] {
        let answer = ask(&mut connection, &body).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer["response"]["allowed"] == allowed, "expected allowed = {allowed}: {answer}");
    }
    Ok(())
}

async fn ask(connection: &mut ConnectionH1, review: &Bytes) -> Result<Bytes> {
    let request = Request::post("/validate?timeout=10s")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(review.clone()))?;
    connection.ready().await?;
    let answer = connection.send_request(request).await?;
    ensure!(answer.status().is_success(), "review: {}", answer.status());
    Ok(answer.into_body().collect().await?.to_bytes())
}

/// A connection to a server that may just be starting.
async fn connected(target: &Target) -> Result<ConnectionH1> {
    let begin = Instant::now();
    loop {
        match http::connect_h1(target).await {
            Ok(connection) => return Ok(connection),
            Err(error) => ensure!(begin.elapsed() < hung::process(), "{}: {error:#}", target.address),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks one server for a while, from a thread of its own on the second core.
async fn turn(target: &Target, review: &Bytes, server: &Child) -> Result<Turn> {
    let pid = server.id().context("the server has ended")?;
    let (target, review) = (target.clone(), review.clone());
    let client = tokio::task::spawn_blocking(move || {
        let mut second = CpuSet::new();
        second.set(1);
        sched_setaffinity(None, &second).context("pin the client to the second core")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(closed_loop(&target, &review, pid))
    });
    client.await?
}

/// As many callers as connections, each asking again as soon as it is answered.
async fn closed_loop(target: &Target, review: &Bytes, pid: u32) -> Result<Turn> {
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        callers.push(connected(target).await?);
    }
    let counted = Instant::now() + WARM;
    let end = counted + MEASURE;
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|mut connection| {
            let review = review.clone();
            tokio::spawn(async move {
                let mut millis = Vec::new();
                while Instant::now() < end {
                    let start = Instant::now();
                    ask(&mut connection, &review).await?;
                    if start >= counted {
                        millis.push(start.elapsed().as_secs_f64() * 1e3);
                    }
                }
                anyhow::Ok(millis)
            })
        })
        .collect();
    tokio::time::sleep_until(counted.into()).await;
    let before = machine::cpu_seconds(pid)?;
    tokio::time::sleep_until(end.into()).await;
    let cpu = machine::cpu_seconds(pid)? - before;
    let mut millis = Vec::new();
    for task in tasks {
        millis.extend(task.await??);
    }
    #[allow(clippy::cast_precision_loss, reason = "a count of reviews")]
    let count = millis.len() as f64;
    Ok(Turn { rate: Rate { per_second: count / MEASURE.as_secs_f64(), millis }, cpu_micros: cpu * 1e6 / count })
}
