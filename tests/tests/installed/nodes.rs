//! What happens to nodes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, sized},
    kubectl::{Kubectl, waiting},
    kubernetes::{Blow, Power},
    oracle, story,
    writer::Writer,
};

use crate::engines::Engine;
use crate::scenario::{ORDERS, away, pass, say, unchanged, under_writes, under_writes_and_a_blow};

/// A node is missed after 20 s here, and its pods are evicted after Kubernetes' own five minutes.
const LOST: (Duration, Duration) = (Duration::from_secs(330), Duration::from_secs(30));

/// Whom KUN asks for a word is asked for good after this: several node timeouts.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a kubelet and a containerd do when they come back, to pods that were left alone.
pub(crate) async fn a_kubelet_and_a_containerd_that_are_killed_restart_no_pod(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let before = installed.pods().await?;
        for node in 1..=3 {
            for part in ["kubelet", "containerd"] {
                installed.kubernetes.part(Blow::Kill, &format!("node-{node}/{part}"))?;
                writer.progress(100, hung::change()).await?;
            }
        }
        for node in ["node/node-1", "node/node-2", "node/node-3"] {
            installed.kubectl.run(&["wait", node, "--for=condition=Ready", &waiting()]).await?;
        }
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&before, &installed.pods().await?)
    })
    .await
}

/// The power of the node with most primaries fails, of those that do not hold our store. Where disks stand still a replica may be held
/// back just then, and is rightly not promoted: that time is not the one that is meant.
pub(crate) async fn a_node_that_is_lost_costs_no_availability_and_comes_back(installed: &Installed) -> Result<()> {
    for _ in 0..3 {
        let mut held_back = false;
        under_writes_and_a_blow(installed, async |writer| {
            oracle::all_stand(&installed.kubectl, &installed.home, "orders").await?;
            let node = busiest(installed).await?;
            let number: u8 = node.strip_prefix("node-").and_then(|number| number.parse().ok()).context("its number")?;
            // It is gone a moment before that is known.
            let blow = Instant::now();
            installed.kubernetes.node(Power::Kill, number)?;
            let lived = survived(installed, writer, blow).await;
            // Given back also if that went wrong: others need it.
            installed.kubernetes.node(Power::Up, number)?;
            installed.kubectl.run(&["wait", &format!("node/{node}"), "--for=condition=Ready", &waiting()]).await?;
            held_back = !lived?;
            installed.rolled_out().await?;
            story::ready(&installed.kubectl, "orders", 3).await?;
            Ok(blow)
        })
        .await?;
        if !held_back {
            return Ok(());
        }
        say("a replica was held back when its primary was lost; once more");
    }
    bail!("three times a replica was held back at the moment when its primary was lost")
}

/// The node with most primaries of those that do not hold our store, and not two of three: that one would take the cluster with it, which is told of
/// (`MajorityOnOneNode`) where the pods do not lie so that it can be mended.
async fn busiest(installed: &Installed) -> Result<String> {
    let store = installed.part("kun-apiserver").await?["spec"]["nodeName"].clone();
    let primaries: Vec<_> = installed.primaries().await?.into_iter().collect();
    let held = |node: &str| primaries.iter().find(|(name, _)| name == node).map_or(0, |(_, count)| *count);
    let nodes = ["node-1", "node-2", "node-3"].map(|node| (node.to_owned(), held(node)));
    let others = nodes.into_iter().filter(|(node, count)| store != node.as_str() && *count < 2);
    let (node, count) = others.max_by_key(|(_, count)| *count).context("two nodes hold two primaries each")?;
    say(&format!("{node} is lost with {count} of 3 primaries"));
    Ok(node)
}

/// Whether writes go on without a node, soon and later; `false`: a replica is not promoted without a person's word, and KUN says so.
async fn survived(installed: &Installed, writer: &Writer, blow: Instant) -> Result<bool> {
    let asks = |cluster: &Value| {
        let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
        messages
            .any(|text| text.contains("does not stand for election") || text.contains("is not promoted: its primary"))
    };
    // An election that is only slow ends the sentence by itself.
    let asked = async {
        installed.kubectl.until("rdc", "orders", hung::change(), "asked for a person", asks).await?;
        pass(PATIENCE).await;
        Ok(())
    };
    tokio::select! {
        went_on = writer.progress(100, hung::change()) => went_on?,
        asked = asked => return asked.map(|()| false),
    }
    say(&format!("100 more writes {:.1} s after it", blow.elapsed().as_secs_f64()));
    pass(away(LOST.0, LOST.1)).await;
    writer.progress(100, hung::change()).await.map(|()| true)
}

/// One primary on each of three nodes, whatever happened before: a node that holds two of three takes the cluster with it.
pub(crate) async fn primaries_are_spread_over_the_nodes(installed: &Installed) -> Result<()> {
    let begin = Instant::now();
    let spread = |primaries: &[Value]| {
        let nodes: BTreeSet<_> = primaries.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        primaries.len() == 3 && nodes.len() == 3
    };
    let selector = "redis.kun.io/cluster=orders,redis.kun.io/role=primary";
    installed.kubectl.until_all("pods", selector, hung::change(), "one primary on each node", spread).await?;
    say(&format!("one primary on each node after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

/// Members of a shard that must not share a node wait for another one, and are told of.
pub(crate) async fn members_that_must_not_share_a_node_wait_for_another(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    kubectl.run(&["cordon", "node-2", "node-3"]).await?;
    let waits = three_wait(installed).await;
    // Also if that went wrong: others need the nodes.
    kubectl.run(&["uncordon", "node-2", "node-3"]).await?;
    waits?;
    story::ready(kubectl, "apart", 3).await?;
    kubectl.run(&["delete", "rdc", "apart", &waiting()]).await.map(drop)
}

/// One node is open for six members of three shards.
async fn three_wait(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    let object = sized(&installed.home, "apart", ORDERS, &json!({"placement": {"spread": "Required"}}));
    kubectl.feed(&["apply", "--server-side", "-f", "-"], &object.to_string()).await?;
    let selector = "redis.kun.io/cluster=apart";
    let half = |pods: &[Value]| {
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        running == 3 && pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).count() == 3
    };
    kubectl.until_all("pods", selector, hung::change(), "three with a node and three without", half).await?;
    let waits = |cluster: &Value| {
        let message = cluster["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        message.starts_with("3 of 6 members answer")
    };
    kubectl.until("rdc", "apart", hung::change(), "waiting for members", waits).await.map(drop)
}

/// Pods run on the nodes that are named and nowhere else, and move to others by a rolling replacement. On Redis 8, which is formed,
/// written to and handed over by this.
pub(crate) async fn pods_run_where_they_are_placed_and_move_when_that_changes(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    kubectl.run(&["taint", "node", "node-2", "kun.test/dedicated=redis:NoSchedule"]).await?;
    kubectl.run(&["label", "node", "node-2", "kun.test/pool=first"]).await?;
    kubectl.run(&["label", "node", "node-3", "kun.test/pool=second"]).await?;
    kubectl.run(&["create", "priorityclass", "databases", "--value=1000"]).await?;
    let moved = moved(installed).await;
    if moved.is_ok() {
        // Nobody evicts a pod of a namespace that goes, so a drain would wait for it; and it goes only while our API answers, which the drain may
        // take away.
        kubectl.namespace_gone("placed").await?;
    }
    // Taken away also if that went wrong: others need the nodes.
    kubectl.run(&["taint", "node", "node-2", "kun.test/dedicated-"]).await?;
    kubectl.run(&["label", "node", "node-2", "node-3", "kun.test/pool-"]).await?;
    kubectl.run(&["delete", "priorityclass", "databases"]).await?;
    moved
}

async fn moved(installed: &Installed) -> Result<()> {
    let pools =
        json!([{"matchExpressions": [{"key": "kun.test/pool", "operator": "In", "values": ["first", "second"]}]}]);
    let beside = json!({"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}});
    // Without volumes: those of a node would keep their pods there.
    let spec = json!({"version": "8.0", "image": "kun.test/redis:8.0", "storage": null, "placement": {
        "topologyKeys": ["topology.kubernetes.io/zone"],
        "nodeSelector": {"kun.test/pool": "first"},
        "tolerations": [{"key": "kun.test/dedicated", "operator": "Equal", "value": "redis", "effect": "NoSchedule"}],
        "priorityClassName": "databases",
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pools}},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": beside}]},
        },
    }});
    let placed = Engine::begin(installed, "placed", &spec, "8.0.").await?;
    all_on(&placed.kubectl, "node-2").await?;
    let patch = |placement: Value| json!({"spec": {"placement": placement}}).to_string();
    let system = patch(json!({"priorityClassName": "system-node-critical"}));
    let told = placed.kubectl.refused(&["patch", "rdc", "placed", "--type=merge", "-p", &system], "").await?;
    let why = "spec.placement.priorityClassName: Forbidden: priority class names with 'system-' prefix are reserved for \
               system use only";
    ensure!(told.contains(why), "{told}");

    let begin = Instant::now();
    let second = patch(json!({"nodeSelector": {"kun.test/pool": "second"}}));
    placed.kubectl.run(&["patch", "rdc", "placed", "--type=merge", "-p", &second]).await?;
    story::ready(&placed.kubectl, "placed", ORDERS.shards).await?;
    all_on(&placed.kubectl, "node-3").await?;
    say(&format!("six pods are on another node after {:.1} s", begin.elapsed().as_secs_f64()));
    placed.writer.progress(100, hung::change()).await?;
    placed.end(ORDERS).await
}

/// Waits until all pods run there.
async fn all_on(placed: &Kubectl, node: &str) -> Result<()> {
    let there = |pod: &Value| {
        pod["spec"]["nodeName"] == node && pod["spec"]["priority"] == 1000 && pod["status"]["phase"] == "Running"
    };
    let all = |pods: &[Value]| pods.len() == 6 && pods.iter().all(there);
    let selector = "redis.kun.io/cluster=placed";
    placed.until_all("pods", selector, hung::change(), &format!("on {node}"), all).await.map(drop)
}
