//! What is served, what is not, and what is refused before anybody looks.

use serde_json::json;

use crate::support::{Api, CLUSTERS};

#[tokio::test]
async fn outside_of_every_group_there_is_no_page() {
    let api = Api::new().await;
    for uri in
        ["/nothing", "/apis/none.io", "/apis/none.io/v1/things", "/apis/redis.kun.io/v9/redisclusters", "/api/v2/pods"]
    {
        let reply = api.get(uri).await;
        assert_eq!((reply.code, reply.bytes.as_ref()), (404, b"404 page not found\n".as_ref()), "{uri}");
        assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn inside_a_group_what_is_not_served_is_a_status() {
    let api = Api::new().await;
    let expected = (404, "NotFound".to_owned(), "the server could not find the requested resource".to_owned());
    for uri in [
        "/apis/redis.kun.io/v1/things",
        "/apis/redis.kun.io/v1/namespaces/shop/redispolicies",
        "/apis/redis.kun.io/v1/redisclusters/orders",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/nothing",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/status/deeper",
        "/api/v1/watch/pods",
    ] {
        assert_eq!(api.get(uri).await.fault(), expected, "{uri}");
    }
}

#[tokio::test]
async fn a_method_that_does_not_exist_on_a_path_that_does_is_405() {
    let api = Api::new().await;
    let message = "the server does not allow this method on the requested resource".to_owned();
    let expected = (405, "MethodNotAllowed".to_owned(), message);
    for (method, uri) in [
        ("POST", "/apis/redis.kun.io/v1/redisclusters"),
        ("DELETE", "/apis/redis.kun.io/v1/redisclusters"),
        ("PUT", CLUSTERS),
        ("PATCH", CLUSTERS),
        ("POST", "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders"),
        ("DELETE", "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/status"),
        ("POST", "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/orders/status"),
        ("GET", "/api/v1/namespaces/shop/finalize"),
        ("POST", "/version"),
        ("OPTIONS", CLUSTERS),
        ("TRACE", "/apis"),
    ] {
        assert_eq!(api.call(method, uri).json(&json!({})).send().await.fault(), expected, "{method} {uri}");
    }
}

#[tokio::test]
async fn paths_that_can_be_read_in_two_ways_are_refused() {
    let api = Api::new().await;
    for uri in [
        "/apis//redis.kun.io/v1",
        "/apis/redis.kun.io/v1/namespaces/../redisclusters",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/a%2Fb",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/%2e%2e",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/a%00b",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/a%5Cb",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/%ff",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/%zz",
        "/apis/redis.kun.io/v1/namespaces/shop/redisclusters/a%252Fb",
    ] {
        assert_eq!(api.get(uri).await.fault().0, 400, "{uri}");
    }
    assert_eq!(api.get("/apis/redis.kun.io/v1/").await.code, 200);
}

#[tokio::test]
async fn a_name_no_object_can_have_is_not_found() {
    let api = Api::new().await;
    let uri = format!("{CLUSTERS}/{}", "x".repeat(300));
    assert_eq!(api.get(&uri).await.fault().1, "NotFound");
}
