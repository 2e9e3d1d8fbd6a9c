//! A stopping primary whose replica is not ready at the first look, or does not take over at the first order.

use rustix::process::Signal;
use types::{agent::AgentConfig, cluster::AppendOnly};

use crate::harness::{Cluster, eventually, fill, patient, signal_redis};

/// Lets the replica of the only shard copy everything anew, and stand still before the copy is whole, until the agent of its primary has
/// looked; `false`: it was whole.
async fn stands_still_in_its_copy(cluster: &mut Cluster, primary: &mut resp::Connection) -> bool {
    cluster.pods[1].kill_redis();
    assert_eq!(cluster.pods[1].ended().await, Some(2));
    cluster.pods[1].start();
    eventually("the agent has recorded it", async || cluster.pods[1].redis_pid().is_some()).await;
    eventually("the replica gets its copy", async || {
        is_copying(primary).await || cluster.get(&cluster.pods[1], "/readyz").await.0 == 200
    })
    .await;
    signal_redis(&cluster.pods[1], Signal::STOP);
    let stands_still = is_copying(primary).await;
    if !stands_still {
        signal_redis(&cluster.pods[1], Signal::CONT);
    }
    stands_still
}

async fn is_copying(primary: &mut resp::Connection) -> bool {
    let lines = primary.info(&["replication"]).await.unwrap().replicas();
    lines.iter().any(|line| line.state != "online")
}

/// Measured before: it gave up at the first look, and the shard was without a primary.
#[tokio::test]
async fn a_copy_that_is_under_way_at_a_stop_takes_over_once_it_is_whole() {
    let volatile = AgentConfig { append_only: AppendOnly::Off, ..patient() };
    let mut cluster = Cluster::unhurried(61, volatile).formed(1, 1).await;
    fill(&cluster.pods[0], "k", 100, b"v").await;
    let mut primary = cluster.pods[0].operator().await;
    // Fifty milliseconds for each key: a machine seldom stands still for that long, and then the copy is whole before it is looked at.
    primary.config_set("rdb-key-save-delay", "50000").await.unwrap();
    let mut tries = 0..3;
    while !stands_still_in_its_copy(&mut cluster, &mut primary).await {
        assert!(tries.next().is_some(), "the copy was whole each time");
    }
    cluster.pods[0].signal(Signal::TERM);
    eventually("it is waited for", async || cluster.pods[0].log().contains("waiting for a replica")).await;
    signal_redis(&cluster.pods[1], Signal::CONT);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
    assert!(!cluster.pods[1].is_replica().await);
    assert_eq!(cluster.pods[1].dbsize().await, 100);
}

/// Those who vote stand still while the first order counts.
#[tokio::test]
async fn an_order_that_comes_to_nothing_is_followed_by_another_one() {
    let mut cluster = Cluster::unhurried(62, patient()).formed(3, 1).await;
    for voter in [1, 2] {
        signal_redis(&cluster.pods[voter], Signal::STOP);
    }
    cluster.pods[0].signal(Signal::TERM);
    eventually("the first order has expired", async || cluster.pods[0].log().contains("and did not within")).await;
    for voter in [1, 2] {
        signal_redis(&cluster.pods[voter], Signal::CONT);
    }
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
    assert!(!cluster.pods[3].is_replica().await);
}
