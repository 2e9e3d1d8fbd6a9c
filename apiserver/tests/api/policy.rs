//! ValidatingAdmissionPolicy: rules in CEL on real requests.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// A policy on everything about RedisClusters; `change` edits its spec.
fn policy(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE", "UPDATE"], "apiGroups": ["redis.kun.io"], "apiVersions": ["v1"],
            "resources": ["redisclusters"],
        }]},
        "validations": [{"expression": "object.spec.shards <= 3"}],
    });
    change(&mut spec);
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec})
}

/// A binding that denies; `change` edits its spec.
fn binding(name: &str, policy: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    change(&mut spec);
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": spec})
}

async fn bound(api: &Api, change: impl FnOnce(&mut Value), bind: impl FnOnce(&mut Value)) {
    api.post(POLICIES, &policy("p", change)).await.ok();
    api.post(BINDINGS, &binding("b", "p", bind)).await.ok();
}

fn rule(expression: &str) -> impl FnOnce(&mut Value) {
    let rules = json!([{"expression": expression}]);
    move |spec| spec["validations"] = rules
}

fn shards(name: &str, count: i64) -> Value {
    let mut object = cluster(name);
    object["spec"]["shards"] = json!(count);
    object
}

const DENIED: &str =
    "redisclusters.redis.kun.io \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

#[tokio::test]
async fn what_breaks_a_rule_is_denied_in_the_words_of_kubernetes() {
    let api = Api::guarded().await;
    bound(&api, |_| {}, |_| {}).await;
    let reply = api.post(CLUSTERS, &shards("a", 4)).await;
    let why =
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.spec.shards <= 3";
    assert_eq!(
        reply.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
            "message": format!("redisclusters.redis.kun.io \"a\" is forbidden: {why}"),
            "details": {"name": "a", "group": "redis.kun.io", "kind": "redisclusters", "causes": [{"message": why}]},
        })
    );
    assert_eq!(api.get(&format!("{CLUSTERS}/a")).await.code, 404);
    api.post(CLUSTERS, &shards("a", 3)).await.ok();
    let grown = api.merge(&format!("{CLUSTERS}/a"), &json!({"spec": {"shards": 5}})).await;
    assert_eq!((grown.code, grown.fault().2), (422, format!("{DENIED}failed expression: object.spec.shards <= 3")));
    let dry = api.post(&format!("{CLUSTERS}?dryRun=All"), &shards("b", 9)).await;
    assert_eq!(dry.code, 422, "a dry run is judged as well");
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
}

#[tokio::test]
async fn a_policy_without_a_binding_does_nothing_and_one_that_goes_stops_at_once() {
    let api = Api::guarded().await;
    api.post(POLICIES, &policy("p", |_| {})).await.ok();
    api.post(CLUSTERS, &shards("free", 9)).await.ok();
    api.post(BINDINGS, &binding("b", "p", |_| {})).await.ok();
    assert_eq!(api.post(CLUSTERS, &shards("a", 9)).await.code, 422);
    api.delete(&format!("{BINDINGS}/b")).await.ok();
    api.post(CLUSTERS, &shards("a", 9)).await.ok();
}

#[tokio::test]
async fn messages_and_reasons_are_the_policys_own() {
    let api = Api::guarded().await;
    // (validation, code, reason, message)
    let table = [
        (json!({"expression": "false", "message": " too many "}), 422, "Invalid", "too many"),
        (
            json!({"expression": "false", "messageExpression": "'has ' + string(object.spec.shards)", "message": "m", "reason": "Forbidden"}),
            403,
            "Forbidden",
            "has 3",
        ),
        (json!({"expression": "false", "messageExpression": "object.absent", "message": "m"}), 422, "Invalid", "m"),
        (json!({"expression": "false", "messageExpression": "'a\\nb'"}), 422, "Invalid", "failed expression: false"),
        (
            json!({"expression": "false", "reason": "RequestEntityTooLarge"}),
            413,
            "RequestEntityTooLarge",
            "failed expression: false",
        ),
    ];
    bound(&api, |_| {}, |_| {}).await;
    for (validation, code, reason, message) in table {
        let is_dynamic = validation["messageExpression"] == "object.absent";
        let wanted = validation.clone();
        let reply = api.put(&format!("{POLICIES}/p"), &policy("p", |spec| spec["validations"] = json!([wanted]))).await;
        if is_dynamic {
            // Its type is not known to be a string.
            assert!(reply.fault().2.contains("must evaluate to string but got dyn"), "{:?}", reply.fault());
            continue;
        }
        reply.ok();
        let fault = api.post(CLUSTERS, &cluster("a")).await.fault();
        assert_eq!(fault, (code, reason.to_owned(), format!("{DENIED}{message}")), "{validation}");
    }
}

#[tokio::test]
async fn warn_and_audit_let_a_request_pass_and_say_so() {
    let api = Api::guarded().await;
    bound(&api, |_| {}, |spec| spec["validationActions"] = json!(["Warn", "Audit"])).await;
    let reply = api.post(CLUSTERS, &shards("a", 9)).await;
    let why = "failed expression: object.spec.shards <= 3";
    assert_eq!(
        reply.warnings,
        [format!("Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': {why}")]
    );
    let note: Value =
        serde_json::from_str(&reply.annotations["validation.policy.admission.k8s.io/validation_failure"]).unwrap();
    assert_eq!(
        note,
        json!([{"message": why, "policy": "p", "binding": "b", "expressionIndex": 0, "validationActions": ["Warn", "Audit"]}])
    );
    reply.ok();
    let counted = |action: &str| {
        format!(
            "apiserver_validating_admission_policy_check_total{{policy=\"p\",policy_binding=\"b\",enforcement_action=\"{action}\",error_type=\"no_error\"}} 1"
        )
    };
    let text = api.metrics.text().unwrap();
    assert!(text.contains(&counted("warn")) && text.contains(&counted("audit")), "{text}");
}

#[tokio::test]
async fn the_first_denial_by_policy_and_binding_is_the_answer() {
    let api = Api::guarded().await;
    for (name, message) in [("z", "last"), ("c", "first")] {
        let rules = json!([{"expression": "true"}, {"expression": "false", "message": message}]);
        api.post(POLICIES, &policy(name, |spec| spec["validations"] = rules)).await.ok();
        api.post(BINDINGS, &binding(&format!("{name}2"), name, |_| {})).await.ok();
        api.post(BINDINGS, &binding(&format!("{name}1"), name, |_| {})).await.ok();
    }
    let fault = api.post(CLUSTERS, &cluster("a")).await.fault();
    assert!(fault.2.ends_with("ValidatingAdmissionPolicy 'c' with binding 'c1' denied request: first"), "{fault:?}");
}

#[tokio::test]
async fn a_policy_applies_where_its_rules_and_its_bindings_say() {
    // (policy, binding, whether a create of RedisCluster `a` in shop is denied)
    let rules = |resources: &str, operations: &str| json!([{"operations": [operations], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}]);
    let named = |name: &str| json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "resourceNames": [name]}]);
    let team = |team: &str| json!({"matchLabels": {"team": team}});
    let table = [
        (json!({"resourceRules": rules("*", "*")}), json!({}), true),
        (json!({"resourceRules": rules("*/*", "CREATE")}), json!({}), true),
        (json!({"resourceRules": rules("redisclusters/*", "CREATE")}), json!({}), true),
        (json!({"resourceRules": rules("redisclusters/status", "*")}), json!({}), false),
        (json!({"resourceRules": rules("redisclusters", "UPDATE")}), json!({}), false),
        (json!({"resourceRules": rules("configmaps", "*")}), json!({}), false),
        (json!({"resourceRules": named("a")}), json!({}), true),
        (json!({"resourceRules": named("b")}), json!({}), false),
        (
            json!({"resourceRules": rules("*", "*"), "excludeResourceRules": rules("redisclusters", "*")}),
            json!({}),
            false,
        ),
        (json!({"resourceRules": rules("*", "*"), "excludeResourceRules": named("b")}), json!({}), true),
        (json!({"resourceRules": rules("*", "*"), "namespaceSelector": team("a")}), json!({}), true),
        (json!({"resourceRules": rules("*", "*"), "namespaceSelector": team("b")}), json!({}), false),
        (json!({"resourceRules": rules("*", "*"), "objectSelector": team("x")}), json!({}), true),
        (json!({"resourceRules": rules("*", "*"), "objectSelector": team("y")}), json!({}), false),
        (json!({"resourceRules": rules("*", "*"), "matchPolicy": "Exact"}), json!({"matchPolicy": "Equivalent"}), true),
        (json!({"resourceRules": rules("*", "*")}), json!({"namespaceSelector": team("b")}), false),
        (json!({"resourceRules": rules("*", "*")}), json!({"objectSelector": team("x")}), true),
        (json!({"resourceRules": rules("*", "*")}), json!({"resourceRules": rules("configmaps", "*")}), false),
        (json!({"resourceRules": rules("*", "*")}), json!({"excludeResourceRules": named("a")}), false),
    ];
    let api = Api::guarded().await;
    bound(&api, |_| {}, |_| {}).await;
    for (constraints, resources, is_denied) in table {
        let (wanted, bind) = (constraints.clone(), resources.clone());
        let change = |spec: &mut Value| {
            spec["matchConstraints"] = wanted;
            spec["validations"] = json!([{"expression": "false"}]);
        };
        api.put(&format!("{POLICIES}/p"), &policy("p", change)).await.ok();
        api.put(&format!("{BINDINGS}/b"), &binding("b", "p", |spec| spec["matchResources"] = bind)).await.ok();
        let mut object = cluster("a");
        object["metadata"]["labels"] = json!({"team": "x"});
        let code = api.call("POST", &format!("{CLUSTERS}?dryRun=All")).json(&object).send().await.code;
        assert_eq!(code == 422, is_denied, "{code}: {constraints} {resources}");
    }
}

#[tokio::test]
async fn subresources_are_judged_by_rules_of_their_own() {
    let api = Api::guarded().await;
    api.post(CLUSTERS, &cluster("a")).await.ok();
    let change = |spec: &mut Value| {
        spec["matchConstraints"]["resourceRules"][0]["resources"] =
            json!(["redisclusters/scale", "redisclusters/status"]);
        spec["validations"] = json!([
            {"expression": "request.subResource != 'scale' || object.spec.replicas <= oldObject.spec.replicas", "message": "grows"},
            {"expression": "request.subResource != 'status' || object.status.?replicas.orValue(0) < 9", "message": "nine"},
            {"expression": "request.subResource != 'scale' || (request.kind.kind == 'Scale' && object.kind == 'Scale')", "message": "kind"},
        ]);
    };
    bound(&api, change, |_| {}).await;
    let one = format!("{CLUSTERS}/a");
    api.merge(&one, &json!({"spec": {"shards": 5}})).await.ok();
    let grown = api.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 7}})).await.fault();
    assert_eq!(grown.2, format!("{DENIED}grows"));
    api.merge(&format!("{one}/scale"), &json!({"spec": {"replicas": 4}})).await.ok();
    let status = api.merge(&format!("{one}/status"), &json!({"status": {"replicas": 9}})).await.fault();
    assert_eq!(status.2, format!("{DENIED}nine"));
    api.merge(&format!("{one}/status"), &json!({"status": {"replicas": 8}})).await.ok();
}

#[tokio::test]
async fn everything_kubernetes_shows_to_expressions_is_shown() {
    let api = Api::guarded().await;
    let variables = json!([
        {"name": "limit", "expression": "3"},
        {"name": "isSmall", "expression": "object.spec.shards <= variables.limit"},
        {"name": "never", "expression": "object.absent.field"},
    ]);
    for expression in [
        "variables.isSmall",
        "has(object.spec) && object.metadata.name == request.name && object.kind == 'RedisCluster'",
        "oldObject == null && request.operation == 'CREATE' && !request.dryRun",
        "request.kind.kind == 'RedisCluster' && request.resource.group == 'redis.kun.io' && request.namespace == 'shop'",
        "request.userInfo.username == 'anna' && 'system:authenticated' in request.userInfo.groups",
        "request.options.kind == 'CreateOptions' && !has(request.subResource)",
        "namespaceObject.metadata.name == 'shop' && namespaceObject.metadata.labels.team == 'a'",
        "namespaceObject.status.phase == 'Active' && namespaceObject.spec.finalizers == ['kubernetes']",
        "!authorizer.group('').resource('pods').namespace('shop').check('create').allowed()",
        "!authorizer.requestResource.check('create').allowed() && authorizer.path('/healthz').check('get').reason() == ''",
    ] {
        let change = |spec: &mut Value| {
            spec["variables"] = variables.clone();
            spec["validations"] = json!([{"expression": expression}]);
        };
        let (policies, bindings) = (policy("p", change), binding("b", "p", |_| {}));
        let one = format!("{POLICIES}/p");
        if api.get(&one).await.code == 404 {
            api.post(POLICIES, &policies).await.ok();
            api.post(BINDINGS, &bindings).await.ok();
        } else {
            api.put(&one, &policies).await.ok();
        }
        let reply = api.post(CLUSTERS, &cluster("a")).await;
        assert_eq!(reply.code, 201, "{expression}: {}", String::from_utf8_lossy(&reply.bytes));
        api.delete(&format!("{CLUSTERS}/a")).await.ok();
    }
}

#[tokio::test]
async fn a_deletion_shows_the_old_object_only() {
    let api = Api::guarded().await;
    api.post(CLUSTERS, &cluster("a")).await.ok();
    let change = |spec: &mut Value| {
        spec["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
        spec["validations"] = json!([{"expression": "object == null && oldObject.metadata.?labels.?expendable.hasValue()", "message": "kept"}]);
    };
    bound(&api, change, |_| {}).await;
    assert_eq!(api.delete(&format!("{CLUSTERS}/a")).await.fault().2, format!("{DENIED}kept"));
    api.merge(&format!("{CLUSTERS}/a"), &json!({"metadata": {"labels": {"expendable": ""}}})).await.ok();
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
}

#[tokio::test]
async fn what_cannot_be_evaluated_follows_the_failure_policy_and_is_counted() {
    let broken = "object.spec.absent == 1";
    let why = format!("{DENIED}expression '{broken}' resulted in error: no such key: absent");
    let api = Api::guarded().await;
    bound(&api, rule(broken), |_| {}).await;
    assert_eq!(api.post(CLUSTERS, &cluster("a")).await.fault(), (422, "Invalid".to_owned(), why.clone()));
    let ignoring = |spec: &mut Value| {
        rule(broken)(spec);
        spec["failurePolicy"] = json!("Ignore");
    };
    api.put(&format!("{POLICIES}/p"), &policy("p", ignoring)).await.ok();
    api.post(CLUSTERS, &cluster("a")).await.ok();
    let text = api.metrics.text().unwrap();
    for counted in [
        "apiserver_admission_ignored_errors_total{name=\"p\",kind=\"validatingadmissionpolicy\"} 1",
        "enforcement_action=\"deny\",error_type=\"invalid_error\"} 1",
        "enforcement_action=\"allow\",error_type=\"invalid_error\"} 1",
    ] {
        assert!(text.contains(counted), "{text}");
    }
}

#[tokio::test]
async fn an_expression_that_never_ends_costs_a_denial_and_not_the_server() {
    let api = Api::guarded().await;
    // A million million turns: that there is an answer at all says that they were not made.
    let mut nested = "true".to_owned();
    for level in 0..12 {
        nested = format!("[0,1,2,3,4,5,6,7,8,9].all(x{level}, {nested})");
    }
    let change = |spec: &mut Value| {
        spec["validations"] = Value::Array(vec![json!({"expression": nested}); 20]);
    };
    bound(&api, change, |_| {}).await;
    let fault = api.post(CLUSTERS, &cluster("a")).await.fault();
    assert_eq!(
        fault.2,
        format!("{DENIED}validation failed due to running out of cost budget, no further validation rules will be run")
    );
    let single = |spec: &mut Value| spec["validations"] = json!([{"expression": nested}]);
    api.put(&format!("{POLICIES}/p"), &policy("p", single)).await.ok();
    let fault = api.post(CLUSTERS, &cluster("a")).await.fault();
    assert!(fault.2.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"), "{}", fault.2);
}

#[tokio::test]
async fn conditions_leave_requests_out() {
    let api = Api::guarded().await;
    let conditions = |list: Value| {
        move |spec: &mut Value| {
            spec["matchConditions"] = list;
            spec["validations"] = json!([{"expression": "false"}]);
        }
    };
    let only = json!([{"name": "not-system", "expression": "!request.userInfo.username.startsWith('an')"}]);
    bound(&api, conditions(only), |_| {}).await;
    api.post(CLUSTERS, &cluster("a")).await.ok();
    let broken = json!([{"name": "x", "expression": "object.absent == 1"}]);
    api.put(&format!("{POLICIES}/p"), &policy("p", conditions(broken))).await.ok();
    let fault = api.post(CLUSTERS, &cluster("b")).await.fault();
    let why = "expression 'object.absent == 1' resulted in error: no such key: absent";
    assert_eq!(fault.2, format!("{}{why}", DENIED.replace("\"a\"", "\"b\"")));
}

#[tokio::test]
async fn audit_annotations_carry_the_policys_name_and_every_value_once() {
    let api = Api::guarded().await;
    let change = |spec: &mut Value| {
        spec["validations"] = json!([]);
        spec["auditAnnotations"] = json!([
            {"key": "shards", "valueExpression": "'shards: ' + string(object.spec.shards)"},
            {"key": "nothing", "valueExpression": "object.spec.shards > 100 ? 'many' : ''"},
        ]);
    };
    bound(&api, change, |_| {}).await;
    api.post(BINDINGS, &binding("c", "p", |_| {})).await.ok();
    let reply = api.post(CLUSTERS, &cluster("a")).await;
    let own: Vec<_> = reply.annotations.iter().filter(|(key, _)| key.starts_with("p/")).collect();
    assert_eq!(own, [(&"p/shards".to_owned(), &"shards: 3".to_owned())]);
}

#[tokio::test]
async fn parameters_are_objects_of_any_kind_the_server_has() {
    let api = Api::guarded().await;
    let map = |name: &str, most: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "data": {"most": most}});
    api.post(MAPS, &map("small", "2", json!({"limits": "yes"}))).await.ok();
    api.post(MAPS, &map("large", "9", json!({"limits": "yes"}))).await.ok();
    let change = |spec: &mut Value| {
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        spec["validations"] = json!([{
            "expression": "params == null || object.spec.shards <= int(params.data.most)",
            "messageExpression": "'at most ' + string(params.data.most) + ' by ' + string(params.metadata.name)",
        }]);
    };
    let named = |name: &'static str, action: &'static str| {
        move |spec: &mut Value| spec["paramRef"] = json!({"name": name, "parameterNotFoundAction": action})
    };
    bound(&api, change, named("small", "Deny")).await;
    let one = format!("{BINDINGS}/b");
    let create = async |count: i64| api.post(CLUSTERS, &shards("a", count)).await;
    assert_eq!(create(4).await.fault().2, format!("{DENIED}at most 2 by small"));
    api.put(&one, &binding("b", "p", named("large", "Deny"))).await.ok();
    create(4).await.ok();
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    // All that are selected count.
    let selected = |spec: &mut Value| {
        spec["paramRef"] = json!({"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"});
    };
    api.put(&one, &binding("b", "p", selected)).await.ok();
    assert_eq!(create(4).await.fault().2, format!("{DENIED}at most 2 by small"));
    // None are there.
    let absent = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    api.put(&one, &binding("b", "p", named("absent", "Deny"))).await.ok();
    assert_eq!(create(4).await.fault().2, format!("{DENIED}{absent}"));
    api.put(&one, &binding("b", "p", named("absent", "Allow"))).await.ok();
    create(4).await.ok();
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    // Without a reference there is one evaluation, with none.
    api.put(&one, &binding("b", "p", |_| {})).await.ok();
    create(9).await.ok();
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    // Of a namespace that is named.
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "rules"}})).await.ok();
    api.post("/api/v1/namespaces/rules/configmaps", &map("far", "1", json!({}))).await.ok();
    let far = |spec: &mut Value| {
        spec["paramRef"] = json!({"name": "far", "namespace": "rules", "parameterNotFoundAction": "Deny"});
    };
    api.put(&one, &binding("b", "p", far)).await.ok();
    assert_eq!(create(4).await.fault().2, format!("{DENIED}at most 1 by far"));
    // Of a kind nobody knows.
    let unknown = |spec: &mut Value| {
        change(spec);
        spec["paramKind"] = json!({"apiVersion": "rules.io/v1", "kind": "Rule"});
    };
    api.put(&format!("{POLICIES}/p"), &policy("p", unknown)).await.ok();
    let why = "failed to configure binding: paramKind kind `&ParamKind{APIVersion:rules.io/v1,Kind:Rule,}` not known";
    assert_eq!(create(4).await.fault().2, format!("{DENIED}{why}"));
}

#[tokio::test]
async fn policies_and_bindings_that_make_no_sense_are_refused_when_written() {
    let api = Api::guarded().await;
    let faults = async |path: &str, object: &Value| {
        let body = api.post(path, object).await.json();
        let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let set = |field: &'static str, value: Value| move |spec: &mut Value| spec[field] = value;
    let policies: [(Value, &[&str]); 12] = [
        (policy("p", set("validations", json!([]))), &["spec.validations", "spec.auditAnnotations"]),
        (policy("p", rule("object.")), &["spec.validations[0].expression"]),
        (policy("p", rule("1")), &["spec.validations[0].expression"]),
        (policy("p", rule("params.x == 1")), &["spec.validations[0].expression"]),
        (policy("p", rule("variables.x == 1")), &["spec.validations[0].expression"]),
        (policy("p", set("failurePolicy", json!("Maybe"))), &["spec.failurePolicy"]),
        (policy("p", set("matchConstraints", Value::Null)), &["spec.matchConstraints"]),
        (policy("p", set("matchConstraints", json!({}))), &["spec.matchConstraints.resourceRules"]),
        (policy("p", set("variables", json!([{"name": "a-b", "expression": "1"}]))), &["spec.variables[0].name"]),
        (
            policy("p", set("variables", json!([{"name": "a", "expression": "variables.a"}]))),
            &["spec.variables[0].expression"],
        ),
        (
            policy("p", set("auditAnnotations", json!([{"key": "k", "valueExpression": "1"}]))),
            &["spec.auditAnnotations[0].valueExpression"],
        ),
        (
            policy("p", set("validations", json!([{"expression": "true", "reason": "Why", "message": "a\nb"}]))),
            &["spec.validations[0].message", "spec.validations[0].reason"],
        ),
    ];
    for (object, fields) in policies {
        assert_eq!(faults(POLICIES, &object).await, fields, "{object}");
    }
    let bindings: [(Value, &[&str]); 6] = [
        (binding("b", "", |_| {}), &["spec.policyName"]),
        (binding("b", "p", set("validationActions", json!([]))), &["spec.validationActions"]),
        (binding("b", "p", set("validationActions", json!(["Deny", "Warn"]))), &["spec.validationActions"]),
        (binding("b", "p", set("validationActions", json!(["Shout"]))), &["spec.validationActions[0]"]),
        (binding("b", "p", set("paramRef", json!({"parameterNotFoundAction": "Deny"}))), &["spec.paramRef"]),
        (binding("b", "p", set("paramRef", json!({"name": "x"}))), &["spec.paramRef.parameterNotFoundAction"]),
    ];
    for (object, fields) in bindings {
        assert_eq!(faults(BINDINGS, &object).await, fields, "{object}");
    }
    let fault = api.post(POLICIES, &policy("p", rule("foo"))).await.fault();
    assert_eq!(
        fault.2,
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.validations[0].expression: \
         Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"
    );
}
