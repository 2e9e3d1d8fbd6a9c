//! The table of legitimate differences, each with its reason. What no difference needs any more must go.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::difference::Difference;

/// Values in the list of what was explained are cut to this many characters.
const TOLD: usize = 200;

/// One legitimate difference. Texts may hold `*` for anything; an absent text is `*`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Explanation {
    #[serde(default = "anything")]
    family: String,
    #[serde(default = "anything")]
    scenario: String,
    #[serde(default = "anything")]
    step: String,
    pointer: String,
    /// The oracle's value as JSON; `-` for nothing.
    #[serde(default = "anything")]
    oracle: String,
    /// Ours, likewise.
    #[serde(default = "anything")]
    ours: String,
    /// The oracle's text is ours, told several times.
    #[serde(default)]
    repeated: bool,
    reason: String,
}

/// The whole table, and which of its rows were needed.
#[derive(Debug)]
pub(crate) struct Explanations {
    rows: Vec<(Explanation, Vec<String>)>,
}

/// Where a difference was seen.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Family.
    pub family: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Number and request.
    pub step: String,
}

impl Explanations {
    /// Reads the table.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let rows: Vec<Explanation> = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(Self { rows: rows.into_iter().map(|row| (row, Vec::new())).collect() })
    }

    /// True if a row explains the difference.
    pub(crate) fn explains(&self, place: &Place, difference: &Difference) -> bool {
        self.rows.iter().any(|(row, _)| row.explains(place, difference))
    }

    /// True if a row explains the difference; the row is then needed.
    pub(crate) fn explain(&mut self, place: &Place, difference: &Difference) -> bool {
        let row = self.rows.iter_mut().find(|(row, _)| row.explains(place, difference));
        row.map(|(_, used)| used.push(told(place, difference))).is_some()
    }

    /// Rows that explained nothing.
    pub(crate) fn unused(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter(|(_, used)| used.is_empty()).map(|(row, _)| format!("{} ({})", row.pointer, row.reason))
    }

    /// Every row with what it explained: a row that explains more than was meant is to be narrowed.
    pub(crate) fn by_row(&self) -> String {
        let mut text = String::new();
        for (row, used) in &self.rows {
            text.push_str(&format!("{} × {} ({})\n", used.len(), row.pointer, row.reason));
            used.iter().for_each(|place| text.push_str(place));
        }
        text
    }
}

/// Where a difference was explained, and what it is.
fn told(place: &Place, difference: &Difference) -> String {
    let shown = |value: &Option<Value>| -> String {
        value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string).chars().take(TOLD).collect()
    };
    let Place { family, scenario, step } = place;
    let (pointer, oracle, ours) = (&difference.pointer, shown(&difference.oracle), shown(&difference.ours));
    format!("    {family} / {scenario} / {step}\n        {pointer}: {oracle} against {ours}\n")
}

impl Explanation {
    fn explains(&self, place: &Place, difference: &Difference) -> bool {
        let shown = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        matches(&self.family, &place.family)
            && matches(&self.scenario, &place.scenario)
            && matches(&self.step, &place.step)
            && matches(&self.pointer, &difference.pointer)
            && matches(&self.oracle, &shown(&difference.oracle))
            && matches(&self.ours, &shown(&difference.ours))
            && (!self.repeated || is_repeated(difference))
    }
}

/// `3 × text` against `text`.
fn is_repeated(difference: &Difference) -> bool {
    let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
    let (Some(oracle), Some(ours)) = (text(&difference.oracle), text(&difference.ours)) else { return false };
    let times = oracle.strip_suffix(&ours).and_then(|head| head.strip_suffix(" × "));
    times.is_some_and(|times| times.parse::<usize>().is_ok())
}

fn anything() -> String {
    "*".to_owned()
}

/// Whether a text has the form of a pattern in which `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    rest.is_empty()
        || text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .any(|at| text.get(at..).is_some_and(|tail| matches(rest, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_told_several_times_is_the_same_text() {
        let told = |oracle: &str, ours: &str| {
            is_repeated(&Difference { pointer: String::new(), oracle: Some(oracle.into()), ours: Some(ours.into()) })
        };
        assert!(told("2 × a b", "a b") && told("3 × a", "a"));
        assert!(!told("2 × a", "b") && !told("a", "a") && !told("2 × 2 × a", "a") && !told("x × a", "a"));
    }

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/d", false),
            ("*c", "abc", true),
            ("a", "ab", false),
            ("a*b*", "axxbyy", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
