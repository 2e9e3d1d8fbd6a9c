//! The admission chain against a real webhook server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use apiserver::admission::{Admission, Operation};
use apiserver::admit::source::Namespace;
use apiserver::error::{Error, Qualified};
use apiserver::filter::authz::{Binding, Rule, StaticAuthorizer, Subject};
use apiserver::request::Verb;
use apiserver::wire::status;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use certs::{ALPN_H1, ALPN_H2, Authority};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};

use crate::hooks::{Hooks, TOGETHER, attributes, object};

fn create() -> apiserver::admission::Attributes {
    attributes(Operation::Create, Some("n"))
}

#[tokio::test]
async fn mutating_webhooks_see_what_the_one_before_made_of_the_object() {
    let hooks = Hooks::start(&[ALPN_H2, ALPN_H1]).await;
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/label/a", |_| {}), hooks.hook("b.test.io", "/label/b", |_| {})], &[]);
    let asked = create();
    let mutated = chain.mutate(&asked, object()).await.unwrap();
    assert_eq!(mutated["metadata"]["labels"], json!({"a": "set", "b": "set"}));
    assert_eq!(hooks.seen.paths(), ["/label/a?timeout=10s", "/label/b?timeout=10s"]);
    let reviews = hooks.seen.reviews.lock().unwrap().clone();
    assert_eq!(reviews[1].1["object"]["metadata"]["labels"], json!({"a": "set"}));
    assert_eq!((&reviews[0].1["operation"], &reviews[0].1["userInfo"]["username"]), (&json!("CREATE"), &json!("jane")));
    assert_eq!(*hooks.seen.callers.lock().unwrap(), ["kun:apiserver"]);
    assert_eq!(hooks.seen.connections.load(Ordering::SeqCst), 1, "one HTTP/2 connection for all calls");
    let notes = asked.annotations.snapshot();
    let note: Value = serde_json::from_str(&notes["mutation.webhook.admission.k8s.io/round_0_index_1"]).unwrap();
    assert_eq!(note, json!({"configuration": "kun", "webhook": "b.test.io", "mutated": true}));
}

#[tokio::test]
async fn only_a_webhook_that_is_named_is_shown_who_asks() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    for (name, is_shown) in [("127.83.3.1", true), ("kun-webhook.kun-system.svc", false)] {
        let caller = Arc::new(hooks.caller_of_all().showing_to(vec![name.to_owned()]));
        let (chain, _) = Hooks::chain_of(caller, &[hooks.hook("a.test.io", "/label/a", |_| {})], &[]);
        // These let in nobody who shows nothing.
        assert_eq!(chain.mutate(&create(), object()).await.is_ok(), is_shown, "{name}");
    }
    assert_eq!(*hooks.seen.callers.lock().unwrap(), ["kun:apiserver"]);
}

#[tokio::test]
async fn how_a_webhook_changed_the_object_is_told_to_an_audit_that_records_objects_and_to_no_other() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let again = |hook: &mut Value| hook["reinvocationPolicy"] = json!("IfNeeded");
    let other = |hook: &mut Value| hook["rules"][0]["operations"] = json!(["DELETE"]);
    let (chain, _) = hooks.chain(
        &[
            hooks.hook("other.test.io", "/label/x", other),
            hooks.hook("a.test.io", "/label/a", again),
            hooks.hook("b.test.io", "/label/b", |_| {}),
        ],
        &[],
    );
    let told = |asked: &apiserver::admission::Attributes| {
        let mut notes = asked.annotations.snapshot();
        notes.retain(|key, _| key.contains("webhook"));
        notes
    };
    let (plain, detailed) = (create(), create());
    detailed.annotations.want_details();
    chain.mutate(&plain, object()).await.unwrap();
    chain.mutate(&detailed, object()).await.unwrap();
    let mutation = |webhook: &str, mutated: bool| {
        format!(r#"{{"configuration":"kun","webhook":"{webhook}","mutated":{mutated}}}"#)
    };
    let patch = |webhook: &str, label: &str| {
        format!(
            r#"{{"configuration":"kun","webhook":"{webhook}","patch":[{{"op":"add","path":"/metadata/labels/{label}","value":"set"}}],"patchType":"JSONPatch"}}"#
        )
    };
    let of = |what: &str, round: u8, index: u8| format!("{what}.webhook.admission.k8s.io/round_{round}_index_{index}");
    let mut expected = std::collections::BTreeMap::from([
        (of("mutation", 0, 1), mutation("a.test.io", true)),
        (of("mutation", 0, 2), mutation("b.test.io", true)),
        (of("mutation", 1, 1), mutation("a.test.io", false)),
    ]);
    assert_eq!(told(&plain), expected);
    expected.extend([(of("patch", 0, 1), patch("a.test.io", "a")), (of("patch", 0, 2), patch("b.test.io", "b"))]);
    assert_eq!(told(&detailed), expected);
    // One that refuses has changed nothing, and is told, too.
    let (chain, _) = hooks.chain(&[hooks.hook("c.test.io", "/deny", |_| {})], &[]);
    let refused = create();
    assert!(chain.mutate(&refused, object()).await.is_err());
    let expected = std::collections::BTreeMap::from([(of("mutation", 0, 0), mutation("c.test.io", false))]);
    assert_eq!(told(&refused), expected);
}

#[tokio::test]
async fn a_webhook_that_takes_only_the_older_review_is_asked_in_that() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let takes = |versions: Value| move |hook: &mut Value| hook["admissionReviewVersions"] = versions;
    let older = takes(json!(["v2", "v1beta1", "v1"]));
    let (chain, _) = hooks.chain(
        &[hooks.hook("a.test.io", "/label/a", takes(json!(["v1beta1"]))), hooks.hook("b.test.io", "/label/b", older)],
        &[
            hooks.hook("c.test.io", "/deny", takes(json!(["v1beta1"]))),
            hooks.hook("d.test.io", "/allow", takes(json!(["v2", "v1"]))),
        ],
    );
    let mutated = chain.mutate(&create(), object()).await.unwrap();
    assert_eq!(mutated["metadata"]["labels"], json!({"a": "set", "b": "set"}));
    let refused = chain.validate(&create()).await.unwrap_err();
    assert_eq!(refused.to_string(), "admission webhook \"c.test.io\" denied the request: no");
    let versions = hooks.seen.versions.lock().unwrap().clone();
    let [beta, v1] = ["admission.k8s.io/v1beta1", "admission.k8s.io/v1"];
    let expected = [("/label/a", beta), ("/label/b", beta), ("/deny", beta), ("/allow", v1)];
    assert_eq!(versions, expected.map(|(path, version)| (path.to_owned(), version.to_owned())).into());
}

#[tokio::test]
async fn a_webhook_that_asks_for_it_is_asked_again_once_after_a_later_change() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let again = |hook: &mut Value| hook["reinvocationPolicy"] = json!("IfNeeded");
    let (chain, _) = hooks.chain(
        &[
            hooks.hook("a.test.io", "/label/a", again),
            hooks.hook("b.test.io", "/label/b", |_| {}),
            hooks.hook("c.test.io", "/label/c", again),
        ],
        &[],
    );
    chain.mutate(&create(), object()).await.unwrap();
    let first_round = ["/label/a?timeout=10s", "/label/b?timeout=10s", "/label/c?timeout=10s"];
    assert_eq!(hooks.seen.paths(), [first_round.as_slice(), &["/label/a?timeout=10s"]].concat());
    let quiet = json!({"apiVersion": "v1", "kind": "K", "metadata": {"labels": {"a": "", "b": "", "c": ""}}});
    chain.mutate(&create(), quiet).await.unwrap();
    assert_eq!(hooks.seen.paths().len(), 7, "nobody is asked again when nothing changed");
}

#[tokio::test]
async fn http1_webhooks_work_and_their_connection_is_kept() {
    let hooks = Hooks::start(&[ALPN_H1]).await;
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/allow", |_| {}), hooks.hook("b.test.io", "/allow", |_| {})], &[]);
    for _ in 0..3 {
        chain.mutate(&create(), object()).await.unwrap();
    }
    assert_eq!((hooks.seen.paths().len(), hooks.seen.connections.load(Ordering::SeqCst)), (6, 1));
}

#[tokio::test]
async fn a_denial_carries_the_webhooks_words_code_and_reason() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, _) = hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", |_| {})]);
    let refused = chain.validate(&create()).await.unwrap_err();
    assert_eq!(
        status::status(&refused),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "admission webhook \"a.test.io\" denied the request: no"
        })
    );
    let (chain, _) = hooks.chain(&[hooks.hook("a.test.io", "/deny-as-success", |_| {})], &[]);
    let refused = chain.mutate(&create(), object()).await.unwrap_err();
    assert_eq!(status::code(&refused), 400);
    assert_eq!(refused.to_string(), "admission webhook \"a.test.io\" denied the request without explanation");
}

#[tokio::test]
async fn of_several_refusals_the_first_by_order_is_the_answer_and_all_are_asked_at_once() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let late: Vec<Value> =
        (0..TOGETHER).map(|number| hooks.hook(&format!("late{number}.test.io"), "/deny-late", |_| {})).collect();
    let (chain, _) = hooks.chain(&[], &[late, vec![hooks.hook("quick.test.io", "/deny", |_| {})]].concat());
    // They answer only when all of them were asked; one after the other they would run into their timeouts.
    let refused = chain.validate(&create()).await.unwrap_err();
    assert_eq!(refused.to_string(), "admission webhook \"late0.test.io\" denied the request: late");
}

#[tokio::test]
async fn warnings_reach_the_client_and_annotations_the_audit() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, _) = hooks.chain(&[], &[hooks.hook("a.test.io", "/warn", |_| {})]);
    let asked = create();
    chain.validate(&asked).await.unwrap();
    assert_eq!(asked.warnings.bounded(), ["mind the gap"]);
    assert_eq!(asked.annotations.snapshot()["a.test.io/k"], "v");
}

#[tokio::test]
async fn whatever_goes_wrong_fails_the_request_under_fail_and_is_noted_under_ignore() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    // What answers wrongly has all the time there is; one second is for what never answers.
    let seconds = |path: &str| if path == "/hang" { 1 } else { 30 };
    let url = |path: &str| format!("https://{}{path}?timeout={}s", hooks.address, seconds(path));
    let call = |path: &str, reason: &str| format!("failed to call webhook: Post \"{}\": {reason}", url(path));
    let table = [
        ("/hang", call("/hang", "context deadline exceeded")),
        ("/error", call("/error", "the webhook answered 500 Internal Server Error")),
        ("/redirect", call("/redirect", "the webhook answered 302 Found")),
        ("/huge", call("/huge", "the answer is larger than 8388608 bytes")),
        ("/garbage", "the answer is no AdmissionReview: expected value at line 1 column 1".to_owned()),
    ];
    let hook = |path: &'static str, policy: &str| {
        hooks.hook("a.test.io", path, |hook| {
            hook["timeoutSeconds"] = json!(seconds(path));
            hook["failurePolicy"] = json!(policy);
        })
    };
    for (path, reason) in table {
        let (chain, _) = hooks.chain(&[hook(path, "Fail")], &[hook(path, "Fail")]);
        let expected = Error::Internal(format!("failed calling webhook \"a.test.io\": {reason}"));
        assert_eq!(chain.mutate(&create(), object()).await, Err(expected.clone()));
        assert_eq!(chain.validate(&create()).await, Err(expected));
        let (chain, _) = hooks.chain(&[hook(path, "Ignore")], &[hook(path, "Ignore")]);
        let asked = create();
        assert_eq!(chain.mutate(&asked, object()).await, Ok(object()));
        assert_eq!(chain.validate(&asked).await, Ok(()));
        let notes = asked.annotations.snapshot();
        assert_eq!(notes["failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"], "a.test.io");
        assert_eq!(notes["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"], "a.test.io");
    }
    let (chain, _) = hooks.chain(&[hook("/wrong-uid", "Fail")], &[]);
    let refused = chain.mutate(&create(), object()).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook \"a.test.io\": expected response.uid="), "{refused}");
    assert_eq!((status::code(&refused), status::reason(&refused).as_str()), (500, "InternalError"));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_or_believed_is_a_failed_call() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    // Nobody listens there, and as it is held, no other process comes to.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.83.3.1:0".parse().unwrap()).unwrap();
    let closed = held.local_addr().unwrap();
    let nobody =
        hooks.hook("a.test.io", "/allow", |hook| hook["clientConfig"]["url"] = json!(format!("https://{closed}/")));
    // Somebody listens and never answers the handshake.
    let silent = TcpListener::bind("127.83.3.1:0").await.unwrap();
    let mute = hooks.hook("a.test.io", "/allow", |hook| {
        hook["clientConfig"]["url"] = json!(format!("https://{}/", silent.local_addr().unwrap()));
        hook["timeoutSeconds"] = json!(1);
    });
    let other = Authority::create("webhooks").unwrap();
    let foreign = hooks.hook("a.test.io", "/allow", |hook| {
        hook["clientConfig"]["caBundle"] = json!(BASE64_STANDARD.encode(other.certificate_pem()));
    });
    let distrustful = hooks.hook("a.test.io", "/allow", |hook| hook["clientConfig"]["caBundle"] = json!(""));
    let table = [
        (nobody, "Connection refused"),
        (mute, "context deadline exceeded"),
        (foreign, "invalid peer certificate"),
        (distrustful, "clientConfig.caBundle: there is none"),
    ];
    for (hook, reason) in table {
        let (chain, _) = hooks.chain(&[hook], &[]);
        let refused = chain.mutate(&create(), object()).await.unwrap_err().to_string();
        let head = "Internal error occurred: failed calling webhook \"a.test.io\": ";
        assert!(refused.starts_with(head) && refused.contains(reason), "{refused}");
    }
    assert_eq!(hooks.seen.paths(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_patch_that_cannot_be_applied_is_an_error_even_under_ignore() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    for path in ["/bad-patch", "/steal-kind"] {
        let hook = hooks.hook("a.test.io", path, |hook| hook["failurePolicy"] = json!("Ignore"));
        let (chain, _) = hooks.chain(&[hook], &[]);
        let refused = chain.mutate(&create(), object()).await.unwrap_err();
        assert_eq!(status::code(&refused), 500, "{refused}");
    }
}

#[tokio::test]
async fn a_deletion_can_be_refused_and_not_rewritten() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let mut asked = attributes(Operation::Delete, Some("n"));
    asked.object = None;
    asked.old_object = Some(Arc::new(object()));
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/label/a", |_| {})], &[hooks.hook("b.test.io", "/deny", |_| {})]);
    let refused = chain.mutate(&asked, Value::Null).await.unwrap_err();
    let message = "Internal error occurred: admission webhook \"a.test.io\" attempted to modify the object, \
                   which is not supported for this operation";
    assert_eq!(refused.to_string(), message);
    assert!(chain.validate(&asked).await.is_err());
    let reviews = hooks.seen.reviews.lock().unwrap().clone();
    assert_eq!((&reviews[1].1["object"], &reviews[1].1["oldObject"]), (&Value::Null, &object()));
}

#[tokio::test]
async fn webhooks_with_side_effects_are_not_asked_in_a_dry_run() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let old = |hook: &mut Value| hook["sideEffects"] = json!("Some");
    let (chain, _) = hooks.chain(&[hooks.hook("a.test.io", "/allow", old)], &[]);
    let mut asked = create();
    asked.dry_run = true;
    let refused = chain.mutate(&asked, object()).await.unwrap_err();
    assert_eq!(refused, Error::bad_request("admission webhook \"a.test.io\" does not support dry run"));
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/allow", |hook| hook["sideEffects"] = json!("NoneOnDryRun"))], &[]);
    chain.mutate(&asked, object()).await.unwrap();
    assert_eq!(hooks.seen.reviews.lock().unwrap()[0].1["dryRun"], json!(true));
    assert!(asked.annotations.snapshot().contains_key("dryRun"));
}

#[tokio::test]
async fn webhooks_of_other_namespaces_are_left_alone() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let selective = |hook: &mut Value| hook["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
    let (chain, world) = hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", selective)]);
    chain.validate(&create()).await.unwrap();
    let labels = [("team".to_owned(), "a".to_owned())].into();
    world.namespaces.lock().unwrap().insert("n".to_owned(), Namespace { labels, ..Namespace::default() });
    assert!(chain.validate(&create()).await.is_err(), "labels are read at every request");
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_is_absent_or_on_its_way_out() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, world) = hooks.chain(&[hooks.hook("a.test.io", "/allow", |_| {})], &[]);
    let absent = attributes(Operation::Create, Some("gone"));
    let refused = chain.mutate(&absent, object()).await.unwrap_err();
    assert_eq!(refused, Error::NotFound { resource: Qualified::new("", "namespaces"), name: "gone".to_owned() });
    world.namespaces.lock().unwrap().insert("n".to_owned(), Namespace { is_terminating: true, ..Namespace::default() });
    let refused = chain.mutate(&create(), object()).await.unwrap_err();
    let message = "redisclusters.redis.kun.io \"orders\" is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!(
        status::status(&refused),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": message,
            "details": {"name": "orders", "group": "redis.kun.io", "kind": "redisclusters", "causes": [{
                "reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace"
            }]}
        })
    );
    assert_eq!(hooks.seen.paths(), [] as [&str; 0], "no webhook is asked about what cannot be");
    for operation in [Operation::Update, Operation::Delete] {
        let asked = attributes(operation, Some("n"));
        let object = if operation == Operation::Delete { Value::Null } else { object() };
        chain.mutate(&asked, object).await.unwrap();
    }
}

#[tokio::test]
async fn the_first_namespaces_cannot_be_deleted() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, _) = hooks.chain(&[], &[]);
    let delete = |name: &str| {
        let mut asked = attributes(Operation::Delete, None);
        (asked.resource.group, asked.resource.name, asked.name) =
            (String::new(), "namespaces".to_owned(), name.to_owned());
        asked
    };
    let refused = chain.mutate(&delete("default"), Value::Null).await.unwrap_err();
    assert_eq!(refused.to_string(), "namespaces \"default\" is forbidden: this namespace may not be deleted");
    chain.mutate(&delete("mine"), Value::Null).await.unwrap();
}

#[tokio::test]
async fn webhooks_are_never_asked_about_webhooks_and_bad_ones_are_refused_when_written() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let deny = hooks.hook("a.test.io", "/deny", |_| {});
    let (chain, _) = hooks.chain(std::slice::from_ref(&deny), std::slice::from_ref(&deny));
    let write = |webhook: Value| {
        let mut asked = attributes(Operation::Create, None);
        asked.resource.group = "admissionregistration.k8s.io".to_owned();
        asked.resource.name = "validatingwebhookconfigurations".to_owned();
        asked.kind.group = asked.resource.group.clone();
        asked.kind.name = "ValidatingWebhookConfiguration".to_owned();
        asked.name = "mine".to_owned();
        asked.object = Some(Arc::new(json!({"metadata": {"name": "mine"}, "webhooks": [webhook]})));
        asked
    };
    let good = write(deny.clone());
    chain.mutate(&good, object()).await.unwrap();
    chain.validate(&good).await.unwrap();
    let mut bad = deny;
    bad["matchConditions"] = json!([{"name": "x", "expression": "objct.spec == 1"}]);
    let refused = chain.validate(&write(bad)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"mine\" is invalid: \
         webhooks[0].matchConditions[0].expression: Invalid value: \"objct.spec == 1\": compilation failed: \
         ERROR: <input>:1:1: undeclared reference to 'objct' (in container '')\n | objct.spec == 1\n | ^"
    );
    assert_eq!(hooks.seen.paths(), [] as [&str; 0]);
}

fn conditional(expressions: &[&str], policy: &str) -> impl FnOnce(&mut Value) {
    let condition = |(index, text): (usize, &&str)| json!({"name": format!("c{index}"), "expression": text});
    let conditions: Vec<Value> = expressions.iter().enumerate().map(condition).collect();
    let policy = policy.to_owned();
    move |hook| {
        hook["matchConditions"] = json!(conditions);
        hook["failurePolicy"] = json!(policy);
    }
}

#[tokio::test]
async fn a_webhook_is_asked_only_about_what_all_its_conditions_hold_for() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    // (conditions, whether it is asked)
    let table: [(&[&str], bool); 6] = [
        (&["true", "object.metadata.name == 'orders'"], true),
        (&["object.metadata.name == 'other'"], false),
        (&["request.operation == 'CREATE' && request.userInfo.username == 'jane'"], true),
        (&["oldObject == null && request.resource.resource == 'redisclusters' && !request.dryRun"], true),
        (&["object.spec.absent == 1", "false"], false),
        (&["namespaceObject == null"], true),
    ];
    for (expressions, is_asked) in table {
        let (chain, _) = hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", conditional(expressions, "Fail"))]);
        assert_eq!(chain.validate(&create()).await.is_err(), is_asked, "{expressions:?}");
        let (chain, _) = hooks.chain(&[hooks.hook("a.test.io", "/label/a", conditional(expressions, "Fail"))], &[]);
        let mutated = chain.mutate(&create(), object()).await.unwrap();
        assert_eq!(mutated != object(), is_asked, "{expressions:?}");
    }
}

#[tokio::test]
async fn conditions_see_what_the_webhook_before_made_of_the_object() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let labelled = conditional(&["has(object.metadata.labels.a)"], "Fail");
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/label/a", |_| {}), hooks.hook("b.test.io", "/label/b", labelled)], &[]);
    let mutated = chain.mutate(&create(), object()).await.unwrap();
    assert_eq!(mutated["metadata"]["labels"], json!({"a": "set", "b": "set"}));
}

#[tokio::test]
async fn conditions_that_cannot_be_told_fail_the_request_or_leave_the_webhook_out() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let broken: &[&str] = &["object.spec.absent == 1", "true"];
    let (chain, _) = hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", conditional(broken, "Fail"))]);
    let refused = chain.validate(&create()).await.unwrap_err();
    assert_eq!((status::code(&refused), status::reason(&refused).as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.to_string(),
        "redisclusters.redis.kun.io \"orders\" is forbidden: expression 'object.spec.absent == 1' resulted in error: no such key: spec"
    );
    let (chain, _) = hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", conditional(broken, "Ignore"))]);
    chain.validate(&create()).await.unwrap();
    assert_eq!(hooks.seen.paths(), [] as [&str; 0]);
    let text = hooks.metrics();
    for counted in [
        "apiserver_admission_match_condition_evaluation_errors_total{name=\"a.test.io\",kind=\"webhook\"} 1",
        "apiserver_admission_ignored_errors_total{name=\"a.test.io\",kind=\"webhook\"} 1",
    ] {
        assert!(text.contains(counted), "{text}");
    }
}

#[tokio::test]
async fn conditions_may_ask_what_the_user_may_do() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let breaks_glass =
        "authorizer.group('redis.kun.io').resource('redisclusters').namespace('n').check('delete').allowed()";
    let own = "!authorizer.requestResource.check('update').allowed()";
    let unknown = "!authorizer.requestResource.check('fly').allowed()";
    let rules = vec![Rule::Resources {
        verbs: &[Verb::Delete],
        group: "redis.kun.io",
        resource: "redisclusters",
        subresource: None,
    }];
    let rights = StaticAuthorizer::new(vec![Binding { subject: Subject::User("jane"), rules }]);
    let (chain, _) =
        hooks.chain(&[], &[hooks.hook("a.test.io", "/deny", conditional(&[breaks_glass, own, unknown], "Fail"))]);
    let chain = chain.with_authorizer(Arc::new(rights));
    assert!(chain.validate(&create()).await.unwrap_err().to_string().contains("denied the request"));
    let mut other = create();
    other.user.name = "joe".to_owned();
    chain.validate(&other).await.unwrap();
}
