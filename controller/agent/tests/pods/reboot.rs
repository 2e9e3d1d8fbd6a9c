//! The machine of a member is started anew: what its kernel had not written to the disk is gone.

use types::{agent::AgentConfig, cluster::AppendOnly};

use crate::{
    crash::{alive, assert_readable, write_to_first_shard},
    harness::{Cluster, config, eventually},
};

/// Nobody can be elected in a cluster of one shard. Before, the log was put over the replica, and what it had lost with the machine was lost there, too.
#[tokio::test]
async fn a_log_that_its_machine_cut_short_is_not_put_over_a_replica() {
    let every_second = AgentConfig { append_only: AppendOnly::EverySec, ..config() };
    let mut cluster = Cluster::form(218, every_second, 1, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 100).await;
    eventually("it has noted that it serves", async || alive(&cluster.pods[0])["beat"]["count"].is_u64()).await;
    let (log, older) = (cluster.pods[0].data("appendonlydir"), cluster.pods[0].data("older"));
    assert!(std::process::Command::new("cp").arg("-a").args([&log, &older]).status().unwrap().success());
    keys.extend(write_to_first_shard(&cluster, "b", 50).await);
    eventually("its replica has all of it", async || cluster.pods[1].dbsize().await == 150).await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    std::fs::remove_dir_all(&log).unwrap();
    std::fs::rename(&older, &log).unwrap();
    let mut noted = alive(&cluster.pods[0]);
    noted["boot"] = "another".into();
    std::fs::write(cluster.pods[0].data("kun-alive.json"), noted.to_string()).unwrap();
    cluster.pods[0].start();
    eventually("it follows its former replica", async || {
        cluster.pods[0].is_replica().await && cluster.pods[0].dbsize().await == 150
    })
    .await;
    assert_readable(&cluster, &keys).await;
}
