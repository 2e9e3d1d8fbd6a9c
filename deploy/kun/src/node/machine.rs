//! The life of one pod's process, as a pure state machine: what is wanted and what is seen go in, one action comes out.
//!
//! It must not know files, sockets, signals or the API: `worker.rs` carries the actions out and feeds back what
//! happened. Time is a number of milliseconds on the node's own monotonic clock.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Milliseconds on the node's monotonic clock.
pub type Millis = u64;

/// First delay before a process that ended is started again; it doubles with each failure in a row.
pub const RESTART_DELAY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay between restarts: a Redis that comes back late costs more than a loop that is visible anyway.
pub const RESTART_DELAY_MAX: Duration = Duration::from_secs(10);
/// A process that ran this long was healthy: its failures are forgotten.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// How long to wait before looking again for something a pod needs and does not find (changes wake it earlier).
pub const HOLD_RETRY: Duration = Duration::from_secs(5);

/// What is wanted of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It should run, or have run, as the restart policy says.
    Run,
    /// The pod is being deleted, or has gone from the API: stop within the grace period, then remove what is left.
    Delete {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// The node itself is stopping: stop within the grace period, keep the pod.
    Park {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

/// The pod's restart policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// Only when the exit code is not 0.
    OnFailure,
    /// Never.
    Never,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code; 128 + signal after a signal, as a shell counts; 137 when nobody could see it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// One word: Completed, Error, ContainerStatusUnknown.
    pub reason: String,
    /// What the process left in its termination message file, or why it was stopped.
    pub message: String,
    /// When it had started.
    pub started_at: Option<Timestamp>,
    /// When it was seen to be gone.
    pub finished_at: Option<Timestamp>,
}

/// Why no process runs at the moment although one is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// One word, as Kubernetes uses it: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff …
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
}

/// Where the process is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// No process.
    Idle {
        /// Not to be started before this.
        not_before: Millis,
        /// Why it waits, if there is more to say than "soon".
        waiting: Option<Waiting>,
    },
    /// It runs.
    Running {
        /// Since when (or since it was adopted).
        since: Millis,
    },
    /// It was asked to stop.
    Stopping {
        /// When it had been started.
        since: Millis,
        /// When it is killed.
        deadline: Millis,
        /// Whether SIGKILL was sent.
        killed: bool,
    },
    /// It has run its course: the restart policy wants no other.
    Done,
}

/// Everything remembered about the process of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Where it is in its life.
    pub life: Life,
    /// Restart policy of the pod.
    pub policy: RestartPolicy,
    /// Times it was started again.
    pub restarts: u32,
    /// Failures in a row, for the delay.
    pub failures: u32,
    /// How it ended last.
    pub last: Option<Exit>,
}

/// What the probes say about a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No probe demands a restart.
    Fine,
    /// The startup or liveness probe failed for good.
    Failed {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until something happens or the clock says so.
    Rest,
    /// Prepare volumes and environment, then start the process.
    Start,
    /// Ask it to stop: SIGTERM.
    Terminate {
        /// Time until SIGKILL.
        grace: Duration,
    },
    /// SIGKILL to everything it started.
    Kill,
    /// No process is left and the pod is to go: remove it from the API and from disk.
    Remove,
    /// No process is left and the node is stopping.
    Leave,
}

/// An action and when to ask again if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// When to look again.
    pub wake: Option<Millis>,
}

impl Machine {
    /// A pod without process.
    #[must_use]
    pub fn new(policy: RestartPolicy, restarts: u32, last: Option<Exit>) -> Self {
        Self { life: Life::Idle { not_before: 0, waiting: None }, policy, restarts, failures: 0, last }
    }

    /// What to do, given what is wanted, how the process feels and what time it is.
    #[must_use]
    pub fn decide(&self, wish: Wish, health: Health, now: Millis) -> Step {
        match (&self.life, wish) {
            (Life::Idle { .. } | Life::Done, Wish::Delete { .. }) => act(Action::Remove),
            (Life::Idle { .. } | Life::Done, Wish::Park { .. }) => act(Action::Leave),
            (Life::Done, Wish::Run) => act(Action::Rest),
            (Life::Idle { not_before, .. }, Wish::Run) if now >= *not_before => act(Action::Start),
            (Life::Idle { not_before, .. }, Wish::Run) => rest_until(*not_before),
            (Life::Running { .. }, Wish::Delete { grace } | Wish::Park { grace }) => act(Action::Terminate { grace }),
            (Life::Running { .. }, Wish::Run) => match health {
                Health::Fine => act(Action::Rest),
                Health::Failed { grace } => act(Action::Terminate { grace }),
            },
            (Life::Stopping { killed: true, .. }, _) => act(Action::Rest),
            (Life::Stopping { deadline, .. }, Wish::Delete { grace }) => {
                // A second DELETE may shorten the grace period, never lengthen it.
                let deadline = (*deadline).min(now.saturating_add(millis(grace)));
                if now >= deadline { act(Action::Kill) } else { rest_until(deadline) }
            }
            (Life::Stopping { deadline, .. }, Wish::Run | Wish::Park { .. }) => {
                if now >= *deadline {
                    act(Action::Kill)
                } else {
                    rest_until(*deadline)
                }
            }
        }
    }

    /// The process was started, or an earlier one was taken over.
    pub fn started(&mut self, now: Millis) {
        self.life = Life::Running { since: now };
    }

    /// It could not be started; it is tried again.
    pub fn held(&mut self, waiting: Waiting, now: Millis) {
        self.life = Life::Idle { not_before: now.saturating_add(millis(HOLD_RETRY)), waiting: Some(waiting) };
    }

    /// Something a held pod may wait for has changed: look again at once.
    pub fn stir(&mut self, now: Millis) {
        if let Life::Idle { not_before, waiting: Some(waiting) } = &mut self.life
            && waiting.reason != CRASH_LOOP
        {
            *not_before = now;
        }
    }

    /// SIGTERM was sent.
    pub fn terminated(&mut self, grace: Duration, now: Millis) {
        let since = match self.life {
            Life::Running { since } | Life::Stopping { since, .. } => since,
            Life::Idle { .. } | Life::Done => now,
        };
        self.life = Life::Stopping { since, deadline: now.saturating_add(millis(grace)), killed: false };
    }

    /// SIGKILL was sent.
    pub fn killed(&mut self, now: Millis) {
        let since = match self.life {
            Life::Running { since } | Life::Stopping { since, .. } => since,
            Life::Idle { .. } | Life::Done => now,
        };
        self.life = Life::Stopping { since, deadline: now, killed: true };
    }

    /// The process and all it started are gone.
    pub fn exited(&mut self, exit: Exit, wish: Wish, now: Millis) {
        let since = match self.life {
            Life::Running { since } | Life::Stopping { since, .. } => since,
            Life::Idle { .. } | Life::Done => now,
        };
        let over = match self.policy {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => exit.code == 0,
            RestartPolicy::Never => true,
        };
        self.failures =
            if now.saturating_sub(since) >= millis(HEALTHY_AFTER) { 1 } else { self.failures.saturating_add(1) };
        let code = exit.code;
        self.last = Some(exit);
        if over && wish == Wish::Run {
            self.life = Life::Done;
            return;
        }
        self.restarts = self.restarts.saturating_add(1);
        let delay = restart_delay(self.failures);
        let waiting = (self.failures > 1).then(|| Waiting {
            reason: CRASH_LOOP.to_owned(),
            message: format!(
                "the process ended with exit code {code}, {} times in a row; it is started again {} ms after it ended",
                self.failures,
                delay.as_millis()
            ),
        });
        self.life = Life::Idle { not_before: now.saturating_add(millis(delay)), waiting };
    }
}

/// Waiting reason between restarts.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Delay before the next start after `failures` failures in a row.
#[must_use]
pub fn restart_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    RESTART_DELAY_FIRST.saturating_mul(1 << doublings).min(RESTART_DELAY_MAX)
}

/// A duration on the node's clock.
#[must_use]
pub fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn act(action: Action) -> Step {
    Step { action, wake: None }
}

fn rest_until(wake: Millis) -> Step {
    Step { action: Action::Rest, wake: Some(wake) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn exit(code: i32) -> Exit {
        Exit { code, signal: None, reason: "Error".into(), message: String::new(), started_at: None, finished_at: None }
    }

    fn machine(life: Life) -> Machine {
        Machine { life, ..Machine::new(RestartPolicy::Always, 0, None) }
    }

    #[test]
    fn every_life_and_every_wish_has_one_answer() {
        let idle = || Life::Idle { not_before: 100, waiting: None };
        let running = || Life::Running { since: 0 };
        let stopping = || Life::Stopping { since: 0, deadline: 500, killed: false };
        let killed = || Life::Stopping { since: 0, deadline: 500, killed: true };
        let delete = Wish::Delete { grace: GRACE };
        let park = Wish::Park { grace: GRACE };
        let failed = Health::Failed { grace: GRACE };
        let table = [
            (idle(), Wish::Run, Health::Fine, 99, rest_until(100)),
            (idle(), Wish::Run, Health::Fine, 100, act(Action::Start)),
            (idle(), delete, Health::Fine, 0, act(Action::Remove)),
            (idle(), park, Health::Fine, 100, act(Action::Leave)),
            (running(), Wish::Run, Health::Fine, 9, act(Action::Rest)),
            (running(), Wish::Run, failed, 9, act(Action::Terminate { grace: GRACE })),
            (running(), delete, Health::Fine, 9, act(Action::Terminate { grace: GRACE })),
            (running(), park, Health::Fine, 9, act(Action::Terminate { grace: GRACE })),
            (stopping(), Wish::Run, Health::Fine, 499, rest_until(500)),
            (stopping(), Wish::Run, Health::Fine, 500, act(Action::Kill)),
            (stopping(), delete, Health::Fine, 499, rest_until(500)),
            (stopping(), Wish::Delete { grace: Duration::ZERO }, Health::Fine, 1, act(Action::Kill)),
            (stopping(), park, Health::Fine, 501, act(Action::Kill)),
            (killed(), Wish::Run, failed, 900, act(Action::Rest)),
            (killed(), delete, Health::Fine, 900, act(Action::Rest)),
            (Life::Done, Wish::Run, Health::Fine, 1, act(Action::Rest)),
            (Life::Done, delete, Health::Fine, 1, act(Action::Remove)),
            (Life::Done, park, Health::Fine, 1, act(Action::Leave)),
        ];
        for (life, wish, health, now, expected) in table {
            assert_eq!(
                machine(life.clone()).decide(wish, health, now),
                expected,
                "{life:?} {wish:?} {health:?} at {now}"
            );
        }
    }

    #[test]
    fn restarts_are_fast_first_then_double_up_to_ten_seconds() {
        let delays: Vec<u128> = (1..=10).map(|n| restart_delay(n).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
        assert_eq!(restart_delay(u32::MAX).as_millis(), 10_000);
    }

    #[test]
    fn a_process_that_ends_is_started_again_and_a_healthy_minute_forgets_its_failures() {
        let mut m = machine(Life::Running { since: 0 });
        m.exited(exit(1), Wish::Run, 1_000);
        assert_eq!((m.restarts, m.failures, m.life.clone()), (1, 1, Life::Idle { not_before: 1_100, waiting: None }));
        m.started(1_100);
        m.exited(exit(1), Wish::Run, 1_200);
        let Life::Idle { not_before, waiting: Some(waiting) } = m.life.clone() else { panic!("{m:?}") };
        assert_eq!((not_before, waiting.reason.as_str(), m.restarts), (1_400, CRASH_LOOP, 2));
        m.started(1_400);
        m.exited(exit(1), Wish::Run, 1_400 + 60_000);
        assert_eq!((m.failures, m.restarts), (1, 3));
    }

    #[test]
    fn the_restart_policy_says_whether_an_end_is_the_end() {
        for (policy, code, done) in [
            (RestartPolicy::Always, 0, false),
            (RestartPolicy::Always, 1, false),
            (RestartPolicy::OnFailure, 0, true),
            (RestartPolicy::OnFailure, 2, false),
            (RestartPolicy::Never, 0, true),
            (RestartPolicy::Never, 3, true),
        ] {
            let mut m = Machine::new(policy, 0, None);
            m.started(0);
            m.exited(exit(code), Wish::Run, 10);
            assert_eq!(m.life == Life::Done, done, "{policy:?} {code}");
        }
    }

    #[test]
    fn a_worker_that_was_parked_has_not_run_its_course() {
        let mut m = Machine::new(RestartPolicy::OnFailure, 0, None);
        m.started(0);
        m.exited(exit(0), Wish::Park { grace: GRACE }, 10);
        assert_ne!(m.life, Life::Done);
    }

    #[test]
    fn a_change_wakes_a_held_pod_but_not_a_crash_loop() {
        let mut held = machine(Life::Idle { not_before: 0, waiting: None });
        held.held(Waiting { reason: "CreateContainerConfigError".into(), message: "no".into() }, 10);
        assert_eq!(held.decide(Wish::Run, Health::Fine, 11).wake, Some(5_010));
        held.stir(12);
        assert_eq!(held.decide(Wish::Run, Health::Fine, 12).action, Action::Start);
        let mut looping = machine(Life::Running { since: 0 });
        looping.exited(exit(1), Wish::Run, 0);
        looping.started(100);
        looping.exited(exit(1), Wish::Run, 200);
        looping.stir(201);
        assert_eq!(looping.decide(Wish::Run, Health::Fine, 201), rest_until(400));
    }
}
