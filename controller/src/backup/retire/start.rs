//! Asking Kubernetes for the workers that delete artifacts, and telling why there is none yet. A worker that is refused is asked for again, ever
//! more seldom: a quota has room again, and a rule is mended by a person.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::time;
use types::RedisBackup;
use types::condition::{Condition, Status};

use super::{Ending, Means, PATIENCE_TO_START, WHILE_IT_RUNS, left, place, uid};
use crate::api::{self, Kubernetes};
use crate::backup::{Error, failed, write_status};
use crate::chain;
use crate::events::Tone;
use crate::queue::Key;
use crate::report::{seconds, without_numbers};

/// Condition of a backup that is being deleted: why its artifacts are not yet.
const CONDITION: &str = "ArtifactsDeleted";
/// Refusals of one cluster's workers in one look: a quota that is used up refuses them all, and the cluster is looked after between two looks.
const REFUSALS_MOST: u32 = 16;
/// After how long one look asks for no more: one that is not answered about takes many seconds.
const ASKING_MOST: Duration = Duration::from_secs(5);
/// How long what was asked before that is waited for: an answer of 15 s, and the writing of what it was. With [`ASKING_MOST`] it leaves half of its
/// deadline to the rest of a reconcile.
const ANSWERS_MOST: Duration = Duration::from_secs(20);

/// One look at the backups of a cluster that are being deleted.
pub(super) struct Look<'a> {
    pub(super) kubernetes: &'a Kubernetes,
    pub(super) means: Means<'a>,
    key: &'a Key,
    until: time::Instant,
    refused: u32,
}

impl<'a> Look<'a> {
    pub(super) fn new(kubernetes: &'a Kubernetes, means: Means<'a>, key: &'a Key) -> Self {
        Self { kubernetes, means, key, until: time::Instant::now() + ASKING_MOST, refused: 0 }
    }

    /// It leaves the rest to the next one.
    pub(super) fn is_over(&self) -> bool {
        time::Instant::now() >= self.until
    }

    /// When it is given up, whatever it does.
    pub(super) fn ends(&self) -> time::Instant {
        self.until + ANSWERS_MOST
    }

    /// Asks for a worker, unless it was refused a moment ago. When to look again, and how it ends if it cannot go on.
    pub(super) async fn start(&mut self, backup: &RedisBackup, pod: &Pod) -> Result<(Duration, Option<Ending>), Error> {
        let (now, refusals) = (Instant::now(), self.means.refusals);
        let rest = refusals.of(self.key, uid(backup)).map(|refusal| refusal.due.saturating_duration_since(now));
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Ok((rest, None));
        }
        if self.refused >= REFUSALS_MOST || self.is_over() {
            return Ok((WHILE_IT_RUNS, None));
        }
        let why = match self.kubernetes.create(pod).await {
            Ok(_) => {
                refusals.forget(self.key, uid(backup));
                self.tell(backup, "WorkerRefused", None).await?;
                return Ok((WHILE_IT_RUNS, None));
            }
            Err(error) if error.is_of_leaving_namespace() => {
                let why = format!("no worker may be started: {}", chain(&error));
                return Ok((WHILE_IT_RUNS, Some(Ending::Left(left(backup, &why)))));
            }
            Err(error @ api::Error::NotLeading { .. }) => return Err(failed(backup)(error)),
            Err(api::Error::Changed { name, .. }) => format!("there is a pod {name} already"),
            Err(error @ (api::Error::Refused { .. } | api::Error::Request { .. })) => chain(&error),
        };
        self.refused = self.refused.saturating_add(1);
        let pause = refusals.note(self.key, uid(backup), why.clone(), Instant::now());
        self.tell(backup, "WorkerRefused", Some(&why)).await?;
        Ok((pause, None))
    }

    /// Why its last worker was refused, if none was taken since.
    pub(super) fn last_refusal(&self, backup: &RedisBackup) -> Option<String> {
        self.means.refusals.of(self.key, uid(backup)).map(|refusal| refusal.why)
    }

    /// Says in the status, and in an event, why there is no worker yet; `None`: nothing stands in its way any more.
    pub(super) async fn tell(&self, backup: &RedisBackup, reason: &str, why: Option<&str>) -> Result<(), Error> {
        let condition = why.map(|why| condition(backup, reason, why, Timestamp::now()));
        if condition.as_ref() == known(backup) {
            return Ok(());
        }
        if let Some(condition) = &condition {
            self.means.events.tell(backup, Tone::Warning, reason, &condition.message);
        }
        let mut status = backup.status.clone().unwrap_or_default();
        status.conditions.retain(|condition| condition.kind != CONDITION);
        status.conditions.extend(condition);
        write_status(self.kubernetes, backup, status).await
    }
}

/// What its status says of why there is no worker.
fn known(backup: &RedisBackup) -> Option<&Condition> {
    backup.status.as_ref()?.conditions.iter().find(|condition| condition.kind == CONDITION)
}

/// What is told. Words that differ in nothing but numbers stay as they are, or a scheduler's would be written again and again.
fn condition(backup: &RedisBackup, reason: &str, why: &str, now: Timestamp) -> Condition {
    let until = backup.metadata.deletion_timestamp.as_ref().map(|since| since.0.saturating_add(PATIENCE_TO_START));
    let until = until.and_then(Result::ok).map(|until| format!(" One is waited for until {}.", seconds(until)));
    let (place, until) = (place(backup), until.unwrap_or_default());
    let message = format!("no worker deletes the artifacts in {place} yet: {why}.{until}");
    let before = known(backup).filter(|known| known.reason == reason);
    let same = before.filter(|known| without_numbers(&known.message) == without_numbers(&message));
    Condition {
        kind: CONDITION.to_owned(),
        status: Status::False,
        observed_generation: None,
        last_transition_time: before.map_or_else(|| seconds(now), |known| known.last_transition_time),
        reason: reason.to_owned(),
        message: same.map_or(message, |known| known.message.clone()),
    }
}
