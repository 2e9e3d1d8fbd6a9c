//! An API server in memory: get, create, replace, patch, apply and delete of any kind, versions that are compared, owners of fields
//! that are kept, no validation but of ports' names. It serves a kube client directly, and fills the controller's caches with what it
//! holds.

mod owners;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use controller::api::Kubernetes;
use controller::cache::{Cached, Caches};
use controller::lease::Guard;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::client::Body;
use serde_json::{Value, json};
use types::{RedisBackup, RedisCluster};

use owners::{Author, apply, track};

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
    refused: Option<(&'static str, Refusal)>,
    rewritten: Option<(&'static str, Value)>,
}

/// How a write is refused.
#[derive(Clone, Copy)]
pub(crate) enum Refusal {
    /// By a rule or a quota.
    Forbidden,
    /// Its namespace is being deleted.
    Leaving,
    /// A webhook of others fails.
    Broken,
    /// A webhook of others gives no answer.
    Silent,
}

/// One request, as far as it matters here.
struct Asked<'a> {
    method: &'a Method,
    content_type: &'a str,
    author: Author<'a>,
    /// The name of which a list is asked for.
    listed: Option<&'a str>,
    body: Value,
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

    pub(crate) fn remove(&self, plural: &str, name: &str) {
        self.held.lock().unwrap().objects.remove(&(plural.to_owned(), name.to_owned()));
    }

    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let held = self.held.lock().unwrap();
        held.objects.keys().filter(|(kind, _)| kind == plural).map(|(_, name)| name.clone()).collect()
    }

    /// From now on nothing of this kind may be written; `None`: everything may.
    pub(crate) fn forbid(&self, plural: Option<&'static str>) {
        self.refuse(plural.map(|plural| (plural, Refusal::Forbidden)));
    }

    /// From now on nothing is written whose `plural/name` begins like this.
    pub(crate) fn refuse(&self, what: Option<(&'static str, Refusal)>) {
        self.held.lock().unwrap().refused = what;
    }

    /// From now on whatever is written whose `plural/name` begins like this is patched like that: a webhook of others.
    pub(crate) fn rewrite(&self, what: Option<(&'static str, Value)>) {
        self.held.lock().unwrap().rewritten = what;
    }

    /// Writes since the last call, as `METHOD plural/name`.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.held.lock().unwrap().writes)
    }

    /// What somebody else writes: a merge patch.
    pub(crate) fn patch(&self, manager: &str, plural: &str, name: &str, patch: &Value) {
        let mut held = self.held.lock().unwrap();
        let live = held.objects[&(plural.to_owned(), name.to_owned())].clone();
        let mut new = live.clone();
        merge::merge_patch(&mut new, patch);
        track(plural, Some(&live), &mut new, Author(manager));
        held.put(plural, new);
    }

    /// What somebody else applies, by force.
    pub(crate) fn apply(&self, manager: &str, plural: &str, name: &str, config: &Value) {
        let mut held = self.held.lock().unwrap();
        let live = held.objects[&(plural.to_owned(), name.to_owned())].clone();
        let new = apply(plural, &live, config, Author(manager));
        held.put(plural, new);
    }

    /// Who owns fields of an object, and by which operation.
    pub(crate) fn owners(&self, plural: &str, name: &str) -> Vec<String> {
        let object = self.get(plural, name).unwrap();
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| format!("{} {}", entry["manager"], entry["operation"]).replace('"', "")).collect()
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
        self.fill::<RedisBackup>(&caches, "redisbackups");
        self.fill::<StatefulSet>(&caches, "statefulsets");
        self.fill::<Pod>(&caches, "pods");
        self.fill::<Service>(&caches, "services");
        self.fill::<ConfigMap>(&caches, "configmaps");
        self.fill::<Secret>(&caches, "secrets");
        self.fill::<PersistentVolumeClaim>(&caches, "persistentvolumeclaims");
        self.fill::<PodDisruptionBudget>(&caches, "poddisruptionbudgets");
        self.fill::<NetworkPolicy>(&caches, "networkpolicies");
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
        let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let author = Author::of(query);
        let listed = query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
        let asked = Asked { method: &parts.method, content_type, author, listed, body };
        let answer = self.held.lock().unwrap().answer(parts.uri.path(), asked);
        let Some((status, answer)) = answer else { return std::future::pending().await };
        let text = serde_json::to_vec(&answer).unwrap();
        Response::builder().status(status).header("content-type", "application/json").body(Body::from(text)).unwrap()
    }
}

impl Held {
    fn put(&mut self, plural: &str, mut object: Value) -> Value {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if let Some((_, patch)) =
            self.rewritten.as_ref().filter(|(what, _)| format!("{plural}/{name}").starts_with(what))
        {
            merge::merge_patch(&mut object, patch);
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"].get("uid").is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert((plural.to_owned(), name), object.clone());
        object
    }

    /// `None`: it will never come.
    fn answer(&mut self, path: &str, asked: Asked<'_>) -> Option<(StatusCode, Value)> {
        let Asked { method, content_type, author, listed, mut body } = asked;
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let place = segments.iter().position(|segment| *segment == "namespaces").unwrap();
        let (plural, name) = match &segments[place..] {
            [_, _, plural, rest @ ..] => (*plural, rest.first().copied().unwrap_or_default()),
            _ => ("namespaces", ""),
        };
        if let Some(wanted) = listed {
            let found = self.objects.get(&(plural.to_owned(), wanted.to_owned())).into_iter().collect::<Vec<_>>();
            return Some((StatusCode::OK, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": found})));
        }
        let name =
            if name.is_empty() { body["metadata"]["name"].as_str().unwrap_or_default() } else { name }.to_owned();
        let id = (plural.to_owned(), name.clone());
        let live = self.objects.get(&id).cloned();
        let verb = if content_type.starts_with("application/apply-patch") { "APPLY" } else { method.as_str() };
        if verb != "GET" {
            self.writes.push(format!("{verb} {plural}/{name}"));
            let refused = self.refused.filter(|(what, _)| format!("{plural}/{name}").starts_with(what));
            if let Some((_, how)) = refused {
                return how.answer();
            }
        }
        Some(match (verb, live) {
            ("GET", Some(live)) => (StatusCode::OK, live),
            ("POST", None) => {
                track(plural, None, &mut body, author);
                (StatusCode::CREATED, self.put(plural, body))
            }
            ("POST", Some(_)) => refusal(StatusCode::CONFLICT, "AlreadyExists"),
            ("PUT", Some(live)) => {
                track(plural, Some(&live), &mut body, author);
                self.replace(plural, &live, body)
            }
            ("PATCH", Some(live)) => {
                let mut new = live.clone();
                merge::merge_patch(&mut new, &body);
                track(plural, Some(&live), &mut new, author);
                self.replace(plural, &live, new)
            }
            ("APPLY", Some(live)) => {
                assert!(body["metadata"].get("resourceVersion").is_some(), "applied whatever the state is: {body}");
                let new = apply(plural, &live, &body, author);
                self.replace(plural, &live, new)
            }
            ("DELETE", Some(_)) => {
                self.objects.remove(&id);
                (StatusCode::OK, json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}))
            }
            (_, _) => refusal(StatusCode::NOT_FOUND, "NotFound"),
        })
    }

    /// Writes the next state of an object, if it is one of this object at this version.
    fn replace(&mut self, plural: &str, live: &Value, new: Value) -> (StatusCode, Value) {
        let (was, is) = (&live["metadata"], &new["metadata"]);
        if is["resourceVersion"] != was["resourceVersion"] {
            return refusal(StatusCode::CONFLICT, "Conflict");
        }
        if is["uid"] != was["uid"] {
            return invalid("FieldValueInvalid", "metadata.uid");
        }
        let ports = new["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let names: BTreeSet<&str> = ports.iter().filter_map(|port| port["name"].as_str()).collect();
        if names.len() < ports.iter().filter(|port| port.get("name").is_some()).count() {
            return invalid("FieldValueDuplicate", "spec.ports[1].name");
        }
        // Of claims only a class that says so may grow.
        if live["spec"]["storageClassName"] == "fixed" && new["spec"]["resources"] != live["spec"]["resources"] {
            return refusal(StatusCode::FORBIDDEN, "Forbidden");
        }
        (StatusCode::OK, self.put(plural, new))
    }
}

impl Refusal {
    fn answer(self) -> Option<(StatusCode, Value)> {
        match self {
            Self::Forbidden => Some(refusal(StatusCode::FORBIDDEN, "Forbidden")),
            Self::Leaving => {
                Some(caused(StatusCode::FORBIDDEN, "Forbidden", "NamespaceTerminating", "metadata.namespace"))
            }
            Self::Broken => Some(refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
            Self::Silent => None,
        }
    }
}

fn invalid(cause: &str, field: &str) -> (StatusCode, Value) {
    caused(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", cause, field)
}

fn caused(code: StatusCode, reason: &str, cause: &str, field: &str) -> (StatusCode, Value) {
    let (code, mut status) = refusal(code, reason);
    status["details"] = json!({"causes": [{"reason": cause, "field": field}]});
    (code, status)
}

fn refusal(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason,
        "code": code.as_u16(),
    });
    (code, status)
}
