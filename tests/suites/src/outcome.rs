//! What a suite printed, read as its outcome.

use std::iter;

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

/// All of a suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) tests: Vec<Test>,
    pub(crate) ignored: usize,
    /// How many Rust's harness began with.
    pub(crate) announced: usize,
}

impl Outcome {
    /// Reads `test NAME ... ok <1.2s>` of Rust's harness and `SUITE: test NAME ... ok (1.2 s)` of programs without it. What a test
    /// prints may stand between the name and the rest, so the end of the line is looked at first.
    pub(crate) fn read(printed: &str) -> Self {
        let mut outcome = Self::default();
        for (at, line) in printed.lines().enumerate() {
            outcome.announced += announced(line);
            let Some((before, rest)) =
                line.split_once("test ").filter(|(before, _)| before.is_empty() || before.ends_with(": "))
            else {
                continue;
            };
            let Some((name, end)) = rest.split_once(" ... ") else { continue };
            if name.contains(' ') && !name.ends_with(" - should panic") {
                continue;
            }
            let passed = match end.split([' ', ':', ',']).next() {
                Some("ok") => true,
                Some("FAILED") => false,
                Some("ignored") => {
                    outcome.ignored += 1;
                    continue;
                }
                Some(_) | None => continue,
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

    /// Nothing ended the program before its last test: one that ends with 0 by itself in the middle would pass otherwise.
    pub(crate) fn is_whole(&self) -> bool {
        self.tests.len() + self.ignored >= self.announced
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = &Test> {
        self.tests.iter().filter(|test| !test.passed)
    }
}

/// So much of a reason is told where many stand side by side; all of it is in the suite's log.
const REASON: usize = 500;

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
    said("---- ", "", shown.iter().skip(from).copied())
}

/// `running 3 tests` says how many there are.
fn announced(line: &str) -> usize {
    let number =
        line.strip_prefix("running ").and_then(|rest| rest.strip_suffix(" tests").or(rest.strip_suffix(" test")));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// `… <1.234s>` or `… (1.2 s)`.
fn seconds(end: &str) -> Option<f64> {
    let (_, rest) = end.rsplit_once(['<', '('])?;
    rest.trim_end().trim_end_matches(['>', ')']).trim_end_matches('s').trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
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
        assert_eq!(Outcome::read(printed), Outcome { tests, ignored: 1, announced: 3 });
        assert!(Outcome::read(printed).is_whole());
        assert!(!Outcome::read("running 2 tests\ntest a ... ok <0.1s>\n").is_whole());
        let failed: Vec<_> = Outcome::read(printed).tests.into_iter().filter(|test| !test.passed).collect();
        assert_eq!(failed.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(), ["c - should panic", "lost"]);
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
}
