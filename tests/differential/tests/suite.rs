//! The whole corpus against a real kube-apiserver, as `make differential` runs it, with one seed.
//!
//! There is no harness around it: its last line, with the numbers, is to be seen in every run.

#![allow(clippy::print_stdout, reason = "a test without a harness tells its outcome itself")]

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

const NAME: &str = "what_kubernetes_answers_we_answer";
/// Always the same random requests: a test that fails is to fail again.
const SEED: &str = "1";

fn main() -> ExitCode {
    if !tests::cluster::is_wanted(NAME, std::env::args().skip(1)) {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{NAME}: FAILED; {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", NAME)? else { return Ok(()) };
    let mut differential = Command::new(env!("CARGO_BIN_EXE_differential"));
    let status = differential.arg("--tools").arg(tools).args(["--seed", SEED]).status()?;
    ensure!(status.success(), "not every difference is explained, or not every explanation is needed");
    Ok(())
}
