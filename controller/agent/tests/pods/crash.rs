//! What a crash must not cost: the data of a shard, or the identity of a member.

use std::{net::IpAddr, time::Duration};

use resp::Outcome;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use types::{
    agent::AgentPhase,
    cluster::{AppendOnly, SavePoint},
    names,
};

use crate::{
    harness::{
        APPLICATION, Cluster, OPERATOR, Pod, REPLICA, config, eventually, patient, signal_redis, taken_for_dead,
    },
    link::{is_left_behind, may_be_elected},
};

/// Writes keys to all shards and returns them.
async fn write(cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut client = cluster.client();
    let keys: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    for key in &keys {
        assert!(matches!(client.set(key, key).await, Outcome::Acked(_)));
    }
    keys
}

pub(crate) async fn assert_readable(cluster: &Cluster, keys: &[String]) {
    let mut client = cluster.client();
    for key in keys {
        assert_eq!(client.get(key).await.unwrap().as_deref(), Some(key.as_bytes()), "{key}");
    }
}

/// Redis makes no replica of a former primary whose heir has got more than it had: measured before, the slot that was on its way and the
/// keys that had arrived stayed with a primary without slots, for ever.
#[tokio::test]
async fn a_primary_whose_heir_has_more_than_it_had_comes_back_as_its_replica() {
    let mut cluster = Cluster::form(39, patient(), 3, 1).await;
    let [former, giver] = [cluster.pods[0].id().await, cluster.pods[1].id().await];
    let [mut to, mut from] = [cluster.pods[0].operator().await, cluster.pods[1].operator().await];
    let key = (0..).map(|n| format!("k{n}")).find(|key| (5461..10922).contains(&resp::slot::key_slot(key))).unwrap();
    let slot = resp::slot::key_slot(&key).to_string();
    assert!(matches!(cluster.client().set(&key, "v").await, resp::Outcome::Acked(_)));
    to.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", giver.as_str()]).await.unwrap();
    from.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", former.as_str()]).await.unwrap();
    let ip = cluster.pods[0].ip.to_string();
    let words = ["MIGRATE", &ip, "6379", "", "0", "60000", "AUTH2", names::USER_OPERATOR, OPERATOR, "KEYS", &key];
    from.call(&words).await.unwrap();
    // What it waits for is what was there at this connection's last command.
    to.call(&["PING"]).await.unwrap();
    to.call(&["WAIT", "1", "0"]).await.unwrap();
    // Its agent is stopped as well: nobody asks the replica.
    cluster.pods[0].signal(Signal::KILL);
    cluster.pods[0].kill_redis();
    cluster.pods[0].ended().await;
    let heir = cluster.pods[3].id().await;
    let mut operator = cluster.pods[3].operator().await;
    takes_over(&cluster.pods[3], &mut operator).await;
    operator.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", giver.as_str()]).await.unwrap();
    for pod in [3, 1] {
        let mut operator = cluster.pods[pod].operator().await;
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", heir.as_str()];
        eventually("it knows the heir", async || operator.call(&words).await.is_ok()).await;
    }
    cluster.pods[0].start();
    eventually("it follows its heir", async || cluster.pods[0].is_replica().await).await;
    cluster.wait_ready().await;
    assert_eq!(cluster.client().get(&key).await.unwrap().unwrap(), "v");
    assert_eq!(cluster.pods[0].dbsize().await, cluster.pods[3].dbsize().await);
}

#[tokio::test]
async fn a_killed_primary_comes_back_as_a_replica_and_nothing_is_lost() {
    let mut cluster = Cluster::form(7, patient(), 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    let id = cluster.pods[0].id().await;
    let killed = async |pod: &mut Pod| {
        pod.kill_redis();
        assert_eq!(pod.ended().await, Some(2), "the agent ends with its Redis");
    };
    cluster.until_replaced(0, killed).await;
    // How fast is what `make bench` measures (`failover`).
    let log = cluster.pods[0].log();
    assert!(log.contains("asking a replica to take over: this process is dead"), "{log}");
    cluster.wait_ready().await;
    assert_eq!(cluster.pods[0].id().await, id);
    assert!(!cluster.pods[3].is_replica().await, "its replica is the primary");
    assert_readable(&cluster, &keys).await;
    let more = write(&cluster, "b", 100).await;
    assert_readable(&cluster, &more).await;
}

#[tokio::test]
async fn a_primary_that_keeps_nothing_on_disk_never_empties_its_replica() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::form(8, volatile, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    cluster.pods[1].kill_redis();
    assert_eq!(cluster.pods[1].ended().await, Some(2));
    cluster.pods[1].start();
    eventually("the member is a replica", async || cluster.pods[1].is_replica().await).await;
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// A dead primary of one or two leaves no majority: nobody can be elected, and nobody else either.
#[tokio::test]
async fn of_one_or_two_shards_a_replica_takes_over_by_itself() {
    for (number, shards) in [(201, 1_u16), (202, 2)] {
        let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..patient() };
        let mut cluster = Cluster::form(number, volatile, shards, 1).await;
        let keys = write(&cluster, "a", 200).await;
        let (primary, replica) = (0, usize::from(shards));
        assert!(cluster.pods[replica].is_replica().await);
        cluster.pods[primary].kill_redis();
        assert_eq!(cluster.pods[primary].ended().await, Some(2));
        cluster.pods[primary].start();
        eventually("the member is a replica", async || cluster.pods[primary].is_replica().await).await;
        assert!(!cluster.pods[replica].is_replica().await);
        cluster.wait_ready().await;
        assert_readable(&cluster, &keys).await;
    }
}

#[tokio::test]
async fn an_empty_primary_is_held_while_its_replica_is_silent_and_goes_on_when_it_answers() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::form(9, volatile, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    // The replica is alive and does not answer: it holds the only copy.
    let replica = rustix::process::Pid::from_raw(cluster.pods[3].redis_pid().unwrap()).unwrap();
    rustix::process::kill_process(replica, Signal::STOP).unwrap();
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    eventually("the member is held", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| {
            report.phase == AgentPhase::Held
                && !report.holds_data
                && report.held_because.is_some_and(|why| why.contains("0 of its 1 replicas answer"))
        })
    })
    .await;
    // It ran in this pod and has ended, which nobody else could prove.
    let me = cluster.report(&cluster.pods[0]).await.unwrap();
    assert_eq!(me.ended.iter().map(|end| &end.node_id).collect::<Vec<_>>(), Vec::from_iter(&me.node_id));
    // It stays so: three looks of the guard, once a second each.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(cluster.pods[0].is_running(), "held is not a crash loop");
    assert_eq!(cluster.get(&cluster.pods[0], "/livez").await.0, 200);
    assert_eq!(cluster.get(&cluster.pods[0], "/startupz").await.0, 200);
    assert_eq!(cluster.get(&cluster.pods[0], "/readyz").await.0, 503);
    rustix::process::kill_process(replica, Signal::CONT).unwrap();
    eventually("the member is a replica", async || cluster.pods[0].is_replica().await).await;
    assert_eq!(cluster.report(&cluster.pods[0]).await.unwrap().ended, [], "it runs again");
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

#[tokio::test]
async fn a_node_whose_volume_was_emptied_is_told_to_have_ended_in_its_pod() {
    let mut cluster = Cluster::form(203, config(), 3, 1).await;
    let pod = &mut cluster.pods[0];
    let id = pod.id().await.to_string();
    pod.kill_redis();
    assert_eq!(pod.ended().await, Some(2));
    std::fs::remove_dir_all(pod.dir.join("data")).unwrap();
    std::fs::create_dir(pod.dir.join("data")).unwrap();
    pod.start();
    eventually("the end is told", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| {
            report.ended.iter().map(|end| &end.node_id).eq([&id]) && report.node_id.as_ref() != Some(&id)
        })
    })
    .await;
}

#[tokio::test]
async fn a_shard_whose_every_member_crashed_comes_back_from_disk() {
    // With `EverySec` Redis may answer before it writes, for as long as an earlier sync is slow.
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..config() };
    let mut cluster = Cluster::form(10, always, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    for pod in &mut cluster.pods {
        pod.kill_redis();
    }
    for pod in &mut cluster.pods {
        assert_eq!(pod.ended().await, Some(2));
        pod.start();
    }
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// Breaks the link between two pods, and nothing else. Returns what it takes to mend it.
pub(crate) async fn unlink(primary: &Pod, replica: &Pod) -> String {
    let mut redis = replica.operator().await;
    let password = redis.config_get(&["masterauth"]).await.unwrap().remove("masterauth").unwrap();
    redis.config_set("masterauth", "wrong").await.unwrap();
    give_up(primary, &mut redis).await;
    password
}

/// A replica whose primary says nothing for a second gives the link up, and looks for another one.
async fn give_up(primary: &Pod, replica: &mut resp::Connection) {
    let mut talker = primary.operator().await;
    talker.config_set("repl-ping-replica-period", "3600").await.unwrap();
    replica.config_set("repl-timeout", "1").await.unwrap();
    eventually("the link is down", async || {
        replica.info(&["replication"]).await.unwrap().get("master_link_status") == Some("down")
    })
    .await;
    talker.config_set("repl-ping-replica-period", "1").await.unwrap();
    replica.config_set("repl-timeout", "60").await.unwrap();
}

/// Writes keys of the first shard, which owns the lowest third of the slots.
pub(crate) async fn write_to_first_shard(cluster: &Cluster, prefix: &str, count: usize) -> Vec<String> {
    let mut redis = cluster.pods[0].login("default", APPLICATION).await;
    let mut keys = Vec::new();
    for key in (0..).map(|n| format!("{prefix}{n}")).filter(|key| resp::slot::key_slot(key) < 5461).take(count) {
        redis.call(&["SET", &key, &key]).await.unwrap();
        keys.push(key);
    }
    keys
}

#[tokio::test]
async fn a_replica_that_its_primary_left_behind_is_not_elected_and_the_primary_comes_back() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..config() };
    let mut cluster = Cluster::form(30, always, 3, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 100).await;
    // It begins without the right: what is waited for below is that the right is taken back, not that it was not given yet.
    eventually("the replica may be elected", async || may_be_elected(&cluster).await).await;
    unlink(&cluster.pods[0], &cluster.pods[3]).await;
    keys.extend(write_to_first_shard(&cluster, "b", 300).await);
    // The agent takes the right to be promoted back once the primary has gone on alone for long enough.
    eventually("the replica is left behind", async || is_left_behind(&cluster).await).await;
    let primary = cluster.pods[0].id().await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    eventually("the primary is given up", async || {
        let table = cluster.pods[1].operator().await.cluster_nodes().await.unwrap();
        table.iter().any(|node| node.id == primary && node.flags.failed)
    })
    .await;
    // An election would be called within a second of that.
    tokio::time::sleep(taken_for_dead()).await;
    assert!(cluster.pods[3].is_replica().await, "a copy that lacks 300 writes took over");
    cluster.pods[0].start();
    eventually("the primary serves again", async || {
        cluster.get(&cluster.pods[0], "/readyz").await.0 == 200 && !cluster.pods[0].is_replica().await
    })
    .await;
    for pod in &cluster.pods {
        let mut redis = pod.operator().await;
        eventually("the cluster is ok", async || redis.cluster_info().await.is_ok_and(|info| info.ok)).await;
    }
    assert_readable(&cluster, &keys).await;
    assert!(cluster.pods[3].is_replica().await);
}

#[tokio::test]
async fn a_role_is_handed_over_once_the_heirs_disk_has_what_its_memory_has() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::unhurried(32, always).formed(3, 1).await;
    let (mut primary, mut heir) = (cluster.pods[0].operator().await, cluster.pods[3].operator().await);
    let mut keys = write_to_first_shard(&cluster, "a", 20).await;
    // What it missed is more than its primary keeps for it: a full synchronisation, after which its file is written anew, slowly.
    primary.config_set("repl-backlog-size", "16kb").await.unwrap();
    let password = unlink(&cluster.pods[0], &cluster.pods[3]).await;
    keys.extend(write_to_first_shard(&cluster, "b", 280).await);
    let filler = "x".repeat(64 << 10);
    let mut client = cluster.pods[0].login("default", APPLICATION).await;
    client.call(&["SET", "{06S}filler", &filler]).await.unwrap();
    // A sixteenth of a second for each key: it is still being written when it is looked at, whatever the machine does meanwhile.
    heir.config_set("rdb-key-save-delay", "60000").await.unwrap();
    heir.config_set("masterauth", &password).await.unwrap();
    eventually("the heir's file is being written anew", async || {
        let info = heir.info(&["replication", "persistence"]).await.unwrap();
        info.get("master_link_status") == Some("up") && info.flag("aof_rewrite_in_progress") == Some(true)
    })
    .await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0));
    assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
    // Both processes of the shard are gone, the heir's at once.
    cluster.pods[3].kill_redis();
    assert_eq!(cluster.pods[3].ended().await, Some(2));
    cluster.pods[3].start();
    cluster.pods[0].start();
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// Before, the member that had been elected came back with what its file had held before its copy, and the other one, whose disk had
/// everything, copied that.
#[tokio::test]
async fn an_elected_copy_that_dies_before_its_file_is_written_overwrites_nobody() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::form(84, always, 3, 1).await;
    let (mut primary, mut heir) = (cluster.pods[0].operator().await, cluster.pods[3].operator().await);
    let mut keys = write_to_first_shard(&cluster, "a", 20).await;
    primary.config_set("repl-backlog-size", "16kb").await.unwrap();
    // Nearly for ever.
    for (name, value) in
        [("rdb-key-save-delay", "5000000"), ("auto-aof-rewrite-min-size", "1"), ("auto-aof-rewrite-percentage", "1")]
    {
        heir.config_set(name, value).await.unwrap();
    }
    keys.extend(write_to_first_shard(&cluster, "b", 280).await);
    eventually("the heir's file is being written anew as usual", async || {
        heir.info(&["persistence"]).await.unwrap().flag("aof_rewrite_in_progress") == Some(true)
    })
    .await;
    // Which takes longer than its agent's looks are apart.
    let password = unlink(&cluster.pods[0], &cluster.pods[3]).await;
    assert!(!cluster.pods[3].data("kun-lags").exists(), "what counts is going on to be written");
    keys.extend(write_to_first_shard(&cluster, "c", 280).await);
    let mut client = cluster.pods[0].login("default", APPLICATION).await;
    client.call(&["SET", "{06S}filler", &"x".repeat(64 << 10)]).await.unwrap();
    heir.config_set("masterauth", &password).await.unwrap();
    eventually("the heir's file is being written anew, and its volume says so", async || {
        let info = heir.info(&["replication", "persistence"]).await.unwrap();
        let is_written = info.flag("aof_rewrite_in_progress") == Some(true);
        info.get("master_link_status") == Some("up") && is_written && cluster.pods[3].data("kun-lags").exists()
    })
    .await;
    // Nobody asks: both are gone with their agents, and others have elected it in between.
    cluster.pods[0].signal(Signal::KILL);
    cluster.pods[0].kill_redis();
    cluster.pods[0].ended().await;
    takes_over(&cluster.pods[3], &mut heir).await;
    others_know_the_owner(&cluster, &cluster.pods[3].id().await).await;
    cluster.pods[3].kill_redis();
    assert_eq!(cluster.pods[3].ended().await, Some(2));
    cluster.pods[3].start();
    cluster.pods[0].start();
    let id = cluster.pods[0].id().await;
    others_know_the_owner(&cluster, &id).await;
    assert_readable(&cluster, &keys).await;
    // What lies there is set aside once its slots are served, as the controller sees to. Where nobody answered in time, it was started as it
    // is, asked the owner to take over, and takes the owner's whole data set.
    let pod = &cluster.pods[3];
    let is_held = async || {
        let because = cluster.report(pod).await.and_then(|report| report.held_because);
        because.is_some_and(|why| why.contains("all its slots have other owners"))
    };
    let follows = async || {
        let is_running = cluster.report(pod).await.is_some_and(|report| report.phase == AgentPhase::Running);
        is_running && pod.is_replica().await
    };
    eventually("it is held, or follows the owner", async || is_held().await || follows().await).await;
    if is_held().await {
        let release = r#"{"how":"Blank"}"#;
        assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", release).await.0, 202);
        assert_eq!(pod.dbsize().await, 0);
    } else {
        let owned = cluster.pods[0].dbsize().await;
        eventually("it has what the owner has", async || pod.dbsize().await == owned).await;
    }
    eventually("no lag is noted", async || !pod.data("kun-lags").exists()).await;
    assert_readable(&cluster, &keys).await;
}

/// Waits until the other shards' primaries know whose the first slot is.
async fn others_know_the_owner(cluster: &Cluster, id: &resp::NodeId) {
    for other in [1, 2] {
        let mut other = cluster.pods[other].operator().await;
        eventually("others know the owner", async || {
            other.cluster_nodes().await.unwrap().iter().any(|node| node.id == *id && node.owns(0))
        })
        .await;
    }
}

/// Its volume is emptied under it, and it is back at the same address within a moment, where its replica looks for it.
#[tokio::test]
async fn a_primary_that_comes_back_blank_never_empties_its_replica() {
    let mut cluster = Cluster::form(33, patient(), 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    let held = cluster.pods[3].dbsize().await;
    assert!(held > 50);
    let redis = rustix::process::Pid::from_raw(cluster.pods[0].redis_pid().unwrap()).unwrap();
    rustix::process::kill_process(redis, Signal::STOP).unwrap();
    for entry in std::fs::read_dir(cluster.pods[0].dir.join("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    // Its replica looks for it once a second, and finds somebody who lets nobody in.
    let mut replica = cluster.pods[3].operator().await;
    eventually("the replica has been refused", async || {
        let log = cluster.pods[3].log();
        log.contains("Unable to AUTH to MASTER") || log.contains("WRONGPASS")
    })
    .await;
    assert_eq!(cluster.pods[3].dbsize().await, held, "it copied the emptiness");
    // As the controller does, who knows that the former primary is gone.
    takes_over(&cluster.pods[3], &mut replica).await;
    assert_eq!(cluster.pods[0].dbsize().await, 0);
    assert_readable(&cluster, &keys).await;
    // The blank member becomes its replica once somebody introduces it, and may be copied from then.
    let heir = cluster.pods[3].id().await;
    let mut blank = cluster.pods[0].operator().await;
    blank.call(&["CLUSTER", "MEET", &cluster.pods[3].ip.to_string(), "6379"]).await.unwrap();
    eventually("it follows", async || blank.call(&["CLUSTER", "REPLICATE", heir.as_str()]).await.is_ok()).await;
    eventually("it has everything", async || cluster.pods[0].dbsize().await == held).await;
}

/// Measured before: the heir of a primary that stood still was killed, started at once with what its volume had, which was nothing, and who woke up then
/// copied that. Also where it was killed before its agent could note in whose place it was elected.
#[tokio::test]
async fn an_heir_that_ends_waits_for_in_whose_place_it_was_elected() {
    let seldom = || vec![SavePoint { seconds: 3600, changes: 1_000_000 }];
    for (net, snapshots, is_noted) in
        [(213, vec![], true), (214, seldom(), true), (215, vec![], false), (216, seldom(), false)]
    {
        let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, snapshots, ..patient() };
        let mut cluster = Cluster::form(net, volatile, 3, 1).await;
        let keys = write(&cluster, "a", 300).await;
        let (former, mut heir) = (cluster.pods[0].id().await, cluster.pods[3].operator().await);
        signal_redis(&cluster.pods[0], Signal::STOP);
        takes_over(&cluster.pods[3], &mut heir).await;
        if is_noted {
            eventually("it is noted in whose place", async || {
                alive(&cluster.pods[3])["inPlaceOf"].as_str() == Some(former.as_str())
            })
            .await;
        }
        cluster.pods[3].kill_redis();
        assert_eq!(cluster.pods[3].ended().await, Some(2));
        if !is_noted {
            // The agent may have been quick.
            let _ = std::fs::remove_file(cluster.pods[3].data("kun-alive.json"));
        }
        cluster.pods[3].start();
        let waits = |report: types::agent::AgentReport| {
            let why = report.held_because.or(report.waits_for).unwrap_or_default();
            why.contains("in whose place it was elected and which does not answer")
        };
        eventually("its agent waits", async || cluster.report(&cluster.pods[3]).await.is_some_and(waits)).await;
        assert_eq!(alive(&cluster.pods[3])["inPlaceOf"].is_string(), is_noted);
        signal_redis(&cluster.pods[0], Signal::CONT);
        eventually("the heir follows", async || cluster.pods[3].is_replica().await).await;
        cluster.wait_ready().await;
        assert!(!cluster.pods[0].is_replica().await);
        assert_readable(&cluster, &keys).await;
    }
}

/// Measured before: killed 0.2 s after a planned failover, the new primary loaded its snapshot of before, and the former one copied that: 924 of 924 lost.
#[tokio::test]
async fn a_primary_that_ends_just_after_a_planned_failover_gives_the_role_back() {
    let seldom = vec![SavePoint { seconds: 3600, changes: 1_000_000 }];
    let snapshots = types::agent::AgentConfig { append_only: AppendOnly::Off, snapshots: seldom, ..patient() };
    let mut cluster = Cluster::form(217, snapshots, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    let held = cluster.pods[0].dbsize().await;
    eventually("its replica has everything", async || cluster.pods[3].dbsize().await == held).await;
    let mut heir = cluster.pods[3].operator().await;
    // It notes nothing of what comes now.
    cluster.pods[3].signal(Signal::STOP);
    eventually("the role is handed over", async || {
        let _ = heir.call(&["CLUSTER", "FAILOVER"]).await;
        cluster.pods[0].is_replica().await && !cluster.pods[3].is_replica().await
    })
    .await;
    let mut former = cluster.pods[0].operator().await;
    eventually("the former primary follows", async || {
        former.info(&["replication"]).await.unwrap().get("master_link_status") == Some("up")
    })
    .await;
    cluster.pods[3].kill_redis();
    cluster.pods[3].signal(Signal::CONT);
    assert_eq!(cluster.pods[3].ended().await, Some(2));
    cluster.pods[3].start();
    eventually("the heir follows", async || cluster.pods[3].is_replica().await).await;
    cluster.wait_ready().await;
    assert!(!cluster.pods[0].is_replica().await);
    assert_readable(&cluster, &keys).await;
}

/// What the volume of a pod says of how far its data set had come.
pub(crate) fn alive(pod: &Pod) -> serde_json::Value {
    let file = std::fs::read(pod.data("kun-alive.json")).unwrap_or_default();
    serde_json::from_slice(&file).unwrap_or_default()
}

/// Everything on a volume that went back agrees with itself, and the times of its files are those of the copying. Its replica has not had
/// the link since it was started, so its link says nothing either.
#[tokio::test]
async fn a_primary_on_an_older_copy_of_its_volume_never_empties_its_replica() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::form(40, always, 3, 1).await;
    let mut keys = write_to_first_shard(&cluster, "a", 100).await;
    eventually("the replica has noted how far its primary had come", async || {
        alive(&cluster.pods[0])["copyOf"].is_null()
            && alive(&cluster.pods[3])["copyOf"].is_string()
            && alive(&cluster.pods[3])["beat"]["count"].is_u64()
    })
    .await;
    let (data, older) = (cluster.pods[0].dir.join("data"), cluster.pods[0].dir.join("older"));
    let copied = std::process::Command::new("cp").arg("-r").args([&data, &older]).status().unwrap();
    assert!(copied.success());
    // As it was before that.
    let mut said = alive(&cluster.pods[0]);
    said["beat"]["count"] = (alive(&cluster.pods[3])["beat"]["count"].as_u64().unwrap() - 1).into();
    std::fs::write(older.join("kun-alive.json"), said.to_string()).unwrap();
    keys.extend(write_to_first_shard(&cluster, "b", 300).await);
    eventually("the replica has everything", async || cluster.pods[3].dbsize().await == 400).await;
    // The other primaries, which could elect the replica, are away for now.
    for number in [3, 0, 1, 2] {
        cluster.pods[number].kill_redis();
        assert_eq!(cluster.pods[number].ended().await, Some(2));
    }
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&older, &data).unwrap();
    says_what_it_has(&mut cluster, 3).await;
    cluster.pods[0].start();
    eventually("the member is held", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| {
            let why = report.held_because.unwrap_or_default();
            report.phase == AgentPhase::Held && report.node_id.is_none() && why.contains("its volume is an older copy")
        })
    })
    .await;
    assert_eq!(cluster.pods[3].dbsize().await, 400, "the replica has what it had");
    for number in [1, 2] {
        cluster.pods[number].start();
    }
    let mut heir = cluster.pods[3].operator().await;
    let id = cluster.pods[3].id().await;
    let sees = |table: &[resp::Node], id: &resp::NodeId| table.iter().any(|node| node.id == *id && node.connected);
    for number in [1, 2] {
        // An election that is lost is not repeated soon.
        eventually("those who vote and the replica have found each other", async || {
            let voter = cluster.pods[number].id().await;
            let table = cluster.pods[number].operator().await.cluster_nodes().await.unwrap_or_default();
            sees(&table, &id) && sees(&heir.cluster_nodes().await.unwrap_or_default(), &voter)
        })
        .await;
    }
    // As the controller does: the replica was started anew, so the agent does not ask it on its own.
    takes_over(&cluster.pods[3], &mut heir).await;
    eventually("it follows its replica", async || cluster.pods[0].is_replica().await).await;
    cluster.wait_ready().await;
    assert!(!cluster.pods[3].is_replica().await);
    assert_readable(&cluster, &keys).await;
    assert_eq!(cluster.pods[0].dbsize().await, 400);
}

/// In a cluster of one shard no other primary could say that the replica is gone. A person can.
#[tokio::test]
async fn a_single_shard_whose_noted_replica_is_gone_goes_on_when_its_pod_is_deleted() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::form(59, always, 1, 1).await;
    write_to_first_shard(&cluster, "a", 100).await;
    eventually("the replica has noted how far its primary had come", async || {
        alive(&cluster.pods[0])["copyOf"].is_null() && alive(&cluster.pods[1])["beat"]["count"].is_u64()
    })
    .await;
    let (data, older) = (cluster.pods[0].dir.join("data"), cluster.pods[0].dir.join("older"));
    assert!(std::process::Command::new("cp").arg("-r").args([&data, &older]).status().unwrap().success());
    let mut said = alive(&cluster.pods[0]);
    said["beat"]["count"] = (alive(&cluster.pods[1])["beat"]["count"].as_u64().unwrap() - 1).into();
    std::fs::write(older.join("kun-alive.json"), said.to_string()).unwrap();
    for number in [1, 0] {
        cluster.pods[number].kill_redis();
        assert_eq!(cluster.pods[number].ended().await, Some(2));
    }
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&older, &data).unwrap();
    says_what_it_has(&mut cluster, 1).await;
    cluster.pods[0].start();
    let held = async |cluster: &Cluster, words: &str| {
        eventually(&format!("the member is held: {words}"), async || {
            let report = cluster.report(&cluster.pods[0]).await;
            report.is_some_and(|report| {
                let why = report.held_because.unwrap_or_default();
                report.phase == AgentPhase::Held
                    && why.starts_with("its volume is an older copy")
                    && why.contains(words)
            })
        })
        .await;
    };
    held(&cluster, "mode Force and acceptDataLoss").await;
    // Gone for good, with its volume: what was seen of it still counts.
    cluster.pods[1].signal(Signal::TERM);
    cluster.pods[1].ended().await;
    std::fs::remove_dir_all(cluster.pods[1].dir.join("data")).unwrap();
    std::fs::create_dir(cluster.pods[1].dir.join("data")).unwrap();
    cluster.pods[1].start();
    held(&cluster, "delete the pod of this member").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    cluster.pods[0].start();
    eventually("it serves what it has", async || cluster.pods[0].dbsize().await == 100).await;
    assert!(!cluster.pods[0].is_replica().await);
}

/// Pods come back with each other's addresses: a replica finds the primary of another shard where its own was.
#[tokio::test]
async fn a_replica_that_finds_another_shards_primary_copies_nothing_of_it() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::form(42, always, 3, 1).await;
    let keys = write(&cluster, "a", 300).await;
    let held = cluster.pods[3].dbsize().await;
    for number in [0, 1] {
        cluster.pods[number].kill_redis();
        assert_eq!(cluster.pods[number].ended().await, Some(2));
    }
    let refusals = |pod: &Pod| pod.log().matches("WRONGPASS").count();
    let copies = |pod: &Pod| pod.log().matches("Full resync from master").count();
    let before = [refusals(&cluster.pods[3]), copies(&cluster.pods[3])];
    let [first, second] = [cluster.pods[0].ip, cluster.pods[1].ip];
    (cluster.pods[0].ip, cluster.pods[1].ip) = (second, first);
    cluster.pods[1].start();
    eventually("the replica has been refused", async || refusals(&cluster.pods[3]) > before[0]).await;
    assert_eq!(copies(&cluster.pods[3]), before[1], "it copied the wrong shard");
    assert_eq!(cluster.pods[3].dbsize().await, held);
    cluster.pods[0].start();
    // As the controller does: each takes the other's address for its own.
    let other = cluster.pods[1].ip.to_string();
    cluster.pods[0].operator().await.call(&["CLUSTER", "MEET", &other, "6379"]).await.unwrap();
    cluster.wait_ready().await;
    assert_readable(&cluster, &keys).await;
}

/// As during an upgrade: its agent tells other agents nothing, and it shows the cluster's password.
#[tokio::test]
async fn a_replica_of_an_earlier_release_is_let_in_until_it_is_of_this_one() {
    let mut cluster = Cluster::form(43, config(), 1, 1).await;
    let shown = cluster.pods[0].options(names::USER_REPLICA, REPLICA);
    let is_let_in = async || {
        let opened = resp::Connection::open(&shown).await;
        assert!(opened.as_ref().err().is_none_or(|error| error.refusal().is_some()), "{opened:?}");
        opened.is_ok()
    };
    assert!(!is_let_in().await, "nobody of an earlier release is there");
    cluster.pods[1].signal(Signal::KILL);
    cluster.pods[1].ended().await;
    let silent = cluster.silent_agent(&cluster.pods[1]).await;
    let mut replica = cluster.pods[1].operator().await;
    replica.config_set("masterauth", REPLICA).await.unwrap();
    give_up(&cluster.pods[0], &mut replica).await;
    eventually("the link is up", async || {
        replica.info(&["replication"]).await.is_ok_and(|info| info.get("master_link_status") == Some("up"))
    })
    .await;
    assert!(is_let_in().await);
    let mut stranger = replicating(shown.clone(), [127, 84, 43, 200].into()).await;
    silent.abort();
    let _ = silent.await;
    cluster.pods[1].start();
    eventually("the cluster's password does not count any more", async || !is_let_in().await).await;
    let closed = tokio::time::timeout(hung::change(), stranger.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "what was opened with it stays open");
    // Redis closes one that is silent as well, after a minute.
    assert_eq!(cluster.pods[0].log().matches("a replica that is none of this shard is closed out").count(), 1);
    cluster.wait_ready().await;
}

/// A replica of no shard, which shows the cluster's password.
async fn replicating(shown: resp::Options, from: IpAddr) -> TcpStream {
    let opened = resp::Connection::open(&shown.source(from)).await.unwrap();
    let (mut stream, _) = opened.into_parts();
    let mut wire = Vec::new();
    resp::Command::new("PSYNC").args(["?", "-1"]).encode(&mut wire);
    stream.write_all(&wire).await.unwrap();
    let (mut part, mut said) = ([0; 512], String::new());
    while !said.contains("+FULLRESYNC") {
        let read = tokio::time::timeout(hung::answer(), stream.read(&mut part)).await;
        let read = read.ok().and_then(Result::ok).filter(|read| *read > 0);
        said += &String::from_utf8_lossy(&part[..read.unwrap_or_else(|| panic!("{said}"))]);
    }
    stream
}

/// Orders a replica whose primary is gone to stand for election, again and again: an order expires after five seconds.
pub(crate) async fn takes_over(heir: &Pod, operator: &mut resp::Connection) {
    eventually("the replica is the primary", async || {
        let _ = operator.call(&["CLUSTER", "FAILOVER", "FORCE"]).await;
        !heir.is_replica().await
    })
    .await;
}

/// Starts a replica. Where nobody answers for three seconds a primary starts as it is.
async fn says_what_it_has(cluster: &mut Cluster, replica: usize) {
    cluster.pods[replica].start();
    eventually("the replica's agent says what it has", async || {
        cluster.report(&cluster.pods[replica]).await.is_some_and(|report| report.copy.is_some())
    })
    .await;
}
