//! What `tests/phase.sh` writes down for the table, and how a build ends.

use std::{fs, path::Path, process::Command};

use rustix::process::{Pid, Signal, kill_process};

use super::stage::until;

/// Whether the phase succeeded.
fn phase(folder: &Path, name: &str, command: &str) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("phase.sh");
    Command::new(script).args([name, "sh", "-c", command]).current_dir(folder).status().unwrap().success()
}

fn written(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("target/test/phases")).unwrap_or_default();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn phases_of_a_run_that_failed_do_not_stay_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(phase(folder, "fetch", "true") && phase(folder, "build and lint", "true"));
    assert_eq!(written(folder), ["fetch", "build and lint"]);
    assert!(!phase(folder, "build and lint", "exit 3"));
    assert_eq!(written(folder), Vec::<String>::new());
    assert!(phase(folder, "fetch", "true"));
    assert!(!phase(folder, "build and lint", "kill -TERM $PPID"));
    assert!(phase(folder, "build and lint", "true"));
    assert_eq!(written(folder), ["build and lint"]);
}

/// The script of the build, with a cargo beside it that compiles without end and writes down which process does.
const BUILD: &str = r#"mkdir -p tests/lint bin && cp "$0/build.sh" "$0/phase.sh" "$0/signals.sh" tests && cp "$0/lint/settings.sh" tests/lint
printf '#!/bin/sh\n' >tests/cache.sh
printf '#!/bin/sh\n[ "$1" != test ] || { sleep 1000 & echo $! >begun; mv begun compiler; wait; }\n' >bin/cargo
printf '#!/bin/sh\necho host: none\n' >bin/rustc
chmod 755 tests/cache.sh bin/cargo bin/rustc"#;

#[test]
fn a_build_that_is_ended_alone_ends_what_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert!(Command::new("sh").args(["-c", BUILD]).arg(scripts).current_dir(folder).status().unwrap().success());
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut build = Command::new(folder.join("tests/build.sh")).env("PATH", path).spawn().unwrap();
    until("cargo compiles", || folder.join("compiler").exists());
    let compiler = fs::read_to_string(folder.join("compiler")).unwrap();
    // As make does where it is told to end: nobody else hears of it.
    kill_process(Pid::from_child(&build), Signal::TERM).unwrap();
    assert!(!build.wait().unwrap().success());
    // Who has ended, and nobody has asked how, has no command line any more.
    let command = format!("/proc/{}/cmdline", compiler.trim());
    until("the compiler has ended", || !fs::read(&command).is_ok_and(|words| !words.is_empty()));
    until("no phase is written down", || written(folder).is_empty());
}
