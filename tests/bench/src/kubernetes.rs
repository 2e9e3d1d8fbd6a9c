//! Our API server beside the real kube-apiserver and its etcd, which serve the same kind as a CustomResourceDefinition: the
//! same machine, run, client and objects. etcd waits for the disk, as ours does.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use apiserver::registry;
use bytes::Bytes;
use certs::{Authority, Usage};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Incoming};
use serde_json::{Value, json};
use tests::{
    control_plane::{APISERVER, ControlPlane, Sync, leaf},
    standalone::Standalone,
};

use crate::{
    api::{self, COLLECTION, name},
    http::{self, Connection, Rate, Target},
    machine,
    report::{Better, Line, Report, median, percentile},
};

/// Objects present: as many as the WatchList of the issue.
const PRESENT: usize = 20_000;
/// How long each rate is measured.
const MEASURE: Duration = Duration::from_secs(5);
/// Watches on one connection: below the streams a server allows on one.
const STREAMS: usize = 100;
/// Events whose way to all watchers is measured.
const EVENTS: usize = 20;

/// One of the two.
struct Server {
    target: Target,
    connection: Connection,
    /// Everything it takes to serve: for its memory.
    pids: Vec<u32>,
}

impl Server {
    async fn new(target: Target, pids: Vec<u32>) -> Result<Self> {
        let connection = http::connect(&target).await?;
        Ok(Self { target, connection, pids })
    }

    fn resident(&self) -> Result<f64> {
        self.pids.iter().map(|pid| machine::resident(*pid)).sum()
    }

    async fn get(&self, path: &str) -> Result<Bytes> {
        http::call(&mut self.connection.clone(), "GET", path, "application/json", Bytes::new()).await
    }
}

/// Measures both, figure by figure.
pub(crate) async fn run(report: &mut Report, quick: bool) -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", "bench kubernetes")? else { return Ok(()) };
    let kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
    let ours = Server::new(api::target(&kun)?, vec![kun.pid().context("pid of kun")?]).await?;
    let folder = tempfile::Builder::new().prefix("kun-bench-").tempdir()?;
    let mut plane = ControlPlane::new(folder.path())?;
    let theirs = start(&tools, &mut plane).await?;
    let both = Both { ours: &ours, theirs: &theirs };
    let present = if quick { PRESENT / 10 } else { PRESENT };
    memory(report, &both, present).await?;
    updates(report, &both).await?;
    applies(report, &both).await?;
    reads(report, &both, present).await?;
    fan_out(report, &both, 1).await?;
    fan_out(report, &both, 1000).await
}

/// etcd, kube-apiserver and the definition of our kind.
async fn start(tools: &Path, plane: &mut ControlPlane) -> Result<Server> {
    let authority = Authority::create("bench")?;
    plane.write_certificates(&authority, &[])?;
    let admin = authority.issue(&leaf("bench", &["system:masters"], &[], &[], Usage::CLIENT))?;
    plane.start_etcd(tools, Sync::Durable)?;
    plane.start_apiserver(tools, &[])?;
    let target = Target {
        address: SocketAddr::from((plane.address(), APISERVER)),
        name: plane.address().to_string(),
        ca: authority.certificate_pem().to_owned(),
        certificate: admin.certificate_pem.clone(),
        key: admin.key_pem.clone(),
    };
    let begin = Instant::now();
    let pids = vec![plane.pid("etcd")?, plane.pid("kube-apiserver")?];
    let server = loop {
        let server = Server::new(target.clone(), pids.clone()).await;
        if let Ok(server) = server
            && server.get("/readyz").await.is_ok()
        {
            break server;
        }
        if plane.has_ended() || begin.elapsed() > hung::machine() {
            bail!("no kube-apiserver:\n{}\n{}", plane.log_tail("etcd"), plane.log_tail("kube-apiserver"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let definitions = differential::definition::definitions(&registry::redis::registry()?)?;
    let cluster = definitions.iter().find(|definition| definition["spec"]["names"]["kind"] == "RedisCluster");
    let body = Bytes::from(cluster.context("definition of RedisCluster")?.to_string());
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    http::call(&mut server.connection.clone(), "POST", path, "application/json", body).await?;
    while server.get(COLLECTION).await.is_err() {
        ensure!(begin.elapsed() < hung::machine(), "the definition is not served");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(server)
}

/// Both servers.
struct Both<'a> {
    ours: &'a Server,
    theirs: &'a Server,
}

/// A line of ours beside theirs; `bar` is the least ratio.
fn line(name: &str, unit: &str, (ours, theirs): (f64, f64), better: Better, bar: Option<f64>) -> Line {
    let ratio = better.ratio(ours, theirs);
    Line {
        name: name.to_owned(),
        ours,
        reference: theirs,
        against: "kube-apiserver + etcd".to_owned(),
        unit: unit.to_owned(),
        ratio,
        bar: bar.map_or("-".to_owned(), |bar| format!("≥ {bar} ×")),
        met: bar.map(|bar| ratio >= bar),
    }
}

async fn memory(report: &mut Report, both: &Both<'_>, present: usize) -> Result<()> {
    let mut each = Vec::new();
    for server in [both.ours, both.theirs] {
        let before = server.resident()?;
        api::load(&server.connection, 0, present).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        #[allow(clippy::cast_precision_loss, reason = "a count of objects")]
        each.push((server.resident()? - before) / present as f64);
    }
    let figures = (each[0], each[1]);
    report.add(line(&format!("k8s: memory per object, {present} objects"), "B", figures, Better::Less, None))
}

async fn updates(report: &mut Report, both: &Both<'_>) -> Result<()> {
    for in_flight in [1, 16, 64] {
        let mut rates = Vec::new();
        for server in [both.ours, both.theirs] {
            rates.push(api::closed_updates(&server.connection, in_flight, MEASURE).await?);
        }
        let tails = (percentile(&mut rates[0].millis, 0.99), percentile(&mut rates[1].millis, 0.99));
        let (of, bars) = (in_flight, (in_flight == 64).then_some((10.0, 5.0)));
        let figures = (rates[0].per_second, rates[1].per_second);
        let name = format!("k8s: durable updates, {of} in flight");
        report.add(line(&name, "1/s", figures, Better::More, bars.map(|bars| bars.0)))?;
        report.add(line(&format!("{name}, p99"), "ms", tails, Better::Less, bars.map(|bars| bars.1)))?;
    }
    Ok(())
}

/// Server-side applies of one changing annotation, each caller to an object of its own.
async fn applies(report: &mut Report, both: &Both<'_>) -> Result<()> {
    const IN_FLIGHT: usize = 16;
    let mut rates = Vec::new();
    for server in [both.ours, both.theirs] {
        let request = |caller: usize, number: usize| {
            let name = name(caller);
            let config = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
                "metadata": {"name": name, "annotations": {"applied": format!("{number:010}")}}});
            let path = format!("{COLLECTION}/{name}?fieldManager=bench&force=true");
            ("PATCH", path, "application/apply-patch+yaml", Bytes::from(config.to_string()))
        };
        rates.push(closed(&server.connection, IN_FLIGHT, request).await?.per_second);
    }
    let name = format!("k8s: applies, {IN_FLIGHT} in flight");
    report.add(line(&name, "1/s", (rates[0], rates[1]), Better::More, None))
}

async fn reads(report: &mut Report, both: &Both<'_>, present: usize) -> Result<()> {
    let servers = [both.ours, both.theirs];
    let mut gets = Vec::new();
    for server in servers {
        let request = |caller: usize, number: usize| {
            let path = format!("{COLLECTION}/{}", name((caller * 7919 + number * 104_729) % present));
            ("GET", path, "application/json", Bytes::new())
        };
        gets.push(closed(&server.connection, 16, request).await?.per_second);
    }
    report.add(line("k8s: gets, 16 in flight", "1/s", (gets[0], gets[1]), Better::More, None))?;
    let mut whole = Vec::new();
    let mut none = Vec::new();
    let mut initial = Vec::new();
    for server in servers {
        whole.push(median(&mut timed(5, || server.get(COLLECTION)).await?));
        let path = format!("{COLLECTION}?labelSelector=nobody%3Dhas-this");
        none.push(percentile(&mut timed(50, || server.get(&path)).await?, 0.99));
        initial.push(median(&mut timed(5, || watch_list(server, present)).await?));
    }
    let name = format!("k8s: list of {present} objects");
    report.add(line(&name, "ms", (whole[0], whole[1]), Better::Less, None))?;
    let name = format!("k8s: list of {present} with a selector that matches nothing, p99");
    report.add(line(&name, "ms", (none[0], none[1]), Better::Less, None))?;
    let name = format!("k8s: WatchList of {present} objects");
    report.add(line(&name, "ms", (initial[0], initial[1]), Better::Less, None))
}

/// Milliseconds of some repetitions.
async fn timed<T, F: Future<Output = Result<T>>>(times: usize, action: impl Fn() -> F) -> Result<Vec<f64>> {
    let mut millis = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        action().await?;
        millis.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(millis)
}

/// Calls of callers that each wait for their answer.
pub(crate) async fn closed(
    connection: &Connection,
    in_flight: usize,
    request: impl Fn(usize, usize) -> (&'static str, String, &'static str, Bytes),
) -> Result<Rate> {
    let begin = Instant::now();
    let request = &request;
    let callers = (0..in_flight).map(|caller| async move {
        let (mut connection, mut millis) = (connection.clone(), Vec::new());
        while begin.elapsed() < MEASURE {
            let (method, path, kind, body) = request(caller, millis.len() + 1);
            let sent = Instant::now();
            http::call(&mut connection, method, &path, kind, body).await?;
            millis.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        anyhow::Ok(millis)
    });
    let millis = futures::future::try_join_all(callers).await?.concat();
    #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
    let per_second = millis.len() as f64 / begin.elapsed().as_secs_f64();
    Ok(Rate { per_second, millis })
}

/// A watch that begins with what is there, read up to the bookmark behind it.
async fn watch_list(server: &Server, present: usize) -> Result<()> {
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60";
    let mut body = open(&mut server.connection.clone(), &format!("{COLLECTION}?{query}")).await?;
    let (mut events, mut last, mut before) = (0, Vec::new(), Vec::new());
    loop {
        let ended = || format!("the watch ended after {events} events: {}", String::from_utf8_lossy(&before));
        let frame = body.frame().await.with_context(ended)??;
        let Some(data) = frame.data_ref() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            last.extend_from_slice(part);
            if part.last() == Some(&b'\n') {
                if last.starts_with(b"{\"type\":\"BOOKMARK\"") {
                    ensure!(events == present, "{events} events instead of {present}");
                    return Ok(());
                }
                events += 1;
                before = std::mem::take(&mut last);
            }
        }
    }
}

async fn open(connection: &mut Connection, path: &str) -> Result<Incoming> {
    let request = Request::get(format!("https://localhost{path}")).header("accept", "application/json");
    connection.ready().await?;
    let answer = connection.send_request(request.body(Full::new(Bytes::new()))?).await?;
    ensure!(answer.status().is_success(), "watch: {}", answer.status());
    Ok(answer.into_body())
}

/// From the sending of a change to its arrival at the last of many watchers. (What a watch costs in memory is measured
/// with ours alone: beside a garbage collector the difference is noise.)
async fn fan_out(report: &mut Report, both: &Both<'_>, watchers: usize) -> Result<()> {
    let mut millis = Vec::new();
    for server in [both.ours, both.theirs] {
        let list: Value = serde_json::from_slice(&server.get(&format!("{COLLECTION}?limit=1")).await?)?;
        let version = list["metadata"]["resourceVersion"].as_str().context("version of the list")?;
        let mut connections = Vec::new();
        for _ in 0..watchers.div_ceil(STREAMS) {
            connections.push(http::connect(&server.target).await?);
        }
        let path = format!("{COLLECTION}?watch=true&resourceVersion={version}&timeoutSeconds=120");
        let mut bodies = Vec::new();
        for at in 0..watchers {
            bodies.push(open(&mut connections[at / STREAMS], &path).await?);
        }
        // What opening so many watches costs is over before the first event.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut ways = Vec::new();
        for event in 0..EVENTS {
            ways.push(way(server, &mut bodies, event).await?);
        }
        millis.push(median(&mut ways));
    }
    let name = format!("k8s: one event to {watchers} watchers, the last has it, median");
    report.add(line(&name, "ms", (millis[0], millis[1]), Better::Less, None))
}

/// Milliseconds from the sending of a change until every watcher has its frame.
async fn way(server: &Server, bodies: &mut [Incoming], event: usize) -> Result<f64> {
    let path = format!("{COLLECTION}/{}", name(0));
    let patch = json!({"metadata": {"annotations": {"watched": event.to_string()}}});
    let begin = Instant::now();
    let (mut connection, kind) = (server.connection.clone(), "application/merge-patch+json");
    let sent =
        tokio::spawn(
            async move { http::call(&mut connection, "PATCH", &path, kind, Bytes::from(patch.to_string())).await },
        );
    for body in bodies {
        tokio::time::timeout(hung::answer(), body.frame())
            .await
            .context("an event for each watch")?
            .context("a frame")??;
    }
    let elapsed = begin.elapsed().as_secs_f64() * 1e3;
    sent.await??;
    Ok(elapsed)
}
