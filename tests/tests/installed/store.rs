//! The store of our objects is lost, or goes back in time: Redis does not notice, and what is missing is brought back from
//! what the cluster itself keeps.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::{
    installed::{Installed, SYSTEM},
    standalone::kun_binary,
    story,
};

use crate::scenario::{pass, unchanged, under_writes};

/// How long everybody has to do what must not be done: the garbage collector, Kubernetes' other controllers and our own.
const TEMPTATION: Duration = Duration::from_secs(15);
const SERVER: &str = "statefulset/kun-apiserver";

/// Kubernetes' own controllers see owners that are gone, and nothing goes with them.
pub(crate) async fn a_store_that_was_wiped_costs_nothing_and_owners_come_back(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let (before, owner) = (whole(installed).await?, installed.kubectl.get("rdc", "orders").await?);
        installed.scale(SERVER, 0).await?;
        let folder = folder(installed).await?;
        fs::remove_dir_all(&folder)?;
        installed.scale(SERVER, 1).await?;
        installed.answers().await?;
        pass(TEMPTATION).await;
        let told = installed.kubectl.refused(&["get", "rdc", "orders"], "").await?;
        ensure!(told.contains("\"orders\" not found"), "{told}");
        unchanged(&before, &whole(installed).await?)?;
        writer.progress(100, hung::change()).await?;
        let told = recover(installed, &["--dry-run"]).await?;
        ensure!(told.contains("default/orders"), "{told}");
        recover(installed, &[]).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        let back = installed.kubectl.get("rdc", "orders").await?;
        ensure!(back["metadata"]["uid"] == owner["metadata"]["uid"], "{:#}", back["metadata"]);
        ensure!(back["spec"] == owner["spec"], "{:#}", back["spec"]);
        unchanged(&before, &whole(installed).await?)
    })
    .await
}

/// The same where the owners are older than what they own.
pub(crate) async fn a_store_that_went_back_is_noticed_and_nothing_is_touched(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    under_writes(installed, async |writer| {
        installed.scale(SERVER, 0).await?;
        let folder = folder(installed).await?;
        let older = installed.kubernetes.scratch().join("older");
        copy(&folder, &older)?;
        installed.scale(SERVER, 1).await?;
        installed.answers().await?;
        kubectl.run(&["scale", "rdc/orders", "--replicas=4"]).await?;
        story::ready(kubectl, "orders", 4).await?;
        let before = whole(installed).await?;
        installed.scale(SERVER, 0).await?;
        fs::remove_dir_all(&folder)?;
        copy(&older, &folder)?;
        installed.scale(SERVER, 1).await?;
        installed.answers().await?;
        pass(TEMPTATION).await;
        // It says three shards, as it did then; four are there, and stay.
        ensure!(kubectl.get("rdc", "orders").await?["spec"]["shards"] == 3, "the older copy is served");
        unchanged(&before, &whole(installed).await?)?;
        writer.progress(100, hung::change()).await?;
        recover(installed, &[]).await?;
        story::ready(kubectl, "orders", 4).await?;
        unchanged(&before, &whole(installed).await?)?;
        kubectl.run(&["scale", "rdc/orders", "--replicas=3"]).await?;
        story::ready(kubectl, "orders", 3).await.map(drop)
    })
    .await
}

/// Pods and everything that holds data or clients, each with its uid.
pub(crate) async fn whole(installed: &Installed) -> Result<String> {
    Ok(format!("{}{}", installed.pods().await?, installed.children().await?))
}

/// Where the store's volume lies on this machine.
async fn folder(installed: &Installed) -> Result<PathBuf> {
    let claim = installed.kubectl.clone().within(SYSTEM).get("pvc", "data-kun-apiserver-0").await?;
    let volume = claim["spec"]["volumeName"].as_str().context("volume of the store")?;
    let volume = installed.kubectl.get("pv", volume).await?;
    let node = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0");
    let node = node.and_then(Value::as_str).context("node of the volume")?;
    let path = ["/spec/local/path", "/spec/hostPath/path"].into_iter().find_map(|path| volume.pointer(path)?.as_str());
    let name = path.and_then(|path| path.rsplit('/').next()).context("path of the volume")?;
    let folder =
        installed.kubernetes.state().context("the cluster is ours")?.join(node).join("volumes").join(name).join("data");
    ensure!(folder.is_dir(), "{} is no folder", folder.display());
    Ok(folder)
}

/// With its owners and modes.
fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(copied.success(), "cp: {copied}");
    Ok(())
}

/// What a user does about it, again where that goes wrong: who has been recovered is left as he is.
pub(crate) async fn recover(installed: &Installed, flags: &[&str]) -> Result<String> {
    let begin = Instant::now();
    loop {
        let out = Command::new(kun_binary()?)
            .args(["ctl", "recover", "--namespace", "default"])
            .args(flags)
            .env("KUBECONFIG", installed.kubernetes.kubeconfig())
            .stdin(Stdio::null())
            .output()?;
        let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if out.status.success() {
            return Ok(told);
        }
        // The kube-apiserver passes nothing on for a moment after a slow probe of our API.
        ensure!(begin.elapsed() < hung::process(), "kun ctl recover: {told}");
        pass(Duration::from_secs(1)).await;
    }
}
