//! Slots spread evenly over the leads of the wanted shards, with as few moves as possible. Slot arithmetic knows nothing of pods' state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::Pod;
use crate::phase::{Flow, agree, create};
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::slots::{SLOTS, SlotSet};
use crate::step::Step;

pub(crate) fn balance(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let leads: Vec<Live<'_>> = scene.leads().into_iter().filter(|lead| !lead.node.loading).collect();
    if leads.len() < usize::from(scene.desired.shards) {
        // The members that are missing have been reported.
        return Flow::On;
    }
    let home = |lead: &Live<'_>| (lead.pod, create::ideal(lead.pod.shard, scene.desired.shards));
    let moves = moves(&scene.owned, &leads.iter().map(home).collect());
    plan.slots_left = moves.values().map(SlotSet::len).sum();
    if moves.is_empty() {
        return Flow::On;
    }
    if scene.desired.migration_paused {
        plan.waiting.push(Waiting::MigrationPaused { slots: plan.slots_left });
        return Flow::On;
    }
    let (steps, waits) = (plan.steps.len(), plan.waiting.len());
    batch(scene, plan, moves, Kind::New);
    // A replica that does not come into sync may need what later phases do, as a restart with another configuration.
    let only_copies = plan.waiting.iter().skip(waits).all(|reason| matches!(reason, Waiting::Sync { .. }));
    if plan.steps.len() == steps && plan.waiting.len() > waits && only_copies { Flow::On } else { Flow::Stop }
}

/// Sets of slots by owner.
type Layout = BTreeMap<Pod, SlotSet>;

/// How many slots each receiver shall have: even within one. The odd ones stay where they are, then go to those whose range in a new
/// cluster is the longest.
fn targets(layout: &Layout, homes: &Layout) -> BTreeMap<Pod, u16> {
    let shares = super::count(homes.len()).max(1);
    let (base, odd) = (SLOTS / shares, SLOTS % shares);
    let mut order: Vec<(&Pod, &SlotSet)> = homes.iter().collect();
    order.sort_by_key(|(pod, home)| (Reverse(size(layout, **pod) > base), Reverse(home.len()), **pod));
    order.into_iter().zip(0..).map(|((pod, _), index)| (*pod, if index < odd { base + 1 } else { base })).collect()
}

fn size(layout: &Layout, pod: Pod) -> u16 {
    layout.get(&pod).map_or(0, SlotSet::len)
}

/// All moves that lead from this layout to the targets. Only surplus moves, so nothing moves twice; among slots that may move, those go
/// first that are not at home, and they go home if there is room, so that ranges stay whole. `homes` names the receivers.
pub(crate) fn moves(layout: &Layout, homes: &Layout) -> BTreeMap<(Pod, Pod), SlotSet> {
    let targets = targets(layout, homes);
    let mut surplus: Layout = BTreeMap::new();
    for (pod, slots) in layout {
        let keep = targets.get(pod).copied().unwrap_or(0);
        surplus.insert(*pod, spare(slots, keep, homes.get(pod)));
    }
    let mut moves = BTreeMap::new();
    for only_home in [true, false] {
        for (to, home) in homes {
            let gained: u16 =
                moves.iter().filter(|((_, other), _)| other == to).map(|(_, part): (_, &SlotSet)| part.len()).sum();
            let mut need =
                targets.get(to).copied().unwrap_or(0).saturating_sub(size(layout, *to).saturating_add(gained));
            for (from, slots) in surplus.iter_mut().filter(|(from, _)| *from != to) {
                let fitting = if only_home { slots.intersection(home) } else { slots.clone() };
                let part = fitting.lowest(need);
                need -= part.len();
                *slots = slots.difference(&part);
                if !part.is_empty() {
                    let sum: &mut SlotSet = moves.entry((*from, *to)).or_default();
                    *sum = sum.union(&part);
                }
            }
        }
    }
    moves
}

/// What an owner can do without: slots that are not at home first, the highest first.
fn spare(slots: &SlotSet, keep: u16, home: Option<&SlotSet>) -> SlotSet {
    let give = slots.len().saturating_sub(keep);
    let abroad = home.map_or_else(|| slots.clone(), |home| slots.difference(home)).highest(give);
    let rest = slots.difference(&abroad).highest(give - abroad.len());
    abroad.union(&rest)
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Slots that are whole.
    New,
    /// Slots that are half moved.
    Open,
}

/// The next moves: each primary takes part in one at a time, each move is bounded. Shards that shall go are emptied first. A primary
/// without any slot gets a single one first: until it owns one, nobody would elect its replica if it died with keys it has received.
pub(crate) fn batch(scene: &Scene<'_>, plan: &mut Plan, moves: BTreeMap<(Pod, Pod), SlotSet>, kind: Kind) {
    let mut order: Vec<((Pod, Pod), SlotSet)> = moves.into_iter().collect();
    order.sort_by_key(|((from, to), _)| (from.shard < scene.desired.shards, Reverse(from.shard), *from, *to));
    let mut busy: Vec<Pod> = Vec::new();
    for ((from, to), slots) in order {
        let (Some(source), Some(target)) = (live(scene, from), live(scene, to)) else { continue };
        // Its agent is handing the slots over, and a new move would be cut short; for what is half moved it waits. It has been reported.
        if kind == Kind::New && (scene.is_terminating(from) || scene.is_terminating(to)) {
            continue;
        }
        if busy.len() >= 2 * usize::from(scene.limits.moves_at_once) || busy.contains(&from) || busy.contains(&to) {
            continue;
        }
        busy.extend([from, to]);
        // The source drops what the target has acknowledged.
        if !safety::keeps(scene, &target) {
            plan.waiting.push(Waiting::Disk { pod: to });
            continue;
        }
        if let Some(wait) = safety::first_copy(scene, &source, &target).filter(|_| kind == Kind::New) {
            plan.waiting.push(wait);
            continue;
        }
        let ready = safety::ready_for_claim(scene, &target, source.node.epoch);
        // Whatever keeps the two from it, at least one of them is not settled.
        let settled = agree::right(scene).min(scene.live.len().saturating_sub(1));
        let ready = ready.and_then(|()| if safety::may_move(&source, &target, &slots) { Ok(()) } else { Err(settled) });
        if let Err(right) = ready {
            let (right, of) = (super::count(right), super::count(scene.live.len()));
            plan.waiting.push(Waiting::Agreement { right, of });
            continue;
        }
        let most = if scene.owned_by(to).is_empty() { 1 } else { scene.limits.slots_per_move.max(1) };
        plan.steps.push(Step::Move { from: source.who(), to: target.who(), slots: slots.lowest(most) });
    }
}

fn live<'a>(scene: &Scene<'a>, pod: Pod) -> Option<Live<'a>> {
    scene.live.iter().copied().find(|live| live.pod == pod)
}
