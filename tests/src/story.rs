//! The story of `make demo`: what a platform team does with KUN in its first hour, told step by step and checked.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    kubectl::{Kubectl, condition, waiting},
    oracle::{self, Shape},
    standalone::Standalone,
    writer::{Verdict, Writer},
};

const ORDERS: &str = include_str!("../../deploy/examples/orders.yaml");
const POLICY: &str = include_str!("../../deploy/examples/policy.yaml");
/// Namespace and name of its cluster.
const HOME: (&str, &str) = ("default", "orders");
const API: &str = "/apis/redis.kun.io/v1/namespaces/default";

/// Hears the story.
pub trait Listener {
    /// A step begins.
    fn begin(&mut self, step: &str);
    /// Something worth showing (a table, a message), as the user sees it.
    fn show(&mut self, text: &str);
    /// The step ended well.
    fn end(&mut self, took: Duration);
}

/// What the story proved.
#[derive(Debug)]
pub struct Outcome {
    /// What the writer's read-back showed, without the writes that the SIGKILL of a primary itself lost.
    pub verdict: Verdict,
    /// Writes that the SIGKILL of a primary itself lost (asynchronous replication allows some).
    pub lost_by_crash: usize,
}

struct Story<'a> {
    kun: Standalone,
    kubectl: Kubectl,
    listener: &'a mut dyn Listener,
}

/// Runs the whole story; every step must succeed.
pub async fn run(listener: &mut dyn Listener) -> Result<Outcome> {
    let begin = Instant::now();
    listener.begin("start kun standalone");
    let kun = Standalone::start().await?;
    listener.end(begin.elapsed());
    let kubectl = kun.kubectl();
    let mut story = Story { kun, kubectl, listener };

    story.create().await?;
    let writer = story.write().await?;
    story.columns().await?;
    story.scale(5).await?;
    story.scale(3).await?;
    story.failover().await?;
    story.backup().await?;
    story.refusals().await?;
    let crash = story.kill_a_primary().await?;
    story.kill_kun_during_a_scale_out(&writer).await?;
    let outcome = story.read_back(writer, crash).await?;
    story.stop().await?;
    Ok(outcome)
}

impl Story<'_> {
    fn begin(&mut self, step: &str) -> Instant {
        self.listener.begin(step);
        Instant::now()
    }

    async fn create(&mut self) -> Result<()> {
        let begin = self.begin("kubectl apply -f orders.yaml; kubectl wait --for=condition=Ready");
        let target = self.kun.scratch("backups")?;
        let manifest =
            format!("{ORDERS}  backup:\n    target:\n      directory:\n        path: {}\n", target.display());
        let said = self.kubectl.feed(&["apply", "-f", "-"], &manifest).await?;
        self.listener.show(said.trim());
        self.kubectl.run(&["wait", "rdc/orders", "--for=condition=Ready", &waiting()]).await?;
        self.listener.end(begin.elapsed());
        settled(&self.kubectl, HOME, Shape { shards: 3, replicas: 1 }, async || Ok(None)).await
    }

    async fn write(&mut self) -> Result<Writer> {
        let begin = self.begin("a cluster-aware client starts writing and keeps every acknowledged write");
        let credentials = oracle::credentials(&self.kubectl, "default", "orders", "default").await?;
        let seeds = self.seeds().await?;
        let writer = Writer::start(seeds, Some(credentials));
        writer.progress(500, hung::change()).await?;
        self.listener.end(begin.elapsed());
        Ok(writer)
    }

    async fn columns(&mut self) -> Result<()> {
        let begin = self.begin("kubectl get rdc");
        let table = self.kubectl.run(&["get", "rdc"]).await?;
        for column in ["NAME", "MODE", "VERSION", "SHARDS", "REPLICAS", "PHASE", "AGE"] {
            ensure!(table.contains(column), "no column {column} in:\n{table}");
        }
        self.listener.show(table.trim_end());
        self.listener.end(begin.elapsed());
        Ok(())
    }

    async fn scale(&mut self, shards: u16) -> Result<()> {
        let begin = self.begin(&format!("kubectl scale rdc orders --replicas={shards}: slots move under load"));
        self.kubectl.run(&["scale", "rdc", "orders", &format!("--replicas={shards}")]).await?;
        ready(&self.kubectl, "orders", shards).await?;
        self.listener.end(begin.elapsed());
        settled(&self.kubectl, HOME, Shape { shards, replicas: 1 }, async || Ok(None)).await
    }

    async fn failover(&mut self) -> Result<()> {
        let begin = self.begin("kubectl create --raw …/redisclusters/orders/failover -f -");
        let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisOperation",
            "spec": {"failover": {"shard": 0, "reason": "demo"}}});
        let operation = self.create_raw("redisclusters/orders/failover", &body).await?;
        let done = finished(&self.kubectl, "rop", &operation).await?;
        ensure!(done["status"]["phase"] == "Succeeded", "failover: {:#}", done["status"]);
        self.listener.show(&format!("{operation}: {}", lines(&done["status"]["steps"])));
        self.listener.end(begin.elapsed());
        ready(&self.kubectl, "orders", 3).await.map(drop)
    }

    async fn backup(&mut self) -> Result<()> {
        let begin = self.begin("kubectl create --raw …/redisclusters/orders/backup -f -");
        let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup"});
        let backup = self.create_raw("redisclusters/orders/backup", &body).await?;
        let done = finished(&self.kubectl, "rbk", &backup).await?;
        ensure!(done["status"]["phase"] == "Completed" && done["status"]["verified"] == true, "{:#}", done["status"]);
        self.listener.show(self.kubectl.run(&["get", "rbk"]).await?.trim_end());
        self.listener.end(begin.elapsed());
        Ok(())
    }

    async fn refusals(&mut self) -> Result<()> {
        let begin = self.begin("a RedisPolicy, and two changes that are refused");
        self.kubectl.feed(&["apply", "-f", "-"], POLICY).await?;
        // The webhook learns of the policy by watch, within moments.
        let applied = Instant::now();
        let policy = loop {
            let outcome =
                self.kubectl.answer(&["scale", "rdc", "orders", "--replicas=9", "--dry-run=server"], "").await?;
            if !outcome.success {
                break outcome.stderr.trim().to_owned();
            }
            ensure!(applied.elapsed() < hung::process(), "9 shards were accepted in spite of the policy");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        ensure!(policy.contains("small-clusters") && policy.contains('9') && policy.contains('6'), "{policy}");
        let patch = r#"{"spec":{"storage":{"size":"512Mi"}}}"#;
        let shrink = self.kubectl.refused(&["patch", "rdc", "orders", "--type=merge", "-p", patch], "").await?;
        ensure!(shrink.contains("spec.storage.size") && shrink.contains("512Mi"), "{shrink}");
        self.listener.show(&policy);
        self.listener.show(&shrink);
        self.listener.end(begin.elapsed());
        Ok(())
    }

    async fn kill_a_primary(&mut self) -> Result<Instant> {
        // Status names none while a look went without an answer.
        let told = |cluster: &Value| cluster["status"]["shards"][0]["primary"].is_string();
        let cluster = self.kubectl.until("rdc", "orders", hung::change(), "naming the primary", told).await?;
        let shard = &cluster["status"]["shards"][0];
        let pod = shard["primary"].as_str().context("primary of shard 0")?.to_owned();
        let begin = self.begin(&format!("SIGKILL to the redis-server of {pod}, the primary of shard 0"));
        let member = shard["members"].as_array().into_iter().flatten().find(|member| member["pod"] == pod.as_str());
        let address: SocketAddr = member.and_then(|m| m["address"].as_str()).context("address")?.parse()?;
        let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
        let before = restarts(&self.kubectl.get("pod", &pod).await?);
        self.kun.redis_server(address)?.kill()?;
        let crash = Instant::now();
        // As a replica of who took over; as the primary where the machine stood still for so long that nobody did.
        let back =
            |object: &Value| restarts(object) > before && object["status"]["containerStatuses"][0]["ready"] == true;
        self.kubectl.until("pod", &pod, hung::change(), "back", back).await?;
        ready(&self.kubectl, "orders", 3).await?;
        self.listener.end(begin.elapsed());
        Ok(crash)
    }

    async fn kill_kun_during_a_scale_out(&mut self, writer: &Writer) -> Result<()> {
        let begin = self.begin("SIGKILL to kun itself in the middle of a scale-out to 5; it is started again");
        self.kubectl.run(&["scale", "rdc", "orders", "--replicas=5"]).await?;
        let moving = |object: &Value| {
            let new = object["status"]["shards"].as_array().and_then(|shards| shards.get(3));
            let owns = new.and_then(|shard| shard["slots"].as_str()).is_some_and(|slots| !slots.is_empty());
            owns || object["status"]["plan"]["slotsLeft"].as_i64().is_some_and(|left| left > 0)
        };
        self.kubectl.until("rdc", "orders", hung::change(), "moving slots", moving).await?;
        self.kun.kill().await?;
        let left = self.kun.pod_processes().len();
        ensure!(left > 0, "the pods died with kun");
        writer.progress(200, hung::change()).await.context("writes go on while kun is down")?;
        self.kun.resume().await?;
        ready(&self.kubectl, "orders", 5).await?;
        self.listener.end(begin.elapsed());
        settled(&self.kubectl, HOME, Shape { shards: 5, replicas: 1 }, async || Ok(None)).await
    }

    async fn read_back(&mut self, writer: Writer, crash: Instant) -> Result<Outcome> {
        let begin = self.begin("every acknowledged write is read back");
        let seeds = self.seeds().await?;
        let mut verdict = writer.verify(&seeds).await?;
        let lost_by_crash = verdict.forgive(crash);
        self.listener.show(&format!(
            "{} writes acknowledged, {} keys read back, {} lost; lost by the SIGKILL of a primary itself: {lost_by_crash}; \
             without an answer: {}; longest pause of one writer: {:.2} s",
            verdict.acked,
            verdict.keys,
            verdict.lost.len(),
            verdict.unknown,
            verdict.worst_gap.as_secs_f64()
        ));
        ensure!(verdict.lost.is_empty(), "acknowledged writes were lost: {:#?}", verdict.lost);
        self.listener.end(begin.elapsed());
        Ok(Outcome { verdict, lost_by_crash })
    }

    async fn stop(&mut self) -> Result<()> {
        let begin = self.begin("SIGTERM to kun: pods get their grace period, data stays");
        let code = self.kun.stop().await?;
        ensure!(code == 0, "kun ended with exit code {code}:\n{}", self.kun.log_tail());
        let left = self.kun.pod_processes();
        ensure!(left.is_empty(), "processes are left: {left:#?}");
        ensure!(fs::read_dir(self.kun.data())?.next().is_some(), "the data directory is empty");
        self.listener.end(begin.elapsed());
        Ok(())
    }

    async fn seeds(&self) -> Result<Vec<SocketAddr>> {
        Ok(oracle::addresses(&self.kubectl, "default", "orders").await?.into_values().collect())
    }

    async fn create_raw(&self, path: &str, body: &Value) -> Result<String> {
        let created = self.kubectl.create_at(&format!("{API}/{path}"), body).await?;
        Ok(created["metadata"]["name"].as_str().context("name of what was created")?.to_owned())
    }
}

/// Waits until a cluster is Ready in this generation with so many shards.
pub async fn ready(kubectl: &Kubectl, cluster: &str, shards: u16) -> Result<Value> {
    let what = format!("Ready with {shards} shards");
    kubectl.until("rdc", cluster, hung::change(), &what, |object| is_ready(object, shards)).await
}

/// Pod that is primary of a shard, as soon as status tells: it names none while a look went without an answer.
pub async fn primary(kubectl: &Kubectl, cluster: &str, shard: usize) -> Result<String> {
    let told = |cluster: &Value| cluster["status"]["shards"][shard]["primary"].is_string();
    let cluster = kubectl.until("rdc", cluster, hung::change(), "naming the primary", told).await?;
    Ok(cluster["status"]["shards"][shard]["primary"].as_str().context("primary")?.to_owned())
}

/// Waits until shard 0 has another primary than `before`.
pub async fn replaced(kubectl: &Kubectl, cluster: &str, before: &str) -> Result<()> {
    let other = |cluster: &Value| {
        let primary = &cluster["status"]["shards"][0]["primary"];
        primary.is_string() && *primary != before
    };
    kubectl.until("rdc", cluster, hung::change(), "with another primary in shard 0", other).await.map(drop)
}

/// Between two looks at what does not hold yet.
const PAUSE: Duration = Duration::from_millis(250);

/// Waits until a cluster, of a namespace which is also kubectl's, is Ready, T1–T6 hold and nothing is `unfinished`. One look may meet a machine
/// that stands still, and a status may be some seconds older than what it tells of (reliability.md, T8): of before kun was started again. One
/// that goes on saying Ready while they do not hold is false.
pub async fn settled(
    kubectl: &Kubectl,
    (namespace, name): (&str, &str),
    shape: Shape,
    unfinished: impl AsyncFn() -> Result<Option<String>>,
) -> Result<()> {
    let begin = Instant::now();
    let mut false_since = None;
    loop {
        let cluster = ready(kubectl, name, shape.shards).await?;
        let faults = match oracle::check(kubectl, namespace, name, shape).await {
            Ok(()) => unfinished().await?,
            Err(fault) => Some(format!("{fault:#}")),
        };
        let Some(fault) = faults else { return Ok(()) };
        let current = kubectl.get("rdc", name).await?;
        let same = is_ready(&current, shape.shards)
            && cluster["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"];
        let since: &mut Instant = false_since.get_or_insert_with(Instant::now);
        if !same {
            *since = Instant::now();
        }
        let status = &current["status"];
        ensure!(since.elapsed() < hung::process(), "the status says Ready, but {fault}: {status:#}");
        ensure!(begin.elapsed() < hung::change(), "this hangs: {fault}: {status:#}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether this object says it is Ready, in its current generation, with so many shards.
#[must_use]
pub fn is_ready(object: &Value, shards: u16) -> bool {
    let status = &object["status"];
    let current = status["observedGeneration"] == object["metadata"]["generation"];
    let ready = condition(object, "Ready")["status"] == "True";
    current && ready && status["replicas"] == shards && object["spec"]["shards"] == shards
}

/// Waits until all members of a cluster are known to be of this version: a look without an answer leaves out what the member had said.
pub async fn runs(kubectl: &Kubectl, cluster: &str, version: &str) -> Result<()> {
    let of = |cluster: &Value, field: &str| {
        cluster["status"][field].as_str().is_some_and(|found| found.starts_with(version))
    };
    let all = |cluster: &Value| of(cluster, "version") && of(cluster, "highestVersion");
    kubectl.until("rdc", cluster, hung::change(), &format!("said to be of version {version}"), all).await.map(drop)
}

/// Waits until a RedisOperation or RedisBackup has ended, well or not.
pub async fn finished(kubectl: &Kubectl, resource: &str, name: &str) -> Result<Value> {
    let ended = |object: &Value| {
        matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Completed" | "Failed" | "Cancelled"))
    };
    kubectl.until(resource, name, hung::change(), "ended", ended).await
}

fn lines(steps: &Value) -> String {
    steps.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
}
