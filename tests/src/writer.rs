//! A cluster-aware writer that keeps every acknowledged write and afterwards reads every one of them back.
//!
//! Half of its writes make new keys (a lost write is a missing key), half overwrite a small ring of keys with growing
//! numbers (a key served stale is a number that is too small).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use resp::{ClusterClient, Credentials, Outcome};
use tokio::{sync::watch, task::JoinHandle};

/// Concurrent closed loops. Few: the machine's two cores also run everything under test.
const LOOPS: u64 = 3;
/// Pause between two writes of one loop.
const PAUSE: Duration = Duration::from_millis(2);
/// The same of a writer that is beside several others.
const CALM: Duration = Duration::from_millis(10);
/// Keys that are overwritten, of each loop.
const RING: u64 = 500;
/// After so many numbers a writer that goes on for hours comes back to its first keys. All of them are read back each time, so they are
/// few; and they are more than a loop writes between two times (about 5,000), or a write that was lost would be written over unseen.
const ROUND: u64 = 8000;
/// One attempt at one node; a node that is gone must not hide the others for long.
const ATTEMPT: Duration = Duration::from_millis(1000);

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    stop: watch::Sender<bool>,
    acks: Arc<AtomicU64>,
    gap_micros: Arc<AtomicU64>,
    loops: Vec<JoinHandle<Ledger>>,
    seeds: Vec<SocketAddr>,
    credentials: Option<Credentials>,
}

/// What was acknowledged: key → the last acknowledged number, and later numbers whose outcome is unknown.
#[derive(Debug, Default)]
pub struct Ledger {
    keys: BTreeMap<String, Expected>,
    /// The last number that was written.
    last: u64,
    /// Acknowledged writes.
    pub acked: u64,
    /// Writes with an unknown outcome.
    pub unknown: u64,
    /// Writes that were refused until their cluster was taken to hang, with the first reason.
    pub refused: Vec<String>,
    /// The longest time between two acknowledgements of one loop.
    pub worst_gap: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// The last acknowledged write; `None` when only unknown outcomes exist.
    acked: Option<Acked>,
    /// Largest number whose outcome is unknown.
    unknown: Option<u64>,
}

/// One acknowledged write: its primary carried it out at some moment between these two.
#[derive(Clone, Copy, Debug)]
struct Acked {
    number: u64,
    sent_at: Instant,
    acked_at: Instant,
}

/// What reading back showed.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Acknowledged writes.
    pub acked: u64,
    /// Keys read back.
    pub keys: usize,
    /// Acknowledged writes that do not read back.
    pub lost: Vec<Lost>,
    /// Writes without an answer (neither acknowledged nor refused).
    pub unknown: u64,
    /// The longest time between two acknowledgements of one loop.
    pub worst_gap: Duration,
}

impl Drop for Writer {
    /// A test that failed writes no more: another one may be at the same keys.
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// How long before and after the end of a primary an acknowledged write may be lost by asynchronous replication; as everything
/// else, it takes longer on a slower machine.
const CRASH_WINDOW: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

impl Verdict {
    /// Takes out what was lost around the moment when a primary was killed, and says how many that are: Redis acknowledges
    /// before its replicas have a write.
    pub fn forgive(&mut self, blow: Instant) -> usize {
        let all = self.lost.len();
        let slower = hung::excused();
        let (before, after) = (CRASH_WINDOW.0 * slower, CRASH_WINDOW.1 * slower);
        self.lost.retain(|lost| lost.acked_at + before < blow || lost.sent_at > blow + after);
        all - self.lost.len()
    }
}

/// What a writer has written so far, one ledger for each of its loops: a later writer goes on with it.
#[derive(Debug, Default)]
pub struct Written(Vec<Ledger>);

/// One acknowledged write that does not read back.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The key.
    pub key: String,
    /// Key, acknowledged number and what is there now, as a sentence.
    pub what: String,
    /// It was not sent to the node that acknowledged it before this.
    pub sent_at: Instant,
    /// When its acknowledgement was read: a machine that stands still reads late.
    pub acked_at: Instant,
}

impl Writer {
    /// Starts writing through these nodes.
    #[must_use]
    pub fn start(seeds: Vec<SocketAddr>, credentials: Option<Credentials>) -> Self {
        Self::paced(seeds, credentials, ATTEMPT, PAUSE)
    }

    /// Goes on where a former writer was read back, for as long as one likes: it comes back to its first keys after a while, and
    /// what the former one wrote is read back with its own.
    #[must_use]
    pub fn go_on(written: Written, seeds: Vec<SocketAddr>, credentials: Option<Credentials>) -> Self {
        let Written(mut ledgers) = written;
        ledgers.resize_with(usize::try_from(LOOPS).unwrap_or_default(), Ledger::default);
        let loops = Loops { attempt: ATTEMPT, pause: PAUSE, fresh: ROUND };
        Self::with(ledgers, seeds, credentials, loops)
    }

    /// The same, and leaves the machine to others for most of the time.
    #[must_use]
    pub fn calm(seeds: Vec<SocketAddr>, credentials: Option<Credentials>) -> Self {
        Self::paced(seeds, credentials, ATTEMPT, CALM)
    }

    /// The same, and an attempt waits so long for its answer: where every node lives, a write that has none was cut off.
    #[must_use]
    pub fn waiting(seeds: Vec<SocketAddr>, credentials: Option<Credentials>, attempt: Duration) -> Self {
        Self::paced(seeds, credentials, attempt, PAUSE)
    }

    fn paced(seeds: Vec<SocketAddr>, credentials: Option<Credentials>, attempt: Duration, pause: Duration) -> Self {
        let ledgers = (0..LOOPS).map(|_| Ledger::default()).collect();
        Self::with(ledgers, seeds, credentials, Loops { attempt, pause, fresh: u64::MAX })
    }

    fn with(ledgers: Vec<Ledger>, seeds: Vec<SocketAddr>, credentials: Option<Credentials>, how: Loops) -> Self {
        let stop = watch::Sender::new(false);
        let acks = Arc::new(AtomicU64::new(0));
        let gap_micros = Arc::new(AtomicU64::new(0));
        let loops = (0..)
            .zip(ledgers)
            .map(|(index, ledger)| {
                let client =
                    ClusterClient::new(seeds.clone(), credentials.clone()).timeouts(how.attempt, hung::change());
                let (acks, gap_micros) = (acks.clone(), gap_micros.clone());
                tokio::spawn(write(index, client, ledger, how, stop.subscribe(), acks, gap_micros))
            })
            .collect();
        Self { stop, acks, gap_micros, loops, seeds, credentials }
    }

    /// Acknowledged writes so far.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acks.load(Ordering::Relaxed)
    }

    /// The longest time between two acknowledgements of one loop since this was asked before.
    #[must_use]
    pub fn gap_since(&self) -> Duration {
        Duration::from_micros(self.gap_micros.swap(0, Ordering::Relaxed))
    }

    /// Waits until `more` further writes were acknowledged.
    pub async fn progress(&self, more: u64, limit: Duration) -> Result<()> {
        let goal = self.acked() + more;
        let begin = Instant::now();
        while self.acked() < goal {
            if begin.elapsed() > limit {
                bail!("the writer got {} of {more} acknowledgements within {limit:?}", self.acked() + more - goal);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Stops writing, reads every acknowledged write back, and says what is missing.
    pub async fn verify(self, extra_seeds: &[SocketAddr]) -> Result<Verdict> {
        self.read_back(extra_seeds).await.map(|(verdict, _)| verdict)
    }

    /// The same, and gives away what is there, for a writer that goes on with it. What is missing is forgotten: it is told once.
    pub async fn read_back(mut self, extra_seeds: &[SocketAddr]) -> Result<(Verdict, Written)> {
        self.stop.send_replace(true);
        let mut written = Written::default();
        let mut verdict = Verdict::default();
        let seeds: Vec<SocketAddr> = extra_seeds.iter().chain(&self.seeds).copied().collect();
        let mut client = ClusterClient::new(seeds, self.credentials.clone()).timeouts(ATTEMPT, hung::change());
        for handle in std::mem::take(&mut self.loops) {
            let mut ledger = handle.await.context("a writer loop panicked")?;
            if let Some(first) = ledger.refused.first() {
                bail!(
                    "{} writes were refused until their cluster was taken to hang; first: {first}",
                    ledger.refused.len()
                );
            }
            verdict.acked += ledger.acked;
            verdict.unknown += ledger.unknown;
            verdict.keys += ledger.keys.len();
            verdict.worst_gap = verdict.worst_gap.max(ledger.worst_gap);
            let mut lost = Vec::new();
            for (key, expected) in &ledger.keys {
                lost.extend(read_back(&mut client, key, *expected).await?);
            }
            ledger.keys.retain(|key, _| !lost.iter().any(|lost| lost.key == *key));
            verdict.lost.append(&mut lost);
            let Ledger { keys, last, acked: _, unknown: _, refused: _, worst_gap: _ } = ledger;
            written.0.push(Ledger { keys, last, ..Ledger::default() });
        }
        Ok((verdict, written))
    }
}

async fn read_back(client: &mut ClusterClient, key: &str, expected: Expected) -> Result<Option<Lost>> {
    let Some(Acked { number: acked, sent_at, acked_at }) = expected.acked else { return Ok(None) };
    let lost = |now: &str| {
        let what = format!("{key}: acknowledged {acked}, now {now}");
        Lost { key: key.to_owned(), what, sent_at, acked_at }
    };
    let value = client.get(key).await.map_err(|why| anyhow::anyhow!("GET {key}: {why}"))?;
    let Some(value) = value else { return Ok(Some(lost("absent"))) };
    let number: u64 = std::str::from_utf8(&value)?.parse().with_context(|| format!("value of {key}"))?;
    // A write without an answer may have been executed; anything older than the last acknowledgement is a loss.
    let newest = expected.unknown.unwrap_or(acked).max(acked);
    Ok((number < acked || number > newest).then(|| lost(&number.to_string())))
}

/// How the loops of a writer write.
#[derive(Clone, Copy)]
struct Loops {
    /// An attempt waits so long for its answer.
    attempt: Duration,
    /// Between two writes.
    pause: Duration,
    /// After so many numbers a new key is one of the first again.
    fresh: u64,
}

async fn write(
    index: u64,
    mut client: ClusterClient,
    mut ledger: Ledger,
    how: Loops,
    mut stop: watch::Receiver<bool>,
    acks: Arc<AtomicU64>,
    gap_micros: Arc<AtomicU64>,
) -> Ledger {
    let mut last_ack = Instant::now();
    for number in ledger.last + 1.. {
        if *stop.borrow() {
            break;
        }
        ledger.last = number;
        let key = if number % 2 == 0 {
            format!("new:{index}:{}", number % how.fresh)
        } else {
            format!("ring:{index}:{}", number % RING)
        };
        let outcome = tokio::select! {
            outcome = client.set(&key, number.to_string()) => outcome,
            // Cut off by ourselves: it may have been executed.
            () = long_stopped(&mut stop) => {
                ledger.keys.entry(key).or_default().unknown = Some(number);
                break;
            }
        };
        match outcome {
            Outcome::Acked(_) => {
                ledger.acked += 1;
                acks.fetch_add(1, Ordering::Relaxed);
                let gap = last_ack.elapsed();
                ledger.worst_gap = ledger.worst_gap.max(gap);
                gap_micros.fetch_max(u64::try_from(gap.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
                last_ack = Instant::now();
                let sent_at = client.sent_at().into_std();
                ledger.keys.entry(key).or_default().acked = Some(Acked { number, sent_at, acked_at: last_ack });
            }
            Outcome::Unknown(_) => {
                ledger.unknown += 1;
                ledger.keys.entry(key).or_default().unknown = Some(number);
            }
            // Surely not executed: nothing to read back. While writing it is a fault, at the end it is not.
            Outcome::Refused(_) if *stop.borrow() => {}
            Outcome::Refused(why) => ledger.refused.push(why),
        }
        tokio::time::sleep(how.pause).await;
    }
    ledger
}

/// Ends when nobody waits for the answer any more: its nodes may be at addresses that this writer was not told.
async fn long_stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone stopped as well.
    let _ = stop.wait_for(|stopped| *stopped).await;
    tokio::time::sleep(hung::answer()).await;
}
