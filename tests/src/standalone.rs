//! One `kun standalone` under test: started, killed, restarted, stopped; nothing of it outlives the test.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::kubectl::Kubectl;

/// Networks of pods that tests have.
const NETS: u16 = 100;
/// Second byte of the next pod network in this process, less 100: tests of one process run side by side.
static NEXT_NET: AtomicU16 = AtomicU16::new(0);

/// A pod network that no test has, of this process or of another one beside it.
fn claim_net() -> Result<(u8, TcpListener)> {
    // Neighbours begin at different places.
    let salt = u16::try_from(std::process::id() % 60)?;
    for _ in 0..NETS {
        let net = u8::try_from(100 + (salt + NEXT_NET.fetch_add(1, Ordering::Relaxed)) % NETS)?;
        if let Ok(claim) = TcpListener::bind(SocketAddr::from(([127, 0, net, 1], 8442))) {
            return Ok((net, claim));
        }
    }
    bail!("all {NETS} networks of tests are in use")
}

/// One `kun standalone`.
#[derive(Debug)]
pub struct Standalone {
    folder: tempfile::TempDir,
    scratch: tempfile::TempDir,
    listen: SocketAddr,
    pod_cidr: String,
    extra: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
    /// As long as it listens, no other test takes this network.
    _claim: TcpListener,
}

impl Standalone {
    /// Starts on an empty data directory and waits until it is ready.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[], &[]).await
    }

    /// The same with further flags and environment variables.
    pub async fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        hung::wait_for_room();
        let mut standalone = Self::prepare(flags, environment)?;
        standalone.resume().await?;
        Ok(standalone)
    }

    /// Chooses a folder, an address and a pod network, and starts nothing yet.
    pub fn prepare(flags: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let (net, claim) = claim_net()?;
        // Not a port the kernel gives to connections: somebody might have it when kun is started again.
        let listen = SocketAddr::from(([127, 0, net, 1], 8443));
        Ok(Self {
            folder: tempfile::Builder::new().prefix("kun-").tempdir()?,
            scratch: tempfile::Builder::new().prefix("kun-").tempdir_in("/tmp")?,
            listen,
            pod_cidr: format!("127.{net}.0.0/16"),
            extra: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            environment: environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            child: None,
            _claim: claim,
        })
    }

    /// Starts the process (again) on the same data directory and waits until it is ready.
    pub async fn resume(&mut self) -> Result<()> {
        let environment = self.environment.clone();
        self.resume_with(&environment).await
    }

    /// Starts the process (again) with these environment variables, and waits until it is ready.
    pub async fn resume_with(&mut self, environment: &[(String, String)]) -> Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("kun.log"))?;
        let mut child = Command::new(kun_binary()?)
            .arg("standalone")
            .arg("--data")
            .arg(self.data())
            .arg("--listen")
            .arg(self.listen.to_string())
            .arg("--pod-cidr")
            .arg(&self.pod_cidr)
            .args(&self.extra)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start kun standalone")?;
        let stdout = child.stdout.take().context("standard output of kun")?;
        self.child = Some(child);
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line.starts_with("ready: ") {
                    return Ok(true);
                }
            }
            anyhow::Ok(false)
        };
        match tokio::time::timeout(hung::process(), ready).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => bail!("kun standalone ended before it was ready:\n{}", self.log_tail()),
            Ok(Err(error)) => Err(error.context("read standard output of kun")),
            Err(_) => bail!("kun standalone hangs before it is ready:\n{}", self.log_tail()),
        }
    }

    /// Further starts use no extra flags.
    pub fn forget_flags(&mut self) {
        self.use_flags(&[]);
    }

    /// Further starts use these flags.
    pub fn use_flags(&mut self, flags: &[&str]) {
        self.extra = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Process id of kun, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Where its API listens.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A folder of this test that is not kun's, for example for backups: those may not lie in /dev, where files in memory are.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// kubectl with the administrator's kubeconfig.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.data().join("kubeconfig"), self.folder.path())
    }

    /// SIGKILL to `kun` itself; its pods go on.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.start_kill()?;
            child.wait().await?;
        }
        Ok(())
    }

    /// Waits until `kun` has ended by itself, as a failpoint makes it; `None` if it still runs after `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let child = self.child.as_mut().context("kun is not running")?;
        let Ok(status) = tokio::time::timeout(limit, child.wait()).await else { return Ok(None) };
        self.child = None;
        Ok(Some(status?))
    }

    /// SIGTERM, then waits for the clean end; returns the exit code.
    pub async fn stop(&mut self) -> Result<i32> {
        let Some(mut child) = self.child.take() else { bail!("kun is not running") };
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("pid of kun")?;
        kill_process(pid, Signal::TERM)?;
        // Its pods end first, and hand their roles over before.
        let status =
            tokio::time::timeout(hung::change(), child.wait()).await.context("kun did not stop on SIGTERM")??;
        status.code().context("kun was ended by a signal")
    }

    /// The last lines of kun's own log, for failure messages.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.folder.path().join("kun.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(60)..).unwrap_or_default().join("\n")
    }

    /// kun's whole log.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("kun.log"))?)
    }

    /// Its files stay after the test where `KUN_KEEP` is set.
    pub fn keep(&mut self) {
        if std::env::var_os("KUN_KEEP").is_some() {
            self.folder.disable_cleanup(true);
        }
    }

    /// Processes of this instance's pods: those whose environment names our data directory, and every redis-server on an
    /// address of our pod network (redis-server writes over its own environment).
    #[must_use]
    pub fn pod_processes(&self) -> Vec<Process> {
        let marker = self.data().display().to_string();
        let server = format!("redis-server {}", self.pod_cidr.trim_end_matches("0.0/16"));
        let ours = |process: &Process| process.environment.contains(&marker) || process.command.contains(&server);
        processes().into_iter().filter(|process| ours(process) && !process.command.contains(" standalone ")).collect()
    }

    /// The agent of a pod.
    pub fn agent(&self, pod: &str) -> Result<Process> {
        let name = format!("POD_NAME={pod} ");
        let found = self
            .pod_processes()
            .into_iter()
            .find(|process| process.environment.contains(&name) && process.command.contains(" agent"));
        found.with_context(|| format!("no agent of {pod}"))
    }

    /// The redis-server process of the pod with this address.
    pub fn redis_server(&self, address: SocketAddr) -> Result<Process> {
        let title = format!("redis-server {address}");
        let found = processes().into_iter().find(|process| process.command.contains(&title));
        found.with_context(|| format!("no process {title}"))
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.start_kill().ok();
        }
        if std::thread::panicking() || std::env::var_os("KUN_KEEP").is_some() {
            eprintln!("--- end of kun.log ---\n{}", self.log_tail());
        }
        // Agents restart nothing once kun is gone, but a pod may be starting at this moment: look more than once.
        let begin = Instant::now();
        while begin.elapsed() < hung::answer() {
            let left = self.pod_processes();
            if left.is_empty() {
                break;
            }
            for process in left {
                if let Some(pid) = Pid::from_raw(process.pid) {
                    kill_process(pid, Signal::KILL).ok();
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One process of this machine.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Program and arguments, joined by blanks.
    pub command: String,
    /// Environment, joined by blanks.
    pub environment: String,
}

impl Process {
    /// Sends SIGKILL to this process alone.
    pub fn kill(&self) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.pid).context("pid")?, Signal::KILL)?)
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_raw(self.pid).context("pid")?, signal)?)
    }

    /// Whether it still runs: another one may have its id by now.
    #[must_use]
    pub fn runs(&self) -> bool {
        process(Path::new(&format!("/proc/{}", self.pid))).is_some_and(|now| now.command == self.command)
    }

    /// Sends SIGKILL to the process and its group, as a machine that goes away.
    pub fn kill_group(&self) -> Result<()> {
        Ok(kill_process_group(Pid::from_raw(self.pid).context("pid")?, Signal::KILL)?)
    }
}

/// Those of this process' network: another one may have the same addresses.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = network(Path::new("/proc/self"));
    let near = entries.flatten().map(|entry| entry.path()).filter(|folder| network(folder) == own);
    let mut found: Vec<Process> = near.filter_map(|folder| process(&folder)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Which network a process is in, as the kernel calls it.
fn network(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join("ns/net")).ok()
}

fn process(folder: &Path) -> Option<Process> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let joined = |file: &str| {
        let bytes = fs::read(folder.join(file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    };
    Some(Process { pid, command: joined("cmdline")?, environment: joined("environ")? })
}

/// The `kun` binary that cargo built beside the running test or demo.
pub fn kun_binary() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let beside = this.ancestors().skip(1).take(3).map(|folder| folder.join("kun")).find(|path| path.is_file());
    beside.context("there is no `kun` beside this program: build it first (cargo build -p kun), as `make test` does")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Where this user may make no network, there is nobody else's either.
    #[test]
    fn a_server_at_the_same_address_of_another_network_is_not_ours() -> Result<()> {
        let title = "sleep 61.127";
        let command = |program: &str, args: &[&str]| Command::new(program).args(args).spawn();
        let mut near = command("sleep", &["61.127"])?;
        let mut far = command("unshare", &["--net", "sleep", "61.127"])?;
        let begin = Instant::now();
        let seen = |pid: u32| {
            let found = process(Path::new(&format!("/proc/{pid}")));
            found.is_some_and(|process| process.command.starts_with(title))
        };
        while !(seen(near.id()) && seen(far.id())) && far.try_wait()?.is_none() && begin.elapsed() < hung::answer() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let found: Vec<i32> = processes()
            .iter()
            .filter(|process| process.command.starts_with(title))
            .map(|process| process.pid)
            .collect();
        let near_id = i32::try_from(near.id())?;
        near.kill()?;
        far.kill().ok();
        near.wait()?;
        far.wait()?;
        assert_eq!(found, [near_id]);
        Ok(())
    }
}
