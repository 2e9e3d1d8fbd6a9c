//! Stopping where the disk takes nothing more. `RLIMIT_FSIZE` of redis-server stands in for a full one, on any machine: no file grows beyond it.

use std::{fs, time::Duration};

use resp::{Command, Connection, Reply};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::harness::{APPLICATION, Cluster, Pod, config, eventually, fill, signal_redis};

/// So large is nodes.conf, which Redis cannot do without, and no snapshot of some dozens of keys.
const NO_SNAPSHOT: u64 = 1024;

/// A single shard whose server is told that a file is too large, and not ended by it.
async fn limited(net: u8, grace_seconds: u64) -> Cluster {
    let mut cluster = Cluster::form(net, config(), 1, 0).await;
    let pod = &mut cluster.pods[0];
    pod.begin_with("trap '' XFSZ");
    pod.grace_seconds = grace_seconds;
    pod.signal(Signal::TERM);
    assert_eq!(pod.ended().await, Some(0), "{}", pod.log());
    pod.start();
    cluster.wait_ready().await;
    cluster
}

/// No file of its redis-server grows beyond so many bytes; `None`: there is room again.
fn limit(pod: &Pod, bytes: Option<u64>) {
    let server = Pid::from_raw(pod.redis_pid().unwrap());
    prlimit(server, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// Bytes of the append-only file that is written, the only one that is not empty in a cluster without many keys.
fn log_size(pod: &Pod) -> u64 {
    let files = fs::read_dir(pod.data("appendonlydir")).unwrap().map(Result::unwrap);
    files.map(|file| file.metadata().unwrap().len()).max().unwrap()
}

async fn info(redis: &mut Connection, field: &str) -> String {
    redis.info(&["persistence"]).await.unwrap().get(field).unwrap_or_default().to_owned()
}

async fn keys(redis: &mut Connection) -> i64 {
    redis.call(&["DBSIZE"]).await.unwrap().integer().unwrap()
}

/// Writes until a write is refused: how many were acknowledged, of which the last ones are in no file. A snapshot of them all is much smaller.
/// With it a connection that is let in: Redis refuses `PING`, too, with which each begins here.
async fn write_until_refused(pod: &Pod) -> (i64, Connection) {
    limit(pod, Some(log_size(pod) + (64 << 10)));
    let (mut redis, mut client) = (pod.operator().await, pod.login("default", APPLICATION).await);
    let mut acknowledged = 0;
    for batch in 0..100 {
        let writes: Vec<Command> =
            (0..50).map(|n| Command::new("SET").arg(format!("{batch}-{n}")).arg(vec![b'v'; 1000])).collect();
        let replies = client.pipeline(&writes).await.unwrap();
        acknowledged += i64::try_from(replies.iter().filter(|reply| reply.is_ok()).count()).unwrap();
        if !replies.iter().all(Reply::is_ok) {
            break;
        }
        // While a sync takes its time Redis collects up to two seconds of writes, and a snapshot of all these would not fit.
        eventually("they are written, or refused", async || {
            info(&mut redis, "aof_buffer_length").await == "0"
                || info(&mut redis, "aof_last_write_status").await == "err"
        })
        .await;
    }
    assert_eq!(info(&mut redis, "aof_last_write_status").await, "err");
    assert_ne!(info(&mut redis, "aof_buffer_length").await, "0", "everything is in the file");
    assert_eq!(keys(&mut redis).await, acknowledged);
    (acknowledged, redis)
}

/// Measured before: the file was flushed once more, in vain, and redis-server ended without what it had acknowledged last.
#[tokio::test]
async fn what_could_not_be_logged_is_saved_at_a_stop_and_loaded() {
    let mut cluster = limited(88, 30).await;
    let (acknowledged, _redis) = write_until_refused(&cluster.pods[0]).await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    // Of processes that are gone, and of one that never was.
    let unfinished = ["temp-99999999.rdb", "temp-rewriteaof-bg-99999999.aof"].map(|name| cluster.pods[0].data(name));
    for path in &unfinished {
        fs::write(path, "x").unwrap();
    }
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, acknowledged, "{}", cluster.pods[0].log());
    assert_eq!(unfinished.map(|path| path.exists()), [false; 2]);
    // Redis removes what its new base replaces, and goes on from there.
    let former = cluster.pods[0].data("appendonlydir/appendonly.aof.1.incr.aof");
    eventually("the former file is gone", async || !former.exists()).await;
    assert!(!cluster.pods[0].data("dump.rdb").exists(), "it lies there under its new name only");
    cluster.wait_ready().await;
    fill(&cluster.pods[0], "more", 10, b"v").await;
    cluster.pods[0].kill_redis();
    assert_eq!(cluster.pods[0].ended().await, Some(2));
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, acknowledged + 10);
}

/// Before, it was killed seven seconds before its pod's time was over, if it had not ended without them before.
#[tokio::test]
async fn a_server_that_can_save_nowhere_lives_and_says_what_is_missing() {
    let mut cluster = limited(89, 10).await;
    let (acknowledged, mut redis) = write_until_refused(&cluster.pods[0]).await;
    limit(&cluster.pods[0], Some(NO_SNAPSHOT));
    cluster.pods[0].signal(Signal::TERM);
    eventually("it says so", async || cluster.pods[0].log().contains("bytes free")).await;
    // The grace period of this pod, and nobody ends it.
    let grace = Duration::from_secs(cluster.pods[0].grace_seconds);
    tokio::time::sleep(grace + Duration::from_secs(2)).await;
    assert!(cluster.pods[0].is_running(), "{}", cluster.pods[0].log());
    assert_eq!(keys(&mut redis).await, acknowledged);
    let report = cluster.report(&cluster.pods[0]).await.unwrap();
    // The limit of files is not the volume's.
    assert!(report.held_because.is_some_and(|why| why.contains("not for want of room")), "{}", cluster.pods[0].log());
    limit(&cluster.pods[0], None);
    // It is tried again once a minute.
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, acknowledged);
}

/// Before, it was told to end without saving, as its file had been written well when it was last asked, and ended so once it answered again.
#[tokio::test]
async fn a_server_that_hangs_is_not_ended_by_what_it_said_before() {
    let mut cluster = limited(60, 60).await;
    // What it says now, its agent notes when it is asked whether the member is ready. Nobody asks below.
    cluster.wait_ready().await;
    let (acknowledged, mut redis) = write_until_refused(&cluster.pods[0]).await;
    limit(&cluster.pods[0], Some(NO_SNAPSHOT));
    signal_redis(&cluster.pods[0], Signal::STOP);
    cluster.pods[0].signal(Signal::TERM);
    // As at the stop by which its server was given a limit.
    let given_up = |pod: &Pod| pod.log().matches("stopping without a hand-over").count() == 2;
    eventually("nobody takes over", async || given_up(&cluster.pods[0])).await;
    // It is asked meanwhile, in vain. After 20 s in which it does nothing it is ended, as one that hangs for good.
    tokio::time::sleep(Duration::from_secs(6)).await;
    signal_redis(&cluster.pods[0], Signal::CONT);
    eventually("it says what is missing, or ends", async || {
        cluster.pods[0].log().contains("bytes free") || !cluster.pods[0].is_running()
    })
    .await;
    assert!(cluster.pods[0].is_running(), "{}", cluster.pods[0].log());
    assert_eq!(keys(&mut redis).await, acknowledged);
}

/// Measured before: it ended without saving, and nothing that was acknowledged after the switch was in any file.
#[tokio::test]
async fn what_a_first_append_only_file_lacks_is_saved_at_a_stop() {
    let mut cluster = limited(90, 30).await;
    let mut redis = cluster.pods[0].operator().await;
    fill(&cluster.pods[0], "before", 1000, b"v").await;
    // While a sync takes its time they are not, and would be refused below.
    eventually("they are written", async || info(&mut redis, "aof_buffer_length").await == "0").await;
    limit(&cluster.pods[0], Some(NO_SNAPSHOT));
    for value in ["no", "yes"] {
        redis.config_set("appendonly", value).await.unwrap();
    }
    // Redis tries some times at once, and then a minute later.
    eventually("it has failed", async || info(&mut redis, "aof_last_bgrewrite_status").await == "err").await;
    eventually("it rests", async || {
        let before = info(&mut redis, "aof_rewrites").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_due = info(&mut redis, "aof_rewrite_scheduled").await == "1";
        let is_idle = info(&mut redis, "aof_rewrite_in_progress").await == "0";
        is_due && is_idle && info(&mut redis, "aof_rewrites").await == before
    })
    .await;
    fill(&cluster.pods[0], "after", 10, b"v").await;
    limit(&cluster.pods[0], None);
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended_slowly().await, Some(0), "{}", cluster.pods[0].log());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, 1010, "{}", cluster.pods[0].log());
}

/// Redis goes on without its agent, and the note on the volume is all that the next one has.
#[tokio::test]
async fn what_was_saved_after_its_agent_had_been_killed_is_loaded() {
    let mut cluster = limited(91, 30).await;
    let (acknowledged, mut redis) = write_until_refused(&cluster.pods[0]).await;
    // A fifth of a second for each key: it still saves when its agent is killed, whatever the machine does meanwhile.
    redis.config_set("rdb-key-save-delay", "200000").await.unwrap();
    cluster.pods[0].signal(Signal::TERM);
    let server = cluster.pods[0].redis_pid().unwrap();
    eventually("it saves", async || cluster.pods[0].data(&format!("temp-{server}.rdb")).exists()).await;
    cluster.pods[0].signal(Signal::KILL);
    assert_eq!(cluster.pods[0].ended().await, None);
    eventually("it has ended", async || !fs::exists(format!("/proc/{server}/cwd")).unwrap_or(true)).await;
    assert!(cluster.pods[0].data("kun-last-save.json").exists() && cluster.pods[0].data("dump.rdb").exists());
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].dbsize().await, acknowledged, "{}", cluster.pods[0].log());
    assert!(!cluster.pods[0].data("kun-last-save.json").exists());
}

/// Before, its agent ended, and so did every one after it, without a word in a report.
#[tokio::test]
async fn a_member_that_cannot_judge_what_was_saved_is_held() {
    let mut cluster = Cluster::form(95, config(), 1, 0).await;
    fill(&cluster.pods[0], "k", 10, b"v").await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
    // Not to be read, as on a disk that fails.
    let note = cluster.pods[0].data("kun-last-save.json");
    fs::create_dir(&note).unwrap();
    cluster.pods[0].start();
    eventually("it says so", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.and_then(|report| report.held_because).is_some_and(|why| why.contains("kun-last-save.json"))
    })
    .await;
    // What may count soon is data, and nobody decides before it does.
    assert!(cluster.report(&cluster.pods[0]).await.unwrap().holds_data);
    let release = r#"{"how":"AsIs"}"#;
    let (status, why) = cluster.as_user("kun:controller", &cluster.pods[0], "POST", "/v1/release", release).await;
    assert!(status == 409 && why.contains("kun-last-save.json"), "{status}: {why}");
    fs::remove_dir(&note).unwrap();
    assert_eq!(cluster.pods[0].dbsize().await, 10, "{}", cluster.pods[0].log());
}
