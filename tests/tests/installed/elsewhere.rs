//! KUN with what others keep and sign: an etcd, two API servers on it, and certificates of cert-manager; and the way there and
//! back, which is how somebody changes the store.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tests::{
    cert_manager::{CertManager, ISSUER},
    installed::{Installed, SYSTEM},
    story,
};
use tokio::process::Command;

use crate::{
    account::{authority, believed_alone, believed_no_more},
    scenario::{OVERLAP, api, pass, say, tried, unchanged, under_writes},
    store::{recover, whole},
};

/// A cluster's own etcd, rolling updates of a Deployment and cert-manager's own controllers, there and back.
pub(crate) async fn etcd_two_api_servers_and_cert_manager_take_over_and_give_back(installed: &Installed) -> Result<()> {
    let Some(issuer) = CertManager::start(&installed.kubernetes, SYSTEM, "installed").await? else { return Ok(()) };
    let etcd = credentials(installed).await?;
    under_writes(installed, async |writer| {
        let (before, owner) = (whole(installed).await?, installed.kubectl.get("rdc", "orders").await?);
        let first = authority(installed, "kun-agents-authority").await?;
        installed.uninstall().await?;
        forget(installed).await?;
        writer.progress(100, hung::change()).await?;
        let issued = format!("certificates.issuerRef.name={ISSUER}");
        let source = ["certificates.source=cert-manager", "certificates.issuerRef.kind=Issuer", &issued];
        let store = ["store.kind=etcd", "store.etcd.secret=kun-etcd", &etcd, "apiserver.replicas=2"];
        installed.install(&[&[OVERLAP][..], &source, &store].concat()).await?;
        installed.rolled_out().await?;
        let told = installed.kubectl.refused(&["get", "rdc", "orders"], "").await?;
        ensure!(told.contains("not found"), "the new store is empty: {told}");
        recover(installed, &[]).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        let back = installed.kubectl.get("rdc", "orders").await?;
        ensure!(back["metadata"]["uid"] == owner["metadata"]["uid"], "{:#}", back["metadata"]);
        both_serve_the_same(installed).await?;
        tokio::select! {
            failed = ask_on(installed) => return Err(failed.unwrap_err()),
            done = go_and_come(installed, &issuer, &first) => done?,
        }
        both_serve_the_same(installed).await?;
        writer.progress(100, hung::change()).await?;
        unchanged(&before, &whole(installed).await?)?;
        installed.uninstall().await?;
        forget(installed).await?;
        installed.install(&[OVERLAP]).await?;
        installed.rolled_out().await?;
        recover(installed, &[]).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&before, &whole(installed).await?)
    })
    .await
}

/// Serving certificates go, whose authority nobody will believe: pods wait for others, and do not begin with these.
async fn forget(installed: &Installed) -> Result<()> {
    let secrets = ["delete", "secret", "kun-apiserver-tls", "kun-webhook-tls", "-n", SYSTEM];
    installed.kubectl.run(&secrets).await.map(drop)
}

/// The Secret with which our API server reaches the cluster's etcd, and the value that says where it is.
async fn credentials(installed: &Installed) -> Result<String> {
    let keys = installed.kubernetes.state().context("the cluster is ours")?.join("keys");
    let data = [("ca.crt", "ca.crt"), ("tls.crt", "etcd.crt"), ("tls.key", "etcd.key")].map(|(name, file)| {
        let read = std::fs::read_to_string(keys.join(file)).with_context(|| file.to_owned());
        read.map(|text| (name.to_owned(), Value::from(text)))
    });
    let data: serde_json::Map<String, Value> = data.into_iter().collect::<Result<_>>()?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kun-etcd", "namespace": SYSTEM}, "stringData": data});
    installed.kubectl.feed(&["apply", "-f", "-"], &secret.to_string()).await?;
    // It runs beside the kube-apiserver.
    let kubeconfig = std::fs::read_to_string(installed.kubernetes.kubeconfig())?;
    let control = kubeconfig.split("https://").nth(1).and_then(|rest| rest.split(':').next());
    Ok(format!("store.etcd.servers={{https://{}:2379}}", control.context("address of the control plane")?))
}

/// An API server goes, both are made anew, certificates are renewed, and another authority signs those of the agents.
async fn go_and_come(installed: &Installed, issuer: &CertManager, first: &str) -> Result<()> {
    let begin = Instant::now();
    let server = installed.part("kun-apiserver").await?;
    let name = server["metadata"]["name"].as_str().context("name of a pod")?;
    installed.kubectl.run(&["delete", "pod", name, "-n", SYSTEM]).await?;
    installed.rolled_out().await?;
    installed.kubectl.run(&["rollout", "restart", "deployment/kun-apiserver", "-n", SYSTEM]).await?;
    installed.rolled_out().await?;
    say(&format!("an API server deleted and both restarted after {:.0} s", begin.elapsed().as_secs_f64()));
    for certificate in ["kun-apiserver", "kun-webhook"] {
        issuer.renew(certificate).await?;
    }
    // The first authority was KUN's own; the signer is now cert-manager's, and what was signed before is not believed any more.
    believed_no_more(installed, "kun-agents-authority", first).await?;
    let signer = authority_of(installed, "kun-agents-issued", "tls.crt").await?;
    // Where cert-manager has signed twice, as it does within a second now and then, the second one comes after the first.
    believed_alone(installed, "kun-agents-authority", &signer).await?;
    // What is believed no more must not have been needed.
    pass(Duration::from_secs(5)).await;
    story::ready(&installed.kubectl, "orders", 3).await?;
    say(&format!("the agents' authority exchanged after {:.0} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

async fn authority_of(installed: &Installed, secret: &str, name: &str) -> Result<String> {
    let found = installed.kubectl.clone().within(SYSTEM).get("secret", secret).await?;
    let text = found["data"][name].as_str().context("a certificate")?;
    Ok(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text)?)?)
}

/// Writes and reads until a request fails however often it is tried.
async fn ask_on(installed: &Installed) -> Result<std::convert::Infallible> {
    let api = api(installed).await?;
    for number in 0_u32.. {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"n": number.to_string()}}}));
        let how = PatchParams::default();
        let write = tried(|| api.patch("orders", &how, &patch));
        write.await.with_context(|| format!("write {number}"))?;
        let read = tried(|| api.get("orders")).await.with_context(|| format!("read {number}"))?;
        let told = read.metadata.annotations.unwrap_or_default().remove("n");
        ensure!(told == Some(number.to_string()), "{number} was written, {told:?} read");
        // Others are to have a moment of the machine.
        pass(Duration::from_millis(200)).await;
    }
    anyhow::bail!("numbers have ended")
}

/// What is written through one API server is read through each of them.
async fn both_serve_the_same(installed: &Installed) -> Result<()> {
    let pods = installed.parts("kun-apiserver", 2).await?;
    let addresses: Vec<&str> = pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str()).collect();
    ensure!(addresses.len() == 2, "{addresses:?}");
    for (number, writer) in addresses.iter().enumerate() {
        let word = format!("through-{number}");
        let patch = json!({"metadata": {"annotations": {"written": word}}}).to_string();
        let written = direct(
            installed,
            writer,
            &["-X", "PATCH", "-H", "Content-Type: application/merge-patch+json", "-d", &patch],
        )
        .await?;
        for reader in &addresses {
            let read = direct(installed, reader, &[]).await?;
            ensure!(read["metadata"]["annotations"]["written"] == word.as_str(), "{reader}: {read:#}");
            ensure!(read["metadata"]["uid"] == written["metadata"]["uid"], "{read:#}");
        }
    }
    Ok(())
}

/// Asks one API server about `orders`, as the kube-apiserver does.
async fn direct(installed: &Installed, address: &str, words: &[&str]) -> Result<Value> {
    let keys = installed.kubernetes.state().context("the cluster is ours")?.join("keys");
    let out = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--insecure",
            "--retry-connrefused",
            "--retry",
            "5",
            "--max-time",
            &hung::answer().as_secs().to_string(),
        ])
        .arg("--cert")
        .arg(keys.join("front-proxy.crt"))
        .arg("--key")
        .arg(keys.join("front-proxy.key"))
        .args(["-H", "X-Remote-User: admin", "-H", "X-Remote-Group: system:masters"])
        .args(words)
        .arg(format!("https://{address}:8443/apis/redis.kun.io/v1/namespaces/default/redisclusters/orders"))
        .output()
        .await?;
    ensure!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}
