//! `kun apiserver` behind a real kube-apiserver, with its etcd and its controller manager; nothing outlives the test.
//!
//! The API server is reached as in a cluster: through an APIService. Its Service is an external name on loopback, so that
//! neither kubelet nor proxy is needed.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use certs::{Authority, Issued, Usage};
use serde_json::{Value, json};

use crate::{
    control_plane::{APISERVER, ControlPlane, Sync, leaf},
    kubectl::Kubectl,
    standalone::kun_binary,
};

/// Below the ports that the kernel gives to connections.
const OURS: u16 = 8443;
/// The Service of our API server.
const SERVICE: &str = "kun-apiserver";
const NAMESPACE: &str = "kun-system";
const CONTROLLER: &str = "kun-controller";

/// A kube-apiserver with ours behind it.
#[derive(Debug)]
pub struct Aggregated {
    // Fields are dropped in this order, and the folder must outlive what runs in it.
    plane: ControlPlane,
    folder: tempfile::TempDir,
    clients: Authority,
    proxies: Authority,
}

impl Aggregated {
    /// Starts all from the folder that holds the tools, and waits until the kube-apiserver passes requests on. Whether its etcd
    /// waits for the disk matters to figures only.
    pub async fn start(tools: &Path, sync: Sync) -> Result<Self> {
        hung::wait_for_room();
        let folder = tempfile::Builder::new().prefix("kun-agg-").tempdir()?;
        let (clients, proxies) = (Authority::create("clients")?, Authority::create("proxies")?);
        let mut all = Self { plane: ControlPlane::new(folder.path())?, folder, clients, proxies };
        all.write_files()?;
        all.plane.start_etcd(tools, sync)?;
        let flags = all.proxy_flags();
        all.plane.start_apiserver(tools, &flags)?;
        all.until("the kube-apiserver is ready", &["get", "--raw", "/readyz"], |text| text == "ok").await?;
        let flags = all.our_flags();
        all.plane.spawn("kun", &kun_binary()?, &flags)?;
        all.register().await?;
        let manager = [
            format!("--kubeconfig={}", all.plane.file("admin.json")),
            "--leader-elect=false".to_owned(),
            "--controllers=namespace-controller,garbage-collector-controller,resourcequota-controller,serviceaccount-controller".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        all.plane.spawn("kube-controller-manager", &tools.join("kube-controller-manager"), &manager)?;
        Ok(all)
    }

    /// kubectl of the cluster's administrator.
    #[must_use]
    pub fn admin(&self) -> Kubectl {
        Kubectl::new(&self.plane.path("admin.json"), self.folder.path())
    }

    /// kubectl of somebody with a client certificate, towards the kube-apiserver.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<Kubectl> {
        self.kubectl(name, APISERVER, Some(&self.client(name, groups)?), None)
    }

    /// kubectl of somebody without any credential, towards the kube-apiserver.
    pub fn stranger(&self) -> Result<Kubectl> {
        self.kubectl("stranger", APISERVER, None, None)
    }

    /// kubectl of somebody who goes to our API server directly.
    pub fn direct(&self, name: &str, certificate: Option<&Issued>, token: Option<&str>) -> Result<Kubectl> {
        self.kubectl(&format!("direct-{name}"), OURS, certificate, token)
    }

    /// A client's certificate, as the cluster believes it.
    pub fn client(&self, name: &str, groups: &[&str]) -> Result<Issued> {
        Ok(self.clients.issue(&leaf(name, groups, &[], &[], Usage::CLIENT))?)
    }

    /// A certificate of the authority of proxies.
    pub fn proxy(&self, name: &str) -> Result<Issued> {
        Ok(self.proxies.issue(&leaf(name, &[], &[], &[], Usage::CLIENT))?)
    }

    /// Where our API server listens.
    #[must_use]
    pub fn ours(&self) -> SocketAddr {
        SocketAddr::from((self.plane.address(), OURS))
    }

    /// Where the kube-apiserver listens.
    #[must_use]
    pub fn core(&self) -> SocketAddr {
        SocketAddr::from((self.plane.address(), APISERVER))
    }

    /// Starts `kun controller` as the administrator; `observe` answers about it. The authority of the agents must be there.
    pub fn start_controller(&mut self, observe: SocketAddr) -> Result<()> {
        let flags = [
            "controller".to_owned(),
            format!("--kubeconfig={}", self.plane.file("admin.json")),
            format!("--namespace={NAMESPACE}"),
            "--identity=controller".to_owned(),
            "--image=kun".to_owned(),
            format!("--observe={observe}"),
            "--log=text".to_owned(),
        ];
        self.plane.spawn(CONTROLLER, &kun_binary()?, &flags)
    }

    /// Ends it at once; another one of its name need not wait for its lease.
    pub async fn kill_controller(&mut self) -> Result<()> {
        self.plane.kill(CONTROLLER).await
    }

    /// Process id of the controller.
    pub fn controller(&self) -> Result<u32> {
        self.plane.pid(CONTROLLER)
    }

    /// Who signs the servers' certificates, PEM.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        self.clients.certificate_pem()
    }

    /// Ends the kube-apiserver at once.
    pub async fn kill_core(&mut self) -> Result<()> {
        self.plane.kill("kube-apiserver").await
    }

    /// The end of a log.
    #[must_use]
    pub fn log_tail(&self, name: &str) -> String {
        self.plane.log_tail(name)
    }

    fn write_files(&self) -> Result<()> {
        self.plane.write_certificates(&self.clients, &[&format!("{SERVICE}.{NAMESPACE}.svc")])?;
        self.plane.write_pair("proxy", &self.proxy("front-proxy")?)?;
        certs::write_private(&self.plane.path("proxies.crt"), self.proxies.certificate_pem().as_bytes())?;
        let admin = self.clients.issue(&leaf("admin", &["system:masters"], &[], &[], Usage::CLIENT))?;
        self.write_kubeconfig("admin", APISERVER, Some(&admin), None)?;
        Ok(())
    }

    fn kubectl(&self, name: &str, port: u16, certificate: Option<&Issued>, token: Option<&str>) -> Result<Kubectl> {
        let path = self.write_kubeconfig(name, port, certificate, token)?;
        Ok(Kubectl::new(&path, self.folder.path()))
    }

    fn write_kubeconfig(
        &self,
        name: &str,
        port: u16,
        certificate: Option<&Issued>,
        token: Option<&str>,
    ) -> Result<PathBuf> {
        let base64 = |text: &str| STANDARD.encode(text);
        let mut user = json!({});
        if let Some(issued) = certificate {
            user["client-certificate-data"] = json!(base64(&issued.certificate_pem));
            user["client-key-data"] = json!(base64(&issued.key_pem));
        }
        if let Some(token) = token {
            user["token"] = json!(token);
        }
        if certificate.is_none() && token.is_none() {
            // kubectl asks for a name where there is nothing to show. A password is nothing to a kube-apiserver.
            user["username"] = json!("nobody");
            user["password"] = json!("nothing");
        }
        let cluster = json!({"server": format!("https://{}", SocketAddr::from((self.plane.address(), port))),
            "certificate-authority-data": base64(self.clients.certificate_pem())});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = self.plane.path(&format!("{name}.json"));
        certs::write_private(&path, config.to_string().as_bytes())?;
        Ok(path)
    }

    /// Requests of our group are passed on in the name of the front proxy.
    fn proxy_flags(&self) -> Vec<String> {
        let of = |flag: &str, name: &str| format!("--{flag}={}", self.plane.file(name));
        vec![
            of("proxy-client-cert-file", "proxy.crt"),
            of("proxy-client-key-file", "proxy.key"),
            of("requestheader-client-ca-file", "proxies.crt"),
            "--requestheader-allowed-names=front-proxy".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ]
    }

    fn our_flags(&self) -> Vec<String> {
        vec![
            "apiserver".to_owned(),
            format!("--data={}", self.plane.file("data")),
            format!("--bind-address={}", self.plane.address()),
            format!("--secure-port={OURS}"),
            format!("--tls-cert-file={}", self.plane.file("server.crt")),
            format!("--tls-private-key-file={}", self.plane.file("server.key")),
            format!("--kubeconfig={}", self.plane.file("admin.json")),
            "--log=text".to_owned(),
        ]
    }

    /// The APIService and its Service; until the kube-apiserver finds ours available.
    async fn register(&self) -> Result<()> {
        let group = types::GROUP;
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": self.plane.address().to_string(),
                    "ports": [{"port": OURS, "protocol": "TCP"}]}}),
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
                "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                    "caBundle": STANDARD.encode(self.clients.certificate_pem()),
                    "service": {"name": SERVICE, "namespace": NAMESPACE, "port": OURS}}}),
        ];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        self.admin().feed(&["create", "--validate=false", "-f", "-"], &list).await?;
        let ask = [
            "get",
            "apiservice",
            "v1.redis.kun.io",
            "-o",
            "jsonpath={.status.conditions[?(@.type=='Available')].status}",
        ];
        self.until("our API is available", &ask, |text| text == "True").await
    }

    /// Asks kubectl until the answer is as wished.
    pub async fn until(&self, what: &str, args: &[&str], holds: impl Fn(&str) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let outcome = self.admin().outcome(args, "").await?;
            if outcome.success && holds(outcome.stdout.trim()) {
                return Ok(());
            }
            if begin.elapsed() > hung::machine() {
                let logs = ["kube-apiserver", "kun"].map(|name| format!("--- {name} ---\n{}", self.log_tail(name)));
                bail!("{what}: this hangs; last: {outcome:?}\n{}", logs.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// A RedisCluster as it is sent.
#[must_use]
pub fn cluster(name: &str, namespace: &str) -> Value {
    json!({"apiVersion": types::API_VERSION, "kind": "RedisCluster", "metadata": {"name": name, "namespace": namespace},
        "spec": {"shards": 3, "storage": {"size": "1Gi"}}})
}
