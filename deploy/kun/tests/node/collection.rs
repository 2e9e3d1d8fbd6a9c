//! Garbage collection and the end of namespaces.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::stage::{Stage, is_alive, pid, set};

fn deletion(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

fn owned(name: &str, owners: &[(&ConfigMap, bool)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(owner, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name,
            "uid": owner.metadata.uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
}

#[tokio::test]
async fn the_pods_of_a_deleted_set_go_and_their_processes_with_them() {
    let stage = Stage::start().await;
    stage.create::<StatefulSet>(set("s", 2, "Parallel", "exec sleep 600")).await;
    let pods = [stage.await_ready("s-0").await, stage.await_ready("s-1").await];
    stage.api::<StatefulSet>().delete("s", &deletion(PropagationPolicy::Background)).await.unwrap();
    for name in ["s-0", "s-1"] {
        stage.until("gone", async || stage.pod(name).await.is_none().then_some(())).await;
    }
    assert!(pods.iter().all(|pod| !is_alive(pid(pod))));
}

#[tokio::test]
async fn in_the_foreground_the_set_goes_last() {
    let stage = Stage::start().await;
    let traps = stage.scratch().join("traps");
    let slow = format!("trap 'sleep 0.5; exit 0' TERM; echo set >> {}; while :; do sleep 0.1; done", traps.display());
    stage.create::<StatefulSet>(set("s", 2, "Parallel", &slow)).await;
    let pods = [stage.await_ready("s-0").await, stage.await_ready("s-1").await];
    let both = async || (std::fs::read_to_string(&traps).ok()?.lines().count() == 2).then_some(());
    stage.until("both have set their traps", both).await;
    stage.api::<StatefulSet>().delete("s", &deletion(PropagationPolicy::Foreground)).await.unwrap();
    stage
        .until("the set is gone", async || {
            stage.api::<StatefulSet>().get_opt("s").await.unwrap().is_none().then_some(())
        })
        .await;
    assert!(pods.iter().all(|pod| !is_alive(pid(pod))));
    assert!(stage.pod("s-0").await.is_none() && stage.pod("s-1").await.is_none());
}

#[tokio::test]
async fn orphans_live_on_without_an_owner() {
    let stage = Stage::start().await;
    stage.create::<StatefulSet>(set("s", 1, "Parallel", "exec sleep 600")).await;
    let before = stage.await_ready("s-0").await;
    stage.api::<StatefulSet>().delete("s", &deletion(PropagationPolicy::Orphan)).await.unwrap();
    stage
        .until("the set is gone", async || {
            stage.api::<StatefulSet>().get_opt("s").await.unwrap().is_none().then_some(())
        })
        .await;
    let after = stage.await_pod("s-0", "free", |pod| pod.metadata.owner_references.is_none()).await;
    assert!(is_alive(pid(&after)) && pid(&after) == pid(&before));
}

#[tokio::test]
async fn an_object_stays_while_one_of_its_owners_does_and_an_unknown_owner_deletes_nothing() {
    let stage = Stage::start().await;
    let (a, b): (ConfigMap, ConfigMap) = (stage.create(owned("a", &[])).await, stage.create(owned("b", &[])).await);
    stage.create::<Secret>(owned("both", &[(&a, false), (&b, false)])).await;
    let mut strange = owned("strange", &[(&a, false)]);
    strange["metadata"]["ownerReferences"][0]["kind"] = json!("Widget");
    strange["metadata"]["ownerReferences"][0]["apiVersion"] = json!("example.com/v1");
    stage.create::<Secret>(strange).await;
    // Same name, another uid: to this dependent its owner is absent.
    let mut late = owned("late", &[(&a, false)]);
    late["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    stage.create::<Secret>(late).await;
    let secrets = stage.api::<Secret>();
    stage.until("late is collected", async || secrets.get_opt("late").await.unwrap().is_none().then_some(())).await;
    stage.api::<ConfigMap>().delete("a", &DeleteParams::default()).await.unwrap();
    stage
        .until("one owner is left", async || {
            let owners = secrets.get("both").await.unwrap().metadata.owner_references.unwrap_or_default();
            (owners.len() == 1 && owners[0].name == "b").then_some(())
        })
        .await;
    stage.api::<ConfigMap>().delete("b", &DeleteParams::default()).await.unwrap();
    stage.until("both is collected", async || secrets.get_opt("both").await.unwrap().is_none().then_some(())).await;
    assert!(secrets.get_opt("strange").await.unwrap().is_some(), "what is not known is not absent");
}

#[tokio::test]
async fn a_namespace_goes_when_its_content_has_gone_and_finalizers_are_respected() {
    let stage = Stage::start().await;
    stage.create::<Namespace>(json!({"metadata": {"name": "shop"}})).await;
    let mut object = set("s", 2, "Parallel", "exec sleep 600");
    object["metadata"]["namespace"] = json!("shop");
    object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    stage.create::<StatefulSet>(object).await;
    let mut held = owned("held", &[]);
    held["metadata"]["namespace"] = json!("shop");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    stage.create::<ConfigMap>(held).await;
    let pods: Api<Pod> = Api::namespaced(stage.admin.clone(), "shop");
    let pod = stage.until("ready", async || pods.get_opt("s-1").await.unwrap().filter(crate::stage::is_ready)).await;
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    stage
        .until("the pods are gone", async || {
            pods.list(&Default::default()).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    assert!(!is_alive(pid(&pod)));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(stage.admin.clone(), "shop");
    stage
        .until("the claims are gone", async || {
            claims.list(&Default::default()).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    // That it stays takes a moment to see.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(
        namespaces.get_opt("shop").await.unwrap().is_some(),
        "a finalizer holds its object, the object its namespace"
    );
    let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), "shop");
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    stage
        .until("the namespace is gone", async || namespaces.get_opt("shop").await.unwrap().is_none().then_some(()))
        .await;
    assert_eq!(std::fs::read_dir(stage.root().join("volumes")).unwrap().count(), 0);
}
