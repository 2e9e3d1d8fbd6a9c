//! The same requests under the same audit policy, and the events both servers write of them, compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Access, Call};

/// Every level, omissions at both places, and a wildcard of each sort.
pub(super) const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, users: [nobody]}
- {level: None, nonResourceURLs: ['/livez*', /healthz, '/readyz*']}
- {level: Metadata, nonResourceURLs: ['/version*'], omitStages: [RequestReceived]}
- level: Metadata
  resources: [{group: '', resources: [secrets]}]
- level: Request
  resources: [{group: redis.kun.io, resources: [redisclusters/*]}]
  verbs: [update]
- level: Request
  resources: [{group: '', resources: [configmaps], resourceNames: [quiet]}]
  omitStages: [RequestReceived]
- level: RequestResponse
  omitManagedFields: false
  resources: [{group: '', resources: [namespaces]}]
- level: RequestResponse
  namespaces: [default, '']
  resources: [{group: '', resources: ['*']}, {group: redis.kun.io}]
- {level: Metadata}
";

/// The last request: when its event is there, all are.
const LAST: &str = "last";

/// What is asked of both.
const REQUESTS: &str = include_str!("../../guard.json");

#[derive(Deserialize)]
struct Asked {
    /// Goes with the request as its audit ID.
    id: String,
    method: String,
    target: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

fn asked() -> Result<Vec<Asked>> {
    serde_json::from_str(REQUESTS).context("guard.json")
}

/// Asks both the same; how many requests.
pub(super) async fn ask(oracle: &Access, ours: &Access) -> Result<usize> {
    let all = asked()?;
    for access in [oracle, ours] {
        let mut session = access.session();
        for Asked { id, method, target, headers, body } in &all {
            let headers = headers.clone().into_iter().chain([("audit-id".to_owned(), id.clone())]).collect();
            let body = body.as_ref().map(Value::to_string).unwrap_or_default().into_bytes();
            session.send(&Call { method: method.clone(), target: target.clone(), headers, body }).await?;
        }
    }
    Ok(all.len())
}

/// Waits until the event of the last request is in a log.
pub(super) async fn wait(log: &Path, limit: Duration) -> Result<()> {
    let begin = Instant::now();
    while !events(log)?.contains_key(&(LAST.to_owned(), "ResponseComplete".to_owned())) {
        if begin.elapsed() > limit {
            bail!("the last event is not in {}", log.display());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

type Events = BTreeMap<(String, String), Value>;

/// The events of our requests, by audit ID and stage.
fn events(log: &Path) -> Result<Events> {
    let ids: BTreeSet<String> = asked()?.into_iter().map(|asked| asked.id).collect();
    let mut events = Events::new();
    let all = fs::read_to_string(log).unwrap_or_default();
    // The last one may be half written.
    for line in all.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let event: Value = serde_json::from_str(line).with_context(|| format!("{}: {line}", log.display()))?;
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let key = (text("auditID"), text("stage"));
        if ids.contains(&key.0) && events.insert(key.clone(), event).is_some() {
            bail!("{}: {key:?} comes twice", log.display());
        }
    }
    Ok(events)
}

/// How many events the oracle has, and every difference.
pub(super) fn compare(oracle: &Path, ours: &Path) -> Result<(usize, Vec<String>)> {
    let (oracle, ours) = (events(oracle)?, events(ours)?);
    let mut differences = Vec::new();
    for key in oracle.keys().chain(ours.keys().filter(|key| !oracle.contains_key(*key))) {
        let side = |events: &Events| events.get(key).cloned().map(normal);
        let (theirs, our) = (side(&oracle), side(&ours));
        if theirs != our {
            let show = |event: Option<Value>| event.map_or_else(|| "nothing".to_owned(), |event| event.to_string());
            differences.push(format!("{} {}:\n  oracle {}\n  ours   {}", key.0, key.1, show(theirs), show(our)));
        }
    }
    Ok((oracle.len(), differences))
}

/// Without what chance, time and place decide, and what is known to differ.
fn normal(mut event: Value) -> Value {
    for name in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = event[name].as_str().unwrap_or_default();
        event[name] = json!(if is_micro_time(time) { "a time" } else { time });
    }
    if let Some(peer) = event["sourceIPs"].as_array_mut().and_then(|addresses| addresses.last_mut()) {
        *peer = json!("a peer");
    }
    explain(&mut event);
    smooth(&mut event);
    event
}

/// Differences that have a reason of their own.
fn explain(event: &mut Value) {
    // Rights are other objects there: only that they allow is compared.
    let reason = &mut event["annotations"]["authorization.k8s.io/reason"];
    if reason.as_str().is_some_and(|reason| reason.starts_with("RBAC: allowed by ")) {
        *reason = json!("");
    }
    if event["annotations"].as_object().is_some_and(|map| map.values().all(Value::is_null)) {
        event["annotations"] = Value::Null;
    }
    let Some(sent) = event.get_mut("requestObject").and_then(Value::as_object_mut) else { return };
    // Kubernetes tells options of a deletion in its internal version, which nobody can send.
    if sent.get("apiVersion").is_some_and(|version| version == "meta.k8s.io/__internal") {
        sent.insert("apiVersion".to_owned(), json!("v1"));
    }
    // Its namespaces have a phase from their defaults; ours get it when they are made.
    if sent.get("kind").is_some_and(|kind| kind == "Namespace") {
        sent.remove("spec");
        sent.remove("status");
    }
}

/// `2026-11-21T18:31:09.123456Z`
fn is_micro_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000000Z"
}

fn smooth(value: &mut Value) {
    match value {
        Value::Object(map) => smooth_members(map),
        Value::Array(items) => items.iter_mut().for_each(smooth),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn smooth_members(map: &mut Map<String, Value>) {
    // An empty token says as much as none.
    if map.get("continue").is_some_and(|token| token == "") {
        map.remove("continue");
    }
    for (name, value) in map.iter_mut() {
        let is_chance = ["uid", "resourceVersion", "creationTimestamp", "time"].contains(&name.as_str());
        if is_chance && value.as_str().is_some_and(|text| !text.is_empty()) {
            *value = json!(format!("a {name}"));
        } else if name == "authentication.kubernetes.io/credential-id" {
            *value = json!("a certificate");
        } else {
            smooth(value);
        }
    }
}
