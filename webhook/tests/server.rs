//! The server on a loopback address: TLS, callers, limits, readiness, watches, draining.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use crate::asking::{a_careful_spec, a_cluster, a_review, with_policy};
use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Authority, ClientAuth, Issued, Leaf, Material, Reloading, Ring, Turn, Usage};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, StatusCode, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::{net::TcpListener, net::TcpStream, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use webhook::{Callers, Facts, Gathered, Judge, Options, Rights};

/// One authority, one server, and what is needed to ask it.
struct World {
    authority: Authority,
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

fn leaf(name: &str, usage: Usage) -> Leaf {
    Leaf {
        common_name: name.to_owned(),
        organizations: vec![],
        dns_names: vec!["webhook".to_owned()],
        ips: vec![],
        usage,
        lifetime: Duration::from_secs(3600),
    }
}

async fn listening(authority: &Authority) -> (TcpListener, SocketAddr, Arc<rustls::ServerConfig>) {
    let listener = TcpListener::bind("127.81.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = authority.issue(&leaf("kun:webhook", Usage::SERVER)).unwrap();
    let tls = certs::server_config(&identity, authority.certificate_pem(), ClientAuth::Requested, &[ALPN_H2, ALPN_H1])
        .unwrap();
    (listener, address, tls)
}

async fn serving(gathered: Arc<Gathered>) -> World {
    let authority = Authority::create("test").unwrap();
    let (listener, address, tls) = listening(&authority).await;
    serving_on(authority, listener, address, tls, gathered)
}

fn serving_on(
    authority: Authority,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    gathered: Arc<Gathered>,
) -> World {
    let shutdown = CancellationToken::new();
    let callers = Callers::Named(vec!["kun:apiserver".to_owned()]);
    let rights = Rights::new(kube::Client::new(tower::service_fn(reviews), "default"));
    let judge = Judge { callers, gathered, rights };
    let serving = tokio::spawn(webhook::serve(listener, tls, judge, shutdown.clone()));
    World { authority, address, shutdown, serving }
}

impl World {
    fn client(&self, name: Option<&str>) -> Arc<ClientConfig> {
        let identity = name.map(|name| self.authority.issue(&leaf(name, Usage::CLIENT)).unwrap());
        certs::client_config(self.authority.certificate_pem(), identity.as_ref(), &[ALPN_H1]).unwrap()
    }

    async fn connect(&self, name: Option<&str>) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(self.client(name));
        let stream = connector.connect("webhook".try_into().unwrap(), stream).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// How a review is answered to who shows this certificate; `None`: there is no connection.
    async fn asks(&self, identity: &Issued) -> Option<StatusCode> {
        let tls = certs::client_config(self.authority.certificate_pem(), Some(identity), &[ALPN_H1]).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(tls);
        let stream = connector.connect("webhook".try_into().unwrap(), stream).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let body = Full::new(Bytes::from(a_create(&json!({}))));
        let request = Request::builder().method(Method::POST).uri("/validate").header("host", "webhook").body(body);
        Some(sender.send_request(request.unwrap()).await.ok()?.status())
    }

    async fn ask(
        &self,
        name: Option<&str>,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, String) {
        let mut sender = self.connect(name).await;
        send(&mut sender, method, path, body).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(hung::process(), self.serving).await.unwrap().unwrap();
    }
}

async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> (StatusCode, String) {
    let request =
        Request::builder().method(method).uri(path).header("host", "webhook").body(Full::new(body.into())).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

/// A kube-apiserver that knows this of rights: `anna` may get the Secret `mine`. Of the Secret `broken` it knows nothing.
async fn reviews(request: Request<Body>) -> Result<Response<BoxBody>, Infallible> {
    assert_eq!(request.uri().path(), "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let asked = &review["spec"];
    let (user, attributes) = (&asked["user"], asked["resourceAttributes"].clone());
    let secret =
        |name: &str| json!({"verb": "get", "version": "v1", "resource": "secrets", "namespace": "shop", "name": name});
    let code = if attributes == secret("broken") { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED };
    review["status"] = json!({"allowed": user == "anna" && attributes == secret("mine")});
    let mut response = Response::new(BoxBody::new(Full::from(review.to_string().into_bytes())));
    *response.status_mut() = code;
    Ok(response)
}

fn a_create(spec: &Value) -> String {
    a_review("CREATE", "redisclusters", &a_cluster(spec, &Value::Null), &Value::Null).to_string()
}

#[tokio::test]
async fn a_review_goes_out_over_tls_and_the_verdict_comes_back() {
    let facts = with_policy(Facts::default(), "platform", &json!({"shards": {"max": 9}}));
    let world = serving(Gathered::fixed(facts)).await;
    let api_server = Some("kun:apiserver");
    let (code, body) =
        world.ask(api_server, Method::POST, "/validate?timeout=5s", a_create(&json!({"shards": 12}))).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (code, &answer["response"]["uid"], &answer["response"]["allowed"]),
        (StatusCode::OK, &json!("705ab4f5"), &json!(false))
    );
    assert_eq!(answer["response"]["status"]["code"], json!(403));
    let (_, body) = world.ask(api_server, Method::POST, "/validate", a_create(&a_careful_spec())).await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["response"], json!({"uid": "705ab4f5", "allowed": true}));
    let (_, body) = world.ask(api_server, Method::POST, "/mutate", a_create(&json!({"shards": 12}))).await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["response"]["allowed"], json!(true));
    world.stop().await;
}

#[tokio::test]
async fn whoever_names_what_he_may_not_reach_himself_is_refused_and_told_which_right_he_lacks() {
    let world = serving(Gathered::fixed(Facts::default())).await;
    let verdict = async |spec: Value| {
        let (code, body) = world.ask(Some("kun:apiserver"), Method::POST, "/validate", a_create(&spec)).await;
        assert_eq!(code, StatusCode::OK);
        let answer: Value = serde_json::from_str(&body).unwrap();
        let response = &answer["response"];
        (response["allowed"].clone(), response["status"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let secret = |name: &str| json!({"auth": {"secretName": name}});
    assert_eq!(verdict(secret("mine")).await, (json!(true), String::new()));
    let (allowed, why) = verdict(secret("of-others")).await;
    assert_eq!(allowed, json!(false));
    assert_eq!(
        why,
        "spec.auth.secretName: Forbidden: it needs the right to get secrets \"of-others\" in namespace \"shop\", \
         which user \"anna\" does not have"
    );
    let (allowed, why) = verdict(json!({"backup": {"target": {"directory": {"path": "/srv/backups"}}}})).await;
    assert_eq!(allowed, json!(false));
    assert_eq!(
        why,
        "spec.backup.target.directory.path: Forbidden: it needs the right to create persistentvolumes, which user \
         \"anna\" does not have"
    );
    let (allowed, why) = verdict(secret("broken")).await;
    assert_eq!(allowed, json!(false));
    assert!(why.contains("whether user \"anna\" may get secrets could not be asked"), "{why}");
    world.stop().await;
}

#[tokio::test]
async fn only_the_api_server_may_ask_and_health_is_open() {
    let world = serving(Gathered::fixed(Facts::default())).await;
    for caller in [None, Some("kun:node")] {
        assert_eq!(world.ask(caller, Method::POST, "/validate", a_create(&json!({}))).await.0, StatusCode::FORBIDDEN);
        assert_eq!(world.ask(caller, Method::GET, "/healthz", "").await, (StatusCode::OK, "ok".to_owned()));
        assert_eq!(world.ask(caller, Method::GET, "/readyz", "").await.0, StatusCode::OK);
    }
    let (code, metrics) = world.ask(None, Method::GET, "/metrics", "").await;
    assert_eq!(code, StatusCode::OK);
    assert!(metrics.contains("kun_webhook_rejected_requests_total 2"), "{metrics}");
    world.stop().await;
}

#[tokio::test]
async fn the_api_server_is_answered_through_every_turn_of_its_authority() {
    let now = jiff::Timestamp::now();
    let of_server = leaf("kun:apiserver", Usage::BOTH);
    let mut ring = Ring::create_at("kun", now).unwrap();
    let mut shown = ring.keep_or_issue_at(None, &of_server, now).unwrap();
    let authority = Authority::create("test").unwrap();
    let identity = authority.issue(&leaf("kun:webhook", Usage::SERVER)).unwrap();
    let material = |ring: &Ring| Material { identity: Some(identity.clone()), authorities_pem: ring.bundle_pem() };
    let certificates = Reloading::new(material(&ring)).unwrap();
    let tls = certificates.server_config(ClientAuth::Requested, &[ALPN_H1]).unwrap();
    let listener = TcpListener::bind("127.81.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = serving_on(authority, listener, address, tls, Gathered::fixed(Facts::default()));
    let first = shown.clone();
    for turn in [Turn::Announce, Turn::Promote, Turn::Retire] {
        // The webhook's file is older than the API server's, and then newer.
        let (before, kept) = (ring.bundle_pem(), shown.clone());
        ring = ring.turn(turn, now).unwrap();
        shown = ring.keep_or_issue_at(Some(shown), &of_server, now).unwrap();
        for identity in [&kept, &shown] {
            let old = Material { authorities_pem: before.clone(), ..material(&ring) };
            for believed in [old, material(&ring)] {
                certificates.swap(believed).unwrap();
                assert_eq!(world.asks(identity).await, Some(StatusCode::OK), "{turn:?}");
            }
        }
    }
    assert_ne!(first, shown);
    assert_eq!(world.asks(&first).await, None, "whose authority is believed no more gets no connection");
    world.stop().await;
}

#[tokio::test]
async fn what_is_not_a_review_gets_a_4xx_and_the_next_request_is_served() {
    let world = serving(Gathered::fixed(Facts::default())).await;
    let mut sender = world.connect(Some("kun:apiserver")).await;
    let table = [
        (Method::POST, "/validate", "{".to_owned(), StatusCode::BAD_REQUEST),
        (Method::POST, "/validate", "[".repeat(100_000), StatusCode::BAD_REQUEST),
        (Method::GET, "/validate", String::new(), StatusCode::METHOD_NOT_ALLOWED),
        (Method::POST, "/elsewhere", String::new(), StatusCode::NOT_FOUND),
        (Method::POST, "/validate", a_create(&json!({})), StatusCode::OK),
    ];
    for (method, path, body, code) in table {
        assert_eq!(send(&mut sender, method, path, body).await.0, code, "{path}");
    }
    let large = "x".repeat((3 << 20) + 1);
    assert_eq!(
        world.ask(Some("kun:apiserver"), Method::POST, "/validate", large).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    world.stop().await;
}

#[tokio::test]
async fn nobody_is_answered_before_the_first_lists_are_complete() {
    let world = serving(Gathered::unsynced()).await;
    let (code, why) = world.ask(None, Method::GET, "/readyz", "").await;
    let said = "the first lists are not complete: clusters, operations, policies, namespaces, claims";
    assert_eq!((code, why.as_str()), (StatusCode::SERVICE_UNAVAILABLE, said));
    let (code, _) = world.ask(Some("kun:apiserver"), Method::POST, "/validate", a_create(&json!({}))).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    world.stop().await;
}

type BoxBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// An API server of five lists; every watch tells of one policy that came later, and then stays open.
async fn api(request: Request<Body>) -> Result<Response<BoxBody>, Infallible> {
    let uri = request.uri().clone();
    let watches = uri.query().unwrap_or_default().contains("watch=true");
    let kind = match uri.path().rsplit('/').next().unwrap() {
        "redisclusters" => "RedisCluster",
        "redisoperations" => "RedisOperation",
        "redispolicies" => "RedisPolicy",
        "namespaces" => "Namespace",
        "persistentvolumeclaims" => "PartialObjectMetadata",
        other => panic!("{other}"),
    };
    let policy = |name: &str, max: i32, version: &str| json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisPolicy", "metadata": {"name": name, "resourceVersion": version}, "spec": {"shards": {"max": max}}});
    if watches {
        let event = json!({"type": "ADDED", "object": policy("later", 5, "8")});
        let first = if kind == "RedisPolicy" { format!("{event}\n") } else { String::new() };
        let stream = futures::StreamExt::chain(
            futures::stream::once(async move { Ok::<_, Infallible>(hyper::body::Frame::data(Bytes::from(first))) }),
            futures::stream::pending(),
        );
        return Ok(Response::new(BoxBody::new(http_body_util::StreamBody::new(stream))));
    }
    let items = if kind == "RedisPolicy" { vec![policy("first", 9, "7")] } else { vec![] };
    let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {"resourceVersion": "7"}, "items": items});
    Ok(Response::new(BoxBody::new(Full::from(list.to_string().into_bytes()))))
}

#[tokio::test]
async fn watched_policies_decide_and_later_ones_too() {
    let authority = Authority::create("test").unwrap();
    let (listener, address, tls) = listening(&authority).await;
    let shutdown = CancellationToken::new();
    let client = kube::Client::new(tower::service_fn(api), "default");
    let options = Options { listener, tls, callers: Callers::Anyone, client };
    let serving = tokio::spawn(webhook::run(options, shutdown.clone()));
    let world = World { authority, address, shutdown, serving };
    let of_both = async {
        loop {
            let (code, body) = world.ask(None, Method::POST, "/validate", a_create(&json!({"shards": 12}))).await;
            if code == StatusCode::OK && body.contains("later") {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(hung::answer(), of_both).await.expect("the later policy counts");
    assert!(told.contains("allows at most 9 shards") && told.contains("allows at most 5 shards"), "{told}");
    assert_eq!(world.ask(None, Method::GET, "/readyz", "").await.0, StatusCode::OK);
    world.stop().await;
}

#[tokio::test]
async fn stopping_closes_idle_connections_and_ends() {
    let world = serving(Gathered::fixed(Facts::default())).await;
    let mut sender = world.connect(Some("kun:apiserver")).await;
    assert_eq!(send(&mut sender, Method::POST, "/validate", a_create(&json!({}))).await.0, StatusCode::OK);
    world.stop().await;
    let closed = async {
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(hung::answer(), closed).await.unwrap();
}
