//! Processes: starting one so that it is never unknown, waiting for it, signalling it by pidfd, finding what is left of
//! its session, and recognising it again after the node was restarted. It must not know pods or the API.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::process::{Child, Command as Spawn};

use super::record::ProcessId;
use crate::launch;

/// Pause between two looks for what is left of a session that was killed.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
/// A log longer than this is moved aside; together with the one before it bounds a pod's log.
pub const LOG_MAX: u64 = 16 << 20;

/// A failure to start or signal a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log file.
    #[error("opening the log {path}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The launcher.
    #[error("starting {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The process ended before it could be recognised.
    #[error("the process ended at once")]
    Gone,
    /// Giving the word.
    #[error("telling the process to go on")]
    Word(#[source] std::io::Error),
    /// Watching.
    #[error("watching process {pid}")]
    Watch {
        /// Its id.
        pid: i32,
        /// Why.
        source: std::io::Error,
    },
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// Our own executable, which provides `launch`.
    pub launcher: &'a Path,
    /// Program: a path, or a name to be looked up on the environment's PATH.
    pub program: &'a str,
    /// Arguments.
    pub args: &'a [String],
    /// The whole environment.
    pub env: &'a BTreeMap<String, String>,
    /// Working directory.
    pub work: &'a Path,
    /// Where standard output and error go.
    pub log: &'a Path,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody could see how: it was not our child.
    Unseen,
}

/// A process of ours that runs or has not been seen to end.
#[derive(Debug)]
pub struct Process {
    /// Who it is.
    pub id: ProcessId,
    fd: AsyncFd<OwnedFd>,
    child: Option<Child>,
}

/// A process that waits for the word to become its program.
#[derive(Debug)]
pub struct Held(Process);

/// Starts a process that waits for the word.
pub fn spawn(start: &Start<'_>) -> Result<Held, Error> {
    let log_error = |source| Error::Log { path: start.log.to_path_buf(), source };
    rotate(start.log).map_err(log_error)?;
    let log = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(start.log).map_err(log_error)?;
    let other = log.try_clone().map_err(log_error)?;
    let child = Spawn::new(start.launcher)
        .arg(launch::SUBCOMMAND)
        .arg(start.program)
        .args(start.args)
        .env_clear()
        .envs(start.env)
        .current_dir(start.work)
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(other)
        .spawn()
        .map_err(|source| Error::Spawn { program: start.program.to_owned(), source })?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or(Error::Gone)?;
    let id = identify(pid).ok_or(Error::Gone)?;
    let fd = watch(pid)?;
    Ok(Held(Process { id, fd, child: Some(child) }))
}

impl Held {
    /// Who waits: to be recorded before the word is given.
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.0.id
    }

    /// Gives the word.
    pub async fn release(mut self) -> Result<Process, Error> {
        let stdin = self.0.child.as_mut().and_then(|child| child.stdin.take()).ok_or(Error::Gone)?;
        let mut stdin = stdin;
        stdin.write_all(launch::WORD).await.map_err(Error::Word)?;
        stdin.shutdown().await.map_err(Error::Word)?;
        Ok(self.0)
    }
}

impl Process {
    /// Takes over a process that an earlier life of the node started; `None` if it has gone.
    pub fn adopt(id: &ProcessId) -> Result<Option<Self>, Error> {
        let lives = || look_for(id).map_err(|source| Error::Watch { pid: id.pid, source });
        if !lives()? {
            return Ok(None);
        }
        let fd = match watch(id.pid) {
            Ok(fd) => fd,
            Err(_) if !lives()? => return Ok(None),
            Err(error) => return Err(error),
        };
        // The pidfd may be that of a newcomer with the same pid; if the old one is still alive now, it is the old one's.
        Ok(lives()?.then(|| Self { id: id.clone(), fd, child: None }))
    }

    /// Waits for its end. Dropping the future loses nothing.
    pub async fn wait(&mut self) -> Ended {
        let Some(child) = &mut self.child else {
            // Readiness is a hint, and an error means that the descriptor is of no use any more: /proc has the word. What
            // cannot be looked at is taken to live on.
            loop {
                let _ = self.fd.readable().await;
                if matches!(look_for(&self.id), Ok(false)) {
                    return Ended::Unseen;
                }
                tokio::time::sleep(SWEEP_PAUSE).await;
            }
        };
        match child.wait().await {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Ended::Code(code),
                (None, Some(signal)) => Ended::Signal(signal),
                (None, None) => Ended::Unseen,
            },
            Err(_) => Ended::Unseen,
        }
    }

    /// SIGTERM to the process itself, as a container's PID 1 gets it.
    pub fn terminate(&self) {
        // A process that has gone needs no signal.
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::TERM);
    }

    /// SIGKILL to it and to all of its session.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(self.fd.get_ref(), Signal::KILL);
        kill_each(&session_members(self.id.pid));
    }
}

/// Kills what is left of a session whose leader has ended and returns when nothing is. This is what the end of PID 1
/// does to a container.
pub async fn sweep(session: i32) {
    loop {
        let left = session_members(session);
        if left.is_empty() {
            return;
        }
        kill_each(&left);
        tokio::time::sleep(SWEEP_PAUSE).await;
    }
}

/// The same for a session found in a record after a restart: only what shows that it is the pod's (its environment
/// carries `mark`, or it works under `root`), because the number may by now belong to strangers.
pub async fn sweep_recorded(id: &ProcessId, mark: &str, root: &Path) {
    if boot_id().ok().as_deref() != Some(id.boot_id.as_str()) {
        return;
    }
    loop {
        let left: Vec<i32> =
            session_members(id.pid).into_iter().filter(|pid| carries(*pid, mark) || works_under(*pid, root)).collect();
        if left.is_empty() {
            return;
        }
        kill_each(&left);
        tokio::time::sleep(SWEEP_PAUSE).await;
    }
}

fn carries(pid: i32, mark: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.split(|b| *b == 0).any(|word| word == mark.as_bytes()))
}

fn works_under(pid: i32, root: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(root))
}

fn kill_each(pids: &[i32]) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn watch(pid: i32) -> Result<AsyncFd<OwnedFd>, Error> {
    let failed = |source| Error::Watch { pid, source };
    let raw = Pid::from_raw(pid).ok_or(Error::Gone)?;
    let fd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
    // Deprecated because an arbitrary `AsRawFd` may change its descriptor; an `OwnedFd` cannot, and the replacement is
    // an unsafe function, which this workspace forbids.
    #[allow(deprecated)]
    AsyncFd::with_interest(fd, Interest::READABLE).map_err(failed)
}

/// What `/proc/<pid>/stat` says that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    session: i32,
    start_ticks: u64,
}

/// Reads the line; the command name in it may contain anything, so fields are counted after the last parenthesis.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let session = fields.nth(2)?.parse().ok()?;
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Stat { state, session, start_ticks })
}

/// What there is to know of a process; `None`: there is none. An error is not a "no": whoever cannot look (too many open
/// files) must not conclude that there is nothing.
fn stat(pid: i32) -> std::io::Result<Option<Stat>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(line) => Ok(parse_stat(&String::from_utf8_lossy(&line))),
        // The second: it ended between opening and reading the file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || is_no_process(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_no_process(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn is_dead(stat: Stat) -> bool {
    matches!(stat.state, b'Z' | b'X')
}

fn boot_id() -> std::io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn identify(pid: i32) -> Option<ProcessId> {
    let stat = stat(pid).ok()??;
    Some(ProcessId { pid, start_ticks: stat.start_ticks, boot_id: boot_id().ok()? })
}

/// Whether this very process is there and not merely its remains.
fn look_for(id: &ProcessId) -> std::io::Result<bool> {
    let is_it = |stat: Stat| stat.start_ticks == id.start_ticks && !is_dead(stat);
    Ok(boot_id()? == id.boot_id && stat(id.pid)?.is_some_and(is_it))
}

fn session_members(session: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| stat(*pid).ok().flatten().is_some_and(|stat| stat.session == session && !is_dead(stat)))
        .collect()
}

/// Moves a log that has grown long aside.
fn rotate(log: &Path) -> std::io::Result<()> {
    match fs::metadata(log) {
        Ok(meta) if meta.len() > LOG_MAX => fs::rename(log, log.with_extension("1")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The same for the log of a running process: it is copied and emptied, because the process holds the file open for
/// appending. Lines written in between are lost; that is the price of a bound.
pub fn trim_log(log: &Path) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(log)?;
    if file.metadata()?.len() > LOG_MAX {
        fs::copy(log, log.with_extension("1"))?;
        file.set_len(0)?;
    }
    Ok(())
}

/// Finds a program as `execvp` would.
#[must_use]
pub fn find_program(program: &str, path: &str, work: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(work.join(program)).filter(runs);
    }
    if program.is_empty() {
        return None;
    }
    path.split(':').filter(|dir| !dir.is_empty()).map(|dir| Path::new(dir).join(program)).find(runs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_command_name_cannot_disguise_the_fields_after_it() {
        let line = "42 (a) Z 1 (b) 9) S 1 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', session: 40, start_ticks: 98_765 }));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat("42 (x) S 1 2"), None);
    }

    #[test]
    fn a_pid_with_another_start_time_or_boot_is_another_process() {
        let me = identify(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(look_for(&me).unwrap());
        assert!(!look_for(&ProcessId { start_ticks: me.start_ticks + 1, ..me.clone() }).unwrap());
        assert!(!look_for(&ProcessId { boot_id: "other".into(), ..me.clone() }).unwrap());
        assert!(!look_for(&ProcessId { pid: i32::MAX, ..me }).unwrap());
    }

    #[test]
    fn a_program_is_found_as_a_shell_would_find_it() {
        let work = Path::new("/usr/bin");
        assert_eq!(find_program("env", "/nowhere:/usr/bin", work), Some("/usr/bin/env".into()));
        assert_eq!(find_program("./env", "", work), Some("/usr/bin/./env".into()));
        assert_eq!(find_program("/usr/bin", "", work), None);
        assert_eq!(find_program("no-such-program", "/usr/bin", work), None);
        assert_eq!(find_program("", "/usr/bin", work), None);
    }

    #[test]
    fn a_long_log_is_moved_aside_once_it_is_too_long() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        rotate(&log).unwrap();
        fs::write(&log, "x").unwrap();
        trim_log(&log).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"x");
        fs::File::options().write(true).open(&log).unwrap().set_len(LOG_MAX + 1).unwrap();
        trim_log(&log).unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len(), 0);
        assert_eq!(fs::metadata(dir.path().join("log.1")).unwrap().len(), LOG_MAX + 1);
    }
}
