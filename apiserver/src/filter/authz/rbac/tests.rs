use serde_json::json;

use super::*;
use crate::route;

fn rule(value: serde_json::Value) -> PolicyRule {
    serde_json::from_value(value).unwrap_or_default()
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

fn subject(kind: &str, name: &str) -> Subject {
    Subject { kind: kind.to_owned(), name: name.to_owned(), ..Subject::default() }
}

fn binding(name: &str, namespace: Option<&str>, role: (&str, &str), subjects: Vec<Subject>) -> Binding {
    Binding {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        subjects,
        role: RoleRef { kind: role.0.to_owned(), name: role.1.to_owned() },
    }
}

fn asked(method: &str, path: &str, query: &str) -> Attributes {
    route::parse(method, path, Some(query))
        .map_or_else(|_| Attributes::new("none", Target::Path(String::new())), |call| Attributes::of(&call))
}

const CLUSTERS: &str = "/apis/redis.kun.io/v1/namespaces/prod/redisclusters";

#[test]
fn a_rule_allows_exactly_its_verbs_groups_resources_subresources_and_names() {
    let read = rule(json!({"verbs": ["get", "list"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters"]}));
    let any_scale = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]}));
    let one = rule(json!({"verbs": ["delete", "watch"], "apiGroups": ["redis.kun.io"], "resources": ["*"],
        "resourceNames": ["orders"]}));
    let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/apis/*"]}));
    // (rule, method, path, query, allowed)
    let table = [
        (&read, "GET", format!("{CLUSTERS}/orders"), "", true),
        (&read, "GET", CLUSTERS.to_owned(), "", true),
        (&read, "GET", CLUSTERS.to_owned(), "watch=1", false),
        (&read, "GET", format!("{CLUSTERS}/orders/scale"), "", false),
        (&read, "GET", "/apis/apps/v1/namespaces/prod/redisclusters/orders".to_owned(), "", false),
        (&any_scale, "PATCH", format!("{CLUSTERS}/orders/scale"), "", true),
        (&any_scale, "PATCH", format!("{CLUSTERS}/orders"), "", false),
        (&one, "DELETE", format!("{CLUSTERS}/orders"), "", true),
        (&one, "DELETE", format!("{CLUSTERS}/carts"), "", false),
        (&one, "DELETE", CLUSTERS.to_owned(), "", false),
        (&one, "GET", CLUSTERS.to_owned(), "watch=1&fieldSelector=metadata.name%3Dorders", true),
        (&one, "GET", CLUSTERS.to_owned(), "watch=1", false),
        (&paths, "GET", "/metrics".to_owned(), "", true),
        (&paths, "GET", "/apis/redis.kun.io".to_owned(), "", true),
        (&paths, "POST", "/metrics".to_owned(), "", false),
        (&paths, "GET", CLUSTERS.to_owned(), "", false),
    ];
    for (rule, method, path, query, expected) in table {
        assert_eq!(rule.allows(&asked(method, &path, query)), expected, "{method} {path}?{query}");
    }
}

fn policy() -> Policy {
    let view = rule(json!({"verbs": ["get"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters"]}));
    let back_up =
        rule(json!({"verbs": ["create"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters/backup"]}));
    let robot = Subject { namespace: "ci".to_owned(), ..subject("ServiceAccount", "robot") };
    Policy {
        cluster_roles: BTreeMap::from([("view".to_owned(), vec![view])]),
        roles: BTreeMap::from([(("prod".to_owned(), "backup".to_owned()), vec![back_up])]),
        cluster_bindings: vec![
            binding("viewers", None, ("ClusterRole", "view"), vec![subject("Group", "team"), robot]),
            binding("lost", None, ("ClusterRole", "gone"), vec![subject("User", "joe")]),
        ],
        bindings: vec![
            binding("backups", Some("prod"), ("Role", "backup"), vec![subject("User", "jane")]),
            binding("own", Some("prod"), ("ClusterRole", "view"), vec![subject("ServiceAccount", "app")]),
        ],
    }
}

#[test]
fn a_binding_gives_its_role_to_its_subjects_and_the_reason_says_which() {
    let policy = policy();
    let allowed = |who: &User, method: &str, path: &str| policy.decide(who, &asked(method, path, ""));
    let get = format!("{CLUSTERS}/orders");
    let by = |text: &str| Decision::Allow(format!("RBAC: allowed by {text}"));
    assert_eq!(
        allowed(&user("ann", &["team"]), "GET", &get),
        by("ClusterRoleBinding \"viewers\" of ClusterRole \"view\" to Group \"team\"")
    );
    assert_eq!(
        allowed(&user("system:serviceaccount:ci:robot", &[]), "GET", &get),
        by("ClusterRoleBinding \"viewers\" of ClusterRole \"view\" to ServiceAccount \"robot/ci\"")
    );
    assert_eq!(
        allowed(&user("jane", &[]), "POST", &format!("{CLUSTERS}/orders/backup")),
        by("RoleBinding \"backups/prod\" of Role \"backup\" to User \"jane\"")
    );
    assert_eq!(
        allowed(&user("system:serviceaccount:prod:app", &[]), "GET", &get),
        by("RoleBinding \"own/prod\" of ClusterRole \"view\" to ServiceAccount \"app/prod\"")
    );
    assert_eq!(
        allowed(&user("joe", &[]), "GET", &get),
        Decision::NoOpinion("RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found".to_owned())
    );
}

#[test]
fn what_no_binding_gives_is_not_allowed() {
    let policy = policy();
    let nothing = Decision::NoOpinion(String::new());
    let other = "/apis/redis.kun.io/v1/namespaces/test/redisclusters/orders";
    let table = [
        (user("jane", &[]), "GET", format!("{CLUSTERS}/orders")),
        (user("jane", &[]), "POST", format!("{other}/backup")),
        (user("system:serviceaccount:prod:app", &[]), "GET", other.to_owned()),
        (user("system:serviceaccount:test:robot", &[]), "GET", other.to_owned()),
        (user("team", &[]), "GET", other.to_owned()),
        (user("ann", &["team"]), "DELETE", other.to_owned()),
    ];
    for (who, method, path) in table {
        assert_eq!(policy.decide(&who, &asked(method, &path, "")), nothing, "{} {method} {path}", who.name);
    }
}

#[test]
fn nobody_gives_away_more_than_he_has() {
    let mine = rule(
        json!({"verbs": ["get", "list"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters", "*/scale"]}),
    );
    let names = rule(json!({"verbs": ["delete"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters"],
        "resourceNames": ["a", "b"]}));
    let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/apis/*"]}));
    let mine = [&mine, &names, &paths];
    let covered = |value| rule(value).is_covered(&mine);
    let of = |verbs: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": ["redis.kun.io"], "resources": resources});
    assert!(covered(of(&["list"], &["redisclusters", "redisbackups/scale"])));
    assert!(!covered(of(&["list", "watch"], &["redisclusters"])));
    assert!(!covered(of(&["*"], &["redisclusters"])));
    assert!(!covered(of(&["get"], &["*"])));
    assert!(!covered(of(&["delete"], &["redisclusters"])));
    assert!(covered(json!({"verbs": ["delete"], "apiGroups": ["redis.kun.io"], "resources": ["redisclusters"],
        "resourceNames": ["b"]})));
    assert!(covered(json!({"verbs": ["get"], "nonResourceURLs": ["/apis/redis.kun.io"]})));
    assert!(!covered(json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]})));
}
