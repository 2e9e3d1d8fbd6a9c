//! When the machine itself stood still: nobody dealt that blow, and every member felt it. It excuses what a primary had that was replaced
//! in the same round, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::tests::{fixture::Fixture, oracle};
use anyhow::{Context as _, Result};
use resp::{Node, NodeId};
use types::names;

use super::{
    blow::Member,
    excuse::{Hit, How},
};

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(100);

/// Someone who only looks whether time goes on, for the processors and for the disk that the members are on.
pub(super) struct Stills {
    found: Arc<Mutex<Vec<(Instant, Instant)>>>,
    stopped: Arc<AtomicBool>,
}

impl Drop for Stills {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Stills {
    /// Begins to look. What is shorter than this counts as nothing.
    pub(super) fn watch(folder: &Path, least: Duration) -> Result<Self> {
        let mut file = File::create(folder.join("still"))?;
        let stills = Self { found: Arc::default(), stopped: Arc::default() };
        let (found, stopped) = (Arc::clone(&stills.found), Arc::clone(&stills.stopped));
        std::thread::spawn(move || {
            let mut before = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                // What cannot be written does not tell how long it takes.
                file.write_all(b".").and_then(|()| file.sync_data()).ok();
                let now = Instant::now();
                if now - before >= least {
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((before, now));
                }
                before = now;
                std::thread::sleep(PAUSE);
            }
        });
        Ok(stills)
    }

    /// Those since it was asked before, as blows that held every member of the shards with these slots.
    pub(super) fn hits(&self, slots: &BTreeSet<u16>) -> Vec<Hit> {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.into_iter().map(|still| hit(still, slots)).collect()
    }
}

fn hit((from, until): (Instant, Instant), slots: &BTreeSet<u16>) -> Hit {
    let slots = slots.clone();
    Hit { shard: 0, member: Member::All, from, at: until, ends: from, until, slots, how: How::Held }
}

/// Whose each slot is, and since which epoch: who was replaced and took over again has another one.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<u16, (NodeId, u64)>);

impl Owners {
    /// By the table of one member, once those of all agree.
    pub(super) async fn ask(fixture: &Fixture) -> Result<Self> {
        let operator = oracle::credentials(&fixture.kubectl, "default", "orders", names::USER_OPERATOR).await?;
        let address = fixture.addresses().await?.into_values().next().context("a member")?;
        Ok(Self::of(&oracle::open(address, &operator).await?.cluster_nodes().await?))
    }

    fn of(table: &[Node]) -> Self {
        let slots = |node: &Node| {
            let owner = (node.id.clone(), node.config_epoch);
            let slots: Vec<u16> = node.slots.iter().flat_map(|range| range.first..=range.last).collect();
            slots.into_iter().map(move |slot| (slot, owner.clone()))
        };
        Self(table.iter().flat_map(slots).collect())
    }

    /// The slots that were another's then, or another epoch's.
    pub(super) fn changed_since(&self, then: &Self) -> BTreeSet<u16> {
        self.0.iter().filter(|(slot, owner)| then.0.get(*slot) != Some(*owner)).map(|(slot, _)| *slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use ::tests::writer::Lost;
    use resp::slot::key_slot;

    use super::*;
    use crate::campaign::excuse::{Keeps, excused};

    #[test]
    fn a_machine_that_stands_still_for_longer_than_counts_is_noticed_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        // Whatever there is between two looks counts.
        let stills = Stills::watch(folder.path(), Duration::ZERO)?;
        let begin = Instant::now();
        let slots = BTreeSet::from([1, 2]);
        let mut hits = stills.hits(&slots);
        while hits.is_empty() {
            assert!(begin.elapsed() < hung::answer(), "nobody looks");
            std::thread::sleep(PAUSE);
            hits = stills.hits(&slots);
        }
        assert!(hits.iter().all(|hit| hit.from <= hit.until && hit.slots == slots), "{hits:?}");
        let never = Stills::watch(folder.path(), Duration::from_secs(1 << 30))?;
        std::thread::sleep(3 * PAUSE);
        assert!(never.hits(&slots).is_empty());
        Ok(())
    }

    #[test]
    fn a_still_excuses_what_a_replaced_primary_had_just_acknowledged_and_nothing_else() {
        let slot = key_slot("a");
        let from = Instant::now() + Duration::from_secs(1000);
        let until = from + Duration::from_secs(3);
        let lost = |sent_at: Instant| Lost { key: "a".to_owned(), what: String::new(), sent_at, acked_at: sent_at };
        let is_excused = |slots: &[u16], lost: &Lost| {
            excused(Keeps::Always, &[hit((from, until), &slots.iter().copied().collect())], lost)
        };
        assert!(is_excused(&[slot], &lost(from)));
        assert!(is_excused(&[slot], &lost(until)), "before it hears that it was replaced");
        assert!(!is_excused(&[slot], &lost(from - Duration::from_secs(900))));
        assert!(!is_excused(&[slot], &lost(until + Duration::from_secs(900))));
        assert!(!is_excused(&[slot ^ 1], &lost(from)), "its primary is the same");
        assert!(!is_excused(&[], &lost(from)), "nobody was replaced");
    }

    #[test]
    fn a_primary_that_was_replaced_is_another_also_when_it_took_over_again() {
        let owners = |of: &[(u16, u8, u64)]| {
            let id = |digit: u8| NodeId::parse(&digit.to_string().repeat(40)).expect("forty digits");
            Owners(of.iter().map(|(slot, digit, epoch)| (*slot, (id(*digit), *epoch))).collect())
        };
        let then = owners(&[(1, 1, 1), (2, 2, 2), (3, 3, 3)]);
        let now = owners(&[(1, 1, 1), (2, 4, 5), (3, 3, 6)]);
        assert_eq!(now.changed_since(&then), BTreeSet::from([2, 3]));
        assert_eq!(now.changed_since(&now), BTreeSet::new());
    }
}
