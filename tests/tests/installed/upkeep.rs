//! What a platform team does with KUN: create, scale, act, drain, upgrade, take it away.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{
    installed::{Installed, sized},
    kubectl::waiting,
    oracle::Shape,
    story,
};

use crate::{
    nodes::primaries_are_spread_over_the_nodes,
    scenario::{OVERLAP, all_ready, say, unchanged, under_writes, with_state},
};

/// The smallest cluster, timed; nothing is left of it when it is deleted.
pub(crate) async fn a_cluster_that_is_applied_becomes_ready(installed: &Installed) -> Result<()> {
    let begin = Instant::now();
    installed.create(&installed.home, "timed", ONE, &json!({"storage": {"size": "1Gi", "retain": "Delete"}})).await?;
    say(&format!("apply to Ready: {:.1} s", begin.elapsed().as_secs_f64()));
    all_ready(installed, "timed", 1).await?;
    installed.kubectl.run(&["delete", "rdc", "timed", &waiting()]).await?;
    for kind in [
        "statefulsets",
        "services",
        "networkpolicies",
        "configmaps",
        "secrets",
        "poddisruptionbudgets",
        "persistentvolumeclaims",
    ] {
        let left = installed.listed(kind, &installed.home, "redis.kun.io/cluster=timed").await?;
        ensure!(left.is_empty(), "{left:#?}");
    }
    Ok(())
}

async fn scale(installed: &Installed, shards: u16) -> Result<()> {
    let begin = Instant::now();
    installed.kubectl.run(&["scale", "redisclusters/orders", &format!("--replicas={shards}")]).await?;
    story::ready(&installed.kubectl, "orders", shards).await?;
    say(&format!("{shards} shards after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

/// Waits until the pods of shards that went have gone.
async fn six_pods(installed: &Installed) -> Result<()> {
    let six = |pods: &[Value]| pods.len() == 6;
    installed.kubectl.until_all("pods", "redis.kun.io/cluster=orders", hung::change(), "six", six).await.map(drop)
}

/// A HorizontalPodAutoscaler writes the scale subresource as the real controller-manager does, below its least number without any
/// metrics; a person writes it by `kubectl scale`.
pub(crate) async fn an_autoscaler_scales_three_to_five_shards_and_a_person_back(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    under_writes(installed, async |writer| {
        kubectl.run(&["autoscale", "redisclusters/orders", "--min=5", "--max=6", "--cpu-percent=80"]).await?;
        story::ready(kubectl, "orders", 5).await?;
        kubectl.run(&["delete", "hpa", "orders"]).await?;
        writer.progress(100, hung::change()).await?;
        scale(installed, 3).await?;
        six_pods(installed).await
    })
    .await
}

/// The subresources that act: each leaves a record that says how it ended.
pub(crate) async fn actions_are_carried_out(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let before = story::primary(&installed.kubectl, "orders", 0).await?;
        act(installed, "failover", "rop", &json!({"failover": {"shard": 0}, "ttlAfterFinished": "10s"}), "Succeeded").await?;
        story::replaced(&installed.kubectl, "orders", &before).await?;
        act(installed, "restart", "rop", &json!({"restart": {"shards": [1]}}), "Succeeded").await?;
        writer.progress(100, hung::change()).await?;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vault"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}});
        installed.kubectl.feed(&["apply", "-f", "-"], &claim.to_string()).await?;
        let target = json!({"target": {"persistentVolumeClaim": {"claimName": "vault"}}, "ttlAfterFinished": "5s", "deletionPolicy": "Delete"});
        let name = act(installed, "backup", "rbk", &target, "Completed").await?;
        installed.kubectl.run(&["wait", &format!("rbk/{name}"), "--for=delete", &waiting()]).await?;
        installed.kubectl.run(&["delete", "pvc", "vault", &waiting()]).await?;
        Ok(())
    })
    .await
}

async fn act(installed: &Installed, verb: &str, resource: &str, spec: &Value, phase: &str) -> Result<String> {
    let kind = if resource == "rbk" { "RedisBackup" } else { "RedisOperation" };
    let body = json!({"apiVersion": types::API_VERSION, "kind": kind, "spec": spec});
    let path = format!("/apis/redis.kun.io/v1/namespaces/{}/redisclusters/orders/{verb}", installed.home);
    let created = installed.kubectl.create_at(&path, &body).await?;
    let name = created["metadata"]["name"].as_str().context("name of the record")?;
    let done = story::finished(&installed.kubectl, resource, name).await?;
    ensure!(done["status"]["phase"] == phase, "{verb} ended with {:#}", done["status"]);
    Ok(name.to_owned())
}

/// Drift: a field of ours that somebody else sets is set back once; what they add stays, labels, annotations and fields of the
/// specification. No pod is made anew by it.
pub(crate) async fn what_others_change_is_put_right_and_what_they_add_is_kept(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    under_writes(installed, async |_| {
        let pods = installed.pods().await?;
        fields_of_a_set_are_shared(installed).await?;
        unchanged(&pods, &installed.pods().await?)?;
        let theirs = r#"{"metadata":{"annotations":{"example.com/theirs":"kept"}},"spec":{"replicas":3}}"#;
        kubectl.run(&["patch", "statefulset", "orders-1", "--type=merge", "-p", theirs]).await?;
        let restored = |set: &Value| set["spec"]["replicas"] == 2;
        let set = kubectl.until("statefulset", "orders-1", hung::change(), "of two members again", restored).await?;
        ensure!(set["metadata"]["annotations"]["example.com/theirs"] == "kept", "{:#}", set["metadata"]);
        let affinity = r#"{"spec":{"sessionAffinity":"ClientIP"}}"#;
        kubectl.run(&["patch", "service", "orders", "--type=merge", "-p", affinity]).await?;
        // Another number makes it another port by Kubernetes' rules, theirs, with a name of ours.
        let port = r#"[{"op":"replace","path":"/spec/ports/0/port","value":7000}]"#;
        kubectl.run(&["patch", "service", "orders", "--type=json", "-p", port]).await?;
        let restored = |service: &Value| service["spec"]["ports"][0]["port"] == types::names::PORT_REDIS;
        let service = kubectl.until("service", "orders", hung::change(), "at its port again", restored).await?;
        let spec = &service["spec"];
        let ports = spec["ports"].as_array().map_or(0, Vec::len);
        ensure!(spec["sessionAffinity"] == "ClientIP" && ports == 1, "{spec:#}");
        let affinity = r#"{"spec":{"sessionAffinity":null}}"#;
        kubectl.run(&["patch", "service", "orders", "--type=merge", "-p", affinity]).await?;
        let budget = r#"{"spec":{"maxUnavailable":0}}"#;
        kubectl.run(&["patch", "pdb", "orders-2", "--type=merge", "-p", budget]).await?;
        let restored = |budget: &Value| budget["spec"]["maxUnavailable"] == 1;
        kubectl.until("pdb", "orders-2", hung::change(), "as it was", restored).await?;
        ours_is_applied(installed, "pdb", "orders-2").await?;
        a_wall_that_was_opened_is_closed(installed).await?;
        let data = r#"{"data":{"agent.json":"{}"}}"#;
        kubectl.run(&["patch", "configmap", "orders-config", "--type=merge", "-p", data]).await?;
        let restored = |map: &Value| map["data"]["agent.json"] != "{}";
        kubectl.until("configmap", "orders-config", hung::change(), "as it was", restored).await?;
        ours_is_applied(installed, "configmap", "orders-config").await?;
        what_a_former_kun_wrote_goes(installed).await?;
        story::ready(kubectl, "orders", 3).await?;
        six_pods(installed).await
    })
    .await
}

/// Somebody sets a field of a StatefulSet that we ask for and one that we do not: the first is put right, the second stays.
async fn fields_of_a_set_are_shared(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    let before = kubectl.get("statefulset", "orders-0").await?;
    let theirs = r#"{"spec":{"revisionHistoryLimit":5,"minReadySeconds":1}}"#;
    kubectl.run(&["patch", "statefulset", "orders-0", "--type=merge", "-p", theirs]).await?;
    let of = |set: &Value| set["spec"]["revisionHistoryLimit"].clone();
    let restored = |set: &Value| of(set) == of(&before);
    let after = kubectl.until("statefulset", "orders-0", hung::change(), "as it was", restored).await?;
    ensure!(after["spec"]["minReadySeconds"] == 1, "{:#}", after["spec"]);
    ensure!(after["spec"]["template"] == before["spec"]["template"], "{:#}", after["spec"]["template"]);
    ensure!(after["status"]["updateRevision"] == before["status"]["updateRevision"], "{:#}", after["status"]);
    ours_is_applied(installed, "statefulset", "orders-0").await?;
    let told =
        |event: &Value| event["message"] == "put right StatefulSet orders-0, which had been changed by kubectl-patch";
    // Events are written beside what they tell of.
    kubectl.until_all("events", "", hung::change(), "telling who changed it", |events| events.iter().any(told)).await?;
    let given_back = r#"{"spec":{"minReadySeconds":null}}"#;
    kubectl.run(&["patch", "statefulset", "orders-0", "--type=merge", "-p", given_back]).await.map(drop)
}

/// Somebody lets everybody in to the cluster bus.
async fn a_wall_that_was_opened_is_closed(installed: &Installed) -> Result<()> {
    let (kubectl, name) = (&installed.kubectl, "orders-members");
    let before = kubectl.get("netpol", name).await?;
    let bus = r#"[{"op":"add","path":"/spec/ingress/0/ports/-","value":{"port":16379,"protocol":"TCP"}}]"#;
    kubectl.run(&["patch", "netpol", name, "--type=json", "-p", bus]).await?;
    kubectl.until("netpol", name, hung::change(), "as it was", |policy| policy["spec"] == before["spec"]).await?;
    ours_is_applied(installed, "netpol", name).await
}

/// Before KUN applied it replaced, under the same name: what it asked for that way and is not asked for any more is taken away.
async fn what_a_former_kun_wrote_goes(installed: &Installed) -> Result<()> {
    let kubectl = &installed.kubectl;
    let former =
        r#"{"metadata":{"labels":{"redis.kun.io/former":"yes"},"annotations":{"redis.kun.io/desired":"former"}}}"#;
    let (name, manager) = ("orders-config", "--field-manager=kun-controller");
    kubectl.run(&["patch", "configmap", name, "--type=merge", manager, "-p", former]).await?;
    let gone = |map: &Value| map["metadata"]["labels"].get("redis.kun.io/former").is_none();
    kubectl.until("configmap", name, hung::change(), "without what is not asked for any more", gone).await?;
    ours_is_applied(installed, "configmap", name).await
}

/// All that we have written of an object counts as applied: what we stop asking for will go.
async fn ours_is_applied(installed: &Installed, kind: &str, name: &str) -> Result<()> {
    let shown = installed.kubectl.run(&["get", kind, name, "--show-managed-fields", "-o", "json"]).await?;
    let object: Value = serde_json::from_str(&shown)?;
    let entries = object["metadata"]["managedFields"].as_array().context("owners of fields")?;
    let ours: Vec<_> = entries.iter().filter(|entry| entry["manager"] == "kun-controller").collect();
    ensure!(matches!(ours[..], [one] if one["operation"] == "Apply"), "{entries:#?}");
    Ok(())
}

/// What somebody else has made under a name that we would use is theirs: it is left as it is, and the user is told whose it is.
pub(crate) async fn what_is_called_as_ours_would_be_is_left_alone(installed: &Installed) -> Result<()> {
    let kubectl = installed.kubectl.clone().within("namesakes");
    kubectl.run(&["create", "namespace", "namesakes"]).await?;
    let table = [
        ("Service", types::names::service("service"), json!({"spec": {"ports": [{"port": 80}]}})),
        ("ConfigMap", types::names::config_map("configmap"), json!({"data": {"theirs": "yes"}})),
        ("Secret", types::names::internal_secret("secret"), json!({"stringData": {"theirs": "yes"}})),
    ];
    for (kind, name, fields) in table {
        let cluster = kind.to_lowercase();
        let mut theirs = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        fields.as_object().into_iter().flatten().for_each(|(field, value)| theirs[field] = value.clone());
        kubectl.feed(&["create", "-f", "-"], &theirs.to_string()).await?;
        let before = kubectl.get(&cluster, &name).await?;
        kubectl.feed(&["create", "-f", "-"], &sized("namesakes", &cluster, ONE, &json!({})).to_string()).await?;
        let told = |object: &Value| {
            object["status"].to_string().contains(&format!("{kind} {name} exists and belongs to somebody else"))
        };
        kubectl.until("rdc", &cluster, hung::change(), "telling whose it is", told).await?;
        let after = kubectl.get(&cluster, &name).await?;
        ensure!(before == after, "before: {before:#}\nafter: {after:#}");
    }
    kubectl.run(&["delete", "namespace", "namesakes", "--wait=false"]).await.map(drop)
}

/// Evictions through Kubernetes' own API meet our budgets.
pub(crate) async fn draining_the_node_with_most_primaries_hands_them_over(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let primaries = installed.primaries().await?;
        let most = primaries.iter().max_by_key(|(_, count)| **count);
        let (node, count) = most.context("no pod is labelled as a primary")?;
        say(&format!("{node} has {count} of 3 primaries"));
        let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", &waiting()];
        let drained = installed.kubectl.run(&drain).await;
        let written = with_state(installed, writer.progress(100, hung::change()).await).await;
        // Also if that went wrong: others need the node.
        installed.kubectl.run(&["uncordon", node]).await?;
        drained?;
        written?;
        installed.rolled_out().await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        primaries_are_spread_over_the_nodes(installed).await
    })
    .await
}

/// What helm does to the chart's objects, and the pods of KUN that follow.
pub(crate) async fn an_upgrade_and_a_rollback_restart_no_redis_pod(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let before = installed.pods().await?;
        // Every pod of KUN gets another label, so all of them are made anew.
        installed.install(&["labels.upgraded=yes", OVERLAP]).await?;
        installed.rolled_out().await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        writer.progress(100, hung::change()).await?;
        installed.roll_back().await?;
        installed.rolled_out().await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&before, &installed.pods().await?)
    })
    .await
}

/// What helm takes away is nothing that Redis needs.
pub(crate) async fn taking_kun_away_and_back_restarts_no_redis_pod(installed: &Installed) -> Result<()> {
    under_writes(installed, async |writer| {
        let (before, children) = (installed.pods().await?, installed.children().await?);
        installed.uninstall().await?;
        writer.progress(100, hung::change()).await?;
        installed.install(&[OVERLAP]).await?;
        installed.rolled_out().await?;
        story::ready(&installed.kubectl, "orders", 3).await?;
        unchanged(&before, &installed.pods().await?)?;
        unchanged(&children, &installed.children().await?)
    })
    .await
}

/// The shape of the smallest cluster there is.
pub(crate) const ONE: Shape = Shape { shards: 1, replicas: 0 };
