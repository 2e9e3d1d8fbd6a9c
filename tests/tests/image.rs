//! What our image holds: a program that needs nothing else, because the agent runs in images of others.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use tests::standalone::kun_binary;

/// Runs a program in a folder that is all it sees.
fn alone(folder: &Path, words: &[&str]) -> Result<Output> {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root { Command::new("chroot") } else { Command::new("unshare") };
    if !is_root {
        command.args(["--map-root-user", "chroot"]);
    }
    command.arg(folder).args(words).output().context("run chroot")
}

/// Only a root without any library shows that the program needs none.
#[test]
fn the_agent_runs_in_an_image_that_has_no_library_of_its_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = kun_binary()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/kun-static.sh");
    let linked = Command::new(&script).arg(&program).arg(folder.path().join("kun")).output()?;
    ensure!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    let made = alone(folder.path(), &["/kun", "agent", "folder", "--target", "/", "--folder", "b1"])?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    ensure!(folder.path().join("b1").is_dir());
    // As cargo makes it for tests it asks for a loader, which is not there.
    fs::copy(&program, folder.path().join("other"))?;
    let refused = alone(folder.path(), &["/other", "--version"])?;
    ensure!(refused.status.code() == Some(127), "{refused:?}");
    Ok(())
}
