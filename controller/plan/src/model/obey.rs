//! What a step does to the world, as an executor would carry it out: preconditions first, then the commands, any of which may fail.

use alloc::string::String;
use alloc::vec::Vec;

use super::gossip::Call;
use super::{Home, Luck, Process, Server, World, disown};
use crate::desired::FailoverHow;
use crate::observed::{Health, NodeId, Open, Peer, PeerRole, Pod, Role};
use crate::slots::SlotSet;
use crate::step::{ReleaseHow, RestartAs, Step, Who};

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Carried out; what it starts may still take time, or come to nothing.
    Done,
    /// Stopped half way.
    Failed,
    /// A precondition did not hold; nothing was sent.
    Refused(String),
}

/// How long a forgotten node stays banned, in ticks.
const BAN: u64 = 60;

type Check = Result<(), String>;

impl World {
    /// Carries out one step.
    pub fn obey(&mut self, step: &Step, luck: &mut Luck) -> Outcome {
        let outcome = self.try_step(step, luck);
        if let Step::Failover { replica, .. } = step {
            match &outcome {
                Ok(_) => drop(self.refused.remove(&replica.pod.shard)),
                Err(_) => drop(self.refused.insert(replica.pod.shard, self.now)),
            }
        }
        match outcome {
            Err(reason) => Outcome::Refused(reason),
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Failed,
        }
    }

    /// `Ok(false)`: begun, not finished.
    fn try_step(&mut self, step: &Step, luck: &mut Luck) -> Result<bool, String> {
        match step {
            Step::NodeTimeout { node, millis } => self.at(*node)?.node_timeout_millis = *millis,
            Step::Epoch { node, epoch } => {
                let server = self.at(*node)?;
                require(server.epoch == 0 && server.table.is_empty(), "it has an epoch or knows others")?;
                (server.epoch, server.current_epoch) = (*epoch, *epoch);
            }
            Step::RaiseEpoch { node, above, through } => {
                let server = self.at(*node)?;
                require(!server.slots().is_empty() && server.epoch <= *above, "it owns nothing or is above")?;
                if server.has_a_newer_epoch_than_all() {
                    // `STILL`: another one has to have heard of an epoch that is newer.
                    let newest = server.epoch;
                    if let Some(through) = through {
                        let through = self.at(*through)?;
                        through.current_epoch = through.current_epoch.max(newest) + 1;
                        if !through.slots().is_empty() {
                            through.epoch = through.current_epoch;
                        }
                    }
                } else {
                    server.bump();
                }
            }
            Step::AddSlots { node, slots } => self.add_slots(*node, slots)?,
            Step::Meet { node, peer, address } => {
                self.at(*peer)?;
                let there = self.homes.get(&peer.pod).is_some_and(|home| home.address == *address);
                require(there, "nobody answers at that address")?;
                self.at(*node)?;
                self.introduced(node.pod, peer.pod);
            }
            Step::Replicate { node, primary } => self.make_replica(*node, *primary)?,
            Step::Failover { replica, primary, how, over, unheard } => {
                self.fail_over(*replica, *primary, (*how, *over, unheard), luck)?;
            }
            Step::Adopt { node, owner, slots } => self.adopt(*node, *owner, slots)?,
            Step::Move { from, to, slots } => {
                self.begun(from.id, to.id, slots);
                return self.move_slots(*from, *to, slots, luck);
            }
            Step::Mark { from, to, slots } => {
                self.begun(from.id, to.id, slots);
                self.mark(*from, *to, slots)?;
            }
            Step::MarkOwner { owner, to, slots } => {
                self.begun(owner.id, *to, slots);
                self.mark_owner(*owner, *to, slots)?;
            }
            Step::Stabilise { node, slots } => self.stabilise(*node, slots)?,
            Step::Forget { id, by } => return self.forget(*id, by, luck),
            Step::Release { pod, how } => self.release(*pod, *how)?,
            Step::Restart { pod, expect } => self.restart(*pod, *expect)?,
            Step::RetireMembers { shard, keep, leaving: _ } => {
                let mut stay = self.running().into_iter().filter(|pod| pod.shard == *shard && pod.ordinal < *keep);
                let led = stay.any(|pod| self.up(pod).is_some_and(|server| !server.slots().is_empty()));
                require(led, "none of those who stay owns the shard's slots")?;
                self.retire(|pod| pod.shard == *shard && pod.ordinal >= *keep)?;
            }
            Step::RetireShard { shard, leaving: _ } => self.retire(|pod| pod.shard == *shard)?,
        }
        Ok(true)
    }

    /// They may be marked from now on.
    fn begun(&mut self, from: NodeId, to: NodeId, slots: &SlotSet) {
        let marks = slots.iter().map(|slot| (slot, Open::Migrating(to)));
        self.marks.entry(from).or_default().extend(marks);
    }

    fn introduced(&mut self, one: Pod, other: Pod) {
        self.meets.push((one, other));
        let at = [one, other].map(|pod| self.homes.get(&pod).map(|home| home.address.clone()).unwrap_or_default());
        let before = self.met.get(&(one, other)).filter(|(was, _, _)| *was == at).map_or(0, |(_, _, times)| *times);
        self.met.insert((one, other), (at, self.now, before + 1));
    }

    /// The server with this identity at this place, as checked on the connection.
    fn at(&mut self, who: Who) -> Result<&mut Server, String> {
        let reachable = self.homes.get(&who.pod).is_some_and(|home| !home.hidden);
        let server = self.up_mut(who.pod).filter(|server| reachable && server.id == who.id);
        server.ok_or_else(|| alloc::format!("{who} does not answer with its identity"))
    }

    fn add_slots(&mut self, node: Who, slots: &SlotSet) -> Check {
        let server = self.at(node)?;
        require(matches!(server.role, Role::Primary { .. }), "it is a replica")?;
        let taken = server.table.values().any(|peer| !peer.slots().intersection(slots).is_empty());
        require(!taken && server.slots().intersection(slots).is_empty(), "a slot has an owner")?;
        server.claim(slots);
        Ok(())
    }

    fn make_replica(&mut self, node: Who, primary: Who) -> Check {
        let server = self.at(node)?;
        if let Role::Replica { of, misled, .. } = &mut server.role
            && *of == primary.id
        {
            *misled = false;
            return Ok(());
        }
        let empty = match &server.role {
            Role::Primary { slots } => {
                slots.is_empty() && server.data.values().all(alloc::collections::BTreeSet::is_empty)
            }
            Role::Replica { .. } => true,
        };
        require(empty, "a primary that is not empty cannot become a replica")?;
        let known = server.table.get(&primary.id).is_some_and(|peer| matches!(peer.role, PeerRole::Primary { .. }));
        require(known, "it does not know the primary")?;
        server.follow(primary.id);
        Ok(())
    }

    /// A coordinated failover waits for the last byte; with FORCE the replica goes ahead with what it has. Both need votes, both may
    /// come to nothing after an OK.
    fn fail_over(
        &mut self,
        replica: Who,
        primary: NodeId,
        (how, over, unheard): (FailoverHow, Option<NodeId>, &SlotSet),
        luck: &mut Luck,
    ) -> Check {
        let server = self.at(replica)?;
        require(server.follows() == Some(primary), "it is no replica of that primary")?;
        require(how != FailoverHow::Coordinated || server.is_synced(), "it is not in sync")?;
        let alive = self
            .place_of(primary)
            .and_then(|pod| self.homes.get(&pod))
            .is_some_and(|home| !home.hidden && !home.cut_off);
        require(how == FailoverHow::Coordinated || !alive, "the primary answers")?;
        let open = self.place_of(primary).and_then(|pod| self.up(pod)).is_some_and(|old| !old.open.is_empty());
        require(how != FailoverHow::Coordinated || !open, "a slot of its primary is half moved")?;
        let mut shard = self.homes.iter().filter(|(pod, home)| pod.shard == replica.pod.shard && !home.hidden);
        let led = shard
            .any(|(pod, _)| self.up(*pod).is_some_and(|other| Some(other.id) != over && !other.slots().is_empty()));
        require(how != FailoverHow::Takeover || !led, "another member of the shard owns slots")?;
        self.may_claim_unheard(replica, how, unheard)?;
        let left = how == FailoverHow::Force && self.left_behind().contains_key(&replica.pod);
        require(!left, "another member of the shard has left it behind")?;
        self.asked.insert(replica.pod.shard, self.now);
        self.won.insert(replica.pod.shard, self.now);
        if how == FailoverHow::Takeover {
            self.take_over(replica.pod, unheard);
            return Ok(());
        }
        if luck.fails(4) || !self.has_votes(replica.pod, Call::Operator) {
            return Ok(());
        }
        if how == FailoverHow::Coordinated {
            let Some(old) = self.place_of(primary).filter(|old| self.linked(*old, replica.pod)) else { return Ok(()) };
            let Some(old) = self.up_mut(old) else { return Ok(()) };
            old.holds_writes = true;
            let (data, offset) = (old.data.clone(), old.offset);
            let server = self.at(replica)?;
            (server.data, server.offset) = (data, offset);
        }
        self.promote(replica.pod);
        Ok(())
    }

    /// `ADDSLOTSRANGE` is refused where the node's own table names an owner; everybody who was seen is asked besides.
    fn may_claim_unheard(&mut self, replica: Who, how: FailoverHow, unheard: &SlotSet) -> Check {
        require(how == FailoverHow::Takeover || unheard.is_empty(), "votes are asked for what its table says")?;
        let has_none =
            |(pod, other): (Pod, &Server)| pod == replica.pod || other.slots().intersection(unheard).is_empty();
        let is_free = self.answering().all(has_none);
        require(is_free, "somebody else owns a slot by now")?;
        let named = self.at(replica)?.table.values().any(|peer| !peer.slots().intersection(unheard).is_empty());
        require(!named, "somebody else owns a slot")
    }

    fn adopt(&mut self, node: Who, owner: Option<NodeId>, slots: &SlotSet) -> Check {
        let server = self.at(node)?;
        require(matches!(server.role, Role::Primary { .. }), "it is a replica")?;
        let others = server.table.iter().filter(|(id, _)| Some(**id) != owner);
        let taken = others.fold(SlotSet::EMPTY, |taken, (_, peer)| taken.union(peer.slots())).intersection(slots);
        require(taken.is_empty(), "somebody else owns a slot")?;
        let missing = slots.difference(&server.slots());
        // Everybody who was seen is asked, as its own table may not have heard of it.
        let has_none =
            |(pod, other): (Pod, &Server)| pod == node.pod || other.slots().intersection(&missing).is_empty();
        let is_free = self.answering().all(has_none);
        require(is_free, "somebody else owns a slot by now")?;
        let server = self.at(node)?;
        server.claim(slots);
        server.bump();
        Ok(())
    }

    fn move_slots(&mut self, from: Who, to: Who, slots: &SlotSet, luck: &mut Luck) -> Result<bool, String> {
        let source = self.at(from)?;
        let epoch = source.epoch;
        let theirs = source.table.get(&to.id).map(|peer| peer.slots().clone()).unwrap_or_default();
        let known = source.table.contains_key(&to.id) && matches!(source.role, Role::Primary { .. });
        require(known, "the source is no primary that knows the target")?;
        require(slots.difference(&source.slots().union(&theirs)).is_empty(), "a slot is owned by somebody else")?;
        let target = self.at(to)?;
        let known = target.table.contains_key(&from.id) && matches!(target.role, Role::Primary { .. });
        require(known, "the target is no primary that knows the source")?;
        let linked = self.linked(from.pod, to.pod);
        require(linked, "the two do not reach each other")?;
        let (source, target) = (self.at(from)?.clone(), self.at(to)?.clone());
        share_claims([&source, &target], slots)?;
        // Whoever answers is asked itself.
        let of = |id: &NodeId| {
            let place = self.place_of(*id).filter(|pod| self.homes.get(pod).is_some_and(|home| !home.hidden));
            place.and_then(|pod| self.up(pod)).map(|server| server.epoch)
        };
        let rival = |id: &NodeId, peer: &Peer| {
            let speaks = peer.connected && peer.health != Health::Failed;
            let speaks = speaks && matches!(peer.role, PeerRole::Primary { .. });
            *id != from.id && speaks && of(id).unwrap_or(peer.epoch) == epoch
        };
        let rivals = |server: &Server| server.table.iter().any(|(id, peer)| rival(id, peer));
        require(!rivals(&source) && !rivals(&target) && target.epoch != epoch, "somebody has the epoch of the source")?;
        require(target.current_epoch.max(target.epoch) >= epoch, "the target has not heard of the source's epoch")?;
        let (mut whole, bad) = (slots.clone(), luck.fails(3));
        if bad {
            let done = luck.below(u64::from(slots.len()) + 1);
            whole = slots.lowest(u16::try_from(done).unwrap_or(u16::MAX));
        }
        let fitting = self.fitting(from, to, &whole)?;
        self.move_whole(from, to, &fitting, luck)?;
        if let Some(slot) = whole.difference(&fitting).iter().next() {
            self.fill(from, to, slot)?;
            return Ok(false);
        }
        let rest = slots.difference(&whole);
        if bad {
            let some: SlotSet = rest.iter().take(3).collect();
            for slot in some.iter() {
                self.move_partly(from, to, slot, luck)?;
            }
        }
        Ok(rest.is_empty())
    }

    /// The first of these slots, as many as the target has room for.
    fn fitting(&mut self, from: Who, to: Who, slots: &SlotSet) -> Result<SlotSet, String> {
        let Some(mut room) = self.room(to.pod) else { return Ok(slots.clone()) };
        let source = self.at(from)?;
        let fits = |slot: &u16| {
            let keys = source.keys_in(*slot) as u64;
            let fits = keys <= room;
            room = room.saturating_sub(keys);
            fits
        };
        Ok(slots.iter().take_while(fits).collect())
    }

    /// The target refuses more in the middle of a slot: it stays open, with what fitted at the target.
    fn fill(&mut self, from: Who, to: Who, slot: u16) -> Check {
        let room = self.room(to.pod).unwrap_or(u64::MAX);
        let source = self.at(from)?;
        source.open.insert(slot, Open::Migrating(to.id));
        let held = source.data.entry(slot).or_default();
        let gone: Vec<u64> = (0..room).map_while(|_| held.pop_first()).collect();
        let target = self.at(to)?;
        target.open.insert(slot, Open::Importing(from.id));
        target.data.entry(slot).or_default().extend(gone);
        Ok(())
    }

    fn move_whole(&mut self, from: Who, to: Who, slots: &SlotSet, luck: &mut Luck) -> Check {
        for slot in slots
            .iter()
            .filter(|slot| self.up(from.pod).is_some_and(|server| server.data.contains_key(slot)))
            .collect::<Vec<_>>()
        {
            let keys = self.at(from)?.data.remove(&slot).unwrap_or_default();
            self.at(to)?.data.entry(slot).or_default().extend(keys);
        }
        let target = self.at(to)?;
        let gained = slots.difference(&target.slots());
        target.open.retain(|slot, _| !slots.contains(*slot));
        if !gained.is_empty() {
            target.claim(slots);
            target.bump();
        }
        target.offset += 1;
        let epoch = target.epoch;
        self.announce((from, to), epoch, slots, luck);
        if !luck.fails(2) || !self.lossy {
            self.broadcast(to.pod);
        }
        Ok(())
    }

    /// The source is told whose the slots are, then all other primaries that the controller sees, also those that own nothing. A node refuses
    /// it for whom it takes for a replica, and one that cannot be told holds up nothing. A Valkey that imports one of the slots hears of it from
    /// the owner alone: told by us it would keep its mark, which is a claim.
    fn announce(&mut self, (from, to): (Who, Who), epoch: u64, slots: &SlotSet, luck: &Luck) {
        // Drawn aside, so that a seed goes on telling the story that it was kept for.
        let (mut aside, lossy) = (luck.clone(), self.lossy);
        for pod in self.running().into_iter().filter(|pod| *pod != to.pod) {
            let is_seen = self.homes.get(&pod).is_some_and(|home| !home.hidden && !home.outside);
            let is_valkey = self.valkey;
            let Some(server) = self.up_mut(pod).filter(|server| server.table.contains_key(&to.id)) else { continue };
            let takes_it = matches!(server.table.get(&to.id).map(|peer| &peer.role), Some(PeerRole::Primary { .. }));
            let imports = |(slot, mark): (&u16, &Open)| slots.contains(*slot) && matches!(mark, Open::Importing(_));
            let claims = is_valkey && server.open.iter().any(imports);
            let is_told = is_seen && takes_it && server.follows().is_none() && !(lossy && aside.fails(10)) && !claims;
            if server.id == from.id || is_told {
                server.take_word_for(to.id, epoch, slots);
            }
        }
    }

    /// The executor dies at one of the points between the commands that move a slot.
    fn move_partly(&mut self, from: Who, to: Who, slot: u16, luck: &mut Luck) -> Check {
        let point = luck.below(4);
        let owns = self.at(to)?.slots().contains(slot);
        if owns || point == 0 {
            return Ok(());
        }
        self.at(to)?.open.insert(slot, Open::Importing(from.id));
        if point == 1 {
            return Ok(());
        }
        self.at(from)?.open.insert(slot, Open::Migrating(to.id));
        let keys: Vec<u64> = self.at(from)?.data.get(&slot).into_iter().flatten().copied().collect();
        for key in keys {
            if point == 2 && luck.fails(2) {
                continue;
            }
            if let Some(set) = self.at(from)?.data.get_mut(&slot) {
                set.remove(&key);
            }
            self.at(to)?.data.entry(slot).or_default().insert(key);
        }
        if point == 3 {
            let target = self.at(to)?;
            target.open.remove(&slot);
            target.claim(&SlotSet::range(slot, slot));
            target.bump();
        }
        Ok(())
    }

    fn mark(&mut self, from: Who, to: Who, slots: &SlotSet) -> Check {
        let knows = |server: &Server, id: NodeId| {
            let is_primary = |peer: &Peer| matches!(peer.role, PeerRole::Primary { .. });
            server.follows().is_none() && server.table.get(&id).is_some_and(is_primary)
        };
        let source = self.at(from)?;
        require(knows(source, to.id), "the source is no primary that knows the target")?;
        let source = source.clone();
        let target = self.at(to)?;
        require(knows(target, from.id), "the target is no primary that knows the source")?;
        share_claims([&source, target], slots)?;
        let half_moved = slots.difference(&target.slots());
        require(half_moved.difference(&source.slots()).is_empty(), "a slot is owned by somebody else")?;
        target.take_word_for(from.id, 0, &half_moved);
        target.open.extend(half_moved.iter().map(|slot| (slot, Open::Importing(from.id))));
        self.at(from)?.open.extend(half_moved.iter().map(|slot| (slot, Open::Migrating(to.id))));
        Ok(())
    }

    fn mark_owner(&mut self, owner: Who, to: NodeId, slots: &SlotSet) -> Check {
        let owner = self.at(owner)?;
        let is_primary = |peer: &Peer| matches!(peer.role, PeerRole::Primary { .. });
        require(owner.follows().is_none(), "the owner is no primary")?;
        require(owner.table.get(&to).is_some_and(is_primary), "the owner does not know the target as a primary")?;
        require(slots.difference(&owner.slots()).is_empty(), "a slot is owned by somebody else")?;
        owner.open.extend(slots.iter().map(|slot| (slot, Open::Migrating(to))));
        Ok(())
    }

    fn stabilise(&mut self, node: Who, slots: &SlotSet) -> Check {
        let server = self.at(node)?;
        let owned = server.slots();
        let strange = slots.iter().any(|slot| !owned.contains(slot) && server.keys_in(slot) > 0);
        require(!strange, "it holds keys of a slot it does not own")?;
        let pods = self.running();
        let elsewhere = slots.iter().any(|slot| {
            let others = pods.iter().filter(|pod| pod.shard != node.pod.shard).filter_map(|pod| self.up(*pod));
            let keys = others
                .filter(|server| matches!(server.role, Role::Primary { .. }))
                .any(|server| server.keys_in(slot) > 0);
            owned.contains(slot) && keys
        });
        require(!elsewhere, "another node holds keys of the slot")?;
        self.at(node)?.open.retain(|slot, _| !slots.contains(*slot));
        Ok(())
    }

    fn forget(&mut self, id: NodeId, by: &[Who], luck: &mut Luck) -> Result<bool, String> {
        require(
            self.place_of(id).is_none_or(|pod| self.homes.get(&pod).is_some_and(|home| home.hidden)),
            "a pod answers with that ID",
        )?;
        for who in by {
            let server = self.at(*who)?;
            let entry = server.table.get(&id);
            let fine = entry.is_none_or(|peer| peer.slots().is_empty() && peer.is_gone());
            require(fine && server.follows() != Some(id), "it is not gone for everyone")?;
        }
        let until = self.now + BAN;
        for who in by {
            if luck.fails(10) {
                return Ok(false);
            }
            let server = self.at(*who)?;
            server.table.remove(&id);
            server.banned.insert(id, until);
        }
        Ok(true)
    }

    fn release(&mut self, pod: Pod, how: ReleaseHow) -> Check {
        let held = self.homes.get_mut(&pod).filter(|home| home.process == Process::Held && !home.hidden);
        let home = held.ok_or("it is not held")?;
        if how == ReleaseHow::Blank {
            home.server = None;
        }
        self.come_up(pod);
        Ok(())
    }

    fn restart(&mut self, pod: Pod, expect: RestartAs) -> Check {
        let home = self.homes.get(&pod).ok_or("there is no such pod")?;
        let running = self.up(pod);
        let holds = match expect {
            RestartAs::Replica(id) => running.is_some_and(|server| server.id == id && server.is_spare()),
            RestartAs::Empty(id) => {
                running.is_some_and(|server| server.id == id && server.slots().is_empty() && server.keys() == 0)
            }
            RestartAs::OnlyCopy(id) => running.is_some_and(|server| server.id == id),
            RestartAs::NotRunning => running.is_none(),
        };
        require(holds && !home.hidden, "it is no longer what it was")?;
        let primary = running.and_then(Server::follows).filter(|_| matches!(expect, RestartAs::Replica(_)));
        let linked = primary.is_none_or(|id| self.place_of(id).is_some_and(|at| self.linked(at, pod)));
        require(linked, "its link to its primary is down")?;
        let held = home.process == Process::Held;
        if !held {
            self.crash(pod, true);
        } else if let Some(home) = self.homes.get_mut(&pod) {
            home.process = Process::NoPod;
            home.server = home.server.take().filter(|_| self.volumes);
        }
        self.make_pod(pod);
        Ok(())
    }

    fn retire(&mut self, leaves: impl Fn(Pod) -> bool) -> Check {
        let leaving: Vec<Pod> = self.homes.keys().copied().filter(|pod| leaves(*pod)).collect();
        let spare = leaving.iter().all(|pod| self.up(*pod).is_none_or(Server::is_spare));
        require(spare, "one of them owns slots, or is a primary and holds keys")?;
        for pod in leaving {
            self.crash(pod, true);
            let files = self.homes.remove(&pod).and_then(|home: Home| home.server);
            if let Some(files) = files {
                self.attic.insert(pod, files);
            }
        }
        Ok(())
    }
}

fn require(holds: bool, otherwise: &str) -> Check {
    if holds { Ok(()) } else { Err(String::from(otherwise)) }
}

/// Neither of two primaries has been replaced without knowing it: each takes what the other one claims for its own.
fn share_claims([one, other]: [&Server; 2], slots: &SlotSet) -> Check {
    let shared = |one: &Server, other: &Server| {
        let told = other.table.get(&one.id).map(|peer| peer.slots().clone()).unwrap_or_default();
        // Whose a slot is that it imports, a node does not hear.
        let unheard = other.open.iter().filter(|(_, mark)| matches!(mark, Open::Importing(_))).map(|(slot, _)| *slot);
        one.slots().difference(slots).difference(&told).difference(&unheard.collect()).is_empty()
    };
    require(shared(one, other) && shared(other, one), "an end has been replaced and does not know it yet")
}

impl Server {
    /// It may end: it owns no slot, and what it holds is at its primary.
    fn is_spare(&self) -> bool {
        self.slots().is_empty() && (self.follows().is_some() || self.keys() == 0)
    }

    /// `SETSLOT NODE`: believed without comparing epochs, except of a slot it owns itself and still holds keys of.
    fn take_word_for(&mut self, owner: NodeId, epoch: u64, slots: &SlotSet) {
        let mine = self.slots();
        let held: SlotSet = slots.iter().filter(|slot| mine.contains(*slot) && self.keys_in(*slot) > 0).collect();
        let slots = slots.difference(&held);
        self.drop_claim(&slots);
        // Only its own name ends an import (`CLUSTER SETSLOT NODE`).
        self.open.retain(|slot, mark| !slots.contains(*slot) || matches!(mark, Open::Importing(_)));
        self.unclaimed = self.unclaimed.difference(&slots);
        for peer in self.table.values_mut() {
            disown(peer, &slots);
        }
        if let Some(PeerRole::Primary { slots: theirs }) = self.table.get_mut(&owner).map(|peer| &mut peer.role) {
            *theirs = theirs.union(&slots);
        }
        self.current_epoch = self.current_epoch.max(epoch);
    }
}
