//! How far one shard of a backup is, by its workers. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use types::RedisBackup;
use types::backup::ArtifactStatus;
use types::names;

use super::{ATTEMPTS, BETWEEN_SECONDS, END_MOST, Round, START_MOST, is_former, worker};

/// How far one shard is.
pub(super) enum State {
    /// A worker is to be made.
    Begin { attempt: u16 },
    /// A worker is at it.
    Runs,
    /// A worker cannot begin.
    Stuck { why: String },
    /// Nobody hears of a worker.
    Unheard {
        /// What is known.
        why: String,
    },
    /// The last worker failed a moment ago.
    Rests { why: String },
    /// It is stored and checked.
    Stored(Box<ArtifactStatus>),
    /// The pod of this name is an earlier backup's.
    Former {
        /// Its name.
        pod: String,
    },
    /// Too many workers failed.
    GivenUp(String),
}

pub(super) fn shard_state(backup: &RedisBackup, shard: u16, round: Round<'_>) -> State {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let mut last = String::new();
    let mut before: Option<&Pod> = None;
    for attempt in 0..ATTEMPTS {
        let Some(pod) = round.workers.get(&names::backup_pod(name, shard, attempt)) else {
            // What stands in its way for some seconds, as a node that restarts, would else end all attempts.
            let rests = before.is_some_and(|pod| rests_after(pod, attempt, round.now));
            return if rests { State::Rests { why: last } } else { State::Begin { attempt } };
        };
        if is_former(pod, backup) {
            return State::Former { pod: names::backup_pod(name, shard, attempt) };
        }
        before = Some(&**pod);
        match worker::outcome(pod, shard, round.now) {
            // The kubelet says nothing of a volume that does not come in the pod's status, and of a node that has gone nobody does.
            worker::Outcome::Runs if is_pending(pod) && waits_for_long(pod, round.now) => {
                let minutes = START_MOST.as_secs() / 60;
                return State::GivenUp(format!("its worker did not start within {minutes} min; is its volume there?"));
            }
            worker::Outcome::Runs if is_older(pod, worker::DEADLINE_SECONDS + END_MOST, round.now) => {
                return State::GivenUp("its worker did not end in time; is its node there?".to_owned());
            }
            worker::Outcome::Runs => return State::Runs,
            worker::Outcome::Stuck(why) if waits_for_long(pod, round.now) => {
                let minutes = START_MOST.as_secs() / 60;
                return State::GivenUp(format!("its worker did not start within {minutes} min: {why}"));
            }
            worker::Outcome::Stuck(why) => return State::Stuck { why },
            worker::Outcome::Unheard(why) => return State::Unheard { why },
            worker::Outcome::Stored(artifact) => return State::Stored(artifact),
            worker::Outcome::Failed(why) => last = why,
        }
    }
    State::GivenUp(format!("{ATTEMPTS} attempts failed, the last one: {last}"))
}

/// The attempt before this one ended a moment ago. One that ends only in future by the clock of its node has ended, and nobody knows when.
fn rests_after(before: &Pod, attempt: u16, now: Timestamp) -> bool {
    let ended = worker::ended_at(before).or(before.metadata.creation_timestamp.as_ref());
    let most = BETWEEN_SECONDS.saturating_mul(i64::from(attempt));
    ended.is_some_and(|ended| (0..=most).contains(&now.duration_since(ended.0).as_secs()))
}

/// Since it was made, whatever its node does: no deadline of the kubelet counts for a pod that has none.
fn waits_for_long(pod: &Pod, now: Timestamp) -> bool {
    is_older(pod, i64::try_from(START_MOST.as_secs()).unwrap_or(i64::MAX), now)
}

fn is_older(pod: &Pod, seconds: i64, now: Timestamp) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| now.duration_since(made.0).as_secs() > seconds)
}

fn is_pending(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("Pending"))
}
