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
    let name = |attempt| names::backup_pod(backup.metadata.name.as_deref().unwrap_or_default(), shard, attempt);
    let (mut open, mut last) = (None, None);
    // The object of one may have gone with its node: those after it count on.
    for attempt in 0..ATTEMPTS {
        let Some(pod) = round.workers.get(&name(attempt)).filter(|pod| !is_former(pod, backup)) else { continue };
        match so_far(pod, shard, round.now) {
            // Whatever became of the others.
            Ok(stored @ State::Stored(_)) => return stored,
            Ok(state) => open = open.or(Some(state)),
            Err(why) => last = Some((attempt, pod, why)),
        }
    }
    if let Some(state) = open {
        return state;
    }
    let next = last.as_ref().map_or(0, |(attempt, ..)| attempt.saturating_add(1));
    match last {
        Some((.., why)) if next >= ATTEMPTS => {
            State::GivenUp(format!("{ATTEMPTS} attempts failed, the last one: {why}"))
        }
        _ if round.workers.contains_key(&name(next)) => State::Former { pod: name(next) },
        // What stands in its way for some seconds, as a node that restarts, would else end all attempts.
        Some((_, pod, why)) if rests_after(pod, next, round.now) => State::Rests { why },
        Some(_) | None => State::Begin { attempt: next },
    }
}

/// How far one worker has come; else it failed, and why.
fn so_far(pod: &Pod, shard: u16, now: Timestamp) -> Result<State, String> {
    let minutes = START_MOST.as_secs() / 60;
    Ok(match worker::outcome(pod, shard, now) {
        // The kubelet says nothing of a volume that does not come in the pod's status, and of a node that has gone nobody does.
        worker::Outcome::Runs if is_pending(pod) && waits_for_long(pod, now) => {
            State::GivenUp(format!("its worker did not start within {minutes} min; is its volume there?"))
        }
        worker::Outcome::Runs if is_older(pod, worker::DEADLINE_SECONDS + END_MOST, now) => {
            State::GivenUp("its worker did not end in time; is its node there?".to_owned())
        }
        worker::Outcome::Runs => State::Runs,
        worker::Outcome::Stuck(why) if waits_for_long(pod, now) => {
            State::GivenUp(format!("its worker did not start within {minutes} min: {why}"))
        }
        worker::Outcome::Stuck(why) => State::Stuck { why },
        worker::Outcome::Unheard(why) => State::Unheard { why },
        worker::Outcome::Stored(artifact) => State::Stored(artifact),
        worker::Outcome::Failed(why) => return Err(why),
    })
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
