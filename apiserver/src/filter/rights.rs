//! The rights of standalone's identities, as data. Each has what it needs and no more; what is not here is refused.
//!
//! `system:masters` (the administrator) is not in the table: it may do everything. The API server's own identity towards
//! webhooks (`kun:apiserver`) and the agents are absent on purpose: they have no business with this API.

use super::authn::AUTHENTICATED;
use super::authz::{Binding, Rule, Subject};

const REDIS: &[&str] = &["redis.kun.io"];
const CORE: &[&str] = &[""];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// Who may do what in standalone.
pub const STANDALONE: &[Binding] = &[
    Binding { subject: Subject::Group(AUTHENTICATED), rules: DISCOVERY },
    Binding { subject: Subject::User("kun:controller"), rules: CONTROLLER },
    Binding { subject: Subject::User("kun:webhook"), rules: WEBHOOK },
    Binding { subject: Subject::User("kun:node"), rules: NODE },
];

/// Everybody who is known may find out what is served here.
const DISCOVERY: &[Rule] = &[Rule::Paths {
    verbs: &["get", "head"],
    paths: &["/", "/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"],
}];

/// The controller: its own kinds and their status, and the children it builds. It makes the namespace its lease is in,
/// and never changes or deletes one.
const CONTROLLER: &[Rule] = &[
    Rule::Resources { verbs: READ, groups: REDIS, resources: &["redispolicies"] },
    Rule::Resources {
        verbs: &["get", "list", "watch", "update", "patch"],
        groups: REDIS,
        resources: &["redisclusters", "redisclusters/status", "redisclusters/finalizers"],
    },
    Rule::Resources {
        verbs: WRITE,
        groups: REDIS,
        resources: &["redisbackups", "redisbackups/status", "redisoperations", "redisoperations/status"],
    },
    Rule::Resources { verbs: WRITE, groups: &["apps"], resources: &["statefulsets"] },
    Rule::Resources { verbs: WRITE, groups: &["policy"], resources: &["poddisruptionbudgets"] },
    Rule::Resources {
        verbs: WRITE,
        groups: CORE,
        resources: &["services", "configmaps", "secrets", "persistentvolumeclaims", "pods"],
    },
    Rule::Resources { verbs: &["get", "list", "watch", "create"], groups: CORE, resources: &["namespaces"] },
    Rule::Resources { verbs: &["create", "update", "patch"], groups: &["", "events.k8s.io"], resources: &["events"] },
    Rule::Resources { verbs: &["get", "create", "update"], groups: &["coordination.k8s.io"], resources: &["leases"] },
];

/// The webhook reads what its policies are about.
const WEBHOOK: &[Rule] = &[
    Rule::Resources {
        verbs: READ,
        groups: REDIS,
        resources: &["redisclusters", "redisbackups", "redisoperations", "redispolicies"],
    },
    Rule::Resources { verbs: READ, groups: CORE, resources: &["namespaces"] },
];

/// The node stands in for kubelet, StatefulSet controller, garbage collector and namespace controller. The last two must
/// be able to see and delete everything there is, and the collector to take owners and finalizers off it; no other
/// write reaches beyond pods, claims and what reports on them.
const NODE: &[Rule] = &[
    Rule::Resources {
        verbs: &["get", "list", "watch", "patch", "delete", "deletecollection"],
        groups: &["*"],
        resources: &["*"],
    },
    Rule::Resources { verbs: &["create", "update"], groups: CORE, resources: &["pods", "persistentvolumeclaims"] },
    Rule::Resources {
        verbs: &["get", "update", "patch"],
        groups: CORE,
        resources: &["pods/status", "persistentvolumeclaims/status", "namespaces/status", "namespaces/finalize"],
    },
    Rule::Resources {
        verbs: &["get", "update", "patch"],
        groups: &["apps", "policy"],
        resources: &["statefulsets/status", "poddisruptionbudgets/status"],
    },
    Rule::Resources { verbs: &["create"], groups: &["", "events.k8s.io"], resources: &["events"] },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::authz::{Decision, StaticAuthorizer};
    use super::*;
    use crate::request::User;
    use crate::route;

    fn allowed(name: &str, method: &str, path: &str) -> bool {
        let user = User { name: name.to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..User::default() };
        let call = route::parse(method, path, None).unwrap();
        StaticAuthorizer::new(STANDALONE).decide(&user, &call) == Decision::Allow
    }

    #[test]
    fn each_identity_has_what_it_needs_and_no_more() {
        let rdc = "/apis/redis.kun.io/v1/namespaces/n/redisclusters";
        let (secrets, namespaces) = ("/api/v1/namespaces/n/secrets/s", "/api/v1/namespaces/n");
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        // (identity, method, path, allowed)
        let table = [
            ("kun:controller", "PUT", format!("{rdc}/a/status"), true),
            ("kun:controller", "DELETE", format!("{rdc}/a"), false),
            ("kun:controller", "POST", rdc.to_owned(), false),
            ("kun:controller", "POST", format!("{rdc}/a/failover"), false),
            ("kun:controller", "GET", secrets.to_owned(), true),
            ("kun:controller", "PUT", lease.to_owned(), true),
            ("kun:controller", "DELETE", namespaces.to_owned(), false),
            ("kun:controller", "GET", "/metrics".to_owned(), false),
            ("kun:webhook", "GET", rdc.to_owned(), true),
            ("kun:webhook", "PUT", format!("{rdc}/a"), false),
            ("kun:webhook", "GET", secrets.to_owned(), false),
            ("kun:node", "PUT", "/api/v1/namespaces/n/pods/p/status".to_owned(), true),
            ("kun:node", "PUT", format!("{rdc}/a/status"), false),
            ("kun:node", "PUT", format!("{rdc}/a"), false),
            ("kun:node", "PATCH", format!("{rdc}/a"), true),
            ("kun:node", "POST", format!("{rdc}/a/backup"), false),
            ("kun:node", "PUT", "/api/v1/namespaces/n/finalize".to_owned(), true),
            ("kun:node", "PUT", secrets.to_owned(), false),
            ("kun:controller", "POST", "/api/v1/namespaces".to_owned(), true),
            ("kun:node", "DELETE", rdc.to_owned(), true),
            ("kun:node", "GET", lease.to_owned(), true),
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
