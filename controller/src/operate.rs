//! The life of a RedisOperation: Pending → Running → Succeeded, Failed or Cancelled. Pure: from the record, the plan and
//! what was seen to the next record.
//!
//! The record is written before anything is done for it, and what must survive a crash is in it: for a failover, who
//! the primary was when it began. One operation of a cluster runs at a time.

mod clock;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use plan::{FailoverHow, FailoverRequest, Member, NodeId, Observed, Plan, Pod, Role, Seen, Waiting};
use types::RedisOperation;
use types::cluster::Mode;
use types::names;
use types::operation::{FailoverAction, FailoverMode, OperationPhase, Progress, RedisOperationStatus};

use crate::resolve::Resolved;

/// A failover that has not happened by then, in seconds, is given up: nobody who asked for it still waits.
const FAILOVER_PATIENCE: i64 = 300;
/// What is said of an operation, or of a backup, of a cluster that is to be left alone.
pub(crate) const PAUSED: &str = "spec.paused of the RedisCluster is set: nothing is done";
/// How long a finished operation is kept if it does not say.
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// Steps kept in a record: the first (it says who the primary was) and the latest.
const STEPS_MOST: usize = 64;
/// The first step of a failover, before the node ID. Read back after a crash.
const PRIMARY_WAS: &str = "the primary was ";
/// Reason of what waits for the cluster.
const WAITING: &str = "Waiting";
/// Reason of what waits for a data set to be read or sent, and for nothing else.
const COPYING: &str = "Copying";

/// What the record and the round know.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// What should be.
    pub resolved: &'a Resolved,
    /// What was seen.
    pub observed: &'a Observed,
    /// What the planner says.
    pub plan: &'a Plan,
    /// Members whose pods were made for this operation.
    pub restarted: &'a BTreeSet<Pod>,
    /// Steps done in this round, as sentences.
    pub done: &'a [String],
    /// Steps that were not done in this round, as sentences with the reason.
    pub failed: &'a [String],
    /// Replicas to which their primary is sending everything.
    pub syncing: &'a BTreeSet<Pod>,
    /// The time.
    pub now: Timestamp,
}

/// The failover the planner is asked for, if this operation runs and is one.
#[must_use]
pub fn request(operation: &RedisOperation) -> Option<FailoverRequest> {
    let status = operation.status.as_ref().filter(|status| status.phase == OperationPhase::Running)?;
    let action = operation.spec.failover.as_ref().filter(|_| !operation.spec.cancel)?;
    let FailoverAction { shard, candidate, mode, accept_data_loss, reason: _ } = action;
    Some(FailoverRequest {
        shard: u16::try_from(*shard).ok()?,
        from: from_steps(&status.steps)?,
        // Whom nobody knows is not nobody: any copy would do then.
        candidate: match candidate {
            None => None,
            Some(pod) => Some(ordinal(pod)?),
        },
        how: match mode {
            FailoverMode::Coordinated => FailoverHow::Coordinated,
            FailoverMode::Force => FailoverHow::Force,
        },
        accept_data_loss: *accept_data_loss,
    })
}

/// The shard whose primary this operation has placed. It counts for as long as the record is kept: who asked for it can still read why
/// the primary is where it is, and the time to live says how long that matters.
#[must_use]
pub fn placed(operation: &RedisOperation) -> Option<u16> {
    let succeeded = operation.status.as_ref().is_some_and(|status| status.phase == OperationPhase::Succeeded);
    let action = operation.spec.failover.as_ref().filter(|_| succeeded)?;
    u16::try_from(action.shard).ok()
}

/// uid of the restart that runs.
#[must_use]
pub fn running_restart(operation: &RedisOperation) -> Option<&str> {
    let runs = operation.status.as_ref().is_some_and(|status| status.phase == OperationPhase::Running);
    let restarts = operation.spec.restart.is_some() && !operation.spec.cancel;
    (runs && restarts).then_some(operation.metadata.uid.as_deref()).flatten()
}

fn ordinal(pod: &str) -> Option<u16> {
    pod.rsplit_once('-')?.1.parse().ok()
}

fn from_steps(steps: &[String]) -> Option<NodeId> {
    NodeId::parse(steps.first()?.strip_prefix(PRIMARY_WAS)?.get(..40)?)
}

/// The next record of the current operation; the same one if nothing changed.
#[must_use]
pub fn advance(operation: &RedisOperation, round: Round<'_>) -> RedisOperationStatus {
    let status = operation.status.clone().unwrap_or_default();
    match status.phase {
        OperationPhase::Pending if operation.spec.cancel => {
            end(status, OperationPhase::Cancelled, "Cancelled", "cancelled before it began".to_owned(), round.now)
        }
        OperationPhase::Pending => begin(operation, status, round),
        OperationPhase::Running => go_on(operation, status, round),
        OperationPhase::Succeeded | OperationPhase::Failed | OperationPhase::Cancelled => status,
    }
}

fn begin(operation: &RedisOperation, mut status: RedisOperationStatus, round: Round<'_>) -> RedisOperationStatus {
    let fail = |status, why: String| end(status, OperationPhase::Failed, "Impossible", why, round.now);
    if let Some(action) = &operation.spec.failover {
        if round.resolved.mode == Mode::Standalone {
            return fail(status, plan::Refused::NotInStandalone.to_string());
        }
        let Some(shard) = u16::try_from(action.shard).ok().filter(|shard| *shard < round.resolved.shards) else {
            let (shard, shards) = (action.shard, round.resolved.shards);
            return fail(status, format!("there is no shard {shard}: the cluster has {shards}, counted from 0"));
        };
        let Some((id, whose)) = primary_of(round.observed, shard) else {
            return until_known(status, shard, round.now);
        };
        let is_member =
            |pod: &&str| ordinal(pod).is_some_and(|at| names::pod(&operation.spec.cluster_name, shard, at) == **pod);
        if let Some(candidate) = action.candidate.as_deref().filter(|pod| !is_member(pod)) {
            return fail(status, format!("pod {candidate} is no member of shard {shard}"));
        }
        if let Some(candidate) = action.candidate.as_deref().filter(|name| is_at(round.observed, shard, name, id)) {
            return fail(status, format!("pod {candidate} is the primary of shard {shard} already"));
        }
        status.steps = vec![format!("{PRIMARY_WAS}{id} ({whose})")];
        status.progress = Some(Progress { done: 0, total: 1, unit: "shards".to_owned() });
    } else if operation.spec.restart.is_some() {
        status.progress = Some(pods(operation, round));
    } else {
        return fail(status, "it asks for nothing".to_owned());
    }
    // What it waited for before it began is not what it waits for now.
    status.conditions = Vec::new();
    status.phase = OperationPhase::Running;
    status.start_time = Some(round.now);
    status
}

/// One look at which nobody answers says nothing about the shard: the failover begins when a member says who its primary is.
fn until_known(mut status: RedisOperationStatus, shard: u16, now: Timestamp) -> RedisOperationStatus {
    let why = format!("no member of shard {shard} that answers knows its primary");
    status.conditions = crate::report::waits("Waiting", &why, &status.conditions, now);
    if crate::report::waits_for(&status.conditions, now) > FAILOVER_PATIENCE {
        let text = format!("given up after {} s: {why}", FAILOVER_PATIENCE);
        return end(status, OperationPhase::Failed, "Timeout", text, now);
    }
    status
}

/// Who the shard's members say is their primary: who owns slots, or whom they follow. A primary without slots is a member that is new: where one replica
/// follows that and another one still a node that is gone, it is the latter's place that is to be taken.
fn primary_of(observed: &Observed, shard: u16) -> Option<(NodeId, String)> {
    let nodes = || {
        let members = observed.members.iter().filter(|(pod, _)| pod.shard == shard);
        members.filter_map(|(pod, member)| Some((*pod, member.node()?)))
    };
    let owner = nodes().filter(|(_, node)| !node.slots().is_empty()).max_by_key(|(_, node)| node.slots().len());
    let is_seen = |id: NodeId| observed.members.values().filter_map(Member::node).any(|node| node.id == id);
    let followed = nodes().filter_map(|(pod, node)| match &node.role {
        Role::Replica { of, .. } => Some((*of, pod)),
        Role::Primary { .. } => None,
    });
    let followed = || followed.min_by_key(|(of, pod)| (is_seen(*of), *pod));
    match owner {
        Some((pod, node)) => Some((node.id, format!("member {pod}"))),
        None => followed().map(|(of, pod)| (of, format!("as member {pod} says"))),
    }
}

/// Whether this node is in the pod of that name.
fn is_at(observed: &Observed, shard: u16, pod: &str, id: NodeId) -> bool {
    let members =
        observed.members.iter().filter(|(place, _)| place.shard == shard && ordinal(pod) == Some(place.ordinal));
    members.into_iter().any(|(_, member)| matches!(&member.seen, Seen::Node(node) if node.id == id))
}

fn go_on(operation: &RedisOperation, mut status: RedisOperationStatus, round: Round<'_>) -> RedisOperationStatus {
    note(&mut status.steps, round.done);
    if operation.spec.failover.is_some() {
        failover(operation, status, round)
    } else {
        restart(operation, status, round)
    }
}

fn failover(operation: &RedisOperation, mut status: RedisOperationStatus, round: Round<'_>) -> RedisOperationStatus {
    let why = || sentences(round).unwrap_or_else(|| "nothing stands in its way".to_owned());
    match round.plan.operation {
        Some(plan::Operation::Done) => {
            status.progress = Some(Progress { done: 1, total: 1, unit: "shards".to_owned() });
            let text = "another member is the primary, and every node says so".to_owned();
            end(status, OperationPhase::Succeeded, "Done", text, round.now)
        }
        _ if operation.spec.cancel => {
            end(status, OperationPhase::Cancelled, "Cancelled", "cancelled on request".to_owned(), round.now)
        }
        Some(plan::Operation::Refused) => end(status, OperationPhase::Failed, "Refused", why(), round.now),
        Some(plan::Operation::Running) | None if is_late(&status, round.now) => {
            let text = format!("given up after {} s: {}", FAILOVER_PATIENCE, why());
            end(status, OperationPhase::Failed, "Timeout", text, round.now)
        }
        Some(plan::Operation::Running) | None => waiting(status, round),
    }
}

/// What it waits for, while nothing is done for it. Steps that are planned and come to nothing at each look are waited for as well.
fn waiting(mut status: RedisOperationStatus, round: Round<'_>) -> RedisOperationStatus {
    let nothing_done = || next(round).filter(|_| round.done.is_empty());
    let why = if round.plan.steps.is_empty() { sentences(round) } else { nothing_done() };
    let copies = round.plan.waiting.iter().any(|reason| takes_its_time(reason, round));
    let reason = if copies && round.plan.steps.is_empty() { COPYING } else { WAITING };
    let mut before = std::mem::take(&mut status.conditions);
    // One or the other, it has waited all that time.
    let one_or_other = before.iter_mut().filter(|condition| [WAITING, COPYING].contains(&condition.reason.as_str()));
    one_or_other.for_each(|condition| reason.clone_into(&mut condition.reason));
    status.conditions = why.map(|why| crate::report::waits(reason, &why, &before, round.now)).unwrap_or_default();
    status
}

/// A data set is read, or sent: that takes as long as it takes.
fn takes_its_time(reason: &Waiting, round: Round<'_>) -> bool {
    matches!(reason, Waiting::Loading { .. } | Waiting::Sync { link_up: true, .. }) || is_sent_whole(reason, round)
}

fn is_sent_whole(reason: &Waiting, round: Round<'_>) -> bool {
    crate::report::is_sent_whole(reason, |pod| round.syncing.contains(pod))
}

/// The next record of an operation that is not the one that runs. Pure.
#[must_use]
pub fn queued(operation: &RedisOperation, before: &RedisOperation, now: Timestamp) -> RedisOperationStatus {
    let mut status = operation.status.clone().unwrap_or_default();
    if operation.spec.cancel {
        return end(status, OperationPhase::Cancelled, "Cancelled", "cancelled before it began".to_owned(), now);
    }
    let name = before.metadata.name.as_deref().unwrap_or_default();
    let why = format!("the operation {name} has not ended; one of a cluster runs at a time");
    status.conditions = crate::report::waits("Queued", &why, &status.conditions, now);
    status
}

/// The next record of an operation on a cluster that is to be left alone. Pure.
#[must_use]
pub fn paused(operation: &RedisOperation, now: Timestamp) -> RedisOperationStatus {
    let mut status = operation.status.clone().unwrap_or_default();
    status.conditions = crate::report::waits("Paused", PAUSED, &status.conditions, now);
    status
}

fn is_late(status: &RedisOperationStatus, now: Timestamp) -> bool {
    status.start_time.is_some_and(|start| now.as_second().saturating_sub(start.as_second()) > FAILOVER_PATIENCE)
}

fn restart(operation: &RedisOperation, mut status: RedisOperationStatus, round: Round<'_>) -> RedisOperationStatus {
    let progress = pods(operation, round);
    let (back, total) = (progress.done, progress.total);
    let done = clock::advance(&mut status, progress);
    if operation.spec.cancel {
        // One that is not back yet was restarted as well.
        let begun = number(round.restarted.iter().filter(|pod| concerns(operation, pod.shard)).count()).min(total);
        let text = format!("cancelled on request after {begun} of {total} pods");
        return end(status, OperationPhase::Cancelled, "Cancelled", text, round.now);
    }
    if back == total && round.plan.steps.is_empty() && round.plan.waiting.is_empty() {
        let text = format!("{total} pods were restarted and are in sync");
        return end(status, OperationPhase::Succeeded, "Done", text, round.now);
    }
    let marks = clock::marks(&mut status, round);
    let mut status = waiting(status, round);
    status.conditions.extend(marks);
    if crate::report::waits_for(&status.conditions, round.now) > FAILOVER_PATIENCE && is_for_a_person(operation, round)
    {
        let text = format!("{done} of {total} pods were restarted: {}", sentences(round).unwrap_or_default());
        return end(status, OperationPhase::Failed, "Refused", text, round.now);
    }
    // Where all are back, it only waits for others' work to end.
    if let Some(seconds) = clock::gives_up(&status, round).filter(|_| back < total) {
        let (minutes, why) = (seconds / 60, in_its_way(&status, round));
        let text = format!("given up after {done} of {total} pods, as none came back for {minutes} min: {why}");
        return end(status, OperationPhase::Failed, "Timeout", text, round.now);
    }
    status
}

/// What stands in its way now, and what was refused last.
fn in_its_way(status: &RedisOperationStatus, round: Round<'_>) -> String {
    let last = clock::refused_last(&status.conditions).filter(|_| round.failed.is_empty());
    let last = last.map(|why| format!("{}{why}", clock::REFUSED_LAST));
    sentences(round).into_iter().chain(next(round)).chain(last).collect::<Vec<_>>().join("; ")
}

/// Nothing more happens by itself: a former primary that keeps keys is not restarted, and where it is the only other member of its shard,
/// neither is its heir. What becomes of it a person decides, who may want to ask for something else meanwhile.
fn is_for_a_person(operation: &RedisOperation, round: Round<'_>) -> bool {
    let is_kept =
        |pod: &Pod| concerns(operation, pod.shard) && round.resolved.wants(*pod) && !round.restarted.contains(pod);
    let plan = round.plan;
    let is_still = plan.steps.is_empty() && plan.waiting.is_empty();
    is_still && plan.refused.iter().any(|reason| matches!(reason, plan::Refused::Former { pod, .. } if is_kept(pod)))
}

/// Whether a restart is of this shard.
fn concerns(operation: &RedisOperation, shard: u16) -> bool {
    let named = operation.spec.restart.as_ref().map(|restart| restart.shards.as_slice()).unwrap_or_default();
    named.is_empty() || named.contains(&i32::from(shard))
}

/// Members of the named shards that this operation has restarted and that answer again. That a pod is of today's template says nothing:
/// all are, once the operation is cancelled.
fn pods(operation: &RedisOperation, round: Round<'_>) -> Progress {
    let shards = (0..round.resolved.shards).filter(|shard| concerns(operation, *shard)).count();
    let members = round.observed.members.iter().filter(|(pod, _)| concerns(operation, pod.shard));
    let answers = |seen: &Seen| matches!(seen, Seen::Node(_));
    let done = members.filter(|(pod, member)| round.restarted.contains(*pod) && answers(&member.seen)).count();
    let total = shards.saturating_mul(usize::from(round.resolved.members));
    Progress { done: number(done.min(total)), total: number(total), unit: "pods".to_owned() }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What is waited for or refused, as one text.
fn sentences(round: Round<'_>) -> Option<String> {
    let refused = round.plan.refused.iter().map(ToString::to_string);
    let waiting = round.plan.waiting.iter().map(|reason| {
        let sent = is_sent_whole(reason, round).then(|| format!(" ({})", crate::report::SENT_WHOLE));
        format!("{reason}{}", sent.unwrap_or_default())
    });
    let all: Vec<String> = refused.chain(waiting).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// What is to be done, and why it was not, where that is known.
fn next(round: Round<'_>) -> Option<String> {
    let failed = (!round.failed.is_empty()).then(|| round.failed.join("; "));
    failed.or_else(|| round.plan.steps.first().map(|step| format!("next: {step}")))
}

/// Adds steps; the first entry stays, the oldest others go when there are too many.
fn note(steps: &mut Vec<String>, done: &[String]) {
    steps.extend(done.iter().cloned());
    if steps.len() > STEPS_MOST {
        let surplus = steps.len().saturating_sub(STEPS_MOST);
        steps.drain(1..=surplus);
    }
}

fn end(
    mut status: RedisOperationStatus,
    phase: OperationPhase,
    reason: &str,
    message: String,
    now: Timestamp,
) -> RedisOperationStatus {
    status.phase = phase;
    status.completion_time = Some(now);
    status.conditions = crate::report::ended(phase == OperationPhase::Succeeded, reason, &message, now);
    status
}

/// An operation on a cluster that does not exist.
#[must_use]
pub fn without_cluster(operation: &RedisOperation, now: Timestamp) -> Option<RedisOperationStatus> {
    let status = operation.status.clone().unwrap_or_default();
    let ended = status.completion_time.is_some();
    let text = format!("there is no RedisCluster {:?} in this namespace", operation.spec.cluster_name);
    (!ended).then(|| end(status, OperationPhase::Failed, "NoCluster", text, now))
}

/// Whether a finished record has outlived its time.
#[must_use]
pub fn expired(completion: Option<Timestamp>, ttl: Option<&str>, default: bool, now: Timestamp) -> bool {
    expiry(completion, ttl, default).is_some_and(|at| at <= now)
}

/// When a finished record has outlived its time, in whole seconds; `None`: never, or it has not finished.
#[must_use]
pub fn expiry(completion: Option<Timestamp>, ttl: Option<&str>, default: bool) -> Option<Timestamp> {
    let ttl = ttl.and_then(|text| types::duration::parse(text).ok()).or(default.then_some(DEFAULT_TTL))?;
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(completion?.as_second().saturating_add(seconds)).ok()
}

#[cfg(test)]
#[path = "operate_tests.rs"]
mod tests;
