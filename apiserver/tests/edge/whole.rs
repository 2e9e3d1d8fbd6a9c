//! The whole server over TLS, with the real store, verbs and chain: webhooks are objects, and count from the moment
//! their creation is acknowledged.

use std::sync::Arc;

use apiserver::admit::Chain;
use apiserver::admit::call::Caller;
use apiserver::admit::escalate::Escalation;
use apiserver::app::App;
use apiserver::filter::Edge;
use apiserver::filter::authn::{Authenticator, trust::Trust};
use apiserver::filter::authz::stored::Stored;
use apiserver::filter::authz::{Authorizer, StaticAuthorizer, Union};
use apiserver::filter::metrics::Metrics;
use apiserver::filter::rights;
use apiserver::registry::{host, redis};
use apiserver::serve::{self, Drain, Limits, Options};
use apiserver::storage::Storage;
use apiserver::world::System;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use certs::{ALPN_H1, ALPN_H2, Anchors, Authority, ClientAuth, Issued, Material, Reloading, server_config};
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, Client};
use crate::hooks::Hooks;
use crate::stage::{Server, Stage, client_certificate, serving_certificate};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

/// A server as standalone builds it.
pub(crate) async fn start(hooks: &Hooks) -> Server {
    let authority = Authority::create("clients").unwrap();
    let identity = serving_certificate(&authority, "127.83.4.1");
    let listener = TcpListener::bind("127.83.4.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = server_config(&identity, authority.certificate_pem(), ClientAuth::Offered, &[ALPN_H2, ALPN_H1]).unwrap();
    let metrics = Arc::new(Metrics::default());
    let registry = redis::registry().unwrap().and(host::registry().unwrap());
    let app = App::new(registry, Arc::new(System));
    let stored = Arc::new(Stored::default());
    let authenticator = Authenticator::of_clients(Anchors::of_pem(authority.certificate_pem()).unwrap());
    let edge = Edge::new(
        app.clone(),
        authenticator.clone(),
        Arc::new(Union::of(vec![
            Arc::new(StaticAuthorizer::new(rights::standalone(app.registry()))),
            stored.clone() as Arc<dyn Authorizer>,
        ])),
        metrics.clone(),
    );
    let options =
        Options { listener, tls, edge, metrics: metrics.clone(), limits: Limits::default(), drain: Drain::default() };
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(serve::run(options, shutdown.clone()));
    let store = Arc::new(store::Memory::new(store::Clock::system()));
    let storage = Arc::new(Storage::open(store, app.registry()).await.unwrap());
    let identified = client_certificate(&hooks.authority, "kun:apiserver", &[]);
    let caller = Arc::new(Caller::new(Some(identified), metrics.clone()));
    stored.open(storage.clone());
    let chain = Arc::new(Chain::over(storage.clone(), app.registry().clone(), caller));
    app.open(storage, Arc::new(Escalation::before(chain, stored)));
    let material = Material { identity: Some(identity), authorities_pem: authority.certificate_pem().to_owned() };
    let certificates = Reloading::new(material).unwrap();
    let stage = Arc::new(Stage::default());
    Server { address, stage, authority, certificates, authenticator, metrics, shutdown, running }
}

async fn post(client: &mut Client, path: &str, object: &Value) -> Answer {
    client.ask(Method::POST, path, &[("content-type", "application/json")], object.to_string()).await
}

fn configuration(kind: &str, name: &str, hook: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": "x"}}, "data": {"a": "b"}})
}

#[tokio::test]
async fn webhooks_count_from_the_moment_their_configuration_is_acknowledged() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let admin = server.client("kun:admin", &["system:masters"]);
    let mut client = Client::h2(&server, Some(&admin)).await;
    let refused = post(&mut client, CONFIG_MAPS, &config_map("early")).await;
    assert_eq!((refused.code, refused.json()["message"].as_str()), (404, Some("namespaces \"n\" not found")));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(post(&mut client, "/api/v1/namespaces", &namespace).await.code, 201);
    let created = post(&mut client, CONFIG_MAPS, &config_map("plain")).await;
    assert_eq!((created.code, &created.json()["metadata"]["labels"]), (201, &json!({"own": "x"})));

    let mutating = configuration("MutatingWebhookConfiguration", "m", hooks.hook("a.test.io", "/label/a", |_| {}));
    let path = format!("{WEBHOOKS}/mutatingwebhookconfigurations");
    assert_eq!(post(&mut client, &path, &mutating).await.code, 201);
    let created = post(&mut client, CONFIG_MAPS, &config_map("labelled")).await;
    assert_eq!((created.code, &created.json()["metadata"]["labels"]), (201, &json!({"a": "set", "own": "x"})));

    let validating = configuration("ValidatingWebhookConfiguration", "v", hooks.hook("b.test.io", "/deny", |_| {}));
    let path = format!("{WEBHOOKS}/validatingwebhookconfigurations");
    assert_eq!(post(&mut client, &path, &validating).await.code, 201);
    let refused = post(&mut client, CONFIG_MAPS, &config_map("denied")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(refused.json()["message"], "admission webhook \"b.test.io\" denied the request: no");
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/denied")).await.code, 404, "what was refused was stored");

    // The way out is never blocked: a configuration can be removed although its webhook denies everything.
    assert_eq!(client.ask(Method::DELETE, &format!("{path}/v"), &[], "").await.code, 200);
    assert_eq!(post(&mut client, CONFIG_MAPS, &config_map("allowed")).await.code, 201);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_honoured_is_refused_with_its_fields() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let admin = server.client("kun:admin", &["system:masters"]);
    let mut client = Client::h2(&server, Some(&admin)).await;
    let bad = hooks.hook("a.test.io", "/allow", |hook| {
        hook["matchConditions"] = json!([{"name": "x", "expression": "1"}]);
        hook["timeoutSeconds"] = json!(90);
    });
    let path = format!("{WEBHOOKS}/mutatingwebhookconfigurations");
    let refused = post(&mut client, &path, &configuration("MutatingWebhookConfiguration", "m", bad)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let causes = refused.json()["details"]["causes"].clone();
    let fields: Vec<&str> = causes.as_array().unwrap().iter().filter_map(|cause| cause["field"].as_str()).collect();
    assert_eq!(fields, ["webhooks[0].timeoutSeconds", "webhooks[0].matchConditions[0].expression"]);
}

#[tokio::test]
async fn the_server_answers_503_until_its_store_is_open() {
    let app = App::new(redis::registry().unwrap(), Arc::new(System));
    let metrics = Arc::new(Metrics::default());
    let authorizer = Arc::new(StaticAuthorizer::new(rights::standalone(app.registry())));
    let edge = Edge::new(app, Arc::new(Authenticator::new(Trust::default(), None)), authorizer, metrics);
    let peer = Arc::new(apiserver::filter::Peer::new(([127, 83, 4, 1], 1).into(), None));
    for (path, code) in [("/livez", 200), ("/readyz", 500), ("/apis/redis.kun.io/v1", 503), ("/nothing", 503)] {
        let request = http::Request::get(path).body(apiserver::wire::body::request("")).unwrap();
        assert_eq!(edge.clone().answer(peer.clone(), request).await.status(), code, "{path}");
    }
}

/// Runs kubectl as somebody; what it printed on both streams, and whether it succeeded.
pub(crate) async fn kubectl(server: &Server, identity: &Issued, arguments: &[&str]) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let base64 = |text: &str| BASE64_STANDARD.encode(text);
    let user = json!({
        "client-certificate-data": base64(&identity.certificate_pem),
        "client-key-data": base64(&identity.key_pem)
    });
    let cluster = json!({
        "server": format!("https://{}", server.address),
        "certificate-authority-data": base64(server.authority.certificate_pem())
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "c", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
    });
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    let mut command = tokio::process::Command::new("kubectl");
    command.env("HOME", dir.path()).env("KUBECONFIG", &path).args(arguments).stdin(std::process::Stdio::null());
    let output = timeout(hung::process(), command.kill_on_drop(true).output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn kubectl_is_served_and_refused_as_its_certificate_says() {
    let hooks = Hooks::start(&[ALPN_H2]).await;
    let server = start(&hooks).await;
    let (admin, jane) = (server.client("kun:admin", &["system:masters"]), server.client("jane", &["team"]));
    assert_eq!(kubectl(&server, &admin, &["get", "--raw", "/readyz"]).await, (true, "ok".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("namespace.json");
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}).to_string())
        .unwrap();
    let created = kubectl(&server, &admin, &["create", "--filename", file.to_str().unwrap()]).await;
    assert_eq!(created, (true, "namespace/n created\n".to_owned()));
    let refused = kubectl(&server, &jane, &["get", "secrets", "--namespace", "n"]).await;
    let message = "Error from server (Forbidden): secrets is forbidden: User \"jane\" cannot list resource \"secrets\" \
                   in API group \"\" in the namespace \"n\"\n";
    assert_eq!(refused, (false, message.to_owned()));
    let (may_not, text) = kubectl(&server, &admin, &["get", "--raw", "/api/v1/namespaces", "--as", "jane"]).await;
    assert!(!may_not && text.contains("User \"jane\" cannot list resource \"namespaces\""), "{text}");
    let (may_not, text) = kubectl(&server, &jane, &["get", "--raw", "/api/v1/namespaces", "--as", "joe"]).await;
    assert!(!may_not && text.contains("User \"jane\" cannot impersonate resource \"users\""), "{text}");
}
