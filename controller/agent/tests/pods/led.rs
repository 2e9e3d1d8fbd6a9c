//! A volume that went back to a time when its member was a replica.

use resp::Outcome;
use rustix::process::Signal;
use types::{
    agent::{AgentConfig, AgentPhase},
    cluster::AppendOnly,
};

use crate::{
    crash::{assert_readable, takes_over, write_to_first_shard},
    harness::{Cluster, Pod, eventually, patient, signal_redis},
};

/// Before, it followed the one that followed it: the shard had no primary, and no order helped.
#[tokio::test]
async fn a_primary_on_a_volume_of_when_it_was_a_replica_follows_its_heir() {
    let always = AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::form(209, always, 3, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 100).await;
    eventually("the replica has everything", async || cluster.pods[3].dbsize().await == 100).await;
    let (data, older) = (cluster.pods[3].dir.join("data"), cluster.pods[3].dir.join("older"));
    assert!(std::process::Command::new("cp").arg("-r").args([&data, &older]).status().unwrap().success());
    let killed = async |pod: &mut Pod| {
        pod.kill_redis();
        assert_eq!(pod.ended().await, Some(2));
    };
    cluster.until_replaced(0, killed).await;
    let mut client = cluster.client();
    let more = (0..).map(|n| format!("b{n}")).filter(|key| resp::slot::key_slot(key) < 5461);
    for key in more.take(100) {
        assert!(matches!(client.set(&key, &key).await, Outcome::Acked(_)));
        keys.push(key);
    }
    eventually("the former primary has everything", async || cluster.pods[0].dbsize().await == 200).await;
    for number in [3, 0] {
        killed(&mut cluster.pods[number]).await;
    }
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&older, &data).unwrap();
    // Who was not heard in a first look is no reason to start.
    let others = [1, 2, 4, 5];
    for pod in others {
        signal_redis(&cluster.pods[pod], Signal::STOP);
    }
    cluster.pods[3].start();
    eventually("it waits for the others", async || cluster.pods[3].log().contains("of 3 primaries answer")).await;
    for pod in others {
        signal_redis(&cluster.pods[pod], Signal::CONT);
    }
    cluster.pods[0].start();
    eventually("the member is held", async || {
        let report = cluster.report(&cluster.pods[3]).await;
        report.is_some_and(|report| {
            let why = report.held_because.unwrap_or_default();
            let is_told = why.contains("it says that this member is a replica of");
            report.phase == AgentPhase::Held && report.node_id.is_none() && is_told
        })
    })
    .await;
    // As the controller does, where a person says so: nobody can tell how old a copy is that was started without its primary.
    let mut heir = cluster.pods[0].operator().await;
    takes_over(&cluster.pods[0], &mut heir).await;
    eventually("it follows its heir", async || cluster.pods[3].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
    assert_eq!(cluster.pods[3].dbsize().await, 200);
}
