//! A pod that is replaced while its process runs on.

use std::{fs, io::ErrorKind, path::Path};

use rustix::process::{Pid, Signal, kill_process};
use types::agent::AgentPhase;

use crate::{
    crash::write_to_first_shard,
    harness::{Cluster, Pod, eventually, patient},
};

/// The next pod of the first one's name, with what lies on its volume now; it is not started. Gives its number.
fn next(cluster: &mut Cluster) -> usize {
    let next = cluster.successor();
    copy(&cluster.pods[0].dir.join("data"), &cluster.pods[next].dir.join("data"));
    next
}

async fn replaced(cluster: &mut Cluster) -> usize {
    let next = next(cluster);
    // The machine of the former pod stands still for a moment, just when it is asked.
    cluster.pods[0].signal(Signal::STOP);
    cluster.pods[next].start();
    eventually("silence is heard", async || cluster.pods[next].log().contains("heard=Quiet")).await;
    cluster.pods[0].signal(Signal::CONT);
    next
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            // Some files are there for a moment only.
            let copied = fs::copy(entry.path(), to).map(drop);
            assert!(copied.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::NotFound), "{copied:?}");
        }
    }
}

/// Its node is said to run at the former one's address, and is not started.
async fn is_held_beside(cluster: &Cluster, next: usize, former: &str) {
    eventually("it is said to run", async || {
        let report = cluster.report(&cluster.pods[next]).await;
        report.is_some_and(|report| (report.phase, report.runs_at.as_deref()) == (AgentPhase::Held, Some(former)))
    })
    .await;
}

async fn follows_its_heir(pod: &Pod, keys: i64) {
    eventually("it follows its heir, and has all that was acknowledged", async || {
        pod.is_replica().await && pod.dbsize().await == keys
    })
    .await;
}

/// Before, its replica was asked to take over from a primary that served, or a second process of the node was started: always, and then where the
/// first one was silent for a second.
#[tokio::test]
async fn a_node_whose_former_pod_runs_on_is_started_when_that_has_ended() {
    let mut cluster = Cluster::form(70, patient(), 3, 1).await;
    write_to_first_shard(&cluster, "a", 100).await;
    let id = cluster.pods[0].id().await;
    let next = replaced(&mut cluster).await;
    let (former, own) = (cluster.pods[0].redis().to_string(), cluster.pods[next].redis().to_string());
    eventually("it is held", async || {
        let report = cluster.report(&cluster.pods[next]).await;
        report.is_some_and(|report| {
            let why = report.held_because.unwrap_or_default();
            report.phase == AgentPhase::Held
                && (report.starts, report.runs_at.as_ref()) == (0, Some(&former))
                && report.node_id.as_deref() == Some(id.as_str())
                && why.contains(&former)
                && why.contains(&own)
        })
    })
    .await;
    // Nobody's word starts it, whoever gives it.
    for how in [r#"{"how":"AsIs"}"#, r#"{"how":"Blank"}"#] {
        let told = cluster.as_user("kun:controller", &cluster.pods[next], "POST", "/v1/release", how).await;
        assert_eq!(told.0, 409, "{}", told.1);
    }
    write_to_first_shard(&cluster, "b", 100).await;
    assert!(!cluster.pods[0].is_replica().await, "its replica was asked to take over");
    assert!(tokio::net::TcpStream::connect(cluster.pods[next].redis()).await.is_err(), "it was started");
    // Its replica has more by now than the copy here, which is no reason to tell of it as of a member without an identity.
    let report = cluster.report(&cluster.pods[next]).await.unwrap();
    assert_eq!((report.node_id.as_deref(), report.runs_at), (Some(id.as_str()), Some(former)));
    // It ends, and hands over as it does: the next pod begins with that.
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    assert_eq!(cluster.pods[next].id().await, id);
    eventually("it says that it runs", async || {
        let report = cluster.report(&cluster.pods[next]).await;
        report.is_some_and(|report| (report.phase, report.starts, report.runs_at) == (AgentPhase::Running, 1, None))
    })
    .await;
    follows_its_heir(&cluster.pods[next], 200).await;
}

/// Before, that its address refused was believed at once: its replica was asked to take over from the primary that fed it.
#[tokio::test]
async fn a_node_whose_former_agent_is_gone_runs_as_long_as_it_feeds_its_replica() {
    let mut cluster = Cluster::form(47, patient(), 3, 1).await;
    write_to_first_shard(&cluster, "a", 100).await;
    let id = cluster.pods[0].id().await;
    let next = next(&mut cluster);
    cluster.pods[0].signal(Signal::KILL);
    cluster.pods[0].ended().await;
    cluster.pods[next].start();
    let former = cluster.pods[0].redis().to_string();
    is_held_beside(&cluster, next, &former).await;
    write_to_first_shard(&cluster, "b", 100).await;
    assert!(!cluster.pods[0].is_replica().await, "its replica was asked to take over");
    assert!(!cluster.pods[next].log().contains("asking a replica to take over"), "{}", cluster.pods[next].log());
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[next].id().await, id);
    follows_its_heir(&cluster.pods[next], 200).await;
}

/// Before, three seconds in which it did not say whom it follows were enough: the node was started beside the process that fed it, both took writes,
/// and the replica followed now the one and now the other.
#[tokio::test]
async fn a_node_waits_for_a_replica_that_is_too_late_to_say_who_feeds_it() {
    let mut cluster = Cluster::form(49, patient(), 3, 1).await;
    write_to_first_shard(&cluster, "a", 100).await;
    let next = next(&mut cluster);
    let replica = Pid::from_raw(cluster.pods[3].redis_pid().unwrap()).unwrap();
    kill_process(replica, Signal::STOP).unwrap();
    cluster.pods[0].signal(Signal::KILL);
    cluster.pods[0].ended().await;
    cluster.pods[next].start();
    let is_late = "or has not said in time whether it has";
    eventually("it is waited for", async || cluster.pods[next].log().contains(is_late)).await;
    kill_process(replica, Signal::CONT).unwrap();
    let former = cluster.pods[0].redis().to_string();
    is_held_beside(&cluster, next, &former).await;
    write_to_first_shard(&cluster, "b", 100).await;
    cluster.pods[0].kill_redis();
    follows_its_heir(&cluster.pods[next], 200).await;
}
