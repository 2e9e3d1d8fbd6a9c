//! The status of a RedisCluster: what was seen and planned, in words and numbers. Pure.
//!
//! What it says about health is computed from what the nodes said, by [`verdict`], and not from the planner's opinion:
//! two independent looks have to agree before it says Ready.

mod conditions;
mod disk;
pub(crate) mod half_moved;
mod leaving;
mod left;
mod lost;
mod members;
mod older;
mod parameters;
mod sites;
mod unseen;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use plan::{Plan, Seen, Step};
use types::cluster::{LastBackup, Mode, Phase, PlanStatus, RedisClusterStatus};
use types::condition::{Condition, Status};
use types::quantity::Quantity;
use types::{RedisBackup, RedisCluster, names};

use crate::probe::Probed;
use crate::resolve::Resolved;

pub use conditions::ConditionOf;
pub use leaving::{Leaving, leaving};
pub use left::left_behind;
pub use lost::{Lost, lost};
pub use members::primaries;
pub use sites::{Crowded, Shared, Sites};
pub use verdict::{Failing, Thin, Verdict, verdict};

/// Steps listed in the status.
const STEPS_MOST: usize = 20;
/// Keys and memory may change all the time; alone they are written this often at most.
const FIGURES_EVERY: Duration = Duration::from_secs(10);
/// Sentences change with every look while something is under way; alone they are written this often at most.
const TEXTS_EVERY: Duration = Duration::from_secs(1);
/// What is said of a replica whose link is down only for as long as this takes.
pub(crate) const SENT_WHOLE: &str = "its primary is sending it the whole data set";

/// Seeds listed in the status: a client needs one that answers, and learns the rest from it.
const ENDPOINTS_MOST: usize = 16;

/// How clients reach the members, as whoever starts the controller knows of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Names of Services resolve.
    #[default]
    ServiceNames,
    /// They do not; clients use the addresses of pods.
    PodAddresses,
}

/// Everything a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct Seeing<'a> {
    /// The object.
    pub cluster: &'a RedisCluster,
    /// What should be; absent if the specification cannot be worked with.
    pub resolved: Option<&'a Resolved>,
    /// What was seen.
    pub probed: &'a Probed,
    /// What the planner says.
    pub plan: &'a Plan,
    /// The planner was asked: else the plan is empty because nobody knows what is to be done.
    pub planned: bool,
    /// Reason and sentence of what the application's Secret lacks.
    pub secret_lack: Option<&'a (&'static str, String)>,
    /// Settings that differ for the time of a step.
    pub temporary: &'a BTreeMap<String, String>,
    /// What went wrong in this round, as sentences.
    pub troubles: &'a [String],
    /// Shards whose StatefulSets are not written as they are to be.
    pub unwritten: &'a BTreeSet<u16>,
    /// Why steps stopped before their end, as sentences.
    pub held: &'a [String],
    /// Name of the operation that runs.
    pub operation: Option<&'a str>,
    /// Backups of this cluster, oldest first.
    pub backups: &'a [std::sync::Arc<RedisBackup>],
    /// Shards beyond those that are asked for, of which there are volumes and nothing else.
    pub left_behind: &'a BTreeSet<u16>,
    /// What the largest volume was asked to hold.
    pub volume_size: Option<Quantity>,
    /// How clients reach the members.
    pub reach: Reach,
    /// The time.
    pub now: Timestamp,
}

/// The status that tells all this.
#[must_use]
pub fn report(seeing: Seeing<'_>) -> RedisClusterStatus {
    let Some(resolved) = seeing.resolved else {
        return set_aside(seeing.cluster, "SpecNotUsable", &seeing.troubles.join("; "), seeing.now);
    };
    let previous = seeing.cluster.status.clone().unwrap_or_default();
    let verdict = verdict(resolved, seeing.probed);
    let shards = members::shards(seeing, resolved);
    let generation = seeing.cluster.metadata.generation;
    let mut conditions = conditions::conditions(seeing, resolved, &verdict, &previous);
    if !seeing.planned {
        conditions.iter_mut().for_each(|condition| stays(condition, &previous));
    }
    let serving = shards.iter().filter(|shard| shard.primary.is_some()).count();
    let sum = |of: fn(&types::cluster::ShardStatus) -> i64| shards.iter().map(of).sum();
    let max_memory = seeing.probed.facts.values().map(|facts| facts.max_memory).filter(|bytes| *bytes > 0).min();
    RedisClusterStatus {
        phase: Some(phase(seeing, resolved, &verdict, &conditions, previous.phase)),
        observed_generation: if seeing.planned { generation } else { previous.observed_generation },
        conditions,
        has_served: previous.has_served || verdict.serving,
        replicas: i32::try_from(serving).unwrap_or(i32::MAX),
        selector: Some(selector(&resolved.key.name)),
        volume_size: seeing.volume_size.map(|size| size.to_string()),
        keys: Some(sum(|shard| shard.keys)),
        used_memory: Some(sum(|shard| shard.used_memory)),
        max_memory: max_memory.and_then(|bytes| i64::try_from(bytes).ok()),
        shards,
        plan: if seeing.planned { plan_status(seeing) } else { previous.plan },
        operation: seeing.operation.map(str::to_owned),
        endpoints: endpoints(seeing, resolved),
        version: by_version(resolved, seeing.probed).next().or(previous.version),
        highest_version: by_version(resolved, seeing.probed).next_back().or(previous.highest_version),
        last_backup: last_backup(seeing.backups).or(previous.last_backup),
        temporary_config: seeing.temporary.clone(),
    }
}

/// Without a plan nobody knows that nothing is left to be done, nor what is: what was said of that stays.
fn stays(condition: &mut Condition, previous: &RedisClusterStatus) {
    use types::condition::cluster::{PROGRESSING, READY, UP_TO_DATE};
    let is_good_news = condition.status == Status::True && [READY, UP_TO_DATE].contains(&condition.kind.as_str());
    match previous.conditions.iter().find(|before| before.kind == condition.kind) {
        Some(before) if is_good_news || condition.kind == PROGRESSING => condition.clone_from(before),
        None if is_good_news => {
            condition.status = Status::False;
            "NotPlanned".clone_into(&mut condition.reason);
            "it is not known yet what is left to do".clone_into(&mut condition.message);
        }
        Some(_) | None => {}
    }
}

/// A cluster that nobody can or may work on: what was known stays, the conditions say why nothing happens.
#[must_use]
pub fn set_aside(cluster: &RedisCluster, reason: &str, why: &str, now: Timestamp) -> RedisClusterStatus {
    let previous = cluster.status.clone().unwrap_or_default();
    let degraded = ConditionOf { kind: types::condition::cluster::DEGRADED, status: Status::True };
    let ready = ConditionOf { kind: types::condition::cluster::READY, status: Status::False };
    let conditions = [ready, degraded]
        .map(|of| of.with(reason, why, (cluster, now), &previous))
        .into_iter()
        .chain(previous.conditions.iter().filter(|c| !["Ready", "Degraded"].contains(&c.kind.as_str())).cloned());
    RedisClusterStatus {
        phase: Some(Phase::Degraded),
        observed_generation: cluster.metadata.generation,
        conditions: conditions.collect(),
        ..previous
    }
}

/// The pods that are their shards' serving primaries, as [`crate::roles`] marks them: scale counts shards.
fn selector(cluster: &str) -> String {
    format!(
        "{}={cluster},app.kubernetes.io/name=redis,{}={}",
        names::LABEL_CLUSTER,
        names::LABEL_ROLE,
        names::ROLE_PRIMARY
    )
}

/// Where clients connect: a name that reaches every node, or one member of each shard first and then the others.
fn endpoints(seeing: Seeing<'_>, resolved: &Resolved) -> Vec<String> {
    match seeing.reach {
        Reach::ServiceNames => {
            let (service, namespace) = (names::service(&resolved.key.name), &resolved.key.namespace);
            vec![format!("{service}.{namespace}.svc:{}", names::PORT_REDIS)]
        }
        Reach::PodAddresses => {
            let mut members: Vec<_> = seeing.probed.facts.iter().map(|(pod, facts)| (*pod, facts.address)).collect();
            members.sort_unstable_by_key(|(pod, _)| (pod.ordinal, pod.shard));
            members.into_iter().take(ENDPOINTS_MOST).map(|(_, address)| address.to_string()).collect()
        }
    }
}

/// What is waited for, with the words of those who could start what has not started, and why an older replica gets no copy; and what a
/// step waits for that has begun.
fn waiting(seeing: Seeing<'_>) -> impl Iterator<Item = String> {
    let cluster = seeing.cluster.metadata.name.as_deref().unwrap_or_default();
    let planned = seeing.plan.waiting.iter().map(move |reason| {
        let pod = match reason {
            plan::Waiting::Start { pod }
            | plan::Waiting::Unknown { pod, .. }
            | plan::Waiting::Members { first: pod, .. }
            | plan::Waiting::Parameters { pod, refused: true } => Some(pod),
            // Its primary may be about to start.
            plan::Waiting::Election { shard, .. } | plan::Waiting::Primary { shard, .. } => {
                seeing.probed.stuck.keys().find(|pod| pod.shard == *shard)
            }
            plan::Waiting::Parameters { refused: false, .. }
            | plan::Waiting::Secret
            | plan::Waiting::Loading { .. }
            | plan::Waiting::Held { .. }
            | plan::Waiting::Introductions { .. }
            | plan::Waiting::Agreement { .. }
            | plan::Waiting::Conflict { .. }
            | plan::Waiting::Claimant { .. }
            | plan::Waiting::Sync { .. }
            | plan::Waiting::Copy { .. }
            | plan::Waiting::Former { .. }
            | plan::Waiting::Disk { .. }
            | plan::Waiting::Failover { .. }
            | plan::Waiting::Rest { .. }
            | plan::Waiting::Leftover { .. }
            | plan::Waiting::Script { .. }
            | plan::Waiting::Receiver { .. }
            | plan::Waiting::Approval { .. }
            | plan::Waiting::Hold { .. }
            | plan::Waiting::Room { .. }
            | plan::Waiting::Counting { .. }
            | plan::Waiting::Terminating { .. }
            | plan::Waiting::Leaving { .. }
            | plan::Waiting::Ghost { .. } => None,
        };
        let refused = |pod| seeing.probed.refused.get(pod).map(|refusal| &refusal.words);
        let unread = |pod| seeing.probed.unread.get(pod);
        let why = pod.and_then(|pod| seeing.probed.stuck.get(pod).or_else(|| unread(pod)).or_else(|| refused(pod)));
        let why = why.cloned();
        let why = why.or_else(|| older::why(seeing.probed, reason));
        let is_syncing = |pod: &plan::Pod| seeing.probed.facts.get(pod).is_some_and(|facts| facts.syncing);
        let why = why.or_else(|| is_sent_whole(reason, is_syncing).then(|| SENT_WHOLE.to_owned()));
        let told = unseen::silent(seeing, reason).unwrap_or_else(|| reason.of(cluster).to_string());
        match why {
            Some(why) => format!("{told} ({why})"),
            None => told,
        }
    });
    planned.chain(seeing.held.iter().cloned())
}

/// Whether what is waited for is a copy that is under way: until that has come about, Redis calls the link down.
pub(crate) fn is_sent_whole(reason: &plan::Waiting, is_syncing: impl Fn(&plan::Pod) -> bool) -> bool {
    matches!(reason, plan::Waiting::Sync { pod, link_up: false, .. } if is_syncing(pod))
}

fn plan_status(seeing: Seeing<'_>) -> Option<PlanStatus> {
    let plan = seeing.plan;
    let waiting: Vec<String> = waiting(seeing).collect();
    let status = PlanStatus {
        steps: plan.steps.iter().take(STEPS_MOST).map(ToString::to_string).collect(),
        slots_left: i32::from(plan.slots_left),
        waiting: (!waiting.is_empty()).then(|| waiting.join("; ")),
    };
    (status != PlanStatus::default()).then_some(status)
}

/// The versions that members report, the lowest first. Another engine counts its versions in its own way.
fn by_version(resolved: &Resolved, probed: &Probed) -> impl DoubleEndedIterator<Item = String> {
    let of_engine = probed.facts.values().filter(|facts| facts.engine == resolved.engine);
    let versions = of_engine.map(|facts| facts.version.as_str()).filter(|version| !version.is_empty());
    let mut versions: Vec<&str> = versions.collect();
    versions.sort_by_key(|version| older::parts(version));
    versions.into_iter().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn last_backup(backups: &[std::sync::Arc<RedisBackup>]) -> Option<LastBackup> {
    let completed = backups.iter().filter_map(|backup| {
        let status = backup.status.as_ref()?;
        (status.phase == types::backup::BackupPhase::Completed).then_some(())?;
        Some(LastBackup { name: backup.metadata.name.clone()?, completion_time: status.completion_time? })
    });
    completed.max_by_key(|backup| backup.completion_time)
}

/// One word for people: the first that applies.
fn phase(
    seeing: Seeing<'_>,
    resolved: &Resolved,
    verdict: &Verdict,
    conditions: &[Condition],
    previous: Option<Phase>,
) -> Phase {
    let holds = |kind: &str| conditions.iter().any(|c| c.kind == kind && c.status == Status::True);
    if resolved.paused {
        Phase::Paused
    } else if holds(types::condition::cluster::READY) {
        Phase::Ready
    } else if matches!(previous, None | Some(Phase::Pending | Phase::Creating)) {
        Phase::Creating
    } else if !seeing.plan.refused.is_empty() && seeing.plan.steps.is_empty() {
        Phase::Degraded
    } else if is_scaling(seeing.plan, resolved, seeing.probed) {
        Phase::Scaling
    } else if verdict.outdated > 0 {
        Phase::Updating
    } else if previous == Some(Phase::Updating) && verdict.serving {
        // Between two restarts of an update nothing is outdated for a moment that is not in sync either.
        Phase::Updating
    } else if !verdict.failing_disks.is_empty() {
        // That heals by a person only. What is scaled or updated keeps that name: the webhook goes by it.
        Phase::Degraded
    } else {
        Phase::Healing
    }
}

/// Slots move, or there are more or fewer members than wanted.
fn is_scaling(plan: &Plan, resolved: &Resolved, probed: &Probed) -> bool {
    let moves = plan.slots_left > 0
        || plan.steps.iter().any(|step| match step {
            Step::Move { .. }
            | Step::Mark { .. }
            | Step::MarkOwner { .. }
            | Step::RetireMembers { .. }
            | Step::RetireShard { .. } => true,
            Step::NodeTimeout { .. }
            | Step::Epoch { .. }
            | Step::RaiseEpoch { .. }
            | Step::AddSlots { .. }
            | Step::Meet { .. }
            | Step::Replicate { .. }
            | Step::Failover { .. }
            | Step::Adopt { .. }
            | Step::Stabilise { .. }
            | Step::Forget { .. }
            | Step::Release { .. }
            | Step::Restart { .. } => false,
        });
    let members = &probed.observed.members;
    let surplus = members.keys().any(|pod| !resolved.wants(*pod));
    let never_seen =
        members.iter().any(|(_, member)| member.last_id.is_none() && !matches!(member.seen, Seen::Node(_)));
    resolved.mode == Mode::Cluster && (moves || surplus || never_seen)
}

/// The conditions of a record that has ended, well or not.
#[must_use]
pub fn ended(well: bool, reason: &str, message: &str, now: Timestamp) -> Vec<Condition> {
    let condition = |kind: &str, holds: bool| Condition {
        kind: kind.to_owned(),
        status: if holds { Status::True } else { Status::False },
        observed_generation: None,
        last_transition_time: seconds(now),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    vec![condition("Complete", well), condition("Failed", !well)]
}

/// The conditions of a record that waits: for what, and since when it waits for that. Where the reason is the one of before its time stays, and
/// with it the words if they differ in nothing but numbers, which change with every look and alone are worth no write.
#[must_use]
pub fn waits(reason: &str, message: &str, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    let known = before.iter().find(|condition| condition.reason == reason);
    let same = known.filter(|known| without_numbers(&known.message) == without_numbers(message));
    let condition = Condition {
        kind: "Complete".to_owned(),
        status: Status::False,
        observed_generation: None,
        last_transition_time: known.map_or_else(|| seconds(now), |known| known.last_transition_time),
        reason: reason.to_owned(),
        message: same.map_or_else(|| message.to_owned(), |known| known.message.clone()),
    };
    vec![condition]
}

/// What two sentences have in common that differ in nothing but numbers.
pub(crate) fn without_numbers(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii_digit()).collect()
}

/// For how many seconds a record has been waiting for what its conditions name.
#[must_use]
pub fn waits_for(conditions: &[Condition], now: Timestamp) -> i64 {
    let since = conditions.iter().filter(|condition| condition.status == Status::False).map(|c| c.last_transition_time);
    since.min().map_or(0, |since| now.as_second().saturating_sub(since.as_second()))
}

/// A time as metav1.Time keeps it: whole seconds.
#[must_use]
pub fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether a status is worth a write, given how long ago the last one was. At rest nothing is written.
#[must_use]
pub fn urgency(old: Option<&RedisClusterStatus>, new: &RedisClusterStatus, since_last: Duration) -> Urgency {
    let Some(old) = old else { return Urgency::Now };
    if facts(old) != facts(new) {
        return Urgency::Now;
    }
    let figures = by_much(old.keys, new.keys, 0) || by_much(old.used_memory, new.used_memory, 1 << 20);
    let wait = match (texts(old) != texts(new), figures) {
        (true, _) => TEXTS_EVERY,
        (false, true) => FIGURES_EVERY,
        (false, false) => return Urgency::Never,
    };
    let left = wait.saturating_sub(since_last);
    if left.is_zero() { Urgency::Now } else { Urgency::In(left) }
}

/// When a status is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Nothing worth a write has changed.
    Never,
    /// At once.
    Now,
    /// Unless more happens, after this time.
    In(Duration),
}

fn by_much(old: Option<i64>, new: Option<i64>, slack: u64) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => is_much(old.unsigned_abs(), new.unsigned_abs(), slack),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// Whether a figure has changed by more than a twentieth, and more than `slack`.
pub(crate) const fn is_much(old: u64, new: u64, slack: u64) -> bool {
    let difference = old.abs_diff(new);
    difference > slack && difference > old / 20
}

/// A status without the numbers that change by themselves while clients work, and without sentences, which carry
/// numbers that change while something is waited for.
fn facts(status: &RedisClusterStatus) -> RedisClusterStatus {
    let mut status = texts(status);
    status.conditions.iter_mut().for_each(|condition| condition.message.clear());
    status.plan = None;
    status
}

/// A status without the numbers that change by themselves while clients work.
fn texts(status: &RedisClusterStatus) -> RedisClusterStatus {
    let mut status = status.clone();
    (status.keys, status.used_memory) = (None, None);
    for shard in &mut status.shards {
        (shard.keys, shard.used_memory) = (0, 0);
        shard.members.iter_mut().for_each(|member| member.lag_bytes = member.lag_bytes.map(|_| 0));
    }
    status
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
