//! Probes, pure: when each is due and what a row of answers means. It must not know how a probe is carried out.
//!
//! Kubernetes' rules with one addition: until a probe has succeeded for the first time it is also asked between its
//! periods, every [`EAGER`], and failures of these extra questions do not count. A pod that is ready after 80 ms is then
//! ready after 80 ms and not after a second.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;

use super::machine::{Millis, millis};

/// Pause between the extra questions before the first success.
pub const EAGER: Duration = Duration::from_millis(50);
/// Extra questions stop after this time: a pod that needs longer is asked at its period.
pub const EAGER_FOR: Duration = Duration::from_secs(20);

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Holds back the other two until it succeeds; restarts the process when it fails for good.
    Startup,
    /// Restarts the process when it fails for good.
    Liveness,
    /// Says whether the pod is Ready.
    Readiness,
}

/// A probe's timing and its row of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    period: Millis,
    initial_delay: Millis,
    /// Longest time one question may take.
    pub timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
    since: Millis,
    asked: Option<Millis>,
    counted: Option<Millis>,
    successes: u32,
    failures: u32,
    succeeded: bool,
    passing: bool,
    /// What the last failure said.
    pub message: String,
}

impl Track {
    /// A probe of a process that runs since `since`.
    #[must_use]
    pub fn new(probe: &core::Probe, since: Millis) -> Self {
        let seconds = |value: Option<i32>, default: u64, least: u64| {
            value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default).max(least)
        };
        let count = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        Self {
            period: seconds(probe.period_seconds, 10, 1) * 1_000,
            initial_delay: seconds(probe.initial_delay_seconds, 0, 0) * 1_000,
            timeout: Duration::from_secs(seconds(probe.timeout_seconds, 1, 1)),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
            since,
            asked: None,
            counted: None,
            successes: 0,
            failures: 0,
            succeeded: false,
            passing: false,
            message: String::new(),
        }
    }

    /// Takes over what an earlier life of the node knew: a process that was ready is ready until asked.
    pub fn assume_passing(&mut self) {
        self.succeeded = true;
        self.passing = true;
    }

    /// When it is to be asked next.
    #[must_use]
    pub fn due(&self) -> Millis {
        let first = self.since.saturating_add(self.initial_delay);
        let Some(asked) = self.asked else { return first };
        let eager = !self.succeeded && asked.saturating_sub(first) < millis(EAGER_FOR);
        asked.saturating_add(if eager { millis(EAGER).min(self.period) } else { self.period })
    }

    /// Records one answer to a question asked at `asked`.
    pub fn record(&mut self, answer: Result<(), String>, asked: Millis) {
        self.asked = Some(asked);
        let extra = self.counted.is_some_and(|counted| asked < counted.saturating_add(self.period));
        match answer {
            Ok(()) => {
                self.counted = Some(asked);
                self.succeeded = true;
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                self.passing |= self.successes >= self.success_threshold;
            }
            Err(message) => {
                self.message = message;
                if extra && !self.succeeded {
                    return;
                }
                self.counted = Some(asked);
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                self.passing &= self.failures < self.failure_threshold;
            }
        }
    }

    /// Whether it passes.
    #[must_use]
    pub fn passing(&self) -> bool {
        self.passing
    }

    /// Whether it failed as many times in a row as the threshold says.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failures >= self.failure_threshold
    }
}

/// The probes of one running process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    startup: Option<Track>,
    liveness: Option<Track>,
    readiness: Option<Track>,
}

impl Probes {
    /// The probes of a container whose process runs since `since`.
    #[must_use]
    pub fn new(container: &core::Container, since: Millis) -> Self {
        let track = |probe: &Option<core::Probe>| probe.as_ref().map(|p| Track::new(p, since));
        Self {
            startup: track(&container.startup_probe),
            liveness: track(&container.liveness_probe),
            readiness: track(&container.readiness_probe),
        }
    }

    /// Takes over what the pod's status said before the node was restarted.
    pub fn assume(&mut self, started: bool, ready: bool) {
        if started && let Some(track) = &mut self.startup {
            track.assume_passing();
        }
        if started
            && ready
            && let Some(track) = &mut self.readiness
        {
            track.assume_passing();
        }
    }

    /// Whether the startup probe has passed (or there is none).
    #[must_use]
    pub fn started(&self) -> bool {
        self.startup.as_ref().is_none_or(Track::passing)
    }

    /// Whether the container is ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.started() && self.readiness.as_ref().is_none_or(Track::passing)
    }

    /// The probe that demands a restart, and why.
    #[must_use]
    pub fn verdict(&self) -> Option<(Kind, String)> {
        let failed =
            |kind, track: &Option<Track>| track.as_ref().filter(|t| t.failed()).map(|t| (kind, t.message.clone()));
        if self.started() { failed(Kind::Liveness, &self.liveness) } else { failed(Kind::Startup, &self.startup) }
    }

    /// Why it is not ready, as the last answer said.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        let track = if self.started() { self.readiness.as_ref() } else { self.startup.as_ref() };
        track.filter(|t| !t.passing() && !t.message.is_empty()).map(|t| t.message.as_str())
    }

    /// The probes in force now and when each is due. The startup probe holds the others back and then is silent.
    #[must_use]
    pub fn due(&self) -> Vec<(Kind, Millis, Duration)> {
        let tracks: &[(Kind, &Option<Track>)] = if self.started() {
            &[(Kind::Liveness, &self.liveness), (Kind::Readiness, &self.readiness)]
        } else {
            &[(Kind::Startup, &self.startup)]
        };
        tracks.iter().filter_map(|(kind, track)| track.as_ref().map(|t| (*kind, t.due(), t.timeout))).collect()
    }

    /// Records an answer.
    pub fn record(&mut self, kind: Kind, answer: Result<(), String>, asked: Millis) {
        let started = self.started();
        let track = match kind {
            Kind::Startup => &mut self.startup,
            Kind::Liveness => &mut self.liveness,
            Kind::Readiness => &mut self.readiness,
        };
        if let Some(track) = track {
            track.record(answer, asked);
        }
        if !started && self.started() {
            // Liveness and readiness begin now: their clocks start at the startup probe's success.
            for track in [&mut self.liveness, &mut self.readiness].into_iter().flatten() {
                track.since = track.since.max(asked.saturating_sub(track.initial_delay));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn probe(period: i32, failure: i32, success: i32) -> core::Probe {
        core::Probe {
            period_seconds: Some(period),
            failure_threshold: Some(failure),
            success_threshold: Some(success),
            ..core::Probe::default()
        }
    }

    fn no() -> Result<(), String> {
        Err("503".into())
    }

    #[test]
    fn it_takes_as_many_failures_in_a_row_as_the_threshold_says() {
        let mut track = Track::new(&probe(1, 3, 1), 0);
        track.record(Ok(()), 0);
        assert!(track.passing());
        track.record(no(), 1_000);
        track.record(no(), 2_000);
        assert!(track.passing() && !track.failed());
        track.record(Ok(()), 3_000);
        track.record(no(), 4_000);
        track.record(no(), 5_000);
        track.record(no(), 6_000);
        assert!(!track.passing() && track.failed());
    }

    #[test]
    fn it_takes_as_many_successes_in_a_row_as_the_threshold_says() {
        let mut track = Track::new(&probe(1, 1, 2), 0);
        track.record(Ok(()), 0);
        assert!(!track.passing());
        track.record(no(), 1_000);
        track.record(Ok(()), 2_000);
        assert!(!track.passing());
        track.record(Ok(()), 3_000);
        assert!(track.passing());
    }

    #[test]
    fn before_the_first_success_it_is_asked_often_and_only_one_failure_per_period_counts() {
        let mut track = Track::new(&probe(1, 3, 1), 0);
        let mut asked = 0;
        for _ in 0..50 {
            asked = track.due();
            track.record(no(), asked);
            if track.failed() {
                break;
            }
        }
        assert_eq!(asked, 2_000, "the third counted failure comes two periods after the first");
    }

    #[test]
    fn extra_questions_end_after_a_while_and_after_the_first_success() {
        let mut track = Track::new(&probe(10, 1_000, 1), 0);
        track.record(no(), 25_000);
        assert_eq!(track.due(), 35_000);
        let mut track = Track::new(&probe(10, 3, 1), 0);
        track.record(Ok(()), 70);
        assert_eq!(track.due(), 10_070);
    }

    #[test]
    fn the_startup_probe_holds_the_others_back() {
        let container = core::Container {
            startup_probe: Some(probe(1, 5, 1)),
            liveness_probe: Some(probe(1, 1, 1)),
            readiness_probe: Some(probe(1, 1, 1)),
            ..core::Container::default()
        };
        let mut probes = Probes::new(&container, 0);
        assert_eq!(probes.due().iter().map(|d| d.0).collect::<Vec<_>>(), [Kind::Startup]);
        assert!(!probes.ready() && !probes.started());
        probes.record(Kind::Startup, Ok(()), 400);
        let due: Vec<(Kind, Millis)> = probes.due().iter().map(|d| (d.0, d.1)).collect();
        assert_eq!(due, [(Kind::Liveness, 400), (Kind::Readiness, 400)]);
        probes.record(Kind::Readiness, Ok(()), 401);
        assert!(probes.ready());
        probes.record(Kind::Liveness, no(), 402);
        assert_eq!(probes.verdict(), Some((Kind::Liveness, "503".into())));
    }

    #[test]
    fn a_container_without_probes_is_ready_when_it_runs() {
        let probes = Probes::new(&core::Container::default(), 0);
        assert!(probes.ready() && probes.started() && probes.due().is_empty() && probes.verdict().is_none());
    }

    #[test]
    fn what_was_ready_before_a_restart_of_the_node_is_ready_until_asked() {
        let container = core::Container {
            startup_probe: Some(probe(1, 5, 1)),
            readiness_probe: Some(probe(1, 2, 1)),
            ..core::Container::default()
        };
        let mut probes = Probes::new(&container, 50);
        probes.assume(true, true);
        assert!(probes.ready());
        probes.record(Kind::Readiness, no(), 60);
        assert!(probes.ready());
        probes.record(Kind::Readiness, no(), 1_060);
        assert!(!probes.ready());
    }
}
