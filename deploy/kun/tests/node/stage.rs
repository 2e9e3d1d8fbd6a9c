//! An API server and a node that can be stopped, killed and started again.

use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use apiserver::admit::Chain;
use apiserver::admit::call::Caller;
use apiserver::app::App;
use apiserver::filter::Edge;
use apiserver::filter::authn::Authenticator;
use apiserver::filter::authz::StaticAuthorizer;
use apiserver::filter::metrics::Metrics;
use apiserver::filter::rights;
use apiserver::registry::{host, redis};
use apiserver::serve::{self, Drain, Limits};
use apiserver::storage::Storage;
use apiserver::world::System;
use certs::{ALPN_H1, ALPN_H2, Anchors, Authority, ClientAuth, Leaf, Usage};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use kun::node::{self, image::Local};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Third byte of the next stage's pod range: tests run side by side.
static NEXT: AtomicU8 = AtomicU8::new(1);

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    cidr: String,
    authority: Authority,
    address: SocketAddr,
    pub(crate) admin: Client,
    node: Option<(JoinHandle<Result<(), node::Error>>, CancellationToken)>,
    server: JoinHandle<()>,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let authority = Authority::create("test").unwrap();
        let (address, server) = serve(&authority).await;
        let admin = client(&authority, address, "kun:admin", &["system:masters"]);
        let mut stage = Self {
            folder: tempfile::Builder::new().prefix("kn").tempdir_in("/tmp").unwrap(),
            cidr: format!("127.86.{}.0/24", NEXT.fetch_add(1, Ordering::Relaxed)),
            authority,
            address,
            admin,
            node: None,
            server,
        };
        stage.create::<k8s_openapi::api::core::v1::Namespace>(json!({"metadata": {"name": "default"}})).await;
        stage.start_node();
        stage
    }

    pub(crate) fn start_node(&mut self) {
        let options = node::Options {
            client: client(&self.authority, self.address, "kun:node", &[]),
            root: self.root(),
            cidr: self.cidr.parse().unwrap(),
            redis: vec![Local { program: "/usr/bin/redis-server".into(), version: "7.0.15".parse().unwrap() }],
            own_program: env!("CARGO_BIN_EXE_kun").into(),
        };
        let stop = CancellationToken::new();
        self.node = Some((tokio::spawn(node::run(options, stop.clone())), stop));
    }

    /// The node ends as after SIGKILL: nothing is told to anybody.
    pub(crate) async fn kill_node(&mut self) {
        let (task, _) = self.node.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// The node ends as after SIGTERM.
    pub(crate) async fn stop_node(&mut self) {
        let (task, stop) = self.node.take().unwrap();
        stop.cancel();
        tokio::time::timeout(hung::process(), task).await.unwrap().unwrap().unwrap();
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), "default")
    }

    /// Creates an object, in `default` unless it says otherwise.
    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let plural = K::url_path(&(), object.meta().namespace.as_deref());
        let request =
            kube::core::Request::new(plural).create(&PostParams::default(), serde_json::to_vec(&object).unwrap());
        self.admin.request(request.unwrap()).await.unwrap()
    }

    pub(crate) async fn pod(&self, name: &str) -> Option<Pod> {
        self.api::<Pod>().get_opt(name).await.unwrap()
    }

    /// Waits until a pod is as `test` says.
    pub(crate) async fn await_pod(&self, name: &str, what: &str, test: impl Fn(&Pod) -> bool) -> Pod {
        self.until(what, async || self.pod(name).await.filter(|pod| test(pod))).await
    }

    pub(crate) async fn await_ready(&self, name: &str) -> Pod {
        self.await_pod(name, "ready", is_ready).await
    }

    /// Asks again and again until there is an answer.
    pub(crate) async fn until<T>(&self, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
        let began = Instant::now();
        while began.elapsed() < hung::process() {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let pods = self.api::<Pod>().list(&Default::default()).await.unwrap();
        let pods: Vec<String> = pods.items.iter().map(|pod| serde_json::to_string(pod).unwrap()).collect();
        panic!("this hangs: {what}\n{}", pods.join("\n"));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.abort();
        if let Some((task, _)) = &self.node {
            task.abort();
        }
        // Whatever pods are left: their processes are on record.
        let Ok(pods) = std::fs::read_dir(self.root().join("pods")) else { return };
        for pod in pods.flatten() {
            let record = node::record::Record::read(&pod.path());
            let pid = record.ok().and_then(|record| record.process).map(|process| process.pid);
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

async fn serve(authority: &Authority) -> (SocketAddr, JoinHandle<()>) {
    let leaf = Leaf {
        common_name: "server".into(),
        organizations: vec![],
        dns_names: vec!["localhost".into()],
        ips: vec![Ipv4Addr::LOCALHOST.into()],
        usage: Usage::SERVER,
        lifetime: Duration::from_secs(3600),
    };
    let identity = authority.issue(&leaf).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = certs::server_config(&identity, authority.certificate_pem(), ClientAuth::Offered, &[ALPN_H2, ALPN_H1]);
    let metrics = Arc::new(Metrics::default());
    let app = App::new(redis::registry().unwrap().and(host::registry().unwrap()), Arc::new(System));
    let authenticator = Authenticator::of_clients(Anchors::of_pem(authority.certificate_pem()).unwrap());
    let edge = Edge::new(
        app.clone(),
        authenticator,
        Arc::new(StaticAuthorizer::new(rights::standalone(app.registry()))),
        metrics.clone(),
    );
    let store = Arc::new(store::Memory::new(store::Clock::system()));
    let storage = Arc::new(Storage::open(store, app.registry()).await.unwrap());
    let caller = Arc::new(Caller::new(None, metrics.clone()));
    app.open(storage.clone(), Arc::new(Chain::over(storage, app.registry().clone(), caller)));
    let options = serve::Options {
        listener,
        tls: tls.unwrap(),
        edge,
        metrics,
        limits: Limits::default(),
        drain: Drain::default(),
    };
    (address, tokio::spawn(serve::run(options, CancellationToken::new())))
}

fn client(authority: &Authority, address: SocketAddr, name: &str, groups: &[&str]) -> Client {
    let identity = authority.issue(&Leaf::client(name, groups, Duration::from_secs(3600))).unwrap();
    let material =
        certs::Material { identity: Some(identity), authorities_pem: authority.certificate_pem().to_owned() };
    kun::standalone::client::client(address, certs::Reloading::new(material).unwrap()).unwrap()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn container(pod: &Pod) -> k8s_openapi::api::core::v1::ContainerStatus {
    pod.status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref())
        .and_then(|all| all.first())
        .cloned()
        .unwrap_or_default()
}

pub(crate) fn address(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default()
}

/// The process of a pod, as its status names it.
pub(crate) fn pid(pod: &Pod) -> i32 {
    let id = container(pod).container_id.unwrap_or_default();
    id.strip_prefix("process://").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no process in {id:?}"))
}

/// Whether a process is there and not merely its remains.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// The file that a script of `pod` writes beside itself when it has come so far.
pub(crate) async fn until_there(stage: &Stage, file: &Path) {
    stage.until(&format!("{} is there", file.display()), async || file.exists().then_some(())).await;
}

/// A container that runs a shell script.
pub(crate) fn script(text: &str) -> Value {
    json!({"name": "main", "image": "redis:7.0", "command": ["/bin/sh", "-c", text]})
}

/// A pod that runs a shell script.
pub(crate) fn pod(name: &str, policy: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 5, "containers": [script(text)]}})
}

/// A StatefulSet of shell scripts.
pub(crate) fn set(name: &str, replicas: i32, policy: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "replicas": replicas, "serviceName": name, "podManagementPolicy": policy, "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 5, "containers": [script(text)]}}}})
}
