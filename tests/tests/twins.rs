//! One node in two processes, and what becomes of it.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::{fixture::Fixture, standalone::Standalone};

/// Where a pod's server has its files.
fn folder(fixture: &Fixture, address: std::net::SocketAddr) -> Result<PathBuf> {
    Ok(std::fs::read_link(format!("/proc/{}/cwd", fixture.kun.redis_server(address)?.pid))?)
}

/// The files of one server, which goes on, in the place of another's, without a word of whose they are.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::remove_file(to.join("kun-member.json"))?;
    std::fs::copy(from.join("nodes.conf"), to.join("nodes.conf"))?;
    let logs = to.join("appendonlydir");
    std::fs::remove_dir_all(&logs)?;
    std::fs::create_dir(&logs)?;
    for file in std::fs::read_dir(from.join("appendonlydir"))? {
        let file = file?;
        std::fs::copy(file.path(), logs.join(file.file_name()))?;
    }
    Ok(())
}

/// What Degraded says, where it is True.
fn degraded(cluster: &Value) -> Option<&str> {
    let mut conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|said| said["type"] == "Degraded" && said["status"] == "True")?["message"].as_str()
}

/// The agents beside the node hang as its double begins: else that one would not be started at all.
#[tokio::test]
async fn a_double_is_held_and_told_of_until_a_person_gives_it_up() -> Result<()> {
    let fixture = Fixture::idle(Standalone::start().await?, 3, 1, &json!({})).await?;
    let (home, address) = fixture.primary(0).await?;
    let (other, _) = fixture.primary(1).await?;
    let addresses = fixture.addresses().await?;
    let is_double = |name: &&String| name.starts_with("orders-1-") && **name != other;
    let double = addresses.keys().find(is_double).context("the replica of shard 1")?;
    let process = fixture.kun.redis_server(addresses[double])?;
    process.signal(Signal::STOP)?;
    copy_files(&folder(&fixture, address)?, &folder(&fixture, addresses[double])?)?;
    let beside: Result<Vec<_>> = ["orders-0-0", "orders-0-1"].iter().map(|pod| fixture.kun.agent(pod)).collect();
    let beside = beside?;
    beside.iter().try_for_each(|agent| agent.signal(Signal::STOP))?;
    process.kill()?;
    let is_told = |cluster: &Value| {
        degraded(cluster).is_some_and(|why| {
            why.contains("its server was stopped because it ran node")
                && why.contains(&format!("member {home}, too"))
                && why.contains(&format!("delete the claim and the pod of {double}"))
        })
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "telling of the double", is_told).await?;
    beside.iter().try_for_each(|agent| agent.signal(Signal::CONT))?;
    ensure!(fixture.kun.redis_server(addresses[double]).is_err(), "its server still runs");
    let events: Value = serde_json::from_str(&fixture.kubectl.run(&["get", "events", "-o", "json"]).await?)?;
    let stopped = |event: &Value| {
        event["message"].as_str().is_some_and(|text| text.contains("is stopped and held with what it has"))
    };
    ensure!(events["items"].as_array().into_iter().flatten().any(stopped), "{events:#}");
    // As the sentence says.
    fixture.kubectl.run(&["delete", "pvc", &format!("data-{double}"), "--wait=false"]).await?;
    fixture.kubectl.run(&["delete", "pod", double, "--wait=false"]).await?;
    fixture.ready(3).await?;
    Ok(())
}
