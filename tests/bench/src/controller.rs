//! The controller with many clusters: how long one look at all of them takes, what they cost at rest, and what they take of
//! memory. Kubernetes is real; its StatefulSet controller and kubelets are played here, and members only talk.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use certs::Ring;
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::{aggregated::Aggregated, control_plane::Sync, kubectl::condition};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    http::{self, Connection, Target},
    machine,
    members::{self, Members},
    report::{Line, Report},
};

/// Clusters in each round; those of the rounds before stay.
const ROUNDS: [usize; 2] = [100, 1000];
/// Shards of each cluster, of one member each.
const SHARDS: usize = 3;
/// How long the controller is watched doing nothing: several of its looks at everything.
const REST: Duration = Duration::from_secs(20);
/// Requests on their way at once.
const AT_ONCE: usize = 32;
/// Where the controller tells of itself.
const OBSERVE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 18_080);
const CLUSTERS: &str = "/apis/redis.kun.io/v1/namespaces/default/redisclusters";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Measures with each number of clusters.
pub(crate) async fn run(report: &mut Report, quick: bool) -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", "bench controller")? else { return Ok(()) };
    let mut world = World::start(&tools).await?;
    let (mut before, mut first_pass) = (0, None);
    for clusters in ROUNDS.into_iter().take(if quick { 1 } else { ROUNDS.len() }) {
        let begin = Instant::now();
        world.grow(before..clusters).await?;
        eprintln!("    {} clusters made Ready in {:.1} s", clusters - before, begin.elapsed().as_secs_f64());
        before = clusters;
        let seconds = world.pass(clusters).await?;
        report.add(pass(clusters, seconds, first_pass))?;
        first_pass = first_pass.or(Some(seconds));
        world.rest(report, clusters).await?;
    }
    Ok(())
}

/// The line of one pass: the first has a bar of its own, the others must grow no faster than the number of clusters.
fn pass(clusters: usize, seconds: f64, first: Option<f64>) -> Line {
    let (reference, against, bar) = match first {
        None => (0.25, "bound".to_owned(), "≤ 0.25 s".to_owned()),
        Some(first) => (11.0 * first, format!("11 x that of {}", ROUNDS[0]), "≤ 11 x for 10 x as many".to_owned()),
    };
    Line {
        name: format!("controller: one look at {clusters} clusters of {SHARDS} pods, after its start"),
        ours: seconds,
        reference,
        against,
        unit: "s".to_owned(),
        ratio: reference / seconds,
        bar,
        met: Some(seconds <= reference),
    }
}

/// A Kubernetes whose pods are played.
struct World {
    all: Aggregated,
    connection: Connection,
    members: Members,
}

impl World {
    async fn start(tools: &Path) -> Result<Self> {
        let mut all = Aggregated::start(tools, Sync::Never).await?;
        let connection = http::connect(&target(&all)?).await?;
        let authority = Ring::create_at("kun-agents", Timestamp::now())?.encode();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kun-agents-authority"},
            "stringData": authority});
        post(&connection, "/api/v1/namespaces/kun-system/secrets", &secret).await?;
        all.start_controller(OBSERVE)?;
        Ok(Self { all, connection, members: Members::default() })
    }

    /// Further clusters, until all are Ready.
    async fn grow(&mut self, clusters: std::ops::Range<usize>) -> Result<()> {
        self.members.add(clusters.clone(), SHARDS).await?;
        let (begin, world) = (Instant::now(), &*self);
        let names: Vec<usize> = clusters.clone().collect();
        each(names, |number| async move {
            let object = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": name(number)},
                "spec": {"shards": SHARDS, "replicasPerShard": 0, "version": "7.0", "image": "redis:7.0"}});
            post(&world.connection, CLUSTERS, &object).await
        })
        .await?;
        let mut played = std::collections::BTreeSet::new();
        loop {
            let sets = world.list(SETS).await?;
            let new: Vec<Value> = sets
                .into_iter()
                .filter(|set| {
                    number(&set["metadata"]["labels"]["redis.kun.io/cluster"]).is_some_and(|n| n >= clusters.start)
                })
                .filter(|set| played.insert(set["metadata"]["name"].to_string()))
                .collect();
            each(new, |set| async move { world.play(&set).await }).await?;
            let found = world.list(CLUSTERS).await?;
            let ready = found.iter().filter(|cluster| is_ready(cluster)).count();
            if ready == clusters.end {
                return Ok(());
            }
            let last = found.iter().find(|cluster| !is_ready(cluster)).map(|cluster| cluster["status"].to_string());
            ensure!(
                begin.elapsed() < hung::machine(),
                "{ready} of {} clusters are Ready; one that is not: {last:?}\n{}",
                clusters.end,
                world.all.log_tail("kun-controller")
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the StatefulSet controller and a kubelet would do: the pod of a shard's only member, and that it runs.
    async fn play(&self, set: &Value) -> Result<()> {
        let labels = &set["metadata"]["labels"];
        let cluster = number(&labels["redis.kun.io/cluster"]).context("the cluster of a StatefulSet")?;
        let shard: usize = labels["redis.kun.io/shard"].as_str().context("its shard")?.parse()?;
        let pod_name = format!("{}-0", set["metadata"]["name"].as_str().context("its name")?);
        let mut pod = set["spec"]["template"].clone();
        pod["metadata"]["name"] = json!(pod_name);
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
        pod["spec"]["nodeName"] = json!(format!("node-{}", cluster % SHARDS));
        let volumes = pod["spec"]["volumes"].as_array_mut().context("volumes")?;
        volumes.push(json!({"name": "data", "emptyDir": {}}));
        let mut seen = std::collections::BTreeSet::new();
        volumes.retain(|volume| seen.insert(volume["name"].to_string()));
        post(&self.connection, PODS, &pod).await?;
        let (now, ip) = (Timestamp::now().to_string(), members::address(cluster, shard, SHARDS)?.to_string());
        let running = |container: &Value| {
            json!({"name": container["name"], "image": container["image"], "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "containerID": "played://1", "state": {"running": {"startedAt": now}}})
        };
        let containers: Vec<Value> = pod["spec"]["containers"].as_array().into_iter().flatten().map(running).collect();
        let ready = ["Ready", "ContainersReady", "Initialized", "PodScheduled"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready,
            "containerStatuses": containers, "startTime": now}});
        let path = format!("{PODS}/{pod_name}/status");
        let body = Bytes::from(status.to_string());
        http::call(&mut self.connection.clone(), "PATCH", &path, "application/merge-patch+json", body).await?;
        Ok(())
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let text = http::call(&mut self.connection.clone(), "GET", path, "application/json", Bytes::new()).await?;
        let mut list: Value = serde_json::from_slice(&text)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => anyhow::bail!("a list of {path}: {other}"),
        }
    }

    /// Seconds from the first cluster looked at until all have been, by a controller that has just started.
    async fn pass(&mut self, clusters: usize) -> Result<f64> {
        self.all.kill_controller().await?;
        self.all.start_controller(OBSERVE)?;
        let (begin, mut first) = (Instant::now(), Instant::now());
        loop {
            // Probes are answered a moment after the start.
            let looked = metric("kun_controller_reconciles_total{result=\"ok\"}").await.unwrap_or(0.0);
            if looked == 0.0 {
                first = Instant::now();
            }
            #[allow(clippy::cast_precision_loss, reason = "a count of clusters")]
            if looked >= clusters as f64 {
                return Ok(first.elapsed().as_secs_f64());
            }
            ensure!(
                begin.elapsed() < hung::change(),
                "{looked} of {clusters} looked at\n{}",
                self.all.log_tail("kun-controller")
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What all of them cost while nothing happens.
    async fn rest(&self, report: &mut Report, clusters: usize) -> Result<()> {
        // What the start needed is over.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let pid = self.all.controller()?;
        let written = metric("kun_controller_api_writes").await?;
        let (begin, used) = (Instant::now(), machine::cpu_seconds(pid)?);
        tokio::time::sleep(REST).await;
        let share = (machine::cpu_seconds(pid)? - used) / begin.elapsed().as_secs_f64();
        let resident = machine::resident(pid)? / f64::from(1 << 20);
        let written = metric("kun_controller_api_writes").await? - written;
        report.add(Line {
            name: format!("controller: CPU at rest with {clusters} clusters, each member asked every 5 s"),
            ours: share * 100.0,
            reference: 100.0,
            against: "one core".to_owned(),
            unit: "%".to_owned(),
            ratio: 1.0 / share,
            bar: "-".to_owned(),
            met: None,
        })?;
        report.add(Line {
            name: format!("controller: writes to the API in {REST:?} at rest with {clusters} clusters"),
            ours: written,
            reference: 0.0,
            against: "bound".to_owned(),
            unit: String::new(),
            ratio: if written == 0.0 { 1.0 } else { 0.0 },
            bar: "0".to_owned(),
            met: Some(written == 0.0),
        })?;
        report.add(Line {
            name: format!("controller: resident memory with {clusters} clusters of {SHARDS} pods"),
            ours: resident,
            reference: 64.0,
            against: "bound".to_owned(),
            unit: "MiB".to_owned(),
            ratio: 64.0 / resident,
            bar: "≤ 64 MiB".to_owned(),
            met: Some(resident <= 64.0),
        })
    }
}

/// The administrator's way to the kube-apiserver.
pub(crate) fn target(all: &Aggregated) -> Result<Target> {
    let admin = all.client("bench", &["system:masters"])?;
    Ok(Target {
        address: all.core(),
        name: all.core().ip().to_string(),
        ca: all.authority_pem().to_owned(),
        certificate: admin.certificate_pem,
        key: admin.key_pem,
    })
}

async fn post(connection: &Connection, path: &str, object: &Value) -> Result<()> {
    let body = Bytes::from(object.to_string());
    http::call(&mut connection.clone(), "POST", path, "application/json", body).await.map(drop)
}

/// Does something with each of them, some at a time.
async fn each<T, F: Future<Output = Result<()>>>(all: Vec<T>, action: impl Fn(T) -> F) -> Result<()> {
    use futures::{StreamExt as _, TryStreamExt as _};
    futures::stream::iter(all.into_iter().map(action)).buffer_unordered(AT_ONCE).try_collect().await
}

fn name(number: usize) -> String {
    format!("c{number:04}")
}

/// The number in a name of ours.
fn number(name: &Value) -> Option<usize> {
    name.as_str()?.strip_prefix('c')?.parse().ok()
}

fn is_ready(cluster: &Value) -> bool {
    condition(cluster, "Ready")["status"] == "True"
}

/// One figure of what the controller tells about itself.
async fn metric(name: &str) -> Result<f64> {
    let mut stream = TcpStream::connect(OBSERVE).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("{name} in {text}"))?;
    Ok(value.trim().parse()?)
}
