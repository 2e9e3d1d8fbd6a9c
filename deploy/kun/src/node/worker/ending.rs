//! How a pod's process ends: what it left behind is ended too, its end is recorded; and how the pod goes.

use jiff::Timestamp;

use super::{REPORT_RETRY, Worker};
use crate::log::chain;
use crate::node::machine::{Exit, Life};
use crate::node::prepare::MARK;
use crate::node::probe::Probes;
use crate::node::process::{self, Ended};
use tokio::task::JoinSet;

/// How much of a termination message is reported, as in Kubernetes.
const MESSAGE_MAX: usize = 4096;

impl Worker {
    /// The process has ended: whatever it left behind is ended too, then the end is recorded.
    pub(super) async fn ended(&mut self, ended: Ended) {
        let was_ours = self.process.take().is_some();
        if let Some(id) = self.record.as_ref().and_then(|record| record.process.clone()) {
            let mark = format!("{MARK}={}", self.pod.metadata.uid.as_deref().unwrap_or_default());
            if was_ours {
                process::sweep(id.pid).await;
            } else {
                process::sweep_recorded(&id, &mark, &self.directory).await;
            }
        }
        self.probes = Probes::default();
        self.asks = JoinSet::new();
        self.asking.clear();
        let exit = self.describe_end(ended);
        if exit.code != 0 {
            self.note(true, "Exited", format!("The process ended with exit code {} ({})", exit.code, exit.reason));
        }
        self.machine.exited(exit, self.wish(), self.node.clock.now());
        if let Some(record) = &mut self.record {
            record.process = None;
            record.restarts = self.machine.restarts;
            record.last = self.machine.last.clone();
            record.done = self.machine.life == Life::Done;
            if let Err(error) = record.write(&self.directory) {
                tracing::error!("pod {}/{}: {}", record.namespace, record.name, chain(&error));
            }
        }
    }

    pub(super) fn describe_end(&self, ended: Ended) -> Exit {
        let message = std::fs::read(self.directory.join("termination-log"))
            .map(|bytes| String::from_utf8_lossy(bytes.get(..MESSAGE_MAX).unwrap_or(&bytes)).into_owned())
            .unwrap_or_default();
        let (code, signal, reason) = match ended {
            Ended::Code(0) => (0, None, "Completed"),
            Ended::Code(code) => (code, None, "Error"),
            Ended::Signal(signal) => (128 + signal, Some(signal), "Error"),
            // Its end was seen by nobody: this node was not running, or had taken the process over.
            Ended::Unseen => (137, None, "ContainerStatusUnknown"),
        };
        Exit {
            code,
            signal,
            reason: reason.to_owned(),
            message,
            started_at: self.record.as_ref().and_then(|record| record.started_at),
            finished_at: Some(Timestamp::now()),
        }
    }

    /// Removes the pod from the API and then from disk. False: it could not be removed yet.
    pub(super) async fn remove(&mut self) -> bool {
        if let Some(record) = &mut self.record
            && !record.deleting
        {
            record.deleting = true;
            if let Err(error) = record.write(&self.directory) {
                tracing::warn!("pod {}: {}", self.label(), chain(&error));
            }
        }
        if !self.orders.borrow().vanished
            && let Err(error) = crate::node::report::delete(&self.node.client, &self.pod).await
        {
            tracing::warn!("pod {}: deleting it from the API failed: {}", self.label(), chain(&error));
            tokio::select! {
                () = tokio::time::sleep(REPORT_RETRY) => {}
                _ = self.orders.changed() => self.follow_orders(),
            }
            // A node that is stopping leaves the rest to its next life; the record says what is to be done.
            return self.park.is_cancelled();
        }
        for directory in [&self.directory, &self.places.run] {
            match tokio::fs::remove_dir_all(directory).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!("pod {}: removing {}: {error}", self.label(), directory.display());
                }
                Ok(()) | Err(_) => {}
            }
        }
        if let Some(record) = &self.record {
            self.node.pool.release(record.address);
        }
        true
    }
}
