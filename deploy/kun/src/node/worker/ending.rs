//! How a pod's process ends: what it left behind is ended too, its end is recorded; and how the pod goes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

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
/// How much of the log stands in for a message that was not left: 2048 bytes or 80 lines, as in Kubernetes.
const LOG_BYTES: usize = 2048;
const LOG_LINES: usize = 80;

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
            let last = exit.message.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
            self.note(
                true,
                "Exited",
                format!("The process ended with exit code {} ({}){last}", exit.code, exit.reason),
            );
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
        let left = std::fs::read(self.directory.join("termination-log")).unwrap_or_default();
        let message = String::from_utf8_lossy(left.get(..MESSAGE_MAX).unwrap_or(&left)).into_owned();
        let (code, signal, reason) = match ended {
            Ended::Code(0) => (0, None, "Completed"),
            Ended::Code(code) => (code, None, "Error"),
            Ended::Signal(signal) => (128 + signal, Some(signal), "Error"),
            // Its end was seen by nobody: this node was not running, or had taken the process over.
            Ended::Unseen => (137, None, "ContainerStatusUnknown"),
        };
        let asks_for_log =
            self.container().and_then(|c| c.termination_message_policy.as_deref()) == Some("FallbackToLogsOnError");
        let from_log = message.is_empty() && code != 0 && asks_for_log;
        Exit {
            code,
            signal,
            reason: reason.to_owned(),
            message: if from_log { tail(&self.directory.join("log")) } else { message },
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

/// The end of a log, whole lines; empty when it cannot be read.
fn tail(log: &Path) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES as u64)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES as u64).read_to_end(&mut bytes)?;
        std::io::Result::Ok((length > LOG_BYTES as u64, String::from_utf8_lossy(&bytes).into_owned()))
    };
    let Ok((cut, text)) = read() else { return String::new() };
    let whole = if cut { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
    let lines: Vec<&str> = whole.lines().collect();
    lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_end_of_a_log_is_its_last_whole_lines_within_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(tail(&log), "");
        std::fs::write(&log, "one\ntwo\n").unwrap();
        assert_eq!(tail(&log), "one\ntwo");
        std::fs::write(&log, "x\n".repeat(100)).unwrap();
        assert_eq!(tail(&log).lines().count(), LOG_LINES);
        std::fs::write(&log, format!("{}\n{}\nlast\n", "a".repeat(5000), "b".repeat(2000))).unwrap();
        assert_eq!(tail(&log), format!("{}\nlast", "b".repeat(2000)));
    }
}
