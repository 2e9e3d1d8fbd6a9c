//! An API server in memory: get, create, replace and delete of any kind, versions that are compared, no validation. It
//! serves a kube client directly, and fills the controller's caches with what it holds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use controller::api::Kubernetes;
use controller::cache::{Cached, Caches};
use controller::lease::Guard;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::client::Body;
use serde_json::{Value, json};
use types::RedisCluster;

/// Plural and name.
type Id = (String, String);

#[derive(Clone, Default)]
pub(crate) struct Memory {
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    objects: BTreeMap<Id, Value>,
    version: u64,
    writes: Vec<String>,
}

impl Memory {
    /// Puts an object in behind everybody's back.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.held.lock().unwrap().put(plural, object);
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.held.lock().unwrap().objects.get(&(plural.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn change(&self, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(plural, name).unwrap();
        change(&mut object);
        self.put(plural, object);
    }

    pub(crate) fn clear(&self, plural: &str) {
        self.held.lock().unwrap().objects.retain(|(kind, _), _| kind != plural);
    }

    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let held = self.held.lock().unwrap();
        held.objects.keys().filter(|(kind, _)| kind == plural).map(|(_, name)| name.clone()).collect()
    }

    /// Writes since the last call, as `METHOD plural/name`.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.held.lock().unwrap().writes)
    }

    pub(crate) fn client(&self) -> kube::Client {
        let memory = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let memory = memory.clone();
            async move { Ok::<_, Infallible>(memory.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn kubernetes(&self) -> Kubernetes {
        self.kubernetes_of(Guard::always())
    }

    pub(crate) fn kubernetes_of(&self, guard: Guard) -> Kubernetes {
        Kubernetes::new(self.client(), Arc::new(self.caches()), guard, None)
    }

    /// The caches as the watches would have filled them: by label.
    pub(crate) fn caches(&self) -> Caches {
        let caches = Caches::default();
        self.fill::<RedisCluster>(&caches, "redisclusters");
        self.fill::<StatefulSet>(&caches, "statefulsets");
        self.fill::<Pod>(&caches, "pods");
        self.fill::<Service>(&caches, "services");
        self.fill::<ConfigMap>(&caches, "configmaps");
        self.fill::<Secret>(&caches, "secrets");
        self.fill::<PersistentVolumeClaim>(&caches, "persistentvolumeclaims");
        self.fill::<PodDisruptionBudget>(&caches, "poddisruptionbudgets");
        caches.assume_complete();
        caches
    }

    fn fill<K: Cached>(&self, caches: &Caches, plural: &str) {
        let held = self.held.lock().unwrap();
        for (_, object) in held.objects.iter().filter(|((kind, _), _)| kind == plural) {
            K::cache(caches).put(serde_json::from_value(object.clone()).unwrap());
        }
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (status, answer) = self.held.lock().unwrap().answer(&parts.method, parts.uri.path(), body);
        let text = serde_json::to_vec(&answer).unwrap();
        Response::builder().status(status).header("content-type", "application/json").body(Body::from(text)).unwrap()
    }
}

impl Held {
    fn put(&mut self, plural: &str, mut object: Value) -> Value {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"].get("uid").is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert((plural.to_owned(), name), object.clone());
        object
    }

    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let place = segments.iter().position(|segment| *segment == "namespaces").unwrap();
        let (plural, name) = match &segments[place..] {
            [_, _, plural, rest @ ..] => (*plural, rest.first().copied().unwrap_or_default()),
            _ => ("namespaces", ""),
        };
        let name =
            if name.is_empty() { body["metadata"]["name"].as_str().unwrap_or_default() } else { name }.to_owned();
        let id = (plural.to_owned(), name.clone());
        let live = self.objects.get(&id).cloned();
        if *method != Method::GET {
            self.writes.push(format!("{method} {plural}/{name}"));
        }
        match (method, live) {
            (&Method::GET, Some(live)) => (StatusCode::OK, live),
            (&Method::POST, None) => (StatusCode::CREATED, self.put(plural, body)),
            (&Method::POST, Some(_)) => refusal(StatusCode::CONFLICT, "AlreadyExists"),
            (&Method::PUT, Some(live)) => {
                if body["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"] {
                    (StatusCode::OK, self.put(plural, body))
                } else {
                    refusal(StatusCode::CONFLICT, "Conflict")
                }
            }
            (&Method::DELETE, Some(_)) => {
                self.objects.remove(&id);
                (StatusCode::OK, json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}))
            }
            (_, _) => refusal(StatusCode::NOT_FOUND, "NotFound"),
        }
    }
}

fn refusal(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason,
        "code": code.as_u16(),
    });
    (code, status)
}
