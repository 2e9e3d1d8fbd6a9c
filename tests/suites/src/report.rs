//! What is said of the suites: a line as each ends, what failed, and where the time went.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    time::Duration,
};

use serde::Serialize;

use crate::{
    budget::Budget,
    outcome::Test,
    run::{Ended, Interrupted},
};

/// Slowest tests that are shown.
const SLOWEST: usize = 20;
/// Lines of a failed suite that are shown at the end; all of them are in its log.
const TAIL: usize = 60;
/// So many of them from its beginning where there are more, and the others from its end.
const HEAD: usize = 10;
const RED: (&str, &str) = ("\x1b[31m", "\x1b[0m");

/// All that is known at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Seconds of what was done before, in order.
    phases: Vec<(String, f64)>,
    /// Seconds of all suites together, side by side.
    seconds: f64,
    /// The factor by which limits were stretched.
    stretch: u32,
    suites: Vec<Row>,
    /// Tests and their seconds, the slowest first.
    slowest: Vec<(String, f64)>,
    passed: usize,
    failed: usize,
    skipped: usize,
    #[serde(skip)]
    failures: BTreeMap<String, String>,
    /// Of each test that failed its suite, its name and why; of each suite that ended badly, how.
    #[serde(skip)]
    reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    suite: String,
    seconds: f64,
    cpu: f64,
    budget: u32,
    is_over: bool,
    tests: usize,
    passed: bool,
}

impl Report {
    pub(crate) fn new(phases: Vec<(String, f64)>, ended: Vec<Ended>, budget: &Budget, took: Duration) -> Self {
        let count = |of: &dyn Fn(&Ended) -> usize| ended.iter().map(of).sum();
        let failed = |suite: &Ended| suite.outcome.failed().count() + usize::from(suite.trouble.is_some());
        let mut slowest: Vec<(String, f64)> = ended.iter().flat_map(timed).collect();
        slowest.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        slowest.truncate(SLOWEST);
        let mut suites: Vec<Row> = ended.iter().map(|suite| row(suite, budget)).collect();
        suites.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.suite.cmp(&b.suite)));
        Self {
            phases,
            seconds: tenths(took),
            stretch: hung::stretch(),
            suites,
            slowest,
            passed: count(&|suite| suite.outcome.passed()),
            failed: count(&failed),
            skipped: count(&|suite| suite.outcome.skipped()),
            reasons: ended.iter().flat_map(reasons).collect(),
            failures: ended.iter().filter(|suite| !suite.passed()).map(|one| (one.name.clone(), why(one))).collect(),
        }
    }

    /// Whether there were tests and nothing failed, nor was left out where nobody reads that.
    pub(crate) fn is_well(&self, is_ci: bool) -> bool {
        self.passed + self.skipped > 0 && self.failed == 0 && !(is_ci && self.skipped > 0)
    }

    pub(crate) fn show(&self, interrupted: Option<&Interrupted>) {
        say("\n seconds      cpu  budget  tests  what");
        for (phase, seconds) in &self.phases {
            say(&format!("{seconds:8.1}        –       –      –  {phase}"));
        }
        for row in &self.suites {
            let Row { suite, seconds, cpu, budget, tests, .. } = row;
            let line = format!("{seconds:8.1} {cpu:8.1} {budget:7} {tests:6}  {suite}");
            say(&if row.is_over { format!("{}{line}  above its budget{}", RED.0, RED.1) } else { line });
        }
        say(&format!(
            "{:8.1}        –       –      –  all suites, side by side (limits × {})",
            self.seconds, self.stretch
        ));
        say("\nthe slowest tests");
        for (test, seconds) in &self.slowest {
            say(&format!("{seconds:8.1}  {test}"));
        }
        // Last, because many a record of a run keeps no more than its end.
        for (suite, why) in &self.failures {
            say(&format!("\n{}FAILED: {suite}{}, all of it in target/test/{suite}.log\n{why}", RED.0, RED.1));
        }
        if !self.reasons.is_empty() {
            say("");
        }
        self.reasons.iter().for_each(|reason| say(reason));
        if self.skipped > 0 {
            say(&format!("\n{} tests were left out, which CI does not allow", self.skipped));
        }
        if let Some(interrupted) = interrupted {
            say(&format!("\n{}", unfinished(interrupted)));
        }
        if self.passed + self.failed + self.skipped == 0 {
            say("\nthere was no test to run");
        }
        say(&format!("\n{}", self.closing()));
    }

    /// The last line.
    fn closing(&self) -> String {
        let counted = format!("{} passed, {} failed", self.passed, self.failed);
        if self.skipped > 0 { format!("{counted}, {} skipped", self.skipped) } else { counted }
    }
}

/// What an interrupted run did not do.
fn unfinished(run: &Interrupted) -> String {
    let Interrupted { by, running, waiting, processes } = run;
    let names = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let left = if *processes > 0 { format!("; {processes} processes do not end") } else { String::new() };
    format!("interrupted by {}; still running: {}; not begun: {}{left}", by.name, names(running), names(waiting))
}

/// Says how a suite ended, as soon as it has.
pub(crate) fn one(suite: &Ended) {
    let word = if suite.passed() { "ok" } else { "FAILED" };
    let tests = suite.outcome.tests.len();
    say(&format!("suite {} ... {word}: {tests} tests, {:.1} s", suite.name, suite.took.as_secs_f64()));
    reasons(suite).iter().for_each(|reason| say(&format!("  {reason}")));
    // Figures that a run tells about itself.
    for line in suite.printed.lines().filter(|line| line.starts_with("tally: ") || line.contains(": SKIPPED; ")) {
        say(&format!("  {line}"));
    }
}

/// Prints a line of the report. Nobody may read it any more; the suites, and how they end, do not depend on that.
pub(crate) fn say(text: &str) {
    writeln!(io::stdout(), "{text}").ok();
}

fn row(suite: &Ended, budget: &Budget) -> Row {
    Row {
        suite: suite.name.clone(),
        seconds: tenths(suite.took),
        cpu: (suite.cpu * 10.0).round() / 10.0,
        budget: budget.of(&suite.name).seconds,
        is_over: budget.is_over(&suite.name, suite.took),
        tests: suite.outcome.tests.len(),
        passed: suite.passed(),
    }
}

fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// One line for each test that failed, and one for how the suite ended if that was bad.
fn reasons(suite: &Ended) -> Vec<String> {
    let told = |test: &Test| format!("FAILED: {} {}: {}", suite.name, test.name, test.why);
    let trouble = suite.trouble.iter().map(|trouble| format!("FAILED: {}: {trouble}", suite.name));
    suite.outcome.failed().map(told).chain(trouble).collect()
}

fn timed(suite: &Ended) -> impl Iterator<Item = (String, f64)> {
    suite.outcome.tests.iter().filter_map(|test| Some((format!("{} {}", suite.name, test.name), test.seconds?)))
}

/// What a suite said of its failures: Rust's harness gathers them at its end; programs without it tell what happened just before they
/// say that a test failed.
fn why(suite: &Ended) -> String {
    let lines: Vec<&str> = suite.printed.lines().collect();
    let gathered = lines.iter().position(|line| line.trim() == "failures:");
    let failed = || lines.iter().position(|line| line.contains(" ... FAILED: ")).map(|at| at.saturating_sub(TAIL / 2));
    let from = gathered.or_else(failed).unwrap_or_else(|| lines.len().saturating_sub(TAIL));
    let told: Vec<String> = lines.iter().skip(from).map(|line| line.chars().take(600).collect()).collect();
    // What a test prints comes before why it failed.
    match told.split_at_checked(HEAD).filter(|_| told.len() > TAIL) {
        None => told.join("\n"),
        Some((head, rest)) => {
            let last = rest.split_at_checked(rest.len() + HEAD - TAIL).map_or(rest, |(_, last)| last);
            [head, &["…".to_owned()], last].concat().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;

    fn ended(name: &str, seconds: u64, is_well: bool, printed: &str) -> Ended {
        Ended {
            name: name.to_owned(),
            outcome: Outcome::read(printed),
            took: Duration::from_secs(seconds),
            cpu: 0.5,
            trouble: (!is_well).then(|| "it ended with exit status: 1".to_owned()),
            printed: printed.to_owned(),
        }
    }

    #[test]
    fn a_suite_that_ends_badly_without_a_word_is_one_failure() {
        let budget = Budget::read("[b]\nseconds = 1").unwrap();
        let suites = vec![
            ended("a", 1, true, "test x ... ok <0.500s>\ntest y ... ok <2.000s>\ntest z ... ignored"),
            ended("b", 1000, false, "thread panicked"),
        ];
        let report = Report::new(vec![("fetch".to_owned(), 1.5)], suites, &budget, Duration::from_millis(1234));
        assert_eq!((report.passed, report.failed, report.skipped), (2, 1, 1));
        assert_eq!(report.slowest, [("a y".to_owned(), 2.0), ("a x".to_owned(), 0.5)]);
        assert_eq!(report.failures, BTreeMap::from([("b".to_owned(), "thread panicked".to_owned())]));
        assert_eq!(report.reasons, ["FAILED: b: it ended with exit status: 1"]);
        let over: Vec<_> = report.suites.iter().map(|row| (row.suite.as_str(), row.is_over)).collect();
        assert_eq!(over, [("b", true), ("a", false)]);
        assert!(!report.is_well(false));
        assert_eq!(report.closing(), "2 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn what_led_to_a_failure_is_shown_wherever_the_program_tells_it() {
        let before: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        let plain = [before.join("\n").as_str(), "s: test x ... FAILED: no", "after"].join("\n");
        let told = why(&ended("a", 1, false, &plain));
        assert_eq!((told.lines().next(), told.lines().last()), (Some("line 70"), Some("after")));
        let harness = [before.join("\n").as_str(), "failures:", "---- x stdout ----", "why"].join("\n");
        assert_eq!(why(&ended("a", 1, false, &harness)), "failures:\n---- x stdout ----\nwhy");
        assert_eq!(why(&ended("a", 1, false, &before.join("\n"))).lines().next(), Some("line 40"));
        let long = ["failures:", &before.join("\n"), "panicked"].join("\n");
        let told = why(&ended("a", 1, false, &long));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[10], lines[60]), (61, "failures:", "…", "panicked"));
    }

    #[test]
    fn what_is_left_out_is_a_failure_only_where_nobody_reads_it() {
        let budget = Budget::read("").unwrap();
        let report = Report::new(vec![], vec![ended("a", 1, true, "test z ... ignored")], &budget, Duration::ZERO);
        assert!(report.is_well(false) && !report.is_well(true));
    }
}
