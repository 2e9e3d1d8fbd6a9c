//! The connection and the cluster client against real redis-server processes on 127.84.1.0/24.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::{Child, Command as Process, Stdio},
    time::{Duration, Instant},
};

use resp::{ClusterClient, Command, Connection, Credentials, Error, ErrorKind, Options, Outcome, Reply, Role, slot};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Server {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn server(last: u8, extra: &[&str]) -> Server {
    let ip = Ipv4Addr::new(127, 84, 1, last);
    let dir = tempfile::tempdir().unwrap();
    let text = ip.to_string();
    let child = Process::new("redis-server")
        .args(["--port", "6379", "--bind", &text, "--bind-source-addr", &text, "--save", "", "--dir"])
        .arg(dir.path())
        .args(["--protected-mode", "no"])
        .args(extra)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let address = SocketAddr::new(IpAddr::V4(ip), 6379);
    // From here on dropping it ends the process, also when it never answers.
    let server = Server { child, address, _dir: dir };
    let begun = Instant::now();
    while begun.elapsed() < hung::process() {
        if Connection::open(&Options::new(address)).await.is_ok() {
            return server;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("redis-server at {address} does not answer");
}

/// A test that asks waits longer than the product does: a machine that stands still for a while is no answer.
fn patient(address: SocketAddr) -> Options {
    let mut options = Options::new(address).deadline(hung::answer());
    options.connect_timeout = hung::answer();
    options
}

async fn open(address: SocketAddr) -> Connection {
    Connection::open(&patient(address)).await.unwrap()
}

#[tokio::test]
async fn a_user_authenticates_and_a_wrong_password_is_a_typed_refusal() {
    let server = server(1, &["--user", "app", "on", ">canary-pass", "~*", "+@all"]).await;
    let good = Options::new(server.address).credentials(Credentials::new("app", "canary-pass"));
    let mut connection = Connection::open(&good).await.unwrap();
    assert_eq!(connection.call(&["ACL", "WHOAMI"]).await.unwrap().text(), Some("app"));
    let bad = Options::new(server.address).credentials(Credentials::new("app", "canary-wrong"));
    let error = Connection::open(&bad).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, ErrorKind::NotAuthenticated);
    let printed = format!("{good:?} {bad:?} {error:?} {error}");
    assert!(!printed.contains("canary"), "{printed}");
}

#[tokio::test]
async fn a_server_without_auth_does_not_repeat_the_password() {
    let server = server(8, &["--rename-command", "AUTH", ""]).await;
    let options = Options::new(server.address).credentials(Credentials::new("app", "canary-pass"));
    let error = Connection::open(&options).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().text, "ERR unknown command 'AUTH'");
    assert!(!format!("{error:?} {error}").contains("canary"), "{error}");
}

#[tokio::test]
async fn a_server_without_config_does_not_repeat_what_was_to_be_set() {
    let server = server(9, &["--rename-command", "CONFIG", ""]).await;
    let error = open(server.address).await.config_set("masterauth", "canary-pass").await.unwrap_err();
    assert_eq!(error.refusal().unwrap().text, "ERR unknown command 'CONFIG'");
    assert!(!format!("{error:?} {error}").contains("canary"), "{error}");
}

#[tokio::test]
async fn a_pipeline_keeps_order_and_carries_errors_in_place() {
    let server = server(2, &[]).await;
    let mut connection = open(server.address).await;
    let big = vec![b'x'; 3 << 20];
    let commands = [
        Command::new("SET").arg("k").arg(&big),
        Command::new("INCR").arg("k"),
        Command::new("GET").arg("k"),
        Command::new("STRLEN").arg("k"),
    ];
    let replies = connection.pipeline(&commands).await.unwrap();
    assert!(replies[0].is_ok());
    assert!(matches!(&replies[1], Reply::Error(text) if text.starts_with("ERR value is not an integer")));
    assert_eq!(replies[2], Reply::Bulk(big.into()));
    assert_eq!(replies[3], Reply::Integer(3 << 20));
    assert!(matches!(connection.role().await.unwrap(), Role::Primary { .. }));
    assert_eq!(connection.info(&["server"]).await.unwrap().number("tcp_port"), Some(6379));
    connection.config_set("maxmemory", "100mb").await.unwrap();
    assert_eq!(connection.config_get(&["maxmemory"]).await.unwrap()["maxmemory"], "104857600");
}

#[tokio::test]
async fn after_a_lost_deadline_the_connection_answers_nothing_more() {
    let server = server(3, &[]).await;
    let mut connection = open(server.address).await;
    connection.set_deadline(Duration::from_millis(50));
    let error = connection.call(&["BLPOP", "list", "0"]).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }) && !error.surely_not_executed(), "{error}");
    // The answer comes after all: it must not be taken for the next command's.
    assert_eq!(open(server.address).await.call(&["LPUSH", "list", "late"]).await.unwrap(), Reply::Integer(1));
    assert!(matches!(connection.call(&["PING"]).await.unwrap_err(), Error::Broken { .. }));
}

#[tokio::test]
async fn the_source_address_is_the_one_asked_for() {
    let server = server(4, &[]).await;
    let options = Options::new(server.address).source("127.84.1.200".parse().unwrap());
    let mut connection = Connection::open(&options).await.unwrap();
    let reply = connection.call(&["CLIENT", "INFO"]).await.unwrap();
    assert!(reply.text().unwrap().contains(" addr=127.84.1.200:"), "{reply:?}");
}

#[tokio::test]
async fn a_peer_that_is_no_redis_is_an_error_and_nobody_listening_is_surely_not_executed() {
    let listener = tokio::net::TcpListener::bind("127.84.1.5:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"*999999999\r\n").await.unwrap();
        // Until the other one hangs up.
        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
    });
    let error = open(address).await.call(&["PING"]).await.unwrap_err();
    assert!(matches!(error, Error::Frame { .. }), "{error}");
    peer.await.unwrap();
    // Held, or another process of this machine could listen there by now.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.84.1.5:0".parse().unwrap()).unwrap();
    let error = Connection::open(&Options::new(held.local_addr().unwrap())).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.surely_not_executed(), "{error}");
}

/// On a machine that stands still an answer is read long after it was given: what an attempt may take does not say when it was sent.
#[tokio::test]
async fn the_cluster_client_tells_when_its_last_attempt_began() {
    let listener = tokio::net::TcpListener::bind("127.84.1.6:0").await.unwrap();
    let mut client = ClusterClient::new(vec![listener.local_addr().unwrap()], None);
    // It refuses the first SET, and says of no slot whose it is.
    let peer = tokio::spawn(async move {
        let mut came = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut words = [0; 512];
            while let Ok(read) = stream.read(&mut words).await
                && read > 0
            {
                let is_set = words[..read].windows(3).any(|word| word == b"SET");
                came.extend(is_set.then(Instant::now));
                let answer = match (is_set, came.len()) {
                    (false, _) => "-ERR it is no cluster\r\n",
                    (true, 1) => "-LOADING it starts\r\n",
                    (true, _) => "+OK\r\n",
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                if is_set && came.len() == 2 {
                    return came;
                }
            }
        }
    });
    let begin = Instant::now();
    assert_eq!(client.set("a", "1").await, Outcome::Acked(Reply::Status("OK".into())));
    let (came, sent_at) = (peer.await.unwrap(), client.sent_at().into_std());
    assert!(begin <= came[0] && came[0] <= sent_at && sent_at <= came[1], "{begin:?}, {came:?}, {sent_at:?}");
}

async fn two_nodes(first: u8) -> (Server, Server) {
    let cluster = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let (a, b) = (server(first, &cluster).await, server(first + 1, &cluster).await);
    let (mut to_a, mut to_b) = (open(a.address).await, open(b.address).await);
    to_a.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]).await.unwrap();
    to_b.call(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]).await.unwrap();
    to_b.call(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]).await.unwrap();
    to_a.call(&["CLUSTER", "MEET", &b.address.ip().to_string(), "6379"]).await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < hung::change() {
        let (one, two) = (to_a.cluster_info().await.unwrap(), to_b.cluster_info().await.unwrap());
        if one.ok && two.ok && one.slots_ok == 16384 && two.slots_ok == 16384 {
            return (a, b);
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the two nodes do not form a cluster");
}

#[tokio::test]
async fn the_cluster_client_follows_moved_and_ask_and_tells_unknown_from_refused() {
    let (a, mut b) = two_nodes(10).await;
    // So long it tries to reach somebody who is gone; what is refused after it has not been executed.
    let patience = Duration::from_millis(1500);
    let mut client = ClusterClient::new(vec![a.address], None).timeouts(hung::answer(), patience);
    for n in 0..100 {
        assert_eq!(client.set(format!("k{n}"), n.to_string()).await, Outcome::Acked(Reply::Status("OK".into())));
    }
    for n in 0..100 {
        assert_eq!(client.get(format!("k{n}")).await.unwrap().unwrap(), n.to_string());
    }
    // Half a move: the slot is importing at b, migrating at a; a key that is not at a is asked for at b.
    let key = (0..).map(|n| format!("moving{n}")).find(|key| slot::key_slot(key) < 8192).unwrap();
    let number = slot::key_slot(&key).to_string();
    let (mut to_a, mut to_b) = (open(a.address).await, open(b.address).await);
    let (id_a, id_b) = (to_a.my_id().await.unwrap(), to_b.my_id().await.unwrap());
    to_b.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", id_a.as_str()]).await.unwrap();
    to_a.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", id_b.as_str()]).await.unwrap();
    let marks = to_a.cluster_nodes().await.unwrap();
    let me = marks.iter().find(|node| node.flags.myself).unwrap();
    assert_eq!(me.migrating, vec![(slot::key_slot(&key), id_b.clone())]);
    assert!(matches!(client.set(&key, "v").await, Outcome::Acked(_)));
    assert_eq!(client.counters().asked, 1);
    for connection in [&mut to_b, &mut to_a] {
        connection.call(&["CLUSTER", "SETSLOT", &number, "NODE", id_b.as_str()]).await.unwrap();
    }
    assert_eq!(client.get(&key).await.unwrap().unwrap(), "v");
    assert!(client.counters().moved >= 1);
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    // The open connection breaks in the middle of a command (unknown), a new one is refused (surely not executed).
    let first = client.set(&key, "w").await;
    let second = client.set(&key, "w").await;
    assert!(matches!(first, Outcome::Unknown(_)), "{first:?}");
    assert!(matches!(second, Outcome::Refused(_)), "{second:?}");
}
