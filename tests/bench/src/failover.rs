//! The write gap of a planned failover, asked for through the API, seen by a client that writes every millisecond.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use resp::{ClusterClient, Outcome, slot::key_slot};
use serde_json::json;
use tests::{fixture::Fixture, oracle, standalone::Standalone};

use crate::report::{Line, Report, percentile};

/// Failovers measured.
const ROUNDS: usize = 12;

/// Twelve planned failovers of one shard.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let fixture = Fixture::idle(Standalone::start().await?, 3, 1, &json!({})).await?;
    let cluster = fixture.cluster().await?;
    let slots = cluster["status"]["shards"][0]["slots"].as_str().unwrap_or_default().to_owned();
    let key = (0..).map(|n: u32| format!("probe:{n}")).find(|key| within(&slots, key_slot(key))).unwrap_or_default();
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let seeds: Vec<_> = fixture.addresses().await?.into_values().collect();
    let (stop, worst) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Duration::ZERO)));
    let (flag, gap) = (stop.clone(), worst.clone());
    let prober = tokio::spawn(async move {
        let mut client = ClusterClient::new(seeds, Some(credentials));
        let (mut last, mut bad) = (Instant::now(), Vec::new());
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        while !flag.load(Ordering::Relaxed) {
            tick.tick().await;
            match client.set(&key, "x").await {
                Outcome::Acked(_) => {
                    let mut worst = gap.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    *worst = worst.max(last.elapsed());
                    last = Instant::now();
                }
                Outcome::Refused(why) | Outcome::Unknown(why) => bad.push(why),
            }
        }
        bad
    });
    let mut gaps = Vec::new();
    for _ in 0..ROUNDS {
        fixture.ready(3).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let take = || std::mem::take(&mut *worst.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        take();
        let body =
            json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "spec": {"failover": {"shard": 0}}});
        fixture.act("failover", "rop", &body, "Succeeded").await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        gaps.push(take().as_secs_f64() * 1e3);
    }
    stop.store(true, Ordering::Relaxed);
    let bad = prober.await?;
    ensure!(bad.is_empty(), "the prober saw {bad:?}");
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

fn within(slots: &str, slot: u16) -> bool {
    slots.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
