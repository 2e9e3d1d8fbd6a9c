//! Who has a seat, since when, and who gives it up first.
//!
//! Only taking a seat and giving it back lock: what is noted of each request are a few atomic numbers. They are read while others change
//! them, and decide who has been idle for longest: an order that is a request old does no harm.

use std::collections::{BTreeMap, btree_map};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All seats.
#[derive(Debug)]
pub(crate) struct Seats {
    most: usize,
    per_address: usize,
    room: Arc<Room>,
}

#[derive(Debug, Default)]
struct Room {
    /// Counts what happens: later is more.
    clock: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By age.
    entries: BTreeMap<u64, Arc<Entry>>,
    /// How many of them an address has.
    shares: BTreeMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Its holder is somebody.
    kept: AtomicBool,
    /// Requests that are being answered.
    busy: AtomicUsize,
    /// It has asked something.
    spoken: AtomicBool,
    /// When it last came, asked, or was answered.
    touched: AtomicU64,
    lost: CancellationToken,
}

/// A seat; given back when dropped.
#[derive(Debug)]
pub struct Seat {
    number: u64,
    entry: Arc<Entry>,
    room: Arc<Room>,
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Busy {
    entry: Arc<Entry>,
    room: Arc<Room>,
}

impl Room {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Each change is a single one: who panics leaves nothing half done.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    pub(crate) fn new(most: usize, per_address: usize) -> Self {
        Self { most, per_address, room: Arc::default() }
    }

    /// A seat for somebody from this address; `None`: nobody who could has to make room for it. Where the address has its share, only one
    /// of its own does. Who is being answered goes last: an answer that never ends must not keep a seat for ever.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Seat> {
        let mut taken = self.room.taken();
        let has_share = taken.shares.get(&address).is_some_and(|share| *share >= self.per_address);
        if has_share || taken.entries.len() >= self.most {
            let gives = |entry: &Entry| !entry.kept.load(Relaxed) && (!has_share || entry.address == address);
            let strangers = taken.entries.iter().filter(|(_, entry)| gives(entry));
            let idle = |entry: &Entry| (entry.busy.load(Relaxed) > 0, entry.touched.load(Relaxed));
            let first = strangers.min_by_key(|(_, entry)| idle(entry)).map(|(number, _)| *number)?;
            if let Some(entry) = taken.remove(first) {
                entry.lost.cancel();
            }
        }
        let number = self.room.tick();
        let entry = Arc::new(Entry {
            address,
            kept: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            spoken: AtomicBool::new(false),
            touched: AtomicU64::new(number),
            lost: CancellationToken::new(),
        });
        taken.entries.insert(number, Arc::clone(&entry));
        let share = taken.shares.entry(address).or_default();
        *share = share.saturating_add(1);
        Some(Seat { number, entry, room: Arc::clone(&self.room) })
    }
}

impl Taken {
    fn remove(&mut self, number: u64) -> Option<Arc<Entry>> {
        let entry = self.entries.remove(&number)?;
        if let btree_map::Entry::Occupied(mut share) = self.shares.entry(entry.address) {
            *share.get_mut() = share.get().saturating_sub(1);
            if *share.get() == 0 {
                share.remove();
            }
        }
        Some(entry)
    }
}

impl Seat {
    /// Its holder is somebody: it is not taken away any more.
    pub fn keep(&self) {
        self.entry.kept.store(true, Relaxed);
    }

    /// A request begins; it ends when the result is dropped.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.entry.busy.fetch_add(1, Relaxed);
        self.entry.touched.store(self.room.tick(), Relaxed);
        self.entry.spoken.store(true, Relaxed);
        Busy { entry: Arc::clone(&self.entry), room: Arc::clone(&self.room) }
    }

    /// Whether there has been a request.
    #[must_use]
    pub fn has_spoken(&self) -> bool {
        self.entry.spoken.load(Relaxed)
    }

    /// Returns when the seat was taken away for somebody else.
    pub async fn lost(&self) {
        self.entry.lost.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.taken().remove(self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.entry.touched.store(self.room.tick(), Relaxed);
        self.entry.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn from(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn the_stranger_that_has_been_idle_for_longest_makes_room_and_nobody_else() {
        let seats = Seats::new(4, 4);
        let [known, asking, asked, idle] = [1, 2, 3, 4].map(|last| seats.take(from(last)).unwrap());
        known.keep();
        let busy = asking.busy();
        drop(asked.busy());
        let gone = |seat: &Seat| seat.entry.lost.is_cancelled();
        let fifth = seats.take(from(5)).unwrap();
        assert_eq!([&known, &asking, &asked, &idle].map(gone), [false, false, false, true]);
        fifth.keep();
        let sixth = seats.take(from(6)).unwrap();
        assert_eq!([&known, &asking, &asked].map(gone), [false, false, true]);
        sixth.keep();
        // Nobody is idle: whoever is answered for ever does not stay for ever.
        let seventh = seats.take(from(7)).unwrap();
        assert!(gone(&asking) && !gone(&known));
        seventh.keep();
        assert!(seats.take(from(8)).is_none(), "all are somebody");
        drop(busy);
    }

    #[test]
    fn within_its_share_an_address_makes_room_for_itself() {
        let seats = Seats::new(9, 2);
        let [first, second] = [(); 2].map(|()| seats.take(from(1)).unwrap());
        let other = seats.take(from(2)).unwrap();
        let third = seats.take(from(1)).unwrap();
        assert_eq!(
            [&first, &second, &third, &other].map(|seat| seat.entry.lost.is_cancelled()),
            [true, false, false, false]
        );
        second.keep();
        third.keep();
        assert!(seats.take(from(1)).is_none());
        drop(second);
        let again = seats.take(from(1)).unwrap();
        drop((first, third, other, again));
        assert!(seats.room.taken().shares.is_empty(), "an address without a seat is remembered");
    }
}
