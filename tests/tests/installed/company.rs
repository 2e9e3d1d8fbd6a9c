//! Good company: quotas, Kubernetes' own collectors, programs of others, Secrets of others.

use std::{
    path::Path,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use kube::{
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tests::{
    cluster::built,
    installed::{Installed, SYSTEM, sized},
    kubectl::{Kubectl, is_for_a_moment, waiting},
    story,
};

use crate::{
    scenario::{api, away, orders, say, tried, under_writes},
    upkeep::ONE,
};

/// Clusters in a namespace that goes: many in `make soak`.
const MANY: (usize, usize) = (20, 6);
/// Secrets of others, and how large each is.
const FOREIGN: (usize, usize) = (600, 40_000);
/// What the memory of a controller may grow by meanwhile, with whatever else it does: a fifth of what those Secrets take.
const GROWTH_KIB: u64 = 4800;

/// Kubernetes' own controller counts while eight ask at once.
pub(crate) async fn a_resource_quota_holds_against_parallel_creates(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    kubectl.run(&["create", "namespace", "few"]).await?;
    let counted = "count/redisclusters.redis.kun.io";
    counted_by_kubernetes(&kubectl.clone().within("few"), counted).await?;
    let create = async |number: usize| {
        let object = sized("few", &format!("one-{number}"), ONE, &json!({"paused": true})).to_string();
        kubectl.answer(&["create", "-f", "-"], &object).await
    };
    let outcomes: Vec<_> = future::try_join_all((0..8).map(create)).await?;
    let (made, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| outcome.success);
    ensure!(made.len() == 3, "{} were made: {refused:?}", made.len());
    for outcome in refused {
        ensure!(outcome.stderr.contains(&format!("exceeded quota: few, requested: {counted}=1")), "{}", outcome.stderr);
    }
    kubectl.run(&["delete", "namespace", "few", "--wait=false"]).await.map(drop)
}

/// Makes the quota once Kubernetes counts our kinds: its controller looks for new kinds twice a minute, and at a quota that was
/// made before only after five.
async fn counted_by_kubernetes(kubectl: &Kubectl, counted: &str) -> Result<()> {
    let begin = Instant::now();
    let used = |quota: &Value| quota["status"]["used"][counted] == "0";
    loop {
        kubectl.run(&["create", "quota", "few", &format!("--hard={counted}=3")]).await?;
        let looked =
            kubectl.until("resourcequota", "few", Duration::from_secs(5) * hung::stretch(), "counted", used).await;
        if looked.is_ok() || begin.elapsed() > hung::change() {
            return looked.map(drop);
        }
        kubectl.run(&["delete", "quota", "few"]).await?;
    }
}

/// Kubernetes' own collector, in each of its three ways, and owners of other kinds.
pub(crate) async fn foreground_background_and_orphan_deletion_are_the_garbage_collectors(
    installed: &Installed,
) -> Result<()> {
    let kubectl = installed.kubectl.clone().within("collected");
    kubectl.run(&["create", "namespace", "collected"]).await?;
    for cascade in ["foreground", "background", "orphan"] {
        kubectl
            .feed(&["create", "-f", "-"], &sized("collected", cascade, ONE, &json!({"paused": true})).to_string())
            .await?;
        let owner = kubectl.get("rdc", cascade).await?;
        let reference = json!([{"apiVersion": types::API_VERSION, "kind": "RedisCluster", "name": cascade,
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": cascade, "namespace": "collected", "ownerReferences": reference}});
        kubectl.feed(&["create", "-f", "-"], &map.to_string()).await?;
        kubectl.run(&["delete", "rdc", cascade, &format!("--cascade={cascade}"), &waiting()]).await?;
        if cascade == "orphan" {
            let free = |map: &Value| map["metadata"]["ownerReferences"].is_null();
            kubectl.until("configmap", cascade, hung::change(), "let go", free).await?;
        } else {
            kubectl.run(&["wait", &format!("configmap/{cascade}"), "--for=delete", &waiting()]).await?;
        }
    }
    ours_owned_by_others(&kubectl).await?;
    kubectl.run(&["delete", "namespace", "collected", "--wait=false"]).await.map(drop)
}

/// A RedisCluster that a ConfigMap owns goes with it.
async fn ours_owned_by_others(kubectl: &Kubectl) -> Result<()> {
    kubectl.run(&["create", "configmap", "owner", "--from-literal=a=b"]).await?;
    let uid = kubectl.get("configmap", "owner").await?["metadata"]["uid"].clone();
    let mut owned = sized("collected", "owned", ONE, &json!({"paused": true}));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    kubectl.feed(&["create", "-f", "-"], &owned.to_string()).await?;
    kubectl.run(&["delete", "configmap", "owner"]).await?;
    kubectl.run(&["wait", "rdc/owned", "--for=delete", &waiting()]).await.map(drop)
}

/// client-go's informers through the aggregator while nobody else touches what they follow; and a controller of somebody's in
/// kube-rs beside ours, on the same object.
pub(crate) async fn programs_of_others_follow_our_objects(installed: &Installed) -> Result<()> {
    client_go(installed).await?;
    under_writes(installed, async |_| kube_rs(installed).await).await
}

async fn client_go(installed: &Installed) -> Result<()> {
    let tools = built("tools.sh", "programs_of_others")?.context("where there is a cluster there is Go")?;
    for _ in 0..3 {
        let outcome = informers(installed, &tools).await?;
        let (printed, told) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
        if outcome.status.success() {
            say(printed.trim());
            return Ok(());
        }
        // Each of its writers asks once.
        ensure!(is_for_a_moment(&told), "{printed}{told}");
        say(&format!("once more, as our API was away for a moment: {}", told.trim()));
    }
    bail!("our API is away again and again")
}

/// Runs them in a namespace that goes with them, while there is no controller.
async fn informers(installed: &Installed, tools: &Path) -> Result<Output> {
    installed.scale("deployment/kun-controller", 0).await?;
    let outcome = tokio::process::Command::new(tools.join("informer"))
        .arg(format!("--kubeconfig={}", installed.kubernetes.kubeconfig().display()))
        .arg("--watch-list=true")
        .env("KUBE_FEATURE_WatchListClient", "true")
        .env("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", "true")
        // What they wait for comes through the aggregator, beside all else that runs on such a cluster.
        .env(hung::VARIABLE, (3 * hung::stretch()).to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    // What nobody has built yet needs not be built to go.
    installed.kubectl.run(&["delete", "namespace", "informers", "--ignore-not-found", "--wait=false"]).await?;
    installed.scale("deployment/kun-controller", 2).await?;
    installed.kubectl.namespace_gone("informers").await?;
    Ok(outcome)
}

/// Follows RedisClusters and applies a label of its own to each that it sees.
async fn kube_rs(installed: &Installed) -> Result<()> {
    let api = api(installed).await?;
    let mut seen = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let label = json!({"apiVersion": types::API_VERSION, "kind": "RedisCluster", "metadata": {"name": "orders", "labels": {"example.com/seen": "yes"}}});
    let (how, apply) = (PatchParams::apply("example.com"), Patch::Apply(&label));
    let follow = async {
        while let Some(event) = seen.next().await {
            let Ok(object) = event.inspect_err(|error| say(&format!("the watch begins anew: {error}"))) else {
                continue;
            };
            let labels = object.metadata.labels.unwrap_or_default();
            if labels.get("example.com/seen").map(String::as_str) == Some("yes") {
                return Ok(());
            }
            tried(|| api.patch("orders", &how, &apply)).await?;
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(hung::change(), follow).await.context("the label does not come by the watch")??;
    story::ready(&installed.kubectl, "orders", 3).await?;
    let object = tried(|| api.get("orders")).await?;
    let managers: Vec<_> =
        object.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref()).collect();
    ensure!(managers.contains(&"example.com"), "{managers:?}");
    let without = json!({"apiVersion": types::API_VERSION, "kind": "RedisCluster", "metadata": {"name": "orders"}});
    let without = Patch::Apply(&without);
    let object = tried(|| api.patch("orders", &how, &without)).await?;
    ensure!(
        !object.metadata.labels.unwrap_or_default().contains_key("example.com/seen"),
        "what is applied no more goes"
    );
    Ok(())
}

/// What is in the memory of a controller that has all of a cluster in sight.
pub(crate) async fn six_hundred_foreign_secrets_are_not_kept(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    orders(installed).await?;
    kubectl.run(&["create", "namespace", "foreign"]).await?;
    let pods = installed.listed("pods", SYSTEM, "app.kubernetes.io/name=kun-controller").await?;
    let memory = || pods.iter().map(|pod| installed.memory(pod, "kun")).collect::<Result<Vec<_>>>();
    let mut before = memory()?;
    // A controller that lists everything anew meanwhile, as its watches broke, grows for once; who keeps them grows each time.
    for number in 0..3 {
        foreign_secrets(kubectl, number).await?;
        // Whoever follows all Secrets has them by now.
        tokio::time::sleep(Duration::from_secs(2) * hung::stretch()).await;
        let after = memory()?;
        say(&format!(
            "memory of the controllers in KiB before {before:?} and after 24 MB of foreign Secrets {after:?}"
        ));
        if before.iter().zip(&after).all(|(before, after)| *after < before + GROWTH_KIB) {
            return kubectl.run(&["delete", "namespace", "foreign", "--wait=false"]).await.map(drop);
        }
        before = after;
    }
    bail!("the memory of a controller grows with Secrets that are none of its business")
}

/// Makes so many, one hundred at a time.
async fn foreign_secrets(kubectl: &Kubectl, number: usize) -> Result<()> {
    let secret = |one: usize| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("foreign-{number}-{one}")},
            "stringData": {"text": "x".repeat(FOREIGN.1)}})
    };
    let create = async |part: usize| {
        let items: Vec<Value> = (part * 100..(part + 1) * 100).map(secret).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        kubectl.feed(&["create", "-n", "foreign", "-f", "-", "-o", "name"], &list).await
    };
    let made: Vec<String> = stream::iter((0..FOREIGN.0 / 100).map(create)).buffered(3).try_collect().await?;
    ensure!(made.iter().map(|names| names.lines().count()).sum::<usize>() == FOREIGN.0, "{made:?}");
    Ok(())
}

/// Everything in a namespace goes at once, pods and volumes too, in whatever order Kubernetes takes it.
pub(crate) async fn a_namespace_full_of_clusters_goes(installed: &Installed) -> Result<()> {
    let kubectl = installed.kubectl.clone().within("many");
    kubectl.run(&["create", "namespace", "many"]).await?;
    under_writes(installed, async |_| {
        let object = |number: usize| sized("many", &format!("one-{number}"), ONE, &json!({}));
        let many = away(MANY.0, MANY.1);
        let items: Vec<Value> = (0..many).map(object).collect();
        let begin = Instant::now();
        kubectl
            .feed(&["create", "-f", "-"], &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .await?;
        kubectl.run(&["wait", "rdc", "--all", "--for=condition=Ready", &waiting()]).await?;
        say(&format!("{many} clusters Ready after {:.1} s", begin.elapsed().as_secs_f64()));
        kubectl.run(&["delete", "namespace", "many", "--wait=false"]).await?;
        kubectl.run(&["wait", "pods", "--all", "--for=delete", &waiting()]).await?;
        let begin = Instant::now();
        kubectl.namespace_gone("many").await?;
        say(&format!("the namespace is gone {:.1} s after its last pod", begin.elapsed().as_secs_f64()));
        Ok(())
    })
    .await
}
