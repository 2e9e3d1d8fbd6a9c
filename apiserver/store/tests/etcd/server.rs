//! A real etcd on loopback with a data directory of its own, for tests of any crate. It ends with the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, reason = "each test uses a part of it")]

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Nobody else's loopback address.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 85, 0, 1);

/// The binary, built by tests/cluster/build.sh. None, with a line that says so past the harness, which shows nothing of a test that
/// ends well, on a machine that cannot build it; in CI that is a failure.
pub(crate) fn binary() -> Option<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(build) {
        Ok(binary) => Some(binary),
        Err(missing) => {
            assert!(!hung::in_ci(), "no etcd: {missing}");
            let thread = std::thread::current();
            // As `make test` counts them.
            writeln!(std::io::stdout(), "{}: SKIPPED; {missing}", thread.name().unwrap_or("etcd")).expect("stdout");
            None
        }
    }
}

/// Only where there is no Go is it no failure that there is no etcd.
fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    let script = root.expect("the workspace").join("tests/cluster/build.sh");
    let out = Command::new("bash").arg(script).output().expect("bash");
    let folder = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    if out.status.success() {
        return Ok(folder.join("etcd"));
    }
    let told = String::from_utf8_lossy(&out.stderr);
    let missing = told.lines().find(|line| line.starts_with("missing: "));
    Err(missing.unwrap_or_else(|| panic!("tests/cluster/build.sh failed: {told}")).to_owned())
}

/// Files for TLS in both directions.
pub(crate) struct TlsFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A running etcd.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) client: SocketAddr,
    peer: SocketAddr,
    scheme: &'static str,
    flags: Vec<String>,
    directory: TempDir,
}

impl Server {
    /// Starts one that does not wait for its disk.
    pub(crate) fn fast(binary: &Path) -> Server {
        Server::start(binary, None, &["--unsafe-no-fsync"])
    }

    /// Starts one that keeps its promises.
    pub(crate) fn durable(binary: &Path) -> Server {
        Server::start(binary, None, &[])
    }

    /// Starts one that takes only requests of at most so many bytes.
    pub(crate) fn narrow(binary: &Path, bytes: usize) -> Server {
        Server::start(binary, None, &["--unsafe-no-fsync", &format!("--max-request-bytes={bytes}")])
    }

    /// Starts one that talks TLS only, and to those with a certificate only.
    pub(crate) fn encrypted(binary: &Path, files: &TlsFiles) -> Server {
        Server::start(binary, Some(files), &["--unsafe-no-fsync"])
    }

    fn start(binary: &Path, tls: Option<&TlsFiles>, flags: &[&str]) -> Server {
        // Ports that are free now may be taken a moment later.
        let free = || TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap();
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        if let Some(TlsFiles { authority, certificate, key }) = tls {
            flags.push(format!("--trusted-ca-file={}", authority.display()));
            flags.push(format!("--cert-file={}", certificate.display()));
            flags.push(format!("--key-file={}", key.display()));
            flags.push("--client-cert-auth".to_owned());
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        for attempt in 1..=5 {
            let (client, peer) = (free(), free());
            let flags = [vec![binary.display().to_string()], flags.clone()].concat();
            let directory = TempDir::new().unwrap();
            let mut server = Server { child: None, client, peer, scheme, flags, directory };
            match server.run() {
                Ok(()) => return server,
                Err(log) if attempt == 5 => panic!("etcd does not start:\n{log}"),
                Err(_) => {}
            }
        }
        unreachable!("the loop returns or panics")
    }

    /// Where clients reach it.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.client)
    }

    /// Starts the process on what the data directory holds; returns when it listens.
    fn run(&mut self) -> Result<(), String> {
        let log = self.directory.path().join("log");
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let (binary, flags) = self.flags.split_first().unwrap();
        let client = format!("{}://{}", self.scheme, self.client);
        let peer = format!("http://{}", self.peer);
        let child = Command::new(binary)
            .args(flags)
            .arg(format!("--data-dir={}", self.directory.path().join("data").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .arg("--log-level=warn")
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let child = self.child.insert(child);
        let start = Instant::now();
        loop {
            if child.try_wait().unwrap().is_some() || start.elapsed() > hung::process() {
                return Err(std::fs::read_to_string(&log).unwrap_or_default());
            }
            if std::net::TcpStream::connect(self.client).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again on the same data and the same ports.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.run().unwrap_or_else(|log| panic!("etcd does not start again:\n{log}"));
    }

    /// Starts it again without its data: another etcd at the same place.
    pub(crate) fn forget_everything(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.directory.path().join("data")).unwrap();
        self.run().unwrap_or_else(|log| panic!("etcd does not start again:\n{log}"));
    }

    /// SIGSTOP. Returns when every thread stands still.
    pub(crate) fn hold(&self) {
        let tasks = format!("/proc/{}/task", self.signal("-STOP"));
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        let start = Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().all(stands) {
            assert!(start.elapsed() < hung::process(), "etcd does not stand still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGCONT.
    pub(crate) fn release(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) -> String {
        let pid = self.child.as_ref().expect("a running etcd").id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        pid
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
