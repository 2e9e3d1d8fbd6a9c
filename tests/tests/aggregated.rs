//! Our API server behind a real kube-apiserver: who asks, what he may do, and what Kubernetes' own controllers make of
//! our objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    aggregated::{Aggregated, cluster},
    cluster::built,
    control_plane::Sync,
    kubectl::{Kubectl, waiting},
};

/// Only Kubernetes' own aggregator, garbage collector and namespace controller can say that they take our API for one of theirs.
#[tokio::test]
async fn kubernetes_serves_our_kinds_and_its_controllers_collect_them() -> Result<()> {
    let Some(tools) = built("tools.sh", "kubernetes_serves_our_kinds")? else { return Ok(()) };
    let all = Aggregated::start(&tools, Sync::Never).await?;
    let admin = all.admin();
    let kinds = ["api-resources", "--api-group=redis.kun.io", "--cached=false", "-o", "name"];
    all.until("the kinds are found", &kinds, |text| text.lines().any(|line| line == "redisclusters.redis.kun.io"))
        .await?;
    let explain = ["explain", "redisclusters.spec.shards"];
    all.until("the documentation is found", &explain, |text| text.contains("FIELD: shards <integer>")).await?;

    // The kube-apiserver reads our description as the user system:aggregator, for whom it names no groups.
    let path = r#""/apis/redis.kun.io/v1/namespaces/{namespace}/redisclusters""#;
    all.until("our paths are described", &["get", "--raw", "/openapi/v2"], |text| text.contains(path)).await?;

    // An object in a namespace that is not there, then in one that is.
    let order = cluster("orders", "shop").to_string();
    let refused = admin.refused(&["create", "-f", "-"], &order).await?;
    ensure!(refused.contains("namespaces \"shop\" not found"), "{refused}");
    admin.run(&["create", "namespace", "shop"]).await?;
    admin.feed(&["create", "-f", "-"], &order).await?;
    let listed = admin.run(&["get", "redisclusters", "-n=shop", "-o", "jsonpath={.items[*].spec.shards}"]).await?;
    ensure!(listed == "3", "{listed}");
    admin.run(&["scale", "redisclusters/orders", "-n=shop", "--replicas=5"]).await?;
    admin.feed(&["apply", "--server-side", "-f", "-"], &cluster("carts", "shop").to_string()).await?;

    quotas_and_policies_of_the_cluster_count(&all).await?;
    the_garbage_collector_takes_what_our_objects_own(&all).await?;

    // The namespace controller deletes our objects with their namespace, and nothing can be made in it meanwhile.
    admin
        .run(&[
            "patch",
            "redisclusters/carts",
            "-n=shop",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":["example.com/hold"]}}"#,
        ])
        .await?;
    admin.run(&["delete", "namespace", "shop", "--wait=false"]).await?;
    let ask = ["get", "redisclusters", "-n=shop", "-o", "name"];
    all.until("the namespace controller has deleted what it could", &ask, |text| {
        text == "rediscluster.redis.kun.io/carts"
    })
    .await?;
    // Ours hears of it by another watch than that controller.
    let (late, begin) = (cluster("late", "shop").to_string(), Instant::now());
    while admin.outcome(&["create", "--dry-run=server", "-f", "-"], &late).await?.success {
        ensure!(begin.elapsed() < hung::process(), "nobody says that the namespace is going");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = admin.refused(&["create", "-f", "-"], &late).await?;
    ensure!(refused.contains("because it is being terminated"), "{refused}");
    admin
        .run(&["patch", "redisclusters/carts", "-n=shop", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
        .await?;
    admin.run(&["wait", "namespace/shop", "--for=delete", &waiting()]).await?;
    Ok(())
}

/// What the cluster limits and forbids, our server limits and forbids, in the cluster's words.
async fn quotas_and_policies_of_the_cluster_count(all: &Aggregated) -> Result<()> {
    let admin = all.admin();
    let counted = "count/redisclusters.redis.kun.io";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "shop"},
        "spec": {"hard": {counted: "2"}}});
    admin.feed(&["create", "-f", "-"], &quota.to_string()).await?;
    // The quota controller counts ours by a watch through the kube-apiserver.
    let used = [
        "get",
        "resourcequota",
        "few",
        "-n=shop",
        "-o",
        r"jsonpath={.status.used.count/redisclusters\.redis\.kun\.io}",
    ];
    all.until("the quota controller has counted", &used, |text| text == "2").await?;
    let refused = admin.refused(&["create", "-f", "-"], &cluster("more", "shop").to_string()).await?;
    let told = format!("exceeded quota: few, requested: {counted}=1, used: {counted}=2, limited: {counted}=2");
    ensure!(refused.contains(&told), "{refused}");
    admin.run(&["delete", "resourcequota", "few", "-n=shop"]).await?;

    let rules = json!([{"apiGroups": ["redis.kun.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["redisclusters"]}]);
    let kind = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "small"}, "spec": spec}).to_string()
    };
    let policy = kind(
        "ValidatingAdmissionPolicy",
        json!({"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.spec.shards <= 2", "message": "too many shards"}]}),
    );
    let binding =
        kind("ValidatingAdmissionPolicyBinding", json!({"policyName": "small", "validationActions": ["Deny"]}));
    admin.feed(&["create", "-f", "-"], &policy).await?;
    admin.feed(&["create", "-f", "-"], &binding).await?;
    let dry = ["create", "--dry-run=server", "-f", "-"];
    let begin = Instant::now();
    loop {
        let outcome = admin.outcome(&dry, &cluster("big", "shop").to_string()).await?;
        if outcome
            .stderr
            .contains("ValidatingAdmissionPolicy 'small' with binding 'small' denied request: too many shards")
        {
            break;
        }
        ensure!(begin.elapsed() < hung::change(), "the policy does not count: {outcome:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    admin.run(&["delete", "validatingadmissionpolicybinding", "small"]).await?;
    admin.run(&["delete", "validatingadmissionpolicy", "small"]).await.map(drop)
}

/// A ConfigMap that a RedisCluster owns goes with it.
async fn the_garbage_collector_takes_what_our_objects_own(all: &Aggregated) -> Result<()> {
    let admin = all.admin();
    let object = admin.run(&["get", "redisclusters/orders", "-n=shop", "-o", "json"]).await?;
    let object: Value = serde_json::from_str(&object)?;
    let uid = object.pointer("/metadata/uid").context("the uid")?;
    let owner = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "name": "orders", "uid": uid});
    for (name, owners) in [("owned", json!([owner])), ("free", json!([]))] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}});
        admin.feed(&["create", "-f", "-"], &map.to_string()).await?;
    }
    admin.run(&["delete", "redisclusters/orders", "-n=shop"]).await?;
    let ask = ["get", "configmaps", "-n=shop", "-o", "name"];
    let only_free = |text: &str| !text.contains("configmap/owned") && text.contains("configmap/free");
    all.until("the garbage collector has taken what the cluster owned", &ask, only_free).await
}

/// Only a real kube-apiserver in front shows whom it says to ask, and that nobody gets in beside it.
#[tokio::test]
async fn who_asks_and_what_he_may_do_is_the_clusters_to_say_on_every_way_in() -> Result<()> {
    let Some(tools) = built("tools.sh", "who_asks_and_what_he_may_do")? else { return Ok(()) };
    let mut all = Aggregated::start(&tools, Sync::Never).await?;
    let admin = all.admin();
    admin.run(&["create", "namespace", "shop"]).await?;
    let role = ["create", "clusterrole", "look", "--verb=get,list,watch", "--resource=redisclusters.redis.kun.io"];
    admin.run(&role).await?;
    admin
        .run(&[
            "create",
            "rolebinding",
            "team",
            "-n=shop",
            "--clusterrole=look",
            "--group=team",
            "--serviceaccount=shop:robot",
        ])
        .await?;
    admin.run(&["create", "serviceaccount", "robot", "-n=shop"]).await?;
    let token = admin.run(&["create", "token", "robot", "-n=shop"]).await?;

    let list = ["get", "redisclusters", "-n=shop"];
    let may_not = |who: &str, verb: &str, place: &str| {
        format!("User \"{who}\" cannot {verb} resource \"redisclusters\" in API group \"redis.kun.io\" {place}")
    };
    let order = cluster("orders", "shop").to_string();
    let jane = all.client("jane", &["team"])?;
    let through = all.user("jane", &["team"])?;
    let direct = all.direct("jane", Some(&jane), None)?;
    let robot = all.direct("robot", None, Some(token.trim()))?;
    for (who, kubectl) in [("jane", &through), ("jane", &direct), ("system:serviceaccount:shop:robot", &robot)] {
        may(kubectl, &list).await.with_context(|| format!("{who} may list"))?;
        let refused = kubectl.refused(&["create", "--validate=false", "-f", "-"], &order).await?;
        ensure!(refused.contains(&may_not(who, "create", "in the namespace \"shop\"")), "{refused}");
        let refused = kubectl.refused(&["get", "redisclusters", "-A"], "").await?;
        ensure!(refused.contains(&may_not(who, "list", "at the cluster scope")), "{refused}");
    }
    let joe = all.direct("joe", Some(&all.client("joe", &[])?), None)?;
    let refused = joe.refused(&list, "").await?;
    ensure!(refused.contains(&may_not("joe", "list", "in the namespace \"shop\"")), "{refused}");

    somebody_without_a_credential_is_who_the_cluster_says(&all).await?;

    // What does not count: a wrong token, a proxy's certificate without a user or with another name.
    let nobody = [
        all.direct("liar", None, Some("not-a-token"))?,
        all.direct("proxy", Some(&all.proxy("front-proxy")?), None)?,
        all.direct("impostor", Some(&all.proxy("admin")?), None)?,
    ];
    for kubectl in nobody {
        let refused = kubectl.refused(&["get", "--raw", "/apis/redis.kun.io/v1"], "").await?;
        ensure!(refused.contains("must be logged in") || refused.contains("Unauthorized"), "{refused}");
    }

    // Acting as somebody else takes the right to it, on every way in.
    admin.run(&["get", "redisclusters", "-n=shop", "--as=jane", "--as-group=team"]).await?;
    let refused = direct.refused(&["get", "redisclusters", "-n=shop", "--as=admin"], "").await?;
    ensure!(refused.contains("User \"jane\" cannot impersonate resource \"users\""), "{refused}");

    when_the_cluster_cannot_be_asked_what_is_known_counts_for_a_moment(&mut all, &direct, &joe).await
}

/// Waits until a right counts: roles are followed by watches, and what was said of one counts for some seconds.
async fn may(kubectl: &Kubectl, what: &[&str]) -> Result<()> {
    let begin = Instant::now();
    loop {
        let outcome = kubectl.outcome(what, "").await?;
        if outcome.success {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::change(), "the right does not count: {}", outcome.stderr);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The kube-apiserver lets strangers in as system:anonymous, and what that user may do is the cluster's to say, here too.
async fn somebody_without_a_credential_is_who_the_cluster_says(all: &Aggregated) -> Result<()> {
    let stranger = all.stranger()?;
    let list = ["get", "--raw", "/apis/redis.kun.io/v1/namespaces/shop/redisclusters"];
    let refused = stranger.refused(&list, "").await?;
    ensure!(refused.contains("User \"system:anonymous\" cannot list resource \"redisclusters\""), "{refused}");
    let bind =
        ["create", "rolebinding", "strangers", "-n=shop", "--clusterrole=look", "--group=system:unauthenticated"];
    all.admin().run(&bind).await?;
    may(&stranger, &list).await?;
    // Ours has no strangers of its own.
    let direct = all.direct("stranger", None, None)?.refused(&list, "").await?;
    ensure!(direct.contains("must be logged in") || direct.contains("Unauthorized"), "{direct}");
    all.admin().run(&["delete", "rolebinding", "strangers", "-n=shop"]).await.map(drop)
}

/// How long a decision counts (filter/remember.rs in apiserver).
const REMEMBERED: Duration = Duration::from_secs(10);

async fn when_the_cluster_cannot_be_asked_what_is_known_counts_for_a_moment(
    all: &mut Aggregated,
    direct: &Kubectl,
    joe: &Kubectl,
) -> Result<()> {
    // Nobody asked this before, so that the moment begins here.
    let known = ["get", "--raw", "/apis/redis.kun.io/v1/namespaces/shop/redisclusters?labelSelector=moment"];
    let asked = Instant::now();
    direct.run(&known).await?;
    all.kill_core().await?;
    let outcome = direct.outcome(&known, "").await?;
    ensure!(outcome.success || asked.elapsed() > REMEMBERED, "a decision of a moment ago counts: {}", outcome.stderr);
    let unknown = ["get", "--raw", "/apis/redis.kun.io/v1/namespaces/other/redisclusters"];
    let refused = joe.refused(&unknown, "").await?;
    ensure!(refused.contains("the kube-apiserver cannot be asked about this request"), "{refused}");
    // A moment is over some time, and then what was known does not count any more.
    let begin = Instant::now();
    let refused = loop {
        let outcome = direct.outcome(&known, "").await?;
        if !outcome.success {
            break outcome.stderr;
        }
        ensure!(begin.elapsed() < hung::process(), "what was known counts for ever");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    ensure!(refused.contains("the kube-apiserver cannot be asked about this request"), "{refused}");
    Ok(())
}
