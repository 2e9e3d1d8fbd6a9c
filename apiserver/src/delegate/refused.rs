//! What the kube-apiserver does not let us follow is asked for ever more seldom: a right is a person's to give.

use std::time::Duration;

use kube::runtime::watcher::{self, Event};
use types::patience;

/// How often in a row a watch was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused(u32);

impl Refused {
    /// Counts an event in; the pause that is due because of it, beside those of the watch itself.
    pub(super) fn pause<K>(&mut self, event: &watcher::Result<Event<K>>) -> Duration {
        match event {
            // That a list is about to be asked for says nothing of what will be answered.
            Ok(Event::Init) => return Duration::ZERO,
            Err(error) if is_refusal(error) => self.0 = self.0.saturating_add(1),
            Ok(Event::InitApply(_) | Event::InitDone | Event::Apply(_) | Event::Delete(_)) | Err(_) => self.0 = 0,
        }
        if self.0 > 0 { patience::after(self.0) } else { Duration::ZERO }
    }
}

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
    fn refusals_in_a_row_are_spaced_out_until_something_else_is_answered() {
        let mut refused = Refused::default();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(refused.pause(&Ok(Event::<()>::Init)), Duration::ZERO);
            pauses.push(refused.pause(&answered(403)).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8]);
        assert_eq!(refused.pause(&answered(503)), Duration::ZERO);
        assert_eq!(refused.pause(&answered(403)).as_secs(), 2);
    }
}
