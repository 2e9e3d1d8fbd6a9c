//! What follows the work of a round: operations, backups, marks of primaries, and volumes of members that have left.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use types::operation::{OperationPhase, RedisOperationStatus};
use types::{RedisBackup, RedisOperation};

use super::tell::{is_telling, sentence};
use super::{Context, Error, Round};
use crate::delete::sweep_claims;
use crate::events::Tone;
use crate::gather::Gathered;
use crate::report::half_moved::on_the_way;
use crate::resolve::Resolved;
use crate::{backup, chain, operate, roles};

/// Operations, backups, and volumes of members that have left.
pub(super) async fn follow_up(
    context: &Context,
    gathered: &Gathered,
    round: &Round,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(resolved) = &round.resolved else { return Ok(()) };
    if let Some(operation) = gathered.current_operation() {
        write_operation(context, operation, advanced(operation, round, resolved, now)).await?;
        for other in queue(gathered, operation) {
            write_operation(context, other, operate::queued(other, operation, now)).await?;
        }
    }
    expire_operations(context, &gathered.operations, now).await?;
    let moving = on_the_way(&round.probed.observed, &round.plan);
    let slots_moving = moving.as_deref();
    let view = backup::Round { resolved, probed: &round.probed, slots_moving, workers: &gathered.workers, now };
    // A worker that is refused keeps no mark from going where the role has gone.
    let backed_up = backup::backup(&context.kubernetes, gathered, view).await;
    roles::mark(&context.kubernetes, gathered, resolved, &round.probed).await?;
    let at_rest =
        round.plan.is_satisfied() && round.places.len() == usize::from(resolved.shards) * usize::from(resolved.members);
    if at_rest {
        sweep_claims(&context.kubernetes, gathered, resolved).await?;
    }
    Ok(backed_up?)
}

/// The next record of the current operation.
fn advanced(operation: &RedisOperation, round: &Round, resolved: &Resolved, now: Timestamp) -> RedisOperationStatus {
    let executed = &round.executed;
    let telling = executed.done.iter().filter(|(step, done)| is_telling(step) && !done.only_waited());
    let done: Vec<String> = telling.map(|(step, done)| sentence(step, done.note.as_ref())).collect();
    let failed: Vec<String> = executed.failed.iter().map(|(step, error)| format!("{step}: {}", chain(error))).collect();
    let by = operation.metadata.uid.as_ref();
    let places = round.places.iter().filter(|(_, place)| by.is_some() && place.restarted_by.as_ref() == by);
    let restarted: BTreeSet<plan::Pod> = places.map(|(pod, _)| *pod).collect();
    let syncing = round.probed.facts.iter().filter(|(_, facts)| facts.syncing);
    let syncing: BTreeSet<plan::Pod> = syncing.map(|(pod, _)| *pod).collect();
    let view = operate::Round {
        resolved,
        observed: &round.probed.observed,
        plan: &round.plan,
        restarted: &restarted,
        done: &done,
        failed: &failed,
        syncing: &syncing,
        now,
    };
    operate::advance(operation, view)
}

/// Operations that have not ended, behind this one.
fn queue<'a>(gathered: &'a Gathered, before: &RedisOperation) -> impl Iterator<Item = &'a Arc<RedisOperation>> {
    let ahead = before.metadata.uid.clone();
    let open = gathered.operations.iter().filter(|operation| !operation.phase().has_ended());
    open.filter(move |operation| operation.metadata.uid != ahead)
}

/// Operations and backups of a cluster that is to be left alone say so.
pub(super) async fn tell_paused(context: &Context, gathered: &Gathered, now: Timestamp) -> Result<(), Error> {
    for operation in gathered.operations.iter().filter(|operation| !operation.phase().has_ended()) {
        write_operation(context, operation, operate::paused(operation, now)).await?;
    }
    for (backup, status) in backup::paused(&gathered.backups, now) {
        if backup.status.as_ref() != Some(&status) {
            context.kubernetes.replace_status(&RedisBackup { status: Some(status), ..(**backup).clone() }).await?;
        }
    }
    Ok(())
}

pub(super) async fn write_operation(
    context: &Context,
    operation: &RedisOperation,
    status: RedisOperationStatus,
) -> Result<(), Error> {
    if operation.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let ended = status.conditions.iter().find(|condition| condition.kind == "Complete");
    if let (Some(condition), Some(_)) = (ended, status.completion_time) {
        let tone = if status.phase == OperationPhase::Succeeded { Tone::Normal } else { Tone::Warning };
        context.events.tell(operation, tone, &format!("{:?}", status.phase), &condition.message);
    }
    context.kubernetes.replace_status(&RedisOperation { status: Some(status), ..operation.clone() }).await?;
    Ok(())
}

pub(super) async fn expire_operations(
    context: &Context,
    operations: &[Arc<RedisOperation>],
    now: Timestamp,
) -> Result<(), Error> {
    for operation in operations {
        let completion = operation.status.as_ref().and_then(|status| status.completion_time);
        if operate::expired(completion, operation.spec.ttl_after_finished.as_deref(), true, now) {
            context.kubernetes.delete(&**operation).await?;
        }
    }
    Ok(())
}
