//! KUN on a real Kubernetes, installed as a user installs it: by its chart, with a cluster `orders` in the namespace default.
//!
//! It must not know what is tested with it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    cluster::built,
    kubectl::Kubectl,
    kubernetes::Kubernetes,
    oracle::{self, Shape},
    story,
    writer::{Verdict, Writer},
};

/// Namespace of KUN itself.
pub const SYSTEM: &str = "kun-system";
/// Longest time one helm may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// Longest time one change may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Engine of the cluster, as the nodes have its image.
const ENGINE: (&str, &str) = ("7.0", "kun.test/redis:7.0");

/// KUN in a cluster.
#[derive(Debug)]
pub struct Installed {
    /// The cluster.
    pub kubernetes: Kubernetes,
    /// kubectl of its administrator.
    pub kubectl: Kubectl,
    helm: PathBuf,
}

impl Installed {
    /// Starts a cluster and installs KUN into it. `None`: this machine cannot have a cluster.
    pub async fn start(nodes: u8, test: &str) -> Result<Option<Self>> {
        let Some(helm) = built("helm.sh", test)? else { return Ok(None) };
        let Some(kubernetes) = Kubernetes::start(nodes, test)? else { return Ok(None) };
        kubernetes.load_kun()?;
        let installed = Self { kubectl: kubernetes.admin(), kubernetes, helm };
        installed.restrict("default").await?;
        installed.kubectl.run(&["create", "namespace", SYSTEM]).await?;
        installed.restrict(SYSTEM).await?;
        installed.install(&[]).await?;
        Ok(Some(installed))
    }

    /// Pod Security refuses and warns of what is not "restricted".
    async fn restrict(&self, namespace: &str) -> Result<()> {
        let label = |what: &str| format!("pod-security.kubernetes.io/{what}=restricted");
        let (enforce, warn) = (label("enforce"), label("warn"));
        self.kubectl.run(&["label", "namespace", namespace, &enforce, &warn]).await?;
        Ok(())
    }

    /// `helm upgrade --install`, and waits until the API answers. No warning is let pass.
    pub async fn install(&self, values: &[&str]) -> Result<()> {
        let (repository, tag) = crate::kubernetes::KUN_IMAGE.split_once(':').context("tag of the image")?;
        let image = [format!("image.repository={repository}"), format!("image.tag={tag}")];
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
        let mut words = vec!["upgrade", "--install", "--wait", "kun", chart.to_str().context("path of the chart")?];
        for value in image.iter().map(String::as_str).chain(values.iter().copied()) {
            words.extend(["--set", value]);
        }
        let told = self.helm(&words).await?;
        ensure!(!told.to_lowercase().contains("warning"), "helm: {told}");
        self.kubectl
            .run(&["wait", "--for=condition=Available", "apiservice/v1.redis.kun.io", "--timeout=120s"])
            .await?;
        Ok(())
    }

    /// `helm uninstall`.
    pub async fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", "kun", "--wait"]).await.map(drop)
    }

    /// Waits until every pod of KUN is as the chart has it now.
    pub async fn rolled_out(&self) -> Result<()> {
        for part in ["statefulset/kun-apiserver", "deployment/kun-webhook", "deployment/kun-controller"] {
            self.kubectl.run(&["rollout", "status", part, "-n", SYSTEM, "--timeout=120s"]).await?;
        }
        Ok(())
    }

    async fn helm(&self, words: &[&str]) -> Result<String> {
        let run = Command::new(&self.helm)
            .args(words)
            .args(["--namespace", SYSTEM])
            .env("KUBECONFIG", self.kubernetes.kubeconfig())
            .kill_on_drop(true)
            .output();
        let out = tokio::time::timeout(DEADLINE, run).await.context("helm took too long")?.context("start helm")?;
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        if !out.status.success() {
            bail!("helm {}: {told}", words.join(" "));
        }
        Ok(told)
    }

    /// Creates `orders` with fields of its spec added, and waits until it is Ready. No warning is let pass.
    pub async fn create(&self, shards: u16, replicas: u16, spec: &Value) -> Result<()> {
        let (version, image) = ENGINE;
        let mut object: Value = serde_json::from_str(&crate::fixture::manifest(shards, replicas, spec))?;
        object["spec"]["version"] = json!(version);
        object["spec"]["image"] = json!(image);
        let applied = self.kubectl.outcome(&["apply", "-f", "-"], &object.to_string()).await?;
        ensure!(applied.success && applied.stderr.is_empty(), "{}", applied.stderr);
        story::ready(&self.kubectl, "orders", shards).await?;
        Ok(())
    }

    /// Starts a writer on `orders`.
    pub async fn write(&self) -> Result<Writer> {
        let credentials = oracle::credentials(&self.kubectl, "default", "orders", "default").await?;
        let writer = Writer::start(self.addresses().await?, Some(credentials));
        writer.progress(300, PATIENCE).await?;
        Ok(writer)
    }

    /// Ends the writer: nothing acknowledged is lost, and the invariants T1–T6 hold.
    pub async fn verify(&self, writer: Writer, shape: Shape) -> Result<Verdict> {
        let verdict = writer.verify(&self.addresses().await?).await?;
        ensure!(verdict.lost.is_empty(), "acknowledged writes were lost: {:#?}", verdict.lost);
        ensure!(verdict.acked > 0, "nothing was written");
        story::ready(&self.kubectl, "orders", shape.shards).await?;
        oracle::check(&self.kubectl, "default", "orders", shape).await?;
        Ok(verdict)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>> {
        Ok(oracle::addresses(&self.kubectl, "default", "orders").await?.into_values().collect())
    }

    /// Of every Redis pod its name, uid, start and restarts, as one text.
    pub async fn pods(&self) -> Result<String> {
        let columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid,START:.status.startTime,\
                       RESTARTS:.status.containerStatuses[*].restartCount";
        self.kubectl.run(&["get", "pods", "-l", "redis.kun.io/cluster=orders", "-o", columns]).await
    }
}
