//! `make differential`: every request of the corpus to a real kube-apiserver, which serves our kinds as
//! CustomResourceDefinitions, and to `kun standalone`; then the answers are compared.
#![allow(clippy::print_stdout, reason = "the differences are what the program is for")]
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod client;
mod corpus;
mod difference;
mod explained;
mod guard;
mod kubernetes;
mod normal;
mod random;
mod replay;
mod report;
mod settle;
mod variables;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use apiserver::registry;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use certs::Issued;
use clap::Parser;
use serde_json::{Value, json};
use tests::standalone::Standalone;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    client::Access,
    corpus::{Family, Objects, Scenario},
    explained::Explanations,
    kubernetes::Kubernetes,
    replay::{Outcome, replay},
    report::Report,
};

/// Scenarios at a time: most of the time of one is spent waiting for events that must not come.
const AT_A_TIME: usize = 6;

/// How often a scenario is replayed at most whose answers differ without an explanation. Some of it depends on how fast the machine is just
/// then (what is to happen during a watch of one second happens after it where the machine stands still), and differs once; what our
/// server does otherwise than the oracle differs each time.
const ATTEMPTS: usize = 3;
/// So many scenarios may differ once in a run: more of them are no chance.
const REPLAYED_MOST: usize = 8;

#[derive(Parser)]
struct Arguments {
    /// Folder with etcd and kube-apiserver, as tests/cluster/build.sh prints it.
    #[arg(long)]
    tools: PathBuf,
    /// Families to replay; all if none is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave managedFields out of the comparison.
    #[arg(long)]
    without_managed_fields: bool,
    /// Also write the unexplained differences to this file, those of one cause together.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Seed of the random requests; absent: another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Random scenarios of each sort.
    #[arg(long, default_value_t = 12)]
    random: usize,
    /// Also write every answer of both sides, normalised, to this file, one JSON line each.
    #[arg(long)]
    answers: Option<PathBuf>,
    /// Instead: what both keep encrypted at rest, and what both record in their audit logs.
    #[arg(long)]
    guard: bool,
    /// Print the code of every answer of the oracle.
    #[arg(long)]
    verbose: bool,
}

/// One scenario of one family, with both sides' outcomes.
struct Replayed {
    family: String,
    scenario: Scenario,
    oracle: Vec<Outcome>,
    ours: Vec<Outcome>,
}

/// Both servers, and the objects that are sent to them.
#[derive(Clone)]
struct Sides {
    objects: Arc<Objects>,
    oracle: Access,
    ours: Access,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = tokio::select! {
        result = run(&arguments) => result,
        error = interrupted() => Err(error),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ends when somebody wants the run to end: what runs beside it must not outlive it.
async fn interrupted() -> anyhow::Error {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => return error.into(),
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    anyhow::anyhow!("interrupted")
}

async fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.guard {
        return guard::run(&arguments.tools).await;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut families, objects) = corpus::read(&folder.join("corpus"))?;
    let seed = arguments.seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    families.extend(random::families(seed, arguments.random, &registry::redis::registry()?));
    let explanations = Explanations::read(&folder.join("explained.json"))?;
    if !arguments.only.is_empty() {
        families.retain(|family| arguments.only.contains(&family.name));
    }
    let mut kun = Standalone::prepare(&["--roles", "apiserver"], &[])?;
    let (kubernetes, started) = tokio::join!(oracle(&arguments.tools), forgetful(&mut kun));
    let kubernetes = kubernetes?;
    started?;
    let ours = administrator(&kun)?;

    let mut report = Report::new(explanations, arguments.without_managed_fields);
    let sides = Sides { objects: Arc::new(objects), oracle: kubernetes.access().clone(), ours };
    let mut replayed = replay_all(families, &sides).await?;
    let mut differed = 0;
    for (number, replayed) in replayed.iter_mut().enumerate() {
        differed += usize::from(again(number, replayed, &report, &sides).await?);
    }
    ensure!(differed <= REPLAYED_MOST, "{differed} scenarios differed at first, which is no chance");
    if let Some(path) = &arguments.answers {
        std::fs::write(path, replayed.iter().map(answers).collect::<String>())?;
    }
    for Replayed { family, scenario, oracle, ours } in &replayed {
        let scenario = &scenario.name;
        if arguments.verbose {
            for outcome in oracle {
                println!("{family} / {scenario} / {} -> {}", outcome.step, outcome.value["status"]);
            }
        }
        print!("{}", report.told(family, scenario, oracle, ours));
        report.add(family, scenario, oracle, ours);
    }
    if let Some(path) = &arguments.report {
        std::fs::write(path, format!("{}\n\n{}", report.numbers(), report.by_cause()))?;
    }
    // A part of the corpus does not need the whole table.
    let unused = if arguments.only.is_empty() { report.unused() } else { Vec::new() };
    for row in &unused {
        println!("explained.json: nothing differs there any more: {row}");
    }
    println!("{}", report.numbers());
    Ok(report.unexplained() == 0 && unused.is_empty())
}

/// Both sides' answers of one scenario, as lines.
fn answers(replayed: &Replayed) -> String {
    let Replayed { family, scenario, oracle, ours } = replayed;
    let line = |(one, other): (&Outcome, &Outcome)| {
        json!({"family": family, "scenario": scenario.name, "step": one.step, "oracle": one.value, "ours": other.value})
            .to_string()
            + "\n"
    };
    oracle.iter().zip(ours).map(line).collect()
}

/// A kube-apiserver that serves our kinds.
async fn oracle(tools: &Path) -> Result<Kubernetes> {
    let kubernetes = Kubernetes::start(tools).await?;
    for definition in differential::definition::definitions(&registry::redis::registry()?)? {
        kubernetes.define(&definition).await?;
    }
    kubernetes.compact().await?;
    Ok(kubernetes)
}

/// Starts our server, and starts it again: what was written before the second start is history that it has forgotten, as
/// the oracle has forgotten its own.
async fn forgetful(kun: &mut Standalone) -> Result<()> {
    kun.resume().await?;
    kun.stop().await?;
    kun.resume().await
}

/// Replays everything against both, a few scenarios at a time, and returns it in the order of the corpus.
async fn replay_all(families: Vec<Family>, sides: &Sides) -> Result<Vec<Replayed>> {
    let permits = Arc::new(Semaphore::new(AT_A_TIME));
    let mut tasks = JoinSet::new();
    let mut number = 0;
    for family in families {
        for scenario in family.scenarios {
            number += 1;
            let (permits, family, sides) = (Arc::clone(&permits), family.name.clone(), sides.clone());
            tasks.spawn(async move {
                let _permit = permits.acquire().await?;
                let name = format!("{family}-{number}");
                anyhow::Ok((number, both(family, scenario, &name, &sides).await?))
            });
        }
    }
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        done.push(task??);
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, replayed)| replayed).collect())
}

/// Asks both; a side that fails in the middle is asked again, in another namespace.
async fn both(family: String, scenario: Scenario, name: &str, sides: &Sides) -> Result<Replayed> {
    for attempt in 2..=ATTEMPTS {
        let place = if attempt == 2 { name.to_owned() } else { format!("{name}-retry-{attempt}") };
        match once(family.clone(), scenario.clone(), &place, sides).await {
            Ok(replayed) => return Ok(replayed),
            Err(error) => println!("tally: replayed, because it failed: {error:#}"),
        }
    }
    once(family, scenario, &format!("{name}-last"), sides).await
}

async fn once(family: String, scenario: Scenario, name: &str, sides: &Sides) -> Result<Replayed> {
    let Sides { objects, oracle, ours } = sides;
    let (oracle, ours) = tokio::join!(replay(oracle, objects, &scenario, name), replay(ours, objects, &scenario, name));
    let place = |side: &str| format!("{side}: {family} / {}", scenario.name);
    let (oracle, ours) = (oracle.with_context(|| place("oracle"))?, ours.with_context(|| place("ours"))?);
    ensure!(oracle.len() == ours.len(), "{}: the sides made different requests", scenario.name);
    Ok(Replayed { family, scenario, oracle, ours })
}

/// Replays a scenario that differs again, in another namespace, until it differs no more or has differed each time; whether it was needed.
async fn again(number: usize, replayed: &mut Replayed, report: &Report, sides: &Sides) -> Result<bool> {
    for attempt in 2..=ATTEMPTS {
        let Replayed { family, scenario, oracle, ours } = &*replayed;
        let told = report.told(family, &scenario.name, oracle, ours);
        if told.is_empty() {
            return Ok(attempt > 2);
        }
        println!("tally: replayed, because its answers differ: {family} / {}\n{told}", scenario.name);
        let name = format!("{family}-{number}-again-{attempt}");
        *replayed = both(family.clone(), scenario.clone(), &name, sides).await?;
    }
    Ok(true)
}

/// The administrator's way into our server, from the kubeconfig.
fn administrator(kun: &Standalone) -> Result<Access> {
    let text = std::fs::read_to_string(kun.data().join("kubeconfig"))?;
    let config: Value = serde_json::from_str(&text)?;
    let field = |pointer: &str| -> Result<String> {
        let encoded = config.pointer(pointer).and_then(Value::as_str);
        let bytes = BASE64_STANDARD.decode(encoded.with_context(|| format!("{pointer} in the kubeconfig"))?)?;
        Ok(String::from_utf8(bytes)?)
    };
    let address: SocketAddr = kun.listen();
    let identity = Issued {
        certificate_pem: field("/users/0/user/client-certificate-data")?,
        key_pem: field("/users/0/user/client-key-data")?,
    };
    Access::new(address, &field("/clusters/0/cluster/certificate-authority-data")?, &identity)
}
