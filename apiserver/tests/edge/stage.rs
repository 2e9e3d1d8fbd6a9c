//! A server on loopback whose handler does what the path says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use apiserver::error::{Error, Qualified};
use apiserver::filter::Edge;
use apiserver::filter::authn::Authenticator;
use apiserver::filter::authz::{Binding, Rule, StaticAuthorizer, Subject};
use apiserver::filter::limit::InFlight;
use apiserver::filter::metrics::Metrics;
use apiserver::handler::Handler;
use apiserver::request::{Context, Verb};
use apiserver::serve::{self, Drain, Limits, Options};
use apiserver::wire::body::{RequestBody, ResponseBody, full, respond, streamed};
use apiserver::wire::{decode, status};
use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Anchors, Authority, ClientAuth, Issued, Leaf, Material, Reloading, Usage};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::until;

/// Base of the paths the handler knows.
pub(crate) const THINGS: &str = "/apis/g/v1/namespaces/n/things";

/// Bytes of the answer named `large`: more than sockets hold.
pub(crate) const LARGE: usize = 32 << 20;
static LARGE_ANSWER: LazyLock<Bytes> = LazyLock::new(|| vec![b'x'; LARGE].into());

const VERBS: &[Verb] = &[
    Verb::Get,
    Verb::List,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
];

/// What the group `team` may do.
fn rules() -> Vec<Rule> {
    let things = Rule::Resources { verbs: VERBS, group: "g", resource: "things", subresource: None };
    vec![things, Rule::Paths { verbs: &["get"], paths: &["/version"] }]
}

/// What the handler does and has seen.
#[derive(Default)]
pub(crate) struct Stage {
    /// Whether the check named `store` fails.
    pub(crate) is_broken: AtomicBool,
    /// Requests that reached the handler.
    pub(crate) seen: AtomicUsize,
    /// Mutations that ran to their end.
    pub(crate) finished: AtomicUsize,
    /// Lets the requests to `gate` go on, also those that come later.
    pub(crate) gate: CancellationToken,
    /// The context of the last request.
    pub(crate) last: Mutex<Option<(Context, http::HeaderMap)>>,
}

impl Handler for Stage {
    fn handle(
        self: Arc<Self>,
        context: Context,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Response<ResponseBody>> {
        Box::pin(async move {
            self.seen.fetch_add(1, Ordering::SeqCst);
            *self.last.lock().unwrap() = Some((context.clone(), request.headers().clone()));
            let name = context.call.resource.as_ref().and_then(|path| path.name.clone()).unwrap_or_default();
            if context.call.is_long_running() {
                let first = futures::stream::iter([Bytes::from_static(b"{\"type\":\"ADDED\"}\n")]);
                return respond(StatusCode::OK, "application/json", streamed(first.chain(futures::stream::pending())));
            }
            match name.as_str() {
                "panic" => panic!("as told"),
                "absent" => {
                    let resource = Qualified::new("g", "things");
                    status::response(&Error::NotFound { resource, name })
                }
                "large" => respond(StatusCode::OK, "text/plain", full(LARGE_ANSWER.clone())),
                "never" => std::future::pending().await,
                "gate" => {
                    self.gate.cancelled().await;
                    self.finished.fetch_add(1, Ordering::SeqCst);
                    respond(StatusCode::OK, "text/plain", full("through"))
                }
                "warn" => {
                    context.warnings.add("be \"careful\"");
                    respond(StatusCode::OK, "text/plain", full("warned"))
                }
                _ => match decode::read(request.into_body()).await {
                    Ok(bytes) => respond(StatusCode::OK, "text/plain", full(bytes.len().to_string())),
                    Err(error) => status::response(&error),
                },
            }
        })
    }

    fn checks(&self) -> Vec<(&'static str, Result<(), String>)> {
        let broken = self.is_broken.load(Ordering::SeqCst);
        vec![("store", if broken { Err("a secret reason".to_owned()) } else { Ok(()) })]
    }
}

/// A running server and what is needed to talk to it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) stage: Arc<Stage>,
    pub(crate) authority: Authority,
    pub(crate) certificates: Reloading,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) running: JoinHandle<()>,
}

/// What a test changes about the server.
pub(crate) struct Setting {
    pub(crate) in_flight: InFlight,
    pub(crate) limits: Limits,
    pub(crate) drain: Drain,
}

impl Default for Setting {
    fn default() -> Self {
        let drain = Drain { notice: Duration::ZERO, spread: Duration::ZERO, finish: hung::process() };
        Self { in_flight: InFlight::default(), limits: Limits::default(), drain }
    }
}

impl Server {
    pub(crate) async fn start(setting: Setting) -> Self {
        let authority = Authority::create("clients").unwrap();
        let identity = Some(serving_certificate(&authority, "127.83.2.1"));
        let material = Material { identity, authorities_pem: authority.certificate_pem().to_owned() };
        let certificates = Reloading::new(material).unwrap();
        let listener = TcpListener::bind("127.83.2.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stage, metrics) = (Arc::new(Stage::default()), Arc::new(Metrics::default()));
        let table = vec![Binding { subject: Subject::Group("team"), rules: rules() }];
        let authorizer = Arc::new(StaticAuthorizer::new(table));
        let authenticator = Authenticator::of_clients(Anchors::of_pem(authority.certificate_pem()).unwrap());
        let edge =
            Edge::with_limits(stage.clone(), authenticator.clone(), authorizer, metrics.clone(), setting.in_flight);
        let tls = certificates.server_config(ClientAuth::Offered, &[ALPN_H2, ALPN_H1]).unwrap();
        let options =
            Options { listener, tls, edge, metrics: metrics.clone(), limits: setting.limits, drain: setting.drain };
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(serve::run(options, shutdown.clone()));
        Self { address, stage, authority, certificates, authenticator, metrics, shutdown, running }
    }

    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Issued {
        client_certificate(&self.authority, name, groups)
    }

    /// How many connections it holds.
    pub(crate) fn connections(&self) -> usize {
        let text = self.metrics.text().unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("apiserver_open_connections "));
        count.unwrap().parse().unwrap()
    }

    /// Waits until so many requests have reached the handler.
    pub(crate) async fn has_seen(&self, requests: usize) {
        until("the requests arrive", || self.stage.seen.load(Ordering::SeqCst) >= requests).await;
    }
}

pub(crate) fn serving_certificate(authority: &Authority, address: &str) -> Issued {
    let leaf = Leaf {
        common_name: "server".to_owned(),
        organizations: Vec::new(),
        dns_names: Vec::new(),
        ips: vec![address.parse().unwrap()],
        usage: Usage::SERVER,
        lifetime: Duration::from_secs(3600),
    };
    authority.issue(&leaf).unwrap()
}

pub(crate) fn client_certificate(authority: &Authority, name: &str, groups: &[&str]) -> Issued {
    authority.issue(&Leaf::client(name, groups, Duration::from_secs(3600))).unwrap()
}
