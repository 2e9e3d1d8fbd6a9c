//! What may never happen, judged with full knowledge of the world and without the planner's own reasoning.

use std::collections::{BTreeMap, BTreeSet};

use plan::model::{Home, Process, Server, Truth, World};
use plan::{
    Desired, FailoverHow, Limits, NodeId, Observed, PeerRole, Plan, Pod, Refused, ReleaseHow, RestartAs, Seen, Site,
    SlotSet, Stands, Step, Unused, Waiting, Who,
};

/// How long an election counts in Redis with the model's node timeout of 5 s: twice `max(2 × node timeout, 2 s)`.
const REST_MILLIS: u64 = 20_000;

/// Malformed or immoderate plans.
pub fn lint(plan: &Plan, seen: &Observed, desired: &Desired, limits: &Limits) -> Result<(), String> {
    let mut moving: BTreeSet<Pod> = BTreeSet::new();
    let mut disturbed: BTreeSet<u16> = BTreeSet::new();
    let mut given = SlotSet::EMPTY;
    let twins = twins(seen);
    for (index, step) in plan.steps.iter().enumerate() {
        if plan.steps[..index].contains(step) {
            return Err(format!("{step}: twice in one batch"));
        }
        let introduces = matches!(step, Step::Meet { .. });
        check(twins.is_empty() || !introduces, || format!("{step}: while a node runs twice"))?;
        for who in names(step) {
            check(!twins.contains(&who.pod.shard), || format!("{step}: touches a shard of a node that runs twice"))?;
            let known = seen
                .members
                .get(&who.pod)
                .is_some_and(|member| matches!(&member.seen, Seen::Node(node) if node.id == who.id));
            check(known, || format!("{step}: names {who}, which was not seen there"))?;
        }
        match step {
            Step::Move { from, to, slots } => {
                check(moving.insert(from.pod) && moving.insert(to.pod), || format!("{step}: a node moves twice"))?;
                check(!slots.is_empty() && slots.len() <= limits.slots_per_move, || {
                    format!("{step}: too much or nothing")
                })?;
            }
            Step::AddSlots { slots, .. } | Step::Adopt { slots, .. } => {
                check(!slots.is_empty() && given.intersection(slots).is_empty(), || format!("{step}: given twice"))?;
                given = given.union(slots);
            }
            Step::Mark { slots, .. } | Step::MarkOwner { slots, .. } | Step::Stabilise { slots, .. } => {
                check(!slots.is_empty(), || format!("{step}: nothing"))?
            }
            Step::Failover { how: FailoverHow::Coordinated, replica, .. } => disturbed.extend([replica.pod.shard]),
            Step::Restart { pod, expect: RestartAs::Replica(_) | RestartAs::Empty(_) | RestartAs::OnlyCopy(_) } => {
                disturbed.extend([pod.shard])
            }
            Step::Restart { expect: RestartAs::NotRunning, .. }
            | Step::Failover { how: FailoverHow::Force | FailoverHow::Takeover, .. } => {}
            Step::Meet { node, peer, address } => {
                check(node != peer && !address.is_empty(), || format!("{step}: meets itself or nobody"))?;
            }
            Step::Forget { by, .. } => check(!by.is_empty(), || format!("{step}: by nobody"))?,
            Step::RetireMembers { keep, leaving, shard } => {
                let right = leaving.iter().all(|leaver| leaver.pod.shard == *shard && leaver.pod.ordinal >= *keep);
                check(right && *keep == desired.replicas + 1 && !leaving.is_empty(), || {
                    format!("{step}: wrong members")
                })?;
            }
            Step::RetireShard { shard, .. } => check(*shard >= desired.shards, || format!("{step}: a wanted shard"))?,
            Step::NodeTimeout { .. }
            | Step::Epoch { .. }
            | Step::RaiseEpoch { .. }
            | Step::Replicate { .. }
            | Step::Release { .. } => {}
        }
        check(!step.to_string().is_empty() && !step.kind().is_empty(), || "a step without words".to_owned())?;
    }
    check(moving.len() <= 2 * usize::from(limits.moves_at_once), || "too many moves".to_owned())?;
    check(disturbed.len() <= usize::from(limits.disturbed_shards), || format!("{} shards disturbed", disturbed.len()))?;
    let words: Vec<String> =
        plan.waiting.iter().map(ToString::to_string).chain(plan.refused.iter().map(ToString::to_string)).collect();
    check(words.iter().all(|words| words.len() > 10), || format!("a reason without words: {words:?}"))
}

/// Shards with a member whose identity somebody else has, too.
fn twins(seen: &Observed) -> BTreeSet<u16> {
    let ids: Vec<(Pod, NodeId)> = seen
        .members
        .iter()
        .filter_map(|(pod, member)| match &member.seen {
            Seen::Node(node) => Some((*pod, node.id)),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
        })
        .collect();
    let twice = |(pod, id): &&(Pod, NodeId)| {
        seen.elsewhere.contains_key(pod) || ids.iter().any(|(other, found)| other != pod && found == id)
    };
    let held = seen.members.iter().filter(|(pod, member)| {
        matches!(member.seen, Seen::Held { id: Some(_), .. }) && seen.elsewhere.contains_key(pod)
    });
    let held = held.map(|(pod, _)| pod.shard);
    ids.iter().filter(twice).map(|(pod, _)| pod.shard).chain(held).collect()
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn names(step: &Step) -> Vec<Who> {
    match step {
        Step::NodeTimeout { node, .. }
        | Step::Epoch { node, .. }
        | Step::RaiseEpoch { node, .. }
        | Step::AddSlots { node, .. }
        | Step::Adopt { node, .. }
        | Step::MarkOwner { owner: node, .. }
        | Step::Stabilise { node, .. } => vec![*node],
        Step::Meet { node, peer, .. } => vec![*node, *peer],
        Step::Replicate { node, primary } => vec![*node, *primary],
        Step::Failover { replica, .. } => vec![*replica],
        Step::Move { from, to, .. } | Step::Mark { from, to, .. } => vec![*from, *to],
        Step::Forget { by, .. } => by.clone(),
        Step::Release { .. } | Step::Restart { .. } | Step::RetireMembers { .. } | Step::RetireShard { .. } => {
            Vec::new()
        }
    }
}

/// A step that was carried out was allowed to be.
pub fn permitted(step: &Step, world: &World, desired: &Desired, stale: bool) -> Result<(), String> {
    match step {
        Step::Failover { replica, primary, how, over: _, unheard: _ } => {
            may_fail_over(step, (*replica, *primary, *how), world, desired, stale)
        }
        Step::Forget { id, .. } => {
            check(!running(world, *id), || "forgets a living node".to_owned())?;
            let pods = world.running();
            let owns = pods.iter().filter_map(|pod| world.up(*pod)).any(|server| {
                server.table.get(id).is_some_and(|peer| !peer.slots().is_empty()) || server.follows() == Some(*id)
            });
            check(!owns, || "forgets a node that owns slots or leads".to_owned())
        }
        Step::Replicate { node, primary } => {
            let already = world.up(node.pod).is_some_and(|server| server.follows() == Some(primary.id));
            if already { Ok(()) } else { remains(world, stale, |pod| pod == node.pod) }
        }
        Step::Release { pod, how: ReleaseHow::Blank } => remains(world, stale, |other| other == *pod),
        Step::Release { pod, how: ReleaseHow::AsIs } => not_wiping(world, *pod),
        Step::Restart { pod, expect } => may_restart((*pod, *expect), world, desired, stale),
        Step::RetireMembers { shard, keep, .. } => {
            remains(world, stale, |pod| pod.shard == *shard && pod.ordinal >= *keep)
        }
        Step::RetireShard { shard, .. } => remains(world, stale, |pod| pod.shard == *shard),
        Step::Stabilise { node, slots } => {
            let server = world.up(node.pod).ok_or("nobody there")?;
            let stranded = slots.iter().any(|slot| !server.slots().contains(slot) && server.keys_in(slot) > 0);
            check(!stranded, || "closes a slot with keys inside".to_owned())
        }
        Step::Adopt { owner, slots, node } => {
            let claimed = holders(world).any(|(pod, server)| {
                pod != node.pod && Some(server.id) == *owner && !server.slots().intersection(slots).is_empty()
            });
            check(!claimed, || "takes slots from somebody who may come back".to_owned())
        }
        Step::NodeTimeout { .. }
        | Step::Epoch { .. }
        | Step::RaiseEpoch { .. }
        | Step::AddSlots { .. }
        | Step::Meet { .. }
        | Step::Move { .. }
        | Step::Mark { .. }
        | Step::MarkOwner { .. } => Ok(()),
    }
}

/// Who is restarted leaves enough behind, on disks that are current, and with the parameters that it was given.
fn may_restart((pod, expect): (Pod, RestartAs), world: &World, desired: &Desired, stale: bool) -> Result<(), String> {
    let keeps = world.volumes && world.persistent;
    check(keeps || !matches!(expect, RestartAs::OnlyCopy(_)), || "restarts an only copy".to_owned())?;
    // One that is to be restarted once more, and has not said yet why, is tried by that.
    let told = |home: &Home| home.bare && (!home.outdated || home.unused == Some(Unused::Refused));
    let bare = world
        .homes
        .iter()
        .find(|(other, home)| is_wanted(desired, **other) && told(home) && world.up(**other).is_some());
    check(stale || bare.is_none() || expect == RestartAs::NotRunning, || {
        format!("restarts a member while {:?} runs without the parameters that it was given", bare.map(|(pod, _)| pod))
    })?;
    let other = world.homes.keys().find(|other| is_wanted(desired, **other) && is_going(world, **other));
    check(stale || other.is_none() || expect == RestartAs::NotRunning, || {
        format!("a second member goes while the pod of {other:?} is being deleted")
    })?;
    // What remains while the pod is away has to survive a restart.
    let old = holders(world)
        .find(|(other, server)| other.shard == pod.shard && !server.slots().is_empty() && server.stored.is_some());
    check(stale || !keeps || old.is_none() || expect == RestartAs::NotRunning, || {
        format!("a copy goes while the disk of {:?} holds an older data set", old.map(|(pod, _)| pod))
    })?;
    if keeps { Ok(()) } else { remains(world, stale, |other| other == pod) }
}

/// The primary role goes to a member that has what the primary had, keeps it over a restart, and is elected.
fn may_fail_over(
    step: &Step,
    (replica, primary, how): (Who, NodeId, FailoverHow),
    world: &World,
    desired: &Desired,
    stale: bool,
) -> Result<(), String> {
    let server = world.up(replica.pod).ok_or("nobody there")?;
    let follows = |server: &Server| server.follows() == Some(primary);
    let complete = |server: &Server| server.is_synced() && follows(server);
    // Where its slots would otherwise start empty, the keys it has are the only ones that can still be saved.
    let best_left = || {
        let better = world.running().into_iter().filter_map(|pod| world.up(pod)).any(complete);
        let saves = how != FailoverHow::Coordinated && !server.data.is_empty() && follows(server);
        let is_chosen = desired.adopt_lost_slots || is_ordered(step, desired);
        saves && is_chosen && (stale || !better)
    };
    // Whoever follows a node without slots that is gone, and has nothing of it, leads nothing.
    let has_nothing = server.keys() == 0 && server.table.get(&primary).is_some_and(|line| line.slots().is_empty());
    let is_bare = how == FailoverHow::Takeover && has_nothing && follows(server);
    check(complete(server) || best_left() || is_bare, || "promotes what is no complete copy".to_owned())?;
    let rested = world.won.get(&replica.pod.shard).is_none_or(|at| (world.now - at) * 1_000 >= REST_MILLIS);
    check(rested || how == FailoverHow::Takeover, || {
        "calls an election while the last one of the shard still counts".to_owned()
    })?;
    let asked = is_ordered(step, desired);
    let accepted = asked && desired.failover.as_ref().is_some_and(|ask| ask.accept_data_loss);
    check(stale || accepted || is_bare || server.is_whole() || !lacks(world, server, primary), || {
        "promotes a copy that is not whole while a better one may come back".to_owned()
    })?;
    let keeps = server.stored.is_none() || !(world.volumes && world.persistent);
    check(stale || how != FailoverHow::Coordinated || keeps, || {
        "hands over to a member whose disk holds an older data set".to_owned()
    })?;
    let going = is_going(world, replica.pod) && how == FailoverHow::Coordinated;
    check(stale || !going, || "promotes a member whose pod is being deleted".to_owned())?;
    let called_for = desired.failover.is_some() || is_called_for(world, desired, replica, primary);
    check(stale || how != FailoverHow::Coordinated || called_for, || "hands over for no reason".to_owned())?;
    let elected = how != FailoverHow::Coordinated || is_known_to_most(world, replica.id, primary);
    check(stale || elected, || "asks for votes that are refused".to_owned())?;
    let on_order = server.stands() == Some(Stands::OnOrder);
    let alive = running(world, primary) && !(on_order && is_held_dead(world, primary));
    check(how == FailoverHow::Coordinated || asked || stale || !alive, || "forces out a living primary".to_owned())?;
    // Nobody has been asked whether somebody else leads, so nobody may: not now, and not by the votes of those who are not seen.
    check(how != FailoverHow::Takeover || accepted || stale || !may_be_led(world, replica, primary), || {
        "takes over without votes where others could have elected, or still run".to_owned()
    })
}

/// The primary runs, somebody else of its shard has its slots, or most primaries run where the replica does not reach them.
fn may_be_led(world: &World, replica: Who, primary: NodeId) -> bool {
    let slots = world.up(replica.pod).and_then(|server| server.table.get(&primary)).map(|peer| peer.slots().clone());
    let slots = slots.unwrap_or_default();
    let owns = |server: &&Server| server.id == primary || !server.slots().intersection(&slots).is_empty();
    let owners = || holders(world).filter(|(_, server)| !server.slots().is_empty());
    let is_cut_off = |pod: &Pod| world.homes.get(pod).is_some_and(|home| home.cut_off || home.outside);
    let far = owners().filter(|(pod, _)| world.up(*pod).is_some() && is_cut_off(pod)).count();
    // Nobody votes for the replica of a primary without slots.
    let may_vote = !slots.is_empty() && far > owners().count() / 2;
    world.running().into_iter().filter_map(|pod| world.up(pod)).any(|server| owns(&server)) || may_vote
}

/// A hand-over nobody asked for: its primary has to be restarted or is to leave, or a site that holds half of the primaries or more holds
/// one less of them, and no other as many.
fn is_called_for(world: &World, desired: &Desired, replica: Who, primary: NodeId) -> bool {
    let Some((pod, home)) =
        world.homes.iter().find(|(_, home)| home.server.as_ref().is_some_and(|server| server.id == primary))
    else {
        return false;
    };
    let mut owners: BTreeMap<u16, (u64, &Site)> = BTreeMap::new();
    for home in world.homes.iter().filter(|(other, _)| other.shard < desired.shards) {
        let Some(server) = home.1.server.as_ref().filter(|server| !server.slots().is_empty()) else { continue };
        let newest = owners.entry(home.0.shard).or_insert((server.epoch, &home.1.site));
        if server.epoch > newest.0 {
            *newest = (server.epoch, &home.1.site);
        }
    }
    let held = |site: &Site| owners.values().filter(|(_, other)| *other == site).count();
    let (here, there) = (held(&home.site), world.homes.get(&replica.pod).map_or(usize::MAX, |home| held(&home.site)));
    let relieves = here * 2 >= owners.len() && there < here.saturating_sub(1) && matches!(home.site, Site::At(_));
    home.outdated || !is_wanted(desired, *pod) || relieves && !desired.placed_by_hand.contains(&pod.shard)
}

/// A person asked for exactly this and accepted what it costs: the last writes of a primary that is alive and not seen, which its
/// replica had not received yet.
pub fn is_ordered(step: &Step, desired: &Desired) -> bool {
    let Step::Failover { replica, .. } = step else { return false };
    replaces_who_is_gone(step)
        && desired.failover.as_ref().is_some_and(|ask| ask.how == FailoverHow::Force && ask.shard == replica.pod.shard)
}

/// The files of the primary or of another replica of it, which may come back, hold writes that this copy does not.
fn lacks(world: &World, copy: &Server, primary: NodeId) -> bool {
    let homes = world.homes.values().filter(|home| world.volumes || home.process != Process::NoPod);
    let is_meant = |server: &&Server| server.id == primary || server.follows() == Some(primary);
    let files = homes.filter_map(|home| home.server.as_ref()).filter(is_meant);
    let has = |(slot, key): &(u16, u64)| copy.data.get(slot).is_some_and(|keys| keys.contains(key));
    let must = |key: &(u16, u64)| world.acked.contains(key) && !world.excused.contains(key);
    files.flat_map(keys).any(|key| must(&key) && !has(&key))
}

/// Most owners of slots hold this node to be dead: its replica may stand by itself.
fn is_held_dead(world: &World, id: NodeId) -> bool {
    let owners = || world.homes.values().filter_map(|home| home.server.as_ref()).filter(|one| !one.slots().is_empty());
    let up = world.running().into_iter().filter_map(|pod| world.up(pod)).filter(|one| !one.slots().is_empty());
    let agree = up.filter(|one| one.table.get(&id).is_some_and(|peer| peer.health == plan::Health::Failed));
    agree.count() > owners().count() / 2
}

/// The agent of the pod in which it ran knows that it has ended.
fn has_ended(world: &World, id: NodeId) -> bool {
    world.homes.values().any(|home| !home.hidden && home.process != Process::NoPod && home.ended.contains_key(&id))
        && !running(world, id)
}

fn running(world: &World, id: NodeId) -> bool {
    world.running().into_iter().any(|pod| world.up(pod).is_some_and(|server| server.id == id))
}

fn is_wanted(desired: &Desired, pod: Pod) -> bool {
    pod.shard < desired.shards && pod.ordinal <= desired.replicas
}

/// Most of those who own slots take it for a replica of this primary: the others would refuse it their votes.
fn is_known_to_most(world: &World, replica: NodeId, primary: NodeId) -> bool {
    let up: Vec<&Server> = world.running().into_iter().filter_map(|pod| world.up(pod)).collect();
    let owners = up.iter().filter(|server| !server.slots().is_empty());
    // Who was replaced where it is not heard has no vote, and is counted by nobody who asks for one.
    let is_replaced = |one: &Server| {
        up.iter().any(|other| other.epoch > one.epoch && one.slots().difference(&other.slots()).is_empty())
    };
    let (for_it, all) = owners.filter(|server| !is_replaced(server)).fold((0, 0), |(for_it, all), voter| {
        let entry = voter.table.get(&replica).map(|peer| &peer.role);
        (for_it + usize::from(entry == Some(&PeerRole::Replica { of: primary })), all + 1)
    });
    for_it > all / 2
}

fn is_going(world: &World, pod: Pod) -> bool {
    world.homes.get(&pod).is_some_and(|home| home.terminating)
}

/// Everything that must be kept is also somewhere else than where it is about to go away. A pod that is being deleted is no safe place
/// unless its files stay; an old look may not know about it.
fn remains(world: &World, stale: bool, leaves: impl Fn(Pod) -> bool) -> Result<(), String> {
    let files_stay = world.volumes && world.persistent;
    let goes = |pod: Pod| leaves(pod) || !stale && !files_stay && is_going(world, pod);
    let kept: BTreeSet<(u16, u64)> =
        holders(world).filter(|(pod, _)| !goes(*pod)).flat_map(|(_, server)| keys(server)).collect();
    let only: Vec<(u16, u64)> = holders(world)
        .filter(|(pod, _)| leaves(*pod))
        .flat_map(|(_, server)| keys(server))
        .filter(|key| world.acked.contains(key) && !world.excused.contains(key) && !kept.contains(key))
        .collect();
    check(only.is_empty(), || format!("the last copy goes: {only:?}"))
}

fn holders(world: &World) -> impl Iterator<Item = (Pod, &Server)> {
    world.homes.iter().filter_map(|(pod, home)| home.server.as_ref().map(|server| (*pod, server)))
}

fn keys(server: &Server) -> impl Iterator<Item = (u16, u64)> + '_ {
    server.data.iter().flat_map(|(slot, keys)| keys.iter().map(|key| (*slot, *key)))
}

/// An empty primary that comes back under its old identity empties everybody who still follows it.
fn not_wiping(world: &World, pod: Pod) -> Result<(), String> {
    let Some(server) = world.homes.get(&pod).and_then(|home| home.server.as_ref()) else { return Ok(()) };
    let followers = holders(world).filter(|(_, other)| other.follows() == Some(server.id) && other.is_synced());
    let lost: Vec<(u16, u64)> = followers
        .flat_map(|(_, other)| keys(other))
        .filter(|key| world.acked.contains(key) && !world.excused.contains(key) && !server.data.contains_key(&key.0))
        .collect();
    check(server.follows().is_some() || lost.is_empty(), || format!("an empty primary returns over {lost:?}"))
}

/// A promotion without the primary that it replaces.
pub const fn replaces_who_is_gone(step: &Step) -> bool {
    matches!(step, Step::Failover { how: FailoverHow::Force | FailoverHow::Takeover, .. })
}

/// What clients could read and write before a step, they can after it.
pub fn kept(step: &Step, before: &Truth, after: &Truth) -> Result<(), String> {
    check(before.disputed.union(&after.disputed) == before.disputed, || format!("two owners: {after}"))?;
    if matches!(step, Step::Restart { .. }) {
        // An only copy that is restarted comes back with its data; that is checked where it is permitted.
        return Ok(());
    }
    let uncovered = before.covered.difference(&after.covered);
    check(uncovered.is_empty(), || format!("slots lost their owner: {uncovered}"))?;
    let hidden: Vec<_> = before.readable.difference(&after.readable).collect();
    check(hidden.is_empty(), || format!("keys became unreadable: {hidden:?}"))
}

/// A wait that is still there when nothing moves any more has a reason outside the planner.
pub fn justified(plan: &Plan, world: &World, desired: &Desired) -> Result<(), String> {
    let up = |pod: &Pod| world.up(*pod).is_some() && world.homes.get(pod).is_some_and(|home| !home.hidden);
    let homes: BTreeMap<Pod, Process> = world.homes.iter().map(|(pod, home)| (*pod, home.process)).collect();
    let troubled = world.homes.values().any(|home| home.process != Process::Up || home.hidden || home.cut_off);
    for reason in &plan.waiting {
        let fine = match reason {
            Waiting::Members { .. } | Waiting::Introductions { .. } | Waiting::Ghost { .. } => troubled,
            Waiting::Start { pod } | Waiting::Unknown { pod, .. } | Waiting::Leaving { pod } => !up(pod),
            Waiting::Terminating { pod } => is_going(world, *pod),
            Waiting::Held { pod, .. } => homes.get(pod) == Some(&Process::Held) && troubled,
            Waiting::Copy { pod, .. } | Waiting::Former { pod, .. } | Waiting::Claimant { pod, .. } => !up(pod),
            // Where slots are lost for good, too few may be left to report the cluster as ok.
            Waiting::Agreement { .. } | Waiting::Primary { .. } | Waiting::Election { .. } | Waiting::Sync { .. } => {
                troubled || !plan.refused.is_empty()
            }
            Waiting::Disk { .. } | Waiting::Counting { .. } => false,
            Waiting::Approval { shard, .. } => !desired.approval.covers(*shard),
            Waiting::Parameters { .. } => world.refuses,
            Waiting::Secret => desired.lacks_secret,
            Waiting::Hold { hold, .. } => desired.hold.as_ref() == Some(hold),
            Waiting::Room { pod, .. } => world.homes.get(pod).is_some_and(|home| home.limit.is_some()),
            Waiting::Loading { .. }
            | Waiting::Conflict { .. }
            | Waiting::Failover { .. }
            | Waiting::Rest { .. }
            | Waiting::Leftover { .. }
            | Waiting::Script { .. } => false,
            Waiting::Receiver { pod, .. } => world.up(*pod).is_none(),
        };
        check(fine, || format!("waits without need: {reason}"))?;
    }
    for reason in &plan.refused {
        let fine = match reason {
            Refused::LostSlots { .. } | Refused::LeftCopies { .. } => !desired.adopt_lost_slots,
            Refused::OnlyCopy { .. } => !desired.restart_keeps_data && desired.replicas == 0,
            Refused::Claimed { .. } | Refused::StaleCopy { .. } => troubled,
            Refused::Twins { id, .. } | Refused::RunsAlready { id, .. } | Refused::Copied { id, .. } => {
                holders(world).filter(|(_, server)| server.id == *id).count() > 1
            }
            Refused::Former { pod, .. } => world.up(*pod).is_some_and(|server| {
                server.slots().is_empty() && server.follows().is_none() && keys(server).next().is_some()
            }),
            Refused::Held { .. } => true,
            Refused::NoQuorum { unproven, .. } => {
                !unproven.is_empty() && unproven.iter().any(|(id, _)| !has_ended(world, *id))
            }
            Refused::NoSuchShard { shard, .. } => *shard >= desired.shards,
            Refused::NoCandidate { .. } => true,
            Refused::OtherPrimary { .. } => desired.failover.is_some(),
            Refused::Stranger { .. } | Refused::Apart { .. } | Refused::NotInStandalone | Refused::NoShards => false,
        };
        check(fine, || format!("refuses without need: {reason}"))?;
    }
    Ok(())
}
