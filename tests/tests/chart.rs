//! What the chart makes of its values: the manifest that is shipped rendered, and what cannot work.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use tests::cluster::built;

/// The namespace that the rendered manifest is for.
const SYSTEM: &str = "kun-system";

/// What `kubectl apply -f` needs beside what helm makes.
const HEAD: &str = "# Made by `KUN_GOLDEN=write cargo test -p tests --test system -- chart::` from deploy/chart with its default values: do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: kun-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
";

struct Helm {
    program: PathBuf,
    deploy: PathBuf,
}

impl Helm {
    fn find(test: &str) -> Result<Option<Self>> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        Ok(built("tools.sh", test)?.map(|tools| Self { program: tools.join("helm"), deploy }))
    }

    /// What the chart makes of these values, or what it says instead.
    fn template(&self, values: &[&str]) -> Result<Result<String, String>> {
        let mut command = Command::new(&self.program);
        command
            .args(["template", "kun", "--namespace", SYSTEM, "--kube-version", "1.34.4"])
            .arg(self.deploy.join("chart"));
        for value in values {
            command.args(["--set", value]);
        }
        let out = command.output().context("run helm")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) })
    }

    fn made(&self, values: &[&str]) -> Result<String> {
        self.template(values)?.map_err(|told| anyhow::anyhow!("{values:?}: {told}"))
    }
}

#[test]
fn the_shipped_manifest_is_what_the_chart_makes_of_its_defaults() -> Result<()> {
    let Some(helm) = Helm::find("the_shipped_manifest")? else { return Ok(()) };
    let (path, text) = (helm.deploy.join("install.yaml"), format!("{HEAD}{}", helm.made(&[])?));
    if std::env::var_os("KUN_GOLDEN").is_some_and(|how| how == "write") {
        fs::write(&path, &text)?;
    }
    ensure!(
        fs::read_to_string(&path)? == text,
        "deploy/install.yaml: KUN_GOLDEN=write writes it anew; read the difference first"
    );
    Ok(())
}

#[test]
fn values_that_cannot_work_are_refused_with_a_sentence_that_names_them() -> Result<()> {
    let Some(helm) = Helm::find("values_that_cannot_work")? else { return Ok(()) };
    for (values, named) in [
        ("apiserver.replicas=3", "apiserver.replicas: the embedded store is one file"),
        ("store.kind=etcd", "store.etcd.servers: name at least one server"),
        ("store.kind=etcd,store.etcd.servers={https://a:2379}", "store.etcd.secret: https://a:2379 needs a Secret"),
        ("certificates.source=cert-manager", "certificates.issuerRef: say which Issuer"),
        ("store.kind=sqlite", "/store/kind"),
        ("webhook.failurePolicy=Maybe", "/webhook/failurePolicy"),
        ("certificates.overlap=soon", "/certificates/overlap"),
        ("apiserver.replica=2", "/apiserver"),
        ("webhook.replicas=0", "/webhook/replicas"),
    ] {
        let told = helm.template(&[values])?.err().with_context(|| format!("{values} was let pass"))?;
        ensure!(told.contains(named), "{values}: {told}");
    }
    Ok(())
}

#[test]
fn several_api_servers_share_an_etcd_spread_over_nodes_and_go_one_at_a_time() -> Result<()> {
    let Some(helm) = Helm::find("several_api_servers")? else { return Ok(()) };
    let values = [
        "store.kind=etcd",
        "store.etcd.servers={https://a:2379,https://b:2379}",
        "store.etcd.secret=etcd",
        "apiserver.replicas=3",
    ];
    let made = helm.made(&values)?;
    let part = |kind: &str, name: &str| {
        let mut documents = made.split("\n---\n");
        let found = documents
            .find(|text| text.contains(&format!("kind: {kind}\n")) && text.contains(&format!("\n  name: {name}\n")));
        found.with_context(|| format!("no {kind} {name}"))
    };
    let server = part("Deployment", "kun-apiserver")?;
    for wanted in [
        "replicas: 3",
        "priorityClassName: system-cluster-critical",
        "topologyKey: kubernetes.io/hostname",
        "--etcd-servers=https://a:2379,https://b:2379",
        "maxUnavailable: 0",
        "path: /readyz",
    ] {
        ensure!(server.contains(wanted), "{wanted:?} is not in {server}");
    }
    for name in ["kun-apiserver", "kun-webhook", "kun-controller"] {
        ensure!(part("PodDisruptionBudget", name)?.contains("maxUnavailable: 1"), "{name}");
    }
    ensure!(!made.contains("kind: StatefulSet"), "objects are in etcd, and no volume is asked for");
    Ok(())
}

#[test]
fn the_webhooks_answer_the_api_server_alone_unless_a_value_says_otherwise() -> Result<()> {
    let Some(helm) = Helm::find("the_webhooks_answer")? else { return Ok(()) };
    let asked = "--client-ca-file=/etc/kun/callers/ca.crt";
    let shown = "--identify-to=kun-webhook.kun-system.svc";
    let manager = ["certificates.source=cert-manager", "certificates.issuerRef.name=root"];
    let (own, given) = (helm.made(&[])?, helm.made(&manager)?);
    ensure!(own.contains("--client-name=kun-apiserver-tls=kun:apiserver"), "{own}");
    ensure!(given.contains("commonName: kun:apiserver") && given.contains("client auth"), "{given}");
    for made in [&own, &given] {
        ensure!(made.contains(asked) && made.contains(shown) && made.contains("mountPath: /etc/kun/callers"), "{made}");
    }
    let open = helm.made(&["webhook.anyCaller=true"])?;
    ensure!(!open.contains("/etc/kun/callers") && open.contains(shown), "{open}");
    Ok(())
}
