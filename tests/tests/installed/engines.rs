//! Engines beside the one of `orders`.

use std::{net::SocketAddr, time::Instant};

use anyhow::{Context, Result, ensure};
use resp::{ClusterClient, Command, Outcome};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, sized},
    kubectl::{Kubectl, condition},
    oracle::{self, Shape},
    story,
    writer::Writer,
};

use crate::scenario::{ORDERS, say};

/// Valkey 8.1: formed, written to, handed over, upgraded to Valkey 9 member by member; then slots move to a fourth shard, and a backup
/// holds what only Valkey 9 can keep.
pub(crate) async fn valkey_eight_hands_over_becomes_nine_grows_and_is_backed_up(installed: &Installed) -> Result<()> {
    let spec = json!({"engine": "Valkey", "version": "8.1", "image": "kun.test/valkey:8.1"});
    let engine = Engine::begin(installed, "valkey", &spec, "8.1.").await?;
    engine.hands_over().await?;
    let begin = Instant::now();
    let nine = json!({"spec": {"version": "9", "image": "kun.test/valkey:9"}});
    engine.kubectl.run(&["patch", "rdc", engine.name, "--type=merge", "-p", &nine.to_string()]).await?;
    story::ready(&engine.kubectl, engine.name, ORDERS.shards).await?;
    story::runs(&engine.kubectl, engine.name, "9.").await?;
    say(&format!("Valkey 8.1 to 9 after {:.1} s", begin.elapsed().as_secs_f64()));
    let down = json!({"spec": {"version": "8.1", "image": "kun.test/valkey:8.1"}}).to_string();
    let told = engine.kubectl.refused(&["patch", "rdc", engine.name, "--type=merge", "-p", &down], "").await?;
    ensure!(told.contains("Valkey does not read files of a later minor version"), "{told}");
    engine.keeps_a_field_that_expires().await?;
    let begin = Instant::now();
    engine.kubectl.run(&["scale", &format!("rdc/{}", engine.name), "--replicas=4"]).await?;
    story::ready(&engine.kubectl, engine.name, 4).await?;
    say(&format!("Valkey 9 has 4 shards after {:.1} s", begin.elapsed().as_secs_f64()));
    engine.writer.progress(100, hung::change()).await?;
    engine.is_backed_up().await?;
    engine.end(Shape { shards: 4, ..ORDERS }).await
}

/// Nothing is started on an image of the other engine, the status says why, and the right image mends it.
pub(crate) async fn an_image_of_another_engine_is_not_started_and_says_so(installed: &Installed) -> Result<()> {
    let kubectl = namespace(installed, "mistaken").await?;
    let spec = json!({"engine": "Valkey", "version": "8", "image": "kun.test/redis:8.0"});
    let object = sized("mistaken", "mistaken", Shape { shards: 1, replicas: 0 }, &spec);
    kubectl.feed(&["create", "-f", "-"], &object.to_string()).await?;
    let why = "1 members do not start; the first is 0-0: the image has no valkey-server, and spec.engine is Valkey";
    let says = |object: &Value| {
        let says = |kind: &str, status: &str| {
            let condition = condition(object, kind);
            condition["status"] == status && condition["message"] == why
        };
        says("Ready", "False")
            && says("Degraded", "True")
            && object["status"]["shards"][0]["members"][0]["state"] == "Held"
    };
    kubectl.until("rdc", "mistaken", hung::change(), "told that its image is not Valkey's", says).await?;
    let right = json!({"spec": {"image": "kun.test/valkey:8.1"}}).to_string();
    kubectl.run(&["patch", "rdc", "mistaken", "--type=merge", "-p", &right]).await?;
    story::ready(&kubectl, "mistaken", 1).await?;
    story::runs(&kubectl, "mistaken", "8.1.").await?;
    kubectl.run(&["delete", "namespace", "mistaken", "--wait=false"]).await.map(drop)
}

/// A cluster of an engine in a namespace of its own, which is called as it is, under a writer.
pub(crate) struct Engine {
    name: &'static str,
    pub(crate) kubectl: Kubectl,
    pub(crate) writer: Writer,
}

impl Engine {
    pub(crate) async fn begin(installed: &Installed, name: &'static str, spec: &Value, version: &str) -> Result<Self> {
        let kubectl = namespace(installed, name).await?;
        installed.create(name, name, ORDERS, spec).await?;
        story::runs(&kubectl, name, version).await?;
        let credentials = oracle::credentials(&kubectl, name, name, "default").await?;
        let writer = Writer::calm(members(&kubectl, name).await?, Some(credentials));
        writer.progress(100, hung::change()).await?;
        Ok(Self { name, kubectl, writer })
    }

    async fn hands_over(&self) -> Result<()> {
        let before = story::primary(&self.kubectl, self.name, 0).await?;
        self.act("failover", "RedisOperation", &json!({"failover": {"shard": 0}}), "Succeeded").await?;
        story::replaced(&self.kubectl, self.name, &before).await?;
        self.writer.progress(100, hung::change()).await?;
        story::ready(&self.kubectl, self.name, ORDERS.shards).await.map(drop)
    }

    pub(crate) async fn act(&self, verb: &str, kind: &str, spec: &Value, phase: &str) -> Result<Value> {
        let body = json!({"apiVersion": types::API_VERSION, "kind": kind, "spec": spec});
        let path = format!("/apis/redis.kun.io/v1/namespaces/{0}/redisclusters/{0}/{verb}", self.name);
        let record = self.kubectl.create_at(&path, &body).await?;
        let name = record["metadata"]["name"].as_str().context("name of the record")?;
        let done = story::finished(&self.kubectl, &kind.to_ascii_lowercase(), name).await?;
        ensure!(done["status"]["phase"] == phase, "{verb} ended with {:#}", done["status"]);
        Ok(done)
    }

    /// A value that no format but Valkey 9's can hold.
    async fn keeps_a_field_that_expires(&self) -> Result<()> {
        let credentials = oracle::credentials(&self.kubectl, self.name, self.name, "default").await?;
        let client = ClusterClient::new(members(&self.kubectl, self.name).await?, Some(credentials));
        let mut client = client.timeouts(hung::answer(), hung::change());
        for command in [
            Command::new("HSET").args(["session", "token", "x"]),
            Command::new("HEXPIRE").args(["session", "3600", "FIELDS", "1", "token"]),
        ] {
            let outcome = client.execute("session", &command).await;
            ensure!(matches!(outcome, Outcome::Acked(_)), "{outcome:?}");
        }
        Ok(())
    }

    /// Every artifact is read back, value by value: the walk ends well only if it understood each.
    async fn is_backed_up(&self) -> Result<()> {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vault"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
        self.kubectl.feed(&["apply", "-f", "-"], &claim.to_string()).await?;
        let target = json!({"target": {"persistentVolumeClaim": {"claimName": "vault"}}});
        let done = self.act("backup", "RedisBackup", &target, "Completed").await?;
        let status = &done["status"];
        ensure!(status["engine"] == "Valkey" && status["verified"] == true, "{status:#}");
        ensure!(status["engineVersion"].as_str().is_some_and(|version| version.starts_with("9.")), "{status:#}");
        Ok(())
    }

    /// Nothing acknowledged is lost, and the invariants hold.
    pub(crate) async fn end(self, shape: Shape) -> Result<()> {
        let Self { name, kubectl, writer } = self;
        let verdict = writer.verify(&members(&kubectl, name).await?).await?;
        ensure!(verdict.lost.is_empty() && verdict.acked > 0, "{verdict:#?}");
        story::settled(&kubectl, (name, name), shape, async || Ok(None)).await?;
        say(&format!("{name}: {} acknowledged writes, none lost; worst gap {:?}", verdict.acked, verdict.worst_gap));
        kubectl.run(&["delete", "namespace", name, "--wait=false"]).await.map(drop)
    }
}

async fn namespace(installed: &Installed, name: &str) -> Result<Kubectl> {
    installed.kubectl.run(&["create", "namespace", name]).await?;
    Ok(installed.kubectl.clone().within(name))
}

async fn members(kubectl: &Kubectl, name: &str) -> Result<Vec<SocketAddr>> {
    Ok(oracle::addresses(kubectl, name, name).await?.into_values().collect())
}
