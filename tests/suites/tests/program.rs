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
