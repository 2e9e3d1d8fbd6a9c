//! A real Kubernetes with nodes breaks as it is told to, heals, and leaves nothing behind.

#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    cluster::built,
    kubectl::{Kubectl, condition, waiting},
    kubernetes::{Blow, KUN_IMAGE, Kubernetes, Power},
};

/// Set in the process that is killed.
const HOLDER: &str = "KUN_TEST_HOLDS_A_CLUSTER";
/// Longest time that process lives if nobody kills it.
const HELD: Duration = Duration::from_secs(600);

/// Only a killed test shows that none of the many processes of its cluster stays.
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
        .args([&format!("nodes::{name}"), "--exact", "--nocapture"])
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
        ensure!(begin.elapsed() < hung::machine(), "{left:#?}");
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

/// Scenarios of `installed` show that engines, Services and volumes work on it; this, that what is done to it is done, and that nothing of
/// it is left.
#[tokio::test]
async fn what_is_broken_is_noticed_and_heals_and_nothing_is_left() -> Result<()> {
    let Some(cluster) = Kubernetes::start(3, "what_is_broken_is_noticed_and_heals")? else { return Ok(()) };
    let admin = cluster.admin();
    the_nodes_are_those_of_the_version_wanted(&admin).await?;
    // One loses its power, one its cable, one hangs; and the control plane is taken apart.
    let blows = [(1, Power::Kill, Power::Up), (2, Power::Cut, Power::Join), (3, Power::Freeze, Power::Thaw)];
    for (node, blow, _) in blows {
        cluster.node(blow, node)?;
    }
    cluster.part(Blow::Pause, "kube-scheduler")?;
    cluster.part(Blow::Hold, "etcd")?;
    let patience = format!("--request-timeout={}s", hung::answer().as_secs());
    let told = admin.refused(&["get", "--raw", "/readyz", &patience], "").await?;
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
    a_node_that_is_added_is_like_the_others(&cluster, &admin).await?;
    what_is_not_restricted_is_refused(&admin).await?;
    let number = cluster.number().context("its number")?.to_owned();
    let state = cluster.state().context("its state")?.to_owned();
    cluster.stop()?;
    let left = left_of(&number, &state)?;
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

/// It is given our image like them, and pods on it find Services of the cluster by their names.
async fn a_node_that_is_added_is_like_the_others(cluster: &Kubernetes, admin: &Kubectl) -> Result<()> {
    cluster.node(Power::Up, 4)?;
    let is_ready = |node: &Value| condition(node, "Ready")["status"] == "True";
    admin.until("node", "node-4", hung::machine(), "there", is_ready).await?;
    cluster.load_kun()?;
    let pod = |name: &str, image: &str, words: &[&str]| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
            "nodeSelector": {"topology.kubernetes.io/zone": "zone-4"}, "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true}, "containers": [{"name": name, "image": image, "args": words}]}})
    };
    let mut looks = pod("looks", "kun.test/redis:7.0", &[]);
    looks["spec"]["containers"][0]["command"] = json!(["nslookup", "kubernetes.default.svc.cluster.local"]);
    looks["spec"]["securityContext"]["runAsUser"] = json!(999);
    for (name, pod) in [("kun", pod("kun", KUN_IMAGE, &["--version"])), ("looks", looks)] {
        admin.feed(&["create", "-f", "-"], &pod.to_string()).await?;
        admin.until("pod", name, hung::change(), "done", |pod| pod["status"]["phase"] == "Succeeded").await?;
    }
    let version = admin.run(&["logs", "kun"]).await?;
    ensure!(version.starts_with("kun "), "{version}");
    let service = admin.get("service", "kubernetes").await?;
    let looked = admin.run(&["logs", "looks"]).await?;
    ensure!(looked.contains(service["spec"]["clusterIP"].as_str().context("an address")?), "{looked}");
    Ok(())
}

/// Waits until the condition Ready of all nodes says this.
async fn all_are(admin: &Kubectl, status: &str) -> Result<()> {
    for node in ["node-1", "node-2", "node-3"] {
        admin
            .until("node", node, hung::machine(), &format!("Ready={status}"), |node| {
                condition(node, "Ready")["status"] == status
            })
            .await?;
    }
    Ok(())
}

async fn the_nodes_are_those_of_the_version_wanted(admin: &Kubectl) -> Result<()> {
    let columns = "jsonpath={range .items[*]}{.metadata.name} {.status.nodeInfo.kubeletVersion} \
                   {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let nodes = admin.run(&["get", "nodes", "-o", columns]).await?;
    ensure!(nodes == "node-1 v1.34.4 True\nnode-2 v1.34.4 True\nnode-3 v1.34.4 True\n", "{nodes}");
    let class = admin.run(&["get", "storageclass", "-o", "name"]).await?;
    ensure!(class == "storageclass.storage.k8s.io/standard\n", "{class}");
    Ok(())
}

async fn what_is_not_restricted_is_refused(admin: &Kubectl) -> Result<()> {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}});
    admin.feed(&["create", "-f", "-"], &namespace.to_string()).await?;
    // Without the namespace's account a pod is refused for another reason.
    let account = ["wait", "serviceaccount/default", "--namespace=strict", "--for=create", &waiting()];
    admin.run(&account).await?;
    let run = ["run", "loose", "--namespace=strict", "--image=kun.test/redis:7.0"];
    let told = admin.refused(&run, "").await?;
    ensure!(told.contains("violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"), "{told}");
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
