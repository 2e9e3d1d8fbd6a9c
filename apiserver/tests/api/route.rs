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
async fn what_is_not_served_inside_a_group_is_a_status_in_kubernetes_own_groups_and_no_page_in_ours() {
    let api = Api::new().await;
    let expected = (404, "NotFound".to_owned(), "the server could not find the requested resource".to_owned());
    for uri in ["/api/v1/watch/pods", "/api/v1/things", "/apis/apps/v1/namespaces/shop/things"] {
        assert_eq!(api.get(uri).await.fault(), expected, "{uri}");
    }
    for uri in [
        "/apis/redis.kun.io/v1/things",
        "/apis/redis.kun.io/v1/namespaces/shop/redispolicies",
        "/apis/redis.kun.io/v1/redisclusters/orders",
    ] {
        let reply = api.get(uri).await;
        assert_eq!((reply.code, reply.bytes.as_ref()), (404, b"404 page not found\n".as_ref()), "{uri}");
    }
    for sub in ["nothing", "status/deeper"] {
        let reply = api.get(&format!("{CLUSTERS}/orders/{sub}")).await;
        let expected = (404, "NotFound".to_owned(), "redisclusters.redis.kun.io \"orders\" not found".to_owned());
        assert_eq!(reply.fault(), expected, "{sub}");
    }
}

#[tokio::test]
async fn a_method_that_does_not_exist_on_a_path_that_does_is_refused() {
    let api = Api::new().await;
    let told = |verb: &str| {
        let message = format!("{verb} is not supported on resources of kind \"redisclusters.redis.kun.io\"");
        (405, "MethodNotAllowed".to_owned(), message)
    };
    let nameless = (400, "BadRequest".to_owned(), "name must be provided".to_owned());
    let message = "the server does not allow this method on the requested resource".to_owned();
    let plain = (405, "MethodNotAllowed".to_owned(), message);
    let orders = format!("{CLUSTERS}/orders");
    let status = format!("{CLUSTERS}/orders/status");
    for (method, uri, expected) in [
        ("PUT", CLUSTERS, &nameless),
        ("PATCH", CLUSTERS, &nameless),
        ("POST", orders.as_str(), &told("create")),
        ("DELETE", status.as_str(), &told("delete")),
        ("POST", status.as_str(), &told("create")),
        ("GET", "/api/v1/namespaces/shop/finalize", &plain),
        ("PUT", "/api/v1/namespaces/shop/pods", &plain),
        ("DELETE", "/api/v1/pods", &plain),
        ("POST", "/version", &plain),
        ("OPTIONS", CLUSTERS, &plain),
        ("TRACE", "/apis", &plain),
    ] {
        assert_eq!(&api.call(method, uri).json(&json!({})).send().await.fault(), expected, "{method} {uri}");
    }
    for method in ["POST", "DELETE"] {
        let reply = api.call(method, "/apis/redis.kun.io/v1/redisclusters").json(&json!({})).send().await;
        assert_eq!((reply.code, reply.bytes.as_ref()), (404, b"404 page not found\n".as_ref()), "{method}");
    }
}

#[tokio::test]
async fn a_refusal_comes_in_the_form_that_is_accepted() {
    let api = Api::new().await;
    let absent = format!("{CLUSTERS}/absent");
    let yaml = api.call("GET", &absent).accept("application/yaml").send().await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(String::from_utf8_lossy(&yaml.bytes).contains("reason: NotFound"), "{:?}", yaml.bytes);
    let indented = |reply: &crate::support::Reply| reply.bytes.starts_with(b"{\n  ");
    assert!(!indented(&api.get(&absent).await));
    assert!(indented(&api.get(&format!("{absent}?pretty=true")).await));
    assert!(indented(&api.call("GET", &absent).accept("application/json;as=Table;g=meta.k8s.io;v=v1").send().await));
    assert_eq!(api.call("GET", &absent).accept("text/html").send().await.fault().0, 406);
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
