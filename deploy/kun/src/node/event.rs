//! Events of pods: what happened, for `kubectl describe` and `kubectl get events`. Best effort: a pod never waits for
//! its events, and a flood of them is counted instead of written.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Events waiting to be written; more are dropped.
const QUEUE: usize = 256;
/// Distinct events remembered for counting.
const REMEMBERED: usize = 512;
/// The same event is written at most this often; repetitions in between are counted.
const REPEAT_AFTER: Duration = Duration::from_secs(10);
/// Longest message, as in Kubernetes.
const MESSAGE_MAX: usize = 1024;

/// What happened to which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Happening {
    /// Kind, apiVersion, namespace, name and uid of the object.
    pub about: About,
    /// Whether it is a warning.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// The object an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// Its kind.
    pub kind: &'static str,
    /// Its API version.
    pub api_version: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl About {
    /// About an object with metadata.
    #[must_use]
    pub fn of(kind: &'static str, api_version: &'static str, meta: &ObjectMeta) -> Self {
        Self {
            kind,
            api_version,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

/// Takes events.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Happening>);

impl Events {
    /// Starts the writer; it ends when all senders are gone.
    pub fn start(client: Client, tasks: &mut tokio::task::JoinSet<()>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tasks.spawn(write_all(client, receiver));
        Self(sender)
    }

    /// Notes that something happened.
    pub fn note(&self, happening: Happening) {
        let About { kind, namespace, name, .. } = &happening.about;
        tracing::info!(reason = happening.reason, "{kind} {namespace}/{name}: {}", happening.message);
        // A full queue means a flood or an API that does not answer; neither is made better by waiting.
        let _ = self.0.try_send(happening);
    }
}

struct Seen {
    name: String,
    count: i32,
    written: Instant,
}

async fn write_all(client: Client, mut receiver: mpsc::Receiver<Happening>) {
    let mut seen: BTreeMap<Happening, Seen> = BTreeMap::new();
    while let Some(happening) = receiver.recv().await {
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        let now = Instant::now();
        let known = seen.get_mut(&happening);
        let result = match known {
            Some(known) => {
                known.count = known.count.saturating_add(1);
                if now.duration_since(known.written) < REPEAT_AFTER {
                    continue;
                }
                known.written = now;
                repeat(&client, &happening.about.namespace, known).await
            }
            None => {
                let name = format!("{}.{}", happening.about.name, uuid::Uuid::new_v4().simple());
                let result = create(&client, &happening, &name).await;
                seen.insert(happening, Seen { name, count: 1, written: now });
                result
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "writing an event failed; it is left out");
        }
    }
}

async fn create(client: &Client, happening: &Happening, name: &str) -> Result<(), kube::Error> {
    let now = Time(Timestamp::now());
    let about = &happening.about;
    let event = core::Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(about.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: core::ObjectReference {
            kind: Some(about.kind.to_owned()),
            api_version: Some(about.api_version.to_owned()),
            namespace: Some(about.namespace.clone()),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            ..core::ObjectReference::default()
        },
        type_: Some(if happening.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(happening.reason.to_owned()),
        message: Some(happening.message.chars().take(MESSAGE_MAX).collect()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(core::EventSource { component: Some("kun-node".to_owned()), host: None }),
        reporting_component: Some("kun-node".to_owned()),
        ..core::Event::default()
    };
    Api::<core::Event>::namespaced(client.clone(), &about.namespace)
        .create(&PostParams::default(), &event)
        .await
        .map(drop)
}

async fn repeat(client: &Client, namespace: &str, seen: &Seen) -> Result<(), kube::Error> {
    let patch = serde_json::json!({"count": seen.count, "lastTimestamp": Time(Timestamp::now())});
    Api::<core::Event>::namespaced(client.clone(), namespace)
        .patch(&seen.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
}
