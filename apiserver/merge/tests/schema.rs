//! Pruning, defaulting and checking over one small schema, in Kubernetes' words.

use merge::{FaultKind, Schema, check, default, prune};
use proptest::prelude::*;
use serde_json::{Value, json};

fn schema() -> Schema {
    Schema::compile(&json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 5},
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9},
                "big": {"type": "integer", "format": "int64"},
                "ratio": {"type": "number"},
                "on": {"type": "boolean", "default": false},
                "size": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "limits": {"type": "object", "default": {"cpu": 1}, "properties": {
                    "cpu": {"type": "integer"}, "memory": {"type": "string", "default": "1Gi"}}},
                "free": {"x-kubernetes-preserve-unknown-fields": true},
                "maybe": {"type": "string", "nullable": true, "default": "x"},
                "when": {"type": "string", "format": "date-time"},
                "points": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["at"],
                    "items": {"type": "object", "required": ["at"], "properties": {"at": {"type": "integer"}, "why": {"type": "string", "default": "-"}}}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
            }}
        }
    }))
    .unwrap()
}

fn texts(object: &Value) -> Vec<String> {
    check(&schema(), object)
        .into_iter()
        .map(|fault| format!("{} {:?} {:?} {}", fault.path, fault.kind, fault.bad_value, fault.detail))
        .collect()
}

#[test]
fn unknown_fields_are_taken_out_and_named_by_path() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "extra": 1,
        "metadata": {"name": "a", "labels": {"any": "thing"}, "odd": true, "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "x": 1}]},
        "spec": {"name": "abc", "x": {"deep": 1}, "labels": {"k": "v"}, "free": {"kept": [1]}, "points": [{"at": 1}, {"at": 2, "y": 0}]}
    });
    let unknown = prune(&schema(), &mut object);
    assert_eq!(unknown, ["extra", "metadata.managedFields[0].x", "metadata.odd", "spec.points[1].y", "spec.x"]);
    let expected = json!({
        "apiVersion": "v1", "kind": "K",
        "metadata": {"name": "a", "labels": {"any": "thing"}, "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"name": "abc", "labels": {"k": "v"}, "free": {"kept": [1]}, "points": [{"at": 1}, {"at": 2}]}
    });
    assert_eq!(object, expected);
}

#[test]
fn absent_and_null_fields_get_defaults_from_the_outside_in() {
    let mut object = json!({"metadata": {"creationTimestamp": null}, "spec": {"name": null, "mode": null, "maybe": null, "points": [{"at": 1}], "free": null}});
    default(&schema(), &mut object);
    let expected = json!({"metadata": {}, "spec": {
        "mode": "A", "on": false, "limits": {"cpu": 1, "memory": "1Gi"}, "maybe": null, "points": [{"at": 1, "why": "-"}], "free": null
    }});
    assert_eq!(object, expected);
}

#[test]
fn what_is_given_is_kept() {
    let given = json!({"spec": {"mode": "B", "on": true, "limits": {"memory": "2Gi"}, "maybe": "y"}});
    let mut object = given.clone();
    default(&schema(), &mut object);
    assert_eq!(object, given);
}

#[test]
fn types_and_bounds_are_told_in_kubernetes_words() {
    let object = json!({"spec": {
        "name": "a", "mode": "C", "count": 0, "big": 1.5, "ratio": "1", "on": "yes", "size": 1.5, "labels": {"a": 1}, "when": "now",
        "points": [{"at": 1}, {"at": 1}, {}], "tags": ["a", "a", null], "limits": [], "maybe": null
    }});
    let expected = [
        r#"spec.big TypeInvalid Some(String("number")) spec.big in body must be of type integer: "number""#,
        r#"spec.count Invalid Some(Number(0)) spec.count in body should be greater than or equal to 1"#,
        r#"spec.labels.a TypeInvalid Some(String("integer")) spec.labels.a in body must be of type string: "integer""#,
        r#"spec.limits TypeInvalid Some(String("array")) spec.limits in body must be of type object: "array""#,
        r#"spec.mode NotSupported Some(String("C")) supported values: "A", "B""#,
        r#"spec.name Invalid Some(String("a")) spec.name in body should be at least 2 chars long"#,
        r#"spec.on TypeInvalid Some(String("string")) spec.on in body must be of type boolean: "string""#,
        r#"spec.points[1] Duplicate Some(Object {"at": Number(1)}) "#,
        r#"spec.points[2].at Required None "#,
        r#"spec.ratio TypeInvalid Some(String("string")) spec.ratio in body must be of type number: "string""#,
        r#"spec.size TypeInvalid Some(String("number")) spec.size in body must be of type integer,string: "number""#,
        r#"spec.tags[1] Duplicate Some(String("a")) "#,
        r#"spec.tags[2] TypeInvalid Some(String("null")) spec.tags[2] in body must be of type string: "null""#,
        r#"spec.when TypeInvalid Some(String("now")) spec.when in body must be of type date-time: "now""#,
    ];
    assert_eq!(texts(&object), expected);
    assert_eq!(texts(&json!({})), ["spec Required None "]);
    assert_eq!(texts(&json!([]))[0], r#" TypeInvalid Some(String("array"))  in body must be of type object: "array""#);
}

#[test]
fn a_number_beyond_its_format_is_out_of_bounds_and_not_wrapped() {
    let of = |count: Value| {
        check(&schema(), &json!({"spec": {"name": "abc", "big": count}})).first().map(|fault| fault.kind)
    };
    assert_eq!(of(json!(i64::MIN)), None);
    assert_eq!(of(json!(u64::MAX)), Some(FaultKind::Invalid));
    assert_eq!(of(json!(1e300)), Some(FaultKind::TypeInvalid));
    let fault = &check(&schema(), &json!({"spec": {"name": "abc", "count": 4_294_967_299_u64}}))[0];
    assert_eq!(fault.detail, "spec.count in body should be less than or equal to 9");
}

#[test]
fn the_number_of_reported_faults_is_bounded() {
    let many: Vec<Value> = (0..10_000).map(|_| json!(1)).collect();
    assert_eq!(check(&schema(), &json!({"spec": {"name": "abc", "tags": many}})).len(), 100);
    let odd: serde_json::Map<String, Value> = (0..10_000).map(|at| (format!("f{at}"), json!(1))).collect();
    let mut object = json!({"spec": odd});
    assert_eq!(prune(&schema(), &mut object).len(), 100);
    assert_eq!(object, json!({"spec": {}}));
}

fn any_value() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "spec", "name", "mode", "limits", "points", "at", "labels", "free", "odd", "metadata", "cpu",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn defaulting_and_pruning_are_idempotent_and_commute(object in any_value()) {
        let schema = schema();
        let mut once = object.clone();
        prune(&schema, &mut once);
        default(&schema, &mut once);
        let mut twice = once.clone();
        prop_assert_eq!(prune(&schema, &mut twice), Vec::<String>::new());
        default(&schema, &mut twice);
        prop_assert_eq!(&once, &twice);
        let mut other_way = object;
        default(&schema, &mut other_way);
        prune(&schema, &mut other_way);
        prop_assert_eq!(once, other_way);
    }

    #[test]
    fn checking_any_value_is_total(object in any_value()) {
        let _ = check(&schema(), &object);
    }
}
