//! Who has a seat, since when, and who gives it up first.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All seats.
#[derive(Debug)]
pub(crate) struct Seats {
    most: usize,
    per_address: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By age.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Its holder has shown a certificate.
    kept: bool,
    /// Requests that are being answered.
    busy: usize,
    /// It has asked something.
    spoken: bool,
    /// When it last came, asked, or was answered.
    touched: u64,
    lost: CancellationToken,
}

/// A seat; given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    number: u64,
    lost: CancellationToken,
    taken: Arc<Mutex<Taken>>,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Busy {
    number: u64,
    taken: Arc<Mutex<Taken>>,
}

fn locked(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // Each change is a single one: who panics leaves nothing half done.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seats {
    pub(crate) fn new(most: usize, per_address: usize) -> Self {
        Self { most, per_address, taken: Arc::default() }
    }

    /// A seat for somebody from this address; `None`: nobody who could has to make room for it. Where the address has its share, only one
    /// of its own does. Who is being answered goes last: an answer that never ends must not keep a seat for ever.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Seat> {
        let mut taken = locked(&self.taken);
        let has_share = taken.entries.values().filter(|entry| entry.address == address).count() >= self.per_address;
        if has_share || taken.entries.len() >= self.most {
            let gives = |entry: &Entry| !entry.kept && (!has_share || entry.address == address);
            let strangers = taken.entries.iter().filter(|(_, entry)| gives(entry));
            let first =
                strangers.min_by_key(|(_, entry)| (entry.busy > 0, entry.touched)).map(|(number, _)| *number)?;
            if let Some(entry) = taken.entries.remove(&first) {
                entry.lost.cancel();
            }
        }
        let (number, lost) = (taken.tick(), CancellationToken::new());
        let entry = Entry { address, kept: false, busy: 0, spoken: false, touched: number, lost: lost.clone() };
        taken.entries.insert(number, entry);
        Some(Seat { number, lost, taken: Arc::clone(&self.taken) })
    }
}

impl Taken {
    /// Later than everything before.
    fn tick(&mut self) -> u64 {
        let now = self.next;
        self.next = now.wrapping_add(1);
        now
    }
}

impl Seat {
    /// Its holder is somebody: it is not taken away any more.
    pub(crate) fn keep(&self) {
        if let Some(entry) = locked(&self.taken).entries.get_mut(&self.number) {
            entry.kept = true;
        }
    }

    /// A request begins; it ends when the result is dropped.
    pub(crate) fn busy(&self) -> Busy {
        let mut taken = locked(&self.taken);
        let now = taken.tick();
        if let Some(entry) = taken.entries.get_mut(&self.number) {
            (entry.spoken, entry.touched) = (true, now);
            entry.busy = entry.busy.saturating_add(1);
        }
        drop(taken);
        Busy { number: self.number, taken: Arc::clone(&self.taken) }
    }

    /// Whether there has been a request.
    pub(crate) fn has_spoken(&self) -> bool {
        locked(&self.taken).entries.get(&self.number).is_some_and(|entry| entry.spoken)
    }

    /// Returns when the seat was taken away for somebody else.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.taken).entries.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        let now = taken.tick();
        if let Some(entry) = taken.entries.get_mut(&self.number) {
            entry.touched = now;
            entry.busy = entry.busy.saturating_sub(1);
        }
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
        let gone = |seat: &Seat| seat.lost.is_cancelled();
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
        assert_eq!([&first, &second, &third, &other].map(|seat| seat.lost.is_cancelled()), [true, false, false, false]);
        second.keep();
        third.keep();
        assert!(seats.take(from(1)).is_none());
        drop(second);
        assert!(seats.take(from(1)).is_some());
    }
}
