#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
use certs::Authority;
use serde_json::json;

use super::*;

fn bundle() -> String {
    BASE64_STANDARD.encode(Authority::create("webhooks").unwrap().certificate_pem())
}

fn webhook() -> Value {
    json!({
        "name": "redis.kun.io",
        "clientConfig": {"url": "https://127.0.0.1:9443/mutate", "caBundle": bundle()},
        "rules": [{"operations": ["CREATE"], "apiGroups": ["redis.kun.io"], "apiVersions": ["v1"], "resources": ["redisclusters"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"]
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut webhook = webhook();
    webhook[pointer] = value;
    configuration(&[webhook])
}

fn configuration(webhooks: &[Value]) -> Value {
    json!({"metadata": {"name": "kun"}, "webhooks": webhooks})
}

#[test]
fn a_plain_webhook_gets_kubernetes_defaults() {
    let object = configuration(&[webhook()]);
    assert_eq!(check(Kind::Mutating, &object), []);
    let parsed = parse(Kind::Mutating, &object);
    let [webhook] = parsed.as_slice() else { panic!("{parsed:?}") };
    assert_eq!((webhook.configuration.as_str(), webhook.name.as_str()), ("kun", "redis.kun.io"));
    assert_eq!(
        (webhook.failure_policy, webhook.timeout, webhook.reinvoke),
        (FailurePolicy::Fail, Duration::from_secs(10), false)
    );
    assert!(webhook.namespace_selector.is_empty() && webhook.object_selector.is_empty() && webhook.suits_dry_run);
    assert_eq!(webhook.target.as_ref().unwrap().url, "https://127.0.0.1:9443/mutate");
}

#[test]
fn of_the_versions_of_reviews_the_first_that_there_is_counts() {
    let asked = |versions: Value| parse(Kind::Mutating, &with("admissionReviewVersions", versions))[0].review;
    assert_eq!(asked(json!(["v1"])), ReviewVersion::V1);
    assert_eq!(asked(json!(["v1beta1"])), ReviewVersion::V1beta1);
    assert_eq!(asked(json!(["v2", "v1beta1", "v1"])), ReviewVersion::V1beta1);
    let words = |versions: Value| {
        check(Kind::Mutating, &with("admissionReviewVersions", versions))
            .into_iter()
            .map(|cause| cause.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(json!(["v1beta1", "v2"])), Vec::<String>::new());
    assert_eq!(words(json!(["v2"])), ["Invalid value: [\"v2\"]: must include at least one of v1, v1beta1"]);
    assert_eq!(words(json!([])), ["Required value: must specify one of v1, v1beta1"]);
}

#[test]
fn a_service_becomes_the_name_its_certificate_must_carry() {
    let client = |service: Value| with("clientConfig", json!({"service": service, "caBundle": bundle()}));
    let url = |object: &Value| parse(Kind::Validating, object)[0].target.clone().unwrap().url.to_string();
    let plain = client(json!({"namespace": "kun", "name": "webhook"}));
    assert_eq!(url(&plain), "https://webhook.kun.svc:443/");
    let full = client(json!({"namespace": "kun", "name": "webhook", "path": "/validate", "port": 8443}));
    assert_eq!(url(&full), "https://webhook.kun.svc:8443/validate");
}

#[test]
fn what_cannot_be_understood_is_refused_with_its_field() {
    let no_scheme = json!({"url": "http://a/b", "caBundle": bundle()});
    let query = json!({"url": "https://a/b?c=d", "caBundle": bundle()});
    let both = json!({"url": "https://a", "service": {"namespace": "n", "name": "s"}});
    let rule = |field: &str, value: Value| {
        let mut rule = webhook()["rules"][0].clone();
        rule[field] = value;
        with("rules", json!([rule]))
    };
    let table = [
        (with("name", json!("short.name")), "webhooks[0].name"),
        (with("sideEffects", json!("Some")), "webhooks[0].sideEffects"),
        (with("sideEffects", json!("")), "webhooks[0].sideEffects"),
        (with("failurePolicy", json!("Maybe")), "webhooks[0].failurePolicy"),
        (with("matchPolicy", json!("Close")), "webhooks[0].matchPolicy"),
        (with("timeoutSeconds", json!(0)), "webhooks[0].timeoutSeconds"),
        (with("timeoutSeconds", json!(31)), "webhooks[0].timeoutSeconds"),
        (with("admissionReviewVersions", json!([])), "webhooks[0].admissionReviewVersions"),
        (with("admissionReviewVersions", json!(["v2"])), "webhooks[0].admissionReviewVersions"),
        (with("admissionReviewVersions", json!(["v1", "v1"])), "webhooks[0].admissionReviewVersions[1]"),
        (
            with("matchConditions", json!([{"name": "a", "expression": "1"}])),
            "webhooks[0].matchConditions[0].expression",
        ),
        (
            with("matchConditions", json!([{"name": "a b", "expression": "true"}])),
            "webhooks[0].matchConditions[0].name",
        ),
        (with("clientConfig", no_scheme), "webhooks[0].clientConfig"),
        (with("clientConfig", query), "webhooks[0].clientConfig"),
        (with("clientConfig", both), "webhooks[0].clientConfig"),
        (with("clientConfig", json!({})), "webhooks[0].clientConfig"),
        (with("clientConfig", json!({"url": "https://a", "caBundle": "%"})), "webhooks[0].clientConfig"),
        (with("clientConfig", json!({"url": "https://a", "caBundle": "aGVsbG8="})), "webhooks[0].clientConfig"),
        (
            with("namespaceSelector", json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})),
            "webhooks[0].namespaceSelector",
        ),
        (rule("operations", json!(["READ"])), "webhooks[0].rules[0].operations"),
        (rule("resources", json!([])), "webhooks[0].rules[0].resources"),
        (rule("scope", json!("Galaxy")), "webhooks[0].rules[0].scope"),
        (configuration(&[json!("text")]), "webhooks[0]"),
        (configuration(&[webhook(), webhook()]), "webhooks[1].name"),
        (json!({"webhooks": {}}), "webhooks"),
        (configuration(&vec![webhook(); 65]), "webhooks"),
    ];
    for (object, field) in table {
        let causes = check(Kind::Mutating, &object);
        assert_eq!(causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(), [field], "{object}");
        let stands_in = parse(Kind::Mutating, &object);
        assert!(field == "webhooks[1].name" || stands_in.iter().all(|webhook| webhook.target.is_err()), "{object}");
    }
    assert!(check(Kind::Mutating, &with("reinvocationPolicy", json!("IfNeeded"))).is_empty());
    assert_eq!(check(Kind::Validating, &with("reinvocationPolicy", json!("IfNeeded"))).len(), 1);
}

#[test]
fn a_webhook_nobody_understands_concerns_everything_and_fails() {
    let parsed = parse(
        Kind::Mutating,
        &configuration(&[json!({"name": "a.b.c", "clientConfig": 3, "failurePolicy": "Ignore"})]),
    );
    assert_eq!(
        (parsed[0].rules.as_slice(), parsed[0].failure_policy),
        ([Rule::everything()].as_slice(), FailurePolicy::Fail)
    );
}

#[test]
fn without_authorities_a_webhook_is_accepted_and_cannot_be_called() {
    let object = with("clientConfig", json!({"url": "https://127.0.0.1:9443/mutate"}));
    assert_eq!(check(Kind::Mutating, &object), []);
    let fault = parse(Kind::Mutating, &object)[0].target.clone().unwrap_err();
    assert_eq!(fault, "clientConfig.caBundle: there is none, and this server believes no authority by default");
}
