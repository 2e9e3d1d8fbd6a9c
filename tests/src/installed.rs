//! KUN on a real Kubernetes, installed as a user installs it: by its chart, with a cluster `orders` in the namespace default; several
//! at once may look at it, each from a namespace of its own with an `orders` of its own.
//!
//! It must not know what is tested with it.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    cluster::built,
    fixture,
    kubectl::{Kubectl, condition, waiting},
    kubernetes::Kubernetes,
    oracle::{self, Shape},
    story,
    writer::{Verdict, Writer},
};

/// Namespace of KUN itself.
pub const SYSTEM: &str = "kun-system";
/// Namespace in which `orders` lives where nobody says another one.
pub const HOME: &str = "default";
/// Engine of the cluster.
const ENGINE: &str = "7.0";
/// Where somebody says by which name the nodes of his cluster know our image, and that of the engine; absent: as our own nodes
/// know them.
const OUR_IMAGE: (&str, &str) = ("KUN_TEST_IMAGE", crate::kubernetes::KUN_IMAGE);
const ENGINE_IMAGE: (&str, &str) = ("KUN_TEST_REDIS_IMAGE", "kun.test/redis:7.0");

/// KUN in a cluster, seen from a namespace.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The cluster.
    pub kubernetes: Arc<Kubernetes>,
    /// kubectl of its administrator, in that namespace where nothing else is said.
    pub kubectl: Kubectl,
    /// That namespace: `orders` lives in it.
    pub home: String,
    helm: PathBuf,
}

impl Installed {
    /// Installs KUN into the cluster that the user gives, or else into one of our own, with these values of its chart. `None`: this
    /// machine cannot have one.
    pub async fn start(nodes: u8, test: &str, values: &[&str]) -> Result<Option<Self>> {
        let Some(tools) = built("tools.sh", test)? else { return Ok(None) };
        let Some(kubernetes) = Kubernetes::given_or_start(nodes, test)? else { return Ok(None) };
        let (kubectl, kubernetes) = (kubernetes.admin(), Arc::new(kubernetes));
        let installed = Self { kubernetes, kubectl, home: HOME.to_owned(), helm: tools.join("helm") };
        if installed.kubernetes.is_ours() {
            installed.kubernetes.load_kun()?;
            installed.restrict(HOME).await?;
        } else {
            installed.nobodys().await?;
        }
        installed.kubectl.run(&["create", "namespace", SYSTEM]).await?;
        installed.restrict(SYSTEM).await?;
        installed.install(values).await?;
        Ok(Some(installed))
    }

    /// The same installation from another namespace, which is made: who looks from there has an `orders` of his own.
    pub async fn at(&self, home: &str) -> Result<Self> {
        self.kubectl.run(&["create", "namespace", home]).await?;
        self.restrict(home).await?;
        let mut config = self.config().await?;
        config["contexts"][0]["context"]["namespace"] = json!(home);
        let kubeconfig = self.kubernetes.scratch().join(home);
        fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubectl: self.kubectl.clone().kubeconfig(kubeconfig), home: home.to_owned(), ..self.clone() })
    }

    /// What kubectl is told about the cluster.
    async fn config(&self) -> Result<Value> {
        let text = self.kubectl.run(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"]).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Somebody's installation is never touched.
    async fn nobodys(&self) -> Result<()> {
        for (kind, name) in
            [("apiservice", "v1.redis.kun.io"), ("namespace", SYSTEM), ("clusterrole", "kun:controller")]
        {
            let found = self.kubectl.run(&["get", kind, name, "--ignore-not-found", "-o", "name"]).await?;
            ensure!(
                found.is_empty(),
                "the cluster of KUBECONFIG has {} already: these tests install KUN, and touch no installation of somebody else's",
                found.trim()
            );
        }
        Ok(())
    }

    /// Whether this machine reaches the members of `orders` by their addresses, which whoever writes to it must.
    pub async fn reaches_pods(&self) -> Result<()> {
        for address in oracle::addresses(&self.kubectl, &self.home, "orders").await?.into_values() {
            let reached = tokio::time::timeout(hung::answer(), tokio::net::TcpStream::connect(address)).await;
            ensure!(
                matches!(reached, Ok(Ok(_))),
                "{address} is not reached from here: the tests write to the members of a cluster by the addresses of its pods, so run them \
                 on a machine that has a route to these, such as a node of the cluster"
            );
        }
        Ok(())
    }

    /// Takes everything out of a cluster that is not ours; one of ours ends.
    pub async fn leave(self) -> Result<()> {
        if !self.kubernetes.is_ours() {
            let wait = waiting();
            self.kubectl.run(&["delete", "rdc", "orders", "--ignore-not-found", &wait]).await?;
            self.kubectl.run(&["delete", "pvc,secrets", "-l", "redis.kun.io/cluster=orders", &wait]).await?;
            self.uninstall().await?;
            self.kubectl.run(&["delete", "namespace", SYSTEM, &wait]).await?;
        }
        Arc::into_inner(self.kubernetes).context("somebody still looks at the cluster")?.stop()
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
        let image = image(OUR_IMAGE);
        let (repository, tag) = image.rsplit_once(':').context("tag of KUN_TEST_IMAGE")?;
        let named = [format!("image.repository={repository}"), format!("image.tag={tag}")];
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
        let mut words = vec!["upgrade", "--install", "--wait", "kun", chart.to_str().context("path of the chart")?];
        for value in named.iter().map(String::as_str).chain(values.iter().copied()) {
            words.extend(["--set", value]);
        }
        let wait = waiting();
        words.push(&wait);
        let told = self.helm(&words).await?;
        ensure!(!told.to_lowercase().contains("warning"), "helm: {told}");
        self.kubectl.run(&["wait", "--for=condition=Available", "apiservice/v1.redis.kun.io", &waiting()]).await?;
        Ok(())
    }

    /// `helm uninstall`.
    pub async fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", "kun", "--wait", &waiting()]).await.map(drop)
    }

    /// `helm rollback` to the revision before.
    pub async fn roll_back(&self) -> Result<()> {
        self.helm(&["rollback", "kun", "--wait", &waiting()]).await.map(drop)
    }

    /// Waits until every pod of KUN is as the chart has it now.
    pub async fn rolled_out(&self) -> Result<()> {
        let parts = self.kubectl.run(&["get", "statefulsets,deployments", "-n", SYSTEM, "-o", "name"]).await?;
        ensure!(parts.lines().count() == 3, "the parts of KUN: {parts}");
        for part in parts.lines() {
            self.kubectl.run(&["rollout", "status", part, "-n", SYSTEM, &waiting()]).await?;
        }
        Ok(())
    }

    async fn helm(&self, words: &[&str]) -> Result<String> {
        let run = Command::new(&self.helm)
            .args(words)
            .args(["--namespace", SYSTEM])
            .env("KUBECONFIG", self.kubernetes.kubeconfig())
            // It keeps what it learns of a cluster at home.
            .env("HOME", self.kubernetes.scratch())
            .kill_on_drop(true)
            .output();
        let out =
            tokio::time::timeout(hung::machine(), run).await.context("helm took too long")?.context("start helm")?;
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        if !out.status.success() {
            bail!("helm {}: {told}", words.join(" "));
        }
        Ok(told)
    }

    /// Applies a cluster and waits until it is Ready. No warning is let pass but of what its own specification means.
    pub async fn create(&self, namespace: &str, name: &str, shape: Shape, spec: &Value) -> Result<()> {
        let object = sized(namespace, name, shape, spec);
        let applied = self.kubectl.answer(&["apply", "--server-side", "-f", "-"], &object.to_string()).await?;
        // What else kubectl says is of its own ways: that it had to ask again for what is served.
        let is_meant = |line: &str| !line.starts_with("Warning:") || line.starts_with("Warning: spec.");
        ensure!(applied.success && applied.stderr.lines().all(is_meant), "{}", applied.stderr);
        self.ready_in(namespace, name, shape.shards).await
    }

    /// Waits until a cluster of any namespace is Ready.
    pub async fn ready_in(&self, namespace: &str, name: &str, shards: u16) -> Result<()> {
        story::ready(&self.kubectl.clone().within(namespace), name, shards).await.map(drop)
    }

    /// Starts a writer on `orders`. It knows the members and their Service, which outlives them.
    pub async fn write(&self) -> Result<Writer> {
        let credentials = oracle::credentials(&self.kubectl, &self.home, "orders", "default").await?;
        let writer = Writer::calm(self.addresses().await?, Some(credentials));
        writer.progress(100, hung::change()).await?;
        Ok(writer)
    }

    /// Ends the writer: nothing acknowledged is lost, and the invariants T1–T6 hold.
    pub async fn verify(&self, writer: Writer, shape: Shape) -> Result<Verdict> {
        self.verify_but(writer, shape, None).await
    }

    /// The same where a primary was killed at a time: what the asynchronous replication of Redis itself may have lost within
    /// moments of that is let pass, and counted.
    pub async fn verify_but(&self, writer: Writer, shape: Shape, blow: Option<Instant>) -> Result<Verdict> {
        writer.progress(100, hung::change()).await.context("the writer writes at the end")?;
        story::ready(&self.kubectl, "orders", shape.shards).await?;
        let mut verdict = writer.verify(&self.addresses().await?).await?;
        if let Some(blow) = blow {
            verdict.forgive(blow);
        }
        ensure!(verdict.lost.is_empty(), "acknowledged writes were lost: {:#?}", verdict.lost);
        ensure!(verdict.acked > 0, "nothing was written");
        story::settled(&self.kubectl, (&self.home, "orders"), shape, async || Ok(None)).await?;
        Ok(verdict)
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let members = oracle::addresses(&self.kubectl, &self.home, "orders").await?.into_values();
        let service = self.kubectl.get("service", "orders").await?;
        let address: IpAddr = service["spec"]["clusterIP"].as_str().context("address of the Service")?.parse()?;
        Ok(members.chain([SocketAddr::new(address, types::names::PORT_REDIS)]).collect())
    }

    /// Of every Redis pod of `orders` its name, uid, start and restarts, as one text.
    pub async fn pods(&self) -> Result<String> {
        let columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid,START:.status.startTime,\
                       RESTARTS:.status.containerStatuses[*].restartCount";
        self.kubectl.run(&["get", "pods", "-l", "redis.kun.io/cluster=orders", "-o", columns]).await
    }

    /// Of everything that holds data or clients of `orders` its kind, name and uid, as one text.
    pub async fn children(&self) -> Result<String> {
        let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid";
        let kinds = "statefulsets,persistentvolumeclaims,services,secrets";
        self.kubectl.run(&["get", kinds, "-l", "redis.kun.io/cluster=orders", "-o", columns]).await
    }

    /// The pods that a selector finds in a namespace.
    pub async fn listed(&self, resource: &str, namespace: &str, selector: &str) -> Result<Vec<Value>> {
        let listed = self.kubectl.run(&["get", resource, "-n", namespace, "-l", selector, "-o", "json"]).await?;
        let mut listed: Value = serde_json::from_str(&listed)?;
        match listed["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("a list of {resource}: {other}"),
        }
    }

    /// How many primaries of `orders` each node has.
    pub async fn primaries(&self) -> Result<BTreeMap<String, usize>> {
        let mut count = BTreeMap::new();
        for pod in self.listed("pods", &self.home, "redis.kun.io/cluster=orders,redis.kun.io/role=primary").await? {
            let node = pod["spec"]["nodeName"].as_str().context("node of a pod")?.to_owned();
            *count.entry(node).or_default() += 1;
        }
        Ok(count)
    }

    /// Waits until so many pods of a part of KUN are Ready and none of these is on its way out; gives them.
    pub async fn parts(&self, name: &str, count: usize) -> Result<Vec<Value>> {
        let selector = format!("app.kubernetes.io/name={name}");
        let system = self.kubectl.clone().within(SYSTEM);
        let stays = |pod: &&Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
        let all = |pods: &[Value]| pods.iter().filter(stays).count() >= count;
        let pods = system.until_all("pods", &selector, hung::change(), &format!("{count} that are Ready"), all).await?;
        Ok(pods.into_iter().filter(|pod| stays(&pod)).collect())
    }

    /// The one pod of a part of KUN that is Ready; of several the first.
    pub async fn part(&self, name: &str) -> Result<Value> {
        self.parts(name, 1).await?.into_iter().next().with_context(|| format!("no pod of {name}"))
    }

    /// Sends a signal to every process of a container of a pod, as the machine sees them.
    pub fn signal(&self, pod: &Value, program: &str, signal: &str) -> Result<()> {
        let uid = pod["metadata"]["uid"].as_str().context("uid of a pod")?;
        let found = processes(uid, program)?;
        ensure!(!found.is_empty(), "no process {program} of the pod {uid}");
        for process in found {
            let sent = std::process::Command::new("kill").arg(format!("-{signal}")).arg(&process).status()?;
            // Who ends with the one before needs no signal.
            let is_gone = !Path::new("/proc").join(process).exists();
            ensure!(sent.success() || is_gone, "kill -{signal}: {sent}");
        }
        Ok(())
    }

    /// Resident memory of a program of a pod, KiB.
    pub fn memory(&self, pod: &Value, program: &str) -> Result<u64> {
        let uid = pod["metadata"]["uid"].as_str().context("uid of a pod")?;
        let mut sum = 0;
        for process in processes(uid, program)? {
            let status = fs::read_to_string(Path::new("/proc").join(&process).join("status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
            sum += line.trim().trim_end_matches(" kB").parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Waits until the API answers about RedisClusters, and says how long that took.
    pub async fn answers(&self) -> Result<Duration> {
        let begin = Instant::now();
        self.kubectl.until_all("rdc", "", hung::change(), "answered for", |_| true).await?;
        Ok(begin.elapsed())
    }

    /// Tells a workload of KUN how many pods it has, and waits until it has them.
    pub async fn scale(&self, workload: &str, replicas: u8) -> Result<()> {
        self.kubectl.run(&["scale", workload, "-n", SYSTEM, &format!("--replicas={replicas}")]).await?;
        if replicas > 0 {
            self.kubectl.run(&["rollout", "status", workload, "-n", SYSTEM, &waiting()]).await?;
            return Ok(());
        }
        let name = workload.split_once('/').map_or(workload, |(_, name)| name);
        let selector = format!("app.kubernetes.io/name={name}");
        self.kubectl.run(&["wait", "pods", "-n", SYSTEM, "-l", &selector, "--for=delete", &waiting()]).await?;
        Ok(())
    }

    /// kubectl as a service account of a namespace.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Kubectl> {
        let token = self.kubectl.run(&["create", "token", name, "-n", namespace, "--duration=1h"]).await?;
        let mut config = self.config().await?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.kubernetes.scratch().join(format!("{namespace}-{name}"));
        fs::write(&path, config.to_string())?;
        Ok(self.kubectl.clone().kubeconfig(path))
    }
}

/// A cluster of a shape that a small machine has room for many of. What `spec` says comes in place of what is said here; null
/// takes it away. Pods that ask for no processor share one weight of two among all of a node, and stand still for seconds beside others.
#[must_use]
pub fn sized(namespace: &str, name: &str, shape: Shape, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": types::API_VERSION, "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"shards": shape.shards, "replicasPerShard": shape.replicas, "storage": {"size": "1Gi"},
                 "resources": {"requests": {"cpu": "20m"}}, "version": ENGINE, "image": image(ENGINE_IMAGE)},
    });
    if shape.shards == 1 {
        object["spec"]["mode"] = json!("Standalone");
    } else {
        object["spec"]["failover"] = fixture::node_timeout(10);
    }
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    object
}

/// By which name the nodes know an image.
fn image((variable, name): (&str, &str)) -> String {
    std::env::var(variable).ok().filter(|given| !given.is_empty()).unwrap_or_else(|| name.to_owned())
}

/// Whether a pod says that it is Ready.
#[must_use]
pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

/// The processes of a pod whose command begins with this program's name, by their control group.
fn processes(uid: &str, program: &str) -> Result<Vec<String>> {
    let group = format!("pod{uid}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().map(str::to_owned) else { continue };
        if !process.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // One that has just ended has no files.
        let read = |file: &str| fs::read_to_string(Path::new("/proc").join(&process).join(file)).unwrap_or_default();
        let first = read("cmdline");
        let first = first.split('\0').next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        if read("cgroup").contains(&group) && first.split(' ').next() == Some(program) {
            found.push(process);
        }
    }
    Ok(found)
}
