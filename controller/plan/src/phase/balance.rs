//! Slots spread evenly over the leads of the wanted shards, with as few moves as possible. Slot arithmetic knows nothing of pods' state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::observed::{Open, Pod};
use crate::phase::{Flow, agree, create, receiver};
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene};
use crate::slots::{SLOTS, SlotSet};
use crate::step::Step;

pub(crate) fn balance(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    // It may turn out to have the newest claim: nothing that it may bring back is given away, and it does not leave. It comes back, or is forgotten.
    if let Some((pod, slots)) = safety::may_bring_back_a_claim(scene) {
        plan.waiting.push(Waiting::Claimant { pod, slots });
        return Flow::Stop;
    }
    // Members that are missing have been reported.
    let Some(moves) = wanted(scene).filter(|moves| !moves.is_empty()) else { return Flow::On };
    plan.slots_left = moves.values().map(SlotSet::len).sum();
    if let Some(hold) = scene.desired.hold.clone() {
        plan.waiting.push(Waiting::Hold { hold, slots: plan.slots_left });
        return Flow::On;
    }
    let (steps, waits) = (plan.steps.len(), plan.waiting.len());
    batch(scene, plan, moves, Kind::New);
    // A copy that does not come into sync may be one that is to leave, and room may come with a restart: both are for later phases.
    let is_for_later =
        |reason: &Waiting| matches!(reason, Waiting::Sync { .. } | Waiting::Start { .. } | Waiting::Room { .. });
    let for_later = plan.waiting.iter().skip(waits).all(is_for_later);
    if plan.steps.len() == steps && plan.waiting.len() > waits && for_later { Flow::On } else { Flow::Stop }
}

/// What is full cannot finish what is half moved to it. What it is to give away anyway it gives first: a shard that is to leave makes
/// room by that, takes the rest, and gives it back with all the keys that had arrived. A slot cannot turn around in the middle: its
/// owner takes keys only while it is not marked, and then shows those that have left as missing.
pub(crate) fn relieve(scene: &Scene<'_>, plan: &mut Plan, open: &SlotSet) {
    if safety::may_bring_back_a_claim(scene).is_some() {
        return;
    }
    let full =
        plan.waiting.iter().filter_map(|reason| if let Waiting::Room { pod, .. } = reason { Some(*pod) } else { None });
    let full: Vec<Pod> = full.collect();
    if full.is_empty() {
        return;
    }
    let given = wanted(scene).unwrap_or_default().into_iter().filter(|((from, _), _)| full.contains(from));
    let whole = given.map(|(ends, slots)| (ends, slots.difference(open))).filter(|(_, slots)| !slots.is_empty());
    let whole: BTreeMap<(Pod, Pod), SlotSet> = whole.collect();
    if let Some(hold) = scene.desired.hold.clone().filter(|_| !whole.is_empty()) {
        let slots = whole.values().map(SlotSet::len).sum();
        return plan.waiting.push(Waiting::Hold { hold, slots });
    }
    batch(scene, plan, whole, Kind::New);
}

/// All moves that are left; `None` while a shard has no lead.
fn wanted(scene: &Scene<'_>) -> Option<BTreeMap<(Pod, Pod), SlotSet>> {
    let leads: Vec<Live<'_>> = scene.leads().into_iter().filter(|lead| !lead.node.loading).collect();
    if leads.len() < usize::from(scene.desired.shards) {
        return None;
    }
    let home = |lead: &Live<'_>| (lead.pod, create::ideal(lead.pod.shard, scene.desired.shards));
    let all = moves(&scene.owned, &leads.iter().map(home).collect());
    let free = all.into_iter().map(|((from, to), slots)| ((from, to), slots.difference(&claimed(scene, from))));
    Some(free.filter(|(_, slots)| !slots.is_empty()).collect())
}

/// Slots that a replaced primary imports from this owner, which it has kept keys of. To Valkey that is a claim: given to anybody else, they would
/// be taken by it, and what is newer would be lost (`clusterUpdateSlotsConfigWith`). It has been reported, and a person decides.
fn claimed(scene: &Scene<'_>, from: Pod) -> SlotSet {
    let replaced = scene.live.iter().filter(|live| scene.observed.is_replaced(live.pod));
    let marks = replaced.flat_map(|live| &live.node.open);
    let owner = live(scene, from).map(|owner| owner.node.id);
    marks.filter(|(_, mark)| owner.is_some_and(|id| **mark == Open::Importing(id))).map(|(slot, _)| *slot).collect()
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
    let mut busy: Vec<Pod> = plan.steps.iter().flat_map(ends).collect();
    for ((from, to), slots) in order {
        let (Some(source), Some(target)) = (live(scene, from), live(scene, to)) else { continue };
        // Its agent is handing the slots over, and a new move would be cut short; for what is half moved it waits. It has been reported.
        if kind == Kind::New && (scene.is_terminating(from) || scene.is_terminating(to)) {
            continue;
        }
        // A person decides first what becomes of the copy beside it. It has been reported.
        if kind == Kind::New && receiver::has_a_copy(scene, to.shard) {
            continue;
        }
        // Neither end is busy with what is not begun. What is half moved the executor holds, which asks both ends.
        if let Some(pod) = safety::former_owner(scene, from).filter(|_| kind == Kind::New) {
            plan.waiting.push(Waiting::Former { pod, from, to });
            continue;
        }
        if busy.len() >= 2 * usize::from(scene.limits.moves_at_once) || busy.contains(&from) || busy.contains(&to) {
            continue;
        }
        let slots = match with_room(scene, &source, &target, slots, kind) {
            Ok(slots) => slots,
            // Neither end is busy with it.
            Err(full) => {
                full.tell(plan);
                continue;
            }
        };
        // Nor while a member of the target's shard is waited for, which may take as long as it likes.
        if let Some(wait) = held_by_target(scene, &source, &target, kind) {
            plan.waiting.push(wait);
            continue;
        }
        busy.extend([from, to]);
        if let Err(wait) = settled(scene, &source, &target, &slots) {
            plan.waiting.push(wait);
            continue;
        }
        let most = if scene.owned_by(to).is_empty() { 1 } else { scene.limits.slots_per_move.max(1) };
        plan.steps.push(Step::Move { from: source.who(), to: target.who(), slots: slots.lowest(most) });
    }
}

fn ends(step: &Step) -> Vec<Pod> {
    if let Step::Move { from, to, .. } = step { Vec::from([from.pod, to.pod]) } else { Vec::new() }
}

/// Why the target cannot be trusted with more now.
fn held_by_target(scene: &Scene<'_>, source: &Live<'_>, target: &Live<'_>, kind: Kind) -> Option<Waiting> {
    // The source drops what the target has acknowledged.
    if !safety::keeps(scene, target) {
        return Some(safety::disk(target));
    }
    match kind {
        Kind::New => safety::first_copy(scene, source, target),
        Kind::Open => safety::copy_of_half_moved(scene, source, target),
    }
}

/// Both ends agree on whose the slots are; if not, what has to be waited for.
fn settled(scene: &Scene<'_>, source: &Live<'_>, target: &Live<'_>, slots: &SlotSet) -> Result<(), Waiting> {
    let ready = safety::ready_for_claim(scene, target, &SlotSet::EMPTY, source.node.epoch);
    // Whatever keeps the two from it, at least one of them is not settled.
    let settled = agree::agreeing(scene).min(scene.live.len().saturating_sub(1));
    let ready = ready.and_then(|()| if safety::may_move(scene, source, target, slots) { Ok(()) } else { Err(settled) });
    ready.map_err(|right| agree::awaited(scene, right))
}

/// A target that has no room for these slots.
struct Full {
    pod: Pod,
    from: Pod,
    slots: u16,
    kind: Kind,
    gives: bool,
    room: u64,
    needs: u64,
}

impl Full {
    /// One sentence for each source of what is half moved; what is whole is told of once.
    fn tell(self, plan: &mut Plan) {
        let Self { pod, from, slots, kind, gives, room, needs } = self;
        let told = |reason: &Waiting| matches!(reason, Waiting::Room { pod: full, .. } if *full == pod);
        if kind == Kind::Open || !plan.waiting.iter().any(told) {
            plan.waiting.push(Waiting::Room { pod, from, slots, half_moved: kind == Kind::Open, gives, room, needs });
        }
    }
}

/// Those of the slots that the target has room for. What is half moved is gone on with as long as anything more can be taken, and also
/// where nothing is left to be taken.
fn with_room(
    scene: &Scene<'_>,
    source: &Live<'_>,
    target: &Live<'_>,
    slots: SlotSet,
    kind: Kind,
) -> Result<SlotSet, Full> {
    let Some(room) = target.node.room else { return Ok(slots) };
    let average = source.node.bytes / u64::from(scene.owned_by(source.pod).len().max(1));
    let needs = match kind {
        Kind::New => average.max(scene.limits.room_bytes),
        Kind::Open => scene.limits.room_bytes,
    };
    let fitting = match kind {
        _ if room < needs => SlotSet::EMPTY,
        Kind::New => slots.lowest(u16::try_from(room / average.max(1)).unwrap_or(u16::MAX)),
        Kind::Open => slots.clone(),
    };
    let fitting = match kind {
        // All keys that are left have arrived.
        Kind::Open if fitting.is_empty() => {
            slots.iter().filter(|slot| source.node.leaving.get(slot) == Some(&0)).collect()
        }
        Kind::New | Kind::Open => fitting,
    };
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let gives = !scene.owned_by(target.pod).is_empty();
    Err(Full { pod: target.pod, from: source.pod, slots: slots.len(), kind, gives, room, needs })
}

/// Marks what is half moved and lacks a mark, whatever its move waits for: whoever was elected for the giver has none, says of what has moved that it
/// does not exist, and lets clients make it anew; that would be put over what has arrived.
pub(crate) fn mark(scene: &Scene<'_>, plan: &mut Plan, half_moved: &BTreeMap<(Pod, Pod), SlotSet>) {
    for ((from, to), slots) in half_moved {
        let (Some(source), Some(target)) = (live(scene, *from), live(scene, *to)) else { continue };
        let slots: SlotSet = slots.iter().filter(|slot| !is_marked(&source, &target, *slot)).collect();
        if !slots.is_empty() {
            plan.steps.push(Step::Mark { from: source.who(), to: target.who(), slots });
        }
    }
}

/// Both ends send clients to where the keys of the slot are.
fn is_marked(source: &Live<'_>, target: &Live<'_>, slot: u16) -> bool {
    source.node.open.get(&slot) == Some(&Open::Migrating(target.node.id))
        && target.node.open.get(&slot) == Some(&Open::Importing(source.node.id))
}

fn live<'a>(scene: &Scene<'a>, pod: Pod) -> Option<Live<'a>> {
    scene.live.iter().copied().find(|live| live.pod == pod)
}
