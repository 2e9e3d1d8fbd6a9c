#![allow(clippy::unwrap_used)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::*;

fn pod(name: &str, uid: &str, version: u32) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            labels: Some([(names::LABEL_CLUSTER.to_owned(), "orders".to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}
fn key() -> Key {
    Key { namespace: "ns".to_owned(), name: "orders".to_owned() }
}
fn take_in(cache: &Cache<Pod>, event: Event<Pod>) -> Vec<Key> {
    cache.take_in(event, |_| true)
}
fn held(cache: &Cache<Pod>, name: &str) -> Option<String> {
    cache.get(&key(), name).and_then(|pod| pod.metadata.resource_version.clone())
}

#[test]
fn an_older_version_never_replaces_our_own_newer_write() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    take_in(&cache, Event::Apply(pod("a", "u1", 9)));
    assert_eq!(held(&cache, "a").as_deref(), Some("10"));
    take_in(&cache, Event::Apply(pod("a", "u2", 3)));
    assert_eq!(held(&cache, "a").as_deref(), Some("3"));
}

#[test]
fn an_answer_that_comes_after_the_word_that_its_object_is_gone_brings_it_not_back() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    take_in(&cache, Event::Delete(pod("a", "u1", 12)));
    assert_eq!(cache.put(pod("a", "u1", 11)), Some(key()));
    assert_eq!(held(&cache, "a"), None);
    cache.put(pod("a", "u2", 13));
    assert_eq!(held(&cache, "a").as_deref(), Some("13"), "its successor is another object");
    // A store that was put back may have it again.
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("a", "u1", 5)));
    take_in(&cache, Event::InitDone);
    cache.put(pod("a", "u1", 6));
    assert_eq!(held(&cache, "a").as_deref(), Some("6"));
}

#[test]
fn what_is_known_is_not_read_again_unless_something_else_is_held() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    let known = cache.get(&key(), "a").unwrap();
    let again = cache.get_or_known(&key(), "a", Some(&known)).unwrap();
    assert!(Arc::ptr_eq(&known, &again));
    cache.put(pod("a", "u1", 11));
    let newer = cache.get_or_known(&key(), "a", Some(&known)).unwrap();
    assert_eq!(newer.metadata.resource_version.as_deref(), Some("11"));
    cache.put(pod("a", "u2", 11));
    let other = cache.get_or_known(&key(), "a", Some(&newer)).unwrap();
    assert_eq!(other.metadata.uid.as_deref(), Some("u2"));
    assert!(cache.get_or_known(&key(), "b", Some(&known)).is_none());
}

#[test]
fn a_late_deletion_of_a_predecessor_does_not_remove_its_successor() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u2", 20));
    take_in(&cache, Event::Delete(pod("a", "u1", 19)));
    assert_eq!(held(&cache, "a").as_deref(), Some("20"));
    assert_eq!(take_in(&cache, Event::Delete(pod("a", "u2", 21))), [key()]);
    assert!(cache.keys().is_empty());
}

#[test]
fn a_complete_state_removes_what_it_lacks_and_wakes_everything() {
    let cache = Cache::<Pod>::default();
    assert!(!cache.complete());
    cache.put(pod("a", "u1", 10));
    cache.put(pod("b", "u3", 30));
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("b", "u3", 31)));
    assert_eq!(take_in(&cache, Event::InitDone), [key(), key()]);
    assert!(cache.complete());
    assert_eq!(held(&cache, "a"), None);
    assert_eq!(held(&cache, "b").as_deref(), Some("31"));
}

#[test]
fn a_list_of_a_store_that_went_back_is_believed() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("written", "u1", 50));
    take_in(&cache, Event::Apply(pod("watched", "u2", 60)));
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("written", "u1", 10)));
    take_in(&cache, Event::InitApply(pod("watched", "u2", 20)));
    take_in(&cache, Event::InitDone);
    assert_eq!(held(&cache, "written").as_deref(), Some("10"));
    assert_eq!(held(&cache, "watched").as_deref(), Some("20"));
    // And what happens in that store afterwards is taken in.
    take_in(&cache, Event::Apply(pod("watched", "u2", 21)));
    assert_eq!(held(&cache, "watched").as_deref(), Some("21"));
}

#[test]
fn our_own_write_while_a_list_is_under_way_is_not_lost_to_it() {
    let cache = Cache::<Pod>::default();
    for name in ["a", "gone"] {
        cache.put(pod(name, "u1", 10));
    }
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("a", "u1", 10)));
    cache.put(pod("a", "u1", 11));
    cache.put(pod("gone", "u1", 12));
    assert_eq!(held(&cache, "a").as_deref(), Some("11"), "it is visible at once");
    take_in(&cache, Event::InitApply(pod("b", "u2", 9)));
    take_in(&cache, Event::InitDone);
    assert_eq!(held(&cache, "a").as_deref(), Some("11"));
    assert_eq!(held(&cache, "gone"), None, "what a complete state lacks is gone; if not, the watch will say so");
    // The next list is asked for after that write, and knows of it.
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("a", "u1", 7)));
    take_in(&cache, Event::InitDone);
    assert_eq!(held(&cache, "a").as_deref(), Some("7"));
}

#[test]
fn a_list_that_was_given_up_leaves_what_was_known() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("b", "u2", 20)));
    cache.put(pod("a", "u1", 11));
    take_in(&cache, Event::Init);
    take_in(&cache, Event::InitApply(pod("a", "u1", 5)));
    take_in(&cache, Event::InitDone);
    assert_eq!((held(&cache, "a").as_deref(), held(&cache, "b")), (Some("5"), None));
}

fn cluster(name: &str) -> RedisCluster {
    let metadata = json!({"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
}

/// What a tenant can make, with our labels, so many bytes of text that cannot be deflated, and as many of annotations.
fn config_map(name: &str, cluster: &str, bytes: usize) -> ConfigMap {
    let mut random = 1_u64;
    let mut noise = || -> String {
        let next = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b' ' + u8::try_from((random >> 58) % 64).unwrap())
        };
        (0..bytes).map(next).collect()
    };
    let labels = json!({"app.kubernetes.io/managed-by": "kun", "redis.kun.io/cluster": cluster});
    let annotations = json!({"redis.kun.io/owner-uid": "u", "note": noise()});
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "data": {"agent.json": noise(), "more": noise()}})).unwrap()
}

fn bytes_kept(caches: &Caches) -> usize {
    let inner = caches.config_maps.read();
    inner.objects.values().flat_map(BTreeMap::values).map(Kept::bytes).sum()
}

/// Before, a thousand of a mebibyte each ended the controller.
#[test]
fn what_strangers_give_our_labels_costs_a_few_hundred_bytes_each() {
    let caches = Caches::default();
    caches.take_in(Event::Apply(cluster("orders")));
    for number in 0..100 {
        // Of a cluster that there is, by another name; and by the right name, of one that there is not.
        caches.take_in(Event::Apply(config_map(&format!("orders-{number}"), "orders", 20_000)));
        caches.take_in(Event::Apply(config_map(&format!("c{number}-config"), &format!("c{number}"), 20_000)));
    }
    let kept = bytes_kept(&caches);
    assert!(kept < 200 * 400, "{kept} bytes of {}", 200 * 60_000);
    let stranger = caches.config_maps.get(&key(), "orders-7").unwrap();
    let meta = &stranger.metadata;
    let owner = meta.annotations.as_ref().unwrap().get(names::ANNOTATION_OWNER_UID).map(String::as_str);
    assert_eq!(
        (meta.uid.as_deref(), meta.resource_version.as_deref(), owner),
        (Some("orders-7"), Some("1"), Some("u"))
    );
    // Its own is kept with what is read of it, and no more than that may be long.
    caches.take_in(Event::Apply(config_map("orders-config", "orders", 20_000)));
    let own = caches.config_maps.get(&key(), "orders-config").unwrap();
    let names: Vec<_> = own.data.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!((names, own.metadata.annotations.as_ref().unwrap().len()), (vec!["agent.json"], 1));
    assert_eq!(caches.config_maps.stripped(&key()), Vec::<String>::new());
    caches.take_in(Event::Apply(config_map("orders-config", "orders", 100_000)));
    assert!(bytes_kept(&caches) < kept + 400, "{}", bytes_kept(&caches));
}

#[test]
fn what_was_there_before_its_cluster_is_known_to_be_read_again() {
    let caches = Caches::default();
    for name in ["orders-config", "orders-x"] {
        caches.take_in(Event::Apply(config_map(name, "orders", 10)));
    }
    caches.take_in(Event::Apply(cluster("orders")));
    assert_eq!(caches.config_maps.stripped(&key()), ["orders-config"]);
    caches.config_maps.put(config_map("orders-config", "orders", 10));
    assert_eq!(caches.config_maps.stripped(&key()), Vec::<String>::new());
    assert!(caches.config_maps.get(&key(), "orders-config").unwrap().data.is_some());
}
