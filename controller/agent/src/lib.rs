//! The agent: PID 1 of every Redis pod. It prepares files, decides whether and how redis-server may start, answers probes,
//! streams backups, hands the primary role over before it stops.
//!
//! It knows one member and asks its peers; it must not know Kubernetes and never plans topology. What is decided is pure
//! ([`start`], [`identity`], [`render`], [`ready`], [`rdb`]); the rest is the shell around it. What is called Redis here is
//! Valkey where that is the engine; what differs is in [`engine`] and asked there.
//!
//! **When redis-server dies, so does the agent**, with a code that is not zero: whoever runs the container starts it again,
//! and the start guard judges the new situation. **When the agent is killed** redis-server may go on alone (see
//! [`process`]); the next agent hands over from it and takes it down before anything else.

pub mod admission;
pub mod alive;
pub mod backup;
pub mod calls;
pub mod config;
pub mod digest;
pub mod disk;
pub mod engine;
pub mod erase;
pub mod fellows;
pub mod folder;
pub mod follow;
pub mod guard;
pub mod handover;
pub mod identity;
pub mod lag;
pub mod last_save;
pub mod local;
pub mod marker;
pub mod metrics;
pub mod origin;
pub mod parameters;
pub mod peers;
pub mod persistence;
pub mod process;
pub mod promotion;
pub mod ran;
pub mod rdb;
pub mod ready;
pub mod render;
pub mod replication;
pub mod serve;
pub mod shared;
pub mod shutdown;
pub mod snapshot;
pub mod start;
pub mod trial;
pub mod upkeep;
pub mod users;
pub mod volume;
pub mod wait;
mod withdrawal;

use std::{sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, sleep},
};
use types::agent::AgentPhase;

use crate::{
    config::{Inputs, Options},
    handover::{Outcome, Silence},
    process::{Exit, Record, Running},
    shared::Shared,
    shutdown::{AFTER_TERM, AGAIN, LastWords, Shutdown},
};

/// Part of the grace period that stays for SIGTERM and SIGKILL.
const RESERVE: Duration = Duration::from_secs(7);
/// How long a member whose data are elsewhere tries to shut down in order.
const SPARE: Duration = Duration::from_secs(25);
/// Time that others are given when they are asked again whether they take over from a server that cannot save.
const ASKED_AGAIN: Duration = Duration::from_secs(60);
/// How long changed inputs may take to be applied before stopping.
const CHANGES: Duration = Duration::from_secs(3);
/// How long a Redis that has not answered since is asked for a hand-over: a machine may stand still for some seconds, and a script has run for
/// five when Redis says so (`busy-reply-threshold`).
const BUSY: Duration = Duration::from_secs(20);
/// Exit code when redis-server ended by itself.
const REDIS_ENDED: u8 = 2;
/// Exit code when the agent could not do its work.
const FAILED: u8 = 1;

/// Why the agent gives up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An input is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A directory cannot be used.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// redis-server cannot be run.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The HTTPS door cannot be opened.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// No other agent could be believed.
    #[error("load the authority of the agents: {0}")]
    Fellows(#[from] certs::Error),
    /// The configuration cannot be written.
    #[error(transparent)]
    Upkeep(#[from] upkeep::Error),
    /// Signals cannot be listened to.
    #[error("listen to signals: {0}")]
    Signals(std::io::Error),
}

/// `kun agent [backup … | erase … | folder …]`: runs the agent, or a worker of a backup. Returns the exit code.
pub async fn main(args: &[String], env: &dyn Fn(&str) -> Option<String>) -> u8 {
    match args.split_first() {
        None => match Options::from_env(env) {
            Ok(options) => run(options).await,
            Err(error) => {
                tracing::error!(%error, "the agent cannot start");
                FAILED
            }
        },
        Some((word, rest)) if word == "backup" => match backup::Job::from_args(rest, env) {
            Ok(job) if backup::run(&job).await => 0,
            Ok(_) => FAILED,
            Err(error) => {
                tracing::error!(%error, "the worker cannot start");
                FAILED
            }
        },
        Some((word, rest)) if word == "erase" => match erase::Job::from_args(rest, env) {
            Ok(job) if erase::run(&job) => 0,
            Ok(_) => FAILED,
            Err(error) => {
                tracing::error!(%error, "the worker cannot start");
                FAILED
            }
        },
        Some((word, rest)) if word == "folder" => match erase::Job::from_args(rest, env) {
            Ok(job) if folder::run(&job) => 0,
            Ok(_) => FAILED,
            Err(error) => {
                tracing::error!(%error, "the worker cannot start");
                FAILED
            }
        },
        Some((word, _)) => {
            tracing::error!(
                word,
                "unknown: `kun agent` takes nothing, or `backup`, `erase` or `folder` and their arguments"
            );
            FAILED
        }
    }
}

/// Runs the agent until redis-server ends or a signal asks it to stop. Returns the exit code.
pub async fn run(options: Options) -> u8 {
    match supervise(options).await {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the agent gives up");
            FAILED
        }
    }
}

async fn supervise(options: Options) -> Result<u8, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let inputs = Inputs::read(&options)?;
    let certificates = serve::certificates(&options)?;
    let shared = Shared::new(options, inputs, &certificates)?;
    serve::serve(Arc::clone(&shared), certificates).await?;
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tokio::pin!(stop);

    // To the end of this process.
    let _volume = tokio::select! {
        claimed = volume::claimed(&shared) => claimed?,
        () = &mut stop => return Ok(0),
    };
    let running = tokio::select! {
        running = start(&shared) => running?,
        // Nothing runs yet, or a predecessor that was being taken down: there is nothing to hand over.
        () = &mut stop => return Ok(0),
    };
    let mut exit = running.exit.clone();
    tokio::select! {
        _ = exit.wait_for(Option::is_some) => {
            ran::note_end(&shared);
            let how = *running.exit.borrow();
            tracing::error!(?how, "redis-server ended by itself");
            Ok(REDIS_ENDED)
        }
        () = upkeep::run(Arc::clone(&shared)) => Ok(FAILED),
        () = &mut stop => Ok(stop_running(&shared, &running).await),
    }
}

/// Takes a predecessor down, looks at the image, waits for the guard's word and starts redis-server.
async fn start(shared: &Arc<Shared>) -> Result<Running, Error> {
    let options = &shared.options;
    let left = process::left_running(&options.run_dir)?;
    if let Some(left) = &left {
        tracing::warn!("an earlier agent left redis-server running; it is taken down first");
        take_down(shared, left, None, Instant::now()).await;
        shared.enter(AgentPhase::Starting, None);
    }
    if !left.is_some_and(|left| left.is_alive()) {
        ran::tell_ended(shared);
    }
    engine::await_image(shared).await;
    parameters::await_usable(shared).await;
    let admission = guard::admit(shared).await?;
    if admission.lets_replicas_in {
        shared.let_replicas_in();
    }
    let conf = upkeep::write_files(shared, &shared.inputs(), Some(&admission.survey))?;
    ran::may_run(shared, identity::judge(admission.survey.nodes.as_deref()).node_id());
    let running = process::spawn(&options.redis_server, &conf, &options.run_dir)?;
    shared.report.send_modify(|report| report.starts = report.starts.saturating_add(1));
    shared.enter(AgentPhase::Running, None);
    Ok(running)
}

async fn stop_running(shared: &Arc<Shared>, running: &Running) -> u8 {
    // The grace period runs from here, whatever comes first.
    let began = Instant::now();
    shared.enter(AgentPhase::Stopping, None);
    // A change of passwords that was cut off would keep this agent out of its own Redis.
    if tokio::time::timeout(CHANGES, upkeep::apply_changes(shared)).await.is_err() {
        tracing::warn!("changed inputs could not be applied before stopping");
    }
    take_down(shared, &running.record, Some(running.exit.clone()), began).await;
    let mut exit = running.exit.clone();
    let ended = tokio::time::timeout(AFTER_TERM, exit.wait_for(Option::is_some)).await.is_ok();
    if !running.record.is_alive() {
        ran::note_end(shared);
    }
    match *running.exit.borrow() {
        Some(Exit::Code(0)) => 0,
        Some(Exit::Code(_) | Exit::Signal(_)) => REDIS_ENDED,
        None if ended => 0,
        None => REDIS_ENDED,
    }
}

/// Hands over, shuts down, and leaves one data set that the next start loads. `exit`: how it ends, if it is a child of this agent.
async fn take_down(
    shared: &Arc<Shared>,
    process: &Record,
    exit: Option<watch::Receiver<Option<Exit>>>,
    began: Instant,
) {
    handover::make_room(&shared.local).await;
    let was_replica = !handover::may_be_primary(&shared.local).await;
    let grace = Duration::from_secs(shared.options.grace_seconds);
    let mut last = last_words(shared, process, began, grace).await;
    // A primary that stops at the same moment may have given it its role meanwhile, or its heir is gone and it was elected again.
    if (was_replica || last.outcome.is_elsewhere()) && handover::may_be_primary(&shared.local).await {
        last = last_words(shared, process, began, grace).await;
    }
    let mut shutdown = Shutdown::default();
    let is_saved = loop {
        match shutdown.end(shared, (process, exit.clone()), &last).await {
            Some(is_saved) => break is_saved,
            // Only the kubelet knows how much time there is. Who is asked is given little: meanwhile nobody looks for room.
            None => last = last_words(shared, process, Instant::now(), ASKED_AGAIN).await,
        }
    };
    if !process.is_alive()
        && let Err(error) = last_save::settle(&shared.options.data_dir, shared.local.logs_writes(), is_saved)
    {
        tracing::warn!(%error, "the next start looks at what Redis has saved");
    }
}

/// Hands over, for which others are given so much time, and finds out until when the rest may take.
async fn last_words(shared: &Arc<Shared>, process: &Record, began: Instant, given: Duration) -> LastWords {
    let grace = Duration::from_secs(shared.options.grace_seconds);
    let until = began + grace.saturating_sub(RESERVE);
    let saving =
        if handover::keeps_all(&shared.local).await { None } else { Some(handover::saving_time(&shared.local).await) };
    let limits = handover::Limits::new(began, until.min(began + given), saving, shared.volume_stays);
    let outcome = hand_over(shared, process, limits).await;
    match &outcome {
        Outcome::NotNeeded => {}
        Outcome::Done { to } => tracing::info!(%to, millis = began.elapsed().as_millis(), "handed over"),
        Outcome::Failed { why } => tracing::warn!(why, "stopping without a hand-over"),
    }
    // What is nowhere else is worth every second there is.
    let tries = if outcome.is_elsewhere() { until.min(Instant::now() + SPARE) } else { until };
    // While a child writes something else, be it for as long as a replica or a backup takes to read it, there is still time to save.
    let starts = tries.checked_sub(saving.unwrap_or_default()).unwrap_or(began);
    handover::await_own_disk(&shared.local, starts).await;
    LastWords { outcome, until, tries }
}

/// A Redis that is busy for a moment is asked again, but not when nobody would be ordered any more.
async fn hand_over(shared: &Arc<Shared>, process: &Record, limits: handover::Limits) -> Outcome {
    let (mut answered, mut attempts, mut told) = (Instant::now(), handover::Attempts::default(), false);
    loop {
        let asked = Instant::now();
        let error = match handover::hand_over(&shared.local, &shared.asker(), limits, &mut attempts).await {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        // What lasted longer than one may be silent has heard it meanwhile.
        if asked.elapsed() > BUSY || handover::silence(&shared.local).await == Silence::None {
            answered = Instant::now();
        }
        if Instant::now() >= limits.orders() || answered.elapsed() >= BUSY || !process.is_alive() {
            return Outcome::Failed { why: error.to_string() };
        }
        if !told {
            tracing::info!(%error, "redis-server does not answer for a hand-over; it is asked again");
            told = true;
        }
        handover::make_room(&shared.local).await;
        sleep(AGAIN).await;
    }
}
