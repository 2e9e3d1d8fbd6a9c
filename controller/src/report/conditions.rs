//! The conditions: each a word for programs and a sentence with numbers for people.

use std::collections::BTreeSet;

use jiff::Timestamp;
use types::backup::BackupPhase;
use types::cluster::{Mode, RedisClusterStatus};
use types::condition::{Condition, Status, cluster as kind};
use types::{RedisBackup, RedisCluster};

use super::half_moved::half_moved;
use super::parameters::not_in_use;
use super::{Crowded, Seeing, Shared, Thin, Verdict, disk, left, lost, unseen};
use crate::resolve::Resolved;

/// Longest message: `kubectl describe` and events stay readable.
const MESSAGE_MOST: usize = 1024;

/// A condition's type and value.
#[derive(Clone, Copy, Debug)]
pub struct ConditionOf {
    /// Its type.
    pub kind: &'static str,
    /// Its value.
    pub status: Status,
}

impl ConditionOf {
    /// With reason and message; the transition time changes only with the value.
    pub(super) fn with(
        self,
        reason: &str,
        message: &str,
        (cluster, now): (&RedisCluster, Timestamp),
        previous: &RedisClusterStatus,
    ) -> Condition {
        let before = previous.conditions.iter().find(|c| c.kind == self.kind && c.status == self.status);
        let mut message: String = message.chars().take(MESSAGE_MOST).collect();
        if message.is_empty() {
            message.push_str("no further reason");
        }
        Condition {
            kind: self.kind.to_owned(),
            status: self.status,
            observed_generation: cluster.metadata.generation,
            // Seconds, as every metav1.Time: what is read back must equal what was written.
            last_transition_time: before.map_or_else(|| super::seconds(now), |c| c.last_transition_time),
            reason: reason.to_owned(),
            message,
        }
    }
}

/// All seven.
pub(super) fn conditions(
    seeing: Seeing<'_>,
    resolved: &Resolved,
    verdict: &Verdict,
    previous: &RedisClusterStatus,
) -> Vec<Condition> {
    let of = |kind, (status, reason, message): (Status, &str, String)| {
        ConditionOf { kind, status }.with(reason, &message, (seeing.cluster, seeing.now), previous)
    };
    vec![
        of(kind::READY, ready(seeing, resolved, verdict)),
        of(kind::AVAILABLE, available(resolved, verdict)),
        of(kind::PROGRESSING, progressing(seeing, resolved, verdict)),
        of(kind::DEGRADED, degraded(seeing, resolved, verdict)),
        of(kind::DATA_AT_RISK, at_risk(seeing, resolved, verdict, previous)),
        of(kind::BACKUP_HEALTHY, backup_healthy(seeing.backups)),
        of(kind::UP_TO_DATE, up_to_date(seeing, resolved, verdict)),
    ]
}

type Said = (Status, &'static str, String);
/// A reason and its sentence.
type Why = (&'static str, String);

/// What stands between this cluster and being ready, most telling first.
fn ready(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Said {
    let not_yet = not_serving(seeing, resolved, verdict)
        .or_else(|| not_in_place(seeing, verdict))
        .or_else(|| not_settled(seeing, verdict));
    if let Some((reason, message)) = not_yet {
        return (Status::False, reason, message);
    }
    let message = match resolved.mode {
        Mode::Standalone => "the server answers".to_owned(),
        Mode::Cluster => format!(
            "all {} slots are served, {} nodes agree, {} replicas are in sync",
            plan::SLOTS,
            verdict.agreeing,
            verdict.in_sync
        ),
    };
    (Status::True, "AllAgree", message)
}

/// Somebody is missing or is not who he should be, slots are not served, or writes are refused.
fn not_serving(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Option<Why> {
    if let Some(message) = shards_missing(seeing, resolved) {
        return Some(("ShardsMissing", message));
    }
    let wrong = not_as_asked(seeing, resolved, verdict).or_else(|| wrong_identity(seeing, verdict));
    if wrong.is_some() {
        return wrong;
    }
    let disk = disk::failing(verdict);
    // It may be why, and a person has to know of it either way.
    let disk_too = || disk.as_ref().map(|disk| format!("; {disk}")).unwrap_or_default();
    if verdict.answering < verdict.wanted {
        let (have, want) = (verdict.answering, verdict.wanted);
        return Some(("MembersMissing", format!("{have} of {want} members answer{}{}", why(seeing), disk_too())));
    }
    if !verdict.serving {
        let message = match resolved.mode {
            Mode::Standalone => format!("the server does not serve yet{}", why(seeing)),
            Mode::Cluster => format!("{} of {} slots are served{}", verdict.covered, plan::SLOTS, why(seeing)),
        };
        return Some(("NotServing", format!("{message}{}", disk_too())));
    }
    disk.map(|message| ("DiskFailing", message))
}

/// All is served, and slots, members or copies are not where they should be.
fn not_in_place(seeing: Seeing<'_>, verdict: &Verdict) -> Option<Why> {
    if verdict.open > 0 || seeing.plan.slots_left > 0 {
        let left = Some(seeing.plan.slots_left).filter(|left| *left > 0);
        let left = left.map(|left| format!("{left} slots still have to move"));
        let parts = half_moved(&seeing.probed.observed).into_iter().chain(left);
        // A step says the same once more.
        let held = seeing.held.iter().filter(|_| !seeing.plan.steps.is_empty()).cloned();
        let parts: Vec<String> = parts.chain(held).collect();
        let why = if seeing.plan.steps.is_empty() { why(seeing) } else { String::new() };
        return Some(("SlotsMoving", format!("{}{why}", parts.join("; "))));
    }
    if verdict.surplus > 0 {
        return Some(("MembersLeaving", format!("{} members are still to leave{}", verdict.surplus, why(seeing))));
    }
    if !verdict.thin.is_empty() {
        let (have, want) = (verdict.in_sync, verdict.replicas_wanted);
        return Some(("ReplicasNotInSync", format!("{have} of {want} replicas are in sync{}", why(seeing))));
    }
    if !verdict.healthy {
        let (have, of) = (verdict.agreeing, verdict.wanted);
        let text = format!("{have} of {of} nodes agree on who is who and owns what{}", why(seeing));
        return Some(("NodesDisagree", text));
    }
    None
}

/// All is where it should be, and something is still to be done.
fn not_settled(seeing: Seeing<'_>, verdict: &Verdict) -> Option<Why> {
    if let Some(trouble) = seeing.troubles.first() {
        return Some(("Trouble", trouble.clone()));
    }
    if !seeing.temporary.is_empty() {
        return Some(("SettingUp", format!("{} settings are still to be put back", seeing.temporary.len())));
    }
    if !seeing.plan.is_satisfied() && !only_waits_for_people(seeing) {
        return Some(("WorkLeft", waited_for(seeing).unwrap_or_else(|| "steps are left".to_owned())));
    }
    // Last, because it mends itself: whoever waits for Ready connects by a Service next.
    let first = seeing.probed.unready.first()?;
    let (count, of) = (seeing.probed.unready.len(), verdict.wanted);
    let text = format!(
        "no Service leads to {count} of {of} pods yet: not found ready by their kubelets; the first is {first}"
    );
    Some(("PodsNotReady", text))
}

/// What is waited for, to go on a sentence with.
fn why(seeing: Seeing<'_>) -> String {
    waited_for(seeing).map(|why| format!(": {why}")).unwrap_or_default()
}

/// Nothing is to be done but what waits for an approval, for parameters that engines take, or for a Secret.
fn only_waits_for_people(seeing: Seeing<'_>) -> bool {
    seeing.plan.steps.is_empty() && seeing.plan.refused.is_empty() && seeing.plan.waiting.iter().all(waits_for_a_person)
}

fn waits_for_a_person(reason: &plan::Waiting) -> bool {
    use plan::Waiting;
    matches!(reason, Waiting::Approval { .. } | Waiting::Parameters { refused: true, .. } | Waiting::Secret)
}

/// Steps, reasons to wait and refusals in one sentence.
fn waited_for(seeing: Seeing<'_>) -> Option<String> {
    let waiting = super::waiting(seeing);
    let refused = seeing.plan.refused.iter().map(ToString::to_string);
    let steps = seeing.plan.steps.iter().take(3).map(|step| format!("next: {step}"));
    let all: Vec<String> = refused.chain(waiting).chain(steps).chain(seeing.troubles.iter().cloned()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn available(resolved: &Resolved, verdict: &Verdict) -> Said {
    match resolved.mode {
        Mode::Standalone if verdict.serving => (Status::True, "Serving", "the server answers".to_owned()),
        Mode::Standalone => (Status::False, "NotServing", "the server does not answer".to_owned()),
        Mode::Cluster => {
            let message = format!("{} of {} slots have a primary that serves them", verdict.covered, plan::SLOTS);
            if verdict.serving {
                (Status::True, "AllSlotsServed", message)
            } else {
                (Status::False, "SlotsNotServed", message)
            }
        }
    }
}

fn progressing(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Said {
    if resolved.paused {
        return (Status::False, "Paused", "spec.paused is set: nothing is changed".to_owned());
    }
    let plan = seeing.plan;
    if plan.steps.is_empty() && plan.waiting.is_empty() {
        // It stands still because a person has to do something, in the words of Degraded.
        if let Some((reason, message)) = left_to_a_person(seeing, resolved, verdict) {
            return (Status::False, reason, message);
        }
        return (Status::False, "NothingToDo", "no step is left and nothing is waited for".to_owned());
    }
    let left = waited_for(seeing).unwrap_or_default();
    let reason = if plan.steps.is_empty() { "Waiting" } else { "Working" };
    (Status::True, reason, left)
}

/// Members of whom is not certain who they are, where they are, or what they are.
fn wrong_identity(seeing: Seeing<'_>, verdict: &Verdict) -> Option<(&'static str, String)> {
    use plan::Refused::{Copied, RunsAlready, Twins};
    let is_twice = |why: &&plan::Refused| matches!(why, Twins { .. } | RunsAlready { .. } | Copied { .. });
    let told = seeing.plan.refused.iter().filter(is_twice);
    let told: Vec<String> = told.map(ToString::to_string).collect();
    if !told.is_empty() {
        return Some(("NodeRunsTwice", told.join("; ")));
    }
    if let Some((id, pods)) = verdict.twins.first() {
        let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
        return Some(("NodeRunsTwice", format!("node {} runs twice: {}", id.short(), names.join(" and "))));
    }
    if let Some((pod, says)) = verdict.misplaced.first() {
        let at = seeing.probed.facts.get(pod).map(|facts| facts.address.to_string()).unwrap_or_default();
        let text = format!(
            "member {pod} at {at} has {says} for its own address and sends clients there: another process has answered it from there with \
             its identity. Once that one has ended, delete the pod of member {pod}"
        );
        return Some(("WrongOwnAddress", text));
    }
    let pod = verdict.at_odds.first()?;
    let text = format!(
        "{} members are replicas by their table and not by their replication, or the other way round; the first is {pod}. Delete its pod: \
         it finds its role again when it starts",
        verdict.at_odds.len()
    );
    Some(("RolesDiffer", text))
}

/// Members whose image does not hold the engine that was asked for: they do not start, or run it.
fn not_as_asked(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Option<(&'static str, String)> {
    let unusable = &seeing.probed.unusable;
    if let Some((pod, why)) = unusable.first_key_value() {
        return Some(("ImageNotUsable", format!("{} members do not start; the first is {pod}: {why}", unusable.len())));
    }
    let (pod, runs) = verdict.strangers.first()?;
    let (count, engine) = (verdict.strangers.len(), resolved.engine);
    Some(("WrongEngine", format!("{count} members do not run {engine:?}; the first is {pod}, which runs {runs}")))
}

/// Slots are gone with their shards, whose volumes are there.
fn shards_missing(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let is_lost = |why: &&plan::Refused| matches!(why, plan::Refused::LostSlots { copies, .. } if copies.is_empty());
    let lost: Vec<String> = seeing.plan.refused.iter().filter(is_lost).map(ToString::to_string).collect();
    let advice = left::advice(&resolved.key, seeing.left_behind).filter(|_| !lost.is_empty())?;
    Some(format!("{advice}; {}", lost.join("; ")))
}

/// What a person has to mend although everything may still serve.
fn needs_mending(seeing: Seeing<'_>, resolved: &Resolved) -> Option<(&'static str, String)> {
    let crashing = &seeing.probed.crashing;
    if let Some((pod, words)) = crashing.first_key_value() {
        let text = format!("{} members do not stay up; the first is {pod}: {words}", crashing.len());
        return Some(("CrashLoop", text));
    }
    if let Some(message) = unseen::volumes_in_use(seeing, resolved) {
        return Some(("VolumeInUse", message));
    }
    not_in_use(seeing, resolved).filter(|(reason, _)| *reason == "ConfigRejected")
}

/// What the Secret lacks nothing else tells, so it is told beside whatever comes first.
fn and_secret(seeing: Seeing<'_>, first: Option<Why>) -> Option<Why> {
    let Some(lack) = seeing.secret_lack else { return first };
    Some(first.map_or_else(|| lack.clone(), |(reason, told)| (reason, format!("{told}; {}", lack.1))))
}

/// What KUN does not do by itself.
fn refused(seeing: Seeing<'_>) -> Option<(&'static str, String)> {
    let refused: Vec<String> = seeing.plan.refused.iter().map(ToString::to_string).collect();
    (!refused.is_empty()).then(|| ("NeedsAPerson", refused.join("; ")))
}

/// Why nothing goes on although not all is as it should be.
fn left_to_a_person(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Option<Why> {
    let first = refused(seeing).or_else(|| writes_refused(verdict)).or_else(|| needs_mending(seeing, resolved));
    and_secret(seeing, first)
}

/// Before what a person has to mend although everything may still serve.
fn writes_refused(verdict: &Verdict) -> Option<Why> {
    disk_failing(verdict).filter(|_| disk::refuses_writes(verdict))
}

fn disk_failing(verdict: &Verdict) -> Option<Why> {
    disk::failing(verdict).map(|message| ("DiskFailing", message))
}

fn degraded(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Said {
    let unseen = unseen::primaries(seeing, resolved);
    // Who waits for a person does so for want of these, too.
    let too = |(reason, told): Why| (reason, unseen.iter().fold(told, |told, unseen| format!("{told}; {unseen}")));
    // That may last for as long as a machine is away.
    let beside =
        |told: String| trouble(seeing).into_iter().fold(told, |told, (_, trouble)| format!("{told}; {trouble}"));
    let wrong = wrong_identity(seeing, verdict)
        .or_else(|| shards_missing(seeing, resolved).map(|message| ("ShardsMissing", message)))
        .or_else(|| refused(seeing).map(too))
        .or_else(|| unseen.clone().map(|message| ("PrimariesUnseen", beside(message))))
        .or_else(|| not_as_asked(seeing, resolved, verdict))
        .or_else(|| writes_refused(verdict))
        .or_else(|| needs_mending(seeing, resolved));
    let wrong = and_secret(seeing, wrong)
        .or_else(|| disk_failing(verdict))
        .or_else(|| unseen::replicas(seeing, resolved).map(|message| ("MembersUnseen", beside(message))))
        .or_else(|| trouble(seeing));
    let well = || (Status::False, "NothingWrong", "nothing is wrong that needs a person".to_owned());
    wrong.map_or_else(well, |(reason, message)| (Status::True, reason, message))
}

/// What went wrong in this round, or finds no room.
fn trouble(seeing: Seeing<'_>) -> Option<Why> {
    if !seeing.troubles.is_empty() {
        return Some(("Trouble", seeing.troubles.join("; ")));
    }
    let full = seeing.plan.waiting.iter().find(|why| matches!(why, plan::Waiting::Room { .. }));
    full.map(|full| ("NoRoom", full.to_string()))
}

/// What is lost already, writes and then copies, comes before what one more failure would take.
fn at_risk(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict, previous: &RedisClusterStatus) -> Said {
    if resolved.mode == Mode::Standalone {
        return (Status::False, "AsAsked", "as many copies as were asked for".to_owned());
    }
    let thin =
        verdict.thin.first().filter(|_| resolved.members > 1).map(|Thin { shard, copies, wanted, has_primary }| {
            let shards = verdict.thin.len();
            let gone = if *has_primary { "" } else { " complete copies, and no primary that answers" };
            format!("{shards} shards have too few copies in sync; shard {shard} has {copies} of {wanted}{gone}")
        });
    if let Some(lost) = lost::writes_lost(seeing) {
        let text = thin.map_or_else(|| lost.clone(), |thin| format!("{thin}; {lost}"));
        return (Status::True, "WritesLost", text);
    }
    if let Some(text) = thin {
        return (Status::True, "TooFewCopies", text);
    }
    let last = previous.conditions.iter().find(|c| c.kind == kind::DATA_AT_RISK).map(|c| c.reason.as_str());
    let told = |(_, reason, _): &Said| nothing_will_mend_it(seeing) || last == Some(reason);
    let (shared, crowded) = (copies_share_a_node(resolved, verdict), majority_on_one_node(verdict));
    if let Some(said) = shared.filter(told).or_else(|| crowded.filter(told)) {
        return said;
    }
    if resolved.members <= 1 {
        return (Status::False, "AsAsked", "as many copies as were asked for".to_owned());
    }
    (Status::False, "AllCopiesInSync", format!("every shard has {} copies in sync", resolved.members))
}

/// Nothing is to be done, or only once a person says so.
fn nothing_will_mend_it(seeing: Seeing<'_>) -> bool {
    use plan::Waiting;
    let for_people = |why: &Waiting| waits_for_a_person(why) || matches!(why, Waiting::Hold { .. });
    seeing.plan.steps.is_empty() && seeing.plan.waiting.iter().all(for_people)
}

fn copies_share_a_node(resolved: &Resolved, verdict: &Verdict) -> Option<Said> {
    let first = verdict.sites.shared.first()?;
    let shards = verdict.sites.shared.iter().map(|shared| shared.shard).collect::<BTreeSet<_>>().len();
    let Shared { shard, node, here } = first;
    let text = format!(
        "{shards} shards have copies on the same node; shard {shard} has {here} of {} on {node}",
        resolved.members
    );
    Some((Status::True, "CopiesShareANode", text))
}

fn majority_on_one_node(verdict: &Verdict) -> Option<Said> {
    let Crowded { node, here, of } = verdict.sites.crowded.as_ref()?;
    let text =
        format!("{here} of {of} primaries are on node {node}; without it there is no majority that could elect others");
    Some((Status::True, "MajorityOnOneNode", text))
}

/// The newest backup that has ended speaks.
fn backup_healthy(backups: &[std::sync::Arc<RedisBackup>]) -> Said {
    let ended = backups.iter().filter_map(|backup| {
        let status = backup.status.as_ref()?;
        let at = status.completion_time.or(status.start_time)?;
        matches!(status.phase, BackupPhase::Completed | BackupPhase::Failed).then_some((at, backup, status))
    });
    match ended.max_by_key(|(at, _, _)| *at) {
        None => (Status::Unknown, "NoBackup", "no backup has ended yet".to_owned()),
        Some((at, backup, status)) => {
            let name = backup.metadata.name.as_deref().unwrap_or_default();
            if status.phase == BackupPhase::Completed {
                let bytes: i64 = status.shards.iter().map(|shard| shard.bytes).sum();
                let text = format!("backup {name} completed at {at}: {} shards, {bytes} bytes", status.shards.len());
                return (Status::True, "Completed", text);
            }
            let why = status.conditions.iter().find(|c| c.kind == "Failed").map(|c| c.message.as_str());
            (Status::False, "Failed", format!("backup {name} failed: {}", why.unwrap_or("no reason given")))
        }
    }
}

fn up_to_date(seeing: Seeing<'_>, resolved: &Resolved, verdict: &Verdict) -> Said {
    let not_in_use = not_in_use(seeing, resolved);
    if let Some(("ConfigRejected", message)) = &not_in_use {
        return (Status::False, "ConfigRejected", message.clone());
    }
    if verdict.outdated > 0 {
        let (old, of) = (verdict.outdated, verdict.wanted);
        let text = format!("{old} of {of} pods still run an older version, configuration or template");
        return (Status::False, "PodsOutdated", text);
    }
    if let Some(shard) = seeing.unwritten.first() {
        let count = seeing.unwritten.len();
        let text = format!(
            "{count} StatefulSets are not written as specified, and no pod is restarted for that; the first is of shard {shard}"
        );
        return (Status::False, "NotWritten", text);
    }
    if let Some((reason, message)) = not_as_asked(seeing, resolved, verdict) {
        return (Status::False, reason, message);
    }
    if verdict.answering < verdict.wanted {
        let (have, of) = (verdict.answering, verdict.wanted);
        return (Status::Unknown, "MembersMissing", format!("{have} of {of} members answer"));
    }
    if let Some((reason, message)) = not_in_use {
        return (Status::False, reason, message);
    }
    (Status::True, "AllCurrent", format!("every pod runs version {} as specified", resolved.version))
}
