//! What a crash must not cost: the data of a shard, or the identity of a member.

use std::time::{Duration, Instant};

use resp::Outcome;
use rustix::process::Signal;
use types::{agent::AgentPhase, cluster::AppendOnly};

use crate::harness::{Cluster, config, eventually};

/// Writes keys to all shards and returns them.
async fn write(cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut client = cluster.client();
    let keys: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    for key in &keys {
        assert!(matches!(client.set(key, key).await, Outcome::Acked(_)));
    }
    keys
}

async fn assert_readable(cluster: &Cluster, keys: &[String]) {
    let mut client = cluster.client();
    for key in keys {
        assert_eq!(client.get(key).await.unwrap().as_deref(), Some(key.as_bytes()), "{key}");
    }
}

#[tokio::test]
async fn a_killed_primary_comes_back_as_a_replica_and_nothing_is_lost() {
    let mut cluster = Cluster::form(7, config(), 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    let id = cluster.pods[0].id().await;
    let began = Instant::now();
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2), "the agent ends with its Redis");
    cluster.pods[0].start();
    eventually("the member is a replica", async || cluster.pods[0].is_replica().await).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "faster than Redis' own detection, which needs the node timeout: {took:?}");
    cluster.wait_ready().await;
    assert_eq!(cluster.pods[0].id().await, id);
    assert!(!cluster.pods[3].is_replica().await, "its replica is the primary");
    assert_readable(&cluster, &keys).await;
    let more = write(&cluster, "b", 100).await;
    assert_readable(&cluster, &more).await;
}

#[tokio::test]
async fn a_primary_that_keeps_nothing_on_disk_never_empties_its_replica() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::form(8, volatile, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    cluster.pods[1].kill_redis();
    assert_eq!(cluster.pods[1].ended().await, Some(2));
    cluster.pods[1].start();
    eventually("the member is a replica", async || cluster.pods[1].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

#[tokio::test]
async fn an_empty_primary_is_held_while_its_replica_is_silent_and_goes_on_when_it_answers() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::form(9, volatile, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    // The replica is alive and does not answer: it holds the only copy.
    let replica = rustix::process::Pid::from_raw(cluster.pods[3].redis_pid().unwrap()).unwrap();
    rustix::process::kill_process(replica, Signal::STOP).unwrap();
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    eventually("the member is held", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| {
            report.phase == AgentPhase::Held
                && !report.holds_data
                && report.held_because.is_some_and(|why| why.contains("0 of its 1 replicas answer"))
        })
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(cluster.pods[0].is_running(), "held is not a crash loop");
    assert_eq!(cluster.get(&cluster.pods[0], "/livez").await.0, 200);
    assert_eq!(cluster.get(&cluster.pods[0], "/startupz").await.0, 200);
    assert_eq!(cluster.get(&cluster.pods[0], "/readyz").await.0, 503);
    rustix::process::kill_process(replica, Signal::CONT).unwrap();
    eventually("the member is a replica", async || cluster.pods[0].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

#[tokio::test]
async fn a_shard_whose_every_member_crashed_comes_back_from_disk() {
    // With `EverySec` Redis may answer before it writes, for as long as an earlier sync is slow.
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..config() };
    let mut cluster = Cluster::form(10, always, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    for pod in &mut cluster.pods {
        pod.kill_redis();
    }
    for pod in &mut cluster.pods {
        assert_eq!(pod.ended().await, Some(2));
        pod.start();
    }
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}
