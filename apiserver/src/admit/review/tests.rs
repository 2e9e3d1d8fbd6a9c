#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
#[path = "../../../merge/tests/fuzz/mutate.rs"]
mod mutate;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::admission::{Aspect, Holds, Operation};
use crate::request::{Annotations, User, Warnings};
use mutate::{cases, near, soon};

fn attributes() -> Attributes {
    let named = |group: &str, name: &str| GroupVersion {
        group: group.to_owned(),
        version: "v1".to_owned(),
        name: name.to_owned(),
    };
    Attributes {
        operation: Operation::Update,
        kind: named("autoscaling", "Scale"),
        resource: named("redis.kun.io", "redisclusters"),
        subresource: Some("scale".to_owned()),
        name: "orders".to_owned(),
        namespace: Some("prod".to_owned()),
        user: User { name: "jane".to_owned(), groups: vec!["team".to_owned()], ..User::default() },
        dry_run: true,
        options: json!({"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"}),
        object: None,
        old_object: Some(Arc::new(json!({"old": 1}))),
        warnings: Warnings::default(),
        annotations: Annotations::default(),
        holds: Holds::default(),
        aspect: Aspect::default(),
    }
}

#[test]
fn the_question_says_everything_kubernetes_says() {
    let bytes = question(ReviewVersion::V1, "u1", &attributes(), &json!({"new": 2})).unwrap();
    let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let resource = json!({"group": "redis.kun.io", "version": "v1", "resource": "redisclusters"});
    assert_eq!(
        serde_json::from_slice::<Value>(&bytes).unwrap(),
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u1", "kind": kind, "resource": resource, "subResource": "scale",
            "requestKind": kind, "requestResource": resource, "requestSubResource": "scale",
            "name": "orders", "namespace": "prod", "operation": "UPDATE",
            "userInfo": {"username": "jane", "groups": ["team"]},
            "object": {"new": 2}, "oldObject": {"old": 1}, "dryRun": true,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"}
        }})
    );
}

fn answer(response: Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

#[test]
fn a_plain_yes_is_a_yes() {
    let verdict =
        verdict(Kind::Validating, ReviewVersion::V1, "u1", &answer(json!({"uid": "u1", "allowed": true}))).unwrap();
    let expected = Verdict {
        allowed: true,
        status: Refusal::default(),
        patch: None,
        annotations: BTreeMap::new(),
        warnings: Vec::new(),
    };
    assert_eq!(verdict, expected);
}

#[test]
fn patch_warnings_and_annotations_are_read_and_bounded() {
    let response = json!({
        "uid": "u1", "allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode("[]"),
        "warnings": vec!["w".repeat(5000); 40], "auditAnnotations": {"k": "v"}
    });
    let told = verdict(Kind::Mutating, ReviewVersion::V1, "u1", &answer(response.clone())).unwrap();
    assert_eq!(told.patch.as_deref(), Some(b"[]".as_slice()));
    assert_eq!((told.warnings.len(), told.warnings[0].len()), (32, 1024));
    assert_eq!(told.annotations, BTreeMap::from([("k".to_owned(), "v".to_owned())]));
}

#[test]
fn an_answer_that_is_none_says_why() {
    let refused = |bytes: &[u8]| verdict(Kind::Mutating, ReviewVersion::V1, "u1", bytes).unwrap_err();
    assert!(refused(b"<html>").starts_with("the answer is no AdmissionReview: "));
    assert_eq!(
        refused(br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":"u1","allowed":true}}"#),
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview"
    );
    assert_eq!(
        refused(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#),
        "webhook response was absent"
    );
    assert_eq!(refused(&answer(json!({"uid": "u2", "allowed": true}))), "expected response.uid=\"u1\", got \"u2\"");
    let patched = |patch_type: Value, patch: &str| {
        answer(json!({"uid": "u1", "allowed": true, "patch": patch, "patchType": patch_type}))
    };
    assert_eq!(refused(&patched(Value::Null, "W10=")), "webhook returned response.patch but not response.patchType");
    assert_eq!(refused(&patched(json!("Merge"), "W10=")), "webhook returned invalid response.patchType of \"Merge\"");
    assert_eq!(refused(&patched(json!("JSONPatch"), "%%")), "webhook returned a response.patch that is not base64");
    assert_eq!(refused(&patched(json!("JSONPatch"), "")), "webhook returned response.patchType but not response.patch");
    let judged = |bytes: &[u8]| verdict(Kind::Validating, ReviewVersion::V1, "u1", bytes).unwrap_err();
    assert_eq!(judged(&patched(Value::Null, "W10=")), "validating webhook may not return response.patch");
    assert_eq!(judged(&patched(json!("JSONPatch"), "")), "validating webhook may not return response.patchType");
}

#[test]
fn the_older_question_differs_in_its_version_alone_and_its_answer_need_not_say_what_it_is() {
    let asked = |version| question(version, "u1", &attributes(), &json!({"new": 2})).unwrap();
    let mut new: Value = serde_json::from_slice(&asked(ReviewVersion::V1)).unwrap();
    new["apiVersion"] = json!("admission.k8s.io/v1beta1");
    assert_eq!(serde_json::from_slice::<Value>(&asked(ReviewVersion::V1beta1)).unwrap(), new);

    let told = |kind, bytes: &[u8]| verdict(kind, ReviewVersion::V1beta1, "u1", bytes);
    let bare = br#"{"response":{"allowed":true,"patch":"W10=","patchType":"Whatever","warnings":["w"]}}"#;
    let expected = |patch: Option<&[u8]>| Verdict {
        allowed: true,
        status: Refusal::default(),
        patch: patch.map(<[u8]>::to_vec),
        annotations: BTreeMap::new(),
        warnings: vec!["w".to_owned()],
    };
    assert_eq!(told(Kind::Mutating, bare), Ok(expected(Some(b"[]"))));
    assert_eq!(told(Kind::Validating, bare), Ok(expected(None)), "who judges is not heard about changes");
    assert_eq!(told(Kind::Mutating, b"{}"), Err("webhook response was absent".to_owned()));
    let why = told(Kind::Mutating, br#"{"response":{"allowed":true,"patch":"%%"}}"#);
    assert_eq!(why, Err("webhook returned a response.patch that is not base64".to_owned()));
}

#[test]
fn a_refusal_reads_as_kubernetes_writes_it() {
    let said = |status: Value| denied("redis.kun.io", serde_json::from_value(status).unwrap());
    let text = |status: Value| said(status).to_string();
    assert_eq!(text(json!({"message": "too big"})), "admission webhook \"redis.kun.io\" denied the request: too big");
    assert_eq!(
        text(json!({"reason": "Forbidden"})),
        "admission webhook \"redis.kun.io\" denied the request: Forbidden"
    );
    assert_eq!(text(json!({})), "admission webhook \"redis.kun.io\" denied the request without explanation");
    let status = json!({"message": "m", "reason": "Invalid", "code": 422, "details": {"causes": []}});
    assert_eq!(
        said(status),
        Error::Denied {
            message: "admission webhook \"redis.kun.io\" denied the request: m".to_owned(),
            reason: "Invalid".to_owned(),
            code: Some(422),
            details: Some(json!({"causes": []})),
        }
    );
}

/// Answers of webhooks: allowed with a patch (`[{"op":"add","path":"/x","value":1}]`), and refused.
const ANSWERS: &[&str] = &[
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u1","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3giLCJ2YWx1ZSI6MX1d","warnings":["be careful"],"auditAnnotations":{"a":"b"}}}"#,
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u1","allowed":false,"status":{"code":403,"message":"no","reason":"Forbidden"}}}"#,
];

/// What counts of an answer. In a field that nobody knows there may be a number that no `Value` holds: Kubernetes passes over it as well.
#[derive(serde::Deserialize)]
struct Said {
    response: Allowed,
}

#[derive(serde::Deserialize)]
struct Allowed {
    allowed: bool,
}

proptest! {
    #![proptest_config(cases(2000))]

    /// Nothing a webhook answers is taken for more than it says: what is not read is an error, and what is patched stays what it is.
    #[test]
    fn an_answer_that_is_almost_one_is_a_verdict_or_an_error(text in near(ANSWERS)) {
        let versions = [ReviewVersion::V1, ReviewVersion::V1beta1];
        for (kind, version) in [Kind::Mutating, Kind::Validating].into_iter().flat_map(|kind| versions.map(|version| (kind, version))) {
            let verdict = match soon(|| verdict(kind, version, "u1", text.as_bytes())) {
                Ok(verdict) => verdict,
                Err(why) => {
                    prop_assert!(!why.is_empty());
                    continue;
                }
            };
            let said: Said = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(verdict.allowed, said.response.allowed);
            let object = json!({"apiVersion": "v1", "kind": "K"});
            if let Some(Ok(Some(patched))) = verdict.patch.map(|patch| crate::admit::patch::apply(&patch, &object)) {
                prop_assert_eq!((&patched["apiVersion"], &patched["kind"]), (&object["apiVersion"], &object["kind"]));
            }
        }
    }
}
