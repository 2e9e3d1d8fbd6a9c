//! Who is not there, or is on its way out: says so, releases held members where nothing can be lost by it, and frees pods stuck on an old template.

use crate::observed::{Member, NodeId, Pod, Seen};
use crate::phase::Flow;
use crate::plan::{Plan, Refused, Waiting};
use crate::safety;
use crate::scene::Scene;
use crate::sites::Site;
use crate::step::{ReleaseHow, RestartAs, Step};

pub(crate) fn admit(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    for (pod, member) in scene.places() {
        if let Some(reason) = member.and_then(|member| parting(scene, pod, member)) {
            plan.waiting.push(reason);
            continue;
        }
        if member.is_some_and(|member| is_stuck(scene, pod, member)) {
            plan.steps.push(Step::Restart { pod, expect: RestartAs::NotRunning });
            plan.waiting.push(Waiting::Start { pod });
            continue;
        }
        match member.map(|member| &member.seen) {
            None | Some(Seen::Absent) if !scene.is_wanted(pod) => {}
            None | Some(Seen::Absent | Seen::Stopped | Seen::Starting) => plan.waiting.push(Waiting::Start { pod }),
            Some(Seen::Unknown { since_millis }) => {
                plan.waiting.push(Waiting::Unknown { pod, since_millis: *since_millis });
            }
            // Its agent would refuse it, at every look: it says what helps, and goes on by itself.
            Some(Seen::Held { reason, .. }) if scene.observed.unsettled.contains(&pod) => {
                plan.refused.push(Refused::Held { pod, reason: reason.clone() });
            }
            Some(Seen::Held { holds_data, id, reason }) => match release(scene, pod, *holds_data, *id) {
                Answer::Release(how) => plan.steps.push(Step::Release { pod, how }),
                Answer::Wait(reason) => plan.waiting.push(reason),
                Answer::Refuse => plan.refused.push(Refused::Held { pod, reason: reason.clone() }),
            },
            Some(Seen::Node(node)) if node.loading => plan.waiting.push(Waiting::Loading { pod }),
            Some(Seen::Node(_)) => {}
        }
    }
    Flow::On
}

/// A replica may still win the votes to take this one's place: if it served meanwhile, what it took in would be lost. Votes count for two node
/// timeouts (`clusterHandleSlaveFailover`).
fn asked_lately(scene: &Scene<'_>, pod: Pod, id: NodeId) -> Option<Waiting> {
    let counts = safety::votes_count_millis(scene);
    let since_millis = scene.observed.failovers_asked.get(&pod.shard).copied().filter(|since| *since < counts)?;
    scene.is_lost(id).then_some(Waiting::Failover { shard: pod.shard, since_millis })
}

/// A pod that is being deleted is neither started, released nor restarted; its successor will be. Until then nobody else is disturbed.
fn parting(scene: &Scene<'_>, pod: Pod, member: &Member) -> Option<Waiting> {
    let there = match &member.seen {
        Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Node(_) => true,
        // That it is not seen is the graver thing to tell.
        Seen::Absent | Seen::Unknown { .. } => false,
    };
    let reason = if scene.is_wanted(pod) { Waiting::Terminating { pod } } else { Waiting::Leaving { pod } };
    (there && member.terminating).then_some(reason)
}

enum Answer {
    Release(ReleaseHow),
    Wait(Waiting),
    Refuse,
}

/// Data with a known identity always comes back as it is: if its claims are stale, newer ones overrule them. Data without an identity is
/// set aside only when the shard is served by somebody else: Redis would drop the keys of every slot it cannot claim.
///
/// A member without data starts blank where the shard is served: its files may hold a claim nobody has heard of, newer than that of the
/// member that serves, which would then be emptied. Where the shard is not served, it waits until everybody who may hold the shard's data
/// has been seen, and then comes back as the owner it was.
fn release(scene: &Scene<'_>, pod: Pod, holds_data: bool, id: Option<NodeId>) -> Answer {
    if let Some(wait) = id.and_then(|id| asked_lately(scene, pod, id)) {
        return Answer::Wait(wait);
    }
    let as_known = if id.is_some() { ReleaseHow::AsIs } else { ReleaseHow::Blank };
    let served = scene.owner(pod.shard).is_some() && scene.lost.is_empty();
    if holds_data {
        // Nobody waits for what lies there, and it is kept: also where the shard is none of this cluster any more.
        let is_unneeded = served || scene.lost.is_empty() && scene.unowned.is_empty();
        return if id.is_some() || is_unneeded { Answer::Release(as_known) } else { Answer::Refuse };
    }
    if served {
        return Answer::Release(ReleaseHow::Blank);
    }
    let copy = scene.live_of(pod.shard).find(|live| scene.lost.iter().any(|lost| scene.is_copy(live, lost.id)));
    match copy.map(|live| live.pod).or_else(|| safety::may_hold_data(scene, pod)) {
        Some(until_seen) => Answer::Wait(Waiting::Held { pod, until_seen }),
        // Somebody holds older data: an empty owner must not come back over it.
        None if scene.live_of(pod.shard).any(|live| live.node.keys > 0) => Answer::Release(ReleaseHow::Blank),
        None => Answer::Release(as_known),
    }
}

/// A pod made from an old template that does not come up would never be replaced by a roll that waits for it. It is freed if nothing
/// can be lost by it; where no site was ever given to it, it never held anything. Its successor would not come up without the Secret.
fn is_stuck(scene: &Scene<'_>, pod: Pod, member: &Member) -> bool {
    let down = match &member.seen {
        Seen::Stopped | Seen::Held { .. } => true,
        Seen::Starting => scene.owner(pod.shard).is_some(),
        Seen::Absent | Seen::Unknown { .. } | Seen::Node(_) => false,
    };
    let safe = scene.desired.restart_keeps_data
        || member.site == Site::Nowhere
        || scene.owner(pod.shard).is_some() && scene.lost.is_empty();
    down && safe && !scene.desired.lacks_secret && member.outdated && scene.is_wanted(pod)
}
