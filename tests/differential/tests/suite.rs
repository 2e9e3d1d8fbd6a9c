//! The whole corpus against a real kube-apiserver, as `make differential` runs it, with one seed.
//!
//! There is no harness around it: its last line, with the numbers, is to be seen in every run.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

const NAME: &str = "what_kubernetes_answers_we_answer";
/// Always the same random requests: a test that fails is to fail again.
const SEED: &str = "1";

#[tokio::main]
async fn main() -> ExitCode {
    tests::cluster::alone(NAME, run()).await
}

async fn run() -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", NAME)? else { return Ok(()) };
    let mut differential = Command::new(env!("CARGO_BIN_EXE_differential"));
    let status = differential.arg("--tools").arg(tools).args(["--seed", SEED]).status()?;
    ensure!(status.success(), "not every difference is explained, or not every explanation is needed");
    Ok(())
}
