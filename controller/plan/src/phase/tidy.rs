//! What is no longer needed goes: temporary settings, surplus members, empty shards, and the memory of dead nodes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::observed::{NodeId, Pod, Seen};
use crate::phase::{Flow, agree, operate, receiver, replicate};
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::step::{Leaver, Step};

pub(crate) fn tidy(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let before = plan.steps.len();
    settings(scene, plan);
    for shard in 0..scene.desired.shards {
        if shrink(scene, plan, shard) == Flow::Stop {
            return Flow::Stop;
        }
    }
    retire_shards(scene, plan);
    // Who leaves in this batch cannot be told in it; next time there is nobody to be told.
    if plan.steps.len() == before {
        forget(scene, plan);
    }
    if plan.steps.len() > before { Flow::Stop } else { Flow::On }
}

/// The short timeout of creation stays until the new cluster agrees, and never where there is anything to lose. Where servers wait longer for
/// a processor than it lasts, they take each other for dead for ever, and never agree: there it ends.
fn settings(scene: &Scene<'_>, plan: &mut Plan) {
    let is_empty = scene.live.iter().all(|live| live.node.keys == 0);
    let creating = is_empty && agree::right(scene) < scene.live.len() && !agree::doubts_the_living(scene);
    let complete = scene.wanted().all(|pod| scene.live.iter().any(|live| live.pod == pod));
    if creating && complete {
        return;
    }
    let millis = scene.desired.node_timeout_millis;
    let other = scene.live.iter().filter(|live| live.node.node_timeout_millis != millis);
    plan.steps.extend(other.map(|live| Step::NodeTimeout { node: live.who(), millis }));
}

/// Members beyond the wanted number leave, highest ordinal first, once those who stay hold the data and one of them leads.
fn shrink(scene: &Scene<'_>, plan: &mut Plan, shard: u16) -> Flow {
    let keep = scene.desired.members_per_shard();
    let leaving = leavers(scene, |pod| pod.shard == shard && pod.ordinal >= keep);
    if leaving.is_empty() {
        return Flow::On;
    }
    let Some(lead) = scene.owner(shard) else { return Flow::On };
    if tell_formers(scene, plan, shard) {
        return Flow::On;
    }
    let stays: Vec<Live<'_>> = scene.live_of(shard).filter(|live| scene.is_wanted(live.pod)).collect();
    if !scene.is_wanted(lead.pod) {
        let before = plan.steps.len();
        let flow = operate::hand_over(scene, plan, &lead, &stays);
        // One that gets its copy only once it is restarted would wait for this, and this for it.
        let is_late = plan.steps.len() == before && stays.iter().any(|live| safety::is_left_behind(scene, live.pod));
        return if is_late { Flow::On } else { flow };
    }
    // Who stays in name and goes in fact is no reason to let the others go. It has been reported.
    if stays.iter().any(|live| scene.is_terminating(live.pod)) {
        return Flow::On;
    }
    let behind = stays.iter().find(|live| !safety::keeps(scene, live));
    if let Some(live) = behind {
        plan.waiting.push(safety::disk(live));
        return Flow::On;
    }
    let copies = stays.iter().filter(|live| safety::may_take_over(scene, live, &lead)).count();
    if copies == 0 && scene.desired.replicas > 0 {
        // The replicas that stay have been reported by the phase that makes them.
        return Flow::On;
    }
    if !is_blocked(scene, plan, &leaving) {
        plan.steps.push(Step::RetireMembers { shard, keep, leaving });
    }
    Flow::On
}

/// A former primary that keeps keys goes nowhere, and nobody's place is handed to it. Those that stay are told of where replicas are made.
fn tell_formers(scene: &Scene<'_>, plan: &mut Plan, shard: u16) -> bool {
    let formers = || scene.live_of(shard).filter(|live| !scene.is_lead(live.pod) && safety::is_former(scene, live));
    for live in formers().filter(|live| !scene.is_wanted(live.pod)) {
        replicate::tell_of_former(plan, &live);
    }
    formers().next().is_some()
}

/// Shards beyond the wanted number leave once none of their members owns a slot or holds keys of one.
fn retire_shards(scene: &Scene<'_>, plan: &mut Plan) {
    let surplus: BTreeSet<u16> =
        scene.observed.members.keys().map(|pod| pod.shard).filter(|shard| *shard >= scene.desired.shards).collect();
    for shard in surplus.into_iter().rev() {
        // Of such a copy it has been reported.
        if tell_formers(scene, plan, shard) || receiver::has_a_copy(scene, shard) {
            continue;
        }
        if let Some(pod) = receiver::awaited(scene, shard) {
            plan.waiting.push(Waiting::Start { pod });
            continue;
        }
        let leaving = leavers(scene, |pod| pod.shard == shard);
        let empty = scene.live_of(shard).all(|live| {
            live.node.slots().is_empty()
                && live.node.foreign_keys.values().all(|keys| *keys == 0)
                && live.node.open.is_empty()
        });
        let uncounted = scene.live_of(shard).find(|live| !live.node.uncounted.is_empty());
        if let Some(live) = uncounted.filter(|_| empty) {
            plan.waiting.push(Waiting::Counting { pod: live.pod, slots: live.node.uncounted.len() });
            continue;
        }
        if empty && plan.slots_left == 0 && !is_blocked(scene, plan, &leaving) {
            plan.steps.push(Step::RetireShard { shard, leaving });
        }
    }
}

fn leavers(scene: &Scene<'_>, leaves: impl Fn(Pod) -> bool) -> Vec<Leaver> {
    let members = scene.observed.members.iter().filter(|(pod, _)| leaves(**pod));
    let named = members.map(|(pod, member)| match &member.seen {
        Seen::Node(node) => Leaver { pod: *pod, id: Some(node.id) },
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => {
            Leaver { pod: *pod, id: None }
        }
    });
    named.collect()
}

/// A member whose state is not known may not be removed: it may turn out to be what is needed. It has been reported.
fn is_blocked(scene: &Scene<'_>, plan: &mut Plan, leaving: &[Leaver]) -> bool {
    let owns = leaving.iter().find(|leaver| !scene.owned_by(leaver.pod).is_empty());
    let unseen = leaving.iter().any(|leaver| {
        let seen = scene.observed.members.get(&leaver.pod).map(|member| &member.seen);
        matches!(seen, Some(Seen::Unknown { .. } | Seen::Starting))
    });
    if let Some(leaver) = owns {
        plan.waiting.push(Waiting::Leaving { pod: leaver.pod });
    }
    owns.is_some() || unseen
}

/// Nodes that own nothing and are gone leave every table at the same time.
fn forget(scene: &Scene<'_>, plan: &mut Plan) {
    let alive: BTreeSet<NodeId> = scene.live.iter().map(|live| live.node.id).collect();
    let entries = scene.live.iter().flat_map(|live| live.node.peers.iter());
    let ghosts: BTreeSet<NodeId> =
        entries.filter(|(id, peer)| !alive.contains(id) && !peer.handshake).map(|(id, _)| *id).collect();
    for id in ghosts.into_iter().filter(|id| !scene.strangers.contains_key(id)) {
        let lists = |live: &&Live<'_>| live.node.peers.contains_key(&id);
        let owner =
            scene.live.iter().find(|live| live.node.peers.get(&id).is_some_and(|peer| !peer.slots().is_empty()));
        match owner.map(|live| live.pod).or_else(|| safety::keeps_from_forgetting(scene, id)) {
            Some(because_of) => {
                let answers = scene.live.iter().any(|live| live.pod == because_of);
                plan.waiting.push(Waiting::Ghost { id, because_of, answers });
            }
            None => {
                let by = scene.live.iter().filter(lists).map(Live::who).collect();
                plan.steps.push(Step::Forget { id, by });
            }
        }
    }
}
