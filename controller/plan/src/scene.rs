//! What was seen, put in order once for all phases: who is alive, who owns what, who leads which shard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::desired::{Desired, Limits};
use crate::observed::{Health, Member, Node, NodeId, Observed, Open, Peer, Pod, Role, Seen};
use crate::slots::SlotSet;
use crate::step::Who;

/// A live node with its place.
#[derive(Clone, Copy)]
pub(crate) struct Live<'a> {
    pub(crate) pod: Pod,
    pub(crate) node: &'a Node,
}

impl Live<'_> {
    pub(crate) fn who(&self) -> Who {
        Who { pod: self.pod, id: self.node.id }
    }

    /// It lists the other as a full member at the address where the other is.
    pub(crate) fn knows(&self, other: &Live<'_>) -> bool {
        let entry = self.node.peers.get(&other.node.id);
        entry.is_some_and(|peer| peer.address == other.node.address && !peer.handshake && !peer.noaddr)
    }

    /// It knows the other, and hears of it.
    pub(crate) fn hears(&self, other: &Live<'_>) -> bool {
        let entry = self.node.peers.get(&other.node.id);
        self.knows(other) && entry.is_some_and(|peer| peer.connected && peer.health == Health::Ok)
    }

    /// The highest epoch it has heard of: what it claims next has a higher one.
    pub(crate) fn heard(&self) -> u64 {
        self.node.peers.values().map(|peer| peer.epoch).fold(self.node.epoch.max(self.node.current_epoch), u64::max)
    }

    /// It follows this primary and could take its place: its copy is complete.
    pub(crate) fn is_copy_of(&self, primary: NodeId) -> bool {
        matches!(&self.node.role, Role::Replica { of, synced: true, .. } if *of == primary) && !self.node.loading
    }
}

/// An owner of slots that does not answer.
pub(crate) struct Lost {
    pub(crate) id: NodeId,
    pub(crate) slots: SlotSet,
    pub(crate) epoch: u64,
}

/// The question and everything the phases need to answer it.
pub(crate) struct Scene<'a> {
    pub(crate) desired: &'a Desired,
    pub(crate) observed: &'a Observed,
    pub(crate) limits: &'a Limits,
    /// Live nodes by place.
    pub(crate) live: Vec<Live<'a>>,
    /// What each live node owns once all claims are compared by epoch, as Redis does. Nodes that own nothing are not listed.
    pub(crate) owned: BTreeMap<Pod, SlotSet>,
    /// Slots whose newest claim is that of a node that does not answer.
    pub(crate) lost: Vec<Lost>,
    /// Slots that tables say of a node that does not answer, and that count for somebody else by [`outvoted`].
    pub(crate) outvoted: BTreeMap<NodeId, SlotSet>,
    /// Slots nobody claims.
    pub(crate) unowned: SlotSet,
    /// Place of each shard's lead, also of shards that are no longer wanted.
    leads: BTreeMap<u16, Live<'a>>,
    /// Shards in which no step is carried out: a member of theirs is one node twice.
    pub(crate) kept_out: BTreeSet<u16>,
    /// Nodes that are alive in somebody's table and belong to no place: ID → the member that lists it.
    pub(crate) strangers: BTreeMap<NodeId, Pod>,
}

/// A slot that was on its way, as an end of it showed last that does not answer now.
#[derive(Clone, Copy)]
pub(crate) struct Silent {
    pub(crate) slot: u16,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
}

/// Who owns what once all claims are compared by epoch, as Redis does.
pub(crate) struct Shares {
    /// What live nodes own. Those that own nothing are not listed.
    pub(crate) owned: BTreeMap<Pod, SlotSet>,
    lost: Vec<Lost>,
    outvoted: BTreeMap<NodeId, SlotSet>,
    unowned: SlotSet,
}

impl Shares {
    /// One node may claim slots under several epochs; the newest comes first.
    fn lose(&mut self, claim: &Claim, slots: &SlotSet) {
        match self.lost.iter_mut().find(|lost| lost.id == claim.id) {
            Some(lost) => lost.slots = lost.slots.union(slots),
            None => self.lost.push(Lost { id: claim.id, slots: slots.clone(), epoch: claim.epoch }),
        }
    }
}

struct Claim {
    epoch: u64,
    id: NodeId,
    pod: Option<Pod>,
    slots: SlotSet,
    outvoted: SlotSet,
}

impl<'a> Scene<'a> {
    pub(crate) fn of(desired: &'a Desired, observed: &'a Observed, limits: &'a Limits) -> Self {
        let live = living(observed);
        let Shares { owned, lost, outvoted, unowned } = shares(observed, &live);
        let strangers = strangers(observed, &live);
        let mut scene = Self {
            desired,
            observed,
            limits,
            owned,
            lost,
            outvoted,
            unowned,
            leads: BTreeMap::new(),
            kept_out: BTreeSet::new(),
            strangers,
            live,
        };
        scene.leads = scene.find_leads();
        scene
    }

    /// Shards that own slots have their lead. Where one is still to be chosen, it is chosen so that sites hold few of them: then no
    /// role has to be handed over as soon as the cluster is there.
    fn find_leads(&self) -> BTreeMap<u16, Live<'a>> {
        let shards: BTreeSet<u16> = self.live.iter().map(|live| live.pod.shard).collect();
        let owns = |shard: &u16| self.live_of(*shard).any(|live| !self.owned_by(live.pod).is_empty());
        let (settled, open): (Vec<u16>, Vec<u16>) = shards.into_iter().partition(owns);
        let (mut leads, mut held) = (BTreeMap::new(), BTreeMap::new());
        let mut choose = |shard: u16| {
            // Whoever was chosen before is judged anew: what the shards after it had to take was not known then.
            let before: Option<Live<'a>> = leads.remove(&shard);
            if let Some(count) = before.and_then(|lead| held.get_mut(self.site(lead.pod)?)) {
                *count -= 1;
            }
            let Some(lead) = self.find_lead(shard, &held) else { return };
            if let Some(site) = self.site(lead.pod) {
                *held.entry(site).or_insert(0) += 1;
            }
            leads.insert(shard, lead);
        };
        settled.into_iter().for_each(&mut choose);
        open.iter().chain(&open).for_each(|shard| choose(*shard));
        leads
    }

    /// The places that are wanted.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Pod> + use<> {
        let members = self.desired.members_per_shard();
        (0..self.desired.shards).flat_map(move |shard| (0..members).map(move |ordinal| Pod::new(shard, ordinal)))
    }

    pub(crate) fn is_wanted(&self, pod: Pod) -> bool {
        pod.shard < self.desired.shards && pod.ordinal < self.desired.members_per_shard()
    }

    /// Its pod is being deleted: it is nothing to build on, and nothing has to be done for it.
    pub(crate) fn is_terminating(&self, pod: Pod) -> bool {
        self.observed.members.get(&pod).is_some_and(|member| member.terminating)
    }

    /// The site of a member, where it is known.
    pub(crate) fn site(&self, pod: Pod) -> Option<&'a str> {
        self.observed.members.get(&pod)?.site.name()
    }

    /// Every place that exists or shall exist, with what was found there. A wanted place without a record is absent.
    pub(crate) fn places(&self) -> BTreeMap<Pod, Option<&'a Member>> {
        let recorded = self.observed.members.iter().map(|(pod, member)| (*pod, Some(member)));
        self.wanted().map(|pod| (pod, None)).chain(recorded).collect()
    }

    pub(crate) fn live_of(&self, shard: u16) -> impl Iterator<Item = Live<'a>> + '_ {
        self.live.iter().copied().filter(move |live| live.pod.shard == shard)
    }

    /// This node is known to be, or to have been last, at this place.
    pub(crate) fn is_home(&self, pod: Pod, id: NodeId) -> bool {
        self.observed.members.get(&pod).and_then(identity) == Some(id)
    }

    /// Half-moved slots by what their ends showed last that do not answer now.
    pub(crate) fn silent_moves(&self) -> impl Iterator<Item = Silent> + use<'a> {
        let marks = self.observed.silent_marks.iter();
        marks.flat_map(|(id, open)| {
            open.iter().map(|(slot, mark)| match mark {
                Open::Importing(from) => Silent { slot: *slot, from: *from, to: *id },
                Open::Migrating(to) => Silent { slot: *slot, from: *id, to: *to },
            })
        })
    }

    /// This node is known to be, or to have been last, in this shard.
    pub(crate) fn is_of_shard(&self, id: NodeId, shard: u16) -> bool {
        self.observed.members.iter().any(|(pod, member)| pod.shard == shard && identity(member) == Some(id))
    }

    pub(crate) fn is_lost(&self, id: NodeId) -> bool {
        self.lost.iter().any(|lost| lost.id == id)
    }

    pub(crate) fn by_id(&self, id: NodeId) -> Option<Live<'a>> {
        self.live.iter().copied().find(|live| live.node.id == id)
    }

    pub(crate) fn owned_by(&self, pod: Pod) -> &SlotSet {
        const NONE: &SlotSet = &SlotSet::EMPTY;
        self.owned.get(&pod).unwrap_or(NONE)
    }

    /// The member that owns, or shall own, the shard's slots.
    pub(crate) fn lead(&self, shard: u16) -> Option<Live<'a>> {
        self.leads.get(&shard).copied()
    }

    /// The primary with most slots; among equals one that its shard's first keys are on their way to, then the one most members follow, then
    /// one that stays, then where the fewest leads are held, then the lowest ordinal. Who has been replaced and kept keys leads nothing, also
    /// while its heir is away.
    fn find_lead(&self, shard: u16, held: &BTreeMap<&str, usize>) -> Option<Live<'a>> {
        let is_left_over = |live: &Live<'_>| live.node.keys > 0 && self.observed.is_replaced(live.pod);
        let leads = self.live_of(shard).filter(|live| live.node.is_primary() && !is_left_over(live));
        leads.max_by_key(|live| {
            let followers = self.live_of(shard).filter(|other| follows(other, live.node.id)).count();
            let there = self.site(live.pod).and_then(|site| held.get(site)).copied().unwrap_or(0);
            let place = (self.is_wanted(live.pod), Reverse((there, live.pod.ordinal)));
            (self.owned_by(live.pod).len(), live.node.keys > 0, followers, place)
        })
    }

    /// The member that owns the shard's slots.
    pub(crate) fn owner(&self, shard: u16) -> Option<Live<'a>> {
        self.lead(shard).filter(|lead| !self.owned_by(lead.pod).is_empty())
    }

    /// The leads of all wanted shards that have one.
    pub(crate) fn leads(&self) -> Vec<Live<'a>> {
        (0..self.desired.shards).filter_map(|shard| self.lead(shard)).collect()
    }

    pub(crate) fn is_lead(&self, pod: Pod) -> bool {
        self.lead(pod.shard).is_some_and(|lead| lead.pod == pod)
    }

    /// It holds a complete copy of what this primary had, and has not been left behind: where another one has gone on from there as a primary, what it
    /// holds is an older copy of what that one has.
    pub(crate) fn is_copy(&self, live: &Live<'_>, primary: NodeId) -> bool {
        live.is_copy_of(primary) && !self.has_an_heir(live, primary)
    }

    /// Another one has gone on from what this replica holds, and serves something of what it would claim.
    fn has_an_heir(&self, live: &Live<'_>, primary: NodeId) -> bool {
        let heir = self.observed.left_behind.get(&live.pod);
        let heir = heir.and_then(|heir| self.live.iter().find(|other| other.pod == *heir));
        let claimed = live.node.peers.get(&primary).map(Peer::slots);
        heir.zip(claimed).is_some_and(|(heir, claimed)| !heir.node.slots().intersection(claimed).is_empty())
    }

    /// Members that vote: those that own slots and answer.
    pub(crate) fn voters(&self) -> impl Iterator<Item = &Live<'a>> {
        self.live.iter().filter(|live| self.owned.contains_key(&live.pod))
    }

    /// How many vote or would, if they answered: more than half of them elect.
    pub(crate) fn owners(&self) -> usize {
        self.owned.len().saturating_add(self.lost.len())
    }

    /// The first has gone on, as a primary, from what the second holds.
    pub(crate) fn has_left_behind(&self, heir: &Live<'_>, copy: &Live<'_>) -> bool {
        self.observed.left_behind.get(&copy.pod) == Some(&heir.pod)
    }

    pub(crate) fn copies_of(&self, primary: NodeId) -> impl Iterator<Item = &Live<'a>> {
        self.live.iter().filter(move |live| self.is_copy(live, primary))
    }

    pub(crate) fn highest_epoch(&self) -> u64 {
        self.live.iter().map(Live::heard).max().unwrap_or(0)
    }

    /// No slot is owned, no key is held: there is nothing yet.
    pub(crate) fn is_blank(&self) -> bool {
        self.owned.is_empty() && self.lost.is_empty() && self.live.iter().all(|live| live.node.keys == 0)
    }
}

/// Live nodes by place.
pub(crate) fn living(observed: &Observed) -> Vec<Live<'_>> {
    observed.members.iter().filter_map(|(pod, member)| live_at(*pod, member)).collect()
}

/// The newest claim to a slot counts. Of two with one epoch it is the one of who answers, and of two who answer that of the lower ID, which is
/// the one to take a new epoch (`clusterHandleConfigEpochCollision`).
///
/// From Redis 7.0 on the entry of a node that is gone takes the epoch of whoever answers at its address (`getNodeFromLinkAndMsg`), be it a replica of
/// its heir. So of two who do not answer, a node of no place that nobody follows comes last.
pub(crate) fn shares(observed: &Observed, live: &[Live<'_>]) -> Shares {
    let mut shares =
        Shares { owned: BTreeMap::new(), lost: Vec::new(), outvoted: BTreeMap::new(), unowned: SlotSet::all() };
    let mut claims = claims(live);
    // Asked of those who do not answer, and once of each.
    claims.sort_by_cached_key(|claim| {
        let is_silent = claim.pod.is_none();
        (Reverse(claim.epoch), is_silent, is_silent && !is_of_use(observed, live, claim.id), claim.id)
    });
    for claim in claims {
        if !claim.outvoted.is_empty() {
            let all = shares.outvoted.entry(claim.id).or_default();
            *all = all.union(&claim.outvoted);
        }
        let slots = claim.slots.intersection(&shares.unowned);
        shares.unowned = shares.unowned.difference(&slots);
        match claim.pod {
            _ if slots.is_empty() => {}
            Some(pod) => drop(shares.owned.insert(pod, slots)),
            None => shares.lose(&claim, &slots),
        }
    }
    shares.lost.sort_by_key(|lost| lost.slots.ranges().next());
    shares
}

/// A place is its home, or somebody who answers is its replica.
pub(crate) fn is_of_use(observed: &Observed, live: &[Live<'_>], id: NodeId) -> bool {
    observed.members.values().any(|member| identity(member) == Some(id)) || live.iter().any(|live| follows(live, id))
}

fn live_at(pod: Pod, member: &Member) -> Option<Live<'_>> {
    member.node().map(|node| Live { pod, node })
}

pub(crate) fn follows(live: &Live<'_>, primary: NodeId) -> bool {
    matches!(&live.node.role, Role::Replica { of, .. } if *of == primary)
}

/// What live primaries claim, and what tables say of nodes that do not answer: their newest word counts.
///
/// The epoch of a line without an address may be that of whoever answers at the address that it had (`getNodeFromLinkAndMsg`), and its slots what that
/// table last heard, long ago: it takes nothing back of what newer lines say, what it says itself counts under its own epoch, and not against
/// somebody who answers and for whom more tables speak.
fn claims(live: &[Live<'_>]) -> Vec<Claim> {
    let own = live.iter().filter(|live| !live.node.slots().is_empty()).map(|live| Claim {
        epoch: live.node.epoch,
        id: live.node.id,
        pod: Some(live.pod),
        slots: live.node.slots().clone(),
        outvoted: SlotSet::EMPTY,
    });
    let alive: BTreeSet<NodeId> = live.iter().map(|live| live.node.id).collect();
    let lines = || {
        let lines = live.iter().flat_map(|live| live.node.peers.iter());
        lines.filter(|(id, peer)| !alive.contains(id) && !peer.handshake)
    };
    let mut newest: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (id, peer) in lines().filter(|(_, peer)| !peer.noaddr) {
        let epoch = newest.entry(*id).or_default();
        *epoch = peer.epoch.max(*epoch);
    }
    let mut silent: BTreeMap<(NodeId, u64), (SlotSet, bool)> = BTreeMap::new();
    for (id, peer) in lines().filter(|(id, peer)| newest.get(id).is_none_or(|newest| peer.epoch >= *newest)) {
        let (slots, is_sure) = silent.entry((*id, peer.epoch)).or_default();
        (*slots, *is_sure) = (slots.union(peer.slots()), *is_sure || !peer.noaddr);
    }
    let sure = |of: NodeId| {
        let others = silent.iter().filter(move |((id, _), (_, is_sure))| *is_sure && *id != of);
        others.map(|((id, _), (slots, _))| (*id, slots.clone()))
    };
    let claims = silent.iter().map(|((id, epoch), (slots, is_sure))| {
        let rivals = living_claims(live, *id).chain(sure(*id));
        let outvoted = if *is_sure { SlotSet::EMPTY } else { outvoted(live, *id, slots, rivals) };
        Claim { epoch: *epoch, id: *id, pod: None, slots: slots.difference(&outvoted), outvoted }
    });
    own.chain(claims.collect::<Vec<_>>()).collect()
}

/// What those who answer claim, but for what they are about to give to that node.
fn living_claims<'l>(live: &'l [Live<'l>], to: NodeId) -> impl Iterator<Item = (NodeId, SlotSet)> + 'l {
    let claim = move |claimant: &Live<'_>| {
        let gives = |(slot, mark): (&u16, &Open)| (*mark == Open::Migrating(to)).then_some(*slot);
        let given: SlotSet = claimant.node.open.iter().filter_map(gives).collect();
        (claimant.node.id, claimant.node.slots().difference(&given))
    };
    live.iter().map(claim)
}

/// Those of these slots that somebody else claims, and for whose claim more tables speak, its own among them: a claim under an epoch that may be
/// another node's counts only against fewer. Whoever has come since that node was last heard has no line of it, and has heard nothing that counts here.
fn outvoted(
    live: &[Live<'_>],
    id: NodeId,
    slots: &SlotSet,
    rivals: impl Iterator<Item = (NodeId, SlotSet)>,
) -> SlotSet {
    let mut outvoted = SlotSet::EMPTY;
    let voters: Vec<&Node> = live.iter().map(|live| live.node).filter(|node| node.peers.contains_key(&id)).collect();
    for (rival, claimed) in rivals {
        let both = claimed.intersection(slots);
        if both.is_empty() {
            continue;
        }
        let own = i64::from(live.iter().any(|live| live.node.id == rival));
        let mut votes: BTreeMap<u16, i64> = both.iter().map(|slot| (slot, own)).collect();
        let mut count = |name: NodeId, vote: i64| {
            for line in voters.iter().filter_map(|node| node.peers.get(&name)) {
                for slot in line.slots().intersection(&both).iter() {
                    votes.entry(slot).and_modify(|sum| *sum += vote);
                }
            }
        };
        count(rival, 1);
        count(id, -1);
        outvoted = outvoted.union(&votes.into_iter().filter(|(_, sum)| *sum > 0).map(|(slot, _)| slot).collect());
    }
    outvoted
}

/// IDs that tables show as alive and that belong to no place, unless a place whose identity is not known may be theirs, or it was one's a
/// moment ago and nobody has noticed yet that it is gone. Who takes it for an owner of slots leaves no doubt that it matters.
fn strangers(observed: &Observed, live: &[Live<'_>]) -> BTreeMap<NodeId, Pod> {
    let homes: BTreeSet<NodeId> = observed.members.values().filter_map(identity).collect();
    let nameless = observed.members.values().any(|member| identity(member).is_none() && may_run(member));
    if nameless {
        return BTreeMap::new();
    }
    let alive = |peer: &Peer| peer.health == Health::Ok && peer.connected && !peer.handshake && !peer.noaddr;
    let entries = live.iter().flat_map(|live| live.node.peers.iter().map(|(id, peer)| (live.pod, *id, peer)));
    let mut found = BTreeMap::new();
    let is_passing = |id: &NodeId, peer: &Peer| observed.former.contains(id) && peer.slots().is_empty();
    let strange = |id: &NodeId, peer: &Peer| alive(peer) && !homes.contains(id) && !is_passing(id, peer);
    for (pod, id, _) in entries.filter(|(_, id, peer)| strange(id, peer)) {
        found.entry(id).or_insert(pod);
    }
    found
}

/// The identity at a place, as far as it is known.
pub(crate) fn identity(member: &Member) -> Option<NodeId> {
    match &member.seen {
        Seen::Node(node) => Some(node.id),
        Seen::Held { id, .. } => id.or(member.last_id),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Unknown { .. } => member.last_id,
    }
}

/// A Redis process may run at this place.
pub(crate) fn may_run(member: &Member) -> bool {
    match &member.seen {
        Seen::Node(_) | Seen::Starting | Seen::Unknown { .. } => true,
        Seen::Absent | Seen::Stopped | Seen::Held { .. } => false,
    }
}
