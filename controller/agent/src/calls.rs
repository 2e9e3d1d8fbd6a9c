//! Calls on the volume beside the agent's one thread: where a network file system is away they do not return, and the thread has probes to answer, and a
//! stop to begin.

use std::time::Duration;

use tokio::{task::JoinHandle, time::timeout};

/// How long a look waits for its volume: a local one answers in microseconds, and looks are a second apart.
const PATIENCE: Duration = Duration::from_secs(1);

/// One call at a time: a volume that stands still holds one thread, and not one more with every look.
#[derive(Debug)]
pub struct Calls<T>(Option<JoinHandle<T>>);

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> Calls<T> {
    /// What this call gives; `None`: it does not return in time, or one of before has not yet. What one that is late gives is of another moment, and is
    /// dropped.
    pub async fn ask(&mut self, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.0.as_ref().is_some_and(|late| !late.is_finished()) {
            return None;
        }
        let mut running = tokio::task::spawn_blocking(call);
        match timeout(PATIENCE, &mut running).await {
            Ok(done) => done.ok(),
            Err(_) => {
                tracing::warn!("the volume does not answer");
                self.0 = Some(running);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_call_that_does_not_return_is_waited_for_by_nobody() {
        let mut calls = Calls::default();
        let (go_on, stands_still) = mpsc::channel::<()>();
        assert_eq!(calls.ask(|| 1).await, Some(1));
        assert_eq!(calls.ask(move || stands_still.recv().map_or(2, |()| 3)).await, None);
        assert_eq!(calls.ask(|| 4).await, None, "one is enough");
        go_on.send(()).unwrap();
        while !calls.0.as_ref().unwrap().is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls.ask(|| 5).await, Some(5), "what the late one gave is of before");
    }
}
