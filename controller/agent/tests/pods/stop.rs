//! Stopping in order: the primary role goes first, a writer loses nothing, also when the agent itself was killed before.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use resp::{NodeId, Outcome};
use rustix::process::Signal;
use types::{cluster::AppendOnly, names};

use crate::crash::unlink;
use crate::harness::{AGENT, APPLICATION, Cluster, Pod, config, eventually, fill, patient, signal_redis};

/// Writes until told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    writing: tokio::task::JoinHandle<Vec<String>>,
}

impl Writer {
    fn start(cluster: &Cluster) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (mut client, stopped, counted) = (cluster.client(), Arc::clone(&stop), Arc::clone(&count));
        let writing = tokio::spawn(async move {
            let mut acked = Vec::new();
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("w{number}");
                if let Outcome::Acked(_) = client.set(&key, &key).await {
                    acked.push(key);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
            acked
        });
        Self { stop, count, writing }
    }

    /// Waits until so many more writes were acknowledged.
    async fn progress(&self, more: usize) {
        let goal = self.count.load(Ordering::Relaxed) + more;
        eventually("writes are acknowledged", async || self.count.load(Ordering::Relaxed) >= goal).await;
    }

    /// Every acknowledged key.
    async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.writing.await.unwrap()
    }
}

async fn assert_all(cluster: &Cluster, acked: &[String]) {
    let mut client = cluster.client();
    let mut lost = BTreeMap::new();
    for key in acked {
        match client.get(key).await.unwrap() {
            Some(value) if value == key.as_bytes() => {}
            other => {
                lost.insert(key, other);
            }
        }
    }
    assert!(acked.len() > 200, "only {} writes were acknowledged", acked.len());
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), acked.len());
}

#[tokio::test]
async fn a_stopped_primary_hands_over_first_and_a_writer_loses_nothing() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..patient() };
    let mut cluster = Cluster::unhurried(12, volatile).formed(3, 1).await;
    let writer = Writer::start(&cluster);
    writer.progress(100).await;
    for primary in 0..3 {
        cluster.pods[primary].signal(Signal::TERM);
        assert_eq!(cluster.pods[primary].ended().await, Some(0), "{}", cluster.pods[primary].log());
        assert!(cluster.pods[primary].log().contains("handed over"), "{}", cluster.pods[primary].log());
        assert!(!cluster.pods[primary + 3].is_replica().await);
        cluster.pods[primary].start();
        // It may begin as a primary and hear a moment later that it is none.
        eventually("the member is back in sync", async || {
            cluster.get(&cluster.pods[primary], "/readyz").await.0 == 200 && cluster.pods[primary].is_replica().await
        })
        .await;
    }
    // How long writes wait is what `make bench` measures (`moves`); that they go on is all that counts here.
    writer.progress(100).await;
    let acked = writer.stop().await;
    assert_all(&cluster, &acked).await;
}

#[tokio::test]
async fn a_killed_agents_redis_is_handed_over_from_and_taken_down_by_the_next_agent() {
    let mut cluster = Cluster::unhurried(13, patient()).formed(3, 1).await;
    let writer = Writer::start(&cluster);
    writer.progress(100).await;
    let left = cluster.pods[0].redis_pid().unwrap();
    let agent_killed = async |pod: &mut Pod| {
        pod.signal(Signal::KILL);
        assert_eq!(pod.ended().await, None);
        writer.progress(100).await;
        assert!(!pod.is_replica().await, "it goes on alone");
    };
    cluster.until_replaced(0, agent_killed).await;
    assert!(!std::path::Path::new(&format!("/proc/{left}/cwd")).exists());
    writer.progress(100).await;
    let acked = writer.stop().await;
    cluster.wait_ready().await;
    assert_all(&cluster, &acked).await;
}

#[tokio::test]
async fn the_last_holder_of_keys_saves_them_even_when_nothing_is_kept_on_disk() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::form(14, volatile, 1, 0).await;
    let mut client = cluster.client();
    for n in 0..50 {
        assert!(matches!(client.set(format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    assert!(cluster.pods[0].data("dump.rdb").exists());
    cluster.pods[0].start();
    cluster.wait_ready().await;
    assert_eq!(cluster.pods[0].dbsize().await, 50);
    // Once loaded it would only grow stale.
    eventually("the file is gone", async || !cluster.pods[0].data("dump.rdb").exists()).await;
}

/// Measured before: killed after 25 s, and the data set of the last snapshot is what was left.
#[tokio::test]
async fn a_server_that_saves_for_longer_than_usual_is_let_finish() {
    let snapshots = vec![types::cluster::SavePoint { seconds: 3600, changes: 1 }];
    let saving = types::agent::AgentConfig { append_only: AppendOnly::Off, snapshots, ..config() };
    let mut cluster = Cluster::new(35, saving);
    cluster.grace_seconds = 600;
    let pod = cluster.add();
    let mut operator = cluster.pods[pod].operator().await;
    operator.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("it serves", async || operator.cluster_info().await.is_ok_and(|info| info.ok)).await;
    fill(&cluster.pods[pod], "k", 26_000, b"v").await;
    // A millisecond for each key.
    operator.config_set("rdb-key-save-delay", "1000").await.unwrap();
    cluster.pods[pod].signal(Signal::TERM);
    assert_eq!(cluster.pods[pod].ended_slowly().await, Some(0), "{}", cluster.pods[pod].log());
    cluster.pods[pod].start();
    assert_eq!(cluster.pods[pod].dbsize().await, 26_000);
}

/// Before, it was taken for one that hangs after 20 s, and killed in the middle. As on a file system whose writes wait without a trace.
#[tokio::test]
async fn a_server_whose_disk_stands_still_while_it_saves_is_let_finish() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::new(219, volatile);
    cluster.grace_seconds = 600;
    let mut cluster = cluster.formed(1, 0).await;
    fill(&cluster.pods[0], "k", 3_000, b"v").await;
    let mut redis = cluster.pods[0].operator().await;
    redis.config_set("rdb-key-save-delay", "1000").await.unwrap();
    let server = redis.info(&["server"]).await.unwrap().number("process_id").unwrap();
    cluster.pods[0].signal(Signal::TERM);
    eventually("it saves", async || cluster.pods[0].data(&format!("temp-{server}.rdb")).exists()).await;
    signal_redis(&cluster.pods[0], Signal::STOP);
    // Longer than a server may show no work.
    tokio::time::sleep(Duration::from_secs(25)).await;
    signal_redis(&cluster.pods[0], Signal::CONT);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 3_000, "{}", cluster.pods[0].log());
}

/// Before, it was killed in the middle, where no kubelet does that also minutes before it was done.
#[tokio::test]
async fn a_server_that_saves_for_longer_than_its_pod_has_is_let_finish() {
    let volatile = types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() };
    let mut cluster = Cluster::new(96, volatile);
    cluster.grace_seconds = 10;
    let mut cluster = cluster.formed(1, 0).await;
    fill(&cluster.pods[0], "k", 15_000, b"v").await;
    // A millisecond for each key.
    cluster.pods[0].operator().await.config_set("rdb-key-save-delay", "1000").await.unwrap();
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 15_000, "{}", cluster.pods[0].log());
}

/// Before, it counted as one that cannot save: it was not signalled either, and killed with its pod. At a signal Redis saves, whomever it lets in.
#[tokio::test]
async fn a_server_that_does_not_let_its_agent_in_saves_at_a_signal() {
    let snapshots = vec![types::cluster::SavePoint { seconds: 3600, changes: 1_000_000 }];
    let mode = types::cluster::Mode::Standalone;
    let saving = types::agent::AgentConfig { mode, append_only: AppendOnly::Off, snapshots, ..config() };
    let mut cluster = Cluster::new(97, saving);
    cluster.grace_seconds = 10;
    cluster.add();
    cluster.pods[0].operator().await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    let usual = cluster.pods[0].server.clone();
    cluster.pods[0].begin_with("sed -i '/^user kun-\\(agent\\|local\\) /d' \"${1%/*}/users.acl\"");
    cluster.pods[0].start();
    fill(&cluster.pods[0], "k", 50, b"v").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].server = usual;
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 50, "{}", cluster.pods[0].log());
}

/// The same of one whose data others have; before, it was killed in the middle after 30 s, and had to be sent everything anew.
#[tokio::test]
async fn a_replica_that_saves_for_longer_than_usual_is_let_finish() {
    let snapshots = vec![types::cluster::SavePoint { seconds: 3600, changes: 1 }];
    let saving = types::agent::AgentConfig { append_only: AppendOnly::Off, snapshots, ..patient() };
    let mut cluster = Cluster::unhurried(80, saving).formed(1, 1).await;
    fill(&cluster.pods[0], "k", 26_000, b"v").await;
    let mut replica = cluster.pods[1].operator().await;
    eventually("it has all", async || cluster.pods[1].dbsize().await == 26_000).await;
    replica.config_set("rdb-key-save-delay", "1400").await.unwrap();
    cluster.pods[1].signal(Signal::TERM);
    assert_eq!(cluster.pods[1].ended_slowly().await, Some(0), "{}", cluster.pods[1].log());
    // One lies there from its first synchronisation, when there were no keys.
    let saved = std::fs::metadata(cluster.pods[1].data("dump.rdb")).unwrap().len();
    assert!(saved > 100_000, "{saved} bytes were saved");
}

/// Has the first shard's primary run a script until it is killed, once others are told that it does. Gives a connection that may kill it.
async fn run_a_script(cluster: &Cluster, script: &'static str) -> resp::Connection {
    let primary = &cluster.pods[0];
    let mut other = primary.operator().await;
    other.config_set("busy-reply-threshold", "100").await.unwrap();
    let mut client = primary.login("default", APPLICATION).await;
    let killer = primary.login("default", APPLICATION).await;
    tokio::spawn(async move { client.call(&["EVAL", script, "1", "{06S}script"]).await });
    eventually("a script runs", async || {
        other.call(&["PING"]).await.is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    killer
}

/// Before, it was taken for a single server, and ended without a hand-over once the script had ended.
#[tokio::test]
async fn a_primary_that_runs_a_script_hands_over_after_it() {
    let mut cluster = Cluster::unhurried(81, patient()).formed(1, 1).await;
    let mut killer = run_a_script(&cluster, "while true do end").await;
    cluster.pods[0].signal(Signal::TERM);
    eventually("it is asked again", async || cluster.pods[0].log().contains("it is asked again")).await;
    killer.call(&["SCRIPT", "KILL"]).await.unwrap();
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
    assert!(!cluster.pods[1].is_replica().await);
}

/// It refuses whatever a hand-over asks, and ends when it is told to.
#[tokio::test]
async fn a_replica_that_loads_its_copy_ends_at_once() {
    let mut cluster = Cluster::unhurried(85, patient()).formed(1, 1).await;
    let (mut primary, mut replica) = (cluster.pods[0].operator().await, cluster.pods[1].operator().await);
    primary.config_set("repl-backlog-size", "16kb").await.unwrap();
    let password = unlink(&cluster.pods[0], &cluster.pods[1]).await;
    fill(&cluster.pods[0], "k", 8000, &[b'v'; 100]).await;
    // Nearly a minute for all of them, and clients are answered every ten.
    for (name, value) in
        [("key-load-delay", "5000"), ("loading-process-events-interval-bytes", "1024"), ("masterauth", &password)]
    {
        replica.config_set(name, value).await.unwrap();
    }
    eventually("it loads its copy", async || {
        let info = replica.info(&["persistence"]).await;
        info.is_ok_and(|info| info.flag("loading") == Some(true))
    })
    .await;
    cluster.pods[1].signal(Signal::TERM);
    assert_eq!(cluster.pods[1].ended().await, Some(0), "{}", cluster.pods[1].log());
    assert!(cluster.pods[1].log().contains("it loads its data set"), "{}", cluster.pods[1].log());
}

/// Before, it was told to save for as long as there was time, which Redis refuses then, and was killed.
#[tokio::test]
async fn a_script_without_an_end_keeps_no_server_from_ending_whose_file_has_all() {
    let always = types::agent::AgentConfig { append_only: AppendOnly::Always, ..patient() };
    let mut cluster = Cluster::unhurried(82, always).formed(1, 0).await;
    fill(&cluster.pods[0], "k", 200, b"v").await;
    run_a_script(&cluster, "redis.call('SET', KEYS[1], 'v') while true do end").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    // What the script has done was acknowledged to nobody.
    assert_eq!(cluster.pods[0].dbsize().await, 200);
}

/// Before, Redis refused to save for as long as the script ran, and was killed.
#[tokio::test]
async fn a_script_without_an_end_is_ended_where_a_server_has_to_save() {
    let snapshots = types::agent::AgentConfig {
        append_only: AppendOnly::Off,
        snapshots: vec![types::cluster::SavePoint { seconds: 3600, changes: 1 }],
        ..patient()
    };
    let mut cluster = Cluster::unhurried(86, snapshots).formed(1, 0).await;
    fill(&cluster.pods[0], "k", 200, b"v").await;
    run_a_script(&cluster, "while true do end").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 200);
}

/// Before, neither a replica's order nor SHUTDOWN could be sent: every connection of a stop was one too many.
#[tokio::test]
async fn a_primary_that_lets_nobody_in_any_more_hands_over() {
    // On a machine that stands still a look of the agent breaks off, and somebody else takes its connection's place: then nothing was shown.
    // At other addresses each time: what was ended just now may hold its own a moment longer.
    for net in [83, 98, 99] {
        let mut cluster = Cluster::unhurried(net, patient()).formed(1, 1).await;
        // It stays connected: nobody else comes in its place.
        let mut operator = cluster.pods[0].operator().await;
        let info = operator.info(&["clients"]).await.unwrap();
        let there = ["connected_clients", "cluster_connections"].map(|name| info.number(name).unwrap());
        operator.config_set("maxclients", &there.iter().sum::<i64>().to_string()).await.unwrap();
        cluster.pods[0].signal(Signal::TERM);
        let says = |word: &str| cluster.pods[0].log().contains(word);
        eventually("it hands over or is locked out", async || says("handed over") || says("max number of clients"))
            .await;
        if says("handed over") {
            assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
            assert!(!cluster.pods[1].is_replica().await);
            return;
        }
    }
    panic!("its agent has to come in anew at each stop");
}

/// Redis refuses to end then (`AOF_WAIT_REWRITE`), once for each time it is told to; killed, it would lose what came after the switch.
#[tokio::test]
async fn a_server_whose_append_only_file_is_first_written_ends_once_it_is() {
    let mut cluster = Cluster::unhurried(36, config()).formed(1, 0).await;
    fill(&cluster.pods[0], "before", 2000, b"v").await;
    let mut operator = cluster.pods[0].operator().await;
    // Ten milliseconds for each key: it is still written when it is looked at, whatever the machine does meanwhile.
    for (name, value) in [("rdb-key-save-delay", "10000"), ("appendonly", "no"), ("appendonly", "yes")] {
        operator.config_set(name, value).await.unwrap();
    }
    fill(&cluster.pods[0], "after", 10, b"v").await;
    let info = operator.info(&["persistence"]).await.unwrap();
    assert_eq!(info.flag("aof_rewrite_in_progress"), Some(true));
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 2010);
}

/// Before, it was waited for until nothing but a kill was left: a child that a slow reader keeps lasts for as long as that one likes.
#[tokio::test]
async fn a_server_whose_first_append_only_file_is_put_off_saves_instead() {
    let mut cluster = Cluster::new(223, config()).formed(1, 0).await;
    fill(&cluster.pods[0], "before", 2000, b"v").await;
    let mut operator = cluster.pods[0].operator().await;
    // A tenth of a second for each key, of this child alone.
    operator.config_set("rdb-key-save-delay", "100000").await.unwrap();
    cluster.pods[0].login(names::USER_AGENT, AGENT).await.call(&["BGSAVE"]).await.unwrap();
    for (name, value) in [("rdb-key-save-delay", "0"), ("appendonly", "no"), ("appendonly", "yes")] {
        operator.config_set(name, value).await.unwrap();
    }
    fill(&cluster.pods[0], "after", 10, b"v").await;
    let info = operator.info(&["persistence"]).await.unwrap();
    let flags = ["aof_rewrite_scheduled", "aof_rewrite_in_progress"].map(|name| info.flag(name));
    assert_eq!(flags, [Some(true), Some(false)]);
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 2010);
}

/// A cluster of three shards with a slot of pod 0 half moved to pod 1.
async fn half_moved(net: u8) -> (Cluster, [NodeId; 2]) {
    let cluster = Cluster::unhurried(net, patient()).formed(3, 1).await;
    let ids = [cluster.pods[0].id().await, cluster.pods[1].id().await];
    let [mut from, mut to] = [cluster.pods[0].operator().await, cluster.pods[1].operator().await];
    to.call(&["CLUSTER", "SETSLOT", "7", "IMPORTING", ids[0].as_str()]).await.unwrap();
    from.call(&["CLUSTER", "SETSLOT", "7", "MIGRATING", ids[1].as_str()]).await.unwrap();
    (cluster, ids)
}

async fn migrating(pod: &Pod) -> Vec<(u16, NodeId)> {
    let table = pod.operator().await.cluster_nodes().await.unwrap();
    table.into_iter().filter(|node| node.flags.myself).flat_map(|node| node.migrating).collect()
}

/// Half of what an agent waits for a slot that is being moved.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_slot_that_is_being_moved_is_finished_before_the_role_goes() {
    for net in [37, 207, 208] {
        let (mut cluster, [_, to]) = half_moved(net).await;
        cluster.pods[0].signal(Signal::TERM);
        let began = Instant::now();
        let finish = async {
            // Two looks of the agent.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let waits = cluster.pods[0].is_running() && !cluster.pods[0].is_replica().await;
            assert!(waits || began.elapsed() > SOON, "it did not wait");
            for pod in [1, 0] {
                let mut operator = cluster.pods[pod].operator().await;
                operator.call(&["CLUSTER", "SETSLOT", "7", "NODE", to.as_str()]).await.unwrap();
            }
        };
        // Else the machine stood still, and the agent may have waited for long enough.
        if tokio::time::timeout(SOON, finish).await.is_ok() && began.elapsed() < SOON {
            assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
            assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
            assert!(!cluster.pods[3].is_replica().await);
            assert_eq!(migrating(&cluster.pods[3]).await, []);
            return;
        }
    }
    panic!("no slot is finished in time");
}

#[tokio::test]
async fn a_slot_that_stays_half_moved_is_marked_at_the_heir() {
    let (mut cluster, [_, to]) = half_moved(38).await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert!(cluster.pods[0].log().contains("handed over"), "{}", cluster.pods[0].log());
    assert_eq!(migrating(&cluster.pods[3]).await, [(7, to)]);
}

fn single() -> types::agent::AgentConfig {
    types::agent::AgentConfig { mode: types::cluster::Mode::Standalone, ..config() }
}

#[tokio::test]
async fn a_single_server_keeps_its_keys_over_a_stop_and_a_crash() {
    let mut cluster = Cluster::new(21, single());
    cluster.add();
    crate::harness::fill(&cluster.pods[0], "k", 500, b"v").await;
    eventually("it is ready", async || cluster.get(&cluster.pods[0], "/readyz").await.0 == 200).await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 500);
    // The agent looks after its Redis once a second; that costs no key.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 500);
}

/// As of a pod that was deleted by force while it stopped. Before, a second server was started on the files that the first one wrote.
#[tokio::test]
async fn a_volume_that_another_pod_still_uses_is_waited_for() {
    let mut cluster = Cluster::unhurried(48, single());
    cluster.add();
    crate::harness::fill(&cluster.pods[0], "k", 500, b"v").await;
    let next = cluster.successor();
    std::fs::remove_dir(cluster.pods[next].data("")).unwrap();
    std::os::unix::fs::symlink(cluster.pods[0].data(""), cluster.pods[next].dir.join("data")).unwrap();
    cluster.pods[next].start();
    eventually("it says what it waits for", async || cluster.pods[next].log().contains("another pod still uses")).await;
    let report = cluster.report(&cluster.pods[next]).await.unwrap();
    // Who waits proves nothing of the node, and is not one whose image is of no use.
    assert_eq!((report.phase, report.held_because, report.starts), (types::agent::AgentPhase::Starting, None, 0));
    assert!(report.volume_in_use_millis.is_some(), "how long it waits is told");
    crate::harness::fill(&cluster.pods[0], "l", 500, b"v").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert_eq!(cluster.pods[next].dbsize().await, 1000);
    assert_eq!(cluster.report(&cluster.pods[next]).await.unwrap().volume_in_use_millis, None);
}

#[tokio::test]
async fn all_members_stopped_at_once_end_in_order_and_keep_every_key() {
    let cluster = all_stopped_and_started(22, config()).await;
    for pod in &cluster.pods {
        assert!(pod.log().contains("Calling fsync() on the AOF file"), "{}", pod.log());
    }
}

#[tokio::test]
async fn all_members_stopped_at_once_keep_every_key_also_where_only_snapshots_are_kept() {
    // A snapshot that is never due by itself within this test.
    let snapshots = vec![types::cluster::SavePoint { seconds: 3600, changes: 1_000_000 }];
    all_stopped_and_started(28, types::agent::AgentConfig { append_only: AppendOnly::Off, snapshots, ..config() })
        .await;
}

/// Whoever gets a role from a primary that ends has to save, also if it is ending itself.
#[tokio::test]
async fn all_members_stopped_at_once_keep_every_key_also_without_persistence() {
    all_stopped_and_started(67, types::agent::AgentConfig { append_only: AppendOnly::Off, ..config() }).await;
}

/// Writes, stops everybody at the same moment, starts everybody and reads everything back.
async fn all_stopped_and_started(number: u8, config: types::agent::AgentConfig) -> Cluster {
    let mut cluster = Cluster::unhurried(number, config).formed(3, 1).await;
    for primary in 0..3 {
        let mut client = cluster.client();
        for n in 0..100 {
            assert!(matches!(client.set(format!("{primary}-{n}"), "v").await, Outcome::Acked(_)));
        }
    }
    for pod in &cluster.pods {
        pod.signal(Signal::TERM);
    }
    for pod in &mut cluster.pods {
        assert_eq!(pod.ended().await, Some(0), "{}", pod.log());
    }
    for pod in &cluster.pods {
        // The agent's own limit, below the grace period, was not needed.
        assert!(!pod.log().contains("did not stop in time"), "{}", pod.log());
    }
    for pod in &mut cluster.pods {
        pod.start();
    }
    cluster.wait_ready().await;
    let mut client = cluster.client();
    for primary in 0..3 {
        for n in 0..100 {
            assert_eq!(client.get(format!("{primary}-{n}")).await.unwrap().unwrap(), "v");
        }
    }
    drop(client);
    cluster
}

#[tokio::test]
async fn switching_the_append_only_file_on_or_off_while_down_never_hides_the_data() {
    let mut cluster = Cluster::form(15, config(), 1, 0).await;
    let mut client = cluster.client();
    for n in 0..50 {
        assert!(matches!(client.set(format!("k{n}"), "v").await, Outcome::Acked(_)));
    }
    for append_only in [AppendOnly::Off, AppendOnly::EverySec] {
        cluster.pods[0].signal(Signal::TERM);
        assert_eq!(cluster.pods[0].ended().await, Some(0));
        cluster.config.append_only = append_only;
        cluster.write_config(&cluster.pods[0].dir);
        cluster.pods[0].start();
        cluster.wait_ready().await;
        assert_eq!(cluster.pods[0].dbsize().await, 50, "{append_only:?}\n{}", cluster.pods[0].log());
        let wanted = if append_only == AppendOnly::Off { "no" } else { "yes" };
        let mut redis = cluster.pods[0].operator().await;
        eventually("the wanted state is set", async || {
            redis.config_get(&["appendonly"]).await.unwrap()["appendonly"] == wanted
        })
        .await;
        let kept = append_only == AppendOnly::EverySec;
        eventually("the log lies where it belongs", async || cluster.pods[0].data("appendonlydir").exists() == kept)
            .await;
    }
}
