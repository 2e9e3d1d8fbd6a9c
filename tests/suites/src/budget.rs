//! What each suite may cost: `tests/budget.toml`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::discover::Suite;

/// What is known of a suite before it runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// Seconds that it may take beside others on two cores.
    pub(crate) seconds: u32,
    /// Tests at once; the number of processors where nothing is said.
    #[serde(default)]
    pub(crate) threads: Option<u32>,
    /// It mostly waits, so it takes no processor from the others.
    #[serde(default)]
    pub(crate) waits: bool,
    /// It fills the machine with servers by itself: no two of these run side by side.
    #[serde(default)]
    pub(crate) crowds: bool,
}

/// What a suite may take that nobody has written down.
const UNKNOWN: Expected = Expected { seconds: 20, threads: None, waits: false, crowds: false };

/// All of them, by name.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Budget(BTreeMap<String, Expected>);

impl Budget {
    pub(crate) fn read(text: &str) -> Result<Self> {
        toml::from_str(text).context("tests/budget.toml")
    }

    pub(crate) fn of(&self, suite: &str) -> Expected {
        self.0.get(suite).copied().unwrap_or(UNKNOWN)
    }

    /// Whether a suite took longer than it may.
    pub(crate) fn is_over(&self, suite: &str, took: Duration) -> bool {
        took > Duration::from_secs(self.of(suite).seconds.into()) * hung::stretch()
    }

    /// That every suite with a line is among those that run. One that is lost, as by its lines in a manifest, would be missed by nobody:
    /// all the others pass. With words others are left out on purpose.
    pub(crate) fn misses_none(&self, suites: &[Suite], words: &[String]) -> Result<()> {
        let lost = if words.is_empty() { self.unknown(suites) } else { Vec::new() };
        ensure!(lost.is_empty(), "tests/budget.toml has lines for suites that are not there: {}", lost.join(", "));
        Ok(())
    }

    /// Names that are no suite's.
    fn unknown(&self, suites: &[Suite]) -> Vec<&str> {
        let is_there = |name: &str| suites.iter().any(|suite| suite.name == name);
        self.0.keys().map(String::as_str).filter(|name| !is_there(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_down_is_small_and_a_misspelt_word_is_an_error() {
        let budget =
            Budget::read("[store]\nseconds = 90\nthreads = 4\n[system]\nseconds = 600\nwaits = true\ncrowds = true")
                .unwrap();
        assert_eq!(budget.of("store"), Expected { seconds: 90, threads: Some(4), ..UNKNOWN });
        assert_eq!(budget.of("system"), Expected { seconds: 600, threads: None, waits: true, crowds: true });
        assert_eq!(budget.of("other"), UNKNOWN);
        assert!(Budget::read("[store]\nsecond = 90").is_err());
    }

    #[test]
    fn a_suite_that_has_a_line_and_is_lost_is_missed_where_all_are_run() {
        let budget = Budget::read("[merge]\nseconds = 1\n[store]\nseconds = 1\n[store-crash]\nseconds = 1").unwrap();
        let suites = |names: &[&str]| -> Vec<Suite> {
            let suite = |name: &&str| Suite { name: (*name).to_owned(), program: "p".into(), folder: "f".into() };
            names.iter().map(suite).collect()
        };
        budget.misses_none(&suites(&["merge", "plan", "store", "store-crash"]), &[]).unwrap();
        let error = budget.misses_none(&suites(&["plan", "store"]), &[]).unwrap_err().to_string();
        assert_eq!(error, "tests/budget.toml has lines for suites that are not there: merge, store-crash");
        budget.misses_none(&suites(&["store"]), &["store".to_owned()]).unwrap();
    }
}
