//! What the way through the aggregator costs: our kind behind a kube-apiserver beside the same kind as a CustomResourceDefinition
//! of that kube-apiserver. The same client, connection and objects; all stores wait for the disk.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apiserver::registry;
use bytes::Bytes;
use serde_json::{Value, json};
use tests::{aggregated::Aggregated, control_plane::Sync};

use crate::{
    controller::target,
    http::{self, Connection},
    kubernetes::closed,
    report::{Line, Report, percentile},
};

/// Objects of each kind.
const OBJECTS: usize = 64;
/// The group of the definition.
const GROUP: &str = "beside.kun.io";

/// Measures reads and changes, one at a time and several.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let Some(tools) = tests::cluster::built("tools.sh", "bench aggregated")? else { return Ok(()) };
    let all = Aggregated::start(&tools, Sync::Durable).await?;
    let connection = http::connect(&target(&all)?).await?;
    define(&connection).await?;
    for group in [types::GROUP, GROUP] {
        for number in 0..OBJECTS {
            let object = json!({"apiVersion": format!("{group}/v1"), "kind": "RedisCluster",
                "metadata": {"name": format!("c{number}")}, "spec": {"shards": 3, "replicasPerShard": 1, "version": "7.0"}});
            let body = Bytes::from(object.to_string());
            http::call(&mut connection.clone(), "POST", &collection(group), "application/json", body).await?;
        }
    }
    for in_flight in [1, 16] {
        for verb in ["GET", "PATCH"] {
            let ours = measure(&connection, types::GROUP, verb, in_flight).await?;
            let theirs = measure(&connection, GROUP, verb, in_flight).await?;
            report.add(line(verb, in_flight, ours, theirs))?;
        }
    }
    Ok(())
}

fn line(verb: &str, in_flight: usize, (ours, our_tail): (f64, f64), (theirs, their_tail): (f64, f64)) -> Line {
    Line {
        name: format!(
            "aggregated: {verb} through kube-apiserver, {in_flight} in flight, p50 (p99 {our_tail:.2} against {their_tail:.2})"
        ),
        ours,
        reference: theirs,
        against: "a CRD of that kube-apiserver".to_owned(),
        unit: "ms".to_owned(),
        ratio: theirs / ours,
        bar: "-".to_owned(),
        met: None,
    }
}

/// Our kind once more, as a definition of another group.
async fn define(connection: &Connection) -> Result<()> {
    let definitions = differential::definition::definitions(&registry::redis::registry()?)?;
    let mut definition: Value = definitions
        .into_iter()
        .find(|definition| definition["spec"]["names"]["kind"] == "RedisCluster")
        .context("the definition of RedisCluster")?;
    definition["spec"]["group"] = json!(GROUP);
    definition["metadata"]["name"] = json!(format!("redisclusters.{GROUP}"));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = Bytes::from(definition.to_string());
    http::call(&mut connection.clone(), "POST", path, "application/json", body).await?;
    let begin = Instant::now();
    let list = || async {
        http::call(&mut connection.clone(), "GET", &collection(GROUP), "application/json", Bytes::new()).await
    };
    while list().await.is_err() {
        ensure!(begin.elapsed() < hung::process(), "the definition is not served");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn collection(group: &str) -> String {
    format!("/apis/{group}/v1/namespaces/default/redisclusters")
}

/// Median and 99th percentile in milliseconds, each caller with an object of its own.
async fn measure(connection: &Connection, group: &str, verb: &'static str, in_flight: usize) -> Result<(f64, f64)> {
    let request = |caller: usize, number: usize| {
        let path = format!("{}/c{caller}", collection(group));
        let body = match verb {
            "PATCH" => json!({"metadata": {"annotations": {"number": format!("{number:010}")}}}).to_string(),
            _ => String::new(),
        };
        (verb, path, "application/merge-patch+json", Bytes::from(body))
    };
    let mut rate = closed(connection, in_flight, request).await?;
    Ok((percentile(&mut rate.millis, 0.5), percentile(&mut rate.millis, 0.99)))
}
