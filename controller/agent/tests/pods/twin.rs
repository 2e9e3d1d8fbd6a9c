//! One node in two processes: a copy of a member's files in another one's volume.

use std::{fs, path::Path};

use rustix::process::Signal;
use types::agent::{AgentConfig, AgentPhase, AgentReport, Hold};

use crate::harness::{Cluster, Pod, config, eventually, fill_everywhere};

fn always() -> AgentConfig {
    AgentConfig { append_only: types::cluster::AppendOnly::Always, ..config() }
}

/// The files of `from`'s server, which goes on, in the place of those of `to`, which is down.
fn copy_files(from: &Pod, to: &Pod) {
    fs::copy(from.data("nodes.conf"), to.data("nodes.conf")).unwrap();
    let logs = to.data("appendonlydir");
    fs::remove_dir_all(&logs).unwrap();
    fs::create_dir(&logs).unwrap();
    for file in fs::read_dir(from.data("appendonlydir")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), logs.join(file.file_name())).unwrap();
    }
}

async fn notes_who_is_at_home(pod: &Pod) {
    let id = pod.id().await;
    eventually("the volume says which node is at home there", async || {
        fs::read_to_string(pod.data("kun-member.json")).is_ok_and(|text| text.contains(id.as_str()))
    })
    .await;
}

async fn end(pod: &mut Pod) {
    pod.signal(Signal::TERM);
    assert_eq!(pod.ended().await, Some(0));
}

/// Held for a reason with these words.
async fn held(cluster: &Cluster, pod: usize, words: &str) -> AgentReport {
    let mut found = None;
    eventually(&format!("it is held: {words}"), async || {
        found = cluster.report(&cluster.pods[pod]).await;
        found.as_ref().is_some_and(|report| {
            report.phase == AgentPhase::Held && report.held_because.as_ref().is_some_and(|why| why.contains(words))
        })
    })
    .await;
    found.unwrap()
}

fn set_aside(pod: &Pod) -> Vec<std::path::PathBuf> {
    let kept = fs::read_dir(pod.data("")).unwrap().map(|entry| entry.unwrap().path());
    kept.filter(|path| path.to_string_lossy().contains("quarantine-")).collect()
}

/// Else its agent would have the node's replica take over, as from a process that is dead.
#[tokio::test]
async fn a_copy_of_a_running_nodes_files_is_not_started_and_no_role_moves() {
    let mut cluster = Cluster::form(57, always(), 3, 1).await;
    fill_everywhere(&cluster, 100).await;
    let (id, own) = (cluster.pods[0].id().await, cluster.pods[4].id().await);
    notes_who_is_at_home(&cluster.pods[4]).await;
    end(&mut cluster.pods[4]).await;
    copy_files(&cluster.pods[0], &cluster.pods[4]);
    cluster.pods[4].start();
    let report = held(&cluster, 4, &format!("says that node {own} is at home there")).await;
    assert_eq!((report.node_id, report.holds_data, report.ordered), (None, true, false));
    end(&mut cluster.pods[4]).await;
    // Files that came there without a word of whose they are.
    fs::remove_file(cluster.pods[4].data("kun-member.json")).unwrap();
    cluster.pods[4].start();
    let report = held(&cluster, 4, &format!("node {id} of these files runs at {}", cluster.pods[0].redis())).await;
    assert_eq!((report.node_id, report.holds_data, report.ordered), (None, true, false));
    assert_eq!(
        cluster.as_user("kun:controller", &cluster.pods[4], "POST", "/v1/release", "{\"how\":\"AsIs\"}").await.0,
        202
    );
    fill_everywhere(&cluster, 100).await;
    held(&cluster, 4, "runs at").await;
    assert!(!cluster.pods[0].is_replica().await && cluster.pods[3].is_replica().await, "the role is where it was");
    // Once it ends there, it starts here.
    let pod = &cluster.pods[4];
    assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", "{\"how\":\"Blank\"}").await.0, 202);
    assert_ne!(pod.id().await, id);
    assert_eq!((pod.dbsize().await, set_aside(pod).len()), (0, 1));
    notes_who_is_at_home(pod).await;
}

/// Both serve slot 0; what is written here is nowhere else.
async fn write_here(pod: &Pod) {
    let mut redis = pod.login("default", crate::harness::APPLICATION).await;
    eventually("it serves", async || redis.call(&["SET", "{06S}alone", "here"]).await.is_ok_and(|reply| reply.is_ok()))
        .await;
}

fn log_holds(dir: &Path, words: &str) -> bool {
    let files = fs::read_dir(dir.join("appendonlydir")).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().any(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).contains(words))
}

#[tokio::test]
async fn a_member_is_held_by_an_order_that_is_true_and_keeps_what_it_has() {
    let mut cluster = Cluster::form(58, always(), 3, 0).await;
    let double = cluster.add();
    cluster.pods[double].id().await;
    end(&mut cluster.pods[double]).await;
    fs::remove_file(cluster.pods[double].data("kun-member.json")).unwrap();
    copy_files(&cluster.pods[0], &cluster.pods[double]);
    // Its agent hangs, and cannot say that it runs.
    cluster.pods[0].signal(Signal::STOP);
    cluster.pods[double].start();
    let id = cluster.pods[double].id().await;
    cluster.pods[0].signal(Signal::CONT);
    assert_eq!(id, cluster.pods[0].id().await, "it runs twice");
    write_here(&cluster.pods[double]).await;
    let mut redis = cluster.pods[double].operator().await;
    let process = redis.info(&["server"]).await.unwrap().get("run_id").unwrap().to_owned();
    let epoch = redis.cluster_info().await.unwrap().my_epoch;
    let [own, home] = [double, 0].map(|pod| cluster.pods[pod].name.clone());
    let order =
        Hold { node: id.to_string(), pod: own.clone(), address: cluster.pods[double].ip.into(), epoch, process, home };
    let tell = async |who: &str, pod: usize, order: &Hold| {
        let body = serde_json::to_string(order).unwrap();
        cluster.as_user(who, &cluster.pods[pod], "POST", "/v1/hold", &body).await.0
    };
    assert_eq!(tell("kun:agent:default:orders", double, &order).await, 403);
    assert_eq!(tell("kun:controller", 0, &order).await, 409, "it is of another pod");
    let later = Hold { process: "c".repeat(40), ..order.clone() };
    assert_eq!(tell("kun:controller", double, &later).await, 409, "it is of another process");
    assert_eq!(tell("kun:controller", double, &order).await, 202);
    assert_eq!(cluster.pods[double].ended().await, Some(0), "it is stopped in order");
    assert!(log_holds(&cluster.pods[double].dir.join("data"), "{06S}alone"));
    // Its container is started again.
    cluster.pods[double].start();
    let report = held(&cluster, double, &format!("ran node {}", &id.as_str()[..8])).await;
    assert_eq!((report.node_id, report.holds_data, report.ordered, report.starts), (None, true, true, 0));
    let why = format!("delete the claim and the pod of {own}");
    let (status, text) = cluster.get(&cluster.pods[double], "/readyz").await;
    assert!(status == 503 && text.contains(&why), "{text}");
    let pod = &cluster.pods[double];
    assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", "{\"how\":\"AsIs\"}").await.0, 202);
    eventually("the node serves at its home", async || {
        matches!(cluster.client().set("{06S}home", "there").await, resp::Outcome::Acked(_))
    })
    .await;
    assert_eq!(cluster.pods[0].id().await, id);
    held(&cluster, double, "ran node").await;
    assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", "{\"how\":\"Blank\"}").await.0, 202);
    assert_ne!(pod.id().await, id);
    let aside = set_aside(pod).pop().unwrap();
    assert!(log_holds(&aside, "{06S}alone") && aside.join("kun-held.json").exists());
    assert!(!cluster.report(pod).await.unwrap().ordered);
}
