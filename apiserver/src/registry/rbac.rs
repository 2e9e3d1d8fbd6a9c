//! RBAC manifests computed from the registry: what the aggregated roles admin, edit and view get for our resources.

use serde_json::{Value, json};

use super::{
    Kind, Registry, Scope,
    access::{Access, Part},
};
use crate::request::Verb;

/// The ClusterRoles of a group, to be shipped with an installation.
#[must_use]
pub fn cluster_roles(registry: &Registry, group: &str) -> Vec<Value> {
    let namespaced: Vec<&Kind> =
        registry.hubs().filter(|kind| kind.group == group && kind.scope == Scope::Namespaced).collect();
    let role = |name: &str, aggregate: &str, rules: Vec<Value>| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": format!("{group}:{name}"),
                "labels": {format!("rbac.authorization.k8s.io/aggregate-to-{aggregate}"): "true"},
            },
            "rules": rules,
        })
    };
    let of = |pick: fn(Verb) -> bool| namespaced.iter().flat_map(|kind| rules(kind, pick)).collect::<Vec<_>>();
    vec![
        role("view", "view", of(|verb| !verb.is_mutating())),
        role("edit", "edit", of(|_| true)),
        role("admin", "admin", of(|_| true)),
    ]
}

/// What a part of an installation does, as rules of a role: kind by kind, as their entries say.
#[must_use]
pub fn part_rules(registry: &Registry, part: Part) -> Vec<Value> {
    let of = |kind: &Kind| {
        let rule = |access: &Access| {
            let resource =
                access.subresource.map_or_else(|| kind.plural.to_owned(), |sub| format!("{}/{sub}", kind.plural));
            let verbs: Vec<&str> = access.verbs.iter().map(|verb| verb.as_str()).collect();
            json!({"apiGroups": [kind.group], "resources": [resource], "verbs": verbs})
        };
        kind.access.iter().filter(|access| access.part == part).map(rule).collect::<Vec<_>>()
    };
    registry.hubs().flat_map(of).collect()
}

fn rules(kind: &Kind, pick: fn(Verb) -> bool) -> Vec<Value> {
    let rule = |resource: String, verbs: &[Verb]| {
        let verbs: Vec<&str> = verbs.iter().filter(|verb| pick(**verb)).map(|verb| verb.as_str()).collect();
        (!verbs.is_empty()).then(|| json!({"apiGroups": [kind.group], "resources": [resource], "verbs": verbs}))
    };
    let own = rule(kind.plural.to_owned(), kind.verbs());
    let subs = kind.subresources.iter().filter(|sub| !matches!(sub, super::Subresource::Status));
    own.into_iter().chain(subs.filter_map(|sub| rule(format!("{}/{}", kind.plural, sub.name()), sub.verbs()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_viewer_reads_an_editor_acts_and_nobody_writes_status() {
        let roles = cluster_roles(&super::super::redis::registry().unwrap(), "redis.kun.io");
        let view = &roles[0]["rules"];
        assert_eq!(
            view[0],
            json!({"apiGroups": ["redis.kun.io"], "resources": ["redisclusters"], "verbs": ["get", "list", "watch"]})
        );
        let edit = roles[1]["rules"].as_array().unwrap();
        let resources: Vec<&str> = edit.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect();
        assert_eq!(
            resources,
            [
                "redisclusters",
                "redisclusters/backup",
                "redisclusters/failover",
                "redisclusters/recover",
                "redisclusters/restart",
                "redisclusters/scale",
                "redisbackups",
                "redisoperations"
            ]
        );
    }
}
