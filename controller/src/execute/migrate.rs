//! Moves hash slots with their keys from one primary to another, while clients use them.
//!
//! # Why nothing is lost, and no key is served stale
//!
//! 1. Marks: IMPORTING on the target first, MIGRATING on the source second. From then on the source serves exactly the
//!    keys it has and answers ASK for those it lacks. It *cannot create* a key of a marked slot: every command on a
//!    missing key is sent on. So under the mark the source's keys of the slot only become fewer, and a key that is there
//!    was there when the mark was set, and no client was ever sent to the target for it.
//! 2. Keys: MIGRATE copies, waits for the target's acknowledgement, and deletes, in one atomic command of the source.
//!    Before the deletion only the source's copy is served, after it only the target's.
//! 3. A MIGRATE that broke off (IOERR, or our own crash) may leave a copy at the target although the source kept its
//!    own. By (1) no client was sent to that copy: it is a leftover, older or equal, and the source's copy is the truth.
//!    It is replaced, never merged: keys go without REPLACE at first, and only those that the target says it has (BUSYKEY) once more
//!    with it, when both ends have just said that the slot is half moved between them, and nothing of the first attempt is on
//!    its way any more (`proof`). (What remains: a client that deletes the very key between the two attempts may see it again. That is some
//!    milliseconds, or until the next look where the target stood still for about a node timeout. Redis offers nothing that closes this.)
//! 4. A slot whose target already held keys when *we* set the mark has lost an earlier mark: its source failed over in
//!    the middle of a move. The new source has served the slot since, so its copies win, as everywhere after a failover
//!    of asynchronous replication; how many were replaced is reported. Until it is marked, it takes what has moved for missing, and lets clients
//!    make it anew. So the mark is set at the first look that shows the new source (`mark`), whatever a move of the slot has to wait for: the
//!    target's disk, a replica, a count of keys.
//! 5. Ownership: only slots that the source itself counts as empty, on the marked connection, are handed over (by (1)
//!    they stay empty), and only while it calls itself a primary after that count, as the target does: target first, which raises its
//!    epoch so that its claim wins, then source, then the others, but for Valkeys that import the slot (`slots::claimers`). The
//!    order matters: told first, the source would send clients to a target that sends them back.
//!
//! 6. A source that fails over in the middle leaves a target that still imports from the former one: Redis never changes the
//!    owner of a slot it imports (`clusterUpdateSlotsConfigWith`), so for the target the slot soon belongs to nobody, and it
//!    answers CLUSTERDOWN to MIGRATE and to clients that were sent on. Here the source is marked first, so that it takes no
//!    new keys in place of those that have moved; then the target is told who the owner is, then marked.
//!
//! 7. A slot does not turn around in the middle. Its owner takes keys back (RESTORE of MIGRATE) only while it is not marked, for a marked
//!    one answers ASK also to that, and unmarked it shows the keys that have left as missing, and lets clients make them anew. To make the
//!    target the owner first, so that the move only goes on in the other direction, the owner would have to give up a slot that it holds
//!    keys of: SETSLOT NODE refuses that, and hearing of the target's claim it would delete them. (DELSLOTS does not delete them. With SETSLOT
//!    STABLE before it, NODE and IMPORTING after it in one transaction at the owner, and NODE and MIGRATING in one at the target, Redis
//!    7.0.15 turns a slot around with all of its keys served. Nobody owns the slot between the two, though, and who takes it then has
//!    no mark: that end is not planned for, so it is not done.) So a target that takes no more is left
//!    as it is, with both marks: all keys are served where they are. What is closed again then is what nothing of has moved (`close`),
//!    and what has arrived whole is handed over. If the slot shall stay where it was, the planner makes room at the target by what else
//!    it is to give back, finishes the slot, and moves it back whole.
//!
//! 8. Replicas: a key that moves is deleted at the source's primary and its replicas, and the target's have it only a moment later. So the
//!    next exchange but one is sent, and a slot handed over, only when the linked replicas of both ends have acknowledged what was sent
//!    (`replicas`): whichever primary dies, not more than two exchanges are lost, or are there twice. (Two and not one, so that nobody waits
//!    while the first is acknowledged.) A replica that does not follow holds the move; the next call begins by waiting for it, whoever made the
//!    one before.
//!
//! 9. A MIGRATE that comes late: what may, and what then waits, stands in `late`.
//!
//! After a crash anywhere nothing is needed but what the nodes themselves show: marks are set again where they are
//! missing, keys at the source are moved, empty slots are handed over, handed-over slots are announced again.

mod flow;
mod functions;
mod joined;
mod keys;
mod late;
mod pace;
mod proof;
mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use plan::{NodeId, Open, SlotSet};
use resp::{Command, Connection, Role, nodes};
use types::engine::Engine;

use super::nodes::slots_of;
use crate::lease::Guard;
use crate::redis::{self, Access, Error as RedisError};
use crate::resolve::Moving;

use flow::Flow;
pub use functions::Unlike;
pub use keys::BigKey;
use keys::{Ends, Round, Stream};
pub use pace::Bucket;
pub use replicas::Behind;
use replicas::Replicas;

/// Slots handed over at once: often enough that clients are not redirected twice for long, seldom enough that the
/// bus is not busy with ownership.
const HAND_OVER: usize = 64;
/// Slots closed at once: their keys are out of reach for two exchanges.
const CLOSED_AT_ONCE: usize = 32;
/// Why slots did not move.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A precondition does not hold; nothing was sent.
    #[error("not moved: {0}")]
    Precondition(String),
    /// The lease ran out.
    #[error("stopped moving: this controller does not hold the lease")]
    NotLeading,
    /// A node failed, or refused.
    #[error("moving slots: {0}")]
    Node(#[from] RedisError),
    /// The source could not hand keys to the target.
    #[error("the source could not hand keys of slot {slot} to the target: {text}")]
    Migrate {
        /// The slot.
        slot: u16,
        /// Redis' words.
        text: String,
    },
    /// The target owns no slot, and cannot run what those can who own some: no key of it moves.
    #[error("function library {library}: {why}")]
    Library {
        /// Its name.
        library: String,
        /// What is in the way.
        why: Unlike,
    },
}

/// One end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its identity.
    pub id: NodeId,
    /// Where it is.
    pub address: SocketAddr,
}

/// What to move, and between whom.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The owner.
    pub from: End,
    /// The new owner.
    pub to: End,
    /// The slots.
    pub slots: &'a SlotSet,
    /// All other primaries: they are told, too.
    pub others: &'a [End],
    /// Members of the owner's shard that may still do what they were once told: not known to have ended, and silent, or owning a slot of these.
    pub unproven: &'a [NodeId],
    /// Whom the target waits for before its first slot; `None`: its disk has each write.
    pub joining: Option<Joining<'a>>,
    /// What they are.
    pub engine: Engine,
    /// cluster-node-timeout: no command may block a node for a large part of it.
    pub node_timeout: Duration,
    /// Limits the user set.
    pub moving: Moving,
}

/// Members of the target's shard that are to have a copy of what it gets.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// Somebody was seen who will have one: the target itself hears of that a second or two later.
    pub is_seen: bool,
    /// Those that are to go: what they have does not count, and nobody waits for them.
    pub leaving: &'a [NodeId],
}

/// What was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Slots handed over.
    pub slots: SlotSet,
    /// Keys moved.
    pub keys: u64,
    /// Their size, by the source's estimate.
    pub bytes: u64,
    /// Keys found at both ends whose copy at the target was replaced.
    pub replaced: u64,
    /// Keys too large to be moved; their slots stay.
    pub refused: Vec<BigKey>,
    /// A replica that the move waits for.
    pub held: Option<Behind>,
    /// A former owner that the move waits for.
    pub former: Option<NodeId>,
    /// It waits for a first replica of the target.
    pub alone: Option<Alone>,
}

/// What came of the wait for a first replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// One has joined; since then nobody has looked at the rest.
    NoMore,
    /// None is in sync.
    Still,
}

impl Moved {
    fn add(&mut self, round: Round) {
        self.keys = self.keys.saturating_add(round.keys);
        self.bytes = self.bytes.saturating_add(round.bytes);
        self.replaced = self.replaced.saturating_add(round.replaced);
        self.refused.extend(round.refused);
    }
}

/// Moves slots until all are handed over, the time slice is used up, or a replica does not follow.
///
/// # Errors
/// At the first thing that fails. What was done stays done; the next call goes on from there.
pub async fn migrate(order: Move<'_>, access: &Access, guard: &Guard, bucket: &Mutex<Bucket>) -> Result<Moved, Error> {
    let mut ends = open(order, access).await?;
    claim_would_count(&mut ends).await?;
    let mut replicas = Replicas::open(order, access).await?;
    let tables = tables(&mut ends, order).await?;
    has_an_epoch_of_its_own(&tables, order, access).await?;
    share_claims(&tables, order)?;
    let sorted = sort(&tables, order)?;
    let mut moved = Moved::default();
    announce(&mut ends, order, access, guard, &sorted.handed_over, &mut moved).await?;
    if sorted.to_move.is_empty() {
        return Ok(moved);
    }
    moved.alone = joined::alone(&mut ends, order, guard, &sorted).await?;
    if moved.alone.is_some() {
        return Ok(moved);
    }
    // What has moved of a slot is served by its marks only, whatever the rest of it waits for.
    set_marks(&mut ends, order, guard, &sorted.begun).await?;
    moved.former = sorted.former;
    if moved.former.is_some() {
        return Ok(moved);
    }
    // Whoever moved keys before us may have been held.
    moved.held = replicas.follow().await?;
    if moved.held.is_some() {
        return Ok(moved);
    }
    if sorted.is_first {
        functions::bring(&mut ends, order, access, guard).await?;
    }
    set_marks(&mut ends, order, guard, &sorted.whole).await?;
    proof::nothing_is_left_on_its_way(&mut ends, order).await?;
    let stream = Stream::new(&sorted.to_move, order.moving, order.node_timeout, access.credentials().clone());
    let mut flow = Flow::new(stream, replicas, moved);
    let refusal = flow.run(&mut ends, order, access, guard, bucket).await?;
    let mut moved = flow.moved;
    if let Some(refusal) = refusal {
        let left = |slot: &u16| !moved.slots.contains(*slot);
        let left: Vec<u16> = sorted.to_move.iter().copied().filter(left).collect();
        leave_off(&mut ends, order, access, guard, &left, &mut moved).await?;
        return Err(refusal);
    }
    let refused: BTreeSet<u16> = moved.refused.iter().map(|key| key.slot).collect();
    close(&mut ends, order, guard, &refused.into_iter().collect::<Vec<_>>()).await?;
    Ok(moved)
}

/// Marks slots that are half moved, and moves nothing. Whoever is elected in the place of a giver has no marks: what has left is missing there for
/// clients, who make it anew, and that would be put over what has arrived. So nothing is waited for.
///
/// # Errors
/// At the first thing that fails.
pub async fn mark(order: Move<'_>, access: &Access, guard: &Guard) -> Result<(), Error> {
    let mut ends = open(order, access).await?;
    let tables = tables(&mut ends, order).await?;
    share_claims(&tables, order)?;
    let sorted = sort(&tables, order)?;
    set_marks(&mut ends, order, guard, &sorted.begun).await?;
    set_marks(&mut ends, order, guard, &sorted.whole).await
}

/// The target takes no more (it is out of memory, as a rule), and nobody knows for how long. What has arrived whole is handed over,
/// which takes no memory, unless a replica lacks it; and what has not begun is closed: a new key of an open slot would be sent to the
/// target, and refused there.
async fn leave_off(
    ends: &mut Ends,
    order: Move<'_>,
    access: &Access,
    guard: &Guard,
    slots: &[u16],
    moved: &mut Moved,
) -> Result<(), Error> {
    let begun = close(ends, order, guard, slots).await?;
    if moved.held.is_some() {
        return Ok(());
    }
    hand_over(ends, order, access, guard, &begun, moved).await
}

/// Connections to both ends, their identities checked, both primaries.
async fn open(order: Move<'_>, access: &Access) -> Result<Ends, Error> {
    let (source, target) = tokio::try_join!(
        access.open_node(order.from.address, order.from.id),
        access.open_node(order.to.address, order.to.id)
    )?;
    let mut ends = Ends {
        source,
        target,
        to: order.to.address,
        more_source: access.open_abreast(order.engine, order.from.address, order.from.id).await?,
        more_target: access.open_abreast(order.engine, order.to.address, order.to.id).await?,
    };
    are_primaries(&mut ends).await?;
    Ok(ends)
}

async fn are_primaries(ends: &mut Ends) -> Result<(), Error> {
    for (name, connection) in [("source", &mut ends.source), ("target", &mut ends.target)] {
        if !matches!(connection.role().await.map_err(RedisError::from)?, Role::Primary { .. }) {
            return Err(Error::Precondition(format!("the {name} is not a primary")));
        }
    }
    Ok(())
}

/// Both have a majority behind them (one that is cut off may have been replaced), and the target's next epoch will be above the
/// source's: else gossip would take the slots away again, with their keys.
async fn claim_would_count(ends: &mut Ends) -> Result<(), Error> {
    let source = ends.source.cluster_info().await.map_err(RedisError::from)?;
    let target = ends.target.cluster_info().await.map_err(RedisError::from)?;
    if !source.ok || !target.ok {
        return Err(Error::Precondition("an end of the move does not report the cluster as ok".to_owned()));
    }
    if target.current_epoch < source.my_epoch {
        let (heard, epoch) = (target.current_epoch, source.my_epoch);
        return Err(Error::Precondition(format!("the target has heard of epoch {heard}, the source is at {epoch}")));
    }
    if target.my_epoch == source.my_epoch {
        return Err(Error::Precondition(format!(
            "both ends have the epoch {}, one of them will change it",
            source.my_epoch
        )));
    }
    Ok(())
}

/// The slots, by how far they are.
struct Sorted {
    /// Already owned by the target, in its own table.
    handed_over: Vec<u16>,
    /// Owned by the source.
    to_move: Vec<u16>,
    /// What is missing of those with a mark at one end at least.
    begun: Unmarked,
    /// And of all others.
    whole: Unmarked,
    /// Somebody who may have begun to hand one of them over, and may still go on with it.
    former: Option<NodeId>,
    /// The target owns no slot yet.
    is_first: bool,
    /// The source sends clients on already.
    is_sent: bool,
}

impl Sorted {
    /// In the target's table it belongs to somebody else, or to nobody.
    fn is_misplaced(&self, slot: u16) -> bool {
        self.begun.misplaced.contains(&slot) || self.whole.misplaced.contains(&slot)
    }
}

/// Slots that lack something for clients to be sent to where each key is.
#[derive(Default)]
struct Unmarked {
    /// Those without the right mark on the target.
    target: Vec<u16>,
    /// Those without the right mark on the source.
    source: Vec<u16>,
    /// Those that in the target's table belong to somebody else, or to nobody.
    misplaced: Vec<u16>,
}

/// What both ends say, the source first.
async fn tables(ends: &mut Ends, order: Move<'_>) -> Result<[Table; 2], Error> {
    Ok([table(&mut ends.source, order.to.id).await?, table(&mut ends.target, order.from.id).await?])
}

/// Nobody else has the source's epoch: one of the two would get a new one.
async fn has_an_epoch_of_its_own([source, target]: &[Table; 2], order: Move<'_>, access: &Access) -> Result<(), Error> {
    // Its own line is right about itself. That the target has another one it has said itself.
    let epoch = source.epochs.get(&order.from.id).copied();
    let equals = source.epochs.iter().chain(&target.epochs).filter(|(_, of)| Some(**of) == epoch).map(|(id, _)| *id);
    let rivals: BTreeSet<NodeId> = equals.filter(|id| ![order.from.id, order.to.id].contains(id)).collect();
    for other in rivals {
        if !has_another_epoch(order, access, other, epoch).await {
            let why = format!(
                "{other} has the same epoch as the source, which will raise one of them above the target's claim"
            );
            return Err(Error::Precondition(why));
        }
    }
    Ok(())
}

/// Neither end claims what the other one does not take for its own: else somebody has taken its place, it has not been told yet, and the epoch of a
/// move would set it above its successor. Pure.
fn share_claims([source, target]: &[Table; 2], order: Move<'_>) -> Result<(), Error> {
    for (name, end, other) in [("source", source, target), ("target", target, source)] {
        // Whose a slot is that it imports, a node does not hear.
        let unheard = other.importing();
        let alone = end.mine.difference(order.slots).difference(&other.theirs).difference(&unheard);
        if !alone.is_empty() {
            let why = format!("the {name} claims {} slots that the other end does not take for its own", alone.len());
            return Err(Error::Precondition(why));
        }
    }
    Ok(())
}

/// A slot of a third owner is a precondition that does not hold. Pure.
fn sort([source, target]: &[Table; 2], order: Move<'_>) -> Result<Sorted, Error> {
    let mut sorted = Sorted {
        handed_over: Vec::new(),
        to_move: Vec::new(),
        begun: Unmarked::default(),
        whole: Unmarked::default(),
        former: late::former(order.unproven, [source, target]),
        is_first: target.mine.is_empty(),
        is_sent: order.slots.iter().any(|slot| source.open.contains_key(&slot)),
    };
    for slot in order.slots.iter() {
        if target.mine.contains(slot) {
            sorted.handed_over.push(slot);
        } else if source.mine.contains(slot) {
            sorted.to_move.push(slot);
            let is_begun = source.open.contains_key(&slot) || target.open.contains_key(&slot);
            let unmarked = if is_begun { &mut sorted.begun } else { &mut sorted.whole };
            if !target.theirs.contains(slot) {
                unmarked.misplaced.push(slot);
            }
            if target.open.get(&slot) != Some(&Open::Importing(order.from.id)) {
                unmarked.target.push(slot);
            }
            if source.open.get(&slot) != Some(&Open::Migrating(order.to.id)) {
                unmarked.source.push(slot);
            }
        } else {
            return Err(Error::Precondition(format!("slot {slot} is owned by neither end of the move")));
        }
    }
    Ok(sorted)
}

/// What tables say of a node may be the epoch of another one that answered at its address (`getNodeFromLinkAndMsg`); it is asked itself.
async fn has_another_epoch(order: Move<'_>, access: &Access, rival: NodeId, epoch: Option<u64>) -> bool {
    let Some(end) = order.others.iter().find(|end| end.id == rival) else { return false };
    let Ok(mut connection) = access.open_node(end.address, end.id).await else { return false };
    connection.cluster_info().await.is_ok_and(|view| Some(view.my_epoch) != epoch)
}

/// What one end says about itself and about the other.
struct Table {
    mine: SlotSet,
    theirs: SlotSet,
    /// The configuration epochs of primaries within reach: of two with the same one, Redis gives one a new one as soon as they talk
    /// (`clusterHandleConfigEpochCollision`).
    epochs: BTreeMap<NodeId, u64>,
    /// Who is a primary, with slots or without.
    primaries: BTreeSet<NodeId>,
    open: BTreeMap<u16, Open>,
}

impl Table {
    fn importing(&self) -> SlotSet {
        let marks = self.open.iter().filter(|(_, open)| matches!(open, Open::Importing(_)));
        marks.map(|(slot, _)| *slot).collect()
    }
}

async fn table(connection: &mut Connection, other: NodeId) -> Result<Table, Error> {
    let lines = connection.cluster_nodes().await.map_err(RedisError::from)?;
    let id = |node: &nodes::NodeId| NodeId::parse(node.as_str());
    let theirs = lines.iter().find(|node| id(&node.id) == Some(other)).map(slots_of).unwrap_or_default();
    let speaking = lines.iter().filter(|node| node.flags.primary && node.connected && !node.flags.failed);
    let epochs = speaking.filter_map(|node| Some((id(&node.id)?, node.config_epoch))).collect();
    let primaries = lines.iter().filter(|node| node.flags.primary).filter_map(|node| id(&node.id)).collect();
    let mut table = Table { mine: SlotSet::EMPTY, theirs, epochs, primaries, open: BTreeMap::new() };
    for node in lines.iter().filter(|node| node.flags.myself) {
        table.mine = slots_of(node);
        let migrating = node.migrating.iter().filter_map(|(slot, to)| Some((*slot, Open::Migrating(id(to)?))));
        let importing = node.importing.iter().filter_map(|(slot, from)| Some((*slot, Open::Importing(id(from)?))));
        table.open.extend(migrating.chain(importing));
    }
    Ok(table)
}

/// Marks what is not marked yet: the target first, but where the source has taken the place of another.
async fn set_marks(ends: &mut Ends, order: Move<'_>, guard: &Guard, unmarked: &Unmarked) -> Result<(), Error> {
    leading(guard)?;
    let left_behind = set_slot(&unmarked.misplaced, "MIGRATING", order.to.id);
    redis::set_slots(&mut ends.source, &mut ends.more_source, &left_behind).await?;
    leading(guard)?;
    let placed = set_slot(&unmarked.misplaced, "NODE", order.from.id);
    redis::set_slots(&mut ends.target, &mut ends.more_target, &placed).await?;
    leading(guard)?;
    let importing = set_slot(&unmarked.target, "IMPORTING", order.from.id);
    redis::set_slots(&mut ends.target, &mut ends.more_target, &importing).await?;
    leading(guard)?;
    let migrating = set_slot(&unmarked.source, "MIGRATING", order.to.id);
    redis::set_slots(&mut ends.source, &mut ends.more_source, &migrating).await?;
    Ok(())
}

fn set_slot(slots: &[u16], what: &str, id: NodeId) -> Vec<Command> {
    let command = |slot: &u16| Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), what, &id.to_string()]);
    slots.iter().map(command).collect()
}

fn leading(guard: &Guard) -> Result<(), Error> {
    if guard.is_valid() { Ok(()) } else { Err(Error::NotLeading) }
}

/// Hands over slots that the source itself counts as empty.
async fn hand_over(
    ends: &mut Ends,
    order: Move<'_>,
    access: &Access,
    guard: &Guard,
    empty: &[u16],
    moved: &mut Moved,
) -> Result<(), Error> {
    if empty.is_empty() {
        return Ok(());
    }
    let begun = Instant::now();
    // At once: where both are far away, one after the other would take too long each time.
    let (there, truly_empty) =
        tokio::join!(proof::is_there(&mut ends.target), empty_at_a_primary(&mut ends.source, empty));
    there?;
    let truly_empty = truly_empty?;
    // One that stood still meanwhile may have been replaced: as it wakes up, it answers before it hears of that.
    if !proof::is_young(begun.elapsed(), order.node_timeout) {
        return Err(Error::Precondition(
            "the ends took too long to say that the slots are empty and theirs".to_owned(),
        ));
    }
    let taking = set_slot(&truly_empty, "NODE", order.to.id);
    leading(guard)?;
    redis::set_slots(&mut ends.target, &mut ends.more_target, &taking).await?;
    announce(ends, order, access, guard, &truly_empty, moved).await
}

/// Slots of these without keys, as a primary says. What it is it says last, and in one answer with the counts: a source that is a replica by then
/// counts for nobody, for its heir has the slots, unmarked, and may have got keys of them.
async fn empty_at_a_primary(source: &mut Connection, slots: &[u16]) -> Result<Vec<u16>, Error> {
    let count = |slot: &u16| Command::new("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot.to_string());
    let asked: Vec<Command> = slots.iter().map(count).chain([Command::new("ROLE")]).collect();
    let replies = redis::all_in_turns(source, &asked).await?;
    if !matches!(replies.last().map(Role::parse), Some(Ok(Role::Primary { .. }))) {
        return Err(Error::Precondition("the source is not a primary".to_owned()));
    }
    let empty = slots.iter().zip(&replies).filter(|(_, keys)| keys.integer() == Some(0));
    Ok(empty.map(|(slot, _)| *slot).collect())
}

/// Tells the source and then everybody else whose these slots are. The target has said so already.
async fn announce(
    ends: &mut Ends,
    order: Move<'_>,
    access: &Access,
    guard: &Guard,
    slots: &[u16],
    moved: &mut Moved,
) -> Result<(), Error> {
    if slots.is_empty() {
        return Ok(());
    }
    leading(guard)?;
    let commands = set_slot(slots, "NODE", order.to.id);
    redis::set_slots(&mut ends.source, &mut ends.more_source, &commands).await?;
    slots.iter().for_each(|slot| moved.slots.insert(*slot));
    leading(guard)?;
    let tell = order.others.iter().map(|other| {
        let commands = &commands;
        async move {
            let told = async {
                let mut connection = access.open_node(other.address, other.id).await?;
                let mut more = access.open_abreast(order.engine, other.address, other.id).await?;
                redis::set_slots(&mut connection, &mut more, commands).await
            };
            // They would hear it by gossip: a node that cannot be told now does not hold up the move.
            if let Err(error) = told.await {
                tracing::debug!(address = %other.address, error = %crate::chain(&error), "not told about moved slots");
            }
        }
    });
    futures::future::join_all(tell).await;
    Ok(())
}

/// Closes slots of which nothing has moved; gives those of which something has, which stay as they are.
///
/// Whoever asks for a key that the source does not have is sent to and fro while a slot is closed at the target only, so no slot is of
/// which the target has keys. Where it has none, it is closed there first and counted once more: from then on nobody who is sent there is
/// served, so that count stays true until the source sends nobody any more. A key that was created between the two counts would be out of
/// sight: its slot is opened again.
async fn close(ends: &mut Ends, order: Move<'_>, guard: &Guard, slots: &[u16]) -> Result<Vec<u16>, Error> {
    let stable = |slots: &[u16]| -> Vec<Command> {
        let command = |slot: &u16| Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), "STABLE"]);
        slots.iter().map(command).collect()
    };
    let mut begun = Vec::new();
    // Few at a time, so that nobody is sent to and fro for long.
    for slots in slots.chunks(CLOSED_AT_ONCE) {
        let (bare, moved) = by_keys(&mut ends.target, slots).await?;
        begun.extend(moved);
        leading(guard)?;
        redis::set_slots(&mut ends.target, &mut ends.more_target, &stable(&bare)).await?;
        let (here, there) = by_keys(&mut ends.target, &bare).await?;
        leading(guard)?;
        let again = set_slot(&there, "IMPORTING", order.from.id);
        redis::set_slots(&mut ends.target, &mut ends.more_target, &again).await?;
        leading(guard)?;
        redis::set_slots(&mut ends.source, &mut ends.more_source, &stable(&here)).await?;
        begun.extend(there);
    }
    Ok(begun)
}

/// Slots without keys at this end, and those with some.
async fn by_keys(end: &mut Connection, slots: &[u16]) -> Result<(Vec<u16>, Vec<u16>), Error> {
    let count = |slot: &u16| Command::new("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot.to_string());
    let counts = redis::all_in_turns(end, &slots.iter().map(count).collect::<Vec<_>>()).await?;
    let (bare, held): (Vec<_>, Vec<_>) = slots.iter().zip(&counts).partition(|(_, keys)| keys.integer() == Some(0));
    let slots = |some: Vec<(&u16, &resp::Reply)>| some.into_iter().map(|(slot, _)| *slot).collect();
    Ok((slots(bare), slots(held)))
}
