//! The oracle: a real etcd and a real kube-apiserver on loopback, with a throw-away authority; nothing outlives the run.
//!
//! It must not know what is asked of it.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use certs::{Authority, Leaf, Usage};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::client::{Access, Answer, Call};

/// Longest time from start to `/readyz`.
const READY: Duration = Duration::from_secs(90);
/// Longer than any run.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Below the ports that the kernel gives to connections, on an address of this process alone.
const ETCD: u16 = 2379;
const ETCD_PEER: u16 = 2380;
const APISERVER: u16 = 6443;

/// A running kube-apiserver with its etcd.
pub(crate) struct Kubernetes {
    // Children first: fields are dropped in this order, and the folder must outlive them.
    children: Vec<Child>,
    folder: tempfile::TempDir,
    address: IpAddr,
    access: Access,
}

impl Kubernetes {
    /// Starts both from the folder that holds the tools, and waits until they are ready.
    pub(crate) async fn start(tools: &Path) -> Result<Self> {
        Self::start_with(tools, &[]).await
    }

    /// The same with further flags of the API server.
    pub(crate) async fn start_with(tools: &Path, flags: &[String]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("kun-oracle-").tempdir()?;
        // Tests run side by side: the process id keeps their addresses apart, as in `tests::standalone`.
        let net = 200 + u8::try_from(std::process::id() % 50)?;
        let address = IpAddr::from([127, net, 0, 2]);
        let access = write_certificates(folder.path(), address)?;
        let mut kubernetes = Self { children: Vec::new(), folder, address, access };
        kubernetes.spawn(tools, "etcd", &kubernetes.etcd_flags())?;
        kubernetes.spawn(tools, "kube-apiserver", &[&kubernetes.apiserver_flags(), flags].concat())?;
        kubernetes.wait().await?;
        Ok(kubernetes)
    }

    /// How the administrator reaches it.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    fn etcd_flags(&self) -> Vec<String> {
        let url = |port| format!("http://{}", SocketAddr::from((self.address, port)));
        let (client, peer) = (url(ETCD), url(ETCD_PEER));
        vec![
            "--name=oracle".to_owned(),
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=oracle={peer}"),
            // Nobody needs the data after a crash.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=error".to_owned(),
        ]
    }

    fn apiserver_flags(&self) -> Vec<String> {
        let file = |name: &str| self.path(name).display().to_string();
        vec![
            format!("--etcd-servers=http://{}", SocketAddr::from((self.address, ETCD))),
            format!("--bind-address={}", self.address),
            format!("--advertise-address={}", self.address),
            // A loopback address may not be an endpoint of the Service `kubernetes`.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={APISERVER}"),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("authority.crt")),
            "--service-account-issuer=https://oracle".to_owned(),
            format!("--service-account-key-file={}", file("server.crt")),
            format!("--service-account-signing-key-file={}", file("server.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // Ours has none: its headers and its queues are not compared.
            "--enable-priority-and-fairness=false".to_owned(),
        ]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&mut self, tools: &Path, name: &str, flags: &[String]) -> Result<()> {
        let program = tools.join(name);
        let log = fs::File::create(self.path(&format!("{name}.log")))?;
        let child = Command::new(&program)
            .args(flags)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        self.children.push(child);
        Ok(())
    }

    async fn wait(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            if get(&self.access, "/readyz").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            let ended = self.children.iter_mut().any(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            if ended || begin.elapsed() > READY {
                bail!("no oracle:\n{}\n{}", self.log_tail("etcd"), self.log_tail("kube-apiserver"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn log_tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n")
    }

    /// Has etcd forget its history, which the API server would have it do only after minutes: from now on the first
    /// versions are too old.
    pub(crate) async fn compact(&self) -> Result<()> {
        let address = SocketAddr::from((self.address, ETCD));
        // "AA==" is the key of one zero byte, which nobody uses.
        let answer = etcd(address, "/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = answer.pointer("/header/revision").context("revision of etcd")?;
        etcd(address, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await?;
        Ok(())
    }

    /// What etcd holds under a key.
    pub(crate) async fn kept(&self, key: &str) -> Result<Vec<u8>> {
        let question = json!({"key": BASE64_STANDARD.encode(key)});
        let answer = etcd(SocketAddr::from((self.address, ETCD)), "/v3/kv/range", &question).await?;
        let value = answer.pointer("/kvs/0/value").and_then(Value::as_str);
        Ok(BASE64_STANDARD.decode(value.with_context(|| format!("etcd holds nothing under {key}"))?)?)
    }

    /// Puts a value into etcd, behind the API server's back.
    pub(crate) async fn keep(&self, key: &str, value: &[u8]) -> Result<()> {
        let put = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        etcd(SocketAddr::from((self.address, ETCD)), "/v3/kv/put", &put).await.map(drop)
    }

    /// Creates a CustomResourceDefinition and waits until its objects can be listed.
    pub(crate) async fn define(&self, definition: &Value) -> Result<()> {
        let mut session = self.access.session();
        let created =
            session.send(&post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).await?;
        if created.status != 201 {
            bail!("the oracle refuses our definition: {}", String::from_utf8_lossy(&created.body));
        }
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let path =
            format!("/apis/{}/{}/{}", text("/spec/group"), text("/spec/versions/0/name"), text("/spec/names/plural"));
        let begin = Instant::now();
        while get(&self.access, &path).await?.status != 200 {
            if begin.elapsed() > READY {
                bail!("{path} is not served after {READY:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// One request to etcd's HTTP gateway, which speaks JSON.
async fn etcd(address: SocketAddr, path: &str, body: &Value) -> Result<Value> {
    let stream = TokioIo::new(TcpStream::connect(address).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::post(path).header("host", address.to_string());
    let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
    let bytes = response.into_body().collect().await?.to_bytes();
    serde_json::from_slice(&bytes).with_context(|| format!("etcd {path}: {}", String::from_utf8_lossy(&bytes)))
}

fn write_certificates(folder: &Path, address: IpAddr) -> Result<Access> {
    let authority = Authority::create("oracle")?;
    let leaf = |name: &str, groups: &[&str], ips: &[IpAddr], usage| Leaf {
        common_name: name.to_owned(),
        organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
        dns_names: Vec::new(),
        ips: ips.to_vec(),
        usage,
        lifetime: DAY,
    };
    let server = authority.issue(&leaf("kube-apiserver", &[], &[address], Usage::SERVER))?;
    // The name is the one that our standalone gives its administrator: messages and managers show it.
    let admin = authority.issue(&leaf("kun:admin", &["system:masters"], &[], Usage::CLIENT))?;
    certs::write_private(&folder.join("authority.crt"), authority.certificate_pem().as_bytes())?;
    certs::write_private(&folder.join("server.crt"), server.certificate_pem.as_bytes())?;
    certs::write_private(&folder.join("server.key"), server.key_pem.as_bytes())?;
    Access::new(SocketAddr::from((address, APISERVER)), authority.certificate_pem(), &admin)
}

/// A request that creates an object.
pub(crate) fn post(path: &str, object: &Value) -> Call {
    Call {
        method: "POST".to_owned(),
        target: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: object.to_string().into_bytes(),
    }
}

async fn get(access: &Access, path: &str) -> Result<Answer> {
    let call = Call { method: "GET".to_owned(), target: path.to_owned(), headers: Vec::new(), body: Vec::new() };
    access.session().send(&call).await
}

/// The object of a namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}
