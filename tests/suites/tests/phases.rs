//! What `tests/phase.sh` writes down for the table.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

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
