//! Requests that are almost right, through the whole server: each is answered soon, none by a 500, and every refusal is a
//! Status that says what was wrong.

use apiserver::error::Error;
use apiserver::object::selector::{Fields, Selector};
use apiserver::verb::token::Token;
use apiserver::wire::yaml;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use store::Key;
use types::quantity::Quantity;

use crate::mutate::{cases, near, soon};
use crate::support::{Api, CLUSTERS, Reply, registry};

const LABELS: &[&str] =
    &["app=shop,tier in (web, db),!old", "kun.io/name notin (a,b),x!=y", "count>3,count<10", "a==b", "in in (in)"];
const FIELDS: &[&str] = &["metadata.name=a", "metadata.name!=a,metadata.namespace==b", r"metadata.name=a\,b\=c\\"];
const QUANTITIES: &[&str] = &["1.5Gi", "100m", "-3e6", "12E", "0.000000001", "9223372036854775807", "+1Ki", "1n"];
const TOKENS: &[&str] = &[
    r#"{"v":"meta.k8s.io/v1","rv":7,"start":"shop/orders\u0000","served":500}"#,
    r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"orders\u0000"}"#,
];
const BODIES: &[&str] = &[
    r#"{"apiVersion":"redis.kun.io/v1","kind":"RedisCluster","metadata":{"name":"fuzzed","labels":{"a":"b"},"finalizers":["kun.io/x"]},"spec":{"shards":3,"replicasPerShard":1}}"#,
    "apiVersion: redis.kun.io/v1\nkind: RedisCluster\nmetadata:\n  name: fuzzed\n  labels: {a: &x b, c: *x}\nspec:\n  shards: 3\n",
];
const PATCHES: &[&str] = &[
    r#"[{"op":"replace","path":"/spec/shards","value":5},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#,
    r#"{"metadata":{"labels":{"a":null,"b":"c"},"resourceVersion":"1"},"spec":{"shards":5}}"#,
    r#"{"metadata":{"finalizers":["kun.io/x"],"$deleteFromPrimitiveList/finalizers":["kun.io/y"]},"spec":{"$retainKeys":["shards"],"shards":4}}"#,
    r#"{"apiVersion":"redis.kun.io/v1","kind":"RedisCluster","metadata":{"name":"orders","managedFields":null},"spec":{"shards":3}}"#,
];
const QUERIES: &[&str] = &[
    "limit=2&continue=eyJ2Ijoi&resourceVersion=1&resourceVersionMatch=Exact",
    "labelSelector=a%3Db&fieldSelector=metadata.name%3Dorders&timeoutSeconds=1",
    "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    "fieldManager=me&force=true&dryRun=All&fieldValidation=Strict&pretty=1",
];

/// How many requests each of these tests sends; `KUN_SOAK` multiplies them.
const REQUESTS: u32 = 120;

fn texts(seeds: &'static [&'static str]) -> impl Iterator<Item = String> {
    let mut runner = TestRunner::deterministic();
    let count = cases(REQUESTS).cases;
    (0..count).map(move |_| near(seeds).new_tree(&mut runner).unwrap().current())
}

/// An answer is a success, or a Status that says what is wrong.
fn judge(request: &str, reply: &Reply) {
    if reply.code < 400 {
        return;
    }
    let (code, reason, message) = reply.fault();
    // Kubernetes has no reason of its own for an apply that does not fit the schema: it says 500 and which field.
    let does_not_fit = code == 500 && message.starts_with("failed to create typed patch object (");
    let is_refusal = code < 500 || code == 504;
    assert!(does_not_fit || (is_refusal && !reason.is_empty()), "{request}\n{code} {reason}: {message}");
    assert!(code == reply.code && !message.is_empty(), "{request}");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_almost_objects_are_created_or_refused() {
    let api = Api::guarded().await;
    let mut created = 0;
    for body in texts(BODIES) {
        for kind in ["application/json", "application/yaml"] {
            let reply = api.call("POST", CLUSTERS).header("content-type", kind).body(body.clone()).send().await;
            judge(&body, &reply);
            created += usize::from(reply.code == 201);
        }
    }
    assert!(created > 0);
}

#[tokio::test(start_paused = true)]
async fn patches_that_are_almost_right_are_done_or_refused_and_the_object_stays_one() {
    let api = Api::guarded().await;
    let path = format!("{CLUSTERS}/orders");
    api.cluster("orders").await;
    let mut done = [0; 4];
    for patch in texts(PATCHES) {
        let kinds = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"];
        for (n, kind) in kinds.into_iter().enumerate() {
            let uri = if n == 3 { format!("{path}?fieldManager=me&force=true") } else { path.clone() };
            let kind = format!("application/{kind}");
            let reply = api.call("PATCH", &uri).header("content-type", &kind).body(patch.clone()).send().await;
            judge(&format!("{kind} {patch}"), &reply);
            done[n] += usize::from(reply.code < 300);
            let now = api.get(&path).await;
            assert_eq!((now.code, now.json()["metadata"]["name"].as_str()), (200, Some("orders")), "{patch}");
        }
    }
    // A strategic patch is none that custom kinds take; the others are done when they are right.
    assert!(done[0] > 0 && done[1] > 0 && done[3] > 0, "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn queries_that_are_almost_right_are_answered() {
    let api = Api::guarded().await;
    api.cluster("orders").await;
    for query in texts(QUERIES) {
        let uri = format!("{CLUSTERS}?{}", query.replace(|c: char| c.is_control() || c == ' ' || !c.is_ascii(), "%00"));
        if uri.parse::<http::Uri>().is_err() {
            continue;
        }
        judge(&uri, &api.get(&uri).await);
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn selectors_are_read_or_refused_and_decide_on_anything(labels in near(LABELS), fields in near(FIELDS), value in ".{0,4}") {
        let known = Fields { known: &["metadata.name", "metadata.namespace"], is_built_in: true };
        match soon(|| Selector::parse(Some(&labels), Some(&fields), known)) {
            Ok(selector) => {
                selector.matches(|_| Some(&value), |_| Some(value.as_str()));
                selector.matches(|_| None, |_| None);
            }
            Err(error) => prop_assert!(matches!(error, Error::BadRequest(_)), "{}", error),
        }
    }

    #[test]
    fn a_quantity_that_is_read_is_written_and_read_the_same(text in near(QUANTITIES)) {
        match soon(|| Quantity::parse(&text)) {
            Ok(quantity) => {
                let written = quantity.to_string();
                prop_assert_eq!(Quantity::parse(&written).map(|again| again.to_string()), Ok(written));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_continue_token_that_is_read_is_written_and_read_the_same_and_never_leads_out_of_its_kind(text in near(TOKENS)) {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&text);
        let registry = registry();
        let kind = registry.find("redis.kun.io", "v1", "redisclusters").unwrap();
        match soon(|| Token::decode(&encoded)) {
            Ok(token) => {
                prop_assert_eq!(Token::decode(&token.encode()), Ok(token.clone()));
                for namespace in [None, Some("shop")] {
                    match token.key(kind, namespace) {
                        Ok(key) => {
                            prop_assert_eq!(key.resource(), kind.store_resource());
                            prop_assert!(namespace.is_none() || key.namespace() == namespace);
                        }
                        Err(error) => prop_assert!(matches!(error, Error::BadRequest(_))),
                    }
                }
            }
            Err(error) => prop_assert!(matches!(error, Error::BadRequest(_))),
        }
    }

    #[test]
    fn a_token_of_any_key_leads_back_to_it(namespace in "[a-z]{1,8}", name in "[a-z][a-z0-9.-]{0,20}", revision in 1..i64::MAX as u64) {
        let registry = registry();
        let kind = registry.find("redis.kun.io", "v1", "redisclusters").unwrap();
        let key = Key::new(&kind.store_resource(), Some(&namespace), &name).unwrap();
        for of in [None, Some(namespace.as_str())] {
            let token = Token::decode(&Token::after(&key, of, revision, 3).encode()).unwrap();
            prop_assert_eq!((token.key(kind, of), token.revision().map(|r| r.0)), (Ok(key.clone()), Some(revision)));
        }
    }

    #[test]
    fn yaml_is_read_or_refused(text in near(BODIES)) {
        if let Err(why) = soon(|| yaml::read(&text)) {
            prop_assert!(!why.is_empty());
        }
    }
}
