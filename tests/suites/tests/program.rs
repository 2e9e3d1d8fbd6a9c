//! The program as `tests/run.sh` calls it.
#![allow(clippy::unwrap_used)]

mod stage;

use std::process::Command;

use stage::Stage;

#[test]
fn who_calls_it_wrongly_is_told_how() {
    let out = Command::new(env!("CARGO_BIN_EXE_suites")).output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout);
    assert_eq!(told, "suites: usage: suites BUILD PHASES [WORD...]: BUILD\n");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn words_that_match_no_suite_are_an_error_that_lists_the_suites() {
    let stage = Stage::new().suite("one", "echo 'test a ... ok'").suite("two", "echo 'test b ... ok'");
    let error = |words: &str| (format!("suites: no suite has {words} in its name; there are: one, two\n"), Some(1));
    assert_eq!(stage.run(&["nosuch"]), error("\"nosuch\""));
    assert_eq!(stage.run(&["one", "neither", "nor"]), error("\"neither\" or \"nor\""));
    let (told, code) = stage.run(&["on"]);
    assert_eq!((told.lines().last(), code), (Some("1 passed, 0 failed"), Some(0)), "{told}");
}

#[test]
fn a_suite_that_ends_badly_has_its_reason_among_the_last_lines() {
    let stage = Stage::new()
        .suite("code", "echo 'test a ... ok'; echo 'Error: no disk'; exit 3")
        .suite("half", "echo 'running 2 tests'; echo 'test a ... ok'")
        .suite("signal", "echo 'test a ... FAILED: no answer'; kill -SEGV $$")
        .suite("silent", "true")
        .suite("well", "echo 'test a ... ok'");
    let (told, code) = stage.run(&[]);
    let last: Vec<&str> = told.lines().skip_while(|line| *line != "the slowest tests").collect();
    let mut reasons: Vec<&str> = last.iter().copied().filter(|line| line.starts_with("FAILED: ")).collect();
    reasons.sort_unstable();
    let expected = [
        "FAILED: code: it ended with exit status: 3 though no test failed, after 1 tests; it said: Error: no disk",
        "FAILED: half: it ended with exit status: 0, after 1 of 2 tests",
        "FAILED: signal a: no answer",
        "FAILED: signal: it ended with signal: 11 (SIGSEGV), after 1 tests",
        "FAILED: silent: it ended with exit status: 0 and told no result; it printed nothing",
    ];
    assert_eq!((reasons.as_slice(), code), (expected.as_slice(), Some(1)), "{told}");
    assert!(told.ends_with("\n\n3 passed, 5 failed\n"), "{told}");
}

#[test]
fn what_was_skipped_is_counted_in_the_last_line() {
    let stage = Stage::new()
        .suite("one", "echo 'test a ... ok'; echo 'test b ... ignored'")
        .suite("two", "echo 'two: SKIPPED; missing: Go'");
    let (told, code) = stage.run(&[]);
    assert!(told.ends_with("\n\n1 passed, 0 failed, 2 skipped\n"), "{told}");
    assert_eq!(code, Some(0));
}
