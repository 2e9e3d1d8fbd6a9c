//! What a suite printed, read as its outcome.

use std::{collections::BTreeSet, iter, process::ExitStatus};

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) passed: bool,
    /// Seconds; `None` where the program does not say.
    pub(crate) seconds: Option<f64>,
    /// Why it failed, in a line; empty where it did not, or nobody said.
    pub(crate) why: String,
}

impl Test {
    /// As it is called: whole, and without the modules before it.
    fn names(&self) -> [&str; 2] {
        [&self.name, self.name.rsplit("::").next().unwrap_or_default()]
    }
}

/// What stands before the test, its name, and what comes after that, in a line that tells of one.
fn named(line: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = line.split_once("test ").filter(|(before, _)| before.is_empty() || before.ends_with(": "))?;
    let (name, end) = rest.split_once(" ... ")?;
    (!name.contains(' ') || name.ends_with(" - should panic")).then_some((before, name, end))
}

/// Whether a line is what stands behind the name of a test: `ok <1.2s>`.
fn is_rest(line: &str) -> bool {
    let rest = line.strip_prefix("ok").or_else(|| line.strip_prefix("FAILED"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" <"))
}

/// All of a suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) tests: Vec<Test>,
    pub(crate) ignored: usize,
    /// How many Rust's harness began with.
    pub(crate) announced: usize,
    /// How often the harness began, and how often anybody summed up: `test result: …`.
    begun: usize,
    summed_up: usize,
    /// A sum that said that something failed.
    said_failed: bool,
    /// What says itself that it was left out: tests without a harness, and tests that end well where what they need is missing.
    left_out: BTreeSet<String>,
    /// What it said last, in a line, where nothing else tells why it ended.
    last: String,
}

impl Outcome {
    /// Reads `test NAME ... ok <1.2s>` of Rust's harness and `SUITE: test NAME ... ok (1.2 s)` of programs without it. What a test
    /// prints may stand between the name and the rest, so the end of the line is looked at first.
    pub(crate) fn read(printed: &str) -> Self {
        let mut outcome = Self { last: last(printed), ..Self::default() };
        // Of a test in whose line something was printed before the rest.
        let mut begun: Option<&str> = None;
        for (at, line) in printed.lines().enumerate() {
            outcome.look(line);
            let rest = begun.filter(|_| is_rest(line)).map(|name| ("", name, line));
            let Some((before, name, end)) = rest.or_else(|| named(line)) else { continue };
            if rest.is_some() {
                begun = None;
            }
            let passed = match end.split([' ', ':', ',']).next() {
                Some("ok") => true,
                Some("FAILED") => false,
                Some("ignored") => {
                    outcome.ignored += 1;
                    continue;
                }
                Some(_) | None => {
                    begun = before.is_empty().then_some(name);
                    continue;
                }
            };
            let why = match end.strip_prefix("FAILED: ") {
                _ if passed => String::new(),
                Some(reason) => said(before, reason, printed.lines().skip(at + 1)),
                None => shown(name, printed),
            };
            outcome.tests.push(Test { name: name.to_owned(), passed, seconds: seconds(end), why });
        }
        outcome
    }

    /// What a line says of all tests together.
    fn look(&mut self, line: &str) {
        if let Some(number) = announced(line) {
            self.announced += number;
            self.begun += 1;
        }
        let sum = line.split_once("test result: ").filter(|(before, _)| before.is_empty() || before.ends_with(": "));
        if let Some((_, sum)) = sum {
            self.summed_up += 1;
            self.said_failed |= sum.starts_with("FAILED");
        }
        let skipped = line.split_once(": SKIPPED; ").and_then(|(before, _)| before.split_whitespace().next_back());
        let elsewhere = line.split_once("test ").and_then(|(_, rest)| rest.split_once(" ... not for this cluster"));
        self.left_out.extend(skipped.or(elsewhere.map(|(name, _)| name)).map(str::to_owned));
    }

    /// Whether this test did not do what it is for.
    fn is_left_out(&self, test: &Test) -> bool {
        test.names().into_iter().any(|name| self.left_out.contains(name))
    }

    pub(crate) fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.passed && !self.is_left_out(test)).count()
    }

    /// How many nobody ran.
    pub(crate) fn skipped(&self) -> usize {
        let failed: BTreeSet<&str> = self.failed().flat_map(Test::names).collect();
        self.ignored + self.left_out.iter().filter(|name| !failed.contains(name.as_str())).count()
    }

    /// Nothing ended the program before its last test: one that ends with 0 by itself in the middle would pass otherwise.
    fn is_whole(&self) -> bool {
        self.ran() >= self.announced && self.summed_up >= self.begun
    }

    fn ran(&self) -> usize {
        self.tests.len() + self.ignored
    }

    /// What is wrong with how the program ended, beside the tests that failed. Its word counts for no more than what it printed.
    pub(crate) fn trouble(&self, status: ExitStatus) -> Option<String> {
        let has_failed = self.failed().next().is_some();
        if status.success() {
            if self.ran() == 0 && self.summed_up == 0 && self.left_out.is_empty() {
                return Some(format!("it ended with {status} and told no result{}", self.last_words()));
            }
            if self.said_failed && !has_failed {
                return Some(format!("it ended with {status} though it said that it failed"));
            }
            return (!self.is_whole()).then(|| format!("it ended with {status}, {}", self.far()));
        }
        if has_failed {
            let is_explained = self.is_whole() && status.code().is_some();
            return (!is_explained).then(|| format!("it ended with {status}, {}", self.far()));
        }
        Some(format!("it ended with {status} though no test failed, {}{}", self.far(), self.last_words()))
    }

    /// How far it came.
    pub(crate) fn far(&self) -> String {
        match self.announced {
            0 => format!("after {} tests", self.ran()),
            announced => format!("after {} of {announced} tests", self.ran()),
        }
    }

    fn last_words(&self) -> String {
        if self.last.is_empty() { "; it printed nothing".to_owned() } else { format!("; it said: {}", self.last) }
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter(|test| !test.passed)
    }
}

/// So much of a reason is told where many stand side by side; all of it is in the suite's log.
const REASON: usize = 900;

/// Programs without the harness say why a test failed where they say that it did, up to their next line.
fn said<'a>(before: &str, said: &'a str, after: impl Iterator<Item = &'a str>) -> String {
    let after = after.take_while(|line| !line.starts_with(before));
    let words = iter::once(said).chain(after).flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ").chars().take(REASON).collect()
}

/// The harness shows it at its end: what the test printed last, after where it panicked, or as the error that it returned.
fn shown(name: &str, printed: &str) -> String {
    let begin = format!("---- {name} stdout ----");
    let lines: Vec<_> = printed.lines().skip_while(|line| *line != begin).skip(1).collect();
    let shown = lines.split(|line| line.starts_with("---- ") || *line == "failures:").next().unwrap_or_default();
    let panicked = shown.iter().rposition(|line| line.contains(" panicked at ")).map(|at| at + 1);
    let from = panicked.or_else(|| shown.iter().rposition(|line| line.starts_with("Error: "))).unwrap_or(0);
    // Where it was says nobody why; who has the runtime print that would read of nothing else.
    let is_trace = |line: &str| line.trim().eq_ignore_ascii_case("stack backtrace:");
    said("---- ", "", shown.iter().skip(from).copied().take_while(|line| !is_trace(line)))
}

/// What a program says before it ends for a reason that is no test's: where it tells of an error, or else its last line.
fn last(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    let tells = |line: &&str| ["FAILED", " panicked at ", "Error: "].iter().any(|word| line.contains(word));
    let from = lines.iter().rposition(tells).unwrap_or(lines.len().saturating_sub(1));
    said("\n", "", lines.into_iter().skip(from).take(LAST))
}

/// Lines of an error: that something panicked, and why.
const LAST: usize = 3;

/// `running 3 tests` says how many there are.
fn announced(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("running ")?;
    rest.strip_suffix(" tests").or(rest.strip_suffix(" test"))?.parse().ok()
}

/// `… <1.234s>` or `… (1.2 s)`.
fn seconds(end: &str) -> Option<f64> {
    let (_, rest) = end.rsplit_once(['<', '('])?;
    rest.trim_end().trim_end_matches(['>', ')']).trim_end_matches('s').trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn both_ways_of_telling_an_outcome_are_read_and_nothing_else() {
        let printed = "running 3 tests\ntest a::b ... ok <0.251s>\ntest c - should panic ... FAILED <2.000s>\n\
            test d ... ignored\ntest result: FAILED. 1 passed; 1 failed\nthe test of it ... ok\n\
            installed: test scaling ... ok (12.5 s)\ninstalled: test lost ... FAILED: it took too long\n";
        let test = |name: &str, passed, seconds, why: &str| Test {
            name: name.to_owned(),
            passed,
            seconds,
            why: why.to_owned(),
        };
        let tests = vec![
            test("a::b", true, Some(0.251), ""),
            test("c - should panic", false, Some(2.0), ""),
            test("scaling", true, Some(12.5), ""),
            test("lost", false, None, "it took too long"),
        ];
        let last = "installed: test lost ... FAILED: it took too long".to_owned();
        let sums = Outcome { announced: 3, begun: 1, summed_up: 1, said_failed: true, ..Outcome::default() };
        assert_eq!(Outcome::read(printed), Outcome { tests, ignored: 1, last, ..sums });
        let failed: Vec<_> = Outcome::read(printed).tests.into_iter().filter(|test| !test.passed).collect();
        assert_eq!(failed.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(), ["c - should panic", "lost"]);
    }

    #[test]
    fn what_says_itself_that_it_was_left_out_has_not_passed() {
        let counts = |printed: &str| {
            let outcome = Outcome::read(printed);
            (outcome.passed(), outcome.failed().count(), outcome.skipped())
        };
        assert_eq!(counts("informers: SKIPPED; missing: Go\n"), (0, 0, 1));
        assert_eq!(counts("installed: test a ... not for this cluster\ninstalled: test b ... ok (1.0 s)\n"), (1, 0, 1));
        let harness = "running 3 tests\ntest chart::a ... one: SKIPPED; missing: Go\nok <0.1s>\ntest x::one ... ok <0.1s>\n\
            test b ... ignored, slow\n";
        assert_eq!(counts(harness), (1, 0, 2));
        let full = "running 2 tests\ntest chart::a ... chart::a: SKIPPED; missing: Go\nok <0.1s>\ntest x::a ... ok <0.1s>\n\n\
            test result: ok. 2 passed; 0 failed\n";
        assert_eq!(counts(full), (1, 0, 1));
        assert_eq!(Outcome::read(full).trouble(ExitStatus::from_raw(0)), None);
        assert_eq!(counts("one: SKIPPED; missing: Go\ntest x::one ... FAILED <0.1s>\n"), (0, 1, 0));
    }

    #[test]
    fn what_a_program_ends_with_must_fit_what_it_printed() {
        let (zero, one, killed) = (ExitStatus::from_raw(0), ExitStatus::from_raw(1 << 8), ExitStatus::from_raw(9));
        let whole = "running 1 test\ntest a ... ok <0.1s>\n\ntest result: ok. 1 passed; 0 failed\n";
        let failed = "running 1 test\ntest a ... FAILED <0.1s>\n\ntest result: FAILED. 0 passed; 1 failed\n";
        let half = "running 2 tests\ntest a ... ok <0.1s>\n";
        let panicked = "thread 'main' panicked at a.rs:1:\nno cluster\n";
        let trouble = |printed: &str, status| Outcome::read(printed).trouble(status).unwrap_or_default();
        let table = [
            (whole, zero, ""),
            ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed\n", zero, ""),
            ("s: test a ... ok (1.0 s)\n", zero, ""),
            ("s: SKIPPED; missing: Go\n", zero, ""),
            ("", zero, "it ended with exit status: 0 and told no result; it printed nothing"),
            ("let us go\n", zero, "it ended with exit status: 0 and told no result; it said: let us go"),
            (half, zero, "it ended with exit status: 0, after 1 of 2 tests"),
            ("running 1 test\ntest a ... ok\n", zero, "it ended with exit status: 0, after 1 of 1 tests"),
            ("s: test result: FAILED. no", zero, "it ended with exit status: 0 though it said that it failed"),
            (failed, one, ""),
            (failed, killed, "it ended with signal: 9 (SIGKILL), after 1 of 1 tests"),
            ("running 2 tests\ntest a ... FAILED\n", one, "it ended with exit status: 1, after 1 of 2 tests"),
            (
                whole,
                one,
                "it ended with exit status: 1 though no test failed, after 1 of 1 tests; it said: \
                test result: ok. 1 passed; 0 failed",
            ),
            (
                panicked,
                one,
                "it ended with exit status: 1 though no test failed, after 0 tests; it said: \
                thread 'main' panicked at a.rs:1: no cluster",
            ),
        ];
        let told: Vec<_> = table.iter().map(|(printed, status, _)| trouble(printed, *status)).collect();
        assert_eq!(told, table.map(|(_, _, trouble)| trouble));
    }

    #[test]
    fn why_a_test_failed_is_read_wherever_a_program_says_it() {
        let harness = "test a ... FAILED <1.0s>\ntest b ... FAILED <1.0s>\ntest c ... FAILED <1.0s>\n\nfailures:\n\n\
            ---- a stdout ----\nit prints this\n\nthread 'a' (7) panicked at src/a.rs:1:2:\nassertion failed\n  left: 1\n\n\
            ---- b stdout ----\nit prints this\nError: no answer\n\nCaused by:\n    it is away\n\n\
            ---- c stdout ----\nit prints this\n\nfailures:\n    a\n    b\n    c\n";
        let whys = |printed: &str| Outcome::read(printed).tests.into_iter().map(|test| test.why).collect::<Vec<_>>();
        assert_eq!(
            whys(harness),
            ["assertion failed left: 1", "Error: no answer Caused by: it is away", "it prints this"]
        );
        let plain = "s: test a ... FAILED: kubectl drain failed: one\n  two\ns: next\ns: test b ... ok (1.0 s)\n";
        assert_eq!(whys(plain), ["kubectl drain failed: one two", ""]);
        let long = format!("s: test a ... FAILED: {}", "word ".repeat(1000));
        assert_eq!(whys(&long)[0].len(), REASON);
    }

    #[test]
    fn a_backtrace_is_no_reason() {
        let panicked = "thread 'a' panicked at a.rs:1:2:\nno answer\nstack backtrace:\n   0: core::panic\n";
        let returned = "Error: no disk\n\nStack backtrace:\n   0: anyhow::error\n";
        let why = |said: &str| {
            let printed = format!("test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n{said}\n\nfailures:\n    a\n");
            Outcome::read(&printed).tests[0].why.clone()
        };
        assert_eq!([why(panicked), why(returned)], ["no answer", "Error: no disk"]);
    }
}
