//! SubjectAccessReview: whether somebody may do something, asked at most once in ten seconds.

use futures::future::BoxFuture;
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::ask;
use crate::error::{Error, Result};
use crate::filter::authz::{Attributes, Authorizer, Decision, Target};
use crate::filter::remember::Remembered;
use crate::request::User;

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Longest question that is remembered, in bytes: what a client may make long must not fill the memory.
const QUESTION_MAX: usize = 10_000;

/// Asks the kube-apiserver.
pub struct SubjectAccessReviews {
    client: Client,
    known: Remembered<String, Decision>,
}

impl SubjectAccessReviews {
    /// Asks through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, known: Remembered::default() }
    }

    async fn decide(&self, user: &User, asked: &Attributes) -> Result<Decision> {
        let spec = spec(user, asked);
        let key = spec.to_string();
        if let Some(known) = self.known.get(&key, Instant::now()) {
            return Ok(known);
        }
        let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let decision = decision(&ask(&self.client, PATH, &question).await?)?;
        if key.len() <= QUESTION_MAX {
            self.known.learn(key, decision.clone(), Instant::now());
        }
        Ok(decision)
    }
}

impl Authorizer for SubjectAccessReviews {
    fn authorize<'a>(&'a self, user: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(self.decide(user, asked))
    }
}

/// The question; the same for the same request, so that it is its own key.
fn spec(user: &User, asked: &Attributes) -> Value {
    let mut spec = json!({"user": user.name, "groups": user.groups});
    let Some(map) = spec.as_object_mut() else { return spec };
    if !user.uid.is_empty() {
        map.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.extra.is_empty() {
        map.insert("extra".to_owned(), json!(user.extra));
    }
    let (name, about) = match &asked.target {
        Target::Path(path) => ("nonResourceAttributes", json!({"verb": asked.verb, "path": path})),
        Target::Resource(path) => {
            let mut about = Map::new();
            let name = path.name.as_ref().or(path.selected_name.as_ref());
            let texts = [
                ("verb", Some(asked.verb.as_ref())),
                ("group", Some(path.group.as_str())),
                ("version", Some(path.version.as_str())),
                ("resource", Some(path.resource.as_str())),
                ("subresource", path.subresource.as_deref()),
                ("namespace", path.namespace.as_deref()),
                ("name", name.map(String::as_str)),
            ];
            for (key, text) in texts {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    about.insert(key.to_owned(), json!(text));
                }
            }
            for (key, selector) in [("fieldSelector", &asked.field_selector), ("labelSelector", &asked.label_selector)]
            {
                if let Some(selector) = selector {
                    about.insert(key.to_owned(), json!({"rawSelector": selector}));
                }
            }
            ("resourceAttributes", Value::Object(about))
        }
    };
    map.insert(name.to_owned(), about);
    spec
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    evaluation_error: String,
}

fn decision(answer: &Value) -> Result<Decision> {
    let unreadable = |error: String| Error::internal(format!("reading a SubjectAccessReview: {error}"));
    let status = answer.get("status").cloned().unwrap_or_default();
    let status = Status::deserialize(status).map_err(|error| unreadable(error.to_string()))?;
    match (status.allowed, status.denied) {
        (true, true) => Err(unreadable("it allows and denies".to_owned())),
        (true, false) => Ok(Decision::Allow(status.reason)),
        (false, true) => Ok(Decision::Deny(status.reason)),
        (false, false) => {
            if !status.evaluation_error.is_empty() {
                tracing::warn!(error = status.evaluation_error, "the kube-apiserver could not look at all rights");
            }
            Ok(Decision::NoOpinion(status.reason))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::route;

    #[test]
    fn a_question_says_exactly_what_is_asked_for() {
        let jane = User {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["team".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
        };
        let asked = |method: &str, path: &str, query: Option<&str>| {
            spec(&jane, &Attributes::of(&route::parse(method, path, query).unwrap()))
        };
        let who = |about: (&str, Value)| {
            let mut spec = json!({"user": "jane", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a"]}});
            spec.as_object_mut().unwrap().insert(about.0.to_owned(), about.1);
            spec
        };
        let clusters = "/apis/redis.kun.io/v1/namespaces/n/redisclusters";
        assert_eq!(
            asked("POST", &format!("{clusters}/a/backup"), None),
            who((
                "resourceAttributes",
                json!({"verb": "create", "group": "redis.kun.io", "version": "v1",
                "resource": "redisclusters", "subresource": "backup", "namespace": "n", "name": "a"})
            ))
        );
        assert_eq!(
            asked("GET", clusters, Some("watch=1&fieldSelector=metadata.name%3Da&labelSelector=x%3Dy")),
            who((
                "resourceAttributes",
                json!({"verb": "watch", "group": "redis.kun.io", "version": "v1",
                "resource": "redisclusters", "namespace": "n", "name": "a",
                "fieldSelector": {"rawSelector": "metadata.name=a"}, "labelSelector": {"rawSelector": "x=y"}})
            ))
        );
        assert_eq!(
            asked("GET", "/metrics", None),
            who(("nonResourceAttributes", json!({"verb": "get", "path": "/metrics"})))
        );
    }

    #[test]
    fn an_answer_that_says_nothing_allows_nothing() {
        let status = |status: Value| decision(&json!({"status": status}));
        assert_eq!(status(json!({"allowed": true, "reason": "r"})), Ok(Decision::Allow("r".to_owned())));
        assert_eq!(status(json!({"allowed": false, "denied": true})), Ok(Decision::Deny(String::new())));
        assert_eq!(status(json!({"evaluationError": "x"})), Ok(Decision::NoOpinion(String::new())));
        assert!(status(json!({"allowed": true, "denied": true})).is_err());
        assert!(status(json!({"allowed": "yes"})).is_err());
        assert!(decision(&json!({})).is_err());
    }
}
