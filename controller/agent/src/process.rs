//! The redis-server process: started, reaped, and found again by a later agent. I/O.
//!
//! The agent is PID 1 of its container, so it reaps everything. In a container the kernel ends redis-server together with
//! its PID 1; under the standalone node (or any shared process space) an agent that is killed leaves redis-server running.
//! Nothing then supervises it, so its pid, start time and boot are recorded, and the next agent takes it down in order
//! before it starts its own. A pid alone proves nothing: it may have been given to somebody else.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use serde::{Deserialize, Serialize};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, sleep},
};

/// File in the run directory that names the running redis-server.
const RECORD_FILE: &str = "redis-server.json";
/// How often a process that is not our child is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What could not be done with the process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be started.
    #[error("start {program}: {source}")]
    Spawn {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Signals cannot be listened to.
    #[error("listen to signals: {0}")]
    Signals(io::Error),
    /// The record cannot be read or written.
    #[error("record of redis-server {path}: {source}")]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// /proc does not tell about a process that was just started.
    #[error("redis-server (pid {0}) ended at once")]
    Vanished(i32),
}

/// A process that cannot be confused with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pid: i32,
    /// In clock ticks since boot.
    started: u64,
    boot: String,
}

impl Record {
    /// The record of a living process.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = read_stat(&stat)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        (state != 'Z').then_some(Self { pid, started, boot })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Whether it writes a snapshot itself, as for `SAVE`: to a file that has its number in its name. A child of it has another one.
    #[must_use]
    pub fn saves_in(&self, dir: &Path) -> bool {
        dir.join(format!("temp-{}.rdb", self.pid)).exists()
    }

    /// Sends a signal, if this very process still runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive())
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::warn!(pid = self.pid, %error, "a signal could not be sent to redis-server");
        }
    }

    /// The processor time it has used, in clock ticks, and whether it waits for a disk just now.
    fn work(&self) -> Option<Work> {
        Work::read(&fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?)
    }

    /// Whether it waits for a disk just now: no signal ends it before that answers.
    #[must_use]
    pub fn waits_for_a_disk(&self) -> bool {
        self.work().is_some_and(|work| work.on_disk)
    }

    /// Waits until the process is gone; `false` if it is still there at `until`, or has shown no work for `stall`: what saves a large data
    /// set computes or waits for its disk, what hangs does neither.
    pub async fn gone_or_stuck(&self, until: Instant, stall: Duration) -> bool {
        let (mut last, mut worked) = (self.work(), Instant::now());
        while self.is_alive() {
            let now = Instant::now();
            let work = self.work();
            if work != last || work.as_ref().is_some_and(|work| work.on_disk) {
                (last, worked) = (work, now);
            }
            if now >= until || now.duration_since(worked) >= stall {
                return false;
            }
            sleep(LOOK_AGAIN).await;
        }
        true
    }

    /// Waits until the process is gone; `false` if it is still there after `limit`.
    pub async fn gone_within(&self, limit: Duration) -> bool {
        let began = Instant::now();
        while self.is_alive() {
            if began.elapsed() >= limit {
                return false;
            }
            sleep(LOOK_AGAIN).await;
        }
        true
    }
}

/// State and start time from `/proc/<pid>/stat`, whose second field may hold spaces and parentheses.
fn read_stat(stat: &str) -> Option<(char, u64)> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Start time is the 22nd field; the state is the 3rd and was just taken.
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// What a process has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Work {
    ticks: u64,
    on_disk: bool,
}

impl Work {
    /// From `/proc/<pid>/stat`: its state is the 3rd field, the time in user and in kernel mode the 14th and 15th (proc(5)).
    fn read(stat: &str) -> Option<Self> {
        let (_, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_ascii_whitespace();
        let on_disk = fields.next()? == "D";
        let (user, kernel): (u64, u64) = (fields.nth(10)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { ticks: user.saturating_add(kernel), on_disk })
    }
}

/// How redis-server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A running redis-server that is our child.
#[derive(Debug)]
pub struct Running {
    /// Who it is.
    pub record: Record,
    /// How it ended, once it has.
    pub exit: watch::Receiver<Option<Exit>>,
}

/// Starts redis-server with a configuration file and reaps it, and every orphan it leaves.
///
/// # Errors
/// When it cannot be started or ends before it can be recorded.
pub fn spawn(program: &Path, conf: &Path, run_dir: &Path) -> Result<Running, Error> {
    let mut children = signal(SignalKind::child()).map_err(Error::Signals)?;
    // A saving child of a redis-server that died becomes ours, also when we are not PID 1. Where the kernel says no, the
    // real PID 1 gets it.
    if let Err(error) = set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::debug!(%error, "not a subreaper");
    }
    #[allow(clippy::zombie_processes)] // It is reaped below, together with every other child.
    let child = Command::new(program)
        .arg(conf)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|source| Error::Spawn { program: program.to_owned(), source })?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let record = Record::of(pid).ok_or(Error::Vanished(pid))?;
    write_record(run_dir, &record)?;
    let (ended, exit) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            while let Ok(Some((of, status))) = wait(WaitOptions::NOHANG) {
                if of.as_raw_nonzero().get() == pid {
                    let code = status.exit_status().map(Exit::Code);
                    ended.send_replace(code.or_else(|| status.terminating_signal().map(Exit::Signal)));
                }
            }
            if children.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(Running { record, exit })
}

pub(crate) fn write_record(run_dir: &Path, record: &Record) -> Result<(), Error> {
    let path = run_dir.join(RECORD_FILE);
    let failed = |source| Error::Record { path: path.clone(), source };
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    certs::write_private(&path, &text).map_err(|error| failed(io::Error::other(error)))
}

/// The redis-server that an earlier agent left running, if any.
///
/// # Errors
/// When the record is there and cannot be read.
pub fn left_running(run_dir: &Path) -> Result<Option<Record>, Error> {
    let path = run_dir.join(RECORD_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Record { path, source }),
    };
    // A record that is not legible was cut by the crash of an agent that had not yet started anything worth keeping.
    Ok(serde_json::from_slice(&text).ok().filter(Record::is_alive))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_pid() {
        let own = i32::try_from(std::process::id()).unwrap();
        let record = Record::of(own).unwrap();
        assert!(record.is_alive());
        assert!(!Record { started: record.started + 1, ..record.clone() }.is_alive());
        assert!(!Record { boot: "another".into(), ..record }.is_alive());
        assert_eq!(Record::of(0), None);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("7 (redis) x ) S {}", fields.join(" "));
        assert_eq!(read_stat(&stat), Some(('S', 22)));
    }

    #[test]
    fn work_is_time_on_a_processor_or_on_a_disk() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let of = |state: &str| Work::read(&format!("7 (redis) x ) {state} {}", fields.join(" ")));
        assert_eq!(of("S"), Some(Work { ticks: 14 + 15, on_disk: false }));
        assert_eq!(of("D"), Some(Work { ticks: 14 + 15, on_disk: true }));
        assert_eq!(Work::read("7 (redis) S 1"), None);
    }

    #[test]
    fn a_record_survives_and_an_unreadable_one_means_nobody() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(left_running(dir.path()).unwrap(), None);
        let record = Record::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        write_record(dir.path(), &record).unwrap();
        assert_eq!(left_running(dir.path()).unwrap(), Some(record));
        fs::write(dir.path().join(RECORD_FILE), "{").unwrap();
        assert_eq!(left_running(dir.path()).unwrap(), None);
    }
}
