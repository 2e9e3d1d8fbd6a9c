//! Objects, patches and field sets that are almost right: answered soon, without a panic; what is understood comes back as
//! it went, what is refused says why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod mutate;

use merge::fields::Set;
use merge::managed::Managed;
use merge::{Limits, decode, duplicates, json_patch, merge_patch, strategic_merge_patch};
use proptest::prelude::*;
use serde_json::{Value, json};

use self::mutate::{cases, near, soon};

const OBJECTS: &[&str] = &[
    r#"{"apiVersion":"redis.kun.io/v1","kind":"RedisCluster","metadata":{"name":"a","labels":{"x/y":"z"}},"spec":{"shards":3,"list":[1,-2.5,1e3,null,true]}}"#,
    r#"{"a":{"b":{"c":[[[{"d":"\u00e9\ud83d\ude00\\\"\n"}]]]}},"a":1,"b":[{"x":1,"x":2}]}"#,
    r#"[9223372036854775807,-9223372036854775808,18446744073709551615,0.1,1E-7]"#,
];

const FIELDS: &[&str] = &[
    r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}"#,
    r#"{"f:spec":{"f:finalizers":{".":{},"v:\"a/b\"":{},"v:1.5":{},"v:null":{}},"f:list":{"i:0":{},"i:12":{"f:x":{}}}}}"#,
];

const MANAGED: &[&str] = &[
    r#"[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:a":{}}}}]"#,
    r#"[{"manager":"m","operation":"Update","apiVersion":"g/v1","fieldsType":"FieldsV1","fieldsV1":{},"subresource":"status"},{}]"#,
];

const JSON_PATCHES: &[&str] = &[
    r#"[{"op":"test","path":"/spec/shards","value":3},{"op":"replace","path":"/spec/shards","value":5},{"op":"add","path":"/spec/list/-","value":{"x":1}}]"#,
    r#"[{"op":"copy","from":"/spec","path":"/metadata/labels/x~1y"},{"op":"move","from":"/spec/list/0","path":"/spec/list/2"},{"op":"remove","path":""}]"#,
];

const MERGE_PATCHES: &[&str] = &[
    r#"{"spec":{"shards":null,"list":[1,2],"deep":{"a":{"b":null}}},"metadata":{"labels":{"x/y":null}}}"#,
    r#"{"spec":{"$patch":"replace","list":[{"$patch":"delete","name":"a"}],"$setElementOrder/list":["a"],"$retainKeys":["shards"],"$deleteFromPrimitiveList/list":[1]}}"#,
];

fn object() -> Value {
    json!({"metadata": {"name": "a", "labels": {"x/y": "z"}}, "spec": {"shards": 3, "list": [1, 2, {"name": "a"}]}})
}

/// Whether a value holds no list and no name with a dollar sign, so that both patches of objects mean the same.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.starts_with('$') && is_plain(value)),
        Value::Array(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn an_object_that_is_read_is_written_and_read_the_same(text in near(OBJECTS)) {
        match soon(|| decode(text.as_bytes(), Limits::default())) {
            Ok(decoded) => {
                prop_assert_eq!(&Ok(decoded.duplicates), &duplicates(text.as_bytes(), Limits::default()));
                let again = decode(decoded.value.to_string().as_bytes(), Limits::default()).unwrap();
                prop_assert_eq!(again.duplicates, Vec::<String>::new());
                prop_assert_eq!(again.value, decoded.value);
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                prop_assert!(duplicates(text.as_bytes(), Limits::default()).is_err());
            }
        }
    }

    #[test]
    fn what_is_read_is_what_everybody_else_reads(text in near(OBJECTS)) {
        let others: Result<Value, _> = serde_json::from_str(&text);
        prop_assert_eq!(decode(text.as_bytes(), Limits::default()).map(|decoded| decoded.value).ok(), others.ok());
    }

    #[test]
    fn a_set_of_fields_that_is_read_is_written_and_read_the_same(text in near(FIELDS)) {
        let Ok(json) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        match soon(|| Set::from_json(&json)) {
            Ok(set) => {
                let written = set.to_json();
                prop_assert_eq!(Set::from_json(&written), Ok(set.clone()), "{}", written);
                prop_assert_eq!(set.union(&set), set.clone());
                prop_assert!(set.difference(&set).is_empty());
                prop_assert!(set.paths().iter().all(|path| set.has(&path.0)));
            }
            Err(error) => prop_assert!(error.to_string().starts_with("reading fieldsV1: ")),
        }
    }

    #[test]
    fn managers_that_are_read_are_written_and_read_the_same(text in near(MANAGED)) {
        let Ok(json) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        match soon(|| Managed::decode(Some(&json))) {
            Ok(managed) => {
                let written = managed.encode();
                prop_assert_eq!(Managed::decode(written.as_ref()), Ok(managed));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_json_patch_is_done_or_says_why_not(text in near(JSON_PATCHES)) {
        let Ok(patch) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        let mut patched = object();
        match soon(|| json_patch(&mut patched, &patch)) {
            Ok(()) => drop(patched.to_string()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_merge_patch_done_twice_is_done_once(text in near(MERGE_PATCHES)) {
        let Ok(patch) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        let mut once = object();
        soon(|| merge_patch(&mut once, &patch));
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_strategic_patch_is_done_or_says_why_not_and_without_lists_and_directives_is_a_merge_patch(text in near(MERGE_PATCHES)) {
        let Ok(patch) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        let mut patched = object();
        match soon(|| strategic_merge_patch(&mut patched, &patch)) {
            Ok(()) if patch.is_object() && is_plain(&patch) => {
                let mut merged = object();
                merge_patch(&mut merged, &patch);
                prop_assert_eq!(patched, merged, "{}", patch);
            }
            Ok(()) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
