#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use serde_json::json;

use super::*;
use crate::Schema;
use crate::fields::Set;

fn node() -> Node {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "count": {"type": "integer"},
            "name": text,
            "labels": {"type": "object", "additionalProperties": text},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "rows": {"type": "array", "items": text},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
    }});
    Schema::compile(&schema).unwrap().shared().clone()
}

fn spec(json: Value) -> Value {
    json!({"spec": json})
}

#[test]
fn places_are_leaves_entries_and_items() {
    let object = spec(json!({
        "count": 1, "labels": {"a": "x"}, "whole": {"a": "x"}, "tags": ["t"], "rows": ["r"],
        "ports": [{"port": 80, "name": "web"}], "open": {"deep": {"er": [1]}},
    }));
    let expected = json!({"f:spec": {
        "f:count": {}, "f:labels": {"f:a": {}}, "f:whole": {}, "f:tags": {"v:\"t\"": {}}, "f:rows": {},
        "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
        "f:open": {"f:deep": {".": {}, "f:er": {}}},
    }});
    assert_eq!(places(&node(), &object).to_json(), expected);
    let empty = spec(json!({"labels": {}, "tags": [], "name": null}));
    assert_eq!(places(&node(), &empty).to_json(), json!({"f:spec": {"f:labels": {}, "f:name": {}}}));
}

#[test]
fn a_list_with_names_keeps_the_new_order_and_what_only_the_old_one_has() {
    let merged = |old: &[&str], new: &[&str]| {
        let out = merge(&node(), Some(&spec(json!({"tags": old}))), Some(&spec(json!({"tags": new}))));
        out.unwrap()["spec"]["tags"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tag| tag.as_str().unwrap().to_owned())
            .collect::<String>()
    };
    assert_eq!(merged(&["a", "b", "c"], &["c", "a"]), "bca");
    assert_eq!(merged(&["a", "b", "c"], &["a", "x", "c"]), "abxc");
    assert_eq!(merged(&["a", "b"], &["c", "d"]), "abcd");
    assert_eq!(merged(&["b", "a"], &["a", "b"]), "ab");
    assert_eq!(merged(&[], &["a"]), "a");
}

#[test]
fn items_with_keys_merge_field_by_field_with_their_defaults() {
    let old = spec(json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "protocol": "UDP"}]}));
    let new = spec(json!({"ports": [{"port": 80, "protocol": "TCP"}]}));
    let expected =
        spec(json!({"ports": [{"port": 80, "protocol": "TCP", "name": "a"}, {"port": 80, "protocol": "UDP"}]}));
    assert_eq!(merge(&node(), Some(&old), Some(&new)), Some(expected));
}

#[test]
fn differences_are_named_place_by_place() {
    let old = spec(json!({"count": 1, "labels": {"a": "x", "b": "y"}, "tags": ["t"], "rows": ["r"], "open": {"a": 1}}));
    let new = spec(
        json!({"count": 2, "labels": {"a": "x", "c": "z"}, "tags": ["u"], "rows": ["r", "s"], "open": {"a": {"b": 1}}}),
    );
    let found = compare(&node(), &old, &new);
    let spec = |json: Value| json!({"f:spec": json});
    assert_eq!(found.removed.to_json(), spec(json!({"f:labels": {"f:b": {}}, "f:tags": {"v:\"t\"": {}}})));
    assert_eq!(
        found.added.to_json(),
        spec(json!({"f:labels": {"f:c": {}}, "f:tags": {"v:\"u\"": {}}, "f:open": {"f:a": {"f:b": {}}}}))
    );
    assert_eq!(found.modified.to_json(), spec(json!({"f:count": {}, "f:rows": {}, "f:open": {"f:a": {}}})));
    assert_eq!(compare(&node(), &old, &old), Comparison::default());
}

#[test]
fn what_appears_is_added_with_all_below_it() {
    let found = compare(&node(), &json!({}), &spec(json!({"labels": {"a": "x"}, "tags": []})));
    let expected = json!({"f:spec": {".": {}, "f:labels": {".": {}, "f:a": {}}, "f:tags": {}}});
    assert_eq!(found.added.to_json(), expected);
}

#[test]
fn removed_places_go_with_all_below_them() {
    let object = spec(
        json!({"count": 1, "labels": {"a": "x", "b": "y"}, "tags": ["t", "u"], "ports": [{"port": 80, "name": "a"}]}),
    );
    let set = Set::from_json(&json!({"f:spec": {
        "f:labels": {"f:a": {}}, "f:tags": {"v:\"t\"": {}, "v:\"u\"": {}}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}}}))
    .unwrap();
    assert_eq!(
        remove(&node(), &object, &set),
        spec(json!({"count": 1, "labels": {"b": "y"}, "tags": null, "ports": null}))
    );
}

#[test]
fn what_cannot_be_applied_is_named_with_its_path() {
    let fault = |value: Value| check(&node(), &spec(value)).unwrap_err().to_string();
    assert_eq!(fault(json!({"other": 1})), ".spec.other: field not declared in schema");
    assert_eq!(fault(json!({"count": "x"})), ".spec.count: expected numeric (int or float), got string");
    assert_eq!(fault(json!({"tags": ["a", "a"]})), r#".spec.tags: duplicate entries for key [="a"]"#);
    let ports = json!({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]});
    assert_eq!(fault(ports), r#".spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#);
    assert_eq!(
        fault(json!({"count": "x", "labels": "y"})),
        "errors:\n  .spec.count: expected numeric (int or float), got string\n  .spec.labels: expected map, got &{y}"
    );
    assert_eq!(check(&node(), &spec(json!({"count": null, "open": {"any": [1]}}))), Ok(()));
}
