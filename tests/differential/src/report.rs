//! What the two sides' outcomes come to: readable differences, the same ones gathered by cause, and the numbers.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use crate::{
    difference::{Difference, differences},
    explained::{Explanations, Place},
    replay::Outcome,
};

/// Values longer than this are cut in texts for people.
const SHOWN: usize = 400;
/// Places named per cause.
const PLACES: usize = 4;

/// A difference that no row explains.
#[derive(Debug)]
struct Unexplained {
    place: Place,
    difference: Difference,
    /// An earlier request of the scenario had different answers: this may only come of that.
    follows: bool,
}

/// What was counted and seen so far.
#[derive(Debug)]
pub(crate) struct Report {
    explanations: Explanations,
    without_managed_fields: bool,
    requests: usize,
    explained: usize,
    unexplained: Vec<Unexplained>,
}

impl Report {
    /// Nothing was seen yet.
    pub(crate) fn new(explanations: Explanations, without_managed_fields: bool) -> Self {
        Self { explanations, without_managed_fields, requests: 0, explained: 0, unexplained: Vec::new() }
    }

    /// What is not explained of one scenario's outcomes, as a text; empty if everything is.
    pub(crate) fn told(&self, family: &str, scenario: &str, oracle: &[Outcome], ours: &[Outcome]) -> String {
        let mut text = String::new();
        for (one, other) in oracle.iter().zip(ours) {
            let place = Place { family: family.to_owned(), scenario: scenario.to_owned(), step: one.step.clone() };
            for difference in self.found(one, other) {
                if self.explanations.explains(&place, &difference) {
                    continue;
                }
                let (oracle, ours) = (shown(&difference.oracle), shown(&difference.ours));
                let (step, at) = (&one.step, &difference.pointer);
                let _ =
                    writeln!(text, "{family} / {scenario} / {step}\n  {at}\n    oracle {oracle}\n    ours   {ours}");
            }
        }
        text
    }

    /// Counts one scenario's outcomes.
    pub(crate) fn add(&mut self, family: &str, scenario: &str, oracle: &[Outcome], ours: &[Outcome]) {
        let mut astray = false;
        for (one, other) in oracle.iter().zip(ours) {
            self.requests += 1;
            let place = Place { family: family.to_owned(), scenario: scenario.to_owned(), step: one.step.clone() };
            for difference in self.found(one, other) {
                if self.explanations.explain(&place, &difference) {
                    self.explained += 1;
                } else {
                    self.unexplained.push(Unexplained { place: place.clone(), difference, follows: astray });
                }
            }
            astray |= summary(&one.value) != summary(&other.value);
        }
    }

    /// What differs between the answers to one request.
    fn found(&self, one: &Outcome, other: &Outcome) -> Vec<Difference> {
        let (mut one, mut other) = (one.value.clone(), other.value.clone());
        if self.without_managed_fields {
            strip_managed_fields(&mut one);
            strip_managed_fields(&mut other);
        }
        differences_of_answers(&one, &other)
    }

    /// Explanations that explained nothing.
    pub(crate) fn unused(&self) -> Vec<String> {
        self.explanations.unused().collect()
    }

    /// How many differences nobody explained.
    pub(crate) fn unexplained(&self) -> usize {
        self.unexplained.len()
    }

    /// The last line.
    pub(crate) fn numbers(&self) -> String {
        let Self { requests, explained, .. } = self;
        let part = if self.without_managed_fields { " (managedFields not compared)" } else { "" };
        format!("{requests} requests, {explained} explained differences, {} unexplained{part}", self.unexplained())
    }

    /// The unexplained differences, those of one cause together, most frequent first; then those that may be mere
    /// consequences; last the explained ones.
    pub(crate) fn by_cause(&self) -> String {
        let (follow, lead): (Vec<_>, Vec<_>) = self.unexplained.iter().partition(|one| one.follows);
        let consequences = "\nAfter another answer to an earlier request of the scenario:\n\n";
        let explained = "\nExplained, by row of the table:\n\n";
        gathered(&lead) + consequences + &gathered(&follow) + explained + &self.explanations.by_row()
    }
}

fn gathered(unexplained: &[&Unexplained]) -> String {
    let mut causes: BTreeMap<(String, String, String), Vec<&Place>> = BTreeMap::new();
    for Unexplained { place, difference, .. } in unexplained {
        let key = (general(&difference.pointer), shown(&difference.oracle), shown(&difference.ours));
        causes.entry(key).or_default().push(place);
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let mut text = String::new();
    for ((pointer, oracle, ours), places) in causes {
        let _ = writeln!(text, "{} × {pointer}\n    oracle {oracle}\n    ours   {ours}", places.len());
        for place in places.iter().take(PLACES) {
            let _ = writeln!(text, "    at {} / {} / {}", place.family, place.scenario, place.step);
        }
    }
    text
}

/// Two answers that are not even alike in code and kind differ once, not in every field.
fn differences_of_answers(oracle: &Value, ours: &Value) -> Vec<Difference> {
    let (one, other) = (summary(oracle), summary(ours));
    if one == other {
        return differences(oracle, ours);
    }
    let told = |summary: String, value: &Value| {
        let message = value.pointer("/body/message").and_then(Value::as_str).map(|message| format!(": {message}"));
        let causes = value.pointer("/body/details/causes").map(|causes| format!(" {causes}"));
        Some(Value::String(summary + &message.unwrap_or_default() + &causes.unwrap_or_default()))
    };
    vec![Difference { pointer: "/answer".to_owned(), oracle: told(one, oracle), ours: told(other, ours) }]
}

/// Code and kind of an answer, and the reason of a refusal.
fn summary(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let code = value.get("status").map(ToString::to_string).unwrap_or_default();
    format!("{code} {} {}", text("/body/kind"), text("/body/reason")).trim().to_owned()
}

/// The pointer with every position of a list as `#`.
fn general(pointer: &str) -> String {
    let part = |part: &str| {
        let is_position = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_position { "#".to_owned() } else { part.to_owned() }
    };
    pointer.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn shown(value: &Option<Value>) -> String {
    let text = value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("…".chars()).collect() }
}

fn strip_managed_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.values_mut().for_each(strip_managed_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_managed_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
