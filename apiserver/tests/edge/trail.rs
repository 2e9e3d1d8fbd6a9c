//! What an audit policy records of requests that end badly, of watches and of people nobody knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use apiserver::filter::audit::log::{Log, Target};
use apiserver::filter::audit::{Trail, policy::Policy};
use apiserver::filter::authn::Authenticator;
use apiserver::filter::authz::{Binding, Rule, StaticAuthorizer, Subject};
use apiserver::filter::metrics::Metrics;
use apiserver::filter::{Edge, Peer};
use apiserver::request::Verb;
use apiserver::wire::body;
use certs::{Anchors, Authority, Shown};
use http::Request;
use http_body_util::BodyExt;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use crate::stage::{Stage, THINGS, client_certificate};

const ALL: &str = "rules: [{level: RequestResponse}]";

/// An edge that records, and the log it writes.
struct Recording {
    edge: Arc<Edge>,
    stage: Arc<Stage>,
    trail: Arc<Trail>,
    jane: Arc<Peer>,
    folder: tempfile::TempDir,
}

impl Recording {
    fn start(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create("clients").unwrap();
        let certificate = client_certificate(&authority, "jane", &["team"]);
        let chain = CertificateDer::pem_slice_iter(certificate.certificate_pem.as_bytes());
        let shown = Shown::of_chain(chain.collect::<Result<_, _>>().unwrap()).unwrap();
        let jane = Arc::new(Peer::new(([127, 83, 5, 1], 1).into(), Some(shown)));
        let metrics = Arc::new(Metrics::default());
        let verbs = &[Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Delete];
        let things = Rule::Resources { verbs, group: "g", resource: "things", subresource: None };
        let table = vec![Binding { subject: Subject::Group("team"), rules: vec![things] }];
        let stage = Arc::new(Stage::default());
        let edge = Edge::new(
            stage.clone(),
            Authenticator::of_clients(Anchors::of_pem(authority.certificate_pem()).unwrap()),
            Arc::new(StaticAuthorizer::new(table)),
            Arc::clone(&metrics),
        );
        let policy = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n")).unwrap();
        let target = Target { path: Some(folder.path().join("audit.log")), size_max: 1 << 20, backups: None };
        let trail = Arc::new(Trail::new(policy, Log::open(target, metrics).unwrap()));
        edge.record(Arc::clone(&trail));
        Self { edge, stage, trail, jane, folder }
    }

    /// Asks, and reads the answer to its end; of a watch only its head.
    async fn ask(&self, peer: &Arc<Peer>, method: &str, path: &str) -> u16 {
        let request = Request::builder().method(method).uri(path).header("audit-id", "it").body(body::request(""));
        let answer = Arc::clone(&self.edge).answer(Arc::clone(peer), request.unwrap()).await;
        let code = answer.status().as_u16();
        if !path.contains("watch=") {
            answer.into_body().collect().await.unwrap();
        }
        code
    }

    /// All events, without what time decides.
    fn events(self) -> Vec<Value> {
        // The stage remembers the last request, which is not over before everybody has let go of it.
        self.stage.last.lock().unwrap().take();
        self.trail.close();
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
        let mut events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for event in &mut events {
            let map = event.as_object_mut().unwrap();
            for name in ["requestReceivedTimestamp", "stageTimestamp"] {
                assert!(map.remove(name).unwrap().is_string());
            }
            map["user"].as_object_mut().unwrap().remove("extra");
        }
        events
    }
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_refused_request_is_recorded_with_its_status_and_who_asked() {
    let recording = Recording::start(ALL);
    assert_eq!(recording.ask(&recording.jane, "GET", &format!("{THINGS}/absent?x=y")).await, 404);
    let status = json!({"metadata": {}, "status": "Failure", "message": "things.g \"absent\" not found", "reason": "NotFound",
        "details": {"name": "absent", "group": "g", "kind": "things"}, "code": 404});
    let event = |stage: &str| {
        json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "it", "stage": stage,
            "requestURI": format!("{THINGS}/absent?x=y"), "verb": "get",
            "user": {"username": "jane", "groups": ["team", "system:authenticated"]}, "sourceIPs": ["127.83.5.1"],
            "objectRef": {"resource": "things", "namespace": "n", "name": "absent", "apiGroup": "g", "apiVersion": "v1"}})
    };
    let mut complete = event("ResponseComplete");
    complete["responseStatus"] = status.clone();
    complete["responseObject"] = status;
    complete["responseObject"]["kind"] = json!("Status");
    complete["responseObject"]["apiVersion"] = json!("v1");
    complete["annotations"] = json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""});
    assert_eq!(recording.events(), [event("RequestReceived"), complete]);
}

#[tokio::test]
async fn a_panic_is_a_stage_of_its_own() {
    let recording = Recording::start(ALL);
    assert_eq!(recording.ask(&recording.jane, "GET", &format!("{THINGS}/panic")).await, 500);
    let events = recording.events();
    assert_eq!(stages(&events), ["RequestReceived", "Panic"]);
    assert_eq!(
        events[1]["responseStatus"],
        json!({"metadata": {}, "status": "Failure", "message": "APIServer panic'd", "reason": "InternalError", "code": 500})
    );
}

#[tokio::test]
async fn a_watch_is_recorded_when_it_begins_and_when_it_is_given_up() {
    let recording = Recording::start(ALL);
    assert_eq!(recording.ask(&recording.jane, "GET", &format!("{THINGS}?watch=true")).await, 200);
    let events = recording.events();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[2]["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert_eq!((&events[2]["verb"], events[2].get("responseObject")), (&json!("watch"), None));
}

#[tokio::test]
async fn a_request_whose_client_hangs_up_is_recorded_to_its_end() {
    let recording = Recording::start(ALL);
    let path = format!("{THINGS}/never");
    let jane = Arc::clone(&recording.jane);
    let mut asked = Box::pin(recording.ask(&jane, "GET", &path));
    while recording.stage.seen.load(Ordering::SeqCst) == 0 {
        assert!(futures::poll!(&mut asked).is_pending());
    }
    drop(asked);
    let events = recording.events();
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    assert_eq!(
        events[1]["responseStatus"],
        json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200})
    );
}

#[tokio::test]
async fn who_is_not_known_is_recorded_once_as_nobody() {
    let recording = Recording::start(ALL);
    let nobody = Arc::new(Peer::new(([127, 83, 5, 2], 1).into(), None));
    assert_eq!(recording.ask(&nobody, "GET", &format!("{THINGS}/x")).await, 401);
    let events = recording.events();
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!((&events[0]["user"], &events[0]["responseStatus"]["code"]), (&json!({}), &json!(401)));
}

#[tokio::test]
async fn the_policy_decides_what_is_written_and_bodies_are_not_unless_it_asks_for_them() {
    let recording = Recording::start(
        "omitStages: [RequestReceived]\nrules:\n- {level: None, users: [jane], verbs: [delete]}\n- {level: Metadata, userGroups: [team]}",
    );
    assert_eq!(recording.ask(&recording.jane, "DELETE", &format!("{THINGS}/x")).await, 200);
    assert_eq!(recording.ask(&recording.jane, "GET", &format!("{THINGS}/x")).await, 200);
    assert_eq!(recording.ask(&recording.jane, "GET", &format!("{THINGS}/absent")).await, 404);
    let events = recording.events();
    assert_eq!(stages(&events), ["ResponseComplete", "ResponseComplete"]);
    assert_eq!(events[0]["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert_eq!(events[1]["responseStatus"]["reason"], "NotFound");
    assert!(events.iter().all(|event| event.get("responseObject").is_none() && event.get("requestObject").is_none()));
}
