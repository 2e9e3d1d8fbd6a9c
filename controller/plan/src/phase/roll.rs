//! Rolling restart: one shard at a time, replicas first, then a planned hand-over, then the old primary; each only when all is calm. First of
//! all come replicas that may get a copy only by their restart. Beside a primary whose disk fails the hand-over comes first.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::{Disk, Pod, Unused, Unwritten};
use crate::phase::{Flow, operate};
use crate::plan::{Plan, Refused, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::step::{RestartAs, Step};

pub(crate) fn roll(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let shards: Vec<u16> = (0..scene.desired.shards).filter(|shard| is_outdated(scene, *shard)).collect();
    if !shards.is_empty() && is_calm(scene, plan) {
        if let Some(wait) = unproven(scene) {
            plan.waiting.push(wait);
            return Flow::On;
        }
        if let Some(replica) = left_behind(scene) {
            catch_up(scene, plan, &replica);
            return Flow::On;
        }
    }
    let mut disturbed = 0;
    for shard in shards {
        if disturbed >= scene.limits.disturbed_shards.max(1) || !is_calm(scene, plan) {
            break;
        }
        let before = (plan.steps.len(), plan.refused.len());
        next(scene, plan, shard);
        disturbed += u16::from(plan.steps.len() > before.0);
    }
    Flow::On
}

/// What a person has to decide, moves that are paused, those that wait for room, which may come with a restart, and replicas that have
/// to be restarted themselves do not stand in the way; whatever else is waited for does, and so does a member that this very plan starts: it
/// is away until it is in sync again, and shows what a server that starts now comes to.
fn is_calm(scene: &Scene<'_>, plan: &Plan) -> bool {
    let starts = plan.steps.iter().any(|step| matches!(step, Step::Release { .. }));
    !starts
        && plan.waiting.iter().all(|reason| match reason {
            Waiting::Room { half_moved, .. } => !half_moved,
            Waiting::Sync { pod, .. } => safety::is_left_behind(scene, *pod),
            reason => matches!(reason, Waiting::Hold { .. } | Waiting::Approval { .. }),
        })
}

/// What a restart may come to: nobody starts without the Secret. Or a member shows what it may do to the next one: its engine refuses the parameters, or it has been restarted and does not use
/// them yet. One that is still to be restarted and only has not got them yet proves nothing: with its restart it gets them, and the first
/// one is looked at before there is a second.
pub(crate) fn unproven(scene: &Scene<'_>) -> Option<Waiting> {
    if scene.desired.lacks_secret {
        return Some(Waiting::Secret);
    }
    let unused = scene.observed.unused.iter().filter(|(pod, _)| scene.live.iter().any(|live| live.pod == **pod));
    let stands = unused.filter_map(|(pod, why)| match why {
        Unused::Refused => Some((false, *pod)),
        Unused::Pending => (!outdated(scene, *pod)).then_some((true, *pod)),
    });
    stands.min().map(|(pending, pod)| Waiting::Parameters { pod, refused: !pending })
}

/// Those of a shard that may be restarted. A former primary that keeps keys is told of: what nobody else has may end with its pod.
fn members<'a>(scene: &'a Scene<'_>, shard: u16) -> impl Iterator<Item = Live<'a>> {
    scene.live_of(shard).filter(|live| !safety::is_former(scene, live))
}

fn is_outdated(scene: &Scene<'_>, shard: u16) -> bool {
    members(scene, shard).any(|live| outdated(scene, live.pod))
}

fn outdated(scene: &Scene<'_>, pod: Pod) -> bool {
    scene.observed.members.get(&pod).is_some_and(|member| member.outdated)
}

/// The next of those that wait for a copy that may never come: of the first shard the highest ordinal.
fn left_behind<'a>(scene: &Scene<'a>) -> Option<Live<'a>> {
    let found = scene.live.iter().copied().filter(|live| safety::is_left_behind(scene, live.pod));
    found.min_by_key(|live| (live.pod.shard, Reverse(live.pod.ordinal)))
}

/// It holds nothing, but while it is away its primary has to survive a restart as beside any other.
fn catch_up(scene: &Scene<'_>, plan: &mut Plan, replica: &Live<'_>) {
    match scene.lead(replica.pod.shard).filter(|lead| !safety::keeps(scene, lead)) {
        Some(lead) => plan.waiting.push(safety::disk(&lead)),
        None => plan.steps.push(Step::Restart { pod: replica.pod, expect: RestartAs::Empty(replica.node.id) }),
    }
}

/// The next restart or hand-over of one shard, whose members are all in sync.
fn next(scene: &Scene<'_>, plan: &mut Plan, shard: u16) {
    let Some(lead) = scene.lead(shard) else { return };
    let others = || members(scene, shard).filter(|live| live.pod != lead.pod);
    let replica = others().filter(|live| outdated(scene, live.pod)).max_by_key(|live| live.pod);
    // While a copy is away, the other one has to survive a restart.
    if !safety::keeps(scene, &lead) {
        let among: Vec<Live<'_>> = others().collect();
        return beside_what_it_keeps_not(scene, plan, &lead, &among);
    }
    if let Some(replica) = replica {
        let expect = RestartAs::Replica(replica.node.id);
        return plan.steps.push(Step::Restart { pod: replica.pod, expect });
    }
    // Nobody elects a replica of a primary without slots, and what holds nothing loses nothing.
    if scene.owned_by(lead.pod).is_empty() && lead.node.keys == 0 {
        let expect = RestartAs::Replica(lead.node.id);
        return plan.steps.push(Step::Restart { pod: lead.pod, expect });
    }
    if !scene.desired.approval.covers(shard) {
        return plan.waiting.push(Waiting::Approval { shard, pod: lead.pod });
    }
    if scene.desired.replicas > 0 {
        let among: Vec<Live<'_>> = others().collect();
        operate::hand_over(scene, plan, &lead, &among);
    } else {
        restart_alone(scene, plan, &lead);
    }
}

/// A file that is being written is waited for, also where the last time failed: that is tried again. One that takes no writes may do so for ever, and
/// what it lacks a replica has whose own file is current: where the primary waits for its own restart, that one takes the role first, and the member
/// with the failing disk is restarted beside it. One that was restarted already would fail as a replica, too.
fn beside_what_it_keeps_not(scene: &Scene<'_>, plan: &mut Plan, lead: &Live<'_>, among: &[Live<'_>]) {
    let fails = match lead.node.disk {
        Disk::Current | Disk::Rewriting | Disk::Fails(Unwritten::Rewrite | Unwritten::Snapshot) => false,
        Disk::Fails(Unwritten::Write) => true,
    };
    let is_outdated = |pod: Pod| scene.observed.members.get(&pod).is_some_and(|member| member.outdated);
    let ready = || among.iter().filter(|live| safety::may_take_over(scene, live, lead)).copied();
    let mut heirs: Vec<Live<'_>> = ready().filter(|live| !is_outdated(live.pod)).collect();
    if heirs.is_empty() {
        heirs = ready().collect();
    }
    // Nobody elects a replica of a primary without slots.
    let is_elected = !scene.owned_by(lead.pod).is_empty();
    if !fails || !is_elected || !is_outdated(lead.pod) || heirs.is_empty() {
        plan.waiting.push(safety::disk(lead));
    } else if !scene.desired.approval.covers(lead.pod.shard) {
        plan.waiting.push(Waiting::Approval { shard: lead.pod.shard, pod: lead.pod });
    } else {
        operate::hand_over(scene, plan, lead, &heirs);
    }
}

/// A primary without a replica is restarted only if it finds its data again: what its disk lacks nobody has.
pub(crate) fn restart_alone(scene: &Scene<'_>, plan: &mut Plan, lead: &Live<'_>) {
    if !scene.desired.restart_keeps_data {
        plan.refused.push(Refused::OnlyCopy { pod: lead.pod, keys: lead.node.keys });
    } else if !safety::keeps_alone(scene, lead) {
        plan.waiting.push(safety::disk(lead));
    } else {
        plan.steps.push(Step::Restart { pod: lead.pod, expect: RestartAs::OnlyCopy(lead.node.id) });
    }
}
