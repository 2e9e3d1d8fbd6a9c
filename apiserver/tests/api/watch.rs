//! WATCH.

use serde_json::json;

use crate::support::{Api, CLUSTERS, cluster};

fn short(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_from_a_version_tells_what_came_after_it() {
    let api = Api::new().await;
    api.cluster("a").await;
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=2")).await;
    api.cluster("b").await;
    let patched = api.merge(&format!("{CLUSTERS}/a"), &json!({"spec": {"shards": 4}})).await.ok();
    api.delete(&format!("{CLUSTERS}/b")).await.ok();
    assert_eq!(events.next_short().await, short("ADDED", "b"));
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), &event["object"]), (Some("MODIFIED"), &patched));
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("DELETED"), Some("b")));
    assert_eq!(event["object"]["metadata"]["resourceVersion"], "5");
    assert_eq!(event["object"]["spec"]["shards"], 3);
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    for version in ["", "&resourceVersion=0"] {
        let api = Api::new().await;
        api.cluster("a").await;
        api.cluster("b").await;
        let mut events = api.watch(&format!("{CLUSTERS}?watch=1{version}")).await;
        assert_eq!(events.next_short().await, short("ADDED", "a"));
        assert_eq!(events.next_short().await, short("ADDED", "b"));
        api.delete(&format!("{CLUSTERS}/a")).await.ok();
        assert_eq!(events.next_short().await, short("DELETED", "a"));
    }
}

#[tokio::test]
async fn a_watch_list_ends_its_initial_events_with_an_annotated_bookmark() {
    let api = Api::new().await;
    api.cluster("a").await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{CLUSTERS}?{query}")).await;
    assert_eq!(events.next_short().await, short("ADDED", "a"));
    let expected = json!({"type": "BOOKMARK", "object": {"kind": "RedisCluster", "apiVersion": "redis.kun.io/v1", "metadata": {
        "resourceVersion": "2", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    assert_eq!(events.next().await, Some(expected));
    api.cluster("b").await;
    assert_eq!(events.next_short().await, short("ADDED", "b"));
}

#[tokio::test]
async fn a_watch_list_of_nothing_ends_its_initial_events_all_the_same() {
    let api = Api::new().await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0";
    let mut events = api.watch(&format!("{CLUSTERS}?{query}")).await;
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    let query = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0";
    let mut events = api.watch(&format!("{CLUSTERS}?{query}")).await;
    api.cluster("b").await;
    assert_eq!(events.next_short().await, short("ADDED", "b"));
}

#[tokio::test]
async fn watch_options_that_contradict_each_other_are_refused_before_the_stream() {
    let api = Api::new().await;
    for query in [
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        "continue=x",
    ] {
        assert_eq!(api.get(&format!("{CLUSTERS}?watch=true&{query}")).await.fault().0, 422, "{query}");
    }
    assert_eq!(api.get(&format!("{CLUSTERS}?watch=true&resourceVersion=x")).await.fault().0, 500);
    let protobuf =
        api.call("GET", &format!("{CLUSTERS}?watch=true")).accept("application/vnd.kubernetes.protobuf;stream=watch");
    assert_eq!(protobuf.send().await.fault().0, 406);
}

#[tokio::test]
async fn what_enters_a_selection_is_added_and_what_leaves_is_deleted() {
    let api = Api::new().await;
    api.cluster("a").await;
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&labelSelector=on%3Dyes")).await;
    let label = |value: serde_json::Value| json!({"metadata": {"labels": {"on": value}}});
    api.merge(&format!("{CLUSTERS}/a"), &label(json!("yes"))).await.ok();
    api.merge(&format!("{CLUSTERS}/a"), &json!({"spec": {"shards": 4}})).await.ok();
    api.merge(&format!("{CLUSTERS}/a"), &label(json!(null))).await.ok();
    api.merge(&format!("{CLUSTERS}/a"), &json!({"spec": {"shards": 5}})).await.ok();
    api.merge(&format!("{CLUSTERS}/a"), &label(json!("yes"))).await.ok();
    assert_eq!(events.next_short().await.0, "ADDED");
    assert_eq!(events.next_short().await.0, "MODIFIED");
    let left = events.next().await.unwrap();
    assert_eq!(
        (left["type"].as_str(), left["object"]["metadata"]["resourceVersion"].as_str()),
        (Some("DELETED"), Some("5"))
    );
    assert_eq!(left["object"]["metadata"]["labels"], json!({"on": "yes"}));
    let back = events.next().await.unwrap();
    assert_eq!(
        (back["type"].as_str(), back["object"]["metadata"]["resourceVersion"].as_str()),
        (Some("ADDED"), Some("7"))
    );
}

#[tokio::test]
async fn one_object_is_watched_by_field_and_only_read_by_path() {
    let api = Api::new().await;
    let made = api.cluster("a").await;
    assert_eq!(api.get(&format!("{CLUSTERS}/a?watch=true")).await.ok(), made);
    assert_eq!(api.get(&format!("{CLUSTERS}/none?watch=true")).await.fault().0, 404);
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name%3Da")).await;
    api.cluster("b").await;
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    assert_eq!(events.next_short().await, short("ADDED", "a"));
    assert_eq!(events.next_short().await, short("DELETED", "a"));
}

#[tokio::test]
async fn a_watch_whose_time_is_less_than_nothing_is_over_at_once() {
    let api = Api::new().await;
    api.cluster("a").await;
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&timeoutSeconds=-1")).await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_namespace_sees_only_its_own() {
    let api = Api::new().await;
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=1")).await;
    api.post("/apis/redis.kun.io/v1/namespaces/other/redisclusters", &cluster("x")).await.ok();
    api.cluster("mine").await;
    assert_eq!(events.next_short().await, short("ADDED", "mine"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_order_when_its_time_is_over_with_a_bookmark_before() {
    let api = Api::new().await;
    api.cluster("a").await;
    let mut events = api
        .watch(&format!("{CLUSTERS}?watch=true&resourceVersion=2&timeoutSeconds=100&allowWatchBookmarks=true"))
        .await
        .for_an_hour();
    let begin = tokio::time::Instant::now();
    let first = events.next().await.unwrap();
    assert_eq!((first["type"].as_str(), begin.elapsed().as_secs()), (Some("BOOKMARK"), 60));
    assert_eq!(first["object"]["metadata"], json!({"resourceVersion": "2"}));
    assert_eq!((events.next().await.unwrap()["type"].as_str(), begin.elapsed().as_secs()), (Some("BOOKMARK"), 98));
    assert_eq!((events.next().await, begin.elapsed().as_secs()), (None, 100));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_is_silent_until_its_end() {
    let api = Api::new().await;
    let mut events =
        api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=1&timeoutSeconds=300")).await.for_an_hour();
    let begin = tokio::time::Instant::now();
    assert_eq!((events.next().await, begin.elapsed().as_secs()), (None, 300));
}

/// A world in which chance says always the same.
#[derive(Debug)]
struct Chance(u32);

impl apiserver::world::World for Chance {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_u128(u128::from(self.0) << 96)
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_says_nothing_of_its_time_lasts_thirty_to_sixty_minutes_as_chance_has_it() {
    for (chance, lasts) in [(0, 1800), (1, 1801), (900, 2700), (1799, 3599), (1800, 1800), (u32::MAX, 1800 + 1695)] {
        let api = Api::living_in(std::sync::Arc::new(Chance(chance))).await;
        // The timeout of other requests is none of a watch.
        let mut events = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=1&timeout=1s")).await.for_an_hour();
        let begin = tokio::time::Instant::now();
        assert_eq!((events.next().await, begin.elapsed().as_secs()), (None, lasts), "{chance}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_from_the_future_fails_within_the_stream() {
    let api = Api::new().await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99";
    let mut events = api.watch(&format!("{CLUSTERS}?{query}")).await;
    let event = events.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(504)));
    assert_eq!(event["object"]["message"], "Timeout: Too large resource version: 99, current: 1");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_version_that_is_too_old_is_an_error_event_on_a_good_answer() {
    let (api, _hours) = Api::forgetful().await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        api.cluster(name).await;
    }
    let mut kept = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=3")).await;
    assert_eq!(kept.next_short().await, short("ADDED", "c"));
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=2")).await;
    let first = events.next().await.unwrap();
    assert_eq!(first["type"], "ERROR");
    assert_eq!((first["object"]["code"].as_u64(), first["object"]["reason"].as_str()), (Some(410), Some("Expired")));
    let message = first["object"]["message"].as_str().unwrap();
    assert_eq!(message, "too old resource version: 2 (3)");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn tables_and_metadata_are_watched_too() {
    let api = Api::new().await;
    api.cluster("a").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let uri = format!(
        "{CLUSTERS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let (_, response) = api.call("GET", &uri).accept(accept).open().await;
    let mut events = crate::support::Events::of(response);
    let first = events.next().await.unwrap();
    assert_eq!(
        (first["object"]["kind"].as_str(), first["object"]["rows"][0]["cells"][0].as_str()),
        (Some("Table"), Some("a"))
    );
    assert!(!first["object"]["columnDefinitions"].as_array().unwrap().is_empty());
    let bookmark = events.next().await.unwrap();
    assert_eq!((bookmark["type"].as_str(), bookmark["object"]["kind"].as_str()), (Some("BOOKMARK"), Some("Table")));
    assert_eq!(bookmark["object"]["columnDefinitions"], json!(null));
    let row = &bookmark["object"]["rows"][0]["object"];
    assert_eq!(row["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let (_, response) = api.call("GET", &uri).accept(accept).open().await;
    let mut events = crate::support::Events::of(response);
    let first = events.next().await.unwrap()["object"].clone();
    assert_eq!(
        (first["kind"].as_str(), first["metadata"]["name"].as_str(), first.get("spec")),
        (Some("PartialObjectMetadata"), Some("a"), None)
    );
    assert_eq!(events.next().await.unwrap()["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn closing_the_store_ends_every_watch() {
    let api = Api::new().await;
    let mut events = api.watch(&format!("{CLUSTERS}?watch=true&resourceVersion=1")).await;
    api.storage.close().await;
    assert_eq!(events.next().await, None);
    let reply = api.post(CLUSTERS, &cluster("a")).await;
    assert_eq!((reply.code, reply.fault().1.as_str()), (503, "ServiceUnavailable"));
}
