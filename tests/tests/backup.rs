//! A backup is worth what a restore of its files shows.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{collections::BTreeSet, fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use resp::{ClusterClient, Connection, Options, Outcome};
use serde_json::json;
use tests::{fixture::Fixture, oracle, standalone::Standalone};
use tokio::process::Command;

const KEYS: usize = 3000;

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
        let keys = restore(&file, index).await?;
        assert_eq!(artifact["keys"], json!(keys.len()), "keys of shard {index}");
        found.extend(keys.into_iter().filter(|key| key.starts_with("backup:")));
    }
    assert_eq!(found, expected);
    fixture.verify(3, 1).await?;
    Ok(())
}

/// Writes known keys and returns them.
async fn load(fixture: &Fixture) -> Result<BTreeSet<String>> {
    let credentials = oracle::credentials(&fixture.kubectl, "default", "orders", "default").await?;
    let seeds = fixture.addresses().await?.into_values().collect();
    let mut client = ClusterClient::new(seeds, Some(credentials));
    let mut keys = BTreeSet::new();
    for index in 0..KEYS {
        let key = format!("backup:{index}");
        let outcome = client.set(&key, format!("value {index}")).await;
        ensure!(matches!(outcome, Outcome::Acked(_)), "{key}: {outcome:?}");
        keys.insert(key);
    }
    // A replica may be the source: what was acknowledged reaches it within moments.
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(keys)
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

/// Loads an RDB file in a fresh redis-server and returns all keys.
async fn restore(file: &Path, index: usize) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    fs::copy(file, folder.path().join("dump.rdb"))?;
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut server = Command::new("redis-server")
        .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start redis-server")?;
    let mut keys = Vec::new();
    for _ in 0..200 {
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
