//! One attempt to have a replica take over, from the first question to how it ended. I/O.

use std::time::Duration;

use resp::{Command, Connection, Error, Node, NodeId, Role, bus};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Limits, PATIENCE_LOOK, behind, heirs::Heir};
use crate::{local::Local, peers::Asker};

/// How long one replica has to take over; Redis itself gives up after 5 s.
const TAKE_OVER: Duration = Duration::from_millis(5200);
/// An order is followed for so long at most: its answer may take 3 s, the replica gives up after 5 s, and the rest is for the last look.
pub(super) const FOLLOWED: Duration = Duration::from_secs(10);
/// How often the own role is looked at meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How long it waits for slots that are half moved: what is left is marked at the heir, and the pod may have less time than it was made with
/// (a node that shuts down, an eviction).
pub(super) const MOVES: Duration = Duration::from_secs(10);

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// This member is a replica now.
    TookOver,
    /// Nobody answers for the replica: no order was given.
    Silent {
        /// What was found instead.
        why: String,
    },
    /// Somebody answers, and it is not to be asked: it stops itself, or is another member. No order was given.
    Declined {
        /// What was found.
        why: String,
    },
    /// What it would load after a crash stayed older than what it has in memory: no order was given.
    Behind {
        /// Why, as a clause.
        why: &'static str,
    },
    /// No order was given: what follows one would have outlasted the time for it.
    Late,
    /// The own Redis did not answer, before the order or after it.
    Deaf {
        /// Why.
        why: String,
    },
    /// It did not take the order.
    Refused {
        /// In its words.
        why: String,
    },
    /// It stopped answering after the order.
    Lost,
    /// It took the order and has let it expire.
    Expired,
}

impl Attempt {
    /// Whether somebody else is to be asked first, if there is anybody: the same would happen again.
    pub(super) fn is_likely_to_repeat(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Declined { .. } | Self::Behind { .. } | Self::Refused { .. } | Self::Lost => {
                true
            }
            // It was slow, or those who vote were: another one gets no other votes.
            Self::Expired | Self::Late | Self::Deaf { .. } | Self::TookOver => false,
        }
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TookOver => f.write_str("it took over"),
            Self::Silent { why } | Self::Declined { why } => write!(f, "it was not asked to take over: {why}"),
            Self::Behind { why } => write!(f, "it was not asked to take over: {why}"),
            Self::Late => f.write_str("the rest of the grace period is too short for it"),
            Self::Deaf { why } => write!(f, "the own Redis did not answer: {why}"),
            Self::Refused { why } => write!(f, "it refused to take over: {why}"),
            Self::Lost => f.write_str("it stopped answering before it took over"),
            Self::Expired => write!(f, "it was asked to take over and did not within {} ms", TAKE_OVER.as_millis()),
        }
    }
}

/// One attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    pub id: NodeId,
    pub end: Attempt,
    /// When it was ordered, if it may have heard that.
    pub ordered: Option<Instant>,
    pub over: Instant,
    /// What is half moved and not yet marked at the heir; `None`: it was not looked at.
    pub marks: Option<Vec<Command>>,
}

/// Marks that the last attempt has left. Pure.
pub(super) fn last_marks(tried: &[Tried]) -> &[Command] {
    tried.iter().rev().find_map(|tried| tried.marks.as_deref()).unwrap_or_default()
}

/// Prepares one replica, gives it the order, and follows that to its end.
pub(super) async fn attempt(
    (local, own): (&Local, &mut Connection),
    asker: &Asker,
    heir: &Heir,
    limits: Limits,
) -> Tried {
    let prepared = async {
        let mut replica = asker.open_lasting(&heir.id, heir.address).await.map_err(|error| {
            let why = error.to_string();
            if error.is_answer() { Attempt::Declined { why } } else { Attempt::Silent { why } }
        })?;
        on_disk(await_disk(&mut replica, local.logs_writes(), limits.disks).await, limits.needs_disk)?;
        // The last thing before the order: a move may have begun meanwhile.
        let marks = await_moves(own, limits.waits).await.map_err(|error| Attempt::Deaf { why: error.to_string() })?;
        Ok::<_, Attempt>((replica, marks))
    };
    let tried = |end, ordered, marks| Tried { id: heir.id.clone(), end, ordered, over: Instant::now(), marks };
    match timeout_at(limits.orders, prepared).await {
        Ok(Ok((replica, mut marks))) => {
            let ordered = Instant::now();
            let end = order(own, replica, &heir.id, &mut marks).await;
            let is_heard = !matches!(end, Attempt::Refused { .. });
            tried(end, is_heard.then_some(ordered), Some(marks))
        }
        Ok(Err(end)) => tried(end, None, None),
        Err(_) => tried(Attempt::Late, None, None),
    }
}

/// Gives the order and follows it until the own role has changed; whatever is slow, it is over after [`FOLLOWED`]. A replica that was told goes
/// on by itself.
async fn order(own: &mut Connection, replica: Connection, id: &NodeId, marks: &mut Vec<Command>) -> Attempt {
    timeout(FOLLOWED, follow(own, replica, id, marks)).await.unwrap_or(Attempt::Expired)
}

async fn follow(own: &mut Connection, mut replica: Connection, id: &NodeId, marks: &mut Vec<Command>) -> Attempt {
    let is_taken = match replica.call(&["CLUSTER", "FAILOVER"]).await {
        Ok(_) => true,
        Err(error) if error.refusal().is_some() => return Attempt::Refused { why: error.to_string() },
        // It may have heard the order all the same: what follows from that shows at the own Redis.
        Err(_) => false,
    };
    let (began, mut won) = (Instant::now(), false);
    while began.elapsed() < TAKE_OVER {
        // It is asked first: the marks are due before its clients come.
        let theirs = replica.role().await;
        if !won && matches!(theirs, Ok(Role::Primary { .. })) {
            won = true;
            mark(&mut replica, id, marks).await;
            // Only the news has to arrive. Without the push it does, too, 40 ms later.
            let _ = bus::push(&mut replica).await;
        }
        // A reply that cannot be had now (writes are paused, reads are not) is asked for again until time is up.
        if let Ok(Role::Replica { .. }) = own.role().await {
            if !won {
                mark(&mut replica, id, marks).await;
            }
            return Attempt::TookOver;
        }
        if own.is_broken() {
            return Attempt::Deaf { why: "its connection broke after the order".to_owned() };
        }
        // When all members stop at once the candidate may be gone already; there is then nothing to wait for.
        if is_taken && theirs.is_err() && replica.is_broken() {
            return Attempt::Lost;
        }
        sleep(LOOK_AGAIN).await;
    }
    if is_taken { Attempt::Expired } else { Attempt::Lost }
}

/// Waits until no slot of this member is half moved, for a while; gives the marks that are left.
///
/// A replica knows nothing of its primary's marks (Redis 7 and 8 keep them in the primary's own table). Promoted, it would answer that
/// the keys which have moved already do not exist, and take new ones in their place, which the end of the move then puts in place of
/// the old. So whoever moves the slot finishes it first; what is still open when time is up is marked again at the heir.
async fn await_moves(own: &mut Connection, patience: Instant) -> Result<Vec<Command>, Error> {
    let patience = patience.min(Instant::now() + MOVES);
    loop {
        let marks = marks(&own.cluster_nodes().await?);
        if marks.is_empty() || Instant::now() >= patience {
            return Ok(marks);
        }
        sleep(PATIENCE_LOOK).await;
    }
}

/// CLUSTER SETSLOT with the marks of this member's half-moved slots. Pure.
pub(super) fn marks(table: &[Node]) -> Vec<Command> {
    let mine = table.iter().filter(|node| node.flags.myself);
    mine.flat_map(|node| set(&node.migrating, "MIGRATING").chain(imports(&node.importing))).collect()
}

/// The same of slots that are on their way to a member. Pure.
pub(crate) fn imports(importing: &[(u16, NodeId)]) -> impl Iterator<Item = Command> + '_ {
    set(importing, "IMPORTING")
}

fn set<'a>(marks: &'a [(u16, NodeId)], what: &'static str) -> impl Iterator<Item = Command> + use<'a> {
    marks.iter().map(move |(slot, id)| Command::new("CLUSTER").args(["SETSLOT", &slot.to_string(), what, id.as_str()]))
}

/// Marks at the heir what was half moved. What cannot be marked here, the controller marks when it sees the slot's keys at two places.
/// Those stay that it did not hear.
pub(crate) async fn mark(heir: &mut Connection, id: &NodeId, marks: &mut Vec<Command>) {
    while let Some(command) = marks.last() {
        if let Err(error) = heir.command(command).await {
            tracing::warn!(%id, %error, "a half-moved slot could not be marked at the new primary");
            if heir.is_broken() {
                return;
            }
        }
        marks.pop();
    }
}

/// The same at one that took over after it had been given up, or whose connection broke.
pub(super) async fn mark_late(asker: &Asker, heir: &Heir, marks: &[Command]) {
    match asker.open(&heir.id, heir.address).await {
        Ok(mut connection) => mark(&mut connection, &heir.id, &mut marks.to_vec()).await,
        Err(error) => tracing::warn!(id = %heir.id, %error, "half-moved slots could not be marked at the new primary"),
    }
}

/// Whether the wait for a replica's disk lets it be ordered: where the disk here ends with the pod, a replica with an older one is all there will
/// be. Pure.
pub(super) fn on_disk(waited: Result<(), Attempt>, needs_disk: bool) -> Result<(), Attempt> {
    match waited {
        Err(Attempt::Behind { .. }) if !needs_disk => Ok(()),
        waited => waited,
    }
}

/// Waits until what a member would load after a crash is what it has in memory: until its append-only file is written anew after a
/// full synchronisation, or first after a start from a snapshot, the former files count (`AOF_WAIT_REWRITE`).
async fn await_disk(member: &mut Connection, is_wanted: bool, patience: Instant) -> Result<(), Attempt> {
    loop {
        let info = member.info(&["persistence"]).await.map_err(|error| Attempt::Silent { why: error.to_string() })?;
        match behind(&info, is_wanted) {
            None => return Ok(()),
            Some(why) if Instant::now() >= patience => return Err(Attempt::Behind { why }),
            Some(_) => sleep(PATIENCE_LOOK).await,
        }
    }
}
