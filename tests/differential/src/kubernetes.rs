//! The oracle: a real etcd and a real kube-apiserver on loopback, with a throw-away authority; nothing outlives the run.
//!
//! It must not know what is asked of it.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use certs::{Authority, Usage};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::control_plane::{APISERVER, ControlPlane, ETCD, Sync, leaf};
use tokio::net::TcpStream;

use crate::client::{Access, Answer, Call};

/// A running kube-apiserver with its etcd.
pub(crate) struct Kubernetes {
    // Fields are dropped in this order, and the folder must outlive what runs in it.
    plane: ControlPlane,
    _folder: tempfile::TempDir,
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
        let mut plane = ControlPlane::new(folder.path())?;
        let authority = Authority::create("oracle")?;
        plane.write_certificates(&authority, &[])?;
        // The name is the one that our standalone gives its administrator: messages and managers show it.
        let admin = authority.issue(&leaf("kun:admin", &["system:masters"], &[], &[], Usage::CLIENT))?;
        let access = Access::new(SocketAddr::from((plane.address(), APISERVER)), authority.certificate_pem(), &admin)?;
        plane.start_etcd(tools, Sync::Never)?;
        // Ours has none: its headers and its queues are not compared.
        let own = ["--enable-priority-and-fairness=false".to_owned()];
        plane.start_apiserver(tools, &[&own, flags].concat())?;
        let mut kubernetes = Self { plane, _folder: folder, access };
        kubernetes.wait().await?;
        Ok(kubernetes)
    }

    /// How the administrator reaches it.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    async fn wait(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            if get(&self.access, "/readyz").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if self.plane.has_ended() || begin.elapsed() > hung::machine() {
                bail!("no oracle:\n{}\n{}", self.plane.log_tail("etcd"), self.plane.log_tail("kube-apiserver"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Has etcd forget its history, which the API server would have it do only after minutes: from now on the first
    /// versions are too old.
    pub(crate) async fn compact(&self) -> Result<()> {
        let address = SocketAddr::from((self.plane.address(), ETCD));
        // "AA==" is the key of one zero byte, which nobody uses.
        let answer = etcd(address, "/v3/kv/range", &json!({"key": "AA=="})).await?;
        let revision = answer.pointer("/header/revision").context("revision of etcd")?;
        etcd(address, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await?;
        Ok(())
    }

    /// What etcd holds under a key.
    pub(crate) async fn kept(&self, key: &str) -> Result<Vec<u8>> {
        let question = json!({"key": BASE64_STANDARD.encode(key)});
        let answer = etcd(SocketAddr::from((self.plane.address(), ETCD)), "/v3/kv/range", &question).await?;
        let value = answer.pointer("/kvs/0/value").and_then(Value::as_str);
        Ok(BASE64_STANDARD.decode(value.with_context(|| format!("etcd holds nothing under {key}"))?)?)
    }

    /// Puts a value into etcd, behind the API server's back.
    pub(crate) async fn keep(&self, key: &str, value: &[u8]) -> Result<()> {
        let put = json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(value)});
        etcd(SocketAddr::from((self.plane.address(), ETCD)), "/v3/kv/put", &put).await.map(drop)
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
            if begin.elapsed() > hung::machine() {
                bail!("{path} is not served");
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
