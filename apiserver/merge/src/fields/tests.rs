#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use serde_json::json;

use super::*;

fn set(json: &Value) -> Set {
    Set::from_json(json).unwrap()
}

#[test]
fn what_is_read_is_written_again() {
    let trees = [
        json!({}),
        json!({"f:spec": {}}),
        json!({"f:spec": {".": {}, "f:a": {}, "f:b": {"f:c": {}}}}),
        json!({"f:list": {"k:{\"name\":\"a\",\"port\":80}": {".": {}, "f:x": {}}, "v:\"one\"": {}, "v:1": {}, "i:3": {}}}),
        json!({"f:list": {"k:{\"name\":\"a\\u003cb\"}": {}}}),
    ];
    for tree in trees {
        assert_eq!(set(&tree).to_json(), tree);
    }
}

#[test]
fn keys_are_sorted_and_what_a_later_version_may_mean_is_dropped() {
    let tree = json!({"f:list": {"k:{\"port\":80,\"name\":\"a\"}": {}, "x:later": {}}});
    assert_eq!(set(&tree).to_json(), json!({"f:list": {"k:{\"name\":\"a\",\"port\":80}": {}}}));
    for wrong in
        [json!([]), json!({"spec": {}}), json!({"f": {}}), json!({"v:{": {}}), json!({"i:x": {}}), json!({"f:a": 1})]
    {
        assert!(Set::from_json(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn paths_read_as_in_messages() {
    let tree = json!({"f:spec": {"f:list": {"k:{\"name\":\"a\",\"port\":80}": {".": {}, "f:x": {}}, "v:\"one\"": {}, "i:3": {}}}});
    let paths: Vec<String> = set(&tree).paths().iter().map(ToString::to_string).collect();
    let expected = [
        r#".spec.list[name="a",port=80]"#,
        r#".spec.list[="one"]"#,
        ".spec.list[3]",
        r#".spec.list[name="a",port=80].x"#,
    ];
    assert_eq!(paths, expected);
}

#[test]
fn sets_add_and_subtract() {
    let (one, other) =
        (set(&json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}})), set(&json!({"f:a": {"f:x": {}, "f:y": {}}})));
    assert_eq!(one.union(&other), set(&json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}})));
    assert_eq!(one.intersection(&other), set(&json!({"f:a": {"f:x": {}}})));
    assert_eq!(one.difference(&other), set(&json!({"f:a": {}, "f:b": {}})));
    assert_eq!(one.difference(&set(&json!({"f:a": {}}))), set(&json!({"f:a": {"f:x": {}}, "f:b": {}})));
    assert_eq!(one.recursive_difference(&set(&json!({"f:a": {}}))), set(&json!({"f:b": {}})));
}

#[test]
fn numbers_are_what_they_say() {
    assert_eq!(Atom(json!(1)), Atom(json!(1.0)));
    assert!(
        Atom(json!(2)) < Atom(json!(10)) && Atom(json!(10)) < Atom(json!("1")) && Atom(json!("z")) < Atom(json!(false))
    );
}
