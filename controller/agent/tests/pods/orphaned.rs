//! A primary that was given up for good comes back with its volume.

use types::agent::AgentPhase;

use crate::{
    crash::write_to_first_shard,
    harness::{Cluster, Pod, eventually, patient},
};

/// Whether append-only files were set aside on its volume.
fn keeps_a_log_aside(pod: &Pod) -> bool {
    let entries = std::fs::read_dir(pod.dir.join("data")).unwrap().map(|entry| entry.unwrap());
    let mut aside = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("quarantine-"));
    aside.any(|entry| entry.path().join("appendonlydir/appendonly.aof.manifest").exists())
}

/// A new, empty member gets the slots of the first pod, which everybody forgets: as the controller does where that loss was accepted.
async fn give_up_the_first(cluster: &mut Cluster) {
    let former = cluster.pods[0].id().await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    let heir = cluster.add();
    let id = cluster.pods[heir].id().await;
    let mut operator = cluster.pods[heir].operator().await;
    operator.call(&["CLUSTER", "MEET", &cluster.pods[1].ip.to_string(), "6379"]).await.unwrap();
    for pod in [1, 2] {
        let mut other = cluster.pods[pod].operator().await;
        eventually("they know the new member", async || {
            let table = other.cluster_nodes().await.unwrap();
            table.iter().any(|node| node.id == id && !node.flags.handshake)
        })
        .await;
        other.call(&["CLUSTER", "FORGET", former.as_str()]).await.unwrap();
    }
    operator.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "5460"]).await.unwrap();
    operator.call(&["CLUSTER", "BUMPEPOCH"]).await.unwrap();
    for pod in [1, 2] {
        let mut other = cluster.pods[pod].operator().await;
        eventually("they know whose the slots are", async || {
            let table = other.cluster_nodes().await.unwrap();
            table.iter().any(|node| node.id == id && node.owns(0))
        })
        .await;
    }
}

/// Measured before: Redis made it a replica of the empty member, and its volume was overwritten.
#[tokio::test]
async fn a_primary_that_was_given_up_for_good_keeps_what_only_it_holds() {
    let mut cluster = Cluster::form(68, patient(), 3, 0).await;
    write_to_first_shard(&cluster, "a", 100).await;
    give_up_the_first(&mut cluster).await;
    cluster.pods[0].start();
    eventually("it is held", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| {
            let why = report.held_because.unwrap_or_default();
            report.phase == AgentPhase::Held
                && report.node_id.is_none()
                && why.contains("nobody knows of a replica that took over")
        })
    })
    .await;
    let (status, answer) =
        cluster.as_user("kun:controller", &cluster.pods[0], "POST", "/v1/release", r#"{"how":"Blank"}"#).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(cluster.pods[0].dbsize().await, 0);
    assert!(keeps_a_log_aside(&cluster.pods[0]));
}
