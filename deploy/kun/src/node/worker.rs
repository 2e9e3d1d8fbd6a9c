//! One pod: gathers what is wanted and what is seen, lets the machine decide, carries out one action, reports.
//!
//! A worker lives from the moment its pod is known until no process of it is left; the dispatcher starts no second
//! worker for the same name before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::Node;
use super::machine::{Action, Health, Life, Machine, Millis, RestartPolicy, Wish, millis};
use super::prepare::{self, Prepared};
use super::probe::{Kind, Probes};
use super::process::{self, Ended, Process};
use super::record::{self, Record};
use super::volume::Places;
use crate::log::chain;

/// Grace period of pods that name none.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);
/// Grace period of a process whose pod was deleted by force: enough to close files, as the kubelet gives.
const GRACE_FORCED: Duration = Duration::from_secs(1);
/// How soon a status that could not be written is tried again.
const REPORT_RETRY: Duration = Duration::from_secs(1);
/// How often a running pod's log is looked at for its length.
const LOG_CHECK: Duration = Duration::from_secs(60);

mod ending;
mod probing;
mod starting;
mod telling;

/// What the dispatcher says about a pod.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The pod as last seen.
    pub pod: Arc<core::Pod>,
    /// Whether it has gone from the API.
    pub vanished: bool,
}

/// The worker of one pod.
pub struct Worker {
    node: Arc<Node>,
    orders: watch::Receiver<Orders>,
    park: CancellationToken,
    changed: watch::Receiver<u64>,
    pod: Arc<core::Pod>,
    directory: PathBuf,
    places: Places,
    record: Option<Record>,
    machine: Machine,
    probes: Probes,
    process: Option<Process>,
    prepared: Option<Prepared>,
    asks: JoinSet<(Kind, Millis, Result<(), String>)>,
    asking: BTreeMap<Kind, Millis>,
    written: Option<core::PodStatus>,
    report_again: Option<Millis>,
    log_checked: Millis,
}

impl Worker {
    /// A worker for a pod, with what an earlier life of the node recorded about it.
    #[must_use]
    pub fn new(
        node: Arc<Node>,
        orders: watch::Receiver<Orders>,
        park: CancellationToken,
        record: Option<Record>,
    ) -> Self {
        let pod = Arc::clone(&orders.borrow().pod);
        let meta = &pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
        let directory = node.layout.pods.join(record::directory_name(&namespace, &name, &uid));
        let places = Places {
            pod: directory.clone(),
            run: node.layout.run.join(short(&uid)),
            claims: node.layout.claims.clone(),
        };
        let machine = remembered(&pod, record.as_ref());
        let written = pod.status.clone();
        let changed = node.objects.changed.clone();
        Self {
            node,
            orders,
            park,
            changed,
            pod,
            directory,
            places,
            record,
            machine,
            probes: Probes::default(),
            process: None,
            prepared: None,
            asks: JoinSet::new(),
            asking: BTreeMap::new(),
            written,
            report_again: None,
            log_checked: 0,
        }
    }

    /// Runs until no process of the pod is left and none is wanted.
    pub async fn run(mut self) {
        self.resume().await;
        loop {
            let step = self.machine.decide(self.wish(), self.health(), self.node.clock.now());
            match step.action {
                Action::Start => self.start().await,
                Action::Terminate { grace } => self.terminate(grace),
                Action::Kill => self.kill(),
                Action::Remove => {
                    if self.remove().await {
                        return;
                    }
                }
                Action::Leave => {
                    self.report().await;
                    return;
                }
                Action::Rest => {
                    self.report().await;
                    self.ask_what_is_due();
                    self.wait(step.wake).await;
                }
            }
        }
    }

    fn wish(&self) -> Wish {
        let seconds = |s: i64| Duration::from_secs(u64::try_from(s).unwrap_or(0));
        let own = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .map_or(GRACE_DEFAULT, seconds);
        if self.orders.borrow().vanished {
            Wish::Delete { grace: GRACE_FORCED.min(own) }
        } else if self.pod.metadata.deletion_timestamp.is_some() {
            Wish::Delete { grace: self.pod.metadata.deletion_grace_period_seconds.map_or(own, seconds) }
        } else if self.park.is_cancelled() {
            Wish::Park { grace: own }
        } else {
            Wish::Run
        }
    }

    fn health(&self) -> Health {
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        match self.probes.verdict() {
            Some(_) if self.process.is_some() => {
                let grace = own.and_then(|s| u64::try_from(s).ok()).map_or(GRACE_DEFAULT, Duration::from_secs);
                Health::Failed { grace }
            }
            Some(_) | None => Health::Fine,
        }
    }

    /// Takes over the process of an earlier life of the node, or finds out that it has gone.
    async fn resume(&mut self) {
        let Some(id) = self.record.as_ref().and_then(|record| record.process.clone()) else { return };
        match Process::adopt(&id) {
            Ok(Some(process)) => {
                self.process = Some(process);
                let now = self.node.clock.now();
                self.machine.started(now);
                self.probes = self.container().map(|c| Probes::new(c, now)).unwrap_or_default();
                let (started, ready) = was_ready(&self.pod);
                self.probes.assume(started, ready);
                self.prepared = self.prepare().ok();
                tracing::info!(pid = id.pid, "pod {}: took over process {}", self.label(), id.pid);
            }
            Ok(None) => self.ended(Ended::Unseen).await,
            Err(error) => {
                // Not knowing is not "gone": nothing is started beside a process that may be there.
                self.machine.held(prepare::refuse("ContainerStatusUnknown", chain(&error)), self.node.clock.now());
                tracing::error!("pod {}: {}", self.label(), chain(&error));
            }
        }
    }

    async fn start(&mut self) {
        if self.record.as_ref().is_some_and(|record| record.process.is_some()) {
            // A process is on record whose end was not seen: it is looked for again before another is started.
            self.resume().await;
            return;
        }
        let started = self.try_start().await;
        let now = self.node.clock.now();
        match started {
            Ok(()) => {
                self.machine.started(now);
                self.probes = self.container().map(|c| Probes::new(c, now)).unwrap_or_default();
                self.asks = JoinSet::new();
                self.asking.clear();
                let pid = self.process.as_ref().map_or(0, |process| process.id.pid);
                self.note(false, "Started", format!("Started process {pid} at {}", self.address_text()));
            }
            Err(waiting) => {
                if waiting.reason != "ContainerCreating" {
                    self.note(true, "Failed", format!("{}: {}", waiting.reason, waiting.message));
                }
                self.machine.held(waiting, now);
            }
        }
    }

    fn terminate(&mut self, grace: Duration) {
        if let Some((kind, message)) = self.probes.verdict() {
            self.note(true, "Unhealthy", format!("{kind:?} probe failed: {message}; the process is restarted"));
        } else {
            self.note(false, "Killing", format!("Stopping the process, {} s of grace", grace.as_secs()));
        }
        if let Some(process) = &self.process {
            process.terminate();
        }
        self.machine.terminated(grace, self.node.clock.now());
    }

    fn kill(&mut self) {
        if let Some(process) = &self.process {
            process.kill();
        }
        self.machine.killed(self.node.clock.now());
    }

    /// Waits for the next thing that matters.
    async fn wait(&mut self, wake: Option<Millis>) {
        let clock = self.node.clock;
        let next = self.next_look(wake);
        let parked = self.park.is_cancelled();
        tokio::select! {
            biased;
            ended = end_of(&mut self.process) => self.ended(ended).await,
            Some(Ok((kind, asked, answer))) = self.asks.join_next(), if !self.asks.is_empty() => self.answered(kind, asked, answer),
            changed = self.orders.changed() => {
                if changed.is_err() {
                    // The dispatcher is gone: the node is being torn down. Nothing can be decided any more.
                    std::future::pending::<()>().await;
                }
                self.follow_orders();
            }
            () = self.park.cancelled(), if !parked => {}
            Ok(()) = self.changed.changed() => self.sources_changed(),
            () = clock.sleep_until(next) => self.check_log(),
        }
    }

    fn next_look(&self, wake: Option<Millis>) -> Millis {
        let probes =
            self.probes.due().into_iter().filter(|(kind, _, _)| !self.asking.contains_key(kind)).map(|(_, due, _)| due);
        let probes = probes.filter(|_| self.process.is_some()).min();
        let log = self.process.is_some().then(|| self.log_checked.saturating_add(millis(LOG_CHECK)));
        // With nothing to look at, an hour: everything else arrives as an event.
        [wake, probes, self.report_again, log]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| self.node.clock.now() + 3_600_000)
    }

    fn follow_orders(&mut self) {
        self.pod = Arc::clone(&self.orders.borrow_and_update().pod);
    }

    fn sources_changed(&mut self) {
        self.machine.stir(self.node.clock.now());
        let (Some(prepared), true) = (&self.prepared, self.process.is_some()) else { return };
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        for volume in &prepared.volumes {
            // A ConfigMap that has gone leaves a running pod its files, as the kubelet does.
            if let Err(waiting) = prepare::refresh(&self.node, namespace, volume) {
                tracing::debug!("pod {}: {}", self.label(), waiting.message);
            }
        }
    }

    fn check_log(&mut self) {
        let now = self.node.clock.now();
        if self.process.is_some() && now >= self.log_checked.saturating_add(millis(LOG_CHECK)) {
            self.log_checked = now;
            if let Err(error) = process::trim_log(&self.directory.join("log")) {
                tracing::warn!("pod {}: trimming its log: {error}", self.label());
            }
        }
    }

    fn container(&self) -> Option<&core::Container> {
        self.pod.spec.as_ref().and_then(|spec| spec.containers.first())
    }
}

async fn end_of(process: &mut Option<Process>) -> Ended {
    match process {
        Some(process) => process.wait().await,
        None => std::future::pending().await,
    }
}

/// The machine as the record and the restart policy say; a pod that the API says is over stays over.
fn remembered(pod: &core::Pod, record: Option<&Record>) -> Machine {
    let policy = match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        Some(_) | None => RestartPolicy::Always,
    };
    let mut machine = Machine::new(policy, record.map_or(0, |r| r.restarts), record.and_then(|r| r.last.clone()));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let over = policy != RestartPolicy::Always && matches!(phase, Some("Succeeded" | "Failed"));
    if record.is_some_and(|record| record.done) || (record.is_none() && over) {
        machine.life = Life::Done;
    }
    machine
}

/// What the pod's status said last: (started, ready).
fn was_ready(pod: &core::Pod) -> (bool, bool) {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).and_then(|all| all.first());
    status.map_or((false, false), |status| (status.started == Some(true), status.ready))
}

/// A short name from a uid, for paths that must be short: its first eight characters.
fn short(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}
