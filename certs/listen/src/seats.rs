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

    /// A seat for somebody from this address; `None`: the address has its share, or nobody who could has to make room.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Seat> {
        let mut taken = locked(&self.taken);
        if taken.entries.values().filter(|entry| entry.address == address).count() >= self.per_address {
            return None;
        }
        if taken.entries.len() >= self.most {
            let idle = |entry: &Entry| !entry.kept && entry.busy == 0;
            let oldest = taken.entries.iter().find(|(_, entry)| idle(entry)).map(|(number, _)| *number)?;
            if let Some(entry) = taken.entries.remove(&oldest) {
                entry.lost.cancel();
            }
        }
        let (number, lost) = (taken.next, CancellationToken::new());
        taken.next = number.wrapping_add(1);
        taken.entries.insert(number, Entry { address, kept: false, busy: 0, spoken: false, lost: lost.clone() });
        Some(Seat { number, lost, taken: Arc::clone(&self.taken) })
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
        if let Some(entry) = locked(&self.taken).entries.get_mut(&self.number) {
            entry.spoken = true;
            entry.busy = entry.busy.saturating_add(1);
        }
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
        if let Some(entry) = locked(&self.taken).entries.get_mut(&self.number) {
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
    fn the_oldest_idle_stranger_makes_room_and_nobody_else() {
        let seats = Seats::new(3, 3);
        let [known, asking, idle] = [1, 2, 3].map(|last| seats.take(from(last)).unwrap());
        known.keep();
        let busy = asking.busy();
        let newcomer = seats.take(from(4)).unwrap();
        assert_eq!(
            [&known, &asking, &idle, &newcomer].map(|seat| seat.lost.is_cancelled()),
            [false, false, true, false]
        );
        newcomer.keep();
        assert!(seats.take(from(5)).is_none(), "all are somebody, or being answered");
        drop(busy);
        assert!(seats.take(from(5)).is_some());
        assert!(asking.lost.is_cancelled());
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let seats = Seats::new(9, 2);
        let first = seats.take(from(1)).unwrap();
        let _second = seats.take(from(1)).unwrap();
        assert!(seats.take(from(1)).is_none());
        assert!(seats.take(from(2)).is_some());
        drop(first);
        assert!(seats.take(from(1)).is_some());
    }
}
