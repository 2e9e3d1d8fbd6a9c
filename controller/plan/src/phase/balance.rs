//! Slots spread evenly over the leads of the wanted shards, with as few moves as possible. Slot arithmetic knows nothing of pods' state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::Pod;
use crate::phase::{Flow, agree};
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
    let mut layout = scene.owned.clone();
    for lead in &leads {
        layout.entry(lead.pod).or_default();
    }
    let receivers: Vec<Pod> = leads.iter().map(|lead| lead.pod).collect();
    let moves = moves(&layout, &receivers);
    plan.slots_left = moves.values().map(SlotSet::len).sum();
    if moves.is_empty() {
        return Flow::On;
    }
    if scene.desired.migration_paused {
        plan.waiting.push(Waiting::MigrationPaused { slots: plan.slots_left });
        return Flow::On;
    }
    batch(scene, plan, moves);
    Flow::Stop
}

/// How many slots each receiver shall have: even within one; the odd ones stay with those that have the most.
pub(crate) fn targets(layout: &BTreeMap<Pod, SlotSet>, receivers: &[Pod]) -> BTreeMap<Pod, u16> {
    let shares = super::count(receivers.len()).max(1);
    let (base, odd) = (SLOTS / shares, SLOTS % shares);
    let mut order: Vec<Pod> = receivers.to_vec();
    order.sort_by_key(|pod| (Reverse(layout.get(pod).map_or(0, SlotSet::len)), *pod));
    order.into_iter().zip(0..).map(|(pod, index)| (pod, if index < odd { base + 1 } else { base })).collect()
}

/// All moves that lead from this layout to the targets. Only surplus moves, so nothing moves twice.
pub(crate) fn moves(layout: &BTreeMap<Pod, SlotSet>, receivers: &[Pod]) -> BTreeMap<(Pod, Pod), SlotSet> {
    let targets = targets(layout, receivers);
    let surplus = layout.iter().map(|(pod, slots)| {
        let keep = targets.get(pod).copied().unwrap_or(0);
        (*pod, slots.highest(slots.len().saturating_sub(keep)))
    });
    let mut needs: Vec<(Pod, u16)> = targets
        .iter()
        .map(|(pod, target)| (*pod, target.saturating_sub(layout.get(pod).map_or(0, SlotSet::len))))
        .filter(|(_, need)| *need > 0)
        .collect();
    needs.reverse();
    let mut moves = BTreeMap::new();
    for (from, mut slots) in surplus {
        while let Some((to, need)) = needs.last_mut().filter(|_| !slots.is_empty()) {
            let part = slots.lowest(*need);
            slots = slots.difference(&part);
            *need -= part.len();
            let to = *to;
            if needs.last().is_some_and(|(_, need)| *need == 0) {
                needs.pop();
            }
            moves.insert((from, to), part);
        }
    }
    moves
}

/// The next moves: each primary takes part in one at a time, each move is bounded. Shards that shall go are emptied first. A primary
/// without any slot gets a single one first: until it owns one, nobody would elect its replica if it died with keys it has received.
pub(crate) fn batch(scene: &Scene<'_>, plan: &mut Plan, moves: BTreeMap<(Pod, Pod), SlotSet>) {
    let mut order: Vec<((Pod, Pod), SlotSet)> = moves.into_iter().collect();
    order.sort_by_key(|((from, to), _)| (from.shard < scene.desired.shards, Reverse(from.shard), *from, *to));
    let mut busy: Vec<Pod> = Vec::new();
    for ((from, to), slots) in order {
        let (Some(source), Some(target)) = (live(scene, from), live(scene, to)) else { continue };
        if busy.len() >= 2 * usize::from(scene.limits.moves_at_once) || busy.contains(&from) || busy.contains(&to) {
            continue;
        }
        busy.extend([from, to]);
        let ready = safety::ready_for_claim(scene, &target, source.node.epoch);
        let ready = if safety::may_move(&source, &target) { ready } else { Err(agree::right(scene)) };
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
