//! What is kept encrypted and what is recorded, beside a real kube-apiserver with the same two files.
//!
//! There is no harness around it: its last line, with the numbers, is to be seen in every run.

#![allow(clippy::print_stdout, reason = "a test without a harness tells its outcome itself")]

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

const NAME: &str = "what_kubernetes_seals_and_records_we_seal_and_record";

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
    let status = Command::new(env!("CARGO_BIN_EXE_differential")).arg("--guard").arg("--tools").arg(tools).status()?;
    ensure!(status.success(), "something differs");
    Ok(())
}
