//! A fresh member: files, probes, identities, users, live changes, and where secrets are not.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::Signal;
use types::{agent::AgentPhase, names};

use crate::harness::{APPLICATION, Cluster, OPERATOR, config, eventually};

#[tokio::test]
async fn a_fresh_member_starts_blank_and_is_ready_only_with_slots() {
    let mut cluster = Cluster::new(2, config());
    cluster.add();
    let pod = &cluster.pods[0];
    let mut redis = pod.operator().await;
    assert_eq!(cluster.get(pod, "/startupz").await, (200, "ok\n".to_owned()));
    assert_eq!(cluster.get(pod, "/livez").await, (200, "ok\n".to_owned()));
    eventually("it says why it is not ready", async || {
        cluster.get(pod, "/readyz").await == (503, "it owns no slots and replicates nobody\n".to_owned())
    })
    .await;
    redis.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("it is ready", async || cluster.get(pod, "/readyz").await.0 == 200).await;
    eventually("its metrics say so", async || {
        let metrics = cluster.get(pod, "/metrics").await.1;
        metrics.contains("redis_up 1\n") && metrics.contains("redis_primary 1\n")
    })
    .await;
    eventually("it says that it runs", async || {
        let report = cluster.report(pod).await;
        report
            .is_some_and(|report| (report.phase, report.held_because, report.starts) == (AgentPhase::Running, None, 1))
    })
    .await;
    let limits = redis.config_get(&["maxmemory", "cluster-announce-ip", "repl-diskless-sync-delay"]).await.unwrap();
    assert_eq!(limits["maxmemory"], (200 << 20).to_string());
    assert_eq!(limits["cluster-announce-ip"], pod.ip.to_string());
    assert_eq!(limits["repl-diskless-sync-delay"], "0");
    let pod = &mut cluster.pods[0];
    pod.signal(Signal::TERM);
    assert_eq!(pod.ended().await, Some(0), "{}", pod.log());
}

#[tokio::test]
async fn only_the_right_certificates_reach_the_api() {
    let mut cluster = Cluster::new(3, config());
    cluster.add();
    let pod = &cluster.pods[0];
    pod.operator().await;
    for path in ["/v1/report", "/v1/snapshot"] {
        assert_eq!(cluster.get(pod, path).await, (401, "a client certificate is needed\n".to_owned()));
        let (status, _) = cluster.as_user("kun:agent:default:other", pod, "GET", path, "").await;
        assert_eq!(status, 403, "{path}");
    }
    let own = "kun:agent:default:orders";
    assert_eq!(cluster.as_user(own, pod, "GET", "/v1/report", "").await.0, 200, "agents ask each other who they are");
    assert_eq!(cluster.as_user(own, pod, "POST", "/v1/release", "{\"how\":\"Blank\"}").await.0, 403);
    let release = cluster.as_user("kun:controller", pod, "POST", "/v1/release", "{\"how\":\"Blank\"}").await;
    assert_eq!(release, (409, "this member is not held, it is Running\n".to_owned()));
    for (body, status) in [("{", 400), ("{\"how\":\"Reset\"}", 400), ("{\"how\":\"AsIs\",\"x\":1}", 400)] {
        assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", body).await.0, status, "{body}");
    }
    let large = format!("{{\"how\":\"{}\"}}", "x".repeat(10_000));
    assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", &large).await.0, 413);
    // A certificate of another authority ends the handshake.
    let stranger = Cluster::new(3, config()).certificate("kun:controller");
    let mut refused = cluster.connect(pod, Some(&stranger)).await;
    if let Some(sender) = &mut refused {
        let request =
            http::Request::get("/v1/report").header("host", "x").body(http_body_util::Full::default()).unwrap();
        assert!(sender.send_request(request).await.is_err());
    }
}

#[tokio::test]
async fn each_user_may_do_its_work_and_nothing_that_destroys() {
    let mut cluster = Cluster::new(4, config());
    cluster.add();
    let mut redis = cluster.pods[0].operator().await;
    let operator = names::USER_OPERATOR;
    let allowed = [
        (operator, "CLUSTER NODES|CLUSTER INFO|CLUSTER MYID|CLUSTER MEET 1 2|CLUSTER FORGET x|CLUSTER REPLICATE x"),
        (operator, "CLUSTER SETSLOT 1 STABLE|CLUSTER ADDSLOTS 1|CLUSTER FAILOVER|CLUSTER GETKEYSINSLOT 1 1"),
        (operator, "CONFIG GET x|CONFIG SET x y|INFO|ROLE|PING|WAIT 0 0|DBSIZE|ASKING|CLIENT ID|MEMORY USAGE k"),
        (operator, "MIGRATE h 1 k 0 1|RESTORE k 0 v|RESTORE-ASKING k 0 v|CLUSTER SET-CONFIG-EPOCH 1|CLUSTER BUMPEPOCH"),
        (names::USER_AGENT, "INFO|ROLE|PING|CLUSTER INFO|CLUSTER NODES|CLUSTER MYID|CLUSTER FAILOVER|CONFIG GET x"),
        (names::USER_AGENT, "CONFIG SET x y|SHUTDOWN|PSYNC ? -1|REPLCONF a b|SYNC|DBSIZE"),
        (names::USER_AGENT, "CLUSTER SETSLOT 1 MIGRATING x"),
        (names::USER_REPLICA, "PSYNC ? -1|REPLCONF a b|PING"),
        (names::USER_LOCAL, "ACL SETUSER x|CLIENT KILL USER x|PING"),
        ("default", "GET k|SET k v|DEL k|INFO|KEYS *|FLUSHDB|FLUSHALL|SORT k|CLUSTER SLOTS|CLUSTER NODES|SUBSCRIBE c"),
    ];
    let denied = [
        (operator, "FLUSHALL|FLUSHDB|CLUSTER RESET SOFT|CLUSTER RESET HARD|CLUSTER FLUSHSLOTS|DEBUG SLEEP 0"),
        (
            operator,
            "MODULE LIST|EVAL x 0|FCALL f 0|FUNCTION FLUSH|KEYS *|SCAN 0|RANDOMKEY|GET k|SET k v|DEL k|UNLINK k",
        ),
        (operator, "DUMP k|RENAME a b|SWAPDB 0 1|SHUTDOWN|REPLICAOF NO ONE|ACL SETUSER x|ACL LOAD|ACL DELUSER x"),
        (operator, "CONFIG REWRITE|MONITOR|SUBSCRIBE c|PSYNC ? -1|SAVE|BGSAVE|SCRIPT FLUSH"),
        (names::USER_AGENT, "FLUSHALL|FLUSHDB|CLUSTER RESET SOFT|CLUSTER FORGET x|CLUSTER MEET 1 2|CLUSTER ADDSLOTS 1"),
        (
            names::USER_AGENT,
            "GET k|SET k v|DEL k|KEYS *|EVAL x 0|DEBUG SLEEP 0|MODULE LIST|ACL SETUSER x|MIGRATE h 1 k 0 1",
        ),
        (names::USER_AGENT, "ACL LOAD|CONFIG REWRITE|MONITOR|REPLICAOF NO ONE|CLUSTER REPLICATE x|RESTORE k 0 v"),
        (names::USER_REPLICA, "GET k|SET k v|INFO|FLUSHALL|CONFIG GET x|CLUSTER NODES|ACL WHOAMI|SHUTDOWN"),
        (names::USER_LOCAL, "GET k|SET k v|INFO|FLUSHALL|CONFIG GET x|ACL LOAD|ACL LIST|ACL DELUSER x|SHUTDOWN"),
        ("default", "CONFIG GET x|ACL LIST|SHUTDOWN|DEBUG SLEEP 0|MODULE LIST|CLUSTER FAILOVER|CLUSTER RESET SOFT"),
        ("default", "REPLICAOF NO ONE|MONITOR|PSYNC ? -1|MIGRATE h 1 k 0 1|SAVE|SWAPDB 0 1|CLUSTER FORGET x"),
    ];
    for (rows, may) in [(&allowed[..], true), (&denied[..], false)] {
        for (user, command) in rows.iter().flat_map(|(user, line)| line.split('|').map(move |command| (user, command)))
        {
            let words: Vec<&str> = ["ACL", "DRYRUN", user].into_iter().chain(command.split(' ')).collect();
            let reply = redis.call(&words).await.unwrap();
            assert_eq!(reply.is_ok(), may, "{user} {command}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn the_controllers_user_moves_keys_between_members_and_cannot_read_them() {
    let cluster = Cluster::form(20, config(), 2, 0).await;
    let mut client = cluster.client();
    let key = (0..).map(|n| format!("key{n}")).find(|key| resp::slot::key_slot(key) < 8192).unwrap();
    let slot = resp::slot::key_slot(&key).to_string();
    assert!(matches!(client.set(&key, "value").await, resp::Outcome::Acked(_)));
    let (mut from, mut to) = (cluster.pods[0].operator().await, cluster.pods[1].operator().await);
    let (from_id, to_id) = (from.my_id().await.unwrap(), to.my_id().await.unwrap());
    to.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", from_id.as_str()]).await.unwrap();
    from.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", to_id.as_str()]).await.unwrap();
    let host = cluster.pods[1].ip.to_string();
    let words = ["MIGRATE", &host, "6379", "", "0", "60000", "AUTH2", names::USER_OPERATOR, OPERATOR, "KEYS", &key];
    assert!(from.call(&words).await.unwrap().is_ok());
    for redis in [&mut to, &mut from] {
        redis.call(&["CLUSTER", "SETSLOT", &slot, "NODE", to_id.as_str()]).await.unwrap();
    }
    assert_eq!(client.get(&key).await.unwrap().unwrap(), "value");
    let refused = to.call(&["GET", &key]).await.unwrap_err();
    assert_eq!(refused.refusal().unwrap().kind, resp::ErrorKind::NoPermission);
}

#[tokio::test]
async fn secrets_are_in_no_argument_no_environment_no_log_and_no_readable_file() {
    let mut cluster = Cluster::form(5, config(), 1, 1).await;
    let canary = "canary";
    for pod in &cluster.pods {
        for pid in [pod.pid(), pod.redis_pid().unwrap()] {
            for file in ["cmdline", "environ"] {
                let content = fs::read(format!("/proc/{pid}/{file}")).unwrap();
                assert!(!String::from_utf8_lossy(&content).contains(canary), "{file} of {pid}");
            }
        }
        for file in ["redis.conf", "users.acl", "redis-server.json"] {
            let mode = fs::metadata(pod.dir.join("run").join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let acl = fs::read_to_string(pod.dir.join("run/users.acl")).unwrap();
        assert!(!acl.contains(canary), "the ACL file holds hashes");
        let nodes = fs::read_to_string(pod.data("nodes.conf")).unwrap();
        assert!(!nodes.contains(canary));
    }
    for pod in &mut cluster.pods {
        pod.signal(Signal::TERM);
    }
    for pod in &mut cluster.pods {
        assert_eq!(pod.ended().await, Some(0));
        let log = pod.log();
        assert!(log.len() > 500 && !log.contains(canary), "{log}");
    }
}

/// On Redis 7.0, loading all users anew closed every connection, and each replica had to come back.
#[tokio::test]
async fn a_changed_password_closes_those_who_used_the_old_one_and_no_replica() {
    let cluster = Cluster::form(44, config(), 1, 1).await;
    let (primary, replica) = (&cluster.pods[0], &cluster.pods[1]);
    let mut operator = primary.operator().await;
    let full = async |operator: &mut resp::Connection| {
        let info = operator.info(&["stats"]).await.unwrap();
        ["sync_full", "sync_partial_ok"].map(|name| info.number(name))
    };
    let before = full(&mut operator).await;
    let mut client = primary.login("default", APPLICATION).await;
    for pod in [primary, replica] {
        fs::write(pod.dir.join("auth/password"), "another-password").unwrap();
    }
    eventually("the old connection is closed", async || client.call(&["PING"]).await.is_err()).await;
    let opened = resp::Connection::open(&primary.options("default", "another-password")).await;
    assert!(opened.is_ok(), "{opened:?}");
    // Long enough for a replica to come back.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(full(&mut operator).await, before);
}

/// What changes while Redis stands still breaks off wherever it is, and is gone on with.
#[tokio::test]
async fn internal_passwords_change_although_redis_stands_still_meanwhile() {
    let mut cluster = Cluster::form(210, config(), 1, 1).await;
    let redis = rustix::process::Pid::from_raw(cluster.pods[0].redis_pid().unwrap()).unwrap();
    for turn in 0..3 {
        let new = |user: &str| format!("{user}-{turn}");
        rustix::process::kill_process(redis, Signal::STOP).unwrap();
        for pod in &cluster.pods {
            for user in ["operator", "agent", "replica"] {
                fs::write(pod.dir.join("internal").join(user), new(user)).unwrap();
            }
        }
        let told = cluster.pods[0].log().matches("changed inputs are not in use yet").count();
        eventually("it has broken off", async || {
            cluster.pods[0].log().matches("changed inputs are not in use yet").count() > told
        })
        .await;
        rustix::process::kill_process(redis, Signal::CONT).unwrap();
        for pod in &cluster.pods {
            for (user, secret) in [(names::USER_OPERATOR, new("operator")), (names::USER_AGENT, new("agent"))] {
                let options = pod.options(user, &secret);
                eventually("the new password counts", async || resp::Connection::open(&options).await.is_ok()).await;
            }
        }
    }
    for (user, secret) in [(names::USER_OPERATOR, "operator-1"), (names::USER_AGENT, "agent-1")] {
        let refused = async || {
            let opened = resp::Connection::open(&cluster.pods[0].options(user, secret)).await;
            opened.is_err_and(|error| error.refusal().is_some())
        };
        eventually("the former one does not", refused).await;
    }
    cluster.config.parameters.insert("maxclients".into(), "123".into());
    cluster.write_config(&cluster.pods[0].dir);
    eventually("its agent goes on setting parameters", async || {
        let mut redis = cluster.pods[0].login(names::USER_OPERATOR, "operator-2").await;
        redis.config_get(&["maxclients"]).await.unwrap()["maxclients"] == "123"
    })
    .await;
}

#[tokio::test]
async fn changed_parameters_and_passwords_are_applied_without_a_restart() {
    let mut cluster = Cluster::new(6, config());
    cluster.config.parameters.insert("timeout".into(), "100".into());
    cluster.add();
    let pid = {
        cluster.pods[0].operator().await;
        cluster.pods[0].redis_pid()
    };
    cluster.config.parameters.clear();
    cluster.config.parameters.insert("maxclients".into(), "123".into());
    cluster.config.max_memory_bytes = Some(64 << 20);
    cluster.write_config(&cluster.pods[0].dir);
    let pod = &cluster.pods[0];
    fs::write(pod.dir.join("auth/password"), "another-password").unwrap();
    eventually("parameters are applied", async || {
        let mut redis = pod.operator().await;
        let now = redis.config_get(&["maxclients", "maxmemory", "timeout"]).await.unwrap();
        (now["maxclients"].as_str(), now["maxmemory"].as_str(), now["timeout"].as_str()) == ("123", "67108864", "0")
    })
    .await;
    eventually("the new password works", async || {
        let new = resp::Credentials::new("default", "another-password");
        resp::Connection::open(&resp::Options::new(pod.redis()).credentials(new)).await.is_ok()
    })
    .await;
    let old = resp::Credentials::new("default", APPLICATION);
    assert!(resp::Connection::open(&resp::Options::new(pod.redis()).credentials(old)).await.is_err());
    assert_eq!(pod.redis_pid(), pid);
    // What cannot be used changes nothing.
    fs::write(pod.dir.join("config/agent.json"), "{").unwrap();
    eventually("it is looked at", async || pod.log().contains("changed inputs cannot be used yet")).await;
    assert_eq!(cluster.get(pod, "/livez").await.0, 200);
    let now = pod.operator().await.config_get(&["maxclients"]).await.unwrap();
    assert_eq!(now["maxclients"], "123");
}

/// Before, the agent stood still with its volume: no probe was answered, the kubelet ended a server that served on, and nobody read that signal either.
#[tokio::test]
async fn an_agent_answers_its_probes_while_its_volume_does_not_answer() {
    let mut cluster = Cluster::form(224, config(), 1, 0).await;
    let [manifest, aside, pipe] =
        ["", ".aside", ".pipe"].map(|end| cluster.pods[0].data(&format!("appendonlydir/appendonly.aof.manifest{end}")));
    // Whoever opens that waits until somebody writes there, as for the server of a network file system that is away.
    fs::rename(&manifest, &aside).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    eventually("it has looked there", async || cluster.pods[0].log().contains("the volume does not answer")).await;
    assert_eq!(cluster.get(&cluster.pods[0], "/livez").await.0, 200);
    assert_eq!(cluster.pods[0].operator().await.call(&["DBSIZE"]).await.unwrap().integer(), Some(0));
    fs::rename(&manifest, &pipe).unwrap();
    fs::rename(&aside, &manifest).unwrap();
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    fs::remove_file(&pipe).unwrap();
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0), "{}", cluster.pods[0].log());
}
