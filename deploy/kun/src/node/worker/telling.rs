//! What a worker tells: the pod's status, when it has changed, and events.

use jiff::Timestamp;

use super::{REPORT_RETRY, Worker};
use crate::log::chain;
use crate::node::event::{About, Happening};
use crate::node::machine::{Life, millis};
use crate::node::status;

impl Worker {
    pub(super) async fn report(&mut self) {
        let now = self.node.clock.now();
        if self.report_again.is_some_and(|at| now < at) || self.orders.borrow().vanished {
            return;
        }
        // A pod that had run its course before its directory was lost keeps the status it has.
        if self.record.is_none() && self.machine.life == Life::Done {
            return;
        }
        let built = status::build(&self.pod, self.written.as_ref(), &self.view(), Timestamp::now());
        if self.written.as_ref() == Some(&built) {
            self.report_again = None;
            return;
        }
        match crate::node::report::write(&self.node.client, &self.pod, &built).await {
            Ok(()) => {
                self.written = Some(built);
                self.report_again = None;
            }
            Err(error) => {
                tracing::debug!(
                    "pod {}: writing its status failed, it is tried again: {}",
                    self.label(),
                    chain(&error)
                );
                self.report_again = Some(now.saturating_add(millis(REPORT_RETRY)));
            }
        }
    }

    pub(super) fn view(&self) -> status::View<'_> {
        let accepted = self.written.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        status::View {
            machine: &self.machine,
            address: self.record.as_ref().map(|record| record.address),
            accepted_at: accepted.unwrap_or_else(Timestamp::now),
            started_at: self.record.as_ref().and_then(|record| record.started_at),
            started: self.probes.started(),
            ready: self.process.is_some() && self.probes.ready(),
            probe_message: self.probes.reason(),
            process: self.process.as_ref().map(|process| process.id.pid),
        }
    }

    pub(super) fn note(&self, warning: bool, reason: &'static str, message: String) {
        self.node.events.note(Happening {
            about: About::of("Pod", "v1", &self.pod.metadata),
            warning,
            reason,
            message,
        });
    }

    pub(super) fn address_text(&self) -> String {
        self.record.as_ref().map(|record| record.address.to_string()).unwrap_or_default()
    }

    pub(super) fn label(&self) -> String {
        let meta = &self.pod.metadata;
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}
