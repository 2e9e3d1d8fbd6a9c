//! Behind a kube-apiserver, in process: what is asked of it, what is remembered, and what happens while it has not said
//! yet whom to believe, which webhooks there are, or which namespaces.
//!
//! The kube-apiserver is one of our own servers, behind a client that counts and can hold back what a test wants held.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{
    admission::{Admission, Operation},
    admit::{
        Chain,
        call::Caller,
        config::Kind,
        policy,
        source::{NotReady, Sources, StoreSources},
    },
    app::{App, Need},
    delegate::{access::SubjectAccessReviews, sources::CoreSources, trust::FollowTrust},
    error::Error,
    filter::{
        Edge, Peer,
        authn::{
            Authenticator,
            trust::{AnyName, NAME, Trust},
        },
        authz::{Attributes, Authorizer, Decision, StaticAuthorizer},
        metrics::Metrics,
    },
    request::User,
    route,
    wire::{body, status},
    world::System,
};
use certs::{Authority, Issued, Leaf, Shown};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::Client;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::support::{Api, cluster, registry};

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A kube-apiserver.
struct Core {
    api: Api,
    /// Method and path of every request.
    seen: Mutex<Vec<String>>,
    /// Requests whose path begins so get no answer until it is taken away.
    held: Mutex<BTreeSet<&'static str>>,
    freed: Notify,
    /// SubjectAccessReviews so far. All are answered with yes.
    reviews: AtomicUsize,
}

impl Core {
    async fn start() -> Arc<Self> {
        let (seen, held) = (Mutex::default(), Mutex::default());
        let core = Self { api: Api::new().await, seen, held, freed: Notify::new(), reviews: AtomicUsize::new(0) };
        Arc::new(core)
    }

    fn hold(&self, path: &'static str) {
        self.held.lock().unwrap().insert(path);
    }

    fn free(&self, path: &'static str) {
        self.held.lock().unwrap().remove(path);
        self.freed.notify_waiters();
    }

    /// How often something was asked for.
    fn times(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| *seen == what).count()
    }

    fn client(self: &Arc<Self>) -> Client {
        let core = Arc::clone(self);
        let serve = move |request: Request<kube::client::Body>| {
            let core = Arc::clone(&core);
            async move { Ok::<_, std::convert::Infallible>(core.answer(request).await) }
        };
        Client::new(tower::service_fn(serve), "default")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<body::ResponseBody> {
        let (head, sent) = request.into_parts();
        let path = head.uri.path().to_owned();
        self.seen.lock().unwrap().push(format!("{} {path}", head.method));
        loop {
            let freed = self.freed.notified();
            if !self.held.lock().unwrap().iter().any(|held| path.starts_with(held)) {
                break;
            }
            freed.await;
        }
        if path.ends_with("/subjectaccessreviews") {
            self.reviews.fetch_add(1, Ordering::SeqCst);
            let answer = json!({"status": {"allowed": true}}).to_string();
            return body::respond(http::StatusCode::CREATED, "application/json", body::full(answer));
        }
        let method = match head.method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            other => panic!("{other} {path}"),
        };
        let bytes = sent.collect().await.unwrap().to_bytes();
        let (_, response) = self.api.call(method, &head.uri.to_string()).body(bytes).open().await;
        response
    }

    async fn post(&self, path: &str, object: &Value) -> Value {
        self.api.post(path, object).await.ok()
    }
}

/// Waits until something holds; fails rather than waits for ever.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + hung::answer();
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn follow(core: &Arc<Core>) -> Arc<CoreSources> {
    let (sources, run) = CoreSources::follow(core.client(), registry());
    tokio::spawn(run);
    sources
}

fn webhooks(kind: &str, name: &str, hooks: &[&str]) -> Value {
    let hook = |hook: &&str| {
        json!({"name": hook, "clientConfig": {"url": "https://198.18.0.1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]})
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": hooks.iter().map(hook).collect::<Vec<_>>()})
}

/// `configuration/webhook`, in the order in which they are asked.
fn order(sources: &dyn Sources, kind: Kind) -> Vec<String> {
    let hooks = sources.hooks(kind).unwrap();
    hooks.iter().map(|hook| format!("{}/{}", hook.configuration, hook.name)).collect()
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_asked_by_name_of_their_configuration_then_as_they_are_listed() {
    let core = Core::start().await;
    for (kind, path) in [("MutatingWebhookConfiguration", MUTATING), ("ValidatingWebhookConfiguration", VALIDATING)] {
        for (name, hooks) in [("m", ["z.m.io", "a.m.io"]), ("b", ["y.b.io", "x.b.io"]), ("b-a", ["1.b.io", "0.b.io"])] {
            core.post(path, &webhooks(kind, name, &hooks)).await;
        }
    }
    let expected = ["b/y.b.io", "b/x.b.io", "b-a/1.b.io", "b-a/0.b.io", "m/z.m.io", "m/a.m.io"];
    let sources = follow(&core);
    until("everything is listed", || sources.check().is_ok()).await;
    let own = StoreSources::new(Arc::clone(&core.api.storage), registry());
    for kind in [Kind::Mutating, Kind::Validating] {
        assert_eq!(order(sources.as_ref(), kind), expected);
        assert_eq!(order(&own, kind), expected);
    }
    // One that is made later takes its place by its name.
    core.post(VALIDATING, &webhooks("ValidatingWebhookConfiguration", "a", &["only.a.io"])).await;
    until("the new one is seen", || order(sources.as_ref(), Kind::Validating).len() == 7).await;
    assert_eq!(order(sources.as_ref(), Kind::Validating)[0], "a/only.a.io");
}

fn create(name: &str) -> apiserver::admission::Attributes {
    let of = |name: &str| apiserver::admission::GroupVersion {
        group: "redis.kun.io".to_owned(),
        version: "v1".to_owned(),
        name: name.to_owned(),
    };
    apiserver::admission::Attributes {
        operation: Operation::Create,
        kind: of("RedisCluster"),
        resource: of("redisclusters"),
        subresource: None,
        name: name.to_owned(),
        namespace: Some("shop".to_owned()),
        user: User::default(),
        dry_run: false,
        options: Value::Null,
        object: None,
        old_object: None,
        warnings: apiserver::request::Warnings::default(),
        annotations: apiserver::request::Annotations::default(),
        holds: apiserver::admission::Holds::default(),
        aspect: apiserver::admission::Aspect::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn until_it_is_known_who_wants_to_be_asked_everything_is_refused_and_the_server_is_not_ready() {
    let core = Core::start().await;
    core.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    for path in [MUTATING, VALIDATING] {
        core.hold(path);
    }
    let sources = follow(&core);
    let missing = "not listed yet: mutatingwebhookconfigurations, validatingwebhookconfigurations";
    until("the rest is listed", || sources.check() == Err(missing.to_owned())).await;
    let chain = Chain::new(sources.clone(), Arc::new(Caller::new(None, Arc::default())));
    let too_early = |error: &Error| {
        let told = status::status(error);
        assert_eq!((&told["code"], &told["reason"]), (&json!(403), &json!("Forbidden")));
        assert_eq!(
            told["message"],
            "redisclusters.redis.kun.io \"orders\" is forbidden: not yet ready to handle request"
        );
        assert_eq!(told["details"], json!({"name": "orders", "group": "redis.kun.io", "kind": "redisclusters"}));
    };
    let mut asked = create("orders");
    too_early(&chain.mutate(&asked, cluster("orders")).await.unwrap_err());
    assert_eq!(sources.hooks(Kind::Mutating), Err(NotReady));
    core.free(MUTATING);
    until("the mutating ones are listed", || sources.hooks(Kind::Mutating).is_ok()).await;
    let object = chain.mutate(&asked, cluster("orders")).await.unwrap();
    assert_eq!(object, cluster("orders"));
    asked.object = Some(Arc::new(object));
    too_early(&chain.validate(&asked).await.unwrap_err());
    core.free(VALIDATING);
    until("everything is listed", || sources.check().is_ok()).await;
    assert_eq!(chain.validate(&asked).await, Ok(()));
    assert!(sources.policies(policy::Kind::Validating).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_new_is_waited_for_and_then_asked_for() {
    let core = Core::start().await;
    let sources = follow(&core);
    until("everything is listed", || sources.check().is_ok()).await;
    // One that the watch brings while it is waited for is not asked for.
    let (found, _) = tokio::join!(sources.namespace("quick"), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        core.post("/api/v1/namespaces", &json!({"metadata": {"name": "quick", "labels": {"a": "b"}}})).await
    });
    let found = found.unwrap().unwrap();
    assert_eq!((found.labels.get("a").map(String::as_str), found.is_terminating), (Some("b"), false));
    assert_eq!(core.times("GET /api/v1/namespaces/quick"), 0);
    // One that is nowhere is asked for once, after the wait.
    let begin = Instant::now();
    assert_eq!(sources.namespace("nowhere").await, Ok(None));
    assert!(begin.elapsed() >= Duration::from_millis(50), "{:?}", begin.elapsed());
    assert_eq!(core.times("GET /api/v1/namespaces/nowhere"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_the_watch_does_not_know_yet_is_found_by_asking() {
    let core = Core::start().await;
    // The list never comes, so that only asking can find it.
    core.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    let held = Arc::new(Held(core.client()));
    let (sources, run) = CoreSources::follow(held.client(), registry());
    tokio::spawn(run);
    assert!(sources.namespace("shop").await.unwrap().is_some());
    assert_eq!(core.times("GET /api/v1/namespaces/shop"), 1);
    assert!(sources.check().is_err());
}

/// Lets through what asks for one object, and answers nothing else.
struct Held(Client);

impl Held {
    fn client(self: &Arc<Self>) -> Client {
        let held = Arc::clone(self);
        let serve = move |request: Request<kube::client::Body>| {
            let held = Arc::clone(&held);
            async move {
                if !request.uri().path().starts_with("/api/v1/namespaces/") {
                    std::future::pending::<()>().await;
                }
                held.0.send(request).await
            }
        };
        Client::new(tower::service_fn(serve), "default")
    }
}

fn leaf(authority: &Authority, name: &str) -> Issued {
    authority.issue(&Leaf::client(name, &[], Duration::from_secs(3600))).unwrap()
}

fn peer(issued: &Issued) -> Arc<Peer> {
    let chain = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).map(Result::unwrap).collect();
    Arc::new(Peer::new(([127, 83, 5, 1], 1).into(), Some(Shown::of_chain(chain).unwrap())))
}

fn trust_map(clients: &Authority) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
        "data": {"client-ca-file": clients.certificate_pem()}})
}

/// A server of ours that believes whom the ConfigMap says.
struct Behind {
    edge: Arc<Edge>,
    authenticator: Arc<Authenticator>,
}

impl Behind {
    async fn start(core: &Arc<Core>) -> Self {
        let authorizer = StaticAuthorizer::new(apiserver::filter::rights::standalone(&registry()));
        Self::judged(core, Arc::new(authorizer)).await
    }

    async fn judged(core: &Arc<Core>, authorizer: Arc<dyn Authorizer>) -> Self {
        let authenticator = Arc::new(Authenticator::new(Trust::default(), None));
        let trust = FollowTrust::new(core.client(), authenticator.clone(), AnyName::Refused);
        let followed = trust.clone();
        tokio::spawn(async move { followed.run().await });
        let own = Api::closed().await;
        let app = App::new(registry(), Arc::new(System));
        app.wait_for(vec![Need { name: "authentication", check: Box::new(move || trust.check()) }]);
        app.open(own.storage, Arc::new(apiserver::admission::AdmitAll));
        Self { edge: Edge::new(app, authenticator.clone(), authorizer, Arc::new(Metrics::default())), authenticator }
    }

    async fn get(&self, peer: &Arc<Peer>, path: &str) -> (u16, String) {
        let request = Request::get(path).body(body::request("")).unwrap();
        let response = self.edge.clone().answer(peer.clone(), request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn knows(&self, peer: &Peer) -> bool {
        self.authenticator.authenticate(peer, &HeaderMap::new(), Timestamp::now()).await.is_ok()
    }

    async fn comes_to_know(&self, peer: &Peer) {
        let known = async {
            while !self.knows(peer).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(hung::answer(), known).await.expect("the ConfigMap is seen");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_config_map_is_waited_for_by_a_server_that_is_closed_and_a_change_of_it_is_followed() {
    let core = Core::start().await;
    let (first, second) = (Authority::create("first").unwrap(), Authority::create("second").unwrap());
    let (jane, joe) = (peer(&leaf(&first, "jane")), peer(&leaf(&second, "joe")));
    let behind = Behind::start(&core).await;
    until("the ConfigMap was looked for", || core.times(&format!("GET {CONFIG_MAPS}")) > 0).await;
    // There is none: not ready, and nobody is let in, nor told that something does not exist.
    for path in ["/readyz", "/readyz/authentication"] {
        let (code, text) = behind.get(&jane, path).await;
        assert!(code == 500 && !text.contains("client-ca-file"), "{path}: {code} {text}");
    }
    assert!(behind.get(&jane, "/readyz").await.1.contains("[-]authentication failed: reason withheld\n"));
    assert_eq!(behind.get(&jane, "/readyz?exclude=authentication").await.0, 200);
    assert_eq!(behind.get(&jane, "/livez").await.0, 200, "a restart would not bring it");
    for path in ["/apis", "/apis/redis.kun.io/v1/redisclusters", "/nothing"] {
        assert_eq!(behind.get(&jane, path).await.0, 503, "{path}");
    }
    assert!(!behind.knows(&jane).await);

    // It comes, through the watch; and changes, without a restart.
    core.post(CONFIG_MAPS, &trust_map(&first)).await;
    behind.comes_to_know(&jane).await;
    assert_eq!(behind.get(&jane, "/readyz/authentication").await, (200, "ok".to_owned()));
    assert_eq!(behind.get(&jane, "/apis").await.0, 200);
    assert_eq!(behind.get(&joe, "/apis").await.0, 401);
    let path = format!("{CONFIG_MAPS}/{NAME}");
    core.api.merge(&path, &trust_map(&second)).await.ok();
    behind.comes_to_know(&joe).await;
    assert!(!behind.knows(&jane).await, "an authority that was taken away counts");
    assert_eq!(behind.get(&jane, "/apis").await.0, 401);

    // What makes no sense, or is gone, leaves the last trust as it is.
    core.api.merge(&path, &json!({"data": {"client-ca-file": "-----BEGIN"}})).await.ok();
    core.api.delete(&path).await.ok();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(behind.knows(&joe).await && !behind.knows(&jane).await);
    core.post(CONFIG_MAPS, &trust_map(&first)).await;
    behind.comes_to_know(&jane).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_about_rights_is_asked_once_in_ten_seconds_and_an_oversized_one_every_time() {
    let core = Core::start().await;
    let reviews = SubjectAccessReviews::new(core.client());
    let asked = async |name: &str| {
        let user = User { name: "jane".to_owned(), ..User::default() };
        let path = format!("/apis/redis.kun.io/v1/namespaces/shop/redisclusters/{name}");
        let about = Attributes::of(&route::parse("GET", &path, None).unwrap());
        assert_eq!(reviews.authorize(&user, &about).await, Ok(Decision::Allow(String::new())));
        core.reviews.load(Ordering::SeqCst)
    };
    assert_eq!([asked("orders").await, asked("orders").await, asked("carts").await], [1, 1, 2]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(asked("orders").await, 3);
    let long = "x".repeat(10_000);
    assert_eq!([asked(&long).await, asked(&long).await, asked("orders").await], [4, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_about_rights_is_a_500_that_says_no_more() {
    let core = Core::start().await;
    let clients = Authority::create("clients").unwrap();
    core.post(CONFIG_MAPS, &trust_map(&clients)).await;
    // A kube-apiserver that does not let us ask.
    let refuse = |_: Request<kube::client::Body>| async {
        let answer = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "a secret"});
        let (code, text) = (http::StatusCode::FORBIDDEN, answer.to_string());
        Ok::<_, std::convert::Infallible>(body::respond(code, "application/json", body::full(text)))
    };
    let deaf = Client::new(tower::service_fn(refuse), "default");
    let behind = Behind::judged(&core, Arc::new(SubjectAccessReviews::new(deaf))).await;
    let jane = peer(&leaf(&clients, "jane"));
    behind.comes_to_know(&jane).await;
    let (code, text) = behind.get(&jane, "/apis/redis.kun.io/v1/redisclusters").await;
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &told["kind"], &told["reason"]), (500, &json!("Status"), &json!("InternalError")));
    assert!(!text.contains("secret") && !text.contains("cannot list"), "{text}");
}
