//! Webhooks whose rules name another version of a resource than the request's.

use std::sync::Arc;

use apiserver::admission::{Admission, Aspect, Attributes, Operation};
use apiserver::object::name::NameRule;
use apiserver::registry::{Conversion, Kind, Names, Registry, Scope};
use apiserver::resource::Strategy;
use certs::ALPN_H2;
use serde_json::{Map, Value, json};

use crate::hooks::{Hooks, attributes};

struct Rules;

impl Strategy for Rules {
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }
}

/// `spec.shards` of v1 is `spec.size` of v0.
struct Shards;

impl Conversion for Shards {
    fn keep(&self, object: &mut Map<String, Value>) {
        rename(object, "size", "shards");
    }

    fn show(&self, object: &mut Map<String, Value>) {
        rename(object, "shards", "size");
    }
}

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(value) = spec.remove(from) {
        spec.insert(to.to_owned(), value);
    }
}

fn kind(version: &'static str, conversion: Option<Arc<dyn Conversion>>) -> Kind {
    let (group, kind, plural, singular) = ("redis.kun.io", "RedisCluster", "redisclusters", "rediscluster");
    let names = Names { group, version, kind, plural, singular, short_names: &[] };
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Kind { conversion, ..Kind::new(names, Scope::Namespaced, open, Arc::new(Rules)).unwrap() }
}

/// An update of a v1 object whose resource is served in v0, too.
fn update() -> Attributes {
    let registry = Registry::new(vec![kind("v1", None), kind("v0", Some(Arc::new(Shards)))]);
    let versions = registry.find("redis.kun.io", "v1", "redisclusters").unwrap().versions.clone();
    Attributes {
        aspect: Aspect { versions, is_own: true, requested: None },
        old_object: Some(Arc::new(object(3))),
        object: Some(Arc::new(object(4))),
        ..attributes(Operation::Update, Some("n"))
    }
}

fn object(shards: u8) -> Value {
    json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders", "labels": {}},
        "spec": {"shards": shards}})
}

fn about_v0(hook: &mut Value) {
    hook["rules"][0]["apiVersions"] = json!(["v0"]);
}

#[tokio::test]
async fn a_webhook_about_another_version_is_asked_in_that_version_and_its_patch_counts_in_the_requests() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/label/a", about_v0)], &[hooks.hook("b.test.io", "/allow", about_v0)]);
    let asked = update();
    let mutated = chain.mutate(&asked, object(4)).await.unwrap();
    let mut expected = object(4);
    expected["metadata"]["labels"] = json!({"a": "set"});
    assert_eq!(mutated, expected);
    chain.validate(&asked).await.unwrap();
    let reviews = hooks.seen.reviews.lock().unwrap().clone();
    assert_eq!(reviews.len(), 2);
    for (path, review) in reviews {
        let version = |field: &str| review[field]["version"].clone();
        let versions = ["kind", "resource", "requestKind", "requestResource"].map(version);
        assert_eq!(versions, ["v0", "v0", "v1", "v1"].map(|version| json!(version)), "{path}");
        for (field, size) in [("object", 4), ("oldObject", 3)] {
            let shown = (&review[field]["apiVersion"], &review[field]["spec"]);
            assert_eq!(shown, (&json!("redis.kun.io/v0"), &json!({"size": size})), "{path} {field}");
        }
    }
}

#[tokio::test]
async fn a_webhook_that_wants_exactly_its_version_is_not_asked_about_another() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let exact = |hook: &mut Value| {
        about_v0(hook);
        hook["matchPolicy"] = json!("Exact");
    };
    let (chain, _) =
        hooks.chain(&[hooks.hook("a.test.io", "/deny", exact)], &[hooks.hook("b.test.io", "/deny", exact)]);
    let asked = update();
    assert_eq!(chain.mutate(&asked, object(4)).await.unwrap(), object(4));
    chain.validate(&asked).await.unwrap();
    assert_eq!(hooks.seen.paths(), Vec::<String>::new());
}
