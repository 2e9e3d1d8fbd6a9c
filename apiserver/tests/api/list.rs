//! GET of one object and LIST.

use serde_json::{Value, json};

use crate::support::{Api, CLUSTERS, cluster};

async fn labelled(api: &Api, name: &str, labels: Value) {
    let mut body = cluster(name);
    body["metadata"]["labels"] = labels;
    api.post(CLUSTERS, &body).await.ok();
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no items: {list:#}"));
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_absent_object_is_named_in_the_answer() {
    let api = Api::new().await;
    let reply = api.get(&format!("{CLUSTERS}/orders")).await;
    let message = "redisclusters.redis.kun.io \"orders\" not found";
    assert_eq!(reply.fault(), (404, "NotFound".into(), message.into()));
    assert_eq!(api.get("/api/v1/namespaces/shop/pods/a").await.fault().2, "pods \"a\" not found");
}

#[tokio::test]
async fn an_empty_list_has_a_version_and_no_null() {
    let api = Api::new().await;
    let expected = json!({"kind": "RedisClusterList", "apiVersion": "redis.kun.io/v1", "metadata": {"resourceVersion": "1"}, "items": []});
    assert_eq!(api.get(CLUSTERS).await.ok(), expected);
}

#[tokio::test]
async fn a_list_holds_whole_objects_by_namespace_and_name() {
    let api = Api::new().await;
    let b = api.cluster("b").await;
    let a = api.cluster("a").await;
    let other = api.post("/apis/redis.kun.io/v1/namespaces/before/redisclusters", &cluster("z")).await.ok();
    let list = api.get(CLUSTERS).await.ok();
    assert_eq!(list["items"], json!([a, b]));
    assert_eq!(list["metadata"], json!({"resourceVersion": "4"}));
    assert_eq!(api.get("/apis/redis.kun.io/v1/redisclusters").await.ok()["items"], json!([other, a, b]));
}

#[tokio::test]
async fn selectors_choose_by_label_name_and_declared_fields() {
    let api = Api::new().await;
    labelled(&api, "a", json!({"tier": "gold"})).await;
    labelled(&api, "b", json!({"tier": "tin"})).await;
    api.cluster("c").await;
    api.merge(&format!("{CLUSTERS}/b/status"), &json!({"status": {"phase": "Ready"}})).await.ok();
    for (query, expected) in [
        ("labelSelector=tier", vec!["a", "b"]),
        ("labelSelector=tier%20in%20(gold,silver)", vec!["a"]),
        ("labelSelector=!tier", vec!["c"]),
        ("labelSelector=tier!=gold", vec!["b", "c"]),
        ("fieldSelector=metadata.name=b", vec!["b"]),
        ("fieldSelector=metadata.name!=b", vec!["a", "c"]),
        ("fieldSelector=metadata.namespace=shop,status.phase=Ready", vec!["b"]),
        ("fieldSelector=metadata.name=none", vec![]),
    ] {
        assert_eq!(names(&api.get(&format!("{CLUSTERS}?{query}")).await.ok()), expected, "{query}");
    }
    let fault = api.get(&format!("{CLUSTERS}?fieldSelector=spec.shards=3")).await.fault();
    assert_eq!(fault, (400, "BadRequest".into(), "field label not supported: spec.shards".into()));
    let fault = api.get("/apis/redis.kun.io/v1/redispolicies?fieldSelector=metadata.namespace=a").await.fault();
    assert_eq!(fault.2, "field label not supported: metadata.namespace");
    let fault = api.get("/api/v1/namespaces?fieldSelector=spec.x=3").await.fault();
    assert!(fault.2.starts_with("\"spec.x\" is not a known field selector: only \"metadata.name\""), "{}", fault.2);
    assert_eq!(api.get(&format!("{CLUSTERS}?labelSelector=a%20b")).await.fault().0, 400);
}

#[tokio::test]
async fn pages_are_one_snapshot() {
    let api = Api::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.cluster(name).await;
    }
    let first = api.get(&format!("{CLUSTERS}?limit=2")).await.ok();
    assert_eq!(
        (names(&first), first["metadata"]["remainingItemCount"].as_i64()),
        (vec!["a".into(), "b".into()], Some(3))
    );
    api.delete(&format!("{CLUSTERS}/c")).await.ok();
    api.cluster("bb").await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = api.get(&format!("{CLUSTERS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = api.get(&format!("{CLUSTERS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"], json!({"resourceVersion": first["metadata"]["resourceVersion"]}));
    assert_eq!(names(&api.get(CLUSTERS).await.ok()), ["a", "b", "bb", "d", "e"]);
}

#[tokio::test]
async fn a_page_with_a_selector_is_full_and_says_nothing_of_the_rest() {
    let api = Api::new().await;
    for name in ["a", "b", "c", "d"] {
        labelled(&api, name, if name == "b" { json!({}) } else { json!({"x": "y"}) }).await;
    }
    let first = api.get(&format!("{CLUSTERS}?limit=2&labelSelector=x")).await.ok();
    assert_eq!(names(&first), ["a", "c"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None);
    assert!(first["metadata"]["continue"].is_string());
}

#[tokio::test]
async fn tokens_and_versions_that_make_no_sense_are_refused() {
    let api = Api::new().await;
    for query in ["continue=abc", "resourceVersion=x", "resourceVersion=5&continue=abc", "limit=x"] {
        assert_eq!(api.get(&format!("{CLUSTERS}?{query}")).await.fault().0, 400, "{query}");
    }
    for query in ["resourceVersionMatch=Exact", "resourceVersionMatch=Some&resourceVersion=1", "sendInitialEvents=true"]
    {
        let fault = api.get(&format!("{CLUSTERS}?{query}")).await.fault();
        assert_eq!((fault.0, fault.1.as_str()), (422, "Invalid"), "{query}");
    }
}

#[tokio::test]
async fn an_exact_version_is_what_was_then() {
    let api = Api::new().await;
    api.cluster("a").await;
    api.cluster("b").await;
    api.delete(&format!("{CLUSTERS}/a")).await.ok();
    let then = api.get(&format!("{CLUSTERS}?resourceVersion=3&resourceVersionMatch=Exact")).await.ok();
    assert_eq!((names(&then), then["metadata"]["resourceVersion"].as_str()), (vec!["a".into(), "b".into()], Some("3")));
    assert_eq!(names(&api.get(&format!("{CLUSTERS}?resourceVersion=3&limit=5")).await.ok()), ["a", "b"]);
    let later = api.get(&format!("{CLUSTERS}?resourceVersion=3&resourceVersionMatch=NotOlderThan")).await.ok();
    assert_eq!((names(&later), later["metadata"]["resourceVersion"].as_str()), (vec!["b".into()], Some("4")));
    assert_eq!(names(&api.get(&format!("{CLUSTERS}?resourceVersion=0")).await.ok()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_is_waited_for_and_then_refused() {
    let api = Api::new().await;
    api.cluster("a").await;
    let (list, get) = (format!("{CLUSTERS}?resourceVersion=99"), format!("{CLUSTERS}/a?resourceVersion=99"));
    // A watch from there would be silent for ever.
    for uri in [list.clone(), get, format!("{list}&watch=true"), format!("{list}&watch=true&allowWatchBookmarks=true")]
    {
        let reply = api.get(&uri).await;
        let message = "Timeout: Too large resource version: 99, current: 2";
        assert_eq!(reply.fault(), (504, "Timeout".into(), message.into()), "{uri}");
        assert_eq!(reply.headers["retry-after"], "1");
        assert_eq!(reply.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }
}

#[tokio::test]
async fn a_token_that_is_too_old_is_answered_with_a_fresh_one() {
    let (api, hours) = Api::forgetful().await;
    for name in ["a", "b", "c"] {
        api.cluster(name).await;
    }
    let first = api.get(&format!("{CLUSTERS}?limit=1")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    hours.store(2, std::sync::atomic::Ordering::SeqCst);
    for index in 0..6 {
        let patch = json!({"metadata": {"annotations": {"n": index.to_string()}}});
        api.merge(&format!("{CLUSTERS}/a"), &patch).await.ok();
    }
    let reply = api.get(&format!("{CLUSTERS}?limit=1&continue={token}")).await;
    let (code, reason, _) = reply.fault();
    assert_eq!((code, reason.as_str()), (410, "Expired"));
    let fresh = reply.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = api.get(&format!("{CLUSTERS}?continue={fresh}")).await.ok();
    assert_eq!(names(&rest), ["b", "c"]);
}

#[tokio::test]
async fn large_lists_come_in_pieces_and_compressed_for_those_who_ask() {
    let api = Api::new().await;
    for index in 0..30 {
        let mut body = cluster(&format!("c{index:02}"));
        body["metadata"]["annotations"] = json!({"a": "x".repeat(50_000)});
        api.post(CLUSTERS, &body).await.ok();
    }
    let plain = api.get(CLUSTERS).await;
    assert!(plain.bytes.len() > 1_500_000);
    let packed = api.call("GET", CLUSTERS).header("accept-encoding", "gzip").send().await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["vary"], "Accept-Encoding");
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.bytes.as_ref()), &mut text).unwrap();
    assert_eq!(text, plain.bytes);
    assert_eq!(names(&plain.ok()).len(), 30);
}
