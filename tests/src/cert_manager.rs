//! cert-manager's own controllers beside a cluster, with an Issuer `company` in a namespace. They end with the value, and with
//! the process that holds it.
//!
//! It must not know whose certificates they make.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    cluster::built,
    kubectl::{Kubectl, condition, waiting},
    kubernetes::Kubernetes,
};

/// Name of the Issuer.
pub const ISSUER: &str = "company";

/// The program.
#[derive(Debug)]
pub struct CertManager {
    kubectl: Kubectl,
    program: Child,
}

impl CertManager {
    /// Starts it, and waits until the Issuer signs. `None`: this machine cannot build it.
    pub async fn start(kubernetes: &Kubernetes, namespace: &str, test: &str) -> Result<Option<Self>> {
        let Some(tools) = built("tools.sh", test)? else { return Ok(None) };
        let kubectl = kubernetes.admin().within(namespace);
        let kinds = fs::read_to_string(tools.join("cert-manager.yaml"))?;
        kubectl.feed(&["apply", "--server-side", "-f", "-"], &kinds).await?;
        for kind in ["certificates", "certificaterequests", "issuers", "clusterissuers"] {
            let kind = format!("crd/{kind}.cert-manager.io");
            kubectl.run(&["wait", &kind, "--for=condition=Established", &waiting()]).await?;
        }
        let log = fs::File::create(kubernetes.scratch().join("cert-manager.log"))?;
        let program = Command::new(tools.join("cert-manager"))
            .arg(kubernetes.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start cert-manager")?;
        let own = Self { kubectl, program };
        own.issuer().await?;
        Ok(Some(own))
    }

    /// An authority that signs itself, and an Issuer that signs with it.
    async fn issuer(&self) -> Result<()> {
        let of = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let authority = json!({"secretName": ISSUER, "isCA": true, "commonName": ISSUER, "issuerRef": {"name": "itself"},
            "privateKey": {"algorithm": "ECDSA", "size": 256}});
        for object in [
            of("Issuer", "itself", json!({"selfSigned": {}})),
            of("Certificate", ISSUER, authority),
            of("Issuer", ISSUER, json!({"ca": {"secretName": ISSUER}})),
        ] {
            self.kubectl.feed(&["apply", "-f", "-"], &object.to_string()).await?;
        }
        let ready = ["wait", "issuer", ISSUER, "--for=condition=Ready", &waiting()];
        self.kubectl.run(&ready).await.map(drop)
    }

    /// Has a certificate made anew, as `cmctl renew` does it, and waits until it is there.
    pub async fn renew(&self, certificate: &str) -> Result<()> {
        let before = self.kubectl.get("certificate", certificate).await?["status"]["revision"].clone();
        let issuing = json!({"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "a test"});
        let patch = json!({"status": {"conditions": [issuing]}}).to_string();
        let words = ["patch", "certificate", certificate, "--subresource=status", "--type=merge", "-p", &patch];
        self.kubectl.run(&words).await?;
        let renewed =
            |found: &Value| condition(found, "Ready")["status"] == "True" && found["status"]["revision"] != before;
        self.kubectl.until("certificate", certificate, hung::change(), "renewed", renewed).await.map(drop)
    }
}

impl Drop for CertManager {
    fn drop(&mut self) {
        // Its input ends with the handle, and it with its input; this is only sooner.
        self.program.kill().ok();
        self.program.wait().ok();
    }
}
