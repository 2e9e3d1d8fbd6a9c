//! From `kubectl apply` to Ready on a real Kubernetes of three nodes, KUN installed by its chart: all of it, and what of it is
//! ours rather than the scheduler's, the kubelets' and the engine's.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api, Client, Config, Resource as _,
    api::{PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tests::{
    installed::{Installed, sized},
    kubectl::waiting,
    oracle::Shape,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};
use types::RedisCluster;

use crate::report::{Line, Report, median};

/// Clusters made, one after the other; the first shows a node its images.
const TIMES: usize = 6;
const SHAPE: Shape = Shape { shards: 3, replicas: 1 };
/// Redis says of itself that its cluster fails in the first moments of its life, whatever it knows: CLUSTER_WRITABLE_DELAY
/// in its cluster.c.
const REDIS_OWN: Duration = Duration::from_secs(2);
/// Between two tries to reach a member.
const TRY: Duration = Duration::from_millis(5);

/// Measures.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let Some(installed) = Installed::start(3, "bench install", &[]).await? else { return Ok(()) };
    let kubeconfig = Kubeconfig::read_from(installed.kubernetes.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let mut times = Vec::new();
    for number in 0..TIMES {
        let name = format!("bench-{number}");
        times.push(one(&client, &name).await?);
        installed.kubectl.run(&["delete", "redisclusters", &name, &waiting()]).await?;
    }
    installed.leave().await?;
    let of = |part: fn(&Times) -> Duration| {
        median(&mut times.iter().skip(1).map(|t| part(t).as_secs_f64()).collect::<Vec<_>>())
    };
    let (all, sets, after, own) = (of(|t| t.ready), of(|t| t.sets), of(|t| t.ready - t.answering), of(Times::own));
    report.add(Line {
        name: format!(
            "install: our part of apply → Ready, 3 x 2 (until the last StatefulSet {sets:.2} s, and what is over 2 s after \
             the last Redis answers)"
        ),
        ours: own,
        reference: 1.0,
        against: "bound".to_owned(),
        unit: "s".to_owned(),
        ratio: 1.0 / own,
        bar: "≤ 1 s".to_owned(),
        met: Some(own <= 1.0),
    })?;
    report.add(Line {
        name: "install: apply → Ready, 3 x 2, all of it".to_owned(),
        ours: all,
        reference: after,
        against: "of it after the last Redis answers".to_owned(),
        unit: "s".to_owned(),
        ratio: all / after,
        bar: "-".to_owned(),
        met: None,
    })
}

/// When something was, after the creation was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// The last StatefulSet was there.
    sets: Duration,
    /// The last Redis answered.
    answering: Duration,
    /// The cluster was Ready.
    ready: Duration,
}

impl Times {
    /// What nobody else had us wait for.
    fn own(&self) -> Duration {
        self.sets + self.ready.saturating_sub(self.answering + REDIS_OWN)
    }
}

/// What was seen.
enum Seen {
    Set(String),
    Placed(String, IpAddr),
    Answering(String, Instant),
    Ready,
}

/// Makes one cluster and looks on.
async fn one(client: &Client, name: &str) -> Result<Times> {
    let (tell, mut told) = mpsc::channel(64);
    let watching = [
        tokio::spawn(sets(client.clone(), name.to_owned(), tell.clone())),
        tokio::spawn(pods(client.clone(), name.to_owned(), tell.clone())),
        tokio::spawn(ready(client.clone(), name.to_owned(), tell.clone())),
    ];
    let clusters = Api::<RedisCluster>::namespaced(client.clone(), "default");
    let object = serde_json::from_value(sized("default", name, SHAPE, &json!({})))?;
    clusters.create(&PostParams::default(), &object).await?;
    let begin = Instant::now();
    let times = tokio::time::timeout(hung::change(), follow(begin, &mut told, tell)).await;
    watching.iter().for_each(tokio::task::JoinHandle::abort);
    times.with_context(|| format!("{name} does not become Ready"))?
}

async fn follow(begin: Instant, told: &mut mpsc::Receiver<Seen>, tell: mpsc::Sender<Seen>) -> Result<Times> {
    let (mut sets, mut answering) = (BTreeMap::new(), BTreeMap::new());
    let mut asked = std::collections::BTreeSet::new();
    while let Some(seen) = told.recv().await {
        match seen {
            Seen::Set(name) => drop(sets.entry(name).or_insert_with(|| begin.elapsed())),
            Seen::Placed(pod, ip) => {
                if asked.insert(pod.clone()) {
                    tokio::spawn(answers(pod, ip, tell.clone()));
                }
            }
            Seen::Answering(pod, at) => drop(answering.insert(pod, at.saturating_duration_since(begin))),
            Seen::Ready => {
                let members = usize::from(SHAPE.shards * (SHAPE.replicas + 1));
                let all = answering.len() == members && sets.len() == usize::from(SHAPE.shards);
                let last = |of: &BTreeMap<String, Duration>| of.values().max().copied().filter(|_| all);
                return Ok(Times {
                    sets: last(&sets).context("Ready before all StatefulSets were seen")?,
                    answering: last(&answering).context("Ready before all members answered")?,
                    ready: begin.elapsed(),
                });
            }
        }
    }
    bail!("nobody looks any more")
}

async fn sets(client: Client, cluster: String, tell: mpsc::Sender<Seen>) -> Result<()> {
    let selector = WatchParams::default().labels(&format!("redis.kun.io/cluster={cluster}"));
    let mut events = Api::<StatefulSet>::namespaced(client, "default").watch(&selector, "0").await?.boxed();
    while let Some(event) = events.next().await {
        if let WatchEvent::Added(set) = event? {
            tell.send(Seen::Set(set.meta().name.clone().unwrap_or_default())).await?;
        }
    }
    Ok(())
}

async fn pods(client: Client, cluster: String, tell: mpsc::Sender<Seen>) -> Result<()> {
    let selector = WatchParams::default().labels(&format!("redis.kun.io/cluster={cluster}"));
    let mut events = Api::<Pod>::namespaced(client, "default").watch(&selector, "0").await?.boxed();
    while let Some(event) = events.next().await {
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event?
            && let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref())
        {
            tell.send(Seen::Placed(pod.meta().name.clone().unwrap_or_default(), ip.parse()?)).await?;
        }
    }
    Ok(())
}

async fn ready(client: Client, cluster: String, tell: mpsc::Sender<Seen>) -> Result<()> {
    let selector = WatchParams::default().fields(&format!("metadata.name={cluster}"));
    let mut events = Api::<RedisCluster>::namespaced(client, "default").watch(&selector, "0").await?.boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(cluster) | WatchEvent::Modified(cluster)) = event? else { continue };
        let status = serde_json::to_value(&cluster.status)?;
        let conditions = status["conditions"].as_array();
        if conditions.into_iter().flatten().any(|of| of["type"] == "Ready" && of["status"] == "True") {
            tell.send(Seen::Ready).await?;
        }
    }
    Ok(())
}

/// Tells when a Redis has answered for the first time; that it asks for a password is an answer.
async fn answers(pod: String, ip: IpAddr, tell: mpsc::Sender<Seen>) -> Result<()> {
    loop {
        if ping(SocketAddr::new(ip, types::names::PORT_REDIS)).await.is_ok() {
            tell.send(Seen::Answering(pod, Instant::now())).await?;
            return Ok(());
        }
        tokio::time::sleep(TRY).await;
    }
}

async fn ping(address: SocketAddr) -> Result<()> {
    let mut stream = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await??;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 1];
    tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut answer)).await??;
    Ok(())
}
