//! What is kept encrypted and what is recorded, beside a real kube-apiserver with the same two files.
//!
//! There is no harness around it: its last line, with the numbers, is to be seen in every run.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

const NAME: &str = "what_kubernetes_seals_and_records_we_seal_and_record";

#[tokio::main]
async fn main() -> ExitCode {
    tests::cluster::alone(NAME, run()).await
}

async fn run() -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", NAME)? else { return Ok(()) };
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).arg("--guard").arg("--tools").arg(tools).status()?;
    ensure!(status.success(), "something differs");
    Ok(())
}
