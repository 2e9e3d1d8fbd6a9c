//! MutatingAdmissionPolicy: objects changed by expressions.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings";
const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn policy(name: &str, mutations: &[Value], change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE", "UPDATE"], "apiGroups": ["redis.kun.io"], "apiVersions": ["v1"],
            "resources": ["redisclusters"],
        }]},
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    });
    change(&mut spec);
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn bound(api: &Api, name: &str, mutations: &[Value], change: impl FnOnce(&mut Value)) {
    api.post(POLICIES, &policy(name, mutations, change)).await.ok();
    let binding = json!({"metadata": {"name": format!("{name}-b")}, "spec": {"policyName": name}});
    api.post(BINDINGS, &binding).await.ok();
}

#[tokio::test]
async fn a_configuration_is_merged_and_the_result_gets_defaults_and_is_validated() {
    let api = Api::guarded().await;
    let label = "Object{metadata: Object.metadata{labels: {'team': string(namespaceObject.metadata.labels.team)}}}";
    let shards = "Object{spec: Object.spec{shards: object.spec.shards + 2}}";
    bound(&api, "p", &[apply(label), apply(shards)], |_| {}).await;
    let mut object = cluster("orders");
    object["metadata"]["labels"] = json!({"own": "x"});
    let made = api.post(CLUSTERS, &object).await.ok();
    assert_eq!(made["metadata"]["labels"], json!({"own": "x", "team": "a"}));
    assert_eq!(made["spec"]["shards"], 5);
    assert_eq!(api.get(ORDERS).await.ok()["spec"]["shards"], 5);
    let absurd = "Object{spec: Object.spec{shards: -7}}";
    bound(&api, "q", &[apply(absurd)], |_| {}).await;
    let fault = api.post(CLUSTERS, &cluster("other")).await.fault();
    assert!(fault.0 == 422 && fault.2.contains("spec.shards: Invalid value"), "{fault:?}");
}

#[tokio::test]
async fn a_json_patch_is_applied_unless_its_test_fails() {
    let api = Api::guarded().await;
    let annotate = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}, \
                    JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('kun.io/by'), value: request.userInfo.username}]";
    let test = "[JSONPatch{op: 'test', path: '/spec/shards', value: 99}, JSONPatch{op: 'replace', path: '/spec/shards', value: 1}]";
    let nothing = "object.spec.shards > 9 ? [JSONPatch{op: 'remove', path: '/spec'}] : []";
    bound(&api, "p", &[patch(annotate), patch(test), patch(nothing)], |_| {}).await;
    let made = api.post(CLUSTERS, &cluster("orders")).await.ok();
    assert_eq!(made["metadata"]["annotations"], json!({"kun.io/by": "anna"}));
    assert_eq!(made["spec"]["shards"], 3);
}

#[tokio::test]
async fn each_sees_what_the_one_before_made_and_who_asks_is_carried_out_again() {
    let api = Api::guarded().await;
    let count = |name: &str| {
        patch(&format!(
            "[JSONPatch{{op: 'add', path: '/metadata/labels/{name}', value: string(size(object.metadata.labels))}}]"
        ))
    };
    bound(&api, "a", &[count("a")], |spec| spec["reinvocationPolicy"] = json!("IfNeeded")).await;
    bound(&api, "b", &[count("b")], |_| {}).await;
    let mut object = cluster("orders");
    object["metadata"]["labels"] = json!({"x": ""});
    let made = api.post(CLUSTERS, &object).await.ok();
    // `a` first saw one label, then, again, three.
    assert_eq!(made["metadata"]["labels"], json!({"x": "", "a": "3", "b": "2"}));
}

#[tokio::test]
async fn updates_are_changed_deletions_and_other_resources_are_not() {
    let api = Api::guarded().await;
    api.post(CLUSTERS, &cluster("orders")).await.ok();
    let once = "Object{metadata: Object.metadata{labels: {'changed': oldObject == null ? 'no' : 'yes'}}}";
    let conditions = json!([{"name": "not-mine", "expression": "request.userInfo.username == 'anna'"}]);
    bound(&api, "p", &[apply(once)], |spec| spec["matchConditions"] = conditions).await;
    let changed = api.merge(ORDERS, &json!({"spec": {"shards": 4}})).await.ok();
    assert_eq!(changed["metadata"]["labels"], json!({"changed": "yes"}));
    api.delete(ORDERS).await.ok();
    let nobody = json!([{"name": "not-mine", "expression": "request.userInfo.username == 'joe'"}]);
    let other = policy("p", &[apply(once)], |spec| spec["matchConditions"] = nobody);
    api.put(&format!("{POLICIES}/p"), &other).await.ok();
    let made = api.post(CLUSTERS, &cluster("orders")).await.ok();
    assert_eq!(made["metadata"].get("labels"), None);
}

#[tokio::test]
async fn what_cannot_be_carried_out_follows_the_failure_policy() {
    let api = Api::guarded().await;
    let table = [
        (
            apply("Object{spec: Object.spec{shards: object.absent}}"),
            "expression 'Object{spec: Object.spec{shards: object.absent}}' resulted in error: no such key: absent",
        ),
        (
            apply("Object{spec: Object.status{shards: 3}}"),
            "type mismatch: unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (patch("[JSONPatch{op: 'remove', path: '/absent'}]"), "JSON Patch: applying operation 0 of the patch: "),
        (patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"), "the policy changes kind"),
    ];
    bound(&api, "p", &[apply("Object{}")], |_| {}).await;
    for (mutation, why) in table {
        api.put(&format!("{POLICIES}/p"), &policy("p", std::slice::from_ref(&mutation), |_| {})).await.ok();
        let reply = api.post(CLUSTERS, &cluster("orders")).await;
        let fault = reply.fault();
        assert_eq!((fault.0, fault.1.as_str()), (403, "Invalid"), "{fault:?}");
        let head = format!("policy 'p' with binding 'p-b' denied request: {why}");
        assert!(fault.2.starts_with(&head), "{fault:?}");
        let ignoring = policy("p", &[mutation], |spec| spec["failurePolicy"] = json!("Ignore"));
        api.put(&format!("{POLICIES}/p"), &ignoring).await.ok();
        api.post(&format!("{CLUSTERS}?dryRun=All"), &cluster("orders")).await.ok();
    }
    let text = api.metrics.text().unwrap();
    assert!(
        text.contains("apiserver_admission_ignored_errors_total{name=\"p\",kind=\"mutatingadmissionpolicy\"} 4"),
        "{text}"
    );
}

#[tokio::test]
async fn a_list_that_is_replaced_as_a_whole_cannot_be_merged() {
    let api = Api::guarded().await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}]);
    let ports = "Object{spec: Object.spec{ports: [Object.spec.ports{port: 1}]}}";
    bound(&api, "p", &[apply(ports)], |spec| spec["matchConstraints"]["resourceRules"] = rules).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 2}]}});
    let fault = api.post("/api/v1/namespaces/shop/services", &service).await.fault();
    let why =
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.ports";
    assert!(fault.2.ends_with(why), "{fault:?}");
}

#[tokio::test]
async fn what_a_mutating_policy_makes_is_judged_by_validating_ones() {
    let api = Api::guarded().await;
    bound(&api, "p", &[apply("Object{spec: Object.spec{shards: 9}}")], |_| {}).await;
    let judge = json!({"metadata": {"name": "j"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["redisclusters"]}]},
        "validations": [{"expression": "object.spec.shards < 9", "message": "nine"}]}});
    api.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", &judge).await.ok();
    let binding = json!({"metadata": {"name": "j"}, "spec": {"policyName": "j", "validationActions": ["Deny"]}});
    api.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", &binding).await.ok();
    let fault = api.post(CLUSTERS, &cluster("orders")).await.fault();
    assert!(fault.2.ends_with("denied request: nine"), "{fault:?}");
}

#[tokio::test]
async fn parameters_say_what_to_change() {
    let api = Api::guarded().await;
    let map = json!({"metadata": {"name": "defaults"}, "data": {"team": "blue"}});
    api.post("/api/v1/namespaces/shop/configmaps", &map).await.ok();
    let label = "Object{metadata: Object.metadata{labels: {'team': string(params.data.team)}}}";
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    api.post(POLICIES, &policy("p", &[apply(label)], |spec| spec["paramKind"] = kind)).await.ok();
    let reference = json!({"name": "defaults", "parameterNotFoundAction": "Deny"});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": reference}});
    api.post(BINDINGS, &binding).await.ok();
    let made = api.post(CLUSTERS, &cluster("orders")).await.ok();
    assert_eq!(made["metadata"]["labels"], json!({"team": "blue"}));
    api.delete("/api/v1/namespaces/shop/configmaps/defaults").await.ok();
    let fault = api.post(CLUSTERS, &cluster("other")).await.fault();
    let why = "policy 'p' with binding 'b' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(fault, (403, "Forbidden".to_owned(), why.to_owned()));
}

#[tokio::test]
async fn policies_that_make_no_sense_are_refused_when_written() {
    let api = Api::guarded().await;
    let set = |field: &'static str, value: Value| move |spec: &mut Value| spec[field] = value;
    let delete = json!({"resourceRules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let table: [(Value, &str); 8] = [
        (policy("p", &[], |_| {}), "spec.mutations"),
        (policy("p", &[apply("Object{")], |_| {}), "spec.mutations[0].applyConfiguration.expression"),
        (policy("p", &[apply("{'spec': 1}")], |_| {}), "spec.mutations[0].applyConfiguration.expression"),
        (policy("p", &[patch("[1]")], |_| {}), "spec.mutations[0].jsonPatch.expression"),
        (policy("p", &[json!({"patchType": "Guess"})], |_| {}), "spec.mutations[0].patchType"),
        (policy("p", &[json!({"patchType": "JSONPatch"})], |_| {}), "spec.mutations[0].jsonPatch"),
        (policy("p", &[apply("Object{}")], set("reinvocationPolicy", json!("Always"))), "spec.reinvocationPolicy"),
        (
            policy("p", &[apply("Object{}")], set("matchConstraints", delete)),
            "spec.matchConstraints.resourceRules.operations",
        ),
    ];
    for (object, field) in table {
        let body = api.post(POLICIES, &object).await.json();
        assert_eq!(body["details"]["causes"][0]["field"], field, "{body:#}");
    }
}
