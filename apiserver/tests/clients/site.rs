//! A server as standalone builds it, on an address of its own, with an administrator's kubeconfig.

use std::{path::PathBuf, sync::Arc};

use apiserver::{
    admit::{Chain, call::Caller},
    app::App,
    filter::{Edge, authn::Authenticator, authz::StaticAuthorizer, metrics::Metrics, rights},
    registry::{host, redis},
    serve::{self, Drain, Limits, Options},
    storage::Storage,
    world::System,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use certs::{ALPN_H1, ALPN_H2, Anchors, Authority, ClientAuth, Issued, Leaf, Usage, server_config};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpListener,
    process::ChildStdout,
};
use tokio_util::sync::CancellationToken;

const ADDRESS: &str = "127.82.0.1";

/// A running server.
pub(crate) struct Site {
    pub(crate) url: String,
    authority: Authority,
    admin: Issued,
    shutdown: CancellationToken,
    /// Holds the kubeconfig and files of the test.
    pub(crate) dir: tempfile::TempDir,
}

impl Site {
    /// Starts a server over an empty store, with the namespace `shop`.
    pub(crate) async fn start() -> Self {
        let authority = Authority::create("test").unwrap();
        let listener = TcpListener::bind(format!("{ADDRESS}:0")).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let serving = Leaf {
            common_name: "kun".into(),
            organizations: Vec::new(),
            dns_names: Vec::new(),
            ips: vec![ADDRESS.parse().unwrap()],
            usage: Usage::SERVER,
            lifetime: std::time::Duration::from_secs(3600),
        };
        let identity = authority.issue(&serving).unwrap();
        let alpn = [ALPN_H2, ALPN_H1];
        let tls = server_config(&identity, authority.certificate_pem(), ClientAuth::Offered, &alpn).unwrap();
        let admin = Leaf::client("kun:admin", &["system:masters"], serving.lifetime);
        let admin = authority.issue(&admin).unwrap();
        let metrics = Arc::new(Metrics::default());
        let app = App::new(redis::registry().unwrap().and(host::registry().unwrap()), Arc::new(System));
        let edge = Edge::new(
            app.clone(),
            Authenticator::of_clients(Anchors::of_pem(authority.certificate_pem()).unwrap()),
            Arc::new(StaticAuthorizer::new(rights::standalone(app.registry()))),
            metrics.clone(),
        );
        let store = Arc::new(store::Memory::default());
        let storage = Arc::new(Storage::open(store, app.registry()).await.unwrap());
        let caller = Arc::new(Caller::new(None, metrics.clone()));
        app.open(storage.clone(), Arc::new(Chain::over(storage, app.registry().clone(), caller)));
        let shutdown = CancellationToken::new();
        let options = Options { listener, tls, edge, metrics, limits: Limits::default(), drain: Drain::default() };
        tokio::spawn(serve::run(options, shutdown.clone()));
        let site = Self { url, authority, admin, shutdown, dir: tempfile::tempdir().unwrap() };
        site.write("kubeconfig", &site.kubeconfig().to_string());
        site.kubectl(&["create", "namespace", "shop"]).await.unwrap();
        site
    }

    fn kubeconfig(&self) -> serde_json::Value {
        let base64 = |text: &str| STANDARD.encode(text);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority-data": base64(self.authority.certificate_pem())}}],
            "users": [{"name": "c", "user": {
                "client-certificate-data": base64(&self.admin.certificate_pem), "client-key-data": base64(&self.admin.key_pem)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "shop"}}]
        })
    }

    /// Writes a file and tells its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs kubectl; what it printed, or what it complained about.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.editing("false", arguments).await
    }

    /// The same with an editor for `kubectl edit`: a command that gets the file as its last argument.
    pub(crate) async fn editing(&self, editor: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(arguments);
        command.env("KUBE_EDITOR", editor);
        let output = tokio::time::timeout(hung::process(), command.output()).await.expect("kubectl ends").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            return Ok(format!("{}{}", text(output.stdout), text(output.stderr)));
        }
        Err(format!("{}{}", text(output.stdout), text(output.stderr)))
    }

    /// The text of a file beside it.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// A kubectl that goes on until it is dropped, and the lines it prints.
    pub(crate) fn running(&self, arguments: &[&str]) -> (tokio::process::Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.command(arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }

    fn command(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("kubectl");
        command
            .env("HOME", self.dir.path())
            .env("TMPDIR", self.dir.path())
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"));
        command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
        command
    }

    /// A kube-rs client of the administrator.
    pub(crate) async fn client(&self) -> kube::Client {
        // The crate's own choice of provider is process-wide; a second call in the same process finds it made.
        let _already_made = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = kube::config::Kubeconfig::read_from(self.dir.path().join("kubeconfig")).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
