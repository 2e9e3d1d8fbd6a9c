//! Bodies and patches from outside: limits, duplicates, and the algebra of patches.

use merge::{DecodeError, JSON_PATCH_OPERATIONS_MAX, Limits, PatchError, decode, duplicates, json_patch, merge_patch};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_body_is_read_and_its_duplicate_keys_are_named() {
    let body = br#"{"spec": {"a": 1, "b": {"c": 1, "c": 2, "c": 3}, "a": 2}, "list": [{"x": 0, "x": 1}]}"#;
    let decoded = decode(body, Limits::default()).unwrap();
    assert_eq!(decoded.value, json!({"spec": {"a": 2, "b": {"c": 3}}, "list": [{"x": 1}]}));
    assert_eq!(decoded.duplicates, ["spec.b.c", "spec.a", "list[0].x"]);
    assert_eq!(duplicates(b"[1, 2]", Limits::default()), Ok(vec![]));
}

#[test]
fn numbers_keep_their_kind() {
    let decoded =
        decode(b"[9223372036854775807, -9223372036854775808, 18446744073709551615, 1.0, 1e2]", Limits::default())
            .unwrap();
    assert_eq!(decoded.value, json!([i64::MAX, i64::MIN, u64::MAX, 1.0, 100.0]));
    assert!(matches!(decode(b"1e999", Limits::default()), Err(DecodeError::Malformed(_))));
}

#[test]
fn a_body_beyond_a_limit_is_refused_with_the_number() {
    let limits = Limits { bytes: 40, depth: 3, values: 5 };
    assert_eq!(decode(&[b' '; 41], limits), Err(DecodeError::TooLarge { found: 41, most: 40 }));
    assert_eq!(decode(b"[[[[]]]]", limits), Err(DecodeError::TooDeep(3)));
    assert_eq!(decode(b"[[[]]]", limits).unwrap().value, json!([[[]]]));
    assert_eq!(decode(b"[1,1,1,1,1]", limits), Err(DecodeError::TooManyValues(5)));
    let bomb = "[".repeat(1 << 20);
    assert_eq!(decode(bomb.as_bytes(), Limits::default()), Err(DecodeError::TooDeep(100)));
    let wide = format!("[{}0]", "0,".repeat(400_000));
    assert_eq!(decode(wide.as_bytes(), Limits::default()), Err(DecodeError::TooManyValues(300_000)));
}

#[test]
fn what_is_not_json_is_refused() {
    for body in ["", "{", "{} x", "{'a': 1}", "\u{feff}{}", "nul", "{\"a\": \"\u{0}\"}", "NaN"] {
        assert!(matches!(decode(body.as_bytes(), Limits::default()), Err(DecodeError::Malformed(_))), "{body:?}");
    }
    assert!(matches!(decode(&[b'"', 0xff, b'"'], Limits::default()), Err(DecodeError::Malformed(_))));
}

#[test]
fn a_merge_patch_follows_the_examples_of_rfc_7396() {
    let table = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (mut object, patch, expected) in table {
        merge_patch(&mut object, &patch);
        assert_eq!(object, expected, "{patch}");
    }
}

#[test]
fn a_json_patch_is_applied_in_order() {
    let mut object = json!({"spec": {"shards": 3, "list": [1]}});
    let patch = json!([
        {"op": "test", "path": "/spec/shards", "value": 3},
        {"op": "replace", "path": "/spec/shards", "value": 5},
        {"op": "add", "path": "/spec/list/-", "value": 2},
        {"op": "copy", "from": "/spec/shards", "path": "/was"},
        {"op": "move", "from": "/was", "path": "/now"},
        {"op": "remove", "path": "/spec/list/0"}
    ]);
    json_patch(&mut object, &patch).unwrap();
    assert_eq!(object, json!({"spec": {"shards": 5, "list": [2]}, "now": 5}));
}

#[test]
fn a_malformed_patch_is_told_apart_from_one_that_fails() {
    for patch in [
        json!({}),
        json!("x"),
        json!([1]),
        json!([{"op": 1}]),
        json!([{"op": "add", "path": {}}]),
        json!([{"op": "move", "path": "/a", "from": 1}]),
    ] {
        assert!(matches!(json_patch(&mut json!({}), &patch), Err(PatchError::Malformed(_))), "{patch}");
    }
    for patch in [
        json!([{"op": "add"}]),
        json!([{"path": "/a"}]),
        json!([{"op": "explode", "path": "/a"}]),
        json!([{"op": "add", "path": "a", "value": 1}]),
        json!([{"op": "copy", "path": "/a", "from": "/b/c"}]),
    ] {
        assert!(matches!(json_patch(&mut json!({}), &patch), Err(PatchError::Failed { at: 0, .. })), "{patch}");
    }
    let failing = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
    assert!(matches!(json_patch(&mut json!({}), &failing), Err(PatchError::Failed { at: 1, .. })));
    let absent = json!([{"op": "remove", "path": "/a"}]);
    assert!(matches!(json_patch(&mut json!({}), &absent), Err(PatchError::Failed { at: 0, .. })));
}

#[test]
fn a_json_patch_is_as_lenient_as_kubernetes_own() {
    let mut object = json!({"spec": {}});
    let patch = json!([
        {"op": "replace", "path": "/spec/a", "value": 1},
        {"op": "copy", "path": "/spec/b", "from": "/spec/absent"},
        {"op": "add", "path": "/spec/c"},
    ]);
    json_patch(&mut object, &patch).unwrap();
    assert_eq!(object, json!({"spec": {"a": 1, "b": null, "c": null}}));
    json_patch(&mut object, &json!(null)).unwrap();
}

#[test]
fn the_work_of_a_json_patch_is_bounded() {
    let one = json!({"op": "add", "path": "/a", "value": 1});
    let many = Value::Array(vec![one; JSON_PATCH_OPERATIONS_MAX + 1]);
    assert_eq!(json_patch(&mut json!({}), &many), Err(PatchError::TooManyOperations(JSON_PATCH_OPERATIONS_MAX + 1)));
    // Each copy doubles the object: 40 operations would need a terabyte.
    let mut object = json!({"a": {"text": "x".repeat(1000)}});
    let doubling: Vec<Value> =
        (0..40).map(|at| json!({"op": "copy", "from": "/a", "path": format!("/a/c{at}")})).collect();
    assert!(matches!(json_patch(&mut object, &Value::Array(doubling)), Err(PatchError::Failed { .. })));
    assert!(object.to_string().len() < 8 << 20);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(object in any_json()) {
        let decoded = decode(object.to_string().as_bytes(), Limits::default()).unwrap();
        prop_assert_eq!(decoded.value, object);
        prop_assert_eq!(decoded.duplicates, Vec::<String>::new());
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, Limits::default());
    }

    #[test]
    fn a_merge_patch_applied_twice_is_applied_once(object in any_json(), patch in any_json()) {
        let mut once = object;
        merge_patch(&mut once, &patch);
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn any_json_is_answered_as_a_patch(mut object in any_json(), patch in any_json()) {
        let _ = json_patch(&mut object, &patch);
    }
}
