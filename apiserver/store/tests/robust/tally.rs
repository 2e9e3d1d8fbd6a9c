//! What the campaigns count: faults injected, writes acknowledged. Shared by every test that injects faults.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Write as _;

/// How much longer the campaigns are than in everyday tests: `make soak` sets it.
pub(crate) fn soak() -> usize {
    std::env::var("KUN_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The file `make soak` adds the campaigns up from.
const FILE: &str = "KUN_TALLY";

/// One campaign. It reports when it is dropped, whether it went well or not.
pub(crate) struct Tally {
    campaign: &'static str,
    pub(crate) faults: usize,
    pub(crate) acknowledged: usize,
    pub(crate) lost: usize,
}

impl Tally {
    pub(crate) fn of(campaign: &'static str) -> Tally {
        Tally { campaign, faults: 0, acknowledged: 0, lost: 0 }
    }

    /// One more fault, and what was acknowledged up to it.
    pub(crate) fn fault(&mut self, acknowledged: usize) {
        self.faults += 1;
        self.acknowledged += acknowledged;
    }

    /// Ends the test when the fault did harm.
    pub(crate) fn judge(&mut self, outcome: Result<(), String>) {
        if let Err(harm) = outcome {
            self.lost += 1;
            panic!("{}, fault {}: {harm}", self.campaign, self.faults);
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let Tally { campaign, faults, acknowledged, lost } = self;
        let failed = if std::thread::panicking() { ", FAILED" } else { "" };
        // Not by a macro: those are swallowed in a test that passes.
        let line = format!(
            "robustness: {campaign}: {faults} faults, {acknowledged} writes acknowledged, {lost} lost{failed}\n"
        );
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
        if let Some(path) = std::env::var_os(FILE) {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let line = format!("{faults} {acknowledged} {lost} {campaign}\n");
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}

/// xorshift64: a step of seeded randomness. Never zero.
pub(crate) fn next_random(mut seed: u64) -> u64 {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^ (seed << 17)
}
