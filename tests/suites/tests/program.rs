//! The program as `tests/run.sh` calls it.
#![allow(clippy::unwrap_used)]

use std::process::Command;

#[test]
fn who_calls_it_wrongly_is_told_how() {
    let out = Command::new(env!("CARGO_BIN_EXE_suites")).output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout);
    assert_eq!(told, "suites: usage: suites BUILD PHASES [WORD...]: BUILD\n");
    assert_eq!(out.status.code(), Some(1));
}
