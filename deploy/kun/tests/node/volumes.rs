//! Claims, ConfigMaps, Secrets, directories of the machine.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::{Stage, container, pod, set};

#[tokio::test]
async fn a_claim_outlives_its_pod_and_its_data_goes_only_with_the_claim() {
    let stage = Stage::start().await;
    let mut object = set("s", 1, "Parallel", "echo x >> $DIR/log; exec sleep 600");
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    object["spec"]["volumeClaimTemplates"] = json!([template]);
    let main = &mut object["spec"]["template"]["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    main["env"] = json!([{"name": "DIR", "value": "/data"}]);
    stage.create::<StatefulSet>(object).await;
    let first = stage.await_ready("s-0").await;
    let claims = stage.api::<PersistentVolumeClaim>();
    let claim = claims.get("data-s-0").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
    let log = stage.root().join("volumes/default_data-s-0/log");
    stage.until("a first line", async || log.exists().then_some(())).await;
    stage.api::<Pod>().delete("s-0", &DeleteParams::default()).await.unwrap();
    stage
        .await_pod("s-0", "another", |pod| pod.metadata.uid != first.metadata.uid && crate::stage::is_ready(pod))
        .await;
    stage.until("two lines", async || (std::fs::read_to_string(&log).unwrap() == "x\nx\n").then_some(())).await;
    // Deleted while in use: it waits, which takes a moment to see.
    claims.delete("data-s-0", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(log.exists() && claims.get("data-s-0").await.unwrap().metadata.deletion_timestamp.is_some());
    stage.api::<StatefulSet>().delete("s", &DeleteParams::background()).await.unwrap();
    stage.until("the claim is gone", async || claims.get_opt("data-s-0").await.unwrap().is_none().then_some(())).await;
    assert!(!log.exists());
}

/// Before, it said ContainerCreating for as long as it waited, of which nobody is told.
#[tokio::test]
async fn a_pod_whose_claim_is_not_there_says_so_and_starts_once_it_is() {
    let stage = Stage::start().await;
    let mut object = pod("one", "Always", "exec sleep 600");
    object["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]);
    stage.create::<Pod>(object).await;
    let waiting = |pod: &Pod| container(pod).state.and_then(|state| state.waiting).unwrap_or_default();
    let is_told = |pod: &Pod| waiting(pod).reason.as_deref() == Some("CreateContainerConfigError");
    let held = stage.await_pod("one", "told", is_told).await;
    assert_eq!(waiting(&held).message.as_deref(), Some("volume v: persistentvolumeclaim \"missing\" not found"));
    let claim = json!({"metadata": {"name": "missing", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    stage.create::<PersistentVolumeClaim>(claim).await;
    stage.await_ready("one").await;
}

#[tokio::test]
async fn files_of_a_config_map_follow_it_while_the_pod_runs() {
    let stage = Stage::start().await;
    let data =
        |value: &str| json!({"metadata": {"name": "c", "namespace": "default"}, "data": {"key": value, "../up": "x"}});
    let mut first = data("one");
    first["data"].as_object_mut().unwrap().remove("../up");
    stage.create::<ConfigMap>(first).await;
    let mut object = pod("one", "Always", "while :; do cat /mnt/key > seen 2>/dev/null; sleep 0.05; done");
    object["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
    let main = &mut object["spec"]["containers"][0];
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/mnt"}]);
    main["command"] = json!(["/bin/sh", "-c", "while :; do cat \"$0/key\" > seen; sleep 0.05; done", "/mnt"]);
    stage.create::<Pod>(object).await;
    let ready = stage.await_ready("one").await;
    let directory = std::fs::read_dir(stage.root().join("pods")).unwrap().flatten().next().unwrap().path();
    let seen = directory.join("work/seen");
    stage.until("one", async || (std::fs::read_to_string(&seen).ok()? == "one").then_some(())).await;
    let patch = Patch::Merge(json!({"data": {"key": "two"}}));
    stage.api::<ConfigMap>().patch("c", &PatchParams::default(), &patch).await.unwrap();
    stage.until("two", async || (std::fs::read_to_string(&seen).ok()? == "two").then_some(())).await;
    assert_eq!(container(&stage.pod("one").await.unwrap()).restart_count, container(&ready).restart_count);
}

#[tokio::test]
async fn a_directory_of_the_machine_must_be_there_or_be_asked_for() {
    let stage = Stage::start().await;
    let (here, made) = (stage.scratch().join("here"), stage.scratch().join("made/deep"));
    std::fs::create_dir(&here).unwrap();
    let with = |name: &str, path: String, kind: &str| {
        let mut object = pod(name, "Never", "touch \"$DIR/file\"");
        object["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": path, "type": kind}}]);
        let main = &mut object["spec"]["containers"][0];
        main["volumeMounts"] = json!([{"name": "v", "mountPath": "/out"}]);
        main["env"] = json!([{"name": "DIR", "value": "/out"}]);
        object
    };
    stage.create::<Pod>(with("here", here.display().to_string(), "Directory")).await;
    stage.create::<Pod>(with("made", made.display().to_string(), "DirectoryOrCreate")).await;
    stage.create::<Pod>(with("none", stage.scratch().join("none").display().to_string(), "")).await;
    for name in ["here", "made"] {
        stage.await_pod(name, "over", |pod| crate::stage::phase(pod) == "Succeeded").await;
    }
    assert!(here.join("file").exists() && made.join("file").exists());
    let waiting = |pod: &Pod| {
        container(pod).state.and_then(|state| state.waiting).and_then(|waiting| waiting.message).unwrap_or_default()
    };
    stage.await_pod("none", "refused", |pod| waiting(pod).contains("is not a directory")).await;
    for name in ["here", "made"] {
        stage.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
        stage.until("gone", async || stage.pod(name).await.is_none().then_some(())).await;
    }
    assert!(here.join("file").exists() && made.join("file").exists(), "the machine's directories are not the pod's");
}
