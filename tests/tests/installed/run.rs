//! Runs scenarios side by side on several clusters and tells how each ended. It must not know what they are.

use std::{
    collections::{BTreeSet, VecDeque},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::future;
use tests::{cluster::built, installed::Installed, kubectl::Kubectl, kubernetes::given};

use crate::scenario::{Company, NAME, Needs, OVERLAP, Scenario, away, say};

/// How many clusters there are at once: one of three nodes, for what is done to nodes, and others of one. With a third of them two
/// processors are so busy that kubelets and Redis take each other for dead.
const CLUSTERS: usize = 2;
/// How many look at one installation at once, each from a namespace of its own.
const LANES: usize = 2;
/// After how many that fail the others are not tried: each shows a lot, and what one leaves behind may fail the next.
const FAILURES: usize = 3;

/// What is shown of a cluster in which something went wrong.
const SHOWN: [&[&str]; 7] = [
    &["get", "pods,statefulsets,pvc", "-A", "-o", "wide"],
    &["get", "redisclusters,redisbackups,redisoperations", "-A"],
    &[
        "get",
        "redisclusters",
        "-A",
        "-o",
        r#"jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}: {.status}{"\n"}{end}"#,
    ],
    &["get", "apiservice", "v1.redis.kun.io", "-o", "jsonpath={.status}"],
    &["get", "events", "-A", "--sort-by=.lastTimestamp"],
    &["logs", "-n", "kun-system", "-l", "app.kubernetes.io/name=kun-controller", "--all-containers", "--tail=200"],
    &["logs", "-n", "kun-system", "-l", "app.kubernetes.io/name=kun-apiserver", "--tail=100"],
];

/// What all clusters have told, each thing with whether it was allowed.
pub(crate) type Told = BTreeSet<(String, bool)>;

/// What is judged when all scenarios have ended: no single one shows it.
pub(crate) struct Last {
    pub(crate) name: &'static str,
    /// What one cluster tells, before it goes.
    pub(crate) gather: fn(&Installed) -> Result<Told>,
    pub(crate) judge: fn(&Told) -> Result<()>,
}

/// One run of some of them.
struct Run {
    test: &'static str,
    last: &'static Last,
    nodes: Queue,
    beside: Queue,
    alone: Queue,
    tally: Mutex<Tally>,
}

type Queue = Mutex<VecDeque<&'static Scenario>>;

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_here: usize,
    told: Told,
}

/// Runs those that the arguments ask for.
pub(crate) async fn run(test: &'static str, scenarios: &'static [Scenario], last: &'static Last) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list" || argument == "--ignored") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = arguments.into_iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let wanted: Vec<_> = scenarios.iter().filter(|scenario| is_wanted(scenario.name)).collect();
    match Run::all(test, &wanted, last, is_wanted(last.name)).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("FAILED; {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Run {
    /// Whether all of them ended well.
    async fn all(test: &'static str, wanted: &[&'static Scenario], last: &'static Last, judges: bool) -> Result<bool> {
        let is_given = given()?.is_some();
        let script = if is_given { "tools.sh" } else { "prepare.sh" };
        if (wanted.is_empty() && !judges) || built(script, test)?.is_none() {
            return Ok(true);
        }
        announce(
            wanted.iter().filter(|one| !is_given || one.needs == Needs::AnyCluster).count()
                + usize::from(judges && !is_given),
        );
        let of = |company| Mutex::new(wanted.iter().copied().filter(|one| one.company == company).collect());
        let (nodes, beside, alone): (Queue, Queue, Queue) =
            (of(Company::Nodes), of(Company::Beside), of(Company::Alone));
        let run = Arc::new(Self { test, last, nodes, beside, alone, tally: Mutex::default() });
        let clusters = run.clusters(is_given);
        let begun: Vec<_> =
            (1..).zip(clusters).map(|(number, kind)| tokio::spawn(run.clone().cluster(number, kind))).collect();
        for (number, ended) in (1..).zip(future::join_all(begun).await) {
            if let Err(error) = ended.context("it panicked").flatten() {
                locked(&run.tally).failed += 1;
                say(&format!("cluster {number} ... FAILED: {error:#}"));
            }
        }
        if judges {
            run.judge(is_given);
        }
        Ok(run.result())
    }

    /// What each cluster begins with: no more clusters than there is work for.
    fn clusters(&self, is_given: bool) -> Vec<Vec<Company>> {
        let has = |queue: &Queue| !locked(queue).is_empty();
        if is_given {
            return vec![vec![Company::Beside, Company::Nodes]];
        }
        let first = [(Company::Nodes, has(&self.nodes)), (Company::Beside, has(&self.beside))];
        let mut clusters: Vec<_> = first.into_iter().filter(|(_, has)| *has).map(|(kind, _)| vec![kind]).collect();
        let others = locked(&self.alone).len().min(CLUSTERS.saturating_sub(clusters.len()));
        clusters.extend(std::iter::repeat_n(Vec::new(), others));
        if clusters.is_empty() { vec![Vec::new()] } else { clusters }
    }

    /// One cluster: what it begins with, and then those that are for any, one after the other.
    async fn cluster(self: Arc<Self>, number: usize, begins_with: Vec<Company>) -> Result<()> {
        let begin = Instant::now();
        let nodes = if begins_with.contains(&Company::Nodes) { 3 } else { 1 };
        let Some(installed) = Installed::start(nodes, self.test, &[OVERLAP]).await? else { return Ok(()) };
        say(&format!("cluster {number} runs KUN after {:.1} s", begin.elapsed().as_secs_f64()));
        let place = format!("cluster {number}");
        for kind in begins_with {
            match kind {
                Company::Nodes => self.take(&self.nodes, &installed, &place).await,
                Company::Alone => self.take(&self.alone, &installed, &place).await,
                Company::Beside => {
                    let lanes = LANES.min(locked(&self.beside).len());
                    future::try_join_all((1..=lanes).map(|lane| self.lane(&installed, &place, lane))).await?;
                }
            }
        }
        self.take(&self.alone, &installed, &place).await;
        if installed.kubernetes.is_ours() {
            let told = (self.last.gather)(&installed)?;
            locked(&self.tally).told.extend(told);
        }
        installed.leave().await
    }

    /// Scenarios in a namespace of their own, which goes with them.
    async fn lane(&self, installed: &Installed, place: &str, number: usize) -> Result<()> {
        let home = format!("lane-{number}");
        let lane = installed.at(&home).await?;
        self.take(&self.beside, &lane, &format!("{place}, {home}")).await;
        installed.kubectl.run(&["delete", "namespace", &home, "--wait=false"]).await?;
        installed.kubectl.namespace_gone(&home).await
    }

    /// Takes scenarios until there is none left, or too many have failed.
    async fn take(&self, queue: &Queue, installed: &Installed, place: &str) {
        while locked(&self.tally).failed < FAILURES {
            let Some(scenario) = locked(queue).pop_front() else { return };
            if scenario.needs == Needs::OurOwn && !installed.kubernetes.is_ours() {
                locked(&self.tally).not_here += 1;
                say(&format!("test {} ... not for this cluster", scenario.name));
                continue;
            }
            tokio::task::spawn_blocking(hung::wait_for_room).await.ok();
            let begin = Instant::now();
            let limit = hung::machine() * 2 + away(Duration::from_secs(600), Duration::ZERO);
            let run = NAME.scope(scenario.name, async {
                if scenario.company == Company::Alone && installed.kubernetes.is_ours() {
                    nothing_is_on_its_way_out(&installed.kubectl).await?;
                }
                (scenario.run)(installed).await
            });
            let outcome = tokio::time::timeout(limit, run).await;
            let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("it took longer than {limit:?}")));
            let failed = self.told(scenario.name, place, begin, &outcome);
            if failed {
                show(installed, place).await;
            }
        }
    }

    /// Says and counts how one ended; whether it failed.
    fn told(&self, name: &str, place: &str, begin: Instant, outcome: &Result<()>) -> bool {
        match outcome {
            Ok(()) => {
                locked(&self.tally).passed += 1;
                say(&format!("test {name} ... ok ({:.1} s)", begin.elapsed().as_secs_f64()));
            }
            Err(error) => {
                locked(&self.tally).failed += 1;
                say(&format!("test {name} ... FAILED: on {place}: {error:#}"));
            }
        }
        outcome.is_err()
    }

    fn judge(&self, is_given: bool) {
        let name = self.last.name;
        let mut tally = locked(&self.tally);
        if is_given {
            tally.not_here += 1;
            say(&format!("test {name} ... not for this cluster"));
        } else if tally.failed < FAILURES {
            let told = std::mem::take(&mut tally.told);
            drop(tally);
            self.told(name, "all clusters", Instant::now(), &(self.last.judge)(&told));
        }
    }

    fn result(&self) -> bool {
        let Tally { passed, failed, not_here, .. } = &*locked(&self.tally);
        let word = if *failed == 0 { "ok" } else { "FAILED" };
        say(&format!("test result: {word}. {passed} passed; {failed} failed; {not_here} not for this cluster"));
        *failed == 0
    }
}

/// Says how many there are, as Rust's harness does: whoever reads the outcome misses those that nobody ran.
#[expect(clippy::print_stdout, reason = "it is what a harness prints")]
fn announce(number: usize) {
    println!("running {number} tests");
}

/// Kubernetes empties a namespace that goes of what it finds served at that moment, and where that is not all of it, it looks again minutes
/// later. If our API is taken away meanwhile, or its store is copied, the namespace goes without what we have of it: that comes back with our
/// API, never finds its namespace again, and never rests.
async fn nothing_is_on_its_way_out(kubectl: &Kubectl) -> Result<()> {
    let going = r#"-o=jsonpath={.items[?(@.status.phase=="Terminating")].metadata.name}"#;
    let left = kubectl.run(&["get", "namespaces", going]).await?;
    for name in left.split_whitespace() {
        kubectl.namespace_gone(name).await.with_context(|| format!("namespace {name} does not go"))?;
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn show(installed: &Installed, place: &str) {
    for arguments in SHOWN {
        let told = installed.kubectl.outcome(arguments, "").await;
        let text = told.map_or_else(|error| format!("{error:#}"), |told| format!("{}{}", told.stdout, told.stderr));
        say(&format!("{place}: $ kubectl {}\n{text}", arguments.join(" ")));
    }
}
