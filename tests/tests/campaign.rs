//! Random rounds on one cluster under a writer: an operation, blows at any moment of it, and then what must be true.
//!
//! A seed decides everything that is decided here: which operation, which blows on whom, and when. `SEED=n` runs that one campaign
//! of `make soak` again, `MODE=Always` (or NoVolume, EverySec, Snapshots, Off) in one mode only. It cannot decide how processes interleave, so a failure
//! prints its whole history.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod blow;
mod excuse;
mod settle;
#[allow(clippy::panic, reason = "what ends a test there")]
#[path = "../../apiserver/store/tests/robust/tally.rs"]
mod tally;

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    fixture::Fixture,
    oracle::Shape,
    standalone::Standalone,
    writer::{Writer, Written},
};

use blow::{Blows, Moment};
use excuse::{Hit, Keeps};
use tally::{Tally, next_random, soak};

/// Rounds of one campaign on one cluster; `make soak` runs more campaigns, of more rounds.
const ROUNDS: u64 = 2;
const LONG: u64 = 10;
/// Replicas of each shard.
const REPLICAS: u16 = 1;

#[tokio::test]
async fn random_blows_lose_nothing_that_a_file_synced_at_each_write_keeps() -> Result<()> {
    campaigns(Keeps::Always, &[3], 2).await?;
    campaigns(Keeps::NoVolume, &[], 2).await
}

#[tokio::test]
async fn random_blows_lose_nothing_that_a_file_synced_each_second_keeps() -> Result<()> {
    campaigns(Keeps::EverySec, &[5], 1).await
}

#[tokio::test]
async fn random_blows_lose_nothing_but_what_no_file_keeps() -> Result<()> {
    campaigns(Keeps::Off, &[7], 2).await?;
    campaigns(Keeps::Snapshots, &[], 2).await
}

/// The campaigns of a mode: those of the everyday slice, or (of those modes that share a test, a part of) as many
/// as `make soak` asks for, or the one that `SEED` names.
async fn campaigns(keeps: Keeps, slice: &[u64], share: u64) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    if variable("MODE").is_some_and(|mode| mode != keeps.word()) {
        return Ok(());
    }
    let mut tally = Tally::of(keeps.told());
    if let Some(seed) = variable("SEED") {
        let rounds = variable("ROUNDS").map_or(Ok(LONG), |rounds| rounds.parse())?;
        return campaign(keeps, seed.parse()?, rounds, &mut tally).await;
    }
    let (seeds, rounds): (Vec<u64>, u64) = match u64::try_from(soak())? {
        0 | 1 => (slice.to_vec(), ROUNDS),
        // With the usual 20 times: 600 rounds.
        times => ((1..=times / share).collect(), LONG),
    };
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(error) = campaign(keeps, seed, rounds, &mut tally).await {
            tally.lost += 1;
            say(&format!("FAILED: {error:#}"));
            failed.push(error);
        }
    }
    let all = failed.len();
    failed.into_iter().next().map_or(Ok(()), |first| Err(first.context(format!("{all} campaigns failed; the first"))))
}

/// One campaign on a cluster of its own.
async fn campaign(keeps: Keeps, seed: u64, rounds: u64, tally: &mut Tally) -> Result<()> {
    let mut run = Run::start(keeps, seed).await?;
    for round in 1..=rounds {
        let ended = run.round(round, tally).await;
        say(&run.history.last().cloned().unwrap_or_default());
        if let Err(error) = ended {
            run.fixture.kun.keep();
            let history = run.history.join("\n");
            let log = run.fixture.kun.log_tail();
            return Err(error.context(format!(
                "MODE={} SEED={seed} ROUNDS={round}\n{history}\n--- end of kun.log ---\n{log}\n---",
                keeps.word()
            )));
        }
    }
    Ok(())
}

/// Not by a macro: those are swallowed in a test that passes.
fn say(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("campaign: {line}\n").as_bytes());
}

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    /// One number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = next_random(self.0);
        (self.0 >> 16) % end.max(1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// What an operator does in a round.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Nothing,
    Scale,
    Failover,
    Restart,
    /// Another template: what an upgrade is, too.
    Template,
    Config,
    Backup,
    /// A pod is deleted, as `kubectl drain` does it.
    Drain,
}

impl Operation {
    fn any(chance: &mut Chance) -> Self {
        let all = [
            Self::Nothing,
            Self::Scale,
            Self::Scale,
            Self::Failover,
            Self::Restart,
            Self::Template,
            Self::Config,
            Self::Backup,
            Self::Drain,
        ];
        let index = usize::try_from(chance.below(all.len() as u64)).unwrap_or_default();
        all.get(index).copied().unwrap_or(Self::Nothing)
    }
}

/// A campaign that runs.
struct Run {
    fixture: Fixture,
    keeps: Keeps,
    seed: u64,
    chance: Chance,
    shards: u16,
    written: Written,
    /// A sentence for each round.
    history: Vec<String>,
}

impl Run {
    async fn start(keeps: Keeps, seed: u64) -> Result<Self> {
        let kun = Standalone::start().await?;
        let folder = kun.scratch("backups")?;
        let mut spec = keeps.spec();
        spec["backup"] = json!({"target": {"directory": {"path": folder}}});
        let fixture = Fixture::idle(kun, 3, REPLICAS, &spec).await.with_context(|| format!("SEED={seed}: create"))?;
        // Neighbouring seeds begin alike; after some numbers they do not.
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            chance.below(2);
        }
        Ok(Self { fixture, keeps, seed, chance, shards: 3, written: Written::default(), history: Vec::new() })
    }

    async fn round(&mut self, round: u64, tally: &mut Tally) -> Result<()> {
        let operation = Operation::any(&mut self.chance);
        let moments = Moment::some(&mut self.chance, self.shards);
        let calm = self.chance.time(0, 500);
        let awaits = self.chance.one_in(2);
        let name = format!("{} seed {} round {round}: {operation:?}", self.keeps.word(), self.seed);
        self.history.push(name);

        let settle::Work { commands, .. } = settle::work(&self.fixture).await?;
        let writer = self.writer().await?;
        writer.progress(100, hung::change()).await?;
        tokio::time::sleep(calm).await;
        self.begin(operation).await?;
        if awaits {
            self.first_sign().await;
        }
        let hits = self.strike(moments).await?;
        settle::down(&self.fixture, Shape { shards: self.shards, replicas: REPLICAS }).await?;
        writer.progress(100, hung::change()).await.context("the writer writes once the cluster is Ready")?;
        self.judge(writer, &hits, tally).await?;
        settle::copies_are_equal(&self.fixture).await?;
        settle::at_rest(&self.fixture).await?;
        settle::nobody_panicked(&self.fixture)?;
        settle::bounded(&self.fixture, commands, matches!(operation, Operation::Scale)).await
    }

    /// A writer that goes on where the one before it ended.
    async fn writer(&mut self) -> Result<Writer> {
        let credentials = tests::oracle::credentials(&self.fixture.kubectl, "default", "orders", "default").await?;
        let seeds = self.fixture.addresses().await?.into_values().collect();
        Ok(Writer::go_on(std::mem::take(&mut self.written), seeds, Some(credentials)))
    }

    /// Every acknowledged write reads back, but for what the blows of this round excuse.
    async fn judge(&mut self, writer: Writer, hits: &[Hit], tally: &mut Tally) -> Result<()> {
        let seeds: Vec<_> = self.fixture.addresses().await?.into_values().collect();
        let (mut verdict, written) = writer.read_back(&seeds).await?;
        self.written = written;
        tally.faults += hits.len();
        tally.acknowledged += usize::try_from(verdict.acked)?;
        let all = verdict.lost.len();
        verdict.lost.retain(|lost| !excuse::excused(self.keeps, hits, lost));
        let begin = hits.first().map_or_else(Instant::now, |hit| hit.at);
        self.tell(&format!(
            "{} acknowledged, {} lost, {} of them excused, {} without an answer, pause {:.1} s",
            verdict.acked,
            all,
            all - verdict.lost.len(),
            verdict.unknown,
            verdict.worst_gap.as_secs_f64()
        ));
        tally.lost += verdict.lost.len();
        let told: Vec<String> = verdict.lost.iter().take(20).map(|lost| excuse::told(lost, begin)).collect();
        ensure!(told.is_empty(), "{} acknowledged writes were lost: {told:#?}", verdict.lost.len());
        Ok(())
    }

    /// Adds to the sentence of this round.
    fn tell(&mut self, what: &str) {
        if let Some(last) = self.history.last_mut() {
            last.push_str("; ");
            last.push_str(what);
        }
    }

    /// Asks for the operation, and does not wait for it.
    async fn begin(&mut self, operation: Operation) -> Result<()> {
        let action = |body: Value| {
            let mut object = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation"});
            object["spec"] = body;
            object
        };
        let number = self.chance.below(1000);
        match operation {
            Operation::Nothing => Ok(()),
            Operation::Scale => {
                self.shards = if self.shards == 3 { 4 } else { 3 };
                let count = format!("--replicas={}", self.shards);
                self.fixture.kubectl.run(&["scale", "rdc", "orders", &count]).await.map(drop)
            }
            Operation::Failover => {
                let shard = number % u64::from(self.shards);
                self.create("failover", &action(json!({"failover": {"shard": shard}}))).await
            }
            Operation::Restart => self.create("restart", &action(json!({"restart": {}}))).await,
            Operation::Template => {
                let memory = format!("{}Mi", 256 + number);
                self.patch(&json!({"spec": {"resources": {"limits": {"memory": memory}}}})).await
            }
            Operation::Config => {
                let config = json!({"hash-max-listpack-entries": (64 + number).to_string()});
                self.patch(&json!({"spec": {"config": config}})).await
            }
            Operation::Backup => {
                self.create("backup", &json!({"apiVersion": types::API_VERSION, "kind": "RedisBackup"})).await
            }
            Operation::Drain => {
                let pod = format!("orders-{}-{}", number % u64::from(self.shards), number / 500);
                self.fixture.kubectl.run(&["delete", "pod", &pod, "--wait=false"]).await.map(drop)
            }
        }
    }

    async fn create(&self, subresource: &str, body: &Value) -> Result<()> {
        let path = format!("/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/{subresource}");
        self.fixture.kubectl.feed(&["create", "--raw", &path, "-f", "-"], &body.to_string()).await.map(drop)
    }

    async fn patch(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Waits until the status says that something is done. An operation may be over before that is seen: then it is over.
    async fn first_sign(&self) {
        let busy = |cluster: &Value| {
            let plan = &cluster["status"]["plan"];
            plan["steps"].as_array().is_some_and(|steps| !steps.is_empty())
                || cluster["status"]["operation"].is_string()
        };
        let sign = self.fixture.kubectl.until("rdc", "orders", hung::answer(), "busy", busy);
        drop(tokio::time::timeout(SIGN, sign).await);
    }

    /// Carries out the blows, each at its moment, and what ends each of them.
    async fn strike(&mut self, moments: Vec<Moment>) -> Result<Vec<Hit>> {
        let mut blows = Blows::on(&self.fixture).await?;
        let begin = Instant::now();
        for moment in moments {
            blows.end_until(&mut self.fixture, begin + moment.after).await?;
            blows.strike(&mut self.fixture, moment.blow).await?;
        }
        blows.end_all(&mut self.fixture).await?;
        let (hits, told) = blows.told(begin);
        self.tell(&told);
        Ok(hits)
    }
}

/// So long a first sign of an operation is waited for.
const SIGN: Duration = Duration::from_secs(5);
