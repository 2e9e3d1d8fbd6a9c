//! A cluster that is deleted and created again with fewer shards, as a controlled repository does it.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use anyhow::{Context, Result, ensure};
use resp::{ClusterClient, Outcome};
use serde_json::json;
use tests::{
    fixture::{Fixture, manifest},
    kubectl::{condition, waiting},
    oracle,
    standalone::Standalone,
    story,
};

const KEYS: usize = 500;

/// Admission counts volumes, the status tells them, and members come back on them: only the whole system has all three.
#[tokio::test]
async fn slots_that_a_smaller_cluster_leaves_behind_are_told_and_come_back() -> Result<()> {
    let fixture = Fixture::idle(Standalone::start().await?, 5, 0, &json!({})).await?;
    let mut client = client(&fixture).await?;
    for index in 0..KEYS {
        let outcome = client.set(format!("kept:{index}"), format!("{index}")).await;
        ensure!(matches!(outcome, Outcome::Acked(_)), "{index}: {outcome:?}");
    }
    let kubectl = &fixture.kubectl;
    kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;
    let told = kubectl.refused(&["apply", "-f", "-"], &manifest(3, 0, &json!({}))).await?;
    ensure!(told.contains("volumes of shards 3 and 4") && told.contains("create it with shards: 5"), "{told}");

    // Nobody is asked.
    kubectl.run(&["delete", "validatingwebhookconfigurations", "--all"]).await?;
    kubectl.feed(&["apply", "-f", "-"], &manifest(3, 0, &json!({}))).await?;
    let is_told = |object: &serde_json::Value| condition(object, "Degraded")["reason"] == "ShardsMissing";
    let cluster = kubectl.until("rdc", "orders", hung::change(), "ShardsMissing", is_told).await?;
    let message = condition(&cluster, "Degraded")["message"].as_str().context("message")?.to_owned();
    let command = message.split("kubectl ").nth(1).and_then(|rest| rest.split(';').next());
    let command: Vec<&str> = command.with_context(|| message.clone())?.split(' ').collect();
    kubectl.run(&command).await.with_context(|| message.clone())?;
    story::ready(kubectl, "orders", 5).await?;
    let mut client = self::client(&fixture).await?;
    for index in 0..KEYS {
        let found = client.get(format!("kept:{index}")).await.map_err(anyhow::Error::msg)?;
        ensure!(found.as_deref() == Some(index.to_string().as_bytes()), "{index}: {found:?}");
    }
    Ok(())
}

async fn client(fixture: &Fixture) -> Result<ClusterClient> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let client = ClusterClient::new(fixture.addresses().await?.into_values().collect(), Some(credentials));
    Ok(client.timeouts(hung::answer(), hung::change()))
}
