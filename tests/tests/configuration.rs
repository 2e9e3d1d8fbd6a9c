//! What is accepted and no server starts with: it reaches nobody, and is told; so is a server that does not stay up, and a Secret that is gone.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::{
    fixture::Fixture,
    kubectl::condition,
    left_behind::{operator, wait_until},
    oracle,
    standalone::Standalone,
    story::is_ready,
};

/// redis-server, on a machine where none starts with a million clients. `SERVER` is the real one: the node looks for programs in the
/// folder of this one first.
const PICKY: &str = r#"#!/bin/sh
if grep -qs -- '^maxclients 1000000$' "$1"; then
    printf '\n*** FATAL CONFIG FILE ERROR (Redis) ***\nReading the configuration file, at line 9\n' >&2
    printf ">>> 'maxclients 1000000'\nthis machine has no files for them\n" >&2
    exit 1
fi
exec SERVER "$@"
"#;

fn says(cluster: &Value, kind: &str, status: &str, reason: &str, words: &str) -> bool {
    let condition = condition(cluster, kind);
    condition["status"] == status
        && condition["reason"] == reason
        && condition["message"].as_str().is_some_and(|message| message.contains(words))
}

async fn patch(fixture: &Fixture, spec: &Value) -> Result<()> {
    let patch = json!({"spec": spec}).to_string();
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", &patch]).await?;
    Ok(())
}

async fn max_clients(fixture: &Fixture, shard: usize) -> Result<String> {
    let mut primary = operator(fixture, fixture.primary(shard).await?.1).await?;
    primary.config_get(&["maxclients"]).await?.remove("maxclients").context("maxclients")
}

/// A cluster on a machine where no server starts with a million clients; the folder holds its redis-server.
async fn on_a_picky_machine(folder: &Path) -> Result<Fixture> {
    let program = folder.join("redis-server");
    let path = std::env::var("PATH")?;
    let server = path.split(':').map(|folder| Path::new(folder).join("redis-server")).find(|file| file.is_file());
    let server = server.context("redis-server is on the PATH")?;
    fs::write(&program, PICKY.replace("SERVER", server.to_str().context("a path in UTF-8")?))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let program = program.to_str().context("a path in UTF-8")?;
    let kun = Standalone::start_with(&["--redis-server", program], &[]).await?;
    Fixture::on(kun, 3, 1, &json!({"config": {"maxclients": "5000"}})).await
}

/// Before, Ready and UpToDate were True, and the next crash was a crash loop.
#[tokio::test]
async fn parameters_that_no_server_starts_with_reach_nobody_and_are_told_in_the_engines_words() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fixture = on_a_picky_machine(folder.path()).await?;
    patch(&fixture, &json!({"config": {"maxclients": "1000000"}})).await?;
    let words = "orders-0-0, orders-0-1, orders-1-0 and 3 more do not use spec.config; the engine of orders-0-0 says: 'maxclients 1000000': this \
                 machine has no files for them; correct spec.config, and everything goes on by itself";
    let told = |cluster: &Value| {
        says(cluster, "UpToDate", "False", "ConfigRejected", words)
            && says(cluster, "Degraded", "True", "ConfigRejected", words)
            && is_ready(cluster, 3)
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "refusing the parameter", told).await?;
    let (pod, address) = fixture.primary(0).await?;
    fixture.crash(&pod, address).await?;
    fixture.kubectl.until("rdc", "orders", hung::change(), "back, and refusing still", told).await?;
    ensure!(max_clients(&fixture, 0).await? == "5000");
    patch(&fixture, &json!({"config": {"maxclients": "6000"}})).await?;
    let mended = |cluster: &Value| {
        says(cluster, "UpToDate", "True", "AllCurrent", "")
            && says(cluster, "Degraded", "False", "NothingWrong", "")
            && is_ready(cluster, 3)
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "up to date", mended).await?;
    for shard in 0..3 {
        ensure!(max_clients(&fixture, shard).await? == "6000");
    }
    fixture.verify(3, 1).await?;
    Ok(())
}

/// The pods, each with its uid.
async fn pods(fixture: &Fixture) -> Result<BTreeMap<String, String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = fixture.kubectl.list("pods", "").await?;
    Ok(pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect())
}

/// Before, it went on, and the whole cluster came back with the engine's defaults.
#[tokio::test]
async fn a_roll_stops_at_refused_parameters_and_goes_on_when_corrected() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fixture = on_a_picky_machine(folder.path()).await?;
    let before = pods(&fixture).await?;
    // What only a restart changes, and what no server starts with, in one change: nobody knows yet when the roll begins.
    patch(&fixture, &json!({"config": {"maxclients": "1000000", "databases": "32"}})).await?;
    let why = |pod: &str| {
        format!(
            "no member is restarted while member {pod} does not use spec.config, which its engine refuses: correct spec.config, and the \
             restart goes on by itself ('maxclients 1000000': this machine has no files for them)"
        )
    };
    let told = |cluster: &Value| {
        says(cluster, "UpToDate", "False", "ConfigRejected", "this machine has no files for them")
            && cluster["status"]["plan"]["waiting"]
                .as_str()
                .is_some_and(|waiting| waiting.contains("no member is restarted"))
            && is_ready(cluster, 3)
    };
    let cluster = fixture.kubectl.until("rdc", "orders", hung::change(), "waiting for a person", told).await?;
    let restarted: Vec<String> = {
        let now = pods(&fixture).await?;
        before.iter().filter(|(name, uid)| now.get(*name) != Some(*uid)).map(|(name, _)| name.clone()).collect()
    };
    ensure!(restarted.len() <= 1, "{restarted:?}");
    let waiting = cluster["status"]["plan"]["waiting"].as_str().context("a reason")?;
    // Whose agent has tried it first is told: mostly, but not always, the first to be restarted.
    ensure!(before.keys().any(|pod| why(pod) == waiting), "{waiting}");
    patch(&fixture, &json!({"config": {"maxclients": "6000", "databases": "32"}})).await?;
    let mended = |cluster: &Value| {
        says(cluster, "UpToDate", "True", "AllCurrent", "")
            && says(cluster, "Degraded", "False", "NothingWrong", "")
            && is_ready(cluster, 3)
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "rolled", mended).await?;
    let after = pods(&fixture).await?;
    ensure!(before.iter().all(|(name, uid)| after.get(name).is_some_and(|now| now != uid)), "{before:?} {after:?}");
    ensure!(max_clients(&fixture, 0).await? == "6000");
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Before, each restart that was asked for took one member down.
#[tokio::test]
async fn a_restart_that_is_asked_for_begins_nothing_while_parameters_are_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fixture = on_a_picky_machine(folder.path()).await?;
    let before = pods(&fixture).await?;
    patch(&fixture, &json!({"config": {"maxclients": "1000000"}})).await?;
    let refused =
        |cluster: &Value| says(cluster, "UpToDate", "False", "ConfigRejected", "and 3 more do not use spec.config");
    fixture.kubectl.until("rdc", "orders", hung::change(), "refusing the parameter", refused).await?;
    let restart = json!({"apiVersion": types::API_VERSION, "kind": "RedisOperation", "spec": {"restart": {}}});
    let path = "/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/restart";
    fixture.kubectl.feed(&["create", "--raw", path, "-f", "-"], &restart.to_string()).await?;
    let waits = |cluster: &Value| {
        cluster["status"]["plan"]["waiting"].as_str().is_some_and(|waiting| waiting.contains("no member is restarted"))
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "waiting for a person", waits).await?;
    ensure!(pods(&fixture).await? == before, "a member was restarted");
    patch(&fixture, &json!({"config": {"maxclients": "6000"}})).await?;
    let restarted = async |name: &str| Ok::<_, anyhow::Error>(pods(&fixture).await?.get(name) != before.get(name));
    wait_until("all are restarted", async || {
        for name in before.keys() {
            if !restarted(name).await? {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    fixture.ready(3).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Makes the first append-only file below a directory illegible.
fn spoil(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir.join("appendonlydir"))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".incr.aof") {
            return Ok(fs::write(path, "*2\r\nthis is no command\r\n".repeat(10))?);
        }
    }
    anyhow::bail!("no append-only file in {}", dir.display())
}

/// Only here the words of a real engine go by its agent and the controller to where a person looks.
#[tokio::test]
async fn a_server_that_does_not_stay_up_is_degraded_with_its_last_words() -> Result<()> {
    let fixture = Fixture::start(3, 1, &json!({})).await?;
    let (primary, _) = fixture.primary(1).await?;
    let addresses = fixture.addresses().await?;
    let replica =
        addresses.keys().find(|name| name.starts_with("orders-1-") && **name != primary).context("replica")?;
    let process = fixture.kun.redis_server(addresses[replica])?;
    let data = fs::read_link(format!("/proc/{}/cwd", process.pid))?;
    kill_process(Pid::from_raw(process.pid).context("pid")?, Signal::STOP)?;
    spoil(&data)?;
    process.kill()?;
    let told = |cluster: &Value| says(cluster, "Degraded", "True", "CrashLoop", "append only file");
    fixture.kubectl.until("rdc", "orders", hung::change(), "told to crash", told).await?;
    Ok(())
}

/// Before, it was Ready and UpToDate, and only pods that were made anew for another reason had its password. What a roll is proven elsewhere; here that the
/// name is one, that nothing is begun before the Secret is there, and what members take in the end.
#[tokio::test]
async fn another_secret_reaches_every_pod_and_is_told_until_then() -> Result<()> {
    let fixture = Fixture::start(3, 0, &json!({})).await?;
    let before = fixture.addresses().await?;
    patch(&fixture, &json!({"auth": {"secretName": "mine"}})).await?;
    let words = "there is no Secret mine, of which every pod that is made needs the key password";
    let waits = |cluster: &Value| {
        says(cluster, "Degraded", "True", "SecretMissing", words)
            && says(cluster, "UpToDate", "False", "PodsOutdated", "3 of 3")
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "missing the Secret", waits).await?;
    assert_eq!(fixture.addresses().await?, before, "nobody is restarted");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": "default"},
        "stringData": {"password": "another"}});
    fixture.kubectl.feed(&["create", "-f", "-"], &secret.to_string()).await?;
    let rolled = |cluster: &Value| is_ready(cluster, 3) && says(cluster, "UpToDate", "True", "AllCurrent", "");
    fixture.kubectl.until("rdc", "orders", hung::change(), "up to date", rolled).await?;
    for address in fixture.addresses().await?.values() {
        oracle::open(*address, &resp::Credentials::new("default", "another")).await?;
    }
    Ok(())
}

/// Before, it was Ready and UpToDate, a pod that was made anew hung, and went on hanging when the name was taken back.
#[tokio::test]
async fn a_secret_that_is_gone_is_told_and_a_pod_that_hung_for_it_is_made_anew_once_it_is_not_needed() -> Result<()> {
    let fixture = Fixture::start(3, 1, &json!({})).await?;
    patch(&fixture, &json!({"auth": {"secretName": "mine"}})).await?;
    let words = "there is no Secret mine, of which every pod that is made needs the key password";
    let told = |cluster: &Value| says(cluster, "Degraded", "True", "SecretMissing", words) && is_ready(cluster, 3);
    fixture.kubectl.until("rdc", "orders", hung::change(), "missing the Secret", told).await?;

    let (primary, _) = fixture.primary(2).await?;
    let addresses = fixture.addresses().await?;
    let replica =
        addresses.keys().find(|name| name.starts_with("orders-2-") && **name != primary).context("replica")?;
    fixture.kubectl.run(&["delete", "pod", replica, "--wait=false"]).await?;
    let hangs = |cluster: &Value| {
        condition(cluster, "Ready")["status"] == "False" && says(cluster, "Degraded", "True", "SecretMissing", words)
    };
    fixture.kubectl.until("rdc", "orders", hung::change(), "without the pod", hangs).await?;
    let waits = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object();
    fixture.kubectl.until("pod", replica, hung::change(), "hanging", waits).await?;
    patch(&fixture, &json!({"auth": null})).await?;
    let mended = |cluster: &Value| is_ready(cluster, 3) && says(cluster, "Degraded", "False", "NothingWrong", "");
    fixture.kubectl.until("rdc", "orders", hung::change(), "ready again", mended).await?;
    fixture.verify(3, 1).await?;
    Ok(())
}
