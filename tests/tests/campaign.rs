//! Random rounds on one cluster under a writer: an operation, blows at any moment of it, and then what must be true.
//!
//! A seed decides everything that is decided here: which operation, which blows on whom, and when. `SEED=n` runs that one campaign
//! of `make soak` again, `MODE=Always` (or NoVolume, EverySec, Snapshots, Off) in one mode only. It cannot decide how processes interleave, so a failure
//! prints its whole history.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod blow;
mod draw;
mod engines;
mod excuse;
mod forbidden;
mod fresh;
#[path = "../../apiserver/store/tests/robust/history/history.rs"]
mod history;
mod operation;
mod person;
mod settle;
mod still;
#[allow(clippy::panic, reason = "what ends a test there")]
#[path = "../../apiserver/store/tests/robust/tally.rs"]
mod tally;
mod witness;

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    fixture::{Fixture, manifest, node_timeout},
    oracle::Shape,
    standalone::Standalone,
    story,
    writer::{Writer, Written},
};

use blow::{Blows, Moment};
use draw::{Creation, Draw, SHARDS};
use excuse::{Hit, Keeps};
use operation::Operation;
use still::{Owners, Stills};
use tally::{Tally, next_random, soak};
use witness::Witness;

/// Rounds of each campaign of `make soak`.
const LONG: u64 = 10;
/// Replicas of each shard.
const REPLICAS: u16 = 1;
/// After so many seconds its nodes give each other up: blows that hold a member are to last longer now and then.
const NODE_TIMEOUT: u64 = 2;

/// Only the whole system has the moments that nobody thought of. What is synced at each write outlives all of them.
#[tokio::test]
async fn random_blows_lose_nothing_that_a_file_synced_at_each_write_keeps() -> Result<()> {
    campaigns(Keeps::Always, 2).await?;
    campaigns(Keeps::NoVolume, 2).await
}

/// The same where the disk may lack a second, which only real servers do.
#[tokio::test]
async fn random_blows_lose_nothing_that_a_file_synced_each_second_keeps() -> Result<()> {
    campaigns(Keeps::EverySec, 1).await
}

/// The same where no file has it: the copies in the memory of other processes are all there is.
#[tokio::test]
async fn random_blows_lose_nothing_but_what_no_file_keeps() -> Result<()> {
    campaigns(Keeps::Off, 2).await?;
    campaigns(Keeps::Snapshots, 2).await
}

/// The campaigns of a mode: those of the everyday slice, or (of those modes that share a test, a part of) as many
/// as `make soak` asks for, or the one that `SEED` names.
async fn campaigns(keeps: Keeps, share: u64) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    if !keeps.is_asked_for(variable("MODE").as_deref())? {
        return Ok(());
    }
    let mut tally = Tally::of(keeps.told());
    if let Some(seed) = variable("SEED") {
        let rounds = variable("ROUNDS").map_or(Ok(LONG), |rounds| rounds.parse()).context("ROUNDS")?;
        return campaign(keeps, seed.parse().context("SEED")?, rounds, &mut tally).await;
    }
    let seeds: Vec<(u64, u64)> = match u64::try_from(soak())? {
        0 | 1 => draw::slice(keeps),
        // With the usual 20 times: 600 rounds.
        times => (1..=times / share).map(|seed| (seed, LONG)).collect(),
    };
    let mut failed = Vec::new();
    for (seed, rounds) in seeds {
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
    // The first makes the cluster; the last compares it with one that is made anew, every day in one mode.
    let last = rounds + u64::from(rounds >= LONG || keeps == Keeps::Always);
    for round in 0..=last {
        let ended = match round {
            0 => run.create(tally).await,
            round if round <= rounds => run.round(round, tally).await,
            _ => run.compare().await,
        };
        say(&run.history.last().cloned().unwrap_or_default());
        if let Err(error) = ended {
            run.fixture.kun.keep();
            let history = run.history.join("\n");
            let log = run.fixture.kun.log_tail();
            let tables = settle::tables(&run.fixture).await.unwrap_or_else(|error| format!("{error:#}"));
            return Err(error.context(format!(
                "MODE={} SEED={seed} ROUNDS={round}\n{history}\n--- end of kun.log ---\n{log}\n--- members ---\n{tables}\n---",
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
    /// Neighbouring seeds begin alike; after some numbers they do not.
    fn of(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            chance.below(2);
        }
        chance
    }

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

/// A campaign that runs.
struct Run {
    fixture: Fixture,
    keeps: Keeps,
    seed: u64,
    chance: Chance,
    shards: u16,
    /// Nodes also give each other up while the machine stands still.
    stills: Stills,
    /// Of the end of the last round.
    owners: Owners,
    /// Whether a version is left to upgrade to.
    has_next: bool,
    written: Written,
    /// A sentence for each round.
    history: Vec<String>,
}

impl Run {
    async fn start(keeps: Keeps, seed: u64) -> Result<Self> {
        let mut kun = Standalone::prepare(&[], &[])?;
        let flags = engines::flags(&kun.scratch("engine")?)?;
        kun.use_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        kun.resume().await?;
        let folder = kun.data().parent().context("its folder")?.to_owned();
        // Whoever is silent for less is given up by nobody.
        let stills = Stills::watch(&folder, hung::node_timeout(NODE_TIMEOUT))?;
        let fixture = Fixture::without_cluster(kun);
        let (chance, shards) = (Chance::of(seed), SHARDS);
        let (has_next, written, owners) = (!flags.is_empty(), Written::default(), Owners::default());
        Ok(Self { fixture, keeps, seed, chance, shards, stills, owners, has_next, written, history: Vec::new() })
    }

    /// The cluster is made under blows: before there is a pod, while they start, while they meet and while slots are given out.
    async fn create(&mut self, tally: &mut Tally) -> Result<()> {
        let Creation { moments, awaits } = Creation::next(&mut self.chance);
        self.history.push(format!("{} seed {}: Create", self.keeps.word(), self.seed));
        let witness = self.witness(0).await?;
        let mut spec = self.keeps.spec();
        spec["failover"] = node_timeout(NODE_TIMEOUT);
        spec["backup"] = json!({"target": {"directory": {"path": self.fixture.kun.scratch("backups")?}}});
        self.fixture.kubectl.feed(&["create", "-f", "-"], &manifest(self.shards, REPLICAS, &spec)).await?;
        // Without its password nobody could be asked who he is.
        let internal = types::names::internal_secret("orders");
        self.fixture.kubectl.until("secret", &internal, hung::change(), "there", |_| true).await?;
        if awaits {
            settle::a_server_runs(&self.fixture).await?;
        }
        let hits = self.strike(moments).await?;
        tally.faults += hits.len();
        self.settled(witness, tally).await?;
        self.owners = Owners::ask(&self.fixture).await?;
        settle::copies_are_equal(&self.fixture).await
    }

    /// Clients and a watch of the API, for one round.
    async fn witness(&self, round: u64) -> Result<Witness> {
        let kubeconfig = self.fixture.kun.data().join("kubeconfig");
        Witness::start(&kubeconfig, &format!("witness-{round}"), self.seed ^ (round << 16)).await
    }

    /// What is there at rest after each round.
    async fn settled(&mut self, witness: Witness, tally: &mut Tally) -> Result<()> {
        let shape = Shape { shards: self.shards, replicas: REPLICAS };
        let person = tokio::select! {
            settled = settle::down(&self.fixture, shape) => settled.map(|()| None)?,
            given_up = person::gives_up_a_former_primary(&self.fixture) => Some(given_up?),
        };
        if let Some(pod) = person {
            self.tell(&format!("a person gave up what {pod} held, as the status says"));
            settle::down(&self.fixture, shape).await?;
        }
        let changes = witness.judge().await?;
        ensure!(changes > 0, "T12: the witness saw no change of the API");
        tally.acknowledged += changes;
        self.tell(&format!("{changes} changes of the API"));
        settle::nobody_panicked(&self.fixture)?;
        forbidden::nothing(&self.fixture).await
    }

    /// At the end: the cluster is like one that is made anew.
    async fn compare(&mut self) -> Result<()> {
        self.history.push(format!("{} seed {}: as anew", self.keeps.word(), self.seed));
        fresh::alike(&self.fixture, self.shards).await
    }

    async fn round(&mut self, round: u64, tally: &mut Tally) -> Result<()> {
        let Draw { operation, moments, calm, awaits, number } = Draw::next(&mut self.chance, self.shards);
        let operation = self.possible(operation);
        let name = format!("{} seed {} round {round}: {operation:?}", self.keeps.word(), self.seed);
        self.history.push(name);

        let settle::Work { commands, .. } = settle::work(&self.fixture).await?;
        let witness = self.witness(round).await?;
        let writer = self.writer().await?;
        writer.progress(100, hung::change()).await?;
        tokio::time::sleep(calm).await;
        self.begin(operation, number).await?;
        if awaits {
            self.first_sign().await;
        }
        let hits = self.strike(moments).await?;
        self.settled(witness, tally).await?;
        if matches!(operation, Operation::Upgrade) {
            story::runs(&self.fixture.kubectl, "orders", engines::NEXT).await?;
        }
        writer.progress(100, hung::change()).await.context("the writer writes once the cluster is Ready")?;
        self.judge(writer, &hits, tally).await?;
        settle::copies_are_equal(&self.fixture).await?;
        settle::at_rest(&self.fixture).await?;
        settle::bounded(&self.fixture, commands, matches!(operation, Operation::Scale)).await
    }

    /// The same, as far as there is a version left to upgrade to.
    fn possible(&mut self, operation: Operation) -> Operation {
        if !matches!(operation, Operation::Upgrade) {
            return operation;
        }
        if std::mem::take(&mut self.has_next) { operation } else { Operation::Template }
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
        let owners = Owners::ask(&self.fixture).await?;
        let stills = self.stills.hits(&owners.changed_since(&self.owners));
        self.owners = owners;
        let felt = [hits, &stills].concat();
        verdict.lost.retain(|lost| !excuse::excused(self.keeps, &felt, lost));
        let begin = felt.first().map_or_else(Instant::now, |hit| hit.at);
        self.tell(&format!(
            "{} acknowledged, {} lost, {} of them excused, {} without an answer, pause {:.1} s, the machine stood still {} times",
            verdict.acked,
            all,
            all - verdict.lost.len(),
            verdict.unknown,
            verdict.worst_gap.as_secs_f64(),
            stills.len()
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
