//! A client that writes every millisecond, one key after the other, and says how long it once had to wait.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use resp::{ClusterClient, Credentials, Outcome};
use tokio::task::JoinHandle;

/// How long it writes before and after what is measured.
pub(crate) const AROUND: Duration = Duration::from_millis(500);

/// Whether a write may be left without an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A node dies with what it was told.
    Possible,
    /// Every node lives until its role is somebody else's.
    Never,
}

/// Writes about a thousand times a second.
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Duration>>,
}

impl Prober {
    /// Starts it, and returns when it has written for a while.
    pub(crate) async fn start(
        seeds: Vec<SocketAddr>,
        credentials: Option<Credentials>,
        keys: Vec<String>,
        cut: Cut,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(write(ClusterClient::new(seeds, credentials), keys, cut, Arc::clone(&stop)));
        tokio::time::sleep(AROUND).await;
        Self { stop, task }
    }

    /// Lets it write for a while, ends it, and says in milliseconds how long it was between two acknowledgements at most.
    pub(crate) async fn stop(self) -> Result<f64> {
        tokio::time::sleep(AROUND).await;
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await??.as_secs_f64() * 1e3)
    }
}

async fn write(mut client: ClusterClient, keys: Vec<String>, cut: Cut, stop: Arc<AtomicBool>) -> Result<Duration> {
    // Connections and the table of slots are not what is measured.
    for key in &keys {
        client.set(key, "x").await;
    }
    let (mut last, mut worst) = (Instant::now(), Duration::ZERO);
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    for key in keys.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        tick.tick().await;
        let outcome = client.set(key, "x").await;
        match outcome {
            Outcome::Acked(_) => {
                worst = worst.max(last.elapsed());
                last = Instant::now();
            }
            Outcome::Unknown(_) if cut == Cut::Possible => {}
            Outcome::Unknown(_) | Outcome::Refused(_) => ensure!(false, "the prober was told {outcome:?}"),
        }
    }
    Ok(worst.max(last.elapsed()))
}
