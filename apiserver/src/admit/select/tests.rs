#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::admission::{Aspect, GroupVersion, Holds, Operation};
use crate::admit::config::FailurePolicy;
use crate::request::{Annotations, User, Warnings};

fn attributes(
    operation: Operation,
    group: &str,
    resource: &str,
    subresource: Option<&str>,
    namespace: Option<&str>,
) -> Attributes {
    let named = |name: &str| GroupVersion { group: group.to_owned(), version: "v1".to_owned(), name: name.to_owned() };
    Attributes {
        operation,
        kind: named("Kind"),
        resource: named(resource),
        subresource: subresource.map(str::to_owned),
        name: "a".to_owned(),
        namespace: namespace.map(str::to_owned),
        user: User::default(),
        dry_run: false,
        options: Value::Null,
        object: None,
        old_object: None,
        warnings: Warnings::default(),
        annotations: Annotations::default(),
        holds: Holds::default(),
        aspect: Aspect::default(),
    }
}

fn rule(operations: &[&str], groups: &[&str], resources: &[&str], scope: Option<&str>) -> Rule {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    Rule::read(&owned(operations), &owned(groups), &["v1".to_owned()], &owned(resources), scope).unwrap()
}

fn webhook(rules: Vec<Rule>, namespaces: Value, objects: Value) -> Webhook {
    Webhook {
        match_policy: MatchPolicy::Equivalent,
        configuration: "c".to_owned(),
        name: "w".to_owned(),
        rules,
        namespace_selector: Selector::read(&namespaces).unwrap(),
        object_selector: Selector::read(&objects).unwrap(),
        conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        suits_dry_run: true,
        reinvoke: false,
        timeout: Duration::from_secs(1),
        review: crate::admit::config::ReviewVersion::V1,
        target: Err(String::new()),
    }
}

#[test]
fn resource_patterns_match_as_in_kubernetes() {
    // (patterns, resource, subresource, matches)
    let table: [(&[&str], &str, Option<&str>, bool); 16] = [
        (&["things"], "things", None, true),
        (&["things"], "others", None, false),
        (&["things"], "things", Some("status"), false),
        (&["things/status"], "things", Some("status"), true),
        (&["things/status"], "things", None, false),
        (&["things/status"], "things", Some("scale"), false),
        (&["things/*"], "things", Some("scale"), true),
        (&["things/*"], "things", None, true),
        (&["things/*"], "others", None, false),
        (&["*"], "others", None, true),
        (&["*"], "others", Some("status"), false),
        (&["*/status"], "others", Some("status"), true),
        (&["*/status"], "others", None, false),
        (&["*/*"], "others", Some("status"), true),
        (&["*/*"], "others", None, true),
        (&["others", "things/scale"], "things", Some("scale"), true),
    ];
    for (patterns, resource, subresource, expected) in table {
        let asked = attributes(Operation::Create, "g", resource, subresource, Some("n"));
        assert_eq!(
            rule(&["*"], &["*"], patterns, None).covers(&asked),
            expected,
            "{patterns:?} {resource} {subresource:?}"
        );
    }
}

#[test]
fn operations_groups_and_versions_must_all_match() {
    let asked = attributes(Operation::Update, "g", "things", None, Some("n"));
    assert!(rule(&["CREATE", "UPDATE"], &["g"], &["things"], None).covers(&asked));
    assert!(!rule(&["CREATE", "DELETE"], &["g"], &["things"], None).covers(&asked));
    assert!(!rule(&["UPDATE"], &[""], &["things"], None).covers(&asked));
    let mut other_version = asked.clone();
    other_version.resource.version = "v2".to_owned();
    assert!(!rule(&["UPDATE"], &["g"], &["things"], None).covers(&other_version));
}

#[test]
fn a_namespace_counts_as_cluster_scoped() {
    let namespaced = attributes(Operation::Create, "g", "things", None, Some("n"));
    let cluster = attributes(Operation::Create, "g", "things", None, None);
    let namespace = attributes(Operation::Create, "", "namespaces", None, Some("n"));
    let covers = |scope: &str, asked: &Attributes| rule(&["*"], &["*"], &["*"], Some(scope)).covers(asked);
    assert_eq!([&namespaced, &cluster, &namespace].map(|asked| covers("Namespaced", asked)), [true, false, false]);
    assert_eq!([&namespaced, &cluster, &namespace].map(|asked| covers("Cluster", asked)), [false, true, true]);
    assert_eq!([&namespaced, &cluster, &namespace].map(|asked| covers("*", asked)), [true, true, true]);
}

#[test]
fn selectors_select_by_all_their_requirements() {
    let selector = Selector::read(&json!({
        "matchLabels": {"a": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["x", "y"]},
            {"key": "c", "operator": "NotIn", "values": ["z"]},
            {"key": "d", "operator": "Exists"},
            {"key": "e", "operator": "DoesNotExist"}
        ]
    }))
    .unwrap();
    let selects = |value: Value| selector.selects(&labels(&json!({"metadata": {"labels": value}})));
    assert!(selects(json!({"a": "1", "b": "y", "d": ""})));
    assert!(!selects(json!({"a": "2", "b": "y", "d": ""})));
    assert!(!selects(json!({"a": "1", "d": ""})));
    assert!(!selects(json!({"a": "1", "b": "y", "c": "z", "d": ""})));
    assert!(!selects(json!({"a": "1", "b": "y"})));
    assert!(!selects(json!({"a": "1", "b": "y", "d": "", "e": ""})));
    assert!(Selector::read(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]})).is_err());
    assert!(
        Selector::read(&json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})).is_err()
    );
}

#[test]
fn the_object_selector_looks_at_the_old_and_the_new_object() {
    let hook = webhook(vec![Rule::everything()], Value::Null, json!({"matchLabels": {"watched": "yes"}}));
    let watched = json!({"metadata": {"labels": {"watched": "yes"}}});
    let other = json!({"metadata": {}});
    let mut asked = attributes(Operation::Update, "g", "things", None, Some("n"));
    assert_eq!(concern(&hook, &asked, Some(&other)), Concern::No);
    assert_eq!(concern(&hook, &asked, Some(&watched)), Concern::Yes);
    asked.old_object = Some(Arc::new(watched));
    assert_eq!(
        concern(&hook, &asked, Some(&other)),
        Concern::Yes,
        "a label cannot be taken off to get past the webhook"
    );
    assert_eq!(concern(&hook, &asked, None), Concern::Yes);
}

#[test]
fn the_namespace_selector_is_about_the_namespace_the_operation_is_in() {
    let hook = webhook(vec![Rule::everything()], json!({"matchLabels": {"kun": "yes"}}), Value::Null);
    let namespaced = attributes(Operation::Create, "g", "things", None, Some("n"));
    assert_eq!(concern(&hook, &namespaced, Some(&json!({}))), Concern::IfNamespace("n".to_owned()));
    let cluster = attributes(Operation::Create, "g", "things", None, None);
    assert_eq!(concern(&hook, &cluster, Some(&json!({}))), Concern::Yes);
    let namespace = attributes(Operation::Create, "", "namespaces", None, Some("n"));
    let object = json!({"metadata": {"labels": {"kun": "yes"}}});
    let expected = Concern::IfSelected(Labels::from([("kun".to_owned(), "yes".to_owned())]));
    assert_eq!(concern(&hook, &namespace, Some(&object)), expected);
    let unruled = webhook(vec![], json!({"matchLabels": {"kun": "yes"}}), Value::Null);
    assert_eq!(
        concern(&unruled, &namespaced, Some(&json!({}))),
        Concern::No,
        "nothing is looked up for a webhook that does not match"
    );
}
