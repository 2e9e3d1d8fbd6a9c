//! What the controller writes to Kubernetes, against an API server of a hundred lines that keeps objects in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::Memory;
use controller::apply::{self, PAUSE, Repairs, apply};
use controller::build::build;
use controller::credentials::SystemIssuer;
use controller::delete::{Progress, delete, sweep_claims};
use controller::gather::{Gathered, gather};
use controller::lease::{self, Guard};
use controller::queue::Key;
use controller::resolve::{Context, Resolved, resolve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn key() -> Key {
    Key { namespace: "shop".to_owned(), name: "orders".to_owned() }
}

pub(crate) fn cluster(spec: &Value) -> Value {
    json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "spec": spec,
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u1", "generation": 1, "resourceVersion": "1",
            "finalizers": ["redis.kun.io/teardown"]},
    })
}

fn ring() -> tokio::sync::watch::Receiver<Arc<certs::Ring>> {
    let ring = certs::Ring::of(certs::Authority::create("agents").unwrap());
    tokio::sync::watch::channel(Arc::new(ring)).1
}

/// A cluster in an API server that holds nothing else.
pub(crate) struct Scene {
    pub(crate) memory: Memory,
    issuer: SystemIssuer,
}

impl Scene {
    pub(crate) fn new(spec: &Value) -> Self {
        let memory = Memory::default();
        memory.put("redisclusters", cluster(spec));
        Self { memory, issuer: SystemIssuer::new(ring()) }
    }

    pub(crate) fn gathered(&self) -> Gathered {
        gather(&self.memory.caches(), &key()).unwrap().unwrap()
    }

    pub(crate) fn resolved(&self) -> Resolved {
        let context =
            Context { kun_image: "kun:1", namespace: "kun-system", issuer: &self.issuer, now: jiff::Timestamp::now() };
        resolve(&self.gathered(), context).unwrap()
    }

    pub(crate) async fn apply(&self) -> Result<apply::Applied, apply::Error> {
        self.apply_at(&mut Repairs::default(), Instant::now()).await
    }

    pub(crate) async fn apply_at(&self, repairs: &mut Repairs, now: Instant) -> Result<apply::Applied, apply::Error> {
        let (resolved, gathered) = (self.resolved(), self.gathered());
        apply(&self.memory.kubernetes(), &gathered, &resolved, build(&resolved).unwrap(), repairs, now).await
    }

    /// One round of deletion after another until it is done; pods go when their StatefulSet has gone.
    pub(crate) async fn delete(&self) {
        for _ in 0..10 {
            if delete(&self.memory.kubernetes(), &self.gathered()).await.unwrap() == Progress::Done {
                return;
            }
        }
        panic!("not done after ten rounds");
    }
}

#[tokio::test]
async fn a_second_apply_writes_nothing() {
    let term =
        json!({"labelSelector": {"matchLabels": {"app": "cache"}}, "namespaceSelector": {}, "topologyKey": "rack"});
    let placement = json!({
        "topologyKeys": ["rack"], "nodeSelector": {"disk": "1.0"}, "tolerations": [{"key": "a", "tolerationSeconds": 5, "effect": "NoExecute"}],
        "priorityClassName": "databases",
        "affinity": {"nodeAffinity": {}, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    });
    let limits = json!({"limits": {"memory": "1024Mi"}});
    let scene = Scene::new(&json!({"storage": {"size": "1Gi"}, "resources": limits, "placement": placement}));
    assert_eq!(scene.apply().await.unwrap().created.len(), 2 + 1 + 2 + 1 + 3 + 3);
    scene.memory.take_writes();
    assert_eq!(scene.apply().await.unwrap(), apply::Applied::default());
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn secrets_and_configuration_exist_before_the_pods_that_need_them() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let writes = scene.memory.take_writes();
    let first_set = writes.iter().position(|write| write.contains("statefulsets")).unwrap();
    let last_need = writes.iter().rposition(|write| write.contains("secrets") || write.contains("configmaps")).unwrap();
    assert!(last_need < first_set, "{writes:?}");
}

#[tokio::test]
async fn what_we_stop_asking_for_is_taken_away_and_what_others_added_stays() {
    let scene = Scene::new(&json!({"resources": {"limits": {"memory": "1Gi"}}}));
    scene.apply().await.unwrap();
    let sidecar = json!({"name": "logs", "image": "logs:1"});
    let theirs = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"labels": {"team": "a"}, "annotations": {"n": "1"}},
        "spec": {"minReadySeconds": 3, "template": {"spec": {"tolerations": [{"key": "a"}], "containers": [sidecar]}}},
    });
    scene.memory.apply("friend", "statefulsets", "orders-0", &theirs);
    scene.memory.take_writes();
    assert_eq!(scene.apply().await.unwrap(), apply::Applied::default(), "what they add is no difference");
    scene.memory.put("redisclusters", cluster(&json!({})));
    scene.apply().await.unwrap();
    let set = scene.memory.get("statefulsets", "orders-0").unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let redis = pod["containers"].as_array().unwrap().iter().find(|container| container["name"] == "redis").unwrap();
    assert_eq!(redis["resources"].get("limits"), None, "{redis}");
    assert_eq!(
        (&set["metadata"]["labels"]["team"], &set["metadata"]["annotations"]["n"], &set["spec"]["minReadySeconds"]),
        (&json!("a"), &json!("1"), &json!(3))
    );
    assert_eq!(
        (&pod["tolerations"], pod["containers"].as_array().unwrap().contains(&sidecar)),
        (&json!([{"key": "a"}]), true)
    );
    scene.memory.take_writes();
    assert_eq!(scene.apply().await.unwrap(), apply::Applied::default());
}

#[tokio::test]
async fn what_others_change_of_ours_is_put_right_and_told_with_whose_it_was() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    scene.memory.take_writes();
    let theirs = json!({"spec": {"type": "NodePort", "sessionAffinity": "ClientIP"}});
    scene.memory.patch("kubectl-patch", "services", "orders", &theirs);
    let changed = vec!["Service orders".to_owned()];
    let repaired = vec!["Service orders, which had been changed by kubectl-patch".to_owned()];
    let expected = apply::Applied { changed, repaired, ..apply::Applied::default() };
    assert_eq!(scene.apply().await.unwrap(), expected);
    assert_eq!(scene.memory.take_writes(), ["PATCH services/orders", "APPLY services/orders"]);
    let service = scene.memory.get("services", "orders").unwrap();
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["sessionAffinity"]),
        (&json!("ClusterIP"), &json!("ClientIP"))
    );
    assert_eq!(scene.memory.owners("services", "orders"), ["kun-controller Apply", "kubectl-patch Update"]);
    // From the second time on there is nothing to take over.
    scene.memory.patch(
        "kubectl-patch",
        "services",
        "orders",
        &json!({"metadata": {"labels": {"app.kubernetes.io/name": null}}}),
    );
    assert_eq!(scene.apply().await.unwrap().changed, ["Service orders"]);
    assert_eq!(scene.memory.take_writes(), ["APPLY services/orders"]);
    let labels = &scene.memory.get("services", "orders").unwrap()["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/name"], "redis");
}

#[tokio::test]
async fn a_port_that_was_given_another_number_gets_its_own_back() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let ports = json!([{"name": "redis", "port": 7000, "protocol": "TCP", "targetPort": 6379}]);
    scene.memory.patch("kubectl-patch", "services", "orders", &json!({"spec": {"ports": ports}}));
    scene.memory.take_writes();
    scene.apply().await.unwrap();
    let writes = ["PATCH services/orders", "APPLY services/orders", "PATCH services/orders"];
    assert_eq!(scene.memory.take_writes(), writes, "two ports of one name are refused");
    let service = scene.memory.get("services", "orders").unwrap();
    let expected = json!([{"name": "redis", "port": 6379, "protocol": "TCP", "targetPort": 6379}]);
    assert_eq!(service["spec"]["ports"], expected);
    assert_eq!(scene.apply().await.unwrap(), apply::Applied::default());
}

#[tokio::test]
async fn what_a_former_kun_made_and_replaced_is_taken_over_with_all_that_it_wrote() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let before = scene.memory.get("configmaps", "orders-config").unwrap();
    let metadata = json!({
        "annotations": {"redis.kun.io/desired": "former"}, "labels": {"redis.kun.io/former": "yes"},
    });
    let former = json!({"metadata": metadata, "data": {"former.json": "{}"}});
    scene.memory.patch("kun-controller", "configmaps", "orders-config", &former);
    scene.memory.patch("friend", "configmaps", "orders-config", &json!({"data": {"theirs": "yes"}}));
    scene.apply().await.unwrap();
    let after = scene.memory.get("configmaps", "orders-config").unwrap();
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    assert_eq!(after["metadata"]["annotations"], before["metadata"]["annotations"]);
    assert_eq!(after["data"], json!({"agent.json": before["data"]["agent.json"], "theirs": "yes"}));
    assert_eq!(scene.memory.owners("configmaps", "orders-config"), ["kun-controller Apply", "friend Update"]);
}

#[tokio::test]
async fn a_cache_that_is_behind_overwrites_nothing() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    scene.memory.change("services", "orders", |service| service["spec"]["type"] = json!("NodePort"));
    let (kubernetes, gathered, resolved) = (scene.memory.kubernetes(), scene.gathered(), scene.resolved());
    scene.memory.patch("friend", "services", "orders", &json!({"metadata": {"labels": {"team": "a"}}}));
    scene.memory.take_writes();
    let (objects, mut repairs) = (build(&resolved).unwrap(), Repairs::default());
    let outcome = apply(&kubernetes, &gathered, &resolved, objects, &mut repairs, Instant::now()).await;
    assert_eq!(outcome.unwrap_err().to_string(), "reading Service orders: it changed since it was read");
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_said_of_one_pod_is_not_said_of_its_successor() {
    let scene = Scene::new(&json!({}));
    let pod = |uid: &str| json!({"metadata": {"name": "orders-0-0", "namespace": "shop", "uid": uid}});
    scene.memory.put("pods", pod("second"));
    let first: Pod = serde_json::from_value(pod("first")).unwrap();
    let error = scene.memory.kubernetes().label(&first, "role", Some("primary")).await.unwrap_err();
    assert_eq!(error.to_string(), "labelling Pod orders-0-0: it changed since it was read");
    assert_eq!(scene.memory.get("pods", "orders-0-0").unwrap()["metadata"].get("labels"), None);
}

#[tokio::test]
async fn who_insists_is_answered_once_in_a_while_and_a_new_wish_is_written_at_once() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    let wrong = json!({"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}});
    let fight = || scene.memory.patch("rival", "statefulsets", "orders-0", &wrong);
    fight();
    assert_eq!(scene.apply_at(&mut repairs, start).await.unwrap().changed, ["StatefulSet orders-0"]);
    fight();
    let put_off = vec!["StatefulSet orders-0".to_owned()];
    let expected = apply::Applied { put_off, ..apply::Applied::default() };
    assert_eq!(scene.apply_at(&mut repairs, start).await.unwrap(), expected);
    assert_eq!(scene.apply_at(&mut repairs, start + PAUSE).await.unwrap().changed, ["StatefulSet orders-0"]);
    fight();
    scene.memory.put("redisclusters", cluster(&json!({"resources": {"limits": {"memory": "1Gi"}}})));
    let changed = scene.apply_at(&mut repairs, start + PAUSE).await.unwrap().changed;
    assert!(changed.contains(&"StatefulSet orders-0".to_owned()), "{changed:?}");
}

#[tokio::test]
async fn a_set_is_made_larger_but_never_smaller() {
    let scene = Scene::new(&json!({"shards": 1, "replicasPerShard": 1}));
    scene.apply().await.unwrap();
    let size = |scene: &Scene| scene.memory.get("statefulsets", "orders-0").unwrap()["spec"]["replicas"].clone();
    scene.memory.put("redisclusters", cluster(&json!({"shards": 1, "replicasPerShard": 3})));
    scene.apply().await.unwrap();
    assert_eq!(size(&scene), 4);
    scene.memory.put("redisclusters", cluster(&json!({"shards": 1, "replicasPerShard": 0})));
    scene.apply().await.unwrap();
    assert_eq!(size(&scene), 4);
}

#[tokio::test]
async fn a_budget_goes_when_its_shard_has_one_member_left_and_not_before() {
    let scene = Scene::new(&json!({"shards": 2, "replicasPerShard": 1}));
    scene.apply().await.unwrap();
    scene.memory.put("redisclusters", cluster(&json!({"shards": 2, "replicasPerShard": 0})));
    assert_eq!(scene.apply().await.unwrap().deleted, Vec::<String>::new());
    assert_eq!(scene.memory.names("poddisruptionbudgets"), ["orders-0", "orders-1"]);
    scene.memory.change("statefulsets", "orders-1", |set| set["spec"]["replicas"] = json!(1));
    assert_eq!(scene.apply().await.unwrap().deleted, ["PodDisruptionBudget orders-1"]);
    assert_eq!(scene.memory.names("poddisruptionbudgets"), ["orders-0"]);
    scene.memory.take_writes();
    scene.apply().await.unwrap();
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
    // Its replica is wanted again before it has gone.
    scene.memory.put("redisclusters", cluster(&json!({"shards": 2, "replicasPerShard": 1})));
    scene.apply().await.unwrap();
    assert_eq!(scene.memory.names("poddisruptionbudgets"), ["orders-0", "orders-1"]);
}

#[tokio::test]
async fn a_budget_of_somebody_else_stays() {
    let scene = Scene::new(&json!({"shards": 1, "replicasPerShard": 0}));
    scene.apply().await.unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders"});
    let foreign = json!({"metadata": {"name": "orders-0", "namespace": "shop", "labels": labels}, "spec": {}});
    scene.memory.put("poddisruptionbudgets", foreign);
    assert_eq!(scene.apply().await.unwrap(), apply::Applied::default());
    assert_eq!(scene.memory.names("poddisruptionbudgets"), ["orders-0"]);
}

#[tokio::test]
async fn the_walls_stand_before_the_pods_and_are_taken_down_when_they_are_not_wanted() {
    let scene = Scene::new(&json!({}));
    let created = scene.apply().await.unwrap().created;
    let at = |kind: &str| created.iter().position(|label| label.starts_with(kind)).unwrap();
    assert!(at("NetworkPolicy orders-members") < at("StatefulSet"), "{created:?}");
    scene.memory.put("redisclusters", cluster(&json!({"networkPolicy": {"enabled": false}})));
    assert_eq!(scene.apply().await.unwrap().deleted, ["NetworkPolicy orders-members"]);
    assert_eq!(scene.memory.names("networkpolicies"), Vec::<String>::new());
    scene.memory.take_writes();
    scene.apply().await.unwrap();
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_wall_that_somebody_opened_is_closed_again_and_policies_of_others_stay() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    let whole = scene.memory.get("networkpolicies", "orders-members").unwrap()["spec"].clone();
    scene.memory.change("networkpolicies", "orders-members", |policy| {
        policy["spec"]["ingress"][0]["ports"] =
            json!([{"port": 6379, "protocol": "TCP"}, {"port": 16379, "protocol": "TCP"}]);
    });
    let labels = json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders"});
    let foreign = json!({"metadata": {"name": "scrapers", "namespace": "shop", "labels": labels}, "spec": {}});
    scene.memory.put("networkpolicies", foreign);
    assert_eq!(scene.apply().await.unwrap().changed, ["NetworkPolicy orders-members"]);
    assert_eq!(scene.memory.get("networkpolicies", "orders-members").unwrap()["spec"], whole);
    assert_eq!(scene.memory.names("networkpolicies"), ["orders-members", "scrapers"]);
}

#[tokio::test]
async fn sets_of_shards_that_shall_go_are_not_touched() {
    let scene = Scene::new(&json!({"shards": 3}));
    scene.apply().await.unwrap();
    scene.memory.put("redisclusters", cluster(&json!({"shards": 1})));
    scene.apply().await.unwrap();
    assert!(scene.memory.get("statefulsets", "orders-2").is_some());
}

#[tokio::test]
async fn an_object_of_somebody_else_is_not_touched_and_named() {
    let scene = Scene::new(&json!({}));
    let foreign = json!({"metadata": {"name": "orders", "namespace": "shop"}, "spec": {"ports": []}});
    scene.memory.put("services", foreign);
    let error = scene.apply().await.unwrap_err();
    let text = "Service orders exists and belongs to somebody else; it is not touched";
    assert_eq!(error.to_string(), text);
    assert_eq!(scene.memory.get("services", "orders").unwrap()["spec"], json!({"ports": []}));
}

#[tokio::test]
async fn secrets_of_a_deleted_predecessor_are_inherited_but_not_beside_its_members() {
    let scene = Scene::new(&json!({"shards": 1, "replicasPerShard": 0}));
    scene.apply().await.unwrap();
    let password = |scene: &Scene| scene.memory.get("secrets", "orders-auth").unwrap()["data"]["password"].clone();
    let before = password(&scene);
    let mut next = cluster(&json!({"shards": 1, "replicasPerShard": 0}));
    next["metadata"]["uid"] = json!("u2");
    scene.memory.put("redisclusters", next);
    let error = scene.apply().await.unwrap_err();
    assert!(error.to_string().contains("belongs to the RedisCluster u1"), "{error}");
    for kind in ["statefulsets", "services", "networkpolicies", "configmaps"] {
        scene.memory.clear(kind);
    }
    scene.apply().await.unwrap();
    assert_eq!(password(&scene), before);
    let owner = &scene.memory.get("secrets", "orders-auth").unwrap()["metadata"]["annotations"];
    assert_eq!(owner["redis.kun.io/owner-uid"], "u2");
}

/// A quota, a rule of the installation, or somebody else's policy of that name.
#[tokio::test]
async fn a_policy_that_cannot_be_written_keeps_the_first_pods_from_starting_and_stops_no_others() {
    let scene = Scene::new(&json!({}));
    let policy = "NetworkPolicy orders-members";
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    scene.memory.forbid(Some("networkpolicies"));
    assert!(scene.apply_at(&mut repairs, start).await.is_err());
    assert_eq!(scene.memory.names("statefulsets"), Vec::<String>::new());
    scene.memory.forbid(None);
    scene.apply_at(&mut repairs, start).await.unwrap();
    // As it is of a cluster that is older than its policy.
    scene.memory.clear("networkpolicies");
    scene.memory.clear("services");
    scene.memory.forbid(Some("networkpolicies"));
    scene.memory.take_writes();
    let told = vec![format!(
        "{policy} cannot be written, and members are reached as before: creating {policy}: Forbidden (403)"
    )];
    let later = start + types::patience::MOST;
    for (at, asked) in [(start, true), (start, false), (later, true)] {
        let applied = scene.apply_at(&mut repairs, at).await.unwrap();
        assert_eq!(applied.refused, told);
        let writes = scene.memory.take_writes();
        assert_eq!(writes.contains(&"POST networkpolicies/orders-members".to_owned()), asked, "{writes:?}");
    }
    assert_eq!(scene.memory.names("services").len(), 2);
    scene.memory.forbid(None);
    let applied = scene.apply_at(&mut repairs, later + types::patience::MOST).await.unwrap();
    assert_eq!((applied.created, applied.refused), (vec![policy.to_owned()], vec![]));
    scene.memory.change("networkpolicies", "orders-members", |policy| {
        policy["metadata"]["annotations"]["redis.kun.io/owner-uid"] = json!("u2");
    });
    let applied = scene.apply().await.unwrap();
    let theirs = format!("{policy} exists and belongs to the RedisCluster u2; it is not touched");
    assert_eq!(applied.refused, [format!("{policy} cannot be written, and members are reached as before: {theirs}")]);
}

#[tokio::test]
async fn a_policy_that_cannot_be_deleted_is_told_and_stops_nothing_else() {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    scene.memory.put("redisclusters", cluster(&json!({"networkPolicy": {"enabled": false}})));
    scene.memory.forbid(Some("networkpolicies"));
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    let policy = "NetworkPolicy orders-members";
    let told =
        format!("{policy} cannot be deleted, and members are reached as before: deleting {policy}: Forbidden (403)");
    scene.memory.take_writes();
    for asked in [true, false] {
        let applied = scene.apply_at(&mut repairs, start).await.unwrap();
        let writes = scene.memory.take_writes();
        let has_asked = writes.contains(&"DELETE networkpolicies/orders-members".to_owned());
        assert_eq!((applied.refused, has_asked), (vec![told.clone()], asked), "{writes:?}");
    }
}

#[tokio::test]
async fn claims_grow_with_the_specification_and_never_shrink() {
    let scene = Scene::new(&json!({"storage": {"size": "2Gi"}}));
    scene.memory.put("persistentvolumeclaims", claim(0, 0, "1Gi"));
    scene.memory.put("persistentvolumeclaims", claim(0, 1, "3Gi"));
    scene.apply().await.unwrap();
    let size =
        |name| scene.memory.get("persistentvolumeclaims", name).unwrap()["spec"]["resources"]["requests"].clone();
    assert_eq!(size("data-orders-0-0"), json!({"storage": "2Gi"}));
    assert_eq!(size("data-orders-0-1"), json!({"storage": "3Gi"}));
}

/// A StorageClass that cannot grow its volumes, or a quota that is used up.
#[tokio::test]
async fn a_claim_that_may_not_grow_is_told_and_asked_for_now_and_then_and_stops_nothing_else() {
    let scene = Scene::new(&json!({"storage": {"size": "2Gi"}}));
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    scene.apply_at(&mut repairs, start).await.unwrap();
    for (ordinal, class) in [(0, "fixed"), (1, "fixed"), (2, "free")] {
        let mut claim = claim(0, ordinal, "1Gi");
        claim["spec"]["storageClassName"] = json!(class);
        scene.memory.put("persistentvolumeclaims", claim);
    }
    scene.memory.take_writes();
    let mut seen = Vec::new();
    for at in [start, start, start, start, start + types::patience::MOST] {
        let applied = scene.apply_at(&mut repairs, at).await.unwrap();
        seen.push((scene.memory.take_writes().join(", "), applied.changed.join(", "), applied.refused));
    }
    let asked = |claim: &str| format!("PATCH persistentvolumeclaims/data-orders-0-{claim}");
    let told = |left: usize| {
        let first = "growing PersistentVolumeClaim data-orders-0-0: Forbidden (403)";
        vec![format!("{left} claims do not grow to 2Gi; the first: {first}")]
    };
    let expected = [
        (asked("0"), String::new(), told(3)),
        (asked("1"), String::new(), told(3)),
        (asked("2"), "PersistentVolumeClaim data-orders-0-2".to_owned(), told(2)),
        (String::new(), String::new(), told(2)),
        (asked("0"), String::new(), told(2)),
    ];
    assert_eq!(seen, expected);
}

pub(crate) fn claim(shard: u16, ordinal: u16, size: &str) -> Value {
    json!({
        "metadata": {"name": format!("data-orders-{shard}-{ordinal}"), "namespace": "shop", "labels": {
            "app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders",
            "redis.kun.io/shard": shard.to_string(),
        }},
        "spec": {"resources": {"requests": {"storage": size}}},
    })
}

fn going(spec: &Value) -> Value {
    let mut cluster = cluster(spec);
    cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    cluster
}

async fn deleted(spec: &Value) -> (Scene, Vec<String>) {
    let scene = Scene::new(spec);
    scene.apply().await.unwrap();
    scene.memory.put("persistentvolumeclaims", claim(0, 0, "1Gi"));
    scene.memory.take_writes();
    scene.memory.put("redisclusters", going(spec));
    scene.delete().await;
    let writes = scene.memory.take_writes();
    (scene, writes)
}

#[tokio::test]
async fn deletion_stops_the_pods_first_and_lets_the_object_go_last() {
    let spec = json!({"shards": 1, "storage": {"size": "1Gi", "retain": "Delete"}});
    let (scene, writes) = deleted(&spec).await;
    assert!(writes[0].contains("statefulsets"), "{writes:?}");
    assert!(writes[writes.len() - 2].contains("persistentvolumeclaims"), "{writes:?}");
    assert!(writes.last().unwrap().starts_with("PATCH redisclusters"), "{writes:?}");
    for kind in [
        "statefulsets",
        "services",
        "networkpolicies",
        "configmaps",
        "secrets",
        "poddisruptionbudgets",
        "persistentvolumeclaims",
    ] {
        assert_eq!(scene.memory.names(kind), Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test]
async fn volumes_and_the_passwords_on_them_stay_unless_both_policies_say_delete() {
    for spec in [
        json!({"shards": 1, "storage": {"size": "1Gi"}}),
        json!({"shards": 1, "storage": {"size": "1Gi", "retain": "Delete"}, "deletion": {"policy": "Retain"}}),
    ] {
        let (scene, _) = deleted(&spec).await;
        assert_eq!(scene.memory.names("persistentvolumeclaims"), ["data-orders-0-0"]);
        assert_eq!(scene.memory.names("secrets"), ["orders-auth", "orders-internal"]);
        assert_eq!(scene.memory.names("statefulsets"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn nothing_goes_before_the_pods_have_gone() {
    let spec = json!({"shards": 1});
    let scene = Scene::new(&spec);
    scene.apply().await.unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": "orders"});
    scene.memory.put("pods", json!({"metadata": {"name": "orders-0-0", "namespace": "shop", "labels": labels}}));
    scene.memory.put("redisclusters", going(&spec));
    for _ in 0..3 {
        let progress = delete(&scene.memory.kubernetes(), &scene.gathered()).await.unwrap();
        assert!(matches!(progress, Progress::Waiting(_)));
    }
    assert_eq!(scene.memory.names("statefulsets"), Vec::<String>::new());
    assert_eq!(scene.memory.names("secrets").len(), 2);
}

#[tokio::test]
async fn children_of_another_uid_and_of_an_object_that_is_not_being_deleted_are_left_alone() {
    let spec = json!({"shards": 1});
    let scene = Scene::new(&spec);
    scene.apply().await.unwrap();
    scene.memory.take_writes();
    let progress = delete(&scene.memory.kubernetes(), &scene.gathered()).await.unwrap();
    assert!(matches!(progress, Progress::Waiting(_)));
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());

    let mut other = going(&spec);
    other["metadata"]["uid"] = json!("u2");
    scene.memory.put("redisclusters", other);
    scene.delete().await;
    assert_eq!(scene.memory.names("statefulsets"), ["orders-0"]);
    assert_eq!(scene.memory.take_writes(), ["PATCH redisclusters/orders"]);
}

#[tokio::test]
async fn only_claims_of_members_that_have_left_are_swept() {
    let spec = json!({"shards": 1, "replicasPerShard": 1, "storage": {"size": "1Gi", "retain": "Delete"}});
    let scene = Scene::new(&spec);
    scene.apply().await.unwrap();
    for (shard, ordinal) in [(0, 0), (0, 1), (0, 2), (1, 0)] {
        scene.memory.put("persistentvolumeclaims", claim(shard, ordinal, "1Gi"));
    }
    sweep_claims(&scene.memory.kubernetes(), &scene.gathered(), &scene.resolved()).await.unwrap();
    assert_eq!(scene.memory.names("persistentvolumeclaims"), ["data-orders-0-0", "data-orders-0-1"]);
}

#[tokio::test]
async fn nothing_is_written_without_the_lease() {
    let scene = Scene::new(&json!({}));
    let resolved = scene.resolved();
    let kubernetes = scene.memory.kubernetes_of(Guard::new());
    let (objects, mut repairs) = (build(&resolved).unwrap(), Repairs::default());
    let outcome = apply(&kubernetes, &scene.gathered(), &resolved, objects, &mut repairs, Instant::now()).await;
    assert!(outcome.is_err());
    assert_eq!(scene.memory.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn of_two_controllers_one_leads_and_the_other_follows_when_the_lease_is_given_back() {
    let memory = Memory::default();
    let started = |name: &str| {
        let (guard, stop) = (Guard::new(), CancellationToken::new());
        let task = lease::hold(
            memory.client(),
            lease::Name::of_controller("kun-system"),
            name.to_owned(),
            guard.clone(),
            stop.clone(),
        );
        (guard, stop, tokio::spawn(task))
    };
    let until = async |guard: &Guard| {
        let wait = async {
            while !guard.is_valid() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(hung::process(), wait).await.unwrap();
    };
    let (first, stop_first, first_task) = started("one");
    until(&first).await;
    let (second, _stop, _second_task) = started("two");
    // The second one has had time to ask, and was told to wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let led = async {
        loop {
            let looked = Instant::now();
            let (leads, follows) = (first.is_valid(), !second.is_valid());
            // So long the lease holds after its holder has stopped acting on it. Else the machine stood still, and it may have run out.
            if leads && looked.elapsed() < lease::MARGIN {
                return assert!(follows, "both lead");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(hung::process(), led).await.unwrap();
    stop_first.cancel();
    first_task.await.unwrap();
    assert!(!first.is_valid());
    until(&second).await;
    let lease = memory.get("leases", "kun-controller").unwrap();
    assert_eq!(
        (lease["spec"]["holderIdentity"].clone(), lease["spec"]["leaseTransitions"].clone()),
        (json!("two"), json!(2))
    );
}
