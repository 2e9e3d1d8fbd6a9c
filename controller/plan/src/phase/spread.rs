//! No site holds so many primaries that Redis could not elect others without it, where handing a role over mends that.
//!
//! It comes last. A rolling restart moves every role once anyway, so it is waited for; and the rule never outweighs what a person asked
//! for: nothing happens while a failover is asked for, and a shard whose primary a person has placed stays as it is.
//!
//! One role moves at a time, from a site that holds too many to one that holds at least two fewer: that never makes another site hold as
//! many, so it comes to an end. Among several shards the one whose role has rested longest is taken.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::{Pod, Seen};
use crate::phase::{Flow, operate};
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::sites::{Crowd, Site};

pub(crate) fn spread(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    if !scene.desired.spread || scene.desired.failover.is_some() || !is_still(scene, plan) {
        return Flow::On;
    }
    let Some(homes) = homes(scene) else { return Flow::On };
    let crowd = Crowd::of(homes.iter().map(|(_, site)| *site));
    let relief = homes.iter().filter_map(|(lead, site)| Some((*lead, heirs(scene, &crowd, lead, site)?)));
    let Some((lead, among)) = relief.min_by_key(|(lead, _)| urgency(scene, lead)) else { return Flow::On };
    // The effect of the last one has to be seen before another is judged to be necessary.
    if let Some(wait) = asked_lately(scene) {
        plan.waiting.push(wait);
        return Flow::On;
    }
    operate::hand_over(scene, plan, &lead, &among)
}

/// Nothing else is under way that moves roles or takes members away, and nobody is just coming up. Members of which nothing is known,
/// or for which there is no site, may be away for long: the rule matters most then.
fn is_still(scene: &Scene<'_>, plan: &Plan) -> bool {
    let nowhere = |pod: &Pod| {
        let member = scene.observed.members.get(pod);
        member.is_some_and(|member| member.seen == Seen::Stopped && member.site == Site::Nowhere)
    };
    let is_quiet = |reason: &Waiting| match reason {
        Waiting::Unknown { .. }
        | Waiting::Introductions { .. }
        | Waiting::Agreement { .. }
        | Waiting::Approval { .. }
        | Waiting::Parameters { .. }
        | Waiting::Secret
        | Waiting::Hold { .. }
        | Waiting::Leaving { .. }
        | Waiting::Ghost { .. } => true,
        Waiting::Start { pod } => nowhere(pod),
        Waiting::Room { half_moved, .. } => !half_moved,
        Waiting::Members { .. }
        | Waiting::Loading { .. }
        | Waiting::Held { .. }
        | Waiting::Conflict { .. }
        | Waiting::Claimant { .. }
        | Waiting::Sync { .. }
        | Waiting::Copy { .. }
        | Waiting::Former { .. }
        | Waiting::Disk { .. }
        | Waiting::Election { .. }
        | Waiting::Failover { .. }
        | Waiting::Rest { .. }
        | Waiting::Primary { .. }
        | Waiting::Leftover { .. }
        | Waiting::Script { .. }
        | Waiting::Receiver { .. }
        | Waiting::Terminating { .. }
        | Waiting::Counting { .. } => false,
    };
    plan.steps.is_empty() && plan.waiting.iter().all(is_quiet)
}

/// The primary of every shard with its site. One that is not known could be anywhere: then nothing can be said. One that is to leave
/// hands over for that reason.
fn homes<'a>(scene: &Scene<'a>) -> Option<Vec<(Live<'a>, &'a str)>> {
    let home = |shard| {
        let owner = scene.owner(shard).filter(|owner| scene.is_wanted(owner.pod))?;
        Some((owner, scene.site(owner.pod)?))
    };
    (0..scene.desired.shards).map(home).collect()
}

/// The replicas to which the role can go now, all of them at the least crowded sites; none if it may stay where it is. Nobody waits for
/// one that is behind: the next look sees it again.
fn heirs<'a>(scene: &Scene<'a>, crowd: &Crowd<'_>, lead: &Live<'_>, here: &str) -> Option<Vec<Live<'a>>> {
    if !crowd.is_too_much(here) || scene.desired.placed_by_hand.contains(&lead.pod.shard) {
        return None;
    }
    let better = |live: &Live<'a>| {
        let there = crowd.at(scene.site(live.pod)?);
        (live.pod != lead.pod && there + 2 <= crowd.at(here)).then_some(there)
    };
    // A roll would take the role away again from a member that still has to be restarted, and one with other parameters than were asked
    // for serves no better.
    let stays = |live: &Live<'a>| {
        let outdated = |pod| scene.observed.members.get(&pod).is_some_and(|member| member.outdated);
        let as_asked = !scene.observed.unused.contains_key(&live.pod) || scene.observed.unused.contains_key(&lead.pod);
        scene.is_wanted(live.pod) && as_asked && (outdated(lead.pod) || !outdated(live.pod))
    };
    let can = |live: &Live<'a>| stays(live) && safety::may_take_over(scene, live, lead);
    let heirs: Vec<(usize, Live<'a>)> =
        scene.live_of(lead.pod.shard).filter(can).filter_map(|live| Some((better(&live)?, live))).collect();
    let least = heirs.iter().map(|(there, _)| *there).min()?;
    Some(heirs.into_iter().filter(|(there, _)| *there == least).map(|(_, live)| live).collect())
}

/// Whoever need not rest any more comes first, then whose role has rested longest: a role that has just moved was moved for some reason.
fn urgency(scene: &Scene<'_>, lead: &Live<'_>) -> (bool, Reverse<u64>, Pod) {
    let rested = scene.observed.elections.get(&lead.pod.shard).copied().unwrap_or(u64::MAX);
    (safety::may_elect(scene, lead.pod.shard).is_err(), Reverse(rested), lead.pod)
}

fn asked_lately(scene: &Scene<'_>) -> Option<Waiting> {
    let lately = |(_, since): &(&u16, &u64)| **since < scene.limits.failover_patience_millis;
    let (shard, since_millis) = scene.observed.failovers_asked.iter().find(lately)?;
    Some(Waiting::Failover { shard: *shard, since_millis: *since_millis })
}
