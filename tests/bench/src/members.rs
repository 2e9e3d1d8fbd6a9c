//! Members that only say what the members of a formed Redis Cluster say that has nothing to do: for looking at more clusters than
//! this machine has room for. They move nothing and remember nothing but settings. It must not know who asks.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use resp::{Limits, Reply, decode::Decoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Hash slots of a Redis Cluster.
const SLOTS: usize = 16_384;
/// Members in one network of 256 addresses.
const IN_ONE_NETWORK: usize = 250;

/// Members of many clusters, one loopback address each; gone when dropped.
#[derive(Default)]
pub(crate) struct Members {
    serving: JoinSet<()>,
}

impl Members {
    /// Serves the members of further clusters, each of so many shards without replicas.
    pub(crate) async fn add(&mut self, clusters: std::ops::Range<usize>, shards: usize) -> Result<()> {
        for number in clusters.flat_map(|cluster| (0..shards).map(move |shard| (cluster, shard))) {
            let (cluster, shard) = number;
            let member = Arc::new(Member::new(cluster, shard, shards)?);
            let at = SocketAddr::from((address(cluster, shard, shards)?, types::names::PORT_REDIS));
            let listener = TcpListener::bind(at).await.with_context(|| format!("listen at {at}"))?;
            self.serving.spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // Who asks hangs up when he knows enough.
                    tokio::spawn(serve(stream, Arc::clone(&member)));
                }
            });
        }
        Ok(())
    }
}

/// Where a member is.
pub(crate) fn address(cluster: usize, shard: usize, shards: usize) -> Result<Ipv4Addr> {
    let number = cluster * shards + shard;
    let (network, host) = (u8::try_from(number / IN_ONE_NETWORK)?, u8::try_from(number % IN_ONE_NETWORK)?);
    Ok(Ipv4Addr::new(127, 160, network, host + 1))
}

/// What one member says.
struct Member {
    id: String,
    nodes: String,
    view: String,
    info: String,
    settings: Mutex<BTreeMap<String, String>>,
}

impl Member {
    fn new(cluster: usize, shard: usize, shards: usize) -> Result<Self> {
        let id = |shard: usize| format!("{:040x}", (cluster * shards + shard + 1) * 0x0001_0001);
        let mut nodes = String::new();
        for other in 0..shards {
            let (own, at) = (if other == shard { "myself," } else { "" }, address(cluster, other, shards)?);
            let (first, end) = (other * SLOTS / shards, (other + 1) * SLOTS / shards - 1);
            nodes +=
                &format!("{} {at}:6379@16379 {own}master - 0 0 {} connected {first}-{end}\n", id(other), other + 1);
        }
        let view = format!(
            "cluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\ncluster_slots_pfail:0\r\n\
             cluster_slots_fail:0\r\ncluster_known_nodes:{shards}\r\ncluster_size:{shards}\r\n\
             cluster_current_epoch:{shards}\r\ncluster_my_epoch:{}\r\n",
            shard + 1
        );
        let info = format!(
            "redis_version:7.0.15\r\nloading:0\r\nused_memory_dataset:0\r\naof_last_write_status:ok\r\nrole:master\r\n\
             connected_slaves:0\r\nmaster_replid:{}\r\nmaster_repl_offset:0\r\n",
            id(shard)
        );
        let settings = [("cluster-node-timeout", "15000"), ("maxmemory", "0"), ("rdbcompression", "yes")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self { id: id(shard), nodes, view, info, settings: Mutex::new(settings.into()) })
    }

    fn answer(&self, words: &[&str]) -> Reply {
        let text = |text: &str| Reply::Bulk(Bytes::from(text.to_owned()));
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        match words {
            ["AUTH", ..] => Reply::Status("OK".to_owned()),
            ["CLUSTER", "MYID"] => text(&self.id),
            ["CLUSTER", "NODES"] => text(&self.nodes),
            ["CLUSTER", "INFO"] => text(&self.view),
            ["INFO", ..] => text(&self.info),
            ["CONFIG", "GET", name] => {
                let value = settings.get(*name).map_or("", String::as_str);
                Reply::Array(vec![text(name), text(value)])
            }
            ["CONFIG", "SET", name, value] => {
                settings.insert((*name).to_owned(), (*value).to_owned());
                Reply::Status("OK".to_owned())
            }
            other => Reply::Error(format!("ERR a member that only talks was told: {}", other.join(" "))),
        }
    }
}

/// Answers one connection until it ends.
async fn serve(mut stream: TcpStream, member: Arc<Member>) {
    let mut decoder = Decoder::new(Limits::default());
    while let Ok(1..) = stream.read_buf(decoder.buffer()).await {
        let mut answers = Vec::new();
        while let Ok(Some(command)) = decoder.decode() {
            let words: Vec<&str> = command.items().into_iter().flatten().filter_map(Reply::text).collect();
            member.answer(&words).encode(&mut answers);
        }
        if stream.write_all(&answers).await.is_err() {
            return;
        }
    }
}
