#![allow(clippy::unwrap_used)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
fn held(cache: &Cache<Pod>, name: &str) -> Option<String> {
    cache.get(&key(), name).and_then(|pod| pod.metadata.resource_version.clone())
}

#[test]
fn an_older_version_never_replaces_our_own_newer_write() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    cache.take_in(Event::Apply(pod("a", "u1", 9)));
    assert_eq!(held(&cache, "a").as_deref(), Some("10"));
    cache.take_in(Event::Apply(pod("a", "u2", 3)));
    assert_eq!(held(&cache, "a").as_deref(), Some("3"));
}

#[test]
fn an_answer_that_comes_after_the_word_that_its_object_is_gone_brings_it_not_back() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    cache.take_in(Event::Delete(pod("a", "u1", 12)));
    assert_eq!(cache.put(pod("a", "u1", 11)), Some(key()));
    assert_eq!(held(&cache, "a"), None);
    cache.put(pod("a", "u2", 13));
    assert_eq!(held(&cache, "a").as_deref(), Some("13"), "its successor is another object");
    // A store that was put back may have it again.
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("a", "u1", 5)));
    cache.take_in(Event::InitDone);
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
    cache.take_in(Event::Delete(pod("a", "u1", 19)));
    assert_eq!(held(&cache, "a").as_deref(), Some("20"));
    assert_eq!(cache.take_in(Event::Delete(pod("a", "u2", 21))), [key()]);
    assert!(cache.keys().is_empty());
}

#[test]
fn a_complete_state_removes_what_it_lacks_and_wakes_everything() {
    let cache = Cache::<Pod>::default();
    assert!(!cache.complete());
    cache.put(pod("a", "u1", 10));
    cache.put(pod("b", "u3", 30));
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("b", "u3", 31)));
    assert_eq!(cache.take_in(Event::InitDone), [key(), key()]);
    assert!(cache.complete());
    assert_eq!(held(&cache, "a"), None);
    assert_eq!(held(&cache, "b").as_deref(), Some("31"));
}

#[test]
fn a_list_of_a_store_that_went_back_is_believed() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("written", "u1", 50));
    cache.take_in(Event::Apply(pod("watched", "u2", 60)));
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("written", "u1", 10)));
    cache.take_in(Event::InitApply(pod("watched", "u2", 20)));
    cache.take_in(Event::InitDone);
    assert_eq!(held(&cache, "written").as_deref(), Some("10"));
    assert_eq!(held(&cache, "watched").as_deref(), Some("20"));
    // And what happens in that store afterwards is taken in.
    cache.take_in(Event::Apply(pod("watched", "u2", 21)));
    assert_eq!(held(&cache, "watched").as_deref(), Some("21"));
}

#[test]
fn our_own_write_while_a_list_is_under_way_is_not_lost_to_it() {
    let cache = Cache::<Pod>::default();
    for name in ["a", "gone"] {
        cache.put(pod(name, "u1", 10));
    }
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("a", "u1", 10)));
    cache.put(pod("a", "u1", 11));
    cache.put(pod("gone", "u1", 12));
    assert_eq!(held(&cache, "a").as_deref(), Some("11"), "it is visible at once");
    cache.take_in(Event::InitApply(pod("b", "u2", 9)));
    cache.take_in(Event::InitDone);
    assert_eq!(held(&cache, "a").as_deref(), Some("11"));
    assert_eq!(held(&cache, "gone"), None, "what a complete state lacks is gone; if not, the watch will say so");
    // The next list is asked for after that write, and knows of it.
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("a", "u1", 7)));
    cache.take_in(Event::InitDone);
    assert_eq!(held(&cache, "a").as_deref(), Some("7"));
}

#[test]
fn a_list_that_was_given_up_leaves_what_was_known() {
    let cache = Cache::<Pod>::default();
    cache.put(pod("a", "u1", 10));
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("b", "u2", 20)));
    cache.put(pod("a", "u1", 11));
    cache.take_in(Event::Init);
    cache.take_in(Event::InitApply(pod("a", "u1", 5)));
    cache.take_in(Event::InitDone);
    assert_eq!((held(&cache, "a").as_deref(), held(&cache, "b")), (Some("5"), None));
}
