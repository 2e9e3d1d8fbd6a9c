//! Objects at rest as an operator meets them: encrypted in the file and in backups, keys exchanged while kun serves, the
//! rotation finished with kubectl as the manual says.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]
#![allow(clippy::unwrap_used, reason = "a test ends where something it needs fails")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use tests::kubectl::Kubectl;
use tests::standalone::{Standalone, kun_binary};

/// What kun says when it has taken over a changed file.
const KEYS_ARE_IN_USE: &str = "the keys of stored objects changed and are in use now";
/// What nobody may find on the disk.
const PLAIN: &[u8] = b"not-to-be-found-on-any-disk";

/// A configuration of these keys for Secrets; each is its name's byte 32 times.
fn write_keys(path: &Path, providers: &str) -> Result<()> {
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
    text += &format!("- resources: [secrets]\n  providers: [{providers}]\n");
    Ok(std::fs::write(path, text)?)
}

fn gcm(names: &[&str]) -> String {
    let key = |name: &&str| format!("{{name: {name}, secret: {}}}", BASE64_STANDARD.encode(name.repeat(32).as_bytes()));
    let keys: Vec<String> = names.iter().map(key).collect();
    format!("{{aesgcm: {{keys: [{}]}}}}", keys.join(", "))
}

fn holds(path: &Path, text: &[u8]) -> bool {
    std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text)
}

/// Where a Secret's value stands in text, base64 as the API shows it.
async fn secret_of(kubectl: &Kubectl, name: &str) -> Result<String> {
    kubectl.run(&["get", "secret", name, "-o", "jsonpath={.data.k}"]).await
}

async fn replaced(kubectl: &Kubectl) -> Result<()> {
    let all = kubectl.run(&["get", "secrets", "-A", "-o", "json"]).await?;
    kubectl.feed(&["replace", "-f", "-"], &all).await.map(drop)
}

/// Waits until the log has said this so many times. A changed file is looked at every ten seconds.
async fn logged(kun: &Standalone, text: &str, times: usize) -> Result<()> {
    let begin = Instant::now();
    while kun.log()?.matches(text).count() < times {
        ensure!(begin.elapsed() < hung::change(), "the log does not say {text:?} {times} times");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Only the files of a server that runs show that nothing secret gets there on any way.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_while_it_serves_and_the_file_and_its_backups_never_hold_what_is_secret() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (keys, backup) = (folder.path().join("keys.yaml"), folder.path().join("backup"));
    write_keys(&keys, &format!("{}, {{identity: {{}}}}", gcm(&["a"])))?;
    let flags = ["--roles", "apiserver", "--encryption-provider-config", keys.to_str().unwrap()];
    let mut kun = Standalone::start_with(&flags, &[]).await?;
    let (kubectl, file) = (kun.kubectl(), kun.data().join("store.redb"));
    let value = BASE64_STANDARD.encode(PLAIN);
    let literal = format!("--from-literal=k={}", std::str::from_utf8(PLAIN)?);
    kubectl.run(&["create", "secret", "generic", "one", &literal]).await?;
    kubectl.run(&["create", "configmap", "open", "--from-literal=k=may-be-found"]).await?;
    ensure!(secret_of(&kubectl, "one").await? == value);
    ensure!(holds(&file, b"k8s:enc:aesgcm:v1:a:") && holds(&file, b"may-be-found"));
    ensure!(!holds(&file, PLAIN) && !holds(&file, value.as_bytes()), "the file holds the secret");

    let written = kubectl.get("secret", "one").await?["metadata"]["resourceVersion"].clone();
    replaced(&kubectl).await?;
    let unchanged = kubectl.get("secret", "one").await?["metadata"]["resourceVersion"].clone();
    ensure!(unchanged == written, "what is neither changed nor stale is not written: {unchanged} after {written}");

    // The rotation: the new key writes, the old one still reads.
    write_keys(&keys, &gcm(&["b", "a"]))?;
    logged(&kun, KEYS_ARE_IN_USE, 1).await?;
    ensure!(secret_of(&kubectl, "one").await? == value);
    replaced(&kubectl).await?;
    let rewritten = kubectl.get("secret", "one").await?["metadata"]["resourceVersion"].clone();
    ensure!(rewritten != written, "what is stale is written although it is unchanged");

    // A broken file changes nothing; without the old key everything is still there.
    write_keys(&keys, "{aescbc: {keys: []}}")?;
    logged(&kun, "this provider is not supported", 1).await?;
    ensure!(secret_of(&kubectl, "one").await? == value);
    write_keys(&keys, &gcm(&["b"]))?;
    logged(&kun, KEYS_ARE_IN_USE, 2).await?;
    ensure!(secret_of(&kubectl, "one").await? == value, "after the rotation the old key is not needed");

    let mut command = Command::new(kun_binary()?);
    command.args(["store", "backup", "--data"]).arg(kun.data()).arg("--to").arg(&backup);
    ensure!(command.output()?.status.success());
    ensure!(holds(&backup, b"k8s:enc:aesgcm:v1:b:"));
    ensure!(!holds(&backup, PLAIN) && !holds(&backup, value.as_bytes()), "the backup holds the secret");
    ensure!(!kun.log()?.contains(&"b".repeat(32)) && !kun.log()?.contains(&BASE64_STANDARD.encode("b".repeat(32))));
    ensure!(kun.stop().await? == 0);
    kun.resume().await?;
    ensure!(secret_of(&kubectl, "one").await? == value);

    // A key that is lost: what it sealed is an error, not an absence; everything else goes on.
    ensure!(kun.stop().await? == 0);
    write_keys(&keys, &gcm(&["c"]))?;
    kun.resume().await?;
    let why = "reading secrets/default/one from the store: no matching key was found for the provided AES transformer";
    for what in [&["get", "secret", "one"][..], &["get", "secrets", "-A"], &["delete", "secret", "one"]] {
        let refused = kubectl.refused(what, "").await?;
        ensure!(refused.contains(&format!("(InternalError): Internal error occurred: {why}")), "{what:?}: {refused}");
    }
    kubectl.run(&["create", "secret", "generic", "two", "--from-literal=k=v"]).await?;
    ensure!(secret_of(&kubectl, "two").await? == BASE64_STANDARD.encode("v"));
    kubectl.run(&["get", "configmap", "open"]).await?;
    Ok(())
}

/// Only the program itself shows what a person reads who starts it with a wrong file.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_at_start_is_refused_with_file_and_field_and_without_the_secret() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let keys = folder.path().join("keys.yaml");
    write_keys(&keys, "{aesgcm: {keys: [{name: a, secret: hunter2}]}}")?;
    let flags = ["--roles", "apiserver", "--encryption-provider-config", keys.to_str().unwrap()];
    let refused = format!("{:#}", Standalone::start_with(&flags, &[]).await.unwrap_err());
    let expected = format!("{}: resources[0].providers[0].aesgcm.keys[0].secret: ", keys.display());
    ensure!(refused.contains(&expected), "{refused}");
    ensure!(!refused.contains("hunter2"), "{refused}");
    Ok(())
}
