//! Rights that are fixed when the server starts: those of its own parts.

use futures::future::BoxFuture;

use super::{Attributes, Authorizer, Decision, Target};
use crate::error::Result;
use crate::filter::authn::MASTERS;
use crate::request::{User, Verb};

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
    pub fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        let concerns = |binding: &&Binding| match binding.subject {
            Subject::User(name) => user.name == name,
            Subject::Group(group) => user.is_in(group),
        };
        let mut rules = self.bindings.iter().filter(concerns).flat_map(|binding| &binding.rules);
        if user.is_in(MASTERS) || rules.any(|rule| rule.covers(asked)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }
}

impl Authorizer for StaticAuthorizer {
    fn authorize<'a>(&'a self, user: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>> {
        let decision = self.decide(user, asked);
        Box::pin(async move { Ok(decision) })
    }
}

impl Rule {
    fn covers(&self, asked: &Attributes) -> bool {
        match (self, &asked.target) {
            (Self::Resources { verbs, group, resource, subresource }, Target::Resource(path)) => {
                verbs.iter().any(|verb| verb.as_str() == asked.verb)
                    && *group == path.group
                    && *resource == path.resource
                    && *subresource == path.subresource.as_deref()
            }
            (Self::Paths { verbs, paths }, Target::Path(path)) => {
                verbs.contains(&asked.verb.as_ref()) && paths.iter().any(|pattern| covers_path(pattern, path))
            }
            (Self::Resources { .. }, Target::Path(_)) | (Self::Paths { .. }, Target::Resource(_)) => false,
        }
    }
}

/// A pattern that ends in `*` stands for all that begin so.
pub(super) fn covers_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}
