//! Whether somebody may do something: the seam, the rule table behind it, and the message of a refusal.

use futures::future::BoxFuture;
use http::HeaderMap;

use super::authn::MASTERS;
use crate::error::{Error, Qualified, Result};
use crate::request::{Annotations, Call, ResourcePath, User, Verb};
use crate::verb::apply::APPLY;
use crate::wire::decode::content_type;

/// What an authorizer decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allow,
    /// No. The reason is shown to the client when there is one.
    Deny(String),
}

/// Decides about requests. It may ask over the network, hence the future; an error is an answer of 500, never of 403.
pub trait Authorizer: Send + Sync {
    /// Whether `user` may make `call`.
    fn authorize<'a>(&'a self, user: &'a User, call: &'a Call) -> BoxFuture<'a, Result<Decision>>;
}

/// Whom a binding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One user.
    User(&'static str),
    /// Everybody in a group.
    Group(&'static str),
}

/// What is allowed: nothing is implied, a subresource needs a rule of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Verbs on a resource, or on one subresource of it.
    Resources {
        /// The verbs.
        verbs: &'static [Verb],
        /// API group; `""` is the core group.
        group: &'static str,
        /// Plural name.
        resource: &'static str,
        /// The subresource.
        subresource: Option<&'static str>,
    },
    /// Verbs (HTTP methods in lower case) on paths that are no resources. A path that ends in `*` stands for all that
    /// begin so.
    Paths {
        /// Methods.
        verbs: &'static [&'static str],
        /// Paths.
        paths: &'static [&'static str],
    },
}

/// Rules of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Who.
    pub subject: Subject,
    /// May do what.
    pub rules: Vec<Rule>,
}

/// Authorization by a table that is fixed when the server starts.
#[derive(Clone, Debug)]
pub struct StaticAuthorizer {
    bindings: Vec<Binding>,
}

impl StaticAuthorizer {
    /// An authorizer that knows nothing but `bindings` (and that `system:masters` may do everything).
    #[must_use]
    pub fn new(bindings: Vec<Binding>) -> Self {
        Self { bindings }
    }

    /// The decision: allowed if any rule of any binding says so.
    #[must_use]
    pub fn decide(&self, user: &User, call: &Call) -> Decision {
        let concerns = |binding: &&Binding| match binding.subject {
            Subject::User(name) => user.name == name,
            Subject::Group(group) => user.is_in(group),
        };
        let mut rules = self.bindings.iter().filter(concerns).flat_map(|binding| &binding.rules);
        if user.is_in(MASTERS) || rules.any(|rule| rule.covers(call)) {
            Decision::Allow
        } else {
            Decision::Deny(String::new())
        }
    }
}

impl Authorizer for StaticAuthorizer {
    fn authorize<'a>(&'a self, user: &'a User, call: &'a Call) -> BoxFuture<'a, Result<Decision>> {
        let decision = self.decide(user, call);
        Box::pin(async move { Ok(decision) })
    }
}

impl Rule {
    fn covers(&self, call: &Call) -> bool {
        match (self, &call.resource) {
            (Self::Resources { verbs, group, resource, subresource }, Some(path)) => {
                verbs.contains(&call.verb)
                    && *group == path.group
                    && *resource == path.resource
                    && *subresource == path.subresource.as_deref()
            }
            (Self::Paths { verbs, paths }, None) => {
                verbs.contains(&call.method.as_str()) && paths.iter().any(|pattern| covers_path(pattern, &call.path))
            }
            (Self::Resources { .. }, None) | (Self::Paths { .. }, Some(_)) => false,
        }
    }
}

fn covers_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

/// The filter: asks the authorizer, notes its decision for the audit, turns a refusal into the answer.
pub(super) async fn authorize(
    authorizer: &dyn Authorizer,
    user: &User,
    call: &Call,
    annotations: &Annotations,
) -> Result<()> {
    let decision = authorizer.authorize(user, call).await?;
    let (word, outcome) = match decision {
        Decision::Allow => ("allow", Ok(())),
        Decision::Deny(reason) => ("forbid", Err(forbidden(user, call, &reason))),
    };
    annotations.set("authorization.k8s.io/decision", word);
    outcome
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
    match authorizer.authorize(user, &create).await? {
        Decision::Allow => Ok(None),
        Decision::Deny(reason) => Ok(Some(forbidden(user, &create, &reason))),
    }
}

/// The refusal, in the exact words of Kubernetes.
fn forbidden(user: &User, call: &Call, reason: &str) -> Error {
    let mut sentence = match &call.resource {
        Some(path) => resource_sentence(user, call, path),
        None => format!("User {:?} cannot {} path {:?}", user.name, call.method, call.path),
    };
    if !reason.is_empty() {
        sentence = format!("{sentence}: {reason}");
    }
    let resource = call.resource.as_ref().map(|path| Qualified::new(&path.group, &path.resource)).unwrap_or_default();
    let name = call.resource.as_ref().and_then(named).unwrap_or_default().to_owned();
    let message = match (resource.name.as_str(), name.as_str()) {
        ("", _) => format!("forbidden: {sentence}"),
        (_, "") => format!("{resource} is forbidden: {sentence}"),
        (_, _) => format!("{resource} {name:?} is forbidden: {sentence}"),
    };
    Error::Forbidden { resource, name, message, causes: Vec::new() }
}

fn resource_sentence(user: &User, call: &Call, path: &ResourcePath) -> String {
    let resource = match &path.subresource {
        Some(subresource) => format!("{}/{subresource}", path.resource),
        None => path.resource.clone(),
    };
    let whereabouts = match path.namespace.as_deref() {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let (user, verb, group) = (&user.name, call.verb, &path.group);
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {whereabouts}")
}

/// The one object a request is about: by its path, or by a field selector that admits only one name.
fn named(path: &ResourcePath) -> Option<&str> {
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
        let allowed = |call: &Call| table.decide(&user("u", &[]), call) == Decision::Allow;
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
        assert_eq!(table.decide(&user("v", &[]), &path("get", "/version")), Decision::Deny(String::new()));
        assert_eq!(table.decide(&user("v", &[MASTERS]), &path("get", "/version")), Decision::Allow);
    }

    #[test]
    fn a_refusal_reads_as_kubernetes_writes_it() {
        let denied = |call: &Call, reason: &str| forbidden(&user("u", &[]), call, reason).to_string();
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
