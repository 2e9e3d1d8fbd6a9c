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
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use types::{agent::AgentPhase, config::Class};

use crate::{
    config::{Inputs, Options},
    disk,
    shared::Shared,
    trial::{self, Verdict},
    upkeep::{self, Taken},
};

/// `spec.config`: names and values.
pub type Parameters = BTreeMap<String, String>;

/// In the run directory: the parameters that were taken last.
const TAKEN_FILE: &str = "parameters.json";
/// Beside it: those of which the engine makes something else, with its words.
const ALTERED_FILE: &str = "parameters-altered.json";
/// How often the files are looked at while nothing can be started.
const EVERY: Duration = Duration::from_millis(1000);
/// After how long parameters of which nothing is known yet are tried again, and how long at most: each time twice as long after the last.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(120)];
/// What says how files are read and when writes count: a server on a data set is not started without it, where the user set it. The rest of
/// what matters to data (`appendonly`, `save`, `maxmemory`, its policy) is made from other fields of the spec.
const OF_THE_DATA: [&str; 3] = ["aof-load-truncated", "databases", "min-replicas-max-lag"];
/// What the controller changes for the time of a step, and puts back itself.
const OF_THE_CONTROLLER: &str = "rdbcompression";

/// What is being tried, and what came of it: what was refused is not tried again before it changes.
#[derive(Debug, Default)]
pub struct Trials(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Option<(Parameters, JoinHandle<Verdict>)>,
    refused: Option<Parameters>,
    undecided: Option<Undecided>,
}

/// What is tried again later.
#[derive(Debug)]
struct Undecided {
    of: Parameters,
    until: Instant,
    pause: Duration,
}

impl Trials {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_try(&self, wanted: &Parameters, now: Instant) -> bool {
        let is_early = |one: &Undecided| one.of == *wanted && now < one.until;
        self.refused.as_ref() != Some(wanted) && !self.undecided.as_ref().is_some_and(is_early)
    }

    fn postpone(&mut self, wanted: &Parameters, now: Instant) {
        let [first, most] = AGAIN;
        let before = self.undecided.as_ref().filter(|one| one.of == *wanted);
        let pause = before.map_or(first, |one| (one.pause * 2).min(most));
        self.undecided = Some(Undecided { of: wanted.clone(), until: now + pause, pause });
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
                known_verdict(read_altered(&shared.options), &wanted)
            } else {
                trial::try_out(&shared.options, &new).await
            };
            let usable = match settle(shared, &wanted, verdict, known.as_ref()) {
                Some(parameters) => Some(parameters),
                None => without_refused(shared, &new).await,
            };
            if let Some(parameters) = usable {
                return adopt(shared, new, parameters);
            }
        }
        tried = Some(wanted);
        sleep(EVERY).await;
    }
}

/// The parameters to use after this verdict; `None`: none are known with which a server starts. Where nothing was taken before, what the
/// engine did not refuse is started: the start will tell.
fn settle(shared: &Shared, wanted: &Parameters, verdict: Verdict, before: Option<&Parameters>) -> Option<Parameters> {
    let (words, is_settled, before) = match (verdict, before) {
        (Verdict::Takes, _) => {
            take(shared, wanted, BTreeMap::new());
            return Some(wanted.clone());
        }
        (Verdict::Undecided(why), None) => {
            tracing::warn!(why, "parameters are used untried");
            return Some(wanted.clone());
        }
        (Verdict::Undecided(why), Some(before)) => {
            shared.trials.state().postpone(wanted, Instant::now());
            (why, false, Some(before))
        }
        (Verdict::Alters(altered), before) => {
            if is_as_before(wanted, &altered, before) || read_taken(&shared.options).is_none() {
                take(shared, wanted, altered);
                return Some(wanted.clone());
            }
            let words = altered.values().next().cloned().unwrap_or_default();
            shared.trials.state().refused = Some(wanted.clone());
            (words, true, before)
        }
        (Verdict::Refuses(words), before) => {
            shared.trials.state().refused = Some(wanted.clone());
            (words, true, before)
        }
    };
    tracing::warn!(words, "new parameters are not used");
    tell(shared, Some((words, is_settled)));
    before.cloned()
}

/// What came of the trial of parameters that are known, as it was written down. Pure.
fn known_verdict(altered: BTreeMap<String, String>, wanted: &Parameters) -> Verdict {
    let altered: BTreeMap<_, _> = altered.into_iter().filter(|(name, _)| wanted.contains_key(name)).collect();
    if altered.is_empty() { Verdict::Takes } else { Verdict::Alters(altered) }
}

/// Whether the engine makes something else only of what was asked for before: it does that already. Pure.
fn is_as_before(wanted: &Parameters, altered: &BTreeMap<String, String>, before: Option<&Parameters>) -> bool {
    before.is_some_and(|before| altered.keys().all(|name| before.get(name) == wanted.get(name)))
}

/// Where the engine refuses the parameters and none of before are known: a data set comes back without them, as far as they say nothing
/// of data. A pod without one has nothing to bring back, and starts nothing.
async fn without_refused(shared: &Arc<Shared>, refused: &Inputs) -> Option<Parameters> {
    let words = shared.report.borrow().refused.clone().unwrap_or_default();
    let hold = |why: &str| {
        shared.enter(AgentPhase::Starting, Some(format!("the engine refuses the configuration: {words}{why}")))
    };
    if !disk::survey(&shared.options.data_dir).is_ok_and(|survey| survey.holds_data()) {
        hold("");
        return None;
    }
    let mut rest = refused.clone();
    rest.config.parameters = of_the_data(&refused.config.parameters);
    let kept = rest.config.parameters.clone();
    if kept.is_empty() {
        return Some(kept);
    }
    match trial::try_out(&shared.options, &rest).await {
        Verdict::Takes | Verdict::Undecided(_) => Some(kept),
        Verdict::Alters(_) | Verdict::Refuses(_) => {
            let names: Vec<&str> = kept.keys().map(String::as_str).collect();
            hold(&format!("; its data set is not loaded without {}", names.join(", ")));
            None
        }
    }
}

/// Those that a data set is not loaded without. Pure.
fn of_the_data(parameters: &Parameters) -> Parameters {
    let is_one = |name: &str| OF_THE_DATA.contains(&name);
    parameters.iter().filter(|(name, _)| is_one(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
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
    let wanted = new.config.parameters.clone();
    if wanted == before {
        {
            let mut state = shared.trials.state();
            (state.refused, state.undecided) = (None, None);
        }
        tell(shared, None);
        return new;
    }
    let verdict = if wanted.is_empty() { Some(Verdict::Takes) } else { verdict(shared, &new) };
    let settled = verdict.and_then(|verdict| settle(shared, &wanted, verdict, Some(&before)));
    new.config.parameters = settled.unwrap_or(before);
    new
}

/// The outcome of a trial that is over; begins one where none runs of these parameters and it is time for it.
fn verdict(shared: &Arc<Shared>, new: &Inputs) -> Option<Verdict> {
    use futures::FutureExt as _;
    let wanted = &new.config.parameters;
    let mut state = shared.trials.state();
    if let Some((_, running)) = state.running.take_if(|one| one.0 == *wanted && one.1.is_finished()) {
        // It is finished, so this is what it gives.
        return running.now_or_never().and_then(Result::ok);
    }
    let is_free = state.running.as_ref().is_none_or(|(_, running)| running.is_finished());
    if is_free && state.may_try(wanted, Instant::now()) {
        let (of, inputs) = (Arc::clone(shared), new.clone());
        let running = tokio::spawn(async move { trial::try_beside_server(&of.options, &inputs).await });
        state.running = Some((wanted.clone(), running));
    }
    None
}

/// The engine's words on parameters that are not in use, and whether they are its answer.
fn tell(shared: &Shared, words: Option<(String, bool)>) {
    let (refused, settled) = words.unzip();
    shared.report.send_if_modified(|report| {
        let changed = report.refused != refused || report.settled != settled;
        (report.refused, report.settled) = (refused, settled);
        changed
    });
}

/// What the engine says of parameters that are in use, and of which it makes something else.
fn tell_altered(shared: &Shared, change: impl FnOnce(&mut BTreeMap<String, String>)) {
    shared.report.send_if_modified(|report| {
        let before = report.altered.clone();
        change(&mut report.altered);
        report.altered != before
    });
}

/// Writes down that the engine starts with these; `altered`: what it says of those of which it makes something else.
fn take(shared: &Shared, parameters: &Parameters, altered: BTreeMap<String, String>) {
    {
        let mut state = shared.trials.state();
        (state.refused, state.undecided) = (None, None);
    }
    tell(shared, None);
    // The parameters last: with them the other file counts.
    for (file, content) in [(ALTERED_FILE, &altered), (TAKEN_FILE, parameters)] {
        let path = shared.options.run_dir.join(file);
        let written = serde_json::to_vec(content).map(|text| certs::write_private(&path, &text));
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!(path = %path.display(), "parameters in use are not written down");
        }
    }
    tell_altered(shared, |told| *told = altered);
}

/// Nothing where nothing legible is written down.
fn read_altered(options: &Options) -> BTreeMap<String, String> {
    let text = fs::read(options.run_dir.join(ALTERED_FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
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
    tell_altered(shared, |told| told.retain(|name, _| trial::unlike(wanted, &shown).any(|(unlike, _)| unlike == name)));
    let altered = shared.report.borrow().altered.clone();
    let mut not_set = BTreeMap::new();
    for (name, _) in trial::unlike(wanted, &shown).filter(|(name, _)| is_live(name) && *name != OF_THE_CONTROLLER) {
        let value = wanted.get(name).map(String::as_str).unwrap_or_default();
        // What it alters at a start it does not take while it runs; once it does, nothing differs.
        let taken = upkeep::set(shared, name, value).await;
        if let Taken::Refused(words) = taken
            && !altered.contains_key(name)
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, &str)]) -> Parameters {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_undecided_is_tried_again_ever_more_seldom_and_a_change_at_once() {
        let (mut now, mut state) = (Instant::now(), State::default());
        let (wanted, other) = (of(&[("hz", "20")]), of(&[("hz", "30")]));
        for seconds in [2, 4, 8, 16, 32, 64, 120, 120] {
            assert!(state.may_try(&wanted, now));
            state.postpone(&wanted, now);
            assert!(state.may_try(&other, now));
            now += Duration::from_secs(seconds);
            assert!(!state.may_try(&wanted, now - Duration::from_millis(1)), "{seconds}");
        }
        state.postpone(&other, now);
        assert!(state.may_try(&other, now + Duration::from_secs(2)));
        state.refused = Some(wanted.clone());
        assert!(!state.may_try(&wanted, now + Duration::from_secs(3600)));
    }

    #[test]
    fn what_the_engine_alters_already_is_no_reason_to_refuse_the_rest() {
        let altered = of(&[("maxclients", "reduced")]);
        let wanted = of(&[("maxclients", "1000000"), ("timeout", "5")]);
        for (before, is) in [
            (Some(of(&[("maxclients", "1000000")])), true),
            (Some(of(&[("maxclients", "100"), ("timeout", "5")])), false),
            (Some(of(&[("timeout", "5")])), false),
            (None, false),
        ] {
            assert_eq!(is_as_before(&wanted, &altered, before.as_ref()), is, "{before:?}");
        }
    }

    #[test]
    fn what_the_engine_altered_is_known_again_by_the_next_agent() {
        let altered = of(&[("maxclients", "reduced")]);
        let known = |wanted: &[(&str, &str)]| known_verdict(altered.clone(), &of(wanted));
        assert_eq!(known(&[("maxclients", "1000000")]), Verdict::Alters(altered.clone()));
        assert_eq!([known(&[("timeout", "5")]), known(&[])], [Verdict::Takes, Verdict::Takes]);
        assert_eq!(known_verdict(BTreeMap::new(), &of(&[("maxclients", "1000000")])), Verdict::Takes);
    }

    #[test]
    fn a_data_set_is_not_loaded_without_what_says_how_it_is_read() {
        let wanted = of(&[("databases", "64"), ("maxclients", "1000000"), ("aof-load-truncated", "no")]);
        assert_eq!(of_the_data(&wanted), of(&[("databases", "64"), ("aof-load-truncated", "no")]));
        assert!(OF_THE_DATA.iter().all(|name| types::config::parameter(name).is_some()));
        // What KUN sets itself cannot come from spec.config.
        for name in ["appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "min-replicas-to-write"] {
            assert!(types::config::parameter(name).is_none(), "{name}");
        }
    }
}
