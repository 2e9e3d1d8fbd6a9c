//! The rights of standalone's identities, computed from the registry: each kind's entry says which part does what with
//! it. What follows from no entry is refused.
//!
//! `system:masters` (the administrator) has no rules: it may do everything. The API server's own identity towards
//! webhooks (`kun:apiserver`) and the agents are absent on purpose: they have no business with this API.

use super::{
    authn::AUTHENTICATED,
    authz::{Binding, Rule, Subject},
};
use crate::{
    registry::{
        Kind, Names, Registry, Review,
        access::{Access, Part},
    },
    request::Verb,
};

/// Everybody who is known may find out what is served here.
const DISCOVERY: Rule = Rule::Paths {
    verbs: &["get", "head"],
    paths: &["/", "/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"],
};

/// Everybody who is known may ask who he is and what he may do, as Kubernetes' role system:basic-user has it.
fn oneself() -> Vec<Rule> {
    let reviews = [Review::SelfSubject, Review::SelfSubjectAccess, Review::SelfSubjectRules];
    let rule = |review: Review| {
        let Names { group, plural, .. } = review.names();
        Rule::Resources { verbs: &[Verb::Create], group, resource: plural, subresource: None }
    };
    reviews.map(rule).into()
}

/// What the node does with every kind there is: it stands in for garbage collector and namespace controller, which see
/// and delete everything, and take owners and finalizers off it.
const COLLECT: &[Verb] = &[Verb::Get, Verb::List, Verb::Watch, Verb::Patch, Verb::Delete];

/// Who may do what in standalone.
#[must_use]
pub fn standalone(registry: &Registry) -> Vec<Binding> {
    let parts = [Part::Controller, Part::Webhook, Part::Node];
    let of = |part| Binding { subject: Subject::User(identity(part)), rules: rules(registry, part) };
    let rules = std::iter::once(DISCOVERY).chain(oneself()).collect();
    let everybody = Binding { subject: Subject::Group(AUTHENTICATED), rules };
    std::iter::once(everybody).chain(parts.into_iter().map(of)).collect()
}

fn identity(part: Part) -> &'static str {
    match part {
        Part::Controller => "kun:controller",
        Part::Webhook => "kun:webhook",
        Part::Node => "kun:node",
    }
}

fn rules(registry: &Registry, part: Part) -> Vec<Rule> {
    let common: &[Access] = match part {
        Part::Controller | Part::Webhook => &[],
        Part::Node => &[Access::of(Part::Node, COLLECT)],
    };
    let of = |kind: &Kind| {
        // What is asked is not kept, so there is nothing to collect.
        let common = if kind.review.is_none() { common } else { &[] };
        let own = kind.access.iter().filter(|access| access.part == part);
        common.iter().chain(own).map(|access| rule(kind, access)).collect::<Vec<_>>()
    };
    registry.hubs().flat_map(of).collect()
}

fn rule(kind: &Kind, access: &Access) -> Rule {
    let Access { part: _, subresource, verbs } = *access;
    Rule::Resources { verbs, group: kind.group, resource: kind.plural, subresource }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::super::authz::{Attributes, Decision, StaticAuthorizer};
    use super::*;
    use crate::registry::{host, redis};
    use crate::request::User;
    use crate::route;

    fn registry() -> Registry {
        redis::registry().unwrap().and(host::registry().unwrap())
    }

    /// The rights of an identity as `resource: verbs` lines.
    fn shown(name: &'static str) -> Vec<String> {
        let bindings = standalone(&registry());
        let binding = bindings.iter().find(|binding| binding.subject == Subject::User(name)).unwrap();
        let mut lines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for rule in &binding.rules {
            if let Rule::Resources { verbs, group, resource, subresource } = rule {
                let name = [Some(*resource), *subresource].into_iter().flatten().collect::<Vec<_>>().join("/");
                let name = if group.is_empty() { name } else { format!("{name}.{group}") };
                lines.entry(name).or_default().extend(verbs.iter().map(|verb| verb.as_str()));
            }
        }
        lines.into_iter().map(|(name, verbs)| format!("{name}: {}", verbs.join(" "))).collect()
    }

    #[test]
    fn the_controller_owns_the_children_and_writes_the_status_of_its_kinds() {
        let expected = [
            "configmaps: get list watch create patch delete",
            "events: create update",
            "leases.coordination.k8s.io: get create update",
            "networkpolicies.networking.k8s.io: get list watch create patch delete",
            "persistentvolumeclaims: list watch patch delete",
            "poddisruptionbudgets.policy: get list watch create patch delete",
            "pods: get list watch create patch delete",
            "redisbackups.redis.kun.io: list watch delete patch",
            "redisbackups/status.redis.kun.io: update",
            "redisclusters.redis.kun.io: get list watch patch",
            "redisclusters/status.redis.kun.io: update",
            "redisoperations.redis.kun.io: list watch delete",
            "redisoperations/status.redis.kun.io: update",
            "secrets: get list watch create patch delete",
            "services: get list watch create patch delete",
            "statefulsets.apps: get list watch create patch delete",
        ];
        assert_eq!(shown("kun:controller"), expected);
    }

    #[test]
    fn the_webhook_follows_what_its_decisions_are_about() {
        let expected = [
            "namespaces: list watch",
            "persistentvolumeclaims: list watch",
            "redisclusters.redis.kun.io: list watch",
            "redisoperations.redis.kun.io: list watch",
            "redispolicies.redis.kun.io: list watch",
            "subjectaccessreviews.authorization.k8s.io: create",
        ];
        assert_eq!(shown("kun:webhook"), expected);
    }

    #[test]
    fn the_node_collects_every_kind_and_else_writes_only_pods_claims_and_reports() {
        let mut expected: Vec<String> = registry()
            .kinds()
            .filter(|kind| kind.review.is_none())
            .map(|kind| {
                let own =
                    if ["pods", "persistentvolumeclaims", "events"].contains(&kind.plural) { " create" } else { "" };
                format!("{}: get list watch patch delete{own}", kind.resource())
            })
            .chain(
                ["pods/status: patch", "persistentvolumeclaims/status: patch", "statefulsets/status.apps: patch"]
                    .map(str::to_owned),
            )
            .chain(["namespaces/finalize: update".to_owned()])
            .collect();
        expected.sort();
        let mut shown = shown("kun:node");
        shown.sort();
        assert_eq!(shown, expected);
    }

    #[test]
    fn each_identity_has_what_it_needs_and_no_more() {
        let authorizer = StaticAuthorizer::new(standalone(&registry()));
        let allowed = |name: &str, method: &str, path: &str| {
            let user = User { name: name.to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..User::default() };
            let asked = Attributes::of(&route::parse(method, path, None).unwrap());
            matches!(authorizer.decide(&user, &asked), Decision::Allow(_))
        };
        let rdc = "/apis/redis.kun.io/v1/namespaces/n/redisclusters";
        let (secrets, namespaces) = ("/api/v1/namespaces/n/secrets/s", "/api/v1/namespaces/n");
        // (identity, method, path, allowed)
        let table = [
            ("kun:controller", "PUT", format!("{rdc}/a/status"), true),
            ("kun:controller", "DELETE", format!("{rdc}/a"), false),
            ("kun:controller", "POST", rdc.to_owned(), false),
            ("kun:controller", "POST", format!("{rdc}/a/failover"), false),
            ("kun:controller", "DELETE", namespaces.to_owned(), false),
            ("kun:controller", "GET", "/metrics".to_owned(), false),
            ("kun:webhook", "GET", rdc.to_owned(), true),
            ("kun:webhook", "GET", secrets.to_owned(), false),
            ("kun:node", "PUT", format!("{rdc}/a/status"), false),
            ("kun:node", "PATCH", format!("{rdc}/a"), true),
            ("kun:node", "DELETE", rdc.to_owned(), false),
            ("kun:node", "POST", format!("{rdc}/a/backup"), false),
            ("kun:node", "PUT", "/api/v1/namespaces/n/finalize".to_owned(), true),
            ("kun:node", "PUT", secrets.to_owned(), false),
            ("kun:apiserver", "GET", rdc.to_owned(), false),
            ("kun:agent:n:a", "GET", secrets.to_owned(), false),
            ("kun:agent:n:a", "GET", "/apis/redis.kun.io/v1".to_owned(), true),
            ("kun:agent:n:a", "POST", "/version".to_owned(), false),
        ];
        for (name, method, path, expected) in table {
            assert_eq!(allowed(name, method, &path), expected, "{name} {method} {path}");
        }
    }
}
