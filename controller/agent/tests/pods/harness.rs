//! Pods of one cluster: directories as Kubernetes would mount them, the agent's process, and ways to look inside.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use certs::{Authority, Issued, Leaf, Usage};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use resp::{ClusterClient, Command, Connection, Credentials, NodeId, Options, Reply};
use rustix::process::{Pid, Signal, kill_process};
use types::{
    agent::{AgentConfig, AgentReport},
    cluster::{AppendOnly, EvictionPolicy, Mode},
    names,
};

pub(crate) const APPLICATION: &str = "canary-application-password";
pub(crate) const OPERATOR: &str = "canary-operator-password";
pub(crate) const AGENT: &str = "canary-agent-password";
pub(crate) const REPLICA: &str = "canary replica \"password\" # with \\ quotes";

pub(crate) struct Cluster {
    /// Dropped first: what ends is what runs in its directory.
    pub(crate) pods: Vec<Pod>,
    pub(crate) config: AgentConfig,
    /// What pods are made with.
    pub(crate) grace_seconds: u64,
    pub(crate) authority: Authority,
    net: u8,
    dir: tempfile::TempDir,
}

pub(crate) struct Pod {
    pub(crate) ip: Ipv4Addr,
    pub(crate) dir: PathBuf,
    /// Its name, which stays when it is given another address.
    pub(crate) name: String,
    pub(crate) shard: u16,
    /// What it has for a server.
    pub(crate) server: PathBuf,
    /// Its grace period.
    pub(crate) grace_seconds: u64,
    child: Option<Child>,
    /// The redis-server that was recorded when its agent was started last.
    former: Option<i32>,
}

/// So much of its log is shown of a pod whose test failed.
const LOG_LINES: usize = 200;

/// After how long its members give each other up.
fn node_timeout() -> Duration {
    hung::node_timeout(10)
}

/// So long Redis goes on taking a primary for dead that is back: a replica that has everything again may still replace it.
pub(crate) fn taken_for_dead() -> Duration {
    2 * node_timeout() + Duration::from_secs(1)
}

pub(crate) fn config() -> AgentConfig {
    AgentConfig {
        namespace: "default".into(),
        cluster: "orders".into(),
        mode: Mode::Cluster,
        node_timeout_millis: u64::try_from(node_timeout().as_millis()).unwrap(),
        min_replicas_to_write: 0,
        max_memory_bytes: Some(200 << 20),
        max_memory_percent: 75,
        max_memory_policy: EvictionPolicy::NoEviction,
        append_only: AppendOnly::EverySec,
        snapshots: vec![],
        parameters: BTreeMap::new(),
    }
}

/// The same, and no node is ever given up: what happens within any test was not Redis' own detection, which waits for the node
/// timeout.
pub(crate) fn patient() -> AgentConfig {
    let forever = hung::change() * 100;
    AgentConfig { node_timeout_millis: u64::try_from(forever.as_millis()).unwrap(), ..config() }
}

fn leaf(common_name: &str) -> Leaf {
    Leaf {
        common_name: common_name.into(),
        organizations: vec![],
        dns_names: vec![names::AGENT_SERVER_NAME.into()],
        ips: vec![],
        usage: Usage::BOTH,
        lifetime: Duration::from_secs(3600),
    }
}

impl Cluster {
    /// A cluster on 127.84.`net`.0/24 without pods.
    pub(crate) fn new(net: u8, config: AgentConfig) -> Self {
        hung::wait_for_room();
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create("agents of a test").unwrap();
        Self { pods: Vec::new(), config, grace_seconds: 30, authority, net, dir }
    }

    /// The same, and its pods are given long to end: what is waited for comes in time on any machine.
    pub(crate) fn unhurried(net: u8, config: AgentConfig) -> Self {
        Self { grace_seconds: 600, ..Self::new(net, config) }
    }

    pub(crate) fn certificate(&self, common_name: &str) -> Issued {
        self.authority.issue(&leaf(common_name)).unwrap()
    }

    pub(crate) fn write_config(&self, pod: &Path) {
        fs::write(pod.join("config/agent.json"), serde_json::to_vec(&self.config).unwrap()).unwrap();
    }

    /// Makes the directories of one more pod and starts its agent.
    pub(crate) fn add(&mut self) -> usize {
        self.add_to(0)
    }

    pub(crate) fn add_to(&mut self, shard: u16) -> usize {
        let number = self.lay_out(shard);
        self.pods[number].start();
        number
    }

    /// The next pod of the first one's name, at another address and with an empty volume; it is not started. Gives its number.
    pub(crate) fn successor(&mut self) -> usize {
        let next = self.lay_out(0);
        self.pods[next].name = self.pods[0].name.clone();
        next
    }

    /// Makes the directories of one more pod.
    fn lay_out(&mut self, shard: u16) -> usize {
        let number = self.pods.len();
        let ip = Ipv4Addr::new(127, 84, self.net, u8::try_from(number + 1).unwrap());
        let dir = self.dir.path().join(format!("pod{number}"));
        for part in ["data", "run", "config", "auth", "internal"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        self.write_config(&dir);
        let issued = self.certificate("kun:agent:default:orders");
        for (file, content) in [
            ("auth/password", format!("{APPLICATION}\n")),
            ("internal/operator", OPERATOR.to_owned()),
            ("internal/agent", AGENT.to_owned()),
            ("internal/replica", REPLICA.to_owned()),
            ("internal/ca.crt", self.authority.certificate_pem().to_owned()),
            ("internal/tls.crt", issued.certificate_pem),
            ("internal/tls.key", issued.key_pem),
        ] {
            fs::write(dir.join(file), content).unwrap();
        }
        let name = format!("orders-0-{}", ip.octets()[3]);
        let grace_seconds = self.grace_seconds;
        let server = "redis-server".into();
        self.pods.push(Pod { ip, dir, name, shard, server, grace_seconds, child: None, former: None });
        number
    }

    /// `primaries` shards with `replicas` each, agreed by everybody and in sync. Pod `p` is a primary, its first replica is
    /// pod `p + primaries`.
    pub(crate) async fn form(net: u8, config: AgentConfig, primaries: u16, replicas: u16) -> Self {
        Self::new(net, config).formed(primaries, replicas).await
    }

    /// The same of a cluster that has no pods yet.
    pub(crate) async fn formed(self, primaries: u16, replicas: u16) -> Self {
        let mut cluster = self;
        for number in 0..primaries * (1 + replicas) {
            cluster.add_to(number % primaries);
        }
        let hub = cluster.pods[0].ip.to_string();
        for number in 0..cluster.pods.len() {
            let mut redis = cluster.pods[number].operator().await;
            let index = u16::try_from(number).unwrap();
            redis.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await.unwrap();
            if index < primaries {
                let share = 16384 / primaries;
                let last = if index + 1 == primaries { 16383 } else { (index + 1) * share - 1 };
                redis
                    .call(&["CLUSTER", "ADDSLOTSRANGE", &(index * share).to_string(), &last.to_string()])
                    .await
                    .unwrap();
            }
        }
        for pod in &cluster.pods {
            pod.operator().await.call(&["CLUSTER", "MEET", &hub, "6379"]).await.unwrap();
        }
        for number in usize::from(primaries)..cluster.pods.len() {
            let primary = cluster.pods[number % usize::from(primaries)].id().await;
            let mut redis = cluster.pods[number].operator().await;
            eventually("the replica knows its primary", async || {
                redis.call(&["CLUSTER", "REPLICATE", primary.as_str()]).await.is_ok()
            })
            .await;
        }
        cluster.wait_ready().await;
        cluster
    }

    /// Waits until every agent says ready and every node says ok.
    pub(crate) async fn wait_ready(&self) {
        for pod in &self.pods {
            eventually(&format!("{} is ready", pod.ip), async || self.get(pod, "/readyz").await.0 == 200).await;
        }
        self.wait_agreed().await;
    }

    /// Waits until every node says ok, and all have the same table: the owner of each slot, too.
    pub(crate) async fn wait_agreed(&self) {
        for pod in &self.pods {
            let mut redis = pod.operator().await;
            eventually("the cluster is ok", async || redis.cluster_info().await.is_ok_and(|info| info.ok)).await;
        }
        eventually("all tables agree", async || {
            let mut views = std::collections::BTreeSet::new();
            for pod in &self.pods {
                let Ok(table) = pod.operator().await.cluster_nodes().await else { return false };
                let mut view: Vec<_> = table.into_iter().map(|node| (node.id, node.primary, node.slots)).collect();
                view.sort();
                views.insert(view);
            }
            views.len() == 1
        })
        .await;
    }

    /// Ends a primary, or its agent, and starts it again, until a replica has its place: where the machine stands still for longer than an agent
    /// waits, nobody takes over in time, and it comes back as it was.
    pub(crate) async fn until_replaced(&mut self, pod: usize, end: impl AsyncFn(&mut Pod)) {
        let began = Instant::now();
        loop {
            end(&mut self.pods[pod]).await;
            self.pods[pod].start();
            eventually("a new redis-server runs", async || self.pods[pod].redis_pid().is_some()).await;
            // It may begin as a primary and hear a moment later that it is none.
            self.wait_ready().await;
            if self.pods[pod].is_replica().await {
                return;
            }
            assert!(began.elapsed() < hung::change(), "nobody takes over from {}", self.pods[pod].ip);
        }
    }

    pub(crate) fn client(&self) -> ClusterClient {
        let seeds = self.pods.iter().map(Pod::redis).collect();
        let credentials = Credentials::new("default", APPLICATION);
        ClusterClient::new(seeds, Some(credentials)).timeouts(hung::answer(), hung::change())
    }

    /// An anonymous GET.
    pub(crate) async fn get(&self, pod: &Pod, path: &str) -> (u16, String) {
        self.request(pod, "GET", path, None, "").await.unwrap_or((0, String::new()))
    }

    /// A request with the certificate of `who`.
    pub(crate) async fn as_user(&self, who: &str, pod: &Pod, method: &str, path: &str, body: &str) -> (u16, String) {
        self.request(pod, method, path, Some(&self.certificate(who)), body).await.unwrap()
    }

    pub(crate) async fn report(&self, pod: &Pod) -> Option<AgentReport> {
        let controller = self.certificate("kun:controller");
        let (status, body) = self.request(pod, "GET", "/v1/report", Some(&controller), "").await?;
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// The answer of an agent, if one listens. Who says nothing for five seconds is hung up on, and where the machine stands still a test does not.
    async fn request(
        &self,
        pod: &Pod,
        method: &str,
        path: &str,
        identity: Option<&Issued>,
        body: &str,
    ) -> Option<(u16, String)> {
        let began = Instant::now();
        loop {
            let answer = self.ask_once(pod, method, path, identity, body).await;
            let is_over = answer.is_some() || began.elapsed() > hung::answer();
            if is_over || tokio::net::TcpStream::connect((pod.ip, names::PORT_AGENT)).await.is_err() {
                return answer;
            }
        }
    }

    async fn ask_once(
        &self,
        pod: &Pod,
        method: &str,
        path: &str,
        identity: Option<&Issued>,
        body: &str,
    ) -> Option<(u16, String)> {
        let mut sender = self.connect(pod, identity).await?;
        let request = http::Request::builder().method(method).uri(path).header("host", "agent");
        let response = sender.send_request(request.body(Full::from(body.to_owned())).unwrap()).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// An agent in the place of a pod's, as it was in earlier releases: it tells no other agent anything.
    pub(crate) async fn silent_agent(&self, pod: &Pod) -> tokio::task::JoinHandle<()> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let identity = self.certificate("kun:agent:default:orders");
        let authorities = self.authority.certificate_pem();
        let tls =
            certs::server_config(&identity, authorities, certs::ClientAuth::Requested, &[certs::ALPN_H1]).unwrap();
        let listener = tokio::net::TcpListener::bind((pod.ip, names::PORT_AGENT)).await.unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(tls.clone()).accept(stream).await else {
                    continue;
                };
                let mut head = [0; 1024];
                if stream.read(&mut head).await.unwrap_or_default() > 0 {
                    let answer = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.shutdown().await;
                }
            }
        })
    }

    pub(crate) async fn connect(
        &self,
        pod: &Pod,
        identity: Option<&Issued>,
    ) -> Option<hyper::client::conn::http1::SendRequest<Full<Bytes>>> {
        let config = certs::client_config(self.authority.certificate_pem(), identity, &[certs::ALPN_H1]).unwrap();
        let name = rustls::pki_types::ServerName::try_from(names::AGENT_SERVER_NAME).unwrap();
        let stream = tokio::net::TcpStream::connect((pod.ip, names::PORT_AGENT)).await.ok()?;
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.ok()?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }
}

impl Pod {
    pub(crate) fn redis(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.ip), names::PORT_REDIS)
    }

    pub(crate) fn data(&self, file: &str) -> PathBuf {
        self.dir.join("data").join(file)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |part: &str| self.dir.join(part).display().to_string();
        vec![
            ("POD_NAME", self.name.clone()),
            ("POD_NAMESPACE", "default".into()),
            ("POD_IP", self.ip.to_string()),
            ("KUN_SHARD", self.shard.to_string()),
            ("KUN_DATA_DIR", path("data")),
            ("KUN_RUN_DIR", path("run")),
            ("KUN_CONFIG_DIR", path("config")),
            ("KUN_AUTH_DIR", path("auth")),
            ("KUN_INTERNAL_DIR", path("internal")),
            ("KUN_REDIS_SERVER", self.server.display().to_string()),
            ("KUN_GRACE_SECONDS", self.grace_seconds.to_string()),
        ]
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "the pod runs already");
        self.former = self.recorded();
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let child = Process::new(program())
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("the example `pod` is built by `cargo test`");
        self.child = Some(child);
    }

    /// From its next start on its server does this first, in a shell, with the path of redis.conf as `$1`.
    pub(crate) fn begin_with(&mut self, script: &str) {
        self.server = self.dir.join("redis-server");
        fs::write(&self.server, format!("#!/bin/sh\n{script}\nexec redis-server \"$@\"\n")).unwrap();
        fs::set_permissions(&self.server, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// Pid of the redis-server that its agent has started; `None`: the agent has not written it down yet.
    pub(crate) fn redis_pid(&self) -> Option<i32> {
        self.recorded().filter(|pid| Some(*pid) != self.former)
    }

    /// Pid of the redis-server that was recorded last, maybe by an agent of before.
    fn recorded(&self) -> Option<i32> {
        let record = fs::read(self.dir.join("run/redis-server.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&record).ok()?;
        i32::try_from(record["pid"].as_i64()?).ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Kills redis-server and nothing else.
    pub(crate) fn kill_redis(&self) {
        kill_process(Pid::from_raw(self.redis_pid().unwrap()).unwrap(), Signal::KILL).unwrap();
    }

    /// Waits for the agent's process to end.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        self.ended_within(hung::process()).await
    }

    /// The same where something takes up to a minute.
    pub(crate) async fn ended_slowly(&mut self) -> Option<i32> {
        self.ended_within(hung::change()).await
    }

    async fn ended_within(&mut self, limit: Duration) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            if began.elapsed() > limit {
                self.child = Some(child);
                panic!("the agent of {} does not end; its log:\n{}", self.ip, self.log());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// A test that asks waits longer than the product does: a machine that stands still for a while is no answer.
    pub(crate) fn options(&self, user: &str, password: &str) -> Options {
        let mut options =
            Options::new(self.redis()).credentials(Credentials::new(user, password)).deadline(hung::answer());
        options.connect_timeout = hung::answer();
        options
    }

    /// A connection to Redis, once it has started and loaded, and its agent has written down which process it is: whoever kills it then kills
    /// that one.
    pub(crate) async fn login(&self, user: &str, password: &str) -> Connection {
        let options = self.options(user, password);
        let began = Instant::now();
        let login = async || {
            let mut connection = Connection::open(&options).await?;
            connection.call(&["PING"]).await.map(|_| connection)
        };
        loop {
            match login().await {
                Ok(connection) if self.redis_pid().is_some() => return connection,
                Ok(_) => assert!(began.elapsed() < hung::process(), "{} is not recorded:\n{}", self.ip, self.log()),
                Err(error) => {
                    assert!(began.elapsed() < hung::process(), "{error}; the log of {}:\n{}", self.ip, self.log())
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn operator(&self) -> Connection {
        self.login(names::USER_OPERATOR, OPERATOR).await
    }

    pub(crate) async fn id(&self) -> NodeId {
        self.operator().await.my_id().await.unwrap()
    }

    pub(crate) async fn is_replica(&self) -> bool {
        matches!(self.operator().await.role().await, Ok(resp::Role::Replica { .. }))
    }

    pub(crate) async fn dbsize(&self) -> i64 {
        self.operator().await.call(&["DBSIZE"]).await.unwrap().integer().unwrap()
    }
}

impl Pod {
    /// Every redis-server that runs in this pod's directory, recorded or not.
    fn servers(&self) -> Vec<Pid> {
        let runs_here = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("redis-server"))
                && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&self.dir))
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(runs_here).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- the log of {} ends with\n{}",
                self.ip,
                lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
            );
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in self.servers() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The example that is a pod's process; `cargo test` builds it beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples/pod")
}

/// To redis-server alone: its agent goes on.
pub(crate) fn signal_redis(pod: &Pod, signal: Signal) {
    kill_process(Pid::from_raw(pod.redis_pid().unwrap()).unwrap(), signal).unwrap();
}

pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !check().await {
        assert!(began.elapsed() < hung::change(), "this hangs: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes `k0`, `k1`, … to whoever owns them.
pub(crate) async fn fill_everywhere(cluster: &Cluster, count: usize) {
    let mut client = cluster.client();
    for n in 0..count {
        assert!(matches!(client.set(format!("k{n}"), "v").await, resp::Outcome::Acked(_)));
    }
}

/// Writes `count` keys through pipelines at whoever owns them.
pub(crate) async fn fill(pod: &Pod, prefix: &str, count: usize, value: &[u8]) {
    let mut redis = pod.login("default", APPLICATION).await;
    for start in (0..count).step_by(1000) {
        let batch: Vec<Command> = (start..(start + 1000).min(count))
            .map(|n| Command::new("SET").arg(format!("{prefix}{n}")).arg(value))
            .collect();
        let replies = redis.pipeline(&batch).await.unwrap();
        assert!(replies.iter().all(Reply::is_ok), "{:?}", replies.iter().find(|reply| !reply.is_ok()));
    }
}
