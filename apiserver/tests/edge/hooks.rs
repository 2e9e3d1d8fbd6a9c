//! A webhook server on loopback that does what the path says, and a chain that calls it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use apiserver::admission::{Aspect, Attributes, GroupVersion, Holds, Operation};
use apiserver::admit::Chain;
use apiserver::admit::call::Caller;
use apiserver::admit::config::{self, Kind, Webhook};
use apiserver::admit::policy::{self, ParamKind, Policies, Which};
use apiserver::admit::source::{Namespace, NotReady, Served, Sources};
use apiserver::error::Result;
use apiserver::filter::metrics::Metrics;
use apiserver::registry;
use apiserver::request::{Annotations, User, Warnings};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Authority, ClientAuth, peer_identity, server_config};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use crate::stage::{client_certificate, serving_certificate};

/// What a webhook server has seen.
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    pub(crate) callers: Mutex<Vec<String>>,
    /// Reviews at `/deny-late` wait here for each other.
    together: Barrier,
    /// Path with query, and the request of each review, in order of arrival.
    pub(crate) reviews: Mutex<Vec<(String, Value)>>,
    /// In which version each path was asked last.
    pub(crate) versions: Mutex<BTreeMap<String, String>>,
}

/// How many reviews at `/deny-late` must be under way at once.
pub(crate) const TOGETHER: usize = 5;

impl Default for Seen {
    fn default() -> Self {
        let together = Barrier::new(TOGETHER);
        let (callers, reviews, versions) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { connections: AtomicUsize::default(), callers, together, reviews, versions }
    }
}

impl Seen {
    pub(crate) fn paths(&self) -> Vec<String> {
        self.reviews.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }
}

pub(crate) struct Hooks {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) seen: Arc<Seen>,
    metrics: Arc<Metrics>,
}

impl Hooks {
    /// What was counted in the chains of this server, as text.
    pub(crate) fn metrics(&self) -> String {
        self.metrics.text().unwrap()
    }

    /// A server that lets in nobody but `kun:apiserver`'s authority.
    pub(crate) async fn start(alpn: &[&[u8]]) -> Self {
        let authority = Authority::create("webhooks").unwrap();
        let identity = serving_certificate(&authority, "127.83.3.1");
        let tls = server_config(&identity, authority.certificate_pem(), ClientAuth::Required, alpn).unwrap();
        let listener = TcpListener::bind("127.83.3.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        tokio::spawn(accept(listener, TlsAcceptor::from(tls), seen.clone()));
        Self { address, authority, seen, metrics: Arc::default() }
    }

    /// Who calls these webhooks.
    pub(crate) fn caller(&self) -> Arc<Caller> {
        Arc::new(self.caller_of_all())
    }

    /// One that shows who it is to whoever asks.
    pub(crate) fn caller_of_all(&self) -> Caller {
        let identity = client_certificate(&self.authority, "kun:apiserver", &[]);
        Caller::new(Some(identity), self.metrics.clone())
    }

    /// A webhook at `path` that wants everything; `change` edits it.
    pub(crate) fn hook(&self, name: &str, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut hook = json!({
            "name": name,
            "clientConfig": {
                "url": format!("https://{}{path}", self.address),
                "caBundle": BASE64_STANDARD.encode(self.authority.certificate_pem()),
            },
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        change(&mut hook);
        hook
    }

    /// A chain with these webhooks in one configuration of each kind.
    pub(crate) fn chain(&self, mutating: &[Value], validating: &[Value]) -> (Chain, Arc<World>) {
        Self::chain_of(self.caller(), mutating, validating)
    }

    /// The same for another caller.
    pub(crate) fn chain_of(caller: Arc<Caller>, mutating: &[Value], validating: &[Value]) -> (Chain, Arc<World>) {
        let parse = |kind, hooks: &[Value]| {
            config::parse(kind, &json!({"metadata": {"name": "kun"}, "webhooks": hooks})).into()
        };
        let world = Arc::new(World {
            namespaces: Mutex::default(),
            mutating: parse(Kind::Mutating, mutating),
            validating: parse(Kind::Validating, validating),
        });
        world.namespaces.lock().unwrap().insert("n".to_owned(), Namespace::default());
        (Chain::new(world.clone(), caller), world)
    }
}

pub(crate) struct World {
    pub(crate) namespaces: Mutex<BTreeMap<String, Namespace>>,
    mutating: Arc<[Webhook]>,
    validating: Arc<[Webhook]>,
}

impl Sources for World {
    fn namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Namespace>>> {
        let found = self.namespaces.lock().unwrap().get(name).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn hooks(&self, kind: Kind) -> Result<Arc<[Webhook]>, NotReady> {
        Ok(match kind {
            Kind::Mutating => self.mutating.clone(),
            Kind::Validating => self.validating.clone(),
        })
    }

    fn policies(&self, _: policy::Kind) -> Result<Policies, NotReady> {
        Ok(Arc::default())
    }

    fn params<'a>(&'a self, _: &'a ParamKind) -> BoxFuture<'a, Result<Option<Served>>> {
        Box::pin(async { Ok(None) })
    }

    fn find<'a>(&'a self, _: &'a Served, _: Option<&'a str>, _: &'a Which) -> BoxFuture<'a, Result<Vec<Arc<Value>>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn kind(&self, _: &GroupVersion) -> Option<Arc<registry::Kind>> {
        None
    }
}

pub(crate) fn attributes(operation: Operation, namespace: Option<&str>) -> Attributes {
    let named =
        |name: &str| GroupVersion { group: "redis.kun.io".to_owned(), version: "v1".to_owned(), name: name.to_owned() };
    Attributes {
        operation,
        kind: named("RedisCluster"),
        resource: named("redisclusters"),
        subresource: None,
        name: "orders".to_owned(),
        namespace: namespace.map(str::to_owned),
        user: User { name: "jane".to_owned(), ..User::default() },
        dry_run: false,
        options: json!({}),
        object: Some(Arc::new(object())),
        old_object: None,
        warnings: Warnings::default(),
        annotations: Annotations::default(),
        holds: Holds::default(),
        aspect: Aspect::default(),
    }
}

pub(crate) fn object() -> Value {
    json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders", "labels": {}}})
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Seen>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            seen.connections.fetch_add(1, Ordering::SeqCst);
            let session = stream.get_ref().1;
            let is_h2 = session.alpn_protocol() == Some(ALPN_H2);
            assert!(is_h2 || session.alpn_protocol() == Some(ALPN_H1));
            seen.callers.lock().unwrap().push(peer_identity(session).unwrap().common_name);
            let service = service_fn(move |request| answer(seen.clone(), request));
            let io = TokioIo::new(stream);
            let _ = if is_h2 {
                http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
            } else {
                http1::Builder::new().serve_connection(io, service).await
            };
        });
    }
}

async fn answer(seen: Arc<Seen>, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let path = request.uri().path_and_query().unwrap().to_string();
    assert_eq!(request.headers()["content-type"], "application/json");
    let bytes = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&bytes).unwrap();
    let question = review["request"].clone();
    seen.reviews.lock().unwrap().push((path.clone(), question.clone()));
    let uid = question["uid"].clone();
    let path = path.split('?').next().unwrap();
    let version = review["apiVersion"].as_str().unwrap().to_owned();
    seen.versions.lock().unwrap().insert(path.to_owned(), version);
    let response = match path {
        "/allow" => json!({"uid": uid, "allowed": true}),
        "/warn" => json!({"uid": uid, "allowed": true, "warnings": ["mind the gap"], "auditAnnotations": {"k": "v"}}),
        "/deny" => {
            json!({"uid": uid, "allowed": false, "status": {"message": "no", "reason": "Forbidden", "code": 403}})
        }
        "/deny-late" => {
            seen.together.wait().await;
            json!({"uid": uid, "allowed": false, "status": {"message": "late"}})
        }
        "/deny-as-success" => json!({"uid": uid, "allowed": false, "status": {"code": 200}}),
        "/wrong-uid" => json!({"uid": "other", "allowed": true}),
        "/hang" => std::future::pending().await,
        "/error" => return Ok(status(500, "broken")),
        "/redirect" => return Ok(status(302, "elsewhere")),
        "/garbage" => return Ok(status(200, "<html>")),
        "/huge" => return Ok(status(200, &" ".repeat(9 * 1024 * 1024))),
        "/bad-patch" => patched(&uid, &json!([{"op": "remove", "path": "/absent"}])),
        "/steal-kind" => patched(&uid, &json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        // `/label/x`: adds label x, unless it is there.
        label => {
            let name = label.trim_start_matches("/label/");
            match question["object"]["metadata"]["labels"].get(name) {
                Some(_) => json!({"uid": uid, "allowed": true}),
                None => {
                    patched(&uid, &json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": "set"}]))
                }
            }
        }
    };
    // Like most webhooks it answers in the version in which it was asked.
    let review = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
    Ok(status(200, &review.to_string()))
}

fn patched(uid: &Value, patch: &Value) -> Value {
    json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch.to_string())})
}

fn status(code: u16, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = code.try_into().unwrap();
    response
}
