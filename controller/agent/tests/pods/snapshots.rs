//! A primary whose volume has a snapshot alone, and whose replica has every write.

use std::fs;

use rustix::process::Signal;
use types::{
    agent::{AgentConfig, AgentPhase},
    cluster::{AppendOnly, SavePoint},
};

use crate::{
    crash::{assert_readable, write_to_first_shard},
    harness::{AGENT, Cluster, eventually, patient},
};

/// Snapshots alone are kept, and none is due by itself within a test.
fn kept() -> AgentConfig {
    let snapshots = vec![SavePoint { seconds: 3600, changes: 1_000_000 }];
    AgentConfig { append_only: AppendOnly::Off, snapshots, ..patient() }
}

/// Three shards; the first one's primary has a snapshot of some of its keys, and its replica all of them, which are returned.
async fn formed(net: u8) -> (Cluster, Vec<String>) {
    let cluster = Cluster::form(net, kept(), 3, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 20).await;
    cluster.pods[0].login(types::names::USER_AGENT, AGENT).await.call(&["BGSAVE"]).await.unwrap();
    let mut primary = cluster.pods[0].operator().await;
    eventually("it is saved", async || {
        let info = primary.info(&["persistence"]).await.unwrap();
        info.flag("rdb_bgsave_in_progress") == Some(false) && cluster.pods[0].data("dump.rdb").exists()
    })
    .await;
    keys.extend(write_to_first_shard(&cluster, "b", 280).await);
    (cluster, keys)
}

async fn crash(cluster: &mut Cluster) {
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
}

/// Before, `appendOnly` counted as a file that has every write: the primary came back with its snapshot, and its replica copied that.
#[tokio::test]
async fn a_primary_that_crashes_before_its_first_log_is_written_empties_nobody() {
    let (mut cluster, keys) = formed(204).await;
    // Nearly for ever, and for some seconds.
    for (pod, delay) in [(0, "5000000"), (3, "20000")] {
        cluster.pods[pod].operator().await.config_set("rdb-key-save-delay", delay).await.unwrap();
    }
    cluster.config.append_only = AppendOnly::Always;
    for pod in &cluster.pods {
        cluster.write_config(&pod.dir);
    }
    for pod in [0, 3] {
        let mut redis = cluster.pods[pod].operator().await;
        eventually("its first file is being written", async || {
            redis.info(&["persistence"]).await.unwrap().flag("aof_enabled") == Some(true)
        })
        .await;
    }
    assert!(!cluster.pods[0].data("appendonlydir/appendonly.aof.manifest").exists());
    crash(&mut cluster).await;
    eventually("it follows its replica", async || cluster.pods[0].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// Before, it started with its snapshot after three seconds, and its replica copied that.
#[tokio::test]
async fn a_primary_beside_a_snapshot_waits_for_those_who_vote_and_says_so() {
    let (mut cluster, keys) = formed(205).await;
    // One of the two whose votes are needed is silent.
    let voter = rustix::process::Pid::from_raw(cluster.pods[1].redis_pid().unwrap()).unwrap();
    rustix::process::kill_process(voter, Signal::STOP).unwrap();
    crash(&mut cluster).await;
    let needs = "1 primaries that know it answer where 2 are needed to elect it";
    eventually("it says what it waits for", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.and_then(|report| report.waits_for).is_some_and(|why| why.contains(needs))
    })
    .await;
    let (status, said) = cluster.get(&cluster.pods[0], "/readyz").await;
    assert!(status == 503 && said.contains(needs), "{said}");
    assert!(cluster.pods[0].log().contains(needs), "{}", cluster.pods[0].log());
    rustix::process::kill_process(voter, Signal::CONT).unwrap();
    eventually("it follows its replica", async || cluster.pods[0].is_replica().await).await;
    assert_eq!(cluster.report(&cluster.pods[0]).await.unwrap().waits_for, None);
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// Before, a replica that was restarted while its primary waited counted as behind, and copied the older snapshot.
#[tokio::test]
async fn a_replica_that_is_restarted_while_its_primary_waits_takes_over() {
    let (mut cluster, keys) = formed(93).await;
    let voter = rustix::process::Pid::from_raw(cluster.pods[1].redis_pid().unwrap()).unwrap();
    rustix::process::kill_process(voter, Signal::STOP).unwrap();
    crash(&mut cluster).await;
    // It saves as it ends, since its primary is gone.
    cluster.pods[3].signal(Signal::TERM);
    assert_eq!(cluster.pods[3].ended_slowly().await, Some(0));
    cluster.pods[3].start();
    let needs = "1 primaries that know it answer where 2 are needed to elect it";
    eventually("its primary waits for votes for it", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.and_then(|report| report.waits_for).is_some_and(|why| why.contains(needs))
    })
    .await;
    rustix::process::kill_process(voter, Signal::CONT).unwrap();
    eventually("it follows its replica", async || cluster.pods[0].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// Before, its log alone said so.
#[tokio::test]
async fn what_a_start_costs_is_in_the_report_while_the_server_runs() {
    let (mut cluster, _) = formed(94).await;
    let files = ["kun-alive.json", "dump.rdb"].map(|file| cluster.pods[0].data(file));
    eventually("its volume says that it was in service since", async || {
        let written = files.each_ref().map(|file| fs::metadata(file).and_then(|file| file.modified()).ok());
        matches!(written, [Some(alive), Some(snapshot)] if alive > snapshot)
    })
    .await;
    let replica = cluster.pods[3].id().await;
    cluster.pods[3].kill_redis();
    assert_eq!(cluster.pods[3].ended().await, Some(2));
    cluster.config.node_timeout_millis = 1000;
    cluster.write_config(&cluster.pods[0].dir);
    crash(&mut cluster).await;
    eventually("it runs", async || {
        cluster.report(&cluster.pods[0]).await.is_some_and(|report| report.phase == AgentPhase::Running)
    })
    .await;
    let lost = cluster.report(&cluster.pods[0]).await.unwrap().lost.unwrap().what;
    let told = format!(
        "replica {replica}, which may have been ahead of it, did not answer. What was written after that snapshot is lost"
    );
    assert!(lost.starts_with("started with a snapshot of ") && lost.ends_with(&told), "{lost}");
}
