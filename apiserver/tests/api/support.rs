//! A server in this process, called as the edge calls it.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver::{
    admission::{Admission, AdmitAll},
    admit::{Chain, call::Caller},
    app::App,
    filter::{authz::StaticAuthorizer, metrics::Metrics},
    handler::Handler,
    registry::{Registry, host, redis},
    request::{Context, User},
    route,
    storage::Storage,
    wire::{body, status},
    world::{System, World},
};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Clock, Memory, Store, cache};
use uuid::Uuid;

/// Where RedisClusters of the namespace `shop` live.
pub(crate) const CLUSTERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters";

/// A clock that stands still until it is moved, and numbers that only count.
#[derive(Debug, Default)]
pub(crate) struct TestWorld {
    uuids: AtomicU64,
    pub(crate) seconds: AtomicU64,
}

impl World for TestWorld {
    fn now(&self) -> Timestamp {
        let moved = i64::try_from(self.seconds.load(Ordering::SeqCst)).unwrap();
        Timestamp::from_second(1_767_323_045 + moved).unwrap()
    }

    fn uuid(&self) -> Uuid {
        let count = self.uuids.fetch_add(1, Ordering::SeqCst) + 1;
        Uuid::from_u128(
            (u128::from(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64)
                | 0x4000_8000_0000_0000_0000
                | u128::from(count),
        )
    }
}

/// The server.
pub(crate) struct Api {
    pub(crate) app: Arc<App>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) world: Arc<TestWorld>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) warnings: Vec<String>,
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

impl Reply {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.bytes))
    }

    /// Code, reason and message of a Status.
    pub(crate) fn fault(&self) -> (u16, String, String) {
        let body = self.json();
        assert_eq!(body["kind"], "Status", "{body:#}");
        assert_eq!(body["code"], self.code, "{body:#}");
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        (self.code, text("reason"), text("message"))
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{}: {}", self.code, String::from_utf8_lossy(&self.bytes));
        self.json()
    }

    /// The version of the object answered.
    pub(crate) fn version(&self) -> u64 {
        self.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }
}

/// One request under construction.
pub(crate) struct Call<'a> {
    api: &'a Api,
    method: &'static str,
    uri: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Call<'_> {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    /// Sends it; the body of the answer is still to be read.
    pub(crate) async fn open(self) -> (Context, http::Response<body::ResponseBody>) {
        let mut request = Request::builder().method(self.method).uri(&self.uri);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(body::request(self.body)).unwrap();
        let call = match route::parse(self.method, request.uri().path(), request.uri().query()) {
            Ok(call) => call,
            Err(error) => {
                let call = route::parse("GET", "/", None).unwrap();
                return (Context::new(User::default(), call), status::response(&error));
            }
        };
        let user = User { name: "anna".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() };
        let agent = self.headers.iter().find(|(name, _)| *name == "user-agent");
        let user_agent = agent.map(|(_, value)| value.clone()).unwrap_or_default();
        let context = Context { user_agent, ..Context::new(user, call) };
        let response = Arc::clone(&self.api.app).handle(context.clone(), request).await;
        (context, response)
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(self) -> Reply {
        let (context, response) = self.open().await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            code: head.status.as_u16(),
            headers: head.headers,
            bytes,
            warnings: context.warnings.bounded(),
            annotations: context.annotations.snapshot(),
        }
    }
}

impl Api {
    /// All kinds, no admission.
    pub(crate) async fn new() -> Self {
        Self::with(Arc::new(AdmitAll)).await
    }

    pub(crate) async fn with(admission: Arc<dyn Admission>) -> Self {
        let api = Self::closed().await;
        api.app.open(Arc::clone(&api.storage), admission);
        api
    }

    /// All kinds and the real admission, with a namespace `shop`. Whoever is a master may do everything.
    pub(crate) async fn guarded() -> Self {
        Self::guarding(registry()).await
    }

    /// The same with these kinds.
    pub(crate) async fn guarding(registry: Registry) -> Self {
        let api =
            Self::over(registry.clone(), Arc::new(Memory::default()), cache::Options::default(), None).await.unwrap();
        let caller = Arc::new(Caller::new(None, Arc::clone(&api.metrics)));
        let chain = Chain::over(Arc::clone(&api.storage), registry, caller)
            .with_authorizer(Arc::new(StaticAuthorizer::new(Vec::new())));
        api.app.open(Arc::clone(&api.storage), Arc::new(chain));
        let shop = json!({"metadata": {"name": "shop", "labels": {"team": "a"}}});
        api.post("/api/v1/namespaces", &shop).await.ok();
        api
    }

    /// A server that was not opened yet.
    pub(crate) async fn closed() -> Self {
        Self::remembering(cache::Options::default()).await
    }

    /// A server that forgets all but the last four changes of a kind, and everything by the hour: the second value is
    /// the clock of its cache, in hours.
    pub(crate) async fn forgetful() -> (Self, Arc<AtomicU64>) {
        let hours = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&hours);
        let clock = Clock::from_fn(move || Duration::from_secs(3600 * read.load(Ordering::SeqCst)));
        let window = cache::Window { at_least: 4, at_most: 4, ..cache::Window::default() };
        let api = Self::remembering(cache::Options { window, clock }).await;
        api.app.open(Arc::clone(&api.storage), Arc::new(AdmitAll));
        (api, hours)
    }

    async fn remembering(options: cache::Options) -> Self {
        Self::over(registry(), Arc::new(Memory::default()), options, None).await.unwrap()
    }

    /// A server in another world than the usual one.
    pub(crate) async fn living_in(world: Arc<dyn World>) -> Self {
        let api =
            Self::over(registry(), Arc::new(Memory::default()), cache::Options::default(), Some(world)).await.unwrap();
        api.app.open(Arc::clone(&api.storage), Arc::new(AdmitAll));
        api
    }

    /// One of several servers on one store, in the world as it is.
    pub(crate) async fn replica(store: Arc<dyn Store>) -> Self {
        let api = Self::over(registry(), store, cache::Options::default(), Some(Arc::new(System))).await.unwrap();
        api.app.open(Arc::clone(&api.storage), Arc::new(AdmitAll));
        api
    }

    /// These kinds over this store, without admission; fails where a server would not start.
    pub(crate) async fn serving(registry: Registry, store: Arc<dyn Store>) -> Result<Self, String> {
        let api = Self::over(registry, store, cache::Options::default(), None).await?;
        api.app.open(Arc::clone(&api.storage), Arc::new(AdmitAll));
        Ok(api)
    }

    /// A server that was not opened yet; it lives in a [`TestWorld`] of its own if in no other.
    async fn over(
        registry: Registry,
        store: Arc<dyn Store>,
        options: cache::Options,
        lived_in: Option<Arc<dyn World>>,
    ) -> Result<Self, String> {
        let storage = Storage::open_with(store, &registry, options).await.map_err(|error| format!("{error:?}"))?;
        let world = Arc::new(TestWorld::default());
        let app = App::new(registry, lived_in.unwrap_or_else(|| world.clone()));
        Ok(Self { app, storage: Arc::new(storage), world, metrics: Arc::default() })
    }

    pub(crate) fn call(&self, method: &'static str, uri: &str) -> Call<'_> {
        Call { api: self, method, uri: uri.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) async fn get(&self, uri: &str) -> Reply {
        self.call("GET", uri).send().await
    }
    pub(crate) async fn post(&self, uri: &str, body: &Value) -> Reply {
        self.call("POST", uri).json(body).send().await
    }
    pub(crate) async fn put(&self, uri: &str, body: &Value) -> Reply {
        self.call("PUT", uri).json(body).send().await
    }
    pub(crate) async fn delete(&self, uri: &str) -> Reply {
        self.call("DELETE", uri).send().await
    }
    pub(crate) async fn merge(&self, uri: &str, body: &Value) -> Reply {
        self.call("PATCH", uri).header("content-type", "application/merge-patch+json").json(body).send().await
    }

    /// Creates a RedisCluster of three shards in `shop`.
    pub(crate) async fn cluster(&self, name: &str) -> Value {
        self.post(CLUSTERS, &cluster(name)).await.ok()
    }

    /// Opens a watch and reads its events.
    pub(crate) async fn watch(&self, uri: &str) -> Events {
        let (_, response) = self.call("GET", uri).open().await;
        Events::of(response)
    }
}

/// All kinds. They are made once: the schemas of all of them take a sixth of a second.
pub(crate) fn registry() -> Registry {
    static ALL: LazyLock<Registry> = LazyLock::new(|| redis::registry().unwrap().and(host::registry().unwrap()));
    ALL.clone()
}

/// The least RedisCluster.
/// An object of our own, which must say what it is.
pub(crate) fn of_kind(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!("redis.kun.io/v1");
    object["kind"] = json!(kind);
    object
}

pub(crate) fn cluster(name: &str) -> Value {
    json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": name}, "spec": {}})
}

/// The events of a watch, one by one.
pub(crate) struct Events {
    body: body::ResponseBody,
    buffer: Vec<u8>,
    patience: Duration,
}

impl Events {
    /// The events of an answer.
    pub(crate) fn of(response: http::Response<body::ResponseBody>) -> Self {
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new(), patience: hung::answer() }
    }

    /// For a clock that goes by itself: events and the end may come as late as a watch may last.
    pub(crate) fn for_an_hour(self) -> Self {
        Self { patience: Duration::from_secs(3600), ..self }
    }

    /// The next event; `None` at the end of the stream. Fails rather than waits for ever.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(self.patience, self.body.frame()).await.expect("an event in time");
            match frame {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None if self.buffer.is_empty() => return None,
                None => panic!("the stream ended within an event"),
            }
        }
    }

    /// Type and name of the next event.
    pub(crate) async fn next_short(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

/// Compares with a file; `KUN_GOLDEN=write` writes it instead.
#[track_caller]
pub(crate) fn golden(name: &str, value: &Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = format!("{}\n", serde_json::to_string_pretty(value).unwrap());
    if std::env::var("KUN_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} differs; run with KUN_GOLDEN=write and read the difference");
}
