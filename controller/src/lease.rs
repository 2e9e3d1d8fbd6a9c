//! Leader election on a coordination.k8s.io Lease: at most one controller acts at a time.
//!
//! `decide` is pure. The renewing task measures on a monotonic clock, because wall clocks jump; whether another
//! holder's lease has expired is judged by how long *we* have seen it unchanged, never by its time stamps.
//! A lease is not a fence (client-go says so of its own): the [`Guard`] makes the window small, and every Redis step
//! is safe when two controllers run it. This module must not know what is done under the lease.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use tokio_util::sync::CancellationToken;
use types::patience;

/// Which lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Namespace; it must be there.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Name {
    /// The controller's lease in a namespace.
    #[must_use]
    pub fn of_controller(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: "kun-controller".to_owned() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How long a lease holds without being renewed: client-go's default, so that operators find what they know.
pub const DURATION: Duration = Duration::from_secs(15);
/// How often the holder renews and others look: five tries fit in one duration.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);
/// The holder stops acting this long before others may take over: covers one Redis deadline and a slow scheduler.
pub const MARGIN: Duration = Duration::from_secs(4);
/// After a round that failed. Several still fit before the margin.
const FAILED_PAUSE: Duration = Duration::from_millis(500);
/// How often a failing election is told of: it tries twice a second, and an API server may be away for an hour.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// A renewal that takes longer is given up: the next try must still fit before the margin.
const CALL_DEADLINE: Duration = Duration::from_secs(2);

/// What the election cannot do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lease could not be read.
    #[error("reading the lease {0}")]
    Read(Name, #[source] kube::Error),
    /// The lease could not be written.
    #[error("writing the lease {0}")]
    Write(Name, #[source] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer about the lease {0} within {1:?}")]
    Deadline(Name, Duration),
}

impl Error {
    /// The API server understood and said that we may not.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Read(_, source) | Self::Write(_, source) => {
                matches!(source, kube::Error::Api(status) if status.code == 403)
            }
            Self::Deadline(..) => false,
        }
    }
}

/// What to do about a lease as seen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nobody holds it, or its holder let it expire: write ourselves into it, counting one more transition.
    Acquire,
    /// It is ours: renew it.
    Renew,
    /// Somebody else holds it; look again when it might have expired.
    Wait(Duration),
}

/// A lease as last seen, and for how long it has been seen unchanged (monotonic).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<'a> {
    /// The specification, if the lease exists.
    pub spec: Option<&'a LeaseSpec>,
    /// How long the lease has been observed without any change.
    pub unchanged_for: Duration,
}

/// Acquire, renew or wait.
#[must_use]
pub fn decide(seen: Seen<'_>, identity: &str) -> Decision {
    let Some(spec) = seen.spec else { return Decision::Acquire };
    match spec.holder_identity.as_deref() {
        None | Some("") => Decision::Acquire,
        Some(holder) if holder == identity => Decision::Renew,
        Some(_) => {
            let duration =
                spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(DURATION.as_secs());
            let left = Duration::from_secs(duration).saturating_sub(seen.unchanged_for);
            if left.is_zero() { Decision::Acquire } else { Decision::Wait(left.min(RENEW_EVERY)) }
        }
    }
}

/// The specification to write for a decision.
#[must_use]
pub fn next_spec(current: Option<&LeaseSpec>, decision: Decision, identity: &str, now: Timestamp) -> LeaseSpec {
    let mut spec = current.cloned().unwrap_or_default();
    if decision == Decision::Acquire {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
    spec.renew_time = Some(MicroTime(now));
    spec
}

/// Tells whether we may act, without asking anybody: valid until a moment of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Guard {
    start: Instant,
    /// Milliseconds after `start` until which we may act; 0: not at all.
    until_millis: Arc<AtomicU64>,
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

impl Guard {
    /// A guard that is not valid yet.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now(), until_millis: Arc::new(AtomicU64::new(0)) }
    }

    /// A guard that stays valid: for tests, and for a process that cannot have a rival.
    #[must_use]
    pub fn always() -> Self {
        let guard = Self::new();
        guard.until_millis.store(u64::MAX, Ordering::SeqCst);
        guard
    }

    /// Whether we may act now. Ask immediately before every Redis write.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.until_millis.load(Ordering::SeqCst)
    }

    /// The lease was renewed by a request *sent* at `sent`: we may act until its end less the margin.
    fn extend(&self, sent: Instant) {
        let until = sent.saturating_duration_since(self.start) + DURATION.saturating_sub(MARGIN);
        self.until_millis.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// We may not act any more.
    pub fn revoke(&self) {
        self.until_millis.store(0, Ordering::SeqCst);
    }
}

/// Takes part in the election until `shutdown`; `guard` is valid while we hold the lease. On shutdown the lease is
/// given back, so that a successor need not wait for it to expire.
pub async fn hold(client: kube::Client, name: Name, identity: String, guard: Guard, shutdown: CancellationToken) {
    let leases = Api::namespaced(client, &name.namespace);
    let mut election = Election { leases, name, identity, guard, last: None };
    let mut told: Option<Instant> = None;
    let mut refusals = 0_u32;
    loop {
        let deadline = Error::Deadline(election.name.clone(), CALL_DEADLINE);
        let round = tokio::time::timeout(CALL_DEADLINE, election.round()).await.unwrap_or(Err(deadline));
        refusals = if round.as_ref().is_err_and(Error::is_refusal) { refusals.saturating_add(1) } else { 0 };
        let pause = round.unwrap_or_else(|error| {
            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                tracing::warn!(error = %crate::chain(&error), "the election goes on without this round");
                told = Some(Instant::now());
            }
            if refusals > 0 { patience::after(refusals) } else { FAILED_PAUSE }
        });
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    let held = election.guard.is_valid();
    election.guard.revoke();
    if held && let Ok(Err(error)) = tokio::time::timeout(CALL_DEADLINE, election.give_back()).await {
        tracing::info!(error = %crate::chain(&error), "the lease was not given back; it will expire");
    }
}

/// One participant.
struct Election {
    leases: Api<Lease>,
    name: Name,
    identity: String,
    guard: Guard,
    /// The resource version last seen, and since when.
    last: Option<(String, Instant)>,
}

impl Election {
    /// Looks once, acts on the decision, and says when to look again.
    async fn round(&mut self) -> Result<Duration, Error> {
        let live = self.leases.get_opt(&self.name.name).await.map_err(|error| Error::Read(self.name.clone(), error))?;
        let unchanged_for = self.note(live.as_ref());
        let spec = live.as_ref().and_then(|lease| lease.spec.as_ref());
        match decide(Seen { spec, unchanged_for }, &self.identity) {
            Decision::Wait(left) => {
                self.guard.revoke();
                Ok(left)
            }
            decision @ (Decision::Acquire | Decision::Renew) => self.write(live.as_ref(), decision).await,
        }
    }

    /// Remembers when the lease last changed, and says how long it has not.
    fn note(&mut self, live: Option<&Lease>) -> Duration {
        let version = live.and_then(|lease| lease.metadata.resource_version.clone()).unwrap_or_default();
        match &self.last {
            Some((seen, since)) if *seen == version => since.elapsed(),
            Some(_) | None => {
                self.last = Some((version, Instant::now()));
                Duration::ZERO
            }
        }
    }

    async fn write(&mut self, live: Option<&Lease>, decision: Decision) -> Result<Duration, Error> {
        let spec = next_spec(live.and_then(|l| l.spec.as_ref()), decision, &self.identity, Timestamp::now());
        let mut lease = live.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.name.clone()),
                namespace: Some(self.name.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        lease.spec = Some(spec);
        let sent = Instant::now();
        let written = if live.is_some() {
            self.leases.replace(&self.name.name, &PostParams::default(), &lease).await
        } else {
            self.leases.create(&PostParams::default(), &lease).await
        };
        match written {
            Ok(_) => {
                self.guard.extend(sent);
                if decision == Decision::Acquire {
                    tracing::info!(identity = %self.identity, lease = %self.name, "this process leads");
                }
                Ok(RENEW_EVERY)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                // Somebody else wrote first; what they wrote decides, so look at once.
                Ok(Duration::from_millis(50))
            }
            Err(error) => Err(Error::Write(self.name.clone(), error)),
        }
    }

    async fn give_back(&self) -> Result<(), Error> {
        let Some(mut lease) =
            self.leases.get_opt(&self.name.name).await.map_err(|error| Error::Read(self.name.clone(), error))?
        else {
            return Ok(());
        };
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(self.identity.as_str()) {
            return Ok(());
        }
        spec.holder_identity = None;
        let written = self.leases.replace(&self.name.name, &PostParams::default(), &lease).await;
        written.map_err(|error| Error::Write(self.name.clone(), error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_that_does_not_exist_or_has_no_holder_is_acquired() {
        let given_back = held_by("", 3);
        assert_eq!(decide(Seen { spec: None, unchanged_for: Duration::ZERO }, "a"), Decision::Acquire);
        assert_eq!(decide(Seen { spec: Some(&given_back), unchanged_for: Duration::ZERO }, "a"), Decision::Acquire);
    }

    #[test]
    fn our_own_lease_is_renewed_and_a_living_rival_is_waited_for() {
        let spec = held_by("b", 1);
        let seen = |secs| Seen { spec: Some(&spec), unchanged_for: Duration::from_secs(secs) };
        assert_eq!(decide(seen(100), "b"), Decision::Renew);
        assert_eq!(decide(seen(1), "a"), Decision::Wait(RENEW_EVERY));
        assert_eq!(decide(seen(14), "a"), Decision::Wait(Duration::from_secs(1)));
        assert_eq!(decide(seen(15), "a"), Decision::Acquire);
    }

    #[test]
    fn only_a_change_of_holder_counts_a_transition() {
        let now = Timestamp::UNIX_EPOCH;
        let spec = held_by("b", 4);
        let renewed = next_spec(Some(&spec), Decision::Renew, "b", now);
        let acquired = next_spec(Some(&spec), Decision::Acquire, "a", now);
        assert_eq!(renewed.lease_transitions, Some(4));
        assert_eq!(acquired.lease_transitions, Some(5));
        assert_eq!(acquired.holder_identity.as_deref(), Some("a"));
        assert_eq!(next_spec(None, Decision::Acquire, "a", now).lease_transitions, Some(1));
    }

    #[test]
    fn a_guard_is_valid_only_between_a_renewal_and_its_margin() {
        let guard = Guard::new();
        assert!(!guard.is_valid());
        guard.extend(Instant::now());
        assert!(guard.is_valid());
        guard.revoke();
        assert!(!guard.is_valid());
        // A renewal whose request was sent long ago gives nothing.
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(12)) else { return };
        let guard = Guard { start: long_ago, until_millis: Arc::new(AtomicU64::new(0)) };
        guard.extend(long_ago);
        assert!(!guard.is_valid());
    }
}
