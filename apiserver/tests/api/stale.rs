//! What is stored in an old way: written by the next change, also by one that changes nothing, and only then.

use std::sync::Arc;

use serde_json::{Value, json};
use store::seal::{Keyring, Method, Pattern, Provider, Rule, SealKey};
use store::{DEFAULT_PREFIX, Memory, Sealed, Seals};

use crate::clock::until;
use crate::support::{Api, CLUSTERS, Reply, cluster};

const ORDERS: &str = "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders";

fn ring(names: &[&str]) -> Keyring {
    let key = |name: &&str| SealKey::new(Method::AesGcm, name, &[name.as_bytes()[0]; 32]).unwrap();
    let providers = vec![Provider::Keys(Method::AesGcm, names.iter().map(key).collect())];
    Keyring::new(vec![Rule { resources: vec![Pattern::All], providers }])
}

/// A server whose objects can be made stale.
struct Rotating {
    api: Api,
    seals: Arc<Seals>,
}

impl Rotating {
    async fn start() -> Self {
        let seals = Seals::new(ring(&["a", "b"]), DEFAULT_PREFIX);
        let api = Api::replica(Arc::new(Sealed::new(Arc::new(Memory::default()), Arc::clone(&seals)))).await;
        assert_eq!(api.post(CLUSTERS, &cluster("orders")).await.code, 201);
        Self { api, seals }
    }

    /// Makes everything stale, and waits until it is seen.
    async fn turn(&self) -> Value {
        let before = self.api.get(ORDERS).await.ok();
        self.seals.exchange(ring(&["b", "a"]));
        let resource = self.api.storage.cache().resource("redis.kun.io/redisclusters").unwrap();
        let key = store::Key::new("redis.kun.io/redisclusters", Some("shop"), "orders").unwrap();
        until("it became stale", || resource.get(&key).unwrap().is_some_and(|object| object.is_stale())).await;
        before
    }
}

/// The same but for its version, which is a later one.
#[track_caller]
fn assert_rewritten(before: &Value, reply: Reply) {
    let later = reply.version();
    let mut after = reply.ok();
    assert!(later > before["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(&after, before);
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_what_is_stale_once() {
    let rotating = Rotating::start().await;
    let before = rotating.turn().await;
    assert_rewritten(&before, rotating.api.put(ORDERS, &before).await);
    let fresh = rotating.api.get(ORDERS).await.ok();
    assert_eq!(rotating.api.put(ORDERS, &fresh).await.ok(), fresh, "what is not stale any more is left alone");
}

#[tokio::test]
async fn so_does_a_patch_and_a_status() {
    for path in [ORDERS.to_owned(), format!("{ORDERS}/status")] {
        let rotating = Rotating::start().await;
        let before = rotating.turn().await;
        assert_rewritten(&before, rotating.api.merge(&path, &json!({})).await);
    }
}

#[tokio::test]
async fn so_does_an_apply() {
    let rotating = Rotating::start().await;
    let apply = || async {
        let body = json!({"apiVersion": "redis.kun.io/v1", "kind": "RedisCluster", "metadata": {"name": "orders"}});
        let call = rotating.api.call("PATCH", &format!("{ORDERS}?fieldManager=a"));
        call.header("content-type", "application/apply-patch+yaml").body(body.to_string()).send().await
    };
    apply().await.ok();
    let before = rotating.turn().await;
    assert_rewritten(&before, apply().await);
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let rotating = Rotating::start().await;
    let before = rotating.turn().await;
    assert_eq!(rotating.api.put(&format!("{ORDERS}?dryRun=All"), &before).await.ok(), before);
    assert_eq!(rotating.api.get(ORDERS).await.ok(), before);
}
