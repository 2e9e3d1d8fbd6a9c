//! Our store was lost, or put back from an older copy, under a cluster that serves: nothing of Redis notices, and
//! `kun ctl recover` brings its object back.
//!
//! Standalone keeps everything in one store, so the part that can be lost in a Kubernetes cluster, the RedisCluster, is
//! taken out of it behind the back of the controller, while only the other roles run.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{collections::BTreeMap, process::Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    fixture::{Fixture, manifest},
    kubectl::{condition, waiting},
    standalone::kun_binary,
};

const RAW: &str = "/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders/recover";

/// What must outlive the loss: every child by its uid, and every redis-server by its process.
async fn alive(fixture: &Fixture) -> Result<(BTreeMap<String, Value>, Vec<i32>)> {
    let kinds =
        "statefulsets,services,networkpolicies,secrets,configmaps,persistentvolumeclaims,poddisruptionbudgets,pods";
    let text = fixture.kubectl.run(&["get", kinds, "-l", "redis.kun.io/cluster=orders", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("items")?;
    let children = items.iter().map(|item| {
        let name = format!("{}/{}", item["kind"], item["metadata"]["name"]);
        (name, item["metadata"]["uid"].clone())
    });
    let servers = fixture.kun.pod_processes();
    let servers = servers.into_iter().filter(|process| process.command.contains("redis-server 127."));
    Ok((children.collect(), servers.map(|process| process.pid).collect()))
}

/// Restarts kun without a controller, has `change` done, and lets it run again.
async fn behind_the_controller(fixture: &mut Fixture, change: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    fixture.kun.kill().await?;
    fixture.kun.use_flags(&["--roles", "apiserver,webhook,node"]);
    fixture.kun.resume().await?;
    change(fixture).await?;
    fixture.kun.kill().await?;
    fixture.kun.use_flags(&[]);
    fixture.kun.resume().await
}

/// Takes the object away as if it had never been.
async fn lose(fixture: &Fixture) -> Result<()> {
    let free = r#"{"metadata":{"finalizers":null}}"#;
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", free]).await?;
    fixture.kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;
    Ok(())
}

async fn recover(fixture: &Fixture, further: &[&str]) -> Result<Output> {
    let kubeconfig = fixture.kun.data().join("kubeconfig");
    let mut command = tokio::process::Command::new(kun_binary()?);
    command.args(["ctl", "recover", "--namespace", "default", "--kubeconfig"]).arg(kubeconfig).args(further);
    Ok(command.output().await?)
}

/// What `kun ctl recover` says, which must be this and end with this code.
async fn recover_says(fixture: &Fixture, further: &[&str], code: i32, part: &str) -> Result<()> {
    let out = recover(fixture, further).await?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.code() == Some(code) && said.contains(part), "{further:?}: {:?}: {said}", out.status);
    Ok(())
}

/// Waits until the object says why it is left alone.
async fn held(fixture: &Fixture, reason: &str) -> Result<()> {
    let says = |cluster: &Value| condition(cluster, "Ready")["reason"] == reason;
    fixture.kubectl.until("rdc", "orders", hung::change(), reason, says).await?;
    Ok(())
}

/// Only here the object of a cluster is gone while its pods serve and a writer writes.
#[tokio::test]
async fn a_lost_object_costs_nothing_and_comes_back_as_it_was() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    let changed = r#"{"spec":{"migration":{"batchKeys":50}}}"#;
    fixture.kubectl.run(&["patch", "rdc", "orders", "--type=merge", "-p", changed]).await?;
    let noted = |set: &Value| {
        let record = set["metadata"]["annotations"]["redis.kun.io/owner"].as_str().unwrap_or_default();
        record.contains("\"generation\":2")
    };
    let set = fixture.kubectl.until("statefulset", "orders-0", hung::change(), "on record", noted).await?;
    let before = fixture.ready(3).await?;
    let (children, servers) = alive(&fixture).await?;
    ensure!(children.len() > 15 && servers.len() == 6, "{children:?} {servers:?}");

    behind_the_controller(&mut fixture, async |fixture| lose(fixture).await).await?;
    let events = ["get", "events", "--field-selector", "reason=OwnerAbsent", "-o", "name"];
    let begin = std::time::Instant::now();
    while fixture.kubectl.run(&events).await?.trim().is_empty() {
        ensure!(begin.elapsed() < hung::change(), "nobody says that the owner is absent:\n{}", fixture.kun.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    fixture.writer()?.progress(300, hung::change()).await?;

    // Somebody applies the manifest again: another object, which takes nothing over and can go again.
    fixture.kubectl.feed(&["apply", "-f", "-"], &manifest(3, 1, &json!({}))).await?;
    held(&fixture, "OwnedByAnother").await?;
    recover_says(&fixture, &["orders"], 1, "not recovered: StatefulSet orders-0 belongs to another RedisCluster")
        .await?;
    fixture.kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;

    let uid = before["metadata"]["uid"].as_str().context("uid")?;
    let done = format!("recovered with uid {uid} and generation 2");
    recover_says(&fixture, &["--dry-run"], 0, &format!("default/orders: would be {done}")).await?;
    recover_says(&fixture, &[], 0, &format!("default/orders: {done}")).await?;
    recover_says(&fixture, &["orders"], 0, "default/orders: nothing to do").await?;
    recover_says(&fixture, &["users"], 1, "there is no StatefulSet of it").await?;
    let after = fixture.ready(3).await?;
    ensure!(after["spec"] == before["spec"], "{after:#}");
    ensure!(alive(&fixture).await? == (children.clone(), servers.clone()), "something was made anew");

    // The same with an older copy of the object.
    let record = set["metadata"]["annotations"]["redis.kun.io/owner"].as_str().context("record")?;
    let mut older: Value = serde_json::from_str(record)?;
    older["metadata"]["generation"] = json!(1);
    older["spec"]["migration"]["batchKeys"] = json!(100);
    older["spec"]["replicasPerShard"] = json!(0);
    behind_the_controller(&mut fixture, async |fixture| {
        lose(fixture).await?;
        fixture.kubectl.feed(&["create", "--raw", RAW, "-f", "-"], &older.to_string()).await?;
        Ok(())
    })
    .await?;
    held(&fixture, "OwnerBehind").await?;
    fixture.writer()?.progress(300, hung::change()).await?;
    recover_says(&fixture, &["orders"], 0, "default/orders: brought from generation 1 to 2").await?;
    let after = fixture.ready(3).await?;
    ensure!(after["spec"] == before["spec"], "{after:#}");
    ensure!(alive(&fixture).await? == (children, servers), "something was made anew");
    fixture.verify(3, 1).await?;
    Ok(())
}
