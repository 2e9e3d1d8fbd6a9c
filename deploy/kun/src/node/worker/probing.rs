//! How a pod's process is asked for its health: what is due is asked, one question per probe at a time.

use std::sync::Arc;

use super::Worker;
use crate::node::ask;
use crate::node::machine::{Life, Millis};
use crate::node::probe::Kind;

impl Worker {
    pub(super) fn ask_what_is_due(&mut self) {
        let now = self.node.clock.now();
        if self.process.is_none() || !matches!(self.machine.life, Life::Running { .. }) {
            return;
        }
        for (kind, due, timeout) in self.probes.due() {
            if due > now || self.asking.contains_key(&kind) {
                continue;
            }
            self.asking.insert(kind, now);
            let question = self.question(kind);
            let (asker, slots) = (self.node.asker.clone(), Arc::clone(&self.node.probe_slots));
            self.asks.spawn(async move {
                let answer = match (question, slots.acquire_owned().await) {
                    (Ok(question), Ok(_slot)) => asker.ask(&question, timeout).await,
                    (Err(message), _) => Err(message),
                    (Ok(_), Err(_)) => Err("the node is stopping".to_owned()),
                };
                (kind, now, answer)
            });
        }
    }

    fn question(&self, kind: Kind) -> Result<ask::Question, String> {
        let container = self.container().ok_or("the pod has no container")?;
        let probe = match kind {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
        };
        let (Some(probe), Some(record)) = (probe, &self.record) else {
            return Err("there is no such probe".to_owned());
        };
        let prepared = self.prepared.as_ref().ok_or("the pod's environment is not known")?;
        ask::question(probe, container, record.address, &prepared.command, |word| prepared.mounts.apply(word))
    }

    pub(super) fn answered(&mut self, kind: Kind, asked: Millis, answer: Result<(), String>) {
        self.asking.remove(&kind);
        self.probes.record(kind, answer, asked);
    }
}
