//! A real Kubernetes with nodes does what users' clusters do, with every engine that we support, and leaves nothing behind.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use resp::{Connection, Options, Reply};
use serde_json::{Value, json};
use tests::{
    cluster::built,
    kubectl::Kubectl,
    kubernetes::{Blow, KUN_IMAGE, Kubernetes, Power},
};

/// Image, how its programs are called, and how the version begins that it says it has.
const ENGINES: [(&str, &str, &str); 4] = [
    ("redis:7.0", "redis", "redis_version:7.0."),
    ("redis:8.0", "redis", "redis_version:8.0."),
    ("valkey:8.1", "valkey", "valkey_version:8.1."),
    ("valkey:9", "valkey", "valkey_version:9."),
];
const PORT: u16 = 6379;
const NAMESPACE: &str = "engines";
const HERE: &str = "--namespace=engines";
/// Longest time until what was asked for is there.
const WAIT: &str = "--timeout=120s";

#[tokio::test]
async fn two_nodes_run_every_engine_keep_data_resolve_names_and_leave_nothing() -> Result<()> {
    let Some(cluster) = Kubernetes::given_or_start(2, "two_nodes_run_every_engine")? else { return Ok(()) };
    let admin = cluster.admin();
    if cluster.number().is_some() {
        the_nodes_are_those_of_the_versions_wanted(&admin).await?;
    }
    admin.feed(&["create", "-f", "-"], &restricted_namespace().to_string()).await?;
    every_engine_answers(&admin, cluster.number().is_some()).await?;
    a_service_leads_to_them(&admin, cluster.number().is_some()).await?;
    what_is_not_restricted_is_refused(&admin).await?;
    data_outlives_its_pod_and_names_are_resolved(&admin).await?;
    admin.run(&["delete", "namespace", NAMESPACE, WAIT]).await?;
    let (Some(number), Some(state)) = (cluster.number().map(str::to_owned), cluster.state().map(Path::to_owned)) else {
        return Ok(());
    };
    cluster.stop()?;
    let left = left_of(&number, &state)?;
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

/// Set in the process that is killed.
const HOLDER: &str = "KUN_TEST_HOLDS_A_CLUSTER";
/// Longest time that process lives if nobody kills it.
const HELD: Duration = Duration::from_secs(120);
/// Longest time until a cluster has noticed what happened to it: a silent node is missed after 20 s.
const HEALS: Duration = Duration::from_secs(180);
/// Longest time a cluster takes to go.
const GOES: Duration = Duration::from_secs(30);

#[test]
fn a_cluster_ends_with_its_test_even_if_that_is_killed() -> Result<()> {
    let name = "a_cluster_ends_with_its_test_even_if_that_is_killed";
    if std::env::var_os(HOLDER).is_some() {
        return hold(name);
    }
    if built("prepare.sh", name)?.is_none() {
        return Ok(());
    }
    // What it cannot remove any more is removed with this.
    let files = tempfile::tempdir()?;
    let mut runner = Command::new(std::env::current_exe()?)
        .args([name, "--exact", "--nocapture"])
        .env(HOLDER, "1")
        .env("TMPDIR", files.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(runner.stdout.take().context("output of the runner")?);
    let held = output.lines().map_while(Result::ok).find_map(|line| {
        let (number, state) = line.split_once("holds cluster ")?.1.split_once(" in ")?;
        Some((number.to_owned(), PathBuf::from(state)))
    });
    runner.kill()?;
    runner.wait()?;
    let (number, state) = held.context("the runner held no cluster")?;
    let begin = Instant::now();
    loop {
        let left = left_of(&number, &state)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(begin.elapsed() < GOES, "{left:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What the process does that is killed.
#[expect(clippy::print_stdout, reason = "the other process reads it")]
fn hold(name: &str) -> Result<()> {
    let cluster = Kubernetes::start(1, name)?.context("a cluster")?;
    let (number, state) = (cluster.number().context("its number")?, cluster.state().context("its state")?);
    ensure!(!left_of(number, state)?.is_empty(), "what is looked for afterwards is not there before");
    println!("holds cluster {number} in {}", state.display());
    std::thread::sleep(HELD);
    Ok(())
}

#[tokio::test]
async fn what_is_broken_is_noticed_and_heals() -> Result<()> {
    let Some(cluster) = Kubernetes::start(3, "what_is_broken_is_noticed_and_heals")? else { return Ok(()) };
    let admin = cluster.admin();
    // One loses its power, one its cable, one hangs; and the control plane is taken apart.
    let blows = [(1, Power::Kill, Power::Up), (2, Power::Cut, Power::Join), (3, Power::Freeze, Power::Thaw)];
    for (node, blow, _) in blows {
        cluster.node(blow, node)?;
    }
    cluster.part(Blow::Pause, "kube-scheduler")?;
    cluster.part(Blow::Hold, "etcd")?;
    let told = admin.refused(&["get", "--raw", "/readyz", "--request-timeout=5s"], "").await?;
    ensure!(told.contains("InternalError") || told.contains("context deadline exceeded"), "{told}");
    cluster.part(Blow::Release, "etcd")?;
    cluster.part(Blow::Kill, "kube-apiserver")?;
    all_are(&admin, "Unknown").await?;
    for (node, _, remedy) in blows {
        cluster.node(remedy, node)?;
    }
    all_are(&admin, "True").await?;
    cluster.part(Blow::Continue, "kube-scheduler")?;
    ensure!(cluster.part(Blow::Kill, "kube-dns").is_err(), "there is no such part");
    // A node that is added is like the others, and is given our image like them.
    cluster.node(Power::Up, 4)?;
    admin.until("node", "node-4", HEALS, "there", |node| ready(node) == Some("True")).await?;
    cluster.load_kun()?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kun", "namespace": "default"}, "spec": {
        "nodeSelector": {"topology.kubernetes.io/zone": "zone-4"}, "restartPolicy": "Never", "securityContext": {"runAsNonRoot": true},
        "containers": [{"name": "kun", "image": KUN_IMAGE, "args": ["--version"]}]}});
    admin.feed(&["create", "-f", "-"], &pod.to_string()).await?;
    admin.until("pod", "kun", HEALS, "done", |pod| pod["status"]["phase"] == "Succeeded").await?;
    let version = admin.run(&["logs", "kun"]).await?;
    ensure!(version.starts_with("kun "), "{version}");
    Ok(())
}

/// Waits until the condition Ready of all nodes says this.
async fn all_are(admin: &Kubectl, status: &str) -> Result<()> {
    for node in ["node-1", "node-2", "node-3"] {
        admin.until("node", node, HEALS, &format!("Ready={status}"), |node| ready(node) == Some(status)).await?;
    }
    Ok(())
}

/// What a node's condition Ready says.
fn ready(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["status"].as_str()
}

async fn the_nodes_are_those_of_the_versions_wanted(admin: &Kubectl) -> Result<()> {
    let columns = "jsonpath={range .items[*]}{.metadata.name} {.status.nodeInfo.kubeletVersion} \
                   {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let nodes = admin.run(&["get", "nodes", "-o", columns]).await?;
    ensure!(nodes == "node-1 v1.34.4 True\nnode-2 v1.34.4 True\n", "{nodes}");
    let class = admin.run(&["get", "storageclass", "-o", "name"]).await?;
    ensure!(class == "storageclass.storage.k8s.io/standard\n", "{class}");
    Ok(())
}

fn restricted_namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {
        "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}})
}

/// What Pod Security `restricted` wants, and a volume that the engine's user may write to.
fn pod_spec(image: &str, program: &str) -> Value {
    json!({
        "securityContext": {"runAsNonRoot": true, "runAsUser": 999, "fsGroup": 999, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "engine",
            "image": format!("kun.test/{image}"),
            "command": [format!("{program}-server"), "--protected-mode", "no", "--appendonly", "yes"],
            "ports": [{"containerPort": PORT}],
            "readinessProbe": {"exec": {"command": [format!("{program}-cli"), "ping"]}, "periodSeconds": 1},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]
        }]
    })
}

async fn every_engine_answers(admin: &Kubectl, is_near: bool) -> Result<()> {
    for (image, program, _) in ENGINES {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name(image), "namespace": NAMESPACE, "labels": {"app": "engine"}}, "spec": pod_spec(image, program)});
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        // One node or the other: two engines on each.
        pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "engine"}}}]);
        let outcome = admin.outcome(&["create", "-f", "-"], &pod.to_string()).await?;
        ensure!(outcome.success && outcome.stderr.is_empty(), "a pod without a warning: {outcome:?}");
    }
    admin.run(&["wait", "pods", HERE, "-l=app=engine", "--for=condition=Ready", WAIT]).await?;
    for (image, program, version) in ENGINES {
        let name = pod_name(image);
        let client = format!("{program}-cli");
        let info = admin.run(&["exec", HERE, &name, "--", &client, "info", "server"]).await?;
        ensure!(info.lines().any(|line| line.starts_with(version)), "{image}: {info}");
        if is_near {
            let pod = admin.get(&format!("pods/{name}"), HERE).await?;
            ensure!(ping(&pod["status"]["podIP"]).await? == Reply::Status("PONG".to_owned()), "{image}");
        }
    }
    Ok(())
}

fn pod_name(image: &str) -> String {
    image.replace([':', '.'], "-")
}

/// From the machine, straight to an address in the cluster.
async fn ping(address: &Value) -> Result<Reply> {
    let address: IpAddr = address.as_str().context("an address")?.parse()?;
    Ok(Connection::open(&Options::new(SocketAddr::from((address, PORT)))).await?.call(&["PING"]).await?)
}

/// From a pod of each engine, and so from both nodes, also to themselves; and from the machine.
async fn a_service_leads_to_them(admin: &Kubectl, is_near: bool) -> Result<()> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "all", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "engine"}, "ports": [{"port": PORT}]}});
    admin.feed(&["create", "-f", "-"], &service.to_string()).await?;
    let begin = Instant::now();
    let client = ["exec", HERE, "redis-7-0", "--", "redis-cli", "-h", "all", "ping"];
    while admin.outcome(&client, "").await?.stdout != "PONG\n" {
        ensure!(begin.elapsed() < GOES, "the Service does not answer");
    }
    for (image, program, _) in ENGINES {
        let name = pod_name(image);
        let script = format!("for i in 1 2 3 4 5 6 7 8; do timeout 5 {program}-cli -h all ping || exit 1; done");
        let answers = admin.run(&["exec", HERE, &name, "--", "sh", "-c", &script]).await?;
        ensure!(answers == "PONG\n".repeat(8), "{image}: {answers}");
    }
    if is_near {
        let service = admin.get("service/all", HERE).await?;
        ensure!(ping(&service["spec"]["clusterIP"]).await? == Reply::Status("PONG".to_owned()), "from the machine");
    }
    Ok(())
}

async fn what_is_not_restricted_is_refused(admin: &Kubectl) -> Result<()> {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose", "namespace": NAMESPACE},
        "spec": pod_spec("redis:7.0", "redis")});
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["securityContext"] = json!({});
    let told = admin.refused(&["create", "-f", "-"], &pod.to_string()).await?;
    ensure!(told.contains("violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"), "{told}");
    Ok(())
}

async fn data_outlives_its_pod_and_names_are_resolved(admin: &Kubectl) -> Result<()> {
    let selector = json!({"app": "kept"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kept", "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "selector": selector, "ports": [{"port": PORT}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kept", "namespace": NAMESPACE}, "spec": {
        "serviceName": "kept", "replicas": 1, "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": selector}, "spec": pod_spec("valkey:9", "valkey")},
        "volumeClaimTemplates": [{"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}}]}});
    for object in [service, set] {
        admin.feed(&["create", "-f", "-"], &object.to_string()).await?;
    }
    admin.run(&["rollout", "status", "statefulset/kept", HERE, WAIT]).await?;
    admin.run(&["exec", HERE, "kept-0", "--", "valkey-cli", "set", "written", "before"]).await?;
    let before = admin.get("pods/kept-0", HERE).await?;
    admin.run(&["delete", "pod", "kept-0", HERE, WAIT]).await?;
    admin.run(&["rollout", "status", "statefulset/kept", HERE, WAIT]).await?;
    let after = admin.get("pods/kept-0", HERE).await?;
    ensure!(before["metadata"]["uid"] != after["metadata"]["uid"], "the same pod");

    // By its name, from a pod of another engine; as itself, and as the only one of its Service.
    for name in ["kept-0.kept.engines.svc.cluster.local", "kept"] {
        let get = ["exec", HERE, "redis-7-0", "--", "redis-cli", "-h", name, "get", "written"];
        let kept = admin.run(&get).await?;
        ensure!(kept == "before\n", "{name}: {kept:?}");
    }
    let looked =
        admin.run(&["exec", HERE, "redis-7-0", "--", "nslookup", "kept-0.kept.engines.svc.cluster.local"]).await?;
    ensure!(looked.contains(after["status"]["podIP"].as_str().context("an address")?), "{looked}");
    Ok(())
}

/// What there is of a cluster on this machine: links, control groups, mounts, processes, files.
fn left_of(number: &str, state: &Path) -> Result<Vec<String>> {
    let name = format!("kun-c{number}");
    let state_text = state.to_str().context("path of the state")?;
    let mut left = Vec::new();
    if state.exists() {
        left.push(format!("{state_text} exists"));
    }
    for entry in fs::read_dir("/sys/class/net")? {
        left.extend(entry?.file_name().to_str().filter(|link| *link == name).map(|link| format!("link {link}")));
    }
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines().filter(|line| line.contains(state_text)) {
        left.push(format!("mount {line}"));
    }
    let routes = fs::read_to_string("/proc/net/route")?;
    left.extend(routes.lines().filter(|line| line.starts_with(&name)).map(|line| format!("route {line}")));
    left.extend(groups_below(Path::new("/sys/fs/cgroup"), &name));
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(state_text) {
            left.push(format!("process {}: {command}", path.display()));
        }
    }
    Ok(left)
}

/// Control groups of this name, in any hierarchy.
fn groups_below(folder: &Path, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A group may go away while it is looked at.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if path.file_name().is_some_and(|last| last == name) {
                found.push(format!("control group {}", path.display()));
            }
            found.extend(groups_below(&path, name));
        }
    }
    found
}
