//! Engines beside the one of `orders`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, PATIENCE},
    oracle, story,
    writer::Writer,
};

use crate::scenario::{ORDERS, say};

/// Redis 8: formed, written to, handed over, and gone again.
pub(crate) async fn redis_eight_is_written_to_and_hands_over(installed: &Installed) -> Result<()> {
    let kubectl = installed.kubectl.clone().within("eight");
    kubectl.run(&["create", "namespace", "eight"]).await?;
    installed.create("eight", "eight", ORDERS, &json!({"version": "8.0", "image": "kun.test/redis:8.0"})).await?;
    let cluster = kubectl.get("rdc", "eight").await?;
    let version = cluster["status"]["version"].as_str().unwrap_or_default().to_owned();
    ensure!(version.starts_with("8.0."), "{:#}", cluster["status"]);
    let credentials = oracle::credentials(&kubectl, "eight", "eight", "default").await?;
    let members =
        async || anyhow::Ok(oracle::addresses(&kubectl, "eight", "eight").await?.into_values().collect::<Vec<_>>());
    let writer = Writer::start(members().await?, Some(credentials));
    writer.progress(300, PATIENCE).await?;
    let before = cluster["status"]["shards"][0]["primary"].clone();
    let body = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation", "spec": {"failover": {"shard": 0}}});
    let path = "/apis/redis.kun.io/v1/namespaces/eight/redisclusters/eight/failover";
    let record: Value =
        serde_json::from_str(&kubectl.feed(&["create", "--raw", path, "-f", "-"], &body.to_string()).await?)?;
    let done =
        story::finished(&kubectl, "rop", record["metadata"]["name"].as_str().context("name of the record")?).await?;
    ensure!(done["status"]["phase"] == "Succeeded", "{:#}", done["status"]);
    writer.progress(300, PATIENCE).await?;
    story::ready(&kubectl, "eight", ORDERS.shards).await?;
    let after = kubectl.get("rdc", "eight").await?["status"]["shards"][0]["primary"].clone();
    ensure!(before != after, "shard 0 still has the primary {before}");
    let verdict = writer.verify(&members().await?).await?;
    ensure!(verdict.lost.is_empty() && verdict.acked > 0, "{verdict:#?}");
    oracle::check(&kubectl, "eight", "eight", ORDERS).await?;
    say(&format!(
        "Redis {version}: {} acknowledged writes, none lost; worst gap {:?}",
        verdict.acked, verdict.worst_gap
    ));
    kubectl.run(&["delete", "namespace", "eight", "--timeout=120s"]).await.map(drop)
}
