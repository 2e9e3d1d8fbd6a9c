//! `make demo`: tells the story on the terminal, with what each step took.
#![allow(clippy::print_stdout, reason = "the terminal is what the demo is for")]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use tests::story::{self, Listener};

struct Terminal {
    step: usize,
}

impl Listener for Terminal {
    fn begin(&mut self, step: &str) {
        self.step += 1;
        println!("\n{:>2}. {step}", self.step);
    }

    fn show(&mut self, text: &str) {
        for line in text.lines() {
            println!("      {line}");
        }
    }

    fn end(&mut self, took: Duration) {
        println!("    done in {:.2} s", took.as_secs_f64());
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let begin = Instant::now();
    match story::run(&mut Terminal { step: 0 }).await {
        Ok(outcome) => {
            println!(
                "\nAll of it held: {} acknowledged writes, none lost ({} by the crash itself), in {:.0} s.",
                outcome.verdict.acked,
                outcome.lost_by_crash,
                begin.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("\nIt did not hold: {error:#}");
            ExitCode::FAILURE
        }
    }
}
