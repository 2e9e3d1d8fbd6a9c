//! What happens to a cluster without anybody's purpose.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use anyhow::Result;
use serde_json::{Value, json};
use tests::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn a_primary_that_is_killed_comes_back_as_a_replica() -> Result<()> {
    let fixture = Fixture::start(3, 1, &json!({})).await?;
    let (pod, address) = fixture.primary(1).await?;
    fixture.kun.redis_server(address)?.kill()?;
    let back = |cluster: &Value| {
        let members = cluster["status"]["shards"][1]["members"].as_array();
        members
            .into_iter()
            .flatten()
            .any(|m| m["pod"] == pod.as_str() && m["role"] == "Replica" && m["state"] == "Online")
    };
    fixture.kubectl.until("rdc", "orders", PATIENCE, "back as a replica", back).await?;
    fixture.ready(3).await?;
    // The append-only file holds every acknowledged write and the replica had all of them: 0 lost is expected.
    fixture.verify(3, 1).await?;
    Ok(())
}

#[tokio::test]
async fn all_pods_at_once_get_new_addresses_and_the_cluster_finds_itself_again() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    let before = fixture.addresses().await?;
    fixture.kubectl.run(&["delete", "pods", "-l", "redis.kun.io/cluster=orders", "--wait=false"]).await?;
    let gone = |cluster: &Value| !tests::story::is_ready(cluster, 3);
    fixture.kubectl.until("rdc", "orders", PATIENCE, "disturbed", gone).await?;
    fixture.ready(3).await?;
    let after = fixture.addresses().await?;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (pod, address) in &before {
        assert_ne!(after.get(pod), Some(address), "{pod} kept its address");
    }
    fixture.write_anew().await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

#[tokio::test]
async fn pods_serve_on_while_kun_is_dead_and_the_next_start_takes_the_same_processes_over() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    let servers = |fixture: &Fixture| -> Vec<i32> {
        let all = fixture.kun.pod_processes();
        all.into_iter().filter(|p| p.command.contains("redis-server 127.")).map(|p| p.pid).collect()
    };
    let before = servers(&fixture);
    assert_eq!(before.len(), 6);
    fixture.kun.kill().await?;
    fixture.writer()?.progress(500, PATIENCE).await?;
    fixture.kun.resume().await?;
    fixture.ready(3).await?;
    assert_eq!(servers(&fixture), before, "the same processes");
    fixture.verify(3, 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_clean_stop_and_start_keeps_the_data() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    assert_eq!(fixture.kun.stop().await?, 0);
    assert!(fixture.kun.pod_processes().is_empty());
    fixture.kun.resume().await?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}
