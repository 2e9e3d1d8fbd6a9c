//! The status of a pod, pure: what the machine and the probes know, in Kubernetes' words.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::net::Ipv4Addr;

use super::machine::{Exit, Life, Machine, Waiting};

/// What is known about a pod at one moment.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Its process's life.
    pub machine: &'a Machine,
    /// Its address, once it has one.
    pub address: Option<Ipv4Addr>,
    /// When the node first took it on.
    pub accepted_at: Timestamp,
    /// When the running process was started.
    pub started_at: Option<Timestamp>,
    /// Whether the startup probe has passed.
    pub started: bool,
    /// Whether the readiness probe passes.
    pub ready: bool,
    /// Why it is not ready, in the probe's words.
    pub probe_message: Option<&'a str>,
    /// A name for the running process: `process://<pid>`.
    pub process: Option<i32>,
}

/// Builds the status. `before` gives the times of conditions that do not change; `now` those that do.
#[must_use]
pub fn build(pod: &core::Pod, before: Option<&core::PodStatus>, view: &View<'_>, now: Timestamp) -> core::PodStatus {
    let running = matches!(view.machine.life, Life::Running { .. } | Life::Stopping { .. });
    let ready = matches!(view.machine.life, Life::Running { .. }) && view.ready;
    let phase = phase(&view.machine.life, view.machine.last.as_ref());
    let over = phase == "Succeeded" || phase == "Failed";
    let conditions = conditions(before, view, ready, over, now);
    let address = view.address.map(|address| address.to_string());
    core::PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        container_statuses: Some(container(pod, view, ready, running).into_iter().collect()),
        host_ip: Some(Ipv4Addr::LOCALHOST.to_string()),
        host_ips: Some(vec![core::HostIP { ip: Ipv4Addr::LOCALHOST.to_string() }]),
        pod_ip: address.clone(),
        pod_ips: address.map(|ip| vec![core::PodIP { ip }]),
        qos_class: before.and_then(|status| status.qos_class.clone()),
        start_time: Some(Time(view.accepted_at)),
        observed_generation: pod.metadata.generation,
        ..core::PodStatus::default()
    }
}

fn phase(life: &Life, last: Option<&Exit>) -> &'static str {
    match life {
        Life::Done if last.is_some_and(|exit| exit.code == 0) => "Succeeded",
        Life::Done => "Failed",
        Life::Running { .. } | Life::Stopping { .. } => "Running",
        // A pod whose process is between two lives is Running, as in Kubernetes; before the first it is Pending.
        Life::Idle { .. } if last.is_some() => "Running",
        Life::Idle { .. } => "Pending",
    }
}

fn conditions(
    before: Option<&core::PodStatus>,
    view: &View<'_>,
    ready: bool,
    over: bool,
    now: Timestamp,
) -> Vec<core::PodCondition> {
    let reason = if over { "PodCompleted" } else { "ContainersNotReady" };
    let message = match (&view.machine.life, view.probe_message) {
        (Life::Running { .. }, Some(message)) => format!("the readiness or startup probe fails: {message}"),
        (Life::Idle { waiting: Some(waiting), .. }, _) => waiting.message.clone(),
        (Life::Idle { waiting: None, .. } | Life::Running { .. } | Life::Stopping { .. } | Life::Done, _) => {
            "the container is not ready".to_owned()
        }
    };
    let not_ready = (!ready).then(|| (reason.to_owned(), message));
    [
        ("PodScheduled", true, None),
        ("Initialized", true, None),
        ("ContainersReady", ready, not_ready.clone()),
        ("Ready", ready, not_ready),
    ]
    .into_iter()
    .map(|(kind, on, why)| condition(before, kind, on, why, now))
    .collect()
}

fn condition(
    before: Option<&core::PodStatus>,
    kind: &str,
    on: bool,
    why: Option<(String, String)>,
    now: Timestamp,
) -> core::PodCondition {
    let status = if on { "True" } else { "False" };
    let old = before.and_then(|status| status.conditions.as_ref()).and_then(|all| all.iter().find(|c| c.type_ == kind));
    let since = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    let (reason, message) = why.unzip();
    core::PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: Some(since.unwrap_or(Time(now))),
        ..core::PodCondition::default()
    }
}

fn container(pod: &core::Pod, view: &View<'_>, ready: bool, running: bool) -> Option<core::ContainerStatus> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let last = view.machine.last.as_ref().map(terminated);
    let state = match &view.machine.life {
        Life::Running { .. } | Life::Stopping { .. } => core::ContainerState {
            running: Some(core::ContainerStateRunning { started_at: view.started_at.map(Time) }),
            ..core::ContainerState::default()
        },
        Life::Done => last.clone().unwrap_or_default(),
        Life::Idle { waiting: Some(waiting), .. } => waiting_state(waiting),
        // The short pause before a first restart shows how the process ended.
        Life::Idle { waiting: None, .. } => last.clone().unwrap_or_else(|| {
            waiting_state(&Waiting { reason: "ContainerCreating".to_owned(), message: String::new() })
        }),
    };
    let last_state = if state.terminated.is_some() { None } else { last };
    Some(core::ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: String::new(),
        container_id: view.process.filter(|_| running).map(|pid| format!("process://{pid}")),
        ready,
        started: Some(running && view.started),
        restart_count: i32::try_from(view.machine.restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state,
        ..core::ContainerStatus::default()
    })
}

fn waiting_state(waiting: &Waiting) -> core::ContainerState {
    let message = Some(waiting.message.clone()).filter(|message| !message.is_empty());
    core::ContainerState {
        waiting: Some(core::ContainerStateWaiting { reason: Some(waiting.reason.clone()), message }),
        ..core::ContainerState::default()
    }
}

fn terminated(exit: &Exit) -> core::ContainerState {
    core::ContainerState {
        terminated: Some(core::ContainerStateTerminated {
            exit_code: exit.code,
            signal: exit.signal,
            reason: Some(exit.reason.clone()),
            message: Some(exit.message.clone()).filter(|message| !message.is_empty()),
            started_at: exit.started_at.map(Time),
            finished_at: exit.finished_at.map(Time),
            container_id: None,
        }),
        ..core::ContainerState::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::node::machine::{RestartPolicy, Wish};
    use serde_json::json;

    fn pod() -> core::Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a-0", "namespace": "ns", "generation": 4},
            "spec": {"containers": [{"name": "redis", "image": "redis:7"}]}
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn view(machine: &Machine) -> View<'_> {
        View {
            machine,
            address: Some(Ipv4Addr::new(127, 86, 0, 1)),
            accepted_at: at(1),
            started_at: Some(at(2)),
            started: true,
            ready: true,
            probe_message: None,
            process: Some(77),
        }
    }

    fn exit(code: i32) -> Exit {
        Exit {
            code,
            signal: None,
            reason: "Error".into(),
            message: "said".into(),
            started_at: Some(at(2)),
            finished_at: Some(at(3)),
        }
    }

    fn json(status: &core::PodStatus) -> serde_json::Value {
        serde_json::to_value(status).unwrap()
    }

    #[test]
    fn a_running_ready_pod_says_so_and_keeps_its_transition_times() {
        let mut machine = Machine::new(RestartPolicy::Always, 2, None);
        machine.started(0);
        let first = build(&pod(), None, &view(&machine), at(10));
        let second = build(&pod(), Some(&first), &view(&machine), at(99));
        assert_eq!(first, second, "nothing changed, so nothing is written");
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}));
        let expected = json!({
            "phase": "Running", "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": "127.86.0.1", "podIPs": [{"ip": "127.86.0.1"}], "startTime": "1970-01-01T00:00:01Z",
            "observedGeneration": 4,
            "conditions": conditions,
            "containerStatuses": [{"name": "redis", "image": "redis:7", "imageID": "", "containerID": "process://77",
                "ready": true, "started": true, "restartCount": 2,
                "state": {"running": {"startedAt": "1970-01-01T00:00:02Z"}}}]
        });
        assert_eq!(json(&first), expected);
    }

    #[test]
    fn a_pod_that_stops_is_not_ready() {
        let mut machine = Machine::new(RestartPolicy::Always, 0, None);
        machine.started(0);
        machine.terminated(std::time::Duration::from_secs(1), 0);
        let status = build(&pod(), None, &view(&machine), at(10));
        assert_eq!(json(&status)["conditions"][3]["status"], "False");
        assert_eq!(json(&status)["containerStatuses"][0]["ready"], false);
    }

    #[test]
    fn a_finished_worker_reports_its_exit_code_and_message() {
        for (code, phase) in [(0, "Succeeded"), (3, "Failed")] {
            let mut machine = Machine::new(RestartPolicy::Never, 0, None);
            machine.started(0);
            machine.exited(exit(code), Wish::Run, 1);
            let status = json(&build(&pod(), None, &view(&machine), at(10)));
            assert_eq!(status["phase"], phase);
            let state = &status["containerStatuses"][0]["state"]["terminated"];
            assert_eq!((&state["exitCode"], &state["message"]), (&json!(code), &json!("said")));
            assert_eq!(status["conditions"][3]["reason"], "PodCompleted");
        }
    }

    #[test]
    fn a_held_pod_says_what_it_waits_for() {
        let mut machine = Machine::new(RestartPolicy::Always, 0, None);
        machine.held(Waiting { reason: "ErrImagePull".into(), message: "no redis 9".into() }, 0);
        let status = json(&build(&pod(), None, &View { ready: false, ..view(&machine) }, at(10)));
        assert_eq!(status["phase"], "Pending");
        assert_eq!(
            status["containerStatuses"][0]["state"]["waiting"],
            json!({"reason": "ErrImagePull", "message": "no redis 9"})
        );
        assert_eq!(status["conditions"][3]["message"], "no redis 9");
    }

    #[test]
    fn a_crash_loop_shows_the_last_end() {
        let mut machine = Machine::new(RestartPolicy::Always, 0, None);
        for _ in 0..2 {
            machine.started(0);
            machine.exited(exit(7), Wish::Run, 1);
        }
        let status = json(&build(&pod(), None, &view(&machine), at(10)));
        let container = &status["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 7);
        assert_eq!((&container["restartCount"], &status["phase"]), (&json!(2), &json!("Running")));
    }
}
