//! How long writes wait while a cluster is restarted pod by pod, and while it is scaled out and in again; and how long it takes
//! until all of its pods have stopped.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use resp::Credentials;
use serde_json::{Value, json};
use tests::{fixture::Fixture, kubectl::condition, oracle, standalone::Standalone, story};

use crate::{
    failover::keys_of,
    prober::{Cut, Prober},
    redis::Nodes,
    report::{Better, Pairs, Report, percentile},
};

/// How often each is done.
const TIMES: u8 = 3;
const SHARDS: u16 = 3;
/// What the spec promises of planned moves, in milliseconds: the gap of the last but the worst percent.
const GAP: f64 = 1_000.0;
/// A pod has 30 s to stop, and the agent ends what is left after 25 s.
const STOP: f64 = 25.0;
/// Networks of the reference.
const NET: u8 = 92;

/// Measures all three.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let mut fixture = Fixture::idle(Standalone::start().await?, SHARDS, 1, &json!({})).await?;
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let (mut restarts, mut scalings) = (Vec::new(), Vec::new());
    for time in 0..TIMES {
        let memory = format!("{}Mi", 300 + u16::from(time));
        restarts.push(restart(&fixture, &credentials, &memory).await?);
        scalings.push(scale(&fixture, &credentials).await?);
    }
    report.compare(gaps("a rolling restart, longest write gap", restarts), met)?;
    report.compare(gaps("3 → 5 → 3 shards, longest write gap", scalings), met)?;
    stops(report, &mut fixture).await
}

fn gaps(name: &str, ours: Vec<f64>) -> Pairs {
    Pairs {
        name: name.to_owned(),
        ours,
        reference: vec![GAP],
        against: "bound".to_owned(),
        unit: "ms".to_owned(),
        better: Better::Less,
        bar: "all ≤ 1 s".to_owned(),
    }
}

fn met(gaps: &[f64], _ratio: f64) -> bool {
    percentile(&mut gaps.to_vec(), 1.0) <= GAP
}

/// Of one key in each shard.
async fn prober(fixture: &Fixture, credentials: &Credentials) -> Result<Prober> {
    let keys = keys_of(&fixture.ready(SHARDS).await?);
    ensure!(keys.len() == usize::from(SHARDS), "{keys:?}");
    let seeds = fixture.addresses().await?.into_values().collect();
    // A client that has not heard of a move yet may write to a node that ends as something else than the owner.
    Ok(Prober::start(seeds, Some(credentials.clone()), keys, Cut::Possible).await)
}

async fn restart(fixture: &Fixture, credentials: &Credentials, memory: &str) -> Result<f64> {
    let prober = prober(fixture, credentials).await?;
    let patch = json!({"spec": {"resources": {"limits": {"memory": memory}}}}).to_string();
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await?;
    let done = |cluster: &Value| condition(cluster, "UpToDate")["status"] == "True" && story::is_ready(cluster, SHARDS);
    fixture.kubectl.until("rdc", "orders", hung::change(), "rolled", done).await?;
    prober.stop().await
}

async fn scale(fixture: &Fixture, credentials: &Credentials) -> Result<f64> {
    let prober = prober(fixture, credentials).await?;
    for shards in [5, SHARDS] {
        fixture.kubectl.run(&["scale", "rdc", "orders", &format!("--replicas={shards}")]).await?;
        fixture.ready(shards).await?;
    }
    prober.stop().await
}

/// All pods at once with kun, beside as many redis-servers that nobody looks after.
async fn stops(report: &mut Report, fixture: &mut Fixture) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for time in 0..TIMES {
        fixture.ready(SHARDS).await?;
        let begin = Instant::now();
        let code = fixture.kun.stop().await?;
        ours.push(begin.elapsed().as_secs_f64());
        ensure!(code == 0 && fixture.kun.pod_processes().is_empty(), "kun ended with {code}");
        fixture.kun.resume().await?;

        let nodes = Nodes::cluster(NET + time, u8::try_from(SHARDS)?, 1, &["--appendonly", "yes"]).await?;
        nodes.written().await?;
        let begin = Instant::now();
        nodes.stop().await.context("stop the reference")?;
        theirs.push(begin.elapsed().as_secs_f64());
        // Its ports are free a moment later.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pairs = Pairs {
        name: "kun and 3 x 2 pods stop, all at once".to_owned(),
        ours,
        reference: theirs,
        against: "SIGTERM to six redis-servers".to_owned(),
        unit: "s".to_owned(),
        better: Better::Less,
        bar: "all ≤ 25 s".to_owned(),
    };
    report.compare(pairs, |ours, _| percentile(&mut ours.to_vec(), 1.0) <= STOP)
}
