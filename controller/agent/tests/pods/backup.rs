//! Backups: what the worker stores loads elsewhere with the same keys, and a broken stream stores nothing.

use std::{
    fs,
    path::Path,
    process::{Command as Process, Stdio},
};

use agent::backup::Job;
use http_body_util::{BodyExt as _, Full};
use resp::{Connection, Options};
use tokio::net::{TcpListener, TcpStream};
use types::{agent::WorkerReport, names};

use crate::harness::{APPLICATION, Cluster, Pod, config, eventually, fill, program};

fn job(pod: &Pod, out: &Path) -> Job {
    Job {
        source: (pod.ip, names::PORT_AGENT).into(),
        expect_cn: "kun:agent:default:orders".into(),
        expect_node: None,
        not_before: None,
        out: out.join("shards"),
        file: "0.rdb".into(),
        internal_dir: pod.dir.join("internal"),
        termination_log: out.join("termination-log"),
    }
}

fn report(job: &Job) -> WorkerReport {
    serde_json::from_slice(&fs::read(&job.termination_log).unwrap()).unwrap()
}

/// Every kind of value the engine encodes in its own way.
async fn fill_kinds(pod: &Pod) -> i64 {
    let mut redis = pod.login("default", APPLICATION).await;
    let long = "x".repeat(5000);
    let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let words: Vec<String> = (0..1000).map(|n| format!("{n}{}", "y".repeat(80))).collect();
    let mut count = 0;
    for (kind, items) in [("few", &numbers[..3]), ("numbers", &numbers[..]), ("words", &words[..])] {
        let each = |command: &str| resp::Command::new(command).arg(format!("{command}-{kind}")).args(items);
        let pairs: Vec<&str> = items.iter().flat_map(|item| ["1", item.as_str()]).collect();
        let fields: Vec<&str> = items.iter().flat_map(|item| [item.as_str(), "v"]).collect();
        for command in [
            each("SADD"),
            each("RPUSH"),
            resp::Command::new("ZADD").arg(format!("zset-{kind}")).args(&pairs),
            resp::Command::new("HSET").arg(format!("hash-{kind}")).args(&fields),
        ] {
            redis.command(&command).await.unwrap();
            count += 1;
        }
    }
    for (key, value) in [("short", "1"), ("number", "-70000"), ("long", long.as_str())] {
        redis.call(&["SET", key, value, "EX", "10000"]).await.unwrap();
        count += 1;
    }
    for n in 0..300 {
        redis.call(&["XADD", "stream", "*", "field", &n.to_string()]).await.unwrap();
    }
    redis.call(&["XGROUP", "CREATE", "stream", "group", "0"]).await.unwrap();
    redis.call(&["XREADGROUP", "GROUP", "group", "me", "COUNT", "7", "STREAMS", "stream", ">"]).await.unwrap();
    redis.call(&["PFADD", "hll", "a", "b"]).await.unwrap();
    redis
        .call(&["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)"])
        .await
        .unwrap();
    count + 2
}

#[tokio::test]
async fn a_stored_snapshot_loads_in_a_fresh_server_with_the_same_keys() {
    let cluster = Cluster::form(16, config(), 1, 1).await;
    let kinds = fill_kinds(&cluster.pods[0]).await;
    fill(&cluster.pods[0], "k", 20_000, &[b'v'; 300]).await;
    let keys = kinds + 20_000;
    let out = tempfile::tempdir().unwrap();
    for (number, pod) in cluster.pods.iter().enumerate() {
        let job = Job {
            file: format!("{number}.rdb"),
            expect_node: Some(pod.id().await.to_string()),
            ..job(pod, out.path())
        };
        eventually("the copy has every key", async || pod.dbsize().await == keys).await;
        assert!(agent::backup::run(&job).await, "{:?}", report(&job));
        let WorkerReport::Stored { artifact, engine_version } = report(&job) else { panic!() };
        assert!(engine_version.starts_with("7."), "{engine_version}");
        assert_eq!((artifact.keys, artifact.index, artifact.slots.as_str()), (keys, 0, "0-16383"));
        assert_eq!(artifact.node_id, pod.id().await.to_string());
        assert_eq!(artifact.replication_id.len(), 40);
        let file = job.out.join(&job.file);
        assert_eq!(fs::metadata(&file).unwrap().len(), u64::try_from(artifact.bytes).unwrap());
        let sum = Process::new("sha256sum").arg(&file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&sum.stdout).split(' ').next(), Some(artifact.sha256.as_str()));
        assert_loads(&file, keys, number).await;
        let mut redis = pod.operator().await;
        eventually("compression is back", async || {
            redis.config_get(&["rdbcompression"]).await.unwrap()["rdbcompression"] == "yes"
        })
        .await;
        assert_eq!(fs::read_dir(&job.out).unwrap().count(), number + 1, "the files that were stored, and no other");
    }
}

/// The next connection that comes to a door leads to an agent.
async fn pass_on(door: &TcpListener, agent: (std::net::Ipv4Addr, u16)) {
    let (mut caller, _) = door.accept().await.unwrap();
    let mut answering = TcpStream::connect(agent).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut caller, &mut answering).await;
}

/// So does each of them: where the machine stands still the worker itself may give one up.
async fn pass_all_on(door: &TcpListener, agent: (std::net::Ipv4Addr, u16)) {
    loop {
        pass_on(door, agent).await;
    }
}

/// As an agent on a busy node does, which has no time to say who it is.
#[tokio::test]
async fn an_agent_that_gives_connections_up_is_connected_to_again() {
    let cluster = Cluster::form(46, config(), 1, 0).await;
    let agent = (cluster.pods[0].ip, names::PORT_AGENT);
    let door = TcpListener::bind("127.84.46.99:0").await.unwrap();
    let identity = cluster.certificate("kun:agent:default:orders");
    let authorities = cluster.authority.certificate_pem();
    let tls = certs::server_config(&identity, authorities, certs::ClientAuth::Requested, &[certs::ALPN_H1]).unwrap();
    let out = tempfile::tempdir().unwrap();
    let job = Job { source: door.local_addr().unwrap(), ..job(&cluster.pods[0], out.path()) };
    let gives_up = async {
        for _ in 0..2 {
            drop(door.accept().await.unwrap());
        }
        for _ in 0..2 {
            // Who is that late believes himself connected.
            let (caller, _) = door.accept().await.unwrap();
            drop(tokio_rustls::TlsAcceptor::from(tls.clone()).accept(caller).await);
        }
        pass_all_on(&door, agent).await;
    };
    let is_stored = tokio::select! {
        is_stored = agent::backup::run(&job) => is_stored,
        () = gives_up => false,
    };
    assert!(is_stored, "{:?}", report(&job));
    // Who answers and is not believed is not asked again.
    let stranger = Job { expect_cn: "kun:agent:default:carts".into(), ..job };
    let once = async {
        pass_on(&door, agent).await;
        drop(door);
    };
    let (is_stored, ()) = tokio::join!(agent::backup::run(&stranger), once);
    let WorkerReport::Failed { message } = report(&stranger) else { panic!() };
    assert!(!is_stored && message.contains("not \"kun:agent:default:carts\""), "{message}");
}

async fn assert_loads(file: &Path, keys: i64, number: usize) {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(file, dir.path().join("dump.rdb")).unwrap();
    let ip = format!("127.84.17.{}", number + 1);
    let mut server = Process::new("redis-server")
        .args(["--bind", &ip, "--port", "6379", "--protected-mode", "no", "--save", "", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let options = Options::new(format!("{ip}:6379").parse().unwrap());
    let mut found = None;
    crate::harness::eventually("a server loads it", async || {
        if let Ok(mut redis) = Connection::open(&options).await
            && let Ok(reply) = redis.call(&["DBSIZE"]).await
        {
            found = reply.integer();
        }
        found.is_some()
    })
    .await;
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(found, Some(keys));
}

#[tokio::test]
async fn a_worker_stores_nothing_from_a_stranger_or_a_broken_stream() {
    let mut cluster = Cluster::form(18, config(), 1, 0).await;
    let out = tempfile::tempdir().unwrap();
    let good = job(&cluster.pods[0], out.path());
    let failure = |job: &Job| match report(job) {
        WorkerReport::Failed { message } => message,
        WorkerReport::Stored { .. } | WorkerReport::Erased { .. } => panic!("stored"),
    };
    let stranger = Job { expect_cn: "kun:agent:default:other".into(), ..good.clone() };
    assert!(!agent::backup::run(&stranger).await);
    assert!(failure(&stranger).contains("is \"kun:agent:default:orders\", not \"kun:agent:default:other\""));
    let moved = Job { expect_node: Some("0".repeat(40)), ..good.clone() };
    assert!(!agent::backup::run(&moved).await);
    assert!(failure(&moved).contains(&"0".repeat(40)));
    let late = Job { not_before: Some(("0".repeat(40), 1)), ..good.clone() };
    assert!(!agent::backup::run(&late).await);
    assert!(failure(&late).contains(&format!("is to begin at {}:1 or later", "0".repeat(40))), "{}", failure(&late));
    // The member dies in the middle of the stream.
    fill(&cluster.pods[0], "k", 60_000, &[b'v'; 1000]).await;
    let mut redis = cluster.pods[0].operator().await;
    // A minute for all of them.
    redis.config_set("rdb-key-save-delay", "1000").await.unwrap();
    let running = tokio::spawn({
        let job = good.clone();
        async move { agent::backup::run(&job).await }
    });
    let partial = || {
        let mut files = fs::read_dir(&good.out).into_iter().flatten().flatten();
        files.find(|file| file.file_name().to_string_lossy().ends_with(".part"))
    };
    let has_begun = || partial().is_some_and(|file| file.metadata().is_ok_and(|file| file.len() > 100_000));
    eventually("the stream has begun", async || has_begun()).await;
    cluster.pods[0].kill_redis();
    assert!(!running.await.unwrap());
    assert_eq!(fs::read_dir(&good.out).unwrap().count(), 0, "{}", failure(&good));
    cluster.pods[0].ended().await;
}

/// Before, a primary that hears nobody gave a copy of what it had been.
#[tokio::test]
async fn a_member_that_does_not_serve_gives_no_copy() {
    let cluster = Cluster::form(99, config(), 1, 0).await;
    let mut redis = cluster.pods[0].operator().await;
    redis.config_set("cluster-require-full-coverage", "yes").await.unwrap();
    redis.call(&["CLUSTER", "DELSLOTS", "0"]).await.unwrap();
    eventually("it does not serve", async || redis.cluster_info().await.is_ok_and(|info| !info.ok)).await;
    let out = tempfile::tempdir().unwrap();
    let job = job(&cluster.pods[0], out.path());
    assert!(!agent::backup::run(&job).await);
    let WorkerReport::Failed { message } = report(&job) else { panic!() };
    assert!(message.ends_with("take a snapshot: the member does not serve (cluster_state:fail)"), "{message}");
}

/// Before, a worker whose predecessor lived on where nobody heard of it failed, and so did the next two: the backup within a minute.
#[tokio::test]
async fn one_snapshot_at_a_time_and_a_reader_that_leaves_frees_the_member() {
    let cluster = Cluster::form(19, config(), 1, 0).await;
    fill(&cluster.pods[0], "k", 20_000, &[b'v'; 1000]).await;
    let mut redis = cluster.pods[0].operator().await;
    redis.config_set("rdb-key-save-delay", "200").await.unwrap();
    let identity = cluster.certificate("kun:agent:default:orders");
    let mut sender = cluster.connect(&cluster.pods[0], Some(&identity)).await.unwrap();
    let request = http::Request::get("/v1/snapshot").header("host", "x").body(Full::default()).unwrap();
    let mut response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.body_mut().frame().await.unwrap().unwrap().is_data());
    assert_eq!(redis.config_get(&["rdbcompression"]).await.unwrap()["rdbcompression"], "no");
    let second = cluster.as_user("kun:agent:default:orders", &cluster.pods[0], "GET", "/v1/snapshot", "").await;
    assert_eq!(second, (429, "another snapshot is being streamed from this member\n".to_owned()));
    let agent = (cluster.pods[0].ip, names::PORT_AGENT);
    let door = TcpListener::bind("127.84.19.99:0").await.unwrap();
    let out = tempfile::tempdir().unwrap();
    let job = Job { source: door.local_addr().unwrap(), ..job(&cluster.pods[0], out.path()) };
    // What another worker has not finished, who is waited for.
    let unfinished = job.out.join(".0.rdb.7.part");
    fs::create_dir_all(&job.out).unwrap();
    fs::write(&unfinished, "all").unwrap();
    let leaves = async {
        // One of them may be given up before it is answered.
        for _ in 0..2 {
            pass_on(&door, agent).await;
        }
        drop((response, sender));
        redis.config_set("rdb-key-save-delay", "0").await.unwrap();
        pass_all_on(&door, agent).await;
    };
    let is_stored = tokio::select! {
        is_stored = agent::backup::run(&job) => is_stored,
        () = leaves => false,
    };
    assert!(is_stored, "{:?}", report(&job));
    assert_eq!(fs::read_to_string(unfinished).unwrap(), "all");
    eventually("compression is back", async || {
        redis.config_get(&["rdbcompression"]).await.unwrap()["rdbcompression"] == "yes"
    })
    .await;
}

#[test]
fn the_worker_is_reached_by_its_subcommand_and_reports_bad_arguments() {
    let run = |args: &[&str]| Process::new(program()).args(args).env("KUN_INTERNAL_DIR", "/nowhere").output().unwrap();
    let output = run(&["backup", "--source", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--expect-cn is missing"), "{output:?}");
    assert_eq!(run(&["nonsense"]).status.code(), Some(1));
}
