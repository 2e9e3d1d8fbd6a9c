//! Runs scenarios one after the other on one cluster and tells how each ended. It must not know what they are.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future::BoxFuture;
use tests::{installed::Installed, oracle::Shape, writer::Writer};

/// What `orders` is between scenarios.
pub(crate) const ORDERS: Shape = Shape { shards: 3, replicas: 1 };
/// Longest time one scenario may take beside the times it waits on purpose; a change has two minutes.
const LIMIT: Duration = Duration::from_secs(900);
/// Chart values for a rotation that a test can wait for: longer than a kubelet takes to bring a Secret into a pod.
pub(crate) const OVERLAP: &str = "certificates.overlap=60s";

/// What is shown of a cluster in which something went wrong.
const SHOWN: [&[&str]; 6] = [
    &["get", "pods,statefulsets,pvc", "-A", "-o", "wide"],
    &["get", "redisclusters,redisbackups,redisoperations", "-A"],
    &["get", "redisclusters", "orders", "-o", "jsonpath={.status}"],
    &["get", "events", "-n", "default", "--sort-by=.lastTimestamp"],
    &["logs", "-n", "kun-system", "-l", "app.kubernetes.io/name=kun-controller", "--all-containers", "--tail=60"],
    &["logs", "-n", "kun-system", "-l", "app.kubernetes.io/name=kun-apiserver", "--tail=40"],
];

/// What a scenario does to a cluster beside what users do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it runs wherever KUN can be installed.
    AnyCluster,
    /// It breaks or drains nodes, breaks the control plane, reads and changes files and processes of the machines, or needs images
    /// that others' nodes do not have.
    OurOwn,
}

/// One of them.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: for<'a> fn(&'a Installed) -> BoxFuture<'a, Result<()>>,
}

/// A scenario, called as its function is.
macro_rules! scenario {
    ($needs:ident, $module:ident :: $name:ident) => {
        $crate::scenario::Scenario {
            name: stringify!($name),
            needs: $crate::scenario::Needs::$needs,
            run: |installed| ::std::boxed::Box::pin($crate::$module::$name(installed)),
        }
    };
}
pub(crate) use scenario;

/// Names the program that `tests/run.sh` has already started beside all other tests.
const BESIDE: &str = "KUN_BESIDE";

/// Runs those that the arguments ask for.
pub(crate) async fn run(test: &str, scenarios: &[Scenario]) -> ExitCode {
    if std::env::var_os(BESIDE).is_some_and(|name| name == test) {
        say("runs beside the other tests");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list" || argument == "--ignored") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |scenario: &&Scenario| words.is_empty() || words.iter().any(|word| scenario.name.contains(*word));
    match all(test, scenarios.iter().filter(wanted)).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("FAILED; {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// After how many that fail the others are not tried: each shows a lot, and what one leaves behind may fail the next.
const FAILURES: usize = 3;

/// Whether all of them ended well.
async fn all(test: &str, wanted: impl Iterator<Item = &Scenario>) -> Result<bool> {
    let Some(installed) = Installed::start(3, test).await? else { return Ok(true) };
    installed.install(&[OVERLAP]).await?;
    installed.create("default", "orders", ORDERS, &serde_json::json!({})).await?;
    installed.reaches_pods().await?;
    let (mut passed, mut failed, mut not_here) = (0, 0, 0);
    for scenario in wanted {
        if scenario.needs == Needs::OurOwn && !installed.kubernetes.is_ours() {
            not_here += 1;
            say(&format!("test {} ... not for this cluster", scenario.name));
            continue;
        }
        let begin = Instant::now();
        let outcome =
            tokio::time::timeout(LIMIT + away(Duration::from_secs(600), Duration::ZERO), (scenario.run)(&installed))
                .await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("it took longer than {LIMIT:?}")));
        match outcome {
            Ok(()) => {
                passed += 1;
                say(&format!("test {} ... ok ({:.1} s)", scenario.name, begin.elapsed().as_secs_f64()));
            }
            Err(error) => {
                failed += 1;
                say(&format!("test {} ... FAILED: {error:#}", scenario.name));
                show(&installed).await;
                if failed == FAILURES {
                    break;
                }
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    say(&format!("test result: {word}. {passed} passed; {failed} failed; {not_here} not for this cluster"));
    installed.leave().await?;
    Ok(failed == 0)
}

async fn show(installed: &Installed) {
    for arguments in SHOWN {
        let told = installed.kubectl.outcome(arguments, "").await;
        let text = told.map_or_else(|error| format!("{error:#}"), |told| format!("{}{}", told.stdout, told.stderr));
        say(&format!("$ kubectl {}\n{text}", arguments.join(" ")));
    }
}

/// Prints a figure of a run.
#[expect(clippy::print_stdout, reason = "figures and outcomes of a run are to be seen")]
pub(crate) fn say(text: &str) {
    println!("installed: {text}");
}

/// How long something is away: in full in `make soak`, for a slice of it otherwise.
pub(crate) fn away(full: Duration, slice: Duration) -> Duration {
    if std::env::var_os("KUN_SOAK").is_some() { full } else { slice }
}

/// Waits on purpose: the time is what the scenario is about.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Does something under a writer on `orders`: nothing acknowledged is lost by it, and the invariants hold afterwards.
pub(crate) async fn under_writes<T>(
    installed: &Installed,
    change: impl AsyncFnOnce(&Writer) -> Result<T>,
) -> Result<T> {
    let writer = installed.write().await?;
    let told = change(&writer).await?;
    let verdict = installed.verify(writer, ORDERS).await?;
    say(&format!("{} acknowledged writes, none lost; worst gap {:?}", verdict.acked, verdict.worst_gap));
    Ok(told)
}

/// The same where a primary is killed: `change` says when. What Redis' own replication had not passed on then is let pass.
pub(crate) async fn under_writes_and_a_blow(
    installed: &Installed,
    change: impl AsyncFnOnce(&Writer) -> Result<Instant>,
) -> Result<()> {
    let writer = installed.write().await?;
    let blow = change(&writer).await?;
    let verdict = installed.verify_but(writer, ORDERS, Some(blow)).await?;
    say(&format!(
        "{} acknowledged writes, none lost but by the blow itself; worst gap {:?}",
        verdict.acked, verdict.worst_gap
    ));
    Ok(())
}

/// Two looks at the same objects, as texts, must be the same: nobody touched them.
pub(crate) fn unchanged(before: &str, after: &str) -> Result<()> {
    anyhow::ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    Ok(())
}
