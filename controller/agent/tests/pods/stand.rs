//! When a replica gets the right to stand for election.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use resp::NodeId;
use rustix::process::Signal;
use types::{
    agent::{AgentConfig, NotElectable},
    names::PORT_BUS,
};

use crate::{
    crash::write_to_first_shard,
    harness::{Cluster, Pod, config, eventually, fill, signal_redis},
    link::{Traffic, Way, detour, is_left_behind, may_be_elected},
};

/// Where a pod's cluster bus is reached instead of at its own port.
const BUS_DETOUR: u16 = 17379;

/// Everybody reaches a pod's cluster bus over another way from now on.
async fn bus_detour(pod: &Pod) -> Way {
    let at = |port| SocketAddr::from((pod.ip, port));
    let way = Way::lead(at(BUS_DETOUR), at(PORT_BUS)).await;
    pod.operator().await.config_set("cluster-announce-bus-port", &BUS_DETOUR.to_string()).await.unwrap();
    way
}

/// Whether `of` has heard of `pod`'s way and has a link over it.
async fn takes_the_detour(of: &Pod, pod: &Pod) -> bool {
    let (id, table) = (pod.id().await, of.operator().await.cluster_nodes().await.unwrap());
    table.iter().any(|node| node.id == id && node.bus_port == Some(BUS_DETOUR) && node.connected)
}

/// What the replica's table says of its primary: it hears nothing of it on the cluster bus.
async fn counts_as_failed(cluster: &Cluster) -> bool {
    let id = cluster.pods[0].id().await;
    let table = cluster.pods[3].operator().await.cluster_nodes().await.unwrap();
    table.iter().any(|node| node.id == id && (node.flags.suspected || node.flags.failed))
}

/// Measured before: it got the right in the first look after its copy was whole, a moment before an election.
#[tokio::test]
async fn a_copy_whole_only_once_its_primary_counts_as_failed_is_not_elected() {
    let cluster = Cluster::form(66, config(), 3, 1).await;
    let [primary, replica] = [&cluster.pods[0], &cluster.pods[3]];
    let data = detour(&cluster).await;
    let buses = [bus_detour(primary).await, bus_detour(replica).await];
    for (of, pod) in [(primary, replica), (replica, primary)] {
        eventually("the bus takes the detour", async || takes_the_detour(of, pod).await).await;
    }
    eventually("the replica may be elected", async || may_be_elected(&cluster).await).await;
    data.0.send_replace(Traffic::Cut);
    write_to_first_shard(&cluster, "a", 100).await;
    eventually("the replica is left behind", async || is_left_behind(&cluster).await).await;
    for bus in &buses {
        bus.0.send_replace(Traffic::Nothing);
    }
    eventually("its primary counts as failed", async || counts_as_failed(&cluster).await).await;
    data.0.send_replace(Traffic::All);
    eventually("its agent has seen the copy to be whole", async || {
        let following = cluster.report(replica).await.and_then(|report| report.following);
        following.is_some_and(|following| following.held_back == Some(NotElectable::TooLate))
    })
    .await;
    // Three looks of its agent.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(counts_as_failed(&cluster).await && !may_be_elected(&cluster).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for bus in &buses {
        bus.0.send_replace(Traffic::All);
    }
    eventually("its primary is heard again", async || !counts_as_failed(&cluster).await).await;
    eventually("the replica may be elected again", async || may_be_elected(&cluster).await).await;
}

/// Whether most primaries have given a node up, as a pod has heard.
async fn is_given_up(by: &Pod, node: &NodeId) -> bool {
    let table = by.operator().await.cluster_nodes().await.unwrap();
    table.iter().any(|other| other.id == *node && other.flags.failed)
}

/// Its agent sleeps between two looks when its server wakes up. Measured before: it was elected, and what its primary had taken meanwhile was lost.
#[tokio::test]
async fn a_replica_whose_server_stood_still_is_looked_at_before_it_is_elected() {
    let node_timeout_millis = u64::try_from(hung::node_timeout(3).as_millis()).unwrap();
    let cluster = Cluster::form(212, AgentConfig { node_timeout_millis, ..config() }, 3, 1).await;
    let [primary, replica] = [&cluster.pods[0], &cluster.pods[3]];
    let id = primary.id().await;
    eventually("the replica may be elected", async || may_be_elected(&cluster).await).await;
    let unanswered = || replica.log().matches("redis-server does not answer").count();
    let before = unanswered();
    signal_redis(replica, Signal::STOP);
    // More than finds room in sockets: the rest is in the memory of the primary alone.
    fill(primary, "{06S}", 300, &[b'x'; 64 << 10]).await;
    eventually("its agent is not answered", async || unanswered() > before).await;
    signal_redis(primary, Signal::STOP);
    eventually("the primary is given up", async || is_given_up(&cluster.pods[1], &id).await).await;
    replica.signal(Signal::STOP);
    signal_redis(replica, Signal::CONT);
    eventually("the replica hears of it", async || is_given_up(replica, &id).await).await;
    // An election would be called within a second of that.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(replica.is_replica().await, "a copy that lacks writes took over");
    replica.signal(Signal::CONT);
    signal_redis(primary, Signal::CONT);
    eventually("the replica has everything", async || replica.dbsize().await == 300).await;
    eventually("the replica may be elected again", async || may_be_elected(&cluster).await).await;
    assert!(!primary.is_replica().await && replica.is_replica().await);
    assert_eq!(primary.dbsize().await, 300);
}
