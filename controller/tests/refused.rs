//! Objects of a cluster that runs, and that cannot be written: webhooks of others, quotas, somebody else's objects.

use std::time::Instant;

use controller::apply::Repairs;
use serde_json::{Value, json};

use crate::kubernetes::{Scene, claim, cluster};
use crate::memory::Refusal;

/// Every object of it has to be written anew but its Secrets.
fn larger() -> Value {
    let resources = json!({"limits": {"memory": "2Gi"}});
    json!({"config": {"slowlog-max-len": "1"}, "resources": resources, "networkPolicy": {"clients": [{"podSelector": {}}]}, "replicasPerShard": 2})
}

/// A cluster that runs, and that is to be another one.
async fn changed() -> Scene {
    let scene = Scene::new(&json!({}));
    scene.apply().await.unwrap();
    scene.memory.put("redisclusters", cluster(&larger()));
    scene.memory.take_writes();
    scene
}

/// Before, the first object that could not be written kept all after it from being written, and nothing was planned.
#[tokio::test]
async fn an_object_that_is_refused_stops_no_other_and_is_asked_for_now_and_then() {
    let scene = changed().await;
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    scene.memory.refuse(Some(("statefulsets/orders-0", Refusal::Broken)));
    let told = "StatefulSet orders-0 cannot be written: taking over what we wrote of StatefulSet orders-0: InternalError (500)";
    for (at, asked) in [(start, true), (start, false), (start + types::patience::MOST, true)] {
        let applied = scene.apply_at(&mut repairs, at).await.unwrap();
        assert_eq!(applied.refused, [told]);
        let writes = scene.memory.take_writes();
        assert_eq!(writes.iter().any(|write| write.ends_with("statefulsets/orders-0")), asked, "{writes:?}");
    }
    let size = |set: &str| scene.memory.get("statefulsets", set).unwrap()["spec"]["replicas"].clone();
    assert_eq!(["orders-0", "orders-1", "orders-2"].map(size), [json!(2), json!(3), json!(3)]);
    scene.memory.refuse(None);
    let applied = scene.apply_at(&mut repairs, start + types::patience::MOST * 2).await.unwrap();
    assert_eq!((applied.changed, applied.refused), (vec!["StatefulSet orders-0".to_owned()], vec![]));
    let applied = scene.apply_at(&mut repairs, start + types::patience::MOST * 2).await.unwrap();
    assert_eq!(applied, controller::apply::Applied::default());
}

#[tokio::test]
async fn a_name_that_somebody_else_has_taken_stops_nothing_else() {
    let scene = changed().await;
    scene.memory.clear("services");
    scene.memory.put("services", json!({"metadata": {"name": "orders", "namespace": "shop"}, "spec": {"ports": []}}));
    let applied = scene.apply().await.unwrap();
    let told =
        "Service orders cannot be written: Service orders exists and belongs to somebody else; it is not touched";
    assert_eq!(applied.refused, [told]);
    assert_eq!(scene.memory.names("services"), ["orders", "orders-nodes"]);
    assert_eq!(scene.memory.get("services", "orders").unwrap()["spec"], json!({"ports": []}));
    assert_eq!(scene.memory.get("statefulsets", "orders-2").unwrap()["spec"]["replicas"], 3);
}

/// A pod that is made from the new template would start with the old configuration.
#[tokio::test]
async fn no_template_is_written_before_what_its_pods_need() {
    let scene = changed().await;
    let before = scene.memory.get("statefulsets", "orders-0").unwrap();
    scene.memory.forbid(Some("configmaps"));
    let applied = scene.apply().await.unwrap();
    let told = "ConfigMap orders-config cannot be written, and StatefulSets stay as they are: taking over what we wrote of \
                ConfigMap orders-config: Forbidden (403)";
    assert_eq!(applied.refused, [told]);
    assert_eq!(scene.memory.get("statefulsets", "orders-0").unwrap(), before);
    assert_eq!((applied.changed, applied.lacks_needs), (vec!["NetworkPolicy orders-members".to_owned()], true));
}

/// Without the internal one every look would ask its members with a new password; the other is for those who use the cluster.
#[tokio::test]
async fn only_the_secret_with_which_members_are_asked_stops_everything_else() {
    for (secret, is_needed) in [("orders-internal", true), ("orders-auth", false)] {
        let scene = changed().await;
        scene.memory.remove("secrets", secret);
        scene.memory.forbid(Some("secrets"));
        let told = format!("creating Secret {secret}: Forbidden (403)");
        if is_needed {
            assert_eq!(scene.apply().await.unwrap_err().to_string(), told);
        } else {
            let applied = scene.apply().await.unwrap();
            let told = format!("Secret {secret} cannot be written, and StatefulSets stay as they are: {told}");
            assert_eq!((applied.refused, applied.lacks_needs), (vec![told], true));
        }
    }
}

/// Each of them takes as long as an answer may.
#[tokio::test(start_paused = true)]
async fn what_is_not_answered_about_is_left_to_the_next_look() {
    let scene = changed().await;
    let mut repairs = Repairs::default();
    scene.memory.refuse(Some(("statefulsets", Refusal::Silent)));
    let start = Instant::now();
    let told = |set: &str| {
        format!(
            "StatefulSet {set} cannot be written: taking over what we wrote of StatefulSet {set}: ServiceError: no answer within 15 s"
        )
    };
    for (look, set) in ["orders-0", "orders-1", "orders-2"].into_iter().enumerate() {
        scene.memory.take_writes();
        let applied = scene.apply_at(&mut repairs, start).await.unwrap();
        assert!(applied.refused.contains(&told(set)), "{look}: {:?}", applied.refused);
        let writes = scene.memory.take_writes();
        let asked: Vec<_> = writes.iter().filter(|write| write.contains("statefulsets")).collect();
        assert_eq!(asked.len(), 1, "{writes:?}");
    }
    // Who waits for its turn is told as well: before, each look told of another one.
    for pauses in [2, 3] {
        let applied = scene.apply_at(&mut repairs, start + types::patience::MOST * pauses).await.unwrap();
        assert_eq!(applied.refused, ["orders-0", "orders-1", "orders-2"].map(told));
    }
}

/// Budgets and Services are nothing that pods need.
#[tokio::test]
async fn what_cannot_be_deleted_is_told_and_stops_nothing_else() {
    let scene = Scene::new(&json!({"shards": 1, "replicasPerShard": 1}));
    scene.apply().await.unwrap();
    scene.memory.put("redisclusters", cluster(&json!({"shards": 1, "replicasPerShard": 0})));
    scene.memory.change("statefulsets", "orders-0", |set| set["spec"]["replicas"] = json!(1));
    scene.memory.forbid(Some("poddisruptionbudgets"));
    let applied = scene.apply().await.unwrap();
    let told = "PodDisruptionBudget orders-0 cannot be deleted: deleting PodDisruptionBudget orders-0: Forbidden (403)";
    assert_eq!(applied.refused, [told]);
}

/// Before, why it could not be written was told of its end, and of what it is to be now, for as long as others were asked first.
#[tokio::test(start_paused = true)]
async fn why_an_object_was_refused_is_told_of_that_wish_alone() {
    let scene = Scene::new(&json!({"shards": 2, "replicasPerShard": 1}));
    scene.apply().await.unwrap();
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    scene.memory.change("poddisruptionbudgets", "orders-1", |budget| budget["spec"] = json!({"maxUnavailable": 0}));
    scene.memory.refuse(Some(("poddisruptionbudgets/orders-1", Refusal::Broken)));
    let told = |name: &str, done: &str, doing: &str, why: &str| {
        format!("PodDisruptionBudget {name} cannot be {done}: {doing} PodDisruptionBudget {name}: {why}")
    };
    let refused = |applied: controller::apply::Applied| applied.refused;
    let written = told("orders-1", "written", "taking over what we wrote of", "InternalError (500)");
    assert_eq!(scene.apply_at(&mut repairs, start).await.map(refused).unwrap(), [written]);
    scene.memory.put("redisclusters", cluster(&json!({"shards": 2, "replicasPerShard": 0})));
    for set in ["orders-0", "orders-1"] {
        scene.memory.change("statefulsets", set, |set| set["spec"]["replicas"] = json!(1));
    }
    scene.memory.refuse(Some(("poddisruptionbudgets", Refusal::Silent)));
    let silent =
        ["orders-0", "orders-1"].map(|name| told(name, "deleted", "deleting", "ServiceError: no answer within 15 s"));
    assert_eq!(scene.apply_at(&mut repairs, start).await.map(refused).unwrap(), silent[..1]);
    assert_eq!(scene.apply_at(&mut repairs, start).await.map(refused).unwrap(), silent);
}

/// Five budgets, or a webhook that is silent about budgets and claims, were as many times 15 s in one look.
#[tokio::test(start_paused = true)]
async fn what_goes_or_grows_without_an_answer_is_left_to_the_next_look() {
    let scene = Scene::new(&json!({"shards": 3, "replicasPerShard": 1}));
    scene.apply().await.unwrap();
    let smaller = json!({"shards": 3, "replicasPerShard": 0, "storage": {"size": "2Gi"}});
    scene.memory.put("redisclusters", cluster(&smaller));
    for shard in 0..3 {
        let name = format!("orders-{shard}");
        scene.memory.change("statefulsets", &name, |set| set["spec"]["replicas"] = json!(1));
        scene.memory.put("persistentvolumeclaims", claim(shard, 0, "1Gi"));
    }
    let (mut repairs, start) = (Repairs::default(), Instant::now());
    scene.memory.refuse(Some(("p", Refusal::Silent)));
    for shard in 0..3 {
        scene.memory.take_writes();
        scene.apply_at(&mut repairs, start).await.unwrap();
        let asked = format!("DELETE poddisruptionbudgets/orders-{shard}");
        let writes = scene.memory.take_writes().into_iter().filter(|write| write.contains(" p")).collect::<Vec<_>>();
        assert_eq!(writes, [asked]);
    }
    scene.memory.take_writes();
    scene.apply_at(&mut repairs, start).await.unwrap();
    assert_eq!(scene.memory.take_writes(), ["PATCH persistentvolumeclaims/data-orders-0-0"]);
}
