//! A cluster that has been through a campaign is the one that its specification would make anew (T7): its children, and what its servers say
//! of their configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{fixture::Fixture, oracle, story};
use types::names;

/// Kinds of children.
const KINDS: &[&str] = &[
    "statefulsets",
    "services",
    "configmaps",
    "secrets",
    "poddisruptionbudgets",
    "networkpolicies",
    "persistentvolumeclaims",
    "pods",
];

/// Fields that are each object's own, or chosen by others than the controller.
const OWN: &[&str] = &[
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/creationTimestamp",
    "/metadata/generation",
    "/metadata/managedFields",
    "/metadata/namespace",
    "/status",
    "/spec/nodeName",
    "/spec/hostname",
    "/spec/volumeName",
    "/spec/clusterIP",
    "/spec/clusterIPs",
];

/// Labels and annotations that name one object, or what became of it: whose it is and the digest of that, who asked for its last restart,
/// which role it has, of which revision it was made.
const OWN_MARKS: &[&str] = &[
    names::ANNOTATION_OWNER,
    names::ANNOTATION_OWNER_UID,
    "redis.kun.io/desired",
    "redis.kun.io/restarted-by",
    names::LABEL_ROLE,
    "controller-revision-hash",
];

/// Parameters that are each server's own: where it is, whom it follows, with what it logs in, and whether it may be elected at this moment;
/// each by every name that an engine gives it.
const OWN_PARAMETERS: &[&str] = &[
    "bind",
    "bind-source-addr",
    "cluster-announce-ip",
    "dir",
    "aclfile",
    "unixsocket",
    "pidfile",
    "masterauth",
    "cluster-replica-no-failover",
    "cluster-slave-no-failover",
    "slaveof",
    "replicaof",
];

/// By kind and name.
type Children = BTreeMap<String, Value>;

/// Makes the cluster anew beside itself, compares, and takes the new one away.
pub(super) async fn alike(fixture: &Fixture, shards: u16) -> Result<()> {
    let aged = fixture.cluster().await?;
    fixture.kubectl.run(&["create", "namespace", NAMESPACE]).await?;
    let anew = json!({"apiVersion": aged["apiVersion"], "kind": aged["kind"], "metadata": {"name": "orders"}, "spec": aged["spec"]});
    let kubectl = fixture.kubectl.clone().within(NAMESPACE);
    kubectl.feed(&["create", "-f", "-"], &anew.to_string()).await?;
    let made = story::ready(&kubectl, "orders", shards).await.context("T7: the same specification anew")?;
    ensure!(made["spec"] == aged["spec"], "T7: spec {} was {}", made["spec"], aged["spec"]);
    // What an agent sets for a moment, and what is written beside a status, differ for a moment.
    let begin = Instant::now();
    loop {
        let differences = differences(fixture, shards).await?;
        if differences.is_empty() {
            break;
        }
        ensure!(begin.elapsed() < hung::process(), "T7: unlike a fresh one: {differences:#?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    fixture.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=false"]).await.map(drop)
}

/// Each place where the two clusters differ at this moment.
async fn differences(fixture: &Fixture, shards: u16) -> Result<Vec<String>> {
    let found = [children(fixture, "default", shards).await?, children(fixture, NAMESPACE, shards).await?];
    let mut differences = Vec::new();
    let [old, new] = &found;
    ensure!(!old.is_empty(), "T7: nothing to compare");
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let nothing = Value::Null;
        let (old, new) = (old.get(name).unwrap_or(&nothing), new.get(name).unwrap_or(&nothing));
        compare(name, old, new, &mut differences);
    }
    let (old, new) = (parameters(fixture, "default").await?, parameters(fixture, NAMESPACE).await?);
    compare("CONFIG GET", &old, &new, &mut differences);
    Ok(differences)
}

const NAMESPACE: &str = "anew";

/// What there is of the cluster in a namespace, without what is each object's own.
async fn children(fixture: &Fixture, namespace: &str, shards: u16) -> Result<Children> {
    let selector = format!("{}=orders", names::LABEL_CLUSTER);
    let mut children = Children::new();
    for kind in KINDS {
        let text = fixture.kubectl.run(&["get", kind, "-n", namespace, "-l", &selector, "-o", "json"]).await?;
        // Names of hosts have the namespace within, and what the agents read says it.
        let said = |name: &str| format!(r#"\"namespace\": \"{name}\""#);
        let text = text.replace(&format!(".{namespace}."), ".NAMESPACE.").replace(&said(namespace), &said("NAMESPACE"));
        let list: Value = serde_json::from_str(&text)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().context("name")?;
            if item["metadata"]["labels"].get(names::LABEL_BACKUP).is_none() && !is_of_former(kind, name, shards) {
                children.insert(format!("{kind}/{name}"), essence(kind, item));
            }
        }
    }
    Ok(children)
}

/// The claims of a shard that was scaled away stay.
fn is_of_former(kind: &str, name: &str, shards: u16) -> bool {
    let has = |shard| name.contains(&format!("{}-", names::shard("orders", shard)));
    kind == "persistentvolumeclaims" && !(0..shards).any(has)
}

fn essence(kind: &str, object: &Value) -> Value {
    let mut object = object.clone();
    for path in OWN {
        let (parent, field) = path.rsplit_once('/').unwrap_or_default();
        if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(field);
        }
    }
    for path in [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
        "/spec/template/metadata/annotations",
    ] {
        if let Some(marks) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            marks.retain(|mark, _| !OWN_MARKS.contains(&mark.as_str()));
        }
    }
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["uid"] = Value::Null;
    }
    if kind == "secrets" {
        for value in object["data"].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
            *value = Value::Null;
        }
    }
    object
}

/// What the servers say of their parameters: of each role, what all of it say, or each of the different words.
async fn parameters(fixture: &Fixture, namespace: &str) -> Result<Value> {
    let credentials = oracle::credentials(&fixture.kubectl, namespace, "orders", names::USER_OPERATOR).await?;
    let mut said: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for address in oracle::addresses(&fixture.kubectl, namespace, "orders").await?.into_values() {
        let mut connection = oracle::open(address, &credentials).await?;
        let role = connection.info(&["replication"]).await?.get("role").context("role")?.to_owned();
        let of_role = said.entry(role).or_default();
        for (name, value) in connection.config_get(&["*"]).await? {
            if !OWN_PARAMETERS.contains(&name.as_str()) {
                of_role.entry(name).or_default().insert(value);
            }
        }
    }
    Ok(serde_json::to_value(said)?)
}

/// Adds each place where two values differ.
fn compare(at: &str, old: &Value, new: &Value, differences: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for field in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                compare(&format!("{at}/{field}"), &old[field], &new[field], differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}/{index}"), a, b, differences);
            }
        }
        (old, new) if old != new => differences.push(format!("{at}: {old}, anew {new}")),
        (_, _) => {}
    }
}
