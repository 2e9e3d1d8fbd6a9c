//! A start beside a process that may run on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use std::net::IpAddr;

use certs::{Authority, ClientAuth};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
};
use types::names::{PORT_AGENT, agent_user};

use super::*;
use crate::{identity::tests::id, peers::tests::certificates_of, start::tests::crashed};

/// An agent of `default/orders` at `here` on a volume whose record has its node, a replica, at `there`.
fn begins(authority: &Authority, here: IpAddr, there: IpAddr) -> (tempfile::TempDir, Arc<Shared>) {
    let dir = tempfile::tempdir().unwrap();
    let (me, primary) = (id(1), id(2));
    let record = format!(
        "{me} {there}:6379@16379 myself,slave {primary} 0 0 3 connected\n\
         {primary} 127.84.251.200:6379@16379 master - 0 0 3 connected 0-16383\nvars currentEpoch 3 lastVoteEpoch 0\n"
    );
    fs::write(dir.path().join(NODES_FILE), record).unwrap();
    let data_dir = dir.path().to_owned();
    let options = crate::config::Options { data_dir, pod_ip: here, ..crate::render::tests::options() };
    let certificates = certificates_of(authority, agent_user("default", "orders"));
    (dir, Shared::new(options, crate::render::tests::inputs(), &certificates).unwrap())
}

/// The agent at `ip` of a pod whose node runs. It is silent to the first `silent` who ask, answers the next `answers`, and is gone then. Gives how
/// many have asked.
async fn former(authority: &Authority, ip: IpAddr, silent: usize, answers: usize) -> watch::Receiver<usize> {
    let tls = certificates_of(authority, agent_user("default", "orders"));
    let tls = tls.server_config(ClientAuth::Requested, &[certs::ALPN_H1]).unwrap();
    let listener = TcpListener::bind(SocketAddr::new(ip, PORT_AGENT)).await.unwrap();
    let report = serde_json::json!({
        "pod": "orders-0-0", "phase": "Running", "heldBecause": null, "nodeId": id(1).as_str(), "holdsData": true, "starts": 1,
    });
    let report = report.to_string();
    let (asked, told) = watch::channel(0);
    tokio::spawn(async move {
        let mut open = vec![];
        while *asked.borrow() < silent + answers {
            let (stream, _) = listener.accept().await.unwrap();
            asked.send_modify(|asked| *asked += 1);
            if *asked.borrow() <= silent {
                open.push(stream);
                continue;
            }
            let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(Arc::clone(&tls)).accept(stream).await else {
                continue;
            };
            let mut head = [0; 1024];
            if stream.read(&mut head).await.unwrap_or_default() > 0 {
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{report}", report.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    told
}

fn admitted(shared: &Arc<Shared>) -> JoinHandle<Result<Admission, disk::Error>> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move { admit(&shared).await })
}

/// Before, one second without an answer was its end.
#[tokio::test]
async fn a_process_that_stands_still_for_a_moment_is_seen_all_the_same() {
    let authority = Authority::create("agents").unwrap();
    // Where this machine stands still, too, for so many looks that silence counts, nothing was shown.
    for last in [1, 11, 21] {
        let [here, there] = [last + 1, last].map(|last| IpAddr::from([127, 84, 251, last]));
        let (_dir, shared) = begins(&authority, here, there);
        let _asked = former(&authority, there, 1, 40).await;
        let mut report = shared.report.subscribe();
        let mut start = admitted(&shared);
        let held = report.wait_for(|report| report.phase == AgentPhase::Held);
        let held = tokio::select! {
            held = held => held.unwrap().clone(),
            _ = &mut start => continue,
        };
        start.abort();
        assert_eq!((held.runs_at, held.node_id), (Some(format!("{there}:6379")), Some(id(1).to_string())));
        assert!(held.held_because.unwrap().contains("runs already"));
        return;
    }
    panic!("it was started each time");
}

#[tokio::test]
async fn an_address_that_stays_silent_costs_a_start_three_looks() {
    let authority = Authority::create("agents").unwrap();
    let [here, there] = [4, 3].map(|last| IpAddr::from([127, 84, 251, last]));
    let (_dir, shared) = begins(&authority, here, there);
    let mut asked = former(&authority, there, usize::MAX, 0).await;
    admitted(&shared).await.unwrap().unwrap();
    let thrice = tokio::time::timeout(hung::process(), asked.wait_for(|asked| *asked >= 3)).await;
    assert_eq!(*thrice.expect("it was asked less often").unwrap(), 3);
    assert_eq!(shared.report.borrow().runs_at, None);
}

/// Else the controller, which may look at any time, would release it, or give its place to a replica of it.
#[test]
fn no_report_says_held_without_where_the_node_runs() {
    let authority = Authority::create("agents").unwrap();
    let [here, there] = [6, 5].map(|last| IpAddr::from([127, 84, 251, last]));
    let (_dir, shared) = begins(&authority, here, there);
    let [here, there] = [here, there].map(|ip| SocketAddr::new(ip, 6379));
    publish(&shared, &Facts { double: Some(Double { here, there }), ..crashed(true) });
    shared.enter(AgentPhase::Held, Some("its node runs already".to_owned()));
    publish(&shared, &crashed(true));
    let report = shared.report.borrow().clone();
    assert_eq!((report.phase, report.held_because, report.runs_at), (AgentPhase::Starting, None, None));
    // What it is held for else stays.
    shared.enter(AgentPhase::Held, Some("its data set is gone".to_owned()));
    publish(&shared, &crashed(false));
    assert_eq!(shared.phase(), AgentPhase::Held);
}

/// It has no identity that could run twice, and waits for nobody.
#[tokio::test]
async fn a_single_server_asks_nobody_whatever_a_record_says() {
    let authority = Authority::create("agents").unwrap();
    let [here, there] = [8, 7].map(|last| IpAddr::from([127, 84, 251, last]));
    let (_dir, shared) = begins(&authority, here, there);
    let mut inputs = crate::render::tests::inputs();
    inputs.config.mode = Mode::Standalone;
    shared.inputs.send_replace(Arc::new(inputs));
    let mut asked = former(&authority, there, 0, 40).await;
    tokio::select! {
        admitted = admitted(&shared) => assert!(admitted.unwrap().is_ok()),
        _ = asked.changed() => panic!("it has asked"),
    }
}

/// Before, where the append-only files were known to lag, a copy that was not whole was forced over the snapshot that was to replace them.
#[test]
fn a_snapshot_that_is_to_count_is_data_also_where_the_files_lag() {
    let authority = Authority::create("agents").unwrap();
    let [here, there] = [10, 9].map(|last| IpAddr::from([127, 84, 251, last]));
    let (dir, shared) = begins(&authority, here, there);
    let facts = Facts { holds_data: false, lags: true, ..crashed(true) };
    publish(&shared, &facts);
    assert!(!shared.report.borrow().holds_data);
    fs::write(dir.path().join(last_save::FILE), "{}").unwrap();
    publish(&shared, &facts);
    assert!(shared.report.borrow().holds_data);
}

#[test]
fn only_a_full_volume_is_said_to_want_room() {
    let of = |kind: ErrorKind| {
        let source = std::io::Error::from(kind);
        unsettled(&disk::Error::Write { path: "/data/appendonlydir".into(), source })
    };
    assert!(of(ErrorKind::StorageFull).contains("some KiB of room are missing: write /data/appendonlydir"));
    let helps = "; make room on its volume, or make spec.storage.size larger: it is tried again by itself";
    assert!(of(ErrorKind::StorageFull).ends_with(helps), "{}", of(ErrorKind::StorageFull));
    assert!(of(ErrorKind::QuotaExceeded).contains("room") && !of(ErrorKind::PermissionDenied).contains("room"));
}
