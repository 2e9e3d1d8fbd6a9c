//! The store as an operator meets it: two kun on one etcd, and a backup that is restored under a living informer.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something it needs fails"
)]

#[path = "../../apiserver/store/tests/etcd/server.rs"]
mod etcd;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use certs::{Authority, Leaf, Usage};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config};
use tests::standalone::{Standalone, kun_binary};

fn kun_store(args: &[&str]) -> Result<String> {
    let out = std::process::Command::new(kun_binary()?).arg("store").args(args).output()?;
    let said = String::from_utf8_lossy(&if out.status.success() { out.stdout } else { out.stderr }).into_owned();
    ensure!(out.status.success(), "{said}");
    Ok(said)
}

async fn config_maps(kun: &Standalone) -> Result<Api<ConfigMap>> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kun.data().join("kubeconfig"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Api::namespaced(Client::try_from(config)?, "default"))
}

/// What an informer knows: name → the value of `k`.
struct Informer {
    known: reflector::Store<ConfigMap>,
    _following: tokio::task::JoinHandle<()>,
}

impl Informer {
    fn start(api: Api<ConfigMap>) -> Self {
        let (known, writer) = reflector::store();
        let events = reflector(writer, watcher(api, watcher::Config::default())).default_backoff();
        // An error is followed by another try; what counts is what is known in the end.
        let following = tokio::spawn(events.for_each(|_| std::future::ready(())));
        Self { known, _following: following }
    }

    fn state(&self) -> BTreeMap<String, String> {
        let of = |map: &ConfigMap| {
            let value = map.data.as_ref().and_then(|data| data.get("k")).cloned().unwrap_or_default();
            (map.metadata.name.clone().unwrap_or_default(), value)
        };
        self.known.state().iter().map(|map| of(map)).collect()
    }

    async fn sees(&self, expected: &[(&str, &str)]) -> Result<()> {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let begin = Instant::now();
        while self.state() != expected {
            ensure!(begin.elapsed() < hung::process(), "the informer knows {:?}, not {expected:?}", self.state());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Only an informer that really resumes shows that a restore does not deceive it.
#[tokio::test(flavor = "multi_thread")]
async fn an_informer_lives_through_a_restore_and_ends_with_what_is_there() -> Result<()> {
    let mut kun = Standalone::start_with(&["--roles", "apiserver"], &[]).await?;
    let kubectl = kun.kubectl();
    kubectl.run(&["create", "configmap", "a", "--from-literal=k=old"]).await?;
    kubectl.run(&["create", "configmap", "b", "--from-literal=k=kept"]).await?;
    let informer = Informer::start(config_maps(&kun).await?);
    informer.sees(&[("a", "old"), ("b", "kept")]).await?;

    let (file, data) = (kun.scratch("backups")?.join("one"), kun.data());
    let (file, data) = (file.to_str().context("path")?, data.to_str().context("path")?);
    let said = kun_store(&["backup", "--data", data, "--to", file])?;
    ensure!(said.starts_with("backed up "), "while it serves: {said}");
    kubectl.run(&["patch", "configmap", "a", "--patch", r#"{"data":{"k":"new"}}"#, "--type=merge"]).await?;
    kubectl.run(&["delete", "configmap", "b"]).await?;
    kubectl.run(&["create", "configmap", "c", "--from-literal=k=lost"]).await?;
    informer.sees(&[("a", "new"), ("c", "lost")]).await?;

    let restore = ["restore", "--from", file, "--data", data, "--force"];
    let refused = kun_store(&restore).unwrap_err().to_string();
    ensure!(refused.contains("in use by another kun"), "while it serves: {refused}");
    ensure!(kun.stop().await? == 0);
    kun_store(&restore)?;
    kun.resume().await?;
    informer.sees(&[("a", "old"), ("b", "kept")]).await?;
    kubectl.run(&["create", "configmap", "d", "--from-literal=k=after"]).await?;
    informer.sees(&[("a", "old"), ("b", "kept"), ("d", "after")]).await
}

/// An authority, etcd's certificate and kun's, in files.
fn certificates(folder: &Path) -> Result<(etcd::TlsFiles, [PathBuf; 2])> {
    let authority = Authority::create("etcd")?;
    let lifetime = Duration::from_secs(3600);
    let leaf = |name: &str, ips, usage| {
        let common_name = name.to_owned();
        Leaf { common_name, organizations: Vec::new(), dns_names: Vec::new(), ips, usage, lifetime }
    };
    let server = authority.issue(&leaf("etcd", vec!["127.85.0.1".parse()?], Usage::BOTH))?;
    let client = authority.issue(&leaf("kun", Vec::new(), Usage::CLIENT))?;
    let write = |name: &str, content: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        std::fs::write(&path, content)?;
        Ok(path)
    };
    let files = etcd::TlsFiles {
        authority: write("ca.pem", authority.certificate_pem())?,
        certificate: write("etcd.pem", &server.certificate_pem)?,
        key: write("etcd.key", &server.key_pem)?,
    };
    Ok((files, [write("kun.pem", &client.certificate_pem)?, write("kun.key", &client.key_pem)?]))
}

/// Only two processes show that neither knows what the other did but by way of etcd.
#[tokio::test(flavor = "multi_thread")]
async fn two_kun_on_one_etcd_are_one_api() -> Result<()> {
    let Some(binary) = etcd::binary() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (files, [certificate, key]) = certificates(folder.path())?;
    let server = etcd::Server::encrypted(binary, &files);
    let path = |path: &Path| path.display().to_string();
    let (url, authority) = (server.url(), path(&files.authority));
    let (certificate, key) = (path(&certificate), path(&key));
    let flags = [
        ["--roles", "apiserver"],
        ["--store", "etcd"],
        ["--etcd-servers", &url],
        ["--etcd-cafile", &authority],
        ["--etcd-certfile", &certificate],
        ["--etcd-keyfile", &key],
        ["--etcd-prefix", "/kun"],
    ];
    let flags = flags.concat();
    let mut one = Standalone::start_with(&flags, &[]).await?;
    let two = Standalone::start_with(&flags, &[]).await?;
    let informer = Informer::start(config_maps(&two).await?);
    one.kubectl().run(&["create", "configmap", "a", "--from-literal=k=1"]).await?;
    let seen = two.kubectl().get("configmap", "a").await?;
    ensure!(seen["data"]["k"] == "1", "{seen:#}");
    informer.sees(&[("a", "1")]).await?;
    let taken = one.kubectl().refused(&["create", "configmap", "a"], "").await?;
    ensure!(taken.contains("already exists"), "{taken}");

    // One may go; what it acknowledged stays, and the other goes on.
    ensure!(one.stop().await? == 0);
    two.kubectl().run(&["create", "configmap", "b", "--from-literal=k=2"]).await?;
    one.resume().await?;
    let seen = one.kubectl().get("configmap", "b").await?;
    ensure!(seen["data"]["k"] == "2", "{seen:#}");
    ensure!(!one.data().join("store.redb").exists(), "nothing is kept beside etcd");
    Ok(())
}
