//! The write gap of a planned failover, asked for through the API, seen by a client that writes every millisecond.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use resp::{ClusterClient, Credentials, Outcome, slot::key_slot};
use serde_json::json;
use tests::{fixture::Fixture, oracle, standalone::Standalone};
use tokio::task::JoinHandle;

use crate::report::{Line, Report, percentile};

/// Failovers measured, of each shard in turn: a shard rests after each.
const ROUNDS: usize = 12;
const SHARDS: u16 = 3;
/// How long the prober writes before and after.
const AROUND: Duration = Duration::from_millis(500);

/// Twelve planned failovers.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let fixture = Fixture::idle(Standalone::start().await?, SHARDS, 1, &json!({})).await?;
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let mut gaps = Vec::new();
    for round in 0..ROUNDS {
        let shard = round % usize::from(SHARDS);
        let cluster = fixture.ready(SHARDS).await?;
        let slots = cluster["status"]["shards"][shard]["slots"].as_str().context("slots of the shard")?;
        let key = (0..).map(|n: u32| format!("probe:{n}")).find(|key| within(slots, key_slot(key)));
        let seeds = fixture.addresses().await?.into_values().collect();
        let prober = Prober::start(seeds, credentials.clone(), key.context("a key of the shard")?);
        tokio::time::sleep(AROUND).await;
        let body =
            json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "spec": {"failover": {"shard": shard}}});
        fixture.act("failover", "rop", &body, "Succeeded").await?;
        tokio::time::sleep(AROUND).await;
        gaps.push(prober.stop().await?.as_secs_f64() * 1e3);
    }
    let median = percentile(&mut gaps.clone(), 0.5);
    let worst = percentile(&mut gaps, 1.0);
    report.add(Line {
        name: format!("planned failover, worst write gap of {ROUNDS} (median {median:.1} ms)"),
        ours: worst,
        reference: 50.0,
        against: "bound".to_owned(),
        unit: "ms".to_owned(),
        ratio: 50.0 / worst,
        bar: "≤ 50 ms".to_owned(),
        met: Some(worst <= 50.0),
    })
}

/// Writes one key about a thousand times a second.
struct Prober {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Duration>>,
}

impl Prober {
    fn start(seeds: Vec<SocketAddr>, credentials: Credentials, key: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut client = ClusterClient::new(seeds, Some(credentials));
            // Connections and the table of slots are not what is measured.
            client.set(&key, "x").await;
            let (mut last, mut worst) = (Instant::now(), Duration::ZERO);
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            while !flag.load(Ordering::Relaxed) {
                tick.tick().await;
                let outcome = client.set(&key, "x").await;
                ensure!(matches!(outcome, Outcome::Acked(_)), "the prober was told {outcome:?}");
                worst = worst.max(last.elapsed());
                last = Instant::now();
            }
            Ok(worst)
        });
        Self { stop, task }
    }

    /// The longest time between two acknowledgements.
    async fn stop(self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}

fn within(slots: &str, slot: u16) -> bool {
    slots.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
