//! What the servers do by themselves in one tick: talk, notice failures, elect, replicate.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Home, Luck, Process, Server, Stream, World, disown};
use crate::desired::Limits;
use crate::observed::{Gap, Health, NodeId, Open, Peer, PeerRole, Pod, Role, Stands};
use crate::slots::SlotSet;

/// Who called an election: the replica by itself, or an operator with `CLUSTER FAILOVER` (`CLUSTERMSG_FLAG0_FORCEACK`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    OwnElection,
    Operator,
}

/// What a node says of itself in every message.
#[derive(Clone)]
struct Word {
    id: NodeId,
    address: alloc::string::String,
    role: PeerRole,
    epoch: u64,
    current_epoch: u64,
    /// The slots it speaks for, with their epoch: its own, or as a replica those it believes its primary to own.
    claims: SlotSet,
    claims_epoch: u64,
    members: Vec<(NodeId, Peer)>,
}

/// What one node claims to own.
#[derive(Clone, Copy)]
struct Claim<'a> {
    sender: NodeId,
    epoch: u64,
    slots: &'a SlotSet,
    /// [`World::fellows`] of the sender.
    fellows: Option<&'a BTreeSet<NodeId>>,
}

impl World {
    /// One tick of everything that happens by itself.
    pub fn tick(&mut self, luck: &mut Luck) {
        self.now = self.now.saturating_add(1);
        let starting: Vec<Pod> =
            self.homes.iter().filter(|(_, home)| home.process == Process::Starting).map(|(pod, _)| *pod).collect();
        for pod in starting {
            if !luck.fails(3) {
                self.start(pod, luck);
            }
        }
        let down: Vec<Pod> =
            self.homes.iter().filter(|(_, home)| home.process == Process::Down).map(|(pod, _)| *pod).collect();
        for pod in down {
            if let Some(home) = self.homes.get_mut(&pod).filter(|_| !luck.fails(3)) {
                home.process = Process::Starting;
            }
        }
        self.try_parameters(luck);
        self.introduce(luck);
        self.talk(luck);
        self.notice();
        self.elect(luck);
        self.replicate(luck);
    }

    fn introduce(&mut self, luck: &mut Luck) {
        for (one, other) in core::mem::take(&mut self.meets) {
            if luck.fails(4) || !self.linked(one, other) {
                continue;
            }
            let (Some(first), Some(second)) = (self.word(one), self.word(other)) else { continue };
            self.add(one, &second);
            self.add(other, &first);
        }
    }

    fn add(&mut self, at: Pod, word: &Word) {
        // Who hears of itself makes no entry (Redis changes the address in its own line).
        let Some(server) = self.up_mut(at).filter(|server| server.id != word.id) else { return };
        let role = match &word.role {
            PeerRole::Primary { .. } => PeerRole::Primary { slots: SlotSet::EMPTY },
            PeerRole::Replica { of } => PeerRole::Replica { of: *of },
        };
        let entry = server.table.entry(word.id).or_insert_with(|| entry(role, word));
        entry.noaddr = false;
        server.called_from(word);
    }

    fn word(&self, pod: Pod) -> Option<Word> {
        let home = self.homes.get(&pod)?;
        let server = self.up(pod)?;
        let role = match &server.role {
            Role::Primary { slots } => PeerRole::Primary { slots: slots.clone() },
            Role::Replica { of, .. } => PeerRole::Replica { of: *of },
        };
        let primary = server.follows().and_then(|primary| server.table.get(&primary));
        let (claims, claims_epoch) =
            primary.map_or_else(|| (server.slots(), server.epoch), |peer| (peer.slots().clone(), peer.epoch));
        Some(Word {
            id: server.id,
            address: home.address.clone(),
            role,
            epoch: server.epoch,
            current_epoch: server.current_epoch,
            claims,
            claims_epoch,
            members: server.table.iter().map(|(id, peer)| (*id, peer.clone())).collect(),
        })
    }

    /// Each pair that can talk, talks once, unless chance has it otherwise. All speak of what they knew when the tick began. Whoever is looked for
    /// at an address that is another's by now is looked for first: then nothing newer has been heard of its slots.
    fn talk(&mut self, luck: &mut Luck) {
        let running = self.running();
        let words: BTreeMap<Pod, Word> = running.iter().filter_map(|pod| Some((*pod, self.word(*pod)?))).collect();
        for (from, to) in running.iter().flat_map(|from| running.iter().map(move |to| (*from, *to))) {
            let answer = words.get(&to).filter(|_| from != to && self.linked(from, to) && !luck.fails(2));
            answer.into_iter().for_each(|answer| self.call_a_gone_one(from, answer));
        }
        for from in &running {
            for to in &running {
                if from == to || !self.linked(*from, *to) || luck.fails(2) {
                    continue;
                }
                let (Some(question), Some(answer)) = (words.get(from), words.get(to)) else { continue };
                let Some(asker) = self.up(*from) else { continue };
                if asker.table.get(&answer.id).is_none_or(|peer| peer.address != answer.address) {
                    continue;
                }
                self.hear(*to, question);
                self.hear(*from, answer);
            }
        }
    }

    /// Whoever calls a node that is gone, and meets another one at its address, first takes the epoch it hears for that node's, and only then
    /// sees who answered (`getNodeFromLinkAndMsg`, Redis 7.0 and later).
    fn call_a_gone_one(&mut self, from: Pod, answer: &Word) {
        let Some(me) = self.up_mut(from) else { return };
        let is_there = |peer: &Peer| peer.address == answer.address && !peer.noaddr;
        for (_, entry) in me.table.iter_mut().filter(|(id, peer)| **id != answer.id && is_there(peer)) {
            entry.epoch = entry.epoch.max(answer.claims_epoch);
            entry.noaddr = true;
        }
    }

    /// `at` takes in what somebody said; a stranger's word is ignored.
    fn hear(&mut self, at: Pod, word: &Word) {
        let (now, fellows) = (self.now, self.fellows(word.id));
        let Some(me) = self.up_mut(at) else { return };
        if !me.table.contains_key(&word.id) {
            return;
        }
        me.current_epoch = me.current_epoch.max(word.current_epoch).max(word.epoch);
        me.banned.retain(|_, until| *until > now);
        for (id, peer) in &word.members {
            if *id != me.id && !me.table.contains_key(id) && !me.banned.contains_key(id) && !peer.noaddr {
                let heard = Peer { role: PeerRole::Primary { slots: SlotSet::EMPTY }, epoch: 0, ..peer.clone() };
                me.table.insert(*id, heard);
            }
            me.relocate(*id, peer);
        }
        me.called_from(word);
        if let Some(entry) = me.table.get_mut(&word.id) {
            entry.epoch = entry.epoch.max(word.epoch);
            if let PeerRole::Replica { of } = word.role {
                entry.role = PeerRole::Replica { of };
            } else if matches!(entry.role, PeerRole::Replica { .. }) {
                entry.role = PeerRole::Primary { slots: SlotSet::EMPTY };
            }
        }
        let stale = match &word.role {
            PeerRole::Primary { slots } => {
                me.believe(Claim { sender: word.id, epoch: word.epoch, slots, fellows: fellows.as_ref() })
            }
            PeerRole::Replica { .. } => me.newer_owners(&word.claims, word.claims_epoch),
        };
        let collides = me.epoch == word.epoch && me.id < word.id && matches!(word.role, PeerRole::Primary { .. });
        if collides && matches!(me.role, Role::Primary { .. }) {
            me.bump();
        }
        me.leave_a_chain();
        // Whoever claims what somebody newer owns is told so.
        if let Some(teller) = self.place_of(word.id) {
            for (id, epoch, slots) in stale {
                self.update(teller, id, epoch, &slots);
            }
        }
    }

    /// An UPDATE message about a node: nothing new if that node's epoch is known already.
    fn update(&mut self, at: Pod, owner: NodeId, epoch: u64, slots: &SlotSet) {
        let fellows = self.fellows(owner);
        let Some(server) = self.up_mut(at) else { return };
        if server.table.get(&owner).is_none_or(|peer| peer.epoch >= epoch) {
            return;
        }
        if let Some(peer) = server.table.get_mut(&owner) {
            peer.epoch = epoch;
            if matches!(peer.role, PeerRole::Replica { .. }) {
                peer.role = PeerRole::Primary { slots: SlotSet::EMPTY };
            }
        }
        let _ = server.believe(Claim { sender: owner, epoch, slots, fellows: fellows.as_ref() });
    }

    /// The nodes of this one's shard, which Valkey knows and goes by; `None` with Redis.
    fn fellows(&self, id: NodeId) -> Option<BTreeSet<NodeId>> {
        let is_at = |home: &Home| home.server.as_ref().is_some_and(|server| server.id == id);
        let shard =
            self.homes.iter().find(|(_, home)| is_at(home)).map(|(pod, _)| pod.shard).filter(|_| self.valkey)?;
        let homes = self.homes.iter().filter(|(pod, _)| pod.shard == shard);
        Some(homes.filter_map(|(_, home)| Some(home.server.as_ref()?.id)).collect())
    }

    /// Failures are noticed: at once that a link is down, later that a node does not answer, then that most think so.
    fn notice(&mut self) {
        // A link that is being tried looks like one that is up.
        let is_tried = self.now.is_multiple_of(2);
        for pod in self.running() {
            let addresses: Vec<(NodeId, bool)> = self.up(pod).map_or_else(Vec::new, |server| {
                server.table.iter().map(|(id, peer)| (*id, self.reaches(pod, *id, peer))).collect()
            });
            let Some(server) = self.up_mut(pod) else { continue };
            for (id, reachable) in addresses {
                let Some(peer) = server.table.get_mut(&id) else { continue };
                peer.connected = reachable || is_tried;
                peer.health = match (reachable, peer.health) {
                    (true, _) => Health::Ok,
                    (false, Health::Ok) => Health::Suspect,
                    (false, Health::Suspect | Health::Failed) => Health::Failed,
                };
            }
        }
    }

    fn reaches(&self, from: Pod, id: NodeId, peer: &Peer) -> bool {
        self.place_at(id, &peer.address).is_some_and(|to| self.linked(from, to))
    }

    /// A synced replica of a primary that most believe dead asks for votes. Its agent forbids it where its copy is not whole, and where it
    /// cannot tell.
    fn elect(&mut self, luck: &mut Luck) {
        let may_stand =
            |server: &&Server| server.stands() == Some(Stands::ByItself) && server.is_synced() && server.is_whole();
        for pod in self.running() {
            let Some(server) = self.up(pod).filter(may_stand) else { continue };
            let Some(primary) = server.follows() else { continue };
            let entry = server.table.get(&primary);
            let dead = entry.is_some_and(|peer| peer.health == Health::Failed && !peer.slots().is_empty());
            if dead && !luck.fails(2) && self.has_votes(pod, Call::OwnElection) {
                self.promote(pod);
            }
        }
    }

    /// A majority of the primaries that own slots hears this replica and votes for it. Nobody votes for a claim to slots of which it
    /// knows a newer owner; nor for whom it does not itself know as a replica; nor, unless an operator asked for the election, against a
    /// primary that it does not itself hold to be dead (`clusterSendFailoverAuthIfNeeded`). A replica that has not heard of any slot of its primary
    /// does not even ask (`clusterHandleSlaveFailover`).
    pub(crate) fn has_votes(&self, replica: Pod, call: Call) -> bool {
        let Some(server) = self.up(replica) else { return false };
        let Some((primary, old)) = server.follows().and_then(|id| server.table.get(&id).map(|peer| (id, peer))) else {
            return false;
        };
        if old.slots().is_empty() {
            return false;
        }
        let owners: BTreeSet<NodeId> =
            server.table.iter().filter(|(_, peer)| !peer.slots().is_empty()).map(|(id, _)| *id).collect();
        let votes = owners.iter().filter(|id| {
            let Some((pod, voter)) = self.place_of(**id).and_then(|pod| self.up(pod).map(|voter| (pod, voter))) else {
                return false;
            };
            // Its line of the primary itself may be later than the replica's own (`call_a_gone_one`).
            let newer = voter.table.values().filter(|peer| peer.epoch > old.epoch);
            let newer = newer.fold(SlotSet::EMPTY, |all, peer| all.union(peer.slots())).difference(&voter.unclaimed);
            let mine = if voter.id != primary && voter.epoch > old.epoch { voter.slots() } else { SlotSet::EMPTY };
            let overruled = !old.slots().intersection(&newer.union(&mine)).is_empty();
            let Some(PeerRole::Replica { of }) = voter.table.get(&server.id).map(|peer| &peer.role) else {
                return false;
            };
            let held_dead = voter.table.get(of).is_some_and(|peer| peer.health == Health::Failed);
            let agreed = held_dead || call == Call::Operator;
            !overruled && agreed && !voter.slots().is_empty() && self.linked(pod, replica)
        });
        votes.count() > owners.len() / 2
    }

    /// The replica takes its primary's slots with a new epoch: voters give their vote only to an epoch above all they know.
    pub(crate) fn promote(&mut self, replica: Pod) {
        let voters = self.running().into_iter().filter(|pod| self.linked(*pod, replica));
        let known = voters
            .filter_map(|pod| self.up(pod))
            .map(|server| server.current_epoch.max(server.epoch))
            .max()
            .unwrap_or(0);
        let Some(server) = self.up_mut(replica) else { return };
        server.current_epoch = server.current_epoch.max(known);
        self.take_over(replica, &SlotSet::EMPTY);
    }

    /// The replica takes its primary's slots, and these, with an epoch above all that it has heard of, without asking
    /// (`clusterBumpConfigEpochWithoutConsensus`).
    pub(crate) fn take_over(&mut self, replica: Pod, unheard: &SlotSet) {
        let now = self.now;
        let Some(server) = self.up_mut(replica) else { return };
        let Some(primary) = server.follows() else { return };
        let slots = server.table.get(&primary).map(|peer| peer.slots().clone()).unwrap_or_default();
        server.role = Role::Primary { slots: SlotSet::EMPTY };
        server.bump();
        server.claim(&slots.union(unheard));
        server.went_on_with = Some(core::mem::replace(&mut server.stream, Stream { by: server.id, since: now }));
        server.holds_writes = false;
        self.won.insert(replica.shard, self.now);
        self.broadcast(replica);
    }

    /// Tells everyone it has a link to, at once.
    pub(crate) fn broadcast(&mut self, from: Pod) {
        let Some(word) = self.word(from) else { return };
        for pod in self.running().into_iter().filter(|pod| *pod != from) {
            if self.linked(from, pod) {
                self.hear(pod, &word);
            }
        }
    }

    fn version_at(&self, pod: Pod) -> u64 {
        self.homes.get(&pod).map_or(0, |home| home.version)
    }

    /// Replicas copy what their primaries have. As a new replica of a newer primary an older server takes nothing.
    fn replicate(&mut self, luck: &mut Luck) {
        let now = self.now;
        for pod in self.running() {
            // The disk catches up with what a full synchronisation brought.
            if let Some(server) = self.up_mut(pod).filter(|server| server.stored.is_some())
                && !luck.fails(2)
            {
                server.stored = None;
            }
            let Some(primary) = self.up(pod).and_then(Server::follows) else { continue };
            let reachable = self
                .up(pod)
                .filter(|server| !matches!(server.role, Role::Replica { misled: true, .. }))
                .and_then(|server| server.table.get(&primary))
                .is_some_and(|peer| self.reaches(pod, primary, peer));
            let reachable = reachable && self.homes.get(&pod).is_some_and(|home| !home.unlinked);
            let at = self.up(pod).and_then(|server| server.table.get(&primary)).map(|peer| &peer.address);
            let source = at.and_then(|at| self.place_at(primary, at)).filter(|_| reachable);
            let is_heard =
                self.place_of(primary).and_then(|from| self.homes.get(&from)).is_some_and(|home| !home.cut_off);
            let copy = source.and_then(|from| self.up(from)).map(|from| (from.data.clone(), from.offset, from.stream));
            let is_newer = source.is_some_and(|from| self.version_at(from) > self.version_at(pod));
            let slow = luck.fails(3);
            // Its machine stands still for a moment.
            let stands_still = copy.is_none() && luck.fails(4);
            let Some(server) = self.up_mut(pod) else { continue };
            let Role::Replica { synced, link_up, offset, lag_bytes, gap, stands, .. } = &mut server.role else {
                continue;
            };
            match copy {
                None => {
                    *link_up = false;
                    server.behind.get_or_insert(now);
                    if stands_still {
                        *stands = Stands::OnOrder;
                    }
                    // More would say nothing new, and keep a world that rests from being still.
                    gap.missed_millis = (gap.missed_millis + if is_heard { 1_000 } else { 0 }).min(10_000);
                }
                Some((_, newest, _)) if slow => {
                    *lag_bytes = newest.saturating_sub(*offset);
                    if *lag_bytes > 0 {
                        server.behind.get_or_insert(now);
                    }
                }
                Some((data, newest, stream)) => {
                    // What it lacks may still be had from its primary's backlog, or not.
                    let is_full = !*synced || gap.missed_millis > 0 && luck.fails(2);
                    if is_full && is_newer {
                        // It throws away what it has before it finds that it cannot load the rest, and begins anew.
                        (*synced, *link_up) = (false, false);
                        let before = core::mem::take(&mut server.data);
                        if !before.is_empty() {
                            server.stored.get_or_insert(before);
                        }
                        continue;
                    }
                    (*synced, *link_up, *offset, *lag_bytes, *gap) = (true, true, newest, 0, Gap::default());
                    *stands = Stands::ByItself;
                    server.behind = None;
                    let before = core::mem::replace(&mut server.data, data);
                    if is_full {
                        server.stored.get_or_insert(before);
                    }
                    (server.offset, server.stream, server.went_on_with) = (newest, stream, None);
                }
            }
        }
    }
}

fn entry(role: PeerRole, word: &Word) -> Peer {
    Peer {
        address: word.address.clone(),
        role,
        health: Health::Ok,
        connected: true,
        handshake: false,
        noaddr: false,
        epoch: word.epoch,
    }
}

impl Server {
    /// As a replica it lacks no more than the last moments of its primary.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.role {
            Role::Replica { gap, .. } => gap.missed_millis <= Limits::default().missed_millis,
            Role::Primary { .. } => true,
        }
    }

    /// Of somebody who does not answer, another address is believed; a replica does not follow its primary there.
    fn relocate(&mut self, id: NodeId, heard: &Peer) {
        let Some(mine) = self.table.get_mut(&id) else { return };
        let lost = mine.health != Health::Ok && heard.health == Health::Ok && !heard.noaddr;
        if lost && mine.address != heard.address {
            mine.address.clone_from(&heard.address);
            if let Role::Replica { of, misled, .. } = &mut self.role {
                *misled |= *of == id;
            }
        }
    }

    /// Of somebody who calls from a new address, that address is the right one; a replica follows its primary there.
    fn called_from(&mut self, word: &Word) {
        let Some(mine) = self.table.get_mut(&word.id) else { return };
        mine.noaddr = false;
        if mine.address == word.address {
            return;
        }
        mine.address.clone_from(&word.address);
        if let Role::Replica { of, misled, .. } = &mut self.role {
            *misled &= *of != word.id;
        }
    }

    /// Takes in a claim to slots. Gives the claims that are overruled by somebody newer.
    fn believe(&mut self, claim: Claim<'_>) -> Vec<(NodeId, u64, SlotSet)> {
        let stale = self.weigh(claim);
        if claim.fellows.is_some() && self.follows().is_none() {
            self.take_what_is_left(claim.sender, claim.slots);
        }
        stale
    }

    /// Valkey: what a node imports is its own once the giver does not claim it any more, whoever has it by now.
    fn take_what_is_left(&mut self, giver: NodeId, claimed: &SlotSet) {
        let is_left = |slot: &u16, mark: &Open| *mark == Open::Importing(giver) && !claimed.contains(*slot);
        let left: SlotSet =
            self.open.iter().filter(|(slot, mark)| is_left(slot, mark)).map(|(slot, _)| *slot).collect();
        self.open.retain(|slot, mark| !is_left(slot, mark));
        if !left.difference(&self.slots()).is_empty() {
            self.claim(&left);
            self.bump();
        }
    }

    /// Valkey: a mark goes with the slot to another member of the giver's shard, and ends where it goes elsewhere.
    fn redirect_marks(&mut self, owner: NodeId, gained: &SlotSet, fellows: &BTreeSet<NodeId>) {
        self.open.retain(|slot, mark| match mark {
            Open::Importing(from) if gained.contains(*slot) && *from != owner => {
                let stays = fellows.contains(from);
                *from = owner;
                stays
            }
            Open::Importing(_) | Open::Migrating(_) => true,
        });
    }

    /// As Redis compares epochs.
    fn weigh(&mut self, Claim { sender, epoch, slots, fellows }: Claim<'_>) -> Vec<(NodeId, u64, SlotSet)> {
        let bound = self.table.get(&sender).map(|peer| peer.slots().clone()).unwrap_or_default();
        self.unclaimed = self.unclaimed.difference(&bound.intersection(slots)).union(&bound.difference(slots));
        let known =
            self.table.get(&sender).is_some_and(|peer| peer.epoch == epoch) && slots.difference(&bound).is_empty();
        if known && self.slots().intersection(slots).is_empty() {
            return Vec::new();
        }
        // Whose a slot becomes that it imports, a Redis does not hear.
        let deaf = |mark: &Open| matches!(mark, Open::Importing(_)) && fellows.is_none();
        let importing: SlotSet = self.open.iter().filter(|(_, mark)| deaf(mark)).map(|(slot, _)| *slot).collect();
        let stale = self.newer_owners(slots, epoch).into_iter().filter(|(id, _, _)| *id != sender).collect();
        let mut granted = slots.difference(&importing);
        let mut from_primary = SlotSet::EMPTY;
        let primary = self.follows();
        for (id, peer) in self.table.iter().filter(|(id, _)| **id != sender) {
            let shared = peer.slots().intersection(&granted);
            let yielded = if peer.epoch < epoch { shared.clone() } else { shared.intersection(&self.unclaimed) };
            granted = granted.difference(&shared.difference(&yielded));
            if Some(*id) == primary {
                from_primary = yielded;
            }
        }
        let mine = self.slots().intersection(&granted);
        if !mine.is_empty() && self.epoch >= epoch {
            granted = granted.difference(&mine);
        }
        let ceded = self.slots().intersection(&granted);
        self.unclaimed = self.unclaimed.difference(&granted);
        let whole = slots.len();
        for (id, peer) in &mut self.table {
            if *id == sender {
                if let PeerRole::Primary { slots } = &mut peer.role {
                    *slots = slots.union(&granted);
                }
            } else {
                disown(peer, &granted);
            }
        }
        if let Some(fellows) = fellows {
            self.redirect_marks(sender, &granted, fellows);
        }
        let joins = |went: &SlotSet, me| fellows.map_or(went.len() == whole, |fellows| fellows.contains(&me));
        self.cede(sender, &ceded, &from_primary, joins);
        stale
    }

    /// Who is known to own some of these slots with a newer epoch than this.
    fn newer_owners(&self, slots: &SlotSet, epoch: u64) -> Vec<(NodeId, u64, SlotSet)> {
        let newer = self.table.iter().filter(|(_, peer)| peer.epoch > epoch);
        let claims = newer.map(|(id, peer)| (*id, peer.epoch, peer.slots().difference(&self.unclaimed)));
        claims.filter(|(_, _, theirs)| !theirs.intersection(slots).is_empty()).collect()
    }

    /// A primary whose slots have all gone to one node that has no others, or with Valkey to one of its shard, follows it; keys of slots that
    /// went elsewhere are dropped. A replica moves with its primary's slots.
    fn cede(
        &mut self,
        sender: NodeId,
        ceded: &SlotSet,
        from_primary: &SlotSet,
        joins: impl Fn(&SlotSet, NodeId) -> bool,
    ) {
        self.drop_claim(ceded);
        let primary = self.follows();
        let bare = primary.map_or_else(
            || self.slots().is_empty(),
            |primary| self.table.get(&primary).is_none_or(|peer| peer.slots().is_empty()),
        );
        let went = if primary.is_some() { from_primary } else { ceded };
        if !went.is_empty() && bare && joins(went, self.id) {
            self.follow(sender);
        } else if !ceded.is_empty() {
            self.data.retain(|slot, _| !ceded.contains(*slot));
            self.open.retain(|slot, _| !ceded.contains(*slot));
        }
        self.holds_writes &= ceded.is_empty();
    }

    /// A replica of a replica follows the latter's primary.
    fn leave_a_chain(&mut self) {
        let grand = self.follows().and_then(|primary| self.table.get(&primary)).and_then(|peer| match peer.role {
            PeerRole::Replica { of } => Some(of),
            PeerRole::Primary { .. } => None,
        });
        if let Some(grand) = grand.filter(|grand| *grand != self.id && self.table.contains_key(grand)) {
            self.follow(grand);
        }
    }
}
