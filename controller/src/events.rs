//! Kubernetes Events: what the controller did and saw, on the object it concerns, repeated ones counted.
//!
//! Best effort: a bounded queue and one writer; when the queue is full events are dropped and counted. Nothing waits
//! for an event, and nothing is decided by one.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::api::{Api, PostParams};
use tokio::sync::mpsc;

/// Events waiting to be written.
const QUEUE: usize = 256;
/// Events remembered so that repetitions are counted.
const REMEMBERED: usize = 512;
/// The same event is not written more often than this.
const REPEAT_AFTER: Duration = Duration::from_secs(10);
/// Longest message, as Kubernetes allows it.
const MESSAGE_MOST: usize = 1000;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Something was done.
    Normal,
    /// Something is wrong.
    Warning,
}

/// One thing worth telling.
#[derive(Clone, Debug)]
struct Told {
    regarding: ObjectReference,
    tone: Tone,
    reason: String,
    message: String,
}

/// Where events are handed in.
#[derive(Clone, Debug)]
pub struct Events {
    sender: mpsc::Sender<Told>,
}

impl Events {
    /// The sender, and the writer that must be run.
    #[must_use]
    pub fn new(client: kube::Client, identity: String) -> (Self, Writer) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer =
            Writer { client, identity, receiver, written: BTreeMap::new(), order: VecDeque::new(), is_failing: false };
        (Self { sender }, writer)
    }

    /// Tells something about an object.
    pub fn tell<K: Resource<DynamicType = ()>>(&self, about: &K, tone: Tone, reason: &str, message: &str) {
        let regarding = about.object_ref(&());
        let message = message.chars().take(MESSAGE_MOST).collect();
        let told = Told { regarding, tone, reason: reason.to_owned(), message };
        if self.sender.try_send(told).is_err() {
            tracing::debug!(reason, "an event was dropped: the queue is full");
        }
    }
}

type Identity = (Option<String>, Tone, String, String);

/// Writes events one after the other.
pub struct Writer {
    client: kube::Client,
    identity: String,
    receiver: mpsc::Receiver<Told>,
    written: BTreeMap<Identity, (Event, Instant)>,
    order: VecDeque<Identity>,
    /// Nothing could be written the last time.
    is_failing: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Writes until nobody can hand in events any more.
    pub async fn run(mut self) {
        while let Some(told) = self.receiver.recv().await {
            let identity = (told.regarding.uid.clone(), told.tone, told.reason.clone(), told.message.clone());
            match self.written.get(&identity) {
                Some((_, at)) if at.elapsed() < REPEAT_AFTER => {}
                Some((event, _)) => {
                    let event = event.clone();
                    self.again(identity, event).await;
                }
                None => self.first(identity, told).await,
            }
        }
    }

    async fn first(&mut self, identity: Identity, told: Told) {
        let event = event(told, &self.identity, Timestamp::now());
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        match Api::<Event>::namespaced(self.client.clone(), &namespace).create(&PostParams::default(), &event).await {
            Ok(event) => {
                self.is_failing = false;
                self.remember(identity, event);
            }
            // Told once: the next one is tried only when there is something new to tell.
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => {
                tracing::warn!(error = %crate::chain(&error), "an event was not written");
            }
            Err(error) => tracing::debug!(error = %crate::chain(&error), "an event was not written"),
        }
    }

    async fn again(&mut self, identity: Identity, mut event: Event) {
        event.count = Some(event.count.unwrap_or(1).saturating_add(1));
        event.last_timestamp = Some(Time(crate::report::seconds(Timestamp::now())));
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let name = event.metadata.name.clone().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        match api.replace(&name, &PostParams::default(), &event).await {
            Ok(event) => self.remember(identity, event),
            // It has been removed, or changed: the next one is written anew.
            Err(error) => {
                tracing::debug!(error = %crate::chain(&error), "a repeated event was not counted");
                self.written.remove(&identity);
            }
        }
    }

    fn remember(&mut self, identity: Identity, event: Event) {
        if self.written.insert(identity.clone(), (event, Instant::now())).is_none() {
            self.order.push_back(identity);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.written.remove(&oldest);
            }
        }
    }
}

fn event(told: Told, identity: &str, now: Timestamp) -> Event {
    let Told { regarding, tone, reason, message } = told;
    let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or("kun"), now.as_nanosecond());
    let time = Time(crate::report::seconds(now));
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: regarding.namespace.clone(), ..ObjectMeta::default() },
        involved_object: regarding,
        type_: Some(match tone {
            Tone::Normal => "Normal".to_owned(),
            Tone::Warning => "Warning".to_owned(),
        }),
        reason: Some(reason),
        message: Some(message),
        count: Some(1),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        reporting_component: Some(crate::api::FIELD_MANAGER.to_owned()),
        reporting_instance: Some(identity.to_owned()),
        source: Some(EventSource { component: Some(crate::api::FIELD_MANAGER.to_owned()), host: None }),
        ..Event::default()
    }
}
