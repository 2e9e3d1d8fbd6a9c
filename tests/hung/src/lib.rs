//! After how long a test says that something hangs. It is the only thing a test may say about time; how fast something is, is
//! measured by `make bench`.
//!
//! There is one limit for each kind of wait, at least ten times what it takes on a quiet machine. On a slower machine every limit is
//! stretched by the same factor, which is measured once: by `make test` for all its suites (`KUN_STRETCH`), or else by the process
//! itself when it asks for the first time.
//!
//! Here is also what else all tests take from the machine they run on: whether it is CI's ([`in_ci`]), and whether it has room for the
//! servers of another test ([`wait_for_room`]).

mod room;

use std::{
    env,
    ffi::OsStr,
    fs,
    hint::black_box,
    io::Write as _,
    num::NonZero,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

pub use room::wait_for_room;

/// Holds the factor for all processes of a run.
pub const VARIABLE: &str = "KUN_STRETCH";

/// Set by CI. There nobody reads that something was skipped, or took too long: it is a failure.
const CI: &str = "CI";

/// Whether this is a run of CI. One that sets the variable to nothing says that it is none.
#[must_use]
pub fn in_ci() -> bool {
    says_ci(env::var_os(CI).as_deref())
}

fn says_ci(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

/// One answer of a server that runs: a request, a Redis command, an event of a watch. Takes milliseconds.
#[must_use]
pub fn answer() -> Duration {
    stretched(20)
}

/// A process starts, or ends when it is told to. Takes up to a few seconds.
#[must_use]
pub fn process() -> Duration {
    stretched(60)
}

/// A Redis cluster becomes what its object says: it is formed, scaled, restarted, or heals. Takes up to a minute.
#[must_use]
pub fn change() -> Duration {
    stretched(600)
}

/// A Kubernetes cluster starts, or one of its nodes comes back. Takes up to a minute.
#[must_use]
pub fn machine() -> Duration {
    stretched(600)
}

/// After so many seconds, on a quiet machine, the nodes of a Redis cluster give each other up (`cluster-node-timeout`). Where that is less
/// than the machine stands still, they replace each other without any fault of ours, and lose what a replica had not heard.
#[must_use]
pub fn node_timeout(seconds: u64) -> Duration {
    stretched(seconds).min(LONGEST_NODE_TIMEOUT)
}

/// Longer than any machine of tests stands still. Less than the minute after which the kubelet ends a pod whose Redis is stopped: it would be back
/// before the others give it up. And a shard rests for four times as long between two elections, within [`change`].
const LONGEST_NODE_TIMEOUT: Duration = Duration::from_secs(30);

fn stretched(seconds: u64) -> Duration {
    Duration::from_secs(seconds) * stretch()
}

/// The factor of this run.
#[must_use]
pub fn stretch() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        let given = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        given.map_or_else(measure, |factor: u32| factor.clamp(1, MOST))
    })
}

/// By how much more time what a crash may have cost is let pass. A slower machine makes tests wait for longer, and excuses no more: that is bounded by what
/// the product promises, and not by the machine.
#[must_use]
pub fn excused() -> u32 {
    stretch().min(EXCUSED)
}

/// No machine on which tests make sense is slower than that by itself; `tests/noise` asks for it.
pub const MOST: u32 = 8;
/// As much as the machine that stands still on purpose (`tests/noise`).
const EXCUSED: u32 = 4;
/// How often each sample is repeated, and what one takes on the machine that the limits were chosen on, with some other load.
const SAMPLES: u32 = 10;
const USUAL: Duration = Duration::from_millis(8);
const USUAL_SUM: Duration = Duration::from_micros(2500);
/// So many numbers are added up by each processor.
const NUMBERS: u64 = 200_000;

/// Starts a process and syncs a file, some times: what tests wait for most. The slower of two places counts: where tests keep their
/// files, which may be in memory, and where this process was started, as clusters with nodes live on the disk. And computes on all processors at
/// once, which is what a machine does not do as usual whose processors others use as well.
#[must_use]
pub fn measure() -> u32 {
    let folders = [env::temp_dir(), env::current_dir().unwrap_or_else(|_| env::temp_dir())];
    folders.iter().map(|folder| measure_in(folder)).max().unwrap_or(1).max(measure_processors())
}

fn measure_in(folder: &Path) -> u32 {
    let begin = Instant::now();
    for _ in 0..SAMPLES {
        sample(folder);
    }
    factor(begin.elapsed(), USUAL)
}

fn measure_processors() -> u32 {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                for _ in 0..SAMPLES {
                    black_box(sum());
                }
            });
        }
    });
    factor(begin.elapsed(), USUAL_SUM)
}

fn sum() -> u64 {
    let mut sum: u64 = 0;
    for number in 0..black_box(NUMBERS) {
        sum = black_box(sum.wrapping_add(number.wrapping_mul(number)));
    }
    sum
}

/// What cannot be done here takes no time, and stretches nothing.
fn sample(folder: &Path) {
    Command::new("true").stdin(Stdio::null()).status().ok();
    let path = folder.join(format!("kun-stretch-{}", std::process::id()));
    if let Ok(mut file) = fs::File::create(&path) {
        file.write_all(&[0; 4096]).and_then(|()| file.sync_all()).ok();
        fs::remove_file(&path).ok();
    }
}

fn factor(took: Duration, usual: Duration) -> u32 {
    let usual = (usual * SAMPLES).as_millis().max(1);
    u32::try_from(took.as_millis().div_ceil(usual)).unwrap_or(MOST).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_empty_does_not_say_ci() {
        let said = [None, Some(""), Some("true"), Some("1")].map(|value| says_ci(value.map(OsStr::new)));
        assert_eq!(said, [false, false, true, true]);
    }

    #[test]
    fn a_slow_machine_stretches_every_limit_and_a_fast_one_shortens_none() {
        let at = |millis| factor(Duration::from_millis(millis), USUAL);
        assert_eq!([at(0), at(5), at(80), at(81), at(300), at(1_000_000)], [1, 1, 1, 2, 4, MOST]);
        assert!((1..=MOST).contains(&measure()));
        assert_eq!(process(), 3 * answer());
        let longest = LONGEST_NODE_TIMEOUT;
        assert_eq!([node_timeout(5), node_timeout(500)], [longest.min(answer() / 4), longest]);
    }
}
