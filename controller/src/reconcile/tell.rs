//! What a round tells: the status, when it is worth a write, and events.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::Step;
use types::RedisCluster;
use types::cluster::RedisClusterStatus;

use super::{Context, Error, Local, Round};
use crate::events::Tone;
use crate::execute::Executed;
use crate::gather::{backups, current_operation, operations, volume_size};
use crate::queue::Key;
use crate::report::{Lost, Seeing, Urgency, lost, report, urgency};

/// What is about to be changed for the time of a step is in the status before it is changed.
pub(super) async fn announce(context: &Context, key: &Key, local: &mut Local, round: &Round) -> Result<(), Error> {
    if round.temporary.is_empty() {
        return Ok(());
    }
    let Some(cluster) = context.kubernetes.caches.clusters.get(key, &key.name) else { return Ok(()) };
    let recorded = cluster.status.as_ref().map(|status| &status.temporary_config);
    let known = |(name, value): (&String, &String)| recorded.is_some_and(|all| all.get(name) == Some(value));
    if !round.temporary.iter().all(known) {
        tell(context, key, local, round).await?;
    }
    Ok(())
}

/// Writes the status if it is worth it; `Some`: it is worth it after that time.
pub(super) async fn tell(
    context: &Context,
    key: &Key,
    local: &mut Local,
    round: &Round,
) -> Result<Option<Duration>, Error> {
    let held = context.kubernetes.caches.clusters.get_or_known(key, &key.name, round.cluster.as_ref());
    let Some(cluster) = held else { return Ok(None) };
    // What is told is of the specification that the round began with; a later one has been noticed by the next.
    let Some(of) = round.cluster.as_ref().filter(|of| of.metadata.uid == cluster.metadata.uid) else { return Ok(None) };
    let mut begun = (*cluster).clone();
    begun.metadata.generation = of.metadata.generation;
    let operations = operations(&context.kubernetes.caches, key);
    let operation = current_operation(&operations);
    let backups = backups(&context.kubernetes.caches, key);
    let waits = round.executed.held();
    let seeing = Seeing {
        cluster: &begun,
        resolved: round.resolved.as_deref(),
        probed: &round.probed,
        plan: &round.plan,
        planned: round.planned,
        temporary: &round.temporary,
        secret_lack: round.secret_lack.as_ref(),
        troubles: &round.troubles,
        unwritten: &round.unwritten,
        held: &waits,
        operation: operation.and_then(|operation| operation.metadata.name.as_deref()),
        backups: &backups,
        left_behind: &round.left_behind,
        volume_size: volume_size(&context.kubernetes.caches, key),
        reach: context.reach,
        now: Timestamp::now(),
    };
    let status = report(seeing);
    tell_losses(context, &cluster, local, lost(seeing));
    tell_events(context, &cluster, local, round, &status);
    match urgency(cluster.status.as_ref(), &status, local.since_status()) {
        Urgency::Never => Ok(None),
        Urgency::In(wait) => Ok(Some(wait)),
        Urgency::Now => {
            let next = RedisCluster { status: Some(status), ..(*cluster).clone() };
            context.kubernetes.replace_status(&next).await?;
            local.status_written = Some(Instant::now());
            Ok(None)
        }
    }
}

/// Events: what was done and is worth telling, whose changes were undone, what failed, what a person has to decide, and when readiness changed.
fn tell_events(
    context: &Context,
    cluster: &RedisCluster,
    local: &mut Local,
    round: &Round,
    status: &RedisClusterStatus,
) {
    if !round.applied.created.is_empty() {
        let created = format!("created {}", round.applied.created.join(", "));
        context.events.tell(cluster, Tone::Normal, "Created", &created);
    }
    for repaired in &round.applied.repaired {
        context.events.tell(cluster, Tone::Normal, "PutRight", &format!("put right {repaired}"));
    }
    for (step, done) in round.executed.done.iter().filter(|(step, done)| is_telling(step) && !done.only_waited()) {
        context.events.tell(cluster, tone(step), step.kind(), &sentence(step, done.note.as_ref()));
    }
    for trouble in round.troubles.iter().filter(|trouble| !local.troubles.contains(trouble)) {
        context.events.tell(cluster, Tone::Warning, "Trouble", trouble);
    }
    local.troubles.clone_from(&round.troubles);
    // The numbers of a refusal change; it is news when one of its kind begins.
    let refused: Vec<_> = round.plan.refused.iter().map(std::mem::discriminant).collect();
    let fresh = round.plan.refused.iter().filter(|why| !local.refused.contains(&std::mem::discriminant(*why)));
    fresh.for_each(|why| context.events.tell(cluster, Tone::Warning, "NeedsAPerson", &why.to_string()));
    local.refused = refused;
    let (before, after) = (degraded(cluster.status.as_ref()), degraded(Some(status)));
    if let Some((reason, message)) = after
        && before.is_none_or(|(known, _)| known != reason)
        && !TOLD.contains(&reason)
    {
        context.events.tell(cluster, Tone::Warning, reason, message);
    }
    let ready = |status: Option<&RedisClusterStatus>| {
        let condition = status?.conditions.iter().find(|c| c.kind == types::condition::cluster::READY)?;
        Some((condition.status == types::condition::Status::True, condition.message.clone()))
    };
    let (before, after) = (ready(cluster.status.as_ref()), ready(Some(status)));
    // A cluster that is being made is not ready, which is no news.
    let was_ready = before.is_some_and(|(was, _)| was);
    if let Some((is_ready, message)) = after
        && was_ready != is_ready
    {
        let (tone, reason) = if is_ready { (Tone::Normal, "Ready") } else { (Tone::Warning, "NotReady") };
        context.events.tell(cluster, tone, reason, &message);
    }
}

/// Each loss of writes is told once. The status has those that a controller of before has told.
fn tell_losses(context: &Context, cluster: &RedisCluster, local: &mut Local, lost: Vec<Lost>) {
    let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let at_risk = conditions.find(|c| c.kind == types::condition::cluster::DATA_AT_RISK);
    let known = at_risk.map(|condition| condition.message.as_str()).unwrap_or_default();
    for Lost { start, sentence } in lost {
        if local.lost.insert(start) && !known.contains(&sentence) {
            context.events.tell(cluster, Tone::Warning, "WritesLost", &sentence);
        }
    }
}

/// Reasons of Degraded that have events of their own.
const TOLD: [&str; 2] = ["NeedsAPerson", "Trouble"];

/// Reason and sentence of Degraded while it is True.
fn degraded(status: Option<&RedisClusterStatus>) -> Option<(&str, &str)> {
    let is_true = |c: &&types::Condition| {
        c.kind == types::condition::cluster::DEGRADED && c.status == types::condition::Status::True
    };
    let condition = status?.conditions.iter().find(is_true)?;
    Some((condition.reason.as_str(), condition.message.as_str()))
}

/// The steps a person wants to read about; the others are details of these.
pub(super) fn is_telling(step: &Step) -> bool {
    match step {
        Step::Failover { .. }
        | Step::Adopt { .. }
        | Step::Move { .. }
        | Step::Forget { .. }
        | Step::Release { .. }
        | Step::Restart { .. }
        | Step::RetireMembers { .. }
        | Step::RetireShard { .. }
        | Step::AddSlots { .. }
        | Step::Replicate { .. } => true,
        Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::RaiseEpoch { .. }
        | Step::Meet { .. }
        | Step::Mark { .. }
        | Step::MarkOwner { .. }
        | Step::Stabilise { .. } => false,
    }
}

/// Whoever gets what a lost node owned may lack its keys, all of them.
fn tone(step: &Step) -> Tone {
    if matches!(step, Step::Adopt { .. }) { Tone::Warning } else { Tone::Normal }
}

pub(super) fn sentence(step: &Step, note: Option<&String>) -> String {
    note.cloned().unwrap_or_else(|| step.to_string())
}

pub(super) fn count(context: &Context, executed: &Executed) {
    for (step, done) in &executed.done {
        context.metrics.step(step.kind(), "done");
        context.metrics.moved(done.slots, done.keys, done.bytes);
    }
    for (step, _) in &executed.failed {
        context.metrics.step(step.kind(), "failed");
    }
}
