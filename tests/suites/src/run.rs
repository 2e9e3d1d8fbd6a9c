//! Starts suites, the longest first, as soon as there is a place for them, and tells how each ended.

use std::{
    fs::{self, File},
    num::NonZero,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{
    budget::{Budget, Expected},
    discover::Suite,
    outcome::Outcome,
};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(50);

/// A suite that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// Seconds of processor time of its processes that it waited for.
    pub(crate) cpu: f64,
    /// What went wrong beside the tests that failed.
    pub(crate) trouble: Option<String>,
    pub(crate) printed: String,
}

impl Ended {
    pub(crate) fn passed(&self) -> bool {
        self.trouble.is_none() && self.outcome.failed().next().is_none()
    }
}

struct Running {
    name: String,
    child: Child,
    since: Instant,
    waits: bool,
    /// It hangs if it takes longer.
    limit: Duration,
    hung: bool,
}

/// Runs all of them; `tell` hears of each as it ends.
pub(crate) fn side_by_side(
    suites: &[Suite],
    budget: &Budget,
    folder: &Path,
    mut tell: impl FnMut(Ended),
) -> Result<()> {
    let mut left: Vec<&Suite> = suites.iter().collect();
    // From the end: first what waits, then what takes longest; by name where that is the same.
    left.sort_by_key(|suite| (budget.of(&suite.name).waits, budget.of(&suite.name).seconds));
    let mut running: Vec<Running> = Vec::new();
    while !left.is_empty() || !running.is_empty() {
        let busy = running.iter().filter(|running| !running.waits).count();
        let next = left.last().map(|suite| budget.of(&suite.name));
        if let Some(expected) = next.filter(|next| next.waits || busy < processors())
            && let Some(suite) = left.pop()
        {
            running.push(start(suite, expected, folder)?);
            continue;
        }
        let mut index = 0;
        while let Some(one) = running.get_mut(index) {
            match end(one, folder)? {
                Some(ended) => {
                    tell(ended);
                    running.swap_remove(index);
                }
                None => index += 1,
            }
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn start(suite: &Suite, expected: Expected, folder: &Path) -> Result<Running> {
    let log = File::create(folder.join(&suite.name).with_extension("log"))?;
    let mut command = Command::new(&suite.program);
    command
        .current_dir(&suite.folder)
        // The harness tells how long each test took only to who may use what is not stable.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Zunstable-options", "--report-time"])
        .env(hung::VARIABLE, hung::stretch().to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if let Some(threads) = expected.threads {
        command.arg(format!("--test-threads={threads}"));
    }
    let child = command.spawn().with_context(|| format!("start {}", suite.program.display()))?;
    let limit = limit(expected);
    Ok(Running { name: suite.name.clone(), child, since: Instant::now(), waits: expected.waits, limit, hung: false })
}

/// Twice what it may take, and the longest wait of one test.
fn limit(expected: Expected) -> Duration {
    Duration::from_secs(expected.seconds.into()) * 2 * hung::stretch() + hung::machine()
}

/// What there is to say of a suite that has ended.
fn end(running: &mut Running, folder: &Path) -> Result<Option<Ended>> {
    if running.since.elapsed() > running.limit && !running.hung {
        running.hung = true;
        running.child.kill()?;
    }
    let before = waited_for();
    let Some(status) = running.child.try_wait()? else { return Ok(None) };
    let cpu = waited_for() - before;
    let log = folder.join(&running.name).with_extension("log");
    let mut printed = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let outcome = Outcome::read(&printed);
    let hangs = || format!("ended by force after {} s, {}: it hangs", running.limit.as_secs(), outcome.far());
    let trouble = if running.hung { Some(hangs()) } else { outcome.trouble(status) };
    if let Some(trouble) = &trouble {
        printed.push_str(&format!("\n{trouble}\n"));
    }
    Ok(Some(Ended { name: running.name.clone(), outcome, took: running.since.elapsed(), cpu, trouble, printed }))
}

/// Seconds of processor time of all processes that this one has waited for so far (`cutime` and `cstime` of proc(5)).
fn waited_for() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "ticks of a second are few")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks(13) + ticks(14)) / per_second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_hangs_is_ended_and_said_to_hang() {
        let folder = std::env::temp_dir().join(format!("kun-suites-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.log"), "running 2 tests\ntest b ... ok <0.1s>\n").unwrap();
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (since, limit) = (Instant::now(), Duration::from_millis(50));
        let mut running = Running { name: "a".to_owned(), child, since, waits: true, limit, hung: false };
        let ended = loop {
            if let Some(ended) = end(&mut running, &folder).unwrap() {
                break ended;
            }
            thread::sleep(LOOK);
        };
        fs::remove_dir_all(&folder).unwrap();
        let told = "ended by force after 0 s, after 1 of 2 tests: it hangs";
        assert_eq!(ended.trouble.as_deref(), Some(told));
        assert!(!ended.passed() && ended.printed.ends_with(&format!("\n{told}\n")), "{}", ended.printed);
    }

    #[test]
    fn the_time_of_a_process_counts_once_it_was_waited_for() {
        let mut child =
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).spawn().unwrap();
        let before = waited_for();
        child.wait().unwrap();
        assert!(waited_for() > before);
    }
}
