//! Authorities as they are kept in Secrets: read, followed, written.
//!
//! A Secret that goes, or that cannot be read, changes nothing for who follows it: he goes on with what he had.

use std::collections::BTreeMap;
use std::sync::Arc;

use certs::Ring;
use controller::follow::Refused;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

/// What a Secret holds, as far as it is text.
pub(super) fn texts(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.filter_map(|(name, bytes)| Some((name.clone(), String::from_utf8(bytes.0.clone()).ok()?))).collect()
}

/// The ring in a Secret, once there is one, and from then on.
pub(super) async fn follow(client: Client, namespace: String, name: String) -> watch::Receiver<Arc<Ring>> {
    let api = Api::<Secret>::namespaced(client, &namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = Box::pin(watcher(api, config).default_backoff());
    let mut rings: Option<watch::Sender<Arc<Ring>>> = None;
    let (known, receiver) = tokio::sync::oneshot::channel();
    let mut known = Some(known);
    tokio::spawn(async move {
        let mut refused = Refused::default();
        while let Some(event) = events.next().await {
            refused.wait(&event).await;
            let Some(ring) = read(event, &name) else { continue };
            match &rings {
                Some(rings) => drop(rings.send_replace(Arc::new(ring))),
                None => {
                    let (sender, receiver) = watch::channel(Arc::new(ring));
                    rings = Some(sender);
                    // Nobody waits any more only if the process ends.
                    known.take().map(|known| known.send(receiver));
                }
            }
        }
    });
    match receiver.await {
        Ok(rings) => rings,
        // Watches do not end.
        Err(_) => std::future::pending().await,
    }
}

/// The ring that an event tells of.
fn read(event: Result<Event<Secret>, watcher::Error>, name: &str) -> Option<Ring> {
    let secret = match event {
        Ok(Event::Apply(secret) | Event::InitApply(secret)) => secret,
        Ok(Event::Delete(_)) => {
            tracing::error!(secret = name, "the Secret of an authority was deleted; what it held is used on");
            return None;
        }
        Ok(Event::Init | Event::InitDone) => return None,
        Err(error) => {
            tracing::warn!(
                secret = name,
                error = crate::log::chain(&error),
                "the Secret of an authority is not followed now"
            );
            return None;
        }
    };
    match Ring::decode(&texts(&secret)) {
        Ok(Some(ring)) => return Some(ring),
        Ok(None) => tracing::error!(secret = name, "the Secret of an authority holds none"),
        Err(error) => tracing::error!(secret = name, error = crate::log::chain(&error), "an authority cannot be read"),
    }
    None
}
