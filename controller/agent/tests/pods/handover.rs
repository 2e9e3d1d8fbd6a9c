//! A stopping primary whose replica is not ready at the first look, or does not take over at the first order.

use rustix::process::{Pid, Signal, kill_process};
use types::{agent::AgentConfig, cluster::AppendOnly};

use crate::harness::{Cluster, Pod, eventually, fill, patient};

fn signal_redis(pod: &Pod, signal: Signal) {
    kill_process(Pid::from_raw(pod.redis_pid().unwrap()).unwrap(), signal).unwrap();
}

/// Measured before: it gave up at the first look, and the shard was without a primary.
#[tokio::test]
async fn a_copy_that_is_under_way_at_a_stop_takes_over_once_it_is_whole() {
    let volatile = AgentConfig { append_only: AppendOnly::Off, ..patient() };
    let mut cluster = Cluster::unhurried(61, volatile).formed(1, 1).await;
    fill(&cluster.pods[0], "k", 100, b"v").await;
    let mut primary = cluster.pods[0].operator().await;
    // Fifty milliseconds for each key: longer than a machine stands still.
    primary.config_set("rdb-key-save-delay", "50000").await.unwrap();
    let former = cluster.pods[1].redis_pid();
    cluster.pods[1].kill_redis();
    assert_eq!(cluster.pods[1].ended().await, Some(2));
    cluster.pods[1].start();
    // It runs before its agent has written down which process it is.
    eventually("the agent has recorded it", async || cluster.pods[1].redis_pid() != former).await;
    eventually("the replica gets its copy", async || {
        let lines = primary.info(&["replication"]).await.unwrap().replicas();
        lines.iter().any(|line| line.state != "online")
    })
    .await;
    // It stands still until the agent has looked.
    signal_redis(&cluster.pods[1], Signal::STOP);
    let lines = primary.info(&["replication"]).await.unwrap().replicas();
    assert!(lines.iter().any(|line| line.state != "online"), "its copy was whole before: {lines:?}");
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
