//! Follows the API server: one watch per kind, made anew when it breaks.
//!
//! What breaks by itself is tried again soon. What is not allowed is for a person to mend: it is named, and asked for ever
//! more seldom. Knows nothing of what is done with what it sees.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use tokio::sync::mpsc;
use types::patience;

use crate::cache::{Cached, Caches};
use crate::queue::Key;

/// How long after it broke a watch is made anew. While it is broken we are blind, and a primary may need help: kube's own
/// waits, up to a minute, are too long for that. Ten watches that ask every 2 s are no load for anybody.
const AGAIN: Duration = Duration::from_secs(2);

/// While it is not known yet which clusters there are.
const SOON: Duration = Duration::from_millis(20);

/// Follows one kind for as long as the process lives (or until the task is aborted), waking what an event touches.
/// A slow consumer is waited for: the channel is bounded, and the API server closes a watcher that falls behind.
pub async fn follow<K: Cached>(client: kube::Client, caches: Arc<Caches>, wake: mpsc::Sender<Key>) {
    // How much is kept of these depends on it.
    while K::is_read("", "").is_some() && !caches.knows_clusters() {
        tokio::time::sleep(SOON).await;
    }
    let config =
        watcher::Config { label_selector: K::selector(), page_size: Some(K::PAGE), ..watcher::Config::default() };
    let mut events = std::pin::pin!(watcher::watcher(Api::<K>::all(client), config));
    let mut refused = Refused::default();
    while let Some(event) = events.next().await {
        let pause = refused.pause(&event);
        match event {
            Ok(event) => {
                for key in caches.take_in(event) {
                    if wake.send(key).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                let why = told(&error);
                if K::cache(&caches).complain(why.clone()) {
                    tracing::warn!(kind = %K::kind(&()), error = why, "the watch broke and is made anew");
                }
                tokio::time::sleep(pause.unwrap_or(AGAIN)).await;
            }
        }
    }
}

/// How often in a row a watch was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused(u32);

impl Refused {
    /// Counts an event in; the pause that is due if it says that we may not.
    pub fn pause<K>(&mut self, event: &watcher::Result<Event<K>>) -> Option<Duration> {
        match event {
            // That a list is about to be asked for says nothing of what will be answered.
            Ok(Event::Init) => return None,
            Err(error) if is_refusal(error) => self.0 = self.0.saturating_add(1),
            Ok(Event::InitApply(_) | Event::InitDone | Event::Apply(_) | Event::Delete(_)) | Err(_) => self.0 = 0,
        }
        (self.0 > 0).then(|| patience::after(self.0))
    }

    /// The same, and waits: for whoever has no other pause, or a shorter one.
    pub async fn wait<K>(&mut self, event: &watcher::Result<Event<K>>) {
        if let Some(pause) = self.pause(event) {
            tokio::time::sleep(pause).await;
        }
    }
}

/// What is wrong, in the API server's own words where it has said any: they name verb and resource.
fn told(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => format!("{} ({})", status.message, status.code),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => crate::chain(error),
    }
}

/// Whether the API server understood and said that we may not.
fn is_refusal(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16) -> watcher::Result<Event<()>> {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn refusals_in_a_row_are_spaced_out_and_a_list_that_begins_does_not_end_the_row() {
        let mut refused = Refused::default();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(refused.pause(&Ok(Event::<()>::Init)), None);
            pauses.push(refused.pause(&answered(403)).map(|pause| pause.as_secs()));
        }
        assert_eq!(pauses, [Some(2), Some(4), Some(8)]);
        assert_eq!(refused.pause(&Ok(Event::<()>::InitDone)), None);
        assert_eq!(refused.pause(&answered(403)), Some(Duration::from_secs(2)), "the row was over");
    }

    #[test]
    fn whoever_is_away_is_not_waited_for_as_one_who_refuses() {
        let mut refused = Refused::default();
        assert!(refused.pause(&answered(403)).is_some());
        for code in [404, 410, 429, 500, 503] {
            assert_eq!(refused.pause(&answered(code)), None, "{code}");
        }
        assert_eq!(refused, Refused(0));
    }
}
