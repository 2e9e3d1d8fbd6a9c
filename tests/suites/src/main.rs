//! Runs every test program that is built, as many side by side as the machine has processors, and says where the time went.
//!
//! Usage: `suites BUILD PHASES [WORD...]`. BUILD is what `cargo test --no-run --message-format=json` printed; PHASES has a line
//! `name seconds` for each thing that was done before. With words only the suites run whose names contain one of them.
//! The output of a suite is in `target/test/SUITE.log`; `target/test/times.json` holds what the table at the end shows.

mod budget;
mod discover;
mod interrupt;
mod mark;
mod outcome;
mod processes;
mod report;
mod run;

use std::{
    env,
    fs::{self, File, TryLockError},
    io::ErrorKind,
    net::TcpListener,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{budget::Budget, interrupt::Interrupts, mark::Mark, report::Report};

/// Held by who runs tests. No test has an address of this network.
const ALONE: &str = "127.83.255.254:8484";
/// Who runs tests is alone for as long as it takes; nothing that is not forgotten takes a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Another address to hold, for a run inside of a test: it would wait for the run that the test belongs to.
const OTHER: &str = "KUN_ALONE";

fn main() -> ExitCode {
    all().unwrap_or_else(|error| {
        report::say(&format!("suites: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Success if every test of every suite that was asked for has passed; 128 and its number if a signal ended the run.
fn all() -> Result<ExitCode> {
    let mut arguments = env::args().skip(1);
    let mut path = |what| arguments.next().with_context(|| format!("usage: suites BUILD PHASES [WORD...]: {what}"));
    let (built, phases) = (path("BUILD")?, path("PHASES")?);
    let words: Vec<String> = arguments.collect();

    let budget = Budget::read(&fs::read_to_string("tests/budget.toml").context("tests/budget.toml")?)?;
    let suites = discover::suites(&fs::read_to_string(&built).with_context(|| built.clone())?)?;
    let suites = discover::wanted(suites, &words)?;
    budget.misses_none(&suites, &words)?;
    // An error after the tests would hide what they said.
    let phases = phases_of(&phases)?;

    let place = env::var(OTHER).unwrap_or_else(|_| ALONE.to_owned());
    let _alone = alone(&place)?;
    let mark = Mark::own(&place);
    if let Some(mark) = &mark {
        end_left_behind(mark);
    }
    let folder = Path::new("target/test");
    fs::create_dir_all(folder)?;
    let _alone_here = alone_in(folder)?;
    let times = folder.join("times.json");
    fs::remove_file(&times).ok();
    let mut interrupts = Interrupts::listen()?;
    let begin = Instant::now();
    let mut ended = Vec::new();
    let place = run::Place { folder, mark: mark.as_ref() };
    let interrupted = run::side_by_side(&suites, &budget, place, &mut interrupts, |suite| {
        report::one(&suite);
        ended.push(suite);
    })?;
    let report = Report::new(phases, ended, &budget, begin.elapsed());
    if let Err(error) = fs::write(&times, serde_json::to_string_pretty(&report)?) {
        report::say(&format!("{}: {error}", times.display()));
    }
    report.show(interrupted.as_ref());
    Ok(match interrupted {
        Some(interrupted) => ExitCode::from(interrupted.by.code()),
        None if report.is_well(hung::in_ci()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// Tests have fixed addresses on loopback, so two runs in one network namespace are in each other's way: the later one waits.
fn alone(address: &str) -> Result<Option<TcpListener>> {
    wait("on this machine", || match TcpListener::bind(address) {
        Ok(held) => Some(Some(held)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        // No such address here: nobody else has it either.
        Err(_) => Some(None),
    })
}

/// The logs of a checkout are one run's, also where each run has a network of its own. What a run has started does not hold the lock.
fn alone_in(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let lock = File::create(&path).with_context(|| path.display().to_string())?;
    wait("in this checkout", || match lock.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        // Where there are no locks, nobody waits.
        Ok(()) | Err(TryLockError::Error(_)) => Some(()),
    })?;
    Ok(lock)
}

/// Until nobody else holds it.
fn wait<T>(place: &str, mut held: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    let mut is_told = false;
    loop {
        if let Some(held) = held() {
            return Ok(held);
        }
        anyhow::ensure!(begin.elapsed() < LONGEST, "another `make test` runs {place}, and does not end");
        if !is_told {
            report::say(&format!("another `make test` runs {place}: this one waits until it has ended"));
            is_told = true;
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// A runner that was killed ended nothing: its suites and their servers are at the addresses of the tests still.
fn end_left_behind(own: &Mark) {
    let (found, left) = interrupt::end_left_behind(own);
    if found > 0 {
        let still = if left > 0 { format!("; {left} of them do not end") } else { String::new() };
        report::say(&format!("a run before this one was killed: {found} processes that it left are ended{still}"));
    }
}

/// What was done before, and how many seconds each took.
fn phases_of(path: &str) -> Result<Vec<(String, f64)>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (name, seconds) = line.rsplit_once(' ').context("a phase is `name seconds`")?;
        Ok((name.to_owned(), seconds.parse()?))
    };
    text.lines().map(line).collect()
}
