//! What both servers keep encrypted, and what both record of the same requests, with the same two files: an
//! EncryptionConfiguration and an audit Policy.

mod rest;
mod trail;

use std::{fs, path::Path};

use anyhow::Result;
use apiserver::registry;
use differential::definition;
use tests::standalone::Standalone;

use crate::{administrator, kubernetes::Kubernetes};

/// Runs both; false if something differs.
pub(crate) async fn run(tools: &Path) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("keys.yaml"), rest::CONFIGURATION)?;
    fs::write(path("policy.yaml"), trail::POLICY)?;
    let flags = |log: &str| {
        [("encryption-provider-config", "keys.yaml"), ("audit-policy-file", "policy.yaml"), ("audit-log-path", log)]
            .map(|(flag, file)| format!("--{flag}={}", path(file).display()))
    };
    let ours = flags("ours.log");
    let roles = ["--roles", "apiserver"];
    let words: Vec<&str> = roles.into_iter().chain(ours.iter().map(String::as_str)).collect();
    let mut kun = Standalone::prepare(&words, &[])?;
    let oracle = flags("oracle.log");
    let (kubernetes, started) = tokio::join!(Kubernetes::start_with(tools, &oracle), kun.resume());
    let kubernetes = kubernetes?;
    started?;
    for definition in definition::definitions(&registry::redis::registry()?)? {
        kubernetes.define(&definition).await?;
    }
    let sealed = rest::check(&kubernetes).await?;
    let asked = trail::ask(kubernetes.access(), &administrator(&kun)?).await?;
    trail::wait(&path("oracle.log"), hung::process()).await?;
    kun.stop().await?;
    let (events, differences) = trail::compare(&path("oracle.log"), &path("ours.log"))?;
    for difference in &differences {
        println!("{difference}");
    }
    println!("{sealed} values sealed and opened, {asked} requests, {events} events, {} differences", differences.len());
    Ok(differences.is_empty())
}
