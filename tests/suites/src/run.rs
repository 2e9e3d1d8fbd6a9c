//! Starts suites, the longest first, as soon as there is a place for them, and tells how each ended.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    num::NonZero,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    budget::{Budget, Expected},
    discover::Suite,
    interrupt::{self, Interrupt, Interrupts},
    mark::{self, Mark},
    outcome::Outcome,
    processes,
};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(50);
/// A log is read into memory, and the disk is everybody's. A suite prints a few MiB where much fails.
const LOG: u64 = 256 << 20;
/// No longer are limits made: with it an hour is six weeks.
const MOST_SOAK: u32 = 1000;

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
    expected: Expected,
    /// How long its log is, and since when.
    log: (u64, Instant),
    limit: Limit,
    /// When and why it was ended by the runner.
    forced: Option<(Instant, String)>,
}

/// From when on a suite hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    /// Its log stays as it is for longer.
    silent: Duration,
    /// It takes longer, whatever it prints.
    whole: Duration,
}

/// A run that was ended before its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interrupted {
    pub(crate) by: Interrupt,
    /// Names of suites.
    pub(crate) running: Vec<String>,
    pub(crate) waiting: Vec<String>,
    /// Processes that even force did not end.
    pub(crate) processes: usize,
}

/// Where suites run.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Of their logs.
    pub(crate) folder: &'a Path,
    pub(crate) mark: Option<&'a Mark>,
}

/// Runs all of them; `tell` hears of each as it ends.
pub(crate) fn side_by_side(
    suites: &[Suite],
    budget: &Budget,
    place: Place<'_>,
    interrupts: &mut Interrupts,
    mut tell: impl FnMut(Ended),
) -> Result<Option<Interrupted>> {
    let folder = place.folder;
    let mut left: Vec<&Suite> = suites.iter().collect();
    // From the end: first what waits, then what takes longest; by name where that is the same.
    left.sort_by_key(|suite| (budget.of(&suite.name).waits, budget.of(&suite.name).seconds));
    let mut running: Vec<Running> = Vec::new();
    while !left.is_empty() || !running.is_empty() {
        let expected: Vec<Expected> = left.iter().map(|suite| budget.of(&suite.name)).collect();
        let run: Vec<Expected> = running.iter().map(|running| running.expected).collect();
        if let Some(next) = next(&expected, &run, processors()) {
            let suite = left.remove(next);
            match start(suite, budget.of(&suite.name), place) {
                Ok(begun) => running.push(begun),
                Err(error) => tell(not_started(suite, &error)),
            }
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
        if let Some(by) = interrupts.within(LOOK) {
            let waiting = left.iter().rev().map(|suite| suite.name.clone()).collect();
            return Ok(Some(interrupted(by, running, waiting, folder, tell)));
        }
    }
    Ok(None)
}

/// Which one may begin beside those that run, from the end: two that crowd the machine do not run side by side, for each would wait for the other's
/// servers for longer than it takes by itself.
fn next(left: &[Expected], running: &[Expected], processors: usize) -> Option<usize> {
    let busy = running.iter().filter(|one| !one.waits).count();
    let is_crowded = running.iter().any(|one| one.crowds);
    left.iter().rposition(|one| (one.waits || busy < processors) && !(one.crowds && is_crowded))
}

/// Ends what runs, and tells how far it came.
fn interrupted(
    by: Interrupt,
    running: Vec<Running>,
    waiting: Vec<String>,
    folder: &Path,
    mut tell: impl FnMut(Ended),
) -> Interrupted {
    let names = running.iter().map(|one| one.name.clone()).collect();
    let processes = interrupt::end_all(&running.iter().map(|one| id(&one.child)).collect::<Vec<_>>());
    for mut one in running {
        let why = format!("interrupted by {} after {} s", by.name, one.since.elapsed().as_secs());
        one.forced.get_or_insert((Instant::now(), why));
        let before = waited_for();
        let status = one.child.try_wait().ok().flatten();
        tell(conclude(&one, status, waited_for() - before, folder));
    }
    Interrupted { by, running: names, waiting, processes }
}

fn not_started(suite: &Suite, error: &anyhow::Error) -> Ended {
    let trouble = format!("it cannot be started: {error:#}");
    let (outcome, printed) = (Outcome::default(), trouble.clone());
    Ended { name: suite.name.clone(), outcome, took: Duration::ZERO, cpu: 0.0, trouble: Some(trouble), printed }
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap_or_default()
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn start(suite: &Suite, expected: Expected, place: Place<'_>) -> Result<Running> {
    let log = place.folder.join(&suite.name).with_extension("log");
    // Who is left of another run, and has the old file open, writes into that one.
    fs::remove_file(&log).ok();
    let log = File::create(log)?;
    let mut command = Command::new(&suite.program);
    command
        .current_dir(&suite.folder)
        // The harness tells how long each test took only to who may use what is not stable.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Zunstable-options", "--report-time"])
        .env(hung::VARIABLE, hung::stretch().to_string())
        .envs(place.mark.map(|mark| (mark::VARIABLE, mark.text())))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // All that it starts is ended with it where it hangs or the run is interrupted; a terminal's Ctrl-C is for the runner alone.
        .process_group(0);
    if let Some(threads) = expected.threads {
        command.arg(format!("--test-threads={}", at_once(threads, hung::stretch())));
    }
    let child = command.spawn().with_context(|| format!("start {}", suite.program.display()))?;
    let now = Instant::now();
    let (name, limit) = (suite.name.clone(), limit(expected, soak()));
    Ok(Running { name, child, since: now, expected, log: (0, now), limit, forced: None })
}

/// On a slow machine fewer tests at once: what each of their systems does again and again, whether or not a test waits for it, takes all that such a
/// machine can do, and then each waits for seconds (a load of 40, and a fifth of the tests in the same time).
fn at_once(threads: u32, stretch: u32) -> u32 {
    threads.div_ceil(stretch.max(1))
}

/// A suite tells of each test that has ended. The longest test takes up to three minutes, and ten times that is no failure of KUN, as is ten
/// times what the suite usually takes; the campaigns of a soak take as many times as long.
fn limit(expected: Expected, soak: u32) -> Limit {
    let silent = 3 * hung::machine() * soak;
    let whole = Duration::from_secs(expected.seconds.into()) * 10 * hung::stretch() * soak;
    Limit { silent, whole: whole.max(silent) }
}

/// By how much `make soak` lengthens the campaigns; 1 in everyday runs.
pub(crate) fn soak() -> u32 {
    factor(std::env::var("KUN_SOAK").ok().as_deref())
}

fn factor(given: Option<&str>) -> u32 {
    given.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, MOST_SOAK)
}

/// What there is to say of a suite, if it has ended.
fn end(running: &mut Running, folder: &Path) -> Result<Option<Ended>> {
    let log = folder.join(&running.name).with_extension("log");
    let printed = fs::metadata(&log).map_or(0, |log| log.len());
    if printed != running.log.0 {
        running.log = (printed, Instant::now());
    }
    if running.forced.is_none()
        && let Some(why) = endless(running.log.1.elapsed(), running.since.elapsed(), running.limit, printed)
    {
        running.forced = Some((Instant::now(), force(running, &why)));
    }
    let before = waited_for();
    let status = running.child.try_wait()?;
    // A process in the middle of a call that the kernel does not finish outlives even force; the others do not wait for it.
    let is_lost = running.forced.as_ref().is_some_and(|(since, _)| since.elapsed() > hung::process());
    Ok((status.is_some() || is_lost).then(|| conclude(running, status, waited_for() - before, folder)))
}

/// Why it would not come to an end by itself.
fn endless(silent: Duration, whole: Duration, limit: Limit, printed: u64) -> Option<String> {
    let (silence, most) = (limit.silent.as_secs(), limit.whole.as_secs());
    let hangs = (silent > limit.silent).then(|| format!("it hangs: ended by force after {silence} s without a word"));
    let lasts = (whole > limit.whole).then(|| format!("it hangs: ended by force after {most} s"));
    let printed = (printed > LOG).then_some(printed >> 20);
    hangs.or(lasts).or(printed.map(|printed| format!("it prints without end: ended by force after {printed} MiB")))
}

/// Ends it with all that it started, and says what there is to say of it.
fn force(running: &Running, why: &str) -> String {
    let (all, id) = (processes::all(), id(&running.child));
    let of = processes::of(&all, &[id], &[id]);
    let used = processes::seconds(&of);
    interrupt::send(of.iter().map(|one| one.id), Signal::KILL);
    // And what was started since.
    kill_process_group(Pid::from_child(&running.child), Signal::KILL).ok();
    format!("{why}, in which its processes used {used:.1} s of processor time")
}

/// Its log says how it went; no status where it did not end.
fn conclude(running: &Running, status: Option<ExitStatus>, cpu: f64, folder: &Path) -> Ended {
    let log = read(&folder.join(&running.name).with_extension("log"));
    let mut printed = log.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let outcome = Outcome::read(&printed);
    let trouble = match (&running.forced, status, log) {
        (Some((_, why)), ..) => Some(format!("{why}, {}", outcome.far())),
        (None, _, Err(error)) => Some(format!("its log cannot be read: {error}")),
        (None, Some(status), Ok(_)) => outcome.trouble(status),
        (None, None, Ok(_)) => Some("nobody knows how it ended".to_owned()),
    };
    if let Some(trouble) = &trouble {
        printed.push_str(&format!("\n{trouble}\n"));
    }
    Ended { name: running.name.clone(), outcome, took: running.since.elapsed(), cpu, trouble, printed }
}

fn read(log: &Path) -> io::Result<Vec<u8>> {
    let mut printed = Vec::new();
    File::open(log)?.take(LOG).read_to_end(&mut printed)?;
    Ok(printed)
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

    const WAITS: Expected = Expected { seconds: 20, threads: None, waits: true, crowds: false };

    #[test]
    fn two_that_crowd_the_machine_do_not_run_side_by_side() {
        let works = Expected { waits: false, ..WAITS };
        let crowds = Expected { crowds: true, ..works };
        assert_eq!(next(&[works, crowds], &[], 2), Some(1));
        assert_eq!(next(&[works, crowds], &[crowds], 2), Some(0));
        assert_eq!(next(&[works, crowds], &[works], 2), Some(1));
        assert_eq!([next(&[crowds], &[crowds], 2), next(&[crowds, works], &[works, crowds], 2)], [None, None]);
        assert_eq!(next(&[WAITS, crowds], &[works, crowds], 2), Some(0));
    }

    #[test]
    fn a_slow_machine_runs_fewer_tests_at_once_but_one() {
        assert_eq!([(4, 1), (4, 2), (5, 2), (4, 8), (1, 4)].map(|(threads, by)| at_once(threads, by)), [4, 2, 3, 1, 1]);
    }

    #[test]
    fn a_suite_that_hangs_is_ended_and_said_to_hang() {
        let folder = std::env::temp_dir().join(format!("kun-suites-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.log"), "running 2 tests\ntest b ... ok <0.1s>\n").unwrap();
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let (since, hour) = (Instant::now(), Duration::from_secs(3600));
        let limit = Limit { silent: Duration::from_millis(50), whole: hour };
        let mut running =
            Running { name: "a".to_owned(), child, since, expected: WAITS, log: (0, since), limit, forced: None };
        let ended = loop {
            if let Some(ended) = end(&mut running, &folder).unwrap() {
                break ended;
            }
            thread::sleep(LOOK);
        };
        fs::remove_dir_all(&folder).unwrap();
        let told = "it hangs: ended by force after 0 s without a word, in which its processes used 0.0 s of processor time, \
                    after 1 of 2 tests";
        assert_eq!(ended.trouble.as_deref(), Some(told));
        assert!(!ended.passed() && ended.printed.ends_with(&format!("\n{told}\n")), "{}", ended.printed);
    }

    #[test]
    fn a_suite_that_is_silent_or_prints_too_much_is_endless() {
        let [minute, hour] = [60, 3600].map(Duration::from_secs);
        let limit = Limit { silent: minute, whole: hour };
        let endless =
            |silent, whole, printed| endless(Duration::from_secs(silent), Duration::from_secs(whole), limit, printed);
        assert_eq!(endless(60, 3600, LOG), None);
        assert_eq!(endless(61, 61, 0).as_deref(), Some("it hangs: ended by force after 60 s without a word"));
        // It says something again and again.
        assert_eq!(endless(1, 3601, 0).as_deref(), Some("it hangs: ended by force after 3600 s"));
        assert_eq!(endless(1, 1, LOG + 1).as_deref(), Some("it prints without end: ended by force after 256 MiB"));
    }

    /// On a machine of any speed it comes to its end, as long as it comes forward.
    #[test]
    fn a_suite_that_goes_on_is_not_ended_however_long_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let since = Instant::now();
        let silent = Duration::from_secs(3600);
        let limit = Limit { silent, whole: 10 * silent };
        let mut running =
            Running { name: "a".to_owned(), child, since, expected: WAITS, log: (0, since), limit, forced: None };
        for length in 1..4 {
            fs::write(&log, "x".repeat(length)).unwrap();
            // It was silent for an hour before.
            running.log.1 = since.checked_sub(2 * silent).unwrap();
            assert!(end(&mut running, folder.path()).unwrap().is_none() && running.forced.is_none(), "{length}");
        }
        running.log.1 = since.checked_sub(2 * silent).unwrap();
        let ended = (0..).find_map(|_| end(&mut running, folder.path()).unwrap()).unwrap();
        assert!(ended.trouble.unwrap().starts_with("it hangs: ended by force after 3600 s without a word"));
    }

    #[test]
    fn a_suite_of_a_soak_may_be_silent_as_many_times_as_long() {
        let expected = |seconds| Expected { seconds, ..WAITS };
        let of = |given: Option<&str>| limit(expected(1400), factor(given));
        let (machine, suite) = (3 * hung::machine(), Duration::from_secs(14_000) * hung::stretch());
        let times = |soak| Limit { silent: machine * soak, whole: suite * soak };
        assert_eq!(["1", "20", "0", "many"].map(|given| of(Some(given))), [1, 20, 1, 1].map(times));
        assert_eq!((of(None), of(Some("4000000000"))), (times(1), times(MOST_SOAK)));
        assert_eq!(limit(expected(1), 1), Limit { silent: machine, whole: machine });
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
