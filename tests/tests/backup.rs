//! A backup is worth what a restore of its files shows.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use resp::{ClusterClient, Connection, Options, Outcome};
use serde_json::{Value, json};
use tests::{fixture::Fixture, kubectl::waiting, oracle, standalone::Standalone};
use tokio::process::Command;

const KEYS: usize = 3000;

/// Only redis-server itself can say that it loads the files: what else reads them is ours.
#[tokio::test]
async fn the_files_of_a_backup_load_in_a_fresh_redis_server_with_the_right_keys() -> Result<()> {
    let kun = Standalone::start().await?;
    let folder = kun.scratch("backups")?;
    let target = json!({"backup": {"target": {"directory": {"path": folder}}}});
    let fixture = Fixture::on(kun, 3, 1, &target).await?;
    let expected = load(&fixture).await?;

    let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup"});
    let backup = fixture.act("backup", "rbk", &body, "Completed").await?;
    let artifacts = backup["status"]["shards"].as_array().context("artifacts")?.clone();
    assert_eq!(artifacts.len(), 3);
    assert_eq!(backup["status"]["verified"], json!(true));

    let mut found = BTreeSet::new();
    for (index, artifact) in artifacts.iter().enumerate() {
        let file = find(&folder, artifact["file"].as_str().context("file")?).context("artifact on disk")?;
        assert_eq!(artifact["bytes"], json!(fs::metadata(&file)?.len()));
        let keys = restore(&fixture.kun, &file, index).await?;
        assert_eq!(artifact["keys"], json!(keys.len()), "keys of shard {index}");
        found.extend(keys.into_iter().filter(|key| key.starts_with("backup:")));
    }
    assert_eq!(found, expected);
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Only here a worker runs as a pod that deletes on a real folder, with a cluster and without one.
#[tokio::test]
async fn a_deleted_backup_takes_its_files_along_if_that_was_asked_for_also_when_its_cluster_is_gone() -> Result<()> {
    let kun = Standalone::start().await?;
    let folder = kun.scratch("backups")?;
    let target = json!({"backup": {"target": {"directory": {"path": folder}}}});
    let fixture = Fixture::idle(kun, 3, 0, &target).await?;
    let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisBackup"});
    let mut backups = Vec::new();
    for policy in ["Delete", "Retain", "Delete"] {
        let mut body = body.clone();
        body["spec"] = json!({"deletionPolicy": policy});
        let backup = fixture.act("backup", "rbk", &body, "Completed").await?;
        let name = backup["metadata"]["name"].as_str().context("name")?.to_owned();
        let location = backup["status"]["location"].as_str().context("location")?.to_owned();
        assert_eq!(fs::read_dir(folder.join(&location))?.count(), 3);
        backups.push((name, location));
    }
    let [(first, first_files), (retained, retained_files), (last, last_files)] = backups.as_slice() else {
        anyhow::bail!("three backups")
    };

    fixture.kubectl.run(&["delete", "rbk", first, retained, &waiting()]).await?;
    assert!(!folder.join(first_files).exists(), "deleted with its object");
    assert_eq!(fs::read_dir(folder.join(retained_files))?.count(), 3, "retained");
    assert_eq!(fs::read_dir(folder.join(last_files))?.count(), 3, "another backup");

    fixture.kubectl.run(&["delete", "rdc", "orders", &waiting()]).await?;
    fs::write(folder.join(last_files).join("notes"), "of somebody else")?;
    fixture.kubectl.run(&["delete", "rbk", last, &waiting()]).await?;
    let left: Vec<_> = fs::read_dir(folder.join(last_files))?.map(|entry| entry.map(|e| e.file_name())).collect();
    assert_eq!(left.into_iter().collect::<Result<Vec<_>, _>>()?, ["notes"]);
    // Events are written beside what they tell of, and pods of workers end after their words count.
    let told = |events: &[Value]| {
        ["ArtifactsDeleted", "ArtifactsLeft"].iter().all(|reason| events.iter().any(|event| event["reason"] == *reason))
    };
    fixture.kubectl.until_all("events", "", hung::change(), "telling both", told).await?;
    fixture.kubectl.until_all("pods", "", hung::change(), "gone, each worker", <[Value]>::is_empty).await.map(drop)
}

/// Writes known keys and returns them.
async fn load(fixture: &Fixture) -> Result<BTreeSet<String>> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let seeds = fixture.addresses().await?.into_values().collect();
    let mut client = ClusterClient::new(seeds, Some(credentials)).timeouts(hung::answer(), hung::change());
    let mut keys = BTreeSet::new();
    for index in 0..KEYS {
        let key = format!("backup:{index}");
        let outcome = client.set(&key, format!("value {index}")).await;
        ensure!(matches!(outcome, Outcome::Acked(_)), "{key}: {outcome:?}");
        keys.insert(key);
    }
    replicas_have_it_all(fixture).await?;
    Ok(keys)
}

/// A replica may be the source of a backup: what was acknowledged so far has reached all of them when this returns.
async fn replicas_have_it_all(fixture: &Fixture) -> Result<()> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    // A stream of replication by its name, and how far it goes.
    let mut written = BTreeMap::new();
    let mut replicas = Vec::new();
    for address in fixture.addresses().await?.into_values() {
        let mut node = oracle::open(address, &credentials).await?;
        let told = node.info(&["replication"]).await?;
        if told.get("role") == Some("master") {
            let name = told.get("master_replid").context("master_replid")?.to_owned();
            written.insert(name, told.number("master_repl_offset").context("master_repl_offset")?);
        } else {
            replicas.push(node);
        }
    }
    let begin = Instant::now();
    for mut replica in replicas {
        loop {
            let told = replica.info(&["replication"]).await?;
            let goal = written.get(told.get("master_replid").context("master_replid")?).context("its primary")?;
            if told.number("slave_repl_offset").context("slave_repl_offset")? >= *goal {
                break;
            }
            ensure!(begin.elapsed() < hung::change(), "a replica does not get further than {told:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

fn find(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.ends_with(name) {
            return Some(path);
        }
    }
    None
}

/// Loads an RDB file in a fresh redis-server and returns all keys. The server is where nobody else is: beyond the pods of this test's network.
async fn restore(kun: &Standalone, file: &Path, index: usize) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    fs::copy(file, folder.path().join("dump.rdb"))?;
    let IpAddr::V4(network) = kun.listen().ip() else { bail!("a network of tests is one of IPv4") };
    let [first, second, ..] = network.octets();
    let address = SocketAddr::from(([first, second, 255, u8::try_from(index + 1)?], 6379));
    let mut server = Command::new("redis-server")
        .args(["--port", "6379", "--bind", &address.ip().to_string(), "--protected-mode", "no"])
        .args(["--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start redis-server")?;
    let mut keys = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < hung::process() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Ok(mut connection) = Connection::open(&Options::new(address)).await else { continue };
        let Ok(reply) = connection.call(&["KEYS", "*"]).await else { continue };
        if let Some(items) = reply.items() {
            keys = items.iter().filter_map(|item| item.text().map(str::to_owned)).collect();
            break;
        }
    }
    server.kill().await?;
    ensure!(!keys.is_empty(), "artifact {index} holds no key");
    Ok(keys)
}
