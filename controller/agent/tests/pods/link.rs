//! What a network does to the link between a primary and its replica alone, while both reach everybody else.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};
use types::{
    agent::{AgentConfig, NotElectable},
    cluster::AppendOnly,
};

use crate::{
    crash::{assert_readable, write_to_first_shard},
    harness::{Cluster, config, eventually, patient, taken_for_dead},
};

/// Where the replica of the first pod finds that one's data instead of at its own port.
const DETOUR: u16 = 7379;

/// What arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Traffic {
    /// Everything.
    All,
    /// Nothing, without a word to either end.
    Nothing,
    /// Nobody gets through.
    Cut,
    /// Of what comes back over a connection, so many bytes.
    First(usize),
}

/// A way between two addresses.
pub(crate) struct Way(pub(crate) watch::Sender<Traffic>);

impl Way {
    pub(crate) async fn lead(from: SocketAddr, to: SocketAddr) -> Self {
        let (way, told) = watch::channel(Traffic::All);
        let listener = TcpListener::bind(from).await.unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(to).await else { continue };
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(near_in, far_out, told.clone(), false));
                tokio::spawn(pass(far_in, near_out, told.clone(), true));
            }
        });
        Self(way)
    }
}

/// Takes everything and passes it on, or not. Also the end of a connection is something that arrives.
async fn pass(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut told: watch::Receiver<Traffic>,
    is_back: bool,
) {
    let (mut buffer, mut passed) = (vec![0; 16 << 10], 0);
    loop {
        let now = *told.borrow_and_update();
        let most = match now {
            Traffic::All | Traffic::Nothing => buffer.len(),
            Traffic::First(bytes) if is_back => bytes.saturating_sub(passed).min(buffer.len()),
            Traffic::First(_) => buffer.len(),
            Traffic::Cut => return,
        };
        tokio::select! {
            read = from.read(&mut buffer[..most]), if most > 0 => {
                let read = read.unwrap_or(0);
                if now == Traffic::Nothing {
                    if read == 0 {
                        let _ = told.wait_for(|now| *now != Traffic::Nothing).await;
                        return;
                    }
                } else if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
                passed += read;
            }
            changed = told.changed() => if changed.is_err() { return },
        }
    }
}

/// Its replica follows it over another way from now on.
pub(crate) async fn detour(cluster: &Cluster) -> Way {
    let [primary, replica] = [&cluster.pods[0], &cluster.pods[3]];
    let way = Way::lead(SocketAddr::from((primary.ip, DETOUR)), primary.redis()).await;
    let mut redis = primary.operator().await;
    redis.config_set("cluster-announce-bus-port", "16379").await.unwrap();
    redis.config_set("cluster-announce-port", &DETOUR.to_string()).await.unwrap();
    let mut redis = replica.operator().await;
    eventually("the replica has the link over the detour", async || {
        let info = redis.info(&["replication"]).await.unwrap();
        info.get("master_port") == Some("7379") && info.get("master_link_status") == Some("up")
    })
    .await;
    way
}

pub(crate) async fn may_be_elected(cluster: &Cluster) -> bool {
    let mut redis = cluster.pods[3].operator().await;
    let told = redis.config_get(&["cluster-replica-no-failover"]).await.unwrap();
    told.get("cluster-replica-no-failover").is_some_and(|value| value == "no")
}

/// Whether its primary lived on beyond the first shard's replica for too long, and its Redis was told. Whatever else holds a replica back may
/// be over a moment later, while its primary has not been alone for long.
pub(crate) async fn is_left_behind(cluster: &Cluster) -> bool {
    let following = cluster.report(&cluster.pods[3]).await.and_then(|report| report.following);
    let held_back = following.and_then(|following| following.held_back);
    held_back == Some(NotElectable::LeftBehind) && !may_be_elected(cluster).await
}

/// Redis shows such a link as up until `repl-timeout` is over, and elects.
#[tokio::test]
async fn a_replica_whose_link_brings_nothing_more_is_not_elected_though_it_looks_up() {
    // Members give each other up before any link is given up, also on a machine that stretches the former.
    let late = ("repl-timeout".to_owned(), hung::change().as_secs().to_string());
    let always = AgentConfig { append_only: AppendOnly::Always, parameters: [late].into(), ..config() };
    let mut cluster = Cluster::form(41, always, 3, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 100).await;
    let way = detour(&cluster).await;
    eventually("the replica may be elected", async || may_be_elected(&cluster).await).await;
    way.0.send_replace(Traffic::Nothing);
    keys.extend(write_to_first_shard(&cluster, "b", 300).await);
    eventually("the replica is left behind", async || is_left_behind(&cluster).await).await;
    let mut replica = cluster.pods[3].operator().await;
    let info = replica.info(&["replication"]).await.unwrap();
    assert_eq!(info.get("master_link_status"), Some("up"));
    let primary = cluster.pods[0].id().await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    eventually("the primary is given up", async || {
        let table = cluster.pods[1].operator().await.cluster_nodes().await.unwrap();
        table.iter().any(|node| node.id == primary && node.flags.failed)
    })
    .await;
    // An election would be called within a second of that.
    tokio::time::sleep(taken_for_dead()).await;
    assert!(cluster.pods[3].is_replica().await, "a copy that lacks 300 writes took over");
    assert_eq!(replica.info(&["replication"]).await.unwrap().get("master_link_status"), Some("up"));
    way.0.send_replace(Traffic::All);
    cluster.pods[0].start();
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
    assert!(cluster.pods[3].is_replica().await);
    eventually("the replica may be elected again", async || may_be_elected(&cluster).await).await;
}

/// Redis shows a link as up from the first byte on that it brings.
#[tokio::test]
async fn a_replica_that_is_back_is_not_elected_before_it_has_what_it_missed() {
    let cluster = Cluster::form(45, patient(), 3, 1).await;
    let way = detour(&cluster).await;
    eventually("the replica may be elected", async || may_be_elected(&cluster).await).await;
    way.0.send_replace(Traffic::Cut);
    let keys = write_to_first_shard(&cluster, "a", 300).await;
    eventually("the replica is left behind", async || is_left_behind(&cluster).await).await;
    // The answers of the handshake, and a bit of what it missed.
    way.0.send_replace(Traffic::First(200));
    let mut replica = cluster.pods[3].operator().await;
    eventually("the link is up", async || {
        replica.info(&["replication"]).await.unwrap().get("master_link_status") == Some("up")
    })
    .await;
    // Three looks of its agent.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(!may_be_elected(&cluster).await, "it lacks {} writes", 300 - cluster.pods[3].dbsize().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(cluster.pods[3].dbsize().await < 300);
    way.0.send_replace(Traffic::All);
    eventually("the replica may be elected again", async || may_be_elected(&cluster).await).await;
    assert_eq!(cluster.pods[3].dbsize().await, 300);
    assert_readable(&cluster, &keys).await;
}
