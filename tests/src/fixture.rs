//! A running cluster under a writer: where most whole-system tests begin, and how all of them end.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use resp::Credentials;
use serde_json::{Value, json};

use crate::{
    kubectl::Kubectl,
    oracle::{self, Shape},
    standalone::Standalone,
    story,
    writer::{Verdict, Writer},
};

/// A RedisCluster `orders` with volumes, in the namespace `default`, and a writer on it.
#[derive(Debug)]
pub struct Fixture {
    /// The instance under test.
    pub kun: Standalone,
    /// kubectl of its administrator.
    pub kubectl: Kubectl,
    writer: Option<Writer>,
}

/// After so many seconds the nodes of `orders` give each other up where a test does not say otherwise, on a quiet machine. Whoever is killed is
/// replaced at once all the same, as its agent asks for that.
const NODE_TIMEOUT: u64 = 10;

/// Between two looks at what does not hold yet.
const AGAIN: Duration = Duration::from_millis(200);

/// The part of a spec that says so.
#[must_use]
pub fn node_timeout(seconds: u64) -> Value {
    json!({"nodeTimeout": format!("{}s", hung::node_timeout(seconds).as_secs())})
}

/// A manifest of the cluster `orders`, with fields of its spec replaced or added.
#[must_use]
pub fn manifest(shards: u16, replicas: u16, spec: &Value) -> String {
    let mut object = json!({
        "apiVersion": types::API_VERSION, "kind": "RedisCluster",
        "metadata": {"name": "orders", "namespace": "default"},
        "spec": {"shards": shards, "replicasPerShard": replicas, "storage": {"size": "1Gi"},
                 "failover": node_timeout(NODE_TIMEOUT)},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object.to_string()
}

impl Fixture {
    /// Starts `kun standalone`, creates the cluster, waits until it is Ready and a writer writes.
    pub async fn start(shards: u16, replicas: u16, spec: &Value) -> Result<Self> {
        Self::on(Standalone::start().await?, shards, replicas, spec).await
    }

    /// The same on an instance that runs already.
    pub async fn on(kun: Standalone, shards: u16, replicas: u16, spec: &Value) -> Result<Self> {
        let mut fixture = Self::idle(kun, shards, replicas, spec).await?;
        fixture.write().await?;
        Ok(fixture)
    }

    /// The same without a writer.
    pub async fn idle(kun: Standalone, shards: u16, replicas: u16, spec: &Value) -> Result<Self> {
        let kubectl = kun.kubectl();
        kubectl.feed(&["apply", "-f", "-"], &manifest(shards, replicas, spec)).await?;
        story::ready(&kubectl, "orders", shards).await?;
        Ok(Self { kun, kubectl, writer: None })
    }

    /// An instance that runs already, and no cluster yet.
    #[must_use]
    pub fn without_cluster(kun: Standalone) -> Self {
        let kubectl = kun.kubectl();
        Self { kun, kubectl, writer: None }
    }

    /// Starts the writer.
    pub async fn write(&mut self) -> Result<()> {
        self.begin(Writer::start).await
    }

    /// Starts a writer that waits for its answers: where every node lives, a write that has none was cut off.
    pub async fn write_waiting(&mut self) -> Result<()> {
        self.begin(|seeds, credentials| Writer::waiting(seeds, credentials, hung::change())).await
    }

    async fn begin(&mut self, start: impl FnOnce(Vec<SocketAddr>, Option<Credentials>) -> Writer) -> Result<()> {
        let credentials = oracle::credentials(&self.kubectl, "default", "orders", "default").await?;
        let seeds = self.addresses().await?.into_values().collect();
        let writer = start(seeds, Some(credentials));
        writer.progress(300, hung::change()).await?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Client addresses by pod name.
    pub async fn addresses(&self) -> Result<BTreeMap<String, SocketAddr>> {
        oracle::addresses(&self.kubectl, "default", "orders").await
    }

    /// The object `orders`.
    pub async fn cluster(&self) -> Result<Value> {
        self.kubectl.get("rdc", "orders").await
    }

    /// Waits until Ready with so many shards.
    pub async fn ready(&self, shards: u16) -> Result<Value> {
        match story::ready(&self.kubectl, "orders", shards).await {
            Ok(cluster) => Ok(cluster),
            Err(error) => bail!("{}\n{error:#}", oracle::tables(&self.kubectl, "default", "orders").await),
        }
    }

    /// Pod that is primary of a shard, and its address.
    pub async fn primary(&self, shard: usize) -> Result<(String, SocketAddr)> {
        let begin = Instant::now();
        loop {
            let pod = story::primary(&self.kubectl, "orders", shard).await?;
            if let Some(address) = self.addresses().await?.get(&pod) {
                return Ok((pod, *address));
            }
            // A status may be some seconds older than what there is.
            ensure!(begin.elapsed() < hung::change(), "{pod} has no address");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Kills the redis-server of a member, and waits until its container was started again and is ready.
    pub async fn crash(&self, pod: &str, address: SocketAddr) -> Result<()> {
        let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
        let before = restarts(&self.kubectl.get("pod", pod).await?);
        self.kun.redis_server(address)?.kill()?;
        let back =
            |object: &Value| restarts(object) > before && object["status"]["containerStatuses"][0]["ready"] == true;
        self.kubectl.until("pod", pod, hung::change(), "back", back).await.map(drop)
    }

    /// Creates an action through its subresource and waits until it ended; it must end in `phase`.
    pub async fn act(&self, subresource: &str, resource: &str, body: &Value, phase: &str) -> Result<Value> {
        let path = format!("/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/{subresource}");
        let created = self.kubectl.create_at(&path, body).await?;
        let name = created["metadata"]["name"].as_str().context("name")?;
        let done = story::finished(&self.kubectl, resource, name).await?;
        ensure!(done["status"]["phase"] == phase, "{name} ended with {:#}", done["status"]);
        Ok(done)
    }

    /// For a test after which no old address is left, so that the writer's client, which knows only those, cannot go on:
    /// reads everything back through the new addresses, then starts a new writer.
    pub async fn write_anew(&mut self) -> Result<()> {
        let writer = self.writer.take().context("no writer runs")?;
        let seeds: Vec<SocketAddr> = self.addresses().await?.into_values().collect();
        let verdict = writer.verify(&seeds).await?;
        ensure!(verdict.lost.is_empty(), "acknowledged writes were lost: {:#?}", verdict.lost);
        self.write().await
    }

    /// For a test in which a person has given up what was acknowledged: a new writer starts, and from now on nothing may be lost.
    pub async fn write_after_a_loss(&mut self) -> Result<()> {
        drop(self.writer.take());
        self.write().await
    }

    /// The writer under this cluster.
    pub fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().context("no writer runs")
    }

    /// The end of a test: nothing acknowledged is lost, and the invariants T1–T6 hold.
    pub async fn verify(mut self, shards: u16, replicas: u16) -> Result<(Verdict, Standalone)> {
        let writer = self.writer.take().context("no writer runs")?;
        writer.progress(100, hung::change()).await.context("the writer writes at the end")?;
        let seeds: Vec<SocketAddr> = self.addresses().await?.into_values().collect();
        let verdict = writer.verify(&seeds).await?;
        ensure!(verdict.lost.is_empty(), "acknowledged writes were lost: {:#?}", verdict.lost);
        ensure!(verdict.acked > 0, "nothing was written");
        story::settled(&self.kubectl, ("default", "orders"), Shape { shards, replicas }, async || Ok(None)).await?;
        Ok((verdict, self.kun))
    }
}
