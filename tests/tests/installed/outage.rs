//! What is away, hung or twice: Kubernetes, our API, the webhooks, the controllers, all pods.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, SYSTEM, is_ready, sized},
    kubectl::waiting,
    kubernetes::Blow,
    story,
};

use crate::{
    scenario::{away, pass, say, unchanged, under_writes, under_writes_and_a_blow},
    upkeep::ONE,
};

/// How long Kubernetes is away.
const KUBERNETES: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(25));
/// How long our API is away.
const API: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(20));

/// Redis elects by itself while nobody who could look at it runs.
pub(crate) async fn kubernetes_away_while_a_primary_dies(installed: &Installed) -> Result<()> {
    under_writes_and_a_blow(installed, async |writer| {
        let primary = primary(installed, 1).await?;
        installed.kubernetes.part(Blow::Hold, "kube-apiserver")?;
        installed.kubernetes.part(Blow::Hold, "etcd")?;
        installed.signal(&primary, "redis-server", "KILL")?;
        let blow = Instant::now();
        writer.progress(100, hung::change()).await?;
        say(&format!("100 more writes {:.1} s after the primary died", blow.elapsed().as_secs_f64()));
        pass(away(KUBERNETES.0, KUBERNETES.1)).await;
        writer.progress(100, hung::change()).await?;
        installed.kubernetes.part(Blow::Release, "etcd")?;
        installed.kubernetes.part(Blow::Release, "kube-apiserver")?;
        let back = installed.answers().await?;
        say(&format!("our API answers {:.1} s after Kubernetes was let go", back.as_secs_f64()));
        story::ready(&installed.kubectl, "orders", 3).await?;
        Ok(blow)
    })
    .await
}

/// The pod that is primary of a shard.
async fn primary(installed: &Installed, shard: usize) -> Result<Value> {
    let told = |cluster: &Value| cluster["status"]["shards"][shard]["primary"].is_string();
    let cluster = installed.kubectl.until("rdc", "orders", hung::change(), "naming the primary", told).await?;
    let name = cluster["status"]["shards"][shard]["primary"].as_str().context("primary of the shard")?;
    installed.kubectl.get("pod", name).await
}

/// Other groups are served as ever; a namespace that goes waits for us, as long as we are away and hardly longer.
pub(crate) async fn our_api_away_hangs_nobody_longer_than_it_is_away(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    kubectl.run(&["create", "namespace", "leaving"]).await?;
    installed.create("leaving", "small", ONE, &json!({})).await?;
    under_writes(installed, async |writer| {
        let pods = installed.pods().await?;
        installed.scale("statefulset/kun-apiserver", 0).await?;
        kubectl.run(&["delete", "namespace", "leaving", "--wait=false"]).await?;
        kubectl.run(&["create", "configmap", "meanwhile", "--from-literal=a=b"]).await?;
        kubectl.run(&["delete", "configmap", "meanwhile"]).await?;
        let told = kubectl.outcome(&["get", "--raw", "/apis/redis.kun.io/v1/redisclusters"], "").await?.stderr;
        ensure!(told.contains("service unavailable") || told.contains("ServiceUnavailable"), "{told}");
        let service = ["wait", "apiservice/v1.redis.kun.io", "--for=condition=Available=False", &waiting()];
        kubectl.run(&service).await.context("Kubernetes says that we are away")?;
        pass(away(API.0, API.1)).await;
        writer.progress(100, hung::change()).await?;
        ensure!(installed.pods().await? == pods, "a pod was touched while the API was away");
        kubectl.run(&["get", "namespace", "leaving"]).await.context("it waits for us")?;
        installed.scale("statefulset/kun-apiserver", 1).await?;
        let begin = Instant::now();
        kubectl.namespace_gone("leaving").await?;
        say(&format!("the namespace is gone {:.1} s after our API is back", begin.elapsed().as_secs_f64()));
        story::ready(kubectl, "orders", 3).await.map(drop)
    })
    .await
}

/// The probes of the chart are such that a kubelet ends what hangs.
pub(crate) async fn our_api_hung_is_ended_by_its_kubelet(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let server = installed.part("kun-apiserver").await?;
        installed.signal(&server, "kun", "STOP")?;
        let begin = Instant::now();
        installed.kubectl.run(&["get", "pods", "-A"]).await.context("other groups")?;
        let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > count(&server);
        let system = installed.kubectl.clone().within(SYSTEM);
        system.until("pod", "kun-apiserver-0", hung::change(), "restarted", restarted).await?;
        installed.answers().await?;
        say(&format!("a hung API is back after {:.1} s", begin.elapsed().as_secs_f64()));
        writer.progress(100, hung::change()).await?;
        story::ready(&installed.kubectl, "orders", 3).await.map(drop)
    })
    .await
}

fn count(pod: &Value) -> Option<u64> {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64()
}

/// Nobody judges: new and changed specifications are refused, as failurePolicy Fail says; what goes may go, and status is told.
pub(crate) async fn webhooks_away_let_deletions_and_status_pass(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    installed.create(&installed.home, "small", ONE, &json!({})).await?;
    under_writes(installed, async |_| {
        installed.scale("deployment/kun-webhook", 0).await?;
        let object = sized(&installed.home, "refused", ONE, &json!({})).to_string();
        let told = kubectl.outcome(&["create", "-f", "-"], &object).await?.stderr;
        ensure!(told.contains("failed calling webhook \"webhook.redis.kun.io\""), "{told}");
        let told = kubectl.outcome(&["scale", "rdc/orders", "--replicas=4"], "").await?.stderr;
        ensure!(told.contains("failed calling webhook"), "{told}");
        kubectl.run(&["delete", "rdc", "small", &waiting()]).await.context("a deletion passes")?;
        // Status: a member is away and comes back, and both is told.
        let degraded = |cluster: &Value| !story::is_ready(cluster, 3);
        kubectl.run(&["delete", "pod", "orders-2-1", "--wait=false"]).await?;
        kubectl.until("rdc", "orders", hung::change(), "told of", degraded).await?;
        story::ready(kubectl, "orders", 3).await?;
        installed.scale("deployment/kun-webhook", 2).await?;
        let begin = Instant::now();
        while !kubectl.outcome(&["create", "--dry-run=server", "-f", "-"], &object).await?.success {
            ensure!(begin.elapsed() < hung::change(), "the webhooks do not judge again");
            pass(Duration::from_millis(300)).await;
        }
        Ok(())
    })
    .await
}

/// Everything of ours begins anew at once, on other addresses.
pub(crate) async fn all_pods_of_kun_deleted_at_once(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let before = installed.pods().await?;
        installed.kubectl.run(&["delete", "pods", "--all", "-n", SYSTEM, "--grace-period=1"]).await?;
        let back = installed.answers().await?;
        installed.rolled_out().await?;
        say(&format!("our API answers {:.1} s after all of our pods have gone", back.as_secs_f64()));
        writer.progress(100, hung::change()).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&before, &installed.pods().await?)
    })
    .await
}

/// Nobody has an address that anybody knew, and nothing is lost: all of them stop as they should.
pub(crate) async fn all_pods_of_redis_deleted_at_once_come_back_with_other_addresses(
    installed: &Installed,
) -> Result<()> {
    under_writes(installed, async |writer| {
        let begin = Instant::now();
        let selector = "redis.kun.io/cluster=orders";
        let uids = |pods: &[Value]| -> BTreeSet<String> {
            pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
        };
        let before = uids(&installed.listed("pods", &installed.home, selector).await?);
        installed.kubectl.run(&["delete", "pods", "-l", selector, "--wait=false"]).await?;
        // They say that they are Ready until their nodes have heard of it.
        let others = |pods: &[Value]| pods.len() == 6 && uids(pods).is_disjoint(&before);
        installed.kubectl.until_all("pods", selector, hung::change(), "six others", others).await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        writer.progress(100, hung::change()).await?;
        say(&format!("Ready and writing {:.1} s after all pods were deleted", begin.elapsed().as_secs_f64()));
        Ok(())
    })
    .await
}

/// The leader hangs for longer than its lease, another leads, and the first goes on where it was: in the middle of a reshard.
pub(crate) async fn two_controllers_at_once_do_no_harm(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    under_writes(installed, async |writer| {
        let leader = leader(installed).await?;
        kubectl.run(&["scale", "rdc/orders", "--replicas=4"]).await?;
        let moving = |cluster: &Value| cluster["status"]["plan"]["slotsLeft"].as_i64().is_some_and(|left| left > 0);
        kubectl.until("rdc", "orders", hung::change(), "moving slots", moving).await?;
        installed.signal(&leader, "kun", "STOP")?;
        let begin = Instant::now();
        let other = |lease: &Value| {
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let was = leader["metadata"]["name"].as_str().is_some_and(|name| holder.starts_with(name));
            !was && !holder.is_empty()
        };
        // A lease lives for 15 s.
        let system = kubectl.clone().within(SYSTEM);
        system.until("lease", "kun-controller", hung::change(), "somebody else's", other).await?;
        say(&format!("another controller leads after {:.1} s", begin.elapsed().as_secs_f64()));
        installed.signal(&leader, "kun", "CONT")?;
        story::ready(kubectl, "orders", 4).await?;
        writer.progress(100, hung::change()).await?;
        kubectl.run(&["scale", "rdc/orders", "--replicas=3"]).await?;
        story::ready(kubectl, "orders", 3).await?;
        installed.rolled_out().await
    })
    .await
}

async fn leader(installed: &Installed) -> Result<Value> {
    let lease = installed.kubectl.clone().within(SYSTEM).get("lease", "kun-controller").await?;
    let holder = lease["spec"]["holderIdentity"].as_str().context("holder of the lease")?.to_owned();
    let pods = installed.listed("pods", SYSTEM, "app.kubernetes.io/name=kun-controller").await?;
    let named = |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|name| holder.starts_with(name));
    let found = pods.iter().find(named).with_context(|| format!("no pod for the holder {holder}"))?;
    ensure!(is_ready(found) || found["metadata"]["deletionTimestamp"].is_null(), "the leader is on its way out");
    Ok(found.clone())
}
