//! What a store must hold after each fault: everything acknowledged, everything a watcher was shown, and of each writer at
//! most the one write more that it was waiting for. Pure but for reading.

use std::collections::{BTreeMap, BTreeSet};

use store::{Key, ListOptions, Range, Revision, Store};

use super::writers::{Line, Said, count_in, writer_of};

/// By key: the newest write, and its counter.
type Contents = BTreeMap<Key, (Revision, u64)>;

/// What was found at the last look.
pub(crate) struct Expected {
    revision: Revision,
    keys: Contents,
}

impl Default for Expected {
    fn default() -> Self {
        Expected { revision: Revision::FIRST, keys: BTreeMap::new() }
    }
}

impl Expected {
    /// Compares the store with what was said since the last look.
    pub(crate) async fn check(&mut self, said: &Said, store: &dyn Store) -> Result<(), String> {
        let (revision, found) = read(store).await?;
        self.watched(&said.seen, revision, &found)?;
        self.acknowledged(&said.acknowledged, revision, &found)?;
        *self = Expected { revision, keys: found };
        Ok(())
    }

    /// Writes of other keys took revisions up to this one.
    #[allow(dead_code, reason = "not every test makes any")]
    pub(crate) fn moved_to(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// What a watcher was shown is there: one event per revision without a gap, none of them beyond the file, and no key
    /// older than it was shown.
    fn watched(&self, seen: &[Line], revision: Revision, found: &Contents) -> Result<(), String> {
        let mut last = self.revision;
        let mut newest: BTreeMap<&Key, &Line> = BTreeMap::new();
        for line in seen {
            if line.revision != last.next() {
                return Err(format!("a watcher was shown {} after {last}", line.revision));
            }
            last = line.revision;
            newest.insert(&line.key, line);
        }
        if last > revision {
            return Err(format!("a watcher was shown {last}, the store is at {revision}"));
        }
        for (key, line) in newest {
            let here = found.get(key);
            let same = line.count.map(|count| (line.revision, count));
            let newer = here.is_none_or(|(at, _)| *at > line.revision);
            if here != same.as_ref() && !(newer && revision > line.revision) {
                return Err(format!("{key}: a watcher was shown {same:?}, found {here:?}"));
            }
        }
        Ok(())
    }

    /// Each writer may have had one write in flight, and every revision must be somebody's: acknowledged, or in flight and
    /// visible.
    fn acknowledged(&mut self, told: &[Line], revision: Revision, found: &Contents) -> Result<(), String> {
        let mut last: BTreeMap<String, Revision> = BTreeMap::new();
        for Line { key, revision, count } in told {
            last.insert(writer_of(key), *revision);
            match count {
                Some(count) => drop(self.keys.insert(key.clone(), (*revision, *count))),
                None => drop(self.keys.remove(key)),
            }
        }
        let mut in_flight: BTreeMap<String, &Key> = BTreeMap::new();
        for key in self.keys.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (told, here) = (self.keys.get(key), found.get(key));
            if told == here {
                continue;
            }
            let newest = last.get(&writer_of(key)).copied().unwrap_or(self.revision);
            if here.is_some_and(|(at, _)| *at <= newest) {
                return Err(format!("{key}: acknowledged {told:?}, found the older {here:?}"));
            }
            if let Some(other) = in_flight.insert(writer_of(key), key) {
                return Err(format!("{key} and {other} differ from what one writer was told: {told:?}, {here:?}"));
            }
        }
        let expected = self.revision.0 + (told.len() + in_flight.len()) as u64;
        if revision.0 != expected {
            let (had, told) = (self.revision, told.len());
            return Err(format!(
                "{told} writes after {had} were acknowledged, in flight {in_flight:?}, now {revision}"
            ));
        }
        Ok(())
    }
}

async fn read(store: &dyn Store) -> Result<(Revision, Contents), String> {
    let page = store.list(ListOptions::all(Range::All)).await.map_err(|error| error.to_string())?;
    let current = store.current_revision().await.map_err(|error| error.to_string())?;
    if current != page.revision {
        return Err(format!("the store is at {current}, what it holds at {}", page.revision));
    }
    let found = page.items.iter().map(|(key, stored)| (key.clone(), (stored.revision, count_in(&stored.value))));
    Ok((page.revision, found.collect()))
}
