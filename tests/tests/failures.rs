//! What happens to a cluster without anybody's purpose.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;
use tests::{fixture::Fixture, kubectl::condition, story};

/// The agent asks, Redis elects and the controller tells: only together they make a former primary a replica.
#[tokio::test]
async fn a_primary_that_is_killed_comes_back_as_a_replica() -> Result<()> {
    // With EverySec a write may be in memory alone for two seconds, and where the machine stands still nobody takes over.
    let always = json!({"persistence": {"appendOnly": "Always"}});
    let fixture = Fixture::start(3, 1, &always).await?;
    let begin = Instant::now();
    // Where the machine stands still for longer than its agent waits, nobody takes over in time, and it comes back as it was.
    while !comes_back_as_a_replica(&fixture).await? {
        ensure!(begin.elapsed() < hung::change(), "nobody takes over from a primary that is killed");
    }
    // The append-only file holds every acknowledged write.
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Kills the redis-server of a shard's primary, and says what it comes back as.
async fn comes_back_as_a_replica(fixture: &Fixture) -> Result<bool> {
    let (pod, address) = fixture.primary(1).await?;
    fixture.crash(&pod, address).await?;
    fixture.ready(3).await?;
    Ok(fixture.primary(1).await?.0 != pod)
}

/// Only real gossip shows how a cluster finds itself in which no table has an address that is right.
#[tokio::test]
async fn all_pods_at_once_get_new_addresses_and_the_cluster_finds_itself_again() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    let before = fixture.addresses().await?;
    // A cluster that is Ready again before the last of these very pods has gone would prove nothing: below each has another address. kubectl itself would
    // wait for ever where a pod is new between its GET and its LIST, as it takes the new one for the old.
    fixture.kubectl.run(&["delete", "pods", "-l", "redis.kun.io/cluster=orders", "--wait=false"]).await?;
    let moved = |after: &BTreeMap<String, SocketAddr>| {
        after.keys().eq(before.keys()) && before.iter().all(|(pod, address)| after.get(pod) != Some(address))
    };
    let begin = Instant::now();
    while !moved(&fixture.addresses().await?) {
        ensure!(begin.elapsed() < hung::change(), "before: {before:?}, after: {:?}", fixture.addresses().await?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fixture.ready(3).await?;
    fixture.write_anew().await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only real processes outlive their parent, and are known again by the next one or not.
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
    fixture.writer()?.progress(500, hung::change()).await?;
    fixture.kun.resume().await?;
    fixture.ready(3).await?;
    assert_eq!(servers(&fixture), before, "the same processes");
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only here all end in their order, kun last, and begin from what that left.
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

/// Only a whole controller shows that what Kubernetes refuses keeps it from nothing else.
#[tokio::test]
async fn a_webhook_of_others_that_fails_keeps_no_role_from_moving() -> Result<()> {
    let fixture = Fixture::start(3, 1, &json!({})).await?;
    let theirs = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "theirs"},
        "webhooks": [{
            "name": "theirs.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": ["configmaps", "statefulsets"], "operations": ["*"]}],
        }],
    });
    fixture.kubectl.feed(&["create", "-f", "-"], &theirs.to_string()).await?;
    let change = json!({"spec": {"config": {"slowlog-max-len": "7"}}}).to_string();
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &change]).await?;
    let is_told = |cluster: &serde_json::Value| {
        let degraded = condition(cluster, "Degraded");
        degraded["reason"] == "Trouble"
            && degraded["message"].to_string().contains("ConfigMap orders-config cannot be written")
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "telling what is refused", is_told).await?;
    let (before, _) = fixture.primary(0).await?;
    let order = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation", "spec": {"failover": {"shard": 0}}});
    fixture.act("failover", "rop", &order, "Succeeded").await?;
    story::replaced(&fixture.kubectl, "orders", &before).await?;
    fixture.kubectl.run(&["delete", "validatingwebhookconfigurations", "theirs"]).await?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}
