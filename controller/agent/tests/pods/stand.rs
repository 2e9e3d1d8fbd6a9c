//! When a replica gets the right to stand for election.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use types::{agent::NotElectable, names::PORT_BUS};

use crate::{
    crash::write_to_first_shard,
    harness::{Cluster, Pod, config, eventually},
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
