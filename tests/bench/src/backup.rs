//! A backup of one member: the agent's snapshot stream beside `redis-cli --rdb`, both into a file, and the whole backup
//! as its worker does it (written, synced, read back and checked).
//!
//! redis-cli reads from a plain redis-server with its defaults that holds the same keys; a pod of ours is configured for
//! streams, which is part of what is measured.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use certs::{Authority, Issued, Leaf};
use http_body_util::Full;
use hyper::Request;
use resp::Options;
use serde_json::json;
use tests::{
    fixture::Fixture,
    oracle,
    standalone::{Standalone, kun_binary},
};
use types::names;

use crate::{
    http::{self, Target},
    redis::{self, Nodes},
    report::{Better, Pairs, Report},
};

/// Keys of the measured member.
const KEYS: usize = 600_000;
/// Bytes of each value; they do not compress, as values that were compressed by the application do not.
const VALUE: usize = 1024;
/// Backups of each kind, in turns.
const PAIRS: usize = 3;

/// Measures the pairs.
pub(crate) async fn run(report: &mut Report, quick: bool) -> Result<()> {
    let keys = if quick { KEYS / 10 } else { KEYS };
    let kun = Standalone::start().await?;
    let spec = json!({"mode": "Standalone", "persistence": {"appendOnly": "Off"}, "memory": {"maxBytes": "2Gi"}});
    let fixture = Fixture::idle(kun, 1, 0, &spec).await?;
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let pod = *fixture.addresses().await?.values().next().context("the pod")?;
    let names: Vec<String> = (0..keys).map(|number| format!("key:{number}")).collect();
    redis::fill(&Options::new(pod).credentials(credentials), &names, VALUE).await?;
    let plain = Nodes::alone(78).await?;
    let address = *plain.addresses.first().context("the plain server")?;
    redis::fill(&Options::new(address), &names, VALUE).await?;

    let pki = fixture.kun.data().join("pki");
    let target = agent(&pki, pod)?;
    let folder = fixture.kun.scratch("backup")?;
    let (mut ours, mut theirs, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        // Neither is ever written over.
        for file in ["ours.rdb", "worker.rdb"] {
            let _ = std::fs::remove_file(folder.join(file));
        }
        ours.push(stream(&target, &folder.join("ours.rdb")).await?);
        theirs.push(redis_cli(address, &folder.join("theirs.rdb")).await?);
        whole.push(worker(&pki, pod, &folder).await?);
    }
    let line = |name: String, ours: Vec<f64>| Pairs {
        name,
        ours,
        reference: theirs.clone(),
        against: "redis-cli --rdb, defaults".to_owned(),
        unit: "MB/s".to_owned(),
        better: Better::More,
        bar: "≥ 4 x".to_owned(),
    };
    report.compare(line(format!("backup stream of {keys} values of {VALUE} B"), ours), |_, ratio| ratio >= 4.0)?;
    report.show(line("the same by the backup worker: synced, read back, checked".to_owned(), whole))
}

/// Reads the stream of the agent into a file, with the worker's own hands; MB/s.
async fn stream(target: &Target, path: &Path) -> Result<f64> {
    let begin = Instant::now();
    let mut connection = http::connect_h1(target).await?;
    let request =
        Request::get("/v1/snapshot").header("host", &target.name).header("te", "trailers").body(Full::default())?;
    let answer = connection.send_request(request).await?;
    ensure!(answer.status().is_success(), "snapshot: {}", answer.status());
    let trailers = agent::backup::receive(answer.into_body(), path).await?;
    ensure!(trailers.contains_key("kun-sha256"), "the stream ended without its checksum");
    megabytes_per_second(path, begin)
}

async fn redis_cli(address: SocketAddr, path: &Path) -> Result<f64> {
    let begin = Instant::now();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let words = ["-h", &host, "-p", &port, "--rdb", path.to_str().context("a path of text")?].map(str::to_owned);
    redis::redis_cli(&words).await?;
    megabytes_per_second(path, begin)
}

/// The worker of a backup, as its pod runs it.
async fn worker(pki: &Path, pod: SocketAddr, folder: &Path) -> Result<f64> {
    let agent = "kun:agent:default:orders";
    let identity = folder.join("identity");
    let (authority, issued) = issue(pki, agent)?;
    std::fs::create_dir_all(&identity)?;
    let files =
        [("ca.crt", authority.certificate_pem()), ("tls.crt", &issued.certificate_pem), ("tls.key", &issued.key_pem)];
    for (name, text) in files {
        certs::write_private(&identity.join(name), text.as_bytes())?;
    }
    let begin = Instant::now();
    let source = SocketAddr::new(pod.ip(), names::PORT_AGENT).to_string();
    let out = tokio::process::Command::new(kun_binary()?)
        .args(["agent", "backup", "--source", &source, "--expect-cn", agent, "--file", "worker.rdb", "--out"])
        .arg(folder)
        .env("KUN_INTERNAL_DIR", &identity)
        .env("KUN_TERMINATION_LOG", folder.join("report"))
        .stdin(Stdio::null())
        .output()
        .await?;
    ensure!(out.status.success(), "kun agent backup: {}", String::from_utf8_lossy(&out.stderr));
    megabytes_per_second(&folder.join("worker.rdb"), begin)
}

#[allow(clippy::cast_precision_loss, reason = "a count of bytes")]
fn megabytes_per_second(path: &Path, begin: Instant) -> Result<f64> {
    let seconds = begin.elapsed().as_secs_f64();
    Ok(std::fs::metadata(path)?.len() as f64 / 1e6 / seconds)
}

/// The agent of a pod, called as the controller calls it.
fn agent(pki: &Path, pod: SocketAddr) -> Result<Target> {
    let (authority, issued) = issue(pki, names::CONTROLLER_USER)?;
    Ok(Target {
        address: SocketAddr::new(pod.ip(), names::PORT_AGENT),
        name: names::AGENT_SERVER_NAME.to_owned(),
        ca: authority.certificate_pem().to_owned(),
        certificate: issued.certificate_pem,
        key: issued.key_pem,
    })
}

/// A client certificate of the agents' authority.
fn issue(pki: &Path, name: &str) -> Result<(Authority, Issued)> {
    let read = |file: &str| std::fs::read_to_string(pki.join(file)).with_context(|| format!("read {file}"));
    let authority = Authority::load(&read("agent-ca.crt")?, &read("agent-ca.key")?)?;
    let issued = authority.issue(&Leaf::client(name, &[], Duration::from_secs(3600)))?;
    Ok((authority, issued))
}
