//! Two disruptive changes at once: moving slots and restarting members each take away a safety the other counts on.

use types::{
    RedisCluster,
    cluster::{Mode, Phase, RedisClusterSpec, RedisClusterStatus},
    condition::{Status, cluster as condition},
    config::{self, Class},
    field::{Fault, Path},
    version::Version,
};

use super::{Objection, Verdict};

/// Refuses a second disruptive change while one runs, and two in one update. On a sick cluster it only warns: the
/// change may be the repair. `known`: the cluster as it was watched, whose status may be later than that of the request.
pub(super) fn check(verdict: &mut Verdict, new: &RedisCluster, old: &RedisCluster, known: Option<&RedisCluster>) {
    let moves = new.spec.shards() != old.spec.shards();
    let restarts = restarting_fields(new, old);
    if old.spec.mode == Mode::Standalone || (!moves && restarts.is_empty()) {
        return;
    }
    let Some(status) = latest(old, known) else { return };
    if matches!(status.phase, None | Some(Phase::Pending | Phase::Creating)) {
        // Nothing is served yet.
        return;
    }
    let shards = Path::new("spec.shards");
    let mut found = Vec::new();
    if let (true, Some(first)) = (moves, restarts.first()) {
        let why = format!(
            "changing shards moves data and changing {} restarts every member; make one change, wait for Ready, then the other",
            restarts.join(", ")
        );
        found.push((Path::new(first), why));
    }
    if let Some(what) = resharding(&old.spec, status) {
        let wait = "wait for Ready, or stop it with spec.migration.paused";
        if moves {
            found.push((shards.clone(), format!("{what}; {wait}")));
        }
        if let Some(first) = restarts.first() {
            found.push((Path::new(first), format!("would restart members while {what}; {wait}")));
        }
    }
    if let (true, Some(what)) = (moves, rolling(&old.spec, status)) {
        found.push((shards, format!("would move data while {what}; wait for Ready")));
    }
    let sick = sickness(status);
    if sick.is_none() && found.is_empty() && is_behind(old, status) {
        let path = Path::new(restarts.first().copied().unwrap_or("spec.shards"));
        let why = "the change before this one has not been looked at yet; try again in a second; where that does not help, see that the controller runs";
        verdict.refuse(Objection::Unknown, Fault::forbidden(path, why));
    }
    for (path, why) in found {
        match &sick {
            Some(sick) => verdict.warn(format!("{path}: {why} (accepted because the cluster {sick})")),
            None => verdict.refuse(Objection::Conflict, Fault::forbidden(path, why)),
        }
    }
}

/// The status that was made last. One of another cluster of the name tells nothing of this one.
fn latest<'a>(old: &'a RedisCluster, known: Option<&'a RedisCluster>) -> Option<&'a RedisClusterStatus> {
    let told = old.status.as_ref()?;
    let known = known.filter(|known| known.metadata.creation_timestamp == old.metadata.creation_timestamp);
    let known = known.and_then(|known| known.status.as_ref());
    Some(known.filter(|known| known.observed_generation > told.observed_generation).unwrap_or(told))
}

/// Whether the status was made before the last change of the specification: what that one begins is not in it.
fn is_behind(old: &RedisCluster, status: &RedisClusterStatus) -> bool {
    let generations = old.metadata.generation.zip(status.observed_generation);
    generations.is_some_and(|(generation, observed)| observed < generation)
}

/// Fields whose change restarts every member.
fn restarting_fields(new: &RedisCluster, old: &RedisCluster) -> Vec<&'static str> {
    let is_other_secret = new.auth_secret() != old.auth_secret();
    let (new, old) = (&new.spec, &old.spec);
    let restart = |name: &String| config::parameter(name).is_some_and(|one| one.class == Class::Restart);
    let parameters = |spec: &RedisClusterSpec| -> Vec<(String, String)> {
        spec.config
            .iter()
            .filter(|(name, _)| restart(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let changed = [
        ("spec.version", new.version != old.version && new.image() != old.image()),
        ("spec.image", new.image != old.image),
        ("spec.resources", new.resources != old.resources),
        ("spec.config", parameters(new) != parameters(old)),
        ("spec.auth.secretName", is_other_secret),
        ("spec.placement", new.placement.of_pods() != old.placement.of_pods()),
    ];
    changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

/// Whether slots move now, as a phrase with numbers. A reshard that stands still and waits for something does not hold
/// up the change that may free it.
fn resharding(old: &RedisClusterSpec, status: &RedisClusterStatus) -> Option<String> {
    let plan = status.plan.as_ref()?;
    let stands_still = plan.waiting.is_some() && plan.steps.is_empty();
    if stands_still || old.migration.paused || old.paused || plan.slots_left <= 0 {
        return None;
    }
    Some(format!("{} hash slots are still moving to make {} shards", plan.slots_left, old.shards()))
}

/// Whether members are being restarted on a new template, as a phrase.
fn rolling(old: &RedisClusterSpec, status: &RedisClusterStatus) -> Option<String> {
    if old.paused {
        return None;
    }
    let running = status.version.as_deref().and_then(|version| version.parse::<Version>().ok());
    let wanted = old.version.parse::<Version>().ok();
    if let (Some(running), Some(wanted)) = (running, wanted)
        && !wanted.agrees(running)
    {
        return Some(format!("members are being restarted to go from version {running} to {wanted}"));
    }
    (status.phase == Some(Phase::Updating)).then(|| "members are being restarted on a new template".to_owned())
}

/// What is wrong with the cluster, if something is.
fn sickness(status: &RedisClusterStatus) -> Option<String> {
    let is = |name: &str, wanted: Status| {
        status.conditions.iter().find(|one| one.kind == name && one.status == wanted).map(|one| one.message.clone())
    };
    is(condition::AVAILABLE, Status::False)
        .map(|message| format!("is not available: {message}"))
        .or_else(|| is(condition::DEGRADED, Status::True).map(|message| format!("is degraded: {message}")))
}
