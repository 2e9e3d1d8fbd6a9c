//! How long a restart may go without a pod that comes back. What it needs to know from look to look is in its conditions, as all that must
//! survive a crash. Pure.

use jiff::Timestamp;
use plan::{Plan, Waiting};
use types::condition::{Condition, Status};
use types::operation::{Progress, RedisOperationStatus};

use super::{Round, takes_its_time};
use crate::report::{seconds, waits_for, without_numbers};

/// A restart that has waited for so long, in seconds, since the last pod came back or the last step was done, is given up: a pod that is restarted
/// is back within minutes, and nobody else may ask for anything meanwhile. A copy that runs is not counted, and neither is a person who is asked.
const STILL_MOST: i64 = 3600;
/// One of which no pod has come back for so long, in seconds, whatever was done and copied: what takes its time ends as well.
const EVER_MOST: i64 = 24 * 3600;
/// Condition: since when no further pod has come back.
const PROGRESSING: &str = "Progressing";
/// Condition: since when something goes on that is not counted.
const LASTING: &str = "Lasting";
/// Before the steps that were refused last, in what Progressing says. Read back.
pub(super) const REFUSED_LAST: &str = "refused last: ";

/// Notes how many pods are back, the most there were: who is away for a moment was restarted all the same, and that he returns is no progress.
pub(super) fn advance(status: &mut RedisOperationStatus, progress: Progress) -> i64 {
    let (most, of) = status.progress.as_ref().map_or((0, progress.total), |before| (before.done, before.total));
    if progress.done > most {
        // It moves: what is waited for from now on has its own time.
        status.conditions = Vec::new();
    }
    // Of another size of the cluster it says nothing.
    let done = if of == progress.total { progress.done.max(most) } else { progress.done };
    status.progress = Some(Progress { done, ..progress });
    done
}

/// The conditions beside what is waited for. What has gone on until now without being counted is taken out of the time that was waited.
pub(super) fn marks(status: &mut RedisOperationStatus, round: Round<'_>) -> Vec<Condition> {
    if [PROGRESSING, LASTING].iter().all(|kind| condition(&status.conditions, kind).is_none()) {
        // Nothing yet, or of an earlier release, whose hour went on during copies.
        status.conditions = Vec::new();
    }
    let goes_on = lasts(round);
    let over = condition(&status.conditions, LASTING).filter(|_| !goes_on).map(|known| known.last_transition_time);
    if let Some(since) = over {
        for waits in status.conditions.iter_mut().filter(|condition| condition.status == Status::False) {
            waits.last_transition_time = later(waits.last_transition_time, since, round.now);
        }
    }
    let status = &*status;
    let before = &status.conditions;
    let lasting = goes_on.then(|| {
        let text = "what takes its time, as a copy, a move of slots or a person's approval, is not counted".to_owned();
        mark(before, (LASTING, "CopyOrApproval"), text, round.now)
    });
    // A person takes as long as he takes, and so do moves; it begins anew after.
    let progressing = || mark(before, (PROGRESSING, "PodsBack"), pods_back(status, round), round.now);
    let progressing = (!asks_a_person(round.plan) && !moves(round.plan)).then(progressing);
    progressing.into_iter().chain(lasting).collect()
}

/// A time as much later as has passed since another, and not in future.
fn later(time: Timestamp, since: Timestamp, now: Timestamp) -> Timestamp {
    let passed = now.as_second().saturating_sub(since.as_second()).max(0);
    let moved = time.as_second().saturating_add(passed).min(now.as_second());
    Timestamp::from_second(moved).unwrap_or(time)
}

/// A condition that holds, since when it has.
fn mark(before: &[Condition], (kind, reason): (&str, &str), message: String, now: Timestamp) -> Condition {
    let since = condition(before, kind).map_or_else(|| seconds(now), |known| known.last_transition_time);
    Condition {
        kind: kind.to_owned(),
        status: Status::True,
        observed_generation: None,
        last_transition_time: since,
        reason: reason.to_owned(),
        message,
    }
}

/// How many pods are back, and which steps were refused last. Where only numbers of these differ that is worth no write.
fn pods_back(status: &RedisOperationStatus, round: Round<'_>) -> String {
    let known = refused_last(&status.conditions).unwrap_or_default();
    let failed = round.failed.join("; ");
    let is_known = failed.is_empty() || without_numbers(&failed) == without_numbers(known);
    let refused = if is_known { known } else { failed.as_str() };
    let (done, total) = status.progress.as_ref().map_or((0, 0), |progress| (progress.done, progress.total));
    let back = format!("{done} of {total} pods are back");
    if refused.is_empty() { back } else { format!("{back}; {REFUSED_LAST}{refused}") }
}

/// The steps that were refused last since a pod came back.
pub(super) fn refused_last(conditions: &[Condition]) -> Option<&str> {
    condition(conditions, PROGRESSING)?.message.split_once(REFUSED_LAST).map(|(_, why)| why)
}

fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Something goes on that takes as long as it takes.
fn lasts(round: Round<'_>) -> bool {
    let plan = round.plan;
    let ends = |reason: &Waiting| matches!(reason, Waiting::Terminating { .. });
    asks_a_person(plan)
        || moves(plan)
        || plan.waiting.iter().any(|reason| takes_its_time(reason, round) || ends(reason))
}

/// Slots come before restarts: moves may be slow on purpose, or held by a person or a backup.
fn moves(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, plan::Step::Move { .. }))
}

fn asks_a_person(plan: &Plan) -> bool {
    plan.waiting.iter().any(|reason| matches!(reason, Waiting::Approval { .. }))
}

/// After how many seconds without a pod it is given up now.
pub(super) fn gives_up(status: &RedisOperationStatus, round: Round<'_>) -> Option<i64> {
    if !lasts(round) && waits_for(&status.conditions, round.now) > STILL_MOST {
        return Some(STILL_MOST);
    }
    let since = condition(&status.conditions, PROGRESSING)?.last_transition_time;
    (round.now.as_second().saturating_sub(since.as_second()) > EVER_MOST).then_some(EVER_MOST)
}
