//! A pod's process: started, restarted, stopped, killed, adopted.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::DeleteParams;
use serde_json::json;

use crate::stage::{Stage, address, condition, container, is_alive, is_ready, kill, phase, pid, pod, until_there};

#[tokio::test]
async fn a_pod_becomes_a_process_with_an_address_of_its_own() {
    let stage = Stage::start().await;
    stage.create::<Pod>(pod("one", "Always", "exec sleep 600")).await;
    stage.create::<Pod>(pod("two", "Always", "exec sleep 600")).await;
    let (one, two) = (stage.await_ready("one").await, stage.await_ready("two").await);
    assert_ne!(address(&one), address(&two));
    assert!(is_alive(pid(&one)) && phase(&one) == "Running");
    assert_eq!(one.spec.as_ref().unwrap().node_name.as_deref(), Some("standalone"));
    // It begins one as the first thing that it does.
    let session = stage.until("a session of its own: a Ctrl-C at the terminal does not reach it", async || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid(&one))).unwrap();
        let session: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().parse().unwrap();
        (session == pid(&one)).then_some(())
    });
    session.await;
    let events = stage.until("an event", async || {
        let events = stage.api::<Event>().list(&Default::default()).await.unwrap().items;
        Some(events).filter(|events| events.iter().any(|e| e.reason.as_deref() == Some("Started")))
    });
    events.await;
}

#[tokio::test]
async fn a_process_that_is_killed_comes_back_fast_then_slower() {
    let stage = Stage::start().await;
    stage.create::<Pod>(pod("one", "Always", "exec sleep 600")).await;
    let first = stage.await_ready("one").await;
    kill(pid(&first));
    let second = stage.await_pod("one", "restarted", |pod| container(pod).restart_count == 1 && is_ready(pod)).await;
    assert_eq!(address(&first), address(&second), "a restart in place keeps the address");
    assert_ne!(pid(&first), pid(&second));
    let ended = container(&second).last_state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.signal), (137, Some(9)));
    // The more often it fails, the longer the node waits, and says so. A short wait may go by unseen.
    let mut last = second;
    let (failures, millis) = loop {
        let restarts = container(&last).restart_count;
        kill(pid(&last));
        let again = |pod: &Pod| container(pod).restart_count > restarts && is_ready(pod);
        last = stage.await_pod("one", "waiting or there again", |pod| delay(pod).is_some() || again(pod)).await;
        if let Some(delay) = delay(&last) {
            break delay;
        }
    };
    assert!(failures > 1 && millis == doubled(failures), "{failures} failures: {millis} ms");
    stage.await_pod("one", "there again", is_ready).await;
}

/// How often in a row a process failed, and how many milliseconds the node waits before it starts it again: the status says so.
fn delay(pod: &Pod) -> Option<(u32, u64)> {
    let waiting = container(pod).state?.waiting?;
    let message = waiting.message.filter(|_| waiting.reason.as_deref() == Some("CrashLoopBackOff"))?;
    let (failures, rest) = message.split_once(", ")?.1.split_once(" times in a row; it is started again ")?;
    Some((failures.parse().ok()?, rest.split_once(" ms")?.0.parse().ok()?))
}

/// What that is to be.
fn doubled(failures: u32) -> u64 {
    (100 << (failures - 1).min(16)).min(10_000)
}

#[tokio::test]
async fn a_process_that_cannot_stay_up_waits_longer_each_time_and_says_so() {
    let stage = Stage::start().await;
    let log = stage.scratch().join("starts");
    stage.create::<Pod>(pod("one", "Always", &format!("echo started >> {}; exit 3", log.display()))).await;
    let looping = |pod: &Pod| delay(pod).is_some() && container(pod).restart_count >= 4;
    let seen = stage.await_pod("one", "a crash loop", looping).await;
    assert_eq!(container(&seen).last_state.unwrap().terminated.unwrap().exit_code, 3);
    let (failures, millis) = delay(&seen).unwrap();
    assert_eq!((failures, millis), (u32::try_from(container(&seen).restart_count).unwrap(), doubled(failures)));
    assert!(std::fs::read_to_string(log).unwrap().lines().count() >= 4, "it was started each time");
}

#[tokio::test]
async fn a_deleted_pod_gets_its_grace_period_and_then_no_more() {
    let stage = Stage::start().await;
    let file = |name: &str| stage.scratch().join(name);
    let traps = |name: &str, then: &str| {
        let (told, set) = (file(&format!("{name}.told")), file(&format!("{name}.set")));
        let (told, set) = (told.display(), set.display());
        pod(name, "Always", &format!("trap 'touch {told}; {then}' TERM; touch {set}; while :; do sleep 0.1; done"))
    };
    for (name, then) in [("polite", "exit 0"), ("deaf", ":"), ("slow", ":")] {
        stage.create::<Pod>(traps(name, then)).await;
        until_there(&stage, &file(&format!("{name}.set"))).await;
    }
    let (polite, deaf) = (stage.await_ready("polite").await, stage.await_ready("deaf").await);
    let slow = stage.await_ready("slow").await;
    // That of `deaf` is longer than a machine stands still; the others' do not end within this test.
    for (name, grace) in [("slow", 100_000), ("polite", 600), ("deaf", 5 * hung::stretch())] {
        let deletion = DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
        stage.api::<Pod>().delete(name, &deletion).await.unwrap();
    }
    let seen = stage.await_pod("slow", "not ready while it stops", |pod| !is_ready(pod)).await;
    assert!(seen.metadata.deletion_timestamp.is_some());
    stage.until("polite is gone", async || stage.pod("polite").await.is_none().then_some(())).await;
    assert!(file("polite.told").exists() && !is_alive(pid(&polite)));
    stage.until("deaf is gone", async || stage.pod("deaf").await.is_none().then_some(())).await;
    assert!(file("deaf.told").exists(), "it was asked first");
    assert!(!is_alive(pid(&deaf)), "a pod leaves the API only when its process has gone");
    until_there(&stage, &file("slow.told")).await;
    assert!(is_alive(pid(&slow)), "nobody is killed before the grace period is over");
    // The directory goes after the object: a crash between the two leaves a directory to sweep, never a pod without one.
    let left = || std::fs::read_dir(stage.root().join("pods")).unwrap().flatten().map(|entry| entry.file_name());
    let swept = async || left().all(|name| name.to_string_lossy().contains("_slow_")).then_some(());
    stage.until("the directories of those that are gone are gone", swept).await;
}

#[tokio::test]
async fn what_a_process_leaves_behind_is_ended_with_it() {
    let stage = Stage::start().await;
    let child = stage.scratch().join("child");
    let text = format!(
        "sh -c 'trap \"\" TERM HUP; echo $$$$ > {}; while :; do sleep 0.1; done' & exec sleep 600",
        child.display()
    );
    stage.create::<Pod>(pod("one", "Always", &text)).await;
    let first = stage.await_ready("one").await;
    let child_pid =
        stage.until("the child", async || std::fs::read_to_string(&child).ok()?.trim().parse::<i32>().ok()).await;
    assert!(is_alive(child_pid));
    kill(pid(&first));
    stage.await_pod("one", "restarted", |pod| container(pod).restart_count == 1).await;
    assert!(!is_alive(child_pid), "as the end of PID 1 ends a container");
}

#[tokio::test]
async fn a_node_that_was_killed_takes_its_processes_over() {
    let mut stage = Stage::start().await;
    stage.create::<Pod>(pod("stays", "Always", "exec sleep 600")).await;
    stage.create::<Pod>(pod("dies", "Always", "exec sleep 600")).await;
    stage.create::<Pod>(pod("worker", "Never", "exec sleep 600")).await;
    stage.create::<Pod>(pod("goes", "Always", "exec sleep 600")).await;
    let before = stage.await_ready("stays").await;
    let (dies, worker, goes) =
        (stage.await_ready("dies").await, stage.await_ready("worker").await, stage.await_ready("goes").await);
    stage.kill_node().await;
    assert!([&before, &dies, &worker, &goes].iter().all(|pod| is_alive(pid(pod))));
    kill(pid(&dies));
    kill(pid(&worker));
    // Deleted by force while nobody was looking: the API does not know it any more.
    stage
        .api::<Pod>()
        .delete("goes", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() })
        .await
        .unwrap();
    stage.start_node();
    let revived = stage.await_pod("dies", "restarted", |pod| container(pod).restart_count == 1 && is_ready(pod)).await;
    assert_eq!(address(&revived), address(&dies));
    let after = stage.await_ready("stays").await;
    assert_eq!((pid(&after), container(&after).restart_count), (pid(&before), 0));
    assert_eq!(
        after.metadata.resource_version, before.metadata.resource_version,
        "nothing changed, so nothing was written"
    );
    let failed = stage.await_pod("worker", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(container(&failed).state.unwrap().terminated.unwrap().reason.as_deref(), Some("ContainerStatusUnknown"));
    stage.until("the unknown process has ended", async || (!is_alive(pid(&goes))).then_some(())).await;
    stage
        .until("its directory is kept aside", async || {
            std::fs::read_dir(stage.root().join("lost")).unwrap().next().is_some().then_some(())
        })
        .await;
    kill(pid(&after));
    stage.await_pod("stays", "restarted", |pod| container(pod).restart_count == 1 && is_ready(pod)).await;
}

#[tokio::test]
async fn a_node_that_stops_stops_its_pods_side_by_side_and_starts_them_again() {
    let mut stage = Stage::start().await;
    // Each ends when all have been told, and none is killed within this test: one after the other they would never end.
    let names = ["a", "b", "c", "d"];
    for name in names {
        let all: Vec<String> = names.iter().map(|name| format!("-e {name}.told")).collect();
        let until_all = format!("until [ {} ]; do sleep 0.05; done", all.join(" -a "));
        let text = format!(
            "cd {}; rm -f {name}.told; trap 'touch {name}.told; {until_all}; touch {name}.ended; exit 0' TERM; touch {name}.set; \
             while :; do sleep 0.1; done",
            stage.scratch().display()
        );
        let mut object = pod(name, "Always", &text);
        object["spec"]["terminationGracePeriodSeconds"] = json!(100_000);
        stage.create::<Pod>(object).await;
    }
    let first = stage.await_ready("a").await;
    for name in names {
        stage.await_ready(name).await;
        until_there(&stage, &stage.scratch().join(format!("{name}.set"))).await;
    }
    stage.stop_node().await;
    assert!(names.iter().all(|name| stage.scratch().join(format!("{name}.ended")).exists()));
    assert!(!is_alive(pid(&first)));
    assert_eq!(
        condition(&stage.pod("a").await.unwrap(), "Ready"),
        Some("False"),
        "the API is told before the node ends"
    );
    stage.start_node();
    let again = stage.await_ready("a").await;
    assert_eq!(again.metadata.uid, first.metadata.uid);
    assert_eq!(address(&again), address(&first));
}

#[tokio::test]
async fn a_worker_ends_with_its_code_and_message() {
    let stage = Stage::start().await;
    stage.create::<Pod>(pod("good", "Never", "echo '{\"keys\":7}' > $KUN_TERMINATION_LOG")).await;
    stage.create::<Pod>(pod("bad", "Never", "echo why > $KUN_TERMINATION_LOG; exit 4")).await;
    stage.create::<Pod>(pod("tries", "OnFailure", "test -f done || { touch done; exit 1; }")).await;
    let good = stage.await_pod("good", "over", |pod| phase(pod) == "Succeeded").await;
    let bad = stage.await_pod("bad", "over", |pod| phase(pod) == "Failed").await;
    let tries = stage.await_pod("tries", "over", |pod| phase(pod) == "Succeeded").await;
    let ended = |pod: &Pod| container(pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended(&good).exit_code, ended(&good).message.as_deref()), (0, Some("{\"keys\":7}\n")));
    assert_eq!(
        (ended(&bad).exit_code, ended(&bad).message.as_deref(), container(&bad).restart_count),
        (4, Some("why\n"), 0)
    );
    assert_eq!(container(&tries).restart_count, 1);
    assert_eq!(condition(&good, "Ready"), Some("False"));
}

#[tokio::test]
async fn readiness_comes_and_goes_with_its_probe_and_liveness_restarts() {
    let stage = Stage::start().await;
    let mut object = pod("one", "Always", "exec sleep 600");
    let probe = |file: &str, failures: i32| {
        json!({"exec": {"command": ["/bin/sh", "-c", format!("test ! -f {}", stage.scratch().join(file).display())]},
        "periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": failures})
    };
    object["spec"]["containers"][0]["readinessProbe"] = probe("unready", 2);
    object["spec"]["containers"][0]["livenessProbe"] = probe("dead", 2);
    std::fs::write(stage.scratch().join("unready"), "").unwrap();
    stage.create::<Pod>(object).await;
    stage
        .await_pod("one", "running and not ready", |pod| {
            phase(pod) == "Running" && condition(pod, "Ready") == Some("False")
        })
        .await;
    std::fs::remove_file(stage.scratch().join("unready")).unwrap();
    let ready = stage.await_ready("one").await;
    std::fs::write(stage.scratch().join("unready"), "").unwrap();
    let unready = stage.await_pod("one", "not ready", |pod| !is_ready(pod)).await;
    assert_eq!(pid(&ready), pid(&unready), "readiness restarts nothing");
    std::fs::remove_file(stage.scratch().join("unready")).unwrap();
    std::fs::write(stage.scratch().join("dead"), "").unwrap();
    stage.await_pod("one", "restarted", |pod| container(pod).restart_count >= 1).await;
    std::fs::remove_file(stage.scratch().join("dead")).unwrap();
    let after = stage.await_ready("one").await;
    assert!(!is_alive(pid(&ready)) && is_alive(pid(&after)));
}

#[tokio::test]
async fn a_pod_that_cannot_run_says_why_and_runs_when_it_can() {
    let stage = Stage::start().await;
    let mut image = pod("image", "Always", "exec sleep 600");
    image["spec"]["containers"][0]["image"] = json!("docker.io/library/redis:9.9");
    stage.create::<Pod>(image).await;
    let mut program = pod("program", "Always", "");
    program["spec"]["containers"][0]["command"] = json!(["/no/such/program"]);
    stage.create::<Pod>(program).await;
    let mut secret = pod("secret", "Always", "echo \"$WORD\" > word; exec sleep 600");
    secret["spec"]["containers"][0]["env"] =
        json!([{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    stage.create::<Pod>(secret).await;
    let waiting = |pod: &Pod| container(pod).state.and_then(|state| state.waiting).unwrap_or_default();
    for (name, reason, part) in [
        ("image", "ErrImagePull", "7.0.15"),
        ("program", "CreateContainerError", "/no/such/program"),
        ("secret", "CreateContainerConfigError", "\"s\""),
    ] {
        let pod = stage.await_pod(name, reason, |pod| waiting(pod).reason.as_deref() == Some(reason)).await;
        let message = waiting(&pod).message.unwrap();
        assert!(message.contains(part) && phase(&pod) == "Pending", "{message}");
    }
    let data = json!({"metadata": {"name": "s", "namespace": "default"}, "stringData": {"k": "$(id) \"; rm"}});
    stage.create::<k8s_openapi::api::core::v1::Secret>(data).await;
    stage.await_ready("secret").await;
    let pods = std::fs::read_dir(stage.root().join("pods")).unwrap().flatten();
    let directory = pods.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("_secret_")).unwrap();
    let word = stage
        .until("the word", async || std::fs::read_to_string(directory.join("work/word")).ok().filter(|w| !w.is_empty()))
        .await;
    assert_eq!(word, "$(id) \"; rm\n", "a value is a value, whatever it looks like");
}

#[tokio::test]
async fn a_pod_deleted_by_force_is_never_beside_its_successor() {
    let stage = Stage::start().await;
    let (lock, held, bad) =
        (stage.scratch().join("lock"), stage.scratch().join("held"), stage.scratch().join("overlap"));
    // The kernel takes the lock from whoever is gone, killed or not; a child of the shell must not keep it for a moment longer.
    let text = format!(
        "exec 9>>{lock}; flock -n 9 || touch {bad}; touch {held}; trap 'sleep 0.5 9>&-; exit 0' TERM; \
         while :; do sleep 0.05 9>&-; done",
        lock = lock.display(),
        held = held.display(),
        bad = bad.display()
    );
    stage.create::<Pod>(pod("one", "Always", &text)).await;
    for _ in 0..3 {
        let before = stage.await_ready("one").await;
        until_there(&stage, &held).await;
        std::fs::remove_file(&held).unwrap();
        let force = DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
        stage.api::<Pod>().delete("one", &force).await.unwrap();
        stage.create::<Pod>(pod("one", "Always", &text)).await;
        let after = stage
            .await_pod("one", "the successor", |pod| pod.metadata.uid != before.metadata.uid && is_ready(pod))
            .await;
        assert!(!is_alive(pid(&before)));
        assert_ne!(address(&before), address(&after), "a new pod, a fresh address");
    }
    assert!(!bad.exists(), "two processes of one pod name ran at the same time");
}
