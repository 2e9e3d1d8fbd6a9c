//! Whether somebody may do something: the seam, the filter, and the words of a refusal.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderMap;

use super::authn::MASTERS;
use crate::error::{Error, Qualified, Result};
use crate::request::{Annotations, Call, ResourcePath, User, Verb};
use crate::verb::apply::APPLY;
use crate::wire::decode::content_type;

pub mod rbac;
pub mod stored;
mod table;

pub use table::{Binding, Rule, StaticAuthorizer, Subject};

/// What somebody wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The verb: one of [`Verb`]'s words, the method of a path in lower case, or a word of its own such as `impersonate`.
    pub verb: Cow<'static, str>,
    /// With what.
    pub target: Target,
    /// `fieldSelector` of a request for many objects.
    pub field_selector: Option<String>,
    /// `labelSelector` of a request for many objects.
    pub label_selector: Option<String>,
}

/// With what somebody wants to do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Objects.
    Resource(ResourcePath),
    /// A path that is no resource.
    Path(String),
}

impl Attributes {
    /// A verb and its target, without selectors.
    #[must_use]
    pub fn new(verb: impl Into<Cow<'static, str>>, target: Target) -> Self {
        Self { verb: verb.into(), target, field_selector: None, label_selector: None }
    }

    /// What a request wants.
    #[must_use]
    pub fn of(call: &Call) -> Self {
        let Some(path) = &call.resource else {
            return Self::new(call.method.clone(), Target::Path(call.path.clone()));
        };
        let is_many = matches!(call.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        let selector = |name: &str| call.query.get(name).filter(|text| is_many && !text.is_empty()).map(str::to_owned);
        Self {
            verb: call.verb.as_str().into(),
            target: Target::Resource(path.clone()),
            field_selector: selector("fieldSelector"),
            label_selector: selector("labelSelector"),
        }
    }
}

/// What an authorizer decides. The reasons are for audit and client, where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allow(String),
    /// No, whatever others say.
    Deny(String),
    /// Others may know; if none does, it is no.
    NoOpinion(String),
}

/// Decides about requests. It may ask over the network, hence the future; an error is an answer of 500, never of 403.
pub trait Authorizer: Send + Sync {
    /// Whether `user` may do what is asked.
    fn authorize<'a>(&'a self, user: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>>;

    /// What `user` may do in a namespace, as far as it can be told as rules.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn rules(&self, _user: &User, _namespace: &str) -> Result<Vec<rbac::PolicyRule>> {
        Ok(Vec::new())
    }
}

/// Several authorizers; the first that has an opinion decides. `system:masters` may do everything.
pub struct Union(Vec<Arc<dyn Authorizer>>);

impl Union {
    /// Asks them in this order.
    #[must_use]
    pub fn of(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }

    async fn ask(&self, user: &User, asked: &Attributes) -> Result<Decision> {
        if user.is_in(MASTERS) {
            return Ok(Decision::Allow(String::new()));
        }
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(user, asked).await? {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided @ (Decision::Allow(_) | Decision::Deny(_)) => return Ok(decided),
            }
        }
        Ok(Decision::NoOpinion(reasons.join("\n")))
    }
}

impl Authorizer for Union {
    fn authorize<'a>(&'a self, user: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(self.ask(user, asked))
    }

    fn rules(&self, user: &User, namespace: &str) -> Result<Vec<rbac::PolicyRule>> {
        if user.is_in(MASTERS) {
            return Ok(rbac::PolicyRule::everything().into());
        }
        let lists = self.0.iter().map(|authorizer| authorizer.rules(user, namespace)).collect::<Result<Vec<_>>>()?;
        Ok(lists.concat())
    }
}

/// Audit annotation: `allow` or `forbid`.
pub(super) const DECISION: &str = "authorization.k8s.io/decision";
/// Audit annotation: why.
pub(super) const REASON: &str = "authorization.k8s.io/reason";

/// The filter: asks the authorizer, notes its decision for the audit, turns a refusal into the answer.
pub(super) async fn authorize(
    authorizer: &dyn Authorizer,
    user: &User,
    asked: &Attributes,
    annotations: &Annotations,
) -> Result<()> {
    let (word, reason, outcome) = match authorizer.authorize(user, asked).await? {
        Decision::Allow(reason) => ("allow", reason, Ok(())),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            let refused = Err(forbidden(user, asked, &reason));
            ("forbid", reason, refused)
        }
    };
    annotations.set(DECISION, word);
    if !reason.is_empty() {
        annotations.set(REASON, reason);
    }
    outcome
}

/// The refusal of something besides the request itself; `None` if it is allowed.
pub async fn refused(authorizer: &dyn Authorizer, user: &User, asked: &Attributes) -> Result<Option<Error>> {
    match authorizer.authorize(user, asked).await? {
        Decision::Allow(_) => Ok(None),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Ok(Some(forbidden(user, asked, &reason))),
    }
}

/// An apply of what is not there makes it, which is a right of its own. Whether it is there is seen later; the refusal is kept until then.
pub(super) async fn refused_create(
    authorizer: &dyn Authorizer,
    user: &User,
    call: &Call,
    headers: &HeaderMap,
) -> Result<Option<Error>> {
    if call.verb != Verb::Patch || !content_type(headers).starts_with(APPLY) {
        return Ok(None);
    }
    let create = Call { verb: Verb::Create, ..call.clone() };
    refused(authorizer, user, &Attributes::of(&create)).await
}

/// The refusal, in the exact words of Kubernetes.
fn forbidden(user: &User, asked: &Attributes, reason: &str) -> Error {
    let (mut sentence, path) = match &asked.target {
        Target::Resource(path) => (resource_sentence(user, &asked.verb, path), Some(path)),
        Target::Path(path) => (format!("User {:?} cannot {} path {path:?}", user.name, asked.verb), None),
    };
    if !reason.is_empty() {
        sentence = format!("{sentence}: {reason}");
    }
    let resource = path.map(|path| Qualified::new(&path.group, &path.resource)).unwrap_or_default();
    let name = path.and_then(named).unwrap_or_default().to_owned();
    let message = match (resource.name.as_str(), name.as_str()) {
        ("", _) => format!("forbidden: {sentence}"),
        (_, "") => format!("{resource} is forbidden: {sentence}"),
        (_, _) => format!("{resource} {name:?} is forbidden: {sentence}"),
    };
    Error::Forbidden { resource, name, message, causes: Vec::new() }
}

fn resource_sentence(user: &User, verb: &str, path: &ResourcePath) -> String {
    let resource = combined(path);
    let whereabouts = match path.namespace.as_deref() {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let (user, group) = (&user.name, &path.group);
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {whereabouts}")
}

/// `pods` or `pods/status`, as rules name them.
fn combined(path: &ResourcePath) -> String {
    match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.resource),
        None => path.resource.clone(),
    }
}

/// The one object a request is about: by its path, or by a field selector that admits only one name.
pub(super) fn named(path: &ResourcePath) -> Option<&str> {
    path.name.as_deref().or(path.selected_name.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    fn call(
        verb: Verb,
        group: &str,
        resource: &str,
        subresource: Option<&str>,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Call {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let resource = ResourcePath {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: owned(subresource),
            namespace: owned(namespace),
            name: owned(name),
            selected_name: None,
        };
        Call {
            verb,
            method: "get".to_owned(),
            path: "/x".to_owned(),
            resource: Some(resource),
            query: Query::default(),
        }
    }

    fn path(method: &str, path: &str) -> Call {
        Call {
            verb: Verb::Get,
            method: method.to_owned(),
            path: path.to_owned(),
            resource: None,
            query: Query::default(),
        }
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        }
    }

    fn table() -> StaticAuthorizer {
        let rdc = |subresource| Rule::Resources {
            verbs: &[Verb::Get, Verb::List],
            group: "redis.kun.io",
            resource: "redisclusters",
            subresource,
        };
        let paths = Rule::Paths { verbs: &["get"], paths: &["/version", "/apis/*"] };
        let rules = vec![rdc(None), rdc(Some("status")), paths];
        StaticAuthorizer::new(vec![Binding { subject: Subject::User("u"), rules }])
    }

    #[test]
    fn a_rule_covers_exactly_its_verbs_groups_resources_and_subresources() {
        let table = table();
        let allowed = |call: &Call| matches!(table.decide(&user("u", &[]), &Attributes::of(call)), Decision::Allow(_));
        let rdc = "redisclusters";
        assert!(allowed(&call(Verb::Get, "redis.kun.io", rdc, None, Some("n"), Some("a"))));
        assert!(allowed(&call(Verb::List, "redis.kun.io", rdc, Some("status"), Some("n"), Some("a"))));
        assert!(!allowed(&call(Verb::Watch, "redis.kun.io", rdc, None, None, None)), "list is not watch");
        assert!(!allowed(&call(Verb::Get, "redis.kun.io", rdc, Some("scale"), Some("n"), Some("a"))));
        assert!(!allowed(&call(Verb::Get, "", rdc, None, Some("n"), Some("a"))));
        assert!(!allowed(&call(Verb::Update, "apps", "statefulsets", None, Some("n"), Some("a"))));
        assert!(allowed(&path("get", "/apis/redis.kun.io")));
        assert!(!allowed(&path("get", "/apis")));
        assert!(!allowed(&path("post", "/version")));
        let version = Attributes::of(&path("get", "/version"));
        assert_eq!(table.decide(&user("v", &[]), &version), Decision::NoOpinion(String::new()));
        assert_eq!(table.decide(&user("v", &[MASTERS]), &version), Decision::Allow(String::new()));
    }

    #[test]
    fn a_refusal_reads_as_kubernetes_writes_it() {
        let denied = |call: &Call, reason: &str| forbidden(&user("u", &[]), &Attributes::of(call), reason).to_string();
        assert_eq!(
            denied(&call(Verb::Get, "redis.kun.io", "redisclusters", None, Some("prod"), Some("orders")), ""),
            "redisclusters.redis.kun.io \"orders\" is forbidden: User \"u\" cannot get resource \"redisclusters\" \
             in API group \"redis.kun.io\" in the namespace \"prod\""
        );
        assert_eq!(
            denied(&call(Verb::List, "", "secrets", None, None, None), "because"),
            "secrets is forbidden: User \"u\" cannot list resource \"secrets\" in API group \"\" at the cluster scope: because"
        );
        assert_eq!(
            denied(&call(Verb::Patch, "redis.kun.io", "redisclusters", Some("scale"), Some("n"), Some("a")), ""),
            "redisclusters.redis.kun.io \"a\" is forbidden: User \"u\" cannot patch resource \"redisclusters/scale\" \
             in API group \"redis.kun.io\" in the namespace \"n\""
        );
        assert_eq!(denied(&path("get", "/metrics"), ""), "forbidden: User \"u\" cannot get path \"/metrics\"");
    }
}
