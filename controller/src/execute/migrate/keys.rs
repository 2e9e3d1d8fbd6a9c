//! The keys of the slots of a move, streamed through three stages on one connection to the source.
//!
//! Every exchange carries the MIGRATEs of keys whose size is known, the size questions of keys whose name is known, and
//! the name questions of the next slots: one round trip for three stages. Sizes are asked of every key, because one
//! large key among a million small ones would block both ends for seconds.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use resp::{Command, Connection, Credentials, Reply};

use super::pace::{BYTES_MOST, Bucket, Budget};
use super::{Error, Move, leading, proof};
use crate::lease::Guard;
use crate::redis::{self, Error as RedisError};
use crate::resolve::Moving;

/// Keys asked for in one exchange, of all its slots together: names of clients may have 128 KB, and they are held.
const NAMES: usize = 1000;
/// Slots whose names are asked for in one exchange.
const SLOTS_AHEAD: usize = 64;
/// Keys whose names are held, and their bytes, beyond which no more are asked for.
const HELD: usize = 4000;
const HELD_BYTES: usize = 8 << 20;
/// Second attempts of one batch before the move is given up for this round.
const ATTEMPTS: u8 = 4;
/// Least and most that an exchange may take: stalls of seconds end no move, and nobody waits for minutes.
const DEADLINE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// For how long an end of a move is waited for, which answers nobody while it hands keys over. One that is blocked for longer than the node timeout
/// is failed for the others, and meanwhile nothing else is done for its cluster.
pub(super) fn deadline(node_timeout: Duration) -> Duration {
    node_timeout.clamp(DEADLINE.0, DEADLINE.1)
}

/// Connections to both ends of a move.
pub(super) struct Ends {
    pub(super) source: Connection,
    pub(super) target: Connection,
    pub(super) to: SocketAddr,
    /// For what is said of many slots.
    pub(super) more_source: redis::Abreast,
    pub(super) more_target: redis::Abreast,
}

/// A key that is too large to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// Its slot.
    pub slot: u16,
    /// Its size, by Redis' estimate.
    pub bytes: u64,
    /// The limit.
    pub most: u64,
}

/// What one exchange did.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) replaced: u64,
    /// Slots in which the source has no key left.
    pub(super) empty: Vec<u16>,
    pub(super) refused: Vec<BigKey>,
    /// What was handed to the target, whether or not all of it arrived.
    pub(super) sent: Sent,
}

/// Keys that were sent and are not known to be with the replicas yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) keys: usize,
    bytes: u64,
}

impl Sent {
    fn and(self, batch: &Batch) -> Self {
        Self { keys: self.keys.saturating_add(batch.keys.len()), bytes: self.bytes.saturating_add(batch.bytes) }
    }

    /// Whether it may be sent while the exchange before it is being acknowledged: the replicas then lack two exchanges at most, or one
    /// key that is larger than an exchange.
    fn fits_beside(self, before: Self) -> bool {
        before.keys == 0 || (self.bytes <= BYTES_MOST && before.bytes <= BYTES_MOST)
    }
}

/// Keys of one slot that go in one MIGRATE.
#[derive(Clone, Debug)]
struct Batch {
    slot: u16,
    keys: Vec<Bytes>,
    bytes: u64,
    attempt: u8,
    /// The target has a copy of some of them.
    replace: bool,
}

/// What is known of a slot that is under way.
#[derive(Debug, Default)]
struct Slot {
    /// Named keys whose size is not known yet.
    named: VecDeque<Bytes>,
    /// Keys asked for or sent and not answered, and those in batches.
    under_way: usize,
    /// The last answer held all names there were.
    complete: bool,
    /// A key of it is too large.
    refused: bool,
}

/// The keys of a move.
pub(super) struct Stream {
    waiting: VecDeque<u16>,
    slots: BTreeMap<u16, Slot>,
    ready: VecDeque<Batch>,
    budget: Budget,
    moving: Moving,
    /// Keys of a slot, learned from the answers; tells how many slots to ask about.
    per_slot: usize,
    /// The source keeps the connection to the target over which it sent the last keys.
    linked: bool,
    /// How long one MIGRATE may wait for the target: a fraction of the node timeout, for the source serves nobody else.
    patience: Duration,
    credentials: Credentials,
}

/// What was asked, in the order of the replies.
enum Asked {
    Migrate(Batch),
    Size(u16, Bytes),
    /// At most so many.
    Names(u16, usize),
}

impl Stream {
    pub(super) fn new(slots: &[u16], moving: Moving, node_timeout: Duration, credentials: Credentials) -> Self {
        Self {
            waiting: slots.iter().copied().collect(),
            slots: BTreeMap::new(),
            ready: VecDeque::new(),
            budget: Budget::default(),
            moving,
            per_slot: NAMES / 4,
            linked: false,
            patience: (node_timeout / 2).clamp(Duration::from_millis(250), Duration::from_secs(5)),
            credentials,
        }
    }

    /// Begins no further slot; those under way are finished.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
    }

    /// One exchange with the source, while `before` is being acknowledged; `None` when nothing is left.
    pub(super) async fn round(
        &mut self,
        ends: &mut Ends,
        order: Move<'_>,
        guard: &Guard,
        bucket: &Mutex<Bucket>,
        before: Sent,
    ) -> Result<Option<Round>, Error> {
        let (asked, sent) = self.next_exchange(before);
        if asked.is_empty() {
            // What is ready may only not go yet.
            return Ok((!self.ready.is_empty()).then(Round::default));
        }
        let wait = self.wait(bucket);
        // Even a sleep of nothing takes a tick of the timer, a millisecond: a quarter of an exchange.
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.prove(ends, order, &asked).await?;
        leading(guard)?;
        ends.source.set_deadline(deadline(order.node_timeout));
        let commands: Vec<Command> = asked.iter().map(|asked| self.command(asked, ends.to)).collect();
        let begun = Instant::now();
        let replies = ends.source.pipeline(&commands).await.map_err(RedisError::from)?;
        self.learn(&asked, begun.elapsed());
        let mut round = Round { sent, ..Round::default() };
        for (asked, reply) in asked.into_iter().zip(replies) {
            self.take_in(asked, reply, ends.source.address(), &mut round)?;
        }
        locked(bucket).spend(round.bytes, Instant::now());
        self.collect_empty(&mut round);
        Ok(Some(round))
    }

    /// What has to be true of both ends when keys are sent, asked after whatever the exchange has waited for.
    async fn prove(&self, ends: &mut Ends, order: Move<'_>, asked: &[Asked]) -> Result<(), Error> {
        let batches = asked.iter().filter_map(|asked| match asked {
            Asked::Migrate(batch) => Some(batch),
            Asked::Size(..) | Asked::Names(..) => None,
        });
        let batches: Vec<&Batch> = batches.collect();
        if !batches.is_empty() {
            proof::is_there(&mut ends.target).await?;
        }
        if batches.iter().any(|batch| batch.attempt > 0) {
            proof::nothing_is_on_its_way(ends, order, self.linked).await?;
        }
        let replaced: Vec<u16> = batches.iter().filter(|batch| batch.replace).map(|batch| batch.slot).collect();
        if replaced.is_empty() { Ok(()) } else { proof::are_half_moved(ends, order, &replaced).await }
    }

    /// How long the user's limit makes us wait. The limit is shared by all moves of a cluster.
    fn wait(&self, bucket: &Mutex<Bucket>) -> Duration {
        let mut bucket = locked(bucket);
        bucket.rate(self.moving.max_bytes_per_second);
        bucket.wait(Instant::now())
    }

    fn next_exchange(&mut self, before: Sent) -> (Vec<Asked>, Sent) {
        let mut asked = Vec::new();
        let sent = self.take_batches(&mut asked, before);
        let sizes = self.budget.keys().saturating_mul(2);
        for (slot, state) in &mut self.slots {
            while asked.len() < sizes
                && let Some(key) = state.named.pop_front()
            {
                state.under_way += 1;
                asked.push(Asked::Size(*slot, key));
            }
        }
        self.ask_names(&mut asked);
        (asked, sent)
    }

    /// Batches as far as the budget goes, at least one, but none that does not fit beside what is not acknowledged yet.
    fn take_batches(&mut self, asked: &mut Vec<Asked>, before: Sent) -> Sent {
        let mut sent = Sent::default();
        while let Some(batch) = self.ready.front() {
            let more = sent.and(batch);
            let fits = asked.is_empty() || (more.keys <= self.budget.keys() && more.bytes <= BYTES_MOST);
            if !fits || !more.fits_beside(before) {
                break;
            }
            sent = more;
            asked.extend(self.ready.pop_front().map(Asked::Migrate));
        }
        sent
    }

    /// Names of slots that have none left, and of new slots as long as few enough names are held.
    fn ask_names(&mut self, asked: &mut Vec<Asked>) {
        let held: usize = self.slots.values().map(|slot| slot.named.len() + slot.under_way).sum();
        let drained = |slot: &Slot| slot.named.is_empty() && slot.under_way == 0 && !slot.complete && !slot.refused;
        let mut names: Vec<u16> =
            self.slots.iter().filter(|(_, slot)| drained(slot)).map(|(number, _)| *number).collect();
        let at_once = (NAMES / self.per_slot.max(1)).clamp(1, SLOTS_AHEAD);
        names.truncate(at_once);
        let is_full = held >= HELD || self.held_bytes() >= HELD_BYTES;
        let room = if is_full { 0 } else { at_once.saturating_sub(names.len()) };
        let wanted = self.budget.keys().saturating_mul(4).saturating_sub(held).div_ceil(self.per_slot.max(1));
        for slot in self.waiting.drain(..room.min(wanted).min(self.waiting.len())) {
            self.slots.insert(slot, Slot::default());
            names.push(slot);
        }
        let each = NAMES / names.len().max(1);
        asked.extend(names.into_iter().map(|slot| Asked::Names(slot, each)));
    }

    /// Of the names that wait to be sent.
    fn held_bytes(&self) -> usize {
        let named = self.slots.values().flat_map(|slot| &slot.named);
        named.chain(self.ready.iter().flat_map(|batch| &batch.keys)).map(Bytes::len).sum()
    }

    fn command(&self, asked: &Asked, to: SocketAddr) -> Command {
        match asked {
            Asked::Names(slot, most) => {
                Command::new("CLUSTER").arg("GETKEYSINSLOT").arg(slot.to_string()).arg(most.to_string())
            }
            Asked::Size(_, key) => Command::new("MEMORY").arg("USAGE").arg(key),
            Asked::Migrate(batch) => {
                let mut command = Command::new("MIGRATE")
                    .arg(to.ip().to_string())
                    .arg(to.port().to_string())
                    .args(["", "0"])
                    .arg(self.patience.as_millis().to_string());
                if batch.replace {
                    command.push("REPLACE");
                }
                command
                    .arg("AUTH2")
                    .arg(self.credentials.user())
                    .arg(self.credentials.password())
                    .arg("KEYS")
                    .args(&batch.keys)
            }
        }
    }

    fn learn(&mut self, asked: &[Asked], elapsed: Duration) {
        let keys: usize = asked
            .iter()
            .map(|asked| match asked {
                Asked::Migrate(batch) => batch.keys.len(),
                Asked::Size(..) | Asked::Names(..) => 0,
            })
            .sum();
        if keys > 0 {
            self.budget.learn(keys, elapsed);
        }
    }

    fn take_in(&mut self, asked: Asked, reply: Reply, at: SocketAddr, round: &mut Round) -> Result<(), Error> {
        match asked {
            Asked::Names(slot, most) => self.take_names((slot, most), reply, at),
            Asked::Size(slot, key) => self.take_size(slot, key, reply, at, round),
            Asked::Migrate(batch) => self.take_migrated(batch, reply, at, round),
        }
    }

    fn take_names(&mut self, (slot, most): (u16, usize), reply: Reply, at: SocketAddr) -> Result<(), Error> {
        let names = match reply {
            Reply::Array(names) => names,
            other => return Err(unexpected("CLUSTER GETKEYSINSLOT", at, &other)),
        };
        let complete = names.len() < most;
        // One that has more than was asked for has twice as many, for all that is known.
        let has = if complete { names.len() } else { most.saturating_mul(2) };
        self.per_slot = (self.per_slot.saturating_mul(3).saturating_add(has)) / 4;
        let state = self.slots.entry(slot).or_default();
        state.complete = complete;
        state.named.extend(names.into_iter().filter_map(|name| match name {
            Reply::Bulk(name) => Some(name),
            Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Nil | Reply::Array(_) => None,
        }));
        Ok(())
    }

    fn take_size(
        &mut self,
        slot: u16,
        key: Bytes,
        reply: Reply,
        at: SocketAddr,
        round: &mut Round,
    ) -> Result<(), Error> {
        let state = self.slots.entry(slot).or_default();
        let bytes = match &reply {
            // It has been deleted, or has expired; for a marked slot the answer is then where to ask for it.
            gone if is_gone(gone) => {
                state.under_way = state.under_way.saturating_sub(1);
                return Ok(());
            }
            other => other.integer().and_then(|n| u64::try_from(n).ok()),
        };
        let Some(bytes) = bytes else { return Err(unexpected("MEMORY USAGE", at, &reply)) };
        let most = self.moving.max_key_bytes;
        if bytes > most || state.refused {
            if bytes > most {
                round.refused.push(BigKey { slot, bytes, most });
            }
            self.refuse(slot);
            return Ok(());
        }
        // One MIGRATE blocks its source until the target has answered, so the time budget bounds it as well.
        let batch_keys = usize::try_from(self.moving.batch_keys).unwrap_or(usize::MAX).min(self.budget.keys());
        let fits = |batch: &&mut Batch| {
            batch.slot == slot
                && batch.attempt == 0
                && batch.keys.len() < batch_keys
                && batch.bytes.saturating_add(bytes) <= BYTES_MOST
        };
        match self.ready.back_mut().filter(fits) {
            Some(batch) => {
                batch.keys.push(key);
                batch.bytes = batch.bytes.saturating_add(bytes);
            }
            None => self.ready.push_back(Batch { slot, keys: vec![key], bytes, attempt: 0, replace: false }),
        }
        Ok(())
    }

    /// Nothing more of this slot is sent.
    fn refuse(&mut self, slot: u16) {
        self.ready.retain(|batch| batch.slot != slot);
        self.slots.insert(slot, Slot { refused: true, complete: true, ..Slot::default() });
    }

    fn take_migrated(
        &mut self,
        mut batch: Batch,
        reply: Reply,
        at: SocketAddr,
        round: &mut Round,
    ) -> Result<(), Error> {
        let keys = batch.keys.len();
        match reply {
            // NOKEY: all of them have been deleted or have expired since they were named.
            Reply::Status(word) => {
                self.linked |= word != "NOKEY";
                let count = u64::try_from(keys).unwrap_or(u64::MAX);
                round.keys = round.keys.saturating_add(count);
                round.bytes = round.bytes.saturating_add(batch.bytes);
                if let Some(state) = self.slots.get_mut(&batch.slot) {
                    state.under_way = state.under_way.saturating_sub(keys);
                }
                Ok(())
            }
            Reply::Error(text) => {
                let busy = text.contains("BUSYKEY");
                if !(busy || text.starts_with("IOERR")) || batch.attempt >= ATTEMPTS {
                    return Err(Error::Migrate { slot: batch.slot, text });
                }
                // Keys that did arrive are gone from the source, and MIGRATE passes over them. Those found at both
                // ends are leftovers (see the head of `migrate`), so next the source's copy replaces them. Where nobody has said that there
                // are any, nothing is replaced.
                if busy {
                    round.replaced = round.replaced.saturating_add(1);
                }
                (self.linked, batch.replace) = (busy, busy);
                batch.attempt = batch.attempt.saturating_add(1);
                self.ready.push_front(batch);
                Ok(())
            }
            other => Err(unexpected("MIGRATE", at, &other)),
        }
    }

    /// Slots of which every name was told and every key has gone.
    fn collect_empty(&mut self, round: &mut Round) {
        let finished = |slot: &Slot| slot.complete && !slot.refused && slot.named.is_empty() && slot.under_way == 0;
        let done: Vec<u16> = self.slots.iter().filter(|(_, slot)| finished(slot)).map(|(n, _)| *n).collect();
        for slot in done {
            self.slots.remove(&slot);
            round.empty.push(slot);
        }
    }
}

fn locked(bucket: &Mutex<Bucket>) -> MutexGuard<'_, Bucket> {
    // Every change of it is one assignment: a panic elsewhere cannot have left it half changed.
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the answer to a question about a key says that there is none.
fn is_gone(reply: &Reply) -> bool {
    match reply {
        Reply::Nil => true,
        Reply::Error(text) => text.starts_with("ASK "),
        Reply::Status(_) | Reply::Integer(_) | Reply::Bulk(_) | Reply::Array(_) => false,
    }
}

fn unexpected(what: &'static str, address: SocketAddr, reply: &Reply) -> Error {
    let why = match reply {
        Reply::Error(text) => text.clone(),
        Reply::Status(_) | Reply::Integer(_) | Reply::Bulk(_) | Reply::Nil | Reply::Array(_) => {
            "an answer of another form".to_owned()
        }
    };
    Error::Node(RedisError::Answer { what, address, why })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_key_larger_than_an_exchange_waits_until_all_is_acknowledged() {
        let (nothing, usual, large) =
            (Sent::default(), Sent { keys: 200, bytes: BYTES_MOST }, Sent { keys: 1, bytes: BYTES_MOST + 1 });
        assert_eq!([usual, large].map(|sent| sent.fits_beside(nothing)), [true, true]);
        assert_eq!([usual, large].map(|sent| sent.fits_beside(usual)), [true, false]);
        assert_eq!([usual, large].map(|sent| sent.fits_beside(large)), [false, false]);
    }

    fn stream() -> Stream {
        let moving = crate::testing::resolved(&serde_json::json!({})).migration;
        let slots: Vec<u16> = (0..200).collect();
        Stream::new(&slots, moving, Duration::from_secs(5), Credentials::new("kun", ""))
    }

    /// Slots and how many names of each.
    fn names(stream: &mut Stream) -> (usize, usize) {
        let mut asked = Vec::new();
        stream.ask_names(&mut asked);
        let most: Vec<usize> = asked
            .iter()
            .map(|asked| match asked {
                Asked::Names(_, most) => *most,
                Asked::Migrate(_) | Asked::Size(..) => panic!(),
            })
            .collect();
        (most.len(), most.iter().sum())
    }

    /// Before, an answer of each of 64 slots might have had a thousand names.
    #[test]
    fn one_exchange_asks_for_no_more_than_a_thousand_names() {
        let at = SocketAddr::from(([127, 0, 0, 1], 6379));
        for has in [0, 1, 15, 100, 5_000] {
            let mut stream = stream();
            for _ in 0..40 {
                let (slots, most) = names(&mut stream);
                assert!(slots <= SLOTS_AHEAD && most <= NAMES, "{slots} slots, {most} names");
                let drained: Vec<u16> = stream.slots.keys().copied().collect();
                for slot in drained {
                    let each = NAMES / slots.max(1);
                    let reply = Reply::Array(vec![Reply::Bulk("k".into()); has.min(each)]);
                    stream.take_names((slot, each), reply, at).unwrap();
                    stream.slots.get_mut(&slot).unwrap().named.clear();
                }
                stream.collect_empty(&mut Round::default());
            }
        }
    }

    #[test]
    fn no_names_are_asked_for_while_many_bytes_of_them_are_held() {
        let mut stream = stream();
        stream.slots.entry(500).or_default().named.push_back(vec![b'x'; HELD_BYTES].into());
        assert_eq!(names(&mut stream), (0, 0));
        stream.slots.clear();
        assert!(names(&mut stream).0 > 0);
    }

    #[test]
    fn a_key_that_went_while_its_slot_moves_is_sent_on_and_so_it_is_gone() {
        for (reply, gone) in [
            (Reply::Nil, true),
            (Reply::Error("ASK 6432 127.85.2.21:6379".to_owned()), true),
            (Reply::Error("MOVED 6432 127.85.2.21:6379".to_owned()), false),
            (Reply::Error("ASKING is not allowed".to_owned()), false),
            (Reply::Integer(56), false),
        ] {
            assert_eq!(is_gone(&reply), gone, "{reply:?}");
        }
    }
}
