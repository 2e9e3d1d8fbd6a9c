//! How long others wait for our API server while somebody breaks HTTP on purpose, beside how long they wait in quiet, in turns
//! within the same run.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tests::standalone::Standalone;

use crate::{
    api::{COLLECTION, target},
    http::{self, Connection, Target},
    report::{Better, Pairs, Report, percentile},
};

/// How long a turn lasts, and how many turns there are of each kind.
const TURN: Duration = Duration::from_secs(3);
const PAIRS: usize = 5;

/// Measures the pairs.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
    let target = target(&kun)?;
    let (mut abused, mut quiet) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        quiet.push(turn(&target).await?);
        let attack = tokio::spawn(resets(target.clone()));
        let turn = turn(&target).await;
        attack.abort();
        abused.push(turn?);
    }
    let mut pairs = |name: &str, share| Pairs {
        name: format!("others' reads while streams are opened and reset, {name}"),
        ours: figures(&mut abused, share),
        reference: figures(&mut quiet, share),
        against: "the same in quiet".to_owned(),
        unit: "ms".to_owned(),
        better: Better::Less,
        bar: "all ≤ 2000 ms".to_owned(),
    };
    report.show(pairs("p50", 0.5))?;
    report.show(pairs("p99", 0.99))?;
    report.compare(pairs("longest", 1.0), |waits, _| percentile(&mut waits.to_vec(), 1.0) <= 2000.0)
}

/// What others waited in milliseconds, of each turn.
async fn turn(target: &Target) -> Result<Vec<f64>> {
    let mut other = http::connect(target).await?;
    let (begin, mut millis) = (Instant::now(), Vec::new());
    while begin.elapsed() < TURN {
        let asked = Instant::now();
        http::call(&mut other, "GET", COLLECTION, "application/json", Bytes::new()).await?;
        millis.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    Ok(millis)
}

/// Opens streams and resets them at once, on a new connection whenever it is shown out.
async fn resets(target: Target) {
    loop {
        if let Ok(connection) = http::connect(&target).await {
            abandon(connection).await;
        }
    }
}

async fn abandon(mut connection: Connection) {
    while connection.ready().await.is_ok() {
        let Ok(request) = Request::get(COLLECTION).header("host", "server").body(Full::new(Bytes::new())) else {
            return;
        };
        // To drop the answer before it comes is a reset; in between the connection sends what it has.
        drop(connection.send_request(request));
        tokio::task::yield_now().await;
    }
}

fn figures(turns: &mut [Vec<f64>], share: f64) -> Vec<f64> {
    turns.iter_mut().map(|millis| percentile(millis, share)).collect()
}
