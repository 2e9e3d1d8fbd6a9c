//! The story of `make demo`, as a test.

use std::time::Duration;

use tests::story::{self, Listener};

/// Keeps what was said, so that a failure shows how far the story got.
struct Quiet;

impl Listener for Quiet {
    fn begin(&mut self, step: &str) {
        eprintln!("{step}");
    }
    fn show(&mut self, text: &str) {
        eprintln!("{text}");
    }
    fn end(&mut self, took: Duration) {
        eprintln!("done in {took:?}");
    }
}

/// Only here everything that a user does in the first hour is done in one go, by kubectl.
#[tokio::test]
async fn the_first_hour_with_kun_goes_well_and_loses_nothing() -> anyhow::Result<()> {
    let outcome = story::run(&mut Quiet).await?;
    assert!(outcome.verdict.acked > 1000, "the writer wrote too little to prove anything: {:?}", outcome.verdict);
    Ok(())
}
