//! One request at a time: identity, rights, health, headers, errors.

use std::sync::atomic::Ordering;
use std::time::Duration;

use apiserver::filter::authn::trust::Trust;
use certs::{Anchors, Authority, Material};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::stage::{Server, Setting, THINGS, client_certificate, serving_certificate};

#[tokio::test]
async fn a_member_of_the_team_is_served_on_both_versions_of_http() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    for mut client in [Client::h1(&server, Some(&jane)).await, Client::h2(&server, Some(&jane)).await] {
        let answer = client.ask(Method::POST, THINGS, &[("audit-id", "abc"), ("user-agent", "test/1")], "hello").await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "5"));
        assert_eq!(answer.header("audit-id"), "abc");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
        let (context, _) = server.stage.last.lock().unwrap().clone().unwrap();
        assert_eq!(context.user.name, "jane");
        assert_eq!(context.user.groups, ["team", "system:authenticated"]);
        assert_eq!((context.audit_id.as_str(), context.user_agent.as_str()), ("abc", "test/1"));
        assert!(context.deadline.is_some());
        assert_eq!(client.get(&format!("{THINGS}/warn")).await.header("warning"), "299 - \"be \\\"careful\\\"\"");
    }
}

#[tokio::test]
async fn nobody_gets_in_without_a_certificate_of_ours_and_headers_do_not_help() {
    let server = Server::start(Setting::default()).await;
    let mut nobody = Client::h2(&server, None).await;
    let spoofed = [("x-remote-user", "jane"), ("x-remote-group", "system:masters"), ("authorization", "Bearer x")];
    for path in [THINGS, "/version", "/metrics", "/", "/nothing"] {
        let answer = nobody.ask(Method::GET, path, &spoofed, "").await;
        assert_eq!((answer.code, answer.json()["message"].as_str()), (401, Some("Unauthorized")), "{path}");
    }
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
    let foreign = client_certificate(&Authority::create("clients").unwrap(), "jane", &["team"]);
    let hours_ago = Timestamp::now() - SignedDuration::from_hours(5);
    let leaf = certs::Leaf::client("jane", &["system:masters"], Duration::from_secs(3600));
    let expired = server.authority.issue_at(&leaf, hours_ago).unwrap();
    for bad in [foreign, expired] {
        // Any certificate opens a connection; only one of ours makes somebody of it.
        let mut stranger = Client::h2(&server, Some(&bad)).await;
        let answer = stranger.ask(Method::GET, THINGS, &spoofed, "").await;
        assert_eq!((answer.code, answer.json()["message"].as_str()), (401, Some("Unauthorized")));
    }
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn proxy_headers_and_credentials_never_reach_the_handler() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let sent = [("x-remote-user", "root"), ("x-remote-extra-a", "b"), ("authorization", "Bearer x"), ("accept", "*/*")];
    assert_eq!(client.ask(Method::GET, &format!("{THINGS}/x"), &sent, "").await.code, 200);
    let (context, headers) = server.stage.last.lock().unwrap().clone().unwrap();
    assert_eq!(context.user.name, "jane");
    assert!(
        headers.keys().all(|name| !name.as_str().starts_with("x-remote-") && name != "authorization"),
        "{headers:?}"
    );
    assert_eq!(headers["accept"], "*/*");
}

#[tokio::test]
async fn what_is_not_allowed_is_a_403_in_kubernetes_words_with_nosniff() {
    let server = Server::start(Setting::default()).await;
    let joe = server.client("joe", &["other"]);
    let mut client = Client::h2(&server, Some(&joe)).await;
    let answer = client.get(&format!("{THINGS}/x")).await;
    assert_eq!(answer.code, 403);
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let message = "things.g \"x\" is forbidden: User \"joe\" cannot get resource \"things\" in API group \"g\" in the namespace \"n\"";
    assert_eq!(
        answer.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Forbidden", "details": {"name": "x", "group": "g", "kind": "things"}, "code": 403
        })
    );
    let answer = client.get("/metrics").await;
    assert_eq!(
        (answer.code, answer.json()["message"].as_str()),
        (403, Some("forbidden: User \"joe\" cannot get path \"/metrics\""))
    );
    let answer = client.ask(Method::GET, THINGS, &[("impersonate-user", "jane")], "").await;
    assert_eq!(answer.code, 403);
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn health_needs_no_identity_and_withholds_reasons() {
    let server = Server::start(Setting::default()).await;
    let mut nobody = Client::h1(&server, None).await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/store", "/readyz/ping"] {
        let answer = nobody.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"), "{path}");
    }
    assert_eq!(
        nobody.get("/readyz?verbose").await.text,
        "[+]ping ok\n[+]log ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n"
    );
    assert_eq!(nobody.get("/readyz/nothing").await.code, 404);
    assert_eq!(nobody.ask(Method::POST, "/healthz", &[], "").await.code, 405);
    server.stage.is_broken.store(true, Ordering::SeqCst);
    let answer = nobody.get("/readyz").await;
    assert_eq!(
        (answer.code, answer.text.as_str()),
        (500, "[+]ping ok\n[+]log ok\n[-]store failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n")
    );
    assert_eq!(nobody.get("/readyz?exclude=store").await.text, "ok");
    assert_eq!(nobody.get("/readyz/store").await.code, 500);
    assert_eq!(nobody.get("/livez").await.code, 200, "a store that is not ready is no reason to be killed");
}

#[tokio::test]
async fn a_server_that_is_not_ready_says_503_and_never_404() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    server.stage.is_broken.store(true, Ordering::SeqCst);
    let answer = client.get(&format!("{THINGS}/x")).await;
    assert_eq!((answer.code, answer.header("retry-after")), (503, "5"));
    assert_eq!(answer.json()["message"], "the server is starting and not ready yet: waiting for store");
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
    server.stage.is_broken.store(false, Ordering::SeqCst);
    assert_eq!(client.get(&format!("{THINGS}/absent")).await.code, 404);
    // Broken again later: what is there is served, what seems absent is not known to be.
    server.stage.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(client.get(&format!("{THINGS}/x")).await.code, 200);
    let answer = client.get(&format!("{THINGS}/absent")).await;
    assert_eq!((answer.code, answer.header("retry-after")), (503, "5"));
}

#[tokio::test]
async fn a_panic_is_a_500_in_plain_text_and_the_server_goes_on() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    for method in [Method::GET, Method::PUT] {
        let answer = client.ask(method, &format!("{THINGS}/panic"), &[], "").await;
        assert_eq!(answer.code, 500);
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert!(!answer.header("audit-id").is_empty());
        assert!(!answer.text.contains("as told"));
    }
    assert_eq!(client.get(&format!("{THINGS}/x")).await.code, 200);
}

#[tokio::test]
async fn an_answer_that_is_late_is_a_504_and_a_bad_timeout_a_400() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h2(&server, Some(&jane)).await;
    let answer = client.get(&format!("{THINGS}/never?timeout=50ms")).await;
    assert_eq!((answer.code, answer.json()["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(answer.json()["message"], "request did not complete within the allotted timeout");
    let answer = client.get(&format!("{THINGS}/x?timeout=soon")).await;
    assert_eq!(
        (answer.code, answer.json()["message"].as_str()),
        (400, Some("invalid timeout specified in the request URL - time: invalid duration \"soon\""))
    );
}

#[tokio::test]
async fn upgrades_and_paths_that_play_tricks_are_bad_requests() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut client = Client::h1(&server, Some(&jane)).await;
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    assert_eq!(client.ask(Method::GET, THINGS, &upgrade, "").await.code, 400);
    for path in
        ["/apis/g/v1/namespaces/n%2fo/things", "/apis//v1/things", "/apis/g/v1/namespaces/../things", "/apis/g/v1/%00"]
    {
        let mut client = Client::h1(&server, Some(&jane)).await;
        assert_eq!(client.get(path).await.code, 400, "{path}");
    }
    assert_eq!(server.stage.seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them_and_count_what_was_answered() {
    let server = Server::start(Setting::default()).await;
    let (admin, jane) = (server.client("root", &["system:masters"]), server.client("jane", &["team"]));
    let mut client = Client::h2(&server, Some(&jane)).await;
    assert_eq!(client.get(&format!("{THINGS}/x")).await.code, 200);
    assert_eq!(client.get(&format!("{THINGS}/absent")).await.code, 404);
    assert_eq!(client.get("/apis/g/v1/namespaces/n/unheard-of").await.code, 403);
    let mut admin = Client::h2(&server, Some(&admin)).await;
    let answer = admin.get("/metrics").await;
    assert_eq!(
        (answer.code, answer.header("content-type")),
        (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let line = |code: u16| {
        format!(
            "apiserver_request_total{{verb=\"GET\",group=\"g\",version=\"v1\",resource=\"things\",subresource=\"\",scope=\"resource\",dry_run=\"\",code=\"{code}\"}} 1"
        )
    };
    for expected in [line(200), line(404), "apiserver_open_connections 2".to_owned()] {
        assert!(answer.text.contains(&expected), "{expected}\n{}", answer.text);
    }
    assert!(!answer.text.contains("unheard-of"), "a client chose a label");
}

#[tokio::test]
async fn a_new_serving_certificate_and_client_authority_need_no_restart() {
    let server = Server::start(Setting::default()).await;
    let jane = server.client("jane", &["team"]);
    let mut before = Client::h2(&server, Some(&jane)).await;
    assert_eq!(before.get(&format!("{THINGS}/x")).await.code, 200);
    let next = Authority::create("next").unwrap();
    let identity = Some(serving_certificate(&next, "127.83.2.1"));
    server.certificates.swap(Material { identity, authorities_pem: next.certificate_pem().to_owned() }).unwrap();
    server.authenticator.believe(Trust::of_clients(Anchors::of_pem(next.certificate_pem()).unwrap()));
    assert_eq!(before.get(&format!("{THINGS}/x")).await.code, 401, "an open connection outlives its authority");
    let newcomer = client_certificate(&next, "jim", &["team"]);
    let server = Server { authority: next, ..server };
    let mut after = Client::h2(&server, Some(&newcomer)).await;
    assert_eq!(after.get(&format!("{THINGS}/x")).await.code, 200);
}
