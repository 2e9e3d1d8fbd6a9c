//! Plain redis-server processes and redis-cli: the references of the Redis figures.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use resp::{AppendOnlyFile, Connection, Options};
use tokio::process::{Child, Command};

use crate::noise::Noise;

/// Some redis-server processes in cluster mode, one loopback address each; gone when dropped.
pub(crate) struct Nodes {
    /// Client addresses.
    pub addresses: Vec<SocketAddr>,
    folder: tempfile::TempDir,
    started: Vec<Started>,
}

/// One of them, and with what it was started.
struct Started {
    arguments: Vec<String>,
    child: Child,
}

impl Nodes {
    /// Starts `count` empty nodes with these further settings on addresses of network 127.`net`.0.0, which nobody else of
    /// this run has used: servers that were killed keep their ports for a moment.
    pub(crate) async fn start(net: u8, count: u8, settings: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let mut nodes = Self { addresses: Vec::new(), folder, started: Vec::new() };
        for index in 1..=count {
            nodes.spawn(Ipv4Addr::new(127, net, 0, index), settings)?;
        }
        for address in &nodes.addresses {
            answering(*address).await?;
        }
        Ok(nodes)
    }

    /// A cluster of so many shards with replicas, made by redis-cli, that is settled.
    pub(crate) async fn cluster(net: u8, shards: u8, replicas: u8, settings: &[&str]) -> Result<Self> {
        let nodes = Self::start(net, shards * (1 + replicas), settings).await?;
        let mut words: Vec<String> = ["--cluster", "create"].map(str::to_owned).to_vec();
        words.extend(nodes.addresses.iter().map(ToString::to_string));
        words.extend(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"].map(str::to_owned));
        redis_cli(&words).await?;
        let options: Vec<Options> = nodes.addresses.iter().map(|address| Options::new(*address)).collect();
        settled(&options, usize::from(shards * replicas)).await?;
        Ok(nodes)
    }

    /// Starts one empty server that is no member of a cluster and has Redis' defaults, but for saving by itself.
    pub(crate) async fn alone(net: u8) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let mut nodes = Self { addresses: Vec::new(), folder, started: Vec::new() };
        nodes.spawn_with(Ipv4Addr::new(127, net, 0, 1), &["--save", ""])?;
        for address in &nodes.addresses {
            answering(*address).await?;
        }
        Ok(nodes)
    }

    fn spawn(&mut self, ip: Ipv4Addr, settings: &[&str]) -> Result<()> {
        let text = ip.to_string();
        let cluster = ["--bind-source-addr", &text, "--cluster-announce-ip", &text, "--cluster-enabled", "yes"];
        let calm = ["--save", "", "--appendonly", "no", "--cluster-require-full-coverage", "no"];
        self.spawn_with(ip, &[&cluster[..], &calm, &["--cluster-node-timeout", "5000"], settings].concat())
    }

    fn spawn_with(&mut self, ip: Ipv4Addr, settings: &[&str]) -> Result<()> {
        let folder: PathBuf = self.folder.path().join(ip.to_string());
        std::fs::create_dir(&folder)?;
        let folder = folder.to_str().context("folder of a node")?;
        let mut arguments =
            ["--port", "6379", "--bind", &ip.to_string(), "--protected-mode", "no"].map(str::to_owned).to_vec();
        arguments.extend(settings.iter().copied().chain(["--dir", folder]).map(str::to_owned));
        let child = server(&arguments)?;
        self.started.push(Started { arguments, child });
        self.addresses.push(SocketAddr::new(IpAddr::V4(ip), 6379));
        Ok(())
    }

    fn started(&mut self, address: SocketAddr) -> Result<&mut Started> {
        let at = self.addresses.iter().position(|known| *known == address);
        at.and_then(|at| self.started.get_mut(at)).with_context(|| format!("there is no node at {address}"))
    }

    /// SIGKILL to one of them.
    pub(crate) async fn kill(&mut self, address: SocketAddr) -> Result<()> {
        Ok(self.started(address)?.child.kill().await?)
    }

    /// Starts one that was killed again, with its files.
    pub(crate) async fn start_again(&mut self, address: SocketAddr) -> Result<()> {
        let started = self.started(address)?;
        started.child = server(&started.arguments)?;
        answering(address).await
    }

    /// Waits until no node writes its append-only file anew: one that does after a full copy refuses to stop (`prepareForShutdown`), and a
    /// SIGTERM is not remembered.
    pub(crate) async fn written(&self) -> Result<()> {
        let begin = Instant::now();
        for address in &self.addresses {
            let mut connection = Connection::open(&Options::new(*address)).await?;
            while connection.info(&["persistence"]).await?.append_only_file() == AppendOnlyFile::Rewriting {
                ensure!(begin.elapsed() < hung::change(), "{address} writes its append-only file");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }

    /// SIGTERM to all at once, until all have ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for Started { child, .. } in &self.started {
            let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
            rustix::process::kill_process(pid.context("pid of a node")?, rustix::process::Signal::TERM)?;
        }
        for Started { child, .. } in &mut self.started {
            tokio::time::timeout(hung::process(), child.wait()).await.context("a node does not stop")??;
        }
        Ok(())
    }
}

fn server(arguments: &[String]) -> Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().context("start redis-server")
}

/// Waits until a node answers.
pub(crate) async fn answering(address: SocketAddr) -> Result<()> {
    let begin = Instant::now();
    loop {
        if let Ok(mut connection) = Connection::open(&Options::new(address)).await
            && connection.call(&["PING"]).await.is_ok()
        {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::process(), "{address} does not answer");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until every node says ok, knows all slots, and every replica's link is up; returns when.
pub(crate) async fn settled(options: &[Options], replicas: usize) -> Result<Instant> {
    let begin = Instant::now();
    let mut connections = Vec::new();
    for option in options {
        connections.push(Connection::open(option).await?);
    }
    loop {
        let (mut ok, mut up) = (0, 0);
        for connection in &mut connections {
            let info = connection.cluster_info().await?;
            if info.ok && info.slots_assigned == 16384 && usize::try_from(info.known_nodes)? == options.len() {
                ok += 1;
            }
            if connection.info(&["replication"]).await?.get("master_link_status") == Some("up") {
                up += 1;
            }
        }
        if ok == options.len() && up == replicas {
            return Ok(Instant::now());
        }
        ensure!(begin.elapsed() < hung::change(), "not settled: {ok} of {} say ok, {up} links up", options.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs redis-cli, which must succeed.
pub(crate) async fn redis_cli(args: &[String]) -> Result<String> {
    let out = Command::new("redis-cli").args(args).stdin(Stdio::null()).output().await.context("redis-cli")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "redis-cli {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    Ok(text)
}

/// Writes these keys with values that do not compress.
pub(crate) async fn fill(options: &Options, keys: &[String], bytes: usize) -> Result<()> {
    let mut connection = Connection::open(&options.clone().deadline(hung::process())).await?;
    let mut noise = Noise::default();
    for keys in keys.chunks(500) {
        let batch: Vec<resp::Command> =
            keys.iter().map(|key| resp::Command::new("SET").arg(key).arg(noise.take(bytes))).collect();
        connection.pipeline(&batch).await?;
    }
    Ok(())
}
