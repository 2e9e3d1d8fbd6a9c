//! The API server alone: durable updates, lists, memory per object and per watch.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tests::standalone::Standalone;

use crate::{
    http::{self, Connection, Rate, Target},
    machine,
    report::{Line, Report, percentile},
};

pub(crate) const COLLECTION: &str = "/apis/redis.kun.io/v1/namespaces/default/redisclusters";
/// Encoded size of one stored object (the figure of the issue).
const OBJECT_BYTES: usize = 1800;
/// Objects present while updates are measured.
const PRESENT: usize = 20_000;
/// Objects present while lists and memory are measured.
const MANY: usize = 100_000;
/// How long each rate is measured.
const MEASURE: Duration = Duration::from_secs(8);
/// Callers while objects are loaded.
const LOADERS: usize = 64;

/// Measures everything of this file with one API server.
pub(crate) async fn run(report: &mut Report, quick: bool) -> Result<()> {
    let mut kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
    let target = target(&kun)?;
    let connection = http::connect(&target).await?;
    let pid = kun.pid().context("pid of kun")?;
    let idle = machine::resident(pid)?;
    load(&connection, 0, PRESENT).await?;
    updates(report, &kun, &connection).await?;

    let many = if quick { PRESENT * 2 } else { MANY };
    load(&connection, PRESENT, many).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let full = machine::resident(pid)?;
    memory(report, &connection, idle, full, many).await?;
    lists(report, &connection).await?;
    watches(report, &target, pid).await?;
    drop(connection);
    kun.kill().await?;
    cold_start(report, &mut kun, many).await?;
    kun.stop().await?;
    Ok(())
}

/// From the start of the process on a full store, after a kill, until it serves.
async fn cold_start(report: &mut Report, kun: &mut Standalone, many: usize) -> Result<()> {
    let begin = Instant::now();
    kun.resume().await?;
    let target = target(kun)?;
    let path = format!("{COLLECTION}/{}", name(many - 1));
    http::call(&mut http::connect(&target).await?, "GET", &path, "application/json", Bytes::new()).await?;
    let seconds = begin.elapsed().as_secs_f64();
    report.add(Line {
        name: format!("cold start with {many} objects until one is read"),
        ours: seconds,
        reference: 2.0,
        against: "bound".to_owned(),
        unit: "s".to_owned(),
        ratio: 2.0 / seconds,
        bar: "≤ 2 s".to_owned(),
        met: Some(seconds <= 2.0),
    })
}

async fn updates(report: &mut Report, kun: &Standalone, connection: &Connection) -> Result<()> {
    for in_flight in [1, 16, 64] {
        let syncs = machine::fdatasync_rate(&kun.scratch("sync")?)?;
        let mut rate = closed_updates(connection, in_flight, MEASURE).await?;
        let (p50, p99) = (percentile(&mut rate.millis, 0.5), percentile(&mut rate.millis, 0.99));
        let bar = if in_flight == 64 { "≥ 5000/s" } else { "-" };
        report.add(Line {
            name: format!("durable updates through TLS, {in_flight} in flight (p50 {p50:.2} ms, p99 {p99:.2} ms)"),
            ours: rate.per_second,
            reference: syncs,
            against: "fdatasync/s of this machine".to_owned(),
            unit: "1/s".to_owned(),
            ratio: rate.per_second / syncs,
            bar: bar.to_owned(),
            met: (in_flight == 64).then_some(rate.per_second >= 5000.0),
        })?;
    }
    Ok(())
}

/// Each caller updates objects of its own by PUT with the resourceVersion it knows.
pub(crate) async fn closed_updates(connection: &Connection, in_flight: usize, lasting: Duration) -> Result<Rate> {
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for caller in 0..in_flight {
        let mut connection = connection.clone();
        tasks.push(tokio::spawn(async move {
            let mut millis = Vec::new();
            let mut known: Vec<Value> = Vec::new();
            for index in 0..20 {
                let path = format!("{COLLECTION}/{}", name(caller * 20 + index));
                known.push(serde_json::from_slice(
                    &http::call(&mut connection, "GET", &path, "application/json", Bytes::new()).await?,
                )?);
            }
            let mut number = 0u64;
            while begin.elapsed() < lasting {
                for object in &mut known {
                    number += 1;
                    object["metadata"]["annotations"]["number"] = json!(format!("{number:010}"));
                    let path = format!("{COLLECTION}/{}", object["metadata"]["name"].as_str().context("name")?);
                    let body = Bytes::from(serde_json::to_vec(object)?);
                    let start = Instant::now();
                    let answer = http::call(&mut connection, "PUT", &path, "application/json", body).await?;
                    millis.push(start.elapsed().as_secs_f64() * 1e3);
                    *object = serde_json::from_slice(&answer)?;
                }
            }
            anyhow::Ok(millis)
        }));
    }
    let mut millis = Vec::new();
    for task in tasks {
        millis.extend(task.await??);
    }
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let per_second = millis.len() as f64 / begin.elapsed().as_secs_f64();
    Ok(Rate { per_second, millis })
}

async fn memory(report: &mut Report, connection: &Connection, idle: f64, full: f64, many: usize) -> Result<()> {
    let path = format!("{COLLECTION}/{}", name(0));
    let encoded = http::call(&mut connection.clone(), "GET", &path, "application/json", Bytes::new()).await?.len();
    #[allow(clippy::cast_precision_loss, reason = "counts of objects and bytes")]
    let (slope, bound) = ((full - idle) / many as f64, 1.5 * encoded as f64 + 300.0);
    report.add(Line {
        name: format!("memory per object of {encoded} B, {many} objects"),
        ours: slope,
        reference: bound,
        against: "1.5 x encoded + 300 B".to_owned(),
        unit: "B".to_owned(),
        ratio: bound / slope,
        bar: "slope ≤ bound".to_owned(),
        met: Some(slope <= bound),
    })
}

async fn lists(report: &mut Report, connection: &Connection) -> Result<()> {
    let path = format!("{COLLECTION}?labelSelector=nobody%3Dhas-this");
    let mut millis = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        http::call(&mut connection.clone(), "GET", &path, "application/json", Bytes::new()).await?;
        millis.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let p99 = percentile(&mut millis, 0.99);
    report.add(Line {
        name: "list with a selector that matches nothing, p99".to_owned(),
        ours: p99,
        reference: 25.0,
        against: "bound".to_owned(),
        unit: "ms".to_owned(),
        ratio: 25.0 / p99,
        bar: "≤ 25 ms".to_owned(),
        met: Some(p99 <= 25.0),
    })?;
    let start = Instant::now();
    let bytes = http::call(&mut connection.clone(), "GET", COLLECTION, "application/json", Bytes::new()).await?.len();
    let seconds = start.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a count of bytes")]
    let rate = bytes as f64 / seconds / 1e6;
    report.add(Line {
        name: "list of everything".to_owned(),
        ours: rate,
        reference: seconds,
        against: "seconds it took".to_owned(),
        unit: "MB/s".to_owned(),
        ratio: rate,
        bar: "-".to_owned(),
        met: None,
    })
}

/// Opens many watches over few connections and compares the server's memory before and after.
async fn watches(report: &mut Report, target: &Target, pid: u32) -> Result<()> {
    const CONNECTIONS: usize = 20;
    const STREAMS: usize = 100;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(http::connect(target).await?);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = machine::resident(pid)?;
    let mut bodies = Vec::new();
    for connection in &mut connections {
        for _ in 0..STREAMS {
            let request = Request::get(format!("https://localhost{COLLECTION}?watch=true&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=300"))
                .header("accept", "application/json")
                .body(Full::new(Bytes::new()))?;
            connection.ready().await?;
            let answer = connection.send_request(request).await?;
            anyhow::ensure!(answer.status().is_success(), "watch: {}", answer.status());
            bodies.push(answer.into_body());
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = machine::resident(pid)?;
    #[allow(clippy::cast_precision_loss, reason = "a count of streams")]
    let each = (after - before) / bodies.len() as f64;
    // One event must reach every stream: an idle socket is not yet a watch.
    let path = format!("{COLLECTION}/{}", name(0));
    let patch = Bytes::from_static(br#"{"metadata":{"annotations":{"watched":"yes"}}}"#);
    let mut connection = connections.first().context("a connection")?.clone();
    http::call(&mut connection, "PATCH", &path, "application/merge-patch+json", patch).await?;
    for body in &mut bodies {
        tokio::time::timeout(hung::answer(), body.frame())
            .await
            .context("an event for each watch")?
            .context("a frame")??;
    }
    report.add(Line {
        name: format!("memory per watch stream, {} streams", CONNECTIONS * STREAMS),
        ours: each / 1024.0,
        reference: 8.0,
        against: "bound".to_owned(),
        unit: "KiB".to_owned(),
        ratio: 8.0 / (each / 1024.0),
        bar: "≤ 8 KiB".to_owned(),
        met: Some(each <= 8192.0),
    })
}

/// Creates objects number `from` to `to`.
pub(crate) async fn load(connection: &Connection, from: usize, to: usize) -> Result<()> {
    let mut tasks = Vec::new();
    for loader in 0..LOADERS {
        let mut connection = connection.clone();
        tasks.push(tokio::spawn(async move {
            for number in (from..to).filter(|number| number % LOADERS == loader) {
                let body = Bytes::from(object(&name(number)).to_string());
                http::call(&mut connection, "POST", COLLECTION, "application/json", body).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number:06}")
}

/// A RedisCluster whose encoding is about [`OBJECT_BYTES`] long.
pub(crate) fn object(name: &str) -> Value {
    let mut object = json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "orders", "team": "payments"},
                     "annotations": {"number": "0000000000", "pad": ""}},
        "spec": {"shards": 3, "replicasPerShard": 1, "version": "7.0", "resources": {"limits": {"memory": "1Gi"}}},
    });
    // What the server adds (defaults, uid, times) is about 620 bytes.
    let pad = OBJECT_BYTES.saturating_sub(object.to_string().len() + 620);
    object["metadata"]["annotations"]["pad"] = json!("x".repeat(pad));
    object
}

/// The administrator's way in, from the kubeconfig.
pub(crate) fn target(kun: &Standalone) -> Result<Target> {
    let text = std::fs::read_to_string(kun.data().join("kubeconfig"))?;
    let config: Value = serde_saphyr::from_str(&text)?;
    let field = |pointer: &str| -> Result<String> {
        Ok(config
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| format!("{pointer} in the kubeconfig"))?
            .to_owned())
    };
    let pem = |pointer: &str| -> Result<String> {
        Ok(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(field(pointer)?)?)?)
    };
    let server = field("/clusters/0/cluster/server")?;
    Ok(Target {
        address: server.trim_start_matches("https://").parse().context("server of the kubeconfig")?,
        name: "localhost".to_owned(),
        ca: pem("/clusters/0/cluster/certificate-authority-data")?,
        certificate: pem("/users/0/user/client-certificate-data")?,
        key: pem("/users/0/user/client-key-data")?,
    })
}
