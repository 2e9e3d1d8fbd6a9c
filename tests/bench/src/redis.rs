//! Plain redis-server processes and redis-cli: the references of the Redis figures.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use resp::{Connection, Options};
use tokio::process::{Child, Command};

use crate::noise::Noise;

/// Some redis-server processes in cluster mode, one loopback address each; gone when dropped.
pub(crate) struct Nodes {
    /// Client addresses.
    pub addresses: Vec<SocketAddr>,
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Nodes {
    /// Starts `count` empty nodes with these further settings on addresses of network 127.`net`.0.0, which nobody else of
    /// this run has used: servers that were killed keep their ports for a moment.
    pub(crate) async fn start(net: u8, count: u8, settings: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let mut nodes = Self { addresses: Vec::new(), folder, children: Vec::new() };
        for index in 1..=count {
            nodes.spawn(Ipv4Addr::new(127, net, 0, index), settings)?;
        }
        for address in &nodes.addresses {
            answering(*address).await?;
        }
        Ok(nodes)
    }

    /// Starts one empty server that is no member of a cluster and has Redis' defaults, but for saving by itself.
    pub(crate) async fn alone(net: u8) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
        let mut nodes = Self { addresses: Vec::new(), folder, children: Vec::new() };
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
        let child = Command::new("redis-server")
            .args(["--port", "6379", "--bind", &ip.to_string(), "--protected-mode", "no"])
            .args(settings)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start redis-server")?;
        self.children.push(child);
        self.addresses.push(SocketAddr::new(IpAddr::V4(ip), 6379));
        Ok(())
    }
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
        ensure!(begin.elapsed() < Duration::from_secs(20), "{address} does not answer");
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
        ensure!(
            begin.elapsed() < Duration::from_secs(60),
            "not settled: {ok} of {} say ok, {up} links up",
            options.len()
        );
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
    let mut connection = Connection::open(&options.clone().deadline(Duration::from_secs(60))).await?;
    let mut noise = Noise::default();
    for keys in keys.chunks(500) {
        let batch: Vec<resp::Command> =
            keys.iter().map(|key| resp::Command::new("SET").arg(key).arg(noise.take(bytes))).collect();
        connection.pipeline(&batch).await?;
    }
    Ok(())
}
