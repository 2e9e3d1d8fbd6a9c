//! How soon a user reads that unavailability was chosen over loss: a primary hangs beside a replica that was left behind, and status and event
//! say that it is not promoted, with the numbers and the way out.

use std::time::Instant;

use anyhow::Result;
use rustix::process::Signal;
use tests::{
    fixture::Fixture,
    left_behind::{is_refused, is_told, left_behind, mend, signal, spec, wait_until},
};

use crate::report::{Better, Pairs, Report, percentile};

const ROUNDS: usize = 5;
/// The promise, in seconds.
const BOUND: f64 = 5.0;

/// Measures some rounds: the slowest counts.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let fixture = Fixture::start(3, 1, &spec()).await?;
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        seconds.push(round(&fixture).await?);
    }
    let pairs = Pairs {
        name: "a copy is not promoted: status and event".to_owned(),
        ours: seconds,
        reference: vec![BOUND],
        against: "the promise".to_owned(),
        unit: "s".to_owned(),
        better: Better::Less,
        bar: "all ≤ 5 s".to_owned(),
    };
    report.compare(pairs, |seconds, _| percentile(&mut seconds.to_vec(), 1.0) <= BOUND)
}

async fn round(fixture: &Fixture) -> Result<f64> {
    let pair = left_behind(fixture).await?;
    fixture.kubectl.run(&["delete", "events", "--all"]).await?;
    let begin = Instant::now();
    signal(fixture, pair.primary, Signal::STOP)?;
    fixture.kubectl.until("rdc", "orders", hung::change(), "refusing a copy that is not whole", is_refused).await?;
    wait_until("an event says so", async || is_told(fixture).await).await?;
    let took = begin.elapsed().as_secs_f64();
    signal(fixture, pair.primary, Signal::CONT)?;
    mend(fixture, &pair).await?;
    fixture.ready(3).await?;
    Ok(took)
}
