//! Half-moved slots are always finished toward the side that does not own them yet: keys that have left the owner are found by clients
//! only while the slot is open, and moving them back would show them as missing meanwhile. Which side the plan wants comes later; but a
//! target that has no room for the rest first gives away what it is not to keep ([`balance::relieve`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::observed::{NodeId, Open, Peer, Pod, Role};
use crate::phase::{Flow, balance, receiver, replicate};
use crate::plan::{Plan, Waiting};
use crate::safety;
use crate::scene::{Live, Scene, Silent};
use crate::slots::SlotSet;
use crate::step::{Step, Who};

/// What is to be done about open slots.
#[derive(Default)]
struct Findings {
    moves: BTreeMap<(Pod, Pod), SlotSet>,
    /// What is half moved, with its keys counted or not.
    half_moved: BTreeMap<(Pod, Pod), SlotSet>,
    clear: BTreeMap<Pod, SlotSet>,
    /// Members that lead nothing and keep keys of a slot whose owner's mark stays for that.
    keepers: BTreeSet<Pod>,
    /// Receivers that are gone, for whose copies the owners' marks stay.
    kept: BTreeSet<NodeId>,
}

impl Findings {
    fn finish(&mut self, from: Pod, to: Pod, slot: u16) {
        self.moves.entry((from, to)).or_default().insert(slot);
        self.mark(from, to, slot);
    }

    fn mark(&mut self, from: Pod, to: Pod, slot: u16) {
        self.half_moved.entry((from, to)).or_default().insert(slot);
    }

    fn stabilise(&mut self, pod: Pod, slot: u16) {
        self.clear.entry(pod).or_default().insert(slot);
    }
}

pub(crate) fn finish(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let (mut found, slots) = (Findings::default(), half_moved(scene));
    let (waited, refused) = (plan.waiting.len(), plan.refused.len());
    found.kept = receiver::replace(scene, plan);
    // A person decides, and the marks stay until then.
    let mut held = !found.kept.is_empty() && plan.refused.len() > refused;
    let (counted, others) = by_counts(scene, &slots, plan);
    for (owner, slot) in counted {
        judge(scene, owner, slot, &mut found, plan);
    }
    for (owner, slot) in others {
        receiving(scene, owner, slot).into_iter().for_each(|to| found.mark(owner.pod, to.pod, slot));
    }
    remember(scene, &mut found);
    let is_told = mark_owners(scene, plan);
    let marks = is_told || !found.half_moved.is_empty() || !found.clear.is_empty();
    let work = marks || !found.keepers.is_empty() || !found.kept.is_empty();
    // They are marked, and no more is done until that one answers or has ended.
    held |= found.moves.keys().any(|(from, _)| safety::former_owner(scene, *from).is_some());
    balance::mark(scene, plan, &found.half_moved);
    for (pod, slots) in found.clear {
        let node = scene.live.iter().find(|live| live.pod == pod);
        plan.steps.extend(node.map(|live| Step::Stabilise { node: live.who(), slots }));
    }
    let told = plan.waiting.len();
    balance::batch(scene, plan, found.moves, balance::Kind::Open);
    // A copy is waited for, which somebody may have to be told to make.
    held |= plan.waiting.iter().skip(told).any(|wait| matches!(wait, Waiting::Sync { .. } | Waiting::Start { .. }));
    if found.kept.is_empty() {
        // Else the blank member beside such a copy might be given some, and the copy would take it for an heir.
        balance::relieve(scene, plan, &slots);
    }
    for keeper in scene.live.iter().filter(|live| found.keepers.contains(&live.pod)) {
        replicate::tell_of_keys(scene, plan, keeper);
    }
    if held || !found.keepers.is_empty() {
        // That may last. Copies are made meanwhile: they disturb no slot.
        replicate::replicate(scene, plan);
    }
    if work || plan.waiting.len() > waited { Flow::Stop } else { Flow::On }
}

/// While a primary is lost: what is half moved between two others goes on. Whoever was elected for the giver has no marks, serves all the same,
/// and shows what has moved as missing; that cannot wait for as long as another shard may stay lost. No mark is cleared, for the lost one may
/// have the keys; and nobody is made room, for that begins new moves.
pub(crate) fn among_the_living(scene: &Scene<'_>, plan: &mut Plan) -> Flow {
    let mut found = Findings::default();
    let waited = plan.waiting.len();
    let (counted, others) = by_counts(scene, &half_moved(scene), plan);
    for (owner, slot) in counted {
        living_end(scene, owner, slot).into_iter().for_each(|to| found.finish(owner.pod, to.pod, slot));
    }
    for (owner, slot) in others {
        receiving(scene, owner, slot).into_iter().for_each(|to| found.mark(owner.pod, to.pod, slot));
    }
    remember(scene, &mut found);
    let is_told = mark_owners(scene, plan);
    let work = is_told || !found.half_moved.is_empty();
    balance::mark(scene, plan, &found.half_moved);
    balance::batch(scene, plan, found.moves, balance::Kind::Open);
    if work || plan.waiting.len() > waited { Flow::Stop } else { Flow::On }
}

/// Slots that somebody has marked, or holds keys of without owning them.
fn half_moved(scene: &Scene<'_>) -> SlotSet {
    let named = scene.live.iter().flat_map(|live| live.node.open.keys().chain(live.node.foreign_keys.keys()));
    named.copied().collect()
}

/// Slots with their owners.
type Owned<'s, 'a> = Vec<(&'s Live<'a>, u16)>;

/// Those of the slots of which everybody has said whether it holds keys, and the others; tells who has not.
fn by_counts<'s, 'a>(scene: &'s Scene<'a>, slots: &SlotSet, plan: &mut Plan) -> (Owned<'s, 'a>, Owned<'s, 'a>) {
    let (mut counted, mut others) = (Vec::new(), Vec::new());
    for owner in &scene.live {
        let owned = slots.intersection(scene.owned_by(owner.pod));
        let uncounted = safety::may_hold_keys(scene, Some(owner.pod.shard), &owned);
        let known = |slot: &u16| uncounted.is_none() || is_counted(scene, owner, *slot);
        let (told, untold): (Vec<u16>, Vec<u16>) = owned.iter().partition(known);
        counted.extend(told.into_iter().map(|slot| (owner, slot)));
        others.extend(untold.into_iter().map(|slot| (owner, slot)));
        plan.waiting.extend(uncounted);
    }
    (counted, others)
}

/// Who receives a slot of which not everybody has said whether it holds keys: the only lead of another shard that imports it from this one's, be it
/// from the owner or from whoever was that before; and the owner sends it to nobody else.
fn receiving<'a>(scene: &Scene<'a>, owner: &Live<'_>, slot: u16) -> Option<Live<'a>> {
    let is_of_giver = |id: NodeId| home(scene, id).is_some_and(|home| home.shard == owner.pod.shard);
    let imports = |live: &Live<'_>| match live.node.open.get(&slot) {
        Some(Open::Importing(from)) => is_of_giver(*from) && live.pod.shard != owner.pod.shard,
        Some(Open::Migrating(_)) | None => false,
    };
    let mut receivers = scene.live.iter().filter(|live| scene.is_lead(live.pod) && imports(live));
    let only = receivers.next().filter(|_| receivers.next().is_none())?;
    match owner.node.open.get(&slot) {
        Some(Open::Migrating(to)) => successor(scene, *to).filter(|to| to.pod == only.pod),
        // A receiver that has said that it has none of its keys was only about to import it: as replicas join it before its first slot.
        Some(Open::Importing(_)) | None => Some(*only).filter(|only| !is_bare(only, slot)),
    }
}

/// It has said that it has no key of the slot.
fn is_bare(live: &Live<'_>, slot: u16) -> bool {
    !live.node.loading && !live.node.uncounted.contains(slot) && !keeps_keys(live, slot)
}

/// It has keys of a slot that it does not own, as far as they are counted.
fn keeps_keys(live: &Live<'_>, slot: u16) -> bool {
    live.node.foreign_keys.get(&slot).is_some_and(|keys| *keys > 0)
}

/// Where both ends of a move were replaced, nobody shows its marks: Redis tells an heir nothing of them. What the two showed last counts until the heir of
/// the receiver has said whether it holds keys of the slot.
fn remember(scene: &Scene<'_>, found: &mut Findings) {
    for moved in scene.silent_moves() {
        let is_known = found.half_moved.values().any(|slots| slots.contains(moved.slot));
        if let Some((from, to)) = heirs(scene, moved).filter(|_| !is_known) {
            found.mark(from, to, moved.slot);
        }
    }
}

/// Where the giver alone was replaced, and the receiver, who owned nothing yet, is silent and may come back with what it has: its heir is told where that
/// is, as it would be if KUN had promoted it. Whether somebody is.
fn mark_owners(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    let mut marks: BTreeMap<(Who, NodeId), SlotSet> = BTreeMap::new();
    for moved in scene.silent_moves() {
        if let Some(owner) = unmarked_owner(scene, moved) {
            marks.entry((owner, moved.to)).or_default().insert(moved.slot);
        }
    }
    let is_any = !marks.is_empty();
    plan.steps.extend(marks.into_iter().map(|((owner, to), slots)| Step::MarkOwner { owner, to, slots }));
    is_any
}

/// The heir of a giver that says of what has moved that it does not exist.
fn unmarked_owner(scene: &Scene<'_>, moved: Silent) -> Option<Who> {
    let owner = scene.live.iter().find(|live| scene.owned_by(live.pod).contains(moved.slot))?;
    let is_heir =
        owner.node.id != moved.from && scene.is_of_shard(moved.from, owner.pod.shard) && scene.is_lead(owner.pod);
    let knows = owner.node.peers.get(&moved.to).is_some_and(Peer::is_primary_without_slots);
    let is_silent = scene.by_id(moved.to).is_none() && successor(scene, moved.to).is_none();
    let comes_back = safety::may_bring_data(scene, moved.to).is_some_and(|pod| pod.shard != owner.pod.shard);
    let is_free =
        scene.live.iter().all(|live| !live.node.open.contains_key(&moved.slot) && !keeps_keys(live, moved.slot));
    (is_heir && knows && is_silent && comes_back && is_free).then_some(owner.who())
}

/// Who have taken the places of the two ends of a move, if nothing else is known of the slot.
fn heirs(scene: &Scene<'_>, moved: Silent) -> Option<(Pod, Pod)> {
    let owner = scene.live.iter().find(|live| scene.owned_by(live.pod).contains(moved.slot))?;
    let is_of_giver = scene.is_of_shard(moved.from, owner.pod.shard) && scene.is_lead(owner.pod);
    let is_free = match owner.node.open.get(&moved.slot) {
        Some(Open::Migrating(to)) => *to == moved.to,
        Some(Open::Importing(_)) => false,
        None => true,
    };
    // Who answers speaks for itself.
    let is_silent = scene.by_id(moved.to).is_none();
    let heir = successor(scene, moved.to).filter(|heir| is_silent && heir.pod.shard != owner.pod.shard)?;
    let others = || scene.live.iter().filter(|live| live.pod.shard != owner.pod.shard && live.pod != heir.pod);
    let is_only = others().all(|other| !other.node.open.contains_key(&moved.slot));
    let is_unclear = is_only && heir.node.uncounted.contains(moved.slot);
    (is_of_giver && is_free && is_unclear).then_some((owner.pod, heir.pod))
}

/// Everybody who may hold keys of the slot has said whether it does.
fn is_counted(scene: &Scene<'_>, owner: &Live<'_>, slot: u16) -> bool {
    scene.live.iter().all(|live| live.pod.shard == owner.pod.shard || !live.node.uncounted.contains(slot))
}

/// Decides one slot from all its ends. A slot whose keys are at two places, or that the owner already sends away, is finished; any other
/// mark is cleared.
fn judge(scene: &Scene<'_>, owner: &Live<'_>, slot: u16, found: &mut Findings, plan: &mut Plan) {
    let mark = owner.node.open.get(&slot);
    let target = match mark {
        Some(Open::Migrating(to)) => successor(scene, *to).filter(|live| live.pod != owner.pod),
        Some(Open::Importing(_)) | None => None,
    };
    if let Some(to) = holder(scene, owner, slot).or(target) {
        return found.finish(owner.pod, to.pod, slot);
    }
    match mark {
        Some(Open::Migrating(to)) if found.kept.contains(to) => {}
        Some(Open::Migrating(to)) => {
            match safety::may_return(scene, *to).or_else(|| safety::may_bring_a_copy(scene, *to)) {
                Some(pod) => await_receiver(scene, plan, *to, pod),
                None => clear_at_owner(scene, owner, slot, found),
            }
        }
        Some(Open::Importing(_)) => clear_at_owner(scene, owner, slot, found),
        None => {}
    }
    let marked = |other: &&Live<'_>| other.pod != owner.pod && other.node.open.contains_key(&slot);
    // A member that leads nothing and has kept keys of the slot keeps its mark, and holds up nothing: it is told of when replicas are made.
    for other in scene.live.iter().filter(marked).filter(|other| !keeps_keys(other, slot)) {
        if let Some(told) = told_of_marks(scene, *other) {
            found.stabilise(told.pod, slot);
        }
    }
}

/// It may come back to that place with what it was sent, or somebody to whom that was copied. Where it owned nothing Redis elects nobody in its place, and
/// a person may mean one who has a copy.
fn await_receiver(scene: &Scene<'_>, plan: &mut Plan, to: NodeId, pod: Pod) {
    let is_copy =
        |live: &Live<'_>| matches!(live.node.role, Role::Replica { of, .. } if of == to) && live.node.keys > 0;
    let copy = scene.live_of(pod.shard).find(is_copy).filter(|_| scene.by_id(to).is_none());
    plan.waiting.push(match copy {
        Some(copy) => Waiting::Receiver { pod, copy: copy.pod },
        None => Waiting::Primary { shard: pod.shard, slots: 1 },
    });
}

/// The owner's mark means nothing any more. Where a member of another shard that leads nothing keeps keys of the slot, it stays all the same:
/// nobody else may have them. A person decides, and is told of that member.
fn clear_at_owner(scene: &Scene<'_>, owner: &Live<'_>, slot: u16, found: &mut Findings) {
    let others = scene.live.iter().filter(|live| live.pod.shard != owner.pod.shard && live.node.slots().is_empty());
    let keepers: BTreeSet<Pod> = others.filter(|live| keeps_keys(live, slot)).map(|live| live.pod).collect();
    if keepers.is_empty() {
        found.stabilise(owner.pod, slot);
    }
    found.keepers.extend(keepers);
}

/// Where a half-moved slot goes on to while somebody is lost: both ends lead their shards, and the owner does not send the slot to anybody else.
fn living_end<'a>(scene: &Scene<'a>, owner: &Live<'_>, slot: u16) -> Option<Live<'a>> {
    let has_keys = holder(scene, owner, slot);
    let to = match owner.node.open.get(&slot) {
        // Whoever else leads the shard of a lost one is not known to have what that one got.
        Some(Open::Migrating(to)) if scene.is_lost(*to) => None,
        Some(Open::Migrating(to)) => {
            let heir = successor(scene, *to).filter(|live| live.pod != owner.pod)?;
            has_keys.is_none_or(|other| other.pod == heir.pod).then_some(heir)
        }
        Some(Open::Importing(_)) | None => has_keys,
    };
    to.filter(|to| scene.is_lead(owner.pod) && scene.is_lead(to.pod))
}

/// Who is told to clear a member's mark. A replica has its marks from its primary, which with Valkey passes them on, and lets nobody
/// else clear them; one whose primary does not answer keeps them for now.
fn told_of_marks<'a>(scene: &Scene<'a>, live: Live<'a>) -> Option<Live<'a>> {
    match &live.node.role {
        Role::Primary { .. } => Some(live),
        Role::Replica { of, .. } => scene.by_id(*of).filter(|primary| primary.node.is_primary()),
    }
}

/// The lead of another shard that holds keys of the slot without owning it: the one with the most. A member that leads nothing holds
/// only what is left of a role it has lost.
fn holder<'a>(scene: &Scene<'a>, owner: &Live<'_>, slot: u16) -> Option<Live<'a>> {
    let keys = |live: &Live<'_>| live.node.foreign_keys.get(&slot).copied().unwrap_or(0);
    let others = scene.live.iter().copied().filter(|live| live.pod.shard != owner.pod.shard && keys(live) > 0);
    others.filter(|live| scene.is_lead(live.pod)).max_by_key(|live| (keys(live), core::cmp::Reverse(live.pod)))
}

/// Who stands for the node a slot was sent to: itself, or whoever has taken its place.
fn successor<'a>(scene: &Scene<'a>, id: NodeId) -> Option<Live<'a>> {
    let live = scene.by_id(id);
    let shard = live.map(|live| live.pod).or_else(|| home(scene, id))?.shard;
    match live {
        // Its heir owns the shard's slots, and has what had arrived. Where nobody of the shard owns any, it alone may have that.
        Some(live) if scene.observed.is_replaced(live.pod) => scene.owner(shard).or(Some(live)),
        Some(live) if live.node.is_primary() => Some(live),
        Some(_) => scene.lead(shard),
        None => scene.owner(shard),
    }
}

/// The place known to be this node's.
fn home(scene: &Scene<'_>, id: NodeId) -> Option<Pod> {
    let mut members = scene.observed.members.iter();
    members.find(|(_, member)| crate::scene::identity(member) == Some(id)).map(|(pod, _)| *pod)
}
