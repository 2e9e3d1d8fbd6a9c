//! Which of the user's parameters are in use: those that the engine took when it was asked, else those of before.
//!
//! Everything else of the configuration is made by KUN from checked fields; only `spec.config` is in the engine's own words, so only it is
//! held back. What was taken is written down beside redis.conf, where it outlives the agent and not the pod.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use resp::{Command, reply};
use tokio::{task::JoinHandle, time::sleep};
use types::{agent::AgentPhase, config::Class};

use crate::{
    config::{Inputs, Options},
    shared::Shared,
    trial::{self, Verdict},
    upkeep::{self, Taken},
};

/// `spec.config`: names and values.
pub type Parameters = BTreeMap<String, String>;

/// In the run directory: the parameters that were taken last.
const TAKEN_FILE: &str = "parameters.json";
/// How often the files are looked at while nothing can be started.
const EVERY: Duration = Duration::from_millis(1000);
/// What the controller changes for the time of a step, and puts back itself.
const OF_THE_CONTROLLER: &str = "rdbcompression";

/// What is being tried, and what was refused: it is not tried again before it changes.
#[derive(Debug, Default)]
pub struct Trials(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Option<(Parameters, JoinHandle<Verdict>)>,
    refused: Option<Parameters>,
}

impl Trials {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until there are parameters with which the server may be started, and makes them the shared inputs'.
pub async fn await_usable(shared: &Arc<Shared>) {
    let known = read_taken(&shared.options);
    let mut tried = None;
    loop {
        let new = Inputs::read(&shared.options).unwrap_or_else(|_| (*shared.inputs()).clone());
        let wanted = new.config.parameters.clone();
        if tried.as_ref() != Some(&wanted) {
            let verdict = if wanted.is_empty() || known.as_ref() == Some(&wanted) {
                Verdict::Takes
            } else {
                trial::try_out(&shared.options, &new).await
            };
            if let Some(parameters) = settle(shared, &wanted, verdict, known.as_ref()) {
                return adopt(shared, new, parameters);
            }
        }
        tried = Some(wanted);
        sleep(EVERY).await;
    }
}

/// Where nothing was taken before, what the engine did not refuse is started: the start will tell.
fn settle(shared: &Shared, wanted: &Parameters, verdict: Verdict, known: Option<&Parameters>) -> Option<Parameters> {
    match (verdict, known) {
        (Verdict::Takes, _) => {
            take(shared, wanted);
            Some(wanted.clone())
        }
        (Verdict::Undecided(why), Some(known)) => {
            tell(shared, Some(why));
            Some(known.clone())
        }
        (Verdict::Undecided(why), None) => {
            tracing::warn!(why, "parameters are used untried");
            Some(wanted.clone())
        }
        (Verdict::Refuses(words), known) => {
            shared.trials.state().refused = Some(wanted.clone());
            if known.is_none() {
                shared.enter(AgentPhase::Starting, Some(format!("the engine refuses the configuration: {words}")));
            }
            tell(shared, Some(words));
            known.cloned()
        }
    }
}

fn adopt(shared: &Shared, mut inputs: Inputs, parameters: Parameters) {
    inputs.config.parameters = parameters;
    shared.inputs.send_replace(Arc::new(inputs));
    shared.enter(AgentPhase::Starting, None);
}

/// The new inputs as they may be used now: with the parameters of before until the engine has taken the new ones. Never waits: the member's
/// right to be promoted is looked after meanwhile.
pub fn usable(shared: &Arc<Shared>, mut new: Inputs) -> Inputs {
    let before = shared.inputs().config.parameters.clone();
    let wanted = &new.config.parameters;
    if *wanted == before {
        shared.trials.state().refused = None;
        tell(shared, None);
        return new;
    }
    if !is_taken(shared, &new) {
        new.config.parameters = before;
    }
    new
}

/// Whether the engine has taken these inputs' parameters; begins to ask it.
fn is_taken(shared: &Arc<Shared>, new: &Inputs) -> bool {
    let wanted = &new.config.parameters;
    let verdict = if wanted.is_empty() { Some(Verdict::Takes) } else { verdict(shared, new) };
    match verdict {
        Some(Verdict::Takes) => {
            take(shared, wanted);
            return true;
        }
        Some(Verdict::Refuses(words)) => {
            tracing::warn!(words, "the engine refuses new parameters; those of before stay");
            shared.trials.state().refused = Some(wanted.clone());
            tell(shared, Some(words));
        }
        Some(Verdict::Undecided(why)) => tell(shared, Some(why)),
        None => {}
    }
    false
}

/// The outcome of a trial that is over; begins one where none runs of these parameters and they were not refused.
fn verdict(shared: &Arc<Shared>, new: &Inputs) -> Option<Verdict> {
    use futures::FutureExt as _;
    let wanted = &new.config.parameters;
    let mut state = shared.trials.state();
    if state.refused.as_ref() == Some(wanted) {
        return None;
    }
    if let Some((_, running)) = state.running.take_if(|one| one.0 == *wanted && one.1.is_finished()) {
        // It is finished, so this is what it gives.
        return running.now_or_never().and_then(Result::ok);
    }
    if state.running.as_ref().is_none_or(|(_, running)| running.is_finished()) {
        let (of, inputs) = (Arc::clone(shared), new.clone());
        let running = tokio::spawn(async move { trial::try_out(&of.options, &inputs).await });
        state.running = Some((wanted.clone(), running));
    }
    None
}

fn tell(shared: &Shared, refused: Option<String>) {
    shared.report.send_if_modified(|report| {
        let changed = report.refused != refused;
        report.refused = refused;
        changed
    });
}

fn take(shared: &Shared, parameters: &Parameters) {
    shared.trials.state().refused = None;
    tell(shared, None);
    let path = shared.options.run_dir.join(TAKEN_FILE);
    let written = serde_json::to_vec(parameters).map(|text| certs::write_private(&path, &text));
    if !matches!(written, Ok(Ok(()))) {
        tracing::warn!(path = %path.display(), "parameters in use are not written down");
    }
}

fn read_taken(options: &Options) -> Option<Parameters> {
    serde_json::from_slice(&fs::read(options.run_dir.join(TAKEN_FILE)).ok()?).ok()
}

/// A parameter counts as applied when the server shows it; what it does not show is set again, and its words are reported.
pub async fn keep(shared: &Arc<Shared>) {
    let inputs = shared.inputs();
    let wanted = &inputs.config.parameters;
    if wanted.is_empty() {
        return report_not_set(shared, BTreeMap::new());
    }
    let asked = shared.local.ask(&[Command::new("CONFIG").arg("GET").args(wanted.keys())]).await;
    let Some(shown) = asked.ok().and_then(|replies| reply::config_get(replies.first()?).ok()) else { return };
    let mut not_set = BTreeMap::new();
    for (name, _) in trial::unlike(wanted, &shown).filter(|(name, _)| is_live(name) && *name != OF_THE_CONTROLLER) {
        let value = wanted.get(name).map(String::as_str).unwrap_or_default();
        if let Taken::Refused(words) = upkeep::set(shared, name, value).await {
            not_set.insert(name.to_owned(), words);
        }
    }
    report_not_set(shared, not_set);
}

fn report_not_set(shared: &Shared, not_set: BTreeMap<String, String>) {
    shared.report.send_if_modified(|report| {
        let changed = report.not_set != not_set;
        if changed {
            tracing::info!(?not_set, "parameters that the server does not take");
        }
        report.not_set = not_set;
        changed
    });
}

/// What only a start can change waits for the rolling restart that the controller does.
fn is_live(name: &str) -> bool {
    types::config::parameter(name).is_some_and(|one| match one.class {
        Class::Live => true,
        Class::Restart => false,
    })
}
