//! Which data set the next start loads, where snapshots and append-only files may both lie on a volume.

use rustix::process::Signal;
use types::{
    agent::AgentConfig,
    cluster::{AppendOnly, SavePoint},
};

use crate::harness::{AGENT, APPLICATION, Cluster, Pod, config, eventually, fill};

/// One that is never due by itself within a test.
fn snapshots() -> Vec<SavePoint> {
    vec![SavePoint { seconds: 3600, changes: 1_000_000 }]
}

/// What lies on the volume: append-only files that count, a snapshot.
fn lies_there(pod: &Pod) -> [bool; 2] {
    [pod.data("appendonlydir/appendonly.aof.manifest").exists(), pod.data("dump.rdb").exists()]
}

/// Another configuration while the server runs, and what lies on the volume once it is in use.
async fn switch(cluster: &mut Cluster, append_only: AppendOnly, snapshots: Vec<SavePoint>, then: [bool; 2]) {
    (cluster.config.append_only, cluster.config.snapshots) = (append_only, snapshots.clone());
    let pod = &cluster.pods[0];
    cluster.write_config(&pod.dir);
    let mut redis = pod.operator().await;
    let points: Vec<String> = snapshots.iter().map(|point| format!("{} {}", point.seconds, point.changes)).collect();
    let wanted = [if append_only == AppendOnly::Off { "no" } else { "yes" }.to_owned(), points.join(" ")];
    eventually(&format!("{append_only:?} is in use"), async || {
        let found = redis.config_get(&["appendonly", "save"]).await.unwrap();
        let is_set = ["appendonly", "save"].map(|name| found[name].clone()) == wanted;
        let info = redis.info(&["persistence"]).await.unwrap();
        is_set && info.flag("aof_rewrite_in_progress") == Some(false) && lies_there(pod) == then
    })
    .await;
}

async fn crash(cluster: &mut Cluster) {
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    cluster.wait_ready().await;
}

/// Measured before: after the first switch nothing was left on the volume, and a crash cost everything.
#[tokio::test]
async fn a_switch_of_persistence_leaves_the_one_data_set_that_is_current() {
    let mut cluster = Cluster::form(63, config(), 1, 0).await;
    for (round, append_only) in [AppendOnly::Off, AppendOnly::EverySec, AppendOnly::Off].into_iter().enumerate() {
        fill(&cluster.pods[0], &format!("{round}-"), 50, b"v").await;
        let is_logged = append_only != AppendOnly::Off;
        // Beside a log an older snapshot may lie, which is not loaded.
        switch(&mut cluster, append_only, snapshots(), [is_logged, true]).await;
        let written = 50 * i64::try_from(round + 1).unwrap();
        assert_eq!(cluster.pods[0].dbsize().await, written);
        crash(&mut cluster).await;
        assert_eq!(cluster.pods[0].dbsize().await, written, "{append_only:?}");
    }
}

/// Measured before: the snapshot of the time when something was kept came back, however old it was.
#[tokio::test]
async fn where_nothing_is_kept_any_more_nothing_that_is_older_comes_back() {
    let mut cluster = Cluster::form(64, config(), 1, 0).await;
    fill(&cluster.pods[0], "a", 50, b"v").await;
    switch(&mut cluster, AppendOnly::Off, snapshots(), [false, true]).await;
    switch(&mut cluster, AppendOnly::Off, vec![], [false, false]).await;
    switch(&mut cluster, AppendOnly::Off, snapshots(), [false, false]).await;
    switch(&mut cluster, AppendOnly::EverySec, vec![], [true, false]).await;
    fill(&cluster.pods[0], "b", 50, b"v").await;
    switch(&mut cluster, AppendOnly::Off, vec![], [false, false]).await;
    assert_eq!(cluster.pods[0].dbsize().await, 100);
    crash(&mut cluster).await;
    assert_eq!(cluster.pods[0].dbsize().await, 0);
}

/// Measured before: the file got its name after the agent had looked for it, and came back at the next start.
#[tokio::test]
async fn a_snapshot_that_was_begun_when_something_was_kept_does_not_stay() {
    let mut cluster = Cluster::form(69, config(), 1, 0).await;
    fill(&cluster.pods[0], "a", 300, b"v").await;
    switch(&mut cluster, AppendOnly::Off, snapshots(), [false, true]).await;
    let mut redis = cluster.pods[0].operator().await;
    // A tenth of a second for each key: it is still written when nothing is to be kept any more.
    redis.config_set("rdb-key-save-delay", "100000").await.unwrap();
    cluster.pods[0].login(types::names::USER_AGENT, AGENT).await.call(&["BGSAVE"]).await.unwrap();
    let is_saving = async |redis: &mut resp::Connection| {
        redis.info(&["persistence"]).await.unwrap().flag("rdb_bgsave_in_progress").unwrap()
    };
    switch(&mut cluster, AppendOnly::Off, vec![], [false, false]).await;
    assert!(is_saving(&mut redis).await, "it was over before");
    eventually("it is written", async || !is_saving(&mut redis).await).await;
    eventually("it is gone", async || lies_there(&cluster.pods[0]) == [false, false]).await;
    crash(&mut cluster).await;
    assert_eq!(cluster.pods[0].dbsize().await, 0);
}

/// As if it could not be put aside when it was switched off.
#[tokio::test]
async fn what_is_saved_at_a_stop_is_loaded_and_no_log_of_before() {
    let mut cluster = Cluster::form(65, config(), 1, 0).await;
    fill(&cluster.pods[0], "a", 50, b"v").await;
    let [log, kept] = [cluster.pods[0].data("appendonlydir"), cluster.pods[0].dir.join("kept")];
    let copied = std::process::Command::new("cp").arg("-r").args([&log, &kept]).status().unwrap();
    assert!(copied.success());
    switch(&mut cluster, AppendOnly::Off, vec![], [false, false]).await;
    fill(&cluster.pods[0], "b", 50, b"v").await;
    std::fs::rename(&kept, &log).unwrap();
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    assert_eq!(lies_there(&cluster.pods[0]), [false, true]);
    cluster.pods[0].start();
    cluster.wait_ready().await;
    assert_eq!(cluster.pods[0].dbsize().await, 100);
}

/// As if it could not be put aside when it was switched off. Before, a crash while the new one was first written brought it back.
#[tokio::test]
async fn a_log_of_before_does_not_come_back_while_a_new_one_is_first_written() {
    let mut cluster = Cluster::form(206, config(), 1, 0).await;
    fill(&cluster.pods[0], "a", 50, b"v").await;
    let [log, kept] = [cluster.pods[0].data("appendonlydir"), cluster.pods[0].dir.join("kept")];
    let copied = std::process::Command::new("cp").arg("-r").args([&log, &kept]).status().unwrap();
    assert!(copied.success());
    fill(&cluster.pods[0], "b", 50, b"v").await;
    switch(&mut cluster, AppendOnly::Off, snapshots(), [false, true]).await;
    std::fs::rename(&kept, &log).unwrap();
    let mut redis = cluster.pods[0].operator().await;
    redis.config_set("rdb-key-save-delay", "5000000").await.unwrap();
    cluster.config.append_only = AppendOnly::EverySec;
    cluster.write_config(&cluster.pods[0].dir);
    eventually("its first file is being written", async || {
        redis.info(&["persistence"]).await.unwrap().flag("aof_rewrite_in_progress") == Some(true)
    })
    .await;
    crash(&mut cluster).await;
    assert_eq!(cluster.pods[0].dbsize().await, 100);
}

/// Whether its append-only files hold nothing.
fn holds_nothing(pod: &Pod) -> bool {
    let mut files = std::fs::read_dir(pod.data("appendonlydir")).unwrap().flatten();
    files.all(|file| {
        let is_list = file.file_name().to_string_lossy().ends_with(".manifest");
        is_list || file.metadata().is_ok_and(|file| file.len() == 0)
    })
}

/// Measured before: ten keys whose deletion had been acknowledged came back.
#[tokio::test]
async fn what_was_deleted_stays_deleted_beside_an_older_snapshot() {
    let parameters = [("aof-use-rdb-preamble".to_owned(), "no".to_owned())].into();
    let mut cluster = Cluster::form(211, AgentConfig { parameters, ..config() }, 1, 0).await;
    let pod = &cluster.pods[0];
    fill(pod, "a", 10, b"v").await;
    pod.login(types::names::USER_AGENT, AGENT).await.call(&["BGSAVE"]).await.unwrap();
    eventually("it is saved", async || lies_there(pod) == [true; 2]).await;
    pod.login("default", APPLICATION).await.call(&["FLUSHDB"]).await.unwrap();
    let mut redis = pod.operator().await;
    for name in ["auto-aof-rewrite-min-size", "auto-aof-rewrite-percentage"] {
        redis.config_set(name, "1").await.unwrap();
    }
    eventually("its log is written anew", async || holds_nothing(pod)).await;
    pod.signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    cluster.wait_ready().await;
    assert_eq!(lies_there(&cluster.pods[0]), [true; 2]);
    assert_eq!(cluster.pods[0].dbsize().await, 0);
}
