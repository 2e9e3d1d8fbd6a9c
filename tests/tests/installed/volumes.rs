//! Volumes that are to grow.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::{installed::Installed, kubectl::condition, story};

use crate::{
    account::{in_vain, length},
    engines::Engine,
    scenario::{ORDERS, say},
};

/// Requests that are refused meanwhile, at most: one for each claim, and for some of them another half a minute later; and again after
/// each half a minute that it takes.
const REFUSED_MOST: usize = 10;
const EVERY: (u64, usize) = (30, 6);

/// The class of the volumes says whether they may grow. While it does not, that is told, everything else goes on, and the size
/// may be taken back. On Valkey 9, which is formed, written to and handed over by this.
pub(crate) async fn volumes_grow_where_they_may_and_stop_nothing_where_they_may_not(
    installed: &Installed,
) -> Result<()> {
    let spec = json!({"engine": "Valkey", "version": "9", "image": "kun.test/valkey:9"});
    let engine = Engine::begin(installed, "growing", &spec, "9.").await?;
    let (since, begin) = (length(installed)?, Instant::now());
    resize(&engine, "2Gi").await?;
    let told = |object: &Value| {
        let says = |kind: &str, status: &str| {
            let condition = condition(object, kind);
            let message = condition["message"].as_str().unwrap_or_default();
            condition["status"] == status
                && message.starts_with(
                    "6 claims do not grow to 2Gi; the first: growing PersistentVolumeClaim data-growing-0-0:",
                )
                && message.contains("must support resize")
        };
        says("Ready", "False") && says("Degraded", "True")
    };
    engine.kubectl.until("rdc", "growing", hung::change(), "told that its volumes do not grow", told).await?;
    engine.act("failover", "RedisOperation", &json!({"failover": {"shard": 0}}), "Succeeded").await?;
    resize(&engine, "1Gi").await?;
    story::ready(&engine.kubectl, "growing", ORDERS.shards).await?;
    let refused = in_vain(installed, since, "patch", "persistentvolumeclaims")?;
    say(&format!("{refused} requests to grow a claim were refused"));
    let halves = usize::try_from(begin.elapsed().as_secs() / EVERY.0)?;
    ensure!((1..=REFUSED_MOST + halves * EVERY.1).contains(&refused), "{refused}");

    let class = async |may: Value| {
        let patch = json!({"allowVolumeExpansion": may}).to_string();
        installed.kubectl.run(&["patch", "storageclass", "standard", "--type=merge", "-p", &patch]).await
    };
    class(json!(true)).await?;
    resize(&engine, "2Gi").await?;
    let grown = |object: &Value| object["status"]["volumeSize"] == "2Gi";
    engine.kubectl.until("rdc", "growing", hung::change(), "grown", grown).await?;
    story::ready(&engine.kubectl, "growing", ORDERS.shards).await?;
    let claims = engine.kubectl.run(&["get", "pvc", "-o=jsonpath={.items[*].spec.resources.requests.storage}"]).await?;
    ensure!(claims == ["2Gi"; 6].join(" "), "{claims}");
    let patch = size("1Gi");
    let told = engine.kubectl.refused(&["patch", "rdc", "growing", "--type=merge", "-p", &patch], "").await?;
    ensure!(told.contains("must be at least 2Gi: a volume cannot shrink"), "{told}");
    class(Value::Null).await?;
    engine.end(ORDERS).await
}

async fn resize(engine: &Engine, to: &str) -> Result<()> {
    engine.kubectl.run(&["patch", "rdc", "growing", "--type=merge", "-p", &size(to)]).await.map(drop)
}

fn size(size: &str) -> String {
    json!({"spec": {"storage": {"size": size}}}).to_string()
}
