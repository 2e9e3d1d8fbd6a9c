//! StatefulSets on the node.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::{Stage, address, is_alive, is_ready, pid, set};

async fn status(stage: &Stage, name: &str) -> k8s_openapi::api::apps::v1::StatefulSetStatus {
    stage.api::<StatefulSet>().get(name).await.unwrap().status.unwrap_or_default()
}

async fn scale(stage: &Stage, name: &str, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    stage.api::<StatefulSet>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn names(stage: &Stage) -> Vec<String> {
    let pods = stage.api::<Pod>().list(&Default::default()).await.unwrap();
    pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

async fn await_names(stage: &Stage, expected: &[&str]) {
    stage.until(&format!("pods {expected:?}"), async || (names(stage).await == expected).then_some(())).await;
}

#[tokio::test]
async fn a_parallel_set_scales_up_and_down_and_counts_truly() {
    let stage = Stage::start().await;
    stage.create::<StatefulSet>(set("s", 2, "Parallel", "exec sleep 600")).await;
    stage.until("two ready", async || (status(&stage, "s").await.ready_replicas == Some(2)).then_some(())).await;
    scale(&stage, "s", 4).await;
    stage.until("four ready", async || (status(&stage, "s").await.ready_replicas == Some(4)).then_some(())).await;
    await_names(&stage, &["s-0", "s-1", "s-2", "s-3"]).await;
    let last = stage.await_ready("s-3").await;
    scale(&stage, "s", 1).await;
    await_names(&stage, &["s-0"]).await;
    assert!(!is_alive(pid(&last)));
    stage
        .until("one counted", async || {
            let set = stage.api::<StatefulSet>().get("s").await.unwrap();
            let status = set.status.clone().unwrap();
            let counts = (status.replicas, status.ready_replicas, status.updated_replicas, status.observed_generation);
            (counts == (1, Some(1), Some(1), set.metadata.generation)).then_some(())
        })
        .await;
    let status = status(&stage, "s").await;
    assert_eq!(status.current_revision, status.update_revision);
    assert_eq!(last.metadata.labels.unwrap()["controller-revision-hash"], status.update_revision.unwrap());
}

#[tokio::test]
async fn a_deleted_pod_comes_back_as_another_with_a_fresh_address_and_the_new_template() {
    let stage = Stage::start().await;
    stage.create::<StatefulSet>(set("s", 1, "Parallel", "exec sleep 600")).await;
    let before = stage.await_ready("s-0").await;
    let patch = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}));
    stage.api::<StatefulSet>().patch("s", &PatchParams::default(), &patch).await.unwrap();
    stage
        .until("the new revision", async || {
            let status = status(&stage, "s").await;
            (status.updated_replicas == Some(0) && status.update_revision != status.current_revision).then_some(())
        })
        .await;
    assert_eq!(stage.pod("s-0").await.unwrap().metadata.uid, before.metadata.uid, "OnDelete replaces nobody");
    stage.api::<Pod>().delete("s-0", &DeleteParams::default()).await.unwrap();
    let after = stage.await_pod("s-0", "another", |pod| pod.metadata.uid != before.metadata.uid && is_ready(pod)).await;
    assert_eq!(after.metadata.annotations.unwrap()["v"], "2");
    assert_ne!(address(&before), stage.await_ready("s-0").await.status.unwrap().pod_ip.unwrap());
    assert!(!is_alive(pid(&before)));
}

#[tokio::test]
async fn a_rolling_update_replaces_one_pod_at_a_time_from_the_top() {
    let stage = Stage::start().await;
    let mut object = set("s", 3, "Parallel", "exec sleep 600");
    object["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    stage.create::<StatefulSet>(object).await;
    stage.until("three ready", async || (status(&stage, "s").await.ready_replicas == Some(3)).then_some(())).await;
    let patch = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}));
    stage.api::<StatefulSet>().patch("s", &PatchParams::default(), &patch).await.unwrap();
    stage
        .until("all updated", async || {
            let set = stage.api::<StatefulSet>().get("s").await.unwrap();
            let status = set.status.clone().unwrap_or_default();
            let done = status.updated_replicas == Some(3) && status.ready_replicas == Some(3);
            let seen = status.observed_generation == set.metadata.generation;
            (done && seen && status.current_revision == status.update_revision).then_some(())
        })
        .await;
    let written =
        async |name: &str| stage.pod(name).await.unwrap().metadata.resource_version.unwrap().parse::<u64>().unwrap();
    let order = [written("s-2").await, written("s-1").await, written("s-0").await];
    assert!(order.is_sorted(), "the highest ordinal goes first: {order:?}");
}

#[tokio::test]
async fn an_ordered_set_starts_the_next_when_the_one_before_is_ready() {
    let stage = Stage::start().await;
    let gate = stage.scratch().join("gate");
    let mut object = set("s", 2, "OrderedReady", "exec sleep 600");
    let probe =
        json!({"exec": {"command": ["/bin/sh", "-c", format!("test -f {}", gate.display())]}, "periodSeconds": 1});
    object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe;
    stage.create::<StatefulSet>(object).await;
    stage.await_pod("s-0", "running", |pod| crate::stage::phase(pod) == "Running").await;
    // That nobody follows takes a moment to see.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(names(&stage).await, ["s-0"]);
    std::fs::write(gate, "").unwrap();
    stage.await_ready("s-1").await;
}

#[tokio::test]
async fn at_rest_nothing_is_written() {
    let stage = Stage::start().await;
    stage.create::<StatefulSet>(set("s", 3, "Parallel", "exec sleep 600")).await;
    stage.until("three ready", async || (status(&stage, "s").await.ready_replicas == Some(3)).then_some(())).await;
    let revision = async || stage.api::<Pod>().list(&Default::default()).await.unwrap().metadata.resource_version;
    // What is still to be written after they are ready may take its time; then the store's one counter stands still.
    stage
        .until("three seconds in which nothing is written", async || {
            let before = revision().await;
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            (revision().await == before).then_some(())
        })
        .await;
}
