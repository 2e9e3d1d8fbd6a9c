//! KUN on a real Kubernetes, with a writer that records every acknowledgement.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::{
    installed::{Installed, PATIENCE, SYSTEM},
    oracle::Shape,
    story,
    writer::Writer,
};

/// Chart values for a rotation that a test can wait for: longer than a kubelet takes to bring a Secret into a pod.
const OVERLAP: &str = "certificates.overlap=100s";

#[tokio::test]
async fn kun_is_installed_scaled_upgraded_rotated_drained_and_taken_away_while_redis_serves() -> Result<()> {
    let Some(installed) = Installed::start(3, "kun_is_installed").await? else { return Ok(()) };
    let begin = Instant::now();
    installed.create(3, 1, &json!({})).await?;
    said(&format!("apply to Ready: {:.1} s", begin.elapsed().as_secs_f64()));
    let writer = installed.write().await?;
    scaling_three_five_three(&installed, &writer).await?;
    an_upgrade_restarts_no_redis_pod(&installed, &writer).await?;
    draining_the_node_with_most_primaries(&installed, &writer).await?;
    taking_kun_away_and_back_restarts_no_redis_pod(&installed, &writer).await?;
    authorities_are_exchanged_without_a_failed_request(&installed, &writer).await?;
    let verdict = installed.verify(writer, Shape { shards: 3, replicas: 1 }).await?;
    said(&format!("{} acknowledged writes, none lost; worst gap {:?}", verdict.acked, verdict.worst_gap));
    installed.kubernetes.stop()
}

#[expect(clippy::print_stdout, reason = "figures of a run are to be seen")]
fn said(text: &str) {
    println!("installed: {text}");
}

async fn scaling_three_five_three(installed: &Installed, writer: &Writer) -> Result<()> {
    for shards in [5, 3] {
        installed.kubectl.run(&["scale", "redisclusters/orders", &format!("--replicas={shards}")]).await?;
        story::ready(&installed.kubectl, "orders", shards).await?;
        writer.progress(100, PATIENCE).await?;
    }
    let begin = Instant::now();
    // The title and six pods: those of the shards that went have gone.
    while installed.pods().await?.lines().count() != 7 {
        ensure!(begin.elapsed() < PATIENCE, "{}", installed.pods().await?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn an_upgrade_restarts_no_redis_pod(installed: &Installed, writer: &Writer) -> Result<()> {
    let before = installed.pods().await?;
    // Every pod of KUN gets another label, so all of them are made anew.
    installed.install(&["labels.upgraded=yes", OVERLAP]).await?;
    installed.rolled_out().await?;
    story::ready(&installed.kubectl, "orders", 3).await?;
    writer.progress(100, PATIENCE).await?;
    ensure!(installed.pods().await? == before, "before:\n{before}\nafter:\n{}", installed.pods().await?);
    Ok(())
}

async fn draining_the_node_with_most_primaries(installed: &Installed, writer: &Writer) -> Result<()> {
    let node = node_with_most_primaries(installed).await?;
    let drain = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"];
    installed.kubectl.run(&drain).await?;
    writer.progress(300, PATIENCE).await?;
    installed.kubectl.run(&["uncordon", &node]).await?;
    installed.rolled_out().await?;
    story::ready(&installed.kubectl, "orders", 3).await?;
    Ok(())
}

async fn node_with_most_primaries(installed: &Installed) -> Result<String> {
    let listed = installed.kubectl.run(&["get", "pods", "-l", "redis.kun.io/role=primary", "-o", "json"]).await?;
    let listed: Value = serde_json::from_str(&listed)?;
    let nodes = listed["items"].as_array().into_iter().flatten().filter_map(|pod| pod["spec"]["nodeName"].as_str());
    let mut count = std::collections::BTreeMap::<&str, usize>::new();
    nodes.for_each(|node| *count.entry(node).or_default() += 1);
    let most = count.into_iter().max_by_key(|(_, primaries)| *primaries);
    let (node, primaries) = most.context("no pod is labelled as a primary")?;
    said(&format!("{node} has {primaries} of 3 primaries"));
    Ok(node.to_owned())
}

async fn taking_kun_away_and_back_restarts_no_redis_pod(installed: &Installed, writer: &Writer) -> Result<()> {
    let before = installed.pods().await?;
    installed.uninstall().await?;
    writer.progress(300, PATIENCE).await?;
    installed.install(&[OVERLAP]).await?;
    installed.rolled_out().await?;
    story::ready(&installed.kubectl, "orders", 3).await?;
    ensure!(installed.pods().await? == before, "before:\n{before}\nafter:\n{}", installed.pods().await?);
    Ok(())
}

/// Another authority for serving and one for the agents are asked for; meanwhile everybody reads and writes. A request is
/// tried once: none fails.
async fn authorities_are_exchanged_without_a_failed_request(installed: &Installed, writer: &Writer) -> Result<()> {
    let kubectl = &installed.kubectl;
    let secrets = ["kun-authority", "kun-agents-authority"];
    let first = authority(installed, secrets[0]).await?;
    let turn = format!("redis.kun.io/turn={:.0}", Timestamp::now());
    kubectl.run(&["annotate", "secret", secrets[0], secrets[1], "-n", SYSTEM, &turn]).await?;
    let (begin, mut requests) = (Instant::now(), 0_u32);
    while authority(installed, secrets[0]).await?.contains(&first) {
        ensure!(begin.elapsed() < Duration::from_secs(400), "the first authority is still believed");
        let patch = format!("{{\"metadata\":{{\"annotations\":{{\"n\":\"{requests}\"}}}}}}");
        kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await?;
        requests += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    writer.progress(100, PATIENCE).await?;
    story::ready(kubectl, "orders", 3).await?;
    said(&format!("authorities exchanged in {:?}, {requests} writes to the API, none failed", begin.elapsed()));
    Ok(())
}

/// Whom the Secret of an authority says to believe: the first of them signs.
async fn authority(installed: &Installed, secret: &str) -> Result<String> {
    let found =
        installed.kubectl.run(&["get", "secret", secret, "-n", SYSTEM, "-o", "jsonpath={.data.ca\\.crt}"]).await?;
    use base64::Engine as _;
    let bundle = base64::engine::general_purpose::STANDARD.decode(found.trim())?;
    let bundle = String::from_utf8(bundle)?;
    ensure!(bundle.contains("CERTIFICATE"), "{secret}: no bundle");
    Ok(bundle)
}
