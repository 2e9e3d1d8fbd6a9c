//! What a suite printed, read as its outcome.

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) passed: bool,
    /// Seconds; `None` where the program does not say.
    pub(crate) seconds: Option<f64>,
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
        for line in printed.lines() {
            outcome.announced += announced(line);
            let Some((_, rest)) =
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
            outcome.tests.push(Test { name: name.to_owned(), passed, seconds: seconds(end) });
        }
        outcome
    }

    /// Nothing ended the program before its last test: one that ends with 0 by itself in the middle would pass otherwise.
    pub(crate) fn is_whole(&self) -> bool {
        self.tests.len() + self.ignored >= self.announced
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter(|test| !test.passed).map(|test| test.name.as_str())
    }
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
        let test = |name: &str, passed, seconds| Test { name: name.to_owned(), passed, seconds };
        let tests = vec![
            test("a::b", true, Some(0.251)),
            test("c - should panic", false, Some(2.0)),
            test("scaling", true, Some(12.5)),
            test("lost", false, None),
        ];
        assert_eq!(Outcome::read(printed), Outcome { tests, ignored: 1, announced: 3 });
        assert!(Outcome::read(printed).is_whole());
        assert!(!Outcome::read("running 2 tests\ntest a ... ok <0.1s>\n").is_whole());
        assert_eq!(Outcome::read(printed).failed().collect::<Vec<_>>(), ["c - should panic", "lost"]);
    }
}
